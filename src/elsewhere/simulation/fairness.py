"""What null band, pairwise intervals and tiers promise, by simulation (ST-08, ST-08a, ST-09, ST-13).

A level holds when the 99 % lower bound of the simulated rate of mistakes is at most alpha; a coverage holds
when its 99 % interval reaches the nominal value. `fairness_promises()` simulates the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.statistics.bootstrap_weights import WeightStream, generator_for
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.fairness import (
    group_values,
    null_band,
    permuted_gaps,
    resampled_groups,
    variable_report,
)
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.gap_interval import pairwise_of_rates
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import SizeStrata

AnyCell = TypeVar("AnyCell")
ALPHA = 0.05
SHARES = np.array([0.15, 0.30, 0.27, 0.18, 0.10])
"""Group sizes as ages fall: a large middle, two small ends."""
PERMUTATIONS, RESAMPLES = 199, 400
_ODDS_RESAMPLES = 128
PAIRWISE_KEPT = (0.93, 1.0)
"""Promised band of simultaneous intervals of rates; with few cases and rates near 1 they cover more."""
ODDS_CELLS: tuple[tuple[tuple[int, ...], float, tuple[float, float]], ...] = tuple(
    (sizes, prevalence, rates)
    for sizes in (
        (10, 10, 10, 10),
        (20, 20, 20, 20),
        (50, 50, 50, 50),
        (100, 100, 100, 100),
        (10, 20, 50, 100),
        (10, 30, 100, 200, 400),
    )
    for prevalence in (0.1, 0.3)
    for rates in ((0.7, 0.7), (0.85, 0.9), *(((0.97, 0.9),) if len(sizes) == 5 else ()))
)
"""Cases of each group, their share of positives, and the (equal) true sensitivity and specificity."""
SMALL_RUN = 300
"""With fewer replicates than this (a quick look at the page), only every fourth cell is simulated."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One cell of the table: how often an event happened, and whether that keeps what is promised.

    Args:
        event: What was counted.
        setting: The simulated setting, in words.
        kind: 'level': the rate is at most `nominal`; 'coverage': at least that; 'between': inside a stated
            band around it; 'power': shown, nothing is promised.
        nominal: The promised rate; None where nothing is promised.
        replicates: Number of replicates.
        rate: Share of replicates in which the event happened.
        lo99: Lower end of the 99 % interval of the rate.
        hi99: Upper end of that interval.
        holds: Whether the promise is kept; True where nothing is promised.
    """

    event: str
    setting: str
    kind: str
    nominal: float | None
    replicates: int
    rate: float
    lo99: float
    hi99: float
    holds: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name.

        Returns:
            A new dictionary.
        """
        return asdict(self)


def judge_rate(
    event: str, setting: str, *, kind: str, nominal: float | None, hits: int, runs: int
) -> Promise:
    """Judge a simulated rate with its own error (ST-13).

    A level holds when the one-sided 99 % lower bound of the rate is at most `nominal`, a coverage when the
    upper end of its two-sided 99 % interval reaches it.

    Args:
        event: What was counted.
        setting: The simulated setting, in words.
        kind: 'level', 'coverage' or 'power'.
        nominal: The promised rate; None promises nothing.
        hits: Number of replicates in which the event happened.
        runs: Number of replicates, at least 1.

    Returns:
        The row of the table.

    Example:
        >>> judge_rate("rejected", "100 patients", kind="level", nominal=0.05, hits=60, runs=1000).holds
        True
        >>> judge_rate("rejected", "100 patients", kind="level", nominal=0.05, hits=80, runs=1000).holds
        False
    """
    both = stats.binomtest(hits, runs).proportion_ci(0.99)
    floor = stats.binomtest(hits, runs, alternative="greater").proportion_ci(0.99).low
    holds = True
    if nominal is not None:
        holds = bool(floor <= nominal) if kind == "level" else bool(both.high >= nominal)
    return Promise(
        event=event,
        setting=setting,
        kind=kind,
        nominal=nominal,
        replicates=runs,
        rate=hits / runs,
        lo99=float(both.low),
        hi99=float(both.high),
        holds=holds,
    )


def some_of(cells: Sequence[AnyCell], replicates: int) -> Sequence[AnyCell]:
    """Return all cells of a grid, or every fourth one in a small run.

    Args:
        cells: The grid.
        replicates: Number of replicates; fewer than `SMALL_RUN` make a small run.

    Returns:
        The cells to simulate.

    Example:
        >>> some_of(range(10), replicates=100)
        range(0, 10, 4)
    """
    return cells if replicates >= SMALL_RUN else cells[::4]


def judge_between(
    event: str, setting: str, *, nominal: float, low: float, high: float, hits: int, runs: int
) -> Promise:
    """Judge a rate that is promised to lie in [low, high] (ST-13): its 99 % interval must reach that band.

    Args:
        event: What was counted.
        setting: The simulated setting, in words.
        nominal: The rate that the table states.
        low: Lower end of the promised band.
        high: Upper end of the promised band.
        hits: Number of replicates in which the event happened.
        runs: Number of replicates; 0 makes a row that does not hold.

    Returns:
        The row of the table.

    Example:
        >>> judge_between("next", "5 sites", nominal=0.95, low=0.93, high=1.0, hits=80, runs=100).holds
        False
    """
    if runs == 0:
        return Promise(
            event=event, setting=setting, kind="between", nominal=nominal, replicates=0, rate=math.nan,
            lo99=0.0, hi99=1.0, holds=False,
        )  # fmt: skip
    made = judge_rate(event, setting, kind="power", nominal=None, hits=hits, runs=runs)
    return replace(made, kind="between", nominal=nominal, holds=made.hi99 >= low and made.lo99 <= high)


def _partition(
    patients: int, cases: int = 1, *, sites: int = 1, positive: npt.NDArray[np.bool_] | None = None
) -> Clusters:
    clusters = np.repeat(np.arange(patients), cases).astype(np.int32)
    site = (np.arange(patients) % sites).astype(np.int32)
    names = tuple(map(str, range(patients)))
    return Clusters(clusters, names, site, tuple(map(str, range(sites))), positive)


def _p_value(
    disparity: Disparity, partition: Clusters, codes: npt.NDArray[np.int16], groups: int, run: int
) -> float:
    gap = float(disparity.gap(group_values(disparity, partition, codes, groups)))
    null = permuted_gaps(
        disparity, partition, [codes], [groups], key="promise", seed=run, permutations=PERMUTATIONS, threads=1
    )
    return null_band(gap, null[:, 0]).p


def _rng(name: str, run: int, *numbers: int) -> np.random.Generator:
    return generator_for(f"fairness promises: {name}", run, *numbers)


def fair_means_rejected(patients: int, cases: int, run: int) -> bool:
    """Test a model whose Dice does not depend on the group; cases of a patient resemble each other.

    Args:
        patients: Number of patients, in five groups.
        cases: Number of cases per patient.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether the fair model was rejected at `ALPHA`.
    """
    rng = _rng("means", run, patients, cases)
    partition = _partition(patients, cases)
    of_patient = rng.choice(SHARES.size, patients, p=SHARES).astype(np.int16)
    codes = of_patient[partition.cluster_of_case]
    dice = rng.beta(5, 2, patients)[partition.cluster_of_case] + rng.normal(0, 0.05, codes.size)
    means = ColumnMeans({"dice": dice}, partition.cluster_of_case, n_clusters=patients)
    return _p_value(Disparity.of_metrics(means, ["dice"]), partition, codes, SHARES.size, run) <= ALPHA


def fair_odds_rejected(patients: int, run: int) -> bool:
    """Test a classifier that is equal given the class, in groups whose prevalence runs from 10 to 60 %.

    Args:
        patients: Number of patients, in four groups.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether the fair classifier was rejected at `ALPHA`.
    """
    rng = _rng("odds", run, patients)
    codes = rng.choice(4, patients, p=[0.1, 0.35, 0.4, 0.15]).astype(np.int16)
    truth = rng.random(patients) < np.array([0.1, 0.2, 0.35, 0.6])[codes]
    yes = rng.random(patients) < np.where(truth, 0.8, 0.2)
    partition = _partition(patients, positive=truth)
    odds = Disparity.equalised_odds(partition.cluster_of_case, truth, yes, n_clusters=patients)
    return _p_value(odds, partition, codes, 4, run) <= ALPHA


def planted_gap_found(patients: int, gap: float, run: int) -> bool:
    """Test a model that is worse in the smallest group (a tenth); the standard deviation of a case is 0.15.

    Args:
        patients: Number of patients, one case each.
        gap: How much lower the mean Dice of that group is.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether the gap was found at `ALPHA`.
    """
    rng = _rng("planted", run, patients)
    codes = rng.choice(SHARES.size, patients, p=SHARES).astype(np.int16)
    dice = rng.normal(0.7, 0.15, patients) - gap * (codes == SHARES.size - 1)
    partition = _partition(patients)
    means = ColumnMeans({"dice": dice}, partition.cluster_of_case, n_clusters=patients)
    return _p_value(Disparity.of_metrics(means, ["dice"]), partition, codes, SHARES.size, run) <= ALPHA


def pairwise_covered(patients: int, run: int) -> bool:
    """Check that all ten pairwise differences of five unequal groups lie in their intervals at once.

    Args:
        patients: Number of patients, one case each.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether every interval contains the true difference.
    """
    rng = _rng("pairs", run, patients)
    truth = np.array([0.70, 0.75, 0.70, 0.65, 0.80])
    codes = np.repeat(np.arange(5), (SHARES * patients).round().astype(int)).astype(np.int16)
    partition = _partition(codes.size)
    dice = truth[codes] + rng.normal(0, 0.15, codes.size)
    means = ColumnMeans({"dice": dice}, partition.cluster_of_case, n_clusters=codes.size)
    names = tuple("abcde")
    coded = SizeStrata("v", names, codes, 0, "", (0.0, 0.0))
    entry = variable_report(
        Disparity.of_metrics(means, ["dice"]), partition, coded, key="promise", seed=run, resamples=RESAMPLES
    )
    return all(
        pair["lo"] is not None
        and pair["lo"] <= truth[names.index(pair["a"])] - truth[names.index(pair["b"])] <= pair["hi"]
        for pair in entry["pairwise"]
    )


def odds_pairs_covered(
    sizes: tuple[int, ...], prevalence: float, rates: tuple[float, float], run: int
) -> bool | None:
    """Check that all pairwise differences of the groups' balanced accuracies lie in their intervals at once.

    Args:
        sizes: Number of cases of each group.
        prevalence: Share of positives of every group.
        rates: Sensitivity and specificity, the same in every group.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether every interval contains 0; None where no pair has one (no two groups with both classes).
    """
    rng = generator_for(f"fairness promises: odds pairs {sizes} {prevalence} {rates}", run)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    truth = rng.random(codes.size) < prevalence
    yes = rng.random(codes.size) < np.where(truth, rates[0], 1 - rates[1])
    partition = _partition(codes.size, positive=truth)
    odds = Disparity.equalised_odds(partition.cluster_of_case, truth, yes, n_clusters=codes.size)
    values = group_values(odds, partition, codes.astype(np.int16), len(sizes))
    stream = WeightStream(partition, key="promise", seed=run, resamples=_ODDS_RESAMPLES, by_class=True)
    drawn = resampled_groups(odds, codes.astype(np.int16), len(sizes), stream, threads=1)
    counted = np.stack([odds.trials(codes == g) for g in range(len(sizes))]) if odds.trials else np.zeros(0)
    together = pairwise_of_rates(odds, values, drawn, np.array(sizes), counted)[2]
    if not together.usable.any():
        return None
    return bool(((together.lo <= 0) & (together.hi >= 0))[together.usable].all())


def odds_promises(*, replicates: int = 1000) -> list[Promise]:
    """Simulate the pairwise intervals of equalised odds in small groups (ST-08a).

    Groups are equal and unequal, with 10 and 30 % positives (`ODDS_CELLS`).

    Args:
        replicates: Number of cohorts per cell; fewer than `SMALL_RUN` simulate every fourth cell.

    Returns:
        One row per cell.
    """
    rows = []
    for sizes, prevalence, rates in some_of(ODDS_CELLS, replicates):
        held = [odds_pairs_covered(sizes, prevalence, rates, run) for run in range(replicates)]
        judged = [one for one in held if one is not None]
        setting = (
            f"groups of {', '.join(map(str, sizes))} cases, {100 * prevalence:g} % positive, "
            f"sensitivity {rates[0]:g}, specificity {rates[1]:g}"
        )
        rows.append(
            judge_between(
                "pairwise intervals of equalised odds hold at once", setting, nominal=0.95,
                low=PAIRWISE_KEPT[0], high=PAIRWISE_KEPT[1], hits=sum(judged), runs=len(judged),
            )
        )  # fmt: skip
    return rows


def _ranked(
    shift: npt.NDArray[np.float64], partition: Clusters, noise: float, rng: np.random.Generator, run: int
) -> Any:
    m, patients = shift.size, partition.n_clusters
    of_patient = rng.beta(5, 2, patients) + rng.normal(0, noise, (m, patients))
    values = of_patient[:, partition.cluster_of_case] + rng.normal(0, 0.05, (m, partition.n_cases))
    evaluators = [
        ColumnMeans({"dice": row}, partition.cluster_of_case, n_clusters=patients)
        for row in values + shift[:, None]
    ]
    names = [str(i) for i in range(m)]
    return rank_models(
        evaluators,
        partition,
        "dice",
        names=names,
        resampling=Resampling(key="promise", seed=run, resamples=RESAMPLES, threads=1),
    )


def equal_models_parted(patients: int, models: int, cases: int, run: int) -> bool:
    """Check whether any tier, or any end of a rank interval, separates equal models: the family-wise error.

    Args:
        patients: Number of patients.
        models: Number of models.
        cases: Number of cases per patient.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether any two models were separated.
    """
    rng = _rng("tiers", run, patients, models, cases)
    made = _ranked(np.zeros(models), _partition(patients, cases), 0.1, rng, run)
    return bool((made.tiers > 1).any() or (made.rank_lo > 1).any() or (made.rank_hi < models).any())


def true_ranks_missed(patients: int, run: int) -> bool:
    """Check whether a rank interval misses a true place.

    There are two good, three equal and one bad model, at three sites.

    Args:
        patients: Number of patients, one case each.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether any interval misses a place that its model shares.
    """
    shift = np.array([0.06, 0.06, 0.0, 0.0, 0.0, -0.06])
    made = _ranked(shift, _partition(patients, sites=3), 0.15, _rng("ranks", run, patients), run)
    low, high = np.array([1, 1, 3, 3, 3, 6]), np.array([2, 2, 5, 5, 5, 6])
    return bool((made.rank_lo > low).any() or (made.rank_hi < high).any())


def better_model_parted(patients: int, lead: float, run: int) -> bool:
    """Check whether the best of eight models is alone in tier 1.

    Args:
        patients: Number of patients, one case each.
        lead: How much higher the mean Dice of the best model is.
        run: Number of the replicate, which seeds it.

    Returns:
        Whether the best model is in tier 1 and no other is.
    """
    shift = np.array([lead, *([0.0] * 7)])
    made = _ranked(shift, _partition(patients), 0.15, _rng("lead", run, patients), run)
    return bool(made.tiers[0] == 1 and (made.tiers[1:] > 1).all())


@dataclass(frozen=True)
class Cell:
    """One simulated setting.

    Args:
        event: What is counted.
        setting: The setting in words.
        kind: The kind of promise, as in `Promise`.
        nominal: The promised rate; None where nothing is promised.
        once: Makes the replicate of a number, and returns whether the event happened.
    """

    event: str
    setting: str
    kind: str
    nominal: float | None
    once: Callable[[int], bool]


def cells() -> Sequence[Cell]:
    """List the grid of the table.

    Returns:
        The cells, in the order of the table.
    """
    out = []
    for patients, cases in ((60, 1), (516, 1), (150, 3)):
        where = f"{patients} patients x {cases} cases, 5 groups"
        once = partial(fair_means_rejected, patients, cases)
        out.append(Cell("fair mean Dice rejected", where, "level", ALPHA, once))
    for patients in (100, 516):
        where = f"{patients} patients, 4 groups, prevalence 10 to 60 %"
        once = partial(fair_odds_rejected, patients)
        out.append(Cell("fair equalised odds rejected", where, "level", ALPHA, once))
    for patients in (80, 516):
        where = f"{patients} patients, 10 differences"
        once = partial(pairwise_covered, patients)
        out.append(Cell("pairwise intervals hold at once", where, "coverage", 0.95, once))
    for patients, models, cases in ((30, 5, 1), (100, 10, 1), (200, 20, 1), (60, 6, 3)):
        where = f"{models} models, {patients} patients x {cases} cases"
        once = partial(equal_models_parted, patients, models, cases)
        out.append(Cell("equal models separated", where, "level", ALPHA, once))
    ranks, gap, lead = partial(true_ranks_missed, 150), partial(planted_gap_found, 516, 0.10), 0.08
    out.append(Cell("true rank missed", "6 models, 150 patients, 3 sites", "level", ALPHA, ranks))
    out.append(Cell("gap of 0.10 found", "516 patients, a tenth affected", "power", None, gap))
    parted = partial(better_model_parted, 200, lead)
    out.append(Cell("lead of 0.08 separated", "8 models, 200 patients", "power", None, parted))
    return out


def fairness_promises(*, replicates: int = 1000, only: str | None = None) -> list[Promise]:
    """Simulate the grid, or the cells of one event, and judge each cell.

    Args:
        replicates: Number of replicates per cell.
        only: The event whose cells are simulated; None: all cells.

    Returns:
        One row per cell.
    """
    rows = []
    for cell in cells():
        if only is None or cell.event == only:
            hits = sum(cell.once(run) for run in range(replicates))
            rows.append(
                judge_rate(
                    cell.event,
                    cell.setting,
                    kind=cell.kind,
                    nominal=cell.nominal,
                    hits=hits,
                    runs=replicates,
                )
            )
    return rows
