"""The participant flow adds up: a row or a case is lost at exactly one step, in every task."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.cohort import Cohort
from elsewhere.commands.score import score
from elsewhere.commands.summarise import summarise
from elsewhere.scoring.flow import participant_flow

SEEDS = st.integers(0, 100_000)


def check(summary, rows=None):
    """Each chain sums, the cohort's ends with the cases scored, and every case lost has a reason."""
    flow = summary["flow"]
    chains = list(dict.fromkeys(step["of"] for step in flow))
    assert [step["of"] for step in flow] == [s["of"] for of in chains for s in flow if s["of"] == of]
    for of in chains:
        steps = [step for step in flow if step["of"] == of]
        assert steps[0]["lost"] == 0
        for before, after in itertools.pairwise(steps):
            assert after["n"] == before["n"] - after["lost"], (before, after)
            assert bool(after["why"]) == bool(after["lost"])
    cases = [step for step in flow if step["of"] == "cohort"]
    counts = summary["counts"]
    scored = sum(
        counts[name] for name in ("cases", "missing", "invalid", "not_analysable", "undefined")
    ) - 2 * sum(counts[name] for name in ("missing", "invalid", "not_analysable", "undefined"))
    assert cases[-1]["n"] == scored == counts["scored"]
    if rows is not None:
        assert flow[0]["n"] == rows


def frames(rng, target, words, n=40):
    cases = pd.DataFrame(
        {
            "case_id": [f"C{i}" for i in range(n)],
            "patient_id": [f"P{i}" for i in rng.integers(0, n, n)],
            "split": rng.choice(["train", "test"], n, p=[0.2, 0.8]),
            target: rng.choice(words, n),
        }
    )
    cases.loc[0, target], cases.loc[1, target] = words[0], words[1]
    cases.loc[[0, 1], "split"] = "test"
    ids = [*cases["case_id"], *(f"X{i}" for i in range(8))]
    said = pd.DataFrame({"case_id": ids, "probability": rng.uniform(0, 1, len(ids))})
    keep = rng.random(len(ids)) < 0.8
    keep[0] = True
    said = said[keep].astype({"probability": object})
    said.loc[said.index[rng.random(len(said)) < 0.1], "probability"] = "could not be analysed"
    return cases, said


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.sampled_from([None, {"split": "test"}]))
def test_classification(seed, where):
    rng = np.random.default_rng(seed)
    cases, said = frames(rng, "label", ["benign", "malignant", "normal", "cyst", ""])
    check(score("classification", cases, said, where=where, resamples=0).summary, rows=len(said))


@settings(max_examples=8, deadline=None)
@given(SEEDS, st.sampled_from([None, {"split": "test"}]))
def test_response(seed, where):
    rng = np.random.default_rng(seed)
    cases, said = frames(rng, "pcr", ["0", "1", "unknown"])
    check(score("response", cases, said, where=where, resamples=0).summary, rows=len(said))


@settings(max_examples=8, deadline=None)
@given(SEEDS, st.sampled_from([None, {"split": "test"}]))
def test_segmentation(seed, where):
    rng = np.random.default_rng(seed)
    cases, said = frames(rng, "label", ["a", "b"])
    table = pd.DataFrame(
        {"case_id": said["case_id"], "dice": rng.uniform(0, 1, len(said)), "hausdorff_mm": 3.0}
    )
    check(summarise("segmentation", cases.drop(columns="label"), table, where=where, resamples=0).summary)


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_detection(seed):
    rng = np.random.default_rng(seed)
    n = 12
    cases = pd.DataFrame(
        {"case_id": [f"V{i}" for i in range(n)], "patient_id": [f"P{i // 2}" for i in range(n)]}
    )
    box = {"x": 10, "y": 10, "width": 50, "height": 50, "slice": 5, "volume_slices": 30}
    lesions = pd.DataFrame([{"case_id": f"V{i}", **box} for i in range(0, n, 3)])
    boxes = pd.DataFrame(
        {
            "case_id": rng.choice([*cases["case_id"], "X1", "X2"], 30),
            "x": rng.uniform(0, 80, 30), "y": 10.0, "width": 50.0, "height": 50.0, "z": 3.0, "depth": 4.0,
            "score": rng.uniform(0, 1, 30),
        }
    )  # fmt: skip
    boxes.loc[0, "case_id"] = "V0"
    made = score("detection", Cohort.from_frame(cases, lesions=lesions), boxes, resamples=0).summary
    check(made, rows=30)


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_slides(seed):
    rng = np.random.default_rng(seed)
    stages = ["negative", "itc", "micro", "macro"]
    cases = pd.DataFrame(
        {
            "case_id": [f"S{i}" for i in range(20)],
            "patient_id": [f"P{i // 5}" for i in range(20)],
            "stage": rng.choice(stages, 20),
        }
    )
    ids = [*cases["case_id"], "S98", "S99"]
    said = pd.DataFrame({"case_id": ids, "stage": rng.choice(stages, len(ids))})[rng.random(len(ids)) < 0.8]
    patients = pd.DataFrame({"case_id": ["P0", "P1", "P9"], "stage": "pN0"})[rng.random(3) < 0.7]
    both = pd.concat([said, patients], ignore_index=True)
    check(score("slides", cases, both, protocol="camelyon16", resamples=0).summary, rows=len(both))


def test_views_that_become_one_exam_are_merged_not_lost():
    cases = pd.DataFrame(
        {"case_id": ["e1", "e2", "e3"], "patient_id": ["p1", "p2", "p3"], "label": [0, 1, 1]}
    )
    views = pd.DataFrame({"exam_id": ["e1", "e1", "e2", "e9"], "probability": [0.1, 0.2, 0.9, 0.5]})
    made = score(
        "classification", cases, views, unit="exam", resamples=0, column_map={"case_id": "exam_id"}
    ).summary
    check(made, rows=4)
    assert [step["lost"] for step in made["flow"]] == [0, 0, 0, 1, 0, 1]
    assert made["flow"][1]["why"] == "4 rows became 3 exams"


def test_a_case_without_a_label_and_without_a_prediction_is_lost_once():
    """Unlabelled cases leave first: they are not missing as well."""
    steps = participant_flow(
        [{"step": "rows", "n": 7, "lost": 0, "why": ""}],
        cohort_cases=10,
        status=pd.Series(["scored"] * 5 + ["missing", "invalid", "undefined"]),
        left_out=[("labelled", 2, "no label")],
    )
    cohort = [(s["n"], s["lost"]) for s in steps if s["of"] == "cohort"]
    assert cohort == [(10, 0), (8, 2), (7, 1), (5, 2)]
    assert "1 with an invalid prediction, 1 without a defined value" in steps[-1]["why"]


@pytest.mark.parametrize("what", ["prediction", "mask"])
def test_the_step_names_what_is_missing(what):
    steps = participant_flow([], cohort_cases=2, status=pd.Series(["scored", "missing"]), what=what)
    assert steps[-1]["step"] == f"cohort cases with a {what}"
    assert steps[-1]["lost"] == 1
