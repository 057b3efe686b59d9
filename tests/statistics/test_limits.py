"""One-sided limits: an AUROC with few positives, skewed means, samples without spread (ST-02a, ST-03a, ST-05a)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.cohorts import HEAVY_FEW, SKEWED_DESIGNS
from elsewhere.simulation.simulated_mean import SimulatedMean
from elsewhere.simulation.type1_error import LevelCell, equivalence_levels
from elsewhere.statistics.auroc import auroc_components, auroc_interval, least_variance
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import (
    ClaimedValue,
    difference_from_claim,
    difference_independent,
    difference_subsets,
)
from elsewhere.statistics.domain import OUTSIDE
from elsewhere.statistics.limits import DELONG, logit_limits, one_sample_limits
from elsewhere.statistics.power import auroc_variance
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import studentiser


def each_alone(n: int, label=None) -> Clusters:
    """One case per patient, one site."""
    positive = None if label is None else np.asarray(label) > 0
    return Clusters(
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(n))),
        np.zeros(n, dtype=np.int32),
        ("all",),
        positive,
    )


def binary(positives: int, negatives: int, *, seed: int = 0, d: float = 1.5):
    rng = np.random.default_rng(seed)
    label = np.repeat([1, 0], [positives, negatives]).astype(np.int8)
    probability = 1 / (1 + np.exp(-(rng.normal(size=label.size) + d * label)))
    n = label.size
    evaluator = BinaryEvaluator(
        label=label, probability=probability, cluster_of_case=np.arange(n, dtype=np.int32), n_clusters=n
    )
    return evaluator, each_alone(n, label)


def mean_of(name: str, values):
    n = values.size
    return SimulatedMean(name, np.asarray(values, dtype=float), np.arange(n, dtype=np.int32), n), each_alone(
        n
    )


def level(cell: LevelCell, replicates: int, resamples: int = 299):
    return equivalence_levels(cells=[cell], replicates=replicates, resamples=resamples).iloc[0]


@pytest.mark.parametrize(("positives", "auroc"), [(15, 0.9), (25, 0.95)])
def test_few_positives_are_not_wrongly_non_inferior(positives, auroc):
    """10 % positive, truth on the margin: DeLong's limit alone was wrong in 8 to 12 % of the cohorts."""
    cell = LevelCell(
        metric="auroc", against="constant", patients=10 * positives, positives=positives, auroc=auroc
    )
    found = level(cell, 400)
    assert found["nearer"] <= 0.05 and found["further"] <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize("prevalence", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("positives", [15, 25, 50])
@pytest.mark.parametrize("auroc", [0.75, 0.85, 0.9, 0.95])
def test_the_level_holds_from_fifteen_positives_on(prevalence, positives, auroc):
    cell = LevelCell(
        metric="auroc",
        against="constant",
        patients=round(positives / prevalence),
        positives=positives,
        auroc=auroc,
    )
    assert level(cell, 1000)["holds"]


def test_the_expected_variance_is_that_of_the_models_and_grows_with_clusters():
    """Half the binormal, half the Hanley-McNeil variance; the same cases counted twice double it."""
    evaluator, _ = binary(15, 135)
    inputs = evaluator.closed_form("auroc")
    parts = auroc_components(inputs.label, inputs.score, evaluator.cluster_of_case)
    expected = np.mean(
        [auroc_variance(parts.value, 15, 135, model=model) for model in ("binormal", "hanley-mcneil")]
    )
    once = least_variance(parts, inputs.label, inputs.score)
    assert once == pytest.approx(expected, rel=1e-3)
    label, score = np.tile(inputs.label, 2), np.tile(inputs.score, 2)
    twice = least_variance(auroc_components(label, score, np.tile(np.arange(150), 2)), label, score)
    assert twice == pytest.approx(once, rel=0.05)


def test_only_the_limit_towards_one_half_is_moved():
    """The shown two-sided interval stays DeLong's; of the limits, the one that a verdict must not overrate."""
    evaluator, partition = binary(15, 135, d=2.3)
    made = one_sample_limits(
        studentiser(evaluator, partition, "auroc"), alpha=0.05, resampling=Resampling(key="k")
    )
    inputs = evaluator.closed_form("auroc")
    plain = auroc_interval(inputs.label, inputs.score, evaluator.cluster_of_case, level=0.9)
    assert made.method == DELONG and made.lo < plain.lo and made.hi == pytest.approx(plain.hi)
    flipped = BinaryEvaluator(
        label=inputs.label,
        probability=1 - np.asarray(inputs.score),
        cluster_of_case=evaluator.cluster_of_case,
        n_clusters=150,
    )
    other = one_sample_limits(
        studentiser(flipped, partition, "auroc"), alpha=0.05, resampling=Resampling(key="k")
    )
    assert (other.lo, other.hi) == pytest.approx((1 - made.hi, 1 - made.lo))


def test_two_hospitals_of_sixty_are_judged_by_the_limits_of_both():
    """A Hausdorff distance at two hospitals of 60 was wrongly non-inferior in 11 %."""
    cell = LevelCell(metric="hausdorff95_mm", against="hospital", patients=60, skewed=SKEWED_DESIGNS[1])
    found = level(cell, 300)
    assert found["method"] == "mover (studentised-bootstrap)"
    assert found["nearer_lower99"] <= 0.05 and found["warned"] == 1.0 and not found["promised"]


@pytest.mark.slow
@pytest.mark.parametrize("against", ["hospital", "constant"])
def test_promised_cells_of_skewed_means_hold(against):
    design = SKEWED_DESIGNS[0]
    cell = LevelCell(metric=design.metric, against=against, patients=480, skewed=design)
    found = level(cell, 600)
    assert found["promised"] and found["holds"], found


def test_a_verdict_outside_the_domain_says_so():
    """Claims and differences look at the domain too: 12 positives are too few, on whichever side they are."""
    few, many = binary(12, 140), binary(60, 140, seed=1)
    claimed = difference_from_claim(*few, "auroc", ClaimedValue(value=0.85))
    assert any(OUTSIDE in text and "12 patients" in text for text in claimed.warnings)
    plenty = difference_from_claim(*many, "auroc", ClaimedValue(value=0.85))
    assert not any(OUTSIDE in text for text in plenty.warnings)
    of_two = difference_independent(*many, *few, "auroc")
    assert [text for text in of_two.warnings if OUTSIDE in text and text.startswith("Reference: ")]
    assert not any(text.startswith("Here: ") for text in of_two.warnings)
    evaluator, partition = many
    here = np.arange(200) % 8 == 0
    parts = difference_subsets(evaluator, partition, here, ~here, "auroc")
    assert any(text.startswith("Here: ") and OUTSIDE in text for text in parts.warnings)


def test_unequal_numbers_of_cases_are_told_with_the_verdict():
    found = level(
        LevelCell(metric="auroc", against="constant", patients=100, counts=HEAVY_FEW), 20, resamples=1
    )
    assert found["warned"] == 1.0 and not found["promised"]


@pytest.mark.parametrize("method", ["auto", "studentised-bootstrap", "t-clustered"])
def test_a_perfect_sample_is_no_proof_of_perfection(method):
    """All right, or all wrong, or all alike: the limits have a width, by every method."""
    label = np.repeat([1, 0], [20, 60]).astype(np.int8)
    n = label.size
    for right in (label, 1 - label):
        evaluator = BinaryEvaluator(
            label=label,
            probability=right.astype(float),
            cluster_of_case=np.arange(n, dtype=np.int32),
            n_clusters=n,
        )
        for metric in ("balanced_accuracy", "f1", "auroc", "sensitivity", "brier"):
            s = studentiser(evaluator, each_alone(n, label), metric)
            made = one_sample_limits(s, alpha=0.05, method=method, resampling=Resampling(key="k"))
            assert made.hi - made.lo > 0.01, (metric, made)
    alike = one_sample_limits(
        studentiser(*mean_of("dice", np.full(50, 0.8)), "dice"),
        alpha=0.05,
        method=method,
        resampling=Resampling(key="k"),
    )
    assert alike.lo < 0.78 and alike.hi > 0.805
    assert any("one-sided bound" in text for text in alike.warnings)


def test_without_spread_and_without_a_bound_there_is_no_verdict():
    """No false component in 50 cases, and no most of them: not assessed, with the reason."""
    evaluator, partition = mean_of("false_components_per_case", np.zeros(50))
    made = difference_from_claim(evaluator, partition, evaluator.specs[0].name, ClaimedValue(value=0.3))
    assert made.undefined_reason is not None and "no finite bound" in made.undefined_reason
    assert np.isnan(made.lo)


def test_one_side_without_spread_still_has_a_difference():
    """Dice 1 everywhere here, ordinary there: the other side's spread alone would be too narrow."""
    rng = np.random.default_rng(0)
    here = mean_of("dice", np.ones(40))
    there = mean_of("dice", rng.uniform(0.7, 1.0, size=40))
    made = difference_independent(*here, *there, "dice")
    alone = one_sample_limits(studentiser(*there, "dice"), alpha=0.05, resampling=Resampling(key="k"))
    assert made.method.startswith("mover") and made.difference - made.lo > alone.hi - alone.value
    same = dataclasses.replace(difference_independent(*here, *here, "dice"), warnings=())
    assert same.difference == 0.0 and same.lo < -0.05 and same.hi > 0.05


@pytest.mark.parametrize("value", [1e-12, 1e-300, 1 - 1e-12])
def test_limits_on_the_logit_stay_inside_for_a_value_near_the_end(value):
    """A claim of 1e-12 on two cases overflowed, and ended in a traceback."""
    lo, hi = logit_limits(value, se=0.5, alpha=0.05)
    assert 0.0 <= lo <= value <= hi <= 1.0
