"""The masks of ensembles as tiled TIFF: a vote on the members' own pixels, all ensembles from one pass over a slide (LN-16).

Members are read side by side in strips of rows. The strips of an ensemble are kept compressed until its file is
written, a few megabytes for a slide, so that neither a mask nor a stack of masks is ever whole in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.slide_ensembles.members import MemberMasks
from elsewhere.analysis.slide_ensembles.reading import SlideTruth
from elsewhere.errors import UserError
from elsewhere.files import check_out_file
from elsewhere.inputs.slides.annotations import MaskGrid, write_strips
from elsewhere.predictions.slide_masks import SlideMask, check_grid, open_slide_mask
from elsewhere.predictions.slides import mask_reading
from elsewhere.untrusted import file_name

Bytes = npt.NDArray[np.uint8]
Report = Callable[[str, int, int], None]
_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class WrittenMasks:
    """Masks of ensembles that were written.

    Attributes:
        folder: The folder.
        files: How many files it holds.
    """

    folder: Path
    files: int


def write_ensemble_masks(
    folder: str | Path,
    slides: Sequence[SlideTruth],
    members: MemberMasks,
    ensembles: Mapping[str, Sequence[str]],
    *,
    rule: str = "strict",
    replace: bool = False,
    progress: Report | None = None,
) -> WrittenMasks:
    """Write the mask of every ensemble, fold and slide as ENSEMBLE/FOLD/<case_id>.tif.

    A member without a mask calls nothing; where no member of an ensemble has one, no file is written.

    Args:
        folder: The folder.
        slides: The slides.
        members: The masks of the models.
        ensembles: The members of each ensemble.
        rule: 'strict', or 'mean-probability'.
        replace: Whether files that exist may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        How many were written.

    Raises:
        UserError: A file exists, a mask cannot be read, or the members of a slide are on several grids.
    """
    folder = Path(folder)
    rows = members.of([slide.case for slide in slides])
    files = 0
    for i, slide in enumerate(slides):
        for f, fold in enumerate(members.folds):
            mine = {m: rows[slide.case, fold, m] for m in members.models if (slide.case, fold, m) in rows}
            wanted = {name: chosen for name, chosen in ensembles.items() if any(m in mine for m in chosen)}
            paths = {
                name: folder / file_name(name) / file_name(fold) / f"{file_name(slide.case)}.tif"
                for name in wanted
            }
            for path in paths.values():
                check_out_file(path, replace=replace)
            files += _write_slide(slide, mine, wanted, paths, rule=rule, replace=replace)
            if progress is not None:
                progress("masks written", i * len(members.folds) + f + 1, len(slides) * len(members.folds))
    return WrittenMasks(folder=folder, files=files)


def _write_slide(
    slide: SlideTruth,
    rows: Mapping[str, pd.Series],
    ensembles: Mapping[str, Sequence[str]],
    paths: Mapping[str, Path],
    *,
    rule: str,
    replace: bool,
) -> int:
    if not ensembles:
        return 0
    with ExitStack() as stack:
        truth = None
        if slide.mask is not None:
            truth = stack.enter_context(open_slide_mask(slide.mask, slide.geometry, reading=slide.reading))
        opened: dict[str, SlideMask] = {}
        for model, row in rows.items():
            if any(model in chosen for chosen in ensembles.values()):
                reading = mask_reading(row)
                mask = open_slide_mask(str(row["path"]), slide.geometry, reading=reading, like=truth)
                opened[model] = stack.enter_context(mask)
                check_grid(mask, slide.geometry, truth)
        first = _same_grid(slide, opened)
        spools: dict[str, list[tuple[int, bytes]]] = {name: [] for name in ensembles}
        limit = first.tumour_above
        for strips in zip(*(_blocks(mask) for mask in opened.values()), strict=True):
            at = dict(zip(opened, strips, strict=True))
            for name, chosen in ensembles.items():
                said = _vote([at[m] for m in chosen if m in at], len(chosen), limit, rule)
                spools[name].append((len(said), zlib.compress(np.packbits(said, axis=1).tobytes(), 1)))
        grid = MaskGrid(
            columns=first.columns,
            rows=first.rows,
            pixel_um=first.step_px * slide.geometry.mpp,
            offset_px=first.offset_px,
        )
        for name, spool in spools.items():
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            write_strips(paths[name], _unpacked(spool, first.columns), grid, replace=replace)
    return len(spools)


def _same_grid(slide: SlideTruth, opened: Mapping[str, SlideMask]) -> SlideMask:
    (name, first), *others = opened.items()
    grid = (first.columns, first.rows, first.step_px, first.offset_px, first.tumour_above)
    for model, mask in others:
        if (mask.columns, mask.rows, mask.step_px, mask.offset_px, mask.tumour_above) != grid:
            raise UserError(
                f"the masks of slide {slide.case} are on several grids: {mask.columns:,} x {mask.rows:,} px of {model}, "
                f"{first.columns:,} x {first.rows:,} px of {name}",
                where=str(mask.path),
                fix="Pixels of one grid can be voted on alone; scores, which are on cells of 8 microns, need no --masks-out.",
            )
    return first


def _blocks(mask: SlideMask) -> Iterator[Bytes]:
    """The strips of a mask in blocks of the same height for all files."""
    waiting: list[Bytes] = []
    count = 0
    for strip in mask.strips():
        waiting.append(strip)
        count += len(strip)
        while count >= _ROWS:
            whole = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            yield whole[:_ROWS]
            waiting, count = [whole[_ROWS:]], count - _ROWS
    if count:
        yield np.concatenate(waiting)


def _vote(strips: Sequence[Bytes], size: int, limit: float, rule: str) -> npt.NDArray[np.bool_]:
    """The pixels that an ensemble calls; members without a mask call none."""
    if rule == "strict":
        votes = np.zeros(strips[0].shape, dtype=np.uint8)
        for strip in strips:
            votes += strip > limit
        return np.asarray(2 * votes.astype(np.int16) > size)
    total = np.zeros(strips[0].shape, dtype=np.uint16)
    for strip in strips:
        total += strip
    return np.asarray(total > limit * size)


def _unpacked(spool: Sequence[tuple[int, bytes]], columns: int) -> Iterator[Bytes]:
    for rows, packed in spool:
        bits = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(rows, -1)
        yield np.unpackbits(bits, axis=1, count=columns) * np.uint8(255)
