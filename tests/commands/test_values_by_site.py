"""Values belong to the case's own site, whatever the patient's other cases say (ST-01b).

The cluster (the patient) governs resampling alone. Two hospitals share all their patients here: at North the
model is perfect, at South it guesses. Every command that splits by site must give the same answer.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.analysis.study.boards import Board, Entry, Member
from elsewhere.analysis.study.groups import group_rows
from elsewhere.analysis.study.leaderboard import ranking_of
from elsewhere.analysis.study.transfers import centres
from elsewhere.commands.accept import accept
from elsewhere.commands.claim import read_claim
from elsewhere.commands.equivalence import equivalence
from elsewhere.commands.rank import rank
from elsewhere.commands.score import score
from elsewhere.commands.summarise import summarise
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions

MARGIN = 0.1
RESAMPLES = 100


def two_hospitals(target="label", patients=200):
    """One exam at North, one at South a patient; North first in the table."""
    rng = np.random.default_rng(3)
    truth = np.arange(patients) % 2
    sites = np.repeat(["North", "South"], patients)
    cases = pd.DataFrame(
        {
            "case_id": [f"C{i:04d}" for i in range(2 * patients)],
            "patient_id": np.tile([f"P{i:04d}" for i in range(patients)], 2),
            "site": sites,
            target: np.tile(truth, 2),
        }
    )
    perfect = 0.2 + 0.6 * truth + rng.uniform(0, 0.1, patients)
    said = pd.DataFrame(
        {"case_id": cases["case_id"], "probability": np.r_[perfect, rng.uniform(0, 1, patients)]}
    )
    return cases, said


def alone(task, cases, said, site, metric="auroc"):
    """The value of scoring one site's cases, and nothing else."""
    made = score(task, cases, said, where={"site": site}, resamples=0)
    return made.summary["metrics"][metric]["value"]


@pytest.fixture(scope="module")
def world():
    cases, said = two_hospitals()
    result = score(
        "classification", cases, said, reference_site="North", margin=MARGIN, resamples=RESAMPLES,
        group_by=("site",),
    )  # fmt: skip
    values = {site: alone("classification", cases, said, site) for site in ("North", "South")}
    assert values["North"] == 1.0
    assert 0.4 < values["South"] < 0.6
    return cases, said, result, values


def test_score_against_a_reference_site(world):
    _, _, result, values = world
    (claim,) = result.summary["verdict"]["claims"]
    assert claim["word"] == "BELOW"
    assert claim["here"] == pytest.approx(values["South"])
    assert claim["claimed"] == pytest.approx(values["North"])
    assert "200 patients in both" in claim["reference"]


def test_the_sites_section_has_each_site_with_its_own_cases(world):
    _, _, result, values = world
    for part in (result.summary["sites"], result.summary["groups"]["site"]):
        for site, value in values.items():
            row = part[site]
            assert (row["cases"], row["patients"]) == (200, 200)
            assert row["metrics"]["auroc"]["value"] == pytest.approx(value)


def test_the_interval_of_a_site_is_that_of_its_cases_alone(world):
    cases, said, result, _ = world
    only = score("classification", cases, said, where={"site": "South"}, resamples=0).summary["metrics"]
    for metric in ("auroc", "sensitivity", "accuracy"):
        row = result.summary["sites"]["South"]["metrics"][metric]
        assert (row["lo"], row["hi"]) == pytest.approx((only[metric]["lo"], only[metric]["hi"]))


def test_the_case_mix_is_compared_case_by_case(world):
    _, _, result, _ = world
    levels = result.summary["case_mix"]["label"]["levels"]
    assert {name: (n["reference"], n["here"]) for name, n in levels.items()} == {
        "0": (100, 100),
        "1": (100, 100),
    }


def test_equivalence_split_by_site_gives_the_same_verdict(world):
    _, _, result, _ = world
    made = equivalence(
        [result], split_by="site", reference="North", margin=MARGIN, metric="auroc", resamples=RESAMPLES
    )
    (claim,) = made.summary["verdict"]["claims"]
    (scored,) = result.summary["verdict"]["claims"]
    for name in ("word", "here", "claimed", "difference", "lo", "hi", "method"):
        assert claim[name] == scored[name], name


def test_summarise_gives_the_same_verdict(world):
    cases, said, result, _ = world
    again = summarise(
        "classification", cases, said, reference_site="North", margin=MARGIN, resamples=RESAMPLES
    )
    assert again.summary["verdict"]["claims"][0]["here"] == result.summary["verdict"]["claims"][0]["here"]


def test_accept_at_one_site(world, tmp_path):
    cases, said, _, values = world
    cases.to_csv(tmp_path / "cohort.csv", index=False)
    said.to_csv(tmp_path / "said.csv", index=False)
    text = (
        'task = "classification"\nmodel = "M"\nprotocol = "plain"\naim = "equivalence"\n'
        'where = {{ site = "{site}" }}\n'
        '[[primary]]\nmetric = "auroc"\nvalue = 0.99\nmargin = 0.1\nmargin_source = "the board"\n'
    )
    for site, word in (("North", "EQUIVALENT"), ("South", "BELOW")):
        file = tmp_path / f"{site}.toml"
        file.write_text(text.format(site=site))
        made = accept(tmp_path / "cohort.csv", tmp_path / "said.csv", claim=read_claim(file), resamples=50)
        (claim,) = made.summary["verdict"]["claims"]
        assert claim["here"] == pytest.approx(values[site])
        assert claim["word"] == word


def test_rank_without_a_site_leaves_out_its_cases(world):
    cases, said, result, values = world
    other = score("classification", cases, said.assign(probability=0.5), resamples=0)
    made = rank([result, other], resamples=50).summary["ranking"]["left_out_sites"]
    assert made["South"]["values"]["model 1"] == pytest.approx(values["North"])
    assert made["North"]["values"]["model 1"] == pytest.approx(values["South"])
    assert made["South"]["first"] == ["model 1"]


def test_the_analyses_of_a_study(world):
    """Groups, centres and leave-one-site-out of a board: exams of one patient at two sites."""
    cases, said = two_hospitals("pcr")
    result = score("response", cases, said, resamples=0)
    ready = prepare(result.scores, ScoreOptions())
    values = {site: alone("response", cases, said, site) for site in ("North", "South")}
    board = Board(
        task="response", name="all", kind="internal", scenarios=("all",), failed=(), key="k", baseline=None,
        entries=(Entry(method="m", members=(Member(1, 0),), ready=(ready,), evaluator=ready.evaluator),),
        cases=result.scores.cases, resamples=50,
    )  # fmt: skip
    rows = group_rows(board).query("variable == 'site'").set_index("group")
    drops = centres(board, margin=MARGIN).query("by == 'site'").set_index("centre")
    without = ranking_of(board).left_out_sites
    ranked = board.ranked_by
    for site, value in values.items():
        assert (rows.loc[site, "cases"], rows.loc[site, "patients"]) == (200, 200)
        assert rows.loc[site, "auroc"] == pytest.approx(value)
        assert drops.loc[site, "value"] == pytest.approx(value)
        other = next(name for name in values if name != site)
        assert without[other]["values"]["m"] == pytest.approx(
            alone("response", cases, said, site, metric=ranked)
        )
    assert drops.loc["South", "verdict"] == "BELOW"


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(10, 30))
def test_every_split_gives_the_values_of_the_sites_own_cases(seed, n_sites, patients):
    """Whatever site each case is given: sites, verdicts, equivalence and rank see that site's cases alone."""
    rng = np.random.default_rng(seed)
    n = 2 * patients
    cases = pd.DataFrame(
        {
            "case_id": [f"C{i}" for i in range(n)],
            "patient_id": [f"P{i}" for i in rng.integers(0, patients, n)],
            "site": [f"S{i}" for i in rng.permutation(np.arange(n) % n_sites)],
            "label": rng.permutation(np.arange(n) % 2),
        }
    )
    said = pd.DataFrame({"case_id": cases["case_id"], "probability": rng.uniform(0, 1, n).round(2)})
    said.loc[rng.random(n) < 0.1, "probability"] = np.nan
    said = said[said["probability"].notna()]
    result = score("classification", cases, said, reference_site="S0", margin=0.1, resamples=0)
    sites = sorted(cases["site"].unique())
    truth = dict(zip(cases["case_id"], cases["label"], strict=True))
    expected = {}
    for site in sites:
        ids = cases.loc[cases["site"] == site, "case_id"]
        if len({truth[i] for i in ids}) == 2 and said["case_id"].isin(ids).any():
            expected[site] = alone("classification", cases, said, site)
        row = result.summary["sites"][site]
        assert row["cases"] == len(ids)
        assert row["patients"] == cases.loc[cases["site"] == site, "patient_id"].nunique()
        if site in expected:
            assert row["metrics"]["auroc"]["value"] == pytest.approx(expected[site])
    for claim in result.summary["verdict"]["claims"]:
        site = claim["group"].removeprefix("site ")
        if site in expected and "S0" in expected:
            assert claim["here"] == pytest.approx(expected[site])
            assert claim["claimed"] == pytest.approx(expected["S0"])
            split = equivalence(
                [score("classification", cases[cases["site"].isin([site, "S0"])], said, resamples=0)],
                split_by="site", reference="S0", margin=0.1, metric="auroc", resamples=0,
            ).summary["verdict"]["claims"][0]  # fmt: skip
            assert split["here"] == pytest.approx(expected[site])
            assert split["claimed"] == pytest.approx(expected["S0"])
    if n_sites == 2:
        left = rank([result], resamples=0).summary["ranking"]["left_out_sites"]
        for site, other in (("S0", "S1"), ("S1", "S0")):
            if other in expected:
                assert left[site]["values"]["model 1"] == pytest.approx(expected[other])
