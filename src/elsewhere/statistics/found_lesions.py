"""Who finds what: the lesions that each of several models finds within a budget of false positives (DBT-08).

What a lesion costs a model is the number of false positives per volume at the score of its best hit. Two
models are compared at the same budget, so that a model with looser scores does not look as if it found more.
Models that are used together also add their false positives: a set of k models is therefore counted twice, with
the whole budget for each of them, and with 1/k of the budget for each, which costs no more than one model alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
HITS = ("tp", "duplicate")
LESION_KEY = ["case_id", "lesion_id"]
MOST_IN_ALL_SETS = 12
"""Up to so many models every set is looked at; of more, one model after the other joins the best set."""
_SLACK = 1e-12
_NEEDED = ("case_id", "lesion_id", "score", "kind")


@dataclass(frozen=True, kw_only=True)
class FoundLesions:
    """What each lesion costs each model.

    Args:
        models: The names of the models.
        lesions: One row per lesion: `case_id`, `lesion_id`, and whatever else is known of it.
        cost: (lesions, models) false positives per volume at the model's best hit; infinite without a hit.
        volumes: How many volumes the false positives are counted over.
        false_case: For each model the volume of each of its false positives.
        false_cost: For each model what each of its false positives costs: false positives per volume that score
            as high or higher.
    """

    models: tuple[str, ...]
    lesions: pd.DataFrame
    cost: FloatArray
    volumes: int
    false_case: tuple[npt.NDArray[np.object_], ...] = ()
    false_cost: tuple[FloatArray, ...] = ()

    def within(self, budget: float) -> BoolArray:
        """Tell which lesions each model finds within a budget.

        Args:
            budget: False positives per volume that may be spent.

        Returns:
            (lesions, models): True where the model finds the lesion.
        """
        found: BoolArray = self.cost <= budget + _SLACK
        return found


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


def found_lesions(
    events: Mapping[str, pd.DataFrame],
    *,
    volumes: int,
    lesions: pd.DataFrame | None = None,
    cases: Collection[str] | None = None,
) -> FoundLesions:
    """Compute what each lesion costs each model.

    Args:
        events: The events of each model by its name: one row per box.
        volumes: Number of volumes that the rate of false positives is over.
        lesions: The lesions of the truth, by `case_id` and `lesion_id`, with further columns that stay with
            them; None for every lesion that some table names.
        cases: The volumes that count, such as the positive ones; None for all.

    Returns:
        The lesions and their costs.

    Raises:
        UserError: If there is no volume or no model, a table lacks a column, two lesions have one name, or a
            model hits a lesion that the truth does not list.

    Example:
        >>> rows = [("v1", "L1", 0.9, "tp"), ("v2", None, 0.95, "fp"), ("v3", "L3", np.nan, "fn")]
        >>> events = pd.DataFrame(rows, columns=["case_id", "lesion_id", "score", "kind"])
        >>> found_lesions({"A": events}, volumes=2).within(0.5).ravel().tolist()
        [True, False]
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
    rows = _lesion_rows(kept, lesions, cases)
    keys = pd.MultiIndex.from_frame(rows[LESION_KEY])
    cost = np.full((len(keys), len(kept)), np.inf)
    false_case, false_cost = [], []
    for a, (name, table) in enumerate(kept.items()):
        kind = table["kind"].to_numpy(dtype=object)
        false = table["score"].to_numpy(dtype=np.float64)[kind == "fp"]
        false_case.append(table["case_id"].to_numpy(dtype=object)[kind == "fp"])
        false_cost.append(false_positives_at(false, false, volumes))
        hits = table[np.isin(kind, HITS)]
        if hits.empty:
            continue
        best = hits.groupby(LESION_KEY, observed=True)["score"].max()
        place = keys.get_indexer(best.index)
        if (place < 0).any():
            raise UserError(
                f"'{name}' hits {int((place < 0).sum())} lesions that the truth does not list",
                fix="Score every algorithm against the same lesions.",
            )
        cost[place, a] = false_positives_at(false, best.to_numpy(dtype=np.float64), volumes)
    return FoundLesions(
        models=tuple(kept),
        lesions=rows,
        cost=cost,
        volumes=volumes,
        false_case=tuple(false_case),
        false_cost=tuple(false_cost),
    )


def _lesion_rows(
    events: Mapping[str, pd.DataFrame], lesions: pd.DataFrame | None, cases: Collection[str] | None
) -> pd.DataFrame:
    if lesions is not None:
        table = lesions if cases is None else lesions[lesions["case_id"].isin(list(cases))]
        if table.duplicated(LESION_KEY).any():
            raise UserError("two lesions have one case_id and lesion_id", fix="Give each lesion its own id.")
        return table.reset_index(drop=True)
    named = [t.loc[t["kind"].isin([*HITS, "fn"]), LESION_KEY] for t in events.values()]
    return pd.concat(named).drop_duplicates().reset_index(drop=True)


def who_finds_what(found: FoundLesions, *, budget: float) -> dict[str, Any]:
    """Count what models find alone, in pairs and in larger sets.

    Args:
        found: What each lesion costs each model.
        budget: False positives per volume that each model may spend.

    Returns:
        Counts of lesions: `by_all`, `by_any`, `by_none`; `models`, each with what it alone finds; `pairs`, with the
        lesions that both, one and none of them find; and `sets`, the best set of each size. `gain` is the number of
        lesions that the best model of a set misses and another one of it finds. Numbers that end with
        `_at_shared_budget` divide the budget by the number of models.

    Example:
        >>> cost = np.array([[0.5, 9.0], [9.0, 0.5], [0.5, 0.5]])
        >>> rows = pd.DataFrame({"case_id": list("abc"), "lesion_id": list("abc")})
        >>> both = FoundLesions(models=("A", "B"), lesions=rows, cost=cost, volumes=9)
        >>> who_finds_what(both, budget=2.0)["pairs"][0]["gain"]
        1
    """
    hit = found.within(budget)
    by = hit.sum(axis=1)
    n = len(found.models)
    alone = hit & (by == 1)[:, None]
    halves = found.within(budget / 2.0)
    pairs = []
    for i, j in itertools.combinations(range(n), 2):
        a, b = hit[:, i], hit[:, j]
        union = int((a | b).sum())
        pairs.append(
            {
                "a": found.models[i],
                "b": found.models[j],
                "both": int((a & b).sum()),
                "only_a": int((a & ~b).sum()),
                "only_b": int((b & ~a).sum()),
                "neither": int((~a & ~b).sum()),
                "union": union,
                "gain": union - int(max(a.sum(), b.sum())),
                "union_at_shared_budget": int((halves[:, i] | halves[:, j]).sum()),
            }
        )
    return {
        "budget_fp_per_volume": float(budget),
        "lesions": len(hit),
        "by_all": int((by == n).sum()),
        "by_any": int((by > 0).sum()),
        "by_none": int((by == 0).sum()),
        "models": [
            {
                "model": name,
                "found": int(hit[:, k].sum()),
                "sensitivity": float(hit[:, k].mean()) if len(hit) else None,
                "found_by_no_other": int(alone[:, k].sum()),
            }
            for k, name in enumerate(found.models)
        ],
        "pairs": pairs,
        "sets": best_sets(found, budget=budget),
    }


def best_sets(found: FoundLesions, *, budget: float) -> list[dict[str, Any]]:
    """Find, for each number of models, the set that finds the most lesions together.

    Args:
        found: What each lesion costs each model.
        budget: False positives per volume that each model may spend.

    Returns:
        One row per number of models from 1: the set (`best`), what it finds (`found`), how many more than the
        best single model (`gain`), the mean over all sets of this size (None where not every set was
        looked at), and the best set where all models together spend the budget. Of equal sets the first one
        stands.
    """
    hit = found.within(budget)
    n = len(found.models)
    single = int(hit.sum(axis=0).max(initial=0))
    rows = []
    chosen: tuple[int, ...] = ()
    for k in range(1, n + 1):
        shared = found.within(budget / k)
        mean = None
        if n <= MOST_IN_ALL_SETS:
            sets = list(itertools.combinations(range(n), k))
            counts = [int(hit[:, s].any(axis=1).sum()) for s in sets]
            chosen = sets[int(np.argmax(counts))]
            mean = float(np.mean(counts))
        else:
            sets = [(*chosen, m) for m in range(n) if m not in chosen]
            chosen = sets[int(np.argmax([int(hit[:, s].any(axis=1).sum()) for s in sets]))]
        at_shared = [int(shared[:, s].any(axis=1).sum()) for s in sets]
        total = int(hit[:, chosen].any(axis=1).sum())
        rows.append(
            {
                "models": k,
                "best": [found.models[m] for m in chosen],
                "found": total,
                "gain": total - single,
                "mean": mean,
                "best_at_shared_budget": [found.models[m] for m in sets[int(np.argmax(at_shared))]],
                "found_at_shared_budget": max(at_shared),
            }
        )
    return rows


def found_by_stratum(
    found: FoundLesions, strata: Mapping[str, pd.Series], patient: pd.Series, *, budget: float
) -> list[dict[str, Any]]:
    """Count what models find in groups of lesions, such as small ones, cancers, or one view.

    A model's threshold is that of the whole set, so that a group is judged at the operating point that
    users would have; false positives belong to no group.

    Args:
        found: What each lesion costs each model.
        strata: The level of each lesion by the name of the attribute; missing where it is not known.
        patient: The patient of each lesion.
        budget: False positives per volume that each model may spend.

    Returns:
        One row per attribute and level: lesions, patients, how many are found by any and by all models, the mean
        share of models that find a lesion, and each model's sensitivity.
    """
    hit = found.within(budget)
    rows = []
    for name, levels in strata.items():
        for level, members in level_masks(levels).items():
            inside = hit[members]
            rows.append(
                {
                    "attribute": name,
                    "level": level,
                    "lesions": len(inside),
                    "patients": int(patient[members].nunique()),
                    "found_by_any": int(inside.any(axis=1).sum()),
                    "found_by_all": int(inside.all(axis=1).sum()),
                    "mean_share_of_models": float(inside.mean()),
                    "models": [
                        {"model": name, "sensitivity": float(inside[:, k].mean())}
                        for k, name in enumerate(found.models)
                    ],
                }
            )
    return rows


def level_masks(levels: pd.Series) -> dict[str, BoolArray]:
    """Mark the members of each level of an attribute.

    Args:
        levels: The level of each lesion; missing where it is not known.

    Returns:
        A mask per level, in the order of the categories or of the names; 'not stated' comes last.

    Example:
        >>> list(level_masks(pd.Series(["b", None, "a"])))
        ['a', 'b', 'not stated']
    """
    unknown = levels.isna().to_numpy(dtype=bool)
    known = levels[~unknown]
    ordered: Sequence[Any] = (
        [one for one in levels.cat.categories if (known == one).any()]
        if isinstance(levels.dtype, pd.CategoricalDtype)
        else sorted(known.unique(), key=str)
    )
    masks = {str(one): (levels == one).fillna(False).to_numpy(dtype=bool) for one in ordered}
    if unknown.any():
        masks["not stated"] = unknown
    return masks
