"""Faster R-CNN with suppression over the volume and a classifier of false positives: after VICOROB (DBT-11, DBT-13,
DBT-16, DBT-17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.boxes import Boxes
from elsewhere.boxes.volume_suppression import VolumeSuppressionOptions, suppress_volume
from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.splits import grouped_folds
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, fit_options, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    have_lesions,
    network_seed,
    slices_of,
    train_classifier,
    train_member,
    with_volume,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.training.detection.false_positives import FalsePositiveSettings

CLASSIFIER, DETECTOR = "false-positives", "detector"


@dataclass(frozen=True, kw_only=True)
class VicorobSettings(DetectorSettings):
    """Settings of the recipe 'vicorob': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        network: One of `networks.detectors.DETECTORS`; the team took ResNet-101 and Res2Net as bodies.
        weights: 'imagenet', 'none', or a file such as one trained on mammograms.
        neighbours: Whether the channels are the slice before, the slice and the one after.
        reach: Slices up to this far from a lesion's slice show it.
        least_score: Boxes of a slice with a lower score are dropped.
        rotation: Largest turn in degrees.
        skipped: Slices at each end that are not looked at.
        volume_overlap: Boxes of neighbouring slices above this IoU with a better one are dropped.
        volume_reach: How far these may lie apart, as a share of the slices.
        boxes_per_volume: Boxes of a volume at most.
        folds: Folds of the training cases by which detections for the classifier are gathered; 0: no classifier.
        classifier: The classifier of detections, as `networks.detectors.build_slice_classifier` takes it.
        classifier_weights: 'imagenet', 'none', or a file.
        classifier_tile: Height and width of the picture around a detection, in the detector's pixels.
        classifier_epochs: Its epochs.
        classifier_least: Detections that it finds less likely are dropped.
    """

    network: str = "faster-rcnn-resnet101"
    weights: str = "imagenet"
    neighbours: bool = True
    reach: int = 3
    least_score: float = 0.001
    rotation: float = 10.0
    skipped: int = 4
    volume_overlap: float = 0.5
    volume_reach: float = 0.25
    boxes_per_volume: int = 15
    folds: int = 5
    classifier: str = "efficientnet-lite0"
    classifier_weights: str = "imagenet"
    classifier_tile: tuple[int, ...] = (256, 256)
    classifier_epochs: int = 10
    classifier_least: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds < 0 or self.folds == 1:
            raise UserError(f"folds is {self.folds}", fix="Give 2 or more, or 0 for no classifier.")


@recipes.register("vicorob")
class Vicorob(VolumeDetector):
    """Suppress over neighbouring slices, and drop what a classifier of true and false detections finds unlikely."""

    title = "Faster R-CNN, volume suppression, false-positive classifier"
    version = 1
    follows = (
        "VICOROB, third: Faster R-CNN with ResNet-101 or Res2Net, every slice but the first and last four, scores of "
        "0.001 or more, suppression at IoU 0.5 over a quarter of the slices, at most 15 boxes per volume; in phase 2 "
        "no ensemble, benign lesions too, and a classifier on detections that were gathered by cross-validation, with "
        "a threshold of 0.05. Their networks came from COCO by way of 3,614 lesions of OPTIMAM, which cannot be had; "
        "ours start from ImageNet. The classifier's network is ours."
    )
    Settings = VicorobSettings

    def learn(self, job: Job) -> Learned:
        settings: VicorobSettings = job.settings
        learned = Learned()
        if settings.folds:
            self._learn_classifier(job, settings, self._cross_validated(job, settings, learned), learned)
        member = Member(name=DETECTOR, train=job.train, validation=job.validation)
        train_member(job, settings, member, learned)
        return learned

    def _cross_validated(self, job: Job, settings: VicorobSettings, learned: Learned) -> Mapping[str, Boxes]:
        """Detections in every training volume, by a detector that did not learn from its patient."""
        found: dict[str, Boxes] = {}
        for number, (learn, held) in enumerate(grouped_folds(job.train, settings.folds, seed=job.seed)):
            if not have_lesions(job, learn):
                learned.notes.append(f"Fold {number + 1} has no lesion to learn from, and was left out.")
                continue
            member = Member(name=f"fold-{number}", number=10 + number, train=learn)
            network = train_member(job, settings, member, learned, keep=False)
            for case in with_volume(job, held):
                found[case] = self._detect(job, settings, network, case)
        return found

    def _learn_classifier(
        self, job: Job, settings: VicorobSettings, found: Mapping[str, Boxes], learned: Learned
    ) -> None:
        from elsewhere.training.detection.false_positives import list_detections

        table = list_detections(job.pixels, found, detection_rules(settings))
        true = int((table.kind == 0).sum())
        learned.details["true_detections"], learned.details["false_detections"] = true, len(table) - true
        if not 0 < true < len(table):
            learned.notes.append(
                "The detections of the cross-validation are all true or all false: they are not classified."
            )
            return
        of_detections = replace(
            settings,
            tile=settings.classifier_tile,
            tile_overlap=0,
            epochs=settings.classifier_epochs,
            negatives=1.0,
            keep_weights="last",
            copy_paste=0.0,
            mosaic=0.0,
        )
        options = fit_options(job, of_detections, name=CLASSIFIER, seed=network_seed(job, 99))
        train_classifier(job, options, (table, None), lambda: self._classifier(job, settings), learned)

    @staticmethod
    def _classifier(job: Job, settings: VicorobSettings) -> Any:
        from elsewhere.networks.detectors import build_slice_classifier

        return build_slice_classifier(
            settings.classifier,
            weights=settings.classifier_weights,
            known=job.weights,
            seed=network_seed(job, 99) % 2**31,
        )

    def build(self, settings: Any, name: str) -> torch.nn.Module:
        from elsewhere.networks.detectors import build_detector, build_slice_classifier

        if name == CLASSIFIER:
            return build_slice_classifier(settings.classifier)
        return build_detector(settings.network)

    @staticmethod
    def _detect(job: Job, settings: VicorobSettings, network: Any, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import predict_volume

        boxes = predict_volume(network, job.pixels, case, inference_of(settings, skipped=settings.skipped))
        rules = VolumeSuppressionOptions(
            least_score=settings.least_score,
            overlap=settings.volume_overlap,
            reach=settings.volume_reach,
            most=settings.boxes_per_volume,
            skipped=settings.skipped,
        )
        return suppress_volume(boxes, slices_of(job, case), rules)

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.cuda import select_device
        from elsewhere.training.detection.device_slices import DeviceSlices
        from elsewhere.training.detection.false_positives import drop_unlikely, score_detections

        settings: VicorobSettings = job.settings
        boxes = self._detect(job, settings, networks[DETECTOR], case)
        if CLASSIFIER not in networks or not len(boxes):
            return boxes
        options = inference_of(settings)
        middle = np.floor(boxes.centre_slice).astype(int).tolist()
        stored = DeviceSlices(
            job.pixels,
            [(case, z) for z in sorted(set(middle))],
            options.storage,
            select_device(job.device),
            neighbours=options.neighbours,
        )
        height, width = settings.classifier_tile
        likely = score_detections(networks[CLASSIFIER], stored, case, boxes, size=(height, width))
        return drop_unlikely(boxes, likely, settings.classifier_least)


def detection_rules(settings: VicorobSettings) -> FalsePositiveSettings:
    """Return which detections the classifier learns.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of `training.detection`.
    """
    from elsewhere.training.detection.false_positives import FalsePositiveSettings

    return FalsePositiveSettings(
        per_volume=settings.boxes_per_volume,
        floor_px=settings.floor_px,
        size=(settings.classifier_tile[0], settings.classifier_tile[1]),
        least=settings.classifier_least,
    )
