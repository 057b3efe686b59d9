"""Finds the breasts in the phase before contrast, for test cases whose box is not published (MRI-14).

The method is simple on purpose, and its box is rather too large. Blocks of about 6 mm that are brighter than
a tenth of the bright ones, and clearly brighter than the noise of the air, are body. From the front
backwards, planes contain more and more body until the chest wall; the breasts are what lies before that plane
and up to 30 mm behind it, across the whole body. Both breasts stay: which one has the tumour is what the
network is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.volumes import Box, Grid

BLOCK_MM = 6.0
BRIGHT = 0.1
AIR_PERCENTILE, ABOVE_AIR, MOST_AIR = 2.0, 1.8, 0.3
"""Body is brighter than the darkest blocks (this percentile), which are air, by this factor; but this share
of the bright blocks is enough, since a picture may have no air."""
CHEST = 0.9
"""The chest wall is at the first plane with this share of the body in the fullest plane."""
BEHIND_MM = 30.0


def front(grid: Grid) -> tuple[int, int]:
    """Return the axis from back to front; LAS is assumed where the file does not define it.

    Args:
        grid: The grid of the volume, with its affine.

    Returns:
        The axis, and +1 where it grows towards the front, else -1.

    Example:
        >>> front(Grid(shape=(4, 4, 2), spacing_mm=(1.0, 1.0, 1.0)))
        (1, 1)
    """
    if grid.affine is None:
        return 1, 1
    forward = np.asarray(grid.affine)[1, :3] / np.maximum(grid.spacing_mm, 1e-9)
    axis = int(np.argmax(np.abs(forward)))
    return axis, 1 if forward[axis] >= 0 else -1


def find_breasts(volume: npt.NDArray[np.float32], grid: Grid) -> Box:
    """Find both breasts.

    Args:
        volume: The phase before the contrast agent.
        grid: Its spacing and orientation.

    Returns:
        A box around both; all of the volume where nothing stands out.
    """
    shape = volume.shape
    whole: Box = (0, 0, 0, shape[0], shape[1], shape[2])
    steps = [max(1, round(BLOCK_MM / mm)) for mm in grid.spacing_mm]
    blocks = _block_means(np.asarray(volume, dtype=np.float32), steps)
    bright = float(np.percentile(blocks, 99))
    air = min(ABOVE_AIR * float(np.percentile(blocks, AIR_PERCENTILE)), MOST_AIR * bright)
    body = blocks > max(BRIGHT * bright, air)
    if bright <= 0 or not body.any():
        return whole
    axis, sign = front(grid)
    others = tuple(other for other in range(3) if other != axis)
    profile = body.sum(axis=others)
    order = np.arange(len(profile))[::-sign]
    filled = profile[order]
    first = int(np.argmax(filled > 0))
    wall = int(np.argmax(filled >= CHEST * filled.max()))
    last = min(len(order) - 1, wall + round(BEHIND_MM / (steps[axis] * grid.spacing_mm[axis])))
    planes = order[max(0, first - 1) : last + 1]
    kept = np.take(body, planes, axis=axis)
    low, high = [0, 0, 0], [0, 0, 0]
    for at in range(3):
        if at == axis:
            found = planes
        else:
            found = np.flatnonzero(kept.any(axis=tuple(other for other in range(3) if other != at)))
        low[at] = max(0, (int(found.min()) - (at != axis)) * steps[at])
        high[at] = min(shape[at], (int(found.max()) + 1 + (at != axis)) * steps[at])
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def _block_means(volume: npt.NDArray[np.float32], steps: Sequence[int]) -> npt.NDArray[np.float32]:
    """Average blocks; the last ones may be smaller."""
    out = volume
    for axis, step in enumerate(steps):
        starts = np.arange(0, out.shape[axis], step)
        counts = np.diff(np.append(starts, out.shape[axis]))
        form = [1, 1, 1]
        form[axis] = len(counts)
        summed = np.add.reduceat(out, starts, axis=axis)
        out = np.asarray(summed / counts.reshape(form), dtype=np.float32)
    return out
