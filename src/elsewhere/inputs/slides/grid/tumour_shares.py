"""How much of each patch is tumour, from outlines or from a mask (LN-02).

Two rules for outlines, by name. `exact`: the share of the patch's own pixels whose centre lies in the region, by the rule
of `annotations.outlines`. `boundary`: as OpenCV's fillPoly draws it on pixels of 1/16 of a patch (8 microns): corners are cut to whole
pixels, every pixel that a line touches counts as inside (as a hole for holes), and what a ring winds around twice is outside. It
makes outlines about half such a pixel wider, and gives the patch counts that are stated for the public outlines of CAMELYON16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.slides.annotations import Annotations, MaskTiff, tumour_shares
from elsewhere.inputs.slides.grid.geometry import PatchGrid
from elsewhere.inputs.slides.tiles import EXTRA

FILLS = ("exact", "boundary")
BOUNDARY_PARTS = 16
MOST_PIXELS = 1 << 30


@dataclass(frozen=True, kw_only=True)
class TumourShares:
    """The tumour of the patches of a slide.

    Attributes:
        shares: [rows, columns], 0 to 1.
        outside: Tumour to the right of the grid and below it, where no whole patch fits, in patches.
    """

    shares: npt.NDArray[np.float64]
    outside: float = 0.0


def check_fill(fill: str) -> str:
    """Check the name of a rule for outlines.

    Args:
        fill: "exact" or "boundary".

    Returns:
        The same name.

    Raises:
        UserError: There is no such rule.

    Example:
        >>> check_fill("exact")
        'exact'
    """
    if fill not in FILLS:
        raise unknown_name("rule for the pixels of outlines", fill, FILLS)
    return fill


def tumour_shares_on(
    annotation: Annotations | MaskTiff,
    grid: PatchGrid,
    *,
    fill: str = "exact",
    size_px: tuple[int, int] | None = None,
) -> TumourShares:
    """Measure the tumour of every patch of a grid, row by row.

    Args:
        annotation: Outlines, or a mask of the slide.
        grid: The patches.
        fill: "exact" or "boundary"; a mask is always read exactly.
        size_px: Width and height of the slide at level 0; needed for a mask.

    Returns:
        The shares.

    Raises:
        UserError: There is no such rule, a mask does not fit the slide, or OpenCV is not installed for "boundary".

    Example:
        >>> from elsewhere.inputs.slides.annotations import Outline
        >>> from elsewhere.inputs.slides.grid.geometry import lay_outline_grid
        >>> square = Annotations((Outline(np.array([[0.0, 0], [300, 0], [300, 128], [0, 128]])),))
        >>> tumour_shares_on(square, lay_outline_grid(square, 0.5)).shares.tolist()
        [[0.5, 0.0859375]]
    """
    check_fill(fill)
    shape = (grid.rows + 1, grid.columns + 1)
    if isinstance(annotation, MaskTiff):
        if size_px is None:
            raise UserError(
                "a mask needs the size of its slide",
                where=str(annotation.path),
                fix="Give the slide together with its mask.",
            )
        shares = annotation.tumour_shares(patch_px=grid.patch_px, shape=shape, size_px=size_px)
    elif fill == "exact":
        shares = tumour_shares(annotation, patch_px=grid.patch_px, shape=shape, samples=grid.size_px)
    else:
        shares = _with_boundary(annotation, grid.patch_px, shape)
    outside = float(shares[-1].sum() + shares[:-1, -1].sum())
    return TumourShares(shares=shares[:-1, :-1].copy(), outside=outside)


def _with_boundary(
    annotations: Annotations, patch_px: float, shape: tuple[int, int]
) -> npt.NDArray[np.float64]:
    rows, columns = (side * BOUNDARY_PARTS for side in shape)
    if rows * columns > MOST_PIXELS:
        raise UserError(
            f"the outlines reach over {columns:,} x {rows:,} pixels of a sixteenth of a patch",
            where=annotations.where or None,
            fix="Check their coordinates, or use the rule 'exact'.",
        )
    try:
        import cv2
    except ImportError as error:
        raise UserError("the rule 'boundary' draws with OpenCV, which is not installed", fix=EXTRA) from error
    mask = np.zeros((rows, columns), np.uint8)
    step = patch_px / BOUNDARY_PARTS

    def cut(ring: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        return np.trunc(ring / step).astype(np.int32)

    for outline in annotations.outlines:
        ring = cut(outline.ring)
        if not outline.holes:
            cv2.fillPoly(mask, [ring], 1)
            continue
        left, top = np.maximum(ring.min(axis=0), 0).tolist()
        right, bottom = np.minimum(ring.max(axis=0) + 1, (columns, rows)).tolist()
        if right <= left or bottom <= top:
            continue
        own = np.zeros((bottom - top, right - left), np.uint8)
        corner = np.array([left, top], np.int32)
        cv2.fillPoly(own, [ring - corner], 1)
        for hole in outline.holes:  # they are taken from this outline alone
            cv2.fillPoly(own, [cut(hole) - corner], 0)
        mask[top:bottom, left:right] |= own
    for outline in annotations.exclusions:
        cv2.fillPoly(mask, [cut(outline.ring)], 0)
    parts = mask.reshape(shape[0], BOUNDARY_PARTS, shape[1], BOUNDARY_PARTS)
    return parts.sum(axis=(1, 3), dtype=np.int64) / float(BOUNDARY_PARTS**2)
