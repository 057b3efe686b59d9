"""Synthetic breast tissue under a linear probe: layers, lesions, and what a scanner makes of them.

Everything is in millimetres until the picture's pixels. The echo map (dB) is layered tissue with a lesion in
it; the picture is the log-compressed envelope of complex Gaussian scatterers, weighted by the echo map and
filtered by a point-spread function, so that the speckle is the fully developed one of B-mode pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy.ndimage import uniform_filter1d

Map = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
ANGLES = 360


@dataclass(frozen=True, kw_only=True)
class Scanner:
    """What a site's machine and its operators do to every picture.

    Args:
        width_mm: Width of the picture.
        depth_mm: Depth of the picture.
        pixel_mm: Size of a pixel.
        gain_db: Overall gain.
        dynamic_range_db: Range of echoes from black to white.
        axial_mm: Standard deviation of the point-spread function along the beam: the grain of the speckle.
        lateral_mm: The same across the beam.
        looks: Number of angles that are compounded; more looks are a smoother picture.
        slope_db_cm: Attenuation that the time-gain curve does not make up for.
        gamma: Exponent of the grey-value curve.
        border: Black frame around the picture, part of its size.
        text: Chance that a picture carries text.
        ruler: Chance of a ruler.
        logo: Chance of the site's logo.
        callipers: Chance of callipers at a lesion.
        icon: Chance of an icon of the breast.
    """

    width_mm: float = 42.0
    depth_mm: float = 32.0
    pixel_mm: float = 0.105
    gain_db: float = 0.0
    dynamic_range_db: float = 52.0
    axial_mm: float = 0.12
    lateral_mm: float = 0.20
    looks: float = 2.0
    slope_db_cm: float = 6.0
    gamma: float = 1.0
    border: float = 0.0
    text: float = 0.0
    ruler: float = 0.0
    logo: float = 0.0
    callipers: float = 0.0
    icon: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the picture in pixels, without the frame; at least 48 each."""
        return max(round(self.depth_mm / self.pixel_mm), 48), max(round(self.width_mm / self.pixel_mm), 48)


@dataclass(frozen=True, kw_only=True)
class Breast:
    """A patient's layers of tissue, which her pictures share.

    Args:
        skin_mm: Thickness of the skin.
        fat_mm: Thickness of the fat under it.
        gland_mm: Thickness of the glandular layer.
        density: 0 fatty to 1 dense: how bright and how fine the glandular layer is.
    """

    skin_mm: float
    fat_mm: float
    gland_mm: float
    density: float


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """Shape, margin and echo of one lesion; views of it are perturbed copies (`seen_again`).

    Args:
        label: 'benign' or 'malignant'.
        irregular: 0 oval to 1 spiculated: what the outline was drawn from.
        outline: Radius in mm by angle, one for each of `ANGLES` angles.
        place: Centre, as parts of the picture's width and of the glandular layer's depth.
        echo_db: Mean echo inside.
        uneven_db: How much the echo varies inside.
        margin_mm: Width of the edge; a wide one is indistinct.
        absorbs_db_mm: Attenuation beyond the surroundings': a shadow behind it, or (negative) enhancement.
        halo_db: Brightness of the echogenic halo around it.
        capsule_db: Brightness of its capsule where it faces the beam.
        specks: Number of microcalcifications.
    """

    label: str
    irregular: float
    outline: Map
    place: tuple[float, float]
    echo_db: float
    uneven_db: float
    margin_mm: float
    absorbs_db_mm: float
    halo_db: float
    capsule_db: float
    specks: int


def draw_breast(rng: np.random.Generator) -> Breast:
    """Draw a patient's layers of tissue.

    Args:
        rng: The patient's generator.

    Returns:
        The layers, within the range of real breasts.
    """
    return Breast(
        skin_mm=float(rng.uniform(1.0, 1.9)),
        fat_mm=float(np.clip(rng.lognormal(1.6, 0.4), 2.0, 10.0)),
        gland_mm=float(np.clip(rng.normal(14.5, 2.5), 10.0, 20.0)),
        density=float(rng.beta(2, 2)),
    )


def draw_lesion(rng: np.random.Generator, label: str, difficulty: float) -> Lesion:
    """Draw a lesion whose appearance depends on the label, the less so the greater the difficulty.

    Benign: oval, circumscribed, wider than tall, even, enhancement behind. Malignant: irregular, often
    spiculated, indistinct, uneven, taller, shadow behind. Each descriptor has its own noise, so that one
    alone never settles it.

    Args:
        rng: The patient's generator.
        label: 'malignant'; anything else is benign.
        difficulty: 0 to 1; at 1 the appearance does not depend on the label.

    Returns:
        The lesion.
    """
    side = (1.0 if label == "malignant" else -1.0) * 1.7 * (1.0 - difficulty)
    shared = rng.normal(0, 0.6)
    irregular, tall, blurred, dark, uneven, absorbing, halo, size = _squash(
        side + shared + rng.normal(0, 1.0, 8)
    )
    cyst = rng.random() < 0.35 * (1 - irregular) * (1 - absorbing)
    width = float(np.clip(rng.lognormal(1.42 + 0.25 * size, 0.30), 2.2, 10.5))
    height = width * float(np.clip(np.exp(-0.62 + 0.62 * tall + rng.normal(0, 0.12)), 0.38, 1.35))
    return Lesion(
        label=label,
        irregular=float(irregular),
        outline=_outline(rng, width, min(height, 10.0), irregular),
        place=(float(rng.uniform(0.27, 0.73)), float(rng.uniform(0.30, 0.62))),
        echo_db=-30.0 if cyst else float(-13.5 - 5.0 * dark + rng.normal(0, 1.5)),
        uneven_db=0.8 if cyst else float(0.8 + 4.0 * uneven),
        margin_mm=0.10 if cyst else float(0.12 + 0.85 * blurred**1.5),
        absorbs_db_mm=-1.3 if cyst else float(-0.75 + 2.5 * absorbing + rng.normal(0, 0.1)),
        halo_db=float(5.0 * halo * blurred),
        capsule_db=float(8.0 * (1 - irregular) * (1 - blurred)),
        specks=int(rng.poisson(5)) if not cyst and rng.random() < 0.35 * uneven else 0,
    )


def seen_again(lesion: Lesion, rng: np.random.Generator) -> Lesion:
    """Draw the same lesion in another plane: slightly larger or smaller, tilted, with another outline.

    Args:
        lesion: The lesion in the first view.
        rng: The patient's generator.

    Returns:
        A perturbed copy.
    """
    tilt = round(rng.normal(0, 6) * ANGLES / 360)
    ripple = 1 + 0.05 * _ring(rng, 3, 0.5) + rng.normal(0, 0.06)
    outline = np.roll(lesion.outline, tilt) * np.clip(ripple, 0.75, 1.3)
    x, y = lesion.place
    place = (
        float(np.clip(x + rng.normal(0, 0.06), 0.24, 0.76)),
        float(np.clip(y + rng.normal(0, 0.05), 0.25, 0.68)),
    )
    return replace(lesion, outline=outline.astype(np.float32), place=place)


def _squash(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-values))


def _ring(rng: np.random.Generator, orders: int, fall: float) -> npt.NDArray[np.float64]:
    """Draw a smooth random function of the angle: harmonics 2 to `orders`+1, falling in strength."""
    angle = np.arange(ANGLES) * (2 * np.pi / ANGLES)
    order = np.arange(2, orders + 2)
    strength = rng.normal(0, 1, orders) / order**fall
    phase = rng.uniform(0, 2 * np.pi, orders)
    return np.asarray((strength[:, None] * np.cos(order[:, None] * angle + phase[:, None])).sum(axis=0))


def _outline(rng: np.random.Generator, width: float, height: float, irregular: float) -> Map:
    angle = np.arange(ANGLES) * (2 * np.pi / ANGLES)
    tilt = rng.normal(0, 0.16 + 0.2 * irregular)
    radius = 1 / np.hypot(np.cos(angle - tilt) / width, np.sin(angle - tilt) / height)
    radius = radius * (1 + 0.035 * _ring(rng, 3, 1.0) + 0.26 * irregular**1.3 * _ring(rng, 11, 0.9))
    for _ in range(int(rng.poisson(7 * irregular**2))):
        at, tall, sharp = rng.uniform(0, 2 * np.pi), rng.uniform(0.12, 0.45), rng.uniform(40, 160)
        radius = radius * (1 + tall * np.exp(sharp * (np.cos(angle - at) - 1)))
    return np.clip(radius, 1.2, 13.0).astype(np.float32)


@lru_cache(maxsize=128)
def _spread(pixels: int, step: float, knots: int) -> Map:
    """Compute weights that interpolate coarse noise to `pixels`: Gaussian bumps, unit variance everywhere."""
    at = (np.arange(pixels) / step)[:, None] + 2.0
    bumps = np.exp(-0.5 * ((at - np.arange(knots)[None, :]) / 0.8) ** 2)
    return np.asarray(bumps / np.sqrt((bumps**2).sum(axis=1, keepdims=True)), dtype=np.float32)


def field(rng: np.random.Generator, shape: tuple[int, int], down: float, across: float) -> Map:
    """Draw a smooth Gaussian random field of unit variance.

    Args:
        rng: The picture's generator.
        shape: Height and width in pixels.
        down: Grain along the depth in pixels; less than 1 counts as 1.
        across: Grain across in pixels; less than 1 counts as 1.

    Returns:
        The field, float32.
    """
    height, width = shape
    down, across = max(down, 1.0), max(across, 1.0)
    rows, columns = int(np.ceil(height / down)) + 5, int(np.ceil(width / across)) + 5
    noise = rng.standard_normal((rows, columns), dtype=np.float32)
    return np.asarray(
        _spread(height, down, rows) @ noise @ _spread(width, across, columns).T, dtype=np.float32
    )


def _line(rng: np.random.Generator, width: int, grain: float) -> Map:
    return field(rng, (1, width), 1.0, grain)[0]


def _strands(values: Map, thin: float, steep: float) -> Map:
    """Draw bright lines where a random field crosses zero, brightest where they face the beam."""
    down, across = np.gradient(values)
    facing = down**2 / (down**2 + steep * across**2 + 1e-9)
    slope = np.sqrt(down**2 + across**2) + 1e-6
    return np.asarray(np.exp(-((values / (slope * thin)) ** 2)) * facing, dtype=np.float32)


def tissue(
    rng: np.random.Generator, breast: Breast, scanner: Scanner, *, ribs: bool = True
) -> tuple[Map, Map, tuple[Map, Map]]:
    """Draw the layers of the breast and of what lies behind it.

    Args:
        rng: The picture's generator.
        breast: The patient's layers.
        scanner: The scanner, for the size of the picture and of its pixels.
        ribs: Whether the chest wall shines brightly.

    Returns:
        Echo (dB) and attenuation (dB/mm beyond the mean) of every pixel, and the upper and lower edge of the
        glandular layer by column (mm).
    """
    shape = scanner.shape
    px = 1 / scanner.pixel_mm
    depth = (np.arange(shape[0], dtype=np.float32) * scanner.pixel_mm)[:, None]
    skin = breast.skin_mm + 0.12 * _line(rng, shape[1], 5 * px)
    fat = skin + breast.fat_mm * np.clip(1 + 0.22 * _line(rng, shape[1], 5 * px), 0.4, 1.7)
    gland = fat + breast.gland_mm + (breast.fat_mm - (fat - skin)) * 0.7 + 0.5 * _line(rng, shape[1], 9 * px)
    tilt = np.linspace(-1, 1, shape[1], dtype=np.float32) * np.float32(rng.normal(0, 0.8))
    muscle = gland.mean() + float(rng.uniform(6, 11)) + tilt + 0.35 * _line(rng, shape[1], 12 * px)

    def below(edge: Map, soft: float) -> Map:
        return np.asarray(1 / (1 + np.exp(np.clip(-(depth - edge) / soft, -30, 30))), dtype=np.float32)

    in_fat, in_gland, in_muscle, in_chest = (
        below(skin, 0.1),
        below(fat, 0.25),
        below(gland, 0.2),
        below(muscle, 0.4),
    )
    coarse = field(rng, shape, 1.3 * px, 3.2 * px)
    fine = field(rng, shape, 0.5 * px, 1.3 * px)
    lobes = field(rng, shape, 2.2 * px, 4.0 * px)
    fibres = field(rng, shape, 0.45 * px, 5.0 * px)
    septa = _strands(lobes + 0.25 * coarse, 0.20 * px, 0.7)
    strands = _strands(coarse + 0.35 * fine, 0.22 * px, 0.5)
    sheets = _strands(fibres, 0.16 * px, 0.3)

    fat_db = -14.0 + 1.6 * coarse + 0.8 * fine + 14.0 * septa
    bright = -6.0 + 4.0 * breast.density
    gland_db = bright + (6.0 - 2.0 * breast.density) * np.tanh(0.9 * coarse + 0.5 * lobes) + 1.6 * fine
    gland_db += 10.0 * strands * np.clip(0.55 + 0.5 * lobes, 0.1, 1)
    gland_db += 6.0 * sheets * np.clip(0.5 * coarse, 0, 1)
    muscle_db = -11.0 + 1.2 * coarse + 10.0 * sheets
    chest_db = -19.0 + 2.5 * coarse + 5.0 * sheets
    echo = 1.0 + (fat_db - 1.0) * in_fat
    echo += (gland_db - fat_db) * in_gland + (muscle_db - gland_db) * in_muscle
    echo += (chest_db - muscle_db) * in_chest
    for edge, level, thin in ((skin, 7.0, 0.14), (fat, 4.0, 0.2), (gland, 9.0, 0.18)):
        echo += level * np.exp(-(((depth - edge) / thin) ** 2)) * np.clip(0.6 + 0.4 * fine, 0, 1)
    if ribs:
        echo += 13.0 * np.exp(-(((depth - muscle) / 0.3) ** 2)) * np.clip(0.5 + 0.6 * lobes, 0, 1)
    absorbs = 0.10 * (in_gland - in_muscle) * (1 + 0.8 * np.clip(coarse, -1, 2)) + 0.18 * in_chest
    return echo.astype(np.float32), absorbs.astype(np.float32), (fat, gland)


def place_lesion(
    lesion: Lesion,
    layer: tuple[Map, Map],
    scanner: Scanner,
    echo: Map,
    absorbs: Map,
    rng: np.random.Generator,
) -> Mask:
    """Put a lesion into the maps, in place.

    Args:
        lesion: The lesion.
        layer: Upper and lower edge of the glandular layer by column in mm.
        scanner: The scanner, for the size of the picture and of its pixels.
        echo: Echo of every pixel in dB; it is changed.
        absorbs: Attenuation of every pixel in dB/mm; it is changed.
        rng: The picture's generator.

    Returns:
        The lesion's true mask, wholly inside the picture.
    """
    height, width = scanner.shape
    px = scanner.pixel_mm
    reach = float(lesion.outline.max())
    x = float(np.clip(lesion.place[0] * width * px, reach * 0.6 + 1, width * px - reach * 0.6 - 1))
    column = min(int(x / px), width - 1)
    top, bottom = float(layer[0][column]), float(layer[1][column])
    tall = float(np.abs(lesion.outline * np.sin(np.arange(ANGLES) * (2 * np.pi / ANGLES))).max())
    y = top + lesion.place[1] * (bottom - top)
    y = float(np.clip(y, min(tall + 2.0, height * px / 2), max(height * px - tall - 1.5, height * px / 2)))
    around = reach + 5.0 * lesion.margin_mm + 2.5
    rows = slice(max(int((y - around) / px), 0), min(int((y + around) / px) + 1, height))
    columns = slice(max(int((x - around) / px), 0), min(int((x + around) / px) + 1, width))
    across = (np.arange(columns.start, columns.stop) * px - x).astype(np.float32)[None, :]
    down = (np.arange(rows.start, rows.stop) * px - y).astype(np.float32)[:, None]
    angle = np.arctan2(down, across) * np.float32(ANGLES / (2 * np.pi)) + np.float32(ANGLES)
    radius = np.sqrt(across**2 + down**2)
    first = angle.astype(np.int32)
    rest = angle - first
    ring = np.resize(lesion.outline, 2 * ANGLES)
    beyond = radius - (ring[first % ANGLES] * (1 - rest) + ring[first % ANGLES + 1] * rest)
    mask = np.zeros((height, width), dtype=np.bool_)
    mask[rows, columns] = beyond < 0

    ragged = field(rng, beyond.shape, 0.5 / px, 0.7 / px)
    patches = field(rng, beyond.shape, 1.1 / px, 1.4 / px)
    soft = beyond + 0.55 * lesion.margin_mm * ragged
    inside = 1 / (1 + np.exp(np.clip(soft / (0.45 * lesion.margin_mm), -30, 30)))
    body = lesion.echo_db + lesion.uneven_db * (0.8 * patches + 0.5 * ragged)
    rim = np.exp(-(((beyond - 0.9) / 0.9) ** 2)) * (1 - inside)
    facing = (down / (radius + 0.1)) ** 4
    shell = np.exp(-((beyond / 0.16) ** 2)) * facing
    here = echo[rows, columns]
    here += (body - here) * inside + lesion.halo_db * rim + lesion.capsule_db * shell
    if lesion.specks:
        ys, xs = np.nonzero(beyond < -0.8)
        for at in rng.integers(0, max(len(ys), 1), lesion.specks) if len(ys) else ():
            here[ys[at] : ys[at] + 2, xs[at] : xs[at] + 2] = 10.0
    absorbs[rows, columns] += lesion.absorbs_db_mm * inside
    return mask


@lru_cache(maxsize=16)
def _filters(
    shape: tuple[int, int], axial: float, lateral: float, looks: int
) -> tuple[tuple[npt.NDArray[np.complex64], npt.NDArray[np.complex64]], ...]:
    """Compute the transfer functions of each look, at the focus and wider away from it, by angle."""
    down = 2 * np.pi * fft.fftfreq(shape[0])[:, None]
    across = 2 * np.pi * fft.fftfreq(shape[1])[None, :]
    made = []
    for look in range(looks):
        turned = across - (look - (looks - 1) / 2) * min(1.9 / lateral, 2.4 / looks)
        pair = []
        for wide in (lateral, 1.7 * lateral):
            passed = np.exp(-0.5 * (down * axial) ** 2 - 0.5 * (turned * wide) ** 2)
            pair.append((passed / np.sqrt(np.mean(passed**2))).astype(np.complex64))
        made.append((pair[0], pair[1]))
    return tuple(made)


def speckle(rng: np.random.Generator, echo: Map, scanner: Scanner, focus_mm: float) -> Map:
    """Compute the envelope (dB) that a scanner sees of an echo map.

    The envelope has Rayleigh speckle, averaged over the looks.

    Args:
        rng: The picture's generator.
        echo: Echo of every pixel in dB.
        scanner: The scanner: point-spread function, number of looks and size of a pixel.
        focus_mm: Depth of the focus; away from it the point-spread function is wider.

    Returns:
        The envelope of every pixel in dB.
    """
    height, width = echo.shape
    axial, lateral = scanner.axial_mm / scanner.pixel_mm, scanner.lateral_mm / scanner.pixel_mm
    looks = max(round(scanner.looks), 1)
    padded = (fft.next_fast_len(height + int(5 * axial)), fft.next_fast_len(width + int(7 * lateral)))
    scatter = np.zeros(padded, dtype=np.complex64)
    noise = rng.standard_normal((height, width, 2), dtype=np.float32).view(np.complex64)[..., 0]
    scatter[:height, :width] = noise * np.float32(np.sqrt(0.5)) * np.power(np.float32(10), echo / 20)
    spectrum = fft.fft2(scatter)
    depth = (np.arange(height, dtype=np.float32) * scanner.pixel_mm)[:, None]
    off = np.clip(np.abs(depth - focus_mm) / 16.0, 0, 1)
    power = np.zeros((height, width), dtype=np.float32)
    for near, far in _filters(padded, axial, lateral, looks):
        wide = fft.ifft2(spectrum * far, overwrite_x=True)[:height, :width]
        seen = fft.ifft2(spectrum * near, overwrite_x=True)[:height, :width]
        seen += off * (wide - seen)
        power += seen.real**2 + seen.imag**2
    return np.asarray(10 * np.log10(power / looks + 1e-6), dtype=np.float32)


def picture(
    rng: np.random.Generator, breast: Breast, lesions: tuple[Lesion, ...], scanner: Scanner
) -> tuple[npt.NDArray[np.uint8], tuple[Mask, ...]]:
    """Draw one B-mode picture without overlays, and the true mask of each lesion in it.

    Args:
        rng: The picture's generator.
        breast: The patient's layers.
        lesions: The lesions to put in, in order.
        scanner: The scanner.

    Returns:
        The picture, uint8 [height, width], and one mask per lesion.
    """
    echo, absorbs, layer = tissue(rng, breast, scanner)
    masks = tuple(place_lesion(lesion, layer, scanner, echo, absorbs, rng) for lesion in lesions)
    px = scanner.pixel_mm
    depth = (np.arange(echo.shape[0], dtype=np.float32) * px)[:, None]
    path = uniform_filter1d(np.cumsum(absorbs, axis=0), max(round(1.2 / px), 1), axis=1) * px
    lost = (
        path - path.mean(axis=1, keepdims=True) * 0.7 + scanner.slope_db_cm * np.clip(depth - 9, 0, None) / 10
    )
    contact = 1.2 * _line(rng, echo.shape[1], 4 / px) + 0.8 * _line(rng, echo.shape[1], 1.2 / px)
    swing = 1.5 * field(rng, (echo.shape[0], 1), 7 / px, 1.0)
    edge = np.linspace(-1, 1, echo.shape[1], dtype=np.float32)[None, :]
    level = echo - lost - np.clip(contact, -6, 1.5)[None, :] * np.clip(depth / 8, 0.2, 1) + swing
    level -= 5.0 * np.clip(np.abs(edge) - 0.75, 0, None) / 0.25 * np.float32(rng.uniform(0, 1.2))
    level = np.maximum(level, -38.0 + 0.25 * depth)
    seen = speckle(rng, level, scanner, focus_mm=float(rng.uniform(10, 20)))
    grey = np.clip((seen + scanner.gain_db) / scanner.dynamic_range_db + 0.62, 0, 1) ** scanner.gamma
    return (grey * 255).astype(np.uint8), masks
