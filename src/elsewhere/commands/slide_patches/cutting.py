"""Cuts one slide into the rows of the patch table, with what is known of the slide and what is odd about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.patch_table import (
    LEAST_TISSUE,
    LEAST_TUMOUR,
    NORMAL_STAGES,
    NORMALS_PER_SLIDE,
    TUMOUR_STAGES,
    PatchRules,
    compose_rows,
    summarise_rows,
)
from elsewhere.commands.output import Report
from elsewhere.commands.slide_patches.cases import SlideCase, is_mask
from elsewhere.errors import UserError, unknown_name
from elsewhere.files import explained_refusals
from elsewhere.files.marker import digest
from elsewhere.inputs.slides.annotations import (
    Annotations,
    MaskTiff,
    check_inside,
    moved,
    open_mask,
    read_annotations,
    resolve,
)
from elsewhere.inputs.slides.grid import (
    PatchGrid,
    lay_grid,
    lay_outline_grid,
    tissue_shares,
    tumour_shares_on,
)
from elsewhere.inputs.slides.grid.geometry import PATCH_MPP, PATCH_PX, check_scale
from elsewhere.inputs.slides.grid.tissue_shares import check_tissue_rule
from elsewhere.inputs.slides.grid.tumour_shares import check_fill
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.scale import check_mpp
from elsewhere.inputs.slides.slide import Slide

ORIGINS = ("level0", "scanned")
WITHOUT = ("unknown", "normal")
_COUNTED_ONLY = ("outlines", "holes", "points outside the slide")
Truth = Annotations | MaskTiff


@dataclass(frozen=True, kw_only=True)
class CutSettings:
    """How slides are cut.

    Attributes:
        scale: "mpp" or "study".
        patch_mpp: Microns per pixel of the patches, by the scale "mpp".
        size_px: Pixels along a patch.
        tissue: Whose threshold tells tissue: "slide" or "patch".
        least_tissue: The tissue share that a patch without tumour needs.
        least_tumour: The tumour share that a tumour patch needs for training.
        normals_per_slide: Patches drawn for training from a slide without tumour.
        seed: Seed of the draw.
        outline_fill: Which pixels belong to an outline: "exact" or "boundary".
        outlines_only: Whether the slides themselves are not read.
        mpp: Microns per pixel that are stated for every slide; None for those of the cohort or of the files.
        groups: Meanings of groups of annotations: "tumour", "hole" or "ignore".
        mask_tumour: The values of masks that mean tumour; empty to recognise 0 and 255, or 0 and 1.
        origin: What annotations count from: "level0", or "scanned" for the corner of the scanned part.
        without_annotation: What a slide without annotation and without stage is: "unknown" or "normal".
        threads: Threads that decode tiles; they change no result.

    Raises:
        UserError: A name is not known, or a number is out of range.
    """

    scale: str = "mpp"
    patch_mpp: float = PATCH_MPP
    size_px: int = PATCH_PX
    tissue: str = "slide"
    least_tissue: float = LEAST_TISSUE
    least_tumour: float = LEAST_TUMOUR
    normals_per_slide: int = NORMALS_PER_SLIDE
    seed: int = 42
    outline_fill: str = "exact"
    outlines_only: bool = False
    mpp: float | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    mask_tumour: tuple[int, ...] = ()
    origin: str = "level0"
    without_annotation: str = "unknown"
    threads: int = 1

    def __post_init__(self) -> None:
        check_scale(self.scale)
        check_tissue_rule(self.tissue)
        check_fill(self.outline_fill)
        if self.origin not in ORIGINS:
            raise unknown_name("origin of annotations", self.origin, ORIGINS)
        if self.without_annotation not in WITHOUT:
            raise unknown_name("kind of slides without annotation", self.without_annotation, WITHOUT)
        self.rules()

    def rules(self) -> PatchRules:
        """Return which patches are kept and drawn.

        Returns:
            The rules.

        Example:
            >>> CutSettings(seed=1).rules().seed
            1
        """
        return PatchRules(
            least_tissue=self.least_tissue,
            least_tumour=self.least_tumour,
            normals_per_slide=self.normals_per_slide,
            seed=self.seed,
        )

    def stated(self) -> dict[str, Any]:
        """Return the settings that change a result.

        Returns:
            Names and values for JSON.

        Example:
            >>> "threads" in CutSettings().stated()
            False
        """
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "threads"}
        return found | {"groups": dict(self.groups), "mask_tumour": list(self.mask_tumour)}


def cut_case(
    case: SlideCase, settings: CutSettings, *, progress: Report | None = None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Cut a slide.

    Args:
        case: The slide.
        settings: How it is cut.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The rows, and what is known of the slide: no path, user, date or original file name.

    Raises:
        UserError: The slide or its annotation cannot be used.
    """
    mpp = case.mpp if case.mpp is not None else settings.mpp
    if settings.outlines_only:
        return _cut_outlines(case, mpp, settings)
    if case.slide is None:
        raise UserError("the case names no slide", where=case.facts.case_id)
    with open_slide(case.slide, mpp=mpp) as slide:  # type: ignore[arg-type]  # text is refused by its check
        grid = lay_grid(slide, scale=settings.scale, mpp=settings.patch_mpp, size_px=settings.size_px)
        with _Truths(case, settings, slide) as truth:
            tumour, outside, counts, notes = truth.measure(grid)
        tissue = tissue_shares(slide, grid, rule=settings.tissue, threads=settings.threads, progress=progress)
        rows = compose_rows(case.facts, grid, tissue.shares, tumour, settings.rules())
        warnings = [*slide.warnings, *grid.warnings, *tissue.warnings, *notes]
        about = {
            "size_px": list(slide.size_px),
            "slide_mpp": slide.mpp,
            "slide_digest": slide_digest(case.slide),
            "tissue_threshold": tissue.threshold,
        }
    warnings += _tissue_remarks(rows, tumour, tissue.shares, settings, outside)
    return rows, _about(case, grid, tumour, rows, settings) | about | {
        "annotation_counts": counts,
        "warnings": list(dict.fromkeys(warnings)),
    }


def _cut_outlines(
    case: SlideCase, mpp: float | str | None, settings: CutSettings
) -> tuple[pd.DataFrame, dict[str, Any]]:
    if case.annotation is None or is_mask(case.annotation):
        raise UserError("outlines are needed, and there are none", where=case.facts.case_id)
    if mpp is None:
        raise UserError(
            "the microns per pixel of the slide are not known",
            where=str(case.annotation),
            fix="State them, such as --mpp 0.243, or as the column mpp of a cohort.",
        )
    mpp = check_mpp(mpp, where=str(case.annotation))  # type: ignore[arg-type]  # text is refused
    annotations = read_annotations(case.annotation, groups=settings.groups)
    grid = lay_outline_grid(
        annotations,
        mpp,
        scale=settings.scale,
        mpp=settings.patch_mpp,
        size_px=settings.size_px,
    )
    tumour = tumour_shares_on(annotations, grid, fill=settings.outline_fill).shares
    counts, notes = _counted(annotations)
    rows = compose_rows(case.facts, grid, None, tumour, settings.rules())
    return rows, _about(case, grid, tumour, rows, settings) | {
        "size_px": None,
        "slide_mpp": mpp,
        "slide_digest": None,
        "tissue_threshold": None,
        "annotation_counts": counts,
        "warnings": [*grid.warnings, *notes],
    }


def _about(
    case: SlideCase,
    grid: PatchGrid,
    tumour: npt.NDArray[np.float64] | None,
    rows: pd.DataFrame,
    settings: CutSettings,
) -> dict[str, Any]:
    return {
        "case_id": case.facts.case_id,
        "dataset": case.facts.dataset,
        "mpp": grid.mpp,
        "patch_px": grid.patch_px,
        "columns": grid.columns,
        "rows": grid.rows,
        "level": grid.level,
        "truth": "unknown" if tumour is None else "annotated" if case.annotation is not None else "normal",
        "annotation_digest": digest(case.annotation) if case.annotation is not None else None,
        "summary": summarise_rows(rows, least_tumour=settings.least_tumour),
    }


class _Truths:
    """The annotation of a slide, open."""

    def __init__(self, case: SlideCase, settings: CutSettings, slide: Slide) -> None:
        self.case, self.settings, self.slide = case, settings, slide
        self.mask: MaskTiff | None = None
        if case.annotation is not None and is_mask(case.annotation):
            self.mask = open_mask(case.annotation, tumour=settings.mask_tumour or None)

    def __enter__(self) -> _Truths:
        return self

    def __exit__(self, *_: object) -> None:
        if self.mask is not None:
            self.mask.close()

    def measure(
        self, grid: PatchGrid
    ) -> tuple[npt.NDArray[np.float64] | None, float, dict[str, int], list[str]]:
        """Tumour shares or None, tumour that no patch covers, what was counted, and remarks."""
        stage = self.case.facts.stage.casefold()
        nothing = np.zeros((grid.rows, grid.columns))
        if self.case.annotation is None:
            if stage in NORMAL_STAGES or (not stage and self.settings.without_annotation == "normal"):
                return nothing, 0.0, {}, []
            notes = (
                [f"the stage is {stage} and there is no annotation: its tumour is not known"] if stage else []
            )
            return None, 0.0, {}, notes
        counts: dict[str, int] = {}
        notes = []
        truth: Truth
        if self.mask is not None:
            truth = self.mask
        else:
            truth = read_annotations(self.case.annotation, groups=self.settings.groups)
            if self.settings.origin == "scanned":
                left, top, _, _ = self.slide.facts.bounds_px
                truth = moved(truth, offset_px=(left, top))
            truth = check_inside(truth, self.slide.size_px)
            counts, notes = _counted(truth)
        found = tumour_shares_on(truth, grid, fill=self.settings.outline_fill, size_px=self.slide.size_px)
        any_tumour = bool(found.outside or (found.shares > 0).any())
        if stage in TUMOUR_STAGES and not any_tumour:
            notes.append(f"the stage is {stage} and the annotation holds no tumour: its tumour is not known")
            return None, 0.0, counts, notes
        if stage in NORMAL_STAGES and any_tumour:
            notes.append(f"the stage is {stage} and the annotation holds tumour: the annotation is used")
        return found.shares, found.outside, counts, notes


def _counted(annotations: Annotations) -> tuple[dict[str, int], list[str]]:
    """What was met while reading and mending, and remarks on what a reader should check."""
    counts = dict(annotations.counts)
    notes = []
    try:
        counts |= resolve(annotations).counts
    except UserError as error:
        notes.append(f"crossings were not counted: {error.what}")
    if outside := counts.get("points outside the slide", 0):
        notes.append(f"{outside:,} points of the annotation lie outside of the slide")
    return {name: int(number) for name, number in counts.items() if number}, notes


def _tissue_remarks(
    rows: pd.DataFrame,
    tumour: npt.NDArray[np.float64] | None,
    tissue: npt.NDArray[np.float32],
    settings: CutSettings,
    outside: float,
) -> list[str]:
    remarks = []
    if rows.empty:
        remarks.append(f"no patch has {100 * settings.least_tissue:g} % tissue or any tumour")
    if outside > 0:
        remarks.append(
            f"tumour of {outside:.2f} patches lies at the right and lower border, where no whole patch fits"
        )
    if tumour is not None and (some := tumour > 0).any():
        bare = int((some & (tissue < np.float32(settings.least_tissue))).sum())
        if bare:
            share = f"{bare:,} of {int(some.sum()):,} tumour patches hold under {100 * settings.least_tissue:g} % tissue"
            doubt = ": the annotation may belong to another slide or level" if 2 * bare >= some.sum() else ""
            remarks.append(share + doubt)
    groups = rows["group"].value_counts()
    drawn = rows.loc[rows["training"], "group"].value_counts()
    for name in ("NN", "NT"):
        wanted = int(drawn.get("TT", 0)) if name == "NT" else settings.normals_per_slide
        there = int(groups.get(name, 0))
        if there and there < wanted:
            remarks.append(f"only {there:,} patches of the group {name} for training, {wanted:,} were wanted")
    return remarks


def slide_digest(path: Path) -> str:
    """Compute the digest of a slide with all files that belong to it.

    Args:
        path: The file that was opened.

    Returns:
        SHA-256 in hexadecimal: of the file alone, or of the names and digests of all files of a slide in several.

    Raises:
        UserError: A file cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "a.tif"
        ...     _ = file.write_bytes(b"pixels")
        ...     slide_digest(file)[:8]
        '6ec9c2b0'
    """
    ending = path.suffix.lower()
    with explained_refusals(path, "the slide cannot be read"):
        more: list[Path] = []
        if ending == ".mrxs":
            more = sorted(file for file in path.with_suffix("").rglob("*") if file.is_file())
        elif ending in (".vms", ".vmu"):
            more = sorted(path.parent.glob(f"{path.stem}*"))
        elif ending == ".dcm":
            more = sorted(path.parent.glob("*.dcm"))
        if not more:
            return digest(path)
        import hashlib

        found = hashlib.sha256(digest(path).encode())
        for file in more:
            found.update(f"\0{file.relative_to(path.parent).as_posix()}\0{digest(file)}".encode())
        return found.hexdigest()
