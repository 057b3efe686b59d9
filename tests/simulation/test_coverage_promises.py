"""Promises kept by simulation, judged with their own error (ST-04, ST-13)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.simulation.coverage import binomial_interval, run_job
from elsewhere.simulation.grid import Job
from elsewhere.simulation.paired_levels import level_rows
from elsewhere.statistics.auroc import auroc_interval

pytestmark = pytest.mark.slow


def cell(family: str, **changes) -> Job:
    given = {
        "family": family,
        "patients": 150,
        "cases_per_patient": 2,
        "prevalence": 0.3,
        "auroc": 0.8,
        "replicates": 600,
        "resamples": 0,
    }
    return Job(**(given | changes))


@pytest.mark.parametrize("auroc", [0.6, 0.85])
@pytest.mark.parametrize("cases_per_patient", [1, 4])
def test_closed_forms_cover_inside_the_domain(auroc, cases_per_patient):
    rows = run_job(cell("closed", auroc=auroc, cases_per_patient=cases_per_patient))
    inside = [r for r in rows if r.in_domain]
    assert "auroc" in {r.metric for r in inside}
    for row in inside:
        assert row.keeps_promise, (row.metric, row.coverage)


def test_mean_dice_covers():
    (row,) = run_job(cell("dice", replicates=2000))
    assert row.in_domain and row.keeps_promise


def test_resampled_intervals_cover_inside_the_domain():
    made = run_job(cell("resampled", patients=400, resamples=400))
    rows = [r for r in made if r.default and r.in_domain]
    assert {"auprc", "f1", "balanced_accuracy"} <= {r.metric for r in rows}
    for row in rows:
        assert row.keeps_promise, (row.metric, row.coverage)


@pytest.mark.parametrize(("positives", "negatives", "truth"), [(8, 60, 0.98), (30, 30, 0.97), (4, 40, 0.8)])
def test_the_one_sided_bound_covers_at_least_its_level(positives, negatives, truth):
    """The worst case for the bound: a part of one class lies beyond the whole other class."""
    rng = np.random.default_rng(positives)
    n, held, bounds = 1500, 0, 0
    label = np.repeat([1, 0], [positives, negatives])
    for _ in range(n):
        score = label + 0.1 * rng.random(label.size)
        score[(label == 1) & (rng.random(label.size) > truth)] = -1.0
        made = auroc_interval(label, score, np.arange(label.size))
        if made.method == "one-sided-bound":
            bounds += 1
            held += made.lo <= truth <= made.hi
    assert bounds > 50
    missed_of_all = bounds - held
    assert binomial_interval(missed_of_all, n)[0] <= 0.05


def test_paired_tests_hold_their_level():
    for row in level_rows(60, 2, replicates=500, permutations=199):
        assert row.holds, (row.metric, row.test, row.rate)
