"""RetinaNet: a pyramid, two towers shared by its levels, and the focal loss (ZeDuS had twelve of them, DBT-16)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from elsewhere.networks.detectors.anchors import AnchorSettings, MatchSettings
from elsewhere.networks.detectors.backbones import Backbone
from elsewhere.networks.detectors.one_stage import AnchorDetector


@dataclass(frozen=True, kw_only=True)
class RetinaNetSettings:
    """What differs between RetinaNets. ZeDuS varied the number of layers and their width.

    Args:
        body: One of `backbones.BODIES`.
        channels: Channels of the pyramid and of the towers.
        depth: Convolutions per tower.
        trained_stages: How many of the body's last stages are trained.
        anchors: The anchors.
        match: When an anchor stands for a lesion, and the focal loss.
    """

    body: str = "resnet50"
    channels: int = 256
    depth: int = 4
    trained_stages: int = 5
    anchors: AnchorSettings = field(default_factory=AnchorSettings)
    match: MatchSettings = field(default_factory=MatchSettings)


class _Levels(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return list(self.backbone(x).values())


class RetinaNet(AnchorDetector):
    """A RetinaNet. Its towers have group norms, which the first RetinaNet lacked.

    Args:
        settings: See `RetinaNetSettings`.

    Raises:
        UserError: The body is unknown.
    """

    def __init__(self, settings: RetinaNetSettings) -> None:
        backbone = Backbone(
            settings.body,
            channels=settings.channels,
            levels="conv",
            trained_stages=settings.trained_stages,
        )
        super().__init__(
            _Levels(backbone),
            channels=settings.channels,
            depth=settings.depth,
            anchors=settings.anchors,
            match=settings.match,
        )
        self.body_name = settings.body

    @property
    def body(self) -> nn.Module:
        """The part that starts from ImageNet weights."""
        backbone: Backbone = self.features.backbone  # type: ignore[assignment]
        return backbone.body
