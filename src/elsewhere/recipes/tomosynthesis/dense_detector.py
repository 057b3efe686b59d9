"""The dataset's baseline: a dense one-stage detector, averaged over the halves of the volume (DBT-11, DBT-17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.boxes import Boxes
from elsewhere.boxes.empty_boxes import drop_empty
from elsewhere.boxes.volume_merging import MergingOptions, merge_boxes
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.tomosynthesis.settings import BY_SIZE, DetectorSettings, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    train_member,
)


@dataclass(frozen=True, kw_only=True)
class DenseDetectorSettings(DetectorSettings):
    """Settings of the recipe 'dense-detector': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        network: 'dense-one-stage', or 'dense-one-stage-tiny' for tests.
        weights: 'none', or a file.
        tile: Height and width of the training tiles.
        tile_overlap: 0: the whole breast is one picture.
        neighbours: Whether the channels are neighbouring slices.
        reach: -1: slices up to the square root of the lesion's mean side show it.
        epochs: How often the lesion slices are seen.
        batch: Tiles per step.
        optimiser: 'adam', 'adamw', 'sgd' or 'rmsprop'.
        learning_rate: The highest rate.
        schedule: 'constant' or 'cosine'.
        least_score: Averaged boxes with a lower score are dropped.
        parts: Parts of the volume over which is averaged.
        merge_overlap: Boxes above this IoU in the volume are merged.
        merge_ratio: The largest ratio of the scores of merged boxes.
        most_empty: Boxes of which a larger share is background are dropped.
    """

    network: str = "dense-one-stage"
    weights: str = "none"
    tile: tuple[int, ...] = (1056, 672)
    tile_overlap: int = 0
    neighbours: bool = False
    reach: int = BY_SIZE
    epochs: int = 100
    batch: int = 16
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    least_score: float = 1e-4
    parts: int = 2
    merge_overlap: float = 0.5
    merge_ratio: float = 10.0
    most_empty: float = 0.5


@recipes.register("dense-detector")
class DenseDetector(VolumeDetector):
    """Predict one box per cell of a coarse grid on every slice, and average over the halves of the volume."""

    title = "Dense one-stage detector"
    version = 1
    follows = (
        "Buda et al. 2021, the baseline of the data set itself: a DenseNet-like one-stage detector with one anchor of "
        "256 pixels on cells of 96 pixels, one slice at half size, averaged over the two halves of the volume; boxes "
        "merged in the volume at IoU above 0.5 and a score ratio of at most 10, boxes that are more than half empty "
        "dropped. Written from the description; the numbers of epochs and of lesion slices are ours."
    )
    Settings = DenseDetectorSettings

    def learn(self, job: Job) -> Learned:
        learned = Learned()
        member = Member(name="detector", train=job.train, validation=job.validation)
        train_member(job, job.settings, member, learned)
        return learned

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import averaged_halves, store_volume

        settings: DenseDetectorSettings = job.settings
        network, options = networks["detector"], inference_of(settings)
        stored, slices = store_volume(network, job.pixels, case, options)
        found = averaged_halves(
            network,
            stored,
            case,
            list(slices),
            options,
            parts=settings.parts,
            least_score=settings.least_score,
        )
        rules = MergingOptions(overlap=settings.merge_overlap, most_ratio=settings.merge_ratio)
        merged = merge_boxes(found.best(settings.boxes_per_volume), rules)
        return filled_boxes(job, merged, case, settings.most_empty)


def filled_boxes(job: Job, boxes: Boxes, case: str, most_empty: float) -> Boxes:
    """Drop boxes that are mostly background.

    Args:
        job: The job.
        boxes: Boxes in pixels of the volume.
        case: The case.
        most_empty: Boxes of which a larger share is empty are dropped.

    Returns:
        The boxes that stay.
    """
    x0, y0, _, _ = job.pixels.breast(case)
    scale = float(job.pixels.scale(case))
    low = job.pixels.window(case)[0]
    in_stored = boxes.moved(-x0 / scale, -y0 / scale, scale=1 / scale)

    def read(z: int) -> np.ndarray:
        return np.asarray(job.pixels.slice(case, z)) > max(low, 0)

    return drop_empty(in_stored, read, most_empty=most_empty).moved(x0, y0, scale=scale)
