"""Defines volumes as recipes see them: contrast phases, mask and breast box, read when asked for (MRI-01).

A volume keeps the grid of its file: nothing is resampled. Axes are x, y, z as NIfTI stores them after the
reader has brought axial volumes to LAS and sagittal ones to PSR. A single slice is a volume of depth one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

Box = tuple[int, int, int, int, int, int]
"""x0, y0, z0, x1, y1, z1 in voxels, half-open."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Where a volume's voxels lie.

    Args:
        shape: Voxels along each axis.
        spacing_mm: The distance of voxels along each axis, in mm.
        affine: [4, 4] from voxel index to mm; None where the file does not define it.
    """

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    affine: npt.NDArray[np.float64] | None = None


class Volumes(Protocol):
    """The volumes of a study by case name ('DATASET/case_id')."""

    def __contains__(self, case: str) -> bool: ...

    def grid(self, case: str) -> Grid:
        """Return the size and the place of a case's volume, from the headers alone.

        Args:
            case: "DATASET/case_id".

        Returns:
            Its grid.
        """

    def phases(self, case: str) -> int:
        """Return how many phases a case has; phase 0 is before the contrast agent.

        Args:
            case: "DATASET/case_id".

        Returns:
            At least 1.
        """

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """Read one phase.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.

        Returns:
            [x, y, z].
        """

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """Return the expert's mask on the volume's grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            [x, y, z]; None where there is none.
        """

    def breast_box(self, case: str) -> Box | None:
        """Return the box of the affected breast.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where it is not known.
        """


@dataclass(frozen=True, kw_only=True)
class MemoryVolumes:
    """Volumes in memory, for tests and for phantoms that are made where they are used.

    Args:
        images: The phases of each case, each [x, y, z].
        masks: The expert's mask of some cases.
        boxes: The box of the affected breast of some cases.
        spacing_mm: The spacing of some cases in mm; 1 mm for the others.

    Example:
        >>> MemoryVolumes(images={"a": [np.zeros((4, 4, 2), dtype=np.float32)]}).grid("a").shape
        (4, 4, 2)
    """

    images: Mapping[str, Sequence[npt.NDArray[np.float32]]]
    masks: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    boxes: Mapping[str, Box] = field(default_factory=dict)
    spacing_mm: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def __contains__(self, case: str) -> bool:
        return case in self.images

    def grid(self, case: str) -> Grid:
        """Return the size and the place of a case's volume, from the headers alone.

        Args:
            case: "DATASET/case_id".

        Returns:
            Its grid.
        """
        x, y, z = self.images[case][0].shape
        return Grid(shape=(x, y, z), spacing_mm=self.spacing_mm.get(case, (1.0, 1.0, 1.0)))

    def phases(self, case: str) -> int:
        """Return how many phases a case has; phase 0 is before the contrast agent.

        Args:
            case: "DATASET/case_id".

        Returns:
            At least 1.
        """
        return len(self.images[case])

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """Read one phase.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.

        Returns:
            [x, y, z].
        """
        return self.images[case][at]

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """Return the expert's mask on the volume's grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            [x, y, z]; None where there is none.
        """
        return self.masks.get(case)

    def breast_box(self, case: str) -> Box | None:
        """Return the box of the affected breast.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where it is not known.
        """
        return self.boxes.get(case)
