"""Every metric by its own method, one pass a stream, honest warnings (ST-01 to ST-04)."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.protocols import IntervalRules
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.cohorts import HEAVY_FEW, BinormalDesign, simulate_binormal
from elsewhere.simulation.simulated_mean import SimulatedMean
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.metric import IntervalMethod, MetricKind
from elsewhere.statistics.resampling import Resampling


def make(patients: int = 120, cases: int = 2, seed: int = 0, **design) -> tuple[BinaryEvaluator, Clusters]:
    given = {"prevalence": 0.4, "auroc": 0.8} | design
    made = simulate_binormal(
        BinormalDesign(patients=patients, cases_per_patient=cases, **given), np.random.default_rng(seed)
    )
    positive = np.bincount(made.cluster, weights=made.label, minlength=patients) > 0
    partition = Clusters(
        made.cluster,
        tuple(map(str, range(patients))),
        (np.arange(patients) % 2).astype(np.int32),
        ("a", "b"),
        positive,
    )
    evaluator = BinaryEvaluator(
        label=made.label, probability=made.probability, cluster_of_case=made.cluster, n_clusters=patients
    )
    return evaluator, partition


def run(evaluator, partition, **changes):
    how = {"key": "k", "seed": 42, "resamples": 200}
    how |= {name: changes.pop(name) for name in ("key", "seed", "resamples", "threads") if name in changes}
    return estimate_all(
        evaluator, partition, resampling=Resampling(**how), **({"rules": IntervalRules()} | changes)
    )


class Counting:
    """Counts how many weight rows pass through an evaluator."""

    def __init__(self, evaluator) -> None:
        self.rows = 0
        self._evaluate = evaluator.evaluate
        evaluator.evaluate = self

    def __call__(self, weights):
        self.rows += len(weights)
        return self._evaluate(weights)


def test_each_metric_has_its_own_method():
    evaluator, partition = make()
    found = run(evaluator, partition)
    assert list(found) == [spec.name for spec in evaluator.specs]
    for spec in evaluator.specs:
        made = found[spec.name]
        assert made.method == spec.interval.value
        assert spec.lower_bound <= made.lo <= made.value <= made.hi <= spec.upper_bound
        assert made.lo < made.hi
    assert found["auroc"].bootstrap is not None
    json.dumps({name: made.to_dict() for name, made in found.items()}, allow_nan=False)


def test_one_pass_a_stream_serves_all_metrics():
    evaluator, partition = make()
    counter = Counting(evaluator)
    run(evaluator, partition, resamples=300)
    assert counter.rows == 1 + 2 * 300 + partition.n_clusters


def test_seed_key_and_threads():
    evaluator, partition = make(40)
    a, b = run(evaluator, partition, threads=1), run(evaluator, partition, threads=3)
    assert a == b
    assert run(evaluator, partition, seed=1)["f1"].lo != a["f1"].lo
    alone = run(evaluator, partition, metrics=["f1"])
    assert list(alone) == ["f1"] and alone["f1"] == a["f1"]


def test_without_resamples_closed_forms_stay():
    evaluator, partition = make()
    found = run(evaluator, partition, resamples=0)
    assert found["auroc"].method == "delong-logit-clustered" and found["auroc"].lo is not None
    assert found["sensitivity"].method == "wilson-clustered"
    assert found["nll"].method == "t-clustered" and found["nll"].lo is not None
    assert found["f1"].method == "none" and found["f1"].lo is None
    assert any("resamples" in text for text in found["f1"].warnings)
    assert found["f1"].value is not None


def test_a_protocol_may_name_one_method_for_all():
    evaluator, partition = make()
    found = run(evaluator, partition, rules=IntervalRules(method="percentile", by_site=False, by_class=False))
    assert {made.method for made in found.values()} == {"percentile"}
    t = run(evaluator, partition, rules=IntervalRules(method="bootstrap-t"))
    assert t["brier"].method == "bootstrap-t" and t["auroc"].method == "bca"
    assert any("bootstrap-t" in text for text in t["auroc"].warnings)
    bca = run(evaluator, partition, rules=IntervalRules(method="bca"))
    assert bca["brier"].method == "bca" and bca["ece_malignant"].method == "percentile"


def test_few_patients_get_t_and_a_warning():
    evaluator, partition = make(15, cases=3)
    found = run(evaluator, partition)
    assert found["f1"].method == "t-clustered"
    assert any("too few to resample" in text for text in found["f1"].warnings)
    assert any("Outside the domain" in text for text in found["brier"].warnings)
    plenty = run(*make(400, cases=1))
    assert not any("Outside the domain" in text for text in plenty["brier"].warnings)


def test_many_patients_need_no_bootstrap_t(monkeypatch):
    monkeypatch.setattr("elsewhere.statistics.estimates.MANY_PATIENTS", 100)
    evaluator, partition = make(120)
    many = run(evaluator, partition)["nll"]
    assert many.method == "t-clustered"
    monkeypatch.undo()
    few = run(evaluator, partition)["nll"]
    assert few.method == "bootstrap-t"
    assert (few.lo, few.hi) == pytest.approx((many.lo, many.hi), abs=0.5 * (many.hi - many.lo))


def uneven(patients: int, seed: int = 0) -> tuple[BinaryEvaluator, Clusters]:
    """5 % of the patients have 20 to 60 cases, the others one."""
    made = simulate_binormal(
        BinormalDesign(patients=patients, counts=HEAVY_FEW, prevalence=0.4, auroc=0.8),
        np.random.default_rng(seed),
    )
    positive = np.bincount(made.cluster, weights=made.label, minlength=patients) > 0
    sites = np.zeros(patients, dtype=np.int32)
    partition = Clusters(made.cluster, tuple(map(str, range(patients))), sites, ("all",), positive)
    return (
        BinaryEvaluator(
            label=made.label, probability=made.probability, cluster_of_case=made.cluster, n_clusters=patients
        ),
        partition,
    )


def test_unequal_numbers_of_cases_are_outside_the_domain_whatever_their_mean():
    """100 patients, three cases each on average, but five hold two thirds of them: coverage is 76 to 90 %."""
    evaluator, partition = uneven(100)
    assert evaluator.n_cases / 100 < 4
    found = run(evaluator, partition, resamples=0)
    for metric in ("auroc", "sensitivity", "specificity", "nll"):
        assert any("Outside the domain" in text for text in found[metric].warnings), metric
    assert any("with such unequal numbers of cases count as 1" in text for text in found["nll"].warnings)
    plenty = run(*uneven(1500), resamples=0)
    assert not any("Outside the domain" in text for text in plenty["auroc"].warnings)


def test_many_cases_from_every_patient_are_no_complaint():
    found = run(*make(200, cases=9), resamples=0)
    assert not any("Outside the domain" in text for text in found["auroc"].warnings)


def perfect(label, probability, **more) -> tuple[BinaryEvaluator, Clusters]:
    n = label.size
    cluster = np.arange(n, dtype=np.int32)
    partition = Clusters(cluster, tuple(map(str, range(n))), np.zeros(n, dtype=np.int32), ("all",), label > 0)
    evaluator = BinaryEvaluator(
        label=label, probability=probability, cluster_of_case=cluster, n_clusters=n, **more
    )
    return evaluator, partition


@pytest.mark.parametrize(
    "rules", [IntervalRules(), IntervalRules(method="percentile"), IntervalRules(method="bca")]
)
@pytest.mark.parametrize("right", [True, False])
def test_no_interval_has_zero_width_when_every_case_is_right_or_wrong(right, rules):
    """Balanced accuracy [1, 1] covered 81.5 % at a true 0.977: a perfect sample gets a one-sided bound."""
    label = (np.arange(60) % 3 == 0).astype(np.int8)
    found = run(*perfect(label, (label == right).astype(float)), rules=rules)
    for name, made in found.items():
        if made.value is None or made.lo is None:
            continue
        assert made.lo < made.hi, (name, made)
        assert made.lo <= made.value <= made.hi
    bound = found["balanced_accuracy"]
    assert bound.method == "one-sided-bound"
    width = 1 - 0.05 ** (1 / 20)
    assert (bound.lo, bound.hi) == pytest.approx((1 - width, 1.0) if right else (0.0, width))
    assert any("One-sided bound" in text for text in bound.warnings)


def test_a_constant_prediction_has_no_interval_of_zero_width():
    """Everybody called positive: balanced accuracy is 0.5 in every resample."""
    label = (np.arange(60) % 2).astype(np.int8)
    made = run(*perfect(label, np.ones(60)))["balanced_accuracy"]
    assert made.value == 0.5 and made.lo < 0.45 and made.hi > 0.55


def test_a_perfect_sample_without_a_bound_has_no_interval():
    """No false component at all says nothing about how many there may be: no interval, and the reason."""
    made = mean_of("false_components_per_case", np.zeros(60))
    assert made.value == 0.0 and made.lo is None and made.method == "none"
    assert any("cannot be estimated" in text for text in made.warnings)
    far = mean_of("hausdorff95_mm", np.zeros(60))
    assert far.lo == 0.0 and far.hi > 1.0 and far.method == "one-sided-bound"


def mean_of(name: str, values, **changes):
    cluster = np.arange(values.size, dtype=np.int32)
    partition = Clusters(
        cluster, tuple(map(str, cluster)), np.zeros(values.size, dtype=np.int32), ("all",), None
    )
    return run(SimulatedMean(name, values, cluster, values.size), partition, **changes)[name]


def test_skewed_means_use_the_bootstrap_t_in_a_domain_of_their_own():
    """Distances reach further above the mean than below it, and a few patients carry it."""
    rng = np.random.default_rng(3)
    heavy = mean_of("hausdorff95_mm", 6 * np.exp(1.2 * rng.normal(size=100)))
    assert heavy.method == "bootstrap-t"
    assert heavy.hi - heavy.value > 1.3 * (heavy.value - heavy.lo)
    assert any("carry this skewed mean" in text for text in heavy.warnings)
    calm = mean_of("hausdorff95_mm", 6 * np.exp(0.5 * rng.normal(size=300)))
    assert not calm.warnings
    assert mean_of("dice", rng.random(100)).method == "t-clustered"


def test_rare_errors_leave_no_resample_with_an_infinite_t():
    """Five of 100 slides have false positives: some resamples have none, and still there is an interval."""
    values = np.zeros(100)
    values[:5] = (0.01, 0.02, 0.2, 0.01, 0.05)
    made = mean_of("slide_false_positive_rate", values)
    assert made.method == "bootstrap-t" and 0.0 <= made.lo < made.value < made.hi <= 1.0
    rarer = np.zeros(100)
    rarer[0] = 0.2
    made = mean_of("slide_false_positive_rate", rarer)
    assert made.method == "t-clustered" and any("without spread" in text for text in made.warnings)


def test_a_protocols_own_interval_carries_no_promise_of_ours():
    """Under a challenge's published method the result says so, and does not speak of our domain."""
    found = run(*make(60, cases=1), rules=IntervalRules(method="percentile"))
    for made in found.values():
        assert any("protocol's own published method (percentile)" in text for text in made.warnings)
        assert not any("Outside the domain" in text for text in made.warnings)
    assert not any("published method" in text for text in run(*make(60, cases=1))["auroc"].warnings)


def test_undefined_values_have_a_reason_and_resamples_are_counted():
    evaluator, partition = make(60, cases=1)
    only = evaluator.subset(evaluator.label == 1)
    found = run(only, partition)
    assert found["auroc"].value is None and "no negative" in found["auroc"].undefined_reason
    assert found["auroc"].to_dict()["value"] is None
    first = np.flatnonzero(evaluator.label == 1)[:1]
    rare = evaluator.subset((evaluator.label == 0) | np.isin(np.arange(60), first))
    loose = run(rare, partition, rules=IntervalRules(method="percentile", by_class=False))
    assert any("left the metric undefined" in text for text in loose["auroc"].warnings)


def test_perfect_separation_is_a_bound():
    evaluator, partition = make(80, cases=1, auroc=0.9)
    perfect = BinaryEvaluator(
        label=evaluator.label,
        probability=evaluator.label.astype(float),
        cluster_of_case=evaluator.cluster_of_case,
        n_clusters=80,
    )
    made = run(perfect, partition)["auroc"]
    assert (made.value, made.hi, made.method) == (1.0, 1.0, "one-sided-bound")
    assert made.lo < 0.96 and any("One-sided bound" in text for text in made.warnings)


def test_ranges_keep_the_percentile_and_its_note():
    evaluator, partition = make()
    evaluator.specs = tuple(
        dataclasses.replace(spec, kind=MetricKind.RANGE, interval=IntervalMethod.BCA)
        if spec.name == "f1"
        else spec
        for spec in evaluator.specs
    )
    made = run(evaluator, partition)["f1"]
    assert made.method == "percentile" and any("no valid coverage" in text for text in made.warnings)


def test_one_patient_has_no_interval():
    evaluator = BinaryEvaluator(
        label=[0, 1, 1], probability=[0.2, 0.4, 0.9], cluster_of_case=[0, 0, 0], n_clusters=1
    )
    partition = Clusters(
        np.zeros(3, dtype=np.int32), ("p",), np.zeros(1, dtype=np.int32), ("s",), np.array([True])
    )
    found = run(evaluator, partition)
    assert all(made.lo is None and made.method == "none" for made in found.values())


def test_user_errors():
    evaluator, partition = make(30)
    with pytest.raises(UserError, match="auroc"):
        run(evaluator, partition, metrics=["aurok"])
    with pytest.raises(UserError, match="resamples"):
        run(evaluator, partition, resamples=-1)
    with pytest.raises(UserError, match="level"):
        run(evaluator, partition, level=95)
