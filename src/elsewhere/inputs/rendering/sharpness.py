"""Sharpness of patches: how fast the radial power spectrum falls, and the filter that lies between two laboratories.

A Gaussian blur of standard deviation s multiplies the power at the frequency f by exp(-4 pi^2 s^2 f^2). The slope of the
logarithm of the power against -4 pi^2 f^2 is therefore a number in square pixels that grows by s^2 with the blur, whatever
the contrast of the stain (`blur_index`). It says which laboratory is sharper.

How much sharper, frequency by frequency, is the root of the ratio of both spectra (`matching_gain`). A filter with this gain
knows of sharpening and of the scanner's noise, which a Gaussian would remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.stain.optical_density import Bytes, check_pixels

LOWEST, HIGHEST = 0.04, 0.25
"""Cycles per pixel between which the slope is taken: below lies the tissue's structure, above the scanner's noise."""
RINGS = 25
"""Rings of the spectrum, from 0 to 0.5 cycles per pixel."""
LEAST_PX = 32
LEAST_GAIN = 0.05
_GREEN = 1
_CONTRAST = (0.01, 0.05)
"""Cycles per pixel at which two spectra are made equal: what lies there is contrast, not sharpness."""
Floats = npt.NDArray[np.float64]


def radial_spectrum(patches: Iterable[npt.ArrayLike]) -> Floats:
    """Measure the mean power of the patches of one slide, ring by ring.

    Args:
        patches: uint8 [height, width, 3] each, of one size.

    Returns:
        The logarithm of the power in `RINGS` rings of equal width; NaN without a patch that has structure.

    Raises:
        UserError: A patch is not 8-bit RGB, is below 32 pixels, or has another size than the others.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> white = radial_spectrum([rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)])
        >>> white.shape, bool(abs(white[3:].max() - white[3:].min()) < 1.5)
        ((25,), True)
    """
    total: Floats | None = None
    size: tuple[int, ...] | None = None
    for patch in patches:
        pixels = check_pixels(patch, what="patch")
        if size is None:
            size = pixels.shape
            if pixels.ndim != 3 or min(pixels.shape[:2]) < LEAST_PX:
                raise UserError(
                    f"sharpness cannot be measured on a patch of the shape {pixels.shape}",
                    fix=f"Give patches [height, width, 3] of at least {LEAST_PX} pixels.",
                )
        if pixels.shape != size:
            raise UserError("the patches have several sizes", fix="Measure patches of one size.")
        plane = pixels[..., _GREEN].astype(np.float64)
        plane = (plane - plane.mean()) * _window(*plane.shape)
        power = np.abs(np.fft.rfft2(plane)) ** 2
        total = power if total is None else total + power
    if total is None or size is None:
        return np.full(RINGS, np.nan)
    ring, weight = _rings(size[0], size[1])
    inside = ring >= 0
    counted = np.bincount(ring[inside], weight[inside], RINGS)
    radial: Floats = np.bincount(ring[inside], (total * weight)[inside], RINGS) / counted
    if not (radial > 0).all():
        return np.full(RINGS, np.nan)
    logs: Floats = np.log(radial)
    return logs


def ring_frequencies() -> Floats:
    """Return the middle of each ring.

    Returns:
        Cycles per pixel.

    Example:
        >>> ring_frequencies()[[0, -1]].tolist()
        [0.01, 0.49]
    """
    return np.asarray((np.arange(RINGS) + 0.5) * (0.5 / RINGS), dtype=np.float64)


def blur_index(spectrum: Floats) -> float:
    """Say how blurred a slide is; only differences between slides have a meaning.

    Args:
        spectrum: What `radial_spectrum` measured.

    Returns:
        Square pixels: a Gaussian blur of standard deviation s adds s^2. NaN without structure.

    Example:
        >>> soft = -4 * np.pi**2 * 1.5**2 * ring_frequencies() ** 2
        >>> round(blur_index(soft) - blur_index(np.zeros(RINGS)), 6)
        2.25
    """
    frequencies = ring_frequencies()
    used = (frequencies >= LOWEST) & (frequencies <= HIGHEST)
    x = -4.0 * np.pi**2 * frequencies[used] ** 2
    x = x - x.mean()
    return float((x * spectrum[used]).sum() / (x * x).sum())


def matching_gain(source: Floats, target: Floats) -> Floats:
    """Find the filter that takes one spectrum to another one that is less sharp.

    Args:
        source: The spectrum of the sharper patches.
        target: The spectrum to have.

    Returns:
        The gain of each ring, 1 or less; contrast is not changed.

    Example:
        >>> soft = -4 * np.pi**2 * 0.7**2 * ring_frequencies() ** 2
        >>> gain = matching_gain(np.zeros(RINGS), soft)
        >>> bool(gain[0] == 1.0), bool(np.abs(gain[1:] - np.exp(soft[1:] / 2)).max() < 0.05)
        (True, True)
    """
    frequencies = ring_frequencies()
    logs = 0.5 * (target - source)
    logs = logs - logs[(frequencies >= _CONTRAST[0]) & (frequencies <= _CONTRAST[1])].mean()
    smooth = np.convolve(np.pad(logs, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
    gain = np.clip(np.exp(smooth), LEAST_GAIN, 1.0)
    gain[0] = 1.0
    return gain


def apply_gain(pixels: npt.ArrayLike, gain: Sequence[float], *, pixel_ratio: float = 1.0) -> Bytes:
    """Filter a picture.

    Args:
        pixels: uint8 [height, width, 3].
        gain: The gain of each ring of `ring_frequencies`.
        pixel_ratio: Microns per pixel of the gain over those of the picture.

    Returns:
        A new array of the same shape; the border is mirrored.

    Raises:
        UserError: These are no 8-bit RGB pixels, or the gain has another number of rings.

    Example:
        >>> flat = np.full((32, 32, 3), 200, dtype=np.uint8)
        >>> bool((apply_gain(flat, [1.0] * 10 + [0.2] * 15) == flat).all())
        True
    """
    array = check_pixels(pixels)
    values = np.asarray(gain, dtype=np.float64)
    if values.shape != (RINGS,) or array.ndim != 3:
        raise UserError(f"a filter of {values.size} rings for a picture of the shape {array.shape}")
    height, width = array.shape[:2]
    pad = min(16, height - 1, width - 1)
    padded = np.pad(array.astype(np.float32), ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    shape = padded.shape[:2]
    response = _response(shape[0], shape[1], tuple(values.tolist()), float(pixel_ratio))
    spectrum = np.fft.rfft2(padded, axes=(0, 1)) * response[..., None]
    made = np.fft.irfft2(spectrum, s=shape, axes=(0, 1))[pad : pad + height, pad : pad + width]
    return np.clip(np.rint(made), 0, 255).astype(np.uint8)


@lru_cache(maxsize=8)
def _window(height: int, width: int) -> Floats:
    return np.asarray(np.outer(np.hanning(height), np.hanning(width)))


@lru_cache(maxsize=8)
def _response(height: int, width: int, gain: tuple[float, ...], ratio: float) -> npt.NDArray[np.float32]:
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]) * ratio
    made = np.interp(radius, ring_frequencies(), gain)
    made[0, 0] = 1.0
    return made.astype(np.float32)


@lru_cache(maxsize=8)
def _rings(height: int, width: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """The ring of each frequency, -1 outside, and how often it counts in a half-sided transform."""
    radius = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    ring = np.floor(radius * (RINGS / 0.5)).astype(np.int64)
    ring[(radius >= 0.5) | (radius == 0)] = -1
    weight = np.full(ring.shape, 2.0)
    weight[:, 0] = 1.0
    return ring, weight
