"""A small picture of a whole slide, made from its own pixels: the label and overview pictures in the file are not read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.slides.slide import WHITE, Pixels, Slide
from elsewhere.inputs.slides.tissue import otsu_threshold, saturation

SIDE = 512
"""Pixels along the longer side of an overview."""
_MOST_MPP = 1000.0
_SPECK = np.ones((2, 2), bool)
"""What is thinner than this is dust or noise, and no tissue."""


def overview(slide: Slide, *, side: int = SIDE, threads: int = 1) -> Pixels:
    """Make a small picture of a slide.

    Args:
        slide: The slide.
        side: Pixels along its longer side, about.
        threads: Threads that decode tiles.

    Returns:
        [rows, columns, 3] of 8 bits in RGB; from the coarsest level that is not coarser, averaged over area.

    Raises:
        UserError: A tile cannot be read.
    """
    mpp = min(_MOST_MPP, max(slide.mpp, slide.mpp * max(slide.size_px) / side))
    strips = [part.pixels for part in slide.strips(mpp, rule="nearest", threads=threads)]
    return np.concatenate(strips)


def tissue_grey(picture: Pixels) -> npt.NDArray[np.uint8]:
    """Cut the tissue out of an overview: glass becomes white, and the rest is grey.

    Two scans of one piece of glass differ in white point and in how much glass they show; what is left is the outline
    of the tissue and what is inside of it.

    Args:
        picture: [rows, columns, 3] of 8 bits in RGB.

    Returns:
        [rows, columns] of the box around the tissue; the whole picture where no tissue is found.

    Example:
        >>> import numpy as np
        >>> picture = np.full((6, 8, 3), 240, np.uint8)
        >>> picture[2:4, 3:7] = [150, 60, 150]
        >>> tissue_grey(picture).shape
        (2, 4)
    """
    from scipy import ndimage

    saturations = saturation(picture)
    found = otsu_threshold(np.bincount(saturations.ravel(), minlength=256).astype(np.int64))
    tissue = ndimage.binary_opening(saturations > found.threshold, structure=_SPECK)
    grey = np.rint(picture @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    if not tissue.any():
        return grey
    rows, columns = np.flatnonzero(tissue.any(axis=1)), np.flatnonzero(tissue.any(axis=0))
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.where(tissue, grey, np.uint8(WHITE))[box]
