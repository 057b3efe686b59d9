"""Reads NIfTI files: header, grid and voxels with numpy only, for machines without a NIfTI library.

A file has one 3D volume or mask, as NIfTI-1 or -2, in either byte order, packed (.nii.gz) or not. Files that
the format allows but that are no volume of a patient (four axes, colours, complex numbers) are refused with a
reason. Sizes are checked before anything is unpacked, and a file that is cut off or damaged is an error.
Values are scaled by the header's slope and intercept. Nothing is resampled.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.mri.unpacking import DAMAGED, Inflater, unpack

Affine = npt.NDArray[np.float64]
MOST_BYTES = 2**33
"""A larger volume is refused before it is unpacked."""
FLAT = 1e-3
"""Axes that span less than this share of a right-angled voxel have no direction of their own."""
_TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8",
}  # fmt: skip
_NOT_PLAIN = {
    0: "unknown", 1: "binary", 32: "complex64", 128: "RGB", 1536: "float128", 1792: "complex128", 2048: "complex256",
    2304: "RGBA",
}  # fmt: skip
_NUMBERS = {2: "two", 3: "three"}
_PIECE = 2**20
"""The bytes of one piece where a file is streamed."""
_UNIT_MM = {1: 1000.0, 3: 0.001}
_HEADER_1, _HEADER_2 = 348, 540


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a file has to be, and how messages speak of it.

    Args:
        what: What the file holds.
        axes: How many axes it may have; a last axis of one does not count.
        most_bytes: A file with more voxels is refused before it is unpacked.
        fix: What to do about a damaged file.
        values: What to write instead of values of another type.
    """

    what: str = "volume"
    axes: tuple[int, ...] = (3,)
    most_bytes: int = MOST_BYTES
    fix: str = "Fetch the file again."
    values: str = "Write int16 or float32."


VOLUME = Expected()


@dataclass(frozen=True, kw_only=True)
class NiftiHeader:
    """What a file says of its volume, before a voxel is read.

    Args:
        shape: Voxels along the axes x, y, z; 1 along z where the file has two axes.
        dtype: The type of the voxels as they are stored, with its byte order.
        offset: The byte at which the first voxel begins.
        slope: The factor from stored to real values; None: the values are what is stored.
        intercept: What is added to the scaled values.
        spacing_mm: The distance of voxels along each axis, in mm.
        affine: [4, 4] from voxel index to mm; None where the file does not define it.
        placement: The bytes of the header, for a mask on the same grid.
        packed: Whether the file is compressed.
        axes: How many axes the file has, without last axes of length one.
        expected: What the file was expected to be; messages about its voxels use it.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    offset: int
    slope: float | None
    intercept: float
    spacing_mm: tuple[float, float, float]
    affine: Affine | None
    placement: bytes
    packed: bool
    axes: int = 3
    expected: Expected = VOLUME

    @property
    def n_bytes(self) -> int:
        """The size of all voxels as they are stored."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path, expected: Expected = VOLUME) -> NiftiHeader:
    """Read the header; of a packed file only its beginning is unpacked.

    Args:
        path: The file.
        expected: What it has to be.

    Returns:
        The header.

    Raises:
        UserError: There is no such file, it is not NIfTI, or it is not what is expected.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "mask.nii"
        >>> data = mask_bytes(np.ones((4, 3, 2)), plain_placement((1.0, 1.0, 2.0), None))
        >>> written = path.write_bytes(data)
        >>> read_header(path).shape, read_header(path).spacing_mm
        ((4, 3, 2), (1.0, 1.0, 2.0))
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            start = file.read(2**14)
    except FileNotFoundError:
        raise UserError("there is no such file", where=where, fix=expected.fix) from None
    except OSError as error:
        raise UserError(f"it cannot be read ({error})", where=where) from error
    packed = start[:2] == b"\x1f\x8b"
    if packed:
        try:
            source, start = Inflater(start), b""
            while len(start) < _HEADER_2 and (more := source.read(_HEADER_2 - len(start))):
                start += more
        except DAMAGED as error:
            raise UserError(f"it cannot be unpacked ({error})", where=where, fix=expected.fix) from error
    return parse_header(start, packed=packed, where=where, expected=expected)


def parse_header(
    block: bytes, *, packed: bool = False, where: str = "", expected: Expected = VOLUME
) -> NiftiHeader:
    """Read the header from the first bytes of a file, in either byte order.

    Args:
        block: The first 540 bytes or more, unpacked; 348 of a NIfTI-1 file.
        packed: Whether the file is packed.
        where: The file's name, for messages.
        expected: What it has to be.

    Returns:
        The header.

    Raises:
        UserError: It is not NIfTI, or not what is expected.
    """
    order, size = _order_and_size(block, where, expected)
    if size == _HEADER_1:
        dim = struct.unpack_from(f"{order}8h", block, 40)
        (code,) = struct.unpack_from(f"{order}h", block, 70)
        pixdim: tuple[float, ...] = struct.unpack_from(f"{order}8f", block, 76)
        offset, slope, intercept = struct.unpack_from(f"{order}3f", block, 108)
        units = block[123]
        qform, sform = struct.unpack_from(f"{order}2h", block, 252)
        quaternion = struct.unpack_from(f"{order}6f", block, 256)
        rows = struct.unpack_from(f"{order}12f", block, 280)
        magic = block[344:348]
    else:
        magic = block[4:8]
        (code,) = struct.unpack_from(f"{order}h", block, 12)
        dim = struct.unpack_from(f"{order}8q", block, 16)
        pixdim = struct.unpack_from(f"{order}8d", block, 104)
        (offset,) = struct.unpack_from(f"{order}q", block, 168)
        slope, intercept = struct.unpack_from(f"{order}2d", block, 176)
        qform, sform = struct.unpack_from(f"{order}2i", block, 344)
        quaternion = struct.unpack_from(f"{order}6d", block, 352)
        rows = struct.unpack_from(f"{order}12d", block, 400)
        units = struct.unpack_from(f"{order}i", block, 500)[0] & 0xFF
    if magic[:3] not in (b"n+1", b"n+2"):
        raise UserError(
            "a NIfTI header without its image",
            where=where,
            fix=f"Write one file per {expected.what} (.nii.gz).",
        )
    sizes = _shape(dim, where, expected)
    shape = (sizes[0], sizes[1], sizes[2] if len(sizes) > 2 else 1)
    if code not in _TYPES:
        raise UserError(
            f"voxels of type {_NOT_PLAIN.get(code, code)} are not plain numbers",
            where=where,
            fix=expected.values,
        )
    if not math.isfinite(offset):
        raise UserError(f"the voxels begin at byte {offset}", where=where, fix=expected.fix)
    to_mm = _UNIT_MM.get(units & 7, 1.0)
    affine = _affine(qform, sform, quaternion, rows, pixdim)
    if affine is not None and not np.isfinite(affine).all():
        raise UserError("the header's affine is not finite", where=where, fix=expected.fix)
    if affine is not None:
        affine[:3] *= to_mm
        steps = tuple(math.hypot(*column) for column in affine[:3, :3].T.tolist())
    else:
        steps = tuple(abs(float(step)) * to_mm for step in pixdim[1:4])
    if not all(math.isfinite(step) and step > 0 for step in steps[: len(sizes)]):
        raise UserError(f"the spacing is {steps}", where=where, fix="Each axis needs a spacing above 0.")
    if affine is not None and len(sizes) == 3 and abs(np.linalg.det(affine[:3, :3] / np.array(steps))) < FLAT:
        raise UserError("the header's axes lie in one plane", where=where, fix=expected.fix)
    scaled = math.isfinite(slope) and slope != 0
    if scaled and not math.isfinite(intercept):
        raise UserError(f"the intercept of the values is {intercept}", where=where, fix=expected.fix)
    header = NiftiHeader(
        shape=shape,
        dtype=np.dtype(order + _TYPES[code]),
        offset=max(int(offset), size),
        slope=float(slope) if scaled and (slope != 1 or intercept != 0) else None,
        intercept=float(intercept) if scaled else 0.0,
        spacing_mm=(steps[0], steps[1], steps[2]),
        affine=affine,
        placement=bytes(block[:size]),
        packed=packed,
        axes=len(sizes),
        expected=expected,
    )
    if header.n_bytes > expected.most_bytes:
        raise UserError(
            f"the {expected.what} would take {header.n_bytes / 2**30:.1f} GiB, "
            f"the limit is {expected.most_bytes / 2**30:.1f} GiB",
            where=where,
        )
    return header


def stored_voxels(path: Path, header: NiftiHeader) -> npt.NDArray[Any]:
    """Read the voxels as the file stores them: mapped where it is not packed, unpacked in one go where it is.

    Args:
        path: The file.
        header: Its header.

    Returns:
        An array of the header's shape and type, neither scaled nor turned.

    Raises:
        UserError: The file is cut off, or damaged.
    """
    where = str(path)
    if not header.packed:
        have = path.stat().st_size - header.offset
        if have < header.n_bytes:
            raise UserError(_cut_off(have, header), where=where, fix=header.expected.fix)
        return np.memmap(
            path, dtype=header.dtype, mode="c", offset=header.offset, shape=header.shape, order="F"
        )
    needed = header.offset + header.n_bytes
    try:
        data, whole = unpack(path.read_bytes(), needed)
    except DAMAGED as error:
        raise UserError(f"it cannot be unpacked ({error})", where=where, fix=header.expected.fix) from error
    if len(data) < needed:
        raise UserError(_cut_off(len(data) - header.offset, header), where=where, fix=header.expected.fix)
    if not whole:
        raise UserError(
            "the packed file is cut off before its checksum", where=where, fix=header.expected.fix
        )
    return np.frombuffer(
        data, dtype=header.dtype, count=math.prod(header.shape), offset=header.offset
    ).reshape(header.shape, order="F")


def voxel_pieces(path: Path, header: NiftiHeader) -> Iterator[npt.NDArray[Any]]:
    """Read the voxels as the file stores them, about 1 MiB at a time, without ever holding the volume.

    Args:
        path: The file.
        header: Its header.

    Yields:
        The values in file order (the first axis fastest), whole rows of the first axis at a time.

    Raises:
        UserError: The file is cut off, or damaged.
    """
    where = str(path)
    row = header.shape[0] * header.dtype.itemsize
    step = max(1, _PIECE // row) * row
    if not header.packed:
        flat = stored_voxels(path, header).reshape(-1, order="F")
        many = step // header.dtype.itemsize
        yield from (flat[first : first + many] for first in range(0, flat.size, many))
        return
    source = Inflater(path.read_bytes())
    try:
        skip = header.offset
        while skip:
            more = source.read(min(skip, _PIECE))
            if not more:
                raise UserError(_cut_off(0, header), where=where, fix=header.expected.fix)
            skip -= len(more)
        left = header.n_bytes
        while left:
            wanted = min(step, left)
            piece = source.read(wanted)
            while len(piece) < wanted:
                more = source.read(wanted - len(piece))
                if not more:
                    have = header.n_bytes - left + len(piece)
                    raise UserError(_cut_off(have, header), where=where, fix=header.expected.fix)
                piece += more
            left -= wanted
            yield np.frombuffer(piece, dtype=header.dtype)
        if not source.read(1) and not source.complete:
            raise UserError(
                "the packed file is cut off before its checksum", where=where, fix=header.expected.fix
            )
    except DAMAGED as error:
        raise UserError(f"it cannot be unpacked ({error})", where=where, fix=header.expected.fix) from error


def scaled(
    voxels: npt.NDArray[Any], header: NiftiHeader, *, where: str, what: str
) -> npt.NDArray[np.float32]:
    """Return the values as float32 with positive strides.

    Voxels that are no number would turn a whole training into NaN, and no rule says what they ought to be.

    Args:
        voxels: As the file stores them.
        header: Of the file.
        where: What an error message calls the file.
        what: What an error message calls the volume.

    Returns:
        [x, y, z].

    Raises:
        UserError: Some voxels are no finite numbers; they are counted.
    """
    if header.slope is None:
        if voxels.dtype == np.float32 and voxels.dtype.isnative and all(s > 0 for s in voxels.strides):
            values = np.asarray(voxels)
        else:
            values = np.array(voxels, dtype=np.float32, order="K")
    else:
        values = np.array(voxels * header.slope + header.intercept, dtype=np.float32, order="K")
    if voxels.dtype.kind == "f" or header.slope is not None:
        bad = values.size - int(np.count_nonzero(np.isfinite(values)))
        if bad:
            raise UserError(
                f"{bad} of {values.size} voxels of {what} are not finite numbers",
                where=where,
                fix="Write the volume again with numbers there, 0 outside the body.",
            )
    return values


def _cut_off(have: int, header: NiftiHeader) -> str:
    return f"the file is cut off: {max(have, 0)} of {header.n_bytes} bytes of voxels are there"


def _order_and_size(block: bytes, where: str, expected: Expected = VOLUME) -> tuple[str, int]:
    for order in "<>":
        if len(block) >= 4:
            (size,) = struct.unpack_from(f"{order}i", block, 0)
            if size in (_HEADER_1, _HEADER_2) and len(block) >= size:
                return order, size
    raise UserError("this is not a NIfTI file, or it is cut off", where=where, fix=expected.fix)


def _shape(dim: tuple[int, ...], where: str, expected: Expected) -> tuple[int, ...]:
    axes = dim[0]
    sizes = list(dim[1 : 1 + axes]) if 1 <= axes <= 7 else []
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    if len(sizes) not in expected.axes or min(sizes) < 1:
        shown = " x ".join(map(str, sizes)) or "nothing"
        raise UserError(
            f"a {expected.what} has {' or '.join(_NUMBERS[n] for n in expected.axes)} axes, this file is {shown}",
            where=where,
            fix="Write one file per phase: NAME_0000.nii.gz, NAME_0001.nii.gz..."
            if expected is VOLUME
            else f"Write one file per {expected.what}.",
        )
    return tuple(int(n) for n in sizes)


def _affine(
    qform: int, sform: int, quaternion: tuple[float, ...], rows: tuple[float, ...], pixdim: tuple[float, ...]
) -> Affine | None:
    """Return the sform where there is one, else the qform, in the order that the standard gives them."""
    affine = np.eye(4)
    if sform > 0:
        affine[:3] = np.array(rows, dtype=np.float64).reshape(3, 4)
        return affine
    if qform > 0:
        b, c, d = quaternion[:3]
        rest = 1.0 - (b * b + c * c + d * d)
        if rest < 1e-7:
            norm = math.sqrt(b * b + c * c + d * d)
            a, b, c, d = 0.0, b / norm, c / norm, d / norm
        else:
            a = math.sqrt(rest)
        turn = np.array(
            [
                [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
                [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
                [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
            ]
        )
        handed = -1.0 if pixdim[0] < 0 else 1.0
        affine[:3, :3] = turn * np.array([abs(pixdim[1]), abs(pixdim[2]), abs(pixdim[3]) * handed])
        affine[:3, 3] = quaternion[3:]
        return affine
    return None


def mask_bytes(mask: npt.NDArray[Any], placement: bytes) -> bytes:
    """Return a mask as an uncompressed NIfTI file whose place in space is another file's header.

    Args:
        mask: [x, y, z].
        placement: `NiftiHeader.placement` of the other file.

    Returns:
        The file's bytes.
    """
    order, size = _order_and_size(placement, "")
    block = bytearray(placement)
    x, y, z = mask.shape
    if size == _HEADER_1:
        struct.pack_into(f"{order}8h", block, 40, 3, x, y, z, 1, 1, 1, 1)
        struct.pack_into(f"{order}2h", block, 70, 2, 8)
        struct.pack_into(f"{order}3f", block, 108, float(size + 4), 1.0, 0.0)
        struct.pack_into(f"{order}2f", block, 124, 1.0, 0.0)
    else:
        struct.pack_into(f"{order}2h", block, 12, 2, 8)
        struct.pack_into(f"{order}8q", block, 16, 3, x, y, z, 1, 1, 1, 1)
        struct.pack_into(f"{order}q", block, 168, size + 4)
        struct.pack_into(f"{order}4d", block, 176, 1.0, 0.0, 1.0, 0.0)
    return bytes(block) + b"\0" * 4 + mask.astype(np.uint8).tobytes(order="F")


def plain_placement(spacing_mm: tuple[float, float, float], affine: Affine | None) -> bytes:
    """Return a NIfTI-1 header that says where a volume lies and nothing else.

    Args:
        spacing_mm: Along each axis.
        affine: Voxel index to mm; None: the header says the spacing alone.

    Returns:
        The header's bytes.
    """
    block = bytearray(_HEADER_1)
    struct.pack_into("<i", block, 0, _HEADER_1)
    struct.pack_into("<8f", block, 76, 1.0, *spacing_mm, 0.0, 0.0, 0.0, 0.0)
    block[123] = 2
    if affine is not None:
        struct.pack_into("<2h", block, 252, 0, 2)
        struct.pack_into("<12f", block, 280, *(float(v) for v in np.asarray(affine)[:3].ravel()))
    block[344:348] = b"n+1\0"
    return bytes(block)


def gzip_bytes(data: bytes) -> bytes:
    """Compress at level 1 without name and time: the same mask is the same file.

    Args:
        data: The bytes.

    Returns:
        The compressed bytes.
    """
    stream = zlib.compressobj(1, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()
