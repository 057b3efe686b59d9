"""FROC under patient weights: DBT-04, DBT-06 and the curve rule of the DBTex protocols.

The rule, for any weights: the curve's points lie at the scores of boxes that hit a lesion (also of
further hits on a lesion that was hit before: the published code takes its thresholds from all of them), each
with everything scored as high or higher, so that tied false positives enter with them; before them
is (0, 0), after them one point with every box. Sensitivity at x false positives per volume is linear
interpolation between the last point at or before x and the first one beyond it, and flat after the last
point. Of several points at one x, the highest is read. No boxes: 0. No lesion: undefined (NaN).

A resample weighs a patient's volumes, lesions, hits and false positives alike. The events are sorted
once; because all hits on a lesion belong to one patient, which hit comes first never depends on the
weights, and a row of weights is one pass down the list that ends at the largest rate asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.protocols import DetectionRules
from elsewhere.statistics.accumulators import shared_ranks
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

_FP_ELSEWHERE, _FP_POSITIVE, _FIRST_HIT, _FURTHER_HIT = range(4)
NO_LESION = "no lesion among these volumes, so sensitivity has no denominator"


def froc_specs(rules: DetectionRules) -> tuple[MetricSpec, ...]:
    """List the metrics of DBT-04, in the order of the report, from the protocol's operating points.

    Args:
        rules: The protocol's rules of detection.

    Returns:
        The specifications; the mean sensitivity over positive volumes leads.

    Example:
        >>> [spec.name for spec in froc_specs(DetectionRules())][:2]
        ['mean_sensitivity_1_to_4', 'sensitivity_at_1_positive']
    """

    def spec(name: str, label: str, *, primary: bool = False) -> MetricSpec:
        return MetricSpec(
            name=name,
            label=label,
            higher_is_better=True,
            kind=MetricKind.CURVE,
            interval=IntervalMethod.PERCENTILE,
            primary=primary,
            rank_based=True,
        )

    points = rules.positive_operating_points
    span = f"{points[0]:g}_to_{points[-1]:g}"
    listed = ", ".join(f"{x:g}" for x in points)
    at = rules.all_operating_point
    return (
        spec(
            f"mean_sensitivity_{span}",
            f"Mean sensitivity at {listed} FP per volume, positive volumes",
            primary=True,
        ),
        *(
            spec(f"sensitivity_at_{x:g}_positive", f"Sensitivity at {x:g} FP per volume, positive volumes")
            for x in points
        ),
        spec(f"sensitivity_at_{at:g}_all", f"Sensitivity at {at:g} FP per volume, all volumes"),
        spec(f"mean_sensitivity_{span}_all", f"Mean sensitivity at {listed} FP per volume, all volumes"),
    )


@dataclass(frozen=True, kw_only=True)
class FrocEvents:
    """The predicted boxes, one entry per box, in any order.

    Args:
        case: The row of the box's volume in the case table; -1 where the cohort does not list it.
        cluster: The number of its patient; -1 where the patient is not in the cohort.
        lesion: The number of the lesion that it hits; -1 for none.
        score: Its score.
    """

    case: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]
    lesion: npt.NDArray[np.int64]
    score: FloatArray


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """The events by falling score, cut after the last hit: no later box can change a sensitivity."""

    cluster: npt.NDArray[np.int32]
    code: npt.NDArray[np.uint8]
    tie_end: npt.NDArray[np.bool_]
    per_cluster: FloatArray
    pool_starts: npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def _froc_rows(
    weights: npt.NDArray[np.uint16],
    cluster: npt.NDArray[np.int32],
    code: npt.NDArray[np.uint8],
    tie_end: npt.NDArray[np.bool_],
    per_cluster: FloatArray,
    pool_starts: npt.NDArray[np.int64],
    positive_points: FloatArray,
    all_points: FloatArray,
    out: FloatArray,
) -> None:
    n_clusters = weights.shape[1]
    n_pools = pool_starts.size - 1
    n_positive_points = positive_points.size
    n_all_points = all_points.size
    w = np.empty(n_clusters + n_pools)
    for r in range(weights.shape[0]):
        positive_volumes = 0.0
        volumes = 0.0
        lesions = 0.0
        for c in range(n_clusters):
            weight = np.float64(weights[r, c])
            w[c] = weight
            volumes += weight * per_cluster[c, 0]
            positive_volumes += weight * per_cluster[c, 1]
            lesions += weight * per_cluster[c, 2]
        if lesions == 0.0:
            out[r, :] = np.nan
            continue
        for p in range(n_pools):
            total = 0.0
            for c in range(pool_starts[p], pool_starts[p + 1]):
                total += w[c]
            size = pool_starts[p + 1] - pool_starts[p]
            w[n_clusters + p] = total / size if size > 0 else 0.0
        i = 0
        j = 0
        last_x_positive = 0.0
        last_x_all = 0.0
        last_y = 0.0
        found = 0.0
        fp_positive = 0.0
        fp_all = 0.0
        hit_here = False
        for e in range(cluster.size):
            weight = w[cluster[e]]
            kind = code[e]
            if kind == _FP_ELSEWHERE:
                fp_all += weight
            elif kind == _FP_POSITIVE:
                fp_all += weight
                fp_positive += weight
            elif weight > 0.0:
                hit_here = True
                if kind == _FIRST_HIT:
                    found += weight
            if hit_here and tie_end[e]:
                hit_here = False
                y = found / lesions
                x = fp_positive / positive_volumes
                while i < n_positive_points and positive_points[i] < x:
                    slope = (y - last_y) / (x - last_x_positive)
                    out[r, i] = slope * (positive_points[i] - last_x_positive) + last_y
                    i += 1
                last_x_positive = x
                x = fp_all / volumes
                while j < n_all_points and all_points[j] < x:
                    slope = (y - last_y) / (x - last_x_all)
                    out[r, n_positive_points + j] = slope * (all_points[j] - last_x_all) + last_y
                    j += 1
                last_x_all = x
                last_y = y
                if i == n_positive_points and j == n_all_points:
                    break
        for k in range(i, n_positive_points):
            out[r, k] = last_y
        for k in range(j, n_all_points):
            out[r, n_positive_points + k] = last_y


def _prepare(
    events: FrocEvents,
    *,
    cluster_of_case: npt.NDArray[np.int32],
    lesions_of_case: npt.NDArray[np.int64],
    n_clusters: int,
    pool_starts: npt.NDArray[np.int64],
    pool_of_event: npt.NDArray[np.int64],
) -> _Walk:
    order = np.argsort(-events.score, kind="stable")
    score, lesion, case = events.score[order], events.lesion[order], events.case[order]
    cluster = np.where(events.cluster < 0, n_clusters + pool_of_event, events.cluster)[order]
    code = np.zeros(order.size, dtype=np.uint8)
    listed = case >= 0
    positive = np.zeros(order.size, dtype=bool)
    positive[listed] = lesions_of_case[case[listed]] > 0
    code[positive] = _FP_POSITIVE
    hits = np.flatnonzero(lesion >= 0)
    code[hits] = _FURTHER_HIT
    _, first = np.unique(lesion[hits], return_index=True)
    code[hits[first]] = _FIRST_HIT
    tie_end = np.ones(order.size, dtype=np.bool_)
    tie_end[:-1] = score[1:] != score[:-1]
    length = 0
    if hits.size:
        length = int(hits[-1] + np.argmax(tie_end[hits[-1] :])) + 1
    positive_case = lesions_of_case > 0
    per_cluster = np.column_stack(
        [
            np.bincount(cluster_of_case, minlength=n_clusters),
            np.bincount(cluster_of_case, weights=positive_case.astype(float), minlength=n_clusters),
            np.bincount(cluster_of_case, weights=lesions_of_case.astype(float), minlength=n_clusters),
        ]
    ).astype(np.float64)
    return _Walk(
        cluster=cluster[:length].astype(np.int32),
        code=code[:length],
        tie_end=tie_end[:length],
        per_cluster=per_cluster,
        pool_starts=pool_starts,
    )


@numba.njit(cache=True, nogil=True)
def _codes(
    at: npt.NDArray[np.int64],
    lesion: npt.NDArray[np.int64],
    false_code: npt.NDArray[np.uint8],
    tie_end: npt.NDArray[np.bool_],
    first: npt.NDArray[np.bool_],
    code: npt.NDArray[np.uint8],
) -> int:
    """Write the codes of the boxes at some places, and return how many of all boxes the curve needs."""
    length = 0
    for k in range(at.size):
        e = at[k]
        if lesion[k] < 0:
            code[e] = false_code[e]
            continue
        code[e] = _FIRST_HIT if first[lesion[k]] else _FURTHER_HIT
        first[lesion[k]] = False
        length = e + 1
    while 0 < length < code.size and not tie_end[length - 1]:
        length += 1
    return length


class SortedFroc:
    """The curve of one model's boxes under many hit rules: the boxes are sorted once.

    The values are those of `FrocEvaluator` with one weight for every patient, to the last bit.

    Args:
        rules: The rules of detection, for the operating points.
        case: The row of each box's volume in the case table; -1 where the cohort does not list it.
        score: The score of each box.
        lesions_of_case: How many lesions each volume has.

    Attributes:
        order: The boxes by falling score.
    """

    def __init__(
        self,
        rules: DetectionRules,
        *,
        case: npt.NDArray[np.int64],
        score: FloatArray,
        lesions_of_case: npt.NDArray[np.int64],
    ) -> None:
        self.order = np.argsort(-score, kind="stable")
        ordered, of_case = score[self.order], case[self.order]
        self._false = np.zeros(score.size, dtype=np.uint8)
        listed = of_case >= 0
        self._false[listed] = np.where(
            lesions_of_case[of_case[listed]] > 0, np.uint8(_FP_POSITIVE), np.uint8(_FP_ELSEWHERE)
        )
        self._tie_end = np.ones(score.size, dtype=np.bool_)
        self._tie_end[:-1] = ordered[1:] != ordered[:-1]
        self._lesions = int(lesions_of_case.sum())
        positive = float((lesions_of_case > 0).sum())
        self._totals = np.array([[float(lesions_of_case.size), positive, float(self._lesions)]])
        points = np.asarray(rules.positive_operating_points, dtype=float)
        self._points, self._place = np.unique(points, return_inverse=True)
        self._all_point = np.array([float(rules.all_operating_point)])
        self._cluster = np.zeros(score.size, dtype=np.int32)
        self._code = self._false.copy()
        self._weights = np.ones((1, 1), dtype=np.uint16)
        self._pool = np.array([0, 1], dtype=np.int64)

    def values(self, boxes: npt.NDArray[np.int64], lesion: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Evaluate one hit rule.

        Args:
            boxes: Places in `order`, rising, of the boxes that hit a lesion under some rule: always the same ones.
            lesion: The lesion that each of them hits, from 0; -1 for none. All other boxes hit none.

        Returns:
            The mean sensitivity at the positive operating points, and the sensitivity at the operating point of
            all volumes; NaN without a lesion.
        """
        first = np.ones(self._lesions, dtype=np.bool_)
        length = _codes(boxes, lesion, self._false, self._tie_end, first, self._code)
        out = np.empty((1, self._points.size + 1))
        _froc_rows(
            self._weights,
            self._cluster[:length],
            self._code[:length],
            self._tie_end[:length],
            self._totals,
            self._pool,
            self._points,
            self._all_point,
            out,
        )
        return float(_mean_of_columns(out[:, self._place])[0]), float(out[0, -1])


@dataclass(eq=False)
class FrocEvaluator(Evaluator):
    """The metrics of `froc_specs` as a function of patient weights.

    A volume is positive when it has a lesion. Boxes in volumes that the cohort does not list are false
    positives over all volumes. Where their patient is in the cohort they share its weight; where the patient
    is not, they weigh as the average patient does (1 for every resample), and belong to no subgroup: `subset`
    keeps them only when no case leaves.

    Args:
        rules: The protocol's rules of detection.
        cluster_of_case: The number of each volume's patient, from 0.
        n_clusters: How many patients there are.
        lesions_of_case: How many lesions each volume has.
        events: The predicted boxes.
        pool_starts: First cluster of each pool over which the weight of boxes without a patient is averaged,
            and the number of clusters; None for one pool. `stack` makes one pool per model.
        pool_of_event: The pool of each box; None for one pool.

    Raises:
        ValueError: A box has no score.
    """

    rules: DetectionRules
    cluster_of_case: npt.NDArray[np.int32]
    n_clusters: int
    lesions_of_case: npt.NDArray[np.int64]
    events: FrocEvents
    pool_starts: npt.NDArray[np.int64] | None = None
    pool_of_event: npt.NDArray[np.int64] | None = None
    specs: tuple[MetricSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = froc_specs(self.rules)
        self.cluster_of_case = np.asarray(self.cluster_of_case, dtype=np.int32)
        self.lesions_of_case = np.asarray(self.lesions_of_case, dtype=np.int64)
        if np.isnan(self.events.score).any():
            raise ValueError("NaN scores have no place in a curve: decide about them while scoring")
        if self.pool_starts is None or self.pool_of_event is None:
            self.pool_starts = np.array([0, self.n_clusters], dtype=np.int64)
            self.pool_of_event = np.zeros(self.events.case.size, dtype=np.int64)
        points = np.asarray(self.rules.positive_operating_points, dtype=float)
        everywhere = np.concatenate([[self.rules.all_operating_point], points])
        self._points, self._place = np.unique(points, return_inverse=True)
        self._all_points, self._all_place = np.unique(everywhere, return_inverse=True)
        self._walk = _prepare(
            self.events,
            cluster_of_case=self.cluster_of_case,
            lesions_of_case=self.lesions_of_case,
            n_clusters=self.n_clusters,
            pool_starts=self.pool_starts,
            pool_of_event=self.pool_of_event,
        )

    def sensitivities(
        self, weights: npt.NDArray[np.uint16], *, positive_at: FloatArray, all_at: FloatArray
    ) -> FloatArray:
        """Read the curve at rising false-positive rates.

        Args:
            weights: Integer weights of the patients, (rows, patients).
            positive_at: False positives per positive volume, rising.
            all_at: False positives per volume over all volumes, rising.

        Returns:
            (rows, len(positive_at) + len(all_at)): the sensitivity at each rate; NaN without a lesion.
        """
        out = np.empty((len(weights), positive_at.size + all_at.size))
        walk = self._walk
        _froc_rows(
            np.ascontiguousarray(weights),
            walk.cluster,
            walk.code,
            walk.tie_end,
            walk.per_cluster,
            walk.pool_starts,
            positive_at,
            all_at,
            out,
        )
        return out

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        raw = self.sensitivities(weights, positive_at=self._points, all_at=self._all_points)
        positive = raw[:, : self._points.size][:, self._place]
        everywhere = raw[:, self._points.size :][:, self._all_place]
        n = positive.shape[1]
        out = np.empty((len(weights), n + 3))
        out[:, 0] = _mean_of_columns(positive)
        out[:, 1 : n + 1] = positive
        out[:, n + 1] = everywhere[:, 0]
        out[:, n + 2] = _mean_of_columns(everywhere[:, 1:])
        return out

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> FrocEvaluator:
        mask = np.asarray(case_mask, dtype=bool)
        if mask.all():
            return self
        new_row = np.where(mask, np.cumsum(mask) - 1, -1)
        listed = self.events.case >= 0
        keep = listed & mask[np.where(listed, self.events.case, 0)] if mask.size else listed
        events = FrocEvents(
            case=new_row[self.events.case[keep]].astype(np.int64),
            cluster=self.events.cluster[keep],
            lesion=self.events.lesion[keep],
            score=self.events.score[keep],
        )
        return FrocEvaluator(
            rules=self.rules,
            cluster_of_case=self.cluster_of_case[mask],
            n_clusters=self.n_clusters,
            lesions_of_case=self.lesions_of_case[mask],
            events=events,
            pool_starts=self.pool_starts,
            pool_of_event=None if self.pool_of_event is None else self.pool_of_event[keep],
        )

    def stack(self, other: Evaluator) -> FrocEvaluator:
        if not isinstance(other, FrocEvaluator):
            raise TypeError("only two FROC evaluators can be stacked")
        mine, theirs = self.events, other.events
        first_lesion = int(mine.lesion.max(initial=-1)) + 1
        events = FrocEvents(
            case=np.concatenate([mine.case, np.where(theirs.case < 0, -1, theirs.case + self.n_cases)]),
            cluster=np.concatenate(
                [mine.cluster, np.where(theirs.cluster < 0, -1, theirs.cluster + self.n_clusters)]
            ),
            lesion=np.concatenate(
                [mine.lesion, np.where(theirs.lesion < 0, -1, theirs.lesion + first_lesion)]
            ),
            score=np.concatenate([mine.score, theirs.score]),
        )
        return FrocEvaluator(
            rules=self.rules,
            cluster_of_case=np.concatenate(
                [self.cluster_of_case, other.cluster_of_case + np.int32(self.n_clusters)]
            ),
            n_clusters=self.n_clusters + other.n_clusters,
            lesions_of_case=np.concatenate([self.lesions_of_case, other.lesions_of_case]),
            events=events,
            pool_starts=np.concatenate(
                [_need(self.pool_starts), _need(other.pool_starts)[1:] + self.n_clusters]
            ),
            pool_of_event=np.concatenate(
                [_need(self.pool_of_event), _need(other.pool_of_event) + _need(self.pool_starts).size - 1]
            ),
        )

    def ranked(self) -> FrocEvaluator:
        """Replace scores of boxes by their ranks from the top.

        So the first boxes of two models stand for as many false positives.

        Returns:
            The same metrics of the ranks.
        """
        ranks = shared_ranks(-self.events.score)
        return replace(self, events=replace(self.events, score=-ranks))

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        """Return None: a point of an interpolated curve is no sum over cases (ST-03).

        Args:
            metric: The name of the metric.

        Returns:
            None.

        Raises:
            KeyError: If there is no such metric.
        """
        self.index(metric)
        return None

    def undefined_reasons(self) -> dict[str, str]:
        if self.lesions_of_case.sum() > 0:
            return {}
        return {spec.name: NO_LESION for spec in self.specs}

    def case_counts(self) -> dict[str, tuple[int, int]]:
        """Count the volumes of each metric.

        Metrics over positive volumes count those alone; without any lesion every volume is undefined.

        Returns:
            (defined, undefined) number of volumes by metric name.
        """
        positive = int((self.lesions_of_case > 0).sum())
        if positive == 0:
            return {spec.name: (0, self.n_cases) for spec in self.specs}
        return {
            spec.name: (self.n_cases if spec.name.endswith("_all") else positive, 0) for spec in self.specs
        }


def _need(array: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    if array is None:
        raise ValueError("the evaluator was not prepared")
    return array


def _mean_of_columns(columns: FloatArray) -> FloatArray:
    """Compute the plain mean, added from left to right: equal to the published code to the last bit."""
    total = np.zeros(len(columns))
    for column in columns.T:
        total = total + column
    return total / columns.shape[1]
