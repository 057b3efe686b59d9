"""The map of hit rules: where the ranks of several models change, and whose boxes and lesions are in doubt."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import DetectionRules, Protocol
from elsewhere.scoring.detection.hit_rules import (
    CODE,
    PAPER,
    Candidates,
    HitRules,
    InPlane,
    RuleHits,
    TruthOfRules,
    evaluate_rules,
    make_candidates,
    rule_table,
)
from elsewhere.scoring.detection.matching import hit_radius_px
from elsewhere.scoring.detection.prepared_boxes import PreparedBoxes, prepare_boxes
from elsewhere.scoring.detection.tables import as_boxes, as_lesions
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.ranking import ranks_of

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

_EQUAL = 1e-12
PRIMARY, SECONDARY = range(2)


@dataclass(frozen=True, kw_only=True)
class ModelUnderRules:
    """One model under the protocol's own rule, under all rules, and under the two rules of the challenge.

    Attributes:
        rules: All rules.
        own: The protocol's own rule.
        every: What the model does under all rules.
        paper: The rule of the challenge's paper, with the matching and the reach in depth of the protocol.
        code: The rule of the challenge's code, in the same way.
        volumes: How many volumes there are.
        keys: `case_id` and `lesion_id` of each lesion.
        radii_differ: For each lesion, whether the paper's and the code's radius differ.
    """

    rules: HitRules
    own: RuleHits
    every: RuleHits
    paper: RuleHits
    code: RuleHits
    volumes: int
    keys: pd.DataFrame
    radii_differ: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class HitRuleMap:
    """Values and ranks of several models under many hit rules.

    Attributes:
        summary: What a report shows; it names no case.
        table: One row per rule and model: the rule, the model, its value and rank. It names no case.
        lesions: One row per lesion: under how many rules some box of each model hits it. It names cases.
    """

    summary: dict[str, Any]
    table: pd.DataFrame
    lesions: pd.DataFrame


def score_under_rules(
    cohort: Cohort,
    predictions: Predictions,
    protocol: Protocol,
    options: ScoreOptions,
    rules: HitRules | None = None,
) -> ModelUnderRules:
    """Score the boxes of one model under many hit rules.

    Args:
        cohort: The cohort.
        predictions: The boxes.
        protocol: The protocol that ranks: its operating points, and the rule that others are compared with.
        options: What the user set besides the protocol.
        rules: The rules; None for the 60 of `HitRules`.

    Returns:
        The values and hits.

    Raises:
        UserError: A table lacks a column, a value is not allowed, or the boxes have no slices and the lesions have.
    """
    held = prepare_boxes(cohort, predictions, options)
    if held.lesions["slice"].notna().any() and len(held.boxes) and held.boxes["z"].isna().all():
        raise UserError(
            "the boxes have no slices (z, depth), but the lesions have",
            where=predictions.source,
            fix="Give z (first slice) and depth: a box must lie near the lesion's slice to hit it.",
        )
    return under_rules(held, protocol, rules)


def under_rules(held: PreparedBoxes, protocol: Protocol, rules: HitRules | None = None) -> ModelUnderRules:
    """Score boxes that were checked before under many hit rules.

    Args:
        held: The boxes and the lesions.
        protocol: The protocol that ranks: its operating points, and the rule that others are compared with.
        rules: The rules; None for the 60 of `HitRules`.

    Returns:
        The values and hits.
    """
    lesions = as_lesions(held.lesions)
    truth = TruthOfRules(
        boxes=lesions,
        lesions_of_case=np.bincount(lesions.volume, minlength=len(held.cases)).astype(np.int64),
        rules=protocol.detection,
    )
    candidates = make_candidates(as_boxes(held.boxes, held.volume), held.score, ~held.invalid, truth)
    radii = [hit_radius_px(lesions.width, lesions.height, one) for one in (PAPER, CODE)]
    rules = rules or HitRules()
    return ModelUnderRules(
        rules=rules,
        own=_single(candidates, truth, protocol.detection),
        every=evaluate_rules(candidates, truth, rules),
        paper=_single(candidates, truth, PAPER),
        code=_single(candidates, truth, CODE),
        volumes=len(held.cases),
        keys=held.lesions[["case_id", "lesion_id"]],
        radii_differ=np.asarray(radii[0] != radii[1], dtype=bool),
    )


def _single(candidates: Candidates, truth: TruthOfRules, radius: DetectionRules) -> RuleHits:
    own = truth.rules
    return evaluate_rules(
        candidates,
        truth,
        HitRules(
            in_plane=(InPlane(name="", radius=radius),),
            slice_fractions=(own.slice_fraction,),
            matchings=(own.matching,),
        ),
    )


def map_of_rules(models: Mapping[str, ModelUnderRules]) -> HitRuleMap:
    """Compare the ranks of several models over hit rules.

    Args:
        models: The models by their names, on the same cohort, by the same protocol and under the same rules.

    Returns:
        The map.

    Raises:
        UserError: There is no model.
    """
    if not models:
        raise UserError("no model to score under other hit rules", fix="Give at least one prediction file.")
    names = list(models)
    first = next(iter(models.values()))
    table = rule_table(first.rules)
    values = np.column_stack([one.every.values[:, PRIMARY] for one in models.values()])
    second = np.column_stack([one.every.values[:, SECONDARY] for one in models.values()])
    own = np.array([one.own.values[0, PRIMARY] for one in models.values()])
    ranks = np.stack([ranks_of(row) for row in values])
    own_ranks = ranks_of(own)
    flips = _flips(values, own, names)
    changed = np.stack([flip["under"] for flip in flips], axis=1) if flips else np.zeros((len(values), 0))
    rows = []
    for at, rule in enumerate(table.to_dict(orient="records")):
        rows.append(
            {
                **{str(key): value for key, value in rule.items()},
                "leaders": [names[m] for m in np.flatnonzero(ranks[at] == 1)],
                "pairs_in_other_order": int(changed[at].sum()),
                "ranks": ranks[at].tolist(),
                "values": [_number(x) for x in values[at]],
            }
        )
    summary = {
        "rules": len(table),
        "in_plane": list(dict.fromkeys(table["in_plane"])),
        "slice_tolerances": list(dict.fromkeys(table["slice_tolerance"])),
        "matchings": list(dict.fromkeys(table["matching"])),
        "pairs_of_models": len(names) * (len(names) - 1) // 2,
        "rules_with_another_leader": int(
            sum(set(row["leaders"]) != {names[m] for m in np.flatnonzero(own_ranks == 1)} for row in rows)
        ),
        "rules_with_another_order": int((changed.sum(axis=1) > 0).sum()),
        "models": [
            _model_row(name, one, k, values=values, ranks=ranks, own_rank=int(own_ranks[k]))
            for k, (name, one) in enumerate(models.items())
        ],
        "changing_pairs": [
            {
                "ahead": flip["ahead"],
                "behind": flip["behind"],
                "rules_in_other_order": int(flip["under"].sum()),
            }
            for flip in flips
            if flip["under"].any()
        ],
        "paper_and_code": _paper_and_code(first, models),
        "map": rows,
    }
    long = pd.concat(
        [
            table.assign(model=name, value=values[:, k], sensitivity_all=second[:, k], rank=ranks[:, k])
            for k, name in enumerate(names)
        ],
        ignore_index=True,
    )
    lesions = first.keys.assign(
        paper_and_code_radius_differ=first.radii_differ,
        **{f"rules_hit {name}": one.every.lesion_hits for name, one in models.items()},
    )
    return HitRuleMap(summary=summary, table=long, lesions=lesions.reset_index(drop=True))


def _model_row(
    name: str,
    one: ModelUnderRules,
    number: int,
    *,
    values: np.ndarray[Any, np.dtype[np.float64]],
    ranks: np.ndarray[Any, np.dtype[np.int64]],
    own_rank: int,
) -> dict[str, Any]:
    rules = len(values)
    known = values[np.isfinite(values[:, number]), number]
    boxes, lesions = one.every.box_hits, one.every.lesion_hits
    return {
        "model": name,
        "value": _number(one.own.values[0, PRIMARY]),
        "rank": own_rank,
        "lowest_value": _number(known.min()) if known.size else None,
        "highest_value": _number(known.max()) if known.size else None,
        "best_rank": int(ranks[:, number].min()),
        "worst_rank": int(ranks[:, number].max()),
        "rules_at_another_rank": int((ranks[:, number] != own_rank).sum()),
        "boxes": int(boxes.size),
        "boxes_always_hits": int((boxes == rules).sum()),
        "boxes_that_change": int(((boxes > 0) & (boxes < rules)).sum()),
        "lesions_always_hit": int((lesions == rules).sum()),
        "lesions_that_change": int(((lesions > 0) & (lesions < rules)).sum()),
        "lesions_never_hit": int((lesions == 0).sum()),
    }


def _flips(
    values: np.ndarray[Any, np.dtype[np.float64]],
    own: np.ndarray[Any, np.dtype[np.float64]],
    names: list[str],
) -> list[dict[str, Any]]:
    """For each pair that the protocol's own rule separates, the rules under which the other one is ahead."""
    out = []
    for a, b in itertools.permutations(range(len(names)), 2):
        if not own[a] > own[b] + _EQUAL:
            continue
        out.append({"ahead": names[a], "behind": names[b], "under": values[:, b] > values[:, a] + _EQUAL})
    return out


def _paper_and_code(first: ModelUnderRules, models: Mapping[str, ModelUnderRules]) -> dict[str, Any]:
    """Where the two rules of the challenge differ: on how many lesions, and what becomes of them."""
    lesions = int(first.radii_differ.size)
    return {
        "lesions": lesions,
        "lesions_with_another_radius": int(first.radii_differ.sum()),
        "share": _number(first.radii_differ.mean()) if lesions else None,
        "models": [
            {
                "model": name,
                "paper": _number(one.paper.values[0, PRIMARY]),
                "code": _number(one.code.values[0, PRIMARY]),
                "lesions_hit_by_one_rule_alone": int((one.paper.lesion_hits != one.code.lesion_hits).sum()),
                "boxes_that_hit_by_one_rule_alone": int((one.paper.box_hits != one.code.box_hits).sum()),
            }
            for name, one in models.items()
        ],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
