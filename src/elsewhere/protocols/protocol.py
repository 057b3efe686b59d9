"""A protocol is frozen, declarative data: the matching, empty-mask, missing, group, combination and
interval rules of a scoring, with a name and a version that are reported with every number.

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
"""Marks what changes no number: which metric leads, which cohorts the protocol is the default of, and which
protocol a result names next to it. It is in no digest."""


@dataclass(frozen=True, kw_only=True)
class IntervalRules:
    """How confidence intervals are computed (ST-02, ST-03).

    Args:
        method: One interval method for all metrics, as challenges name it; None: each metric's own default.
        resamples: Bootstrap resamples.
        seed: Seed of the resampling.
        level: Confidence level, such as 0.95.
        by_site: Whether patients are resampled within each site.
        by_class: Whether patients are resampled within each class, for metrics that ask for it.

    Example:
        >>> IntervalRules(resamples=2000).level
        0.95
    """

    method: str | None = None
    resamples: int = 1000
    seed: int = 42
    level: float = 0.95
    by_site: bool = True
    by_class: bool = True


@dataclass(frozen=True, kw_only=True)
class DetectionRules:
    """When a predicted box hits a lesion, and where the FROC curve is read (DBT-03 to DBT-05).

    The table of protocols.md compares the paper with the published code.

    Args:
        radius: The reach of a lesion in the plane, from the diagonal of its box: "half-of-larger" is
            max(diagonal, floor) / 2, "larger-of-half-and-floor" is max(diagonal / 2, floor).
        floor_px: The floor of `radius`, in pixels.
        radius_inclusive: Whether a distance equal to the radius is a hit.
        slice_fraction: The reach in depth, as a share of the volume's slices.
        slice_inclusive: Whether a distance equal to the reach in depth is a hit.
        matching: Which lesion takes a box that hits several: "challenge" the first listed, "nearest" the
            closest.
        positive_operating_points: False positives per volume at which the curve of positive volumes is read;
            the score is the mean sensitivity.
        all_operating_point: False positives per volume at which the curve of all volumes is read.

    Example:
        >>> DetectionRules(matching="nearest").positive_operating_points
        (1.0, 2.0, 3.0, 4.0)
    """

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
    """How masks are compared, and what an empty mask scores (MRI-03; the table of protocols.md).

    Args:
        distance: "hausdorff_mm": the Hausdorff distance in mm; "hausdorff95_contour_voxels": the 95th
            percentile between contour voxels, in voxel indices.
        normaliser: The distance is divided by this to give the normalised distance NormHD.
        cut_to_one: Whether NormHD is cut to 1.
        both_empty: (Dice, NormHD) where prediction and truth are empty, or "undefined".
        one_empty: (Dice, NormHD) where only one of them is empty.
        empty_distance_mm: The distance in mm that an empty prediction or truth counts as.

    Example:
        >>> SegmentationRules(both_empty=(1.0, 0.0)).one_empty
        (0.0, 1.0)
    """

    distance: Literal["hausdorff_mm", "hausdorff95_contour_voxels"] = "hausdorff_mm"
    normaliser: float = 150.0
    cut_to_one: bool = True
    both_empty: tuple[float, float] | Literal["undefined"] = "undefined"
    one_empty: tuple[float, float] = (0.0, 1.0)
    empty_distance_mm: float = 150.0


@dataclass(frozen=True, kw_only=True)
class ResponseRules:
    """How a probability of response becomes a decision (MRI-05).

    Args:
        threshold: The probability from which a response is predicted.
        threshold_inclusive: Whether a probability equal to the threshold is positive; otherwise it has to be
            greater.
        constant_is_invalid: Whether predictions that give every patient the same decision are refused.

    Example:
        >>> ResponseRules(threshold=0.3).constant_is_invalid
        True
    """

    threshold: float = 0.5
    threshold_inclusive: bool = True
    constant_is_invalid: bool = True


@dataclass(frozen=True, kw_only=True)
class FairnessRules:
    """How patients are grouped, and how the disparity between groups is computed (MRI-04 to MRI-07).

    Args:
        variables: The clinical columns whose groups are compared.
        age_upper_edges: Upper ends of the age groups in years, half-open intervals (lower, upper]; one more
            group lies above the last.
        age_lowest: Ages up to this are left out; None: no limit.
        age_highest: Ages above this are left out; None: no limit.
        unknown_menopausal: Whether an unknown status is "left-out" or an "own-group".
        peri_counts_as: Whether perimenopausal patients are an "own-group" or count as "pre".
        rate_without_denominator: Whether a group without positives (or negatives) is "left-out" of the range
            of that rate or has a rate of "zero".
        same_class_group_is_zero: Whether both rates of a group are 0 where all its cases are of one class and
            all are decided correctly, as the published code computes it.
        cut_mean_disparity_to_one: Whether the mean disparity over variables is cut to 1.
        fairness_weight: The weight of fairness in the combined score, 0 to 1.
        one_group_disparity: What the range over groups is where only one group has a value. The published
            challenge counts it as "zero", which makes a model perfectly fair over a variable that says
            nothing.

    Example:
        >>> FairnessRules(fairness_weight=0.0).variables
        ('age', 'menopausal_status', 'breast_density')
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
    """How a probability of malignancy is judged and calibrated (US-15 to US-18).

    Args:
        threshold: The probability from which a case is called malignant; a probability equal to it is
            positive.
        bins: Equal-width bins of the calibration errors.
        nll_epsilon: Probabilities are kept this far from 0 and 1 in the log loss, where scikit-learn's log
            loss cuts too, so that both agree.
        temperature_bounds: The smallest and the largest temperature of recalibration.
        calibration_min_cases: The fewest validation cases from which a temperature is fitted.
        calibration_min_per_class: The fewest of them of each class.
        normal_min_cases: The fewest answered normal pictures for comparing lesions with normal pictures.

    Example:
        >>> ClassificationRules(threshold=0.3).bins
        10
    """

    threshold: float = 0.5
    bins: int = 10
    nll_epsilon: float = 2.0**-52
    temperature_bounds: tuple[float, float] = (0.5, 5.0)
    calibration_min_cases: int = 40
    calibration_min_per_class: int = 10
    normal_min_cases: int = 20


@dataclass(frozen=True, kw_only=True)
class SlideRules:
    """How metastases in slides are staged, and how the lesion FROC is computed (LN-14 to LN-17).

    Args:
        macro_above_mm: A metastasis longer than this is a macro-metastasis, in mm.
        micro_above_mm: A shorter one that is longer than this is a micro-metastasis, in mm; the rest are
            isolated tumour cells.
        stage_axis: What its length is: "equal-moments-ellipse", the major axis of the ellipse of equal second
            moments, or "feret", the largest Feret diameter.
        froc_points: False positives per slide at which the curve is read; the score is the mean sensitivity.
        froc_grow_um: How far the annotation is grown on each side, in micrometres.
        froc_itc_below_um: Regions with a major axis below this after growing are isolated tumour cells and
            are not counted, in micrometres.
        froc_missed_as_zero: Whether missed lesions enter the list of thresholds as 0, as in the published
            script.
        froc_drop_lowest_threshold: Whether the lowest threshold is dropped, as in the published script.
        missing_patient_is_error: Whether a submission without a stage for a patient is refused, as CAMELYON17
            refuses it; otherwise the patient counts as the worst stage.
        itc: Whether slides with isolated tumour cells alone count as "negative" in sensitivity, specificity, precision
            and F1, or are "left-out" of them.
        stage_pixels: On which pixels masks are staged and compared: "own", those of the masks, or "8um", cells of about
            8 microns (16x down of 20x).
        boundary_um: How far from the annotated line pixels count as near it, in micrometres.
        recall_edges_mm: Diameters at which lesions are divided for their recall, in mm, rising.

    Example:
        >>> SlideRules().macro_above_mm
        2.0
    """

    macro_above_mm: float = 2.0
    micro_above_mm: float = 0.2
    stage_axis: Literal["equal-moments-ellipse", "feret"] = "equal-moments-ellipse"
    froc_points: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    froc_grow_um: float = 37.5
    froc_itc_below_um: float = 275.0
    froc_missed_as_zero: bool = False
    froc_drop_lowest_threshold: bool = False
    missing_patient_is_error: bool = field(default=False, metadata={"digest": True})
    # Every digest holds True here, the value that all protocols once had: the rule decides what is accepted,
    # and changes no score.
    itc: Literal["negative", "left-out"] = field(default="negative", metadata=_LATER)
    stage_pixels: Literal["own", "8um"] = field(default="own", metadata=_LATER)
    boundary_um: float = field(default=37.5, metadata=_LATER)
    recall_edges_mm: tuple[float, ...] = field(default=(0.2, 0.5, 1.0, 2.0, 5.0), metadata=_LATER)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A named, versioned set of scoring rules.

    Args:
        name: The name by which it is registered and asked for.
        version: The version, which goes with every number.
        title: What it is, in a few words.
        tasks: The tasks it was written for. A task may accept further protocols (`Task.protocols`).
        source: The paper or code that the rules follow.
        interval: Rules of confidence intervals.
        classification: Rules of the task 'classification'.
        detection: Rules of the task 'detection'.
        segmentation: Rules of the task 'segmentation'.
        response: Rules of the task 'response'.
        slides: Rules of the task 'slides'.
        fairness: Rules of subgroups.
        notes: What a reader of the numbers must know of the rules, one sentence each.
        task_rules: The rules of a task of another package, by their names: numbers, words or truth values.
        headline: The metrics that lead a report, the first that the task has; empty: the task's primary
            metric.
        default_for: The cohort readers whose cohorts are scored by it where the user names no protocol.
        digest_texts: Title, source or notes as they were when the protocol was first published, where they have
            been reworded since: the digest holds these, so that stored results still open.
        counterpart: The protocol with the other rules of the same challenge, where paper and published code
            differ; a result names it. Empty: there is none.

    Example:
        >>> ward = Protocol(name="ward", version="1", title="Our ward", tasks=("response",), source="us")
        >>> ward.response.threshold, len(ward.digest())
        (0.5, 16)
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
    digest_texts: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata=_NO_RULE)
    counterpart: str = field(default="", metadata=_NO_RULE)

    def to_dict(self) -> dict[str, Any]:
        """Return all rules as nested mappings.

        Returns:
            The fields of the protocol by name.
        """
        return dataclasses.asdict(self)

    def digest(self) -> str:
        """Compute a hash of the rules: two protocols of one name cannot be taken for each other.

        Rules that were added after protocols had been published change no digest at their default (see
        `_LATER`), and what changes no number is in no digest (see `_NO_RULE`). Reworded texts change no digest either (see
        `digest_texts`).

        Returns:
            The first 16 hexadecimal digits of a SHA-256.
        """
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
        text = json.dumps(rules | dict(self.digest_texts), sort_keys=True)
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
        A protocol of your own, once per process::

            ward = Protocol(name="ward", version="1", title="Our ward", tasks=("classification",), source="our ward")
            add_protocol(ward)
            protocols.get("ward")
    """
    protocols.add(protocol.name, protocol, owner=sys._getframe(1).f_globals.get("__name__"))
    return protocol
