"""One subtraction image, five folds, flips, the largest component: after FME (MRI-14, MRI-15)."""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.recipes.base import recipes
from elsewhere.recipes.mri.residual_unet import SegmentationSettings, Segmenter


@dataclass(frozen=True, kw_only=True)
class SubtractionSettings(SegmentationSettings):
    """Settings of the recipe 'subtraction': those of `SegmentationSettings` with other defaults.

    Args:
        channels: 'subtraction' (p1 - p0), 'three' (p0, p1, p2) or 'pre-first-last'.
        keep: What is kept of a predicted mask: 'all', 'largest', 'box' or 'largest-in-box'.
    """

    channels: str = "subtraction"
    keep: str = "largest"


@recipes.register("subtraction")
class Subtraction(Segmenter):
    """Segment the first phase after contrast minus the one before, and nothing else.

    The network then sees less of the scanner.
    """

    title = "Subtraction, five folds, largest component"
    version = 2
    follows = (
        "FME: p1 - p0 alone, a five-fold ensemble of residual-encoder nnU-Nets (1,000 epochs, two patches per step, "
        "spacing from the training set), axis flips at test time, the largest connected component. The networks "
        "are this package's, smaller than FME's 2.6 billion weights over five folds."
    )
    Settings = SubtractionSettings
