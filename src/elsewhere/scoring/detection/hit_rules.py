"""Does the ranking depend on the rule of a hit? Every model is scored again under many rules.

A rule has three parts: how near a box must lie in the plane (a radius with a floor, half the lesion's diagonal, or a
smallest intersection over union), how near in depth, and which lesion takes a box that could hit several. The two
protocols of the DBTex challenge are two such rules: the paper's floor of the radius is 50 px, that of the organisers'
code 100 px, and they differ on every lesion whose diagonal is below 200 px.

Which boxes could hit which lesions at all does not depend on the rule. Distances and overlaps are therefore computed once
per model, and boxes are sorted once; a rule then only compares numbers (`Candidates`). The values are those of a separate
evaluation, to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import DetectionRules
from elsewhere.scoring.detection.froc import SortedFroc
from elsewhere.scoring.detection.matching import Boxes, Lesions, hit_radius_px
from elsewhere.statistics.found_lesions import FloatArray

IntArray = npt.NDArray[np.int64]
Matching = Literal["challenge", "nearest"]
PAPER = DetectionRules()
CODE = DetectionRules(radius="larger-of-half-and-floor", radius_inclusive=True)


@dataclass(frozen=True, kw_only=True)
class InPlane:
    """How near a box must lie to a lesion in the plane.

    Args:
        name: What users call it.
        radius: The rules whose radius holds between the centres; None where the overlap decides.
        min_iou: The smallest intersection over union of box and lesion; used where `radius` is None.
    """

    name: str
    radius: DetectionRules | None = None
    min_iou: float = 0.0


def in_plane_rules(
    *, floors: Sequence[float] = (50.0, 100.0), ious: Sequence[float] = (0.1, 0.3, 0.5)
) -> tuple[InPlane, ...]:
    """List in-plane rules: radii with a floor, half the diagonal, and overlaps.

    Args:
        floors: The smallest radii in pixels. A floor of 50 is the rule of the challenge's paper, 100 that of its
            code.
        ious: The smallest intersections over union, each above 0 and at most 1.

    Returns:
        The rules, in this order.

    Raises:
        UserError: A floor is negative, or an overlap is outside of its range.

    Example:
        >>> [rule.name for rule in in_plane_rules(ious=(0.2,))]
        ['radius, at least 50 px', 'radius, at least 100 px', 'half the diagonal', 'IoU at least 0.2']
    """
    if any(not 0 < x <= 1 for x in ious) or any(not x >= 0 for x in floors):
        raise UserError(
            "a hit rule is outside of its range",
            fix="An intersection over union lies above 0 and is at most 1; a radius is not negative.",
        )
    radii = [
        InPlane(
            name=f"radius, at least {floor:g} px",
            radius=PAPER
            if floor == PAPER.floor_px / 2
            else DetectionRules(radius=CODE.radius, radius_inclusive=True, floor_px=floor),
        )
        for floor in floors
    ]
    half = DetectionRules(radius=CODE.radius, radius_inclusive=True, floor_px=0.0)
    overlaps = [InPlane(name=f"IoU at least {x:g}", min_iou=x) for x in ious]
    return (*radii, InPlane(name="half the diagonal", radius=half), *overlaps)


@dataclass(frozen=True, kw_only=True)
class HitRules:
    """The rules that are compared: every in-plane rule with every reach in depth and every matching.

    Args:
        in_plane: How near in the plane.
        slice_fractions: How near in depth, as shares of the volume's slices.
        matchings: Which lesion takes a box that could hit several.
    """

    in_plane: tuple[InPlane, ...] = field(default_factory=in_plane_rules)
    slice_fractions: tuple[float, ...] = (0.05, 0.1, 0.15, 0.25, 0.5)
    matchings: tuple[Matching, ...] = ("challenge", "nearest")

    def __post_init__(self) -> None:
        if not (self.in_plane and self.slice_fractions and self.matchings):
            raise UserError("there is no hit rule", fix="Name at least one of each part of a rule.")
        if any(not 0 < x <= 1 for x in self.slice_fractions):
            raise UserError(
                "a slice tolerance is outside of its range",
                fix="Give shares of the volume's slices above 0 and at most 1, such as 0.25.",
            )

    def __len__(self) -> int:
        return len(self.in_plane) * len(self.slice_fractions) * len(self.matchings)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The pairs of a model's boxes and the lesions of their volumes, with all that a hit rule asks for.

    Boxes without a lesion in their volume have no pair. The pairs of a box follow each other in the order of the lesions'
    table.

    Attributes:
        froc: The curve of the boxes.
        boxes: The boxes that have pairs, as places in the order of the scores.
        starts: First pair of each of them, and the number of pairs.
        count: How many boxes there are in all.
        lesion: The lesion of each pair.
        in_plane: Distance of the centres in the plane, in pixels.
        depth: Distance of the centres in depth, in slices; 0 for lesions without a slice.
        slices: How many slices the volume has, by its first lesion as in matching; infinite for lesions without a
            slice.
        iou: Intersection over union in the plane.
        distance: Distance of the centres in three dimensions.
        lesions: How many lesions there are.
    """

    froc: SortedFroc
    boxes: IntArray
    starts: IntArray
    count: int
    lesion: IntArray
    in_plane: FloatArray
    depth: FloatArray
    slices: FloatArray
    iou: FloatArray
    distance: FloatArray
    lesions: int


@dataclass(frozen=True, kw_only=True)
class TruthOfRules:
    """The lesions that hit rules are compared on.

    Attributes:
        boxes: The lesions.
        lesions_of_case: How many lesions each volume has.
        rules: The rules of the protocol that ranks.
    """

    boxes: Lesions
    lesions_of_case: IntArray
    rules: DetectionRules


def make_candidates(
    boxes: Boxes, score: FloatArray, valid: npt.NDArray[np.bool_], truth: TruthOfRules
) -> Candidates:
    """Compute what every hit rule asks of one model's boxes.

    Args:
        boxes: The boxes.
        score: Their scores.
        valid: False for boxes that can hit nothing.
        truth: The lesions.

    Returns:
        The pairs.
    """
    lesions = truth.boxes
    froc = SortedFroc(truth.rules, case=boxes.volume, score=score, lesions_of_case=truth.lesions_of_case)
    n_volumes = truth.lesions_of_case.size
    order = np.argsort(lesions.volume, kind="stable").astype(np.int64)
    first = np.concatenate([[0], np.cumsum(truth.lesions_of_case)]).astype(np.int64)
    volume = np.where(valid, boxes.volume, -1)[froc.order]
    paired = np.flatnonzero((volume >= 0) & (np.append(truth.lesions_of_case, 0)[volume] > 0))
    counts = truth.lesions_of_case[volume[paired]]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    row = np.repeat(np.arange(paired.size), counts)
    within = np.arange(row.size) - starts[row]
    lesion = order[first[volume[paired[row]]] + within] if row.size else np.empty(0, dtype=np.int64)
    box = froc.order[paired[row]]
    slices = np.full(lesions.volume.size, np.nan)
    if lesions.volume.size and n_volumes:
        slices = lesions.volume_slices[order[first[:-1][lesions.volume]]]
    dx = (boxes.x + boxes.width / 2.0)[box] - (lesions.x + lesions.width / 2.0)[lesion]
    dy = (boxes.y + boxes.height / 2.0)[box] - (lesions.y + lesions.height / 2.0)[lesion]
    dz = np.abs((boxes.z + boxes.depth / 2.0)[box] - lesions.slice[lesion])
    flat = np.isnan(lesions.slice)[lesion]
    dz = np.where(flat, 0.0, dz)
    return Candidates(
        froc=froc,
        boxes=paired.astype(np.int64),
        starts=starts,
        count=volume.size,
        lesion=lesion,
        in_plane=np.sqrt(dx * dx + dy * dy),
        depth=dz,
        slices=np.where(flat, np.inf, slices[lesion]),
        iou=_iou(boxes, lesions, box, lesion),
        distance=np.sqrt(dx * dx + dy * dy + dz * dz),
        lesions=lesions.volume.size,
    )


def _iou(boxes: Boxes, lesions: Lesions, box: IntArray, lesion: IntArray) -> FloatArray:
    width = np.minimum((boxes.x + boxes.width)[box], (lesions.x + lesions.width)[lesion]) - np.maximum(
        boxes.x[box], lesions.x[lesion]
    )
    height = np.minimum((boxes.y + boxes.height)[box], (lesions.y + lesions.height)[lesion]) - np.maximum(
        boxes.y[box], lesions.y[lesion]
    )
    both = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    union = (boxes.width * boxes.height)[box] + (lesions.width * lesions.height)[lesion] - both
    return np.divide(both, union, out=np.zeros(both.size), where=union > 0)


@numba.njit(cache=True, nogil=True)
def _choose(
    starts: IntArray,
    lesion: IntArray,
    qualifies: npt.NDArray[np.bool_],
    distance: FloatArray,
    nearest: bool,
    hit: IntArray,
) -> None:
    for i in range(hit.size):
        hit[i] = -1
        best = np.inf
        for k in range(starts[i], starts[i + 1]):
            if not qualifies[k]:
                continue
            if not nearest:
                hit[i] = lesion[k]
                break
            if distance[k] < best:
                best = distance[k]
                hit[i] = lesion[k]


@dataclass(frozen=True, kw_only=True)
class RuleHits:
    """What one model's boxes do under all rules.

    Attributes:
        values: (rules, 2) the primary and the secondary metric.
        box_hits: For each box, in the order of its score, the number of rules under which it hits a lesion.
        lesion_hits: For each lesion the number of rules under which some box hits it.
    """

    values: FloatArray
    box_hits: IntArray
    lesion_hits: IntArray


def evaluate_rules(candidates: Candidates, truth: TruthOfRules, rules: HitRules) -> RuleHits:
    """Score one model under every rule.

    Args:
        candidates: The pairs of its boxes and the lesions.
        truth: The lesions.
        rules: The rules.

    Returns:
        Values and hits, the rules in the order of `rule_table`.
    """
    base = truth.rules
    in_depth = [
        candidates.depth <= candidates.slices * fraction
        if base.slice_inclusive
        else candidates.depth < candidates.slices * fraction
        for fraction in rules.slice_fractions
    ]
    values = np.empty((len(rules), 2))
    box_hits = np.zeros(candidates.boxes.size, dtype=np.int64)
    lesion_hits = np.zeros(candidates.lesions, dtype=np.int64)
    hit = np.empty(candidates.boxes.size, dtype=np.int64)
    at = 0
    for plane in rules.in_plane:
        near = _near_in_plane(candidates, truth.boxes, plane)
        for within in in_depth:
            qualifies = near & within
            for matching in rules.matchings:
                _choose(
                    candidates.starts,
                    candidates.lesion,
                    qualifies,
                    candidates.distance,
                    matching == "nearest",
                    hit,
                )
                values[at] = candidates.froc.values(candidates.boxes, hit)
                is_hit = hit >= 0
                box_hits += is_hit
                lesion_hits[np.unique(hit[is_hit])] += 1
                at += 1
    of_all = np.zeros(candidates.count, dtype=np.int64)
    of_all[candidates.boxes] = box_hits
    return RuleHits(values=values, box_hits=of_all, lesion_hits=lesion_hits)


def _near_in_plane(candidates: Candidates, lesions: Lesions, plane: InPlane) -> npt.NDArray[np.bool_]:
    if plane.radius is None:
        return np.asarray(candidates.iou >= plane.min_iou, dtype=bool)
    radius = hit_radius_px(lesions.width, lesions.height, plane.radius)[candidates.lesion]
    if plane.radius.radius_inclusive:
        return np.asarray(candidates.in_plane <= radius, dtype=bool)
    return np.asarray(candidates.in_plane < radius, dtype=bool)


def rule_table(rules: HitRules) -> pd.DataFrame:
    """List the rules, one row per rule.

    Args:
        rules: The rules.

    Returns:
        `in_plane`, `slice_tolerance` (a share of the slices) and `matching`.

    Example:
        >>> len(rule_table(HitRules()))
        60
    """
    rows = itertools.product([plane.name for plane in rules.in_plane], rules.slice_fractions, rules.matchings)
    return pd.DataFrame(list(rows), columns=["in_plane", "slice_tolerance", "matching"])
