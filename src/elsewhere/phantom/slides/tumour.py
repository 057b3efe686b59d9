"""Metastases: where tumour cells lie, and the outline an annotator draws around them.

A lesion is a field on a grid of 8 microns: its height is the distance to the lesion's border. The annotated region is
the smoothed lesion grown by the generosity of the annotator; islands of normal tissue stay out of it as holes. The
stage of a slide follows from the annotated region: its largest major axis, as the study measures it (LN-14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from elsewhere.phantom.slides.anatomy import Anatomy
from elsewhere.phantom.slides.noise import Fields, Floats
from elsewhere.phantom.slides.patients import GROWTHS, SIZES, SlideSpec

PITCH = 8.0
"""Microns between the places at which a lesion is known."""
_TRIES = 12
AXES_UM = {"itc": (70.0, 165.0), "micro": (280.0, 1500.0), "macro": (2120.0, 11000.0)}


@dataclass(frozen=True)
class Lesion:
    """One metastasis.

    Args:
        column: First column of its grid, in steps of `PITCH`.
        row: First row of its grid.
        height: Distance to the border of the tumour in microns, positive inside.
        outline: The same for the annotated region.
        growth: 'nests', 'sheets' or 'files'; 'cells' for isolated cells.
    """

    column: int
    row: int
    height: Floats
    outline: Floats
    growth: str

    def at(self, x: Floats, y: Floats, *, outline: bool = False) -> Floats:
        """Return the height of the lesion at places, by bilinear interpolation.

        Args:
            x: Columns in microns.
            y: Rows in microns.
            outline: Whether the annotated region is meant instead of the tumour.

        Returns:
            Microns to the border, positive inside, -40 far away.
        """
        grid = self.outline if outline else self.height
        u = x * np.float32(1 / PITCH) - np.float32(self.column)
        v = y * np.float32(1 / PITCH) - np.float32(self.row)
        rows, columns = grid.shape
        inside = (u > 0) & (v > 0) & (u < columns - 1) & (v < rows - 1)
        u, v = np.clip(u, 0, columns - 1.001), np.clip(v, 0, rows - 1.001)
        i, j = u.astype(np.int64), v.astype(np.int64)
        u, v = u - i, v - j
        flat, start = grid.reshape(-1), j * columns + i
        top = flat[start] * (1 - u) + flat[start + 1] * u
        low = flat[start + columns] * (1 - u) + flat[start + columns + 1] * u
        return np.where(inside, top * (1 - v) + low * v, np.float32(-40.0))

    def meets(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Say whether the lesion's grid meets a box in microns.

        Args:
            left: Left border of the box.
            top: Upper border.
            right: Right border.
            bottom: Lower border.

        Returns:
            Whether they overlap.
        """
        rows, columns = self.height.shape
        return (
            self.column * PITCH < right
            and (self.column + columns) * PITCH > left
            and self.row * PITCH < bottom
            and (self.row + rows) * PITCH > top
        )


@dataclass(frozen=True)
class Disease:
    """All metastases of one slide.

    Args:
        lesions: The metastases.
        stage: The stage that follows from the annotated region.
        axis_um: Largest major axis of the annotated region.
        area_mm2: Area of the annotated region.
        grade: Size of the tumour's nuclei, 0 to 2.
        generosity_um: How far the annotator stays outside the tumour.
        fields: The noise of the growth patterns.
    """

    lesions: tuple[Lesion, ...]
    stage: str
    axis_um: float
    area_mm2: float
    grade: int
    generosity_um: float
    fields: Fields = field(repr=False)

    def height(self, x: Floats, y: Floats, *, outline: bool = False) -> Floats:
        """Return the greatest height of all lesions at places.

        Args:
            x: Columns in microns.
            y: Rows in microns.
            outline: Whether the annotated regions are meant.

        Returns:
            Microns to the border, positive inside.
        """
        made: Floats = np.full(x.shape, np.float32(-40.0))
        for lesion in self.near(x, y):
            made = np.maximum(made, lesion.at(x, y, outline=outline))
        return made

    def near(self, x: Floats, y: Floats) -> list[Lesion]:
        """List the lesions that may lie at places.

        Args:
            x: Columns in microns.
            y: Rows in microns.

        Returns:
            The lesions.
        """
        if not x.size:
            return []
        box = float(x.min()), float(y.min()), float(x.max()), float(y.max())
        return [lesion for lesion in self.lesions if lesion.meets(*box)]

    def cells(self, x: Floats, y: Floats) -> Floats:
        """Return where tumour cells grow, and how they meet what lies between them.

        Args:
            x: Columns in microns.
            y: Rows in microns.

        Returns:
            Microns to the nearest border of a nest, sheet or file, positive inside; -40 outside all lesions.
        """
        made: Floats = np.full(x.shape, np.float32(-40.0))
        for lesion in self.near(x, y):
            height = lesion.at(x, y)
            if lesion.growth == "nests":
                pattern = (self.fields(x, y, 0, 95.0) - np.float32(0.40)) * 130
            elif lesion.growth == "sheets":
                pattern = (self.fields(x, y, 1, 220.0) - np.float32(0.17)) * 300
            elif lesion.growth == "files":
                ridge = np.abs(self.fields(x, y, 2, 70.0) - np.float32(0.5))
                pattern = (np.float32(0.10) - ridge) * 90
            else:
                pattern = np.full(x.shape, np.float32(6.0))
            made = np.maximum(made, np.minimum(height, pattern))
        return made


def draw_disease(spec: SlideSpec, anatomy: Anatomy) -> Disease:
    """Draw the metastases of a slide so that the annotated region has the planned stage.

    Args:
        spec: The slide.
        anatomy: Its normal tissue; only the outline of the node is used, which no shift changes.

    Returns:
        The metastases, with the stage that follows from them.
    """
    rng = spec.generator("disease")
    grade = int(rng.choice(3, p=[0.3, 0.45, 0.25]))
    generosity = float(rng.uniform(4, 12) if spec.stage == "itc" else rng.uniform(8, 24))
    fields = Fields(spec.generator("growth"), layers=8)
    empty = Disease((), "negative", 0.0, 0.0, grade, generosity, fields)
    if spec.stage == "negative":
        return empty
    size = SIZES[spec.size]
    low, high = AXES_UM[spec.stage]
    high = max(low * 1.02, min(high, size.width_um * (0.84 if spec.stage == "macro" else 0.5)))
    axis = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    most = {"itc": 4, "micro": 5, "macro": 8}[spec.stage]
    others = [axis * float(rng.uniform(0.1, 0.6)) for _ in range(int(rng.integers(0, most)))]
    pattern = str(rng.choice(GROWTHS, p=[0.5, 0.3, 0.2]))
    plans = []
    for at, wanted in enumerate([axis, *[max(other, 60.0) for other in others]]):
        x, y, tilt = _place(spec, anatomy, wanted if spec.stage == "macro" and at == 0 else 0.0, rng)
        cells = spec.stage == "itc" and wanted < 120
        plans.append(
            _Plan(
                x,
                y,
                tilt,
                wanted,
                float(
                    rng.uniform(0.12, 0.5)
                    if wanted > 2000 and spec.size != "real"
                    else rng.uniform(0.4, 0.85)
                ),
                "cells" if cells else pattern,
                int(rng.integers(6)),
            )
        )
    found = empty
    for _ in range(_TRIES):
        lesions = tuple(_lesion(plan, anatomy, fields, generosity) for plan in plans)
        found = replace(empty, lesions=lesions)
        stage, longest, area = measure(found.lesions)
        found = replace(found, stage=stage, axis_um=longest, area_mm2=area)
        if stage == spec.stage:
            break
        # an outline that is too long or too short is drawn again at another size; others of the slide may have merged
        factor = 1.07 if longest < low else 0.86
        plans = [replace(plan, axis=plan.axis * factor) for plan in (plans if longest < low else plans[:1])]
    return found


def measure(lesions: Sequence[Lesion]) -> tuple[str, float, float]:
    """Measure the annotated region of lesions.

    Args:
        lesions: The lesions.

    Returns:
        The stage, the largest major axis in microns, and the area in square millimetres.
    """
    if not lesions:
        return "negative", 0.0, 0.0
    mask, _, _ = mask_of(lesions)
    axis = longest_axis_px(mask) * PITCH
    stage = "negative" if not mask.any() else "macro" if axis > 2000 else "micro" if axis > 200 else "itc"
    return stage, axis, float(mask.sum()) * PITCH * PITCH / 1e6


def longest_axis_px(mask: npt.NDArray[np.bool_]) -> float:
    """Measure the longest major axis of the objects of a mask, by equal moments, as the evaluation of slides does.

    The room of scoring needs libraries that a bare machine has not, so that the drawing has a measure of its own.

    Args:
        mask: True where there is tumour.

    Returns:
        The axis in pixels; 0 without an object.

    Example:
        >>> round(longest_axis_px(np.ones((10, 200), dtype=bool)))
        231
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask, structure=np.ones((3, 3)))
    longest = 0.0
    for at, box in enumerate(ndimage.find_objects(labels), start=1):
        rows, columns = np.nonzero(labels[box] == at)
        covariance = np.cov(np.stack([rows, columns]).astype(float), bias=True)
        longest = max(longest, 4 * float(np.sqrt(max(0.0, np.linalg.eigvalsh(covariance)[-1]))))
    return longest if count else 0.0


def mask_of(lesions: Sequence[Lesion]) -> tuple[npt.NDArray[np.bool_], int, int]:
    """Draw the annotated region of lesions on the grid of 8 microns.

    Args:
        lesions: The lesions, at least one.

    Returns:
        The mask, and the column and row of its first place.
    """
    left, top = min(one.column for one in lesions), min(one.row for one in lesions)
    right = max(one.column + one.height.shape[1] for one in lesions)
    bottom = max(one.row + one.height.shape[0] for one in lesions)
    mask = np.zeros((bottom - top, right - left), dtype=bool)
    for one in lesions:
        rows, columns = one.outline.shape
        mask[one.row - top :, one.column - left :][:rows, :columns] |= one.outline > 0
    return mask, left, top


@dataclass(frozen=True)
class _Plan:
    x: float
    y: float
    tilt: float
    axis: float
    flat: float
    growth: str
    layer: int


def _place(
    spec: SlideSpec, anatomy: Anatomy, long_um: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Choose the centre and direction of a lesion inside the node."""
    pieces = anatomy.pieces
    largest = max(pieces, key=lambda piece: piece.long)
    tilt = float(np.arctan2(largest.sine, largest.cosine))
    if long_um > 0.5 * largest.long:
        return largest.x + float(rng.uniform(-20, 20)), largest.y + float(rng.uniform(-40, 40)), tilt
    for _ in range(200):
        piece = pieces[int(rng.integers(len(pieces)))]
        turn, far = float(rng.uniform(0, 2 * np.pi)), float(np.sqrt(rng.uniform(0, 0.85)))
        u, v = piece.long * far * np.cos(turn), piece.short * far * np.sin(turn)
        x = piece.x + u * piece.cosine - v * piece.sine
        y = piece.y + u * piece.sine + v * piece.cosine
        if anatomy.depth(np.array([x], np.float32), np.array([y], np.float32))[0] > 60:
            return float(x), float(y), float(rng.uniform(0, np.pi))
    return largest.x, largest.y, tilt


def _lesion(plan: _Plan, anatomy: Anatomy, fields: Fields, generosity: float) -> Lesion:
    from scipy.ndimage import gaussian_filter

    size = SIZES[anatomy.spec.size]
    long = max(plan.axis / 2 - generosity, 18.0)
    short = max(min(long * plan.flat, 0.30 * size.height_um), 16.0)
    reach = long * 1.25 + generosity + 5 * PITCH
    last = int(size.width_um / PITCH), int(size.height_um / PITCH)
    column = max(0, int((plan.x - reach) / PITCH))
    row = max(0, int((plan.y - reach) / PITCH))
    right, bottom = min(last[0], int((plan.x + reach) / PITCH)), min(last[1], int((plan.y + reach) / PITCH))
    x, y = np.meshgrid(
        np.arange(column, max(right, column + 8)) * np.float32(PITCH),
        np.arange(row, max(bottom, row + 8)) * np.float32(PITCH),
    )
    x, y = x.astype(np.float32), y.astype(np.float32)
    dx, dy = x - np.float32(plan.x), y - np.float32(plan.y)
    cosine, sine = np.float32(np.cos(plan.tilt)), np.float32(np.sin(plan.tilt))
    u, v = (dx * cosine + dy * sine) / np.float32(long), (dy * cosine - dx * sine) / np.float32(short)
    height = (1 - np.sqrt(u * u + v * v)) * np.float32(short)
    wave = fields(x, y, plan.layer % 4 + 3, max(short * 0.8, 30.0)) - np.float32(0.5)
    height = height + wave * np.float32(0.5 * short)
    if short > 220:  # islands of normal tissue, wide enough to be left out by an annotator
        island = fields(x + 1000, y, 7, 300.0)
        height = np.minimum(height, (np.float32(0.80) - island) * 500)
    height = np.minimum(height, anatomy.depth(x, y))  # it does not leave the node
    height = np.clip(height, -40, 400).astype(np.float32)
    smooth = 1.5 if plan.axis > 200 else 0.7
    outline = np.asarray(gaussian_filter(np.clip(height, -40, 40), smooth) + generosity, dtype=np.float32)
    outline[[0, -1], :] = -40
    outline[:, [0, -1]] = -40
    return Lesion(column, row, height, outline, plan.growth)
