"""Orientation by axis flips and permutations alone (MRI-01): axial volumes to LAS, sagittal ones to PSR.

A letter says where an axis points as its index grows: L is left, A anterior, S superior. Voxels are moved, never
made: what is brought to its orientation goes back to the file's own grid bit for bit.
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
    """How a file's axes become the study's: axis `order[n]` of the file, turned round where `flip[n]`."""

    order: tuple[int, int, int] = (0, 1, 2)
    flip: tuple[bool, bool, bool] = (False, False, False)

    def volume(self, array: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """A view of the file's array in the study's axes."""
        turned = array.transpose(self.order)
        return turned[tuple(slice(None, None, -1 if flip else 1) for flip in self.flip)]

    def back(self, array: npt.NDArray[Value]) -> npt.NDArray[Value]:
        """A view of the study's array in the file's axes."""
        flipped = array[tuple(slice(None, None, -1 if flip else 1) for flip in self.flip)]
        return flipped.transpose(np.argsort(self.order))

    def three(self, values: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        """One value an axis (shape, spacing), in the study's order."""
        a, b, c = self.order
        return values[a], values[b], values[c]

    def affine(self, affine: npt.NDArray[np.float64], shape: tuple[int, int, int]) -> npt.NDArray[np.float64]:
        """Study index to mm, from the file's affine and shape."""
        step = np.zeros((4, 4))
        step[3, 3] = 1.0
        for new, (old, flip) in enumerate(zip(self.order, self.flip, strict=True)):
            step[old, new] = -1.0 if flip else 1.0
            step[old, 3] = shape[old] - 1 if flip else 0.0
        return affine @ step

    def box(self, box: Box, shape: tuple[int, int, int]) -> Box:
        """A half-open box of the file's grid, in the study's."""
        low: list[int] = []
        high: list[int] = []
        for old, flip in zip(self.order, self.flip, strict=True):
            first, last = box[old], box[old + 3]
            low.append(shape[old] - last if flip else first)
            high.append(shape[old] - first if flip else last)
        return low[0], low[1], low[2], high[0], high[1], high[2]

    def box_back(self, box: Box, shape: tuple[int, int, int]) -> Box:
        """A half-open box of the study's grid, in the file's (`shape` is the file's)."""
        ends = [0] * 6
        for new, (old, flip) in enumerate(zip(self.order, self.flip, strict=True)):
            first, last = box[new], box[new + 3]
            ends[old] = shape[old] - last if flip else first
            ends[old + 3] = shape[old] - first if flip else last
        return ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]


def axis_letters(affine: npt.NDArray[np.float64]) -> str:
    """'LAS' and the like: where each axis of the file mostly points. Oblique volumes get the nearest axes, the
    surest axis first, so that the letters do not depend on the file's order of axes."""
    part = affine[:3, :3]
    lengths = np.sqrt((part**2).sum(axis=0))
    left, sizes, right = np.linalg.svd(part / np.where(lengths == 0, 1.0, lengths))
    keep = sizes > sizes.max() * 3 * np.finfo(np.float64).eps
    turn = left[:, keep] @ right[keep]
    letters = [""] * 3
    for axis in np.argsort(-np.abs(turn).max(axis=0), kind="stable"):
        world = int(np.argmax(np.abs(turn[:, axis])))
        letters[axis] = _LETTERS[world][0 if turn[world, axis] < 0 else 1]
        turn[world] = 0.0
    return "".join(letters)


def plane_of(letters: str) -> str:
    """Slices are along the third axis of a file: sagittal where it runs from side to side, else axial."""
    return SAGITTAL if letters[2] in "LR" else AXIAL


def turn_to(letters: str, target: str) -> Turn:
    """The turn that makes axes of `letters` axes of `target`."""
    at = {_WORLD[letter][0]: n for n, letter in enumerate(letters)}
    order = [at[_WORLD[letter][0]] for letter in target]
    flip = [_WORLD[letter][1] != _WORLD[letters[old]][1] for letter, old in zip(target, order, strict=True)]
    return Turn(order=(order[0], order[1], order[2]), flip=(flip[0], flip[1], flip[2]))
