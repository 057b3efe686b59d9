"""Every metric by its own method, one pass a stream, honest warnings (ST-01 to ST-04)."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.promises.simulation import BinormalDesign, simulate_binormal
from elsewhere.protocols import IntervalRules
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.metric import IntervalMethod, MetricKind
from elsewhere.statistics.partition import Partition


def make(patients: int = 120, cases: int = 2, seed: int = 0, **design) -> tuple[BinaryEvaluator, Partition]:
    given = {"prevalence": 0.4, "auroc": 0.8} | design
    made = simulate_binormal(
        BinormalDesign(patients=patients, cases_per_patient=cases, **given), np.random.default_rng(seed)
    )
    positive = np.bincount(made.cluster, weights=made.label, minlength=patients) > 0
    partition = Partition(
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
    given = {"rules": IntervalRules(), "key": "k", "seed": 42, "resamples": 200} | changes
    return estimate_all(evaluator, partition, **given)


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


def test_domain_knows_cluster_sizes():
    found = run(*make(200, cases=9), resamples=0)
    assert any("9.0 cases a patient" in text for text in found["auroc"].warnings)


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
    partition = Partition(
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
