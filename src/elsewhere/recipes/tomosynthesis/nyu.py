"""EfficientDet with the best slice of each anchor: after NYU B-Team (DBT-11, DBT-12, DBT-14 to DBT-17)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.boxes import Boxes, OverlapRule, suppress
from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, RecipeCase, recipes
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    have_lesions,
    network_seed,
    train_member,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.networks.detectors.efficientdet import EfficientDetSettings


@dataclass(frozen=True, kw_only=True)
class NyuSettings(DetectorSettings):
    """Settings of the recipe 'nyu': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        network: An EfficientDet of `networks.detectors.DETECTORS`.
        weights: 'imagenet', 'none', or a file.
        tile: Height and width of the crops.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        reach: Slices up to this far from a lesion's slice show it.
        least_score: Boxes of a slice with a lower score are dropped.
        negatives: Slices without a lesion per lesion slice and epoch.
        rotation: Largest turn in degrees.
        zoom: Smallest and largest factor.
        shear: Largest shear, as a tangent.
        copy_paste: Probability that a lesion of another crop is pasted.
        members: Networks, each trained on a slightly different part of the training cases.
        left_out: The share of the training patients that a network does not learn from.
        negative_below: Anchors with a lower IoU with every lesion are background.
        positive_from: Anchors with this IoU or more with a lesion stand for it.
        alpha: Weight of the lesions in the focal loss.
        volume_overlap: Boxes of a volume above this IoU with a better one are dropped, on whatever slices they are.
    """

    network: str = "efficientdet"
    weights: str = "imagenet"
    tile: tuple[int, ...] = (896, 896)
    neighbours: bool = True
    reach: int = 3
    least_score: float = 0.001
    negatives: float = 0.5
    rotation: float = 15.0
    zoom: tuple[float, ...] = (0.8, 1.25)
    shear: float = 0.1
    copy_paste: float = 0.5
    members: int = 3
    left_out: float = 0.1
    negative_below: float = 0.2
    positive_from: float = 0.65
    alpha: float = 0.8
    volume_overlap: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1:
            raise UserError(f"members is {self.members}", fix="Give 1 or more.")
        if not 0 <= self.left_out < 1:
            raise UserError(f"left_out is {self.left_out}", fix="Give a share from 0 to below 1.")


@recipes.register("nyu")
class Nyu(VolumeDetector):
    """Take for each anchor the slice of highest score; several networks, trained on perturbed sets, are joined."""

    title = "EfficientDet, best slice per anchor"
    version = 1
    follows = (
        "NYU B-Team, first in both phases: EfficientDet with a second head for cancer, affine changes, flips and pasted "
        "lesions, a focal loss with alpha 0.75 to 0.85 and IoU limits of 0.2 and 0.6 to 0.7, crops that cover the "
        "breast, the slice of highest confidence of each anchor, and an ensemble over slightly perturbed training "
        "sets. They trained on about 300,000 further exams with outlines; ours sees the boxes of the study alone, and "
        "pasted lesions are soft ellipses. The ensemble's rule is not described: ours drops the weaker of overlapping "
        "boxes. EfficientNet-Lite is the body."
    )
    Settings = NyuSettings

    def learn(self, job: Job) -> Learned:
        settings: NyuSettings = job.settings
        learned = Learned()
        for number in range(settings.members):
            member = Member(
                name=f"member-{number}",
                number=number,
                train=_perturbed(job, settings, number),
                validation=job.validation,
                network=efficientdet_of(settings),
            )
            train_member(job, settings, member, learned)
        return learned

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        from elsewhere.networks.detectors import build_detector

        return build_detector(efficientdet_of(settings))

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.boxes.best_slice import BestSliceOptions
        from elsewhere.training.detection.volume_inference import best_slices, store_volume

        settings: NyuSettings = job.settings
        options = inference_of(settings)
        best = BestSliceOptions(
            overlap=settings.volume_overlap,
            least_score=settings.least_score,
            most=settings.boxes_per_volume,
        )
        stored, slices = store_volume(next(iter(networks.values())), job.pixels, case, options)
        found = [
            best_slices(network, stored, case, list(slices), options, best) for network in networks.values()
        ]
        return suppress(Boxes.join(found), OverlapRule(above=settings.volume_overlap, within_slices=None))


def efficientdet_of(settings: NyuSettings) -> EfficientDetSettings:
    """Return the network with the team's limits of IoU and its focal loss.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of the network.

    Raises:
        UserError: The network is no EfficientDet.
    """
    from elsewhere.networks.detectors import detector_settings
    from elsewhere.networks.detectors.efficientdet import EfficientDetSettings

    chosen = detector_settings(settings.network)
    if not isinstance(chosen, EfficientDetSettings):
        raise UserError(
            f"'{settings.network}' is no EfficientDet",
            fix="Use efficientdet, or efficientdet-tiny for tests.",
        )
    match = replace(
        chosen.match,
        negative_below=settings.negative_below,
        positive_from=settings.positive_from,
        alpha=settings.alpha,
    )
    return replace(chosen, match=match)


def _perturbed(job: Job, settings: NyuSettings, number: int) -> list[RecipeCase]:
    """The training cases without some patients, who differ from network to network."""
    from elsewhere.training.detection.sampling import perturbed_cases

    stay = perturbed_cases(
        [case.case for case in job.train],
        [case.group for case in job.train],
        np.random.default_rng(network_seed(job, 100 + number)),
        share=1 - settings.left_out,
    )
    chosen = [case for case in job.train if case.case in set(stay)]
    return chosen if have_lesions(job, chosen) else list(job.train)
