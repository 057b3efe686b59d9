"""One run: US-15 to US-18, against plain formulas and at every edge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from elsewhere.analysis.study.probability_runs import (
    judge_run,
    lesion_against_normal,
    part_of,
    temperature_of,
)
from elsewhere.errors import UserError
from elsewhere.protocols import protocols
from elsewhere.scoring.task import Scores

KEYS = {"run": "r1", "scenario": "A", "kind": "internal", "source": "A", "target": "A", "seed": 1}
PLAIN = protocols.get("plain")
SCORES = Scores(task="classification", protocol=PLAIN, cases=pd.DataFrame())
"""What a run is judged by: the protocol's rules and its threshold."""


def frame(label, z, *, patient=None, distance=None, level=0.0, prefix="c"):
    label, z = np.asarray(label), np.asarray(z, dtype=float)
    n = label.size
    patients = [f"p{i}" for i in range(n)] if patient is None else patient
    return pd.DataFrame(
        {
            "case": [f"{prefix}{i}" for i in range(n)],
            "patient": patients,
            "cluster": patients,
            "label": label,
            "probability": 1 / (1 + np.exp(-z)),
            "logit_negative": level - z / 2,
            "logit_positive": level + z / 2,
            "distance": np.nan if distance is None else distance,
        }
    )


def numbering():
    """Numbers clusters over all parts of a run, as a study does over all of its runs."""
    known = {}
    return lambda names: np.array([known.setdefault(str(n), len(known)) for n in names], dtype=np.int32)


def judge(test, validation=None, normal=None, scores=SCORES):
    answers = {"test": test}
    if validation is not None:
        answers["validation"] = validation
    if normal is not None:
        answers["normal"] = normal
    return judge_run(KEYS, answers, scores, number_of=numbering())


def validation(cases, malignant, *, scale=3.0, seed=0):
    """Overconfident answers: the best temperature lies above 1."""
    label = np.r_[np.ones(malignant, int), np.zeros(cases - malignant, int)]
    rng = np.random.default_rng(seed)
    return frame(label, scale * (label - 0.5 + rng.normal(0, 1, cases)), prefix="v")


def binned_gap(said, happened):
    """ECE over ten equal bins, bin by bin (US-17)."""
    at = np.minimum((10 * said).astype(int), 9)
    return sum(abs(np.sum(said[at == b] - happened[at == b])) for b in range(10)) / len(said)


def test_every_metric_against_scikit_learn():
    rng = np.random.default_rng(3)
    label = (rng.random(200) < 0.4).astype(int)
    z = np.round(1.2 * (label - 0.5) + rng.normal(0, 1.5, 200), 1)
    row = judge(frame(label, z)).row
    p = 1 / (1 + np.exp(-z))
    called = p >= 0.5
    assert row["auroc"] == pytest.approx(sk.roc_auc_score(label, p))
    assert row["auprc"] == pytest.approx(sk.average_precision_score(label, p))
    assert row["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(label, called))
    assert row["f1"] == pytest.approx(sk.f1_score(label, called))
    assert row["sensitivity"] == pytest.approx(sk.recall_score(label, called))
    assert row["specificity"] == pytest.approx(sk.recall_score(1 - label, ~called))
    assert row["nll"] == pytest.approx(sk.log_loss(label, p))
    confidence, right = np.maximum(p, 1 - p), (p >= 0.5) == (np.asarray(label) == 1)
    assert row["ece_confidence"] == pytest.approx(binned_gap(confidence, right))
    assert row["ece_malignant"] == pytest.approx(binned_gap(p, np.asarray(label) == 1))
    assert row["auroc_lo"] < row["auroc"] < row["auroc_hi"]


def test_half_is_malignant():
    """US-15: >= 0.5, fixed by the protocol."""
    row = judge(frame([1, 0, 0], [0.0, -1.0, 0.0])).row
    assert row["sensitivity"] == 1.0 and row["specificity"] == 0.5


def test_the_threshold_is_that_of_the_scores():
    scores = replace(SCORES, extras={"threshold": 0.8})
    row = judge(frame([1, 0, 0], [1.0, -1.0, 2.0]), scores=scores).row
    assert row["sensitivity"] == 0.0 and row["specificity"] == 0.5


def test_probabilities_without_logits_give_the_same_numbers():
    """A recipe may answer with probabilities alone: their log odds stand in for the difference of the logits."""
    rng = np.random.default_rng(5)
    label = np.tile([0, 1], 40)
    test, held = frame(label, 2 * (label - 0.5) + rng.normal(0, 1, 80)), validation(60, 25)
    normal = frame(np.full(25, -1), rng.normal(0, 0.5, 25), prefix="n")
    both = judge(test, held, normal)
    bare = judge(*(part.drop(columns=["logit_negative", "logit_positive"]) for part in (test, held, normal)))
    for name in ("auroc", "nll", "ece_confidence", "temperature", "nll_calibrated", "normal_auroc"):
        assert bare.row[name] == pytest.approx(both.row[name], abs=1e-9), name
    assert np.isnan(bare.row["normal_energy_auroc"]) and "no score" in bare.row["normal_energy_reason"]


def test_certain_probabilities_can_be_calibrated():
    """0 and 1 have no finite log odds: they are cut, not refused."""
    test = frame([0, 1, 0, 1], [0.0] * 4).assign(probability=[0.0, 1.0, 0.2, 0.9])
    bare = test.drop(columns=["logit_negative", "logit_positive"])
    made = judge(bare, validation(60, 25))
    assert made.row["no_answer"] == 0 and np.isfinite(made.calibrated).all()


def test_only_the_difference_of_the_logits_counts():
    label, z = [0, 1, 0, 1, 1], [-1.0, 0.3, 0.4, 2.0, -0.2]
    low, high = judge(frame(label, z)).row, judge(frame(label, z, level=50.0)).row
    for name in ("auroc", "nll", "ece_confidence", "balanced_accuracy"):
        assert low[name] == pytest.approx(high[name])


@pytest.mark.parametrize(
    ("cases", "malignant", "eligible"),
    [
        (39, 15, False),
        (40, 15, True),
        (40, 9, False),
        (40, 10, True),
        (40, 30, True),
        (40, 31, False),
        (0, 0, False),
    ],
)
def test_who_may_be_calibrated(cases, malignant, eligible):
    """US-16: 40 images with 10 of each class; otherwise T = 1, marked, with the reason."""
    test = frame([0, 1, 0, 1], [-2.0, 2.0, 1.0, -0.5])
    made = judge(test, validation(cases, malignant))
    assert made.row["calibration_eligible"] is eligible
    if eligible:
        assert made.row["temperature"] != 1.0 and made.row["calibration_reason"] == ""
    else:
        assert made.row["temperature"] == 1.0 and "it takes 40 with 10" in made.row["calibration_reason"]
        assert made.row["nll_calibrated"] == made.row["nll"]
        assert made.calibrated == pytest.approx(made.probability)


def test_the_temperature_stops_at_its_bounds():
    label = np.tile([0, 1], 40)
    sure_and_wrong = frame(label, np.where(np.arange(80) % 4 < 2, 40.0, -40.0) * (2 * label - 1))
    right = frame(label, 0.5 * (2 * label - 1))
    top, bottom = (
        temperature_of(part_of(sure_and_wrong, where="v"), PLAIN.classification),
        temperature_of(part_of(right, where="v"), PLAIN.classification),
    )
    assert (top.value, top.hit_bound) == (5.0, "upper")
    assert (bottom.value, bottom.hit_bound) == (0.5, "lower")
    row = judge(right, sure_and_wrong).row
    assert row["temperature"] == 5.0 and row["temperature_bound"] == "upper"


def test_calibration_keeps_the_order_and_divides_the_logit():
    test = frame([0, 1, 0, 1, 1, 0], [-2.0, 2.0, 1.0, -0.5, 3.0, 0.2])
    made = judge(test, validation(80, 30))
    t = made.row["temperature"]
    assert t > 1 and made.calibrated == pytest.approx(
        1 / (1 + np.exp(-(test["logit_positive"] - test["logit_negative"]) / t))
    )
    for name in ("auroc", "auprc", "sensitivity", "specificity", "balanced_accuracy", "f1"):
        assert made.row[f"{name}_calibrated"] == made.row[name]
    assert made.row["nll_calibrated"] != made.row["nll"]


@pytest.mark.parametrize(("normals", "there"), [(19, False), (20, True), (0, False)])
def test_lesion_against_normal_needs_twenty(normals, there):
    """US-18."""
    rng = np.random.default_rng(0)
    lesions = frame(rng.integers(0, 2, 30), rng.normal(0, 3, 30))
    normal = frame(np.full(normals, -1), rng.normal(0, 0.5, normals), prefix="n")
    row = judge(lesions, normal=normal).row
    if there:
        z = np.r_[lesions["logit_positive"] * 2, normal["logit_positive"] * 2]
        unsure = 1 - np.maximum(1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z)))
        side = np.r_[np.zeros(30), np.ones(normals)]
        assert row["normal_auroc"] == pytest.approx(sk.roc_auc_score(side, unsure))
        assert row["normal_auprc"] == pytest.approx(sk.average_precision_score(side, unsure))
        assert row["normal_reason"] == ""
    else:
        assert (
            np.isnan(row["normal_auroc"])
            and f"{normals} normal images, and it takes 20" in row["normal_reason"]
        )


def test_a_run_without_a_validation_part_says_so():
    made = judge(frame([0, 1], [0.1, 0.2]))
    assert made.row["temperature"] == 1.0
    assert made.row["calibration_reason"] == "not eligible: the validation part was not predicted"


def test_patients_on_both_sides_are_counted_by_their_cluster():
    """Patients whom near-duplicates link are one cluster: a leak is one of clusters, not of names."""
    test = frame([0, 1], [0.1, 1.0], patient=["a", "b"]).assign(cluster=["a", "b"])
    held = validation(60, 25)
    assert judge(test, held).row["leaked_groups"] == 0
    assert judge(test, held.assign(cluster=["b", *held["cluster"][1:]])).row["leaked_groups"] == 1


def test_shared_patients_are_counted():
    lesions = frame([0, 1, 0], [0.1, 1.0, -1.0], patient=["a", "b", "c"])
    normal = frame([-1, -1, -1], [0.0, 0.1, 0.2], patient=["b", "b", "d"], prefix="n")
    assert judge(lesions, normal=normal).row["normal_shared_patients"] == 1


def test_a_score_that_is_missing_is_said():
    made = lesion_against_normal(np.array([0.1, np.nan]), np.ones(25))
    assert np.isnan(made["auroc"]) and "1 images have no score" in made["reason"]


def test_an_answer_that_is_no_number_is_the_worst(recwarn):
    """ST-14: a NaN of a diverged training counts as wrong, and is counted; nothing is fitted on it."""
    test = frame([1, 0, 1, 0], [np.nan, -1.0, 2.0, 0.5])
    broken = validation(60, 20)
    broken.loc[3, ["logit_positive", "probability"]] = np.nan
    row = judge(test, broken).row
    assert row["no_answer"] == 1 and row["sensitivity"] == 0.5 and row["auroc"] == pytest.approx(0.5)
    assert not row["calibration_eligible"]
    assert "1 of 60 validation answers are not finite" in row["calibration_reason"]


def test_what_is_refused():
    with pytest.raises(UserError, match="neither of the two classes"):
        judge(frame([0, -1], [0.1, 0.2]))
    with pytest.raises(UserError, match="probability"):
        judge(frame([0, 1], [0.1, 0.2]).drop(columns="probability"))


@given(st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=2, max_size=25))
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_rows_does_not_matter(rows):
    label = np.array([int(y) for y, _ in rows])
    z = np.array([float(v) for _, v in rows])
    one = judge(frame(label, z)).row
    other = judge(frame(label[::-1], z[::-1])).row
    for name in ("auroc", "auprc", "balanced_accuracy", "nll", "ece_confidence", "ece_malignant", "f1"):
        assert one[name] == pytest.approx(other[name], nan_ok=True)
