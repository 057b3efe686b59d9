"""The coverage promise, checked by simulation (ST-04, ST-13).

`elsewhere coverage --out docs/reference` simulates the cohorts of `grid.py`, whose truth is known,
counts how often each default interval contains it, and writes the tables, failing cells included. It uses
the evaluators of the tasks, because the promise is about what a user gets.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.protocols import IntervalRules
from elsewhere.simulation.cohorts import (
    EQUAL,
    BinormalDesign,
    SimulatedCases,
    simulate_binormal,
    simulate_boxes,
    simulate_dice,
    simulate_skewed,
    skewed_mean,
)
from elsewhere.simulation.grid import (
    CLOSED_FORM_METRICS,
    DICE_CENTRE,
    METRICS_OF_FAMILY,
    RESAMPLED_METRICS,
    Job,
    jobs,
)
from elsewhere.simulation.marks import MarksEvaluator, figure_values, simulate_marks
from elsewhere.simulation.simulated_mean import SimulatedMean
from elsewhere.statistics import estimates
from elsewhere.statistics.bootstrap import bca_interval, jackknife_t_interval, percentile_interval
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.domain import DOMAIN, Domain, Measures, domain_name
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.resampling import Resampling

if TYPE_CHECKING:
    from elsewhere.scoring.binary import BinaryEvaluator
    from elsewhere.scoring.detection.froc import FrocEvaluator
    from elsewhere.statistics.evaluator import Evaluator

__all__ = [
    "DOMAIN",
    "CoverageRow",
    "Domain",
    "binomial_interval",
    "coverage_rows",
    "coverage_tables",
    "jobs",
]

NOMINAL = 0.95
PROMISE = (0.93, 0.97)
_TRUTH_CASES = 1_000_000
_RULES = IntervalRules()


def binomial_interval(successes: int, trials: int, *, level: float = 0.99) -> tuple[float, float]:
    """Compute the Clopper-Pearson interval of a rate: the error of a simulated rate (ST-13).

    Args:
        successes: Number of successes.
        trials: Number of trials, at least 1.
        level: Level of the two-sided interval.

    Returns:
        Lower and upper end.

    Example:
        >>> lo, hi = binomial_interval(950, 1000)
        >>> round(lo, 3), round(hi, 3)
        (0.929, 0.966)
    """
    tail = (1.0 - level) / 2.0
    lo = float(stats.beta.ppf(tail, successes, trials - successes + 1)) if successes else 0.0
    hi = float(stats.beta.ppf(1.0 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    return lo, hi


@dataclass(frozen=True, kw_only=True)
class CoverageRow:
    """How often the interval of one metric by one method covered the truth in one cell.

    Args:
        metric: Name of the metric.
        method: Name of the interval method.
        default: Whether the method is the metric's default.
        patients: Number of patients of each cohort.
        cases_per_patient: Number of cases per patient; see `counts`.
        prevalence: Share of positive cases.
        truth: The value in the population.
        auroc: The AUROC, or wAFROC, in the population; None for families without labels.
        replicates: Number of cohorts with an interval.
        covered: How many of these intervals contain the truth.
        without: Number of further cohorts without an interval.
        below: How many intervals lie wholly below the truth.
        above: How many intervals lie wholly above the truth.
        width: Mean width of the intervals.
        domain: Name of the domain in which coverage is promised; None for no domain.
        measures: Means over the cohorts of the numbers that decide whether the cell lies in the domain.
        family: The family of the cell (`grid.Job`).
        counts: How the cases are spread over the patients.
        setting: How a skewed mean's values are distributed; empty for others.
        without_width: Number of intervals of zero width, which must not occur.
    """

    metric: str
    method: str
    default: bool
    patients: int
    cases_per_patient: int
    prevalence: float
    truth: float
    auroc: float | None
    replicates: int
    covered: int
    without: int
    below: int
    above: int
    width: float
    domain: str | None
    measures: Measures
    family: str = ""
    counts: str = EQUAL
    setting: str = ""
    without_width: int = 0

    @property
    def coverage(self) -> float:
        """Share of the intervals that contain the truth; NaN without intervals."""
        return self.covered / self.replicates if self.replicates else math.nan

    @property
    def in_domain(self) -> bool:
        """Whether coverage is promised for cohorts like these."""
        found = DOMAIN.get(self.domain) if self.domain else None
        return found is not None and not found.complaints(self.measures)

    @property
    def meets_nominal(self) -> bool:
        """Whether the 99 % interval of the simulated coverage contains the nominal value (ST-13)."""
        lo, hi = binomial_interval(self.covered, self.replicates)
        return lo <= NOMINAL <= hi

    @property
    def keeps_promise(self) -> bool:
        """Whether the coverage is 93 to 97 %, or differs from the nominal by the simulation's error at most.

        Bounds of perfect samples hold for any distribution: they may cover more.
        """
        most = 1.0 if self.family == "perfect" else PROMISE[1]
        return PROMISE[0] <= self.coverage <= most or self.meets_nominal


def _partition(cluster: npt.NDArray[np.int32], label: npt.ArrayLike | None) -> Clusters:
    n = int(cluster.max()) + 1
    positive = None
    if label is not None:
        positive = np.bincount(cluster, weights=np.asarray(label, dtype=float), minlength=n) > 0
    return Clusters(cluster, tuple(str(i) for i in range(n)), np.zeros(n, dtype=np.int32), ("all",), positive)


def binary_evaluator(
    cases: SimulatedCases, metrics: Sequence[str], *, threshold: float = 0.3
) -> BinaryEvaluator:
    """Make the evaluator that a user's probabilities would get.

    Args:
        cases: The simulated cases.
        metrics: Names of the metrics.
        threshold: Probability at which a case counts as positive.

    Returns:
        The evaluator.
    """
    from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules

    return BinaryEvaluator(
        label=cases.label,
        probability=cases.probability,
        cluster_of_case=cases.cluster,
        n_clusters=int(cases.cluster.max()) + 1,
        metrics=tuple(metrics),
        rules=ProbabilityRules(threshold=threshold),
    )


def froc_evaluator(
    patients: int, volumes_per_patient: int, rng: np.random.Generator, *, positive_share: float = 0.3
) -> FrocEvaluator:
    """Simulate boxes and put them into the evaluator of the detection task.

    Args:
        patients: Number of patients.
        volumes_per_patient: Number of volumes of each patient.
        rng: The generator of all draws.
        positive_share: Share of volumes with a lesion.

    Returns:
        The evaluator.
    """
    from elsewhere.protocols import DetectionRules
    from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents

    boxes = simulate_boxes(patients, volumes_per_patient, rng, positive_share=positive_share)
    events = FrocEvents(
        case=boxes.box_case,
        cluster=boxes.cluster[boxes.box_case].astype(np.int64),
        lesion=boxes.box_lesion,
        score=boxes.box_score,
    )
    return FrocEvaluator(
        rules=DetectionRules(),
        cluster_of_case=boxes.cluster,
        n_clusters=patients,
        lesions_of_case=boxes.lesions_of_case,
        events=events,
    )


@lru_cache(maxsize=256)
def _binary_truth(prevalence: float, auroc: float, slope: float, threshold: float = 0.3) -> dict[str, float]:
    """Estimate the metrics' population values from a million independent cases."""
    design = BinormalDesign(patients=_TRUTH_CASES, prevalence=prevalence, auroc=auroc, slope=slope)
    cases = simulate_binormal(design, np.random.default_rng(20_240_601))
    names = tuple(dict.fromkeys((*CLOSED_FORM_METRICS, *RESAMPLED_METRICS)))
    return {**binary_evaluator(cases, names, threshold=threshold).values(), "auroc": auroc}


@lru_cache(maxsize=4)
def _dice_truth(centre: float = DICE_CENTRE) -> float:
    cases = simulate_dice(_TRUTH_CASES, 1, np.random.default_rng(1), centre=centre)
    return float(cases[0].mean())


@lru_cache(maxsize=4)
def _froc_truth() -> dict[str, float]:
    return froc_evaluator(300_000, 1, np.random.default_rng(2)).values()


class _Tally:
    """Counts over the replicates of one cell, and the sums of what the estimates rested on."""

    def __init__(self, domain: str | None) -> None:
        self.domain = domain
        self.covered = self.without = self.below = self.above = self.n = self.without_width = 0
        self.width = 0.0
        self._measures: list[Measures] = []

    def add(self, ends: tuple[float | None, float | None] | None, truth: float, measures: Measures) -> None:
        self._measures.append(measures)
        lo, hi = ends if ends is not None else (None, None)
        if lo is None or hi is None or math.isnan(lo) or math.isnan(hi):
            self.without += 1
            return
        self.n += 1
        self.width += hi - lo
        self.without_width += not hi > lo
        self.below += hi < truth
        self.above += lo > truth
        self.covered += lo <= truth <= hi

    def measures(self) -> Measures:
        def mean(name: str) -> float | None:
            known = [getattr(m, name) for m in self._measures if getattr(m, name) is not None]
            return float(np.mean(known)) if known else None

        return Measures(**{f.name: mean(f.name) for f in fields(Measures)})  # type: ignore[arg-type]


def _replicate(
    evaluator: Evaluator,
    partition: Clusters,
    truth: dict[str, float],
    tallies: dict[tuple[str, str, bool], _Tally],
    *,
    resamples: int,
    seed: int,
    alternatives: bool,
) -> None:
    """Make the default interval of every metric, and the alternatives from the same resamples."""
    run = estimates.IntervalRun(
        evaluator,
        partition,
        rules=_RULES,
        resampling=Resampling(key="coverage", seed=seed, resamples=resamples, threads=1),
        level=NOMINAL,
    )
    plan = {spec.name: run.method(spec) for spec in evaluator.specs}
    if resamples:
        estimates.draw_streams(run, evaluator.specs, plan)
    for spec in evaluator.specs:
        made = estimates.estimate_metric(run, spec, *plan[spec.name], keep_draws=False)
        if made.value is None:
            continue
        default, column = spec.interval.value, evaluator.index(spec.name)
        found: dict[str, tuple[float | None, float | None] | None] = {default: (made.lo, made.hi)}
        if alternatives:
            found = _alternatives(run, spec, made.value, column) | found
        measures = run.measures(spec, made.value)
        for name, ends in found.items():
            key = (spec.name, name, name == default)
            if key not in tallies:
                tallies[key] = _Tally(domain_name(spec))
            tallies[key].add(ends, truth[spec.name], measures)


def _alternatives(
    run: estimates.IntervalRun, spec: MetricSpec, value: float, column: int
) -> dict[str, tuple[float | None, float | None] | None]:
    """Make the intervals that are not the default, from the same resamples."""
    out: dict[str, tuple[float | None, float | None] | None] = {}
    left_out = run.left_out(run.by_class(spec))
    draws = run.draws.get(run.by_class(spec))
    if draws is not None:
        plain = percentile_interval(draws[:, column])
        bca = bca_interval(value, draws[:, column], left_out.acceleration(column))
        out["percentile"] = None if plain is None else (plain.lo, plain.hi)
        out["bca"] = None if bca is None else (bca.lo, bca.hi)
    t = jackknife_t_interval(value, left_out, column)
    out["t-clustered"] = None if t is None else (t[0], t[1])
    return out


def _truth_of(job: Job) -> dict[str, float]:
    if job.family == "froc":
        return _froc_truth()
    if job.family == "localisation":
        return figure_values(job.marks_design())
    if job.binary:
        design = job.design()
        return _binary_truth(design.prevalence, design.auroc, design.slope, job.threshold)
    if job.skewed is not None:
        return {job.skewed.metric: skewed_mean(job.skewed_design())}
    return {"dice": _dice_truth(job.dice_centre())}


def _cohort(job: Job, rng: np.random.Generator) -> tuple[Evaluator, Clusters]:
    """Simulate one cohort in the evaluator that a user's cases would get."""
    if job.family == "froc":
        boxes: Any = froc_evaluator(job.patients, job.cases_per_patient, rng)
        return boxes, _partition(boxes.cluster_of_case, boxes.lesions_of_case)
    if job.family == "localisation":
        marks = simulate_marks(job.marks_design(), rng)
        return MarksEvaluator(marks, job.patients), _partition(marks.cluster, marks.lesions_of_case)
    if job.binary:
        cases = simulate_binormal(job.design(), rng)
        evaluator = binary_evaluator(cases, METRICS_OF_FAMILY[job.family], threshold=job.threshold)
        return evaluator, _partition(cases.cluster, cases.label)
    n, k = job.patients, job.cases_per_patient
    if job.skewed is not None:
        name = job.skewed.metric
        values, cluster = simulate_skewed(job.skewed_design(), n, k, rng, counts=job.counts)
    else:
        name = "dice"
        values, cluster = simulate_dice(n, k, rng, centre=job.dice_centre(), counts=job.counts)
    return SimulatedMean(name, values, cluster, n), _partition(cluster, None)


def run_job(job: Job) -> list[CoverageRow]:
    """Simulate all replicates of one cell; the generator depends on the cell alone.

    Args:
        job: The cell.

    Returns:
        One row per metric and interval method.
    """
    rng = job.generator()
    tallies: dict[tuple[str, str, bool], _Tally] = {}
    truth = _truth_of(job)
    for r in range(job.replicates):
        evaluator, partition = _cohort(job, rng)
        _replicate(
            evaluator,
            partition,
            truth,
            tallies,
            resamples=job.resamples,
            seed=r,
            alternatives=job.alternatives,
        )
    return [
        CoverageRow(
            metric=metric,
            method=method,
            default=default,
            patients=job.patients,
            cases_per_patient=job.cases_per_patient,
            prevalence=job.prevalence,
            truth=truth[metric],
            auroc=job.auroc if job.binary or job.family == "localisation" else None,
            replicates=tally.n,
            covered=tally.covered,
            without=tally.without,
            below=tally.below,
            above=tally.above,
            width=tally.width / max(1, tally.n),
            domain=tally.domain,
            measures=tally.measures(),
            family=job.family,
            counts=job.counts,
            setting=job.setting,
            without_width=tally.without_width,
        )
        for (metric, method, default), tally in tallies.items()
    ]


def coverage_rows(
    todo: Iterable[Job], *, processes: int | None = None, progress: Callable[[Job], None] | None = None
) -> list[CoverageRow]:
    """Simulate cells, the largest first, in several processes.

    Args:
        todo: The cells.
        processes: Number of processes; None: the cores that this process may use.
        progress: Called with each cell that is done; None for silence.

    Returns:
        The rows of all cells, in the order in which the cells were started.
    """
    ordered = sorted(todo, key=lambda job: -job.patients * job.cases_per_patient * (1 + job.resamples))
    workers = processes or len(os.sched_getaffinity(0))
    rows: list[CoverageRow] = []
    if workers == 1:
        for job in ordered:
            rows += run_job(job)
            if progress:
                progress(job)
        return rows
    for job in ordered:  # the workers inherit the computed truths
        _truth_of(job)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        running = {pool.submit(run_job, job): job for job in ordered}
        if progress:
            for finished in as_completed(running):
                progress(running[finished])
        for finished in running:  # in the order of the cells, whichever finished first
            rows += finished.result()
    return rows


def fresh_jobs(todo: Iterable[Job], rows: Sequence[CoverageRow]) -> list[Job]:
    """List the cells with a metric inside the domain once more, to be simulated on fresh cohorts.

    These have other random numbers, and parameters that are moved a little.

    Args:
        todo: The cells that were simulated.
        rows: Their rows.

    Returns:
        The cells to simulate anew.
    """
    inside = {_cell_of(row) for row in rows if row.default and row.in_domain and row.replicates}
    return [
        replace(job, fresh=True, alternatives=False)
        for job in todo
        if (
            job.family,
            job.patients,
            job.cases_per_patient,
            job.prevalence,
            job.auroc,
            job.counts,
            job.setting,
        )
        in inside
    ]


def _cell_of(row: CoverageRow) -> tuple[object, ...]:
    auroc = 0.5 if row.auroc is None else row.auroc
    return (
        row.family,
        row.patients,
        row.cases_per_patient,
        row.prevalence,
        auroc,
        row.counts,
        row.setting,
    )


def coverage_tables(
    *,
    quick: bool = False,
    replicates: int | None = None,
    only: Sequence[str] | None = None,
    processes: int | None = None,
    progress: Callable[[Job], None] | None = None,
) -> str:
    """Run the grid and the levels of the paired tests, and return the page of docs/reference/coverage.md.

    The cells inside the domain are simulated twice: as the domain was drawn, and on fresh cohorts.

    Args:
        quick: Whether to run a small grid.
        replicates: Number of cohorts per cell; None: 1,000, or 60 with `quick`.
        only: The parts to run (`grid.PARTS`); None runs all of them.
        processes: Number of processes; None: the cores that this process may use.
        progress: Called with each cell that is done; None for silence.

    Returns:
        The page as markdown.
    """
    from elsewhere.simulation.coverage_page import coverage_page
    from elsewhere.simulation.paired_levels import level_rows
    from elsewhere.simulation.sites import coverage_jobs, site_rows

    todo = jobs(quick=quick, replicates=replicates, only=only)
    rows = coverage_rows(todo, processes=processes, progress=progress)
    fresh = coverage_rows(fresh_jobs(todo, rows), processes=processes, progress=progress)
    cohorts = replicates or (60 if quick else 1000)
    designs = ((30, 1),) if quick else ((30, 1), (30, 3), (100, 1), (100, 3))
    levels = [
        row
        for n, k in designs
        if only is None or "paired" in only
        for row in level_rows(n, k, replicates=cohorts)
    ]
    sites = (
        site_rows(coverage_jobs(replicates=cohorts, quick=quick), processes=processes)
        if only is None or "sites" in only
        else []
    )
    return coverage_page(
        rows,
        levels,
        resamples=max((job.resamples for job in todo), default=0),
        sites=sites,
        fresh=fresh,
        only=only,
    )
