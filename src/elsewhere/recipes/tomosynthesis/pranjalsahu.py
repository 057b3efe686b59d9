"""Faster R-CNN and the peaks of the best boxes' scores over the slices: after pranjalsahu (DBT-11, DBT-16, DBT-17)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elsewhere.boxes import Boxes
from elsewhere.boxes.score_peaks import ScorePeakOptions, peak_boxes
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    slices_of,
    train_member,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.networks.detectors.faster_rcnn import FasterRcnnSettings


@dataclass(frozen=True, kw_only=True)
class PranjalsahuSettings(DetectorSettings):
    """Settings of the recipe 'pranjalsahu': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        pixel: Pixels of the volume per pixel that the detector sees: quarter resolution.
        tile: Height and width of the training tiles.
        tile_overlap: 0: the whole breast is one picture.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        least_score: Boxes of a slice with a lower score are dropped.
        reach: Slices up to this far from a lesion's slice show it.
        epochs: At most; the validation part gives the number, and all cases then train for as many.
        optimiser: 'rmsprop' as published.
        learning_rate: The rate.
        schedule: 'constant' as published.
        weight_decay: Weight decay.
        flip_vertical: Probability of a flip top to bottom.
        rotation: Largest turn in degrees.
        zoom: Smallest and largest factor.
        trained_stages: How many of the body's last stages are trained.
        shown_up_to: The 16-bit value, after the window, that is shown white.
        moved_px: A best box whose centre moved by more than this many of the detector's pixels counts as none.
        depth: Slices of each box.
    """

    pixel: float = 4.0
    tile: tuple[int, ...] = (608, 352)
    tile_overlap: int = 0
    neighbours: bool = True
    least_score: float = 0.001
    reach: int = 1
    epochs: int = 30
    optimiser: str = "rmsprop"
    learning_rate: float = 1e-5
    schedule: str = "constant"
    weight_decay: float = 1e-3
    flip_vertical: float = 0.5
    rotation: float = 15.0
    zoom: tuple[float, ...] = (0.8, 1.25)
    trained_stages: int = 3
    shown_up_to: float = 60000.0
    moved_px: float = 10.0
    depth: int = 10


class NarrowedWindow:
    """A view whose windows end earlier: values above the end are white.

    The challenge's window function maps the window to 16 bits; dividing by 60,000 and cutting at 1 shows 60,000 of
    65,535 white.

    Args:
        view: The volumes.
        share: The share of the window that is shown.
    """

    def __init__(self, view: Any, share: float) -> None:
        self._view, self._share = view, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def __contains__(self, case: str) -> bool:
        return case in self._view

    def window(self, case: str) -> tuple[float, float]:
        """Return the values that are shown black and white.

        Args:
            case: The case.

        Returns:
            The low value of the view, and the new high one.

        Example:
            >>> class Plain:
            ...     def window(self, case):
            ...         return 100.0, 300.0
            >>> NarrowedWindow(Plain(), 0.5).window("a")
            (100.0, 200.0)
        """
        low, high = self._view.window(case)
        return low, low + (high - low) * self._share


@recipes.register("pranjalsahu")
class Pranjalsahu(VolumeDetector):
    """Follow the best box from slice to slice; every peak of its score is a lesion of fixed depth."""

    title = "Faster R-CNN, peaks of the score curve"
    version = 1
    follows = (
        "pranjalsahu, sixth: Faster R-CNN with ResNet-50 whose last three layers are trained, quarter resolution, three "
        "slices as channels, values over 60,000 of the windowed 16 bits shown white, flips, rotation and zoom, RMSProp "
        "with 1e-5; 49 of 224 samples give the number of epochs, with which all train; the best box per slice, its "
        "score 0 where the centre moved by more than 10 pixels, peaks of that curve, depth 10. Ours chooses the epoch "
        "by sensitivity on slices, as the text does not say by what."
    )
    Settings = PranjalsahuSettings

    def learn(self, job: Job) -> Learned:
        settings: PranjalsahuSettings = job.settings
        learned = Learned()
        view = self._view(job)
        network = network_of(settings)
        chosen = Member(
            name="number-of-epochs", train=job.train, validation=job.validation, network=network, view=view
        )
        train_member(job, settings, chosen, learned, keep=False)
        epochs = learned.best_epoch
        learned.details["epochs"] = epochs
        final = replace(settings, epochs=epochs, keep_weights="last")
        member = Member(name="detector", train=(*job.train, *job.validation), network=network, view=view)
        train_member(job, final, member, learned)
        return learned

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        from elsewhere.networks.detectors import build_detector

        return build_detector(network_of(settings))

    @staticmethod
    def _view(job: Job) -> NarrowedWindow:
        return NarrowedWindow(job.pixels, min(1.0, job.settings.shown_up_to / 65535.0))

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import predict_volume

        settings: PranjalsahuSettings = job.settings
        boxes = predict_volume(networks["detector"], self._view(job), case, inference_of(settings))
        rules = ScorePeakOptions(moved_px=settings.moved_px * settings.pixel, depth=settings.depth)
        return peak_boxes(boxes, slices_of(job, case), rules)


def network_of(settings: PranjalsahuSettings) -> FasterRcnnSettings | str:
    """Return the network, of whose body only the last stages are trained.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of the network; its name where it has no such body.
    """
    from elsewhere.networks.detectors import detector_settings
    from elsewhere.networks.detectors.faster_rcnn import FasterRcnnSettings

    chosen = detector_settings(settings.network)
    if not isinstance(chosen, FasterRcnnSettings) or not chosen.body.startswith("resnet"):
        return settings.network
    return replace(chosen, trained_stages=settings.trained_stages)
