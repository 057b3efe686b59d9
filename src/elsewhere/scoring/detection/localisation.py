"""wAFROC and its family, and how many lesions and volumes are marked at all, under patient weights (DBT-18).

The definitions are those of `statistics/localisation.py`; here they are evaluated for any weights of patients,
and handed to the closed form with one item per lesion and per volume. Of the boxes only the highest scores
count: of each lesion, and of the false boxes of each volume. Boxes in volumes that the cohort does not list
take no part: nothing is known about these volumes, and none of them is a case.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.statistics.accumulators import cluster_sums, weigh_sums
from elsewhere.statistics.evaluator import (
    ClosedForm,
    Evaluator,
    FloatArray,
    MannWhitneyInputs,
    RatioInputs,
)
from elsewhere.statistics.localisation import FIGURES, Figure
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

_LESION, _FALSE_NORMAL, _FALSE_POSITIVE, _HIGHEST = range(4)
_LABELS: dict[Figure, str] = {
    "wafroc": "wAFROC (lesions against volumes without a lesion)",
    "wafroc1": "wAFROC1 (lesions against all volumes)",
    "afroc": "AFROC (every lesion weighs 1)",
    "afroc1": "AFROC1 (every lesion weighs 1, against all volumes)",
    "inferred_roc": "Inferred ROC AUC (highest box per volume)",
}
NO_LESION = "no lesion among these volumes"
NO_NORMAL = "no volume without a lesion, so no lesion can be compared with one"
MAX_LLF, MAX_NLF = "max_llf", "max_nlf"


def localisation_specs() -> tuple[MetricSpec, ...]:
    """List the metrics of DBT-18, in the order of the report.

    Returns:
        The specifications.

    Example:
        >>> [spec.name for spec in localisation_specs()][:3]
        ['wafroc', 'wafroc1', 'afroc']
    """
    figures = tuple(
        MetricSpec(
            name=figure,
            label=_LABELS[figure],
            higher_is_better=True,
            kind=MetricKind.LOCALISATION,
            interval=IntervalMethod.DELONG_LOGIT,
            chance=0.5,
            rank_based=True,
            own_interval=True,
        )
        for figure in FIGURES
    )
    marked = MetricSpec(
        name=MAX_LLF,
        label="Lesions with a box at any score (maximal LLF)",
        higher_is_better=True,
        kind=MetricKind.PROPORTION,
        interval=IntervalMethod.WILSON,
        rank_based=True,
        own_interval=True,
    )
    false = MetricSpec(
        name=MAX_NLF,
        label="False positives per volume at any score (maximal NLF)",
        higher_is_better=False,
        kind=MetricKind.MEAN,
        interval=IntervalMethod.BOOTSTRAP_T,
        upper_bound=np.inf,
        worst=np.inf,
        rank_based=True,
        skewed=True,
        own_interval=True,
    )
    return (*figures, marked, false)


@dataclass(frozen=True, kw_only=True)
class _Items:
    """Lesions and volumes by rising score; `score` is -inf for what no box marks.

    Unmarked lesions of one volume are one item, with their number as `count`.
    """

    score: FloatArray
    case: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]
    count: FloatArray
    weight: FloatArray


def _items_of(events: FrocEvents, lesions_of_case: npt.NDArray[np.int64]) -> _Items:
    n_cases = lesions_of_case.size
    listed = events.case >= 0
    case, lesion, score = events.case[listed], events.lesion[listed], events.score[listed]
    hit = lesion >= 0
    false = np.full(n_cases, -np.inf)
    np.maximum.at(false, case[~hit], score[~hit])
    highest = false.copy()
    np.maximum.at(highest, case[hit], score[hit])
    _, first, number = np.unique(lesion[hit], return_index=True, return_inverse=True)
    of_lesion = np.full(first.size, -np.inf)
    np.maximum.at(of_lesion, number, score[hit])
    case_of_lesion = case[hit][first]
    unmarked = lesions_of_case - np.bincount(case_of_lesion, minlength=n_cases)
    without = np.flatnonzero(unmarked > 0)
    positive = np.flatnonzero(lesions_of_case > 0)
    lesion_case = np.concatenate([case_of_lesion, without])
    count = np.concatenate([np.ones(first.size), unmarked[without].astype(np.float64)])
    kind_of_case = np.where(lesions_of_case > 0, _FALSE_POSITIVE, _FALSE_NORMAL)
    item_score = np.concatenate([of_lesion, np.full(without.size, -np.inf), false, highest[positive]])
    order = np.argsort(item_score, kind="stable")
    kind = np.concatenate(
        [np.full(lesion_case.size, _LESION), kind_of_case, np.full(positive.size, _HIGHEST)]
    )
    more = np.ones(n_cases + positive.size)
    return _Items(
        score=item_score[order],
        case=np.concatenate([lesion_case, np.arange(n_cases), positive])[order],
        kind=kind.astype(np.uint8)[order],
        count=np.concatenate([count, more])[order],
        weight=np.concatenate([count / lesions_of_case[lesion_case], more])[order],
    )


@numba.njit(cache=True, nogil=True)
def _figure_rows(
    weights: npt.NDArray[np.uint16],
    cluster: npt.NDArray[np.int32],
    kind: npt.NDArray[np.uint8],
    tie_end: npt.NDArray[np.bool_],
    count: FloatArray,
    weight: FloatArray,
    out: FloatArray,
) -> None:
    """One pass down the items per row: wAFROC, wAFROC1, AFROC, AFROC1, inferred ROC."""
    n = cluster.size
    for r in range(weights.shape[0]):
        w = weights[r]
        lesions, positives, normals = 0.0, 0.0, 0.0
        below_normal, below_all = 0.0, 0.0
        area_w, area_w1, area, area1, area_roc = 0.0, 0.0, 0.0, 0.0, 0.0
        first = 0
        while first < n:
            last = first
            tied_normal, tied_all = 0.0, 0.0
            while True:
                if kind[last] == 1:
                    tied_normal += w[cluster[last]]
                    tied_all += w[cluster[last]]
                elif kind[last] == 2:
                    tied_all += w[cluster[last]]
                if tie_end[last]:
                    break
                last += 1
            of_normal = below_normal + 0.5 * tied_normal
            of_all = below_all + 0.5 * tied_all
            for i in range(first, last + 1):
                u = np.float64(w[cluster[i]])
                if kind[i] == 0:
                    lesions += u * count[i]
                    area += u * count[i] * of_normal
                    area1 += u * count[i] * of_all
                    area_w += u * weight[i] * of_normal
                    area_w1 += u * weight[i] * of_all
                elif kind[i] == 3:
                    positives += u
                    area_roc += u * of_normal
            below_normal += tied_normal
            below_all += tied_all
            first = last + 1
        normals = below_normal
        row = out[r]
        row[:] = np.nan
        if positives > 0.0:
            row[1] = area_w1 / positives / below_all
            row[3] = area1 / lesions / below_all
            if normals > 0.0:
                row[0] = area_w / positives / normals
                row[2] = area / lesions / normals
                row[4] = area_roc / positives / normals


@dataclass(eq=False)
class LocalisationEvaluator(Evaluator):
    """The metrics of `localisation_specs` as a function of patient weights.

    Args:
        cluster_of_case: The number of each volume's patient, from 0.
        n_clusters: How many patients there are.
        lesions_of_case: How many lesions each volume has.
        events: The predicted boxes; those of volumes that the cohort does not list are left out.
    """

    cluster_of_case: npt.NDArray[np.int32]
    n_clusters: int
    lesions_of_case: npt.NDArray[np.int64]
    events: FrocEvents
    specs: tuple[MetricSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = localisation_specs()
        self.cluster_of_case = np.asarray(self.cluster_of_case, dtype=np.int32)
        self.lesions_of_case = np.asarray(self.lesions_of_case, dtype=np.int64)
        self._items = items = _items_of(self.events, self.lesions_of_case)
        self._cluster = self.cluster_of_case[items.case]
        self._tie_end = np.ones(items.score.size, dtype=np.bool_)
        self._tie_end[:-1] = items.score[1:] != items.score[:-1]
        marked = (items.kind == _LESION) & np.isfinite(items.score)
        n = self.n_cases
        listed = self.events.case >= 0
        false = self.events.case[listed & (self.events.lesion < 0)]
        self._ratios = {
            MAX_LLF: RatioInputs(
                np.bincount(items.case[marked], minlength=n).astype(np.float64),
                self.lesions_of_case.astype(np.float64),
            ),
            MAX_NLF: RatioInputs(np.bincount(false, minlength=n).astype(np.float64), np.ones(n)),
        }
        columns = [side for one in self._ratios.values() for side in (one.numerator, one.denominator)]
        self._sums = cluster_sums(self.cluster_of_case, self.n_clusters, np.stack(columns, axis=1))

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        out = np.empty((len(weights), len(self.specs)))
        figures = np.empty((len(weights), len(FIGURES)))
        items = self._items
        _figure_rows(
            np.ascontiguousarray(weights),
            self._cluster,
            items.kind,
            self._tie_end,
            items.count,
            items.weight,
            figures,
        )
        out[:, : len(FIGURES)] = figures
        sums = weigh_sums(weights, self._sums)
        ratios = np.full((len(weights), 2), np.nan)
        np.divide(sums[:, 0::2], sums[:, 1::2], out=ratios, where=sums[:, 1::2] > 0)
        out[:, len(FIGURES) :] = ratios
        return out

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> LocalisationEvaluator:
        mask = np.asarray(case_mask, dtype=bool)
        new_row = np.where(mask, np.cumsum(mask) - 1, -1)
        listed = self.events.case >= 0
        keep = listed & mask[np.where(listed, self.events.case, 0)] if mask.size else listed
        events = FrocEvents(
            case=new_row[self.events.case[keep]].astype(np.int64),
            cluster=self.events.cluster[keep],
            lesion=self.events.lesion[keep],
            score=self.events.score[keep],
        )
        return replace(
            self,
            cluster_of_case=self.cluster_of_case[mask],
            lesions_of_case=self.lesions_of_case[mask],
            events=events,
        )

    def stack(self, other: Evaluator) -> LocalisationEvaluator:
        raise NotImplementedError("the evaluator of the task stacks the boxes of two models")

    def closed_form(self, metric: str) -> ClosedForm | None:
        self.index(metric)
        if metric in self._ratios:
            return self._ratios[metric]
        items = self._items
        positive_kind = _HIGHEST if metric == "inferred_roc" else _LESION
        negative = items.kind == _FALSE_NORMAL
        if metric in ("wafroc1", "afroc1"):
            negative |= items.kind == _FALSE_POSITIVE
        kept = (items.kind == positive_kind) | negative
        weight = items.weight if metric in ("wafroc", "wafroc1") else items.count
        return MannWhitneyInputs(
            positive=~negative[kept],
            score=items.score[kept],
            weight=weight[kept],
            cluster=self._cluster[kept].astype(np.int64),
        )

    def undefined_reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        positive = self.lesions_of_case > 0
        for spec in self.specs:
            if spec.name == MAX_NLF:
                if not self.n_cases:
                    reasons[spec.name] = "there is no volume"
            elif not positive.any():
                reasons[spec.name] = NO_LESION
            elif spec.name in ("wafroc", "afroc", "inferred_roc") and positive.all():
                reasons[spec.name] = NO_NORMAL
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        """Count the volumes of each metric.

        Returns:
            (defined, undefined) number of volumes by metric name: all of them are defined or none is, but that
            the share of lesions with a box counts volumes with a lesion alone.
        """
        undefined = self.undefined_reasons()
        counts = {
            spec.name: (0, self.n_cases) if spec.name in undefined else (self.n_cases, 0)
            for spec in self.specs
        }
        if MAX_LLF not in undefined:
            counts[MAX_LLF] = (int((self.lesions_of_case > 0).sum()), 0)
        return counts


class DetectionEvaluator(Evaluator):
    """All metrics of the task detection: those of the FROC curve first, then those of `localisation_specs`.

    Args:
        froc: The metrics of the FROC curve, with the boxes that the others are made of.
    """

    def __init__(self, froc: FrocEvaluator) -> None:
        self.froc = froc
        self.localisation = LocalisationEvaluator(
            cluster_of_case=froc.cluster_of_case,
            n_clusters=froc.n_clusters,
            lesions_of_case=froc.lesions_of_case,
            events=froc.events,
        )
        self.specs = (*froc.specs, *self.localisation.specs)
        self.cluster_of_case, self.n_clusters = froc.cluster_of_case, froc.n_clusters

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        return np.concatenate([self.froc.evaluate(weights), self.localisation.evaluate(weights)], axis=1)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> DetectionEvaluator:
        smaller = self.froc.subset(case_mask)
        return self if smaller is self.froc else DetectionEvaluator(smaller)

    def stack(self, other: Evaluator) -> DetectionEvaluator:
        if not isinstance(other, DetectionEvaluator):
            raise TypeError("only two evaluators of detections can be stacked")
        return DetectionEvaluator(self.froc.stack(other.froc))

    def ranked(self) -> DetectionEvaluator:
        return DetectionEvaluator(self.froc.ranked())

    def closed_form(self, metric: str) -> ClosedForm | None:
        self.index(metric)
        if any(spec.name == metric for spec in self.froc.specs):
            return self.froc.closed_form(metric)
        return self.localisation.closed_form(metric)

    def undefined_reasons(self) -> dict[str, str]:
        return self.froc.undefined_reasons() | self.localisation.undefined_reasons()

    def case_counts(self) -> dict[str, tuple[int, int]]:
        return self.froc.case_counts() | self.localisation.case_counts()


def froc_part(evaluator: Evaluator) -> FrocEvaluator:
    """Return the evaluator of the FROC curve inside one that adds further metrics to it.

    Args:
        evaluator: The evaluator of the task detection.

    Returns:
        The evaluator of the curve.

    Raises:
        TypeError: It is an evaluator of another task.
    """
    inner = getattr(evaluator, "base", evaluator)
    if isinstance(inner, DetectionEvaluator):
        return inner.froc
    if isinstance(inner, FrocEvaluator):
        return inner
    raise TypeError("no evaluator of detections")
