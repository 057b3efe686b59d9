"""ST-07: both numbers, and the planner against simulated studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.power import SampleDesign, auroc_variance, plan_sample, power_numbers


def test_both_numbers_by_their_formulas():
    n = power_numbers(0.02, lo=-0.03, hi=0.03, margin=0.02)
    assert n.smallest_detectable_drop == pytest.approx((1.644853627 + 0.841621234) * 0.02)
    assert n.smallest_provable_margin == pytest.approx((1.644853627 + 1.281551566) * 0.02)
    assert n.out_of_reach and "out of reach" in n.sentence
    assert not power_numbers(0.02, lo=-0.03, hi=0.03, margin=0.031).out_of_reach
    none = power_numbers(math.nan, lo=math.nan, hi=math.nan, margin=0.05)
    assert none.smallest_detectable_drop is None and "not known" in none.sentence


@pytest.mark.parametrize("auroc", [0.6, 0.8, 0.95])
def test_binormal_variance_is_that_of_simulated_aurocs(auroc):
    rng = np.random.default_rng(1)
    pos, neg, d = 20, 40, math.sqrt(2) * stats.norm.ppf(auroc)
    x, y = rng.normal(d, 1, (6000, pos)), rng.normal(0, 1, (6000, neg))
    simulated = np.array([(a[:, None] > b[None, :]).mean() for a, b in zip(x, y, strict=True)])
    assert auroc_variance(auroc, pos, neg) == pytest.approx(simulated.var(), rel=0.1)


@pytest.mark.parametrize("auroc", [0.6, 0.8, 0.95])
def test_hanley_mcneil_variance_is_that_of_exponential_scores(auroc):
    rng = np.random.default_rng(2)
    pos, neg = 20, 40
    x, y = rng.exponential(auroc / (1 - auroc), (6000, pos)), rng.exponential(1, (6000, neg))
    simulated = np.array([(a[:, None] > b[None, :]).mean() for a, b in zip(x, y, strict=True)])
    assert simulated.mean() == pytest.approx(auroc, abs=0.005)
    assert auroc_variance(auroc, pos, neg, model="hanley-mcneil") == pytest.approx(simulated.var(), rel=0.1)


def test_plans_move_the_right_way():
    base = {"expected": 0.85, "margin": 0.05, "prevalence": 0.2}
    plan = plan_sample(SampleDesign(metric="auroc", **base))
    assert plan.positives == round(0.2 * plan.cases) and plan.patients == plan.cases
    assert plan.cases > plan_sample(SampleDesign(metric="auroc", **base, aim="non-inferiority")).cases
    assert plan.cases < plan_sample(SampleDesign(metric="auroc", **(base | {"margin": 0.04}))).cases
    assert plan.cases < plan_sample(SampleDesign(metric="auroc", **base, reference_se=0.01)).cases
    assert plan.cases < plan_sample(SampleDesign(metric="auroc", **base, anticipated_drop=0.02)).cases
    twins = plan_sample(SampleDesign(metric="auroc", **base, cases_per_patient=2, icc=0.5))
    assert twins.design_effect == 1.5 and twins.cases >= 1.45 * plan.cases
    assert twins.patients == math.ceil(twins.cases / 2)
    assert plan.to_dict()["cases"] == plan.cases


def test_sensitivity_plan_by_hand():
    """The score test's sample size: the null's spread for alpha, the truth's for power. The plan is moved by
    a few positives to where whole counts reach that power."""
    plan = plan_sample(
        SampleDesign(metric="sensitivity", expected=0.9, margin=0.05, prevalence=0.1, aim="non-inferiority")
    )
    null, truth = math.sqrt(0.85 * 0.15), math.sqrt(0.9 * 0.1)
    wanted = ((stats.norm.ppf(0.95) * null + stats.norm.ppf(0.8) * truth) / 0.05) ** 2
    assert 0.98 * wanted < plan.positives < 1.05 * wanted
    assert plan.cases == pytest.approx(plan.positives / 0.1, abs=10)


def test_dice_plan_by_hand():
    """(z[1 - alpha] + z[1 - beta/2]) sd / margin squared, and a case or two more for t."""
    plan = plan_sample(SampleDesign(metric="dice", expected=0.7, margin=0.03, sd=0.25, skewness=0))
    normal = (0.25 * (stats.norm.ppf(0.95) + stats.norm.ppf(0.9)) / 0.03) ** 2
    assert normal < plan.cases < normal + 4
    assert plan.positives is None


def test_auroc_near_one_needs_more_than_a_symmetric_interval_would_say():
    plan = plan_sample(
        SampleDesign(metric="auroc", expected=0.85, margin=0.06, prevalence=0.3, aim="non-inferiority")
    )
    quantile = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    symmetric = next(
        n
        for n in range(20, 2000)
        if quantile * math.sqrt(auroc_variance(0.85, round(0.3 * n), n - round(0.3 * n))) <= 0.06
    )
    assert 1.2 * symmetric < plan.cases < 1.6 * symmetric


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metric": "aurok"}, "auroc"),
        ({"margin": 0}, "margin"),
        ({"prevalence": None}, "prevalence"),
        ({"expected": 1.0}, "expected"),
        ({"metric": "dice"}, "sd"),
        ({"icc": 2}, "icc"),
        ({"aim": "win"}, "aim"),
        ({"reference_se": 0.5}, "no number of cases"),
        ({"anticipated_drop": 0.05}, "no room"),
        ({"aim": "detect", "margin": 0.9}, "outside"),
    ],
)
def test_bad_plans(changes, named):
    good = {"metric": "auroc", "expected": 0.85, "margin": 0.05, "prevalence": 0.2} | changes
    with pytest.raises(UserError, match=named):
        plan_sample(SampleDesign(metric=good.pop("metric"), **good))
