"""A pyramidal tiled BigTIFF of JPEG tiles, written from tiles that are drawn one after the other.

Only the tiles of one row per level are in memory, which is some 150 MB for a slide of 100,000 x 100,000 pixels.
Pillow encodes; nothing else is needed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
TILE = 512
SMALLEST = 512
"""The pyramid ends with the level that is no larger than this."""
_SHORT, _LONG, _RATIONAL, _ASCII, _LONG8 = 3, 4, 5, 2, 16
_SIZE = {_SHORT: 2, _LONG: 4, _RATIONAL: 8, _ASCII: 1, _LONG8: 8}


@dataclass(frozen=True, kw_only=True)
class TiffOptions:
    """How a slide is stored.

    Args:
        mpp: Microns per pixel in the resolution tags.
        quality: JPEG quality.
        subsampled: Whether the colour channels have half the resolution.
        description: The text of the description tag.
        white: Colour of what lies outside the slide in the last tiles.
    """

    mpp: float
    quality: int
    subsampled: bool
    description: str
    white: tuple[int, int, int] = (255, 255, 255)


@dataclass
class _Level:
    width: int
    height: int
    columns: int
    rows: int
    band: Pixels
    filled: int = 0
    row: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)


def level_sizes(width: int, height: int) -> list[tuple[int, int]]:
    """List the sizes of the levels, each half of the one before.

    Args:
        width: Width of the finest level.
        height: Its height.

    Returns:
        Width and height of each level.

    Example:
        >>> level_sizes(1500, 700)
        [(1500, 700), (750, 350), (375, 175)]
    """
    made = [(width, height)]
    while max(made[-1]) > SMALLEST:
        made.append(((made[-1][0] + 1) // 2, (made[-1][1] + 1) // 2))
    return made


class SlideWriter:
    """Writes one slide, tile by tile of the finest level, row after row.

    Args:
        file: An open file, at its start.
        size_px: Width and height of the finest level.
        options: How it is stored.
    """

    def __init__(self, file: BinaryIO, size_px: tuple[int, int], options: TiffOptions) -> None:
        self._file, self._options = file, options
        self._levels: list[_Level] = []
        self._repeated: dict[int, tuple[Pixels, bytes, Pixels]] = {}
        for width, height in level_sizes(*size_px):
            columns, rows = -(-width // TILE), -(-height // TILE)
            # the finest level is encoded tile by tile and needs no band
            band = np.empty((TILE, columns * TILE, 3) if self._levels else (0, 0, 3), dtype=np.uint8)
            band[...] = options.white
            self._levels.append(_Level(width, height, columns, rows, band))
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0))

    def write_row(self, tiles: list[Pixels | None]) -> None:
        """Write one row of tiles of the finest level, and what follows from it in the other levels.

        Args:
            tiles: uint8 RGB of `TILE` x `TILE` pixels each, from left to right; None for a tile without data, as
                sparse slides have. An array that is not writeable is encoded once, however often it is given.
        """
        level = self._levels[0]
        small = self._levels[1] if len(self._levels) > 1 else None
        top = small.filled if small else 0
        half = TILE // 2
        for column, tile in enumerate(tiles):
            if tile is None:
                level.places.append((0, 0))
                continue
            if tile.flags.writeable:
                content, reduced = self._encoded(tile), halved(tile)
            else:
                if id(tile) not in self._repeated:
                    self._repeated[id(tile)] = (tile, self._encoded(tile), halved(tile))
                _, content, reduced = self._repeated[id(tile)]
            level.places.append(self._put(content))
            if small is not None:
                small.band[top : top + half, column * half : (column + 1) * half] = reduced
        level.row += 1
        if small is not None:
            small.filled += half
            if small.filled == TILE or level.row == level.rows:
                self._flush(1)

    def _flush(self, number: int) -> None:
        level = self._levels[number]
        for column in range(level.columns):
            level.places.append(self._put(self._encoded(level.band[:, column * TILE : (column + 1) * TILE])))
        level.row += 1
        if number + 1 < len(self._levels):
            below = self._levels[number + 1]
            half = TILE // 2
            part = halved(level.band)
            wide = min(part.shape[1], below.band.shape[1])
            below.band[below.filled : below.filled + half, :wide] = part[:, :wide]
            below.filled += half
            if below.filled == TILE or level.row == level.rows:
                self._flush(number + 1)
        level.band[...] = self._options.white
        level.filled = 0

    def _put(self, content: bytes) -> tuple[int, int]:
        place = self._file.tell()
        self._file.write(content)
        return place, len(content)

    def _encoded(self, tile: Pixels) -> bytes:
        from PIL import Image

        content = io.BytesIO()
        Image.fromarray(tile).save(
            content, "JPEG", quality=self._options.quality, subsampling=2 if self._options.subsampled else 0
        )
        return content.getvalue()

    def close(self) -> None:
        """Write the directories.

        Raises:
            RuntimeError: Rows of tiles are missing.
        """
        link = 8
        for number, level in enumerate(self._levels):
            if len(level.places) != level.columns * level.rows:
                raise RuntimeError(
                    f"level {number} has {len(level.places)} of {level.columns * level.rows} tiles"
                )
            start = self._directory(level, number)
            end = self._file.tell()
            self._file.seek(link)
            self._file.write(struct.pack("<Q", start[0]))
            self._file.seek(end)
            link = start[1]

    def _directory(self, level: _Level, number: int) -> tuple[int, int]:
        options = self._options
        per_cm = 10_000 / (options.mpp * 2**number)
        resolution = (round(per_cm * 10_000), 10_000)
        tags: list[tuple[int, int, Any]] = [
            (254, _LONG, [1 if number else 0]),
            (256, _LONG, [level.width]),
            (257, _LONG, [level.height]),
            (258, _SHORT, [8, 8, 8]),
            (259, _SHORT, [7]),
            (262, _SHORT, [6]),
            (277, _SHORT, [3]),
            (282, _RATIONAL, resolution),
            (283, _RATIONAL, resolution),
            (284, _SHORT, [1]),
            (296, _SHORT, [3]),
            (305, _ASCII, b"elsewhere\0"),
            (322, _LONG, [TILE]),
            (323, _LONG, [TILE]),
            (324, _LONG8, [place for place, _ in level.places]),
            (325, _LONG8, [length for _, length in level.places]),
            (530, _SHORT, [2, 2] if options.subsampled else [1, 1]),
        ]
        if not number:
            tags.append((270, _ASCII, options.description.encode("ascii", "replace") + b"\0"))
        tags.sort(key=lambda tag: tag[0])
        entries = []
        for code, kind, values in tags:
            if kind == _ASCII:
                content = bytes(values)
                count = len(content)
            else:
                letter = {_SHORT: "H", _LONG: "I", _RATIONAL: "I", _LONG8: "Q"}[kind]
                content = struct.pack(f"<{len(values)}{letter}", *values)
                count = len(content) // _SIZE[kind]
            if len(content) > 8:
                place = self._file.tell()
                self._file.write(content)
                content = struct.pack("<Q", place)
            entries.append(struct.pack("<HHQ", code, kind, count) + content.ljust(8, b"\0"))
        start = self._file.tell()
        start += -start % 8
        self._file.seek(start)
        self._file.write(struct.pack("<Q", len(entries)) + b"".join(entries))
        link = self._file.tell()
        self._file.write(struct.pack("<Q", 0))
        return start, link


def halved(pixels: Pixels) -> Pixels:
    """Average 2 x 2 pixels.

    Args:
        pixels: uint8 with an even number of rows and columns.

    Returns:
        Pixels of half the size.

    Example:
        >>> halved(np.array([[[0], [4]], [[4], [4]]], dtype=np.uint8)).tolist()
        [[[3]]]
    """
    total = pixels[0::2, 0::2].astype(np.uint16)
    total += pixels[1::2, 0::2]
    total += pixels[0::2, 1::2]
    total += pixels[1::2, 1::2]
    total += 2
    total >>= 2
    return total.astype(np.uint8)


def write_slide(
    path: Path,
    size_px: tuple[int, int],
    tile_at: Callable[[int, int], Pixels | None],
    options: TiffOptions,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a slide from a function that draws its tiles.

    Args:
        path: The file to write.
        size_px: Width and height of the finest level.
        tile_at: Called with the column and row of each tile of the finest level, row after row; returns `TILE` x
            `TILE` pixels, or None for a tile without data.
        options: How it is stored.
        progress: Called after each row of tiles with the rows written and their number; None for silence.
    """
    columns, rows = -(-size_px[0] // TILE), -(-size_px[1] // TILE)
    with path.open("w+b") as file:
        writer = SlideWriter(file, size_px, options)
        for row in range(rows):
            writer.write_row([tile_at(column, row) for column in range(columns)])
            if progress:
                progress(row + 1, rows)
        writer.close()
