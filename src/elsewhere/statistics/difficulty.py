"""Which lesions are hard: over many algorithms, from their events tables alone (DBT-08).

An events table has one row per box: `case_id, lesion_id` (missing for a false positive), `score`, `kind`
(`tp` the best hit of a lesion, `duplicate` a further hit, `fp`, and `fn` for a lesion never hit), and
`nearest_lesion_id`, the lesion that the box takes by matching `nearest`. Difficulty is defined by that
matching, whatever the protocol that scored: `events_by_nearest` gives the events that it would have made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.statistics.found_lesions import HITS, LESION_KEY, found_lesions

FloatArray = npt.NDArray[np.float64]
NEAREST_LESION = "nearest_lesion_id"
LESION_ATTRIBUTES = ("lesion_class", "lesion_diagonal_px", "lesion_distortion")
"""Columns of events that describe the lesion, where they are known."""


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """The lesions by how many algorithms detect them.

    Args:
        table: One row per lesion, hardest first: `case_id, lesion_id, detected_by, algorithms,
            mean_fp_per_volume, rank`. `mean_fp_per_volume` is NaN for a lesion that no algorithm detects
            within the budget.
        thresholds: The score at which each algorithm spends the budget; -inf where it never does.
        budget: False positives per volume that may be spent.
        volumes: Number of volumes that the rate is over.
        never_detected: Number of lesions that no algorithm detects within the budget.
    """

    table: pd.DataFrame
    thresholds: dict[str, float]
    budget: float
    volumes: int
    never_detected: int

    def to_dict(self, *, limit: int | None = None) -> dict[str, Any]:
        """Return the `difficulty` entry of summary.json: counts by number of algorithms, and the hardest
        lesions by rank.

        Args:
            limit: The most lesions to list; None for all.

        Returns:
            The entry; it names no case and no lesion.
        """
        table = self.table if limit is None else self.table.head(limit)
        algorithms = len(self.thresholds)
        histogram = np.bincount(self.table["detected_by"].to_numpy(dtype=np.int64), minlength=algorithms + 1)
        return {
            "matching": "nearest",
            "algorithms": algorithms,
            "lesions": len(self.table),
            "never_detected": self.never_detected,
            "budget_fp_per_volume": self.budget,
            "lesions_by_detections": [int(n) for n in histogram],
            "thresholds": {name: float(t) if np.isfinite(t) else None for name, t in self.thresholds.items()},
            "hardest": [
                {
                    "rank": int(r),
                    "detected_by": int(d),
                    "mean_fp_per_volume": None if np.isnan(f) else float(f),
                }
                for r, d, f in zip(
                    table["rank"].to_numpy(dtype=np.int64),
                    table["detected_by"].to_numpy(dtype=np.int64),
                    table["mean_fp_per_volume"].to_numpy(dtype=np.float64),
                    strict=True,
                )
            ],
        }


def lesions_in(events: pd.DataFrame) -> pd.DataFrame:
    """List the lesions that events name.

    Args:
        events: The events of each model: one row per box.

    Returns:
        `case_id, lesion_id` of every lesion, with what the events know of it (`LESION_ATTRIBUTES`): each is hit
        by a box or listed as missed.
    """
    columns = [*LESION_KEY, *(name for name in LESION_ATTRIBUTES if name in events.columns)]
    named = events.loc[events["kind"].isin([*HITS, "fn"]).to_numpy(dtype=bool), columns]
    return named.drop_duplicates(LESION_KEY).reset_index(drop=True)


def events_by_nearest(events: pd.DataFrame, *, matching: str) -> pd.DataFrame | None:
    """Derive the events that matching `nearest` gives.

    A box that hits some lesion by one matching hits one by the other too, so only which lesion changes, and
    only in volumes with several. Events saved without `nearest_lesion_id` do not say which lesion that is.

    Args:
        events: The events of a model: one row per box.
        matching: The matching that made the events: `challenge` or `nearest`.

    Returns:
        The events that matching `nearest` gives; None where they cannot be derived. Where boxes change their
        lesion, the columns that describe lesions are left out: `lesions_in` of the given events has them.
    """
    lesions = lesions_in(events)
    if matching == "nearest" or not lesions["case_id"].duplicated().any():
        return events
    if NEAREST_LESION not in events.columns:
        return None
    described = [name for name in LESION_ATTRIBUTES if name in events.columns]
    boxes = events[(events["kind"] != "fn").to_numpy(dtype=bool)].drop(columns=described)
    nearest = boxes[NEAREST_LESION]
    kind = np.where(nearest.notna().to_numpy(dtype=bool), "duplicate", "fp")
    boxes = boxes.assign(lesion_id=nearest, kind=pd.array(kind, dtype="string"))
    best = boxes.sort_values("score", ascending=False, kind="stable").drop_duplicates(LESION_KEY)
    boxes.loc[best.index[best["lesion_id"].notna().to_numpy(dtype=bool)], "kind"] = "tp"
    found = pd.MultiIndex.from_frame(boxes.loc[nearest.notna().to_numpy(dtype=bool), LESION_KEY])
    missed = lesions[LESION_KEY][~pd.MultiIndex.from_frame(lesions[LESION_KEY]).isin(found)]
    return pd.concat([boxes, missed.assign(score=np.nan, kind="fn")], ignore_index=True)


def budget_threshold(false_scores: FloatArray, *, budget: float, volumes: int) -> float:
    """Find the score at which a budget of false positives is spent.

    Boxes with a score above it stay within the budget.

    Args:
        false_scores: The scores of the false positives.
        budget: False positives per volume that may be spent.
        volumes: How many volumes there are.

    Returns:
        The score below which an algorithm has spent `budget` false positives per volume; -inf where it never
        spends it.

    Example:
        >>> budget_threshold(np.array([0.1, 0.5, 0.9]), budget=0.5, volumes=2)
        0.5
    """
    allowed = int(np.floor(budget * volumes + 1e-9))
    if false_scores.size <= allowed:
        return float("-inf")
    return float(np.sort(false_scores)[::-1][allowed])


def lesion_difficulty(
    events: Mapping[str, pd.DataFrame],
    *,
    volumes: int,
    lesions: pd.DataFrame | None = None,
    budget: float = 4.0,
    cases: Collection[str] | None = None,
) -> Difficulty:
    """Count the algorithms that detect each lesion within a budget of false positives (DBT-08).

    Give events of matching `nearest`, as the study did (`events_by_nearest`).

    Args:
        events: The events of each algorithm by its name: one row per box.
        volumes: Number of volumes that the rate of false positives is over.
        lesions: The lesions of the truth, by `case_id` and `lesion_id`; None for every lesion that some table
            names.
        budget: False positives per volume that may be spent.
        cases: The volumes that count, such as the positive ones; None for all.

    Returns:
        How many algorithms detect each lesion within `budget` false positives per volume, and the mean false
        positives per volume at each algorithm's best true positive for it, over those that do.

    Raises:
        UserError: If there is no volume or no algorithm, a table lacks a column, two lesions have one name,
            or an algorithm hits a lesion that the truth does not list.
    """
    found = found_lesions(events, volumes=volumes, lesions=lesions, cases=cases)
    thresholds = {}
    for name, table in events.items():
        counted = table if cases is None else table[table["case_id"].isin(list(cases))]
        false = counted.loc[(counted["kind"] == "fp").to_numpy(dtype=bool), "score"]
        thresholds[name] = budget_threshold(false.to_numpy(dtype=np.float64), budget=budget, volumes=volumes)
    best_fp, within = found.cost, found.within(budget)
    detected = within.sum(axis=1)
    total = np.where(within, best_fp, 0.0).sum(axis=1)
    mean = np.divide(total, detected, out=np.full(len(within), np.nan), where=detected > 0)
    table = pd.DataFrame(
        {
            **{name: found.lesions[name].to_numpy() for name in LESION_KEY},
            "detected_by": detected.astype(np.int64),
            "algorithms": len(found.models),
            "mean_fp_per_volume": mean,
        }
    )
    hardness = np.where(np.isnan(mean), np.inf, mean)
    order = np.lexsort((-hardness, detected))
    pairs = list(zip(detected[order].tolist(), hardness[order].tolist(), strict=True))
    rank = np.empty(len(within), dtype=np.int64)
    for i, at in enumerate(order):
        rank[at] = rank[order[i - 1]] if i and pairs[i] == pairs[i - 1] else i + 1
    table["rank"] = rank
    return Difficulty(
        table=table.iloc[order].reset_index(drop=True),
        thresholds=thresholds,
        budget=budget,
        volumes=volumes,
        never_detected=int((detected == 0).sum()),
    )
