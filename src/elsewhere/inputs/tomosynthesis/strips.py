"""Strips of slices around a place in a volume: small 8-bit pictures, in the orientation of the repaired volume.

A strip is for looking at. It has one frame for all of its slices, in pixels of the repaired original volume, so that a
box of that volume is drawn on it by `Strip.fractions` alone. Slices are never enlarged; pages do that.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.tomosynthesis.volume import Box, Facts, Stack, Volume

EITHER_SIDE = 5
LONG_SIDE = 320
CONTEXT = 3.0
"""How many times as long as the box's longer side the frame is."""
FEWEST_PIXELS = 64
"""The shortest frame, in original pixels: a small box is shown with its surroundings."""

Pictures = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The same part of some neighbouring slices.

    Attributes:
        frame: x0, y0, x1, y1 of the part, in pixels of the repaired original volume, half-open.
        first: The number of the first slice, from 0.
        depth: How many slices the volume has.
        pictures: [slices, rows, columns], 0 for black to 255 for white in the volume's window.
    """

    frame: Box
    first: int
    depth: int
    pictures: Pictures

    def fractions(self, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
        """Place a box of the volume on the strip.

        Args:
            x: The first column of the box, in pixels of the repaired original volume.
            y: The first row.
            width: Its columns.
            height: Its rows.

        Returns:
            x, y, width and height as shares of the frame; below 0 or above 1 where the box lies outside of it.

        Example:
            >>> strip = Strip(frame=(100, 50, 300, 250), first=0, depth=1, pictures=np.zeros((1, 2, 2), dtype=np.uint8))
            >>> strip.fractions(150, 50, 20, 100)
            (0.25, 0.0, 0.1, 0.5)
        """
        x0, y0, x1, y1 = self.frame
        wide, tall = x1 - x0, y1 - y0
        return (x - x0) / wide, (y - y0) / tall, width / wide, height / tall

    def encoded(self, *, long_side: int = LONG_SIDE, quality: int = 82) -> tuple[bytes, ...]:
        """Encode the slices as JPEG.

        Args:
            long_side: The longer side of each picture is reduced to so many pixels, where it has more.
            quality: The quality of the encoding, from 1 to 95.

        Returns:
            The files, slice by slice.
        """
        from PIL import Image

        files = []
        for one in self.pictures:
            picture = Image.fromarray(one)
            most = max(picture.size)
            if most > long_side:
                size = tuple(max(1, round(side * long_side / most)) for side in picture.size)
                picture = picture.resize((size[0], size[1]), Image.Resampling.BOX)
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=quality, optimize=True)
            files.append(buffer.getvalue())
        return tuple(files)


def frame_around(
    box: tuple[float, float, float, float], *, rows: int, columns: int, context: float = CONTEXT
) -> Box:
    """Choose the part of the slices that shows a box and what is around it.

    Args:
        box: x, y, width and height in pixels of the repaired original volume.
        rows: The rows of the volume.
        columns: Its columns.
        context: How many times as long as the box's longer side the part is.

    Returns:
        x0, y0, x1, y1, half-open: square where the volume is large enough, and moved into it where the box lies at an
        edge.

    Example:
        >>> frame_around((480, 300, 40, 20), rows=1000, columns=500)
        (380, 250, 500, 370)
    """
    x, y, width, height = box
    side = max(1, math.ceil(max(context * max(width, height), FEWEST_PIXELS)))
    wide, tall = min(side, columns), min(side, rows)
    x0 = min(max(math.floor(x + width / 2 - wide / 2), 0), columns - wide)
    y0 = min(max(math.floor(y + height / 2 - tall / 2), 0), rows - tall)
    return x0, y0, x0 + wide, y0 + tall


def cut_strip(
    volume: Volume,
    box: tuple[float, float, float, float],
    *,
    slice: int,
    either_side: int = EITHER_SIDE,
    long_side: int = LONG_SIDE,
) -> Strip:
    """Cut the surroundings of a box out of a slice and its neighbours.

    Args:
        volume: The volume.
        box: x, y, width and height in pixels of the repaired original volume.
        slice: The slice in the middle, from 0; a number beyond the volume stands for its nearest slice.
        either_side: How many slices before it and after it.
        long_side: The longer side of the pictures has at most so many pixels.

    Returns:
        The strip; shorter at the ends of the volume.

    Raises:
        UserError: The volume cannot be read.

    Example:
        >>> from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
        >>> volume = ArrayVolume(np.full((9, 200, 100), 500, dtype=np.uint16), window=(0.0, 1000.0))
        >>> strip = cut_strip(volume, (40, 60, 20, 20), slice=7, either_side=3)
        >>> strip.frame, strip.first, strip.pictures.shape, int(strip.pictures[0, 5, 5])
        ((18, 38, 82, 102), 4, (5, 64, 64), 128)
    """
    facts = volume.facts()
    rows, columns, depth = facts.shape
    frame = frame_around(box, rows=rows, columns=columns)
    middle = min(max(slice, 0), depth - 1)
    first, last = max(0, middle - either_side), min(depth - 1, middle + either_side)
    stack = volume.stack()
    pictures = [_picture(stack[z], facts, frame, long_side) for z in range(first, last + 1)]
    return Strip(frame=frame, first=first, depth=depth, pictures=np.stack(pictures))


def _picture(stored: Stack, facts: Facts, frame: Box, long_side: int) -> Pictures:
    """A part of a stored slice, windowed; what lies outside the breast's box, which alone is stored, is black."""
    from PIL import Image

    left, top = facts.breast[0], facts.breast[1]
    ends = [(end - start) / facts.scale for end, start in zip(frame, (left, top, left, top), strict=True)]
    x0, y0, x1, y1 = math.floor(ends[0]), math.floor(ends[1]), math.ceil(ends[2]), math.ceil(ends[3])
    canvas = np.zeros((y1 - y0, x1 - x0), dtype=np.uint8)
    inside = stored[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)]
    if inside.size:
        at_y, at_x = max(-y0, 0), max(-x0, 0)
        canvas[at_y : at_y + inside.shape[0], at_x : at_x + inside.shape[1]] = _windowed(inside, facts.window)
    wide, tall = ends[2] - ends[0], ends[3] - ends[1]
    shrink = min(1.0, long_side / max(wide, tall))
    size = max(1, round(wide * shrink)), max(1, round(tall * shrink))
    exact = ends[0] - x0, ends[1] - y0, ends[2] - x0, ends[3] - y0
    how = Image.Resampling.BOX if shrink < 1 else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(canvas).resize(size, how, box=exact), dtype=np.uint8)


def _windowed(pixels: Stack, window: tuple[float, float]) -> Pictures:
    low, high = window
    shares = (pixels.astype(np.float32) - np.float32(low)) / np.float32(max(high - low, 1e-6))
    return np.rint(np.clip(shares, 0.0, 1.0) * 255.0).astype(np.uint8)
