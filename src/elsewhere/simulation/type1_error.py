"""The levels of the equivalence and non-inferiority tests, by simulation (ST-05, judged by ST-13).

The truth lies exactly on the margin: the site under test is worse (or better) than the reference by D. Then
every claim to be nearer ('non-inferior', EQUIVALENT) is a mistake of one end of the interval, and every claim
to be further away (BELOW, ABOVE) one of the other end; each may happen with probability alpha at most. A
level holds when the 99 % lower bound of its simulated rate is at most alpha. `docs/reference/levels.md` is
written from `equivalence_levels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special, stats

from elsewhere.simulation.cohorts import (
    EQUAL,
    HEAVY_FEW,
    SKEWED_DESIGNS,
    BinormalDesign,
    SkewedDesign,
    cases_of_patients,
    patient_noise,
    simulate_binormal,
    simulate_dice,
    simulate_skewed,
    skewed_mean,
)
from elsewhere.simulation.marks import MarksDesign, MarksEvaluator, simulate_marks
from elsewhere.simulation.simulated_mean import SimulatedMean
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.claimed import ClaimedValue
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import (
    Difference,
    difference_from_claim,
    difference_independent,
)
from elsewhere.statistics.domain import OUTSIDE
from elsewhere.statistics.equivalence import GroupSummary, welch_tost
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec
from elsewhere.statistics.prevalence import StandardisedEvaluator
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Verdict, judge

PREVALENCE = 0.3
AUROC_MARGIN = 0.04
MARGIN_OF_SKEWED = 0.25
AUROC_BETTER, AUROC_WORSE = 0.88, 0.83
SENSITIVITY_BETTER, SENSITIVITY_WORSE = 0.90, 0.82
WAFROC_BETTER, WAFROC_WORSE = 0.80, 0.75
DICE_BETTER_CENTRE, DICE_WORSE_CENTRE = 1.6, 1.3
DICE_FAILURES = 0.04
SOURCE_PREVALENCE = 0.5


@dataclass(frozen=True, kw_only=True)
class LevelCell:
    """One row of the table of levels: studies whose truth lies exactly on the margin.

    Args:
        metric: 'auroc', 'sensitivity', 'dice', 'wafroc', 'auprc_standardised', 'welch-tost', or the metric of
            `skewed`.
        against: 'hospital' (with as many patients) or 'constant' (a claimed value).
        patients: Number of patients; for 'welch-tost' the number of folds.
        cases_per_patient: Number of cases of each patient.
        method: Interval method of the difference; 'auto' is the default.
        side: 'worse' or 'better': where the truth lies relative to the reference, a margin away.
        cases_as_patients: Whether to forget which cases belong to a patient: a control that must fail where
            patients have several cases.
        counts: EQUAL or HEAVY_FEW (`cohorts`): how the cases are spread over the patients.
        positives: Number of positive patients; None draws it by the prevalence.
        auroc: The true AUROC of the site under test, with a reference that is AUROC_MARGIN better; None takes
            the default pair.
        skewed: The distribution of a skewed mean, whose margin is MARGIN_OF_SKEWED of its mean; None for
            other metrics.

    Example:
        >>> LevelCell(metric="auroc", against="constant", patients=50, positives=15, auroc=0.9).setting
        '15 of the patients positive, true AUROC 0.9'
    """

    metric: str
    against: str
    patients: int
    cases_per_patient: int = 1
    method: str = "auto"
    side: str = "worse"
    cases_as_patients: bool = False
    counts: str = EQUAL
    positives: int | None = None
    auroc: float | None = None
    skewed: SkewedDesign | None = None

    @property
    def setting(self) -> str:
        """What distinguishes this cell from the plain one, in words."""
        parts = []
        if self.positives is not None:
            parts.append(f"{self.positives} of the patients positive")
        if self.auroc is not None:
            parts.append(f"true AUROC {self.auroc:g}")
        if self.skewed is not None:
            parts.append(self.skewed.title)
        if self.counts != EQUAL:
            parts.append(self.counts)
        return ", ".join(parts)


DEFAULT_CELLS: tuple[LevelCell, ...] = (
    *(
        LevelCell(metric=metric, against=against, patients=patients, cases_per_patient=size)
        for metric in ("auroc", "sensitivity", "dice")
        for against in ("hospital", "constant")
        for patients in (50, 200)
        for size in (1, 3)
    ),
    *(
        LevelCell(metric=metric, against=against, patients=patients, side="better")
        for metric in ("auroc", "sensitivity", "dice")
        for against in ("hospital", "constant")
        for patients in (50, 200)
    ),
    *(
        LevelCell(
            metric="auroc",
            against="constant",
            patients=round(positives * of_one),
            positives=positives,
            auroc=auroc,
        )
        for of_one in (10.0, 10.0 / 3.0, 2.0)
        for positives in (15, 25, 50)
        for auroc in (0.75, 0.85, 0.9, 0.95)
    ),
    *(
        LevelCell(
            metric="auroc",
            against="constant",
            patients=6 * positives,
            cases_per_patient=3,
            positives=positives,
            auroc=auroc,
        )
        for positives in (15, 25, 50)
        for auroc in (0.75, 0.85, 0.9, 0.95)
    ),
    *(
        LevelCell(
            metric=design.metric,
            against=against,
            patients=patients,
            skewed=design,
        )
        for design in SKEWED_DESIGNS
        for against in ("hospital", "constant")
        for patients in (60, 120, 240, 480)
    ),
    *(
        LevelCell(metric=metric, against="constant", patients=patients, counts=HEAVY_FEW)
        for metric in ("auroc", "sensitivity", "dice")
        for patients in (100, 1000)
    ),
    LevelCell(metric="auroc", against="hospital", patients=200, method="studentised-bootstrap"),
    LevelCell(metric="sensitivity", against="hospital", patients=200, method="studentised-bootstrap"),
    LevelCell(metric="auprc_standardised", against="constant", patients=200),
    LevelCell(metric="auprc_standardised", against="constant", patients=500),
    LevelCell(metric="welch-tost", against="hospital", patients=5),
    *(
        LevelCell(metric="wafroc", against=against, patients=patients, cases_per_patient=size)
        for against in ("hospital", "constant")
        for patients in (100, 300)
        for size in (1, 4)
    ),
    *(
        LevelCell(metric="wafroc", against=against, patients=100, cases_per_patient=4, side="better")
        for against in ("hospital", "constant")
    ),
)


def promised(cell: LevelCell) -> bool:
    """Decide whether the level is promised at all (ST-04).

    A proportion of fewer than 100 cases against a constant is not: Wilson's ends stand on the binomial's
    lattice, and pass alpha by up to a point (exactly 0.054 and 0.058 at 50 cases in this table's designs).
    Two hospitals smooth the lattice out.

    Args:
        cell: The cell.

    Returns:
        Whether the level is promised, if the program does not warn.

    Example:
        >>> promised(LevelCell(metric="sensitivity", against="constant", patients=50))
        False
    """
    few = cell.patients * cell.cases_per_patient < 100
    return not (cell.metric == "sensitivity" and cell.against == "constant" and few)


WARNED_SHARE = 0.5
"""A cell is outside the domain if the program warns in more than this share of its studies."""


def rejection_lower_bound(rejections: int, replicates: int, *, level: float = 0.99) -> float:
    """Compute the one-sided exact (Clopper-Pearson) lower bound of a simulated rate (ST-13).

    Args:
        rejections: Number of rejections.
        replicates: Number of replicates.
        level: Level of the bound.

    Returns:
        The bound; 0 without rejections.

    Example:
        >>> round(rejection_lower_bound(60, 1000), 3)
        0.044
    """
    return (
        0.0 if rejections == 0 else float(stats.beta.ppf(1 - level, rejections, replicates - rejections + 1))
    )


def equivalence_levels(
    *,
    cells: Sequence[LevelCell] = DEFAULT_CELLS,
    replicates: int = 1000,
    resamples: int = 499,
    alpha: float = 0.05,
    seed: int = 42,
    processes: int = 1,
    progress: Callable[[LevelCell], None] | None = None,
) -> pd.DataFrame:
    """Simulate how often the verdict is wrong with the truth on the margin, and whether the levels hold.

    Args:
        cells: The cells to simulate.
        replicates: Number of studies per cell.
        resamples: Number of resamples of each interval.
        alpha: The level of each end of the interval.
        seed: Seed of all draws.
        processes: Number of processes.
        progress: Called with each cell that is done; None for silence.

    Returns:
        One row per cell. `nearer` is the rate of claiming less distance than there is (non-inferior on the
        worse side, not above the margin on the better one), `further` that of BELOW or ABOVE, `equivalent`
        that of EQUIVALENT, and `*_lower99` are their lower bounds. `not_assessed` is the share of studies
        without an interval, `warned` the share with a warning that the study lies outside the domain; a cell
        with more than WARNED_SHARE of them is not `promised`. `holds`: all lower bounds are at most `alpha`.
    """
    one = partial(_level_of, replicates=replicates, resamples=resamples, alpha=alpha, seed=seed)
    rows: dict[int, dict[str, Any]] = {}
    if processes > 1 and len(cells) > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
            running = {pool.submit(one, cell): i for i, cell in enumerate(cells)}
            for finished in as_completed(running):
                rows[running[finished]] = finished.result()
                if progress:
                    progress(cells[running[finished]])
    else:
        for i, cell in enumerate(cells):
            rows[i] = one(cell)
            if progress:
                progress(cell)
    return pd.DataFrame([rows[i] for i in range(len(cells))])


def _level_of(cell: LevelCell, *, replicates: int, resamples: int, alpha: float, seed: int) -> dict[str, Any]:
    """Simulate all studies of one cell; the generator depends on the cell and the seed alone."""
    rng = generator_for(f"levels/{cell}", seed)
    counts = {"nearer": 0, "further": 0, "equivalent": 0, "not_assessed": 0}
    margin, method, warned, higher = 0.0, "", 0, True
    for replicate in range(replicates):
        made = _replicate(cell, rng, alpha=alpha, resamples=resamples, seed=replicate)
        margin, lo, hi, method, higher = made.margin, made.lo, made.hi, made.method, made.higher_is_better
        warned += made.warned
        judged = judge(
            lo, hi, margin, higher_is_better=higher, reason="undefined" if math.isnan(lo) else None
        )
        counts["nearer"] += judged.non_inferior if cell.side == "worse" else hi < margin
        counts["further"] += judged.word in (Verdict.BELOW, Verdict.ABOVE)
        counts["equivalent"] += judged.word is Verdict.EQUIVALENT
        counts["not_assessed"] += judged.word is Verdict.NOT_ASSESSED
    bounds = {
        name: rejection_lower_bound(counts[name], replicates) for name in ("nearer", "further", "equivalent")
    }
    return {
        "metric": cell.metric,
        "against": cell.against,
        "side": cell.side,
        "patients": cell.patients,
        "cases_per_patient": cell.cases_per_patient,
        "method": method,
        "setting": cell.setting,
        "warned": warned / replicates,
        "margin": margin,
        "alpha": alpha,
        "replicates": replicates,
        **{name: count / replicates for name, count in counts.items()},
        **{f"{name}_lower99": bound for name, bound in bounds.items()},
        "promised": promised(cell) and warned <= WARNED_SHARE * replicates,
        "holds": all(bound <= alpha for bound in bounds.values()),
    }


@dataclass(frozen=True, kw_only=True)
class _Study:
    """The difference from the reference in one simulated study; `warned`: it lies outside the domain."""

    margin: float
    lo: float
    hi: float
    method: str
    higher_is_better: bool = True
    warned: bool = False


def _replicate(
    cell: LevelCell, rng: np.random.Generator, *, alpha: float, resamples: int, seed: int
) -> _Study:
    if cell.metric == "welch-tost":
        margin, sd = 0.05, 0.03
        folds = rng.normal([[0.70 - margin], [0.70]], [[sd], [2 * sd]], size=(2, cell.patients))
        r = welch_tost(
            *(GroupSummary(mean=fold.mean(), sd=fold.std(ddof=1), n=cell.patients) for fold in folds),
            low=-margin,
            high=margin,
            alpha=alpha,
        )
        return _Study(margin=margin, lo=float(r.lo or 0.0), hi=float(r.hi or 0.0), method=r.method)
    here, reference = _truths_of(cell)
    evaluator, partition = _simulate(cell, rng, good=cell.side == "better")
    resampling = Resampling(key="equivalence", seed=seed, resamples=resamples)
    if cell.against == "constant":
        claim = ClaimedValue(value=reference)
        d: Difference = difference_from_claim(
            evaluator, partition, cell.metric, claim, alpha=alpha, method=cell.method, resampling=resampling
        )
    else:
        other, other_partition = _simulate(cell, rng, good=cell.side == "worse")
        d = difference_independent(
            evaluator,
            partition,
            other,
            other_partition,
            cell.metric,
            alpha=alpha,
            method=cell.method,
            resampling=resampling,
        )
    return _Study(
        margin=abs(reference - here),
        lo=d.lo,
        hi=d.hi,
        method=d.method,
        higher_is_better=d.higher_is_better,
        warned=any(OUTSIDE in text for text in d.warnings),
    )


def _truths_of(cell: LevelCell) -> tuple[float, float]:
    """Return the truth of the site under test and the reference, a margin apart."""
    if cell.skewed is not None:
        reference = skewed_mean(cell.skewed)
        return reference * (1.0 + MARGIN_OF_SKEWED), reference
    if cell.auroc is not None:
        return cell.auroc, cell.auroc + AUROC_MARGIN
    low, high = truths(cell.metric)
    return (low, high) if cell.side == "worse" else (high, low)


@lru_cache(maxsize=8)
def truths(metric: str) -> tuple[float, float]:
    """Return the two true values whose distance is the margin.

    Args:
        metric: 'auroc', 'sensitivity', 'wafroc' or 'dice'; anything else is the standardised AUPRC.

    Returns:
        The worse and the better value.

    Example:
        >>> truths("sensitivity")
        (0.82, 0.9)
    """
    if metric == "auroc":
        return AUROC_WORSE, AUROC_BETTER
    if metric == "sensitivity":
        return SENSITIVITY_WORSE, SENSITIVITY_BETTER
    if metric == "wafroc":
        return WAFROC_WORSE, WAFROC_BETTER
    if metric == "dice":
        return _mean_dice(DICE_WORSE_CENTRE), _mean_dice(DICE_BETTER_CENTRE)
    return _true_auprc(AUROC_WORSE), _true_auprc(AUROC_BETTER)


def _mean_dice(centre: float) -> float:
    x, w = np.polynomial.hermite_e.hermegauss(80)
    mean = float((w * special.expit(centre + x)).sum() / math.sqrt(2 * math.pi))
    return (1 - DICE_FAILURES) * mean


def _true_auprc(auroc: float) -> float:
    """Integrate precision over recall of the binormal model at the source's prevalence."""
    d = math.sqrt(2) * float(stats.norm.ppf(auroc))
    recall = (np.arange(200_000) + 0.5) / 200_000
    false_alarm = stats.norm.sf(stats.norm.isf(recall) + d)
    gain = SOURCE_PREVALENCE * recall
    return float((gain / (gain + (1 - SOURCE_PREVALENCE) * false_alarm)).mean())


def _simulate(cell: LevelCell, rng: np.random.Generator, *, good: bool) -> tuple[Evaluator, Clusters]:
    label: npt.NDArray[np.int8] | None = None
    if cell.skewed is not None:
        # The site is worse by a factor that keeps the shape: the same failures, zeros and dispersion.
        values, cluster = simulate_skewed(cell.skewed, cell.patients, cell.cases_per_patient, rng)
        values = values if good else values * (1.0 + MARGIN_OF_SKEWED)
        evaluator = SimulatedMean(cell.metric, values, cluster, cell.patients)
        return evaluator, _partition(cluster, cell.patients, None)
    if cell.metric == "wafroc":
        marks = simulate_marks(
            MarksDesign(
                patients=cell.patients,
                volumes_per_patient=cell.cases_per_patient,
                prevalence=PREVALENCE,
                wafroc=truths("wafroc")[int(good)],
            ),
            rng,
        )
        positive = (marks.lesions_of_case > 0).astype(np.int8)
        marked = MarksEvaluator(marks, cell.patients, metrics=("wafroc",))
        return marked, _partition(marks.cluster, cell.patients, positive)
    if cell.metric == "dice":
        values, cluster = simulate_dice(
            cell.patients,
            cell.cases_per_patient,
            rng,
            centre=DICE_BETTER_CENTRE if good else DICE_WORSE_CENTRE,
            failure_rate=DICE_FAILURES,
            counts=cell.counts,
        )
    elif cell.metric == "sensitivity":
        sizes = cases_of_patients(cell.patients, cell.cases_per_patient, cell.counts, rng)
        noise, cluster = patient_noise(sizes, 0.5, rng)
        values = (special.ndtr(noise) < truths("sensitivity")[int(good)]).astype(float)
    else:
        design = BinormalDesign(
            patients=cell.patients,
            cases_per_patient=cell.cases_per_patient,
            prevalence=PREVALENCE if cell.positives is None else cell.positives / cell.patients,
            auroc=cell.auroc or (AUROC_BETTER if good else AUROC_WORSE),
            slope=1.0,
            counts=cell.counts,
            positive_patients=cell.positives,
        )
        cases = simulate_binormal(design, rng)
        values, label, cluster = cases.score, cases.label, cases.cluster
        if cell.metric == "auprc_standardised":
            partition = _partition(cluster, cell.patients, label)
            standard = StandardisedEvaluator(
                label, cases.probability, cluster, cell.patients, prevalence=SOURCE_PREVALENCE
            )
            return standard, partition
    patients = cell.patients
    if cell.cases_as_patients:
        cluster, patients = np.arange(values.size, dtype=np.int32), values.size
    return _Simulated(cell.metric, values, label, cluster, patients), _partition(cluster, patients, label)


def _partition(cluster: npt.NDArray[np.int32], patients: int, label: npt.NDArray[np.int8] | None) -> Clusters:
    positive = None
    if label is not None:
        positive = np.bincount(cluster, label, patients) > 0
    return Clusters(
        cluster_of_case=cluster,
        cluster_ids=tuple(str(i) for i in range(patients)),
        site_of_cluster=np.zeros(patients, dtype=np.int32),
        site_names=("all",),
        positive_cluster=positive,
    )


_INTERVAL_OF_KIND = {
    MetricKind.AUROC: IntervalMethod.DELONG_LOGIT,
    MetricKind.PROPORTION: IntervalMethod.WILSON,
    MetricKind.MEAN: IntervalMethod.CLUSTERED_T,
}


class _Simulated(Evaluator):
    """One metric with a closed form over simulated cases; the intervals under test need no more."""

    def __init__(
        self,
        metric: str,
        values: FloatArray,
        label: npt.NDArray[np.int8] | None,
        cluster: npt.NDArray[np.int32],
        n_clusters: int,
    ) -> None:
        kind = {"auroc": MetricKind.AUROC, "sensitivity": MetricKind.PROPORTION}.get(metric, MetricKind.MEAN)
        self.specs = (
            MetricSpec(
                name=metric,
                label=metric,
                higher_is_better=True,
                kind=kind,
                interval=_INTERVAL_OF_KIND[kind],
                stratify_by_class=kind is MetricKind.AUROC,
            ),
        )
        self.cluster_of_case, self.n_clusters = cluster, n_clusters
        self._values, self._label = values, label

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        if self._label is not None:
            return AurocInputs(self._label, self._values)
        return RatioInputs(self._values, np.ones(self._values.size))

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        raise NotImplementedError("the closed form serves")

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> Evaluator:
        raise NotImplementedError("the closed form serves")

    def stack(self, other: Evaluator) -> Evaluator:
        raise NotImplementedError("the closed form serves")
