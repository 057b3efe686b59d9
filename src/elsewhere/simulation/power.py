"""What the two power numbers and the planner promise, by simulation (ST-07a).

A cell of `drop_promises` does what a hospital would: studies without any drop state the smallest detectable
drop and the smallest provable margin, and their medians are used. New studies with exactly that drop are
simulated, and it is counted how often the whole 90 % interval of the difference lies below 0; in new studies
without a drop, how often the interval lies inside that margin. A cell of `plan_promises` collects as many
cases as `plan-sample` requires, at the truth that it was planned for. Every interval is the verdict's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.simulation.cohorts import simulate_dice
from elsewhere.simulation.fairness import Promise, judge_between, some_of
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.claimed import ClaimedValue
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.differences import (
    Difference,
    difference_from_claim,
    difference_independent,
)
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.power import Aim, SampleDesign, plan_sample
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import assess_claim

POWER = 0.8
DETECTED = (0.75, 0.85)
PROVED = (0.75, 0.90)
PLANNED = (0.78, 0.83)
PLANNED_DICE = (0.78, 0.90)
_RESAMPLES = 299
_STATED = 0.05
_FAILURES = 0.04


@dataclass(frozen=True, kw_only=True)
class PowerCell:
    """One design for which the power numbers are checked.

    Args:
        metric: 'auroc', 'sensitivity', 'balanced_accuracy' or 'dice'.
        reference: The true value at the reference.
        patients: Number of patients, one case each.
        prevalence: Share of positive patients; not used for 'dice'.
        against: 'constant' (a claimed value) or 'hospital' (of the same size).

    Example:
        >>> PowerCell(metric="dice", reference=0.76, patients=100).setting
        'dice 0.76, 100 patients, against a claimed constant'
    """

    metric: str
    reference: float
    patients: int
    prevalence: float = 0.3
    against: str = "constant"

    @property
    def setting(self) -> str:
        """The design in words, for the table."""
        share = "" if self.metric == "dice" else f", {100 * self.prevalence:g} % positive"
        other = "a claimed constant" if self.against == "constant" else "a hospital of the same size"
        return f"{self.metric} {self.reference:g}, {self.patients} patients{share}, against {other}"


@dataclass(frozen=True, kw_only=True)
class PlanCell:
    """One plan whose sample size is checked.

    Args:
        metric: 'auroc', 'sensitivity', 'specificity', 'balanced_accuracy' or 'dice'.
        expected: The value that the plan expects, and that is claimed.
        margin: The margin of the plan, or for the aim 'detect' the true drop.
        aim: 'non-inferiority', 'equivalence' or 'detect'.
        prevalence: Share of positive patients; not used for 'dice'.
        shape: Distribution of Dice values: 'skewed' (some failures at 0) or 'symmetric'.
    """

    metric: str
    expected: float
    margin: float
    aim: Aim
    prevalence: float = 0.3
    shape: str = "skewed"


POWER_CELLS: tuple[PowerCell, ...] = (
    *(
        PowerCell(metric=metric, reference=reference, patients=patients, against=against)
        for metric, reference in (("auroc", 0.9), ("sensitivity", 0.9), ("dice", 0.76))
        for against in ("constant", "hospital")
        for patients in (100, 300)
    ),
    PowerCell(metric="auroc", reference=0.9, patients=300, prevalence=0.1),
    PowerCell(metric="balanced_accuracy", reference=0.85, patients=300, prevalence=0.1),
    PowerCell(metric="balanced_accuracy", reference=0.85, patients=300, prevalence=0.3),
)
PLAN_CELLS: tuple[PlanCell, ...] = (
    *(
        PlanCell(
            metric=metric, expected=expected, margin=margin, aim="non-inferiority", prevalence=prevalence
        )
        for metric, expected, margin in (
            ("auroc", 0.9, 0.06),
            ("sensitivity", 0.85, 0.1),
            ("specificity", 0.9, 0.05),
            ("balanced_accuracy", 0.85, 0.08),
        )
        for prevalence in (0.1, 0.3)
    ),
    PlanCell(metric="auroc", expected=0.9, margin=0.06, aim="equivalence"),
    PlanCell(metric="balanced_accuracy", expected=0.85, margin=0.08, aim="equivalence", prevalence=0.1),
    PlanCell(metric="auroc", expected=0.9, margin=0.06, aim="detect", prevalence=0.1),
    PlanCell(metric="balanced_accuracy", expected=0.85, margin=0.08, aim="detect", prevalence=0.1),
    *(
        PlanCell(metric="dice", expected=0.76, margin=0.05, aim=aim, shape=shape)
        for aim in ("equivalence", "non-inferiority", "detect")
        for shape in ("skewed", "symmetric")
    ),
)


def drop_promises(
    *, replicates: int = 1000, cells: Sequence[PowerCell] | None = None, seed: int = 42
) -> list[Promise]:
    """Simulate how often the stated drop is detected, and the stated margin proved.

    Args:
        replicates: Number of studies per cell; fewer than `fairness.SMALL_RUN` simulate every fourth cell.
        cells: The cells; None: `POWER_CELLS`.
        seed: Seed of all draws.

    Returns:
        Two rows per cell; a number that no study states has no row.
    """
    rows = []
    for cell in some_of(POWER_CELLS, replicates) if cells is None else cells:
        rng = generator_for(f"promises/power/{cell}", seed)
        stated = [
            assess_claim(_difference(cell, cell.reference, rng, run), margin=_STATED)
            for run in range(max(40, replicates // 16))
        ]
        drops = [c.smallest_detectable_drop for c in stated if c.smallest_detectable_drop is not None]
        margins = [c.smallest_provable_margin for c in stated if c.smallest_provable_margin is not None]
        if drops:
            drop = float(np.median(drops))
            hits = sum(_difference(cell, cell.reference - drop, rng, run).hi < 0 for run in range(replicates))
            rows.append(
                judge_between(
                    "stated drop detected", f"{cell.setting}: {drop:.3f}",
                    nominal=POWER, low=DETECTED[0], high=DETECTED[1], hits=hits, runs=replicates,
                )
            )  # fmt: skip
        if margins:
            margin = float(np.median(margins))
            ends = [_difference(cell, cell.reference, rng, run) for run in range(replicates)]
            hits = sum(d.lo > -margin and d.hi < margin for d in ends)
            rows.append(
                judge_between(
                    "stated margin proved", f"{cell.setting}: {margin:.3f}",
                    nominal=POWER, low=PROVED[0], high=PROVED[1], hits=hits, runs=replicates,
                )
            )  # fmt: skip
    return rows


def plan_promises(
    *, replicates: int = 1000, cells: Sequence[PlanCell] | None = None, seed: int = 42
) -> list[Promise]:
    """Simulate how often studies of the planned size reach what they were planned for.

    Args:
        replicates: Number of studies per plan; fewer than `fairness.SMALL_RUN` simulate every fourth plan.
        cells: The plans; None: `PLAN_CELLS`.
        seed: Seed of all draws.

    Returns:
        One row per plan.
    """
    rows = []
    for cell in some_of(PLAN_CELLS, replicates) if cells is None else cells:
        rng = generator_for(f"promises/plan/{cell}", seed)
        plan = plan_sample(SampleDesign(
            metric=cell.metric, expected=cell.expected, margin=cell.margin, aim=cell.aim, prevalence=cell.prevalence,
            sd=_dice_sd(cell.expected, cell.shape) if cell.metric == "dice" else None, power=POWER,
        ))  # fmt: skip
        truth = cell.expected - cell.margin if cell.aim == "detect" else cell.expected
        hits = 0
        for run in range(replicates):
            here = simulated(cell.metric, truth, plan.positives or 0, plan.cases, rng, shape=cell.shape)
            d = _against_constant(cell.metric, here, cell.expected, run)
            below, inside = d.hi < 0, d.lo > -cell.margin
            passed = {"detect": below, "non-inferiority": inside}.get(cell.aim, inside and d.hi < cell.margin)
            hits += bool(passed)
        share = f"{100 * cell.prevalence:g} % positive" if cell.metric != "dice" else cell.shape
        low, high = PLANNED_DICE if cell.metric == "dice" else PLANNED
        rows.append(
            judge_between(
                f"plan for {cell.aim} reached",
                f"{cell.metric} {cell.expected:g}, {share}, margin {cell.margin:g}: {plan.cases} cases",
                nominal=POWER, low=low, high=high, hits=hits, runs=replicates,
            )
        )  # fmt: skip
    return rows


def _difference(cell: PowerCell, truth: float, rng: np.random.Generator, run: int) -> Difference:
    positives = round(cell.patients * cell.prevalence)
    here = simulated(cell.metric, truth, positives, cell.patients, rng)
    if cell.against == "constant":
        return _against_constant(cell.metric, here, cell.reference, run)
    other = simulated(cell.metric, cell.reference, positives, cell.patients, rng)
    return difference_independent(
        *here, *other, cell.metric, resampling=Resampling(key="equivalence", seed=run, resamples=_RESAMPLES)
    )


def _against_constant(
    metric: str, here: tuple[Evaluator, Clusters], reference: float, run: int
) -> Difference:
    claim = ClaimedValue(value=reference)
    return difference_from_claim(
        *here, metric, claim, resampling=Resampling(key="equivalence", seed=run, resamples=_RESAMPLES)
    )


def simulated(
    metric: str, truth: float, positives: int, cases: int, rng: np.random.Generator, *, shape: str = "skewed"
) -> tuple[Evaluator, Clusters]:
    """Simulate one hospital with one case per patient, in the evaluator that a user's table would get.

    Args:
        metric: 'dice', 'auroc', or a metric of decisions such as 'sensitivity'.
        truth: The true value of the metric.
        positives: Number of positive cases; not used for 'dice'.
        cases: Number of cases.
        rng: The generator of all draws.
        shape: Distribution of Dice values: 'skewed' or 'symmetric'.

    Returns:
        The evaluator, and the patients.
    """
    cluster = np.arange(cases, dtype=np.int32)
    label = (cluster < positives).astype(np.int8)
    partition = Clusters(
        cluster_of_case=cluster,
        cluster_ids=tuple(map(str, range(cases))),
        site_of_cluster=np.zeros(cases, dtype=np.int32),
        site_names=("all",),
        positive_cluster=None if metric == "dice" else label > 0,
    )
    if metric == "dice":
        values = _dice(truth, cases, rng, shape)
        means = ColumnMeans({"dice": values}, cluster, n_clusters=cases)
        means.specs = tuple(replace(spec, lower_bound=0.0, upper_bound=1.0) for spec in means.specs)
        return means, partition
    if metric == "auroc":
        distance = math.sqrt(2.0) * float(stats.norm.ppf(truth))
        probability = special.expit(rng.normal(size=cases) + distance * label)
    else:
        right = rng.random(cases) < truth
        probability = np.where(right == (label > 0), 0.9, 0.1)
    return (
        BinaryEvaluator(
            label=label, probability=probability, cluster_of_case=cluster, n_clusters=cases, metrics=(metric,)
        ),
        partition,
    )


def _dice(mean: float, cases: int, rng: np.random.Generator, shape: str) -> npt.NDArray[np.float64]:
    if shape == "symmetric":
        return rng.normal(mean, 0.2, cases)
    values, _ = simulate_dice(cases, 1, rng, centre=_dice_centre(mean), failure_rate=_FAILURES)
    return values


@lru_cache(maxsize=64)
def _dice_centre(mean: float) -> float:
    return float(optimize.brentq(lambda centre: _dice_moment(centre, 1) - mean, -10, 10))


def _dice_moment(centre: float, power: int) -> float:
    x, w = np.polynomial.hermite_e.hermegauss(80)
    whole = float((w * special.expit(centre + x) ** power).sum() / math.sqrt(2 * math.pi))
    return (1 - _FAILURES) * whole


def _dice_sd(mean: float, shape: str) -> float:
    if shape == "symmetric":
        return 0.2
    return math.sqrt(_dice_moment(_dice_centre(mean), 2) - mean**2)
