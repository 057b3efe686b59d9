"""Tumours: masses with an irregular edge, a rim and a dying core, or clumped enhancement along a segment.

The truth is what an expert would draw on the first phase after contrast: a smooth outline of the whole that
cuts spicules short, goes over the clip's void, and around all foci.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from elsewhere.phantom.mri_anatomy import Body, Breast
from elsewhere.phantom.mri_fields import Field, Frame, Lattice, Span, soft, step
from elsewhere.phantom.mri_patient import Patient

_TUMOUR_MM = 1.2
LEAST_VOXELS = 14


@dataclass(frozen=True, kw_only=True)
class Focus:
    """One mass of a tumour: an ellipsoid with an irregular edge.

    Args:
        centre: u, a, s of the centre in mm.
        radii: The half axes in mm.
        turn: Rotation of the axes, [3, 3], one axis per row.
        irregular: Strength of the bumps on the edge, relative to the radius.
        spicules: Strength of the spicules; 0 is none.
    """

    centre: tuple[float, float, float]
    radii: tuple[float, float, float]
    turn: npt.NDArray[np.float64]
    irregular: float
    spicules: float


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A segment of the breast: a cone from the nipple backward.

    Args:
        apex: u, a, s of the cone's point in mm, at the nipple.
        direction: Unit vector along the axis.
        start_mm: Where along the axis the enhancement begins.
        end_mm: Where along the axis it ends.
        slope: Radius of the cone per mm along the axis.
    """

    apex: tuple[float, float, float]
    direction: tuple[float, float, float]
    start_mm: float
    end_mm: float
    slope: float


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A tumour in its box of voxels.

    Args:
        box: One span of voxels per voxel axis.
        part: How much of each voxel is tumour, 0 to 1.
        solid: Enhancement that comes fast, by the tumour's own curve.
        core: Enhancement that comes late, from the edge inward.
        mask: The expert's mask in the box.
        void: How much of the signal the clip takes away; None without a clip.
        volume_mm3: Volume of the mask.
    """

    box: tuple[Span, Span, Span]
    part: Field
    solid: Field
    core: Field
    mask: npt.NDArray[np.bool_]
    void: Field | None
    volume_mm3: float


def draw_volume(rng: np.random.Generator, frame: Frame, lesion: str) -> float:
    """Draw the volume of a tumour, with a median of 7 cm3 (non-mass 10) as published.

    Args:
        rng: The patient's generator.
        frame: The voxel grid; a tumour has at least `LEAST_VOXELS` of its voxels.
        lesion: 'mass' or 'non-mass'.

    Returns:
        The volume in mm3.
    """
    median = 7000.0 if lesion == "mass" else 10000.0
    volume = float(np.clip(np.exp(rng.normal(np.log(median), 0.95)), 350, 75_000))
    return max(volume, LEAST_VOXELS * float(np.prod(frame.spacing_mm)))


def place(
    body: Body,
    breast: Breast,
    frame: Frame,
    radius: float,
    dense: tuple[Lattice, Field],
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Draw a point in the breast with room for the tumour, more often in dense tissue and up and outward.

    Args:
        body: The patient's body.
        breast: The affected breast.
        frame: The voxel grid; the point keeps away from the edge of the field of view.
        radius: Radius of the tumour in mm.
        dense: The breast's lattice with its fibroglandular level (`mri_anatomy.tissue`).
        rng: The patient's generator.

    Returns:
        u, a, s of the point in mm.
    """
    (u0, a0, s0), radii = breast.centre, breast.radii
    ball = rng.standard_normal((1500, 3))
    ball *= (rng.random(1500) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
    ball[:, 1] = np.abs(ball[:, 1])
    at = (np.array([u0, a0, s0]) + ball * np.array(radii)).astype(np.float32)
    u, a, s = at.T
    cage = body.cage(u, a, s)
    room = np.minimum(body.surface(u, a, s, cage) - 5, -cage - body.pectoral(u) - 3)
    hidden = body.implant(u, a, s)
    if hidden is not None:
        room = np.minimum(room, -hidden - 2)
    for axis, line in zip(frame.body_axes(), (u, a, s), strict=True):
        ends = frame.axis_mm(axis)
        room = np.minimum(room, np.minimum(line - ends.min(), ends.max() - line) - 3)
    outward = np.sign(u0) * (u - u0) / radii[0]
    upward = (s - s0) / radii[2]
    lattice, level = dense
    weight = (0.25 + soft(_looked_up(lattice, level, at), 1.0)) * np.exp(0.5 * outward + 0.5 * upward)
    fits = room > 0.75 * radius
    weight = np.where(fits, weight, 0) if fits.any() else (room >= np.sort(room)[-10]).astype(np.float64)
    chosen = at[rng.choice(len(at), p=weight / weight.sum())]
    return float(chosen[0]), float(chosen[1]), float(chosen[2])


def _looked_up(lattice: Lattice, level: Field, at: npt.NDArray[np.float32]) -> Field:
    index = []
    order = lattice.frame.body_axes()
    for axis in range(3):
        line = lattice.at[axis]
        x = at[:, order.index(axis)]
        n = len(line)
        spread = line[-1] - line[0] if n > 1 else 1.0
        index.append(np.clip(np.rint((x - line[0]) / spread * (n - 1)), 0, n - 1).astype(np.intp))
    found: Field = level[tuple(index)]
    return found


def draw_tumour(
    patient: Patient,
    body: Body,
    frame: Frame,
    dense: tuple[Lattice, Field],
    rng: np.random.Generator,
) -> Drawn:
    """Draw a patient's tumour: the enhancement of its voxels and the expert's mask.

    Args:
        patient: The patient: lesion, side, foci, rim, clip and blur.
        body: Her body.
        frame: The voxel grid.
        dense: The breast's lattice with its fibroglandular level (`mri_anatomy.tissue`).
        rng: Her generator.

    Returns:
        The tumour in its box; the mask has at least one voxel.
    """
    breast = body.breast(patient.side)
    volume = draw_volume(rng, frame, patient.lesion)
    if patient.lesion == "mass":
        foci = _foci(patient, body, breast, frame, volume, dense, rng)
        low = np.min([np.array(f.centre) - 1.75 * max(f.radii) for f in foci], axis=0)
        high = np.max([np.array(f.centre) + 1.75 * max(f.radii) for f in foci], axis=0)
        box = frame.box(tuple(low - 3), tuple(high + 3))
        distance, mask_at, inner, radius = _masses(foci, frame, box, rng)
        part = soft(distance, _width(frame) * (1 + 1.5 * patient.blur))
    else:
        segment = _segment(breast, body, frame, volume, rng)
        ends = [
            np.array(segment.apex) + np.array(segment.direction) * t
            for t in (segment.start_mm, segment.end_mm)
        ]
        reach = segment.slope * segment.end_mm + 6
        box = frame.box(tuple(np.min(ends, axis=0) - reach), tuple(np.max(ends, axis=0) + reach))
        part, mask_at, inner, radius = _clumps(segment, frame, box, rng)
    u, a, s = frame.coordinates(box)
    cage = body.cage(u, a, s)
    room = np.minimum(body.surface(u, a, s, cage) - np.float32(body.skin_mm), -cage - 1)
    hidden = body.implant(u, a, s)
    if hidden is not None:
        room = np.minimum(room, -hidden)
    part = part * soft(room, _width(frame))
    mask = (mask_at > 0) & (room > 0)
    if not mask.any():
        # The voxels are too large for the room there is: take the one where most of the tumour would be.
        best = np.unravel_index(int(np.minimum(mask_at, room).argmax()), mask.shape)
        mask[best], part[best] = True, 1.0
    lattice = Lattice(frame, box, _TUMOUR_MM)
    uneven = np.exp(
        lattice.up(0.2 * lattice.noise(max(2.0, 0.25 * radius), rng) + 0.16 * lattice.noise(1.6, rng)).full()
    )
    dying = step(inner, 0.30, 0.62) * np.float32(
        min(1.0, patient.rim) * float(np.clip((radius - 6) / 8, 0, 1))
    )
    if patient.lesion != "mass":
        dying = np.zeros_like(part)
    rim = 1 + np.float32(0.35 * patient.rim) * np.exp(-np.square((inner - 0.12) / 0.14))
    solid = part * uneven * rim * (1 - np.float32(0.92) * dying)
    core = part * dying * np.float32(0.35)
    void = _clip(mask, frame, box, rng) if patient.clip else None
    voxel = float(np.prod(frame.spacing_mm))
    return Drawn(
        box=box, part=part, solid=solid.astype(np.float32), core=core.astype(np.float32), mask=mask, void=void,
        volume_mm3=float(mask.sum()) * voxel,
    )  # fmt: skip


def _width(frame: Frame) -> float:
    return max(1.0, 0.8 * float(np.mean(frame.spacing_mm)))


def _foci(
    patient: Patient, body: Body, breast: Breast, frame: Frame, volume: float,
    dense: tuple[Lattice, Field], rng: np.random.Generator,
) -> list[Focus]:  # fmt: skip
    radius = (3 * volume / (4 * np.pi)) ** (1 / 3)
    radius = float(min(radius, 0.62 * min(breast.radii)))
    centre = place(body, breast, frame, radius, dense, rng)
    foci = [_focus(centre, radius, rng)]
    for _ in range(patient.foci - 1):
        small = float(rng.uniform(0.25, 0.5)) * radius
        small = max(small, 1.2 * float(np.mean(frame.spacing_mm)), 2.5)
        way = rng.standard_normal(3)
        way *= (radius + small + float(rng.uniform(3, 16))) / np.linalg.norm(way)
        other = np.array(centre) + way
        inside = breast.distance(*(np.array([x], dtype=np.float32) for x in other))[0] > small + 4
        wall = -body.cage(*(np.array([x], dtype=np.float32) for x in other))[0] > small + 10
        if inside and wall:
            foci.append(_focus((float(other[0]), float(other[1]), float(other[2])), small, rng))
    return foci


def _focus(centre: tuple[float, float, float], radius: float, rng: np.random.Generator) -> Focus:
    stretch = np.exp(0.22 * rng.standard_normal(3))
    stretch /= np.prod(stretch) ** (1 / 3)
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    return Focus(
        centre=centre,
        radii=(radius * stretch[0], radius * stretch[1], radius * stretch[2]),
        turn=turn,
        irregular=float(rng.uniform(0.10, 0.32)),
        spicules=float(max(0.0, rng.normal(0.38, 0.28))),
    )


def _masses(
    foci: list[Focus], frame: Frame, box: tuple[Span, Span, Span], rng: np.random.Generator
) -> tuple[Field, Field, Field, float]:
    """Compute the distances to the edge with spicules and to the expert's outline, the depth (0 edge, 1
    centre), and the largest radius of the first focus."""
    u, a, s = frame.coordinates(box)
    lattice = Lattice(frame, box, _TUMOUR_MM)
    first = max(foci[0].radii)
    bumps = lattice.up(lattice.noise(max(1.8, 0.30 * first), rng)).full()
    small = lattice.up(lattice.noise(1.6, rng)).full()
    cube = ndimage.gaussian_filter(rng.standard_normal((24, 24, 24), dtype=np.float32), 0.9, mode="wrap")
    cube /= cube.std()
    edge = outline = inner = None
    for focus in foci:
        rows = focus.turn
        x = [
            u - np.float32(focus.centre[0]),
            a - np.float32(focus.centre[1]),
            s - np.float32(focus.centre[2]),
        ]
        turned = [sum(np.float32(row[k]) * x[k] for k in range(3)) for row in rows]
        rho = np.sqrt(sum((t / np.float32(r)) ** 2 for t, r in zip(turned, focus.radii, strict=True)))
        rho = np.maximum(rho, np.float32(1e-3))
        mean = float(np.prod(focus.radii)) ** (1 / 3)
        directions = [
            np.broadcast_to(9.0 * t / (np.float32(r) * rho), rho.shape)
            for t, r in zip(turned, focus.radii, strict=True)
        ]
        near = rho < 1.8
        spikes = np.zeros(rho.shape, dtype=np.float32)
        spikes[near] = ndimage.map_coordinates(
            cube, [d[near] for d in directions], order=1, mode="grid-wrap", output=np.float32
        )
        spikes = np.clip(spikes - 1.1, 0, 1.2) * np.float32(focus.spicules)
        smooth = 1 + np.float32(focus.irregular) * bumps
        drawn = (1 - rho / np.maximum(smooth + np.float32(0.45) * spikes, 0.5)) * np.float32(mean)
        real = (1 - rho / np.maximum(smooth + spikes + np.float32(0.11) * small, 0.5)) * np.float32(mean)
        depth = np.clip(drawn / np.float32(mean), 0, 1)
        edge = real if edge is None else np.maximum(edge, real)
        outline = drawn if outline is None else np.maximum(outline, drawn)
        inner = depth if inner is None else np.maximum(inner, depth)
    if edge is None or outline is None or inner is None:
        raise ValueError("a tumour has at least one focus")
    return edge, outline, inner, first


def _segment(breast: Breast, body: Body, frame: Frame, volume: float, rng: np.random.Generator) -> Segment:
    nipple = np.array(breast.nipple)
    way = np.array([rng.normal(0, 0.42), -1.0, rng.normal(0, 0.42)])
    way /= np.linalg.norm(way)
    slope = float(np.tan(np.radians(rng.uniform(13, 22))))
    start = float(rng.uniform(10, 22))
    most = 0.82 * breast.radii[1] + 8
    # Clumps fill roughly the outline, so take the cone that has the requested volume.
    end = (3 * volume / (np.pi * slope**2) + start**3) ** (1 / 3)
    end = float(np.clip(end, start + 12, max(most, start + 14)))
    return Segment(
        apex=(float(nipple[0]), float(nipple[1]), float(nipple[2])),
        direction=(float(way[0]), float(way[1]), float(way[2])),
        start_mm=start,
        end_mm=end,
        slope=slope,
    )


def _clumps(
    segment: Segment, frame: Frame, box: tuple[Span, Span, Span], rng: np.random.Generator
) -> tuple[Field, Field, Field, float]:
    """Compute how much of each voxel enhances, the distance to the outline, a depth of 0, and a radius."""
    u, a, s = frame.coordinates(box)
    x = [part - np.float32(p) for part, p in zip((u, a, s), segment.apex, strict=True)]
    along = sum(np.float32(d) * part for d, part in zip(segment.direction, x, strict=True))
    away = np.sqrt(np.maximum(sum(part * part for part in x) - along * along, 0))
    cone = (np.float32(segment.slope) * along - away) / np.float32(np.hypot(1, segment.slope))
    ends = np.minimum(along - np.float32(segment.start_mm), np.float32(segment.end_mm) - along)
    distance = np.minimum(cone, ends).astype(np.float32, copy=False)
    lattice = Lattice(frame, box, _TUMOUR_MM)
    coarse = lattice.up(lattice.noise(5.0, rng)).full()
    fine = lattice.up(lattice.noise(2.3, rng)).full()
    outline = distance + np.float32(2.2) * coarse
    fill = 0.75 * fine + 0.5 * coarse + 0.35
    clumps = np.clip(fill / np.float32(0.7) + 0.5, 0, 1) * soft(outline, _width(frame) * 1.5)
    radius = segment.slope * segment.end_mm
    return clumps.astype(np.float32, copy=False), outline, np.zeros_like(outline), radius


def _clip(
    mask: npt.NDArray[np.bool_], frame: Frame, box: tuple[Span, Span, Span], rng: np.random.Generator
) -> Field:
    """Draw the void of a biopsy clip somewhere in the tumour, wider along the main field."""
    inside = np.argwhere(mask)
    at = inside[rng.integers(len(inside))]
    radius = max(float(rng.uniform(2.4, 4.2)), 0.55 * float(np.mean(frame.spacing_mm)))
    apart = [
        (np.arange(box[axis][1] - box[axis][0]) - at[axis]) * frame.spacing_mm[axis] / radius
        for axis in range(3)
    ]
    apart[frame.body_axes()[2]] = apart[frame.body_axes()[2]] / 1.5
    rho = np.sqrt(
        np.square(apart[0])[:, None, None]
        + np.square(apart[1])[None, :, None]
        + np.square(apart[2])[None, None]
    ).astype(np.float32)
    return np.float32(0.95) * (1 - step(rho, 0.7, 1.25)) - np.float32(0.15) * np.exp(
        -np.square((rho - 1.5) / 0.2)
    )
