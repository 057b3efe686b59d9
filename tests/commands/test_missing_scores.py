"""A verdict that rests on missing scores says so: on the console, on the page, in json, in groups (ST-14).

A hospital sends 5.7 % of its rows without a usable score. On the answered cases the model is as claimed; with the
missing ones counted as the worst value it is far below. Both are reported, and that the missing rows decide.
"""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pandas as pd
import pytest

from elsewhere.commands.equivalence import equivalence
from elsewhere.commands.score import score
from elsewhere.errors import EXIT_BELOW, EXIT_OK

CLAIM = """
task = "classification"
model = "M"
protocol = "plain"
aim = "non-inferiority"
threshold = 0.5

[[primary]]
metric = "auroc"
value = 0.97
margin = 0.05
margin_source = "the hospital's board"
[subgroups]
describe = ["month"]
"""
CASES, LOST = 700, 40


def hospital(folder, *, lost=LOST, seed=6):
    """700 patients, 20 % positive, two sites, seven months; the missing rows are those of one month at East."""
    rng = np.random.default_rng(seed)
    truth = (np.arange(CASES) % 5 == 0).astype(int)
    month = np.arange(CASES) // 100
    cases = pd.DataFrame(
        {
            "case_id": [f"C{i:04d}" for i in range(CASES)],
            "patient_id": [f"P{i:04d}" for i in range(CASES)],
            "site": np.where(month < 3, "West", "East"),
            "month": [f"2026-0{m + 1}" for m in month],
            "label": truth,
        }
    )
    logit = 2.85 * (truth - 0.5) + rng.normal(0, 1, CASES)
    said = pd.DataFrame({"case_id": cases["case_id"], "probability": 1 / (1 + np.exp(-logit))})
    gone = np.r_[
        np.flatnonzero((month == 6) & (truth == 1))[:14], np.flatnonzero((month == 6) & (truth == 0))
    ]
    said = said.drop(index=gone[:lost])
    cases.to_csv(folder / "cohort.csv", index=False)
    said.to_csv(folder / "said.csv", index=False)
    (folder / "claim.toml").write_text(CLAIM)
    return folder


def words_of(page):
    """The text of a page, without tags."""
    body = page.split("<body", 1)[1]
    return re.sub(
        r"\s+", " ", html.unescape(re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", body, flags=re.S))
    )


@pytest.fixture(scope="module")
def accepted(run, tmp_path_factory):
    folder = hospital(tmp_path_factory.mktemp("hospital"))
    done = run("accept", folder / "cohort.csv", folder / "said.csv", "--claim", folder / "claim.toml",
               "--resamples", 100, "--out", folder / "out")  # fmt: skip
    return folder, done


def test_the_console_says_both_verdicts(accepted):
    _, done = accepted
    assert done.code == EXIT_BELOW, done.said
    assert "40 of 700 cases (5.7\u202f%) have no usable score; each counts as the worst value." in done.out
    assert re.search(r"auroc +0\.8\d\d \[.*\]; answered only 0\.97\d \[0\.9\d\d, 0\.9\d\d\]", done.out)
    assert "verdict: BELOW" in done.out
    assert "it is BELOW with them and EQUIVALENT without them" in done.out


def test_json_has_the_claim_without_the_missing_scores(accepted):
    folder, _ = accepted
    summary = json.loads((folder / "out/summary.json").read_text())
    (claim,) = summary["verdict"]["claims"]
    again = claim["answered_only"]
    assert (claim["word"], again["word"]) == ("BELOW", "EQUIVALENT")
    assert (again["cases"], again["without_score"]) == (700, 40)
    assert claim["here"] < 0.87 < 0.96 < again["here"]
    assert again["lo"] < again["difference"] < again["hi"]
    assert summary["verdict"]["answered_only"] == {
        "word": "EQUIVALENT",
        "non_inferior": True,
        "differs": True,
    }
    auroc = summary["metrics"]["auroc"]
    lo, hi = auroc["answered_only_interval"]
    assert lo < auroc["answered_only"] < hi
    assert auroc["answered_only"] == pytest.approx(again["here"])


def test_the_answered_verdict_is_that_of_the_answered_cases_scored_alone(accepted, run, tmp_path):
    folder, _ = accepted
    said = pd.read_csv(folder / "said.csv")
    cohort = pd.read_csv(folder / "cohort.csv")
    cohort[cohort["case_id"].isin(said["case_id"])].to_csv(tmp_path / "cohort.csv", index=False)
    (tmp_path / "claim.toml").write_text(CLAIM)
    alone = run("accept", tmp_path / "cohort.csv", folder / "said.csv", "--claim", tmp_path / "claim.toml",
                "--resamples", 100, "--out", tmp_path / "out", "--json").json  # fmt: skip
    (claim,) = alone["verdict"]["claims"]
    again = json.loads((folder / "out/summary.json").read_text())["verdict"]["claims"][0]["answered_only"]
    for name in ("here", "difference", "lo", "hi"):
        assert again[name] == pytest.approx(claim[name], abs=1e-12)
    assert "answered_only" not in claim
    assert "answered_only" not in alone["verdict"]


def test_the_first_page_says_it_in_the_verdict_box(accepted):
    folder, _ = accepted
    page = (folder / "out/report.html").read_text()
    box = words_of("<body" + page.split('<div class="verdict"')[1].split("<dl")[0])
    assert "40 of 700 cases (5.7 %) have no usable score; each counts as the worst value" in box
    assert "On the answered cases alone AUROC is 0.978" in box
    assert "it is BELOW with them and EQUIVALENT without them" in box


def test_groups_and_sites_count_their_own_missing_scores(accepted):
    folder, _ = accepted
    summary = json.loads((folder / "out/summary.json").read_text())
    months, sites = summary["groups"]["month"], summary["sites"]
    assert months["2026-07"]["without_score"] == 40
    assert all("without_score" not in row for name, row in months.items() if name != "2026-07")
    july = months["2026-07"]["metrics"]["auroc"]
    assert july["value"] < 0.6 < 0.9 < july["answered_only"]
    assert sites["East"]["without_score"] == 40
    assert "without_score" not in sites["West"]
    assert sites["East"]["metrics"]["auroc"]["answered_only_interval"][0] > 0.9
    words = words_of((folder / "out/report.html").read_text())
    assert "Without a score Patients Positives AUROC AUROC, answered only" in words
    assert "2026-07 100 40 100 20" in words


def test_the_worst_cases_are_answered_ones(accepted):
    folder, _ = accepted
    summary = json.loads((folder / "out/summary.json").read_text())
    assert len(summary["worst_cases"]) == 20
    assert {row["status"] for row in summary["worst_cases"]} == {"scored"}
    words = words_of((folder / "out/report.html").read_text())
    assert "40 without a usable score are counted apart" in words


def test_a_reference_site_with_missing_scores_elsewhere(run, tmp_path):
    folder = hospital(tmp_path)
    done = run("score", "classification", folder / "cohort.csv", folder / "said.csv", "--reference-site", "West",
               "--margin", 0.05, "--resamples", 100, "--out", folder / "out")  # fmt: skip
    assert done.code == EXIT_BELOW, done.said
    assert "40 of 400 cases (10.0\u202f%) here have no usable score; without them" in done.out
    assert "it is BELOW with them and EQUIVALENT without them" in done.out
    split = run("equivalence", folder / "out", "--split-by", "site", "--reference", "West", "--margin", 0.05)
    assert split.code == EXIT_BELOW
    assert "40 of 400 cases (10.0\u202f%) here have no usable score" in split.out
    assert "it is BELOW with them and EQUIVALENT without them" in split.out
    turned = run("equivalence", folder / "out", "--split-by", "site", "--reference", "East", "--margin", 0.05)
    assert "40 of 400 cases (10.0\u202f%) at the reference have no usable score" in turned.out


def test_two_results_each_with_its_own_missing_scores(tmp_path):
    """`equivalence` of two results takes out the missing scores of both sides."""
    folder = hospital(tmp_path)
    cases, said = pd.read_csv(folder / "cohort.csv"), pd.read_csv(folder / "said.csv")
    made = {
        site: score("classification", cases[cases["site"] == site], said, resamples=50)
        for site in ("West", "East")
    }
    judged = equivalence([made["East"], made["West"]], margin=0.05, resamples=50).summary["verdict"]
    (claim,) = judged["claims"]
    assert claim["answered_only"]["without_score"] == 40
    assert claim["answered_only"]["reference_without_score"] == 0
    assert claim["answered_only"]["here"] == pytest.approx(made["East"].metrics["auroc"]["answered_only"])
    assert (judged["word"], judged["answered_only"]["word"]) == ("BELOW", "EQUIVALENT")


def test_a_verdict_that_stays_says_that_it_stays(run, tmp_path):
    folder = hospital(tmp_path, lost=2)
    done = run("accept", folder / "cohort.csv", folder / "said.csv", "--claim", folder / "claim.toml",
               "--resamples", 50, "--out", folder / "out")  # fmt: skip
    assert done.code == EXIT_OK, done.said
    assert "2 of 700 cases (0.3\u202f%) have no usable score" in done.out
    assert "The verdict is the same without them." in done.out


def test_a_score_without_a_verdict_says_it_beside_the_number(run, tmp_path):
    folder = hospital(tmp_path)
    done = run("score", "classification", folder / "cohort.csv", folder / "said.csv", "--resamples", 50,
               "--out", folder / "out")  # fmt: skip
    assert done.code == EXIT_OK
    assert "40 of 700 cases (5.7\u202f%) have no usable score; each counts as the worst value." in done.out
    words = words_of((folder / "out/report.html").read_text())
    assert "On the answered cases alone it is 0.978" in words


def test_nothing_is_said_where_every_case_has_a_score(run, tmp_path):
    folder = hospital(tmp_path, lost=0)
    done = run("accept", folder / "cohort.csv", folder / "said.csv", "--claim", folder / "claim.toml",
               "--resamples", 50, "--out", folder / "out")  # fmt: skip
    assert done.code == EXIT_OK, done.said
    assert "usable score" not in done.out
    assert "answered" not in json.dumps(json.loads((folder / "out/summary.json").read_text())["verdict"])
