"""One mask file: NIfTI, PNG or TIFF, read whole or refused with a reason.

What is tumour: every value above 0 (so 0/1, 0/255 and label maps all work). Values that are not whole
numbers (a probability map) or below 0, NaN and infinite ones are errors, and so is a grey picture.
Nothing is resampled, flipped or moved: a mask on another grid than its truth is an error that says how
it differs. The grids are one when spacings agree within 0.1 %, the orientation is the same, and no
corner voxel is more than a tenth of a voxel away.

Sizes are checked before anything is unpacked: a mask of more than 2 GiB is refused.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import nibabel
import numpy as np
import numpy.typing as npt
from nibabel.spatialimages import HeaderDataError, HeaderTypeError
from PIL import Image

from elsewhere.errors import UserError

try:
    from isal import isal_zlib as fast_zlib
except ImportError:
    fast_zlib = zlib

NIFTI_ENDINGS = (".nii.gz", ".nii")
PICTURE_ENDINGS = (".png", ".tif", ".tiff")
MASK_ENDINGS = (*NIFTI_ENDINGS, *PICTURE_ENDINGS)
MOST_BYTES = 2**31
SPACING_TOLERANCE = 1e-3
CORNER_TOLERANCE_VOXELS = 0.1
WHOLE_NUMBER_TOLERANCE = 1e-4
MOST_LABELS_IN_A_PICTURE = 8
_CHUNK = 2**20
T = TypeVar("T")
Taker = Callable[[tuple[int, ...], Iterator[npt.NDArray[np.uint8]]], T]
_UNIT_MM = {"meter": 1000.0, "micron": 0.001}
_READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ArithmeticError,
    SyntaxError,
    MemoryError,
    struct.error,
    zlib.error,
    fast_zlib.error,
    HeaderDataError,
    HeaderTypeError,
    nibabel.filebasedimages.ImageFileError,
    Image.DecompressionBombError,
)


@dataclass(frozen=True)
class Mask:
    """`array` (uint8; not 0 is tumour): axes x, y, z in NIfTI; row, column or page, row, column in pictures.

    `spacing_mm` and `affine` (voxel index to mm) are None for pictures; `placed` says that the file
    states where in space it lies.
    """

    array: npt.NDArray[np.uint8]
    spacing_mm: tuple[float, ...] | None
    affine: npt.NDArray[np.float64] | None
    placed: bool
    source: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def mask_ending(path: Path) -> str | None:
    name = path.name.lower()
    return next(
        (ending for ending in MASK_ENDINGS if name.endswith(ending) and len(name) > len(ending)), None
    )


class _Inflater:
    """Bounded reads from a gzip file, members and all; never more is unpacked than was asked for."""

    def __init__(self, data: bytes) -> None:
        self._left = data
        self._stream: Any = fast_zlib.decompressobj(31)

    def read(self, most: int) -> bytes:
        while True:
            out: bytes = self._stream.decompress(self._left, most)
            self._left = self._stream.unconsumed_tail
            if out or (not self._stream.eof and not self._left):
                return out
            if self._stream.eof:
                self._left = self._stream.unused_data.lstrip(b"\0")
                if not self._left:
                    return b""
                self._stream = fast_zlib.decompressobj(31)

    @property
    def complete(self) -> bool:
        """The last member ended properly; its checksum was verified with that."""
        return bool(self._stream.eof)


def _header(block: bytes, where: str) -> Any:
    size = {int.from_bytes(block[:4], order) for order in ("little", "big")} if len(block) >= 4 else set()
    kinds = {348: nibabel.Nifti1Header, 540: nibabel.Nifti2Header}
    kind = next((kinds[s] for s in sorted(size) if s in kinds), None)
    if kind is None or len(block) < kind.template_dtype.itemsize:
        raise UserError("this is no NIfTI file, or it is cut off", where=where, fix="Write the mask again.")
    header = kind(block[: kind.template_dtype.itemsize])
    if not bytes(header["magic"]).startswith((b"n+1", b"n+2")):
        raise UserError(
            "a NIfTI header without its image", where=where, fix="Write one file a mask (.nii.gz)."
        )
    return header


def _volume_shape(header: Any, where: str, most_bytes: int) -> tuple[int, ...]:
    shape = tuple(int(n) for n in header.get_data_shape())
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise UserError(f"a mask has two or three axes, this has the shape {shape}", where=where)
    dtype = header.get_data_dtype()
    if dtype.kind not in "iufb":
        raise UserError(f"the values are of type {dtype}", where=where, fix="Write 0 and 1 as uint8.")
    _check_size(float(np.prod([float(n) for n in shape])) * dtype.itemsize, where, most_bytes)
    return shape


def _check_size(n_bytes: float, where: str, most_bytes: int) -> None:
    if n_bytes > most_bytes:
        raise UserError(
            f"the mask would take {n_bytes / 2**30:.1f} GiB, the limit is {most_bytes / 2**30:.1f} GiB",
            where=where,
            fix="Write the mask as uint8 on the truth's grid.",
        )


def _cut_off(where: str) -> UserError:
    return UserError("the file is cut off or damaged", where=where, fix="Write or copy the mask again.")


@dataclass(frozen=True)
class Grid:
    """Where a mask lies: all of a NIfTI `Mask` but its voxels."""

    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...] | None
    affine: npt.NDArray[np.float64] | None
    placed: bool
    source: str


def _grid(header: Any, shape: tuple[int, ...], where: str) -> Grid:
    affine = np.asarray(header.get_best_affine(), dtype=np.float64) * _unit_mm(header)
    affine[3] = (0.0, 0.0, 0.0, 1.0)
    spacing = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))[: len(shape)]
    if not np.isfinite(affine).all() or (spacing <= 0).any():
        raise UserError(
            "the header gives no usable spacing", where=where, fix="Write the truth's affine with the mask."
        )
    return Grid(
        shape=shape,
        spacing_mm=tuple(float(s) for s in spacing),
        affine=affine,
        placed=int(header["sform_code"]) > 0 or int(header["qform_code"]) > 0,
        source=where,
    )


def _unpacked(source: _Inflater, start: bytes, n_bytes: int, piece_bytes: int, where: str) -> Iterator[bytes]:
    """`n_bytes` in pieces of `piece_bytes`, the last one shorter; `start` was read with the header."""
    left = n_bytes
    while left:
        wanted = min(piece_bytes, left)
        piece = start[:wanted]
        start = start[wanted:]
        while len(piece) < wanted:
            more = source.read(wanted - len(piece))
            if not more:
                raise _cut_off(where)
            piece = piece + more if piece else more
        left -= wanted
        yield piece
    if not source.read(1) and not source.complete:
        raise _cut_off(where)


def _nifti_pieces(
    path: Path, where: str, most_bytes: int
) -> tuple[Any, tuple[int, ...], Iterator[npt.NDArray[Any]]]:
    """The header, the shape, and the raw values in file order: whole rows of the first axis, about 1 MiB a piece."""
    if path.name.lower().endswith(".gz"):
        source = _Inflater(path.read_bytes())
        block = source.read(348)
        while len(block) < 544 and (more := source.read(544 - len(block))):
            block += more
        header = _header(block, where)
        shape = _volume_shape(header, where, most_bytes)
        dtype, offset = header.get_data_dtype(), int(header.get_data_offset())
        skip = offset - len(block)
        while skip > 0:
            more = source.read(min(skip, _CHUNK))
            if not more:
                raise _cut_off(where)
            skip -= len(more)
        start = block[offset:] if skip < 0 else b""
        row = shape[0] * dtype.itemsize
        pieces = _unpacked(
            source, start, int(np.prod(shape)) * dtype.itemsize, max(1, _CHUNK // row) * row, where
        )
        return header, shape, (np.frombuffer(piece, dtype=dtype) for piece in pieces)
    with path.open("rb") as file:
        header = _header(file.read(544), where)
    shape = _volume_shape(header, where, most_bytes)
    dtype, offset = header.get_data_dtype(), int(header.get_data_offset())
    n = int(np.prod(shape))
    if path.stat().st_size < offset + n * dtype.itemsize:
        raise _cut_off(where)
    raw = np.memmap(path, dtype=dtype, mode="c", offset=offset, shape=(n,))
    step = max(1, _CHUNK // (shape[0] * dtype.itemsize)) * shape[0]
    return header, shape, (raw[first : first + step] for first in range(0, n, step))


def _stream_nifti(path: Path, where: str, most_bytes: int, take: Taker[T]) -> tuple[Grid, T]:
    header, shape, raw = _nifti_pieces(path, where, most_bytes)
    slope, inter = header.get_slope_inter()
    slope, inter = 1.0 if slope is None else float(slope), 0.0 if inter is None else float(inter)
    taken = take(shape, (_binarise(piece, slope, inter, where) for piece in raw))
    return _grid(header, shape, where), taken


def _whole(shape: tuple[int, ...], pieces: Iterator[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    flat, filled = np.empty(int(np.prod(shape)), dtype=np.uint8), 0
    for piece in pieces:
        flat[filled : filled + piece.size] = piece
        filled += piece.size
    return flat.reshape(shape, order="F")


def _read_nifti(path: Path, where: str, most_bytes: int) -> Mask:
    grid, array = _stream_nifti(path, where, most_bytes, _whole)
    return Mask(array, grid.spacing_mm, grid.affine, grid.placed, grid.source)


def _unit_mm(header: Any) -> float:
    try:
        return _UNIT_MM.get(header.get_xyzt_units()[0], 1.0)
    except KeyError:
        return 1.0


def _binarise(raw: npt.NDArray[Any], slope: float, inter: float, where: str) -> npt.NDArray[np.uint8]:
    """1 where the value is above 0. Chunk by chunk, and only where something is not 0."""
    plain = slope == 1.0 and inter == 0.0
    if plain and raw.dtype in (np.uint8, np.bool_):
        return np.asarray(raw).view(np.uint8)
    out = np.zeros(raw.size, dtype=np.uint8)
    for first in range(0, raw.size, _CHUNK):
        piece = np.asarray(raw[first : first + _CHUNK])
        if inter == 0.0 and not piece.any():
            continue
        values = piece.astype(np.float64)
        if not plain:
            values = values * slope + inter
        if not np.isfinite(values).all():
            raise UserError("the mask has NaN or infinite values", where=where, fix="Write 0 and 1.")
        if np.abs(values - np.rint(values)).max() > WHOLE_NUMBER_TOLERANCE:
            strange = values[values != np.rint(values)][0]
            raise UserError(
                f"the mask has values that are no whole numbers, like {strange:.4g}",
                where=where,
                fix="If these are probabilities, cut them at your threshold and write 0 and 1.",
            )
        if values.min() < -0.5:
            raise UserError(
                f"the mask has values below 0, like {values.min():g}", where=where, fix="Write 0 and 1."
            )
        out[first : first + _CHUNK] = values > 0.5
    return out


def _page(image: Image.Image, where: str) -> npt.NDArray[Any]:
    page = np.asarray(image)
    if page.ndim == 3:
        channels = page[..., : 1 if image.mode == "LA" else 3]
        if (channels != channels[..., :1]).any():
            raise UserError(
                "this is a colour picture, no mask", where=where, fix="Write one channel with 0 and 255."
            )
        page = channels[..., 0]
    labels = np.unique(page[page != 0])
    if page.dtype.kind in "iu" and labels.size > MOST_LABELS_IN_A_PICTURE:
        raise UserError(
            f"{labels.size} different grey values: this looks like a picture, no mask",
            where=where,
            fix="Cut it at your threshold and write 0 and 255, without smoothing or JPEG.",
        )
    return page


def _read_picture(path: Path, where: str, most_bytes: int) -> Mask:
    with Image.open(io.BytesIO(path.read_bytes()), formats=("PNG", "TIFF")) as image:
        n_pages = int(getattr(image, "n_frames", 1))
        _check_size(float(image.width) * image.height * n_pages, where, most_bytes)
        pages = []
        for index in range(n_pages):
            image.seek(index)
            _check_size(float(image.width) * image.height * n_pages, where, most_bytes)
            page = np.ascontiguousarray(_page(image, where))
            pages.append(_binarise(page.reshape(-1), 1.0, 0.0, where).reshape(page.shape))
    if len({page.shape for page in pages}) != 1 or pages[0].ndim != 2 or not pages[0].size:
        raise UserError(
            "the pages are of different sizes", where=where, fix="Write one page a slice, all alike."
        )
    array = np.array(pages[0]) if n_pages == 1 else np.stack(pages)
    return Mask(array=array, spacing_mm=None, affine=None, placed=False, source=where)


def _guarded(path: Path, most_bytes: int, read: Callable[[Path, str, int, str], T]) -> T:
    """Whatever is wrong with the file is a `UserError` that names it."""
    where = str(path)
    ending = mask_ending(path)
    if ending is None:
        raise UserError(
            "not a kind of mask that is known", where=where, fix=f"Known: {', '.join(MASK_ENDINGS)}."
        )
    try:
        if not path.is_file():
            raise UserError(
                "this is not a plain file (a folder, a pipe or a device)"
                if path.exists()
                else "there is no such mask",
                where=where,
            )
        if path.stat().st_size == 0:
            raise UserError("the file is empty", where=where, fix="Write the mask again.")
        _check_size(float(path.stat().st_size), where, most_bytes)
        return read(path, where, most_bytes, ending)
    except _READ_ERRORS as error:
        words = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(
            f"the mask cannot be read ({words})", where=where, fix="Write or copy it again."
        ) from error


def _read_any(path: Path, where: str, most_bytes: int, ending: str) -> Mask:
    if ending in NIFTI_ENDINGS:
        return _read_nifti(path, where, most_bytes)
    return _read_picture(path, where, most_bytes)


def read_mask(path: str | Path, *, most_bytes: int = MOST_BYTES) -> Mask:
    """One mask. Whatever is wrong with the file is a `UserError` that names it."""
    return _guarded(Path(path), most_bytes, _read_any)


def stream_mask(path: str | Path, take: Taker[T], *, most_bytes: int = MOST_BYTES) -> tuple[Grid, T]:
    """A NIfTI mask without ever holding its volume: `take` is given the shape and the voxels in file order
    (the first axis fastest), uint8, in pieces of whole rows, and what it makes of them is handed back.

    A real mask is nearly all background; a piece fits the processor's cache, and pages are never asked of the
    system for the whole volume, which takes longer than unpacking it.
    """
    return _guarded(
        Path(path), most_bytes, lambda file, where, most, _: _stream_nifti(file, where, most, take)
    )


def read_grid(path: str | Path) -> Grid:
    """Where an image lies, from its header alone: NIfTI, or a picture, which has a shape and no place."""
    file = Path(path)

    def header_of(file: Path, where: str, most_bytes: int, ending: str) -> Grid:
        if ending in NIFTI_ENDINGS:
            header, shape, _ = _nifti_pieces(file, where, most_bytes)
            return _grid(header, shape, where)
        with Image.open(file, formats=("PNG", "TIFF")) as image:
            return Grid((image.height, image.width), None, None, False, where)

    return _guarded(file, MOST_BYTES, header_of)


def is_nifti(path: str | Path) -> bool:
    return mask_ending(Path(path)) in NIFTI_ENDINGS


def check_same_grid(prediction: Mask | Grid, truth: Mask | Grid) -> None:
    """Raises where the prediction is not on the truth's voxels: nothing is resampled or flipped here."""
    if prediction.shape != truth.shape:
        turned = sorted(prediction.shape) == sorted(truth.shape)
        raise UserError(
            f"the mask has shape {prediction.shape}, the truth {truth.shape}"
            + (" (the same axes in another order)" if turned else ""),
            where=prediction.source,
            fix="Bring it back to the grid of the image it was made from; nothing is resampled here.",
        )
    if prediction.spacing_mm is None or truth.spacing_mm is None:
        return
    ours, theirs = np.array(truth.spacing_mm), np.array(prediction.spacing_mm)
    if (np.abs(theirs - ours) > SPACING_TOLERANCE * ours).any():
        raise UserError(
            f"the spacing is {_mm(theirs)} mm, the truth's {_mm(ours)} mm",
            where=prediction.source,
            fix="Write the affine of the image it was made from; nothing is resampled here.",
        )
    if prediction.affine is None or truth.affine is None or not (prediction.placed and truth.placed):
        return
    codes = ["".join(c or "?" for c in nibabel.aff2axcodes(mask.affine)) for mask in (prediction, truth)]
    if codes[0] != codes[1]:
        raise UserError(
            f"the mask is oriented {codes[0]}, the truth {codes[1]}: its axes are flipped or turned",
            where=prediction.source,
            fix="Save it in the orientation of the image it was made from; nothing is flipped here.",
        )
    extent = np.array([*(n - 1 for n in truth.shape), *([0] * (3 - len(truth.shape)))], dtype=float)
    corners = np.array([[(k >> axis & 1) * extent[axis] for axis in range(3)] + [1.0] for k in range(8)])
    apart = np.linalg.norm((corners @ (prediction.affine - truth.affine).T)[:, :3], axis=1).max()
    if apart > CORNER_TOLERANCE_VOXELS * ours.min():
        raise UserError(
            f"the mask lies elsewhere in space: a corner is {apart:.3g} mm from the truth's",
            where=prediction.source,
            fix="Write the affine of the image it was made from; nothing is moved here.",
        )


def _mm(values: npt.NDArray[np.float64]) -> str:
    return " x ".join(f"{v:.4g}" for v in values)
