"""What lies in the tissue of a synthetic tomosynthesis volume: lesions with boxes, and what only looks like one.

A thing is a picture with a profile across the slices. Masses have a body with a margin from smooth to
spiculated; architectural distortions are lines that run together and have no body. Without boxes are diffuse
densities, lymph nodes, recalled findings, calcifications with the dark ghosts of the reconstruction, and
round skin markers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from elsewhere.phantom.tomosynthesis_patients import Case, Finding
from elsewhere.phantom.tomosynthesis_tissue import Field, Frame, Outline

_LEAST = 0.012
"""A thing is left out of slices in which less than this share of it is seen."""


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """A lesion with a box, as the published table states it, in pixels of the volume (x is a column).

    Args:
        subject: Number of the lesion within the patient; the same in CC and MLO.
        x: First column of the box.
        y: First row.
        width: Columns.
        height: Rows.
        slice: Its central slice, from 0.
        kind: 'benign' or 'cancer'.
        distortion: Whether it is an architectural distortion.
        contrast: The planted contrast, in standard deviations of the surroundings.
        brightest: Column, row and slice of the brightest voxel that the lesion adds.
    """

    subject: int
    x: int
    y: int
    width: int
    height: int
    slice: int
    kind: str
    distortion: bool
    contrast: float
    brightest: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A picture that is added to slices, with a Gaussian profile across them.

    Args:
        picture: Grey values.
        top: Row of its first pixel in the box of the breast.
        left: Column of its first pixel in the box of the breast.
        slice: Slice in which it is in focus.
        spread: Standard deviation of the profile, in slices.
        cover: How much of the tissue it hides, from 0 to 1; None for nothing.
        level: Grey value that stands in place of the hidden tissue.
    """

    picture: Field
    top: int
    left: int
    slice: float
    spread: float
    cover: Field | None = None
    level: float = 0.0


def place(thing: Thing, z: int, value: Field) -> None:
    """Add a thing to a slice, where it is seen there.

    Args:
        thing: The thing.
        z: Number of the slice.
        value: Grey values of the breast's box in this slice; changed in place.
    """
    seen = np.float32(np.exp(-0.5 * ((z - thing.slice) / thing.spread) ** 2))
    cut = _placed(thing, value.shape) if seen > _LEAST else None
    if cut is None:
        return
    (rows, columns), (inner_rows, inner_columns) = cut
    part = value[rows, columns]
    if thing.cover is not None:
        part -= seen * thing.cover[inner_rows, inner_columns] * (part - np.float32(thing.level))
    part += seen * thing.picture[inner_rows, inner_columns]


def _placed(thing: Thing, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]] | None:
    """Rows and columns of a picture that a thing covers, and those of the thing; None where it covers none."""
    high, wide = thing.picture.shape
    y0, x0 = max(0, thing.top), max(0, thing.left)
    y1, x1 = min(shape[0], thing.top + high), min(shape[1], thing.left + wide)
    if y0 >= y1 or x0 >= x1:
        return None
    inner = slice(y0 - thing.top, y1 - thing.top), slice(x0 - thing.left, x1 - thing.left)
    return (slice(y0, y1), slice(x0, x1)), inner


def draw_lesions(
    case: Case, frame: Frame, outline: Outline, tissue: Field, room: npt.NDArray[np.bool_]
) -> tuple[list[Thing], list[Lesion]]:
    """Draw the patient's findings in this view.

    Args:
        case: The volume.
        frame: Its grids.
        outline: The outline of the breast.
        tissue: The tissue on the coarse grid of the breast's box, which sets what a contrast means.
        room: Where a lesion may lie, on the same grid.

    Returns:
        What is added to the slices, and the lesions with boxes.
    """
    things: list[Thing] = []
    lesions: list[Lesion] = []
    if not case.affected:
        return things, lesions
    for finding in case.patient.findings:
        rng = case.generator(f"finding {finding.subject}")
        row, column, focus = position(case, frame, outline, finding, room, rng)
        width, height = box_size(finding, frame, rng)
        new = _finding(finding, (row, column, focus), (width, height), case, frame, rng)
        y0, x0 = round(row - height / 2), round(column - width / 2)
        y1, x1 = min(outline.shape[0], y0 + height), min(outline.shape[1], x0 + width)
        y0, x0 = max(0, y0), max(0, x0)
        box = (y0, x0, y1, x1)
        level, deviation = _surroundings(tissue[focus], box, frame, room)
        new = _scaled(new, finding, box, outline.shape, level, deviation)
        things += new
        if not finding.biopsied:
            continue
        layer = _layer(new, focus, outline.shape)
        best = np.unravel_index(int(layer[y0:y1, x0:x1].argmax()), (y1 - y0, x1 - x0))
        lesions.append(
            Lesion(
                subject=finding.subject,
                x=x0 + outline.columns[0],
                y=y0 + outline.rows[0],
                width=x1 - x0,
                height=y1 - y0,
                slice=focus,
                kind=case.patient.finding,
                distortion=finding.distortion,
                contrast=finding.contrast,
                brightest=(
                    int(best[1]) + x0 + outline.columns[0],
                    int(best[0]) + y0 + outline.rows[0],
                    focus,
                ),
            )
        )
    return things, lesions


def position(
    case: Case,
    frame: Frame,
    outline: Outline,
    finding: Finding,
    room: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """Find where a finding of the breast lies in this view.

    Its distance from the nipple is the same in CC and MLO; across the breast and in depth, MLO sees it from
    45 degrees.

    Args:
        case: The volume.
        frame: Its grids.
        outline: The outline of the breast.
        finding: The finding.
        room: Where it may lie, on the coarse grid of the box.
        rng: The generator of the finding in this view.

    Returns:
        Row and column in the breast's box, and the slice.
    """
    if case.view.endswith("cc"):
        across, deep = finding.lateral, finding.vertical
    else:
        across = (finding.lateral + finding.vertical) / np.sqrt(2)
        deep = (finding.lateral - finding.vertical) / np.sqrt(2)
    # the mean of the published set, 0.42 of the slices with a standard deviation of 0.16
    part = float(np.clip(0.417 + 0.157 * deep, 0.06, 0.85))
    focus = int(np.clip(round(part * frame.slices), min(3, frame.slices - 1), max(0, frame.slices - 4)))
    f = frame.coarse
    column = (1 - finding.depth) * outline.nipple[1] + rng.normal(0, 0.03) * outline.nipple[1]
    column = float(np.clip(column, 0.02 * outline.nipple[1], 0.93 * outline.nipple[1]))
    line = np.flatnonzero(room[:, int(np.clip(column / f, 0, room.shape[1] - 1))])
    row = outline.nipple[0] - outline.rows[0]
    if not len(line):
        return row, column / 2, focus
    low, high = (line[0] + 0.5) * f, (line[-1] + 0.5) * f
    middle = float(np.clip(row, low + 0.3 * (high - low), high - 0.3 * (high - low)))
    row = middle + 0.19 * across * (high - low) + rng.normal(0, 0.02) * (high - low)
    return float(np.clip(row, low + 0.08 * (high - low), high - 0.08 * (high - low))), column, focus


def box_size(finding: Finding, frame: Frame, rng: np.random.Generator) -> tuple[int, int]:
    """Compute the size of a finding's box in this view.

    Args:
        finding: The finding.
        frame: The grids of the volume.
        rng: The generator of the finding in this view.

    Returns:
        Columns and rows, at least 5.
    """
    diagonal = finding.diagonal_mm * np.exp(rng.normal(0, 0.08)) / frame.pixel_mm
    aspect = finding.aspect * np.exp(rng.normal(0, 0.08))
    height = diagonal / np.hypot(1, aspect)
    return max(5, round(height * aspect)), max(5, round(height))


def _scaled(
    things: list[Thing],
    finding: Finding,
    box: tuple[int, int, int, int],
    shape: tuple[int, int],
    level: float,
    deviation: float,
) -> list[Thing]:
    """Give the pictures of a finding the strength that its contrast asks for.

    The lines of a distortion have a fixed strength, and the haze under them makes up the contrast.
    """
    focus = round(things[0].slice)
    goal = finding.contrast * deviation
    if not finding.distortion:
        hidden = np.float32(0.2 + 0.5 * min(finding.contrast, 1.0))
        factor = goal / max(_surplus(_layer(things, focus, shape), box), 1e-3)
        return [
            replace(
                thing,
                picture=thing.picture * np.float32(factor),
                cover=np.clip(thing.picture, 0, 1) * hidden if at == 0 and finding.biopsied else None,
                level=level,
            )
            for at, thing in enumerate(things)
        ]
    line = np.float32(
        (0.55 + 0.7 * finding.spiculation + 0.5 * min(finding.contrast, 0.6)) * max(deviation, 10.0)
    )
    line *= np.float32(finding.kept)
    lines = [replace(thing, picture=thing.picture * line) for thing in things[1:]]
    missing = goal - _surplus(_layer(lines, focus, shape), box)
    haze = missing / max(_surplus(_layer(things[:1], focus, shape), box), 1e-3)
    haze = float(np.clip(haze, -1.2 * deviation, 2.0 * deviation))
    return [replace(things[0], picture=things[0].picture * np.float32(haze)), *lines]


def _layer(things: list[Thing], z: int, shape: tuple[int, int]) -> Field:
    layer = np.zeros(shape, dtype=np.float32)
    for thing in things:
        place(replace(thing, cover=None), z, layer)
    return layer


def _surroundings(
    plane: Field, box: tuple[int, int, int, int], frame: Frame, room: npt.NDArray[np.bool_]
) -> tuple[float, float]:
    """Mean and standard deviation of the tissue around a box, half a box wide."""
    f = frame.coarse
    y0, x0, y1, x1 = (round(v / f) for v in box)
    dy, dx = max(1, (y1 - y0) // 2), max(1, (x1 - x0) // 2)
    rows = slice(max(0, y0 - dy), y1 + dy)
    columns = slice(max(0, x0 - dx), x1 + dx)
    around = room[rows, columns].copy()
    around[y0 - rows.start : y1 - rows.start, x0 - columns.start : x1 - columns.start] = False
    values = plane[rows, columns][around]
    if len(values) < 8:
        values = plane[room]
    return float(values.mean()), float(values.std())


def _surplus(layer: Field, box: tuple[int, int, int, int]) -> float:
    """Mean of a layer in a box minus its mean in the ring of half a box around it."""
    y0, x0, y1, x1 = box
    dy, dx = max(1, (y1 - y0) // 2), max(1, (x1 - x0) // 2)
    outer = layer[max(0, y0 - dy) : y1 + dy, max(0, x0 - dx) : x1 + dx]
    inner = layer[y0:y1, x0:x1]
    ring = (float(outer.sum()) - float(inner.sum())) / max(1, outer.size - inner.size)
    return float(inner.mean()) - ring


def _finding(
    finding: Finding,
    centre: tuple[float, float, int],
    size: tuple[int, int],
    case: Case,
    frame: Frame,
    rng: np.random.Generator,
) -> list[Thing]:
    shape = np.random.default_rng((finding.shape, int(case.view.endswith("mlo"))))
    diameter = float(np.sqrt(size[0] * size[1])) * frame.pixel_mm * (0.8 if not finding.distortion else 0.5)
    wide = np.hypot(0.6, case.vendor.spread) * diameter / 2.355 / frame.slice_mm
    spread = max(0.7, float(wide))
    row, column, focus = centre
    if finding.distortion:
        pictures = distortion(size, frame, shape)
    elif finding.biopsied:
        pictures = mass(size, finding.spiculation, frame, shape)
    else:
        pictures = [diffuse(size, shape)]
    offsets = [0.0, *(spread * shape.uniform(-0.5, 0.5, len(pictures) - 1))]
    return [
        Thing(
            picture=picture,
            top=round(row - picture.shape[0] / 2),
            left=round(column - picture.shape[1] / 2),
            slice=focus + offset,
            spread=spread if at == 0 else max(0.6, 0.6 * spread),
        )
        for at, (picture, offset) in enumerate(zip(pictures, offsets, strict=True))
    ]


def _polar(high: int, wide: int, ry: float, rx: float) -> tuple[Field, Field]:
    y = (np.arange(high, dtype=np.float32)[:, None] - np.float32((high - 1) / 2)) / np.float32(ry)
    x = (np.arange(wide, dtype=np.float32)[None, :] - np.float32((wide - 1) / 2)) / np.float32(rx)
    return np.hypot(y, x), np.arctan2(y, x)


def mass(size: tuple[int, int], spiculation: float, frame: Frame, rng: np.random.Generator) -> list[Field]:
    """Draw the pictures of a mass: its body, and its spicules in two groups.

    Args:
        size: Columns and rows of its box.
        spiculation: 0 for a smooth margin, 1 for a spiculated one.
        frame: The grids of the volume.
        rng: The generator of its shape.

    Returns:
        Pictures with the same centre, with values near 1 in the body.
    """
    wide, high = size
    rx, ry = wide / 2.3, high / 2.3
    reach = 2.2 if spiculation > 0.3 else 1.4
    full = (int(np.ceil(ry * 2 * reach)) | 1, int(np.ceil(rx * 2 * reach)) | 1)
    radius, angle = _polar(*full, ry, rx)
    edge = np.ones_like(radius)
    rough = 0.05 + 0.06 * spiculation
    for order in range(2, 9):
        wave = rng.normal(0, rough / np.sqrt(order / 2)) * np.cos(order * angle + rng.uniform(0, 6.28))
        edge += wave.astype(np.float32)
    small = min(rx, ry)
    soft = np.float32(max(1.2, small * (0.05 + 0.07 * spiculation)) / small)
    body = 1 / (1 + np.exp(np.clip((radius - edge * np.float32(0.93)) / (soft * np.float32(0.5)), -40, 40)))
    mottle = ndimage.gaussian_filter(rng.standard_normal(full, dtype=np.float32), max(0.8, small * 0.12))
    body *= 1 + np.float32(0.12) * mottle / max(float(mottle.std()), 1e-6)
    body *= np.float32(0.85) + np.float32(0.25) * np.maximum(0, 1 - radius * radius)
    pictures = [body.astype(np.float32)]
    if spiculation > 0.3:
        n = int(rng.integers(8, 16) * spiculation) + 3
        for _ in range(2):
            spikes = np.zeros(full, dtype=np.float32)
            for _ in range(n // 2):
                start = rng.uniform(0, 6.28)
                far = rng.uniform(1.2, 1.2 + 0.9 * spiculation)
                _stroke(spikes, start, (0.75, far), (ry, rx), frame, rng)
            pictures.append(spikes * np.float32(rng.uniform(0.65, 1.0)))
    return pictures


def distortion(size: tuple[int, int], frame: Frame, rng: np.random.Generator) -> list[Field]:
    """Draw the pictures of an architectural distortion: lines towards one point, and nothing at it.

    Args:
        size: Columns and rows of its box.
        frame: The grids of the volume.
        rng: The generator of its shape.

    Returns:
        Pictures with the same centre: a haze, and three groups of lines.
    """
    wide, high = size
    rx, ry = wide / 2.1, high / 2.1
    full = (int(np.ceil(ry * 2.5)) | 1, int(np.ceil(rx * 2.5)) | 1)
    radius, _ = _polar(*full, ry, rx)
    n = int(rng.integers(16, 30))
    starts = np.sort(rng.uniform(0, 2 * np.pi, n))
    pictures = [np.exp(np.float32(-1.1) * radius * radius)]
    for group in range(3):
        lines = np.zeros(full, dtype=np.float32)
        for start in starts[group::3]:
            _stroke(lines, start, (rng.uniform(0.05, 0.35), rng.uniform(0.6, 1.18)), (ry, rx), frame, rng)
        lines -= np.float32(0.4) * ndimage.gaussian_filter(lines, 0.1 * min(rx, ry))
        pictures.append(lines)
    return pictures


def _stroke(
    picture: Field,
    angle: float,
    radii: tuple[float, float],
    scale: tuple[float, float],
    frame: Frame,
    rng: np.random.Generator,
) -> None:
    """Draw a bent line from one radius to another that gets thinner outward; the larger value counts."""
    ry, rx = scale
    near, far = radii
    n = max(4, int((far - near) * max(ry, rx) * 1.6))
    t = np.linspace(0, 1, n)
    r = near + (far - near) * t
    bend = angle + rng.normal(0, 0.4) * (t - 0.3) ** 2 + rng.normal(0, 0.25) * (t - 0.3) + rng.normal(0, 0.14)
    y = (picture.shape[0] - 1) / 2 + r * ry * np.sin(bend)
    x = (picture.shape[1] - 1) / 2 + r * rx * np.cos(bend)
    thick = max(0.55, rng.uniform(0.2, 0.55) / frame.pixel_mm)
    width = thick * (1 - 0.55 * t)
    strength = rng.uniform(0.6, 1.0) * (1 - 0.6 * t**2)
    reach = int(np.ceil(2.2 * thick))
    dy, dx = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1), indexing="ij")
    iy = np.rint(y).astype(np.intp)[:, None] + dy.ravel()
    ix = np.rint(x).astype(np.intp)[:, None] + dx.ravel()
    away = ((iy - y[:, None]) ** 2 + (ix - x[:, None]) ** 2) / (2 * np.maximum(width, 0.45)[:, None] ** 2)
    value = (strength[:, None] * np.exp(-away)).astype(np.float32)
    ok = (iy >= 0) & (iy < picture.shape[0]) & (ix >= 0) & (ix < picture.shape[1]) & (value > 0.02)
    np.maximum.at(picture, (iy[ok], ix[ok]), value[ok])


def diffuse(size: tuple[int, int], rng: np.random.Generator) -> Field:
    """Draw a density without a margin, as an asymmetry that is recalled or not even that.

    Args:
        size: Columns and rows that it fills.
        rng: The generator of its shape.

    Returns:
        The picture.
    """
    wide, high = size
    full = (int(high * 1.8) | 1, int(wide * 1.8) | 1)
    radius, angle = _polar(*full, high / 2, wide / 2)
    edge = 1 + sum(rng.normal(0, 0.12) * np.cos(k * angle + rng.uniform(0, 6.28)) for k in (2, 3, 4))
    return np.exp(-1.3 * np.square(radius / np.maximum(edge, 0.5)) ** 1.1).astype(np.float32)


def draw_lookalikes(case: Case, frame: Frame, outline: Outline, room: npt.NDArray[np.bool_]) -> list[Thing]:
    """Draw what has no box: densities, lymph nodes, calcifications and round skin markers.

    Args:
        case: The volume.
        frame: Its grids.
        outline: The outline of the breast.
        room: Where tissue lies, on the coarse grid of the box.

    Returns:
        What is added to the slices.
    """
    rng = case.generator("lookalikes")
    places = np.argwhere(room)
    things: list[Thing] = []
    if not len(places):
        return things

    def somewhere() -> tuple[float, float, float]:
        y, x = places[int(rng.integers(len(places)))]
        deep = float(np.clip(rng.normal(0.47, 0.2), 0.05, 0.95)) * frame.slices
        return (y + 0.5) * frame.coarse, (x + 0.5) * frame.coarse, deep

    def spread(diameter_mm: float) -> float:
        wide = np.hypot(0.6, case.vendor.spread) * diameter_mm / 2.355 / frame.slice_mm
        return max(0.6, float(wide))

    for _ in range(int(rng.poisson(2.2))):
        row, column, deep = somewhere()
        diameter = float(np.exp(rng.normal(np.log(17.0), 0.4)))
        side = max(4, round(diameter / frame.pixel_mm))
        picture = diffuse((round(side * rng.uniform(0.8, 1.4)), side), rng) * np.float32(rng.uniform(10, 34))
        things.append(_thing(picture, row, column, deep, spread(0.7 * diameter)))
    for _ in range(int(rng.poisson(0.5))):
        row, column, deep = somewhere()
        diameter = float(rng.uniform(6, 13))
        things.append(_thing(_node(diameter, frame, rng), row, column, deep, spread(diameter)))
    for _ in range(int(rng.poisson(0.45))):
        row, column, deep = somewhere()
        for _ in range(int(rng.integers(5, 19))):
            picture = _calcification(rng.uniform(0.25, 0.6), rng.uniform(40, 110), frame)
            y, x = row + rng.normal(0, 4.5) / frame.pixel_mm, column + rng.normal(0, 4.5) / frame.pixel_mm
            things.append(_thing(picture, y, x, deep + rng.normal(0, 3) / frame.slice_mm, spread(0.9)))
    for _ in range(int(rng.poisson(0.7))):
        row, column, deep = somewhere()
        diameter = float(rng.uniform(0.8, 2.4))
        picture = _calcification(diameter, rng.uniform(110, 200), frame)
        things.append(_thing(picture, row, column, deep, spread(1.6 * diameter)))
    if rng.random() < 0.1:
        row, column, _ = somewhere()
        deep = (0.04 if rng.random() < 0.3 else 0.96) * frame.slices
        things.append(_thing(_marker(rng, frame), row, column, deep, spread(2.6)))
    return things


def _thing(picture: Field, row: float, column: float, deep: float, spread: float) -> Thing:
    top, left = round(row - picture.shape[0] / 2), round(column - picture.shape[1] / 2)
    return Thing(picture=picture, top=top, left=left, slice=deep, spread=spread)


def _node(diameter: float, frame: Frame, rng: np.random.Generator) -> Field:
    """A lymph node: an oval with a fatty hilum at one side."""
    ry = max(1.2, diameter / 2 / frame.pixel_mm)
    rx = ry * rng.uniform(1.1, 1.6)
    full = (int(ry * 3) | 1, int(rx * 3) | 1)
    radius, _ = _polar(*full, ry, rx)
    oval = 1 / (1 + np.exp(np.clip((radius - 0.9) / 0.05, -40, 40)))
    y = np.arange(full[0])[:, None] - full[0] / 2
    x = np.arange(full[1])[None, :] - full[1] / 2 - rng.choice((-1, 1)) * 0.45 * rx
    hilum = np.exp(-((y / (0.42 * ry)) ** 2 + (x / (0.42 * rx)) ** 2))
    picture: Field = (rng.uniform(18, 34) * oval * (1 - 1.2 * hilum)).astype(np.float32)
    return picture


def _calcification(diameter: float, strength: float, frame: Frame) -> Field:
    """A bright spot with dark ghosts above and below it, along the tube's way."""
    r = diameter / 2 / frame.pixel_mm
    sigma = max(0.5, 0.6 * r)
    if r < 0.5:
        strength *= 4 * r * r
    half = int(np.ceil(6 * sigma)) + 1
    y, x = np.arange(-half, half + 1)[:, None], np.arange(-half, half + 1)[None, :]
    spot = np.exp(-(((y * y + x * x) / (2 * sigma**2)) ** 1.5))
    ghost = np.exp(-(x**2) / (2 * sigma**2)) * np.exp(
        -((np.abs(y) - 3.2 * sigma) ** 2) / (2 * (1.2 * sigma) ** 2)
    )
    return (strength * (spot - 0.28 * ghost)).astype(np.float32)


def _marker(rng: np.random.Generator, frame: Frame) -> Field:
    """A round skin marker: a disc, or a ring around a mole."""
    ring = rng.random() < 0.4
    r = (rng.uniform(5, 7) if ring else rng.uniform(2.0, 3.2)) / frame.pixel_mm
    half = int(np.ceil(r)) + 3
    y, x = np.arange(-half, half + 1)[:, None], np.arange(-half, half + 1)[None, :]
    away = np.hypot(y, x)
    soft = max(0.6, 0.12 / frame.pixel_mm)
    if ring:
        picture = np.exp(-(((away - r) / max(0.7, 0.45 / frame.pixel_mm)) ** 2))
    else:
        picture = 1 / (1 + np.exp(np.clip((away - r) / soft, -40, 40)))
    return (rng.uniform(110, 170) * picture).astype(np.float32)
