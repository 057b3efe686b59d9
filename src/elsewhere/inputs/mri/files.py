"""Reads volumes from their files when asked for: NIfTI phases, or a slice picture whose channels are phases.

Headers are read once per case and compared: phases of one size and place, the mask on the same grid, the
breast's box inside it. Voxels are read at every call, mapped where the file is not packed. Axial volumes are
returned as LAS and sagittal ones as PSR, by flips and permutations only (MRI-01); `to_file_grid` and
`write_mask` go back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.mri.case_files import CaseGrid, VolumeFiles, read_grid, slice_channels, voxel_text
from elsewhere.inputs.mri.nifti import (
    gzip_bytes,
    mask_bytes,
    plain_placement,
    scaled,
    stored_voxels,
)
from elsewhere.inputs.volumes import Box, Grid

BOX_SLACK_VOXELS = 1
"""Not every publisher counts a box's last voxel; a box that sticks out by more is of another grid."""


class FileVolumes:
    """Volumes over files, by case name ("DATASET/case_id"). Arrays have positive strides, in either order.

    Args:
        files: The files of every case.

    Example:
        >>> volumes = FileVolumes({"DUKE/1": VolumeFiles(phases=(Path("1_0000.nii.gz"),))})
        >>> "DUKE/1" in volumes, volumes.cases
        (True, ('DUKE/1',))
    """

    def __init__(self, files: Mapping[str, VolumeFiles]) -> None:
        self._files = dict(files)
        self._seen: dict[str, CaseGrid] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, case: object) -> bool:
        return case in self._files

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases."""
        return tuple(self._files)

    def files(self, case: str) -> VolumeFiles:
        """Return the files of a case.

        Args:
            case: "DATASET/case_id".

        Returns:
            Its files.

        Raises:
            UserError: The case is unknown; the nearest names are offered.
        """
        try:
            return self._files[case]
        except KeyError:
            near = near_matches(case, self._files)
            raise UserError(
                f"there is no volume of case '{case}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else None,
            ) from None

    def grid(self, case: str) -> Grid:
        """Return the size and the place of a case's volume, from the headers alone.

        Args:
            case: "DATASET/case_id".

        Returns:
            Its grid.
        """
        return self._look(case).grid

    def phases(self, case: str) -> int:
        """Return how many phases a case has; phase 0 is before the contrast agent.

        Args:
            case: "DATASET/case_id".

        Returns:
            At least 1.
        """
        self._look(case)
        files = self.files(case)
        return 3 if files.slice_spacing is not None else len(files.phases)

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """Read one phase.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.

        Returns:
            [x, y, z].
        """
        return self._phase(case, at, None)

    def part(self, case: str, at: int, box: Box) -> npt.NDArray[np.float32]:
        """Read one phase inside a box. Of a file that is not packed, no more is read than that.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.
            box: In voxels of the study's grid.

        Returns:
            [x, y, z] of the box.
        """
        return self._phase(case, at, box)

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """Return the expert's mask on the volume's grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            [x, y, z]; None where there is none.

        Raises:
            UserError: The mask's file is broken, or has voxels that are not numbers.
        """
        files, seen = self.files(case), self._look(case)
        if files.mask is None or seen.mask_header is None:
            return None
        voxels = stored_voxels(files.mask, seen.mask_header)
        if voxels.dtype.kind == "f" and not np.isfinite(voxels).all():
            raise UserError(
                f"the mask of case '{case}' has voxels that are not numbers", where=str(files.mask)
            )
        return np.array(seen.mask_turn.volume(voxels) > 0, order="K")

    def breast_box(self, case: str) -> Box | None:
        """Return the box of the affected breast.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where it is not known.
        """
        return self._box(case, self.files(case).breast_box, "breast")

    def lesion_box(self, case: str) -> Box | None:
        """Return the publisher's box of the lesion, which is truth as the mask is.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where there is none.
        """
        return self._box(case, self.files(case).lesion_box, "lesion")

    def to_file_grid(self, case: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Turn an array of the study's grid (a predicted mask) into the axes of the case's own file.

        Args:
            case: "DATASET/case_id".
            array: Of the study's grid.

        Returns:
            The array in the file's axes.

        Raises:
            ValueError: The array is of another shape.
        """
        seen = self._look(case)
        if array.shape != seen.grid.shape:
            raise ValueError(f"{case}: the shape is {array.shape}, the grid's is {seen.grid.shape}")
        return seen.turn.back(array)

    def write_mask(self, path: str | Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Write a mask as .nii.gz on the grid of the case's own file. The same mask is the same bytes.

        Args:
            path: Where to.
            mask: Of the study's grid.
            like: The case.

        Returns:
            The file.
        """
        seen = self._look(like)
        stored = self.to_file_grid(like, np.asarray(mask, dtype=bool))
        placement = (
            seen.headers[0].placement
            if seen.headers
            else plain_placement(seen.grid.spacing_mm, seen.grid.affine)
        )
        return _write(Path(path), gzip_bytes(mask_bytes(stored, placement)))

    def digest(self, case: str, *, of_file: Callable[[Path], str] | None = None) -> str:
        """Return the sha256 of everything that a recipe is given of a case that it predicts.

        That is the bytes of its phases, its boxes, and its spacing. The mask is not given; see `mask_digest`.

        Args:
            case: "DATASET/case_id".
            of_file: Answers a file's digest from a cache (`elsewhere.study.volumes.digests`).

        Returns:
            The digest.
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
        """Return the sha256 of the values of the first phase, each with how often it occurs.

        It is the same for the same voxels under another header, packing, type or order of the axes (US-30).

        Args:
            case: "DATASET/case_id".

        Returns:
            The digest.
        """
        values = self.phase(case, 0)
        told, counts = value_counts(values)
        whole = hashlib.sha256(f"elsewhere-voxels-1 {sorted(values.shape)}\n".encode())
        whole.update(told.astype("<f4").tobytes())
        whole.update(counts.astype("<i8").tobytes())
        return whole.hexdigest()

    def mask_digest(self, case: str, *, of_file: Callable[[Path], str] | None = None) -> str:
        """Return the sha256 of the bytes of the expert's mask, a part of the key of what trains on it.

        Args:
            case: "DATASET/case_id".
            of_file: Answers a file's digest from a cache.

        Returns:
            The digest; "" where there is no mask.
        """
        mask = self.files(case).mask
        return (of_file or file_digest)(mask) if mask is not None else ""

    def check(self, case: str) -> None:
        """Check the case's headers and boxes; no voxel is read.

        Args:
            case: "DATASET/case_id".

        Raises:
            UserError: Something is wrong with them.
        """
        self._look(case)
        self.breast_box(case)
        self.lesion_box(case)

    def problems(self, cases: Iterable[str] | None = None) -> dict[str, str]:
        """Check many cases, for a plan, before anything is trained.

        Args:
            cases: Their names; None: all.

        Returns:
            Case to what is wrong with it.
        """
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
                f"case '{case}' has {count} phases, phase {at} was requested",
                where=str(files.phases[0]),
                fix="Ask for fewer phases, or leave out cases with too few.",
            )
        if files.slice_spacing is not None:
            channel = slice_channels(files.phases[0], case)[:, :, at % 3]
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
                f"the {what} box {box} of case '{case}' does not lie in its volume of {voxel_text(shape)} voxels",
                where=str(files.phases[0]),
                fix="The box is of another grid, or its axes are in another order.",
            )
        return seen.turn.box((cut[0], cut[1], cut[2], cut[3], cut[4], cut[5]), shape)

    def _look(self, case: str) -> CaseGrid:
        if case not in self._seen:
            self._seen[case] = read_grid(case, self.files(case))
        return self._seen[case]


def value_counts(
    values: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the values that occur, ascending, and how often each occurs.

    Whole numbers of a scanner's range are counted without sorting.

    Args:
        values: An array of any shape.

    Returns:
        The values and their counts.

    Example:
        >>> values, counts = value_counts(np.array([[3.0, 1.0], [3.0, 3.0]], dtype=np.float32))
        >>> values.tolist(), counts.tolist()
        ([1.0, 3.0], [1, 3])
    """
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
    """Return the sha256 of a file's bytes.

    Args:
        path: The file.

    Returns:
        The digest.

    Raises:
        UserError: The file cannot be read.
    """
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


def _slices(box: Box) -> tuple[slice, slice, slice]:
    return slice(box[0], box[3]), slice(box[1], box[4]), slice(box[2], box[5])
