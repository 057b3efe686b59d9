"""What many and small sites do to intervals, ranks and comparisons, by simulation (ST-01a, ST-04a, ST-13).

Patients are resampled site by site. A stratum of m patients that is resampled by itself has only (m - 1)/m of
its variance, so intervals become too narrow in cohorts of many small sites, unless small sites are pooled.
The same cohorts are drawn here with 1 to 50 sites of equal and of unequal size. The sites do not differ: that
is the hard case, since any difference between pooled sites widens an interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import integrate, special, stats

from elsewhere.protocols import IntervalRules
from elsewhere.simulation.cohorts import (
    BinormalDesign,
    simulate_binormal,
    simulate_dice,
    simulate_two_models,
)
from elsewhere.simulation.coverage import (
    NOMINAL,
    PROMISE,
    binary_evaluator,
    binomial_interval,
    froc_evaluator,
)
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.estimates import Estimate, estimate_all
from elsewhere.statistics.fairness import variable_report
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import SizeStrata

if TYPE_CHECKING:
    from elsewhere.statistics.evaluator import Evaluator

ALPHA = 0.05
LAYOUTS = ((1, True), (5, True), (5, False), (20, True), (20, False), (50, True), (50, False))
"""(number of sites, of equal size): unequal ones fall off as 1, 1/2, 1/3..., at least one patient each."""
_LAYOUTS_OF_GROUPS = ((1, True), (20, True), (50, False))
POSITIVES = (0.1, 0.3, 0.5)
PATIENTS = 300
JUST_ENOUGH = (420, 20)
"""Patients and sites of a cohort whose sites are just large enough to be resampled by themselves."""
RANKED = (100, 3)
"""Patients and models of the rankings."""
RESAMPLES = 400
_AUROC = 0.85
_THRESHOLD = 0.3
_RULES = IntervalRules()
_FROC_TRUTH_VOLUMES = 200_000
_DRAWN_FROM = "promises/sites"


@dataclass(frozen=True, kw_only=True)
class SiteJob:
    """One cell: cohorts of one size, spread over sites.

    Args:
        kind: 'coverage' (of intervals) or 'level' (of equal models that are separated).
        what: What is simulated: 'classification', 'segmentation', 'detection', 'fairness', 'ranking' or
            'comparison'.
        patients: Number of patients, one case each.
        sites: Number of sites.
        equal: Whether the sites have equal sizes.
        positives: Share of positive patients.
        replicates: Number of simulated cohorts.
        resamples: Number of resamples of each interval.
    """

    kind: str
    what: str
    patients: int
    sites: int
    equal: bool
    positives: float
    replicates: int
    resamples: int = RESAMPLES

    @property
    def cost(self) -> float:
        """Relative cost of the cell, by which cells are ordered."""
        return (
            self.replicates
            * self.patients
            * {"detection": 1.5, "ranking": 20.0, "fairness": 10.0, "comparison": 5.0}.get(self.what, 1.0)
        )


@dataclass(frozen=True, kw_only=True)
class SiteRow:
    """How often one metric's interval contained the truth (coverage), or equal models were separated (level).

    Args:
        job: The cell.
        metric: Name of the metric.
        hits: Number of cohorts in which that happened.
        runs: Number of cohorts.
        warned: Share of cohorts with a warning, such as too few positives for the promise.
    """

    job: SiteJob
    metric: str
    hits: int
    runs: int
    warned: float = 0.0

    @property
    def rate(self) -> float:
        """Share of the cohorts in which that happened; NaN without cohorts."""
        return self.hits / self.runs if self.runs else math.nan

    @property
    def in_domain(self) -> bool:
        """Whether the program gave no warning in most of the cohorts."""
        return self.warned <= 0.5

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, judged with the error of the simulated rate (ST-13)."""
        lo, hi = binomial_interval(self.hits, self.runs)
        if self.job.kind == "coverage":
            return PROMISE[0] <= self.rate <= PROMISE[1] or lo <= NOMINAL <= hi
        return binomial_interval(self.hits, self.runs, level=0.98)[0] <= ALPHA


def site_of_patient(
    patients: int, sites: int, *, equal: bool, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Deal patients to sites in random order, so that no site has a class of its own.

    Args:
        patients: Number of patients, at least as many as sites.
        sites: Number of sites.
        equal: Whether sites have equal sizes; else their sizes fall off as 1, 1/2, 1/3..., with at least one
            patient each.
        rng: The generator of all draws.

    Returns:
        The site of each patient, from 0.

    Example:
        >>> site = site_of_patient(10, 3, equal=False, rng=np.random.default_rng(0))
        >>> np.bincount(site).tolist()
        [5, 3, 2]
    """
    if equal:
        site = np.arange(patients) % sites
    else:
        share = 1.0 / np.arange(1, sites + 1)
        ends = np.cumsum(share / share.sum()) * (patients - sites)
        more = np.searchsorted(ends, np.arange(patients - sites) + 0.5)
        site = np.concatenate([np.arange(sites), np.minimum(more, sites - 1)])
    return rng.permutation(site).astype(np.int32)


def _partition(job: SiteJob, run: int, positive: npt.NDArray[np.bool_] | None = None) -> Clusters:
    """Deal the patients to sites with a generator of their own: the cohort is the same for all layouts."""
    n = job.patients
    rng = generator_for(f"{_DRAWN_FROM}/{job.sites}/{job.equal}", run)
    return Clusters(
        cluster_of_case=np.arange(n, dtype=np.int32),
        cluster_ids=tuple(map(str, range(n))),
        site_of_cluster=site_of_patient(n, job.sites, equal=job.equal, rng=rng),
        site_names=tuple(map(str, range(job.sites))),
        positive_cluster=positive,
    )


def _design(job: SiteJob) -> BinormalDesign:
    return BinormalDesign(patients=job.patients, prevalence=job.positives, auroc=_AUROC)


def balanced_accuracy_of(design: BinormalDesign, threshold: float) -> float:
    """Compute the population's balanced accuracy of a binormal design.

    Args:
        design: The design: separation, prevalence and slope.
        threshold: Probability at which a case counts as positive.

    Returns:
        The balanced accuracy.

    Example:
        >>> round(balanced_accuracy_of(BinormalDesign(patients=1, prevalence=0.5, auroc=0.8), 0.5), 3)
        0.724
    """
    d, p = design.separation, design.prevalence
    cut = (special.logit(threshold) / design.slope + d * d / 2.0 - math.log(p / (1.0 - p))) / d
    return float(stats.norm.cdf(d - cut) + stats.norm.cdf(cut)) / 2.0


@lru_cache(maxsize=8)
def _dice_truth() -> float:
    """Compute the mean of the simulated Dice: logit-normal around 1.6, and 4 % failures at 0."""
    mean = integrate.quad(lambda z: special.expit(1.6 + z) * stats.norm.pdf(z), -9, 9)[0]
    return 0.96 * float(mean)


@lru_cache(maxsize=8)
def _froc_truth(positives: float) -> dict[str, float]:
    rng = np.random.default_rng(2)
    return froc_evaluator(_FROC_TRUTH_VOLUMES, 1, rng, positive_share=positives).values()


def _cohort(job: SiteJob, run: int, rng: np.random.Generator) -> tuple[Evaluator, Clusters, dict[str, float]]:
    """Simulate one cohort: its evaluator, its patients and the population's values of its metrics."""
    if job.what == "segmentation":
        dice, cluster = simulate_dice(job.patients, 1, rng)
        means = ColumnMeans({"dice": dice}, cluster, n_clusters=job.patients)
        return means, _partition(job, run), {"dice": _dice_truth()}
    if job.what == "detection":
        boxes = froc_evaluator(job.patients, 1, rng, positive_share=job.positives)
        name = boxes.specs[0].name
        partition = _partition(job, run, boxes.lesions_of_case > 0)
        return boxes, partition, {name: _froc_truth(job.positives)[name]}
    design = _design(job)
    cases = simulate_binormal(design, rng)
    truth = {"auroc": _AUROC, "balanced_accuracy": balanced_accuracy_of(design, _THRESHOLD)}
    return binary_evaluator(cases, tuple(truth)), _partition(job, run, cases.label > 0), truth


def _covered(job: SiteJob, run: int, rng: np.random.Generator) -> dict[str, tuple[bool, bool]]:
    """Return {metric: (the interval contains the truth, there was a warning)} of one cohort."""
    evaluator, partition, truth = _cohort(job, run, rng)
    made = estimate_all(
        evaluator,
        partition,
        rules=_RULES,
        resampling=Resampling(key=_DRAWN_FROM, seed=run, resamples=job.resamples, threads=1),
        metrics=tuple(truth),
    )
    return {name: _judged(made[name], value) for name, value in truth.items()}


def _judged(estimate: Estimate, truth: float) -> tuple[bool, bool]:
    held = estimate.lo is not None and estimate.hi is not None and estimate.lo <= truth <= estimate.hi
    return held, bool(estimate.warnings)


def _separated(job: SiteJob, run: int, rng: np.random.Generator) -> dict[str, tuple[bool, bool]]:
    """Return {metric: (any of the equal models was separated, False)}, by Dice and by balanced accuracy."""
    partition = _partition(job, run, rng.random(job.patients) < job.positives)
    label = np.asarray(partition.positive_cluster, dtype=np.int8)
    shared = rng.normal(size=job.patients)
    scores = [shared + rng.normal(size=job.patients) for _ in range(RANKED[1])]
    by_metric: dict[str, list[Evaluator]] = {"dice": [], "balanced_accuracy": []}
    for score in scores:
        dice = special.expit(1.6 + score / math.sqrt(2.0))
        means = ColumnMeans({"dice": dice}, partition.cluster_of_case, n_clusters=job.patients)
        by_metric["dice"].append(means)
        said = special.expit(score + 1.5 * label - 0.75)
        by_metric["balanced_accuracy"].append(_classifier(label, said, partition))
    found = {}
    for metric, evaluators in by_metric.items():
        made = rank_models(
            evaluators,
            partition,
            metric,
            names=[str(i) for i in range(len(evaluators))],
            resampling=Resampling(key=_DRAWN_FROM, seed=run, resamples=job.resamples, threads=1),
        )
        apart = (made.tiers > 1).any() or (made.rank_lo > 1).any() or (made.rank_hi < len(evaluators)).any()
        found[metric] = (bool(apart), False)
    return found


def _classifier(label: npt.ArrayLike, probability: npt.ArrayLike, partition: Clusters) -> Evaluator:
    from elsewhere.scoring.binary import BinaryEvaluator

    return BinaryEvaluator(
        label=label,
        probability=probability,
        cluster_of_case=partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        metrics=("balanced_accuracy",),
    )


def _told_apart(job: SiteJob, run: int, rng: np.random.Generator) -> dict[str, tuple[bool, bool]]:
    """Return {metric: (0 lies outside the interval of the difference of two equal models, False)}."""
    a, b = simulate_two_models(_design(job), rng)
    names = ("auroc", "balanced_accuracy", "brier")
    made = compare_pair(
        binary_evaluator(a, names),
        binary_evaluator(b, names),
        _partition(job, run, a.label > 0),
        rules=_RULES,
        resampling=Resampling(key=_DRAWN_FROM, seed=run, resamples=job.resamples, threads=1),
        permutations=0,
    )
    return {
        name: (row.lo is not None and row.hi is not None and not row.lo <= 0.0 <= row.hi, False)
        for name, row in made.items()
    }


def _gaps_covered(job: SiteJob, run: int, rng: np.random.Generator) -> dict[str, tuple[bool, bool]]:
    """Check that all pairwise differences of four groups' Dice lie in their intervals at once (ST-08)."""
    truth = np.array([0.70, 0.75, 0.65, 0.70])
    codes = rng.choice(truth.size, job.patients, p=[0.4, 0.3, 0.2, 0.1]).astype(np.int16)
    partition = _partition(job, run)
    dice = truth[codes] + rng.normal(0, 0.15, job.patients)
    means = ColumnMeans({"dice": dice}, partition.cluster_of_case, n_clusters=job.patients)
    names = tuple("abcd")
    entry = variable_report(
        Disparity.of_metrics(means, ["dice"]),
        partition,
        SizeStrata("group", names, codes, 0, "", (0.0, 0.0)),
        key=_DRAWN_FROM,
        seed=run,
        resamples=job.resamples,
    )
    held = all(
        pair["lo"] is not None
        and pair["lo"] <= truth[names.index(pair["a"])] - truth[names.index(pair["b"])] <= pair["hi"]
        for pair in entry["pairwise"]
    )
    return {"Dice of 4 groups, 6 differences": (held, False)}


_ONCE: dict[str, Callable[[SiteJob, int, np.random.Generator], dict[str, tuple[bool, bool]]]] = {
    "fairness": _gaps_covered,
    "ranking": _separated,
    "comparison": _told_apart,
}


def run_site_job(job: SiteJob) -> list[SiteRow]:
    """Simulate all replicates of one cell.

    Each replicate has a generator of its own, made from the cohort's size and its number. It does not depend
    on the sites: the layouts of a column have the same patients, and differ only by what the sites do to
    them.

    Args:
        job: The cell.

    Returns:
        One row per metric.
    """
    once = _ONCE.get(job.what, _covered)
    cell = f"{_DRAWN_FROM}/{job.kind}/{job.what}/{job.patients}/{job.positives:g}"
    counts: dict[str, list[int]] = {}
    for run in range(job.replicates):
        for metric, (hit, warned) in once(job, run, generator_for(cell, run)).items():
            count = counts.setdefault(metric, [0, 0, 0])
            count[0] += hit
            count[1] += warned
            count[2] += 1
    return [
        SiteRow(job=job, metric=metric, hits=hits, runs=runs, warned=warned / runs)
        for metric, (hits, warned, runs) in counts.items()
    ]


def coverage_jobs(*, replicates: int = 1000, quick: bool = False) -> list[SiteJob]:
    """List the cells of coverage by sites.

    Args:
        replicates: Number of cohorts per cell.
        quick: Whether to list only one layout of small sites.

    Returns:
        The cells.
    """
    layouts = [(PATIENTS, sites, equal) for sites, equal in (LAYOUTS[3:4] if quick else LAYOUTS)]
    layouts += [] if quick else [(*JUST_ENOUGH, True)]
    out = []
    for patients, sites, equal in layouts:
        for what in ("classification", "detection", "segmentation"):
            for positives in (0.3,) if what == "segmentation" or quick else POSITIVES:
                out.append(
                    SiteJob(
                        kind="coverage",
                        what=what,
                        patients=patients,
                        sites=sites,
                        equal=equal,
                        positives=positives,
                        replicates=replicates,
                    )
                )
    if not quick:
        out += [
            SiteJob(
                kind="coverage",
                what="fairness",
                patients=PATIENTS,
                sites=sites,
                equal=equal,
                positives=0.3,
                replicates=replicates,
                resamples=RESAMPLES // 2,
            )
            for sites, equal in _LAYOUTS_OF_GROUPS
        ]
    return out


def level_jobs(*, replicates: int = 1000) -> list[SiteJob]:
    """List the cells in which equal models are ranked and two equal models are compared, by sites.

    Args:
        replicates: Number of cohorts per cell.

    Returns:
        The cells.
    """
    return [
        SiteJob(
            kind="level",
            what=what,
            patients=patients,
            sites=sites,
            equal=equal,
            positives=0.3,
            replicates=replicates,
        )
        for what, layouts in (
            ("ranking", [(RANKED[0], *layout) for layout in LAYOUTS]),
            ("comparison", [(PATIENTS, *layout) for layout in LAYOUTS]),
        )
        for patients, sites, equal in (*layouts, (*JUST_ENOUGH, True))
    ]


def site_rows(
    todo: Iterable[SiteJob],
    *,
    processes: int | None = None,
    progress: Callable[[SiteJob], None] | None = None,
) -> list[SiteRow]:
    """Simulate cells, the costliest first, in several processes.

    Args:
        todo: The cells.
        processes: Number of processes; None: the cores that this process may use.
        progress: Called with each cell that is done; None for silence.

    Returns:
        The rows of all cells, in the order in which the cells were started.
    """
    ordered: Sequence[SiteJob] = sorted(todo, key=lambda job: -job.cost)
    for positives in sorted({job.positives for job in ordered if job.what == "detection"}):
        _froc_truth(positives)
    workers = processes or len(os.sched_getaffinity(0))
    rows: list[SiteRow] = []
    if workers == 1:
        for job in ordered:
            rows += run_site_job(job)
            if progress:
                progress(job)
        return rows
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for job, found in zip(ordered, pool.map(run_site_job, ordered), strict=True):
            rows += found
            if progress:
                progress(job)
    return rows
