"""NIfTI files with numpy alone: header, grid and voxels, for machines that have no NIfTI library.

One 3D volume a file, NIfTI-1 or -2, either byte order, packed (.nii.gz) or not. What the format allows and a
volume of a patient is not (four axes, colours, complex numbers) is refused with a reason. Values are scaled by
the header's slope and intercept. Nothing is resampled.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

try:
    from isal import isal_zlib as fast_zlib
except ImportError:
    fast_zlib = zlib

Affine = npt.NDArray[np.float64]
MOST_BYTES = 2**33
"""A volume of more is refused before it is unpacked."""
FLAT = 1e-3
"""Axes that span less than this share of a right-angled voxel have no direction of their own."""
_TYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8",
}  # fmt: skip
_UNIT_MM = {1: 1000.0, 3: 0.001}
_HEADER_1, _HEADER_2 = 348, 540
_FETCH = "Fetch the file again."
_BROKEN = (zlib.error, fast_zlib.error, EOFError, OSError, struct.error)


@dataclass(frozen=True, kw_only=True)
class NiftiHeader:
    """What a file says of its volume, before a voxel is read.

    Attributes:
        shape: Voxels along each axis.
        dtype: As they are stored.
        offset: Of the first voxel in the file.
        slope: Of the values; None: the values are what is stored.
        intercept: Of the values.
        spacing_mm: Along each axis.
        affine: Voxel index to mm; None where the file does not say where it lies.
        placement: The header as it is, for a mask on the same grid.
        packed: The file is compressed.
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

    @property
    def n_bytes(self) -> int:
        """Of all voxels, as they are stored."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> NiftiHeader:
    """Read a file's header; of a packed file only its beginning is unpacked.

    Args:
        path: .nii or .nii.gz.

    Returns:
        The header.

    Raises:
        UserError: The file cannot be read, or is no volume.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            start = file.read(2**14)
    except FileNotFoundError:
        raise UserError("there is no such file", where=where, fix=_FETCH) from None
    except OSError as error:
        raise UserError(f"it cannot be read ({error})", where=where) from error
    packed = start[:2] == b"\x1f\x8b"
    if packed:
        try:
            start = fast_zlib.decompressobj(31).decompress(start, _HEADER_2 + 64)
        except _BROKEN as error:
            raise UserError(f"it cannot be unpacked ({error})", where=where, fix=_FETCH) from error
    return parse_header(start, packed=packed, where=where)


def parse_header(block: bytes, *, packed: bool = False, where: str = "") -> NiftiHeader:
    """Read a header from the first bytes of a file, in either byte order.

    Args:
        block: At least 540 bytes where the file has them.
        packed: Whether the file is compressed.
        where: What an error message calls the file.

    Returns:
        The header.

    Raises:
        UserError: The bytes are no header of a volume.
    """
    order, size = _order_and_size(block, where)
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
            "a NIfTI header without its image", where=where, fix="Write one file a volume (.nii.gz)."
        )
    shape = _shape(dim, where)
    if code not in _TYPES:
        raise UserError(
            f"voxels of NIfTI type {code} are no plain numbers", where=where, fix="Write int16 or float32."
        )
    if not math.isfinite(offset):
        raise UserError(f"the voxels begin at byte {offset}", where=where, fix=_FETCH)
    to_mm = _UNIT_MM.get(units & 7, 1.0)
    affine = _affine(qform, sform, quaternion, rows, pixdim)
    if affine is not None and not np.isfinite(affine).all():
        raise UserError("the header's place in space is not finite", where=where, fix=_FETCH)
    if affine is not None:
        affine[:3] *= to_mm
        steps = tuple(math.hypot(*column) for column in affine[:3, :3].T.tolist())
    else:
        steps = tuple(abs(float(step)) * to_mm for step in pixdim[1:4])
    if not all(math.isfinite(step) and step > 0 for step in steps):
        raise UserError(f"the spacing is {steps}", where=where, fix="Each axis needs a spacing above 0.")
    if affine is not None and abs(np.linalg.det(affine[:3, :3] / np.array(steps))) < FLAT:
        raise UserError("the header's axes lie on one another", where=where, fix=_FETCH)
    scaled = math.isfinite(slope) and slope != 0
    if scaled and not math.isfinite(intercept):
        raise UserError(f"the intercept of the values is {intercept}", where=where, fix=_FETCH)
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
    )
    if header.n_bytes > MOST_BYTES:
        raise UserError(
            f"the volume would take {header.n_bytes / 2**30:.1f} GiB, the limit is {MOST_BYTES / 2**30:.0f} GiB",
            where=where,
        )
    return header


def stored_voxels(path: Path, header: NiftiHeader) -> npt.NDArray[Any]:
    """Read the voxels as the file stores them: mapped where it is not packed, unpacked in one go where it is.

    Args:
        path: .nii or .nii.gz.
        header: Of the file.

    Returns:
        [x, y, z].

    Raises:
        UserError: The file is cut off or broken.
    """
    where = str(path)
    if not header.packed:
        have = path.stat().st_size - header.offset
        if have < header.n_bytes:
            raise UserError(_cut_off(have, header), where=where, fix=_FETCH)
        return np.memmap(
            path, dtype=header.dtype, mode="c", offset=header.offset, shape=header.shape, order="F"
        )
    needed = header.offset + header.n_bytes
    try:
        data, whole = _unpack(path.read_bytes(), needed)
    except _BROKEN as error:
        raise UserError(f"it cannot be unpacked ({error})", where=where, fix=_FETCH) from error
    if len(data) < needed:
        raise UserError(_cut_off(len(data) - header.offset, header), where=where, fix=_FETCH)
    if not whole:
        raise UserError("the packed file breaks off before its checksum", where=where, fix=_FETCH)
    return np.frombuffer(
        data, dtype=header.dtype, count=math.prod(header.shape), offset=header.offset
    ).reshape(header.shape, order="F")


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
                f"{bad} of {values.size} voxels of {what} are no finite numbers",
                where=where,
                fix="Write the volume again with numbers there, 0 outside the body.",
            )
    return values


def _cut_off(have: int, header: NiftiHeader) -> str:
    return f"the file breaks off: {max(have, 0)} of {header.n_bytes} bytes of voxels are there"


def _order_and_size(block: bytes, where: str) -> tuple[str, int]:
    for order in "<>":
        if len(block) >= 4:
            (size,) = struct.unpack_from(f"{order}i", block, 0)
            if size in (_HEADER_1, _HEADER_2) and len(block) >= size:
                return order, size
    raise UserError("this is no NIfTI file, or it is cut off", where=where, fix=_FETCH)


def _shape(dim: tuple[int, ...], where: str) -> tuple[int, int, int]:
    axes = dim[0]
    sizes = list(dim[1 : 1 + axes]) if 1 <= axes <= 7 else []
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    if len(sizes) != 3 or min(sizes) < 1:
        shown = " x ".join(map(str, sizes)) or "nothing"
        raise UserError(
            f"a volume has three axes, this file is {shown}",
            where=where,
            fix="Write one file a phase: NAME_0000.nii.gz, NAME_0001.nii.gz...",
        )
    return int(sizes[0]), int(sizes[1]), int(sizes[2])


def _affine(
    qform: int, sform: int, quaternion: tuple[float, ...], rows: tuple[float, ...], pixdim: tuple[float, ...]
) -> Affine | None:
    """The sform where there is one, else the qform, as the standard ranks them."""
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


def _unpack(data: bytes, needed: int) -> tuple[bytes, bool]:
    """At most `needed` bytes and a little, over all members; whether the last member ended with its checksum."""
    parts: list[bytes] = []
    have = 0
    while True:
        stream = fast_zlib.decompressobj(31)
        part = stream.decompress(data, max(needed - have, 0) + 1)
        while part:
            parts.append(part)
            have += len(part)
            if have > needed or stream.eof:
                break
            part = stream.decompress(stream.unconsumed_tail, needed - have + 1)
        if have > needed:
            return b"".join(parts), True
        if not stream.eof:
            return b"".join(parts), False
        data = stream.unused_data.lstrip(b"\0")
        if not data:
            return b"".join(parts) if len(parts) != 1 else parts[0], True


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
