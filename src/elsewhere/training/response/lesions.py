"""Where the lesion lies in a volume whose mask may not be seen (MRI-02).

The expert's mask of a case that is predicted is hidden, and so is the box of its affected breast. Therefore
its crop has to be found: around the enhancing component that scores best inside both breasts
(`inputs.mri.breasts`), or around the mask of an earlier segmentation. The crops of the training cases are
found in the same way unless a setting chooses another: a network that learns on the expert's crops and is
tested on found ones meets another distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.mri.breasts import find_breasts
from elsewhere.inputs.mri.nifti import read_header, stored_voxels
from elsewhere.inputs.mri.orientation import TARGETS, axis_letters, plane_of, turn_to
from elsewhere.inputs.volumes import Box, Volumes

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Kind = Literal["enhancing", "expert", "breast-box", "centre", "masks"]
KINDS: tuple[Kind, ...] = ("enhancing", "expert", "breast-box", "centre", "masks")
COARSE_MM = 2.0
"""Enhancement is averaged over voxels of about this size, in which thinner vessels fade."""
SPECK = 8
"""In volumes, a component of fewer such voxels is no lesion where there is a larger one."""
BRIGHT = 0.5
"""Voxels above this share of the box's 99.9th percentile of enhancement are enhancing."""


@dataclass(frozen=True, kw_only=True)
class LesionSource:
    """How the lesion's box is found. Crops are cut around the middle of the box.

    Args:
        kind: "enhancing": the best enhancing component inside both breasts, which are found, for every case.
            "expert": the expert's mask where it may be seen, "enhancing" otherwise. "breast-box": the
            expert's box of the breast, which the recipe has to ask for; where it is not given, the box of
            both breasts. "centre": the whole volume (slices that were cut around the lesion). "masks": the
            masks of a segmentation from `mask_of`, "enhancing" where one is empty or missing.
        mask_of: A function from a case to its mask, or None.

    Raises:
        UserError: The kind is unknown.
    """

    kind: Kind = "enhancing"
    mask_of: Callable[[str], Bools | None] = field(default=lambda case: None)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(
                f"unknown way to find the lesion '{self.kind}'", fix=f"Known: {', '.join(KINDS)}."
            )

    def box(self, volumes: Volumes, case: str, *, before: Floats, after: Floats) -> Box:
        """Find the lesion of a case.

        Args:
            volumes: Masks and boxes, where they may be seen.
            case: Its name.
            before: The phase before the contrast agent.
            after: The phase after it.

        Returns:
            A box, never empty.

        Raises:
            UserError: The mask is of another size than the phases.
        """
        whole: Box = (0, 0, 0, *before.shape)
        if self.kind == "centre":
            return whole
        if self.kind == "breast-box":
            return _clip(volumes.breast_box(case) or found_breasts(volumes, case), whole)
        mask = {"expert": volumes.mask, "masks": self.mask_of}.get(self.kind, lambda name: None)(case)
        if mask is not None and mask.shape != before.shape:
            raise UserError(
                f"the mask of {case} has the size {mask.shape}, its phases {before.shape}", where=case
            )
        if mask is not None and mask.any():
            return box_of(mask)
        grid = volumes.grid(case)
        return find_lesion(
            before, after, spacing_mm=grid.spacing_mm, breast=_clip(found_breasts(volumes, case), whole)
        )


def found_breasts(volumes: Volumes, case: str) -> Box | None:
    """Find both breasts without the expert's box.

    Args:
        volumes: Where the first phase is read.
        case: "DATASET/case_id".

    Returns:
        The box around both, half-open, in voxels; None for a single slice, in which no breast can be found.
    """
    grid = volumes.grid(case)
    return find_breasts(volumes.phase(case, 0), grid) if grid.shape[2] > 1 else None


def find_lesion(
    before: Floats, after: Floats, *, spacing_mm: tuple[float, float, float], breast: Box | None = None
) -> Box:
    """Find the component that enhances most, inside a box.

    Args:
        before: The phase before the contrast agent, [x, y, z].
        after: The phase after it, on the same grid.
        spacing_mm: The distance of voxels along each axis, in mm.
        breast: The box to search; None: the whole volume.

    Returns:
        The component's box, half-open, in voxels; the searched box itself where nothing enhances.
    """
    from scipy import ndimage

    whole: Box = (0, 0, 0, *after.shape)
    box = _clip(breast, whole)
    inside = tuple(slice(a, b) for a, b in zip(box[:3], box[3:], strict=True))
    rise = np.nan_to_num(after[inside].astype(np.float32) - before[inside].astype(np.float32))
    steps = tuple(
        max(1, min(round(COARSE_MM / mm), size // 4)) if size > 1 else 1
        for mm, size in zip(spacing_mm, rise.shape, strict=True)
    )
    coarse = ndimage.gaussian_filter(_blocks(rise, steps), sigma=[0.7 if n > 1 else 0.0 for n in rise.shape])
    top = float(np.percentile(coarse, 99.9))
    if not top > 0:
        return box
    labels, count = ndimage.label(coarse > BRIGHT * top)
    pieces, every = ndimage.find_objects(labels), np.arange(1, count + 1)
    mass = ndimage.sum_labels(np.maximum(coarse, 0.0), labels, every)
    if coarse.shape[2] > 1:
        size = ndimage.sum_labels(np.ones_like(coarse), labels, every)
        mass = np.where(
            size < min(SPECK, size.max()), 0.0, mass * _roundness(pieces, size, steps, spacing_mm)
        )
    found = pieces[int(np.argmax(mass))]
    low = [box[axis] + found[axis].start * steps[axis] for axis in range(3)]
    high = [min(box[3 + axis], box[axis] + found[axis].stop * steps[axis]) for axis in range(3)]
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def _roundness(
    pieces: Sequence[tuple[slice, ...]],
    size: npt.NDArray[np.floating],
    steps: tuple[int, ...],
    spacing_mm: tuple[float, float, float],
) -> npt.NDArray[np.float64]:
    """Return the factors that turn summed enhancement into mean x diameter x root of roundness.

    Summed enhancement alone would find glandular tissue and what lies behind the chest wall (as
    `radiomics.region`).
    """
    mm = [step * side for step, side in zip(steps, spacing_mm, strict=True)]
    volume = np.asarray(size, dtype=np.float64) * np.prod(mm)
    longest = np.array([max((s.stop - s.start) * m for s, m in zip(p, mm, strict=True)) for p in pieces])
    return np.asarray(volume ** (1 / 3) / size * np.sqrt(volume / (np.pi / 6 * longest**3)))


def box_of(mask: Bools) -> Box:
    """Return the smallest box around the voxels that are set.

    Args:
        mask: At least one voxel is set.

    Returns:
        x0, y0, z0, x1, y1, z1, half-open.

    Example:
        >>> mask = np.zeros((4, 4, 4), dtype=bool)
        >>> mask[1:3, 2, 0] = True
        >>> box_of(mask)
        (1, 2, 0, 3, 3, 1)
    """
    low, high = [], []
    for axis in range(3):
        line = np.flatnonzero(mask.any(axis=tuple(a for a in range(3) if a != axis)))
        low.append(int(line[0]))
        high.append(int(line[-1]) + 1)
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def masks_in(folder: Path) -> Callable[[str], Bools | None]:
    """Open a folder of masks: CASE.nii.gz, CASE.nii or CASE.npy, with the dataset as a folder or without.

    NIfTI is brought to LAS or PSR as the volumes are (MRI-01).

    Args:
        folder: The folder.

    Returns:
        A function from a case's name to its mask, or None where there is none.

    Raises:
        UserError: There is no such folder.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder of masks", where=str(folder), fix="Set `masks` to a folder.")

    def mask_of(case: str) -> Bools | None:
        for stem in (case, case.replace("/", "_"), case.rsplit("/", 1)[-1]):
            for ending in (".nii.gz", ".nii", ".npy"):
                path = folder / f"{stem}{ending}"
                if path.is_file():
                    return _read_mask(path)
        return None

    return mask_of


def _read_mask(path: Path) -> Bools:
    if path.suffix == ".npy":
        return np.asarray(np.load(path, allow_pickle=False) > 0)
    header = read_header(path)
    found = stored_voxels(path, header) > 0
    if header.affine is not None:
        letters = axis_letters(header.affine)
        found = turn_to(letters, TARGETS[plane_of(letters)]).volume(found)
    return np.ascontiguousarray(found)


def _clip(box: Box | None, whole: Box) -> Box:
    if box is None:
        return whole
    low = [min(max(box[a], 0), whole[3 + a]) for a in range(3)]
    high = [min(max(box[3 + a], 0), whole[3 + a]) for a in range(3)]
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return whole
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def _blocks(volume: Floats, steps: tuple[int, ...]) -> Floats:
    """Average whole blocks; the voxels left over at the far side belong to no block."""
    x, y, z = (n // s for n, s in zip(volume.shape, steps, strict=True))
    a, b, c = steps
    cut = volume[: x * a, : y * b, : z * c].reshape(x, a, y, b, z, c)
    return np.asarray(cut.mean(axis=(1, 3, 5)), dtype=np.float32)
