"""Faster R-CNN with a feature pyramid (baseline, VICOROB, UCLA-MII, pranjalsahu; DBT-10, DBT-16).

The parts are torchvision's, and so are the names of the parameters: COCO weights fit. Pictures are not resized: a slice or
a tile keeps its pixels. Under bfloat16 the places of boxes stay in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import MultiScaleRoIAlign

from elsewhere.networks.detectors.backbones import Backbone
from elsewhere.networks.detectors.base import DetectOptions, Detector, Found, Targets, pad_found

COCO = {"resnet50": "https://download.pytorch.org/models/fasterrcnn_resnet50_fpn_coco-258fb6c6.pth"}
"""Where torchvision publishes whole detectors, by body."""


@dataclass(frozen=True, kw_only=True)
class FasterRcnnSettings:
    """What differs between the Faster R-CNNs; the rest is as in the original work.

    Args:
        body: One of `backbones.BODIES`.
        channels: Channels of the pyramid.
        head: Width of the two layers that judge a region.
        trained_stages: How many of the body's last stages are trained (pranjalsahu: 3).
        smallest: The side of the smallest anchors in pixels; each level doubles it.
        shapes: Height over width of the anchors.
        proposals: How many regions of a picture are judged.
        positive_from: Regions with this IoU or more with a lesion are lesions.
        sampled: How many regions of a picture are trained on.
    """

    body: str = "resnet50"
    channels: int = 256
    head: int = 1024
    trained_stages: int = 5
    smallest: float = 32.0
    shapes: tuple[float, ...] = (0.5, 1.0, 2.0)
    proposals: int = 1000
    positive_from: float = 0.5
    sampled: int = 512


class _Anchors(AnchorGenerator):
    """Anchors in single precision, whatever the maps are."""

    def forward(self, image_list: ImageList, feature_maps: list[torch.Tensor]) -> list[torch.Tensor]:
        plain = [torch.empty((), device=one.device).expand(one.shape) for one in feature_maps]
        return super().forward(image_list, plain)


class _ProposalHead(RPNHead):
    def forward(self, x: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        logits, steps = super().forward(x)
        return [one.float() for one in logits], [one.float() for one in steps]


class _Predictor(FastRCNNPredictor):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, steps = super().forward(x)
        return logits.float(), steps.float()


class FasterRcnn(Detector):
    """A Faster R-CNN.

    Args:
        settings: See `FasterRcnnSettings`.

    Raises:
        UserError: The body is unknown.
    """

    def __init__(self, settings: FasterRcnnSettings) -> None:
        super().__init__()
        self.backbone = Backbone(
            settings.body, channels=settings.channels, trained_stages=settings.trained_stages
        )
        self.body_name = settings.body
        anchors = _Anchors(
            sizes=tuple((settings.smallest * 2**level,) for level in range(5)),
            aspect_ratios=(settings.shapes,) * 5,
        )
        counts = {"training": 2 * settings.proposals, "testing": settings.proposals}
        self.rpn = RegionProposalNetwork(
            anchors,
            _ProposalHead(settings.channels, len(settings.shapes)),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=256,
            positive_fraction=0.5,
            pre_nms_top_n=counts,
            post_nms_top_n=counts,
            nms_thresh=0.7,
        )
        self.roi_heads = RoIHeads(
            MultiScaleRoIAlign(featmap_names=["0", "1", "2", "3"], output_size=7, sampling_ratio=2),
            TwoMLPHead(settings.channels * 49, settings.head),
            _Predictor(settings.head, 2),
            fg_iou_thresh=settings.positive_from,
            bg_iou_thresh=settings.positive_from,
            batch_size_per_image=settings.sampled,
            positive_fraction=0.25,
            bbox_reg_weights=None,
            score_thresh=0.0,
            nms_thresh=0.5,
            detections_per_img=100,
        )

    @property
    def body(self) -> nn.Module:
        """The part that starts from ImageNet weights."""
        return self.backbone.body

    def losses(self, pictures: torch.Tensor, targets: Targets) -> dict[str, torch.Tensor]:
        """Return the parts of the loss; their sum is minimised.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.
            targets: Their lesions.

        Returns:
            One number by name.
        """
        there = targets.there
        rows = [
            {"boxes": box[one].float(), "labels": torch.ones_like(label[one])}
            for box, label, one in zip(targets.box, targets.label, there, strict=True)
        ]
        images = self._images(pictures)
        maps = self.backbone(pictures)
        proposals, first = self.rpn(images, maps, rows)
        _, second = self.roi_heads(maps, proposals, images.image_sizes, rows)
        return {**first, **second}

    def detect(self, pictures: torch.Tensor, options: DetectOptions) -> Found:
        """Find lesions, in evaluation mode.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.
            options: Which boxes are returned.

        Returns:
            The boxes.
        """
        images = self._images(pictures)
        maps = self.backbone(pictures)
        proposals, _ = self.rpn(images, maps)
        heads = self.roi_heads
        heads.score_thresh, heads.nms_thresh = options.least_score, options.overlap
        heads.detections_per_img = options.most
        found: Sequence[dict[str, torch.Tensor]] = heads(maps, proposals, images.image_sizes)[0]
        return pad_found([one["boxes"] for one in found], [one["scores"] for one in found], options.most)

    @staticmethod
    def _images(pictures: torch.Tensor) -> ImageList:
        return ImageList(pictures, [(pictures.shape[2], pictures.shape[3])] * len(pictures))
