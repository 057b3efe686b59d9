"""Reads a tomosynthesis volume slice by slice (DBT-01): one frame is in memory at a time, whatever the volume's size.

Where each frame lies in the file is found by walking over the headers of its fragments, which is right without an
offset table and with a wrong one. A table is used only where frames have several fragments. Pixels are decoded by
the codec of the transfer syntax and returned as 16-bit numbers in the order of the slices.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.files.refusals import explained_refusals
from elsewhere.inputs.tomosynthesis.codecs import BadFrameError, Codec, FrameSize, codec_of, decoder
from elsewhere.inputs.tomosynthesis.header import Header, read_header

Slice = npt.NDArray[np.uint16]
_ITEM, _END = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0"
_STARTS = (b"\xff\xd8", b"\xff\x4f\xff\x51", b"\x00\x00\x00\x0cjP")
MOST_FRAGMENTS = 1 << 17
_CUT = "Fetch the file again: it was cut off."

Pieces = tuple[tuple[int, int], ...]
"""(offset, length) of each fragment of a frame."""


class DicomVolume:
    """A volume in a DICOM file. Reading is safe from several threads: each read opens the file.

    Args:
        path: The file.

    Attributes:
        path: The file.
        header: Its checked header.

    Raises:
        UserError: It is no tomosynthesis volume, or its header is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header: Header = read_header(self.path)
        self.codec: Codec = codec_of(self.header.transfer_syntax, where=str(self.path))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and slices."""
        return self.header.rows, self.header.columns, self.header.frames

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the file, as sentences."""
        lossy = (f"the encoding may lose information ({self.codec.name})",) if self.codec.lossy else ()
        return (*self.header.notes, *lossy)

    @cached_property
    def top(self) -> int:
        """The value that a stored 0 becomes where low values are bright: at least every value that occurs.

        It is what the bits stored allow, or the largest value that occurs where the data are wider than that.
        """
        nominal = (1 << self.header.bits_stored) - 1
        return max(nominal, *(int(self._stored(z).max()) for z in range(self.header.frames)))

    @property
    def window(self) -> tuple[float, float] | None:
        """The header's window as (low, high) in the values that `read` returns; None where it states none."""
        window = self.header.window
        if window is None or not self.header.inverted:
            return window
        return self.top - window[1], self.top - window[0]

    def read(self, z: int) -> Slice:
        """Decode one slice.

        Args:
            z: Which slice, from 0.

        Returns:
            [rows, columns] of 16 bits, in the file's own orientation; bright is dense, whatever the file says.

        Raises:
            UserError: There is no such slice, the file is cut off or damaged, or its codec is not installed.
        """
        stored = self._stored(z)
        return (
            (np.uint16(self.top) - stored).astype(np.uint16, copy=False) if self.header.inverted else stored
        )

    def _stored(self, z: int) -> Slice:
        frames = self.header.frames
        if not 0 <= z < frames:
            raise UserError(f"the volume has {frames} slices, slice {z} was requested", where=str(self.path))
        frame = self.header.order[z] if self.header.order else z
        with explained_refusals(self.path, "the volume cannot be read"), self.path.open("rb") as file:
            content = b"".join(_read(file, offset, length) for offset, length in self._frames[frame])
        try:
            pixels = self._decode(content)
        except BadFrameError as error:
            raise UserError(
                f"frame {frame + 1} of {frames} cannot be decoded ({error})",
                where=str(self.path),
                fix="Fetch or export the file again.",
            ) from error
        except UserError as error:
            error.where = error.where or str(self.path)
            raise UserError(error.what, where=error.where, fix=error.fix) from None
        if pixels.dtype.kind == "i" or self.header.signed:
            pixels = pixels.view(f"i{pixels.itemsize}")
            if int(pixels.min()) < 0:
                raise UserError(
                    f"frame {frame + 1} has negative values (down to {int(pixels.min())}); tomosynthesis is unsigned",
                    where=str(self.path),
                    fix="Export it with unsigned pixels.",
                )
        return pixels.astype(np.uint16, copy=False)

    @cached_property
    def _decode(self) -> Callable[[bytes], npt.NDArray[Any]]:
        header = self.header
        size = FrameSize(rows=header.rows, columns=header.columns, bits_allocated=header.bits_allocated)
        if self.codec.family != "raw":
            return decoder(self.codec, size)
        kind = np.dtype(f"<u{header.bits_allocated // 8}")
        return lambda content: np.frombuffer(content, dtype=kind).reshape(size.rows, size.columns)

    @cached_property
    def _frames(self) -> tuple[Pieces, ...]:
        with explained_refusals(self.path, "the volume cannot be read"), self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if self.codec.family == "raw":
                return self._raw_frames(size)
            if self.header.pixels_length is not None:
                raise UserError(
                    f"its pixels should be compressed ({self.codec.name}) and are not",
                    where=str(self.path),
                    fix="Export the file again.",
                )
            table, fragments = self._walk(file, size)
        return self._grouped(table, fragments)

    def _raw_frames(self, size: int) -> tuple[Pieces, ...]:
        each, frames, start = self.header.frame_bytes, self.header.frames, self.header.pixels_at
        length = self.header.pixels_length
        if length is None:
            raise UserError(
                "its pixels should be plain and are in fragments",
                where=str(self.path),
                fix="Export the file again.",
            )
        available = min(length, size - start)
        if available < each * frames:
            raise self._ends(available // each if each else 0, cut=size - start < each * frames)
        return tuple(((start + each * frame, each),) for frame in range(frames))

    def _ends(self, frame: int, *, cut: bool = True) -> UserError:
        frames = self.header.frames
        if cut:
            return UserError(
                f"the file ends in frame {frame + 1} of {frames}", where=str(self.path), fix=_CUT
            )
        return UserError(
            f"the header states {frames} frames and the file has {frame}", where=str(self.path), fix=_CUT
        )

    def _walk(self, file: BinaryIO, size: int) -> tuple[list[int], list[tuple[int, int]]]:
        """The basic offset table, and (offset, length) of every fragment; only their headers are read."""
        most = 4 * self.header.frame_bytes + (1 << 20)
        table: list[int] | None = None
        fragments: list[tuple[int, int]] = []
        offset = self.header.pixels_at
        while True:
            file.seek(offset)
            head = file.read(8)
            if head[:4] == _END or (not head and table is not None):
                return table or [], fragments
            length = int.from_bytes(head[4:8], "little")
            if len(head) < 8 or offset + 8 + length > size:
                raise self._ends(min(len(fragments), self.header.frames - 1))
            if head[:4] != _ITEM or (table is not None and length > most):
                raise UserError(
                    f"the frames after frame {len(fragments)} of {self.header.frames} are damaged",
                    where=str(self.path),
                    fix="Fetch the file again.",
                )
            if table is None:
                table = self._basic_offsets(file, length)
            else:
                fragments.append((offset + 8, length))
            if len(fragments) > MOST_FRAGMENTS:
                raise UserError(
                    f"its pixels are in more than {MOST_FRAGMENTS:,} fragments", where=str(self.path)
                )
            offset += 8 + length

    def _basic_offsets(self, file: BinaryIO, length: int) -> list[int]:
        if length != 4 * self.header.frames:
            return []
        return [int(value) for value in np.frombuffer(file.read(length), dtype="<u4")]

    def _grouped(self, table: list[int], fragments: list[tuple[int, int]]) -> tuple[Pieces, ...]:
        """The fragments of each frame."""
        frames = self.header.frames
        if len(fragments) == frames:
            return tuple((fragment,) for fragment in fragments)
        if len(fragments) < frames:
            raise self._ends(len(fragments), cut=False)
        begins = [offset - 8 - (fragments[0][0] - 8) for offset, _ in fragments]
        for offsets in (table, list(self.header.offsets)):
            grouped = _by_offsets(offsets, begins, fragments, frames)
            if grouped:
                return self._checked(grouped)
        with self.path.open("rb") as file:
            first = [
                number
                for number, (begin, _) in enumerate(fragments)
                if _read(file, begin, 8).startswith(_STARTS)
            ]
        if len(first) == frames and first[0] == 0:
            ends = [*first[1:], len(fragments)]
            return self._checked(tuple(tuple(fragments[a:b]) for a, b in zip(first, ends, strict=True)))
        raise UserError(
            f"which of its {len(fragments)} fragments belong to which of {frames} frames cannot be told: "
            "there is no usable offset table",
            where=str(self.path),
            fix="Export the file again with one fragment per frame.",
        )

    def _checked(self, frames: tuple[Pieces, ...]) -> tuple[Pieces, ...]:
        most = 4 * self.header.frame_bytes + (1 << 20)
        for number, pieces in enumerate(frames, start=1):
            if sum(length for _, length in pieces) > most:
                raise UserError(
                    f"frame {number} of {len(frames)} takes more bytes than its pixels can",
                    where=str(self.path),
                )
        return frames


def _by_offsets(
    offsets: list[int], begins: list[int], fragments: list[tuple[int, int]], frames: int
) -> tuple[Pieces, ...]:
    """The fragments of each frame by a table of offsets; empty where the table does not fit the fragments."""
    place = {begin: number for number, begin in enumerate(begins)}
    first = [place.get(offset, -1) for offset in offsets]
    if len(first) != frames or first[0] != 0 or any(b <= a for a, b in itertools.pairwise(first)):
        return ()
    ends = [*first[1:], len(fragments)]
    return tuple(tuple(fragments[a:b]) for a, b in zip(first, ends, strict=True))


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
