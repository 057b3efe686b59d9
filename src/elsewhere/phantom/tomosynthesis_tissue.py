"""The breast of a synthetic tomosynthesis volume: its outline, its tissue on a coarse grid, and how slices get it.

Everything is drawn for a left breast, whose chest wall is the first column; right views are mirrored at the
end. The tissue is a random field with a spectrum near f^-4 in three dimensions, so that its slices have
exponents around 3, as real ones; fatty and glandular areas, ligaments and vessels lie on it. An arc of limited angle
sees only a double wedge of the spectrum, which is what spreads a structure out of its plane in proportion to
its diameter; the field is filtered by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft, ndimage

from elsewhere.phantom.tomosynthesis_patients import Case

Field = npt.NDArray[np.float32]
_FWHM_OF_WEDGE = 0.75
"""Full width at half maximum, in diameters, behind a wedge filter of constant 1."""
_DENSE = {"A": -0.95, "B": -0.25, "C": 0.4, "D": 1.15}
"""Level of the gland field by density: above 0 it fills more than half of the breast's core."""
FAT, GLAND, MUSCLE, SKIN = 42.0, 40.0, 62.0, 78.0
"""Grey values of the windowed 8-bit picture: of fat, and of the others above it."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The grids of a volume.

    Args:
        slices: Number of slices.
        rows: Rows of a slice.
        columns: Columns of a slice.
        pixel_mm: Size of a pixel.
        slice_mm: Distance between slices.
        coarse: Pixels per voxel of the coarse grid in the plane.
        real_px: Pixels per pixel of a real volume.
    """

    slices: int
    rows: int
    columns: int
    pixel_mm: float
    slice_mm: float
    coarse: int
    real_px: float

    @property
    def coarse_mm(self) -> float:
        """Size of a coarse voxel in the plane."""
        return self.pixel_mm * self.coarse


def frame_of(case: Case) -> Frame:
    """Compute the grids of a case.

    Args:
        case: The volume.

    Returns:
        The grids.
    """
    slices, rows, columns = case.shape
    thick = slices * 73 / case.size.slices
    return Frame(
        slices=slices,
        rows=rows,
        columns=columns,
        pixel_mm=case.vendor.pixel_mm / case.size.unit,
        slice_mm=thick / slices,
        coarse=case.size.coarse,
        real_px=case.size.unit,
    )


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Where the breast lies in the picture; a left breast, in pixels.

    Args:
        rows: First row and the one after the last of the breast's box, multiples of the coarse grid.
        columns: First column and the one after the last, likewise.
        depth_mm: Distance to the skin inside the breast, negative outside, on the coarse grid of the box.
        muscle: Share of pectoral muscle on the same grid.
        nipple: Row and column of the nipple.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    depth_mm: Field
    muscle: Field
    nipple: tuple[float, float]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the box."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


def draw_outline(case: Case, frame: Frame, rng: np.random.Generator) -> Outline:
    """Draw the outline of a breast in CC or MLO, with nipple and pectoral muscle.

    Args:
        case: The volume.
        frame: Its grids.
        rng: The generator of the outline.

    Returns:
        The outline.
    """
    f, mm = frame.coarse, frame.coarse_mm
    high, wide = -(-frame.rows // f), -(-frame.columns // f)
    y = ((np.arange(high) + 0.5) * mm)[:, None]
    x = ((np.arange(wide) + 0.5) * mm)[None, :]
    height = frame.rows * frame.pixel_mm
    scale = case.patient.size
    oblique = case.view.endswith("mlo")
    reach = scale * rng.normal(91.0, 7.0)
    half = scale * rng.normal(93.0 if not oblique else 86.0, 7.0)
    centre = height * (0.5 + rng.normal(0, 0.02)) + (16.0 if oblique else 0.0)
    reach = min(reach, 0.86 * frame.columns * frame.pixel_mm)
    half = min(half, 0.46 * height)
    t = (y - centre) / half
    t = t * (1 + 0.12 * np.sign(t) * rng.normal(0, 1))
    power = rng.uniform(2.0, 2.5)
    wobble = 1 + 0.025 * np.sin(2.2 * t + rng.uniform(0, 6.28)) + 0.012 * np.sin(5 * t + rng.uniform(0, 6.28))
    inside = (x / (reach * wobble)) ** 1.75 + np.abs(t) ** power < 1
    # the fold below, and above it the tail that runs into the armpit
    flare = np.exp(-(((np.abs(t) - 1.02) / 0.16) ** 2))
    inside |= x < reach * rng.uniform(0.0, 0.08) * flare
    muscle = np.zeros((high, wide), dtype=np.float32)
    if oblique:
        top = reach * rng.uniform(0.5, 0.75)
        tail = top + (y / max(centre, 1.0)) * (0.55 * reach - 0.4 * top)
        inside |= (x < tail) & (y < centre)
        low = height * rng.uniform(0.45, 0.68)
        across = reach * rng.uniform(0.4, 0.62)
        edge = across * (1 - (y / low)) + 4.0 * np.sin(y / 27.0 + rng.uniform(0, 6.28)) * (y / low)
        muscle = _soft((edge - x) / 1.6).astype(np.float32)
    soft = ndimage.gaussian_filter(
        np.pad(inside.astype(np.float32), ((0, 0), (high, 0)), mode="edge"), 5.5 / mm
    )
    solid = soft[:, high:] > 0.5
    row_nipple = centre + rng.normal(0, 5.0) + (8.0 if oblique else 0.0)
    column = _edge_at(solid, row_nipple / mm) * mm
    tip = np.hypot(y - row_nipple, (x - column + 1.0) * 0.8)
    solid |= tip < rng.uniform(1.5, 4.2)
    depth = ndimage.distance_transform_edt(solid) - ndimage.distance_transform_edt(~solid)
    depth = ndimage.gaussian_filter(depth, 1.2).astype(np.float32) * np.float32(mm)
    lines, at = np.flatnonzero(solid.any(axis=1)), np.flatnonzero(solid.any(axis=0))
    y0, y1 = max(0, int(lines[0]) - 3), min(high, int(lines[-1]) + 4)
    x1 = min(wide, int(at[-1]) + 4)
    return Outline(
        rows=(y0 * f, min(y1 * f, frame.rows)),
        columns=(0, min(x1 * f, frame.columns)),
        depth_mm=depth[y0:y1, :x1],
        muscle=muscle[y0:y1, :x1],
        nipple=(row_nipple / frame.pixel_mm, column / frame.pixel_mm),
    )


def _edge_at(solid: npt.NDArray[np.bool_], row: float) -> float:
    line = np.flatnonzero(solid[int(np.clip(row, 0, len(solid) - 1))])
    return float(line[-1] + 1) if len(line) else 0.0


def _soft(value: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return 1 / (1 + np.exp(-np.clip(value, -30, 30)))


class Spectrum:
    """The frequencies of the coarse grid of one volume, and random fields of a given spectrum on it.

    Args:
        shape: Slices, rows and columns of the coarse grid.
        frame: The grids of the volume.
        spread: How far the arc spreads a structure out of its plane, in diameters.
        fibre_degrees: Direction along which structures are longer.
    """

    def __init__(
        self, shape: tuple[int, int, int], frame: Frame, spread: float, fibre_degrees: float
    ) -> None:
        self.shape = shape
        deep = fft.next_fast_len(shape[0] + max(2, shape[0] // 8), real=False)
        self.padded = (deep, fft.next_fast_len(shape[1]), fft.next_fast_len(shape[2] + 8, real=True))
        fz = fft.fftfreq(self.padded[0], frame.slice_mm).astype(np.float32)[:, None, None]
        fy = fft.fftfreq(self.padded[1], frame.coarse_mm).astype(np.float32)[None, :, None]
        fx = fft.rfftfreq(self.padded[2], frame.coarse_mm).astype(np.float32)[None, None, :]
        angle = np.deg2rad(fibre_degrees)
        along = fx * np.float32(np.cos(angle)) + fy * np.float32(np.sin(angle))
        across = fy * np.float32(np.cos(angle)) - fx * np.float32(np.sin(angle))
        plane = (along * np.float32(1.45)) ** 2 + (across * np.float32(0.8)) ** 2
        plane[0, 0, 0] = plane.flat[1]
        self.square = plane + fz * fz
        wedge = np.float32(-0.5 * (spread / _FWHM_OF_WEDGE) ** 2) * (fz * fz) / plane
        self.seen = np.exp(np.maximum(wedge, np.float32(-40)))

    def field(self, gain: Field, rng: np.random.Generator) -> Field:
        """Draw a random field.

        Args:
            gain: The square root of its spectrum, without the arc's wedge.
            rng: The generator.

        Returns:
            The field with mean 0 and standard deviation 1.
        """
        half = self.seen.shape
        draw = rng.standard_normal((*half, 2), dtype=np.float32).view(np.complex64)[..., 0]
        draw *= gain
        draw *= self.seen
        draw[0, 0, 0] = 0
        made = fft.irfftn(draw, s=self.padded, overwrite_x=True)
        z, y, x = self.shape
        made = np.ascontiguousarray(made[:z, :y, :x])
        made -= made.mean(dtype=np.float64).astype(np.float32)
        made *= np.float32(1 / max(float(made.std(dtype=np.float64)), 1e-9))
        return made


def draw_tissue(
    case: Case, frame: Frame, outline: Outline, rng: np.random.Generator
) -> tuple[Field, npt.NDArray[np.bool_]]:
    """Draw the tissue of a breast on the coarse grid of its box, in grey values of the windowed picture.

    Args:
        case: The volume.
        frame: Its grids.
        outline: The outline of the breast.
        rng: The generator of the tissue.

    Returns:
        The grey values by slice, row and column; and where there is breast and no muscle, by row and column.
    """
    shape = (frame.slices, *outline.depth_mm.shape)
    spectrum = Spectrum(shape, frame, case.vendor.spread, case.patient.fibre_degrees)
    longest = np.float32((1 / 45.0) ** 2)
    power = np.float32(-np.clip(rng.normal(0.97, 0.075), 0.8, 1.15))
    texture = spectrum.field((spectrum.square + longest) ** power, rng)
    broad = spectrum.field(np.exp(-spectrum.square * np.float32(0.5 * 13.0**2)), rng)
    gland = broad
    gland *= np.float32(0.62)
    gland += np.float32(0.55) * texture
    y = (np.arange(shape[1]) + 0.5)[:, None] * frame.coarse + outline.rows[0]
    x = (np.arange(shape[2]) + 0.5)[None, :] * frame.coarse
    reach = outline.nipple[1]
    away = np.hypot((y - outline.nipple[0]) / (0.62 * reach), (x - 0.7 * reach) / (0.62 * reach))
    depth = outline.depth_mm
    prior = 1.1 - 1.5 * away**2 + _DENSE[case.patient.density]
    prior = prior - 2.6 * np.exp(-np.maximum(depth, 0) / 5.0) - 6.0 * outline.muscle
    gland += np.clip(prior, -4, 1.4).astype(np.float32)
    gland *= np.float32(1.9)
    share = _squash(gland)
    # bright structures stand out from fat, dark ones do not: the field is bent upward
    value = np.maximum(texture, np.float32(-2.6))
    value *= np.float32(0.16) * value + np.float32(1.0)
    value *= np.float32(10.0)
    value += np.float32(1.0) * value * share
    value += np.float32(FAT)
    value += share * np.float32(GLAND)
    del share, gland
    _add_strands(value, case, frame, outline, rng, spectrum)
    value += (outline.muscle * np.float32(MUSCLE))[None]
    return value, (depth > 2.5) & (outline.muscle < 0.5)


def _squash(value: Field) -> Field:
    """A sigmoid that needs no exponential: 0.5 + 0.5 v / (1 + |v|)."""
    below = np.abs(value)
    below += 1
    value /= below
    value *= np.float32(0.5)
    value += np.float32(0.5)
    return value


def _add_strands(
    value: Field,
    case: Case,
    frame: Frame,
    outline: Outline,
    rng: np.random.Generator,
    spectrum: Spectrum,
) -> None:
    """Add ligaments, as sheets where a smooth field changes sign, and vessels and strands, as lines."""
    sheet = spectrum.field(spectrum.square * np.exp(-spectrum.square * np.float32(0.5 * 10.0**2)), rng)
    slope = np.abs(np.diff(sheet, axis=1, append=sheet[:, -1:]))
    slope += np.abs(np.diff(sheet, axis=2, append=sheet[:, :, -1:]))
    slope += np.float32(0.01)
    sheet /= slope
    np.abs(sheet, out=sheet)
    sheet *= np.float32(1 / max(0.7, 0.5 / frame.coarse_mm))
    np.subtract(1, sheet, out=sheet)
    np.maximum(sheet, 0, out=sheet)
    slope *= np.float32(6.0 * 0.4 / frame.coarse_mm)
    np.minimum(slope, 1, out=slope)
    sheet *= slope
    where = rng.standard_normal(value.shape[1:], dtype=np.float32)
    where = ndimage.gaussian_filter(where, 9.0 / frame.coarse_mm, mode="wrap")
    where = np.clip(0.6 + 0.6 * where / max(float(where.std()), 1e-9), 0.1, 1.5)
    sheet *= np.float32(13.5) * where.astype(np.float32)
    value += sheet
    lines = np.zeros_like(value)
    n = int(rng.integers(40, 80))
    for at in range(n):
        vessel = at < 5
        _draw_line(lines, frame, outline, rng, vessel=vessel, spread=case.vendor.spread)
    lines *= (outline.depth_mm > 1.5)[None]
    value += lines


def _draw_line(
    lines: Field, frame: Frame, outline: Outline, rng: np.random.Generator, *, vessel: bool, spread: float
) -> None:
    """Draw one vessel or strand as a chain of small spots; the largest of overlapping spots counts."""
    deep, high, wide = lines.shape
    mm, step = frame.coarse_mm, 0.6
    length = rng.uniform(40, 110) if vessel else rng.uniform(10, 45)
    n = max(3, int(length / (step * mm)))
    reach = outline.nipple[1] / frame.coarse
    y, x = rng.uniform(0.06, 0.94) * high, rng.uniform(0.0, 0.85) * wide
    z = rng.uniform(0, deep)
    row = (outline.nipple[0] - outline.rows[0]) / frame.coarse
    towards = np.arctan2(row - y, max(reach - x, 1.0))
    angle = towards + rng.normal(0, 0.7 if not vessel else 0.4)
    turn = np.cumsum(rng.normal(0, 0.03 if not vessel else 0.05, n)) * np.sqrt(step)
    ys = y + np.cumsum(np.sin(angle + turn)) * step
    xs = x + np.cumsum(np.cos(angle + turn)) * step
    zs = z + np.linspace(0, rng.normal(0, 0.22) * length / frame.slice_mm, n)
    radius = (rng.uniform(0.5, 0.9) if vessel else rng.uniform(0.2, 0.5)) / mm
    radius = max(radius, 0.45)
    tall = max(0.6, (spread * 2 * radius * mm + 0.5) / 2.355 / frame.slice_mm)
    strength = rng.uniform(18, 34) if vessel else rng.uniform(10, 30)
    r, rz = int(np.ceil(2 * radius)), int(np.ceil(2 * tall))
    dz, dy, dx = np.meshgrid(
        np.arange(-rz, rz + 1), np.arange(-r, r + 1), np.arange(-r, r + 1), indexing="ij"
    )
    iz, iy, ix = (
        np.rint(v).astype(np.intp)[:, None] + d.ravel()
        for v, d in zip((zs, ys, xs), (dz, dy, dx), strict=True)
    )
    away = ((iy - ys[:, None]) ** 2 + (ix - xs[:, None]) ** 2) / (2 * radius**2)
    away += (iz - zs[:, None]) ** 2 / (2 * tall**2)
    spot = (strength * np.exp(-away)).astype(np.float32)
    ok = (iz >= 0) & (iz < deep) & (iy >= 0) & (iy < high) & (ix >= 0) & (ix < wide) & (spot > 0.5)
    np.maximum.at(lines, (iz[ok], iy[ok], ix[ok]), spot[ok])


def upsampled(low: Field, factor: int, rows: int, columns: int) -> Field:
    """Interpolate a picture by cubic convolution to `factor` times its size.

    Args:
        low: The picture; its pixels lie at the centres of blocks of `factor` pixels.
        factor: Pixels per pixel of the picture.
        rows: Rows of the result, at most `factor` times those of the picture.
        columns: Columns of the result, likewise.

    Returns:
        The larger picture.

    Example:
        >>> upsampled(np.ones((2, 3), dtype=np.float32), 2, 4, 5).tolist()[0]
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if factor == 1:
        return low[:rows, :columns].copy()
    wide = _along_columns(low, factor)[:, :columns]
    made = np.empty((len(low) * factor, wide.shape[1]), dtype=np.float32)
    padded = np.concatenate([wide[:1], wide[:1], wide, wide[-1:], wide[-1:]])
    n = len(low)
    scratch = np.empty_like(wide)
    for phase, (first, taps) in enumerate(_taps(factor)):
        out = made[phase::factor]
        np.multiply(padded[first : first + n], taps[0], out=out)
        for at in (1, 2, 3):
            np.multiply(padded[first + at : first + at + n], taps[at], out=scratch)
            out += scratch
    return made[:rows]


def _along_columns(low: Field, factor: int) -> Field:
    padded = np.concatenate([low[:, :1], low[:, :1], low, low[:, -1:], low[:, -1:]], axis=1)
    n = low.shape[1]
    made = np.empty((len(low), n, factor), dtype=np.float32)
    for phase, (first, taps) in enumerate(_taps(factor)):
        part = padded[:, first : first + n] * taps[0]
        for at in (1, 2, 3):
            part += padded[:, first + at : first + at + n] * taps[at]
        made[:, :, phase] = part
    return made.reshape(len(low), n * factor)


def _taps(factor: int) -> list[tuple[int, tuple[np.float32, ...]]]:
    """For every phase the first of four neighbours in the row padded by 2, and their weights (a = -0.5)."""
    made = []
    for phase in range(factor):
        at = (phase + 0.5) / factor - 0.5
        first = int(np.floor(at)) - 1
        t = at - np.floor(at)
        weights = (
            -0.5 * t + t**2 - 0.5 * t**3,
            1 - 2.5 * t**2 + 1.5 * t**3,
            0.5 * t + 2 * t**2 - 1.5 * t**3,
            -0.5 * t**2 + 0.5 * t**3,
        )
        made.append((first + 2, tuple(np.float32(w) for w in weights)))
    return made


@dataclass(frozen=True)
class Skin:
    """What the outline does to every slice: which pixels are breast, and how bright the skin is.

    Args:
        index: Depth under the skin in steps of `step_px`, per pixel of the box; 0 outside.
        share: By index, how much of the tissue is seen.
        glow: By index, what the skin adds.
    """

    index: npt.NDArray[np.int16]
    share: Field
    glow: Field


def skin_of(outline: Outline, frame: Frame, rng: np.random.Generator) -> Skin:
    """Compute the skin of an outline at every pixel of its box.

    Args:
        outline: The outline.
        frame: The grids of the volume.
        rng: The generator of the skin.

    Returns:
        The skin.
    """
    depth = upsampled(outline.depth_mm, frame.coarse, *outline.shape)
    step = 0.05 if frame.coarse > 1 else 0.1
    index = np.clip(np.floor(depth / step) + 1, 0, 400).astype(np.int16)
    mm = (np.arange(401) - 0.5).clip(0) * step
    blur = max(0.15, 0.5 * frame.pixel_mm)
    share = np.clip(mm / (2 * blur), 0, 1)
    share *= 1 - 0.25 * np.exp(-(((mm - 4.5) / 2.5) ** 2))
    thick = rng.uniform(1.2, 2.2)
    glow = (
        SKIN
        * rng.uniform(0.7, 1.2)
        / (1 + np.exp(np.clip((mm - thick) / 0.25, -40, 40)))
        * np.clip(mm / (2 * blur), 0, 1)
    )
    share[0] = glow[0] = 0
    return Skin(index, share.astype(np.float32), glow.astype(np.float32))


def grain_of(case: Case, frame: Frame, shape: tuple[int, int], rng: np.random.Generator) -> Field:
    """Draw one picture of noise with the vendor's grain; slices take shifted and turned parts of it.

    Args:
        case: The volume.
        frame: Its grids.
        shape: Rows and columns of the box; the picture is larger by 256 real pixels, so that parts differ.
        rng: The generator of the noise.

    Returns:
        The noise, with the vendor's standard deviation at real size; smaller pixels average it.
    """
    margin = max(16, round(256 * frame.real_px))
    size = tuple(fft.next_fast_len(n + margin, real=True) for n in shape)
    fy = fft.fftfreq(size[0])[:, None].astype(np.float32)
    fx = fft.rfftfreq(size[1])[None, :].astype(np.float32)
    square = fy * fy + fx * fx
    grain = np.float32(case.vendor.grain * frame.real_px)
    gain = np.exp(np.float32(-0.5 * (2 * np.pi) ** 2 * 0.18) * square * grain * grain)
    draw = rng.standard_normal((*gain.shape, 2), dtype=np.float32).view(np.complex64)[..., 0]
    draw *= gain
    draw[0, 0] = 0
    made = fft.irfft2(draw, s=size, overwrite_x=True)
    strength = case.vendor.noise * (0.55 + 0.45 * frame.real_px)
    return np.ascontiguousarray(made * np.float32(strength / float(made.std())))
