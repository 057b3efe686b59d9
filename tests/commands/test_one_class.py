"""A cohort of one class: what needs both classes is undefined, with its reason, and all else is computed.

A screening month without a cancer is no mistake of the user (protocols.md: undefined, and counted so).
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import EXIT_NOT_ASSESSED, EXIT_OK
from worlds.task_files import binary_tables

TARGETS = {"classification": "label", "response": "pcr"}
CLAIM = """
task = "{task}"
model = "M"
protocol = "plain"
aim = "non-inferiority"
threshold = 0.5
[[primary]]
metric = "auroc"
value = 0.9
margin = 0.05
margin_source = "the board"
"""


def world(folder, task, value, **options):
    cases, said = binary_tables(target=TARGETS[task], **options)
    cases[TARGETS[task]] = value
    cases.to_csv(folder / "cohort.csv", index=False)
    said.to_csv(folder / "said.csv", index=False)
    said.assign(probability=said["probability"] ** 2).to_csv(folder / "other.csv", index=False)
    return folder


@pytest.fixture(params=[(t, v) for t in TARGETS for v in (0, 1)], ids=lambda p: f"{p[0]}-all-{p[1]}")
def one_class(request, tmp_path):
    task, value = request.param
    return task, value, world(tmp_path, task, value)


def test_score_says_what_is_undefined_and_computes_the_rest(run, one_class):
    task, value, folder = one_class
    done = run(
        "score", task, folder / "cohort.csv", folder / "said.csv", "--group-by", "breast_density",
        "--resamples", 60, "--out", folder / "out", "--json",
    )  # fmt: skip
    assert done.code == EXIT_OK, done.said
    summary = done.json
    auroc = summary["metrics"]["auroc"]
    assert auroc["value"] is None
    assert "no " in auroc["undefined_reason"]
    rate = summary["metrics"]["sensitivity" if value else "specificity"]
    assert rate["value"] is not None and rate["lo"] < rate["value"] < rate["hi"]
    assert summary["metrics"]["brier"]["value"] is not None
    assert summary["counts"]["positives"] == value * summary["counts"]["cases"]
    assert any("metrics that need both classes are undefined" in w for w in summary["warnings"])
    assert all(row["metrics"]["brier"]["value"] is not None for row in summary["sites"].values())
    page = (folder / "out/report.html").read_text()
    assert "metrics that need both classes are undefined" in page


def test_a_verdict_on_one_class_is_not_assessed(run, one_class):
    task, _, folder = one_class
    (folder / "claim.toml").write_text(CLAIM.format(task=task))
    accepted = run("accept", folder / "cohort.csv", folder / "said.csv", "--claim", folder / "claim.toml",
                   "--resamples", 50, "--out", folder / "accepted", "--json")  # fmt: skip
    assert accepted.code == EXIT_NOT_ASSESSED, accepted.said
    assert accepted.json["verdict"]["word"] == "NOT ASSESSED"
    scored = run("score", task, folder / "cohort.csv", folder / "said.csv", "--resamples", 50, "--json",
                 "--reference-site", "north", "--margin", 0.1, "--out", folder / "a")  # fmt: skip
    assert scored.code == EXIT_NOT_ASSESSED, scored.said
    assert {"classification": "auroc", "response": "balanced_accuracy"}[task] in scored.json["verdict"][
        "reason"
    ]
    split = run("equivalence", folder / "a", "--split-by", "site", "--reference", "north", "--margin", 0.1)
    assert split.code == EXIT_NOT_ASSESSED, split.said


def test_other_commands_on_one_class(run, one_class):
    """rank, compare, summarise and report: no traceback, and undefined is written as such."""
    task, _, folder = one_class
    ranked = run("rank", folder / "said.csv", folder / "other.csv", "--cohort", folder / "cohort.csv",
                 "--task", task, "--resamples", 50, "--out", folder / "rank", "--json")  # fmt: skip
    assert ranked.code == EXIT_OK, ranked.said
    assert all(row["value"] is None for row in ranked.json["ranking"]["table"])
    for name in ("said", "other"):
        made = run("score", task, folder / "cohort.csv", folder / f"{name}.csv", "--resamples", 50,
                   "--out", folder / name)  # fmt: skip
        assert made.code == EXIT_OK, made.said
    compared = run(
        "compare", folder / "said", folder / "other", "--resamples", 50, "--out", folder / "compared"
    )
    assert compared.code == EXIT_OK, compared.said
    assert run("rank", folder / "said", folder / "other", "--resamples", 50).code == EXIT_OK
    assert run("report", folder / "said", "--out", folder / "again").code == EXIT_OK
    again = run("summarise", task, folder / "cohort.csv", folder / "said", "--resamples", 50,
                "--out", folder / "summarised", "--json")  # fmt: skip
    assert again.code == EXIT_OK, again.said
    first = json.loads((folder / "said/summary.json").read_text())["metrics"]
    for name, entry in again.json["metrics"].items():
        assert entry["value"] == first[name]["value"]


def test_no_truth_at_all_is_still_refused(run, tmp_path):
    folder = world(tmp_path, "classification", "?")
    done = run("score", "classification", folder / "cohort.csv", folder / "said.csv", "--out", folder / "out")
    assert done.code == 64
    assert "no case has a truth" in done.err


def test_one_class_with_missing_predictions(run, tmp_path):
    folder = world(tmp_path, "classification", 0)
    said = pd.read_csv(folder / "said.csv").iloc[5:]
    said["probability"] = np.where(np.arange(len(said)) % 9 == 0, np.nan, said["probability"])
    said.dropna().to_csv(folder / "said.csv", index=False)
    done = run("score", "classification", folder / "cohort.csv", folder / "said.csv", "--resamples", 50,
               "--out", folder / "out", "--json")  # fmt: skip
    assert done.code == EXIT_OK, done.said
    assert done.json["metrics"]["specificity"]["answered_only"] > done.json["metrics"]["specificity"]["value"]
