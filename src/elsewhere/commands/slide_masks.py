"""`slides recompose` and `slides stage`: patches to the mask of a slide, and the stage that a mask gives (LN-14)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.inputs.slides.annotations import write_strips
from elsewhere.predictions.recomposition import WEIGHTS, PatchLayout, PatchPrediction, recompose
from elsewhere.predictions.slide_masks import (
    MaskReading,
    SlideGeometry,
    SlideMask,
    check_grid,
    open_slide_mask,
)
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.masks import MaskStage, StageStream
from elsewhere.tables import read_table, to_number
from elsewhere.untrusted import check_plain_file, printable

_TABLES = ("patches.parquet", "patches.csv")
_ARRAY = "probabilities.npy"
_FOLDER_FIX = (
    f"Put a table patches.csv with the columns i and j into it, and {_ARRAY} with one [rows, columns] array per row of "
    "the table."
)


@dataclass(frozen=True, kw_only=True)
class StagedMask:
    """The stage of one mask, on its own pixels and on cells.

    Attributes:
        path: The mask.
        pixel_um: Microns per pixel of the mask.
        size_px: Its width and height.
        own: The stage on its own pixels.
        cells: The stage on cells of about 8 microns.
    """

    path: Path
    pixel_um: float
    size_px: tuple[int, int]
    own: MaskStage
    cells: MaskStage

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary.
        """
        return {
            "path": str(self.path),
            "size_px": list(self.size_px),
            "pixel_um": self.pixel_um,
            **{
                name: {
                    "stage": found.stage,
                    "largest_axis_mm": found.axis_mm,
                    "largest_feret_mm": found.feret_mm,
                    "objects": found.n_objects,
                }
                for name, found in (("own_pixels", self.own), ("cells_of_8_um", self.cells))
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield (
            f"{printable(str(self.path))}: {self.size_px[0]:,} x {self.size_px[1]:,} px of {self.pixel_um:.4g} microns"
        )
        for name, found in (("on cells of 8 microns", self.cells), ("on its own pixels", self.own)):
            yield (
                f"  {name}: {found.stage}, {found.n_objects:,} object{'' if found.n_objects == 1 else 's'}, largest "
                f"axis {found.axis_mm:.3f} mm, largest Feret diameter {found.feret_mm:.3f} mm"
            )


@dataclass(frozen=True, kw_only=True)
class StagedMasks:
    """The stages of several masks, and which could not be read.

    Attributes:
        masks: The masks that were staged.
        refused: The path and the error of each of the others.
    """

    masks: tuple[StagedMask, ...]
    refused: tuple[tuple[Path, UserError], ...] = ()

    @property
    def exit_code(self) -> int:
        """0, or 5 where some masks could not be read."""
        return EXIT_INCOMPLETE if self.refused else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `masks` and `refused`.
        """
        return {
            "masks": [mask.to_dict() for mask in self.masks],
            "refused": [{"path": str(path), **error.to_dict()} for path, error in self.refused],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for mask in self.masks:
            yield from mask.lines()
        for path, error in self.refused:
            where = printable(error.where or str(path))
            yield f"{where}: not read: {error.what}" + (f"\n  {error.fix}" if error.fix else "")


@dataclass(frozen=True, kw_only=True)
class RecomposedMask:
    """A mask that was put together from patches.

    Attributes:
        staged: The mask and its stage.
        patches: How many patches there were.
        places: How many places the grid of patches has.
    """

    staged: StagedMask
    patches: int
    places: int

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary.
        """
        return {"patches": self.patches, "places": self.places, **self.staged.to_dict()}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield (
            f"{self.patches:,} patches on a grid of {self.places:,} places; where no patch lies, nothing is tumour"
        )
        yield from self.staged.lines()
        yield f"written: {printable(str(self.staged.path))}"


def stage_masks(
    paths: Sequence[str | Path],
    *,
    mpp: float | None = None,
    downsample: float | None = None,
    size_px: tuple[int, int] | None = None,
    tumour: int | None = None,
    threshold: float | None = None,
    progress: Report | None = None,
) -> StagedMasks:
    """Stage masks of slides, each read in strips; one that cannot be read does not end the others.

    Args:
        paths: The masks: TIFF, PNG or outlines.
        mpp: Microns per pixel of the slides at level 0; None where every mask states its own scale.
        downsample: Pixels of level 0 per pixel of a mask that does not state its scale.
        size_px: Width and height of the slides at level 0, which every mask has to fit; None where not known.
        tumour: The value that means tumour, where it is not recognised.
        threshold: The probability above which a pixel is tumour, of masks of probabilities.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The stages.

    Raises:
        UserError: No mask was named, or the only one cannot be read.

    Example:
        >>> stage_masks([])
        Traceback (most recent call last):
        elsewhere.errors.UserError: no mask was named
        Write: elsewhere slides stage FILE --mpp 0.25
    """
    if not paths:
        raise UserError("no mask was named", fix="Write: elsewhere slides stage FILE --mpp 0.25")
    if mpp is not None and not (math.isfinite(mpp) and mpp > 0):
        raise UserError(f"--mpp is {mpp}", fix="Give microns, such as --mpp 0.25.")
    if downsample is not None and not (math.isfinite(downsample) and downsample > 0):
        raise UserError(f"--downsample is {downsample}", fix="Give slide pixels per mask pixel, such as 32.")
    reading = MaskReading(tumour=None if tumour is None else (tumour,), threshold=threshold)
    geometry = SlideGeometry(
        mpp=mpp or 1.0, size_px=size_px, downsample=downsample or 1.0, stated=downsample is not None
    )
    masks, refused = [], []
    for number, path in enumerate(map(Path, paths)):
        try:
            masks.append(_stage(path, geometry, reading, mpp, progress))
        except UserError as error:
            if len(paths) == 1:
                raise
            refused.append((path, error))
        if progress is not None:
            progress("masks", number + 1, len(paths))
    return StagedMasks(masks=tuple(masks), refused=tuple(refused))


def _stage(
    path: Path,
    geometry: SlideGeometry,
    reading: MaskReading,
    mpp: float | None,
    progress: Report | None,
) -> StagedMask:
    if mpp is None:
        geometry = replace(geometry, mpp=_own_scale(path), downsample=1.0, stated=False)
    with open_slide_mask(path, geometry, reading=reading) as mask:
        check_grid(mask, geometry)
        stream, rows = StageStream(mask, geometry, SlideRules()), 0
        for strip in mask.strips():
            stream.add(strip)
            rows += len(strip)
            if progress is not None:
                progress("rows", rows, mask.rows)
        return _staged(mask, geometry, stream)


def _own_scale(path: Path) -> float:
    """Microns per pixel of a TIFF by its tags, taken for those of the slide."""
    from elsewhere.inputs.slides.annotations import open_mask

    check_plain_file(path, what="mask file", fix="Check the name of the file.")
    found = None
    if path.suffix.lower() in (".tif", ".tiff"):
        with open_mask(path, probability=True) as mask:
            found = mask.pixel_um
    if found is None:
        raise UserError(
            "the mask does not state how large its pixels are",
            where=str(path),
            fix="Give the slide's microns per pixel and the mask's scale: --mpp 0.25 --downsample 32.",
        )
    return found


def _staged(mask: SlideMask, geometry: SlideGeometry, stream: StageStream) -> StagedMask:
    own, cells = stream.finish()
    return StagedMask(
        path=mask.path,
        pixel_um=mask.step_px * geometry.mpp,
        size_px=(mask.columns, mask.rows),
        own=own,
        cells=cells,
    )


def recompose_patches(
    folder: str | Path,
    *,
    out: str | Path,
    size_px: tuple[int, int] | None = None,
    mpp: float | None = None,
    pixel_um: float = 0.5,
    patch: int = 256,
    stride: int | None = None,
    weights: str = "none",
    replace: bool = False,
    progress: Report | None = None,
) -> RecomposedMask:
    """Put the predicted patches of a slide together to a mask, and stage it.

    Args:
        folder: A folder with `patches.csv` or `patches.parquet` (columns i and j) and `probabilities.npy`.
        out: The mask to write, a .tif.
        size_px: Width and height of the slide at level 0.
        mpp: Microns per pixel of the slide at level 0.
        pixel_um: Microns per pixel of the patches.
        patch: Pixels along a patch.
        stride: Pixels from a patch to the next one; None for `patch`, without overlap.
        weights: "none" for a plain mean where patches overlap, or "hann".
        replace: Whether a file of this name may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The mask and its stage.

    Raises:
        UserError: A size is not given, a file is missing, they do not belong together, a patch lies outside of the slide or comes twice, or a
            value is no probability.
    """
    folder, out = Path(folder), Path(out)
    if size_px is None or mpp is None:
        raise UserError(
            "a mask needs the slide's size and its microns per pixel",
            where=str(out),
            fix="Give them, such as --size 97792x221184 --mpp 0.243; `elsewhere slides show` prints both.",
        )
    if weights not in WEIGHTS:
        raise UserError(f"the weights are '{printable(weights)}'", fix=f"Give one of: {', '.join(WEIGHTS)}.")
    layout = PatchLayout(
        size_px=size_px,
        mpp=mpp,
        pixel_um=pixel_um,
        patch=patch,
        stride=patch if stride is None else stride,
        weights="hann" if weights == "hann" else "none",
    )
    if out.suffix.lower() not in (".tif", ".tiff"):
        raise UserError("the mask is written as TIFF", where=str(out), fix="Give a name that ends in .tif.")
    table, values = _read_patches(folder)
    if values.shape[1:] != (layout.patch, layout.patch):
        raise UserError(
            f"the patches are {values.shape[2]} x {values.shape[1]} pixels and not {layout.patch} x {layout.patch}",
            where=str(folder / _ARRAY),
            fix="Give their size: --patch.",
        )
    order = np.lexsort((table["i"], table["j"]))

    def patches() -> Iterator[PatchPrediction]:
        for number, row in enumerate(order):
            one = PatchPrediction(
                i=int(table["i"].iloc[row]), j=int(table["j"].iloc[row]), values=values[row]
            )
            yield one
            if progress is not None:
                progress("patches", number + 1, len(order))

    grid = layout.grid()
    mask = SlideMask(
        path=out,
        columns=grid.columns,
        rows=grid.rows,
        step_px=layout.pixel_um / layout.mpp,
        reader=lambda: iter(()),
    )
    geometry = SlideGeometry(mpp=layout.mpp, size_px=layout.size_px)
    stream = StageStream(mask, geometry, SlideRules())

    def strips() -> Iterator[np.ndarray]:
        for strip in recompose(patches(), layout):
            stream.add(strip)
            yield strip

    write_strips(out, strips(), grid, replace=replace)
    rows, columns = layout.shape
    return RecomposedMask(staged=_staged(mask, geometry, stream), patches=len(order), places=rows * columns)


def _read_patches(folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """The table of patches, and their values, which stay in the file."""
    if not folder.is_dir():
        raise UserError("there is no such folder of patches", where=str(folder), fix=_FOLDER_FIX)
    found = [folder / name for name in _TABLES if (folder / name).is_file()]
    if not found or not (folder / _ARRAY).is_file():
        raise UserError(
            f"the folder has no {_ARRAY if found else 'table of patches'}", where=str(folder), fix=_FOLDER_FIX
        )
    check_plain_file(folder / _ARRAY, what="array of patches")
    try:
        values = np.load(folder / _ARRAY, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise UserError(
            f"the array cannot be read ({printable(str(error))[:120]})",
            where=str(folder / _ARRAY),
            fix="Save it with numpy.save, as float16, float32 or uint8.",
        ) from error
    table = read_table(found[0])
    for name in ("i", "j"):
        if name not in table.columns:
            raise UserError(f"no column {name}", where=str(found[0]), fix=_FOLDER_FIX)
        numbers = to_number(table[name], column=name, where=str(found[0]))
        if (numbers % 1 != 0).any():
            raise UserError(f"{name} is not a whole number everywhere", where=str(found[0]))
        table[name] = numbers.astype(np.int64)
    if not isinstance(values, np.ndarray) or values.ndim != 3 or len(values) != len(table):
        shape = " x ".join(map(str, getattr(values, "shape", ())))
        raise UserError(
            f"the array is {shape}, and the table has {len(table):,} rows",
            where=str(folder / _ARRAY),
            fix="Save one [rows, columns] array per row of the table: [patches, rows, columns].",
        )
    return table, values
