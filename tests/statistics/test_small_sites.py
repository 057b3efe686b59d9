"""One rule for small sites wherever patients are resampled or centred within strata (ST-01a).

With sites that are all small, every number must be that of a single site: the strata are pooled everywhere, or
somewhere an interval is narrower than it may be.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsewhere.protocols import IntervalRules
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.coverage import froc_evaluator
from elsewhere.statistics.benefit import decision_curve
from elsewhere.statistics.clusters import FEWEST_PER_STRATUM, Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.differences import difference_independent, difference_subsets
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.fairness import variable_report
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.limits import one_sample_limits
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import SizeStrata
from elsewhere.statistics.studentised import studentiser

N = 100
CLUSTER = np.arange(N, dtype=np.int32)
RNG = np.random.default_rng(5)
LABEL = (RNG.random(N) < 0.3).astype(int)
SCORES = [1 / (1 + np.exp(-(1.5 * LABEL + RNG.normal(0, 1.2, N) - 0.7))) for _ in range(2)]
DICE = [RNG.beta(5, 2, N) for _ in range(2)]
KEY = {"key": "k", "seed": 1}


def partition(sites):
    positive = LABEL > 0
    site = (CLUSTER % sites).astype(np.int32)
    return Clusters(CLUSTER, tuple(map(str, CLUSTER)), site, tuple(map(str, range(sites))), positive)


ONE = partition(1)
SMALL = [partition(20), partition(50), partition(N)]
BINARY = [
    BinaryEvaluator(label=LABEL, probability=score, cluster_of_case=CLUSTER, n_clusters=N) for score in SCORES
]
MEANS = [ColumnMeans({"dice": dice}, CLUSTER, n_clusters=N) for dice in DICE]
BOXES = froc_evaluator(N, 1, np.random.default_rng(2))


def numbers(part):
    """Every number of a result, in order; arrays and nested results too."""
    if dataclasses.is_dataclass(part):
        return [x for f in dataclasses.fields(part) for x in numbers(getattr(part, f.name))]
    if isinstance(part, dict):
        return [x for value in part.values() for x in numbers(value)]
    if isinstance(part, list | tuple):
        return [x for value in part for x in numbers(value)]
    if isinstance(part, np.ndarray):
        return [float(x) for x in part.ravel()]
    return [float(part)] if isinstance(part, int | float) else []


@pytest.mark.parametrize("small", SMALL, ids=lambda p: f"{p.n_sites} sites")
@pytest.mark.parametrize(
    "analysis",
    [
        lambda p: estimate_all(
            BINARY[0], p, rules=IntervalRules(), resampling=Resampling(resamples=120, **KEY)
        ),
        lambda p: estimate_all(BOXES, p, rules=IntervalRules(), resampling=Resampling(resamples=120, **KEY)),
        lambda p: estimate_all(
            MEANS[0],
            p,
            rules=IntervalRules(method="bootstrap-t"),
            resampling=Resampling(resamples=120, **KEY),
        ),
        lambda p: estimate_all(
            MEANS[0], p, rules=IntervalRules(method="bca"), resampling=Resampling(resamples=120, **KEY)
        ),
        lambda p: compare_pair(
            *BINARY, p, rules=IntervalRules(), resampling=Resampling(resamples=120, **KEY), permutations=0
        ),
        lambda p: compare_pair(
            *MEANS, p, rules=IntervalRules(), resampling=Resampling(resamples=120, **KEY), permutations=0
        ),
        lambda p: dataclasses.replace(
            rank_models(
                BINARY, p, "balanced_accuracy", names=["a", "b"], resampling=Resampling(resamples=120, **KEY)
            ),
            left_out_sites={},
        ),
        lambda p: variable_report(
            Disparity.of_metrics(MEANS[0], ["dice"]),
            p,
            SizeStrata("v", ("a", "b"), (CLUSTER % 2).astype(np.int16), 0, "", (0.0, 0.0)),
            resamples=100,
            **KEY,
        ),
        lambda p: decision_curve(LABEL, SCORES[0], p),
        lambda p: difference_subsets(
            MEANS[0], p, CLUSTER < 60, CLUSTER >= 60, "dice", resampling=Resampling(resamples=120, **KEY)
        ),
        lambda p: difference_independent(
            MEANS[0], p, MEANS[1], ONE, "dice", resampling=Resampling(resamples=120, **KEY)
        ),
        lambda p: [
            one_sample_limits(
                studentiser(BINARY[0], p, name), alpha=0.05, resampling=Resampling(resamples=120, **KEY)
            )
            for name in ("balanced_accuracy", "sensitivity", "f1", "nll", "auprc")
        ],
    ],
)
def test_sites_that_are_all_small_give_the_numbers_of_one(analysis, small):
    expected = numbers(analysis(ONE))
    assert len(expected) > 5
    assert numbers(analysis(small)) == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


def test_large_sites_stay_apart_where_they_differ():
    """Pooling is for small sites: a real difference between two large ones still narrows the interval."""
    n = 4 * FEWEST_PER_STRATUM
    cluster, site = np.arange(n, dtype=np.int32), np.repeat([0, 1], n // 2).astype(np.int32)
    dice = np.random.default_rng(1).normal(0.6, 0.05, n) + 0.3 * site
    means = ColumnMeans({"dice": dice}, cluster, n_clusters=n)
    apart, together = (
        estimate_all(
            means,
            Clusters(cluster, tuple(map(str, cluster)), sites, ("a", "b")),
            rules=IntervalRules(),
            resampling=Resampling(resamples=0, **KEY),
        )["dice"]
        for sites in (site, 0 * site)
    )
    assert apart.hi - apart.lo < 0.5 * (together.hi - together.lo)
