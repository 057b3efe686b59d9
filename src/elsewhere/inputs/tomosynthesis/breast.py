"""Finds the breast in slices: on which side it lies, the box around it, and the range of its values.

The side is what the edges show: the breast touches the edge of the chest wall (DBT-01a). The published code compares
the sums of the first and the last column; where these do not decide (a black margin on both sides), wider bands at
both edges do, and where they do not either (an implant, a view from wall to wall), the side is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Box = tuple[int, int, int, int]
BLOCK = 8
"""Pixels of a block: boxes are found on means over blocks, which noise and single hot pixels do not reach."""
MARGIN_BLOCKS = 2
BANDS = (0.0, 0.02, 0.06, 0.12)
"""Widths of the bands at both edges, as shares of the slice's width; 0 is one column."""
CLEAR_RATIO = 1.5
"""One edge must be this many times as bright as the other, both above the background."""
SAMPLES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in a volume slices are looked at to find the box and the range of the breast."""


@dataclass(frozen=True, kw_only=True)
class Breast:
    """What some slices of a volume show of the breast.

    Attributes:
        box: x0, y0, x1, y1 in pixels, half-open; the whole slice where no breast was found.
        low: The value below which 0.5 % of the breast's pixels lie.
        high: The value above which 0.5 % lie.
        area: The share of the slice that the breast covers.
    """

    box: Box
    low: float
    high: float
    area: float


def side_of(pixels: Array) -> str:
    """Say on which side of a slice the breast lies.

    Args:
        pixels: [rows, columns], bright where dense.

    Returns:
        "left" or "right", the edge that the breast touches; "" where it cannot be told.

    Example:
        >>> slice_ = np.zeros((40, 30), dtype=np.uint16)
        >>> slice_[10:30, :12] = 500
        >>> side_of(slice_), side_of(slice_[:, ::-1]), side_of(np.zeros((40, 30)))
        ('left', 'right', '')
    """
    columns = pixels.shape[1]
    background = float(np.percentile(pixels[::BLOCK, ::BLOCK], 1))
    for share in BANDS:
        width = max(1, round(share * columns))
        left = float(pixels[:, :width].mean(dtype=np.float64)) - background
        right = float(pixels[:, columns - width :].mean(dtype=np.float64)) - background
        larger, smaller = max(left, right), max(min(left, right), 0.0)
        if larger > 0 and larger >= CLEAR_RATIO * smaller and larger >= 0.02 * _range(pixels, background):
            return "left" if left > right else "right"
    return ""


def find_breast(slices: Iterable[Array]) -> Breast:
    """Find the box around the breast that holds it in all of some slices, and the range of its values.

    Args:
        slices: At least one, each [rows, columns] of one size.

    Returns:
        What was found.

    Raises:
        ValueError: There is no slice.
    """
    masks, values, shape = [], [], (0, 0)
    for pixels in slices:
        means = block_means(pixels)
        inside = means > _threshold(means)
        masks.append(inside)
        values.append(means[inside])
        shape = (pixels.shape[0], pixels.shape[1])
    if not masks:
        raise ValueError("no slice was given")
    rows, columns = shape
    union = np.logical_or.reduce(masks)
    tissue = np.concatenate(values)
    across, down = _span(union.any(axis=0), union.sum(axis=0)), _span(union.any(axis=1), union.sum(axis=1))
    if across is None or down is None or not len(tissue):
        means = np.concatenate([mask.ravel() for mask in masks]).astype(float)
        return Breast(box=(0, 0, columns, rows), low=0.0, high=float(max(means.max(), 1.0)), area=0.0)
    low, high = np.percentile(tissue, (0.5, 99.5))
    return Breast(
        box=(across[0], down[0], min(across[1], columns), min(down[1], rows)),
        low=float(low),
        high=float(max(high, low + 1.0)),
        area=float(np.mean([mask.mean() for mask in masks])),
    )


def tissue_threshold(pixels: Array) -> float:
    """Return the value above which a slice shows tissue.

    Args:
        pixels: [rows, columns].

    Returns:
        The value, between the background and the tissue.
    """
    return _threshold(block_means(pixels))


def block_means(pixels: Array, block: int = BLOCK) -> npt.NDArray[np.float32]:
    """Average over square blocks; blocks at the right and lower edge may be smaller.

    Args:
        pixels: [rows, columns].
        block: Pixels along a side of a block.

    Returns:
        [ceil(rows / block), ceil(columns / block)].

    Example:
        >>> block_means(np.arange(6.0).reshape(2, 3), 2).tolist()
        [[2.0, 3.5]]
    """
    rows, columns = pixels.shape
    tall, wide = rows // block, columns // block
    out = np.empty((-(-rows // block), -(-columns // block)), dtype=np.float32)
    whole = pixels[: tall * block, : wide * block].reshape(tall, block, wide, block)
    if whole.dtype.kind in "iu" and whole.dtype.itemsize <= 2:
        sums = whole.sum(axis=1, dtype=np.uint32).sum(axis=-1, dtype=np.uint32)
        out[:tall, :wide] = sums / np.float32(block * block)
    else:
        out[:tall, :wide] = whole.mean(axis=(1, 3))
    if wide * block < columns:
        edge = pixels[: tall * block, wide * block :]
        out[:tall, wide] = edge.reshape(tall, block, -1).mean(axis=(1, 2)) if tall else 0
    if tall * block < rows:
        edge = pixels[tall * block :, : wide * block]
        out[tall, :wide] = edge.reshape(edge.shape[0], wide, block).mean(axis=(0, 2)) if wide else 0
    if wide * block < columns and tall * block < rows:
        out[tall, wide] = pixels[tall * block :, wide * block :].mean()
    return out


def _range(pixels: Array, background: float) -> float:
    return float(np.percentile(pixels[::BLOCK, ::BLOCK], 99)) - background


def _threshold(means: npt.NDArray[np.float32]) -> float:
    """Half-way from the background to the value that best parts the slice in two (Otsu), so that skin stays in."""
    low, high = float(means.min()), float(np.percentile(means, 99.5))
    if high <= low:
        return high
    counts, edges = np.histogram(np.clip(means, low, high), bins=128, range=(low, high))
    centres = (edges[:-1] + edges[1:]) / 2
    below, above = np.cumsum(counts), len(means.ravel()) - np.cumsum(counts)
    sums = np.cumsum(counts * centres)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    best = float(centres[int(np.nanargmax(np.where(above > 0, between, np.nan)))])
    dark = means[means <= best]
    background = float(np.median(dark)) if dark.size else low
    return background + 0.5 * (best - background)


def _span(some: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64]) -> tuple[int, int] | None:
    """First and last pixel of the blocks that hold more than a speck, with a margin."""
    least = max(1, int(0.01 * counts.max())) if some.any() else 1
    there = np.flatnonzero(counts >= least)
    if not len(there):
        return None
    return max(0, (int(there[0]) - MARGIN_BLOCKS) * BLOCK), (int(there[-1]) + 1 + MARGIN_BLOCKS) * BLOCK
