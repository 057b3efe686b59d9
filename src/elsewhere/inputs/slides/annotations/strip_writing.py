"""Write a mask of a slide that comes in strips of rows, as a tiled pyramidal TIFF that QuPath, ASAP and OpenSlide open.

One row of tiles and the first reduced level are in memory, never the mask. That level is reduced by 4 along a side, or
by more where it would be over 64 MB; each further one by 2. Values are 0 and 255, or probabilities in 8 bits; the
description of the file says which, and where on the slide the mask begins.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.files import check_out_file, replacing
from elsewhere.inputs.slides.annotations.mask_tiff import EXTRA, MOST_EDGE

TILE = 512
_FIRST_REDUCTION = 4
_MOST_REDUCED = 64 << 20
_CHUNK = 4 << 20
_SHORT = 16
_SMALLEST_LEVEL = 1024
_LARGE = 2 << 30
_UM = (0.02, 100.0)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class MaskGrid:
    """The pixels of a mask, and where they lie on the slide.

    Attributes:
        columns: Pixels across.
        rows: Pixels down.
        pixel_um: Microns per pixel of the mask.
        offset_px: x and y of its upper left corner, in pixels of the slide's level 0.
        probability: Whether its values are probabilities in 8 bits; otherwise 0 and 255.

    Example:
        >>> MaskGrid(columns=400, rows=300, pixel_um=0.5).offset_px
        (0.0, 0.0)
    """

    columns: int
    rows: int
    pixel_um: float
    offset_px: tuple[float, float] = (0.0, 0.0)
    probability: bool = False


def write_strips(path: str | Path, strips: Iterable[Bytes], grid: MaskGrid, *, replace: bool = False) -> Path:
    """Write a mask that comes in strips, from top to bottom.

    Args:
        path: The file to write.
        strips: Full rows of values, of any heights.
        grid: The pixels of the mask.
        replace: Whether a file of this name may be replaced.

    Returns:
        The file; it is written whole or not at all.

    Raises:
        UserError: A size cannot be, the strips have other sizes than the grid, or the file exists.

    Example:
        >>> import tempfile
        >>> from elsewhere.inputs.slides.annotations import open_mask
        >>> strips = [np.full((200, 400), 255, dtype=np.uint8), np.zeros((100, 400), dtype=np.uint8)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = write_strips(f"{folder}/m.tif", strips, MaskGrid(columns=400, rows=300, pixel_um=0.5))
        ...     with open_mask(file) as mask:
        ...         mask.levels, mask.pixel_um, int(mask.read(0, 0, 400, 300).sum())
        ([(400, 300)], 0.5, 80000)
    """
    path = Path(path)
    _check(grid, path)
    try:
        import tifffile
    except ImportError as error:
        raise UserError("writing a mask TIFF needs tifffile", where=str(path), fix=EXTRA) from error
    check_out_file(path, replace=replace)
    reduced = _Reduced(grid)
    with (
        replacing(path) as temporary,
        tifffile.TiffWriter(temporary, bigtiff=grid.columns * grid.rows > _LARGE) as file,
    ):
        _write_level(file, _tiles(_rows_of_tiles(strips, grid, path), reduced), grid, 1)
        factor, level = reduced.factor, reduced.level
        while level.size:
            part = MaskGrid(columns=level.shape[1], rows=level.shape[0], pixel_um=grid.pixel_um)
            _write_level(file, _tiles(_rows_of_tiles([level], part, path), None), part, factor)
            if max(level.shape) <= _SMALLEST_LEVEL:
                break
            level, factor = _block_mean(level, 2, probability=grid.probability), factor * 2
    return path


def _check(grid: MaskGrid, path: Path) -> None:
    if not (0 < grid.columns <= MOST_EDGE and 0 < grid.rows <= MOST_EDGE):
        raise UserError(
            f"the mask is {grid.columns:,} x {grid.rows:,} pixels",
            where=str(path),
            fix=f"Give sizes from 1 to {MOST_EDGE:,}.",
        )
    if not (math.isfinite(grid.pixel_um) and _UM[0] <= grid.pixel_um <= _UM[1]):
        raise UserError(
            f"the mask has {grid.pixel_um} microns per pixel",
            where=str(path),
            fix=f"Give microns, such as 0.5; from {_UM[0]} to {_UM[1]:g}.",
        )


class _Reduced:
    """The first reduced level, filled tile by tile."""

    def __init__(self, grid: MaskGrid) -> None:
        self.factor, self.probability = _FIRST_REDUCTION, grid.probability
        small = max(grid.columns, grid.rows) <= _SMALLEST_LEVEL
        while math.ceil(grid.columns / self.factor) * math.ceil(grid.rows / self.factor) > _MOST_REDUCED:
            self.factor *= 2
        shape = (math.ceil(grid.rows / self.factor), math.ceil(grid.columns / self.factor))
        self.level = np.zeros((0, 0) if small else shape, dtype=np.uint8)

    def take(self, tile: Bytes, top: int, left: int) -> None:
        if self.level.size:
            made = _block_mean(tile, self.factor, probability=self.probability)
            row, column = top // self.factor, left // self.factor
            self.level[row : row + made.shape[0], column : column + made.shape[1]] = made


def _block_mean(pixels: Bytes, factor: int, *, probability: bool) -> Bytes:
    """The mean of blocks, the last of a row or column of fewer pixels; of a mask, 255 where over half of a block is."""
    height, width = pixels.shape
    rows, columns = -(-height // factor), -(-width // factor)
    out = np.empty((rows, columns), dtype=np.uint8)
    step = max(1, _CHUNK // (width * factor))
    for first in range(0, rows, step):
        part = pixels[first * factor : (first + step) * factor]
        out[first : first + step] = _mean_of_rows(part, factor, probability=probability)
    return out


def _mean_of_rows(pixels: Bytes, factor: int, *, probability: bool) -> Bytes:
    height, width = pixels.shape
    rows, columns = -(-height // factor), -(-width // factor)
    counts: Any = factor * factor
    if (height, width) != (rows * factor, columns * factor):
        wide = np.zeros((rows * factor, columns * factor), dtype=np.uint8)
        wide[:height, :width] = pixels
        pixels = wide
        down, across = (
            np.minimum(factor, side - factor * np.arange(count, dtype=np.uint32))
            for side, count in ((height, rows), (width, columns))
        )
        counts = np.outer(down, across).astype(np.uint32)
    kind: Any = np.uint16 if factor <= _SHORT else np.uint32
    lines = pixels[0::factor].astype(kind)
    for row in range(1, factor):
        lines += pixels[row::factor]
    total = lines[:, 0::factor].astype(np.uint32)
    for column in range(1, factor):
        total += lines[:, column::factor]
    if probability:
        return np.asarray((total + counts // 2) // counts, dtype=np.uint8)
    return np.asarray((2 * total > 255 * counts) * np.uint8(255), dtype=np.uint8)


def _rows_of_tiles(strips: Iterable[Bytes], grid: MaskGrid, path: Path) -> Iterator[tuple[int, Bytes]]:
    """Strips of any heights as rows of tiles."""
    buffer = np.zeros((min(TILE, grid.rows), grid.columns), dtype=np.uint8)
    done = filled = 0
    for strip in strips:
        if strip.ndim != 2 or strip.shape[1] != grid.columns or done + filled + len(strip) > grid.rows:
            raise UserError(
                f"a strip of {' x '.join(map(str, strip.shape))} in a mask of {grid.rows} x {grid.columns}, after "
                f"{done + filled} rows",
                where=str(path),
            )
        at = 0
        while at < len(strip):
            count = min(len(strip) - at, len(buffer) - filled)
            buffer[filled : filled + count] = strip[at : at + count]
            at, filled = at + count, filled + count
            if filled == len(buffer) or done + filled == grid.rows:
                yield done, buffer[:filled]
                done, filled = done + filled, 0
    if done < grid.rows:
        raise UserError(f"the mask has {done + filled} rows and not {grid.rows}", where=str(path))


def _tiles(rows: Iterable[tuple[int, Bytes]], reduced: _Reduced | None) -> Iterator[bytes]:
    """The compressed tiles of a level; those of one value are compressed once."""
    compress = _compressor()
    plain = {value: compress(np.full((TILE, TILE), value, dtype=np.uint8)) for value in (0, 255)}
    for top, strip in rows:
        for left in range(0, strip.shape[1], TILE):
            part = strip[:, left : left + TILE]
            lowest, highest = int(part.min()), int(part.max())
            if reduced is not None and highest:
                reduced.take(part, top, left)
            if highest == 0 or (lowest == 255 and part.shape == (TILE, TILE)):
                yield plain[highest]
                continue
            tile = np.zeros((TILE, TILE), dtype=np.uint8)
            tile[: part.shape[0], : part.shape[1]] = part
            yield compress(tile)


def _compressor() -> Callable[[Bytes], bytes]:
    """The fastest of the writers of zlib's format that are installed."""
    try:
        import imagecodecs

        imagecodecs.zlibng_encode(b"", level=1)
    except (ImportError, AttributeError):
        return lambda tile: zlib.compress(tile.tobytes(), 1)
    return lambda tile: bytes(imagecodecs.zlibng_encode(tile.tobytes(), level=1))


def _write_level(file: Any, tiles: Iterator[bytes], grid: MaskGrid, factor: int) -> None:
    per_cm = 10_000.0 / (grid.pixel_um * factor)
    about = {"content": "probability" if grid.probability else "mask", "offset_px": list(grid.offset_px)}
    file.write(
        tiles,
        shape=(grid.rows, grid.columns),
        dtype=np.uint8,
        tile=(TILE, TILE),
        compression="zlib",
        photometric="minisblack",
        resolution=(per_cm, per_cm),
        resolutionunit="CENTIMETER",
        subfiletype=1 if factor > 1 else 0,
        description=json.dumps({"elsewhere": about}) if factor == 1 else None,
        metadata=None,
        software="elsewhere",
    )
