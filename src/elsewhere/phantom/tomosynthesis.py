"""Synthetic breast tomosynthesis with a known truth: the volume of one view, and worlds of many.

It needs numpy and scipy only, so that volumes can be made where they are used, on a machine that reads no
files. A volume depends on (seed, vendor, patient, view) alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elsewhere.phantom.tomosynthesis_lesions import Lesion, Thing, draw_lesions, draw_lookalikes, place
from elsewhere.phantom.tomosynthesis_patients import Case
from elsewhere.phantom.tomosynthesis_tissue import (
    Field,
    Frame,
    Outline,
    Skin,
    draw_outline,
    draw_tissue,
    frame_of,
    grain_of,
    skin_of,
    upsampled,
)

Pixels = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Phantom:
    """One drawn volume, before its slices are made.

    Boxes lie in corrected coordinates, in pixels of this volume: the chest wall of a left breast is at the
    first column, that of a right breast at the last one (DBT-01a).

    Args:
        case: The volume's specification.
        frame: Its grids.
        outline: The outline of the breast, as if it were a left one.
        lesions: The lesions with boxes, in the order of the table.
        things: All that is added to the tissue, as if the breast were a left one.
    """

    case: Case
    frame: Frame
    outline: Outline
    lesions: tuple[Lesion, ...]
    things: tuple[Thing, ...]
    _tissue: Field
    _skin: Skin
    _grain: Field

    @property
    def shape(self) -> tuple[int, int, int]:
        """Slices, rows and columns."""
        return self.frame.slices, self.frame.rows, self.frame.columns

    @property
    def window(self) -> tuple[float, float]:
        """Centre and width of the window."""
        return self.case.vendor.window

    def slice(self, z: int) -> Pixels:
        """Make one slice; the same bits whichever slices were made before.

        Args:
            z: The slice, from 0.

        Returns:
            The stored values, by row and column.
        """
        outline, (high, wide) = self.outline, self.outline.shape
        value = upsampled(self._tissue[z], self.frame.coarse, high, wide)
        for thing in self.things:
            place(thing, z, value)
        rng = self.case.generator(f"slice {z}")
        dy, dx = (
            int(rng.integers(0, n - m + 1)) for n, m in zip(self._grain.shape, (high, wide), strict=True)
        )
        grain = self._grain[dy : dy + high, dx : dx + wide]
        turn = int(rng.integers(4))
        value += grain[:: 1 - 2 * (turn & 1), :: 1 - (turn & 2)]
        centre, width = self.window
        low, step = centre - width / 2, width / 255
        made = np.zeros((self.frame.rows, self.frame.columns), dtype=np.uint16)
        largest = np.float32(2**self.case.vendor.bits - 1)
        # in strips, which stay in the processor's cache
        for y in range(0, high, 96):
            part = value[y : y + 96]
            index = self._skin.index[y : y + 96]
            part *= self._skin.share[index]
            part += self._skin.glow[index]
            part *= np.float32(step)
            part += np.float32(low + 0.5)
            part *= index > 0
            np.clip(part, 0, largest, out=part)
            y0, x0 = outline.rows[0] + y, outline.columns[0]
            made[y0 : y0 + len(part), x0 : x0 + wide] = part
        return made if self.case.view.startswith("l") else np.ascontiguousarray(made[:, ::-1])

    def slices(self) -> Iterator[Pixels]:
        """Make the slices one after the other.

        Yields:
            The stored values of each slice.
        """
        for z in range(self.frame.slices):
            yield self.slice(z)

    def volume(self) -> Pixels:
        """Make the whole volume.

        Returns:
            The stored values, by slice, row and column.
        """
        made = np.empty(self.shape, dtype=np.uint16)
        for z, plane in enumerate(self.slices()):
            made[z] = plane
        return made


def draw(case: Case) -> Phantom:
    """Draw one volume; its slices are made when they are asked for.

    Args:
        case: The volume's specification.

    Returns:
        The volume.

    Example:
        >>> from elsewhere.phantom.tomosynthesis_patients import World
        >>> phantom = draw(World(patients=1).cases()[0])
        >>> phantom.slice(0).dtype, phantom.volume().shape == phantom.shape
        (dtype('uint16'), True)
    """
    frame = frame_of(case)
    outline = draw_outline(case, frame, case.generator("outline"))
    tissue, room = draw_tissue(case, frame, outline, case.generator("tissue"))
    lookalikes = draw_lookalikes(case, frame, outline, room)
    things, lesions = draw_lesions(case, frame, outline, tissue, room)
    if not case.view.startswith("l"):
        lesions = [_mirrored(lesion, frame.columns) for lesion in lesions]
    return Phantom(
        case,
        frame,
        outline,
        tuple(lesions),
        tuple(lookalikes + things),
        tissue,
        skin_of(outline, frame, case.generator("skin")),
        grain_of(case, frame, outline.shape, case.generator("grain")),
    )


def _mirrored(lesion: Lesion, columns: int) -> Lesion:
    x, y, z = lesion.brightest
    return replace(lesion, x=columns - lesion.x - lesion.width, brightest=(columns - 1 - x, y, z))
