"""A U-Net: an encoder that halves the picture four times, and a decoder that adds the finer maps back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from elsewhere.networks.segmenters.layers import conv_block


class UNet(nn.Module):
    """Normalised pictures to logits of 'tumour', one per pixel.

    Args:
        widths: Channels at full size, 1/2, 1/4, 1/8 and 1/16.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.down = nn.ModuleList(_two(a, b) for a, b in zip((3, *widths[:-1]), widths, strict=True))
        finer = list(reversed(widths[:-1]))
        self.up = nn.ModuleList(
            _two(deep + skip, skip) for deep, skip in zip((widths[-1], *finer[:-1]), finer, strict=True)
        )
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits.

        Args:
            x: (n, 3, height, width), normalised; multiples of 16.

        Returns:
            (n, 1, height, width).
        """
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else _halved(x))
            skips.append(x)
        skips.pop()
        for block in self.up:
            wide = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([wide, skips.pop()], dim=1))
        logits: torch.Tensor = self.head(x)
        return logits


def _two(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(*conv_block(inside, outside), *conv_block(outside, outside))


def _halved(x: torch.Tensor) -> torch.Tensor:
    """The largest of each 2 x 2 pixels; the backward pass of torch's own pooling adds in any order on a GPU."""
    n, channels, height, width = x.shape
    return x.reshape(n, channels, height // 2, 2, width // 2, 2).amax(dim=(3, 5))
