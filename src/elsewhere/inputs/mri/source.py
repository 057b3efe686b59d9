"""The source 'mri': volumes with contrast phases, from files, from memory, or from packs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.mri.files import FileVolumes, VolumeFiles
from elsewhere.inputs.mri.layout import phase_files
from elsewhere.inputs.mri.packs import PackedVolumes, mask_digest, pack_volumes, volume_digest
from elsewhere.inputs.source import BREAST_BOX, LESION_BOX, MASK, CaseRow, sources
from elsewhere.inputs.volumes import Box, Grid, MemoryVolumes, Volumes

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

BREAST_BOX_COLUMNS = tuple(f"breast_box_{end}" for end in ("x0", "y0", "z0", "x1", "y1", "z1"))
SLICE_BOX_COLUMNS = ("box_x0", "box_y0", "box_x1", "box_y1")


class VolumesView:
    """What a recipe is shown of volumes: those of one training's cases.

    Masks and the experts' boxes of cases that are only predicted are not shown, unless the recipe declares
    that it sees them. The volumes themselves are not an attribute of the view.

    Args:
        held: All volumes.
        cases: The cases that may be asked for.
        hidden: Those of them whose truth is not shown.
        sees: The kinds of truth that are shown all the same.
    """

    __slots__ = ("_ask",)
    _ask: Callable[..., Any]

    def __init__(
        self,
        held: Volumes,
        *,
        cases: frozenset[str],
        hidden: frozenset[str],
        sees: frozenset[str] = frozenset(),
    ) -> None:
        withheld = {
            "mask": MASK not in sees,
            "lesion_box": LESION_BOX not in sees,
            "breast_box": BREAST_BOX not in sees,
        }

        def ask(what: str, case: str, *more: Any) -> Any:
            if what == "__contains__":
                return case in cases and case in held
            if what not in _ASKED:
                raise AttributeError(what)
            if case not in cases:
                raise KeyError(f"'{case}' is not a case of this training")
            method = getattr(held, what, None)
            if method is None or (case in hidden and withheld.get(what, False)):
                return None
            return method(case, *more)

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("__contains__", case))

    def grid(self, case: str) -> Grid:
        """Return where the voxels of a case lie, from the headers alone.

        Args:
            case: "DATASET/case_id".

        Returns:
            The grid.

        Raises:
            KeyError: The case does not belong to this training.
        """
        found: Grid = self._ask("grid", case)
        return found

    def phases(self, case: str) -> int:
        """Count the phases of a case; phase 0 is before the contrast agent.

        Args:
            case: "DATASET/case_id".

        Returns:
            At least 1.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return int(self._ask("phases", case))

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """Read one phase; nothing is cached.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.

        Returns:
            [x, y, z].

        Raises:
            KeyError: The case does not belong to this training.
        """
        found: npt.NDArray[np.float32] = self._ask("phase", case, at)
        return found

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """Read the expert's mask.

        Args:
            case: "DATASET/case_id".

        Returns:
            [x, y, z]; None where there is none, or where it is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        found: npt.NDArray[np.bool_] | None = self._ask("mask", case)
        return found

    def breast_box(self, case: str) -> Box | None:
        """Return the expert's box of the affected breast (MRI-14).

        The challenge gives it for training only. Of a case that is predicted, it is shown to a recipe that
        asks for it, by a setting or always.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1 in voxels, half-open; None where it is not known, or where it is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        found: Box | None = self._ask("breast_box", case)
        return found

    def lesion_box(self, case: str) -> Box | None:
        """Return the publisher's box of the lesion, which is truth as the mask is.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1 in voxels, half-open; None where there is none, or where it is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        found: Box | None = self._ask("lesion_box", case)
        return found

    def part(self, case: str, at: int, box: Box) -> npt.NDArray[np.float32]:
        """Read one phase inside a box; where the files allow it, no more than that is read.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.
            box: x0, y0, z0, x1, y1, z1 in voxels, half-open.

        Returns:
            [x, y, z] of the box.

        Raises:
            KeyError: The case does not belong to this training.
        """
        inside: npt.NDArray[np.float32] | None = self._ask("part", case, at, box)
        if inside is not None:
            return inside
        x0, y0, z0, x1, y1, z1 = box
        return self.phase(case, at)[x0:x1, y0:y1, z0:z1]


_ASKED = frozenset({"grid", "phases", "phase", "part", "mask", "breast_box", "lesion_box"})


@sources.register("mri")
class MriSource:
    """The volumes of a study by case: the source 'mri'.

    Args:
        volumes: Volumes from files, from memory or from packs.

    Example:
        >>> volumes = MemoryVolumes(images={"A/1": [np.zeros((4, 4, 2), dtype=np.float32)]})
        >>> source = MriSource(volumes)
        >>> "A/1" in source, source.shape("A/1"), source.shape("B/1")
        (True, (4, 4, 2), None)
    """

    name: ClassVar[str] = "mri"
    noun: ClassVar[str] = "volumes"
    complete: ClassVar[bool] = False
    truths: ClassVar[Mapping[str, str]] = {
        MASK: "the expert's mask",
        LESION_BOX: "the publisher's box of the lesion",
        BREAST_BOX: "the expert's box of the affected breast",
    }

    def __init__(self, volumes: Volumes) -> None:
        self.volumes = volumes

    def __contains__(self, case: str) -> bool:
        return case in self.volumes

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> MriSource:
        """Make the source of the volumes that a cohort's rows name in `image`. No voxel is read yet.

        A row with `mm_per_px` is a slice picture of three phases; any other image is a patient's folder of
        NIfTI phases.

        Args:
            rows: The rows of one or several cohorts; a row without `image` is left out.

        Returns:
            The source.
        """
        return cls(
            FileVolumes({row.name: _files(row) for row in rows if isinstance(row.values.get("image"), str)})
        )

    def problems(self, cases: Iterable[str]) -> dict[str, str]:
        """Check the headers of these cases; enhancement by contrast needs at least two phases.

        Args:
            cases: The cases to check ("DATASET/case_id").

        Returns:
            The reason by case; cases without a problem are not in it. Empty where the volumes are not files.
        """
        if not isinstance(self.volumes, FileVolumes):
            return {}
        names = list(cases)
        found = self.volumes.problems(names)
        alone = [name for name in names if name not in found and self.volumes.phases(name) < 2]
        return found | dict.fromkeys(alone, "it has only one phase: fetch its phases after contrast")

    def digest(self, case: str) -> str:
        """Return the digest that stands for a volume in a training's key.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.
        """
        return volume_digest(self.volumes, case)

    def truth_digest(self, case: str) -> str:
        """Return the digest that stands for the expert's mask in a training's key.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256; "" where there is no mask.
        """
        return mask_digest(self.volumes, case)

    def identity(self, case: str) -> str:
        """Return the digest of the values of the first phase, whatever their header and packing are.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256; the digest of the volume itself where the volumes are not files.
        """
        return self.volumes.voxel_digest(case) if isinstance(self.volumes, FileVolumes) else self.digest(case)

    def truth_files(self) -> tuple[Path, ...]:
        """List the files of the experts' masks.

        Returns:
            Paths; empty where the volumes are not files.
        """
        if not isinstance(self.volumes, FileVolumes):
            return ()
        masks = (self.volumes.files(case).mask for case in self.volumes.cases)
        return tuple(mask for mask in masks if mask is not None)

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return no boxes of pictures: the boxes of volumes are read with the volumes.

        Args:
            rows: The rows of the cohort.

        Returns:
            (n, 4) zeros.
        """
        return np.zeros((len(rows), 4), dtype=np.int32)

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return the shape of a case's grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            Voxels along each axis; None for a case without a volume.
        """
        return self.volumes.grid(case).shape if case in self.volumes else None

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> VolumesView:
        """Make the view of one training.

        Args:
            cases: The cases that may be asked for.
            hidden: Those of them that are only predicted.
            sees: The kinds of truth that the recipe is shown of them.

        Returns:
            The view.
        """
        return VolumesView(self.volumes, cases=cases, hidden=hidden, sees=sees)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write one pack per case; on the other machine a recipe is shown as little of the truth as here.

        Args:
            folder: An empty folder.
            cases: The cases to pack, with their digests.
            with_truth: Whether masks and lesion boxes are packed too.
        """
        digest = dict(zip(cases.case, cases.digest, strict=True))
        drawn = (
            dict(zip(cases.case, cases.mask_digest, strict=True)).__getitem__ if cases.mask_digest else None
        )
        pack_volumes(
            self.volumes,
            cases.case,
            folder,
            with_masks=with_truth,
            digest=digest.__getitem__,
            digest_of_mask=drawn,
        )

    @classmethod
    def unpack(cls, folder: Path) -> MriSource:
        """Read the packs that `pack` wrote.

        Args:
            folder: The folder.

        Returns:
            The source.

        Raises:
            UserError: There are no packed volumes in the folder.
        """
        return cls(PackedVolumes(folder))

    def portable(self, cases: Iterable[str]) -> MriSource:
        """Return this source as it is: files travel as their paths, which every node must be able to read.

        Args:
            cases: Not used; volumes in memory travel with all cases.

        Returns:
            This source.
        """
        return self

    def nbytes(self) -> int:
        """Count the bytes of the volumes that are in memory.

        Returns:
            Bytes; 0 where the volumes are files or packs.
        """
        held = self.volumes.images.values() if isinstance(self.volumes, MemoryVolumes) else ()
        return sum(phase.nbytes for phases in held for phase in phases)

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Write a predicted mask on the grid of a case's own file.

        Args:
            path: The .nii.gz file to write.
            mask: The mask on the study's grid, [x, y, z].
            like: The case ("DATASET/case_id") whose file gives the grid.

        Returns:
            The file.

        Raises:
            TypeError: The volumes are not files.
            ValueError: The mask is of another shape than the grid.
        """
        if not isinstance(self.volumes, FileVolumes):
            raise TypeError("masks are written on the grid of files, and these volumes are not files")
        return self.volumes.write_mask(path, mask, like=like)


def _files(row: CaseRow) -> VolumeFiles:
    return _slice_files(row) if _has(row.values, "mm_per_px") else _folder_files(row)


def _folder_files(row: CaseRow) -> VolumeFiles:
    values = row.values
    phases, missing = phase_files(row.file(values["image"]))
    mask = values.get("mask")
    view = str(values.get("view") or "").strip().casefold()
    return VolumeFiles(
        phases=phases,
        missing=missing,
        mask=row.file(mask) if isinstance(mask, str) else None,
        breast_box=_box(values, BREAST_BOX_COLUMNS),
        plane=view if view in ("axial", "sagittal") else "",
    )


def _slice_files(row: CaseRow) -> VolumeFiles:
    values = row.values
    step = float(values["mm_per_px"])
    thick = float(values["spacing_slice_mm"]) if _has(values, "spacing_slice_mm") else step
    known = all(_has(values, name) for name in SLICE_BOX_COLUMNS)
    flat = tuple(int(values[name]) for name in SLICE_BOX_COLUMNS) if known else None
    return VolumeFiles(
        phases=(row.file(values["image"]),),
        slice_spacing=(step, step, thick),
        lesion_box=(flat[0], flat[1], 0, flat[2], flat[3], 1) if flat else None,
    )


def _box(values: Mapping[str, Any], names: tuple[str, ...]) -> Box | None:
    if not all(_has(values, name) for name in names):
        return None
    ends = [int(values[name]) for name in names]
    return ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]


def _has(values: Mapping[str, Any], name: str) -> bool:
    """Say whether a cell has a value: not None, NaN, or the NA of pandas, which cannot be compared."""
    value = values.get(name)
    if value is None or isinstance(value, str):
        return value is not None
    try:
        return not math.isnan(value)
    except TypeError:
        return False
