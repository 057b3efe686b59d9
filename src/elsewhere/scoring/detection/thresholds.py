"""Score thresholds that give a number of false positives per volume, and what they find, under patient weights.

The threshold of a rate is the lowest score of a box at which the volumes that set it have at most that many false
positives on average, boxes of equal score together. Nothing is interpolated: a box counts or it does not, as in
use. A threshold can be set by some volumes (those of one hospital) and applied to others.

What is found is counted at three levels (DBT-20). A lesion is one row of the truth of one volume. A breast joins
the views: the lesions of one patient and side, or, where the truth has a column `finding_id`, those of them with
one finding; it counts once, and is found when any of its boxes is. A patient counts once likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.predictions.boxes import rows_of
from elsewhere.scoring.detection.tables import FINDING, is_kind, no_events
from elsewhere.scoring.task import Scores
from elsewhere.statistics.evaluator import FloatArray

IntArray = npt.NDArray[np.int64]
LEVELS = ("lesion", "breast", "patient")
"""The levels of truth at which a sensitivity is counted."""


@dataclass(frozen=True, kw_only=True)
class RatePoint:
    """A rate of false positives, and the volumes that set its threshold.

    Args:
        rate: False positives per volume, on average.
        volumes: True for each volume that they are counted over.
    """

    rate: float
    volumes: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Units:
    """What may be found at one level of truth.

    Args:
        score: The highest score of a box that hits each unit; -inf where none does.
        cluster: The number of each unit's patient.
        part: The part that each unit lies in.
    """

    score: FloatArray
    cluster: IntArray
    part: IntArray


@numba.njit(cache=True, nogil=True)
def _thresholds(
    weights: npt.NDArray[np.uint16],
    volumes_of_cluster: FloatArray,
    score: FloatArray,
    cluster: IntArray,
    false: npt.NDArray[np.bool_],
    rate: float,
    out: FloatArray,
) -> None:
    """The boxes stand by falling score; -inf where all of them fit into the rate, inf where none does."""
    n = score.size
    for r in range(weights.shape[0]):
        budget = 0.0
        for c in range(volumes_of_cluster.size):
            budget += weights[r, c] * volumes_of_cluster[c]
        if budget == 0.0:
            out[r] = np.nan
            continue
        budget = budget * rate * (1.0 + 1e-12)
        threshold, used = np.inf, 0.0
        whole = True
        i = 0
        while i < n:
            j = i
            added, boxes = 0.0, 0.0
            while j < n and score[j] == score[i]:
                w = np.float64(weights[r, cluster[j]])
                boxes += w
                if false[j]:
                    added += w
                j += 1
            if used + added > budget:
                whole = False
                break
            used += added
            if boxes > 0.0:
                threshold = score[i]
            i = j
        out[r] = -np.inf if whole else threshold


@numba.njit(cache=True, nogil=True)
def _counts_above(
    weights: npt.NDArray[np.uint16],
    score: FloatArray,
    cluster: IntArray,
    part: IntArray,
    threshold: FloatArray,
    out: FloatArray,
) -> None:
    """Weighted numbers of items at or above the threshold, by part; the items stand by falling score."""
    for r in range(weights.shape[0]):
        t = threshold[r]
        for i in range(score.size):
            # an item without a mark (-inf) is never found, whatever the threshold
            if not score[i] >= t or score[i] == -np.inf:
                break
            out[r, part[i]] += weights[r, cluster[i]]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Thresholds and what they give, one row per row of weights.

    Args:
        threshold: The threshold; -inf where every box counts, inf where none does, NaN without a volume.
        false_positives: False positives per volume of each part, (rows, parts); NaN without a volume.
        found: Sensitivity of each part by the level of truth, (rows, parts); NaN without a lesion.
    """

    threshold: FloatArray
    false_positives: FloatArray
    found: dict[str, FloatArray]


class ThresholdEvaluator:
    """Thresholds of given rates, with the false positives and sensitivities that they give in parts of the volumes.

    Args:
        scores: The scores of a detection, with their events. Boxes of unlisted volumes take no part.
        cluster_of_case: The number of each volume's patient.
        n_clusters: How many patients there are.
        part_of_case: The part that each volume lies in, from 0; -1 for none.
        n_parts: How many parts there are.
    """

    def __init__(
        self,
        scores: Scores,
        cluster_of_case: npt.ArrayLike,
        *,
        n_clusters: int,
        part_of_case: npt.ArrayLike,
        n_parts: int,
    ) -> None:
        cases = scores.cases
        events = scores.events if scores.events is not None else no_events()
        cluster = np.asarray(cluster_of_case, dtype=np.int64)
        part = np.asarray(part_of_case, dtype=np.int64)
        boxes = events[~is_kind(events, "fn")]
        case = rows_of(boxes["case_id"], pd.Index(cases["case_id"]))
        listed = case >= 0
        score = boxes["score"].to_numpy(dtype=np.float64)[listed]
        order = np.argsort(-score, kind="stable")
        self._score, self._case = score[order], case[listed][order].astype(np.int64)
        self._false = is_kind(boxes, "fp")[listed][order]
        self._cluster = cluster[self._case]
        self._cluster_of_case, self._part_of_case = cluster, part
        self.n_clusters, self.n_parts = n_clusters, n_parts
        self.units = {level: _sorted(unit) for level, unit in truth_units(scores, cluster, part).items()}
        inside = self._false & (part[self._case] >= 0)
        self._wrong = Units(
            score=self._score[inside], cluster=self._cluster[inside], part=part[self._case[inside]]
        )

    def rates(self, weights: npt.NDArray[np.uint16], point: RatePoint) -> Rates:
        """Set a threshold under weights, and count what it gives under the same weights.

        Args:
            weights: Integer weights of the patients, (rows, patients).
            point: The rate, and the volumes that set the threshold.

        Returns:
            One row per row of weights.
        """
        w = np.ascontiguousarray(weights)
        setting = point.volumes[self._case]
        threshold = np.empty(len(w))
        _thresholds(
            w,
            np.bincount(self._cluster_of_case[point.volumes], minlength=self.n_clusters).astype(np.float64),
            self._score[setting],
            self._cluster[setting],
            self._false[setting],
            point.rate,
            threshold,
        )
        return self.at(w, threshold)

    def at(self, weights: npt.NDArray[np.uint16], threshold: FloatArray) -> Rates:
        """Count what thresholds give.

        Args:
            weights: Integer weights of the patients, (rows, patients).
            threshold: One threshold per row.

        Returns:
            One row per row of weights.
        """
        inside = np.flatnonzero(self._part_of_case >= 0)
        volumes = self._weighted(weights, self._cluster_of_case[inside], self._part_of_case[inside])
        false = np.zeros((len(weights), self.n_parts))
        _counts_above(weights, self._wrong.score, self._wrong.cluster, self._wrong.part, threshold, false)
        found = {}
        for level, unit in self.units.items():
            counted = np.zeros((len(weights), self.n_parts))
            _counts_above(weights, unit.score, unit.cluster, unit.part, threshold, counted)
            found[level] = _share(counted, self._weighted(weights, unit.cluster, unit.part), threshold)
        return Rates(threshold=threshold, false_positives=_share(false, volumes, threshold), found=found)

    def _weighted(self, weights: npt.NDArray[np.uint16], cluster: IntArray, part: IntArray) -> FloatArray:
        """The weighted number of volumes or units of each part."""
        table = np.zeros((self.n_clusters, self.n_parts))
        np.add.at(table, (cluster, part), 1.0)
        total: FloatArray = weights.astype(np.float64) @ table
        return total


def _share(counted: FloatArray, total: FloatArray, threshold: FloatArray) -> FloatArray:
    out = np.full(counted.shape, np.nan)
    np.divide(counted, total, out=out, where=total > 0)
    out[np.isnan(threshold)] = np.nan
    return out


def _sorted(unit: Units) -> Units:
    order = np.argsort(-unit.score, kind="stable")
    return Units(score=unit.score[order], cluster=unit.cluster[order], part=unit.part[order])


def truth_units(scores: Scores, cluster: IntArray, part: IntArray) -> dict[str, Units]:
    """List what may be found at each level of truth, with the highest score that finds it (DBT-20).

    A breast or patient belongs to the part of its volumes; one with volumes in two parts counts once in each.
    Lesions of a volume without a side stay apart from those of other volumes.

    Args:
        scores: The scores of a detection, with their events.
        cluster: The number of each volume's patient.
        part: The part of each volume; -1 for none.

    Returns:
        The units by level.
    """
    lesions = lesion_rows(scores)
    of_part = lesions[part[lesions["case"].to_numpy(dtype=np.int64)] >= 0]
    out = {}
    for level in LEVELS:
        keys = _unit_keys(of_part, level)
        row = of_part["case"].to_numpy(dtype=np.int64)
        number = pd.factorize(pd.MultiIndex.from_arrays([*keys, part[row]]))[0]
        first = np.unique(number, return_index=True)[1] if number.size else np.zeros(0, dtype=np.int64)
        best = np.full(first.size, -np.inf)
        np.maximum.at(best, number, of_part["score"].to_numpy(dtype=np.float64))
        out[level] = Units(score=best, cluster=cluster[row[first]], part=part[row[first]])
    return out


def _unit_keys(lesions: pd.DataFrame, level: str) -> list[npt.NDArray[Any]]:
    if level == "lesion":
        return [np.arange(len(lesions))]
    if level == "patient":
        return [lesions["dataset"].to_numpy(), lesions["patient_id"].to_numpy()]
    # a volume without a side is a breast of its own
    side = lesions["side"].fillna("volume " + lesions["case"].astype("string"))
    return [
        lesions["dataset"].to_numpy(),
        lesions["patient_id"].to_numpy(),
        side.to_numpy(),
        lesions["finding"].fillna("").to_numpy(),
    ]


def lesion_rows(scores: Scores) -> pd.DataFrame:
    """List the lesions, one row per lesion and volume, with the best score that finds each.

    Args:
        scores: The scores of a detection, with their events.

    Returns:
        `case` (the row of the volume), `dataset`, `patient_id`, `side`, `finding` and `score`, which is -inf
        for a lesion that no box hits.
    """
    cases = scores.cases
    events = scores.events if scores.events is not None else no_events()
    rows = events[is_kind(events, "tp", "fn")]
    case = rows_of(rows["case_id"], pd.Index(cases["case_id"]))
    rows, case = rows[case >= 0], case[case >= 0]

    def of_case(column: str) -> pd.api.extensions.ExtensionArray:
        if column not in cases.columns:
            return pd.array([pd.NA] * len(case), dtype="string")
        return cases[column].astype("string").array.take(case)

    finding = rows[FINDING] if FINDING in rows.columns else pd.Series(pd.NA, index=rows.index, dtype="string")
    return pd.DataFrame(
        {
            "case": case,
            "dataset": pd.Series(of_case("dataset")).fillna(""),
            "patient_id": of_case("patient_id"),
            "side": of_case("laterality"),
            "finding": finding.astype("string").array,
            "score": rows["score"].astype(np.float64).fillna(-np.inf).to_numpy(),
        }
    )


def joins_views(scores: Scores) -> str:
    """Say in words how the views of a breast were joined.

    Args:
        scores: The scores of a detection, with their events.

    Returns:
        A sentence for the report.
    """
    rows = lesion_rows(scores)
    known = int(rows["finding"].notna().sum())
    text = "A breast joins the lesions of one patient and side"
    if known:
        text += ", and those with one finding_id are one finding"
        if known < len(rows):
            text += f" ({len(rows) - known} of {len(rows)} lesions have none and join by side alone)"
    without = int(rows["side"].isna().sum())
    text += "; it is found when any view of it is."
    if without:
        text += (
            f" {without} lesions lie in volumes without a side, each of which counts as a breast of its own."
        )
    return text


def level_counts(evaluator: ThresholdEvaluator, part: int = 0) -> Mapping[str, int]:
    """Count the units of each level in a part.

    Args:
        evaluator: The evaluator.
        part: The part.

    Returns:
        The number by level.
    """
    return {level: int((unit.part == part).sum()) for level, unit in evaluator.units.items()}
