"""Coverage and error rates of the difference between two domains, by patient and by fold (LN-20, ST-11, ST-13).

Tables of patch scores are drawn at three sizes, in which a few slides hold most tumour patches, and pass through the
reading and the comparison that `elsewhere generalise` uses. The truth is integrated. The interval by fold (the study's)
and the percentile bootstrap stand next to the interval by patient and promise nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

import numpy as np

from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
from elsewhere.scoring.patch_scores import DICE, FPR, PatchMetric, PatchScores, read_patch_scores
from elsewhere.simulation.fairness import ALPHA, Promise, judge_rate
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.equivalence import GroupSummary, welch_tost
from elsewhere.statistics.many_models import ManyDifferences, SideSums, compare_many
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Verdict, judge

LEVEL = 1 - 2 * ALPHA
RESAMPLES = 400
BY_PATIENT, BY_FOLD, BOOTSTRAP = "by patient", "by fold (Welch)", "percentile bootstrap by patient"
SLIDES_PER_PATIENT = 3


@dataclass(frozen=True, kw_only=True)
class DomainsCell:
    """Studies of one model at two domains.

    Args:
        world: What the tables are drawn from.
        promised: The metrics whose interval by patient promises its coverage.
        margins: The margins of the levels of BELOW, by metric; empty for coverage alone.
        better: Whether the truth is that the external domain is better, so that any BELOW is a mistake.
        name: What distinguishes the world, in words.
    """

    world: PatchWorld
    promised: tuple[str, ...] = ("dice",)
    margins: tuple[tuple[str, float], ...] = ()
    better: bool = False
    name: str = ""

    @property
    def setting(self) -> str:
        """The simulated setting, in words."""
        world = self.world
        several = f", {world.slides_per_patient} slides per patient" if world.slides_per_patient > 1 else ""
        return f"{world.internal} internal + {world.external} external slides{several}" + (
            f", {self.name}" if self.name else ""
        )


def _world(internal: int, external: int, **more: object) -> PatchWorld:
    base = PatchWorld(internal=internal, external=external, models=1, model_spread=0.0)
    return PatchWorld(**{**vars(base), **more})


SIZES = ((12, 12), (40, 20), (169, 68))
CELLS: tuple[DomainsCell, ...] = (
    *(DomainsCell(world=_world(*size, drop=0.3, fpr_ratio=1.5), name="a drop") for size in SIZES),
    *(
        DomainsCell(
            world=_world(*size, drop=0.3, fpr_ratio=1.5, slides_per_patient=SLIDES_PER_PATIENT), name="a drop"
        )
        for size in SIZES[1:]
    ),
    *(
        DomainsCell(
            world=_world(*size, drop=-0.2, fpr_ratio=0.5),
            margins=(("dice", 0.02), ("fpr", 0.001)),
            better=True,
            name="external better: half the false positives",
        )
        for size in SIZES
    ),
)


@dataclass
class _Tally:
    runs: int = 0
    hits: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, hit: bool) -> None:
        row = self.hits.setdefault(name, [0, 0])
        row[0] += hit
        row[1] += 1


def _sides(scores: PatchScores, metric: PatchMetric, external: np.ndarray) -> tuple[SideSums, SideSums]:
    total = scores.fold_average(metric)
    first, second = (
        SideSums.of_parts(
            scores.patients,
            scores.patient_of_part,
            total=total,
            count=scores.count[metric.name],
            chosen=chosen,
        )
        for chosen in (~external, external)
    )
    return first, second


def count_hits(cell: DomainsCell, replicates: int) -> dict[str, tuple[int, int]]:
    """Count how often intervals cover the truth, or how often a better domain is called BELOW.

    Args:
        cell: The setting.
        replicates: Number of studies.

    Returns:
        Hits and studies by what was counted.
    """
    rng = generator_for(f"promises/generalise/{cell.setting}", 0)
    world = cell.world
    truth = {
        "dice": world.true_dice(external=True) - world.true_dice(external=False),
        "fpr": world.true_fpr(external=True) - world.true_fpr(external=False),
    }
    tally = _Tally()
    for replicate in range(replicates):
        scores = read_patch_scores(draw_patch_scores(world, rng))
        external = (scores.parts["domain"] == "OOD").to_numpy()
        for metric in (DICE, FPR):
            first, second = _sides(scores, metric, external)
            resampling = Resampling(
                key="generalise", seed=replicate, resamples=0 if cell.better else RESAMPLES
            )
            made = compare_many(first, second, skewed=metric.skewed, resampling=resampling)
            if cell.better:
                _count_below(tally, cell, metric, made)
            else:
                folds = scores.fold_means(metric, external), scores.fold_means(metric, ~external)
                _count_covered(tally, metric, made, truth[metric.name], folds, np.log(world.fpr_ratio))
    return {name: (hits, runs) for name, (hits, runs) in tally.hits.items()}


def _count_below(tally: _Tally, cell: DomainsCell, metric: PatchMetric, made: ManyDifferences) -> None:
    lo, hi = float(made.lo[0]), float(made.hi[0])
    reason = "undefined" if np.isnan(lo) else None
    margin = dict(cell.margins)[metric.name]
    judged = judge(lo, hi, margin, higher_is_better=metric.higher_is_better, reason=reason)
    tally.add(f"{metric.name}: BELOW", judged.word is Verdict.BELOW)


def _count_covered(
    tally: _Tally,
    metric: PatchMetric,
    made: ManyDifferences,
    truth: float,
    folds: tuple[np.ndarray, np.ndarray],
    log_ratio: float,
) -> None:
    name = metric.name
    tally.add(f"{name}: {BY_PATIENT}", bool(made.lo[0] <= truth <= made.hi[0]))
    tally.add(f"{name}: {BOOTSTRAP}", bool(made.bootstrap_lo[0] <= truth <= made.bootstrap_hi[0]))
    a, b = (GroupSummary(mean=float(x[0].mean()), sd=float(x[0].std(ddof=1)), n=x.shape[1]) for x in folds)
    test = welch_tost(a, b, low=-1.0, high=1.0)
    tally.add(
        f"{name}: {BY_FOLD}", test.lo is not None and test.hi is not None and test.lo <= truth <= test.hi
    )
    if metric is FPR:
        inside = np.log(made.ratio_lo[0]) <= log_ratio <= np.log(made.ratio_hi[0])
        tally.add(f"{name} ratio: {BY_PATIENT}", bool(inside))


def domain_promises(
    *,
    replicates: int = 1000,
    cells: Sequence[DomainsCell] = CELLS,
    processes: int = 1,
    progress: Callable[[DomainsCell], None] | None = None,
) -> list[Promise]:
    """Simulate coverage and levels of the difference between two domains.

    Args:
        replicates: Number of studies per cell.
        cells: The settings.
        processes: How many processes.
        progress: Called after each cell; None for silence.

    Returns:
        One row per cell, metric and interval.

    Example:
        >>> rows = domain_promises(replicates=20, cells=CELLS[:1])
        >>> [row.event for row in rows if row.nominal is not None]
        ['90 % interval covers, dice: by patient']
    """
    count = partial(count_hits, replicates=replicates)
    rows = []
    with ProcessPoolExecutor(max(processes, 1), mp_context=get_context("forkserver")) as pool:
        found = map(count, cells) if processes < 2 else pool.map(count, cells)
        for cell, hits in zip(cells, found, strict=True):
            for name, (hit, runs) in hits.items():
                rows.append(_promise(cell, name, hit, runs))
            if progress:
                progress(cell)
    return rows


def _promise(cell: DomainsCell, name: str, hit: int, runs: int) -> Promise:
    metric, _, what = name.partition(": ")
    if cell.better:
        return judge_rate(
            f"verdict BELOW, {metric}", cell.setting, kind="level", nominal=ALPHA, hits=hit, runs=runs
        )
    kept = what == BY_PATIENT and metric in cell.promised
    nominal = LEVEL if kept else None
    event = f"{100 * LEVEL:g} % interval covers, {name}"
    return judge_rate(event, cell.setting, kind="coverage", nominal=nominal, hits=hit, runs=runs)
