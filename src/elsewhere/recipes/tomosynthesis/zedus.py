"""Many RetinaNets fused by a heat map, and a slice classifier: after ZeDuS (DBT-11, DBT-13, DBT-15, DBT-16)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.boxes import Boxes
from elsewhere.boxes.heat_map import HeatMapOptions, fuse_by_heat
from elsewhere.boxes.slice_scores import multiply_by_slice
from elsewhere.boxes.volume_suppression import VolumeSuppressionOptions, suppress_volume
from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.tomosynthesis.settings import (
    DetectorSettings,
    fit_options,
    inference_of,
    sampling_of,
)
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    network_seed,
    slices_of,
    train_classifier,
    train_member,
    with_volume,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.networks.detectors.retinanet import RetinaNetSettings

CLASSIFIER = "slice-classifier"
SWIN = "swin"


@dataclass(frozen=True, kw_only=True)
class ZedusSettings(DetectorSettings):
    """Settings of the recipe 'zedus': those of `DetectorSettings` with other defaults, and further ones.

    The RetinaNets are all combinations of `depths`, `channels` and `rotations`.

    Args:
        network: The RetinaNet whose depth and width are varied, one of `networks.detectors.DETECTORS`.
        weights: 'imagenet', 'none', or a file.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        reach: Slices up to this far from a lesion's slice show it.
        least_score: Boxes of a slice with a lower score are dropped.
        negatives: Slices without a lesion per lesion slice and epoch.
        depths: Convolutions per tower.
        channels: Channels of the pyramid and the towers.
        rotations: Largest turns in degrees.
        swin: The RetinaNet with a Swin body that joins them; '': none.
        slice_network: The slice classifier, as `networks.detectors.build_slice_classifier` takes it.
        slice_weights: 'imagenet', 'none', or a file.
        slice_pixel: Pixels of the volume per pixel of the slice classifier.
        slice_tile: Height and width of its training pictures.
        slice_epochs: Its epochs.
        slice_negatives: Slices without a lesion per lesion slice, for the classifier.
        heat_overlap: Fused boxes of a slice above this IoU with a better one are dropped.
        volume_overlap: Boxes of neighbouring slices above this IoU with a better one are dropped.
        volume_reach: How far these may lie apart, as a share of the slices.
    """

    network: str = "retinanet"
    weights: str = "imagenet"
    neighbours: bool = True
    reach: int = 3
    least_score: float = 0.001
    negatives: float = 0.5
    depths: tuple[int, ...] = (3, 4)
    channels: tuple[int, ...] = (192, 256)
    rotations: tuple[float, ...] = (0.0, 15.0, 30.0)
    swin: str = "retinanet-swin"
    slice_network: str = "efficientnet-lite0"
    slice_weights: str = "imagenet"
    slice_pixel: float = 6.0
    slice_tile: tuple[int, ...] = (352, 224)
    slice_epochs: int = 10
    slice_negatives: float = 1.0
    heat_overlap: float = 0.5
    volume_overlap: float = 0.3
    volume_reach: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.depths and self.channels and self.rotations):
            raise UserError(
                "there is no RetinaNet", fix="Give depths, channels and rotations, one of each or more."
            )
        if self.slice_negatives <= 0:
            raise UserError(
                "slice_negatives is not above 0", fix="A classifier needs slices without a lesion."
            )


@recipes.register("zedus")
class Zedus(VolumeDetector):
    """Let many detectors agree: scores are summed where their boxes lie, and multiplied by that of the slice."""

    title = "RetinaNets fused by a heat map"
    version = 1
    follows = (
        "ZeDuS, second: twelve RetinaNets that differ in layers, width and strength of rotation, a Swin transformer in "
        "phase 2, fusion by a map that sums the confidences of all boxes, and an NFNet that scores slices. They "
        "trained on more than 9,000 women of their own. Ours has the same number of networks with numbers of layers "
        "and channels that are our guess, EfficientNet-Lite0 in place of NFNet unless timm is installed, and "
        "suppression over neighbouring slices, which the text does not mention."
    )
    Settings = ZedusSettings

    def learn(self, job: Job) -> Learned:
        settings: ZedusSettings = job.settings
        learned = Learned()
        for number, (name, network, rotation) in enumerate(retinanets(settings)):
            member = Member(
                name=name, number=number, train=job.train, validation=job.validation, network=network
            )
            train_member(job, replace(settings, rotation=rotation), member, learned)
        self._learn_slices(job, settings, learned)
        return learned

    def _learn_slices(self, job: Job, settings: ZedusSettings, learned: Learned) -> None:
        from elsewhere.training.detection.sampling import LESION, list_slices

        of_slices = slice_settings(settings)
        seed = network_seed(job, 99)
        rng = np.random.default_rng([seed, 0])
        train, validation = (
            list_slices(job.pixels, with_volume(job, part), sampling_of(of_slices), rng=rng)
            for part in (job.train, job.validation)
        )
        if not (train.kind != LESION).any():
            learned.notes.append(
                "No training volume has a slice without a lesion: slices are not classified."
            )
            return
        usable = (validation.kind == LESION).any() and (validation.kind != LESION).any()
        options = fit_options(job, of_slices, name=CLASSIFIER, seed=seed)
        train_classifier(
            job,
            options,
            (train, validation if usable else None),
            lambda: _classifier(job, settings),
            learned,
        )

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        from elsewhere.networks.detectors import build_detector, build_slice_classifier

        if name == CLASSIFIER:
            return build_slice_classifier(settings.slice_network)
        return build_detector(next(network for known, network, _ in retinanets(settings) if known == name))

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import detect_slices, store_volume

        settings: ZedusSettings = job.settings
        options = inference_of(settings)
        detectors = [network for name, network in networks.items() if name != CLASSIFIER]
        stored, slices = store_volume(detectors[0], job.pixels, case, options)
        pairs = [(case, z) for z in slices]
        found = [detect_slices(network, stored, pairs, options)[0] for network in detectors]
        fused = fuse_by_heat(
            found, HeatMapOptions(own_overlap=settings.overlap, overlap=settings.heat_overlap)
        )
        if CLASSIFIER in networks:
            fused = multiply_by_slice(fused, _slice_scores(job, settings, networks[CLASSIFIER], case))
        rules = VolumeSuppressionOptions(
            least_score=0.0,
            overlap=settings.volume_overlap,
            reach=settings.volume_reach,
            most=settings.boxes_per_volume,
            skipped=0,
        )
        return suppress_volume(fused, slices_of(job, case), rules)


def retinanets(settings: ZedusSettings) -> list[tuple[str, RetinaNetSettings, float]]:
    """List the detectors of the ensemble.

    Args:
        settings: The recipe's settings.

    Returns:
        Name, network and largest turn in degrees of each.

    Raises:
        UserError: A network is no RetinaNet.
    """
    found = [
        (
            f"retinanet-{depth}-{channels}-{rotation:g}",
            replace(_retinanet(settings.network), depth=depth, channels=channels),
            rotation,
        )
        for depth, channels, rotation in product(settings.depths, settings.channels, settings.rotations)
    ]
    return found + ([(SWIN, _retinanet(settings.swin), settings.rotations[0])] if settings.swin else [])


def _retinanet(name: str) -> RetinaNetSettings:
    from elsewhere.networks.detectors import detector_settings
    from elsewhere.networks.detectors.retinanet import RetinaNetSettings

    chosen = detector_settings(name)
    if not isinstance(chosen, RetinaNetSettings):
        raise UserError(f"'{name}' is no RetinaNet", fix="Use retinanet, or retinanet-tiny for tests.")
    return chosen


def slice_settings(settings: ZedusSettings) -> ZedusSettings:
    """Return the settings by which the slice classifier is trained.

    Args:
        settings: The recipe's settings.

    Returns:
        The same with the classifier's size and epochs; nothing is pasted or put together.
    """
    return replace(
        settings,
        pixel=settings.slice_pixel,
        tile=settings.slice_tile,
        tile_overlap=0,
        epochs=settings.slice_epochs,
        negatives=settings.slice_negatives,
        actionable=settings.slice_negatives,
        copy_paste=0.0,
        mosaic=0.0,
    )


def _classifier(job: Job, settings: ZedusSettings) -> Any:
    from elsewhere.networks.detectors import build_slice_classifier

    return build_slice_classifier(
        settings.slice_network,
        weights=settings.slice_weights,
        known=job.weights,
        seed=network_seed(job, 99) % 2**31,
    )


def _slice_scores(job: Job, settings: ZedusSettings, network: Any, case: str) -> np.ndarray:
    """The score of each slice; the whole breast is seen at the resolution of the training."""
    from elsewhere.training.detection.volume_inference import score_slices, store_volume

    options = inference_of(slice_settings(settings))
    stored, slices = store_volume(network, job.pixels, case, options)
    rows, columns = stored.size(case)
    zoom = stored.zoom(case)
    size = (max(1, round(rows / zoom)), max(1, round(columns / zoom)))
    return score_slices(network, stored, case, list(slices), size=size, batch=settings.window_batch)
