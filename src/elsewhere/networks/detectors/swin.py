"""Swin transformer as the body of a detector (ZeDuS in phase 2, DBT-16): torchvision's, with a map after each stage."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, kw_only=True)
class SwinShape:
    """The size of a Swin transformer.

    Args:
        channels: Channels of the first stage; each further one has twice as many.
        depths: Blocks per stage.
        heads: Attention heads per stage.
        window: The side of the attention windows.
        dropped_paths: The probability that the last block is left out in training.
    """

    channels: int = 96
    depths: tuple[int, int, int, int] = (2, 2, 6, 2)
    heads: tuple[int, int, int, int] = (3, 6, 12, 24)
    window: int = 7
    dropped_paths: float = 0.2


class SwinBody(nn.Module):
    """The four stages of a Swin transformer. Parameters have the names of torchvision's `swin_t`.

    Args:
        shape: Its size; None: that of the published Swin-T.

    Attributes:
        widths: Channels of the four maps.
    """

    def __init__(self, shape: SwinShape | None = None) -> None:
        super().__init__()
        from torchvision.models.swin_transformer import SwinTransformer

        size = shape or SwinShape()
        whole = SwinTransformer(
            patch_size=[4, 4],
            embed_dim=size.channels,
            depths=list(size.depths),
            num_heads=list(size.heads),
            window_size=[size.window, size.window],
            stochastic_depth_prob=size.dropped_paths,
            num_classes=1,
        )
        self.features = whole.features
        self.widths = tuple(size.channels * 2**stage for stage in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in self.widths)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width).

        Returns:
            Maps at 1/4, 1/8, 1/16 and 1/32 of the height and width.
        """
        maps = []
        for at, layer in enumerate(self.features):
            x = layer(x)
            if at % 2:
                maps.append(self.norms[at // 2](x).permute(0, 3, 1, 2).contiguous())
        return maps
