"""Volumes as recipes see them: contrast phases, the mask and the breast's box, read when asked for (MRI-01).

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
    """Where a volume's voxels lie."""

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    affine: npt.NDArray[np.float64] | None = None
    """Voxel index to mm, where the file says so."""


class Volumes(Protocol):
    """The volumes of a study by case name ('DATASET/case_id')."""

    def __contains__(self, case: str) -> bool: ...

    def grid(self, case: str) -> Grid:
        """From the headers alone."""

    def phases(self, case: str) -> int:
        """How many phases there are; phase 0 is before the contrast agent."""

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """One phase, read now; negative places count from the end."""

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """The expert's mask on the same grid; None where there is none."""

    def breast_box(self, case: str) -> Box | None:
        """The box of the affected breast; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class MemoryVolumes:
    """Volumes that are there already: tests, and phantoms made where they are used."""

    images: Mapping[str, Sequence[npt.NDArray[np.float32]]]
    """Case -> its phases."""
    masks: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    boxes: Mapping[str, Box] = field(default_factory=dict)
    spacing_mm: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """1 mm where a case is not named."""

    def __contains__(self, case: str) -> bool:
        return case in self.images

    def grid(self, case: str) -> Grid:
        x, y, z = self.images[case][0].shape
        return Grid(shape=(x, y, z), spacing_mm=self.spacing_mm.get(case, (1.0, 1.0, 1.0)))

    def phases(self, case: str) -> int:
        return len(self.images[case])

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        return self.images[case][at]

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        return self.masks.get(case)

    def breast_box(self, case: str) -> Box | None:
        return self.boxes.get(case)
