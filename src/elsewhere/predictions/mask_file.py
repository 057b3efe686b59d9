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
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.inputs.mri.nifti import Expected, NiftiHeader, read_header, voxel_pieces
from elsewhere.inputs.mri.orientation import axis_letters

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
    zlib.error,
    Image.DecompressionBombError,
)


@dataclass(frozen=True)
class Mask:
    """A mask as it was read from a file.

    Args:
        array: uint8, where not 0 is tumour. The axes are x, y, z in NIfTI; row, column, or page, row, column
            in pictures.
        spacing_mm: The size of a voxel along each axis, in mm; None for pictures.
        affine: (4, 4) from voxel index to mm; None for pictures, and where the file does not state it.
        placed: Whether the file states where in space it lies.
        source: The file, for messages.
    """

    array: npt.NDArray[np.uint8]
    spacing_mm: tuple[float, ...] | None
    affine: npt.NDArray[np.float64] | None
    placed: bool
    source: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of voxels or pixels along each axis."""
        return self.array.shape


def mask_ending(path: Path) -> str | None:
    """Return the ending of a file that may be a mask.

    Args:
        path: The file; only its name is used.

    Returns:
        One of MASK_ENDINGS; None where the name has none of them, or nothing before it.

    Example:
        >>> mask_ending(Path("case1.NII.gz")), mask_ending(Path("notes.txt"))
        ('.nii.gz', None)
    """
    name = path.name.lower()
    return next(
        (ending for ending in MASK_ENDINGS if name.endswith(ending) and len(name) > len(ending)), None
    )


def _check_size(n_bytes: float, where: str, most_bytes: int) -> None:
    if n_bytes > most_bytes:
        raise UserError(
            f"the mask would take {n_bytes / 2**30:.1f} GiB, the limit is {most_bytes / 2**30:.1f} GiB",
            where=where,
            fix="Write the mask as uint8 on the truth's grid.",
        )


@dataclass(frozen=True)
class Grid:
    """Where a mask lies: a Mask without its voxels.

    Args:
        shape: The number of voxels along each axis.
        spacing_mm: The size of a voxel along each axis, in mm; None for pictures.
        affine: (4, 4) from voxel index to mm; None for pictures, and where the file does not state it.
        placed: Whether the file states where in space it lies.
        source: The file, for messages.
    """

    shape: tuple[int, ...]
    spacing_mm: tuple[float, ...] | None
    affine: npt.NDArray[np.float64] | None
    placed: bool
    source: str


def _nifti_header(path: Path, most_bytes: int) -> NiftiHeader:
    expected = Expected(
        what="mask",
        axes=(2, 3),
        most_bytes=most_bytes,
        fix="Write the mask again.",
        values="Write 0 and 1 as uint8.",
    )
    return read_header(path, expected)


def _grid(header: NiftiHeader, where: str) -> Grid:
    spacing = header.spacing_mm
    if header.affine is not None:
        a, b, c = np.sqrt((header.affine[:3, :3] ** 2).sum(axis=0)).tolist()
        spacing = a, b, c
    return Grid(
        shape=header.shape[: header.axes],
        spacing_mm=spacing[: header.axes],
        affine=header.affine,
        placed=header.affine is not None,
        source=where,
    )


def _stream_nifti(path: Path, where: str, most_bytes: int, take: Taker[T]) -> tuple[Grid, T]:
    header = _nifti_header(path, most_bytes)
    slope = 1.0 if header.slope is None else header.slope
    pieces = voxel_pieces(path, header)
    taken = take(
        header.shape[: header.axes], (_binarise(piece, slope, header.intercept, where) for piece in pieces)
    )
    return _grid(header, where), taken


def _whole(shape: tuple[int, ...], pieces: Iterator[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    flat, filled = np.empty(int(np.prod(shape)), dtype=np.uint8), 0
    for piece in pieces:
        flat[filled : filled + piece.size] = piece
        filled += piece.size
    return flat.reshape(shape, order="F")


def _read_nifti(path: Path, where: str, most_bytes: int) -> Mask:
    grid, array = _stream_nifti(path, where, most_bytes, _whole)
    return Mask(array, grid.spacing_mm, grid.affine, grid.placed, grid.source)


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
                f"the mask has values that are not whole numbers, like {strange:.4g}",
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
            "the pages are of different sizes", where=where, fix="Write one page per slice, all of one size."
        )
    array = np.array(pages[0]) if n_pages == 1 else np.stack(pages)
    return Mask(array=array, spacing_mm=None, affine=None, placed=False, source=where)


def _guarded(path: Path, most_bytes: int, read: Callable[[Path, str, int, str], T]) -> T:
    """Call `read`, and turn whatever is wrong with the file into a `UserError` that names it."""
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
    """Read one mask.

    Args:
        path: A NIfTI, PNG or TIFF file.
        most_bytes: A mask that would take more memory is refused before it is unpacked.

    Returns:
        The mask.

    Raises:
        UserError: The file cannot be read, or its values are not those of a mask; the message names the file.
    """
    return _guarded(Path(path), most_bytes, _read_any)


def stream_mask(path: str | Path, take: Taker[T], *, most_bytes: int = MOST_BYTES) -> tuple[Grid, T]:
    """Read a NIfTI mask piece by piece, without ever holding its whole volume.

    A real mask is nearly all background. A piece fits the processor's cache, and the system is never asked
    for the pages of a whole volume, which takes longer than unpacking it.

    Args:
        path: A NIfTI file.
        take: Called with the shape and the voxels in file order (the first axis fastest), as uint8 pieces of
            whole rows.
        most_bytes: A mask that would take more memory is refused before it is unpacked.

    Returns:
        Where the mask lies, and what `take` returned.

    Raises:
        UserError: The file cannot be read, or its values are not those of a mask; the message names the file.
    """
    return _guarded(
        Path(path), most_bytes, lambda file, where, most, _: _stream_nifti(file, where, most, take)
    )


def read_grid(path: str | Path) -> Grid:
    """Read where an image lies from its header alone.

    Args:
        path: A NIfTI, PNG or TIFF file. A picture has a shape and no place in space.

    Returns:
        The grid.

    Raises:
        UserError: The file cannot be read; the message names it.
    """
    file = Path(path)

    def header_of(file: Path, where: str, most_bytes: int, ending: str) -> Grid:
        if ending in NIFTI_ENDINGS:
            return _grid(_nifti_header(file, most_bytes), where)
        with Image.open(file, formats=("PNG", "TIFF")) as image:
            return Grid((image.height, image.width), None, None, False, where)

    return _guarded(file, MOST_BYTES, header_of)


def is_nifti(path: str | Path) -> bool:
    """Recognise a NIfTI file by its name.

    Args:
        path: The file.

    Returns:
        Whether it ends like one.

    Example:
        >>> is_nifti("case1.nii.gz"), is_nifti("case1.png")
        (True, False)
    """
    return mask_ending(Path(path)) in NIFTI_ENDINGS


def check_same_grid(prediction: Mask | Grid, truth: Mask | Grid) -> None:
    """Check that a prediction lies on the truth's voxels: nothing is resampled or flipped here.

    Args:
        prediction: The predicted mask, or its grid.
        truth: The true mask, or its grid.

    Raises:
        UserError: Shape, spacing, orientation or position differ; the message says how.

    Example:
        >>> grid = Grid((4, 4), None, None, False, "a.png")
        >>> check_same_grid(grid, grid)
    """
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
    codes = [axis_letters(affine)[: len(truth.shape)] for affine in (prediction.affine, truth.affine)]
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
            f"the mask lies at another place in space: a corner is {apart:.3g} mm from the truth's",
            where=prediction.source,
            fix="Write the affine of the image it was made from; nothing is moved here.",
        )


def _mm(values: npt.NDArray[np.float64]) -> str:
    return " x ".join(f"{v:.4g}" for v in values)
