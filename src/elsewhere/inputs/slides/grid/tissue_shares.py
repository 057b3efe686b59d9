"""How much of each patch is tissue, streamed: memory holds one row of patches (LN-02).

A pixel of a patch is tissue where its saturation is above Otsu's threshold, that of the whole slide (`slide`) or that of
the patch alone (`patch`, as the published study: it finds tissue in most patches of glass too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elsewhere.errors import unknown_name
from elsewhere.inputs.slides.grid.geometry import PatchGrid
from elsewhere.inputs.slides.slide import Slide
from elsewhere.inputs.slides.tissue import TISSUE_MPP, find_tissue, otsu_threshold, saturation

TISSUE_RULES = ("slide", "patch")
_PATCHES_AT_ONCE = 32
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class TissueShares:
    """The tissue of the patches of a slide.

    Attributes:
        shares: [rows, columns], 0 to 1: the exact share of pixels.
        threshold: The threshold of the slide; None where each patch has its own.
        warnings: What a reader should know, as sentences.
    """

    shares: npt.NDArray[np.float32]
    threshold: int | None
    warnings: tuple[str, ...] = field(default=())


def check_tissue_rule(rule: str) -> str:
    """Check the name of a rule for tissue.

    Args:
        rule: "slide" or "patch".

    Returns:
        The same name.

    Raises:
        UserError: There is no such rule.

    Example:
        >>> check_tissue_rule("slide")
        'slide'
    """
    if rule not in TISSUE_RULES:
        raise unknown_name("rule for tissue", rule, TISSUE_RULES)
    return rule


def tissue_shares(
    slide: Slide,
    grid: PatchGrid,
    *,
    rule: str = "slide",
    threads: int = 1,
    progress: Progress | None = None,
) -> TissueShares:
    """Measure the tissue of every patch; each tile is decoded once.

    Args:
        slide: The slide.
        grid: Its patches.
        rule: Whose threshold counts: "slide" or "patch".
        threads: Threads that decode tiles.
        progress: Called with a step, how many rows of patches are done and how many there are; None for no reports.

    Returns:
        The shares.

    Raises:
        UserError: There is no such rule, or the slide cannot be read.

    Example:
        >>> import tempfile, PIL.Image
        >>> from elsewhere.inputs.slides.grid.geometry import lay_grid
        >>> from elsewhere.inputs.slides.opening import open_slide
        >>> pixels = np.full((256, 512, 3), 240, dtype=np.uint8)
        >>> pixels[:128, :256] = 200, 100, 180
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     PIL.Image.fromarray(pixels).save(folder + "/a.png")
        ...     with open_slide(folder + "/a.png", mpp=0.5) as slide:
        ...         tissue_shares(slide, lay_grid(slide)).shares.tolist()
        [[0.5, 0.0]]
    """
    check_tissue_rule(rule)
    shares = np.zeros((grid.rows, grid.columns), np.float32)
    threshold: int | None = None
    warnings: tuple[str, ...] = ()
    if rule == "slide":
        otsu = find_tissue(slide, mpp=max(TISSUE_MPP, slide.mpp), threads=threads).otsu
        threshold, warnings = otsu.threshold, otsu.warnings
    size = grid.size_px
    strips = (
        slide.strips(grid.mpp, size, threads=threads)
        if grid.level is None
        else slide.strips(None, size, level=grid.level, threads=threads)
    )
    for row, strip in zip(range(grid.rows), strips, strict=False):
        values = saturation(strip.pixels[:, : grid.columns * size])
        if values.shape != (
            size,
            grid.columns * size,
        ):  # rounding at the border: white, which has no saturation
            whole = np.zeros((size, grid.columns * size), np.uint8)
            whole[: values.shape[0], : values.shape[1]] = values
            values = whole
        shares[row] = _above(values, threshold, size) if threshold is not None else _by_patch(values, size)
        if progress is not None:
            progress("rows of patches", row + 1, grid.rows)
    return TissueShares(shares=shares, threshold=threshold, warnings=warnings)


def _above(values: npt.NDArray[np.uint8], threshold: int, size: int) -> npt.NDArray[np.float64]:
    counts = np.sum(values > threshold, axis=0, dtype=np.uint16).reshape(-1, size).sum(axis=1, dtype=np.int64)
    return counts / float(size * size)


def _by_patch(values: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.float64]:
    """The share of each patch above its own threshold, from one histogram per patch."""
    columns = values.shape[1] // size
    shares = np.empty(columns)
    for first in range(0, columns, _PATCHES_AT_ONCE):
        count = min(_PATCHES_AT_ONCE, columns - first)
        part = values[:, first * size : (first + count) * size].reshape(size, count, size).astype(np.int64)
        part += 256 * np.arange(count)[None, :, None]
        counts = np.bincount(part.reshape(-1), minlength=256 * count).reshape(count, 256)
        shares[first : first + count] = [otsu_threshold(one).share for one in counts]
    return shares
