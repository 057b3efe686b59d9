"""Two models on the same cases (ST-02, ST-12, MRI-09)."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.protocols import IntervalRules
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.cohorts import BinormalDesign, simulate_two_models
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.evaluator import RatioInputs
from elsewhere.statistics.paired import (
    compare_pair,
    holm,
    patient_tests,
    permutation_p,
    swapped_differences,
)
from elsewhere.statistics.resampling import Resampling


def models(patients: int = 80, seed: int = 0, shift: float = 0.0):
    design = BinormalDesign(patients=patients, cases_per_patient=2, prevalence=0.4, auroc=0.8)
    a, b = simulate_two_models(design, np.random.default_rng(seed))
    positive = np.bincount(a.cluster, weights=a.label, minlength=patients) > 0
    sites = np.zeros(patients, dtype=np.int32)
    partition = Clusters(a.cluster, tuple(map(str, range(patients))), sites, ("s",), positive)

    def evaluator(model, move):
        p = np.clip(model.probability + move * np.where(model.label > 0, 1, -1), 0, 1)
        return BinaryEvaluator(
            label=model.label,
            probability=p,
            cluster_of_case=model.cluster,
            n_clusters=patients,
            metrics=("auroc", "auprc", "balanced_accuracy", "f1", "brier"),
        )

    return evaluator(a, shift), evaluator(b, 0.0), partition


def run(a, b, partition, **changes):
    how = {"key": "k", "seed": 42, "resamples": 300}
    how |= {name: changes.pop(name) for name in ("key", "seed", "resamples", "threads") if name in changes}
    return compare_pair(
        a, b, partition, resampling=Resampling(**how), **({"rules": IntervalRules()} | changes)
    )


def test_methods_and_signs():
    a, b, partition = models(shift=0.25)
    found = run(a, b, partition)
    assert found["auroc"].method == "delong-clustered-paired" == found["auroc"].p_method
    assert found["brier"].method == "t-clustered" and {"t-paired-patients", "wilcoxon-patients"} <= set(
        found["brier"].tests
    )
    assert found["balanced_accuracy"].p_method == "permutation"
    assert found["balanced_accuracy"].method in {"bca", "percentile"}
    for name in ("auroc", "auprc", "balanced_accuracy", "f1"):
        made = found[name]
        assert made.difference == pytest.approx(made.value_a - made.value_b)
        assert made.lo <= made.difference <= made.hi
        assert made.difference > 0 and made.p < 0.05 and made.tests["permutation"].p < 0.05
    assert found["brier"].difference < 0
    json.dumps({name: made.to_dict() for name, made in found.items()}, allow_nan=False)


def test_swapping_the_models_mirrors_everything():
    a, b, partition = models(seed=3)
    one, other = run(a, b, partition), run(b, a, partition)
    for name, made in one.items():
        back = other[name]
        assert made.difference == pytest.approx(-back.difference)
        assert made.p == pytest.approx(back.p)
        if made.method not in {"bca", "percentile"}:
            assert (made.lo, made.hi) == pytest.approx((-back.hi, -back.lo))


def test_permutations_swap_whole_patients():
    """With two patients there are four assignments; each difference must be one of them."""
    label, cluster = [0, 1, 0, 1], [0, 0, 1, 1]
    pa, pb = np.array([0.1, 0.9, 0.4, 0.6]), np.array([0.7, 0.3, 0.2, 0.8])

    def make(p):
        return BinaryEvaluator(
            label=label, probability=p, cluster_of_case=cluster, n_clusters=2, metrics=("brier",)
        )

    got = swapped_differences(make(pa), make(pb), key="k", seed=1, permutations=200)[:, 0]
    expected = set()
    for first in (False, True):
        for second in (False, True):
            swap = np.array([first, first, second, second])
            x, y = np.where(swap, pb, pa), np.where(swap, pa, pb)
            expected.add(round(float(np.mean((x - label) ** 2) - np.mean((y - label) ** 2)), 12))
    assert {round(float(d), 12) for d in got} == expected


def two_classifiers(patients: int = 200, seed: int = 0, *, better: float = 0.0, change=None):
    """Models a and b on the same patients; a leads by `better`; `change` is applied to b's probabilities."""
    rng = np.random.default_rng(seed)
    label = (rng.random(patients) < 0.3).astype(int)
    shared = rng.normal(size=patients)
    a, b = (
        1 / (1 + np.exp(-(lead * label + shared + rng.normal(size=patients)))) for lead in (1 + better, 1)
    )
    cluster = np.arange(patients, dtype=np.int32)
    site = np.zeros(patients, dtype=np.int32)
    partition = Clusters(cluster, tuple(map(str, range(patients))), site, ("s",), label > 0)

    def evaluator(p):
        return BinaryEvaluator(
            label=label,
            probability=p,
            cluster_of_case=cluster,
            n_clusters=patients,
            metrics=("auroc", "auprc", "auprc_trapezoid", "brier"),
        )

    return evaluator(a), evaluator(b if change is None else change(b)), partition


@pytest.mark.parametrize(
    "change", [lambda p: 0.01 * p, lambda p: 0.9 + 0.1 * p, lambda p: p**5, lambda p: np.sqrt(p)]
)
def test_a_monotone_change_of_one_model_changes_no_permutation_of_ranks(change):
    """AUROC and AUPRC read the order of scores alone, and so must their permutation test (ST-12a)."""
    plain, changed = two_classifiers(better=0.5), two_classifiers(better=0.5, change=change)
    options = {"key": "k", "seed": 1, "permutations": 150}
    before, after = (swapped_differences(a, b, **options) for a, b, _ in (plain, changed))
    assert (before[:, :3] == after[:, :3]).all()
    assert not np.allclose(before[:, 3], after[:, 3])  # the Brier score does read the values
    for name in ("auroc", "auprc"):
        one, other = (
            run(*models_, resamples=0, permutations=150)[name].tests["permutation"].p
            for models_ in (plain, changed)
        )
        assert one == other


def test_a_shift_costs_the_permutation_test_no_power():
    """A clearly better model stays clearly better when the other one's scores are shrunk and shifted."""
    found = [
        run(
            *two_classifiers(better=1.2, seed=seed, change=lambda p: 0.3 + 0.05 * p),
            resamples=0,
            permutations=99,
        )
        for seed in range(12)
    ]
    assert sum(made["auroc"].tests["permutation"].p <= 0.05 for made in found) >= 10


def test_permuted_ranks_keep_missing_answers_worst_and_ties_together():
    """A missing answer ranks beyond every answer of either model; equal scores share one rank."""
    label, cluster = [1, 1, 0, 0, 1], np.arange(5, dtype=np.int32)

    def make(p):
        return BinaryEvaluator(
            label=label, probability=p, cluster_of_case=cluster, n_clusters=5, metrics=("auroc", "auprc")
        )

    a = make([np.nan, 0.6, np.nan, 0.2, 0.6])
    ranked = a.ranked()
    assert ranked.probability[1] == ranked.probability[4] == pytest.approx(2.5 / 4)
    assert np.isnan(ranked.probability[[0, 2]]).all()
    low, high = ranked.judged[0].rank[0], ranked.judged[0].rank[2]
    b = make([0.0, 1.0, 0.0, 0.5, 1.0]).ranked()
    assert low < b.judged[0].rank.min() and high > b.judged[0].rank.max()
    assert ranked.values() == pytest.approx(a.values())


def test_equal_models_have_a_permutation_p_of_one_on_ranks():
    a, _, partition = two_classifiers()
    assert run(a, a, partition, resamples=0, permutations=50)["auroc"].tests["permutation"].p == 1.0


def test_a_constant_difference_is_a_difference():
    """All right against all wrong: no spread between patients, and yet no doubt (ST-09a)."""
    n = 30
    cluster = np.arange(n, dtype=np.int32)
    site = np.zeros(n, dtype=np.int32)
    label = np.arange(n) % 3 == 0
    partition = Clusters(cluster, tuple(map(str, range(n))), site, ("s",), label)
    dice = [ColumnMeans({"dice": np.full(n, v)}, cluster, n_clusters=n) for v in (0.9, 0.1 + 0.2)]
    made = run(*dice, partition)["dice"]
    assert made.p == pytest.approx(2.0**-29) and made.p_method == "t-clustered"
    assert made.lo == pytest.approx(0.6) and made.hi == pytest.approx(0.6)
    assert {test.p for name, test in made.tests.items() if name != "permutation"} == {made.p}
    assert made.tests["permutation"].p < 0.01
    assert "sign test" in made.tests["t-paired-patients"].reason
    same = run(dice[0], dice[0], partition)["dice"]
    assert same.p is None and (same.lo, same.hi) == (0.0, 0.0)

    def judged(p):
        return BinaryEvaluator(
            label=label, probability=p, cluster_of_case=cluster, n_clusters=n, metrics=("auroc",)
        )

    auroc = run(judged(label.astype(float)), judged(np.full(n, 0.5)), partition)["auroc"]
    assert auroc.difference == 0.5 and auroc.p == pytest.approx(2.0**-9)  # ten patients of the rarer class


def test_permutation_p_is_never_zero_and_counts_undefined():
    assert permutation_p(5.0, np.zeros(99)) == pytest.approx(0.01)
    assert permutation_p(0.0, np.zeros(99)) == 1.0
    assert permutation_p(-1.0, np.array([1.0, 0.5, np.nan])) == pytest.approx(3 / 4)


def test_patient_tests_are_scipys_on_patient_means():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(20), 3).astype(np.int32)
    x, y, ones = rng.random(60), rng.random(60), np.ones(60)
    x[0] = np.nan
    found = patient_tests(RatioInputs(x, ones), RatioInputs(y, ones), cluster, n_clusters=20)
    mean_x = np.nanmean(x.reshape(20, 3), axis=1)
    mean_y = y.reshape(20, 3).mean(axis=1)
    assert found["t-paired-patients"].p == pytest.approx(stats.ttest_rel(mean_x, mean_y).pvalue)
    assert found["wilcoxon-patients"].p == pytest.approx(stats.wilcoxon(mean_x, mean_y).pvalue)


def test_equal_models_have_no_test_and_no_crash():
    a, _, partition = models()
    found = run(a, a, partition)
    assert found["brier"].difference == 0.0 and found["brier"].p is None
    assert "same result in both" in found["brier"].tests["t-paired-patients"].reason
    assert found["balanced_accuracy"].p == 1.0


def test_a_challenge_keeps_its_percentile():
    a, b, partition = models()
    found = run(a, b, partition, rules=IntervalRules(method="percentile", by_site=False, by_class=False))
    assert {made.method for made in found.values()} == {"percentile"}


def test_without_resamples_closed_forms_stay():
    a, b, partition = models()
    found = run(a, b, partition, resamples=0)
    assert found["auroc"].lo is not None and "permutation" not in found["auroc"].tests
    assert found["balanced_accuracy"].lo is None and found["balanced_accuracy"].p is None


def test_other_cases_are_refused():
    a, _, partition = models()
    _, b, _ = models(patients=60)
    with pytest.raises(UserError, match="same cases"):
        run(a, b, partition)


def test_undefined_differences_have_a_reason():
    a, b, partition = models()
    mask = a.label == 1
    found = run(a.subset(mask), b.subset(mask), partition, resamples=64)
    assert found["auroc"].difference is None and found["auroc"].undefined_reason


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])
    assert holm([]) == []
    assert holm([0.9, 0.9]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_never_lowers(p):
    adjusted = holm(p)
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_a_comparison_outside_the_domain_says_so():
    """Comparisons look at the domain of the promised coverage too, and say whose method an interval is."""
    few = run(*models(patients=30))
    assert any("Outside the domain" in text and "30 patients" in text for text in few["auroc"].warnings)
    assert len(set(few["brier"].warnings)) == len(few["brier"].warnings)
    plenty = run(*models(patients=200))
    assert not any("Outside the domain" in text for text in plenty["auroc"].warnings)
    theirs = run(*models(patients=30), rules=IntervalRules(method="percentile"))
    assert any("published method" in text for text in theirs["brier"].warnings)
    assert not any("Outside the domain" in text for text in theirs["brier"].warnings)
