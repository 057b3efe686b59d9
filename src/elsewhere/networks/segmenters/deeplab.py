"""DeepLabV3 with small bodies (LN-09): maps at 1/16, dilated convolutions side by side, bilinear enlargement.

Parameters have the names of torchvision's `deeplabv3_mobilenet_v3_large`, so that its published weights fit.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from elsewhere.networks.efficientnet_lite import EfficientNetLite, LiteEncoder, SameConv
from elsewhere.networks.segmenters.layers import BilinearUpsample, MaskedDropout, conv_block

STRIDE = 16
"""The body's last map is smaller than the picture by this."""
RATES = (12, 24, 36)
"""Dilations of the convolutions side by side."""


class AtrousPyramid(nn.Module):
    """Convolutions of several dilations and the mean of the map, side by side.

    Args:
        inside: Channels of the body's last map.
        outside: Channels of each branch and of the result.
        dropout: The probability that a value of the result is dropped in training.
    """

    def __init__(self, inside: int, outside: int, *, dropout: float = 0.5) -> None:
        super().__init__()
        pooled = nn.Sequential(nn.Identity(), *conv_block(inside, outside, kernel=1))
        self.convs = nn.ModuleList(
            [
                conv_block(inside, outside, kernel=1),
                *(conv_block(inside, outside, dilation=rate) for rate in RATES),
                pooled,
            ]
        )
        self.project = nn.Sequential(
            *conv_block(len(self.convs) * outside, outside, kernel=1), MaskedDropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the map.

        Args:
            x: (n, inside, height, width).

        Returns:
            (n, outside, height, width).
        """
        *branches, pooled = self.convs
        mean = pooled(x.mean(dim=(2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])
        return self.project(torch.cat([*(branch(x) for branch in branches), mean], dim=1))


class DeepLab(nn.Module):
    """DeepLabV3: normalised pictures to logits of 'tumour', one per pixel.

    Args:
        backbone: Returns a map at 1/16.
        inside: Its channels.
        outside: Channels of the pyramid.
        dropout: The probability that a value of the pyramid is dropped in training.
    """

    def __init__(self, backbone: nn.Module, *, inside: int, outside: int = 256, dropout: float = 0.5) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = nn.Sequential(
            AtrousPyramid(inside, outside, dropout=dropout),
            *conv_block(outside, outside),
            nn.Conv2d(outside, 1, 1),
        )
        self.enlarge = BilinearUpsample(STRIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits.

        Args:
            x: (n, 3, height, width), normalised; multiples of 16.

        Returns:
            (n, 1, height, width).
        """
        return self.enlarge(self.classifier(self.backbone(x)))


def mobilenet_v3_body() -> nn.Module:
    """Make MobileNetV3-Large whose last stage is dilated instead of strided.

    Returns:
        The body: 960 channels at 1/16.
    """
    from torchvision.models import mobilenet_v3_large

    return mobilenet_v3_large(weights=None, dilated=True).features


def mobilenet_v2_body() -> nn.Module:
    """Make MobileNetV2 whose last stage is dilated instead of strided.

    Returns:
        The body: 1,280 channels at 1/16.
    """
    from torchvision.models import mobilenet_v2

    body = mobilenet_v2(weights=None).features
    dilate_last_stage(body)
    return body


class LiteBody(nn.Module):
    """EfficientNet-Lite0 whose last stage is dilated instead of strided: 320 channels at 1/16."""

    def __init__(self) -> None:
        super().__init__()
        network = EfficientNetLite("efficientnet-lite0")
        dilate_last_stage(network)
        self.encoder = LiteEncoder(network)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the last map.

        Args:
            x: (n, 3, height, width).

        Returns:
            (n, 320, height / 16, width / 16).
        """
        last: torch.Tensor = self.encoder(x)[-1]
        return last


def tiny_body() -> nn.Module:
    """Make four strided convolutions, for tests and small phantoms on a CPU.

    Returns:
        The body: 32 channels at 1/16.
    """
    widths = (3, 8, 12, 16, 32)
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(widths):
        layers += [
            nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


def dilate_last_stage(body: nn.Module) -> None:
    """Make the last strided convolution one without a stride, and dilate it and those after it by 2.

    Args:
        body: A network whose depthwise convolutions carry the strides; changed.
    """
    spatial = [part for part in body.modules() if isinstance(part, nn.Conv2d) and part.kernel_size[0] > 1]
    last = max(at for at, part in enumerate(spatial) if part.stride[0] == 2)
    for at, part in enumerate(spatial[last:]):
        if at == 0:
            part.stride = (1, 1)
            continue
        part.dilation = (2, 2)
        if not isinstance(part, SameConv):
            part.padding = (part.kernel_size[0] - 1, part.kernel_size[0] - 1)
