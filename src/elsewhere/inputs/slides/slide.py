"""What a whole slide is, however its file is read: levels, microns per pixel, regions and strips of pixels.

Pixels are [height, width, 3] of 8 bits in RGB. What is transparent is shown on white, and what lies outside of the
slide is white: glass. A label or overview picture in the file is never read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.scale import area_average, borders, choose_level

Pixels = npt.NDArray[np.uint8]
WHITE = 255
MOST_READ_BYTES = 1 << 30
_CHUNK_BYTES = 24 << 20
"""Of the pixels that are averaged at once: the strips of a wide slide are averaged piece by piece."""
_SOURCE_ROWS = 512
"""Of a level that are averaged at once."""
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Level:
    """One resolution of a slide.

    Attributes:
        width: Pixels in a row.
        height: Rows.
        downsample: How many pixels of level 0 one of its pixels covers along a side.
        mpp: Microns per pixel.
        tile_width: Pixels in a row of a tile; None where the reader does not know.
        tile_height: Rows of a tile; None where the reader does not know.
    """

    width: int
    height: int
    downsample: float
    mpp: float
    tile_width: int | None = None
    tile_height: int | None = None


@dataclass(frozen=True, kw_only=True)
class SlideFacts:
    """What is known of a slide without its pixels. It names no person, date or original file name.

    Attributes:
        mpp: Microns per pixel at level 0.
        mpp_source: Who says so.
        levels: The resolutions, level 0 first.
        objective: The magnification that the file states, which nothing is computed from; None without one.
        vendor: The format by its vendor: aperio, philips, generic-tiff, mirax, ...
        compression: How pixels are coded, in words.
        bounds_px: x, y, width and height of the scanned part in level 0; the whole slide where none is stated.
        pictures: Names of other pictures in the file, such as label and macro: they are not read.
        reader_reason: Why the file is not read directly; empty where it is.
        warnings: What a reader should know, as sentences.
    """

    mpp: float
    mpp_source: str
    levels: tuple[Level, ...]
    objective: float | None
    vendor: str
    compression: str
    bounds_px: tuple[int, int, int, int]
    pictures: tuple[str, ...] = ()
    reader_reason: str = ""
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Full-width rows of a slide.

    Attributes:
        y: The first row, in pixels of the resolution that was asked for.
        pixels: [rows, width, 3].
    """

    y: int
    pixels: Pixels


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One patch of a grid.

    Attributes:
        i: Its column in the grid.
        j: Its row in the grid.
        pixels: [size, size, 3].
    """

    i: int
    j: int
    pixels: Pixels


def exact_downsample(whole: tuple[int, int], reduced: tuple[int, int]) -> float:
    """Tell how many pixels of level 0 one pixel of a level covers along a side.

    Writers round the size of a level. Where a whole factor explains both sides to within that rounding, it is the
    factor; the ratio of the sizes would shift far pixels by up to one.

    Args:
        whole: Width and height of level 0.
        reduced: Width and height of the level.

    Returns:
        The factor; the mean ratio of the sides where no whole factor fits.

    Example:
        >>> exact_downsample((1001, 801), (500, 400)), exact_downsample((1000, 800), (400, 320))
        (2.0, 2.5)
    """
    ratios = [a / b for a, b in zip(whole, reduced, strict=True)]
    factor = round(sum(ratios) / 2)
    fits = factor >= 1 and all(
        a // factor <= b <= math.ceil(a / factor) for a, b in zip(whole, reduced, strict=True)
    )
    return float(factor) if fits else sum(ratios) / 2


class Slide(ABC):
    """A whole slide. Reading is safe from several threads and after a fork; a pickled slide opens its file again.

    Args:
        path: The file.
        stated_mpp: Microns per pixel that the user states; None for those of the file.

    Attributes:
        path: The file.
    """

    backend: str = ""
    facts: SlideFacts

    def __init__(self, path: Path, stated_mpp: float | None) -> None:
        self.path = path
        self._stated_mpp = stated_mpp

    @property
    def size_px(self) -> tuple[int, int]:
        """Width and height of level 0."""
        return self.facts.levels[0].width, self.facts.levels[0].height

    @property
    def mpp(self) -> float:
        """Microns per pixel at level 0."""
        return self.facts.mpp

    @property
    def levels(self) -> tuple[Level, ...]:
        """The resolutions, level 0 first."""
        return self.facts.levels

    @property
    def objective(self) -> float | None:
        """The magnification that the file states; nothing is computed from it."""
        return self.facts.objective

    @property
    def vendor(self) -> str:
        """The format by its vendor."""
        return self.facts.vendor

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know, as sentences."""
        return self.facts.warnings

    def read(self, x: int, y: int, width: int, height: int, *, level: int = 0) -> Pixels:
        """Read a region as it is stored.

        Args:
            x: Its left border, in pixels of the level that is read; it may lie outside of the slide.
            y: Its upper border.
            width: Its width in pixels.
            height: Its height in pixels.
            level: The level.

        Returns:
            [height, width, 3] of 8 bits in RGB; white outside of the slide and where the file left tiles out.

        Raises:
            UserError: There is no such level, the region is empty or larger than 1 GB, or a tile is damaged.
        """
        found = self._level(level)
        self._check_region(width, height)
        x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + width, found.width), min(y + height, found.height)
        if (x0, y0, x1, y1) == (x, y, x + width, y + height):
            out = np.empty((height, width, 3), np.uint8)
            self._fill(level, x, y, out)
            return out
        out = np.full((height, width, 3), WHITE, np.uint8)
        if x0 < x1 and y0 < y1:
            self._fill(level, x0, y0, out[y0 - y : y1 - y, x0 - x : x1 - x])
        return out

    def read_mpp(
        self, x: int, y: int, width: int, height: int, *, mpp: float, rule: str = "finest"
    ) -> Pixels:
        """Read a region at a number of microns per pixel, by the exact mean over area (LN-02).

        Pixel (k, l) of the result covers the box from (x + k) mpp / m to (x + k + 1) mpp / m of level 0, with m the
        slide's microns per pixel, and likewise downwards. A slide is never enlarged by more than 5 %.

        Args:
            x: Its left border, in pixels of the size asked for.
            y: Its upper border.
            width: Its width in such pixels.
            height: Its height in such pixels.
            mpp: Microns per pixel of the result.
            rule: "finest" averages the pixels of level 0; "nearest" those of the coarsest level that is not coarser
                than `mpp`, which is faster and was averaged by the scanner.

        Returns:
            [height, width, 3] of 8 bits in RGB.

        Raises:
            UserError: The slide is too coarse for `mpp`, or the region cannot be read.
        """
        level = self.level_for(mpp, rule=rule)
        self._check_region(width, height)
        ratio = self._ratio(level, mpp)
        left, right = math.floor(x * ratio + _ROUNDING), math.ceil((x + width) * ratio - _ROUNDING)
        step = max(1, int(_CHUNK_BYTES / (3 * ratio * max(1, right - left))))
        out = np.empty((height, width, 3), np.uint8)
        for row in range(0, height, step):
            rows = min(step, height - row)
            top = math.floor((y + row) * ratio + _ROUNDING)
            bottom = math.ceil((y + row + rows) * ratio - _ROUNDING)
            stored = self.read(left, top, max(1, right - left), max(1, bottom - top), level=level)
            out[row : row + rows] = area_average(
                stored,
                borders(y + row, rows, ratio, top),
                borders(x, width, ratio, left),
            )
        return out

    def strips(
        self,
        mpp: float | None = None,
        height: int = 256,
        *,
        level: int = 0,
        rule: str = "finest",
        threads: int = 1,
    ) -> Iterator[Strip]:
        """Read the slide from top to bottom in strips of rows; each tile is decoded once.

        Memory holds one strip and the tiles that it touches: about 0.6 GB for a slide of 100,000 pixels across.

        Args:
            mpp: Microns per pixel of the strips; None for the pixels of `level` as they are stored.
            height: Rows of a strip; the last one may have fewer.
            level: The level to read where `mpp` is None.
            rule: From which level `mpp` is made; see `read_mpp`.
            threads: Threads that decode tiles.

        Yields:
            The strips.

        Raises:
            UserError: The slide is too coarse for `mpp`, there is no such level, or a tile is damaged.
        """
        if height < 1 or threads < 1:
            raise UserError(
                f"strips of {height} rows by {threads} threads were asked for", fix="Give 1 or more."
            )
        if mpp is None:
            found = self._level(level)
            self._check_region(found.width, min(height, found.height))
            rows = self._row_reader(level, threads)
            for y in range(0, found.height, height):
                yield Strip(y=y, pixels=rows(y, min(y + height, found.height)))
            return
        source = self.level_for(mpp, rule=rule)
        ratio = self._ratio(source, mpp)
        rows = self._row_reader(source, threads)
        across, down = self.size_at(mpp)
        self._check_region(across, min(height, down))
        step = max(1, int(_SOURCE_ROWS / ratio))
        for y in range(0, down, height):
            out = np.empty((min(height, down - y), across, 3), np.uint8)
            for top in range(0, out.shape[0], step):
                self._average_into(out[top : top + step], rows, source, ratio, y + top)
            yield Strip(y=y, pixels=out)

    def patches(
        self, size: int = 256, *, level: int = 0, wanted: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[Patch]:
        """Read the patches of a grid, row by row; each tile is decoded once, and only where a patch is wanted.

        Patch (i, j) has its corner at x = i size and y = j size of the level.

        Args:
            size: Pixels along a patch.
            level: The level.
            wanted: [rows of the grid, columns of the grid]: which patches are read; None for all that lie wholly in
                the level. A patch that reaches over the border is white there.

        Yields:
            The patches.

        Raises:
            UserError: There is no such level, the patches are empty, or a tile is damaged.
        """
        found = self._level(level)
        self._check_region(size, size)
        if wanted is None:
            wanted = np.ones((found.height // size, found.width // size), bool)
        elif wanted.ndim != 2:
            raise UserError(f"the wanted patches have {wanted.ndim} dimensions, not rows and columns")
        read = self._patch_reader(level, size)
        for j in np.flatnonzero(wanted.any(axis=1)).tolist():
            for i in np.flatnonzero(wanted[j]).tolist():
                yield Patch(i=i, j=j, pixels=read(i * size, j * size))

    def patches_mpp(
        self, size: int = 256, *, mpp: float, wanted: npt.NDArray[np.bool_], rule: str = "finest"
    ) -> Iterator[Patch]:
        """Read the patches of a grid at a number of microns per pixel, row by row, as `read_mpp` shows them (LN-02).

        Patch (i, j) has its corner at x = i size and y = j size of the size asked for. A tile is decoded only where a
        patch is wanted, and once for every row of patches that it touches.

        Args:
            size: Pixels along a patch.
            mpp: Microns per pixel of the patches.
            wanted: [rows of the grid, columns of the grid]: which patches are read.
            rule: See `read_mpp`.

        Yields:
            The patches; one that reaches over the border is white there.

        Raises:
            UserError: The slide is too coarse for `mpp`, or a tile is damaged.
        """
        level = self.level_for(mpp, rule=rule)
        ratio = self._ratio(level, mpp)

        def interval(number: int) -> tuple[int, int]:
            first, last = number * size * ratio, (number + 1) * size * ratio
            return math.floor(first + _ROUNDING), max(1, math.ceil(last - _ROUNDING))

        span = math.ceil(size * ratio) + (0 if float(size * ratio).is_integer() else 1)
        self._check_region(span, span)
        read = self._patch_reader(level, span)
        for j in np.flatnonzero(wanted.any(axis=1)).tolist():
            top, bottom = interval(j)
            down = borders(j * size, size, ratio, top)
            for i in np.flatnonzero(wanted[j]).tolist():
                left, right = interval(i)
                stored = read(left, top)[: bottom - top, : right - left]
                pixels = area_average(stored, down, borders(i * size, size, ratio, left))
                yield Patch(i=i, j=j, pixels=pixels)

    def size_at(self, mpp: float) -> tuple[int, int]:
        """Tell the size of the whole slide at a number of microns per pixel.

        Args:
            mpp: Microns per pixel.

        Returns:
            Width and height in such pixels; the last ones may reach over the border, where white is averaged in.
        """
        ratio = check_mpp_of_result(mpp, self.path) / self.mpp
        width, height = self.size_px
        return max(1, math.ceil(width / ratio - _ROUNDING)), max(1, math.ceil(height / ratio - _ROUNDING))

    def level_for(self, mpp: float, *, rule: str = "finest") -> int:
        """Choose the level that a number of microns per pixel is made from.

        Args:
            mpp: Microns per pixel.
            rule: See `read_mpp`.

        Returns:
            The level.

        Raises:
            UserError: Every level is coarser by more than 5 %.
        """
        check_mpp_of_result(mpp, self.path)
        return choose_level([level.mpp for level in self.levels], mpp, rule=rule, where=str(self.path))

    @abstractmethod
    def close(self) -> None:
        """Close the file. A closed slide cannot be read; closing it twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        from elsewhere.inputs.slides.opening import reopen

        return reopen, (str(self.path.absolute()), self._stated_mpp, self.backend)

    def __repr__(self) -> str:
        width, height = self.size_px
        return f"<{type(self).__name__} {self.path.name}, {width} x {height} px, {self.mpp:.4g} um per px>"

    @abstractmethod
    def _fill(self, level: int, x: int, y: int, out: Pixels) -> None:
        """Write the pixels of a region that lies inside of the level into `out`."""

    def _patch_reader(self, level: int, size: int) -> Callable[[int, int], Pixels]:
        """A function that returns the square at x, y; squares are asked for row by row, from the left."""
        return lambda x, y: self.read(x, y, size, size, level=level)

    def _row_reader(self, level: int, threads: int) -> Callable[[int, int], Pixels]:
        """A function that returns rows y0 to y1 of a level; y0 never decreases from call to call."""
        width = self.levels[level].width

        def rows(y0: int, y1: int) -> Pixels:
            out = np.empty((y1 - y0, width, 3), np.uint8)
            self._fill(level, 0, y0, out)
            return out

        return rows

    def _average_into(
        self, out: Pixels, rows: Callable[[int, int], Pixels], level: int, ratio: float, y: int
    ) -> None:
        """Fill full-width rows of the averaged slide, of which the first is row `y`."""
        height, across = out.shape[:2]
        found = self.levels[level]
        top, bottom = math.floor(y * ratio + _ROUNDING), math.ceil((y + height) * ratio - _ROUNDING)
        stored = rows(min(top, found.height - 1), min(bottom, found.height))
        edges = borders(y, height, ratio, top)
        step = max(1, int(_CHUNK_BYTES / (3 * (bottom - top) * ratio)))
        for begin in range(0, across, step):
            count = min(step, across - begin)
            left = math.floor(begin * ratio + _ROUNDING)
            right = max(left + 1, math.ceil((begin + count) * ratio - _ROUNDING))
            part = stored[:, left : min(right, found.width)]
            if part.shape[:2] != (bottom - top, right - left):
                padded = np.full((bottom - top, right - left, 3), WHITE, np.uint8)
                padded[: part.shape[0], : part.shape[1]] = part
                part = padded
            out[:, begin : begin + count] = area_average(part, edges, borders(begin, count, ratio, left))

    def _ratio(self, level: int, mpp: float) -> float:
        """Pixels of the level along one pixel of `mpp`; a whole number where it is one but for rounding."""
        ratio = mpp / self.levels[level].mpp
        return float(round(ratio)) if abs(ratio - round(ratio)) < 1e-9 * ratio else ratio

    def _level(self, level: int) -> Level:
        if not 0 <= level < len(self.levels):
            raise UserError(
                f"the slide has {len(self.levels)} levels, level {level} was requested", where=str(self.path)
            )
        return self.levels[level]

    def _check_region(self, width: int, height: int) -> None:
        if width < 1 or height < 1:
            raise UserError(f"a region of {width} x {height} pixels was requested", where=str(self.path))
        if width * height * 3 > MOST_READ_BYTES:
            raise UserError(
                f"a region of {width:,} x {height:,} pixels is larger than {MOST_READ_BYTES >> 30} GB",
                where=str(self.path),
                fix="Read it in strips of fewer rows, or in patches.",
            )


def check_mpp_of_result(mpp: float, path: Path) -> float:
    """Check microns per pixel that are asked for: any positive number that is not absurd.

    Args:
        mpp: Microns per pixel.
        path: The slide, for messages.

    Returns:
        The same number.

    Raises:
        UserError: It is not from 0.05 to 1,000.
    """
    if not (math.isfinite(mpp) and 0.05 <= mpp <= 1000):
        raise UserError(
            f"{mpp!r} microns per pixel were asked for",
            where=str(path),
            fix="Ask for 0.05 to 1,000, such as 0.5.",
        )
    return float(mpp)
