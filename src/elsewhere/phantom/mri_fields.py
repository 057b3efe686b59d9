"""Where a phantom's voxels lie in the body, and smooth fields over them.

Anatomy is drawn in millimetres: `u` towards the patient's left from the midline, `a` forward from the chest
wall, `s` upward from the nipples. Fields are made on a coarse lattice and brought to the voxels a slab at a
time, so that a volume of real size costs neither its own size in memory nor a fine random draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Field = npt.NDArray[np.float32]
Span = tuple[int, int]
"""First voxel and the one after the last."""
U, A, S = 0, 1, 2
_AXES = {"axial": ((U, 1), (A, 1), (S, 1)), "sagittal": ((A, -1), (S, 1), (U, -1))}
"""Per voxel axis the body axis and its direction: LAS for axial volumes, PSR for sagittal ones (MRI-01)."""
SLAB_VOXELS = 1_500_000


@dataclass(frozen=True)
class Frame:
    """The voxel grid in the body."""

    plane: str
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    centre_mm: tuple[float, float, float]
    """u, a, s of the middle of the field of view."""

    def axis_mm(self, axis: int) -> npt.NDArray[np.float64]:
        """The body coordinate of every voxel along a voxel axis."""
        body, sign = _AXES[self.plane][axis]
        n = self.shape[axis]
        steps = (np.arange(n, dtype=np.float64) - (n - 1) / 2) * self.spacing_mm[axis]
        made: npt.NDArray[np.float64] = np.asarray(self.centre_mm[body] + sign * steps, dtype=np.float64)
        return made

    def body_axes(self) -> tuple[int, int, int]:
        """The voxel axis along which u, a and s run."""
        order = [body for body, _ in _AXES[self.plane]]
        return order.index(U), order.index(A), order.index(S)

    @cached_property
    def affine(self) -> npt.NDArray[np.float64]:
        """Voxel to millimetres, +x right, +y forward, +z up, as NIfTI says it."""
        world = np.eye(4)
        world[:3, :3] = 0
        for axis, (body, sign) in enumerate(_AXES[self.plane]):
            right = -1 if body == U else 1
            world[body, axis] = right * sign * self.spacing_mm[axis]
            world[body, 3] = right * self.axis_mm(axis)[0]
        return world

    def span(self, body: int, low_mm: float, high_mm: float) -> tuple[int, Span]:
        """The voxel axis of a body axis, and the voxels whose centres lie between two coordinates on it."""
        axis = self.body_axes()[body]
        at = self.axis_mm(axis)
        inside = np.flatnonzero((at >= low_mm) & (at <= high_mm))
        if not len(inside):
            nearest = int(np.abs(at - (low_mm + high_mm) / 2).argmin())
            return axis, (nearest, nearest + 1)
        return axis, (int(inside[0]), int(inside[-1]) + 1)

    def box(self, low_mm: tuple[float, ...], high_mm: tuple[float, ...]) -> tuple[Span, Span, Span]:
        """The voxels between two corners u, a, s."""
        spans: list[Span] = [(0, 0)] * 3
        for body in (U, A, S):
            axis, span = self.span(body, low_mm[body], high_mm[body])
            spans[axis] = span
        return spans[0], spans[1], spans[2]

    @property
    def whole(self) -> tuple[Span, Span, Span]:
        x, y, z = self.shape
        return (0, x), (0, y), (0, z)

    def coordinates(self, box: tuple[Span, Span, Span]) -> tuple[Field, Field, Field]:
        """u, a, s of a box's voxels, each along its own axis alone."""
        return _along(self, [self.axis_mm(axis)[slice(*box[axis])] for axis in range(3)])

    def slabs(self) -> Iterator[Span]:
        """Along the first axis; the same cuts for the same shape, so that noise is too."""
        x, y, z = self.shape
        step = max(1, SLAB_VOXELS // (y * z))
        for start in range(0, x, step):
            yield start, min(x, start + step)


def _along(frame: Frame, at: list[npt.NDArray[np.float64]]) -> tuple[Field, Field, Field]:
    found = []
    for axis in frame.body_axes():
        shape = [1, 1, 1]
        shape[axis] = -1
        found.append(at[axis].astype(np.float32).reshape(shape))
    return found[0], found[1], found[2]


class Lattice:
    """A coarse grid over a box of voxels; never finer than the voxels."""

    def __init__(self, frame: Frame, box: tuple[Span, Span, Span], step_mm: float) -> None:
        self.frame, self.box = frame, box
        counts = []
        for axis in range(3):
            n = box[axis][1] - box[axis][0]
            extent = (n - 1) * frame.spacing_mm[axis]
            counts.append(min(n, int(np.ceil(extent / step_mm)) + 1) if n > 1 else 1)
        self.shape = (counts[0], counts[1], counts[2])
        voxels = [box[axis][1] - box[axis][0] for axis in range(3)]
        self.positions = [np.linspace(0, counts[axis] - 1, voxels[axis]) for axis in range(3)]
        at = [frame.axis_mm(axis)[slice(*box[axis])] for axis in range(3)]
        self.at = [np.linspace(at[axis][0], at[axis][-1], counts[axis]) for axis in range(3)]
        self.u, self.a, self.s = _along(frame, self.at)
        self.step_mm = tuple(
            abs(self.at[axis][1] - self.at[axis][0]) if counts[axis] > 1 else frame.spacing_mm[axis]
            for axis in range(3)
        )

    def noise(self, sigma_mm: float, rng: np.random.Generator) -> Field:
        """A smooth random field of mean 0 and deviation 1, correlated over about `sigma_mm`."""
        counts, sigmas, positions = [], [], []
        for axis in range(3):
            extent = (self.shape[axis] - 1) * self.step_mm[axis]
            step = max(self.step_mm[axis], sigma_mm / 1.6)
            n = max(2, int(np.ceil(extent / step)) + 1)
            counts.append(n)
            sigmas.append(sigma_mm * (n - 1) / max(extent, 1e-6))
            positions.append(np.linspace(0, n - 1, self.shape[axis]))
        white = rng.standard_normal(counts, dtype=np.float32)
        white = ndimage.gaussian_filter(white, [min(s, 4.0) for s in sigmas], mode="wrap", truncate=3.0)
        white -= white.mean()
        white /= max(float(white.std()), 1e-6)
        for axis in range(3):
            white = interpolated(white, positions[axis], axis)
        return white

    def up(self, low: Field) -> Up:
        return Up(self, low)


def interpolated(values: Field, positions: npt.NDArray[np.float64], axis: int) -> Field:
    """Linear along one axis."""
    n = values.shape[axis]
    if n == 1:
        return np.repeat(values, len(positions), axis=axis)
    if n == len(positions) and positions[-1] == n - 1:
        return values
    first = np.minimum(positions.astype(np.intp), n - 2)
    part = (positions - first).astype(np.float32)
    shape = [1] * values.ndim
    shape[axis] = -1
    part = part.reshape(shape)
    made = np.take(values, first + 1, axis=axis)
    below = np.take(values, first, axis=axis)
    made -= below
    made *= part
    made += below
    return made


class Up:
    """A lattice's field at the voxels, a slab at a time."""

    def __init__(self, lattice: Lattice, low: Field) -> None:
        self.lattice = lattice
        low = np.broadcast_to(low, lattice.shape).astype(np.float32, copy=False)
        self.low = interpolated(low, lattice.positions[2], 2)

    def block(self, start: int, stop: int) -> Field:
        """Voxels `start` to `stop` of the first axis, counted inside the lattice's box."""
        first = interpolated(self.low, self.lattice.positions[0][start:stop], 0)
        return interpolated(first, self.lattice.positions[1], 1)

    def full(self) -> Field:
        return self.block(0, len(self.lattice.positions[0]))


def soft(distance: Field, width: float) -> Field:
    """How much of a voxel of this width lies inside a surface at this distance (positive inside)."""
    part = distance * np.float32(1 / width)
    part += np.float32(0.5)
    return np.clip(part, 0, 1, out=part)


def step(value: Field, low: float, high: float) -> Field:
    """0 below `low`, 1 above `high`, smooth between."""
    part = np.clip((value - np.float32(low)) / np.float32(high - low), 0, 1)
    return part * part * (3 - 2 * part)


def union(one: Field, other: Field, blend_mm: float) -> Field:
    """The distance to two bodies that flow into each other."""
    h = np.clip(0.5 + (one - other) / np.float32(2 * blend_mm), 0, 1)
    return other + (one - other) * h + np.float32(blend_mm) * h * (1 - h)


def ellipsoid(
    u: Field, a: Field, s: Field, centre: tuple[float, float, float], radii: tuple[float, float, float]
) -> Field:
    """About the distance in millimetres to an ellipsoid's surface, positive inside."""
    parts = [
        ((x - np.float32(c)) / np.float32(r), r) for x, c, r in zip((u, a, s), centre, radii, strict=True)
    ]
    square = sum(x * x for x, _ in parts)
    slope = sum((x / np.float32(r)) ** 2 for x, r in parts)
    rho = np.sqrt(np.maximum(square, np.float32(1e-6)))
    made = (1 - rho) * rho / np.sqrt(np.maximum(slope, np.float32(1e-9)))
    return np.minimum(made, np.float32(min(radii))).astype(np.float32, copy=False)
