"""Masked autoencoding of volumes: hide most blocks of a patch, draw them from the rest (MRI-15, MIC)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from elsewhere.training.volumes.networks import Decoder, Encoder, build_network
from elsewhere.training.volumes.planning import Plan

PATTERNS = 2048


class MaskedAutoencoder(nn.Module):
    """The plan's encoder and a decoder that reconstructs the channels.

    Which blocks are hidden follows from a table that was drawn before and a counter that is saved with the
    weights: a captured step draws nothing, and a pretraining that was stopped resumes with the same blocks.

    Args:
        plan: The plan of the segmentation that follows.
        seed: Seed of the weights and the table.
        hidden: The share of blocks that are hidden.
        block: Voxels along a block's edge, at most half of the patch's.
    """

    turn: torch.Tensor
    patterns: torch.Tensor

    def __init__(self, plan: Plan, *, seed: int, hidden: float = 0.75, block: int = 16) -> None:
        super().__init__()
        whole = build_network(plan, seed=seed, outputs=plan.channels, deep_supervision=False)
        self.encoder: Encoder = whole.encoder
        self.decoder: Decoder = whole.decoder
        self.blank = nn.Parameter(torch.zeros(1, plan.channels, 1, 1, 1))
        self.block = tuple(max(1, min(block, edge // 2)) if edge > 1 else 1 for edge in plan.patch)
        self.patch = plan.patch
        cells = [math.ceil(edge / size) for edge, size in zip(plan.patch, self.block, strict=True)]
        self.register_buffer("patterns", _patterns(cells, hidden, seed), persistent=False)
        self.register_buffer("turn", torch.zeros(1, dtype=torch.int64))

    def hide(self, count: int) -> torch.Tensor:
        """Return which voxels are hidden in the step that the counter stands at.

        Args:
            count: Patches.

        Returns:
            [count, 1, x, y, z], 1 where a voxel is hidden.
        """
        rows = (self.turn * count + torch.arange(count, device=self.turn.device)) % PATTERNS
        table = self.patterns.index_select(0, rows).unsqueeze(1)
        for axis, size in enumerate(self.block):
            table = table.repeat_interleave(size, dim=axis + 2)
        x, y, z = self.patch
        return table[:, :, :x, :y, :z]

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hide blocks of patches and draw the patches from the rest; in training the counter moves on.

        Args:
            image: [n, channels, x, y, z].

        Returns:
            The drawn patches, as `image`, and where voxels were hidden, [n, 1, x, y, z].
        """
        hidden = self.hide(len(image)).to(image.dtype)
        seen = image * (1 - hidden) + self.blank.to(image.dtype) * hidden
        if self.training:
            self.turn += 1
        return self.decoder(self.encoder(seen)), hidden


def masked_objective(
    network: Any, image: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """Return the mean squared error of what was hidden; masks and weights of cases play no part.

    Args:
        network: A `MaskedAutoencoder`.
        image: [batch, channel, x, y, z].
        target: Not used.
        weight: Not used.

    Returns:
        One number.
    """
    drawn, hidden = network(image)
    error = (drawn.float() - image.float()).square() * hidden
    return error.sum() / (hidden.sum() * image.shape[1]).clamp_min(1.0)


def copy_pretrained(pretrained: MaskedAutoencoder, network: Any) -> None:
    """Copy the encoder, and the decoder without its heads, into a segmentation network.

    Args:
        pretrained: The pretrained network.
        network: A network of the same plan; changed in place.
    """
    network.encoder.load_state_dict(pretrained.encoder.state_dict())
    network.decoder.ups.load_state_dict(pretrained.decoder.ups.state_dict())


def _patterns(cells: Sequence[int], hidden: float, seed: int) -> torch.Tensor:
    """Draw the patterns; exactly the same share is hidden in each, never all and never none."""
    rng = np.random.default_rng([seed, 3])
    count = math.prod(cells)
    some = min(max(1, round(hidden * count)), max(1, count - 1))
    order = np.argsort(rng.random((PATTERNS, count)), axis=1)
    table = (order < some).astype(np.float32).reshape(PATTERNS, *cells)
    return torch.from_numpy(table)
