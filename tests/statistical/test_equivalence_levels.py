"""Do the verdict's tests keep their level, and does the planner keep its promise? Judged by ST-13."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from elsewhere.simulation.type1_error import (
    DEFAULT_CELLS,
    LevelCell,
    equivalence_levels,
    rejection_lower_bound,
)
from elsewhere.statistics.auroc import auroc_interval
from elsewhere.statistics.power import SampleDesign, plan_sample
from elsewhere.statistics.proportions import wilson
from elsewhere.statistics.verdict import Verdict, judge


def name(cell):
    plain = f"{cell.metric}-{cell.against}-{cell.patients}x{cell.cases_per_patient}-{cell.side}-{cell.method}"
    return f"{plain}-{cell.setting}" if cell.setting else plain


FEWER = [
    cell
    for cell in DEFAULT_CELLS
    if (cell.positives in (None, 15)) and (cell.skewed is None or cell.patients in (60, 480))
]
"""The page has more sizes in between; the least and the largest are enough here."""


@pytest.mark.slow
@pytest.mark.parametrize("cell", FEWER, ids=name)
def test_level_on_the_margin(cell):
    row = equivalence_levels(cells=[cell], replicates=500, resamples=399).iloc[0]
    assert row["not_assessed"] == 0.0
    if row["promised"]:
        assert row["holds"], row.to_dict()
    elif not row["warned"]:
        assert max(row["nearer"], row["further"]) < 0.1, row.to_dict()
    assert row["nearer"] + row["further"] > 0.01, "a test that never errs on the margin has no power either"


@pytest.mark.slow
def test_forgetting_the_patients_breaks_the_level():
    """The control: three alike cases a patient taken as three patients. The judge must see it."""
    cell = LevelCell(
        metric="sensitivity", against="constant", patients=200, cases_per_patient=3, cases_as_patients=True
    )
    row = equivalence_levels(cells=[cell], replicates=500, resamples=1).iloc[0]
    assert not row["holds"], row.to_dict()


def test_lower_bound_of_a_simulated_rate():
    assert rejection_lower_bound(0, 100) == 0.0
    k = 9
    bound = rejection_lower_bound(k, 100)
    assert stats.binom.sf(k - 1, 100, bound) == pytest.approx(0.01)


def shows_power(hits, runs, wanted, *, slack=0.03):
    """The planned power must lie within the 99 % interval of the simulated one, give or take `slack` for
    the normal approximation of the plan."""
    low, high = stats.binomtest(hits, runs).proportion_ci(0.99, "wilson")
    assert low - slack <= wanted <= high + slack, hits / runs


@pytest.mark.slow
@pytest.mark.parametrize("aim", ["equivalence", "non-inferiority", "detect"])
def test_planned_auroc_studies_have_their_power(aim):
    expected, margin, runs = 0.85, 0.06, 800
    plan = plan_sample(
        SampleDesign(metric="auroc", expected=expected, margin=margin, prevalence=0.3, aim=aim)
    )
    truth = expected - margin if aim == "detect" else expected
    d = math.sqrt(2) * stats.norm.ppf(truth)
    rng = np.random.default_rng(7)
    label = (np.arange(plan.cases) < plan.positives).astype(int)
    hits = 0
    for _ in range(runs):
        r = auroc_interval(label, rng.normal(d * label, 1), np.arange(plan.cases), level=0.9)
        lo, hi = r.lo - expected, r.hi - expected
        if aim == "equivalence":
            hits += judge(lo, hi, margin).word is Verdict.EQUIVALENT
        elif aim == "non-inferiority":
            hits += judge(lo, hi, margin).non_inferior
        else:
            hits += hi < 0
    shows_power(hits, runs, plan.power)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "aim"), [("sensitivity", "equivalence"), ("specificity", "non-inferiority")]
)
def test_planned_proportion_studies_have_their_power(metric, aim):
    plan = plan_sample(SampleDesign(metric=metric, expected=0.85, margin=0.05, prevalence=0.4, aim=aim))
    n = plan.positives if metric == "sensitivity" else plan.negatives
    seen = np.random.default_rng(3).binomial(n, 0.85, 4000) / n
    hits = 0
    for value in seen:
        lo, hi = wilson(float(value), n, z=stats.norm.ppf(0.95))
        judged = judge(lo - 0.85, hi - 0.85, 0.05)
        hits += judged.non_inferior if aim == "non-inferiority" else judged.word is Verdict.EQUIVALENT
    shows_power(hits, 4000, plan.power)


@pytest.mark.slow
def test_planned_dice_study_counts_the_design_effect():
    plan = plan_sample(
        SampleDesign(metric="dice", expected=0.75, margin=0.04, sd=0.2, cases_per_patient=2, icc=0.4)
    )
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(1500):
        patient = rng.normal(0, 0.2 * math.sqrt(0.4), (plan.patients, 1))
        means = (patient + rng.normal(0, 0.2 * math.sqrt(0.6), (plan.patients, 2))).mean(axis=1)
        half = stats.t.ppf(0.95, plan.patients - 1) * means.std(ddof=1) / math.sqrt(plan.patients)
        hits += judge(means.mean() - half, means.mean() + half, plan.margin).word is Verdict.EQUIVALENT
    shows_power(hits, 1500, plan.power)


@pytest.mark.parametrize(("n", "most"), [(50, 0.06), (100, 0.05), (200, 0.05)])
def test_exact_level_of_a_proportion_against_a_constant(n, most):
    """Binomial, so no simulation is needed: sensitivity 0.82 for 0.90 claimed, margin 0.08. On 50 cases
    Wilson's ends stand on a coarse lattice and pass 5 % (0.0544): known, and shown in the table."""
    t = stats.t.ppf(0.95, n - 1)
    chance = stats.binom.pmf(np.arange(n + 1), n, 0.82)
    nearer = further = 0.0
    for k in range(n + 1):
        effective = n - 1 if 0 < k < n else n
        lo, hi = wilson(k / n, effective, z=t)
        nearer += chance[k] * judge(lo - 0.9, hi - 0.9, 0.08).non_inferior
        further += chance[k] * (judge(lo - 0.9, hi - 0.9, 0.08).word is Verdict.BELOW)
    assert max(nearer, further) <= most
    assert nearer > 0.02 < further
