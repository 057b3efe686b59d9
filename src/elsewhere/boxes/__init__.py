"""Boxes of detectors: overlap, suppression, and the ways from boxes on slices to boxes in a volume.

Everything here needs numpy and scipy alone, so that it also runs on a GPU machine without the rest of the package.
Merging of the finished predictions of several teams is in `elsewhere.ensembles`.
"""

from __future__ import annotations

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.overlap import OverlapRule, intersection_over_smaller, iou, overlapping_pairs
from elsewhere.boxes.suppression import suppress

__all__ = [
    "Boxes",
    "OverlapRule",
    "intersection_over_smaller",
    "iou",
    "overlapping_pairs",
    "suppress",
]
