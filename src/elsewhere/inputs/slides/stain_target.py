"""The stain of a file: of a picture as a whole, or of a slide's tissue, as the target that others are normalised to (LN-03)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.grid.geometry import PATCH_MPP, PATCH_PX, PatchGrid, lay_grid
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Patch, Slide
from elsewhere.inputs.slides.tissue import TISSUE_MPP, find_tissue
from elsewhere.inputs.stain.normalise import Fit, fit_slide, make_target
from elsewhere.untrusted import check_plain_file

FIT_PATCHES = 1000
"""Patches of tissue, evenly over the slide, that its stain is fitted to."""
LEAST_TISSUE = 0.1
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF")


def is_picture(path: Path) -> bool:
    """Say whether a file is a plain picture by its first bytes: PNG, JPEG, BMP or WebP.

    Args:
        path: The file.

    Returns:
        False for slides and everything else.

    Raises:
        UserError: There is no such file, or it is no plain file.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     is_picture(Path(file.name))
        False
    """
    check_plain_file(path, what="picture")
    with path.open("rb") as file:
        return file.read(8).startswith(_PICTURES)


def open_picture(path: Path) -> npt.NDArray[np.uint8]:
    """Read a plain picture, with the checks of slides; what is transparent is shown on white.

    Args:
        path: The file.

    Returns:
        [height, width, 3] of 8 bits in RGB.

    Raises:
        UserError: It is no picture, is damaged, has more than 8 bits, or over 100 million pixels.

    Example:
        >>> import tempfile, PIL.Image
        >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
        ...     PIL.Image.new("RGB", (4, 3), "red").save(file.name)
        ...     open_picture(Path(file.name)).shape
        (3, 4, 3)
    """
    with open_slide(path, mpp=PATCH_MPP, backend="picture") as slide:
        width, height = slide.size_px
        return slide.read(0, 0, width, height)


def read_grid(slide: Slide, grid: PatchGrid, wanted: npt.NDArray[np.bool_]) -> Iterator[Patch]:
    """Read patches of a grid, row by row.

    Args:
        slide: The slide.
        grid: Its grid.
        wanted: [rows, columns]: which patches are read.

    Yields:
        The patches.

    Raises:
        UserError: A tile is damaged.
    """
    if grid.level is None:
        yield from slide.patches_mpp(grid.size_px, mpp=grid.mpp, wanted=wanted)
    else:
        yield from slide.patches(grid.size_px, level=grid.level, wanted=wanted)


def read_around(
    slide: Slide,
    grid: PatchGrid,
    wanted: npt.NDArray[np.bool_],
    lost: list[tuple[int, int, UserError]],
    *,
    most: int = 64,
) -> Iterator[Patch]:
    """Read patches of a grid, and go on behind those that cannot be read.

    Args:
        slide: The slide.
        grid: Its grid.
        wanted: [rows, columns]: which patches are read.
        lost: Receives column, row and error of each patch that cannot be read.
        most: With more patches than this that cannot be read, the slide is given up.

    Yields:
        The patches that can be read.

    Raises:
        UserError: Too many patches cannot be read.
    """
    left = wanted.copy()
    while left.any():
        try:
            for patch in read_grid(slide, grid, left):
                left[patch.j, patch.i] = False
                yield patch
            return
        except UserError as error:
            j, i = (int(side[0]) for side in np.nonzero(left))
            left[j, i] = False
            lost.append((i, j, error))
            if len(lost) > most:
                raise UserError(
                    f"more than {most} of its patches cannot be read, the last in column {i}, row {j}: {error.what}",
                    where=error.where,
                    fix=error.fix,
                ) from error


def fit_stain(slide: Slide, grid: PatchGrid, *, method: str) -> Fit:
    """Fit the stain of a slide to up to 1,000 patches that lie evenly over its tissue.

    Args:
        slide: The slide.
        grid: Its grid.
        method: "macenko", "vahadane" or "reinhard".

    Returns:
        The fit; its status is "glass" where there is no tissue.

    Raises:
        UserError: More than 64 of these patches cannot be read.
    """
    tissue = find_tissue(slide, mpp=max(TISSUE_MPP, slide.mpp))
    rows, columns = tissue.mask.shape
    total = np.zeros((rows + 1, columns + 1))
    total[1:, 1:] = tissue.mask.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    side = grid.size_px * grid.mpp / tissue.mpp
    down = np.clip(np.rint(np.arange(grid.rows + 1) * side).astype(int), 0, rows)
    across = np.clip(np.rint(np.arange(grid.columns + 1) * side).astype(int), 0, columns)
    sums = np.diff(np.diff(total[np.ix_(down, across)], axis=0), axis=1)
    areas = np.outer(np.diff(down), np.diff(across)).clip(min=1)
    found = np.flatnonzero(sums / areas >= LEAST_TISSUE)
    wanted = np.zeros((grid.rows, grid.columns), bool)
    if not len(found):
        return fit_slide([np.full((grid.size_px, grid.size_px, 3), 255, np.uint8)], method=method)
    chosen = np.linspace(0, len(found) - 1, min(FIT_PATCHES, len(found))).astype(int)
    wanted.flat[found[chosen]] = True
    patches = (patch.pixels for patch in read_around(slide, grid, wanted, []))
    return fit_slide(patches, method=method)


def fit_target(path: Path, *, method: str = "macenko", mpp: float | None = None) -> Fit:
    """Fit the stain of a picture or slide that others shall look like.

    Args:
        path: The file.
        method: "macenko", "vahadane" or "reinhard".
        mpp: Microns per pixel of the slide, where its file states none; a picture needs none.

    Returns:
        The fit, which can be a target.

    Raises:
        UserError: The file cannot be read, or holds no two stains.

    Example:
        >>> import tempfile, PIL.Image
        >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
        ...     PIL.Image.new("RGB", (40, 30), "white").save(file.name)
        ...     fit_target(Path(file.name))
        Traceback (most recent call last):
        elsewhere.errors.UserError: target: no stains were found (no tissue, or fewer tissue pixels than a fit needs)
        Choose a target with both stains, such as 'study'.
    """
    if is_picture(path):
        found = fit_slide([open_picture(path)], method=method)
    else:
        with open_slide(path, mpp=mpp) as slide:
            grid = lay_grid(slide, mpp=max(PATCH_MPP, slide.mpp), size_px=PATCH_PX)
            found = fit_stain(slide, grid, method=method)
    return make_target(found, method=method)
