"""Regions of a slide's tumour mask: their axes, the stage that follows, and CAMELYON16's lesions.

LN-14: the stage comes from the largest major axis over all 8-connected objects. That axis is the one of
the ellipse of equal second moments (a 200 x 10 px bar gives 231 px); the true extent, the largest Feret
diameter, is reported too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.objects import measure_objects

_EIGHT = np.ones((3, 3), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Regions:
    """The 8-connected objects of a mask.

    Args:
        labels: The number of each pixel's object, from 1; 0 is background.
        major_axis_px: The major axis of each object in pixels, in the order of the numbers.
    """

    labels: npt.NDArray[np.int32]
    major_axis_px: npt.NDArray[np.float64]

    @property
    def count(self) -> int:
        """How many objects there are."""
        return int(self.major_axis_px.size)


def find_regions(mask: npt.NDArray[np.bool_]) -> Regions:
    """Label the objects of a mask and measure each one's equal-moments major axis.

    Pixels count as points at their centres, as in the published evaluation: a single pixel has length 0.

    Args:
        mask: True where there is tumour.

    Returns:
        The objects.

    Example:
        >>> find_regions(np.ones((10, 200), dtype=bool)).major_axis_px.round().tolist()
        [231.0]
    """
    labels, _ = ndimage.label(mask, structure=_EIGHT)
    objects = measure_objects(mask)
    axes = np.zeros(objects.count)
    rows, columns = objects.first_px.T
    axes[labels[rows, columns] - 1] = objects.major_axis_px
    return Regions(labels=labels.astype(np.int32, copy=False), major_axis_px=axes)


def stage_of_extent(extent_mm: float, rules: SlideRules, *, any_object: bool) -> str:
    """Derive the stage from the largest extent (LN-14).

    Above 2 mm it is macro, above 0.2 mm micro, for a smaller object ITC, without an object negative.

    Args:
        extent_mm: The largest extent of an object in mm.
        rules: The protocol's rules of slides, with the two limits.
        any_object: Whether there is an object.

    Returns:
        'negative', 'itc', 'micro' or 'macro'.

    Example:
        >>> stage_of_extent(0.5, SlideRules(), any_object=True)
        'micro'
    """
    if not any_object:
        return "negative"
    if extent_mm > rules.macro_above_mm:
        return "macro"
    return "micro" if extent_mm > rules.micro_above_mm else "itc"


@dataclass(frozen=True, kw_only=True)
class EvaluationMask:
    """CAMELYON16's truth: regions that were grown, filled and labelled.

    Args:
        labels: The number of each pixel's region, from 1; 0 is background.
        is_itc: True for regions of isolated tumour cells; entry k is region k + 1.
    """

    labels: npt.NDArray[np.int32]
    is_itc: npt.NDArray[np.bool_]

    @property
    def lesions(self) -> int:
        """How many countable lesions there are."""
        return int((~self.is_itc).sum())


def evaluation_mask(
    annotation: npt.NDArray[np.bool_], *, pixel_um: float, rules: SlideRules
) -> EvaluationMask:
    """Grow an annotation by 37.5 um per side, fill holes and label regions; short regions are ITC (LN-17).

    Args:
        annotation: True where there is tumour.
        pixel_um: Microns per pixel.
        rules: The protocol's rules of slides: how far to grow, and below which axis a region is ITC.

    Returns:
        The regions, 8-connected.

    Example:
        >>> made = evaluation_mask(np.ones((1, 1), dtype=bool), pixel_um=10.0, rules=SlideRules())
        >>> made.lesions, made.is_itc.tolist()
        (0, [True])
    """
    if not annotation.any():
        return EvaluationMask(
            labels=np.zeros(annotation.shape, dtype=np.int32), is_itc=np.zeros(0, dtype=bool)
        )
    distance_px = ndimage.distance_transform_edt(~annotation)
    grown = distance_px < rules.froc_grow_um / pixel_um
    regions = find_regions(ndimage.binary_fill_holes(grown))
    return EvaluationMask(
        labels=regions.labels, is_itc=regions.major_axis_px < rules.froc_itc_below_um / pixel_um
    )


def patient_stage(node_stages: npt.ArrayLike) -> str:
    """Derive the pN stage of CAMELYON17 from a patient's node stages.

    No macro or micro: pN0, or pN0(i+) with isolated cells. Micro only: pN1mi. With a macro: pN1 up to
    three positive nodes, pN2 from four.

    Args:
        node_stages: The stages of the patient's nodes.

    Returns:
        The pN stage.

    Example:
        >>> patient_stage(["macro", "micro", "negative"])
        'pN1'
    """
    stages = [str(stage) for stage in np.asarray(node_stages, dtype=object).ravel()]
    positive = sum(stage in ("macro", "micro") for stage in stages)
    if "macro" in stages:
        return "pN2" if positive >= 4 else "pN1"
    if positive:
        return "pN1mi"
    return "pN0(i+)" if "itc" in stages else "pN0"
