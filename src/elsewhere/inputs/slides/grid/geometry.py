"""Where the patches of a slide lie: a grid from the slide's corner, at one of two scales by name (LN-02).

`mpp`: the same microns per pixel for every slide, by exact means over area. `study`: pixels as they are stored, of the
level of downsample 2 for slides under 0.3 microns per pixel and of level 0 otherwise, as the published study read them:
its slides then differ by up to some 10 % in scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.slides.annotations import Annotations
from elsewhere.inputs.slides.scale import MOST_UPSAMPLING, check_mpp
from elsewhere.inputs.slides.slide import Slide

SCALES = ("mpp", "study")
PATCH_PX = 256
PATCH_MPP = 0.5
FINE_MPP = 0.3
"""Slides with smaller pixels are read from the level of downsample 2 by the scale `study`."""
REMARKED, REFUSED = 1.1, 1.5
"""How far the study's pixels may be from 0.5 microns, as a factor."""
MOST_PATCHES = 1 << 24
_SLACK = 1e-6


@dataclass(frozen=True, kw_only=True)
class PatchGrid:
    """The whole patches of a slide. Patch (i, j) covers x from i to i + 1 times `patch_px`, and y by j likewise.

    Attributes:
        scale: How the pixels are made: `mpp` or `study`.
        size_px: Pixels along a patch.
        mpp: Microns per pixel of the patches.
        patch_px: Pixels of level 0 along a patch; it need not be whole.
        columns: Patches in a row.
        rows: Rows of patches.
        level: The level that is read as it is stored; None where the pixels are means over area.
        warnings: What a reader should know, as sentences.
    """

    scale: str
    size_px: int
    mpp: float
    patch_px: float
    columns: int
    rows: int
    level: int | None = None
    warnings: tuple[str, ...] = ()


def check_scale(scale: str) -> str:
    """Check the name of a scale.

    Args:
        scale: "mpp" or "study".

    Returns:
        The same name.

    Raises:
        UserError: There is no such scale.

    Example:
        >>> check_scale("study")
        'study'
    """
    if scale not in SCALES:
        raise unknown_name("scale of patches", scale, SCALES)
    return scale


def lay_grid(
    slide: Slide, *, scale: str = "mpp", mpp: float = PATCH_MPP, size_px: int = PATCH_PX
) -> PatchGrid:
    """Lay the grid of a slide from its upper left corner; patches that reach over the border are left out.

    Args:
        slide: The slide.
        scale: "mpp" or "study".
        mpp: Microns per pixel of the patches; the scale "study" has its own.
        size_px: Pixels along a patch.

    Returns:
        The grid.

    Raises:
        UserError: There is no such scale, the slide is too coarse for it or lacks the level that it reads, or no
            whole patch fits.

    Example:
        >>> import tempfile, numpy, PIL.Image
        >>> from elsewhere.inputs.slides.opening import open_slide
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     PIL.Image.fromarray(numpy.zeros((1100, 1700, 3), "u1")).save(folder + "/a.png")
        ...     with open_slide(folder + "/a.png", mpp=0.25) as slide:
        ...         grid = lay_grid(slide)
        >>> grid.columns, grid.rows, grid.patch_px
        (3, 2, 512.0)
    """
    check_scale(scale)
    _check_size(size_px)
    where = str(slide.path)
    width, height = slide.size_px
    if scale == "mpp":
        slide.level_for(mpp)
        patch_px = size_px * mpp / slide.mpp
        columns, rows = (int(side / patch_px + _SLACK) for side in (width, height))
        grid = PatchGrid(
            scale=scale, size_px=size_px, mpp=float(mpp), patch_px=patch_px, columns=columns, rows=rows
        )
    else:
        number = _study_level(slide)
        level = slide.levels[number]
        _check_study_mpp(level.mpp, where)
        grid = PatchGrid(
            scale=scale,
            size_px=size_px,
            mpp=level.mpp,
            patch_px=size_px * level.downsample,
            columns=level.width // size_px,
            rows=level.height // size_px,
            level=number,
            warnings=_study_remarks(level.mpp),
        )
    if not grid.columns or not grid.rows:
        raise UserError(
            f"the slide of {width:,} x {height:,} pixels holds no whole patch of {grid.patch_px:,.6g} x "
            f"{grid.patch_px:,.6g} pixels of level 0",
            where=where,
            fix="Check its microns per pixel, or leave the slide out.",
        )
    return _bounded(grid, where)


def lay_outline_grid(
    annotations: Annotations,
    slide_mpp: float,
    *,
    scale: str = "mpp",
    mpp: float = PATCH_MPP,
    size_px: int = PATCH_PX,
) -> PatchGrid:
    """Lay the grid of a slide of which only the outlines are there: as far as they reach.

    Args:
        annotations: The outlines, in pixels of level 0.
        slide_mpp: Microns per pixel of the slide at level 0.
        scale: "mpp" or "study".
        mpp: Microns per pixel of the patches; the scale "study" has its own.
        size_px: Pixels along a patch.

    Returns:
        The grid; without rows where there are no outlines.

    Raises:
        UserError: There is no such scale, or the slide is too coarse for it.

    Example:
        >>> import numpy
        >>> from elsewhere.inputs.slides.annotations import Outline
        >>> ring = Outline(numpy.array([[0.0, 0], [600, 0], [600, 500]]))
        >>> grid = lay_outline_grid(Annotations((ring,)), 0.243, scale="study")
        >>> grid.columns, grid.rows, grid.patch_px, grid.mpp
        (2, 1, 512.0, 0.486)
    """
    check_scale(scale)
    _check_size(size_px)
    where = annotations.where or "outlines"
    slide_mpp = check_mpp(slide_mpp, where=where)
    remarks: tuple[str, ...] = ()
    if scale == "mpp":
        if not math.isfinite(mpp) or mpp <= 0 or slide_mpp > mpp * MOST_UPSAMPLING * (1 + 1e-9):
            raise UserError(
                f"{mpp:g} microns per pixel are wanted and the slide has {slide_mpp:.4g}",
                where=where,
                fix="Ask for as many as the slide has, or more: a slide is never enlarged by more than 5 %.",
            )
        factor = mpp / slide_mpp
    else:
        factor = 2.0 if slide_mpp < FINE_MPP else 1.0
        mpp = slide_mpp * factor
        _check_study_mpp(mpp, where)
        remarks = _study_remarks(mpp)
    patch_px = size_px * factor
    _, _, right, bottom = annotations.box
    columns, rows = (int(side // patch_px) + 1 if side > 0 else 0 for side in (right, bottom))
    grid = PatchGrid(
        scale=scale,
        size_px=size_px,
        mpp=float(mpp),
        patch_px=patch_px,
        columns=columns if rows else 0,
        rows=rows if columns else 0,
        level=None,
        warnings=remarks,
    )
    return _bounded(grid, where)


def _check_size(size_px: int) -> None:
    if not 16 <= size_px <= 8192:
        raise UserError(f"patches of {size_px} pixels were asked for", fix="Give 16 to 8,192, such as 256.")


def _bounded(grid: PatchGrid, where: str) -> PatchGrid:
    if grid.columns * grid.rows > MOST_PATCHES:
        raise UserError(
            f"the grid has {grid.columns:,} x {grid.rows:,} patches; at most {MOST_PATCHES:,} are made",
            where=where,
            fix="Check the microns per pixel, or ask for larger patches.",
        )
    return grid


def _study_level(slide: Slide) -> int:
    if slide.mpp >= FINE_MPP:
        return 0
    for number, level in enumerate(slide.levels):
        if abs(level.downsample - 2) < 0.01:
            return number
    stated = ", ".join(f"{level.downsample:.4g}" for level in slide.levels)
    raise UserError(
        f"the scale 'study' reads the level of downsample 2, and the slide of {slide.mpp:.4g} microns per pixel has "
        f"{'the downsamples' if len(slide.levels) > 1 else 'only the downsample'} {stated}",
        where=str(slide.path),
        fix="Use the scale 'mpp', which averages level 0.",
    )


def _check_study_mpp(mpp: float, where: str) -> None:
    if not PATCH_MPP / REFUSED <= mpp <= PATCH_MPP * REFUSED:
        raise UserError(
            f"the scale 'study' gives patches of {mpp:.4g} microns per pixel, far from {PATCH_MPP:g}",
            where=where,
            fix="Use the scale 'mpp'; if the file states wrong microns per pixel, state the right ones.",
        )


def _study_remarks(mpp: float) -> tuple[str, ...]:
    if PATCH_MPP / REMARKED <= mpp <= PATCH_MPP * REMARKED:
        return ()
    kind = "larger" if mpp < PATCH_MPP else "smaller"
    share = 100 * (max(mpp, PATCH_MPP) / min(mpp, PATCH_MPP) - 1)
    return (
        f"patches have {mpp:.4g} microns per pixel: cells look {share:.0f} % {kind} than at {PATCH_MPP:g}",
    )
