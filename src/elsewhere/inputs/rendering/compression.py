"""JPEG compression of patches: which quality they were stored with, and the same quality applied to others.

A picture that was stored as JPEG changes least when it is stored again with the same quality. The quality is therefore
the lowest one at which the error of storing again falls far below that of its neighbours (a finer one whose steps divide the
true ones falls too). This holds for pixels that were not resampled since; others give no answer, and the quality is stated.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.stain.optical_density import Bytes, check_pixels

LOWEST, HIGHEST = 4, 98
MOST_PATCHES = 12
"""Patches that a quality is measured on."""
_DIP = 0.6
"""How far the error has to fall below that of the neighbours."""
_REACH = 3
_FLOOR = 0.02
"""Added to both errors: what rounding of colours to brightness leaves."""
_SUBSAMPLING = {True: "4:2:0", False: "4:4:4"}


@dataclass(frozen=True, kw_only=True)
class JpegQuality:
    """How pictures are stored as JPEG.

    Attributes:
        quality: 1 to 95 and above, in the scale of libjpeg.
        subsampled: Whether colour has half the resolution (4:2:0).
    """

    quality: int
    subsampled: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise UserError(f"the JPEG quality is {self.quality}", fix="Give a number from 1 to 100.")

    def words(self) -> str:
        """Describe it in a few words.

        Returns:
            Such as "JPEG quality 80, colour at half resolution".

        Example:
            >>> JpegQuality(quality=80, subsampled=False).words()
            'JPEG quality 80, colour at full resolution'
        """
        return f"JPEG quality {self.quality}, colour at {'half' if self.subsampled else 'full'} resolution"


def compress(pixels: npt.ArrayLike, jpeg: JpegQuality) -> Bytes:
    """Store a picture as JPEG and read it again.

    Args:
        pixels: uint8 [height, width, 3].
        jpeg: The quality.

    Returns:
        A new array of the same shape.

    Raises:
        UserError: These are no 8-bit RGB pixels.

    Example:
        >>> flat = np.full((16, 16, 3), 200, dtype=np.uint8)
        >>> bool((compress(flat, JpegQuality(quality=80)) == flat).all())
        True
    """
    from PIL import Image

    array = check_pixels(pixels)
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(
        held, "JPEG", quality=jpeg.quality, subsampling=_SUBSAMPLING[jpeg.subsampled]
    )
    held.seek(0)
    with Image.open(held) as image:
        return np.asarray(image.convert("RGB"))


def measure_quality(patches: Sequence[npt.ArrayLike]) -> JpegQuality | None:
    """Find the JPEG quality that patches were stored with, from their brightness.

    Args:
        patches: uint8 [height, width, 3] each, whose corners lie on whole blocks of 8 pixels of the stored picture.

    Returns:
        The quality; None where none can be told: pixels that were resampled, never compressed, or nearly white. The
        resolution of colour is not measured, and taken as half.

    Raises:
        UserError: A patch is not 8-bit RGB.

    Example:
        >>> rng = np.random.default_rng(3)
        >>> cells = np.kron(rng.integers(90, 200, (32, 32, 1)), np.ones((4, 4, 3)))
        >>> fine = np.clip(cells + rng.normal(0, 6, (128, 128, 1)), 0, 255).astype(np.uint8)
        >>> measure_quality([compress(fine, JpegQuality(quality=62))]), measure_quality([fine])
        (JpegQuality(quality=62, subsampled=True), None)
    """
    arrays = [check_pixels(patch, what="patch") for patch in patches]
    arrays = [one for one in arrays if one.size and float(one.std()) > 2.0]
    if not arrays:
        return None
    step = max(1, len(arrays) // MOST_PATCHES)
    planes = [_brightness(one) for one in arrays[::step][:MOST_PATCHES]]
    errors = np.array([_error(planes, quality) for quality in range(LOWEST, HIGHEST + 1)])
    for at in range(_REACH, len(errors) - _REACH):
        around = np.r_[errors[at - _REACH : at], errors[at + 1 : at + 1 + _REACH]]
        if (errors[at] + _FLOOR) / (np.median(around) + _FLOOR) < _DIP:
            # a neighbour has nearly the same steps and falls as well: the lowest of them is the true one
            best = at + int(np.argmin(errors[at : at + _REACH]))
            return JpegQuality(quality=LOWEST + best)
    return None


def _brightness(pixels: Bytes) -> Bytes:
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).convert("L"))


def _error(planes: Sequence[Bytes], quality: int) -> float:
    """The mean squared change of brightness when it is stored with a quality."""
    from PIL import Image

    total = 0.0
    for plane in planes:
        held = io.BytesIO()
        Image.fromarray(plane).save(held, "JPEG", quality=quality)
        held.seek(0)
        with Image.open(held) as image:
            total += float(np.mean((plane.astype(np.float32) - np.asarray(image, np.float32)) ** 2))
    return total / len(planes)
