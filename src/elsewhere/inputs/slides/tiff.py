"""Reads the directories of a TIFF file: classic and BigTIFF, either byte order, with a limit on everything.

A slide may come from somebody unknown. A directory that leads back to an earlier one, a table of a million empty
tiles, a size of 2,000,000,000 pixels or a tile behind the end of the file ends in a message, without more memory
than a sound file of the same length needs. Pixels are not decoded here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.files import CUT_OFF, StretchReader

MOST_DIRECTORIES = 1_000
MOST_ENTRIES = 4_096
MOST_SIDE_PX = 1 << 20
MOST_TILES = 1 << 22
MOST_TILE_BYTES = 64 << 20
MOST_TEXT_BYTES = 64 << 20
MOST_LATER_TEXT_BYTES = 64 << 10
MOST_TABLE_BYTES = 64 << 10
_MAGIC = {
    b"II*\x00": ("<", False),
    b"MM\x00*": (">", False),
    b"II+\x00": ("<", True),
    b"MM\x00+": (">", True),
}
_TYPES = {
    1: "u1", 2: "u1", 3: "u2", 4: "u4", 5: "2u4", 6: "i1", 7: "u1", 8: "i2", 9: "i4", 10: "2i4", 11: "f4", 12: "f8",
    13: "u4", 16: "u8", 17: "i8", 18: "u8",
}  # fmt: skip
_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 254, 256, 257, 258, 259, 262
_DESCRIPTION, _STRIP_OFFSETS, _SAMPLES, _STRIP_ROWS, _STRIP_BYTES = 270, 273, 277, 278, 279
_X_RESOLUTION, _Y_RESOLUTION, _PLANAR, _UNIT, _SOFTWARE, _PREDICTOR = 282, 283, 284, 296, 305, 317
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES = 322, 323, 324, 325
_SUB_DIRECTORIES, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _JPEG_TABLES, _XMP = 330, 338, 339, 347, 700
_DEPTH, _NDPI = 32997, 65420
_WANTED = frozenset(
    (
        _SUBFILE, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _DESCRIPTION, _STRIP_OFFSETS, _SAMPLES,
        _STRIP_ROWS, _STRIP_BYTES, _X_RESOLUTION, _Y_RESOLUTION, _PLANAR, _UNIT, _SOFTWARE, _PREDICTOR, _TILE_WIDTH,
        _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES, _SUB_DIRECTORIES, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _JPEG_TABLES,
        _XMP, _DEPTH, _NDPI,
    )
)  # fmt: skip
_UM_PER_UNIT = {2: 25_400.0, 3: 10_000.0}

Entry = tuple[str, int, int]
"""The kind of a tag's numbers, how many there are, and where in the file they lie."""


@dataclass(frozen=True, kw_only=True)
class Directory:
    """One picture of a TIFF file: its size, how its tiles are coded, and what is written about it.

    A picture in strips is one of tiles as wide as itself.

    Attributes:
        index: Which directory of the file, from 0.
        width: Pixels in a row.
        height: Rows.
        tile_width: Pixels in a row of a tile.
        tile_height: Rows of a tile.
        tiled: Whether it is stored in tiles and not in strips.
        compression: The number of the compression.
        photometric: The number of the colour space: 2 RGB, 6 YCbCr, 1 grey.
        samples: Values per pixel.
        bits: Bits of each value.
        planar: Whether the values of a pixel lie apart.
        predictor: 1 for none, 2 for differences along a row.
        subfile: What kind of picture the file says it is; bit 0 stands for a reduced one.
        depth: Planes of focus.
        description: The text of the directory. It may name people: nothing of it is shown.
        software: The program that wrote the file.
        resolution_um: Microns per pixel by the resolution tags, across and down; None without a unit of length.
        jpeg_tables: The JPEG tables that the tiles share, or nothing.
        marks: Tags that tell a vendor's format: "ndpi", "xmp", "extra samples", "sub-directories", "sample format".
        offsets_entry: Where the table of the tiles' positions lies.
        lengths_entry: Where the table of their lengths lies.
    """

    index: int
    width: int
    height: int
    tile_width: int
    tile_height: int
    tiled: bool
    compression: int
    photometric: int
    samples: int
    bits: int
    planar: bool
    predictor: int
    subfile: int
    depth: int
    description: str
    software: str
    resolution_um: tuple[float, float] | None
    jpeg_tables: bytes
    marks: frozenset[str]
    offsets_entry: Entry
    lengths_entry: Entry

    @property
    def tiles_across(self) -> int:
        """Tiles in a row."""
        return math.ceil(self.width / self.tile_width)

    @property
    def tiles_down(self) -> int:
        """Rows of tiles."""
        return math.ceil(self.height / self.tile_height)


def read_directories(file: StretchReader) -> tuple[Directory, ...]:
    """Read all directories of a TIFF file.

    Args:
        file: The open file.

    Returns:
        The directories, in the order of the file.

    Raises:
        UserError: It is no TIFF file, is cut off, leads back to itself, or states sizes that cannot be.
    """
    where = str(file.path)
    start = file.read(0, min(16, file.size))
    if start[:4] not in _MAGIC:
        raise UserError(
            _not_a_tiff(start), where=where, fix="Name a slide, or unpack the archive that holds it."
        )
    order, big = _MAGIC[start[:4]]
    if len(start) < (16 if big else 8):
        raise UserError("the TIFF file ends within its header", where=where, fix=CUT_OFF)
    if big and struct.unpack(order + "HH", start[4:8]) != (8, 0):
        raise UserError("the header of this BigTIFF file is damaged", where=where, fix=CUT_OFF)
    position = struct.unpack(order + ("Q" if big else "I"), start[8:16] if big else start[4:8])[0]
    directories: list[Directory] = []
    visited: set[int] = set()
    while position:
        if position in visited:
            raise UserError(
                f"its picture directories lead back to the one at byte {position:,}, without an end",
                where=where,
                fix="Export the slide again: no program can tell which pictures belong to it.",
            )
        if len(visited) >= MOST_DIRECTORIES:
            raise UserError(
                f"it has more than {MOST_DIRECTORIES:,} picture directories",
                where=where,
                fix="Export the slide again.",
            )
        visited.add(position)
        tags, position = _read_tags(file, position, order, big)
        directories.append(_directory(file, tags, order, len(directories)))
    if not directories:
        raise UserError("the TIFF file has no picture", where=where, fix=CUT_OFF)
    return tuple(directories)


def read_tile_table(
    file: StretchReader, directory: Directory
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read where the tiles of a directory lie.

    Args:
        file: The open file.
        directory: The directory.

    Returns:
        The position and the length in bytes of each tile, row by row; a length of 0 stands for a tile left out.

    Raises:
        UserError: The table does not fit the picture, or a tile lies behind the end of the file.
    """
    where = f"{file.path}, picture {directory.index}"
    needed = directory.tiles_across * directory.tiles_down * (directory.samples if directory.planar else 1)
    tables = []
    for kind, count, at in (directory.offsets_entry, directory.lengths_entry):
        if count != needed:
            raise UserError(
                f"{directory.width:,} x {directory.height:,} pixels are {needed:,} tiles of {directory.tile_width} x "
                f"{directory.tile_height}, and its table lists {count:,}",
                where=where,
                fix=CUT_OFF,
            )
        tables.append(np.frombuffer(file.read(at, count * np.dtype(kind).itemsize), kind).astype(np.int64))
    offsets, lengths = tables
    lengths = np.where(offsets == 0, 0, lengths)
    outside = (offsets < 0) | (lengths < 0) | (lengths > file.size) | (offsets > file.size - lengths)
    behind = int((outside & (lengths != 0)).sum())
    if behind:
        raise UserError(
            f"{behind:,} of {needed:,} tiles lie behind the end of the file ({file.size:,} bytes)",
            where=where,
            fix=CUT_OFF,
        )
    largest = int(lengths.max())
    if largest > MOST_TILE_BYTES:
        raise UserError(
            f"a tile takes {largest:,} bytes; at most {MOST_TILE_BYTES:,} are read",
            where=where,
            fix="Save it as a TIFF file with tiles of 256 or 512 pixels.",
        )
    return offsets, lengths


def _not_a_tiff(start: bytes) -> str:
    kinds = {
        b"PK": "a zip archive",
        b"\x1f\x8b": "a gzip archive",
        b"7z\xbc\xaf": "a 7z archive",
        b"Rar!": "a rar archive",
        b"%PDF": "a PDF document",
        b"<": "a text with markup, such as the error page of a web site",
        b"version https": "a Git LFS pointer and not the file itself",
    }
    kind = next((name for magic, name in kinds.items() if start.startswith(magic)), None)
    if not start:
        return "the file is empty"
    if not any(start):
        return "the file begins with zeros only: a download that was started and not finished looks like this"
    return f"this is {kind}, not a slide" if kind else "this is no TIFF file"


def _read_tags(file: StretchReader, position: int, order: str, big: bool) -> tuple[dict[int, Entry], int]:
    count_size, entry_size, next_size = (8, 20, 8) if big else (2, 12, 4)
    count = struct.unpack(order + ("Q" if big else "H"), file.read(position, count_size))[0]
    if count > MOST_ENTRIES:
        raise UserError(
            f"the picture directory at byte {position:,} states {count:,} entries; at most {MOST_ENTRIES:,} are read",
            where=str(file.path),
            fix=CUT_OFF,
        )
    body = position + count_size
    content = file.read(body, count * entry_size + next_size)
    tags: dict[int, Entry] = {}
    for number in range(count):
        at = number * entry_size
        tag, kind = struct.unpack_from(order + "HH", content, at)
        if kind not in _TYPES:
            continue
        values = struct.unpack_from(order + ("Q" if big else "I"), content, at + 4)[0]
        pair = 2 if _TYPES[kind].startswith("2") else 1
        dtype = np.dtype(order + _TYPES[kind].removeprefix("2"))
        inline = 8 if big else 4
        field = at + (12 if big else 8)
        length = values * pair * dtype.itemsize
        if length <= inline:
            where = body + field
        else:
            where = struct.unpack_from(order + ("Q" if big else "I"), content, field)[0]
        if where + length > file.size:
            # Other programs take memory for the stated length before they read.
            raise UserError(
                f"tag {tag} in the picture directory at byte {position:,} states {length:,} bytes at byte {where:,}, and "
                f"the file has {file.size:,}",
                where=str(file.path),
                fix=CUT_OFF,
            )
        if tag in _WANTED:
            tags[tag] = (dtype.str, values * pair, where)
    return tags, struct.unpack_from(order + ("Q" if big else "I"), content, count * entry_size)[0]


def _directory(file: StretchReader, tags: Mapping[int, Entry], order: str, index: int) -> Directory:
    where = f"{file.path}, picture {index}"

    def raw(tag: int, most: int) -> bytes:
        kind, count, at = tags[tag]
        length = count * np.dtype(kind).itemsize
        if length > most:
            raise UserError(
                f"tag {tag} of the file takes {length:,} bytes; at most {most:,} are read",
                where=where,
                fix=CUT_OFF,
            )
        return file.read(at, length)

    def number(tag: int, default: int | None = None) -> int:
        if tag not in tags or not tags[tag][1]:
            if default is None:
                raise UserError(
                    f"the picture lacks tag {tag}, which every TIFF file has", where=where, fix=CUT_OFF
                )
            return default
        values = np.frombuffer(raw(tag, 1 << 12), tags[tag][0])
        return int(values[0])

    def text(tag: int) -> str:
        """The first picture's text may hold a label in base64; of later ones the beginning is enough."""
        if tag not in tags:
            return ""
        kind, count, at = tags[tag]
        length = count * np.dtype(kind).itemsize
        content = (
            raw(tag, MOST_TEXT_BYTES) if index == 0 else file.read(at, min(length, MOST_LATER_TEXT_BYTES))
        )
        return content.split(b"\x00")[0].decode("utf-8", "replace")

    width, height = number(_WIDTH), number(_HEIGHT)
    tiled = _TILE_OFFSETS in tags
    tile_width = number(_TILE_WIDTH) if tiled else width
    tile_height = number(_TILE_HEIGHT) if tiled else min(number(_STRIP_ROWS, height), height)
    if not (0 < width <= MOST_SIDE_PX and 0 < height <= MOST_SIDE_PX):
        raise UserError(
            f"the file states {width:,} x {height:,} pixels; 1 to {MOST_SIDE_PX:,} on a side are read",
            where=where,
            fix=CUT_OFF,
        )
    if tile_width <= 0 or tile_height <= 0:
        raise UserError(
            f"the file states tiles of {tile_width} x {tile_height} pixels", where=where, fix=CUT_OFF
        )
    if math.ceil(width / tile_width) * math.ceil(height / tile_height) > MOST_TILES:
        raise UserError(
            f"{width:,} x {height:,} pixels in tiles of {tile_width} x {tile_height} are more than {MOST_TILES:,} tiles",
            where=where,
            fix="Save the slide with tiles of 256 or 512 pixels.",
        )
    extra = {_NDPI: "ndpi", _XMP: "xmp", _EXTRA_SAMPLES: "extra samples", _SUB_DIRECTORIES: "sub-directories"}
    marks = {name for tag, name in extra.items() if tag in tags}
    if number(_SAMPLE_FORMAT, 1) != 1:
        marks.add("sample format")
    needed = (_TILE_OFFSETS, _TILE_BYTES) if tiled else (_STRIP_OFFSETS, _STRIP_BYTES)
    absent = (order + "u4", 0, 0)
    return Directory(
        index=index,
        width=width,
        height=height,
        tile_width=tile_width,
        tile_height=tile_height,
        tiled=tiled,
        compression=number(_COMPRESSION, 1),
        photometric=number(_PHOTOMETRIC, 2),
        samples=number(_SAMPLES, 1),
        bits=number(_BITS, 1),
        planar=number(_PLANAR, 1) != 1,
        predictor=number(_PREDICTOR, 1),
        subfile=number(_SUBFILE, 0),
        depth=number(_DEPTH, 1),
        description=text(_DESCRIPTION),
        software=text(_SOFTWARE)[:200],
        resolution_um=_resolution(tags, raw, number(_UNIT, 2)),
        jpeg_tables=raw(_JPEG_TABLES, MOST_TABLE_BYTES) if _JPEG_TABLES in tags else b"",
        marks=frozenset(marks),
        offsets_entry=tags.get(needed[0], absent),
        lengths_entry=tags.get(needed[1], absent),
    )


def _resolution(tags: Mapping[int, Entry], raw: Any, unit: int) -> tuple[float, float] | None:
    """Microns per pixel across and down; None where a tag is missing, zero, or has no unit of length."""
    found = []
    for tag in (_X_RESOLUTION, _Y_RESOLUTION):
        if tag not in tags or unit not in _UM_PER_UNIT or tags[tag][1] < 2:
            return None
        above, below = np.frombuffer(raw(tag, 64), tags[tag][0])[:2].astype(float)
        if above <= 0 or below <= 0:
            return None
        found.append(float(_UM_PER_UNIT[unit] * below / above))
    return found[0], found[1]
