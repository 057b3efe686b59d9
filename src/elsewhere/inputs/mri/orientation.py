"""Orients volumes by axis flips and permutations only (MRI-01): axial volumes to LAS, sagittal ones to PSR.

A letter says where an axis points as its index grows: L is left, A anterior, S superior. Voxels are moved and
never interpolated: an oriented volume can be brought back to the file's own grid bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.volumes import Box

AXIAL, SAGITTAL = "axial", "sagittal"
TARGETS = {AXIAL: "LAS", SAGITTAL: "PSR"}
_LETTERS = (("L", "R"), ("P", "A"), ("I", "S"))
_WORLD = {letter: (axis, side) for axis, pair in enumerate(_LETTERS) for side, letter in enumerate(pair)}
Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """How a file's axes become the study's: axis `order[n]` of the file, reversed where `flip[n]`.

    Args:
        order: The file's axis for each of the study's.
        flip: Whether that axis is reversed.

    Example:
        >>> Turn(order=(2, 1, 0)).three((256, 256, 60))
        (60, 256, 256)
    """

    order: tuple[int, int, int] = (0, 1, 2)
    flip: tuple[bool, bool, bool] = (False, False, False)

    def volume(self, array: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Return a view of the file's array in the study's axes.

        Args:
            array: In the file's axes.

        Returns:
            In the study's axes.
        """
        turned = array.transpose(self.order)
        return turned[tuple(slice(None, None, -1 if flip else 1) for flip in self.flip)]

    def back(self, array: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """Return a view of the study's array in the file's axes.

        Args:
            array: In the study's axes.

        Returns:
            In the file's axes.
        """
        flipped = array[tuple(slice(None, None, -1 if flip else 1) for flip in self.flip)]
        return flipped.transpose(np.argsort(self.order))

    def three(self, values: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """Return one value per axis (shape, spacing) in the study's order.

        Args:
            values: In the file's order.

        Returns:
            In the study's order.
        """
        a, b, c = self.order
        return values[a], values[b], values[c]

    def affine(self, affine: npt.NDArray[np.float64], shape: tuple[int, int, int]) -> npt.NDArray[np.float64]:
        """Return the map from the study's voxel index to mm.

        Args:
            affine: From the file's voxel index to mm.
            shape: Of the file.

        Returns:
            [4, 4].
        """
        step = np.zeros((4, 4))
        step[3, 3] = 1.0
        for new, (old, flip) in enumerate(zip(self.order, self.flip, strict=True)):
            step[old, new] = -1.0 if flip else 1.0
            step[old, 3] = shape[old] - 1 if flip else 0.0
        return affine @ step

    def box(self, box: Box, shape: tuple[int, int, int]) -> Box:
        """Return a half-open box of the file's grid in the study's.

        Args:
            box: In the file's axes.
            shape: Of the file.

        Returns:
            In the study's axes.
        """
        low: list[int] = []
        high: list[int] = []
        for old, flip in zip(self.order, self.flip, strict=True):
            first, last = box[old], box[old + 3]
            low.append(shape[old] - last if flip else first)
            high.append(shape[old] - first if flip else last)
        return low[0], low[1], low[2], high[0], high[1], high[2]

    def box_back(self, box: Box, shape: tuple[int, int, int]) -> Box:
        """Return a half-open box of the study's grid in the file's.

        Args:
            box: In the study's axes.
            shape: Of the file.

        Returns:
            In the file's axes.
        """
        ends = [0] * 6
        for new, (old, flip) in enumerate(zip(self.order, self.flip, strict=True)):
            first, last = box[new], box[new + 3]
            ends[old] = shape[old] - last if flip else first
            ends[old + 3] = shape[old] - first if flip else last
        return ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]


def axis_letters(affine: npt.NDArray[np.float64]) -> str:
    """Return where each axis of the file mostly points, "LAS" and the like.

    Oblique volumes get the nearest axes. The clearest axis is assigned first, so that the letters do not
    depend on the file's order of axes.

    Args:
        affine: Voxel index to mm.

    Returns:
        Three letters.

    Example:
        >>> axis_letters(np.diag([-1.0, 1.0, 1.0, 1.0]))
        'LAS'
    """
    part = affine[:3, :3]
    lengths = np.sqrt((part**2).sum(axis=0))
    left, sizes, right = np.linalg.svd(part / np.where(lengths == 0, 1.0, lengths))
    keep = sizes > sizes.max() * 3 * np.finfo(np.float64).eps
    turn = left[:, keep] @ right[keep]
    letters = [""] * 3
    free = np.ones(3, dtype=bool)
    for axis in np.argsort(-np.abs(turn).max(axis=0), kind="stable"):
        # of a nearly flat affine an axis may point nowhere: it gets the direction that is left
        world = int(np.argmax(np.where(free, np.abs(turn[:, axis]), -1.0)))
        letters[axis] = _LETTERS[world][0 if turn[world, axis] < 0 else 1]
        free[world] = False
    return "".join(letters)


def plane_of(letters: str) -> str:
    """Return the plane of a file's slices, which are along its third axis.

    Args:
        letters: Where each axis of the file points, from `axis_letters`.

    Returns:
        "sagittal" where the third axis runs from side to side, else "axial".

    Example:
        >>> plane_of("LAS"), plane_of("PSR")
        ('axial', 'sagittal')
    """
    return SAGITTAL if letters[2] in "LR" else AXIAL


def turn_to(letters: str, target: str) -> Turn:
    """Return the turn that makes axes of `letters` axes of `target`.

    Args:
        letters: Of the file.
        target: Of the study.

    Returns:
        The turn.

    Example:
        >>> turn_to("RAS", "LAS").flip
        (True, False, False)
    """
    at = {_WORLD[letter][0]: n for n, letter in enumerate(letters)}
    order = [at[_WORLD[letter][0]] for letter in target]
    flip = [_WORLD[letter][1] != _WORLD[letters[old]][1] for letter, old in zip(target, order, strict=True)]
    return Turn(order=(order[0], order[1], order[2]), flip=(flip[0], flip[1], flip[2]))
