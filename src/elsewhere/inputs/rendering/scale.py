"""Scale of patches: the same tissue at another number of microns per pixel, in patches of the same size.

A patch that is shrunk no longer fills its square: the rest is mirrored tissue that is not scored. One that is enlarged is
cut to its middle. What is scored is the same field of tissue in every version (`Field`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.stain.optical_density import Bytes, check_pixels

MOST_FACTOR = 4.0


@dataclass(frozen=True, kw_only=True)
class Field:
    """The middle of a patch that is scored.

    Attributes:
        start: The first row and column.
        size: Pixels along it.
    """

    start: int
    size: int

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns."""
        part = slice(self.start, self.start + self.size)
        return part, part


def middle(size: int, share: float) -> Field:
    """Find the middle of a patch.

    Args:
        size: Pixels along the patch.
        share: How much of its side the field has, above 0 and up to 1.

    Returns:
        The field; it has as many pixels before it as behind it, or one less.

    Example:
        >>> middle(256, 0.5), middle(256, 1.0).window[0]
        (Field(start=64, size=128), slice(0, 256, None))
    """
    inside = min(size, max(1, round(size * share)))
    return Field(start=(size - inside) // 2, size=inside)


def rescale(pixels: npt.ArrayLike, factor: float) -> Bytes:
    """Show the tissue of a patch at another number of microns per pixel, around its middle.

    Args:
        pixels: uint8 [size, size, 3].
        factor: How many times larger the tissue gets: microns per pixel now over those wanted.

    Returns:
        A patch of the same size.

    Raises:
        UserError: The factor is not between 1/4 and 4, or the patch is no square of 8-bit RGB pixels.

    Example:
        >>> patch = np.full((64, 64, 3), 200, dtype=np.uint8)
        >>> rescale(patch, 0.7).shape
        (64, 64, 3)
    """
    array = check_pixels(pixels)
    if array.ndim != 3 or array.shape[0] != array.shape[1]:
        raise UserError(f"a patch of the shape {array.shape} cannot be scaled", fix="Give square patches.")
    if not 1 / MOST_FACTOR <= factor <= MOST_FACTOR:
        raise UserError(
            f"tissue would become {factor:g} times as large",
            fix="Check the microns per pixel of both laboratories: they may differ 4 times at most.",
        )
    planes = [_resized(array[..., channel].astype(np.float32), factor) for channel in range(3)]
    return np.clip(np.rint(np.stack(planes, axis=-1)), 0, 255).astype(np.uint8)


def rescale_mask(mask: npt.NDArray[np.bool_], factor: float) -> npt.NDArray[np.bool_]:
    """Do with a mask what `rescale` does with its patch.

    Args:
        mask: [size, size] of truth values.
        factor: As in `rescale`.

    Returns:
        A mask of the same size: a pixel is tumour where at least half of it is.

    Example:
        >>> mask = np.zeros((64, 64), dtype=bool)
        >>> mask[16:48, 16:48] = True
        >>> int(rescale_mask(mask, 0.5)[16:48, 16:48].sum())
        256
    """
    return np.asarray(_resized(mask.astype(np.float32), factor) >= 0.5)


def _resized(plane: npt.NDArray[np.float32], factor: float) -> npt.NDArray[np.float32]:
    """Resample with the mean over area where it shrinks, cubic where it grows; crop or mirror to the size."""
    from PIL import Image

    size = plane.shape[0]
    if factor >= 1:
        # the box is exact, also where it is no whole number of pixels
        side = size / factor
        start = (size - side) / 2
        image = Image.fromarray(plane).resize(
            (size, size), Image.Resampling.BICUBIC, box=(start, start, start + side, start + side)
        )
        return np.asarray(image, dtype=np.float32)
    field = middle(size, factor)
    # the part of the source that falls on whole pixels
    side = min(float(size), field.size / factor)
    start = (size - side) / 2
    small = np.asarray(
        Image.fromarray(plane).resize(
            (field.size, field.size), Image.Resampling.BOX, box=(start, start, start + side, start + side)
        ),
        dtype=np.float32,
    )
    before, behind = field.start, size - field.start - field.size
    while before or behind:
        most = len(small) - 1
        now = min(before, most), min(behind, most)
        small = np.pad(small, (now, now), mode="reflect")
        before, behind = before - now[0], behind - now[1]
    return small
