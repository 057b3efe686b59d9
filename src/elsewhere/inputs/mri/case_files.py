"""Reads the headers of one case's files, and the grid that they agree on.

Headers are read once per case and compared: phases of one size and place, the mask on the same grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows
from elsewhere.inputs.mri.nifti import NiftiHeader, read_header
from elsewhere.inputs.mri.orientation import TARGETS, Turn, axis_letters, plane_of, turn_to
from elsewhere.inputs.volumes import Box, Grid

SPACING_TOLERANCE = 1e-3
CORNER_TOLERANCE_VOXELS = 0.1


@dataclass(frozen=True, kw_only=True)
class VolumeFiles:
    """The files of one case. Boxes are half-open, in voxels of the file's own axes.

    Attributes:
        phases: NIfTI files in the order of time; or, with `slice_spacing`, one picture whose channels are the
            phases.
        mask: The expert's mask.
        breast_box: Of the affected breast.
        lesion_box: Where the publisher marks the lesion by a box: truth, as the mask is.
        slice_spacing: Of a slice picture: mm per column, per row, and the slice's thickness.
        plane: "axial" or "sagittal"; "" where the third axis of the file shall say.
        missing: Names of phases that ought to be there and are not.
    """

    phases: tuple[Path, ...]
    mask: Path | None = None
    breast_box: Box | None = None
    lesion_box: Box | None = None
    slice_spacing: tuple[float, float, float] | None = None
    plane: str = ""
    missing: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that is there, phases first."""
        return (*self.phases, *([self.mask] if self.mask is not None else []))


@dataclass(frozen=True)
class CaseGrid:
    """The grid of a case whose headers agree.

    Attributes:
        grid: In the study's axes.
        file_shape: In the file's own axes.
        turn: From the file's axes to the study's.
        headers: Of the phases; empty for a slice picture.
        mask_header: Of the mask.
        mask_turn: From the mask's axes to the study's.
    """

    grid: Grid
    file_shape: tuple[int, int, int]
    turn: Turn
    headers: tuple[NiftiHeader, ...]
    mask_header: NiftiHeader | None = None
    mask_turn: Turn = field(default_factory=Turn)


def read_grid(case: str, files: VolumeFiles) -> CaseGrid:
    """Read the headers of a case and compare them; no voxel is read.

    Args:
        case: "DATASET/case_id", for error messages.
        files: Its files.

    Returns:
        The grid that they agree on.

    Raises:
        UserError: A file is missing or broken, or phases and mask do not lie on one grid.
    """
    if files.slice_spacing is not None:
        return _slice_grid(case, files, files.slice_spacing)
    return _volume_grid(case, files)


def slice_channels(path: Path, case: str) -> npt.NDArray[np.uint8]:
    """Read the three channels of a slice picture.

    Args:
        path: The picture.
        case: "DATASET/case_id", for error messages.

    Returns:
        [height, width, 3].

    Raises:
        UserError: The picture cannot be decoded.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise _bad_picture(case, path, error) from error


def _volume_grid(case: str, files: VolumeFiles) -> CaseGrid:
    if files.missing or not files.phases:
        names = name_rows(files.missing) or "every phase"
        raise UserError(
            f"case '{case}' lacks {names}",
            where=str(files.phases[0].parent) if files.phases else None,
            fix="Fetch the phase, or take the case out of the cohort: phases are counted from the first.",
        )
    headers = tuple(read_header(path) for path in files.phases)
    first = headers[0]
    for at, header in enumerate(headers[1:], start=1):
        if header.shape != first.shape:
            raise UserError(
                f"phase {at} of case '{case}' has {voxel_text(header.shape)} voxels, phase 0 has {voxel_text(first.shape)}",
                where=str(files.phases[at]),
                fix="Phases of one exam lie on one grid: fetch or export them again.",
            )
        _same_place(
            first, header, f"phase {at} of case '{case}' lies elsewhere than phase 0", files.phases[at]
        )
    turn = _turn(first, files.plane)
    grid = Grid(
        shape=turn.three(first.shape),
        spacing_mm=turn.three(first.spacing_mm),
        affine=turn.affine(first.affine, first.shape) if first.affine is not None else None,
    )
    if files.mask is None:
        return CaseGrid(grid, first.shape, turn, headers)
    mask = read_header(files.mask)
    mask_turn = turn
    if mask.affine is not None and first.affine is not None:
        mask_turn = turn_to(axis_letters(mask.affine), _target(axis_letters(first.affine), files.plane))
    if mask_turn.three(mask.shape) != grid.shape:
        raise UserError(
            f"the mask of case '{case}' has {voxel_text(mask.shape)} voxels, its phases have {voxel_text(first.shape)}",
            where=str(files.mask),
            fix="A mask lies on the grid of its phases: export it again, nothing is resampled.",
        )
    turned = turn.affine(first.affine, first.shape) if first.affine is not None else None
    mask_affine = mask_turn.affine(mask.affine, mask.shape) if mask.affine is not None else None
    _compare(
        turned, mask_affine, grid, f"the mask of case '{case}' lies elsewhere than its phases", files.mask
    )
    return CaseGrid(grid, first.shape, turn, headers, mask, mask_turn)


def _target(letters: str, plane: str) -> str:
    return TARGETS.get(plane) or TARGETS[plane_of(letters)]


def _turn(header: NiftiHeader, plane: str) -> Turn:
    """Return the turn to the study's axes; a file that does not define its orientation stays as it is."""
    if header.affine is None:
        return Turn()
    letters = axis_letters(header.affine)
    return turn_to(letters, _target(letters, plane))


def _same_place(first: NiftiHeader, other: NiftiHeader, what: str, path: Path) -> None:
    grid = Grid(shape=first.shape, spacing_mm=first.spacing_mm)
    _compare(first.affine, other.affine, grid, what, path)


def _compare(
    first: npt.NDArray[np.float64] | None,
    other: npt.NDArray[np.float64] | None,
    grid: Grid,
    what: str,
    path: Path,
) -> None:
    """Refuse grids whose spacings differ by 0.1 %, or of which a corner is a tenth of a voxel away."""
    if first is None or other is None:
        return
    steps, others = (np.sqrt((part[:3, :3] ** 2).sum(axis=0)) for part in (first, other))
    corners = np.array(np.meshgrid(*((0, size - 1) for size in grid.shape))).reshape(3, -1)
    corners = np.vstack([corners, np.ones(8)])
    away = float(np.sqrt((((first - other) @ corners)[:3] ** 2).sum(axis=0)).max())
    if np.abs(others / steps - 1).max() > SPACING_TOLERANCE:
        why = f"spacing {_mm(others)} instead of {_mm(steps)}"
    elif away > CORNER_TOLERANCE_VOXELS * float(steps.min()):
        why = f"a corner is {away:.3g} mm away"
    else:
        return
    raise UserError(f"{what}: {why}", where=str(path), fix="Export it again on the same grid.")


def _slice_grid(case: str, files: VolumeFiles, spacing: tuple[float, float, float]) -> CaseGrid:
    from PIL import Image, UnidentifiedImageError

    if len(files.phases) != 1:
        raise UserError(f"a slice case is one picture, '{case}' has {len(files.phases)}")
    try:
        with Image.open(files.phases[0]) as image:
            width, height = image.size
            mode = image.mode
    except (UnidentifiedImageError, OSError) as error:
        raise _bad_picture(case, files.phases[0], error) from error
    if mode != "RGB":
        raise UserError(
            f"the slice of case '{case}' has mode {mode}, three channels (pre, early, late phase) are needed",
            where=str(files.phases[0]),
        )
    shape = (width, height, 1)
    return CaseGrid(Grid(shape=shape, spacing_mm=spacing), shape, Turn(), ())


def _bad_picture(case: str, path: Path, error: Exception) -> UserError:
    why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be decoded ({error})"
    return UserError(f"the slice of case '{case}' {why}", where=str(path), fix="Fetch the file again.")


def voxel_text(shape: tuple[int, ...]) -> str:
    """Return a shape as error messages print it.

    Args:
        shape: Voxels along each axis.

    Returns:
        "512 x 512 x 80".

    Example:
        >>> voxel_text((512, 512, 80))
        '512 x 512 x 80'
    """
    return " x ".join(map(str, shape))


def _mm(steps: npt.NDArray[np.float64]) -> str:
    return " x ".join(f"{step:.4g}" for step in steps) + " mm"
