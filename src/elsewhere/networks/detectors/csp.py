"""A one-stage detector with a CSP body and a path-aggregation pyramid (PittRad's kind of network, DBT-16).

Written from the papers: cross-stage partial networks (Wang et al. 2020), spatial pyramid pooling (He et al. 2015) and
path aggregation (Liu et al. 2018). No code of a YOLO project was used. Ours differs from YOLOv5, which the team took:
anchors are matched by IoU, the loss is focal, and boxes are judged by the generalised IoU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn import functional

from elsewhere.networks.detectors.anchors import AnchorSettings, MatchSettings
from elsewhere.networks.detectors.one_stage import AnchorDetector


@dataclass(frozen=True, kw_only=True)
class CspSettings:
    """The size of the detector: "medium" and "large" differ in depth and width, as the team's two networks do.

    Args:
        depth: Multiplies the number of blocks per stage.
        width: Multiplies the channels.
        channels: Channels of the maps that the towers see.
        anchors: The anchors.
        match: When an anchor stands for a lesion, and the focal loss.
    """

    depth: float = 0.67
    width: float = 0.75
    channels: int = 128
    anchors: AnchorSettings = field(default_factory=lambda: AnchorSettings(shapes=(0.67, 1.0, 1.5)))
    match: MatchSettings = field(default_factory=lambda: MatchSettings(generalised=True, box_weight=2.0))


MEDIUM = CspSettings()
LARGE = replace(MEDIUM, depth=1.0, width=1.0, channels=192)
SIZES = {"medium": MEDIUM, "large": LARGE, "tiny": replace(MEDIUM, depth=0.33, width=0.125, channels=24)}
"""The sizes by name; `tiny` is for tests."""


class ConvUnit(nn.Module):
    """Convolution, batch norm, SiLU.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        kernel: The size of the kernel.
        stride: The stride.
    """

    def __init__(self, inside: int, outside: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the maps.

        Args:
            x: (n, inside, height, width).

        Returns:
            (n, outside, height / stride, width / stride).
        """
        return functional.silu(self.norm(self.conv(x)))


class CspStage(nn.Module):
    """A cross-stage partial stage: half of the channels pass the blocks, the other half goes around them.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        blocks: How many blocks of a 1 x 1 and a 3 x 3 convolution.
        residual: Whether each block's input is added to its output.
    """

    def __init__(self, inside: int, outside: int, blocks: int, *, residual: bool = True) -> None:
        super().__init__()
        half = outside // 2
        self.around, self.into = ConvUnit(inside, half), ConvUnit(inside, half)
        self.blocks = nn.ModuleList(
            nn.Sequential(ConvUnit(half, half), ConvUnit(half, half, 3)) for _ in range(blocks)
        )
        self.merge = ConvUnit(2 * half, outside)
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the maps.

        Args:
            x: (n, inside, height, width).

        Returns:
            (n, outside, height, width).
        """
        y = self.into(x)
        for block in self.blocks:
            y = y + block(y) if self.residual else block(y)
        return self.merge(torch.cat([y, self.around(x)], dim=1))


class PyramidPooling(nn.Module):
    """Maxima over windows of 5, 9 and 13 cells next to the map itself.

    Args:
        channels: Channels of the input and the output.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.into = ConvUnit(channels, channels // 2)
        self.merge = ConvUnit(channels // 2 * 4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the map.

        Args:
            x: (n, channels, height, width).

        Returns:
            As `x`.
        """
        y = self.into(x)
        pooled = [functional.max_pool2d(y, size, 1, size // 2) for size in (5, 9, 13)]
        return self.merge(torch.cat([y, *pooled], dim=1))


class CspPyramid(nn.Module):
    """The body and the pyramid, from the smallest map to the largest and back.

    Args:
        settings: See `CspSettings`.
    """

    def __init__(self, settings: CspSettings) -> None:
        super().__init__()
        widths = [max(8, int(width * settings.width) // 8 * 8) for width in (64, 128, 256, 512, 1024)]
        blocks = [max(1, round(count * settings.depth)) for count in (3, 6, 9, 3)]
        self.stem = ConvUnit(3, widths[0], 5, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvUnit(a, b, 3, 2), CspStage(b, b, count))
            for a, b, count in zip(widths[:-1], widths[1:], blocks, strict=True)
        )
        self.pool = PyramidPooling(widths[-1])
        channels, few = settings.channels, blocks[-1]
        self.inputs = nn.ModuleList(ConvUnit(width, channels) for width in widths[2:])
        self.down = nn.ModuleList(CspStage(2 * channels, channels, few, residual=False) for _ in range(2))
        self.smaller = nn.ModuleList(ConvUnit(channels, channels, 3, 2) for _ in range(2))
        self.up = nn.ModuleList(CspStage(2 * channels, channels, few, residual=False) for _ in range(2))
        self.last = ConvUnit(channels, channels, 3, 2)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width) from 0 to 1.

        Returns:
            Maps at 1/8, 1/16, 1/32 and 1/64 of the height and width.
        """
        maps, y = [], self.stem(x)
        for stage in self.stages:
            y = stage(y)
            maps.append(y)
        maps[-1] = self.pool(maps[-1])
        large, middle, small = (inside(one) for inside, one in zip(self.inputs, maps[1:], strict=True))
        middle = self.down[0](torch.cat([middle, _twice(small)], dim=1))
        large = self.down[1](torch.cat([large, _twice(middle)], dim=1))
        middle = self.up[0](torch.cat([self.smaller[0](large), middle], dim=1))
        small = self.up[1](torch.cat([self.smaller[1](middle), small], dim=1))
        return [large, middle, small, self.last(small)]


def _twice(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class CspDetector(AnchorDetector):
    """The detector.

    Args:
        settings: See `CspSettings`.
    """

    def __init__(self, settings: CspSettings) -> None:
        super().__init__(
            CspPyramid(settings),
            channels=settings.channels,
            depth=1,
            anchors=settings.anchors,
            match=settings.match,
            multiple=64,
        )
