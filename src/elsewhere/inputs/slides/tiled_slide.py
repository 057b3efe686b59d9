"""Reads tiled TIFF slides directly: the bytes of a tile are read and decoded, and nothing lies between.

Pixels equal OpenSlide's to the last bit. A tile is decoded once for every strip that it touches, or kept for a while
where regions are read in any order.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.slides.files import CUT_OFF, StretchReader
from elsewhere.inputs.slides.scale import choose_scale
from elsewhere.inputs.slides.slide import WHITE, Level, Pixels, Slide, SlideFacts, exact_downsample
from elsewhere.inputs.slides.tiff import read_directories, read_tile_table
from elsewhere.inputs.slides.tiff_formats import APERIO, TiffFormat, describe_tiff
from elsewhere.inputs.slides.tiles import BadTileError, compression_name, decoder

CACHE_BYTES = 64 << 20


class NotDirectError(Exception):
    """The file is sound and is not one that is read directly; the message says why, as a clause."""


class _TileCache:
    """The tiles that were decoded last, by level and number, up to a number of bytes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = os.getpid()
        self.tiles: OrderedDict[tuple[int, int], Pixels] = OrderedDict()
        self.size = 0

    def get(self, key: tuple[int, int]) -> Pixels | None:
        with self.lock:
            tile = self.tiles.get(key)
            if tile is not None:
                self.tiles.move_to_end(key)
            return tile

    def put(self, key: tuple[int, int], tile: Pixels) -> None:
        with self.lock:
            if key in self.tiles:
                return
            self.tiles[key] = tile
            self.size += tile.nbytes
            while self.size > CACHE_BYTES and len(self.tiles) > 1:
                self.size -= self.tiles.popitem(last=False)[1].nbytes


class TiledSlide(Slide):
    """A slide whose tiles are decoded directly.

    Args:
        path: The file.
        stated_mpp: Microns per pixel that the user states; None for those of the file.

    Raises:
        UserError: It is no TIFF file, is damaged, or its microns per pixel are missing or absurd.
        NotDirectError: It is a TIFF file that is not read directly.
    """

    backend = "direct"

    def __init__(self, path: Path, stated_mpp: float | None = None) -> None:
        super().__init__(path, stated_mpp)
        self._file = StretchReader(path)
        try:
            directories = read_directories(self._file)
            described = describe_tiff(directories)
            if described.refusal:
                raise NotDirectError(described.refusal)
            tables = [read_tile_table(self._file, directory) for directory in described.levels]
            missing = [int((lengths == 0).sum()) for _, lengths in tables]
            if described.vendor == APERIO and any(missing):
                raise NotDirectError("tiles are missing, which its vendor fills from another level")
            if missing[0] == len(tables[0][1]):
                raise UserError("no tile of level 0 has any pixels", where=str(path), fix=CUT_OFF)
            scale = choose_scale(
                described.statements, stated=stated_mpp, objective=described.objective, where=str(path)
            )
            self._decoders = [decoder(directory) for directory in described.levels]
        except BaseException:
            self._file.close()
            raise
        self._directories = described.levels
        self._tables = tables
        self._cache = _TileCache()
        levels = _levels(described, scale.mpp)
        self.facts = SlideFacts(
            mpp=scale.mpp,
            mpp_source=scale.source,
            levels=levels,
            objective=described.objective,
            vendor=described.vendor,
            compression=compression_name(described.levels[0]),
            bounds_px=(0, 0, levels[0].width, levels[0].height),
            pictures=described.pictures,
            warnings=(*scale.warnings, *described.warnings, *_missing_warnings(missing, tables)),
        )

    def close(self) -> None:
        """Close the file. A closed slide cannot be read."""
        self._file.close()

    def _tile(self, level: int, number: int, rows: int, out: Pixels | None = None) -> Pixels | None:
        """Decode a tile, of which the last strip of a picture in strips has fewer rows; None for one left out."""
        offsets, lengths = self._tables[level]
        length = int(lengths[number])
        if not length:
            return None
        directory = self._directories[level]
        if out is None or out.shape[0] != rows:
            out = np.empty((rows, directory.tile_width, 3), np.uint8)
        content = self._file.read(int(offsets[number]), length)
        try:
            self._decoders[level](content, out)
        except BadTileError as error:
            column, row = number % directory.tiles_across, number // directory.tiles_across
            raise UserError(
                f"the tile in row {row}, column {column} of level {level} (from pixel x = "
                f"{column * directory.tile_width:,}, y = {row * directory.tile_height:,}) cannot be decoded ({error})",
                where=str(self.path),
                fix="Fetch or export the slide again; other parts of it can be read.",
            ) from error
        return out

    def _cached(self, level: int, number: int, rows: int) -> Pixels | None:
        if self._cache.process != os.getpid():
            self._cache = _TileCache()  # after a fork: another thread may have held the lock
        cache = self._cache
        tile = cache.get((level, number))
        if tile is None and (tile := self._tile(level, number, rows)) is not None:
            cache.put((level, number), tile)
        return tile

    def _tile_rows(self, level: int, row: int) -> int:
        directory = self._directories[level]
        if directory.tiled:
            return directory.tile_height
        return min(directory.tile_height, directory.height - row * directory.tile_height)

    def _fill(self, level: int, x: int, y: int, out: Pixels) -> None:
        self._assemble(level, x, y, out, self._cached)

    def _assemble(
        self, level: int, x: int, y: int, out: Pixels, tile_of: Callable[[int, int, int], Pixels | None]
    ) -> None:
        """Copy the parts of tiles that make up a region inside of the level."""
        directory = self._directories[level]
        height, width = out.shape[:2]
        wide, high, across = directory.tile_width, directory.tile_height, directory.tiles_across
        for row in range(y // high, (y + height - 1) // high + 1):
            top, bottom = max(y, row * high), min(y + height, (row + 1) * high)
            rows = self._tile_rows(level, row)
            for column in range(x // wide, (x + width - 1) // wide + 1):
                left, right = max(x, column * wide), min(x + width, (column + 1) * wide)
                tile = tile_of(level, row * across + column, rows)
                part = out[top - y : bottom - y, left - x : right - x]
                if tile is None:
                    part[:] = WHITE
                else:
                    part[:] = tile[
                        top - row * high : bottom - row * high, left - column * wide : right - column * wide
                    ]

    def _patch_reader(self, level: int, size: int) -> Callable[[int, int], Pixels]:
        """Keep the tiles that the present row of patches touches; their memory is used again for the next."""
        directory, found = self._directories[level], self.levels[level]
        tiles: dict[int, Pixels | None] = {}
        spare: list[Pixels] = []
        first = 0

        def tile_of(_level: int, number: int, rows: int) -> Pixels | None:
            if number not in tiles:
                tiles[number] = self._tile(level, number, rows, spare.pop() if spare else None)
            return tiles[number]

        def read(x: int, y: int) -> Pixels:
            nonlocal first
            begin = y // directory.tile_height * directory.tiles_across
            if begin != first:
                for number in [number for number in tiles if number < begin]:
                    tile = tiles.pop(number)
                    if tile is not None:
                        spare.append(tile)
                first = begin
            width, height = min(size, found.width - x), min(size, found.height - y)
            if width <= 0 or height <= 0:
                return np.full((size, size, 3), WHITE, np.uint8)
            whole = (width, height) == (size, size)
            out = np.empty((size, size, 3), np.uint8) if whole else np.full((size, size, 3), WHITE, np.uint8)
            self._assemble(level, x, y, out[:height, :width], tile_of)
            return out

        return read

    def _band(self, level: int, row: int, threads: int) -> Pixels:
        """All rows of one row of tiles."""
        directory, found = self._directories[level], self.levels[level]
        wide, across = directory.tile_width, directory.tiles_across
        rows = min(directory.tile_height, found.height - row * directory.tile_height)
        self._check_region(found.width, rows)
        band = np.empty((rows, found.width, 3), np.uint8)

        def decode(columns: Iterable[int]) -> None:
            for column in columns:
                left, right = column * wide, min((column + 1) * wide, found.width)
                if left >= right:
                    continue
                tile = self._tile(level, row * across + column, self._tile_rows(level, row))
                band[:, left:right] = WHITE if tile is None else tile[:rows, : right - left]

        if threads == 1:
            decode(range(across))
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(decode, [range(first, across, threads) for first in range(threads)]))
        return band

    def _row_reader(self, level: int, threads: int) -> Callable[[int, int], Pixels]:
        high = self._directories[level].tile_height
        bands: dict[int, Pixels] = {}

        def rows(y0: int, y1: int) -> Pixels:
            needed = range(y0 // high, (y1 - 1) // high + 1)
            for row in [row for row in bands if row not in needed]:
                del bands[row]
            for row in needed:
                if row not in bands:
                    bands[row] = self._band(level, row, threads)
            parts = [bands[row][max(0, y0 - row * high) : y1 - row * high] for row in needed]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

        return rows


def _levels(described: TiffFormat, mpp: float) -> tuple[Level, ...]:
    whole = described.sizes[0]
    levels = []
    for directory, (width, height) in zip(described.levels, described.sizes, strict=True):
        factor = exact_downsample(whole, (width, height))
        levels.append(
            Level(
                width=width,
                height=height,
                downsample=factor,
                mpp=mpp * factor,
                tile_width=directory.tile_width,
                tile_height=directory.tile_height,
            )
        )
    return tuple(levels)


def _missing_warnings(missing: list[int], tables: list[tuple[np.ndarray, np.ndarray]]) -> tuple[str, ...]:
    return tuple(
        f"{count:,} of {len(lengths):,} tiles of level {level} are left out in the file and read as white"
        for level, (count, (_, lengths)) in enumerate(zip(missing, tables, strict=True))
        if count
    )
