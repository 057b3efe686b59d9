"""How large a pixel is, and how pixels of one size become pixels of another.

Scale is stated in microns per pixel, never as a level or an objective: slides of CAMELYON that say 20x have 0.243
microns per pixel. A value that is missing, absurd or contradicted is refused and never guessed; the user states it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

LEAST_MPP, MOST_MPP = 0.05, 20.0
"""Microns per pixel that a whole slide can have: an oil objective of 100x, and a preview."""
ANISOTROPY = 0.01
CONTRADICTION = 0.05
MOST_UPSAMPLING = 1.05
_OBJECTIVE_TIMES_MPP = 10.0
_OBJECTIVE_BAND = 1.5
_OVERRIDE = "State the microns per pixel: mpp=0.25 in open_slide, or --mpp 0.25."

RULES = ("finest", "nearest")


@dataclass(frozen=True, kw_only=True)
class ScaleStatement:
    """What one part of a file says about the size of its pixels.

    Attributes:
        source: Which part of the file says so.
        x_um: Microns per pixel across.
        y_um: Microns per pixel down.
    """

    source: str
    x_um: float
    y_um: float

    @property
    def plausible(self) -> bool:
        """Whether a slide can have pixels of this size."""
        return all(math.isfinite(v) and LEAST_MPP <= v <= MOST_MPP for v in (self.x_um, self.y_um))

    def __str__(self) -> str:
        size = f"{self.x_um:.4g}" if self.x_um == self.y_um else f"{self.x_um:.4g} x {self.y_um:.4g}"
        return f"{self.source}: {size}"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a slide's pixels at level 0.

    Attributes:
        mpp: Microns per pixel.
        source: Who says so.
        warnings: What a reader should know of it, as sentences.
    """

    mpp: float
    source: str
    warnings: tuple[str, ...] = ()


def check_mpp(mpp: float, *, where: str | None = None) -> float:
    """Check microns per pixel that a user states.

    Args:
        mpp: Microns per pixel.
        where: The file, for messages.

    Returns:
        The same number as a float.

    Raises:
        UserError: It is not a number from 0.05 to 20.

    Example:
        >>> check_mpp(0.25)
        0.25
    """
    try:
        value = float(mpp)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or not LEAST_MPP <= value <= MOST_MPP:
        raise UserError(
            f"{mpp!r} microns per pixel were stated; a slide has {LEAST_MPP:g} to {MOST_MPP:g}",
            where=where,
            fix=_guess_unit(value) or "Give microns per pixel, such as 0.25.",
        )
    return value


def choose_scale(
    statements: Sequence[ScaleStatement], *, stated: float | None, objective: float | None, where: str
) -> Scale:
    """Decide on the microns per pixel of a slide.

    Args:
        statements: What the parts of the file say, the most trusted one first.
        stated: What the user states; it overrides the file.
        objective: The magnification that the file states; it is compared and never used. None where it has none.
        where: The file, for messages.

    Returns:
        The scale.

    Raises:
        UserError: The file states none, an absurd one, two that contradict each other, or pixels that are not square.

    Example:
        >>> tags = ScaleStatement(source="resolution tags", x_um=0.243, y_um=0.243)
        >>> choose_scale([tags], stated=None, objective=None, where="a.tif").mpp
        0.243
    """
    if stated is not None:
        mpp, source, warnings = check_mpp(stated, where=where), "stated by the user", []
        for said in statements:
            if said.plausible and not _near(said.x_um, mpp, CONTRADICTION):
                warnings.append(f"{mpp:g} microns per pixel are stated, and the file's {said}")
        return Scale(mpp=mpp, source=source, warnings=(*warnings, *_objective_warning(mpp, objective)))
    plausible = [said for said in statements if said.plausible]
    if not plausible:
        if not statements:
            raise UserError("the file does not say how large its pixels are", where=where, fix=_OVERRIDE)
        hint = next((text for s in statements if (text := _guess_unit(s.x_um))), "")
        raise UserError(
            f"the file states microns per pixel that no slide has ({'; '.join(map(str, statements))})",
            where=where,
            fix=f"{hint} {_OVERRIDE}".strip(),
        )
    first = plausible[0]
    if not _near(first.x_um, first.y_um, ANISOTROPY):
        raise UserError(
            f"its pixels are not square ({first.x_um:.4g} x {first.y_um:.4g} microns by its {first.source})",
            where=where,
            fix=f"{_OVERRIDE} If the pixels are really oblong, resample the slide first.",
        )
    mpp = first.x_um if first.x_um == first.y_um else (first.x_um + first.y_um) / 2
    for other in plausible[1:]:
        if not _near((other.x_um + other.y_um) / 2, mpp, CONTRADICTION):
            raise UserError(
                f"the file contradicts itself about microns per pixel ({first}; {other}): one of them is stale",
                where=where,
                fix=_OVERRIDE,
            )
    warnings = [
        f"not used, as no slide has such pixels: microns per pixel by the {said}"
        for said in statements
        if not said.plausible
    ]
    return Scale(mpp=mpp, source=first.source, warnings=(*warnings, *_objective_warning(mpp, objective)))


def _near(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def _guess_unit(value: float) -> str:
    if LEAST_MPP <= value / 1000 <= MOST_MPP and value > MOST_MPP:
        return f"{value:g} may be nanometres: {value / 1000:g} microns."
    if LEAST_MPP <= value * 1000 <= MOST_MPP and value < LEAST_MPP:
        return f"{value:g} may be millimetres: {value * 1000:g} microns."
    return ""


def _objective_warning(mpp: float, objective: float | None) -> tuple[str, ...]:
    if objective is None or not 1 <= objective <= 150:
        return ()
    usual = _OBJECTIVE_TIMES_MPP / objective
    if usual / _OBJECTIVE_BAND <= mpp <= usual * _OBJECTIVE_BAND:
        return ()
    return (
        f"the file states an objective of {objective:g}x, which has about {usual:.2g} microns per pixel, and "
        f"{mpp:.4g} microns per pixel; microns are used and the objective is not",
    )


def choose_level(
    level_mpps: Sequence[float], mpp: float, *, rule: str = "finest", where: str | None = None
) -> int:
    """Choose the level from which pixels of a size are averaged (LN-02).

    Args:
        level_mpps: Microns per pixel of each level.
        mpp: Microns per pixel that are wanted.
        rule: "finest", the finest level that is not coarser than what is wanted, which is level 0; or "nearest", the
            coarsest one that is not coarser: its pixels were averaged before by who made the slide.
        where: The file, for messages.

    Returns:
        The level. Where all are coarser by at most 5 %, it is the finest.

    Raises:
        UserError: Every level is coarser by more than 5 %, or there is no such rule.

    Example:
        >>> choose_level([0.25, 0.5, 1.0], 0.6), choose_level([0.25, 0.5, 1.0], 0.6, rule="nearest")
        (0, 1)
    """
    if rule not in RULES:
        raise UserError(f"unknown rule '{rule}' for the level to read from", fix="Known: finest, nearest.")
    order = sorted(range(len(level_mpps)), key=lambda level: level_mpps[level])
    finest = level_mpps[order[0]]
    if finest > mpp * MOST_UPSAMPLING * (1 + 1e-9):
        raise UserError(
            f"{mpp:g} microns per pixel are wanted and the slide's finest level has {finest:.4g}",
            where=where,
            fix=f"Ask for {finest:.4g} or more: a slide is never enlarged by more than 5 %. If the file states wrong "
            "microns per pixel, state the right ones.",
        )
    usable = [level for level in order if level_mpps[level] <= mpp * (1 + 1e-9)]
    if not usable:
        return order[0]
    return usable[0] if rule == "finest" else usable[-1]


def borders(first: int, count: int, ratio: float, origin: int) -> npt.NDArray[np.float64]:
    """Place the borders of boxes of equal size in the pixels of a region.

    Args:
        first: The number of the first box, counted from the corner of the slide.
        count: How many boxes.
        ratio: Pixels along a box.
        origin: The pixel at which the region begins.

    Returns:
        One border more than there are boxes.

    Example:
        >>> borders(2, 2, 2.5, 4).tolist()
        [1.0, 3.5, 6.0]
    """
    return np.arange(first, first + count + 1, dtype=np.float64) * np.float64(ratio) - np.float64(origin)


def area_average(
    pixels: npt.NDArray[np.uint8], rows: npt.NDArray[np.float64], columns: npt.NDArray[np.float64]
) -> npt.NDArray[np.uint8]:
    """Average pixels over boxes, each pixel by the exact share of its area that lies in the box.

    Args:
        pixels: [height, width, 3] of 8 bits.
        rows: The borders of the boxes from top to bottom, in pixels: one more than there are rows of boxes.
        columns: Their borders from left to right.

    Returns:
        [boxes down, boxes across, 3], rounded to the nearest whole number, halves up.

    Example:
        >>> import numpy as np
        >>> pixels = np.array([[[0, 0, 0], [100, 0, 0], [200, 0, 0]]], dtype=np.uint8)
        >>> area_average(pixels, np.array([0.0, 1.0]), np.array([0.0, 1.5, 3.0]))[0, :, 0].tolist()
        [33, 167]
    """
    height, width = pixels.shape[:2]
    down, across = len(rows) - 1, len(columns) - 1
    if whole := _whole_factor(rows, columns, height, width):
        return _block_mean(pixels, whole)
    vertical, horizontal = _weights(rows, height), _weights(columns, width)
    lines = vertical @ pixels.reshape(height, -1).astype(np.float32)
    turned = np.ascontiguousarray(lines.reshape(down, width, -1).swapaxes(0, 1)).reshape(width, -1)
    mean = (horizontal @ turned).reshape(across, down, -1).swapaxes(0, 1)
    return np.floor(mean + np.float32(0.5)).astype(np.uint8)


def _whole_factor(
    rows: npt.NDArray[np.float64], columns: npt.NDArray[np.float64], height: int, width: int
) -> int:
    """The number of pixels along a box where boxes are whole pixels and cover all of them; otherwise 0."""
    if rows[0] != 0 or columns[0] != 0 or rows[-1] != height or columns[-1] != width:
        return 0
    factor = round(float(rows[1]))
    exact = (
        factor >= 1
        and factor * factor * 255 < 1 << 32
        and np.array_equal(rows, np.arange(len(rows)) * factor)
        and np.array_equal(columns, np.arange(len(columns)) * factor)
    )
    return factor if exact else 0


def _block_mean(pixels: npt.NDArray[np.uint8], factor: int) -> npt.NDArray[np.uint8]:
    """The mean of whole blocks. Colours are added apart: numpy is slow where three values are its innermost loop."""
    if factor == 1:
        return pixels.copy()
    area = factor * factor
    kind: Any = np.uint16 if area * 255 + area // 2 < 1 << 16 else np.uint32
    height, width, colours = pixels.shape
    lines = pixels[0::factor].astype(kind)
    for row in range(1, factor):
        lines += pixels[row::factor]
    out = np.empty((height // factor, width // factor, colours), np.uint8)
    for colour in range(colours):
        total = lines[:, 0::factor, colour].copy()
        for column in range(1, factor):
            total += lines[:, column::factor, colour]
        total += kind(area // 2)
        out[..., colour] = total // kind(area)
    return out


def _weights(borders: npt.NDArray[np.float64], length: int) -> Any:
    """The share of each pixel in each box, as a sparse matrix whose rows sum to 1."""
    from scipy.sparse import csr_array

    begin, end = borders[:-1], borders[1:]
    first = np.clip(np.floor(begin + 1e-9), 0, length - 1).astype(np.int64)
    last = np.clip(np.ceil(end - 1e-9), first + 1, length).astype(np.int64)
    counts = last - first
    pointer = np.concatenate([[0], np.cumsum(counts)])
    box = np.repeat(np.arange(len(counts)), counts)
    pixel = np.arange(pointer[-1]) - pointer[box] + first[box]
    share = np.minimum(pixel + 1, end[box]) - np.maximum(pixel, begin[box])
    share = np.maximum(share, 0) / np.add.reduceat(np.maximum(share, 0), pointer[:-1])[box]
    return csr_array((share.astype(np.float32), pixel, pointer), shape=(len(counts), length))
