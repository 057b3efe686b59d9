"""Settings that all detectors of lesions in tomosynthesis share, and what they mean to the parts of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from elsewhere.errors import UserError, unknown_name
from elsewhere.recipes.base import Job, RecipeSettings

if TYPE_CHECKING:
    from elsewhere.training.detection.draws import Augmentation
    from elsewhere.training.detection.fitting import FitOptions
    from elsewhere.training.detection.sampling import SamplingSettings
    from elsewhere.training.detection.volume_inference import InferenceOptions

BY_SIZE = -1
"""As `reach`: up to the square root of the lesion's mean side."""
PUBLISHED = ("coco", "imagenet", "none")
"""Names of weights; everything else is a file."""


@dataclass(frozen=True, kw_only=True)
class DetectorSettings(RecipeSettings):
    """Settings of a detector of lesions in volumes; the defaults are those of the challenge's baseline.

    They are for real volumes on one large GPU. `network`, `weights`, `pixel`, `tile` and `epochs` make it small
    enough for a CPU.

    Args:
        network: One of `networks.detectors.DETECTORS`.
        weights: 'coco', 'imagenet', 'none', or a file.
        pixel: Pixels of the volume per pixel that the detector sees.
        tile: Height and width of the tiles that it is trained on, in its own pixels.
        tile_overlap: How many pixels neighbouring tiles share where they cover the breast at prediction; 0: the whole
            breast is one picture.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        mirror: Whether right breasts are mirrored, and their boxes back.
        reach: Slices up to this far from a lesion's slice show it; -1: up to the square root of its mean side in pixels.
        negatives: Slices without a lesion per lesion slice and epoch.
        actionable: Slices of actionable volumes per lesion slice and epoch.
        slices_per_volume: How many slices without a lesion are loaded from each volume.
        epochs: How often the lesion slices are seen.
        batch: Tiles per step.
        optimiser: 'adam', 'adamw', 'sgd' or 'rmsprop'.
        learning_rate: The highest rate.
        schedule: 'constant' or 'cosine'.
        momentum: Of SGD; of Adam the first of its two.
        weight_decay: Weight decay.
        lesion_slices: Lesion slices per epoch at most; 0: all.
        keep_weights: 'best' by the sensitivity on slices of the validation part, or 'last'.
        patience: Epochs without a better sensitivity after which the training stops; 0: it never stops early.
        checkpoint_seconds: Time between two checkpoints.
        flip_horizontal: Probability of a flip left to right.
        flip_vertical: Probability of a flip top to bottom.
        rotation: Largest turn in degrees.
        zoom: Smallest and largest factor.
        shear: Largest shear, as a tangent.
        brightness: Values are multiplied by 1 plus or minus up to this.
        gamma: Values are raised to a power from 1 / (1 + gamma) to 1 + gamma.
        copy_paste: Probability that a lesion of another tile is pasted.
        mosaic: Probability that a tile is put together from four.
        floor_px: The least diagonal of a lesion, of which half is the radius of a hit in the validation, in pixels of
            the volume. Small volumes need less.
        window_batch: Tiles at once at prediction.
        boxes_per_slice: Boxes of a tile at most.
        least_score: Boxes with a lower score are dropped.
        overlap: Boxes of a slice above this IoU with a better one are dropped.
        boxes_per_volume: Boxes of a volume at most.

    Raises:
        UserError: A value is out of its range.
    """

    network: str = "faster-rcnn"
    weights: str = "coco"
    pixel: float = 2.0
    tile: tuple[int, ...] = (1024, 1024)
    tile_overlap: int = 256
    neighbours: bool = False
    mirror: bool = True
    reach: int = 0
    negatives: float = 0.0
    actionable: float = 0.0
    slices_per_volume: int = 4
    epochs: int = 20
    batch: int = 8
    optimiser: str = "adamw"
    learning_rate: float = 1e-4
    schedule: str = "cosine"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    lesion_slices: int = 0
    keep_weights: str = "best"
    patience: int = 0
    checkpoint_seconds: float = 60.0
    flip_horizontal: float = 0.5
    flip_vertical: float = 0.0
    rotation: float = 0.0
    zoom: tuple[float, ...] = (0.9, 1.1)
    shear: float = 0.0
    brightness: float = 0.0
    gamma: float = 0.0
    copy_paste: float = 0.0
    mosaic: float = 0.0
    floor_px: float = 100.0
    window_batch: int = 8
    boxes_per_slice: int = 50
    least_score: float = 0.1
    overlap: float = 0.5
    boxes_per_volume: int = 200

    def __post_init__(self) -> None:
        if len(self.tile) != 2 or min(self.tile) < 32:
            raise UserError(
                f"tile is {self.tile}",
                fix="Give height and width in pixels, each of 32 or more: [1024, 1024].",
            )
        if not 0 <= self.tile_overlap < min(self.tile):
            raise UserError(f"tile_overlap is {self.tile_overlap}", fix="Give 0 up to below the tile's side.")
        if len(self.zoom) != 2 or not 0 < self.zoom[0] <= self.zoom[1]:
            raise UserError(
                f"zoom is {self.zoom}", fix="Give the smallest and the largest factor: [0.9, 1.1]."
            )
        if self.keep_weights not in ("best", "last"):
            raise unknown_name("keep_weights", self.keep_weights, ["best", "last"])
        if self.schedule not in ("constant", "cosine"):
            raise unknown_name("schedule", self.schedule, ["constant", "cosine"])
        if self.optimiser not in ("adam", "adamw", "sgd", "rmsprop"):
            raise unknown_name("optimiser", self.optimiser, ["adam", "adamw", "sgd", "rmsprop"])
        for name in ("epochs", "batch", "window_batch", "boxes_per_slice", "boxes_per_volume"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix="Give 1 or more.")
        for name in ("pixel", "learning_rate"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} is {getattr(self, name)}", fix="Give a number above 0.")
        for name in ("negatives", "actionable", "lesion_slices", "patience", "floor_px"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}", fix="Give 0 or more.")
        if self.reach < BY_SIZE:
            raise UserError(
                f"reach is {self.reach}", fix="Give a number of slices, or -1: by the lesion's size."
            )

    @property
    def weights_file(self) -> Path | None:
        """The file of weights that the detector starts from; None where they are published ones, or none."""
        return None if self.weights in PUBLISHED else Path(self.weights)


def sampling_of(settings: DetectorSettings) -> SamplingSettings:
    """Return which slices are taken.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of `training.detection`.
    """
    from elsewhere.training.detection.sampling import SamplingSettings

    return SamplingSettings(
        reach="size" if settings.reach == BY_SIZE else settings.reach,
        negatives=settings.negatives,
        actionable=settings.actionable,
        per_volume=settings.slices_per_volume,
        neighbours=settings.neighbours,
    )


def augmentation_of(settings: DetectorSettings) -> Augmentation:
    """Return how tiles are changed.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of `training.detection`.
    """
    from elsewhere.training.detection.draws import Augmentation

    return Augmentation(
        flip_horizontal=settings.flip_horizontal,
        flip_vertical=settings.flip_vertical,
        rotation=settings.rotation,
        zoom=(settings.zoom[0], settings.zoom[1]),
        shear=settings.shear,
        brightness=settings.brightness,
        gamma=settings.gamma,
        copy_paste=settings.copy_paste,
        mosaic=settings.mosaic,
    )


def inference_of(settings: DetectorSettings, *, skipped: int = 0) -> InferenceOptions:
    """Return how a volume is looked at.

    Args:
        settings: The recipe's settings.
        skipped: How many slices at each end are not looked at.

    Returns:
        The options of `training.detection`.
    """
    from elsewhere.boxes.tiles import TileOptions
    from elsewhere.networks.detectors.base import DetectOptions
    from elsewhere.training.detection.device_slices import StorageSettings
    from elsewhere.training.detection.volume_inference import InferenceOptions

    height, width = settings.tile
    overlap = settings.tile_overlap
    return InferenceOptions(
        tiles=TileOptions(height=height, width=width, overlap=overlap) if overlap else None,
        batch=settings.window_batch,
        skipped=skipped,
        detect=DetectOptions(
            most=settings.boxes_per_slice, least_score=settings.least_score, overlap=settings.overlap
        ),
        neighbours=settings.neighbours,
        storage=StorageSettings(pixel=settings.pixel, mirror=settings.mirror),
    )


def fit_options(job: Job, settings: DetectorSettings, *, name: str, seed: int) -> FitOptions:
    """Return how a network of a job is trained.

    Args:
        job: The job, in whose scratch folder checkpoints are kept.
        settings: The recipe's settings.
        name: The network's name among those of the job.
        seed: The seed of its draws.

    Returns:
        The options of `training.detection`.
    """
    from elsewhere.training.detection.fitting import FitOptions

    optimiser: Literal["adam", "adamw", "sgd", "rmsprop"] = settings.optimiser  # type: ignore[assignment]
    keep: Literal["best", "last"] = settings.keep_weights  # type: ignore[assignment]
    return FitOptions(
        name=name,
        epochs=settings.epochs,
        batch=settings.batch,
        size=(settings.tile[0], settings.tile[1]),
        optimiser=optimiser,
        learning_rate=settings.learning_rate,
        schedule=settings.schedule,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        lesion_slices=settings.lesion_slices or None,
        sampling=sampling_of(settings),
        augmentation=augmentation_of(settings),
        inference=inference_of(settings),
        floor_px=settings.floor_px,
        keep=keep,
        patience=settings.patience or None,
        seed=seed,
        checkpoint=job.scratch / f"{name}.pt",
        checkpoint_seconds=settings.checkpoint_seconds,
        progress=job.progress,
    )
