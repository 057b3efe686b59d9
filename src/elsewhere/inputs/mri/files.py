"""Volumes read from their files when asked for: NIfTI phases, or a slice picture whose channels are phases.

Headers are read once a case and held together: phases of one size and place, the mask on the same grid, the
breast's box inside it. Voxels are read at every call, mapped where the file is not packed. Axial volumes come
as LAS, sagittal ones as PSR, by flips and permutations alone (MRI-01); `to_file_grid` and `write_mask` go back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows, near_matches
from elsewhere.inputs.mri.nifti import (
    NiftiHeader,
    gzip_bytes,
    mask_bytes,
    plain_placement,
    read_header,
    scaled,
    stored_voxels,
)
from elsewhere.inputs.mri.orientation import TARGETS, Turn, axis_letters, plane_of, turn_to
from elsewhere.inputs.volumes import Box, Grid

SPACING_TOLERANCE = 1e-3
CORNER_TOLERANCE_VOXELS = 0.1
BOX_SLACK_VOXELS = 1
"""Publishers count a box's last voxel in or out; a box that sticks out by more is of another grid."""


@dataclass(frozen=True, kw_only=True)
class VolumeFiles:
    """The files of one case. Boxes are half-open, in voxels of the file's own axes."""

    phases: tuple[Path, ...]
    """NIfTI files in the order of time; or, with `slice_spacing`, one picture whose channels are the phases."""
    mask: Path | None = None
    breast_box: Box | None = None
    lesion_box: Box | None = None
    """Where the publisher marks the lesion by a box: truth, as the mask is."""
    slice_spacing: tuple[float, float, float] | None = None
    """Of a slice picture: mm a column, a row, and the slice's thickness."""
    plane: str = ""
    """'axial' or 'sagittal'; '' where the third axis of the file shall say."""
    missing: tuple[str, ...] = ()
    """Names of phases that ought to be there and are not."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that is there, phases first."""
        return (*self.phases, *([self.mask] if self.mask is not None else []))


@dataclass(frozen=True)
class _Seen:
    """A case whose headers agree."""

    grid: Grid
    file_shape: tuple[int, int, int]
    turn: Turn
    headers: tuple[NiftiHeader, ...]
    mask_header: NiftiHeader | None = None
    mask_turn: Turn = field(default_factory=Turn)


class FileVolumes:
    """`Volumes` over files, by case name ('DATASET/case_id'). Arrays have positive strides, in either order."""

    def __init__(self, files: Mapping[str, VolumeFiles]) -> None:
        self._files = dict(files)
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, case: object) -> bool:
        return case in self._files

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(self._files)

    def files(self, case: str) -> VolumeFiles:
        """The files of a case; an unknown one is refused with its neighbours."""
        try:
            return self._files[case]
        except KeyError:
            near = near_matches(case, self._files)
            raise UserError(
                f"there is no volume of case '{case}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else None,
            ) from None

    def grid(self, case: str) -> Grid:
        return self._look(case).grid

    def phases(self, case: str) -> int:
        self._look(case)
        files = self.files(case)
        return 3 if files.slice_spacing is not None else len(files.phases)

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        return self._phase(case, at, None)

    def part(self, case: str, at: int, box: Box) -> npt.NDArray[np.float32]:
        """The phase inside `box` (of the study's grid). Of a file that is not packed, no more is read than that."""
        return self._phase(case, at, box)

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        files, seen = self.files(case), self._look(case)
        if files.mask is None or seen.mask_header is None:
            return None
        voxels = stored_voxels(files.mask, seen.mask_header)
        if voxels.dtype.kind == "f" and not np.isfinite(voxels).all():
            raise UserError(f"the mask of case '{case}' has voxels that are no number", where=str(files.mask))
        return np.array(seen.mask_turn.volume(voxels) > 0, order="K")

    def breast_box(self, case: str) -> Box | None:
        return self._box(case, self.files(case).breast_box, "breast")

    def lesion_box(self, case: str) -> Box | None:
        """The publisher's box of the lesion, where there is one; beyond the protocol."""
        return self._box(case, self.files(case).lesion_box, "lesion")

    def to_file_grid(self, case: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array of the study's grid (a predicted mask) in the axes of the case's own file."""
        seen = self._look(case)
        if array.shape != seen.grid.shape:
            raise ValueError(f"{case}: the shape is {array.shape}, the grid's is {seen.grid.shape}")
        return seen.turn.back(array)

    def write_mask(self, path: str | Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """The mask as .nii.gz on the grid of the case's own file. The same mask is the same bytes."""
        seen = self._look(like)
        stored = self.to_file_grid(like, np.asarray(mask, dtype=bool))
        placement = (
            seen.headers[0].placement
            if seen.headers
            else plain_placement(seen.grid.spacing_mm, seen.grid.affine)
        )
        return _write(Path(path), gzip_bytes(mask_bytes(stored, placement)))

    def digest(self, case: str, *, of_file: Callable[[Path], str] | None = None) -> str:
        """sha256 of the bytes of the case's phases, and of what else a recipe is given of a case that it predicts.
        The mask is not in it, for it is not given (`mask_digest`).

        `of_file` answers a file's digest from a cache (`elsewhere.study.volumes.digests`).
        """
        files = self.files(case)
        told = of_file or file_digest
        flat = files.slice_spacing is not None  # slices never had a mask: their digests are what they were
        whole = hashlib.sha256(b"elsewhere-volume-1\n" if flat else b"elsewhere-volume-2\n")
        for path in files.phases:
            whole.update(f"phase {told(path)}\n".encode())
        if flat:
            whole.update(b"mask \n")
        facts = (files.breast_box, files.lesion_box, files.slice_spacing, files.plane, files.missing)
        whole.update(repr(facts).encode())
        return whole.hexdigest()

    def voxel_digest(self, case: str) -> str:
        """sha256 of the values of the first phase, each with how often it occurs: the same for the same voxels under
        another header, packing, type or order of the axes (US-30)."""
        values = self.phase(case, 0)
        told, counts = value_counts(values)
        whole = hashlib.sha256(f"elsewhere-voxels-1 {sorted(values.shape)}\n".encode())
        whole.update(told.astype("<f4").tobytes())
        whole.update(counts.astype("<i8").tobytes())
        return whole.hexdigest()

    def mask_digest(self, case: str, *, of_file: Callable[[Path], str] | None = None) -> str:
        """sha256 of the bytes of the expert's mask, '' where there is none: of what trains, a part of the key."""
        mask = self.files(case).mask
        return (of_file or file_digest)(mask) if mask is not None else ""

    def check(self, case: str) -> None:
        """Raises what is wrong with the case's headers and boxes; no voxel is read."""
        self._look(case)
        self.breast_box(case)
        self.lesion_box(case)

    def problems(self, cases: Iterable[str] | None = None) -> dict[str, str]:
        """What is wrong, by case: for a plan, before anything is trained."""
        found: dict[str, str] = {}
        for case in self._files if cases is None else cases:
            try:
                self.check(case)
            except UserError as error:
                found[case] = str(error)
        return found

    def _phase(self, case: str, at: int, box: Box | None) -> npt.NDArray[np.float32]:
        files, seen = self.files(case), self._look(case)
        count = self.phases(case)
        if not -count <= at < count:
            raise UserError(
                f"case '{case}' has {count} phases, phase {at} is asked for",
                where=str(files.phases[0]),
                fix="Ask for fewer phases, or leave cases with too few out.",
            )
        if files.slice_spacing is not None:
            channel = _channels(files.phases[0], case)[:, :, at % 3]
            values = np.array(channel.T[:, :, None], dtype=np.float32)
            return values if box is None else values[_slices(box)]
        path, header = files.phases[at], seen.headers[at % count]
        voxels = stored_voxels(path, header)
        if box is not None:
            voxels = voxels[_slices(seen.turn.box_back(box, seen.file_shape))]
        return scaled(seen.turn.volume(voxels), header, where=str(path), what=f"phase {at} of case '{case}'")

    def _box(self, case: str, box: Box | None, what: str) -> Box | None:
        if box is None:
            return None
        seen, files = self._look(case), self.files(case)
        shape = seen.file_shape
        cut = (
            *(max(0, low) for low in box[:3]),
            *(min(size, high) for size, high in zip(shape, box[3:], strict=True)),
        )
        out = max((abs(a - b) for a, b in zip(cut, box, strict=True)), default=0)
        if out > BOX_SLACK_VOXELS or any(cut[n] >= cut[n + 3] for n in range(3)):
            raise UserError(
                f"the {what} box {box} of case '{case}' does not lie in its volume of {_times(shape)} voxels",
                where=str(files.phases[0]),
                fix="The box is of another grid, or its axes are in another order.",
            )
        return seen.turn.box((cut[0], cut[1], cut[2], cut[3], cut[4], cut[5]), shape)

    def _look(self, case: str) -> _Seen:
        if case not in self._seen:
            files = self.files(case)
            spacing = files.slice_spacing
            self._seen[case] = _look_at_slice(case, files, spacing) if spacing else _look(case, files)
        return self._seen[case]


def value_counts(
    values: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The values that occur, rising, and how often; whole numbers of a scanner's range without sorting."""
    low, high = float(values.min()), float(values.max())
    if 0 <= high - low < 1 << 20 and max(abs(low), abs(high)) < 1 << 24:
        whole = values.astype(np.int32)
        if np.array_equal(whole, values):
            counts = np.bincount((whole - int(low)).ravel(order="K"))
            there = np.flatnonzero(counts)
            return (there + int(low)).astype(np.float32), counts[there].astype(np.int64)
    told, counts = np.unique(values, return_counts=True)
    return told, counts.astype(np.int64)


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"it cannot be read ({error.strerror})", where=str(path), fix="Fetch it again."
        ) from None


def _write(path: Path, content: bytes) -> Path:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
    return path


def _look(case: str, files: VolumeFiles) -> _Seen:
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
                f"phase {at} of case '{case}' has {_times(header.shape)} voxels, phase 0 has {_times(first.shape)}",
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
        return _Seen(grid, first.shape, turn, headers)
    mask = read_header(files.mask)
    mask_turn = turn
    if mask.affine is not None and first.affine is not None:
        mask_turn = turn_to(axis_letters(mask.affine), _target(axis_letters(first.affine), files.plane))
    if mask_turn.three(mask.shape) != grid.shape:
        raise UserError(
            f"the mask of case '{case}' has {_times(mask.shape)} voxels, its phases have {_times(first.shape)}",
            where=str(files.mask),
            fix="A mask lies on the grid of its phases: export it again, nothing is resampled.",
        )
    turned = turn.affine(first.affine, first.shape) if first.affine is not None else None
    mask_affine = mask_turn.affine(mask.affine, mask.shape) if mask.affine is not None else None
    _compare(
        turned, mask_affine, grid, f"the mask of case '{case}' lies elsewhere than its phases", files.mask
    )
    return _Seen(grid, first.shape, turn, headers, mask, mask_turn)


def _target(letters: str, plane: str) -> str:
    return TARGETS.get(plane) or TARGETS[plane_of(letters)]


def _turn(header: NiftiHeader, plane: str) -> Turn:
    """A file that does not say where it lies stays as it is: its axes have no names."""
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
    """The grids are one when spacings agree within 0.1 % and no corner is a tenth of a voxel away."""
    if first is None or other is None:
        return
    steps, others = (np.sqrt((part[:3, :3] ** 2).sum(axis=0)) for part in (first, other))
    corners = np.array(np.meshgrid(*((0, size - 1) for size in grid.shape))).reshape(3, -1)
    corners = np.vstack([corners, np.ones(8)])
    away = float(np.sqrt((((first - other) @ corners)[:3] ** 2).sum(axis=0)).max())
    if np.abs(others / steps - 1).max() > SPACING_TOLERANCE:
        why = f"spacing {_mm(others)} against {_mm(steps)}"
    elif away > CORNER_TOLERANCE_VOXELS * float(steps.min()):
        why = f"a corner is {away:.3g} mm away"
    else:
        return
    raise UserError(f"{what}: {why}", where=str(path), fix="Export it again on the same grid.")


def _look_at_slice(case: str, files: VolumeFiles, spacing: tuple[float, float, float]) -> _Seen:
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
    return _Seen(Grid(shape=shape, spacing_mm=spacing), shape, Turn(), ())


def _channels(path: Path, case: str) -> npt.NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise _bad_picture(case, path, error) from error


def _bad_picture(case: str, path: Path, error: Exception) -> UserError:
    why = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be decoded ({error})"
    return UserError(f"the slice of case '{case}' {why}", where=str(path), fix="Fetch the file again.")


def _slices(box: Box) -> tuple[slice, slice, slice]:
    return slice(box[0], box[3]), slice(box[1], box[4]), slice(box[2], box[5])


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _mm(steps: npt.NDArray[np.float64]) -> str:
    return " x ".join(f"{step:.4g}" for step in steps) + " mm"
