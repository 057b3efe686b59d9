"""Predictions of patches put together to the mask of their slide, in strips of rows (LN-14).

Patches come row by row of their grid. Without overlap each is copied to its place, as in the study. With overlap the
probabilities of a pixel are averaged, plainly or by Hann weights that fade towards the border of a patch, so that no
seams are seen. A row of patches is in memory, never the slide. Where no patch lies, nothing is tumour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations.mask_tiff import MOST_EDGE, probability_bytes
from elsewhere.inputs.slides.annotations.strip_writing import MaskGrid

Bytes = npt.NDArray[np.uint8]
WEIGHTS = ("none", "hann")
_MOST_PATCH = 4096


@dataclass(frozen=True, kw_only=True)
class PatchLayout:
    """How the patches of a slide lie.

    Args:
        size_px: Width and height of the slide at level 0.
        mpp: Microns per pixel of the slide at level 0.
        pixel_um: Microns per pixel of the patches.
        patch: Pixels along a patch.
        stride: Pixels from a patch to the next one; smaller than `patch` where patches overlap.
        weights: "none" for a plain mean where patches overlap, or "hann".

    Example:
        >>> layout = PatchLayout(size_px=(1000, 600), mpp=0.25, pixel_um=0.5)
        >>> layout.grid().columns, layout.grid().rows, layout.shape
        (500, 300, (2, 2))
    """

    size_px: tuple[int, int]
    mpp: float
    pixel_um: float = 0.5
    patch: int = 256
    stride: int = 256
    weights: Literal["none", "hann"] = "none"

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value > 0 for value in (self.mpp, self.pixel_um)):
            raise UserError(
                f"the slide has {self.mpp} and the patches {self.pixel_um} microns per pixel",
                fix="Give microns, such as 0.25 and 0.5.",
            )
        if not all(0 < side <= MOST_EDGE for side in self.size_px):
            raise UserError(f"the slide is {self.size_px[0]:,} x {self.size_px[1]:,} pixels")
        if not (0 < self.patch <= _MOST_PATCH and 0 < self.stride <= self.patch):
            raise UserError(
                f"patches of {self.patch} pixels every {self.stride} pixels",
                fix=f"Give a patch of 1 to {_MOST_PATCH} pixels, and a stride of 1 to the patch.",
            )
        if self.weights not in WEIGHTS:
            raise UserError(f"the weights are '{self.weights}'", fix=f"Give one of: {', '.join(WEIGHTS)}.")

    def grid(self) -> MaskGrid:
        """Return the pixels of the slide's mask.

        Returns:
            The grid, at the scale of the patches.
        """
        columns, rows = (math.ceil(side * self.mpp / self.pixel_um - 1e-3) for side in self.size_px)
        return MaskGrid(columns=max(columns, 1), rows=max(rows, 1), pixel_um=self.pixel_um, probability=True)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of patches that touch the slide."""
        grid = self.grid()
        rest = self.patch - self.stride
        return (
            max(1, math.ceil((grid.rows - rest) / self.stride)),
            max(1, math.ceil((grid.columns - rest) / self.stride)),
        )


@dataclass(frozen=True, kw_only=True)
class PatchPrediction:
    """What a model says of the pixels of one patch.

    Args:
        i: The column of the patch in its grid.
        j: Its row.
        values: [patch, patch]: probabilities from 0 to 1, or 8 bits (255 for certain), or true and false.
    """

    i: int
    j: int
    values: npt.NDArray[Any]


def recompose(patches: Iterable[PatchPrediction], layout: PatchLayout) -> Iterator[Bytes]:
    """Put patches together to strips of the slide's mask, from top to bottom.

    Args:
        patches: The patches, row by row of their grid, in any order within a row.
        layout: How they lie.

    Yields:
        Full rows of probabilities in 8 bits; together the rows of `layout.grid()`.

    Raises:
        UserError: A patch has another size, lies outside of the slide, comes twice or out of order, or has a value that is
            no probability.

    Example:
        >>> layout = PatchLayout(size_px=(6, 4), mpp=0.5, patch=4, stride=4)
        >>> patch = PatchPrediction(i=1, j=0, values=np.full((4, 4), 0.9))
        >>> np.concatenate(list(recompose([patch], layout)))[0].tolist()
        [0, 0, 0, 0, 230, 230]
    """
    canvas = _Canvas(layout) if layout.stride < layout.patch else _Copies(layout)
    rows, columns = layout.shape
    current = 0
    seen: set[int] = set()
    for one in patches:
        values = np.asarray(one.values)
        name = f"patch {one.i}, {one.j}"
        if values.shape != (layout.patch, layout.patch):
            raise UserError(
                f"{name} is {' x '.join(map(str, values.shape))} and not {layout.patch} x {layout.patch}",
                fix="Give patches of one size, [rows, columns].",
            )
        if not (0 <= one.i < columns and 0 <= one.j < rows):
            raise UserError(
                f"{name} lies outside of the slide, whose grid has {columns} x {rows} patches",
                fix="Check the size and the microns per pixel of the slide, and those of the patches.",
            )
        if one.j < current:
            raise UserError(f"{name} comes after a patch of row {current}", fix="Sort the patches by j.")
        if one.j > current:
            yield from canvas.rows_until(one.j)
            current, seen = one.j, set()
        if one.i in seen:
            raise UserError(f"{name} comes twice", fix="Give each patch once.")
        seen.add(one.i)
        canvas.put(one.i, values, name)
    yield from canvas.rows_until(None)


def _as_bytes(values: npt.NDArray[Any], name: str) -> Bytes:
    if values.dtype == np.bool_:
        return np.asarray(values * np.uint8(255), dtype=np.uint8)
    if values.dtype == np.uint8:
        return np.asarray(values)
    if not np.issubdtype(values.dtype, np.floating):
        raise UserError(
            f"{name} holds values of {values.dtype}", fix="Give probabilities, 8 bits, or true and false."
        )
    return probability_bytes(values, where=name)


class _Copies:
    """Patches side by side."""

    def __init__(self, layout: PatchLayout) -> None:
        self.patch, self.grid = layout.patch, layout.grid()
        self.strip = np.zeros((layout.patch, self.grid.columns), dtype=np.uint8)
        self.row = 0

    def put(self, i: int, values: npt.NDArray[Any], name: str) -> None:
        at = i * self.patch
        width = min(self.patch, self.grid.columns - at)
        self.strip[:, at : at + width] = _as_bytes(values, name)[:, :width]

    def rows_until(self, j: int | None) -> Iterator[Bytes]:
        """The rows before row `j` of patches; all of them for None."""
        last = math.ceil(self.grid.rows / self.patch) if j is None else j
        while self.row < last:
            top = self.row * self.patch
            full, self.strip = self.strip, np.zeros_like(self.strip)
            self.row += 1
            yield full[: min(self.patch, self.grid.rows - top)]


class _Canvas:
    """Patches that overlap: sums and weights of as many rows as a patch has."""

    def __init__(self, layout: PatchLayout) -> None:
        self.layout, self.grid = layout, layout.grid()
        side = np.ones(layout.patch, dtype=np.float32)
        if layout.weights == "hann":
            side = np.sin(np.pi * (np.arange(layout.patch) + 0.5) / layout.patch).astype(np.float32) ** 2
        self.weight = np.outer(side, side).astype(np.float32)
        self.sums = np.zeros((layout.patch, self.grid.columns), dtype=np.float32)
        self.weights = np.zeros_like(self.sums)
        self.top = 0

    def put(self, i: int, values: npt.NDArray[Any], name: str) -> None:
        at = i * self.layout.stride
        width = min(self.layout.patch, self.grid.columns - at)
        if values.dtype in (np.bool_, np.uint8):
            numbers = (_as_bytes(values, name).astype(np.float32) + np.float32(0.5)) / np.float32(256.0)
        else:
            _as_bytes(values, name)
            numbers = values.astype(np.float32)
        self.sums[:, at : at + width] += (numbers * self.weight)[:, :width]
        self.weights[:, at : at + width] += self.weight[:, :width]

    def rows_until(self, j: int | None) -> Iterator[Bytes]:
        """The rows that no patch of row `j` or below reaches; all rows for None."""
        stride = self.layout.stride
        last = self.grid.rows if j is None else min(j * stride, self.grid.rows)
        while self.top < last:
            count = min(stride if j is not None else self.layout.patch, last - self.top)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = self.sums[:count] / self.weights[:count]
            yield probability_bytes(np.clip(np.where(self.weights[:count] > 0, mean, 0.0), 0.0, 1.0))
            for array in (self.sums, self.weights):
                array[: len(array) - count] = array[count:]
                array[len(array) - count :] = 0
            self.top += count
