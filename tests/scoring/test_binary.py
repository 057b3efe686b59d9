"""The two-class evaluator against published vectors, scikit-learn under weights, and its own promises."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from elsewhere.scoring.binary import (
    CALIBRATION_METRICS,
    CLASSIFICATION_METRICS,
    BinaryEvaluator,
    ProbabilityRules,
    judge,
)
from elsewhere.statistics.evaluator import AurocInputs, RatioInputs

EXACT = {
    "auroc": "auroc_sklearn",
    "auprc": "auprc_average_precision_sklearn",
    "auprc_trapezoid": "auprc_trapezoid_sklearn",
    "nll": "nll_sklearn_log_loss",
    "brier": "brier_sklearn",
    "balanced_accuracy": "balanced_accuracy_threshold_ge_0.5",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "f1": "f1",
    "ece_malignant": "ece10_prob_of_malignant_netcal",
}


def make(label, probability, *, cluster=None, n_clusters=None, metrics=None, calibrated=None, **rules):
    cluster = np.arange(len(label)) if cluster is None else np.asarray(cluster)
    n = int(cluster.max()) + 1 if n_clusters is None else n_clusters
    return BinaryEvaluator(
        label=label,
        probability=probability,
        cluster_of_case=cluster,
        n_clusters=n,
        metrics=metrics,
        calibrated=calibrated,
        rules=ProbabilityRules(**rules),
    )


@pytest.mark.parametrize("sample", ["ordinary_300", "tied_logits"])
@pytest.mark.parametrize("part", ["raw", "scaled_with_T_bounded"])
def test_vectors(vectors_dir, sample, part):
    expected = json.loads((vectors_dir / "classification/expected.json").read_text())[sample]
    inputs = json.loads((vectors_dir / "classification/inputs.json").read_text())[sample]
    temperature = 1.0 if part == "raw" else expected["T_bounded_0.5_5"]
    probability = 1.0 / (1.0 + np.exp(-np.array(inputs["logit_malignant"]) / temperature))
    names = (*CLASSIFICATION_METRICS, "auprc_trapezoid")
    values = make(inputs["y"], probability, metrics=names).values()
    for ours, theirs in EXACT.items():
        assert values[ours] == pytest.approx(expected[part][theirs], abs=1e-12), ours
    # torchmetrics computes this one in single precision
    single = expected[part]["ece10_confidence_torchmetrics_multiclass2"]
    assert values["ece_confidence"] == pytest.approx(single, abs=5e-7)


def sample(seed, n=80, *, levels=None, patients=25):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.4).astype(int)
    label[:2] = [0, 1]
    probability = 1.0 / (1.0 + np.exp(-(rng.normal(size=n) + label)))
    if levels:
        probability = np.round(probability * levels) / levels
    return label, probability, rng.integers(0, patients, n), rng


@pytest.mark.parametrize("levels", [None, 7, 10])
def test_weights_mean_repeated_patients(levels):
    label, probability, cluster, rng = sample(1, levels=levels)
    evaluator = make(label, probability, cluster=cluster, n_clusters=25)
    weights = rng.multinomial(25, np.full(25, 1 / 25), size=9).astype(np.uint16)
    found = evaluator.evaluate(weights)
    for row, w in zip(found, weights, strict=True):
        case = np.repeat(np.arange(label.size), w[cluster])
        y, p = label[case], probability[case]
        got = dict(zip((s.name for s in evaluator.specs), row, strict=True))
        assert got["auroc"] == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
        assert got["auprc"] == pytest.approx(sk.average_precision_score(y, p), abs=1e-12)
        assert got["f1"] == pytest.approx(sk.f1_score(y, p >= 0.5), abs=1e-12)
        assert got["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, p >= 0.5), abs=1e-12)
        assert got["ppv"] == pytest.approx(sk.precision_score(y, p >= 0.5), abs=1e-12)
        assert got["accuracy"] == pytest.approx(np.mean(y == (p >= 0.5)), abs=1e-12)
        assert got["recall_rate"] == pytest.approx(np.mean(p >= 0.5), abs=1e-12)
        assert got["nll"] == pytest.approx(sk.log_loss(y, np.clip(p, 1e-12, 1 - 1e-12)), abs=1e-9)
        assert got["brier"] == pytest.approx(np.mean((p - y) ** 2), abs=1e-12)
        assert got["ece_malignant"] == pytest.approx(plain_ece(p, y), abs=1e-12)
        called = p >= 0.5
        confidence = np.where(called, p, 1 - p)
        assert got["ece_confidence"] == pytest.approx(plain_ece(confidence, y == called), abs=1e-12)


def plain_ece(confidence, correct):
    total = 0.0
    for k in range(10):
        inside = (confidence >= k / 10) & ((confidence < (k + 1) / 10) | (k == 9))
        total += abs(confidence[inside].sum() - correct[inside].sum())
    return total / confidence.size


@pytest.mark.parametrize(
    ("label", "probability", "ece_malignant"),
    [
        ([1, 0], [1.0, 0.95], abs(1.95 - 1) / 2),
        ([1, 0], [0.3, 0.39], abs(0.69 - 1) / 2),
        ([1, 0], [0.29, 0.3], (0.71 + 0.3) / 2),
    ],
)
def test_bins_are_left_closed_and_the_last_one_is_closed(label, probability, ece_malignant):
    assert make(label, probability).values()["ece_malignant"] == pytest.approx(ece_malignant)


def test_a_missing_case_is_the_worst_the_metric_can_take():
    """ST-14: probability 0 for a positive, 1 for a negative, NLL cut, and a rank below every tie."""
    label = np.array([1, 1, 0, 0])
    probability = np.array([np.nan, 0.9, 0.0, np.nan])
    values = make(label, probability, nll_epsilon=1e-6).values()
    assert values["auroc"] == pytest.approx(1 / 4)  # only 0.9 against 0.0 is won; no half for the tie at 0
    assert values["sensitivity"] == 0.5
    assert values["specificity"] == 0.5
    worst = -np.log(1e-6)
    assert values["nll"] == pytest.approx((worst - np.log(0.9) + 0.0 + worst) / 4)
    assert values["brier"] == pytest.approx((1 + 0.01 + 0 + 1) / 4)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_no_threshold_turns_a_missing_case_into_a_hit(threshold):
    judged = judge([1, 0], [np.nan, np.nan], threshold=threshold)
    assert judged.decision.tolist() == [False, True]


def test_threshold_is_inclusive_unless_said_otherwise():
    label, probability = [1, 0, 1, 0], [0.5, 0.5, 0.9, 0.1]
    assert make(label, probability).values()["sensitivity"] == 1.0
    assert make(label, probability, inclusive=False).values()["sensitivity"] == 0.5
    assert make(label, probability, inclusive=False).values()["specificity"] == 1.0


@pytest.mark.parametrize(("label", "word"), [([1, 1, 1], "no benign case"), ([0, 0, 0], "no malignant case")])
def test_one_class_is_undefined_with_its_reason(label, word):
    evaluator = make(label, [0.2, 0.6, 0.7], class_names=("benign", "malignant"))
    values, reasons = evaluator.values(), evaluator.undefined_reasons()
    for name in ("auroc", "auprc", "balanced_accuracy"):
        assert np.isnan(values[name])
        assert reasons[name] == word
    assert {name for name, value in values.items() if np.isnan(value)} == set(reasons)
    assert np.isfinite(values["brier"])


def test_nobody_called_positive_leaves_ppv_undefined():
    evaluator = make([0, 1, 0], [0.1, 0.2, 0.3])
    assert np.isnan(evaluator.values()["ppv"])
    assert "called positive" in evaluator.undefined_reasons()["ppv"]
    assert evaluator.values()["f1"] == 0.0


def test_no_case_is_undefined_everywhere():
    evaluator = make([0, 1], [0.1, 0.2]).subset(np.array([False, False]))
    assert all(np.isnan(value) for value in evaluator.values().values())
    assert set(evaluator.undefined_reasons()) == {spec.name for spec in evaluator.specs}


def test_ordinal_scores_have_no_calibration():
    evaluator = make([0, 1, 0, 1], [0.06, 0.3, 0.0, 0.975], ordinal_reason="ranks, not probabilities")
    values = evaluator.values()
    assert {name for name, value in values.items() if np.isnan(value)} == CALIBRATION_METRICS
    assert evaluator.undefined_reasons()["nll"] == "ranks, not probabilities"
    assert evaluator.case_counts()["nll"] == (0, 4)
    assert evaluator.closed_form("brier") is None
    assert values["auroc"] == 1.0


def test_calibrated_column_gives_its_own_metrics():
    label, probability, cluster, _ = sample(2)
    calibrated = probability**2
    both = make(label, probability, cluster=cluster, n_clusters=25, calibrated=calibrated).values()
    alone = make(label, calibrated, cluster=cluster, n_clusters=25).values()
    for name in CLASSIFICATION_METRICS:
        assert both[f"{name}_calibrated"] == alone[name]
    assert both["nll"] != both["nll_calibrated"]


def test_subset_keeps_cluster_numbers_and_stack_doubles_them():
    label, probability, cluster, rng = sample(3)
    evaluator = make(label, probability, cluster=cluster, n_clusters=25)
    mask = rng.random(label.size) < 0.5
    part = evaluator.subset(mask)
    assert part.n_clusters == 25
    assert part.values()["auroc"] == pytest.approx(sk.roc_auc_score(label[mask], probability[mask]))
    other = make(label, 1 - probability, cluster=cluster, n_clusters=25)
    both = evaluator.stack(other)
    first = np.concatenate([np.ones(25), np.zeros(25)]).astype(np.uint16)[None]
    assert both.evaluate(first)[0] == pytest.approx(np.array(list(evaluator.values().values())))
    assert both.evaluate(first[:, ::-1].copy())[0] == pytest.approx(np.array(list(other.values().values())))


def test_closed_forms_agree_with_the_values():
    label, probability, cluster, _ = sample(4)
    probability[[3, 7]] = np.nan
    evaluator = make(label, probability, cluster=cluster, n_clusters=25)
    values = evaluator.values()
    seen = set()
    for name, value in values.items():
        inputs = evaluator.closed_form(name)
        if isinstance(inputs, RatioInputs):
            assert inputs.numerator.sum() / inputs.denominator.sum() == pytest.approx(value, abs=1e-12)
            seen.add(name)
        elif isinstance(inputs, AurocInputs):
            assert np.isfinite(inputs.score).all()
            assert sk.roc_auc_score(inputs.label, inputs.score) == pytest.approx(value, abs=1e-12)
            seen.add(name)
    assert {"auroc", "sensitivity", "specificity", "nll", "brier", "accuracy", "ppv", "npv"} <= seen


cases = st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.floats(0, 1))), min_size=1, max_size=40)


@settings(max_examples=80, deadline=None)
@given(cases=cases, seed=st.integers(0, 2**16))
def test_bounds_hold_and_order_does_not_matter(cases, seed):
    label = np.array([a for a, _ in cases], dtype=int)
    probability = np.array([np.nan if p is None else p for _, p in cases])
    evaluator = make(label, probability)
    values = evaluator.values()
    for spec in evaluator.specs:
        value = values[spec.name]
        assert np.isnan(value) or spec.lower_bound - 1e-9 <= value <= spec.upper_bound + 1e-9, spec.name
    shuffled = np.random.default_rng(seed).permutation(label.size)
    again = make(label[shuffled], probability[shuffled]).values()
    for name, value in values.items():
        assert again[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name
    assert {name for name, value in values.items() if np.isnan(value)} == set(evaluator.undefined_reasons())


@settings(max_examples=80, deadline=None)
@given(cases=cases)
def test_losing_an_answer_never_helps(cases):
    """Why missing is worst: leaving hard cases out must not pay.

    Average precision is not in the list: it counts a run of tied positives at the precision of its end, so
    one more positive in the tie at the worst rank can lift it by a little.
    """
    label = np.array([a for a, _ in cases], dtype=int)
    probability = np.array([np.nan if p is None else p for _, p in cases])
    before = make(label, probability)
    after = probability.copy()
    after[0] = np.nan
    values, lost = before.values(), make(label, after).values()
    for name in ("auroc", "sensitivity", "specificity", "nll", "brier", "accuracy"):
        sign = 1 if before.spec(name).higher_is_better else -1
        assert np.isnan(values[name]) or sign * (values[name] - lost[name]) >= -1e-9, name
