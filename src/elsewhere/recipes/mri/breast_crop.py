"""Percentile clipping and a crop to the breast: after ViCOROB (MRI-14, MRI-15).

The challenge gives breast boxes for training; the paper does not say that test cases have them. So a
predicted case is cropped by a simple localiser that keeps both breasts (`test_box = "found"`); `test_box =
"given"` uses the dataset's box where it is known, which shows the affected side, and the report states this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elsewhere.recipes.base import Job, Trained, recipes
from elsewhere.recipes.mri.residual_unet import GIVEN, SegmentationSettings, Segmenter


@dataclass(frozen=True, kw_only=True)
class BreastCropSettings(SegmentationSettings):
    """Settings of the recipe 'breast-crop': those of `SegmentationSettings` with other defaults.

    Args:
        spacing_mm: Voxel size in mm that every volume is resampled to.
        clip: Two percentiles at which intensities are cut.
        crop: 'breast': to the breast's box before anything else; 'none': no crop.
        margin: Voxels around the box.
        batch: Patches per step.
        folds: 1: the job's own training and validation parts; more: cross-validation over both, and an
            ensemble.
    """

    spacing_mm: tuple[float, ...] = (1.0, 1.0, 1.0)
    clip: tuple[float, ...] = (0.1, 99.9)
    crop: str = "breast"
    margin: int = 4
    batch: int = 3
    folds: int = 1


@recipes.register("breast-crop")
class BreastCrop(Segmenter):
    """Segment within a crop to the breast.

    The contralateral breast and the thorax are not seen in training.
    """

    title = "Breast crop and percentile clipping"
    version = 3
    follows = (
        "ViCOROB: phases 0, 1 and 2, intensities cut at percentiles 0.1 and 99.9, isotropic 1 mm, z-score, crop to "
        "the breast's box, a residual-encoder nnU-Net, three patches per step, no ensemble. At test time the box "
        "is found by a simple localiser around both breasts unless the dataset's box is asked for."
    )
    Settings = BreastCropSettings

    def run(self, job: Job) -> Trained:
        return self._told(job, super().run(job))

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        return self._told(job, super().apply(job, weights))

    def _told(self, job: Job, done: Trained) -> Trained:
        settings: BreastCropSettings = job.settings
        note = (
            "predicted cases were cropped to the dataset's breast box where it is known, which shows the affected "
            "side"
            if settings.test_box == GIVEN
            else "predicted cases were cropped to both breasts, found from the phase before contrast"
        )
        return replace(done, notes=(*done.notes, note))
