"""The coverage promise, remade by simulation (ST-04, ST-13).

`python -m elsewhere.promises.coverage --out docs/reference/coverage.md` simulates cohorts with a known truth,
counts how often each default interval holds it, and writes the tables, failing cells included. This module
alone in `statistics` looks upward, at the evaluators of the tasks: the promise is about what a user gets.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.promises.simulation import (
    BinormalDesign,
    SimulatedCases,
    simulate_binormal,
    simulate_boxes,
    simulate_dice,
)
from elsewhere.protocols import IntervalRules
from elsewhere.statistics import estimates
from elsewhere.statistics.domain import DOMAIN, Domain, Measures, domain_name
from elsewhere.statistics.intervals import bca_interval, jackknife_t_interval, percentile_interval
from elsewhere.statistics.means import clustered_ratio, t_interval
from elsewhere.statistics.metric import IntervalMethod, MetricSpec
from elsewhere.statistics.partition import Partition

if TYPE_CHECKING:
    from elsewhere.scoring.binary import BinaryEvaluator
    from elsewhere.scoring.froc import FrocEvaluator
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
CLOSED_FORM_METRICS = ("auroc", "sensitivity", "specificity")
RESAMPLED_METRICS = (
    "auroc",
    "auprc",
    "balanced_accuracy",
    "f1",
    "ece_confidence",
    "ece_malignant",
    "ppv",
    "nll",
    "brier",
)
_TRUTH_CASES = 1_000_000
_RULES = IntervalRules()
_BINARY = frozenset({"closed", "resampled"})


def binomial_interval(successes: int, trials: int, *, level: float = 0.99) -> tuple[float, float]:
    """Clopper-Pearson: the error of a simulated rate (ST-13)."""
    tail = (1.0 - level) / 2.0
    lo = float(stats.beta.ppf(tail, successes, trials - successes + 1)) if successes else 0.0
    hi = float(stats.beta.ppf(1.0 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    return lo, hi


@dataclass(frozen=True, kw_only=True)
class CoverageRow:
    """One metric by one method in one cell. `covered` of `replicates`; `without` had no interval at all.

    The mean `measures` of the replicates say whether the cell lies in the declared domain (`domain` names it).
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

    @property
    def coverage(self) -> float:
        return self.covered / self.replicates if self.replicates else math.nan

    @property
    def in_domain(self) -> bool:
        found = DOMAIN.get(self.domain) if self.domain else None
        return found is not None and not found.complaints(self.measures)

    @property
    def meets_nominal(self) -> bool:
        """ST-13: the 99 % interval of the simulated coverage holds the nominal."""
        lo, hi = binomial_interval(self.covered, self.replicates)
        return lo <= NOMINAL <= hi

    @property
    def keeps_promise(self) -> bool:
        """93 to 97 % as simulated, or a difference from the nominal that is within the simulation's error."""
        return PROMISE[0] <= self.coverage <= PROMISE[1] or self.meets_nominal


def _partition(cluster: npt.NDArray[np.int32], label: npt.ArrayLike | None) -> Partition:
    n = int(cluster.max()) + 1
    positive = None
    if label is not None:
        positive = np.bincount(cluster, weights=np.asarray(label, dtype=float), minlength=n) > 0
    return Partition(
        cluster, tuple(str(i) for i in range(n)), np.zeros(n, dtype=np.int32), ("all",), positive
    )


def binary_evaluator(cases: SimulatedCases, metrics: Sequence[str]) -> BinaryEvaluator:
    """The evaluator that a user's probabilities would get."""
    from elsewhere.scoring.binary import BinaryEvaluator

    return BinaryEvaluator(
        label=cases.label,
        probability=cases.probability,
        cluster_of_case=cases.cluster,
        n_clusters=int(cases.cluster.max()) + 1,
        metrics=tuple(metrics),
        threshold=0.3,
    )


def froc_evaluator(
    patients: int, volumes_per_patient: int, rng: np.random.Generator, *, positive_share: float = 0.3
) -> FrocEvaluator:
    """Simulated boxes in the evaluator of the detection task."""
    from elsewhere.protocols import DetectionRules
    from elsewhere.scoring.froc import FrocEvaluator, FrocEvents

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
def _binary_truth(prevalence: float, auroc: float, slope: float) -> dict[str, float]:
    """The metrics' population values, from a million independent cases."""
    design = BinormalDesign(patients=_TRUTH_CASES, prevalence=prevalence, auroc=auroc, slope=slope)
    cases = simulate_binormal(design, np.random.default_rng(20_240_601))
    names = tuple(dict.fromkeys((*CLOSED_FORM_METRICS, *RESAMPLED_METRICS)))
    return {**binary_evaluator(cases, names).values(), "auroc": auroc}


@lru_cache(maxsize=4)
def _dice_truth() -> float:
    return float(simulate_dice(_TRUTH_CASES, 1, np.random.default_rng(1))[0].mean())


@lru_cache(maxsize=4)
def _froc_truth() -> dict[str, float]:
    return froc_evaluator(300_000, 1, np.random.default_rng(2)).values()


class _Tally:
    """Counts over the replicates of one cell, and the sums of what the estimates rested on."""

    def __init__(self, domain: str | None) -> None:
        self.domain = domain
        self.covered = self.without = self.below = self.above = self.n = 0
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
    partition: Partition,
    truth: dict[str, float],
    tallies: dict[tuple[str, str, bool], _Tally],
    *,
    resamples: int,
    seed: int,
    alternatives: bool,
) -> None:
    """The default interval of every metric, and the alternatives made from the same resamples."""
    run = estimates._Run(evaluator, partition, rules=_RULES, key="coverage", level=NOMINAL)
    plan = {spec.name: run.method(spec) for spec in evaluator.specs}
    if resamples:
        estimates._draw_streams(
            run, evaluator.specs, plan, seed=seed, resamples=resamples, threads=1, progress=None
        )
    for spec in evaluator.specs:
        made = estimates._estimate(run, spec, *plan[spec.name], keep_draws=False)
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
    run: estimates._Run, spec: MetricSpec, value: float, column: int
) -> dict[str, tuple[float | None, float | None] | None]:
    """The intervals that were not chosen as the default, from the same resamples."""
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


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell of one family: `closed` and `resampled` binary metrics, `dice`, `froc`."""

    family: str
    patients: int
    cases_per_patient: int
    prevalence: float
    auroc: float
    replicates: int
    resamples: int
    alternatives: bool = False


def run_job(job: Job) -> list[CoverageRow]:
    """All replicates of one cell; the generator depends on the cell alone."""
    seed = [job.patients, job.cases_per_patient, round(1000 * job.prevalence), round(1000 * job.auroc)]
    rng = np.random.default_rng([*seed, sum(map(ord, job.family))])
    tallies: dict[tuple[str, str, bool], _Tally] = {}
    truth: dict[str, float] = {}
    if job.family == "dice":
        truth = {"dice": _dice_truth()}
        for _ in range(job.replicates):
            dice, cluster = simulate_dice(job.patients, job.cases_per_patient, rng)
            ratio = clustered_ratio(dice, np.ones(dice.size), cluster, n_clusters=job.patients)
            ends = t_interval(ratio, level=NOMINAL) if ratio is not None else None
            measures = Measures(
                patients=job.patients,
                cases=dice.size,
                value=float(dice.mean()),
                cases_per_patient=job.cases_per_patient,
            )
            key = ("dice", IntervalMethod.CLUSTERED_T.value, True)
            tallies.setdefault(key, _Tally("mean")).add(ends, truth["dice"], measures)
    else:
        names = CLOSED_FORM_METRICS if job.family == "closed" else RESAMPLED_METRICS
        design = BinormalDesign(
            patients=job.patients,
            cases_per_patient=job.cases_per_patient,
            prevalence=job.prevalence,
            auroc=job.auroc,
        )
        truth = (
            _froc_truth() if job.family == "froc" else _binary_truth(job.prevalence, job.auroc, design.slope)
        )
        for r in range(job.replicates):
            if job.family == "froc":
                evaluator: Any = froc_evaluator(job.patients, job.cases_per_patient, rng)
                partition = _partition(evaluator.cluster_of_case, evaluator.lesions_of_case)
            else:
                cases = simulate_binormal(design, rng)
                evaluator, partition = binary_evaluator(cases, names), _partition(cases.cluster, cases.label)
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
            auroc=None if job.family in {"dice", "froc"} else job.auroc,
            replicates=tally.n,
            covered=tally.covered,
            without=tally.without,
            below=tally.below,
            above=tally.above,
            width=tally.width / max(1, tally.n),
            domain=tally.domain,
            measures=tally.measures(),
            family=job.family,
        )
        for (metric, method, default), tally in tallies.items()
    ]


def jobs(*, quick: bool = False, replicates: int | None = None) -> list[Job]:
    """The grid of ST-04: 20 to 1,000 patients, 1 to 4 cases a patient, 10 to 50 % positives, AUROC 0.6 to 0.95."""
    closed, resampled = (200, 100) if quick else (1000, 1000)
    if replicates is not None:
        closed = resampled = replicates
    b = 200 if quick else 500
    patients = (20, 100) if quick else (20, 50, 100, 300, 1000)
    out: list[Job] = []

    def add(
        family: str, n: int, k: int, prevalence: float, auroc: float, reps: int, draws: int, alt: bool
    ) -> None:
        out.append(
            Job(
                family=family,
                patients=n,
                cases_per_patient=k,
                prevalence=prevalence,
                auroc=auroc,
                replicates=reps,
                resamples=draws,
                alternatives=alt,
            )
        )

    for n in patients:
        for k in (1, 2, 4):
            for prevalence in (0.1, 0.3, 0.5):
                for auroc in (0.6, 0.75, 0.85, 0.95) if k != 2 else (0.75, 0.95):
                    add("closed", n, k, prevalence, auroc, closed, 0, False)
            add("dice", n, k, 0.5, 0.5, closed, 0, False)
        for k in (1, 4):
            for prevalence, auroc in ((0.1, 0.75), (0.1, 0.95), (0.3, 0.75), (0.3, 0.95)):
                if n * k < 4000 or prevalence == 0.3:
                    add("resampled", n, k, prevalence, auroc, resampled, b, True)
            if n * k < 4000:
                add("froc", n, k, 0.3, 0.5, resampled, b, False)
    return out


def coverage_rows(
    todo: Iterable[Job], *, processes: int | None = None, progress: Callable[[Job], None] | None = None
) -> list[CoverageRow]:
    """Run the cells, largest first, in as many processes as asked for (default: the machine's cores)."""
    ordered = sorted(todo, key=lambda job: -job.patients * job.cases_per_patient * (1 + job.resamples))
    workers = processes or len(os.sched_getaffinity(0))
    rows: list[CoverageRow] = []
    if workers == 1:
        for job in ordered:
            rows += run_job(job)
            if progress:
                progress(job)
        return rows
    for prevalence, auroc in sorted({(j.prevalence, j.auroc) for j in ordered if j.family in _BINARY}):
        _binary_truth(prevalence, auroc, BinormalDesign.slope)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for job, found in zip(ordered, pool.map(run_job, ordered), strict=True):
            rows += found
            if progress:
                progress(job)
    return rows


def coverage_tables(
    *,
    quick: bool = False,
    replicates: int | None = None,
    processes: int | None = None,
    progress: Callable[[Job], None] | None = None,
) -> str:
    """Run the grid and the levels of the paired tests, and return the page of docs/reference/coverage.md."""
    from elsewhere.promises.coverage_page import coverage_page
    from elsewhere.promises.paired_levels import level_rows
    from elsewhere.promises.sites import coverage_jobs, site_rows

    todo = jobs(quick=quick, replicates=replicates)
    rows = coverage_rows(todo, processes=processes, progress=progress)
    cohorts = replicates or (100 if quick else 1000)
    designs = ((30, 1),) if quick else ((30, 1), (30, 3), (100, 1), (100, 3))
    levels = [row for n, k in designs for row in level_rows(n, k, replicates=cohorts)]
    sites = site_rows(coverage_jobs(replicates=cohorts, quick=quick), processes=processes)
    return coverage_page(rows, levels, resamples=max(job.resamples for job in todo), sites=sites)
