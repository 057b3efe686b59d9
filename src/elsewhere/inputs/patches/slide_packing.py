"""Packs the patches of one slide: one pass from top to bottom, shard by shard, each complete or absent.

What a killed run completed is not done again: a slide begins at the first patch that no shard holds. A slide whose file
or annotations changed since is packed anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.digests import FileDigests, slide_parts
from elsewhere.inputs.patches.shards import (
    SHARD_PATCHES,
    ShardWriter,
    StoreWriteError,
    Whole,
    as_write_error,
    read_shard,
    write_note,
)
from elsewhere.inputs.patches.slide_masks import MaskRules, SlideMasks
from elsewhere.inputs.patches.spec import StainSpec, StoreSpec, fit_to_dict, read_fit
from elsewhere.inputs.patches.store import SLIDE_FILE, VERSION, SlideName, place_codes
from elsewhere.inputs.slides.grid.geometry import PATCH_MPP, PatchGrid, lay_grid
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Patch, Slide
from elsewhere.inputs.slides.stain_target import fit_stain, read_around
from elsewhere.inputs.stain.normalise import Fit, normalise
from elsewhere.untrusted import read_json

SHARE_TOLERANCE = 0.05
_AT_ONCE = 32
_PLACE_SLACK_PX = 1.0
MASKS_DIFFER = "masks that differ from the table"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class SlideRows:
    """The rows of a patch table that belong to one slide, and where its files are.

    Attributes:
        dataset: Its dataset; "" where the table names none.
        case_id: Its case.
        i: The columns of its patches in the grid.
        j: Their rows.
        path: The slide; None where no file was found.
        mpp: Microns per pixel that the user states for the slide; None for those of the file.
        annotation: Its outlines or mask picture; None where there is none.
        tumour: The tumour share of each patch by the table, NaN where it is not known; None without the column.
        x: Where the table says that each patch lies, in pixels of level 0; None without the column.
        y: The same downwards.
        mask_rules: How the annotation is read.
        shares_are_exact: Whether `tumour` follows the rule by which masks are drawn, so that the two are compared.
        slide_sha256: The digest of the file that the table was made from; "" where it is not known.
        problem: Why the slide cannot be packed, as far as that is known before it is opened.
    """

    dataset: str
    case_id: str
    i: Whole
    j: Whole
    path: Path | None = None
    mpp: float | None = None
    annotation: Path | None = None
    tumour: Floats | None = None
    x: Floats | None = None
    y: Floats | None = None
    mask_rules: MaskRules = field(default_factory=MaskRules)
    shares_are_exact: bool = True
    slide_sha256: str = ""
    problem: str = ""

    @property
    def name(self) -> SlideName:
        """Dataset and case."""
        return self.dataset, self.case_id


@dataclass(frozen=True, kw_only=True)
class PackedSlide:
    """What came of one slide.

    Attributes:
        name: Dataset and case.
        asked: Its different patches in the table.
        packed: Patches that were packed now.
        counts: What happened to them: stain, masks.
        warnings: What a reader should know of the slide, as sentences.
        anew: Whether it was packed anew, because its file or annotations changed.
        error: Why patches are missing; None where none are.
    """

    name: SlideName
    asked: int
    packed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    anew: bool = False
    error: UserError | None = None


def pack_slide(
    job: SlideRows,
    store: Path,
    spec: StoreSpec,
    *,
    earlier: tuple[Path, ...] = (),
    progress: Callable[[int], None] | None = None,
) -> PackedSlide:
    """Pack the patches of a slide that the store does not hold yet.

    Args:
        job: The slide and its rows.
        store: The folder of the store, locked by the caller.
        spec: The settings of the store.
        earlier: The folders in the store of the same case.
        progress: Called with the number of patches that were written.

    Returns:
        What was packed, and the error where the slide cannot be read.

    Raises:
        StoreWriteError: The store cannot be written.
    """
    asked = len(np.unique(place_codes(job.i, job.j)))
    try:
        if job.problem or job.path is None:
            raise UserError(job.problem or "no file of this slide was found")
        return _Packing(job, store, spec, earlier, progress).run(asked)
    except StoreWriteError:
        raise
    except MemoryError:
        error = UserError("there was not enough memory for this slide", where=str(job.path))
        return PackedSlide(name=job.name, asked=asked, error=error)
    except UserError as error:
        return PackedSlide(name=job.name, asked=asked, error=error)


class _Packing:
    """The packing of one slide."""

    def __init__(
        self,
        job: SlideRows,
        store: Path,
        spec: StoreSpec,
        earlier: tuple[Path, ...],
        progress: Callable[[int], None] | None,
    ) -> None:
        self.job, self.store, self.spec, self.earlier = job, store, spec, earlier
        self.progress = progress
        self.counts: dict[str, int] = {}
        self.packed = 0
        self.lost: list[tuple[int, int, UserError]] = []

    def run(self, asked: int) -> PackedSlide:
        job = self.job
        if job.path is None:
            raise UserError("no file of this slide was found")
        digests = self._digests(job.path)
        rules = dataclasses.astuple(job.mask_rules) if self.spec.masks else ()
        key = hashlib.sha256(
            json.dumps([job.dataset, job.case_id, digests, self.spec.digest(), job.mpp, rules]).encode()
        ).hexdigest()[:32]
        folder = self.store / "slides" / key
        anew = False
        with open_slide(job.path, mpp=job.mpp) as slide:
            grid = lay_grid(
                slide, scale=self.spec.scale, mpp=self.spec.mpp or PATCH_MPP, size_px=self.spec.size
            )
            self._check_places(grid)
            todo = np.setdiff1d(place_codes(job.i, job.j), self._held(folder))
            warnings = (*slide.warnings, *grid.warnings)
            if len(todo):
                masks = self._masks(slide, grid)
                fit = self._begin(folder, slide, grid, digests)
                for old in self.earlier:
                    if old != folder and old.exists():
                        with as_write_error(self.store):
                            shutil.rmtree(old)
                        anew = True
                try:
                    self._write(folder, slide, grid, todo, fit, masks)
                finally:
                    if masks is not None:
                        masks.close()
        return PackedSlide(
            name=job.name,
            asked=asked,
            packed=self.packed,
            counts=self.counts,
            warnings=warnings,
            anew=anew,
            error=self._loss(),
        )

    def _loss(self) -> UserError | None:
        if not self.lost:
            return None
        i, j, first = self.lost[0]
        number = len(self.lost)
        return UserError(
            f"{number:,} of its patches cannot be read, the first in column {i}, row {j}: {first.what}",
            where=first.where,
            fix=first.fix,
        )

    def _digests(self, path: Path) -> list[str]:
        notes = FileDigests(self.store / "digests")
        annotation = self.job.annotation if self.spec.masks else None
        parts = slide_parts(path)
        found = notes.digest(path, *parts, what="slide")
        if self.job.slide_sha256 and not parts and found != self.job.slide_sha256:
            raise UserError(
                "the slide is another file than the one that the table was cut from",
                where=str(path),
                fix="Cut the slides again, or fetch the slide again.",
            )
        return [found, notes.digest(annotation, what="annotation") if annotation is not None else ""]

    def _check_places(self, grid: PatchGrid) -> None:
        job = self.job
        beyond = (job.i < 0) | (job.i >= grid.columns) | (job.j < 0) | (job.j >= grid.rows)
        where = str(job.path)
        if beyond.any():
            row = int(np.flatnonzero(beyond)[0])
            raise UserError(
                f"{int(beyond.sum()):,} patches of the table lie outside of the slide's grid of {grid.columns:,} x "
                f"{grid.rows:,} patches, the first in column {int(job.i[row])}, row {int(job.j[row])}",
                where=where,
                fix="Cut the slides again: the table was made from another file, or at other microns per pixel.",
            )
        if job.x is None or job.y is None or not len(job.x):
            return
        off = max(
            float(np.abs(job.x - job.i * grid.patch_px).max()),
            float(np.abs(job.y - job.j * grid.patch_px).max()),
        )
        if not off <= _PLACE_SLACK_PX:
            raise UserError(
                f"the table places patches up to {off:,.0f} pixels of level 0 from where this slide has them: a patch "
                f"has {grid.patch_px:,.6g} pixels of level 0 here",
                where=where,
                fix="State the same microns per pixel for this slide as when the table was made.",
            )

    def _held(self, folder: Path) -> Whole:
        """The places that complete shards hold."""
        found = [np.empty(0, np.int64)]
        for note in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            if note.name != SLIDE_FILE and not note.name.startswith("."):
                shard = read_shard(note, self.spec)
                found.append(place_codes(shard.i, shard.j))
        return np.concatenate(found)

    def _masks(self, slide: Slide, grid: PatchGrid) -> SlideMasks | None:
        job = self.job
        if not self.spec.masks:
            return None
        if job.annotation is None:
            tumour = None if job.tumour is None else np.asarray(job.tumour)
            if tumour is None or not (tumour == 0).all():
                what = (
                    "the table does not say how much of it is tumour"
                    if tumour is None or np.isnan(tumour).any()
                    else "the table says that it has tumour"
                )
                raise UserError(
                    f"the slide has no annotation, and {what}: its masks are not known",
                    where=str(job.path),
                    fix="Name its annotation, or pack without masks: --no-masks.",
                )
        return SlideMasks(job.annotation, slide, grid, job.mask_rules)

    def _begin(self, folder: Path, slide: Slide, grid: PatchGrid, digests: list[str]) -> Fit | None:
        """Write the note of the slide with its stain fit, or read the one that is there."""
        stain, note = self.spec.stain, folder / SLIDE_FILE
        if note.exists():
            content = read_json(note, most=1 << 20, what="note of a slide")
            return _stored_fit(content, stain, note)
        fit = (
            fit_stain(slide, grid, method=stain.method)
            if stain is not None and stain.fit == "slide"
            else None
        )
        content = {
            "version": VERSION,
            "key": folder.name,
            "dataset": self.job.dataset,
            "case_id": self.job.case_id,
            "slide_sha256": digests[0],
            "annotation_sha256": digests[1],
            "size_px": list(slide.size_px),
            "slide_mpp": slide.mpp,
            "patch_mpp": grid.mpp,
            "patch_px": grid.patch_px,
            "reader": slide.backend,
            "stain_fit": None if fit is None else fit_to_dict(fit),
        }
        with as_write_error(self.store):
            folder.mkdir(parents=True, exist_ok=True)
            write_note(content, note)
        return fit

    def _write(
        self,
        folder: Path,
        slide: Slide,
        grid: PatchGrid,
        todo: Whole,
        fit: Fit | None,
        masks: SlideMasks | None,
    ) -> None:
        wanted = np.zeros((grid.rows, grid.columns), bool)
        wanted[todo >> 21, todo & ((1 << 21) - 1)] = True
        shares = self._shares()
        writer: ShardWriter | None = None
        try:
            for part in _in_parts(read_around(slide, grid, wanted, self.lost)):
                if writer is None:
                    writer = ShardWriter(folder, self.spec)
                pixels = [patch.pixels for patch in part]
                counts: dict[str, int] = {}
                stain = self.spec.stain
                if stain is not None:
                    done = normalise(
                        pixels, stain.target, fit=stain.fit if fit is None else fit, method=stain.method
                    )
                    pixels, counts = done.patches, dict(done.counts)
                drawn = [masks.mask(patch.i, patch.j) for patch in part] if masks is not None else []
                if shares and drawn:
                    counts[MASKS_DIFFER] = sum(
                        abs(float(mask.mean()) - shares.get((patch.i, patch.j), np.nan)) > SHARE_TOLERANCE
                        for patch, mask in zip(part, drawn, strict=True)
                    )
                writer.add([(patch.i, patch.j) for patch in part], pixels, drawn, counts)
                for name, number in counts.items():
                    self.counts[name] = self.counts.get(name, 0) + number
                if self.progress is not None:
                    self.progress(len(part))
                if len(writer) >= SHARD_PATCHES:
                    self.packed += len(writer)
                    writer.finish()
                    writer = None
            if writer is not None:
                size = len(writer)
                writer.finish()
                self.packed += size
                writer = None
        except BaseException as error:
            if writer is not None:
                writer.discard(error)
            raise

    def _shares(self) -> dict[tuple[int, int], float]:
        job = self.job
        if job.tumour is None:
            return {}
        return {(int(i), int(j)): float(share) for i, j, share in zip(job.i, job.j, job.tumour, strict=True)}


def _in_parts(patches: Iterator[Patch]) -> Iterator[list[Patch]]:
    """Patches in lists; a whole number of lists fills a shard."""
    part: list[Patch] = []
    for patch in patches:
        part.append(patch)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _stored_fit(content: Mapping[str, Any], stain: StainSpec | None, note: Path) -> Fit | None:
    plain = content.get("stain_fit")
    if stain is None or stain.fit == "patch":
        return None
    return read_fit(plain, method=stain.method, where=str(note))
