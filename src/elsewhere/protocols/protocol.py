"""A protocol is frozen, declarative data: the matching, empty-mask, missing, group, combination and
interval rules of a scoring, with a name and a version that stand beside every number.

It lies below both `scoring` and `statistics`, and imports neither a task nor a model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elsewhere.registry import Registry, object_of

_LATER: Mapping[str, bool] = {"later": True}
"""Marks a rule that was added after protocols had been published: at its default it changes no digest."""
_NO_RULE: Mapping[str, bool] = {"rule": False}
"""Marks what changes no number: which metric leads, and where the protocol is meant. It is in no digest."""


@dataclass(frozen=True, kw_only=True)
class IntervalRules:
    """`method` None: each metric's own default (ST-02, ST-03). Challenges name one for all."""

    method: str | None = None
    resamples: int = 1000
    seed: int = 42
    level: float = 0.95
    by_site: bool = True
    by_class: bool = True


@dataclass(frozen=True, kw_only=True)
class DetectionRules:
    """DBT-03 to DBT-05 and the table of protocols.md."""

    radius: Literal["half-of-larger", "larger-of-half-and-floor"] = "half-of-larger"
    floor_px: float = 100.0
    radius_inclusive: bool = False
    slice_fraction: float = 0.25
    slice_inclusive: bool = True
    matching: Literal["challenge", "nearest"] = "challenge"
    positive_operating_points: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)
    all_operating_point: float = 2.0


@dataclass(frozen=True, kw_only=True)
class SegmentationRules:
    """MRI-03 and the table of protocols.md. `both_empty` is (dice, norm_hd) or 'undefined'."""

    distance: Literal["hausdorff_mm", "hausdorff95_contour_voxels"] = "hausdorff_mm"
    normaliser: float = 150.0
    cut_to_one: bool = True
    both_empty: tuple[float, float] | Literal["undefined"] = "undefined"
    one_empty: tuple[float, float] = (0.0, 1.0)
    empty_distance_mm: float = 150.0


@dataclass(frozen=True, kw_only=True)
class ResponseRules:
    """MRI-05. `threshold_inclusive`: probability >= threshold is positive, else strictly greater."""

    threshold: float = 0.5
    threshold_inclusive: bool = True
    constant_is_invalid: bool = True


@dataclass(frozen=True, kw_only=True)
class FairnessRules:
    """MRI-04 to MRI-07. Age edges are upper ends of half-open intervals (lower, upper].

    `one_group_disparity`: what the range over groups is where only one group has a value. The published
    challenge counts it as 0, which makes a model perfectly fair over a variable that says nothing.
    """

    variables: tuple[str, ...] = ("age", "menopausal_status", "breast_density")
    age_upper_edges: tuple[float, ...] = (40.0, 50.0, 60.0, 70.0)
    age_lowest: float | None = None
    age_highest: float | None = None
    unknown_menopausal: Literal["left-out", "own-group"] = "left-out"
    peri_counts_as: Literal["own-group", "pre"] = "pre"
    rate_without_denominator: Literal["left-out", "zero"] = "left-out"
    same_class_group_is_zero: bool = False
    cut_mean_disparity_to_one: bool = False
    fairness_weight: float = 0.5
    one_group_disparity: Literal["zero", "undefined"] = field(default="zero", metadata=_LATER)


@dataclass(frozen=True, kw_only=True)
class ClassificationRules:
    """US-15 to US-18. `nll_epsilon`: where scikit-learn's log loss cuts too, so that both agree."""

    threshold: float = 0.5
    bins: int = 10
    nll_epsilon: float = 2.0**-52
    temperature_bounds: tuple[float, float] = (0.5, 5.0)
    calibration_min_cases: int = 40
    calibration_min_per_class: int = 10
    normal_min_cases: int = 20


@dataclass(frozen=True, kw_only=True)
class SlideRules:
    """LN-14 to LN-17."""

    macro_above_mm: float = 2.0
    micro_above_mm: float = 0.2
    stage_axis: Literal["equal-moments-ellipse", "feret"] = "equal-moments-ellipse"
    froc_points: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    froc_grow_um: float = 37.5
    froc_itc_below_um: float = 275.0
    froc_missed_as_zero: bool = False
    froc_drop_lowest_threshold: bool = False
    missing_patient_is_error: bool = field(default=False, metadata={"digest": True})
    """Whether a submission without a stage for a patient is refused, as CAMELYON17 refuses it; else the patient counts
    as the worst stage. Every digest holds the word that all protocols once had: it says what is taken, not a score."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A named, versioned set of scoring rules.

    Attributes:
        tasks: The tasks it was written for. A task may accept further protocols (`Task.protocols`).
        headline: The metrics that lead a report, the first that the task has; empty: the task's primary metric.
        task_rules: The rules of a task of another package, by their names: numbers, words or truth values.
        default_for: The cohort readers whose cohorts are scored by it where the user names no protocol.
    """

    name: str
    version: str
    title: str
    tasks: tuple[str, ...]
    source: str
    interval: IntervalRules = field(default_factory=IntervalRules)
    classification: ClassificationRules = field(default_factory=ClassificationRules)
    detection: DetectionRules = field(default_factory=DetectionRules)
    segmentation: SegmentationRules = field(default_factory=SegmentationRules)
    response: ResponseRules = field(default_factory=ResponseRules)
    slides: SlideRules = field(default_factory=SlideRules)
    fairness: FairnessRules = field(default_factory=FairnessRules)
    notes: tuple[str, ...] = ()
    task_rules: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata=_LATER)
    headline: tuple[str, ...] = field(default=(), metadata=_NO_RULE)
    default_for: tuple[str, ...] = field(default=(), metadata=_NO_RULE)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def digest(self) -> str:
        """A hash of the rules themselves: two protocols with one name cannot pass for each other."""
        rules = self.to_dict()
        for part in dataclasses.fields(self):
            unused = part.metadata.get("later") and not getattr(self, part.name)
            if part.metadata.get("rule") is False or unused:
                del rules[part.name]
                continue
            inside = getattr(self, part.name)
            for rule in dataclasses.fields(inside) if dataclasses.is_dataclass(inside) else ():
                if rule.metadata.get("later") and getattr(inside, rule.name) == rule.default:
                    del rules[part.name][rule.name]
                if "digest" in rule.metadata:
                    rules[part.name][rule.name] = rule.metadata["digest"]
        text = json.dumps(rules, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


protocols: Registry[Protocol] = Registry(
    "protocol",
    group="elsewhere.protocols",
    builtin_modules=("elsewhere.protocols.builtin",),
    list_command="elsewhere protocols",
    check=object_of(Protocol),
)


def add_protocol(protocol: Protocol) -> Protocol:
    """Register a protocol under its own name.

    Args:
        protocol: The rules.

    Returns:
        The protocol.

    Raises:
        UserError: Another protocol has this name.

    Example:
        >>> ward = Protocol(name="ward", version="1", title="Our ward", tasks=("classification",), source="our ward")
        >>> add_protocol(ward) is protocols.get("ward")
        True
    """
    protocols.add(protocol.name, protocol, owner=sys._getframe(1).f_globals.get("__name__"))
    return protocol
