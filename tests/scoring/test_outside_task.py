"""A task of another package is read, checked, scored, judged, compared, ranked and reported like a built-in one.

The package is the one that `docs/how-to/add-a-task.md` shows, installed as pip would: nothing of ours knows its name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-task.md"
CLAIM = """
model = "steady"
task = "onset"
protocol = "onset-strict"
alpha = 0.05
[outcomes]
verified_by = "two readers"
[[primary]]
metric = "onset_found"
value = 0.57
lo = 0.47
hi = 0.66
margin = 0.20
margin_source = "the ward"
"""


def block(language: str, having: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (found,) = [text for text in blocks if having in text]
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A site folder with the package, and a cohort with the answers of two models."""
    folder = tmp_path_factory.mktemp("onset")
    project = tomllib.loads(block("toml", "[project]"))["project"]
    site = folder / "site"
    told = site / "elsewhere_onset-1.0.dist-info"
    told.mkdir(parents=True)
    (site / "elsewhere_onset.py").write_text(block("python", "class OnsetTask"))
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    brought = project["entry-points"]
    brought["elsewhere.tasks"]["broken"] = "elsewhere_onset_broken:TASK"
    lines = [
        line
        for group, entries in brought.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (told / "entry_points.txt").write_text("\n".join(lines) + "\n")
    rng = np.random.default_rng(0)
    cases = pd.DataFrame({"case_id": [f"r{i:03d}" for i in range(120)]})
    cases["patient_id"] = [f"p{i // 2:03d}" for i in range(120)]
    cases["site"] = ["North", "South"] * 60
    cases["true_onset_s"] = rng.uniform(1, 9, 120).round(2)
    cases.to_csv(folder / "cohort.csv", index=False)
    for model, error in (("steady", 0.3), ("hasty", 0.8)):
        answers = cases[["case_id"]].assign(onset_s=cases["true_onset_s"] + rng.normal(0, error, 120))
        answers.iloc[2:].to_csv(folder / f"{model}.csv", index=False)
    answers = pd.read_csv(folder / "steady.csv")
    answers.loc[:9, "onset_s"] = np.nan
    answers.to_csv(folder / "gaps.csv", index=False)
    (folder / "twice.csv").write_text("case_id,onset_s\nr001,1\nr001,2\n")
    (folder / "claim.toml").write_text(CLAIM)
    return folder


COMMANDS = {
    "tasks": "tasks --json",
    "protocols": "protocols --json",
    "broken": "score broken cohort.csv steady.csv --out none",
    "not for it": "score onset cohort.csv steady.csv --protocol camelyon16 --out none",
    "check": "check steady.csv --task onset --cohort cohort.csv --json",
    "check twice": "check twice.csv --task onset --cohort cohort.csv --json",
    "steady": "score onset cohort.csv steady.csv --protocol onset-strict --group-by site --resamples 200 --out steady --json",
    "hasty": "score onset cohort.csv hasty.csv --protocol onset-strict --resamples 200 --out hasty --json",
    "wide": "score onset cohort.csv steady.csv --resamples 50 --out wide --json",
    "gaps": "score onset cohort.csv gaps.csv --resamples 50 --out gaps --json",
    "accept": "accept cohort.csv steady.csv --claim claim.toml --out accepted --resamples 200 --json",
    "compare": "compare steady hasty --out comparison --resamples 200 --json",
    "rank": "rank steady hasty --out ranking --resamples 200 --json",
    "report": "report steady --tables tables",
    "again": "summarise onset cohort.csv steady/scores.parquet --protocol onset-strict --resamples 200 --out again --json",
}
RUNNER = """
import contextlib, io, json, shlex, sys
from elsewhere.cli import main
done = {}
for name, command in json.load(sys.stdin).items():
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(command))
        except SystemExit as end:
            code = int(end.code or 0)
    done[name] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(done))
"""


class Done(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.out[-2000:] + self.err[-2000:]
        return json.loads(self.out)


@pytest.fixture(scope="module")
def done(world) -> dict[str, Done]:
    """Every command, in one process of its own that has the package on its path."""
    process = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=world,
        input=json.dumps(COMMANDS),
        env=os.environ | {"PYTHONPATH": f"{world / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return {name: Done(*found) for name, found in json.loads(process.stdout).items()}


def test_it_is_listed_with_its_package_and_a_broken_one_is_named(done):
    (own,) = [row for row in done["tasks"].json["tasks"] if row["name"] == "onset"]
    assert own["from"] == "elsewhere-onset (elsewhere_onset:ONSET)"
    assert own["protocols"] == "onset-strict, plain" and own["answers"] == "onset"
    told = done["tasks"].err
    assert "elsewhere-onset (elsewhere_onset_broken:TASK)" in told and "cannot be loaded" in told
    (rules,) = [r for r in done["protocols"].json["protocols"] if r["name"] == "onset-strict"]
    assert rules["from"] == "elsewhere-onset (elsewhere_onset:ONSET_STRICT)"
    assert done["broken"].code == 64 and "the task 'broken' cannot be loaded" in done["broken"].err


def test_check_reads_its_answers(done):
    assert any("2 of 120 cohort cases" in finding["message"] for finding in done["check"].json["findings"])
    assert done["check twice"].code == 64 and "share a case_id" in done["check twice"].out


def test_score_uses_its_rules_its_words_and_its_headline(world, done):
    summary, wide = done["steady"].json, done["wide"].json
    assert summary["headline"] == "onset_found" and summary["counts"]["missing"] == 2
    assert summary["metrics"]["onset_found"]["method"] == "wilson-clustered"
    assert set(summary["groups"]["site"]) == {"North", "South"}
    stored = pd.read_parquet(world / "steady" / "scores.parquet")
    lost = stored["status"] == "missing"
    assert stored.loc[lost, "onset_error_s"].eq(10).all() and stored.loc[lost, "onset_found"].eq(0).all()
    assert wide["protocol"] == "plain" and wide["headline"] == "onset_error_s"
    assert wide["metrics"]["onset_found"]["value"] > summary["metrics"]["onset_found"]["value"]
    page = (world / "steady" / "report.html").read_text(encoding="utf-8")
    assert "Onset of an event" in page and "120 recordings of 60 patients" in page
    assert "Found within the tolerance" in page
    refused = done["not for it"]
    assert refused.code == 64 and "camelyon16 is not for onset" in refused.err
    assert "onset-strict, plain" in refused.err


def test_an_empty_cell_is_the_worst_value_and_not_left_out(world, done):
    counts = done["gaps"].json["counts"]
    assert counts["invalid"] == 10 and counts["missing"] == 2
    stored = pd.read_parquet(world / "gaps" / "scores.parquet")
    assert stored.loc[stored["status"] != "scored", "onset_error_s"].eq(10).all()


def test_accept_judges_a_claim(done):
    assert done["accept"].json["verdict"]["word"] == "EQUIVALENT"


def test_stored_results_are_compared_ranked_and_reported(world, done):
    assert set(done["compare"].json["comparison"]["metrics"]) == {"onset_error_s", "onset_found"}
    assert [row["model"] for row in done["rank"].json["ranking"]["table"]] == ["steady", "hasty"]
    assert "found within the tolerance" in (world / "ranking" / "report.html").read_text(encoding="utf-8")
    assert done["report"].code == 0 and (world / "tables").is_dir()
    values = [done[name].json["metrics"]["onset_found"]["value"] for name in ("steady", "again")]
    assert values[0] == values[1]
