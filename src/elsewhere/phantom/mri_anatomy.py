"""The body of a phantom: chest, breasts, skin, fibroglandular tissue, vessels, heart, implants.

Everything is in millimetres and does not know the voxels. Distances are positive inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from elsewhere.phantom.mri_fields import Field, Frame, Lattice, ellipsoid, soft, step, union

COARSE_MM, TISSUE_MM = 3.0, 1.3
_PECTORAL_MM = 10.0


@dataclass(frozen=True, kw_only=True)
class Breast:
    """A breast: half an ellipsoid that hangs forward from the chest wall.

    Args:
        side: 'left' or 'right'.
        centre: u, a, s of the ellipsoid's centre in mm, near the chest wall.
        radii: Half axes of the ellipsoid along u, a and s in mm.
    """

    side: str
    centre: tuple[float, float, float]
    radii: tuple[float, float, float]

    @property
    def nipple(self) -> tuple[float, float, float]:
        """u, a, s of the nipple in mm."""
        u, a, s = self.centre
        return u, a + self.radii[1], s

    def distance(self, u: Field, a: Field, s: Field) -> Field:
        """Compute the distance to the surface of the ellipsoid, positive inside.

        Args:
            u: Coordinates towards the patient's left in mm.
            a: Coordinates forward in mm, of a shape that broadcasts with `u`.
            s: Coordinates upward in mm, of a shape that broadcasts with `u`.

        Returns:
            The approximate distance in mm, at most the smallest radius.
        """
        return ellipsoid(u, a, s, self.centre, self.radii)

    def bounds(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Return two corners of a box that holds the breast in front of the chest wall.

        Returns:
            The low and the high corner as u, a, s in mm; the box does not cross the midline.
        """
        (u, a, s), (ru, ra, rs) = self.centre, self.radii
        margin = 8.0
        low = (u - ru - margin, a - 12.0, s - rs - margin)
        high = (u + ru + margin, a + ra + margin, s + rs + margin)
        inner = 2.0
        if self.side == "left":
            low = (max(low[0], inner), low[1], low[2])
        else:
            high = (min(high[0], -inner), high[1], high[2])
        return low, high


@dataclass(frozen=True, kw_only=True)
class Body:
    """One woman, prone.

    Args:
        chest: Half width and half depth of the rib cage in mm.
        under_skin_mm: Thickness of the fat between the muscle and the skin where there is no breast.
        skin_mm: Thickness of the skin.
        breasts: The left and the right breast.
        implants: Centre and radii of each implant in mm; empty if there is none.
    """

    chest: tuple[float, float]
    under_skin_mm: float
    skin_mm: float
    breasts: tuple[Breast, Breast]
    implants: tuple[tuple[tuple[float, float, float], tuple[float, float, float]], ...] = ()

    def breast(self, side: str) -> Breast:
        """Return the breast of one side.

        Args:
            side: 'left'; anything else is the right side.

        Returns:
            The breast.
        """
        return self.breasts[0] if side == "left" else self.breasts[1]

    def cage(self, u: Field, a: Field, s: Field) -> Field:
        """Compute the distance to the rib cage, an upright barrel that narrows towards its ends.

        Args:
            u: Coordinates towards the patient's left in mm.
            a: Coordinates forward in mm.
            s: Coordinates upward in mm.

        Returns:
            The distance in mm, positive inside, at most 60.
        """
        wide, deep = self.chest
        narrow = 1 - 0.0000045 * np.square(s + 40)
        x, y = u / np.float32(wide) / narrow, (a + np.float32(deep)) / np.float32(deep) / narrow
        rho = np.sqrt(np.maximum(x * x + y * y, np.float32(1e-6)))
        slope = np.sqrt(np.maximum((x / wide) ** 2 + (y / deep) ** 2, np.float32(1e-12)))
        made: Field = np.minimum((1 - rho) * rho / slope, np.float32(60))
        return made.astype(np.float32, copy=False)

    def pectoral(self, u: Field) -> Field:
        """Compute how thick the muscle on the ribs is: thin over the breastbone, thicker to the sides.

        Args:
            u: Coordinates towards the patient's left in mm.

        Returns:
            The thickness in mm, 2 to 12.
        """
        return np.float32(2.0) + np.float32(_PECTORAL_MM) * step(np.abs(u), 10, 38)

    def surface(self, u: Field, a: Field, s: Field, cage: Field | None = None) -> Field:
        """Compute the distance to the outside of the skin.

        Args:
            u: Coordinates towards the patient's left in mm.
            a: Coordinates forward in mm.
            s: Coordinates upward in mm.
            cage: The distance to the rib cage at these points; None computes it.

        Returns:
            The distance in mm, positive inside the body.
        """
        chest = self.cage(u, a, s) if cage is None else cage
        skin = chest + np.float32(_PECTORAL_MM + self.under_skin_mm)
        for breast in self.breasts:
            skin = union(skin, breast.distance(u, a, s), 9.0)
        for breast in self.breasts:
            x, y, z = breast.nipple
            skin = union(skin, ellipsoid(u, a, s, (x, y - 1, z), (5.5, 7.0, 5.5)), 2.5)
        return skin.astype(np.float32, copy=False)

    def implant(self, u: Field, a: Field, s: Field) -> Field | None:
        """Compute the distance to the nearest implant, positive inside.

        Args:
            u: Coordinates towards the patient's left in mm.
            a: Coordinates forward in mm.
            s: Coordinates upward in mm.

        Returns:
            The distance in mm; None for a woman without implants.
        """
        found: Field | None = None
        for centre, radii in self.implants:
            one = ellipsoid(u, a, s, centre, radii)
            found = one if found is None else np.maximum(found, one)
        return found


def draw_body(rng: np.random.Generator, *, implant: bool) -> Body:
    """Draw a body: chest, two breasts that differ a little, and implants if asked for.

    Args:
        rng: The patient's generator.
        implant: Whether both breasts have an implant.

    Returns:
        The body.
    """
    build = float(np.clip(rng.normal(1, 0.07), 0.85, 1.18))
    chest = (155 * build, float(rng.uniform(98, 116)) * build)
    out = float(rng.uniform(76, 86)) * build
    wide, tall = float(rng.uniform(56, 67)) * build, float(rng.uniform(60, 74)) * build
    forward = float(np.clip(rng.normal(94, 17), 58, 125))
    base = -chest[1] + chest[1] * float(np.sqrt(1 - (out / chest[0]) ** 2)) - 4
    breasts, implants = [], []
    for side, sign in (("left", 1), ("right", -1)):
        vary = np.exp(0.05 * rng.standard_normal(3))
        height = float(rng.normal(0, 3))
        radii = (
            float(min(wide * vary[0], out - 2)),
            float(forward * vary[1]),
            float(tall * vary[2]),
        )
        breasts.append(Breast(side=side, centre=(sign * out, base, height), radii=radii))
        if implant:
            size = (0.66 * radii[0], 0.40 * radii[1], 0.66 * radii[2])
            implants.append(((sign * out, base + 6 + 0.4 * radii[1], height - 3), size))
    return Body(
        chest=chest,
        under_skin_mm=float(rng.uniform(7, 16)),
        skin_mm=float(rng.uniform(1.6, 2.4)),
        breasts=(breasts[0], breasts[1]),
        implants=tuple(implants),
    )


def tissue(
    body: Body,
    breast: Breast,
    lattice: Lattice,
    dense_part: float,
    rng: np.random.Generator,
) -> tuple[Field, Field, Field]:
    """Draw the tissue of a breast on its lattice.

    Lobes run from the nipple backward. The level is the quantile that gives the wanted part of the breast.

    Args:
        body: The patient's body.
        breast: The breast to fill.
        lattice: The points at which the tissue is drawn.
        dense_part: Part of the breast that is fibroglandular, 0 to 1.
        rng: The patient's generator.

    Returns:
        Three fields: how far above zero the tissue is fibroglandular, the strands in the fat (0 to 1), and
        how unevenly the tissue takes up contrast (about 1).
    """
    u, a, s = lattice.u, lattice.a, lattice.s
    cage = body.cage(u, a, s)
    skin = body.surface(u, a, s, cage)
    wall = -cage - body.pectoral(u)
    nipple = breast.nipple
    back = np.maximum(np.float32(nipple[1]) - a, 0) + np.float32(14)
    x = (u - np.float32(nipple[0])) / back
    z = (s - np.float32(nipple[2])) / back
    cube = ndimage.gaussian_filter(rng.standard_normal((48, 48, 48), dtype=np.float32), 1.3, mode="wrap")
    cube /= cube.std()
    shape = lattice.shape
    lobes = _sampled(cube, (x * 26, np.log(back) * 7, z * 26), shape)
    strands = _sampled(cube, (x * 34 + 11, np.log(back) * 6 + 5, z * 34 + 19), shape)
    voxel = float(np.mean(lattice.step_mm))
    rough = lattice.noise(11.0, rng)
    fine = lattice.noise(3.4, rng) * np.float32(min(1.0, 6.0 / voxel))
    dust = lattice.noise(1.5, rng) * np.float32(min(1.0, 2.6 / voxel))
    middle = ((u - breast.centre[0]) / breast.radii[0]) ** 2 + ((s - breast.centre[2]) / breast.radii[2]) ** 2
    prior = 1.2 - 1.7 * middle - 2.6 * (1 - step(skin, 3, 13)) - 1.4 * (1 - step(wall, 0, 11))
    prior = prior + 0.5 * step(a, breast.centre[1] + 5, nipple[1] - 12)
    outward = 0.35 * np.sign(breast.centre[0]) * (u - breast.centre[0]) / breast.radii[0]
    level = prior + outward + 0.55 * lobes + 0.5 * rough + 0.42 * fine + 0.32 * dust
    hidden = body.implant(u, a, s)
    if hidden is not None:
        level = np.where(hidden > -3, np.float32(-4), level)
    inside = (skin > body.skin_mm) & (wall > 0) & (a > breast.centre[1] - 8)
    if inside.any():
        level = level - np.float32(np.quantile(level[inside], 1 - dense_part))
    web = np.exp(-np.square(strands / np.float32(0.16))) * step(skin, 1, 4) * step(wall, 0, 4)
    patches = np.exp(0.30 * lattice.noise(5.0, rng) + 0.2 * rough + 0.22 * fine + 0.18 * dust - 0.12)
    return level.astype(np.float32), web.astype(np.float32), patches.astype(np.float32)


def _sampled(cube: Field, at: tuple[Field, Field, Field], shape: tuple[int, int, int]) -> Field:
    points = [np.broadcast_to(part, shape).astype(np.float32) for part in at]
    made = ndimage.map_coordinates(cube, points, order=1, mode="grid-wrap", output=np.float32)
    return np.asarray(made, dtype=np.float32)


def thorax(body: Body, lattice: Lattice, cage: Field, rng: np.random.Generator) -> tuple[Field, Field, Field]:
    """Draw what lies behind the chest wall, on the coarse lattice.

    Heart and great vessels enhance like a tumour and lie close to it: a network must learn to leave them out.

    Args:
        body: The patient's body.
        lattice: The points at which the fields are drawn.
        cage: The distance to the rib cage at these points in mm, positive inside.
        rng: The patient's generator.

    Returns:
        Three fields: signal before contrast, blood, and slow enhancement.
    """
    u, a, s = lattice.u, lattice.a, lattice.s
    deep = body.chest[1]
    shape = lattice.shape
    rough = lattice.noise(6.0, rng)
    turn = float(rng.uniform(0, 2 * np.pi))
    ribs = step(
        np.sin(2 * np.pi * (s + 0.25 * np.abs(u)) / 27 + turn) - np.square(cage - 5) / 26 + 0.2 * rough,
        -0.4,
        0.5,
    )
    wall = 1 - soft(cage - np.float32(10), 4.0)
    base = np.where(wall > 0, 0.20 + 0.20 * (1 - ribs) * np.ones(shape, np.float32), 0).astype(np.float32)
    base = base * wall + (1 - wall) * (0.05 + 0.012 * rough)
    blood = (1 - wall) * np.maximum(0, rough - 2.0) * np.float32(0.15)
    slow = wall * np.float32(0.06)
    solid = 1 - wall
    heart_at = (float(rng.uniform(16, 28)), -float(rng.uniform(56, 64)), float(rng.uniform(-45, -25)))
    heart = soft(ellipsoid(u, a, s, heart_at, (46, 38, 52)) + 2.5 * rough, 5.0) * solid
    rooms = (
        soft(
            ellipsoid(u, a, s, (heart_at[0] - 12, heart_at[1] + 4, heart_at[2] + 4), (20, 24, 34)) + rough,
            5.0,
        )
        + soft(ellipsoid(u, a, s, (heart_at[0] + 20, heart_at[1] - 4, heart_at[2] - 4), (15, 18, 30)), 5.0)
    ).clip(0, 1) * solid
    middle = soft(ellipsoid(u, a, s, (0, -deep * 0.95, 0), (26, deep * 0.75, 400)), 8.0) * solid
    spine = soft(ellipsoid(u, a, s, (0, -2 * deep + 34, 0), (22, 20, 400)), 4.0)
    aorta = soft(ellipsoid(u, a, s, (20, -2 * deep + 64, 0), (11, 11, 400)), 4.0)
    liver = soft(ellipsoid(u, a, s, (-58, -deep, -150), (86, deep * 0.82, 84)) + 1.5 * rough, 5.0) * solid
    for part, signal, bright, late in (
        (middle, 0.42, 0.02, 0.06), (heart, 0.52, 0.14, 0.25), (rooms, 0.42, 0.85, 0.0),
        (liver, 0.75, 0.1, 0.45), (spine, 0.38, 0.02, 0.12), (aorta, 0.45, 1.1, 0.0),
    ):  # fmt: skip
        base = base * (1 - part) + part * np.float32(signal)
        blood = blood * (1 - part) + part * np.float32(bright)
        slow = slow * (1 - part) + part * np.float32(late)
    return base.astype(np.float32), blood.astype(np.float32), slow.astype(np.float32)


def vessels(body: Body, frame: Frame, rng: np.random.Generator) -> np.ndarray:
    """Draw vessels in the breasts and along the breastbone, and lymph nodes in the armpits.

    Args:
        body: The patient's body.
        frame: The voxel grid.
        rng: The patient's generator.

    Returns:
        How much of each voxel is a vessel or a lymph node, in 255ths, uint8 with the shape of the grid.
    """
    made = np.zeros(frame.shape, dtype=np.uint8)
    lines: list[tuple[np.ndarray, float]] = []
    for sign in (1, -1):
        up = np.arange(-130, 130, 1.0)
        wave = np.cumsum(rng.standard_normal(len(up)) * 0.12)
        depth = np.full_like(up, 1.0)
        lines.append((np.stack([sign * 16 + wave, depth - 6, up], axis=1), 1.7))
    for side in ("left", "right"):
        breast, many = body.breast(side), int(rng.integers(4, 8))
        for _ in range(many):
            lines.append((_vessel(body, breast, rng), float(rng.uniform(0.8, 1.5))))
    for points, radius in lines:
        _paint(made, frame, points, radius)
    for sign in (1, -1):
        for _ in range(int(rng.integers(1, 4))):
            wide, deep = body.chest
            across = sign * wide * float(rng.uniform(0.86, 0.97))
            forward = -deep + deep * float(np.sqrt(max(0.02, 1 - (across / wide) ** 2))) + 9
            at = np.array([[across + sign * 7, forward, float(rng.uniform(25, 70))]])
            _paint(made, frame, at, float(rng.uniform(2.5, 5.0)), most=0.65)
    return made


def _vessel(body: Body, breast: Breast, rng: np.random.Generator) -> np.ndarray:
    """Draw a vessel from the edge of the breast towards the nipple, some way under the skin."""
    angle = float(rng.uniform(0, 2 * np.pi))
    depth = float(rng.uniform(0.80, 0.93))
    along = np.arange(0.05, float(rng.uniform(0.6, 0.97)), 0.008)
    turn = angle + np.cumsum(rng.standard_normal(len(along)) * 0.028)
    lean = depth + np.clip(np.cumsum(rng.standard_normal(len(along)) * 0.006), -0.18, 0.03)
    round_ = np.sqrt(np.maximum(0.0, 1 - along**2)) * lean
    (u, a, s), (ru, ra, rs) = breast.centre, breast.radii
    return np.stack(
        [u + ru * round_ * np.cos(turn), a + ra * along * lean, s + rs * round_ * np.sin(turn)], axis=1
    )


def _paint(made: np.ndarray, frame: Frame, points: np.ndarray, radius: float, most: float = 1.0) -> None:
    """Draw a tube along points into the voxels that it crosses, by how much of each it fills."""
    order = frame.body_axes()
    at = np.empty_like(points)
    spacing = np.array(frame.spacing_mm)
    for body, axis in enumerate(order):
        line = frame.axis_mm(axis)
        at[:, axis] = (points[:, body] - line[0]) / (line[-1] - line[0]) * (len(line) - 1)
    if len(at) > 1:
        steps = np.linalg.norm(np.diff(at, axis=0) * spacing, axis=1)
        length = np.concatenate([[0], np.cumsum(steps)])
        fine = np.arange(0, length[-1], max(0.6 * float(spacing.min()), 0.5))
        at = np.stack([np.interp(fine, length, at[:, axis]) for axis in range(3)], axis=1)
    blur = np.maximum(spacing, 0.6)
    reach = np.ceil((radius + blur) / spacing).astype(int)
    thin = min(1.0, (radius * 2 / float(np.sort(blur)[1])) ** 2)
    shape = np.array(frame.shape)
    offsets = np.stack(np.meshgrid(*[np.arange(-r, r + 1) for r in reach], indexing="ij"), -1).reshape(-1, 3)
    nearest = np.rint(at).astype(int)
    for start in range(0, len(at), 4096):
        centre, exact = nearest[start : start + 4096], at[start : start + 4096]
        voxel = centre[:, None, :] + offsets[None]
        apart = (voxel - exact[:, None, :]) * spacing
        distance = np.sqrt(np.square(apart).sum(-1))
        part = np.clip((radius - distance) / float(blur.mean()) + 0.5, 0, 1) * thin * most
        inside = ((voxel >= 0) & (voxel < shape)).all(-1) & (part > 0)
        where = voxel[inside]
        np.maximum.at(made, tuple(where.T), (part[inside] * 255).astype(np.uint8))
