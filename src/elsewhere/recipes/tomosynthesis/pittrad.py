"""Two CSP detectors that learn from false positives in actionable volumes: after PittRad (DBT-11, DBT-13, DBT-15 to
DBT-17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elsewhere.boxes import Boxes
from elsewhere.boxes.closing import ClosingOptions, close_boxes
from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    train_member,
    with_volume,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class PittradSettings(DetectorSettings):
    """Settings of the recipe 'pittrad': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        network: The first detector, which also finds false positives; one of `networks.detectors.DETECTORS`.
        second: The second detector; '': none.
        weights: 'none', or a file.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        reach: Slices up to this far from a lesion's slice show it.
        least_score: Boxes of a slice with a lower score are dropped.
        epochs: How often the lesion slices are seen.
        optimiser: 'adam' as published.
        learning_rate: The highest rate.
        momentum: The first of Adam's two.
        weight_decay: Weight decay.
        flip_vertical: Probability of a flip top to bottom.
        zoom: Smallest and largest factor.
        shear: Largest shear, as a tangent.
        brightness: Values are multiplied by 1 plus or minus up to this.
        mosaic: Probability that a tile is put together from four.
        tuned_epochs: Epochs in which both detectors also learn false positives as background; 0: none.
        tuned_rate: The learning rate of these.
        tuned_actionable: Slices of actionable volumes per lesion slice in these.
        false_positives_from: Boxes of actionable volumes with this score or more are false positives to learn from.
        false_positives: Such boxes per volume at most.
        cube: The side of the closing's cube in voxels.
        closing_pixel: Pixels of the volume per voxel in the plane.
        closed_from: Boxes with a lower score are not painted.
    """

    network: str = "csp-medium"
    second: str = "csp-large"
    weights: str = "none"
    neighbours: bool = True
    reach: int = 3
    least_score: float = 0.001
    epochs: int = 60
    optimiser: str = "adam"
    learning_rate: float = 5e-4
    momentum: float = 0.937
    weight_decay: float = 5e-4
    flip_vertical: float = 0.5
    zoom: tuple[float, ...] = (0.8, 1.25)
    shear: float = 0.05
    brightness: float = 0.2
    mosaic: float = 0.5
    tuned_epochs: int = 10
    tuned_rate: float = 5e-5
    tuned_actionable: float = 0.5
    false_positives_from: float = 0.2
    false_positives: int = 5
    cube: int = 5
    closing_pixel: float = 2.0
    closed_from: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cube < 1 or self.cube % 2 == 0:
            raise UserError(f"cube is {self.cube}", fix="Give an odd number, 1 or more.")
        if self.tuned_epochs < 0:
            raise UserError(f"tuned_epochs is {self.tuned_epochs}", fix="Give 0 or more.")


@recipes.register("pittrad")
class Pittrad(VolumeDetector):
    """Close the painted boxes of all slices; the detectors learn once more with false positives of their own."""

    title = "CSP detectors, closing, actionable false positives"
    version = 1
    follows = (
        "PittRad, seventh: YOLOv5 medium and large with three slices as channels, translation, changes of colour, shear, "
        "flips and mosaic, Adam with 5e-4 and then 5e-5, momentum 0.937; the false positives of the medium network in "
        "actionable volumes join the training of both; boxes are painted into the volume, closed with a cube of five "
        "and joined to components with the highest score. YOLOv5 is published under a licence that excludes its use "
        "here: ours is a CSP network with a path-aggregation pyramid written from the papers, with focal loss, and it "
        "starts from scratch instead of COCO. The numbers of epochs are ours."
    )
    Settings = PittradSettings

    def learn(self, job: Job) -> Learned:
        settings: PittradSettings = job.settings
        learned = Learned()
        detectors = {}
        for number, (name, network) in enumerate(_networks(settings).items()):
            member = Member(
                name=name, number=number, train=job.train, validation=job.validation, network=network
            )
            detectors[name] = train_member(job, settings, member, learned)
        if settings.tuned_epochs:
            wrong = self._false_positives(job, settings, detectors["first"])
            learned.details["false_positives"] = sum(map(len, wrong.values()))
            tuned = replace(
                settings,
                epochs=settings.tuned_epochs,
                learning_rate=settings.tuned_rate,
                actionable=settings.tuned_actionable,
            )
            for number, name in enumerate(detectors):
                member = Member(
                    name=f"{name}-tuned",
                    number=10 + number,
                    train=job.train,
                    validation=job.validation,
                    start=detectors[name],
                    detections=wrong,
                )
                learned.networks[name] = train_member(job, tuned, member, learned, keep=False)
        return learned

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        from elsewhere.networks.detectors import build_detector

        return build_detector(_networks(settings)[name])

    @staticmethod
    def _false_positives(job: Job, settings: PittradSettings, network: Any) -> Mapping[str, Boxes]:
        """The boxes in actionable volumes of the training part: what was suspected there, no biopsy confirmed."""
        from elsewhere.training.detection.volume_inference import predict_volume

        found = {}
        for case in with_volume(job, job.train):
            if job.pixels.finding(case) == "actionable":
                boxes = predict_volume(network, job.pixels, case, inference_of(settings))
                likely = boxes.take(boxes.score >= settings.false_positives_from)
                found[case] = likely.best(settings.false_positives)
        return found

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import detect_slices, store_volume

        settings: PittradSettings = job.settings
        options = inference_of(settings)
        stored, slices = store_volume(next(iter(networks.values())), job.pixels, case, options)
        pairs = [(case, z) for z in slices]
        found = Boxes.join(
            [detect_slices(network, stored, pairs, options)[0] for network in networks.values()]
        )
        rules = ClosingOptions(
            cube=settings.cube, pixel=settings.closing_pixel, least_score=settings.closed_from
        )
        return close_boxes(found, rules)


def _networks(settings: PittradSettings) -> dict[str, str]:
    return {"first": settings.network} | ({"second": settings.second} if settings.second else {})
