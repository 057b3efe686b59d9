"""Volumes in memory, with bright discs as lesions, shown as a source shows them to a recipe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ToyLesion:
    x: float
    y: float
    width: float
    height: float
    slice: int
    kind: str = "cancer"
    distortion: bool = False


class ToyView:
    """Half of a breast per volume: an ellipse of tissue, noise, and discs that fade over the slices.

    Every second volume is of the right side. The breast's box is smaller than the volume, and `reduced` stores
    slices at a lower resolution.
    """

    def __init__(self, n=6, *, seed=0, normals=0, actionable=0, size=(160, 128, 9), reduced=1, hidden=()):
        rng = np.random.default_rng(seed)
        self._size, self._reduced, self._hidden = size, reduced, set(hidden)
        self.volumes, self._lesions, self._findings = {}, {}, {}
        rows, columns, slices = size
        self._box = (8, 16, columns - 8, rows - 16)
        kinds = (
            ["cancer" if at % 3 else "benign" for at in range(n)]
            + ["normal"] * normals
            + ["actionable"] * actionable
        )
        for at, finding in enumerate(kinds):
            case = f"T/{at:03d}"
            lesion = ()
            if finding in ("cancer", "benign"):
                radius = int(rng.integers(10, 15))
                x, y = rng.integers(40, columns - 40), rng.integers(48, rows - 48)
                z = int(rng.integers(2, slices - 2))
                lesion = (ToyLesion(x - radius, y - radius, 2 * radius, 2 * radius, z, finding),)
            self._findings[case], self._lesions[case] = finding, lesion
            self.volumes[case] = self._make(rng, lesion)

    def _make(self, rng, lesions):
        rows, columns, slices = self._size
        y, x = np.mgrid[:rows, :columns]
        volume = np.empty((slices, rows, columns), dtype=np.uint16)
        for z in range(slices):
            picture = 300 + 30 * rng.standard_normal((rows, columns))
            for one in lesions:
                away = np.hypot(x + 0.5 - one.x - one.width / 2, y + 0.5 - one.y - one.height / 2)
                picture += 400 * (away < one.width / 2) * max(0.0, 1 - abs(z - one.slice) / 6)
            volume[z] = np.clip(picture, 1, 1023)
        return volume

    @property
    def cases(self):
        return list(self.volumes)

    def __contains__(self, case):
        return case in self.volumes

    def shape(self, case):
        return self._size

    def breast(self, case):
        return self._box

    def slice(self, case, z):
        x0, y0, x1, y1 = self._box
        found = self.volumes[case][z, y0:y1, x0:x1]
        step = self._reduced
        if step == 1:
            return found
        high, wide = (size // step * step for size in found.shape)
        return (
            found[:high, :wide].reshape(high // step, step, wide // step, step).mean((1, 3)).astype(np.uint16)
        )

    def window(self, case):
        return (0.0, 1000.0)

    def side(self, case):
        return "right" if int(case[-1]) % 2 else "left"

    def scale(self, case):
        return float(self._reduced)

    def lesions(self, case):
        return None if case in self._hidden else self._lesions[case]

    def finding(self, case):
        return None if case in self._hidden else self._findings[case]
