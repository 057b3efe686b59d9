"""The lesions that several models find: from their scores to difficulty, strata and paired comparisons (DBT-08).

All of it is by matching `nearest`, whatever protocol ranks, since matching `challenge` gives a box to the lesion that is
listed first, and so says of the other one that it was missed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.scoring.task import Scores
from elsewhere.statistics.difficulty import events_by_nearest, lesion_difficulty, lesions_in
from elsewhere.statistics.found_lesions import (
    LESION_KEY,
    FoundLesions,
    found_by_stratum,
    found_lesions,
    who_finds_what,
)
from elsewhere.statistics.lesions_paired import compare_by_stratum, compare_pairs, pairs_of
from elsewhere.statistics.resampling import Resampling

BUDGET = 4.0
"""False positives per volume at which the study counts who finds a lesion (DBT-08)."""
OF_LESIONS = ("size", "class", "architectural distortion", "projection")
"""What a list of single lesions says of them; what belongs to the patient or the hospital stays in the table with ids."""
MOST_MODELS_IN_ALL_PAIRS = 8
"""Of more models each is compared with the first one: Holm's correction for all pairs would leave nothing to find."""
MOST_PAIRS_IN_DETAIL = 15
"""So many pairs are also compared at every budget and in every group of lesions."""


@dataclass(frozen=True, kw_only=True)
class LesionsOfModels:
    """The lesions of a cohort, with the events of several models by matching `nearest`.

    Attributes:
        events: The events of each model by its name.
        lesions: One row per lesion, with what is known of it.
        strata: The level of each lesion by the name of an attribute that divides them.
        cases: The volumes of the cohort.
        without: Models whose events do not say which lesion is the nearest.
        points: The false-positive rates of the protocol, the main one first.
    """

    events: dict[str, pd.DataFrame]
    lesions: pd.DataFrame
    strata: dict[str, pd.Series]
    cases: pd.DataFrame
    without: tuple[str, ...]
    points: tuple[float, ...]

    def found(self) -> FoundLesions:
        """Compute what each lesion costs each model.

        Returns:
            The costs, over all volumes.
        """
        return found_lesions(self.events, volumes=len(self.cases), lesions=self.lesions)

    def patients(self) -> pd.Series:
        """Look up the patient of each volume.

        Returns:
            The patients by the ids of the volumes.
        """
        return self.cases.set_index(self.cases["case_id"].astype(str))["patient_id"].astype(object)

    def patient_of_lesion(self) -> pd.Series:
        """Look up the patient of each lesion.

        Returns:
            The patients in the order of the lesions.
        """
        return self.lesions["case_id"].astype(str).map(self.patients())

    def warnings(self) -> list[str]:
        """Name the models that are left out.

        Returns:
            One sentence, or none.
        """
        if not self.without:
            return []
        return [
            f"The difficulty of the lesions leaves out {', '.join(self.without)}: it needs the nearest lesion of every "
            "box (column nearest_lesion_id of events.parquet), which these results do not have. Score them again."
        ]


def lesions_of_models(scores: Mapping[str, Scores]) -> LesionsOfModels:
    """Collect the lesions and the events of several models on the same cases.

    Args:
        scores: The scores of each model by its name.

    Returns:
        The lesions; none where no model has events.
    """
    events: dict[str, pd.DataFrame] = {}
    described = []
    without = [name for name, one in scores.items() if one.events is None]
    for name, one in scores.items():
        if one.events is None:
            continue
        by_nearest = events_by_nearest(one.events, matching=one.protocol.detection.matching)
        if by_nearest is None:
            without.append(name)
            continue
        events[name] = by_nearest
        described.append(lesions_in(one.events))
    first = next(iter(scores.values()))
    rules = first.protocol.detection
    lesions = pd.DataFrame(columns=LESION_KEY)
    if described:
        # A result of an earlier version describes its lesions less: the fullest description stands.
        described.sort(key=lambda table: -len(table.columns))
        lesions = pd.concat(described).drop_duplicates(LESION_KEY).reset_index(drop=True)
    points = (rules.all_operating_point, *rules.positive_operating_points)
    return LesionsOfModels(
        events=events,
        lesions=lesions,
        strata=strata_of(lesions, first.cases),
        cases=first.cases,
        without=tuple(without),
        points=tuple(dict.fromkeys(float(point) for point in points)),
    )


def strata_of(lesions: pd.DataFrame, cases: pd.DataFrame) -> dict[str, pd.Series]:
    """Divide lesions by size, class, distortion, projection and vendor, as far as these are known.

    Args:
        lesions: The lesions, as `lesions_in` lists them.
        cases: The volumes, with `view`, `vendor` or `breast_density` where they are known.

    Returns:
        The level of each lesion by attribute. Attributes with a single level are left out. Sizes are thirds of these
        lesions by the diagonal of their boxes.
    """
    out: dict[str, pd.Series] = {}
    if lesions.empty:
        return out
    if "lesion_diagonal_px" in lesions.columns:
        out["size"] = _thirds(lesions["lesion_diagonal_px"].astype(float))
    if "lesion_class" in lesions.columns:
        out["class"] = lesions["lesion_class"].astype("string")
    if "lesion_distortion" in lesions.columns:
        distorted = lesions["lesion_distortion"].astype(float).map({1.0: "yes", 0.0: "no"})
        out["architectural distortion"] = distorted.astype("string")
    of_case = cases.set_index(cases["case_id"].astype(str))
    case_id = lesions["case_id"].astype(str)
    if "view" in cases.columns:
        view = case_id.map(of_case["view"]).astype("string").str.lower()
        out["projection"] = view.str.extract(r"(mlo|cc)", expand=False).str.upper()
    for column, name in (("vendor", "vendor"), ("breast_density", "breast density")):
        if column in cases.columns:
            out[name] = case_id.map(of_case[column]).astype("string")
    return {name: levels for name, levels in out.items() if len(levels.unique()) > 1}


def _thirds(diagonal: pd.Series) -> pd.Series:
    """Thirds of the diagonals; fewer groups where many lesions are of one size."""
    known = diagonal.dropna()
    edges = sorted({float(x) for x in np.percentile(known, [100 / 3, 200 / 3])}) if len(known) else []
    edges = [edge for edge in edges if edge < known.max()]
    if not edges:
        return pd.Series(pd.NA, index=diagonal.index, dtype="string")
    inner = [f"{low:.0f} to {high:.0f} px" for low, high in itertools.pairwise(edges)]
    names = [f"up to {edges[0]:.0f} px", *inner, f"over {edges[-1]:.0f} px"]
    return pd.Series(pd.cut(diagonal, [-np.inf, *edges, np.inf], labels=names), index=diagonal.index)


def difficulty_of(held: LesionsOfModels) -> dict[str, Any]:
    """Compute the difficulty of the lesions, who finds what, and both by group.

    Args:
        held: The lesions and events of several models.

    Returns:
        `difficulty` and `who_finds_what`; empty without lesions.
    """
    if held.lesions.empty:
        return {}
    made = lesion_difficulty(held.events, volumes=len(held.cases), lesions=held.lesions, budget=BUDGET)
    found = held.found()
    part = made.to_dict()
    described = _described(held).set_index(LESION_KEY)
    keys = pd.MultiIndex.from_frame(made.table[LESION_KEY]).take(np.arange(len(part["hardest"])))
    for row, (_, known) in zip(part["hardest"], described.reindex(keys).iterrows(), strict=True):
        row |= {
            name: None if pd.isna(known[name]) else str(known[name]) for name in OF_LESIONS if name in known
        }
    part["strata"] = found_by_stratum(found, held.strata, held.patient_of_lesion(), budget=BUDGET)
    return {"difficulty": part, "who_finds_what": who_finds_what(found, budget=BUDGET)}


def _described(held: LesionsOfModels) -> pd.DataFrame:
    known = {name: levels.astype("string").to_numpy() for name, levels in held.strata.items()}
    return held.lesions[LESION_KEY].assign(**known)


def lesions_table(held: LesionsOfModels) -> pd.DataFrame:
    """List the lesions one by one, hardest first, with their ids: for the hospital alone.

    Args:
        held: The lesions and events of several models.

    Returns:
        `difficulty_rank, case_id, lesion_id, detected_by, mean_fp_per_volume`, what is known of the lesion, and
        for each model `fp_per_volume NAME`, what the lesion costs it (empty where no box hits it).
    """
    if held.lesions.empty:
        return pd.DataFrame()
    made = lesion_difficulty(held.events, volumes=len(held.cases), lesions=held.lesions, budget=BUDGET)
    found = held.found()
    cost = pd.DataFrame(
        np.where(np.isfinite(found.cost), found.cost, np.nan),
        columns=[f"fp_per_volume {name}" for name in found.models],
    )
    known = pd.concat([_described(held), cost], axis=1)
    table = made.table.rename(columns={"rank": "difficulty_rank"}).drop(columns="algorithms")
    table = table.merge(known, on=LESION_KEY, how="left")
    return table[["difficulty_rank", *(name for name in table.columns if name != "difficulty_rank")]]


def paired_lesions(held: LesionsOfModels, *, baseline: str | None, resampling: Resampling) -> dict[str, Any]:
    """Compare models lesion by lesion at equal budgets of false positives.

    Args:
        held: The lesions and events of several models.
        baseline: The model that all others are compared with; None, or a model without events, for every pair, or with
            more than 8 models for the first one.
        resampling: How many exchanges and resamples are drawn.

    Returns:
        `lesions_paired`: the pairs at the main budget with Holm's correction; with at most 15 pairs also at the
        other budgets and by group of lesions. Empty with fewer than two models or without lesions.
    """
    if held.lesions.empty or len(held.events) < 2:
        return {}
    found, patients = held.found(), held.patients()
    baseline = baseline if baseline in found.models else None
    of_first = baseline is None and len(found.models) > MOST_MODELS_IN_ALL_PAIRS
    baseline = found.models[0] if of_first else baseline
    main, *others = held.points
    pairs = pairs_of(found.models, baseline)
    rows = compare_pairs(found, patients, budget=main, resampling=resampling, baseline=baseline)
    part: dict[str, Any] = {
        "matching": "nearest",
        "budget_fp_per_volume": main,
        "baseline": baseline,
        "baseline_is_the_first_model": of_first,
        "pairs": [row.to_dict() for row in rows],
    }
    if len(pairs) <= MOST_PAIRS_IN_DETAIL:
        part["other_budgets"] = [
            row.to_dict()
            for budget in others
            for row in compare_pairs(found, patients, budget=budget, resampling=resampling, baseline=baseline)
        ]
        part["strata"] = [
            row.to_dict()
            for pair in pairs
            for row in compare_by_stratum(
                found, patients, held.strata, pair=pair, budget=main, resampling=resampling
            )
        ]
    return {"lesions_paired": part}
