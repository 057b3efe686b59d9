"""Where a phantom's voxels lie in the body, and smooth fields over them.

Anatomy is drawn in millimetres: `u` towards the patient's left from the midline, `a` forward from the chest
wall, `s` upward from the nipples. Fields are made on a coarse lattice and interpolated to the voxels slab by
slab, so that a volume of real size needs neither its own size in memory nor a fine random draw.
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
"""Body axis and direction of each voxel axis: LAS for axial volumes, PSR for sagittal ones (MRI-01)."""
SLAB_VOXELS = 1_500_000


@dataclass(frozen=True)
class Frame:
    """The voxel grid in the body.

    Args:
        plane: 'axial' or 'sagittal'.
        shape: Number of voxels along each voxel axis.
        spacing_mm: Size of a voxel along each voxel axis in mm.
        centre_mm: u, a, s of the middle of the field of view in mm.

    Example:
        >>> frame = Frame("axial", (4, 3, 2), (1.0, 1.0, 2.0), (0.0, 0.0, 0.0))
        >>> frame.axis_mm(0).tolist()
        [-1.5, -0.5, 0.5, 1.5]
        >>> frame.box((-1, -1, 0), (1, 0, 9))
        ((1, 3), (0, 2), (1, 2))
    """

    plane: str
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    centre_mm: tuple[float, float, float]

    def axis_mm(self, axis: int) -> npt.NDArray[np.float64]:
        """Compute the body coordinate of every voxel along a voxel axis.

        Args:
            axis: The voxel axis: 0, 1 or 2.

        Returns:
            Coordinates in mm; they fall where the axis runs against the body's.
        """
        body, sign = _AXES[self.plane][axis]
        n = self.shape[axis]
        steps = (np.arange(n, dtype=np.float64) - (n - 1) / 2) * self.spacing_mm[axis]
        made: npt.NDArray[np.float64] = np.asarray(self.centre_mm[body] + sign * steps, dtype=np.float64)
        return made

    def body_axes(self) -> tuple[int, int, int]:
        """Find the voxel axes along which u, a and s run.

        Returns:
            Three voxel axes, in the order u, a, s.
        """
        order = [body for body, _ in _AXES[self.plane]]
        return order.index(U), order.index(A), order.index(S)

    @cached_property
    def affine(self) -> npt.NDArray[np.float64]:
        """Voxel to millimetres, +x right, +y forward, +z up, as NIfTI states it."""
        world = np.eye(4)
        world[:3, :3] = 0
        for axis, (body, sign) in enumerate(_AXES[self.plane]):
            right = -1 if body == U else 1
            world[body, axis] = right * sign * self.spacing_mm[axis]
            world[body, 3] = right * self.axis_mm(axis)[0]
        return world

    def span(self, body: int, low_mm: float, high_mm: float) -> tuple[int, Span]:
        """Find the voxels whose centres lie between two coordinates of a body axis.

        Args:
            body: The body axis: `U`, `A` or `S`.
            low_mm: The smaller coordinate in mm.
            high_mm: The larger coordinate in mm.

        Returns:
            The voxel axis, and the first voxel with the one after the last; the voxel nearest the middle if
            none lies between.
        """
        axis = self.body_axes()[body]
        at = self.axis_mm(axis)
        inside = np.flatnonzero((at >= low_mm) & (at <= high_mm))
        if not len(inside):
            nearest = int(np.abs(at - (low_mm + high_mm) / 2).argmin())
            return axis, (nearest, nearest + 1)
        return axis, (int(inside[0]), int(inside[-1]) + 1)

    def box(self, low_mm: tuple[float, ...], high_mm: tuple[float, ...]) -> tuple[Span, Span, Span]:
        """Find the voxels between two corners.

        Args:
            low_mm: u, a, s of the low corner in mm.
            high_mm: u, a, s of the high corner in mm.

        Returns:
            One span of voxels per voxel axis, never empty.
        """
        spans: list[Span] = [(0, 0)] * 3
        for body in (U, A, S):
            axis, span = self.span(body, low_mm[body], high_mm[body])
            spans[axis] = span
        return spans[0], spans[1], spans[2]

    @property
    def whole(self) -> tuple[Span, Span, Span]:
        """The box of all voxels."""
        x, y, z = self.shape
        return (0, x), (0, y), (0, z)

    def coordinates(self, box: tuple[Span, Span, Span]) -> tuple[Field, Field, Field]:
        """Compute u, a and s of the voxels of a box, each along its own axis alone.

        Args:
            box: One span of voxels per voxel axis.

        Returns:
            Three arrays in mm that broadcast to the shape of the box.
        """
        return _along(self, [self.axis_mm(axis)[slice(*box[axis])] for axis in range(3)])

    def slabs(self) -> Iterator[Span]:
        """Cut the volume along its first axis.

        The same shape gives the same cuts, so that the noise is the same too.

        Yields:
            First voxel of the first axis and the one after the last, for slabs of about `SLAB_VOXELS` voxels.
        """
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
    """A coarse grid over a box of voxels; never finer than the voxels.

    Args:
        frame: The voxel grid.
        box: One span of voxels per voxel axis: what the lattice covers.
        step_mm: The wanted distance of neighbouring points in mm; it is made a little smaller so that the
            ends meet.
    """

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
        """Draw a smooth random field of mean 0 and standard deviation 1, correlated over about `sigma_mm`.

        Args:
            sigma_mm: The correlation length in mm.
            rng: The patient's generator.

        Returns:
            The field, with the shape of the lattice.
        """
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
        """Prepare a field on the lattice for reading at the voxels.

        Args:
            low: The values, of a shape that broadcasts to the lattice's.

        Returns:
            A reader that interpolates one slab at a time.
        """
        return Up(self, low)


def interpolated(values: Field, positions: npt.NDArray[np.float64], axis: int) -> Field:
    """Interpolate linearly along one axis.

    Args:
        values: The values at the positions 0, 1, 2...
        positions: Where to interpolate, rising, from 0 to the last index.
        axis: The axis of `values`.

    Returns:
        An array of `len(positions)` along the axis; `values` itself where nothing needs to be interpolated.

    Example:
        >>> interpolated(np.array([0.0, 2.0], dtype=np.float32), np.array([0.0, 0.5, 1.0]), 0).tolist()
        [0.0, 1.0, 2.0]
    """
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
    """A lattice's field at the voxels, computed one slab at a time.

    Args:
        lattice: The lattice.
        low: The field's values, of a shape that broadcasts to the lattice's.
    """

    def __init__(self, lattice: Lattice, low: Field) -> None:
        self.lattice = lattice
        low = np.broadcast_to(low, lattice.shape).astype(np.float32, copy=False)
        self.low = interpolated(low, lattice.positions[2], 2)

    def block(self, start: int, stop: int) -> Field:
        """Compute the field at the voxels `start` to `stop` of the first axis.

        Voxels are counted inside the lattice's box.

        Args:
            start: The first voxel.
            stop: The voxel after the last.

        Returns:
            The values, with the box's shape along the other two axes.
        """
        first = interpolated(self.low, self.lattice.positions[0][start:stop], 0)
        return interpolated(first, self.lattice.positions[1], 1)

    def full(self) -> Field:
        """Compute the field at all voxels of the lattice's box.

        Returns:
            The values, with the shape of the box.
        """
        return self.block(0, len(self.lattice.positions[0]))


def soft(distance: Field, width: float) -> Field:
    """Compute how much of a voxel of this width lies inside a surface at this distance (positive inside).

    Args:
        distance: The distance of the voxel's centre to the surface in mm.
        width: The width of the voxel, or of a softer edge, in mm.

    Returns:
        Parts from 0 to 1.

    Example:
        >>> soft(np.array([-1.0, 0.0, 1.0], dtype=np.float32), 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    part = distance * np.float32(1 / width)
    part += np.float32(0.5)
    return np.clip(part, 0, 1, out=part)


def step(value: Field, low: float, high: float) -> Field:
    """Rise from 0 below `low` to 1 above `high`, smoothly between.

    Args:
        value: The values.
        low: Where the rise begins.
        high: Where the rise ends, above `low`.

    Returns:
        Values from 0 to 1.

    Example:
        >>> step(np.array([-1.0, 5.0, 20.0], dtype=np.float32), 0, 10).tolist()
        [0.0, 0.5, 1.0]
    """
    part = np.clip((value - np.float32(low)) / np.float32(high - low), 0, 1)
    return part * part * (3 - 2 * part)


def union(one: Field, other: Field, blend_mm: float) -> Field:
    """Compute the distance to two bodies that flow into each other.

    Args:
        one: The distance to the first body in mm, positive inside.
        other: The distance to the second body in mm, positive inside.
        blend_mm: How far apart two surfaces still affect each other, in mm.

    Returns:
        The larger distance, raised a little where both are alike.

    Example:
        >>> union(np.array([4.0, 0.0]), np.array([-4.0, 0.0]), 2.0).tolist()
        [4.0, 0.5]
    """
    h = np.clip(0.5 + (one - other) / np.float32(2 * blend_mm), 0, 1)
    return other + (one - other) * h + np.float32(blend_mm) * h * (1 - h)


def ellipsoid(
    u: Field, a: Field, s: Field, centre: tuple[float, float, float], radii: tuple[float, float, float]
) -> Field:
    """Compute the approximate distance in mm to an ellipsoid's surface, positive inside.

    Args:
        u: Coordinates towards the patient's left in mm.
        a: Coordinates forward in mm.
        s: Coordinates upward in mm.
        centre: u, a, s of the centre in mm.
        radii: The half axes along u, a and s in mm.

    Returns:
        The distance, at most the smallest radius.

    Example:
        >>> line = np.array([0.0, 5.0, 7.0])
        >>> ellipsoid(line, 0 * line, 0 * line, (0, 0, 0), (5, 6, 8)).round(3).tolist()
        [5.0, 0.0, -2.0]
    """
    parts = [
        ((x - np.float32(c)) / np.float32(r), r) for x, c, r in zip((u, a, s), centre, radii, strict=True)
    ]
    square = sum(x * x for x, _ in parts)
    slope = sum((x / np.float32(r)) ** 2 for x, r in parts)
    rho = np.sqrt(np.maximum(square, np.float32(1e-6)))
    made = (1 - rho) * rho / np.sqrt(np.maximum(slope, np.float32(1e-9)))
    return np.minimum(made, np.float32(min(radii))).astype(np.float32, copy=False)
