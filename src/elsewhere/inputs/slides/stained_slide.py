"""Writes a slide with the stains of another: a tiled TIFF with lower levels, strip by strip (LN-03)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import FileSystemError, UserError, unknown_name
from elsewhere.files import explained_refusals, human_bytes, replacing, reserve
from elsewhere.inputs.slides.scale import area_average
from elsewhere.inputs.slides.slide import WHITE, Slide
from elsewhere.inputs.slides.tiles import EXTRA

TILE = 256
SMALLEST_LEVEL = 1024
JPEG_QUALITY = 95
COMPRESSIONS = ("jpeg", "deflate")
_LARGE = 2 << 30
Pixels = npt.NDArray[np.uint8]


def write_stained(
    slide: Slide,
    path: Path,
    change: Callable[[Pixels], Pixels],
    *,
    mpp: float | None = None,
    compression: str = "jpeg",
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[int, int]:
    """Write a slide with other colours.

    Args:
        slide: The slide.
        path: The TIFF file to write; one that exists is replaced.
        change: Gives rows of pixels, [rows, width, 3], their new colours.
        mpp: Microns per pixel of the finest level; None for those of the slide.
        compression: "jpeg", of quality 95 and lossy; or "deflate", which keeps every byte and is large.
        progress: Called with a step, how many rows are done, and how many there are.

    Returns:
        Width and height of the finest level.

    Raises:
        UserError: The slide is too coarse for `mpp`, a tile of it is damaged, or tifffile is not installed.
        FileSystemError: The disk is too small or refuses.
    """
    if compression not in COMPRESSIONS:
        raise unknown_name("compression of slides", compression, COMPRESSIONS)
    try:
        import tifffile
    except ImportError as error:
        raise UserError("writing a slide needs tifffile", where=str(path), fix=EXTRA) from error
    width, height = slide.size_px if mpp is None else slide.size_at(mpp)
    sizes = _level_sizes(width, height)
    _check_space(path, sizes)
    base = slide.mpp if mpp is None else mpp
    options: dict[str, Any] = {"compression": "zlib"}
    if compression == "jpeg":
        options = {
            "compression": "jpeg",
            "compressionargs": {"level": JPEG_QUALITY, "outcolorspace": "YCBCR"},
            "subsampling": (1, 1),
        }

    def tiles(strips: Iterator[Pixels], lower: Pixels | None) -> Iterator[Pixels]:
        for number, strip in enumerate(strips):
            if lower is not None:
                _halve_into(strip, lower, number * TILE // 2)
            for left in range(0, strip.shape[1], TILE):
                tile = np.full((TILE, TILE, 3), WHITE, np.uint8)
                part = strip[:, left : left + TILE]
                tile[: part.shape[0], : part.shape[1]] = part
                yield tile

    def changed() -> Iterator[Pixels]:
        for strip in slide.strips(mpp, TILE):
            if progress is not None:
                progress("rows of the slide", min(strip.y + TILE, height), height)
            yield change(strip.pixels)

    with (
        explained_refusals(path, "the slide cannot be written"),
        replacing(path) as temporary,
        tempfile.TemporaryDirectory(prefix=".elsewhere-", dir=path.parent) as scratch,
        tifffile.TiffWriter(temporary, bigtiff=width * height * 3 > _LARGE) as file,
    ):
        upper: Pixels | None = None
        for level, (across, down) in enumerate(sizes):
            lower = None
            if level + 1 < len(sizes):
                shape = (sizes[level + 1][1], sizes[level + 1][0], 3)
                raw = Path(scratch) / f"{level + 1}.raw"
                reserve(raw, int(np.prod(shape)))
                lower = np.memmap(raw, np.uint8, "r+", shape=shape)
            strips = changed() if upper is None else _rows_of(upper)
            per_cm = 10_000.0 / (base * 2**level)
            file.write(
                tiles(strips, lower),
                shape=(down, across, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                photometric="rgb",
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                subfiletype=1 if level else 0,
                metadata=None,
                software="elsewhere",
                maxworkers=1,
                **options,
            )
            upper = lower
    return width, height


def _level_sizes(width: int, height: int) -> list[tuple[int, int]]:
    sizes = [(width, height)]
    while max(sizes[-1]) > SMALLEST_LEVEL and min(sizes[-1]) > 1:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    return sizes


def _check_space(path: Path, sizes: list[tuple[int, int]]) -> None:
    place = path.absolute().parent
    while not place.exists():
        place = place.parent
    needed = sum(across * down * 3 for across, down in sizes[1:])
    free = shutil.disk_usage(place).free
    if needed > free:
        raise FileSystemError(
            f"the lower levels need {human_bytes(needed)} while the slide is written, and the disk has "
            f"{human_bytes(free)} left",
            where=str(path),
            fix="Name a file on a larger disk, or ask for more microns per pixel.",
        )


def _rows_of(pixels: Pixels) -> Iterator[Pixels]:
    for top in range(0, pixels.shape[0], TILE):
        yield np.asarray(pixels[top : top + TILE])


def _halve_into(strip: Pixels, lower: Pixels, row: int) -> None:
    """Average 2 x 2 pixels into the rows of the lower level; an odd last row or column is left out."""
    rows = min(strip.shape[0] // 2, lower.shape[0] - row)
    if rows <= 0:
        return
    edges = [np.arange(count + 1, dtype=np.float64) * 2 for count in (rows, lower.shape[1])]
    lower[row : row + rows] = area_average(strip[: rows * 2, : lower.shape[1] * 2], edges[0], edges[1])
