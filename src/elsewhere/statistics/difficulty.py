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

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
HITS = ("tp", "duplicate")
NEAREST_LESION = "nearest_lesion_id"
_NEEDED = ("case_id", "lesion_id", "score", "kind")
_LESION = ["case_id", "lesion_id"]


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
        `case_id, lesion_id` of every lesion: each is hit by a box or listed as missed.
    """
    named = events.loc[events["kind"].isin([*HITS, "fn"]).to_numpy(dtype=bool), _LESION]
    return named.drop_duplicates().reset_index(drop=True)


def events_by_nearest(events: pd.DataFrame, *, matching: str) -> pd.DataFrame | None:
    """Derive the events that matching `nearest` gives.

    A box that hits some lesion by one matching hits one by the other too, so only which lesion changes, and
    only in volumes with several. Events saved without `nearest_lesion_id` do not say which lesion that is.

    Args:
        events: The events of a model: one row per box.
        matching: The matching that made the events: `challenge` or `nearest`.

    Returns:
        The events that matching `nearest` gives; None where they cannot be derived.
    """
    lesions = lesions_in(events)
    if matching == "nearest" or not lesions["case_id"].duplicated().any():
        return events
    if NEAREST_LESION not in events.columns:
        return None
    boxes = events[(events["kind"] != "fn").to_numpy(dtype=bool)]
    nearest = boxes[NEAREST_LESION]
    kind = np.where(nearest.notna().to_numpy(dtype=bool), "duplicate", "fp")
    boxes = boxes.assign(lesion_id=nearest, kind=pd.array(kind, dtype="string"))
    best = boxes.sort_values("score", ascending=False, kind="stable").drop_duplicates(_LESION)
    boxes.loc[best.index[best["lesion_id"].notna().to_numpy(dtype=bool)], "kind"] = "tp"
    found = pd.MultiIndex.from_frame(boxes.loc[nearest.notna().to_numpy(dtype=bool), _LESION])
    missed = lesions[~pd.MultiIndex.from_frame(lesions).isin(found)]
    return pd.concat([boxes, missed.assign(score=np.nan, kind="fn")], ignore_index=True)


def false_positives_at(false_scores: FloatArray, thresholds: FloatArray, volumes: int) -> FloatArray:
    """Count false positives per volume at thresholds.

    Args:
        false_scores: The scores of the false positives.
        thresholds: The thresholds.
        volumes: How many volumes there are.

    Returns:
        False positives per volume with score >= threshold: tied ones enter with it.

    Example:
        >>> false_positives_at(np.array([0.1, 0.5, 0.9]), np.array([0.5, 1.0]), 2).tolist()
        [1.0, 0.0]
    """
    ordered = np.sort(false_scores)
    return (ordered.size - np.searchsorted(ordered, thresholds, side="left")) / volumes


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
    if volumes <= 0:
        raise UserError("no volume to count false positives over", fix="Give the number of volumes.")
    if not events:
        raise UserError("no algorithm to judge the lesions by", fix="Give at least one events table.")
    kept: dict[str, pd.DataFrame] = {}
    for name, table in events.items():
        gone = [c for c in _NEEDED if c not in table.columns]
        if gone:
            raise UserError(
                f"the events of '{name}' have no column {', '.join(gone)}",
                fix=f"Needed: {', '.join(_NEEDED)}.",
            )
        kept[name] = table if cases is None else table[table["case_id"].isin(list(cases))]
    keys = _lesion_keys(kept, lesions, cases)
    best_fp = np.full((len(keys), len(kept)), np.nan)
    thresholds = {}
    for a, (name, table) in enumerate(kept.items()):
        kind = table["kind"].to_numpy(dtype=object)
        false = table["score"].to_numpy(dtype=np.float64)[kind == "fp"]
        thresholds[name] = budget_threshold(false, budget=budget, volumes=volumes)
        hits = table[np.isin(kind, HITS)]
        if hits.empty:
            continue
        best = hits.groupby(["case_id", "lesion_id"], observed=True)["score"].max()
        place = keys.get_indexer(best.index)
        if (place < 0).any():
            raise UserError(
                f"'{name}' hits {int((place < 0).sum())} lesions that the truth does not list",
                fix="Score every algorithm against the same lesions.",
            )
        best_fp[place, a] = false_positives_at(false, best.to_numpy(dtype=np.float64), volumes)
    within = np.isfinite(best_fp) & (best_fp <= budget + 1e-12)
    detected = within.sum(axis=1)
    total = np.where(within, best_fp, 0.0).sum(axis=1)
    mean = np.divide(total, detected, out=np.full(len(keys), np.nan), where=detected > 0)
    table = pd.DataFrame(
        {
            "case_id": keys.get_level_values(0),
            "lesion_id": keys.get_level_values(1),
            "detected_by": detected.astype(np.int64),
            "algorithms": len(kept),
            "mean_fp_per_volume": mean,
        }
    )
    hardness = np.where(np.isnan(mean), np.inf, mean)
    order = np.lexsort((-hardness, detected))
    pairs = list(zip(detected[order].tolist(), hardness[order].tolist(), strict=True))
    rank = np.empty(len(keys), dtype=np.int64)
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


def _lesion_keys(
    events: Mapping[str, pd.DataFrame], lesions: pd.DataFrame | None, cases: Collection[str] | None
) -> pd.MultiIndex:
    if lesions is not None:
        table = lesions if cases is None else lesions[lesions["case_id"].isin(list(cases))]
        keys = pd.MultiIndex.from_frame(table[["case_id", "lesion_id"]])
        if keys.has_duplicates:
            raise UserError("two lesions have one case_id and lesion_id", fix="Give each lesion its own id.")
        return keys
    named = [t.loc[t["kind"].isin([*HITS, "fn"]), ["case_id", "lesion_id"]] for t in events.values()]
    return pd.MultiIndex.from_frame(pd.concat(named).drop_duplicates())
