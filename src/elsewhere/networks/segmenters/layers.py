"""Parts of segmenters whose sums have one order, so that a step can be recorded and gives the same numbers again."""

from __future__ import annotations

import torch
from torch import nn


class BilinearUpsample(nn.Module):
    """Enlarge maps bilinearly by two matrix products; torch's own backward pass on a GPU adds in any order.

    Args:
        factor: How many times wider and higher the maps become.
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self._matrices: dict[tuple[int, torch.device, torch.dtype], torch.Tensor] = {}

    def _matrix(self, size: int, like: torch.Tensor) -> torch.Tensor:
        key = (size, like.device, like.dtype)
        if key not in self._matrices:
            made = bilinear_matrix(size, size * self.factor)
            self._matrices[key] = made.to(device=like.device, dtype=like.dtype)
        return self._matrices[key]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Enlarge maps.

        Args:
            x: (n, channels, height, width).

        Returns:
            (n, channels, factor * height, factor * width).
        """
        x = x.float()
        with torch.autocast(x.device.type, enabled=False):
            return self._matrix(x.shape[2], x) @ x @ self._matrix(x.shape[3], x).T


def bilinear_matrix(before: int, after: int) -> torch.Tensor:
    """Return the matrix that interpolates a line linearly, with pixel centres as in `interpolate(align_corners=False)`.

    Args:
        before: Pixels of the line.
        after: Pixels of the longer line.

    Returns:
        (after, before), rows that add up to 1.

    Example:
        >>> bilinear_matrix(2, 4).tolist()
        [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    position = ((torch.arange(after, dtype=torch.float64) + 0.5) * before / after - 0.5).clamp(0, before - 1)
    low = position.floor().long().clamp(max=max(before - 2, 0))
    high = (low + 1).clamp(max=before - 1)
    share = position - low
    matrix = torch.zeros((after, before), dtype=torch.float64)
    rows = torch.arange(after)
    matrix[rows, low] += 1 - share
    matrix[rows, high] += share
    return matrix.float()


class MaskedDropout(nn.Module):
    """Drop values at random, by a mask that the training loop draws with its own generator.

    Args:
        rate: The probability that a value is dropped.

    Attributes:
        mask: (n, channels, height, width), True for what stays; None: torch's global generator draws.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop values while training; evaluation leaves them.

        Args:
            x: (n, channels, height, width).

        Returns:
            As `x`.
        """
        if not self.training or self.rate == 0:
            return x
        if self.mask is None:
            return nn.functional.dropout(x, self.rate, training=True)
        return x * self.mask.to(x.dtype) / (1.0 - self.rate)


def conv_block(inside: int, outside: int, *, kernel: int = 3, dilation: int = 1) -> nn.Sequential:
    """Make a convolution with batch norm and ReLU.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        kernel: Pixels along the kernel.
        dilation: Pixels between two of its values.

    Returns:
        The three layers; maps keep their size.
    """
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )
