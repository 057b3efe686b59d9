"""Looks into the slides and annotations of a cohort: what they are, and what contradicts the table (LN-01, LN-14).

Each slide is opened and none is read in full: its size, microns per pixel, levels and format are noted, an overview is
compared with those of the other slides, and its annotations are compared with the slide and with its stage. A slide
that cannot be read is counted and named; the others go on. Label and overview pictures in the files, users, dates and
original file names are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort.audit import Finding, Severity
from elsewhere.cohort.duplicates import find_duplicates
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs.slides.annotations import (
    Annotations,
    check_inside,
    longest_axis_of_mask_px,
    major_axes_px,
    open_mask,
    read_annotations,
    resolve,
    stage_of_axis,
)
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Slide

Progress = Callable[[str, int, int], None]
SLIDE_COLUMNS = ("width_px", "height_px", "levels", "microns_per_pixel", "slide_vendor")
ANNOTATION_COLUMNS = ("outlines", "annotated_axis_mm", "annotated_stage")
COLUMNS = (*SLIDE_COLUMNS, *ANNOTATION_COLUMNS)
"""What is known of each slide after looking; `microns_per_pixel` replaces that of the table."""
_MASK_ENDINGS = (".tif", ".tiff")
_MOST_MASK_PIXELS = 1 << 24
"""Of the level of a mask that is looked at: about 8 microns per pixel on a large slide."""
_OTHER_SCALE = 1.2
"""A slide whose microns per pixel differ from those of its site by this factor is named."""
_MENDED = (
    "rings that cross themselves",
    "rings of under three points",
    "rings that overlap",
    "duplicate rings",
)
NEAR_DUPLICATE_KINDS: Mapping[bool, tuple[str, Severity]] = {
    False: ("near-duplicate-slides-two-patients", "error"),
    True: ("near-duplicate-slides", "warning"),
}
"""The kind and severity of the finding, by whether both slides are of one patient."""
_KINDS: Mapping[str, tuple[Severity, str, str]] = {
    "slide-unreadable": ("error", "slides", "cannot be read"),
    "annotation-unreadable": ("error", "annotations", "cannot be read"),
    "annotation-of-another-slide": ("error", "annotations", "do not fit their slide"),
    "outlines-on-negative-slide": (
        "warning", "annotations", "hold tumour, and the table calls their slide negative",
    ),
    "no-outline-on-tumour-slide": (
        "warning", "annotations", "hold no tumour, and the table calls their slide tumour",
    ),
    "mask-without-small-level": (
        "info", "annotations", "are masks without a level of at most 16 million pixels, and were not looked into",
    ),
    "stage-unlike-annotation": (
        "warning", "annotations", "give another stage by their longest axis than the table states",
    ),
    "microns-unlike-site": (
        "warning", "slides", "have other microns per pixel than most slides of their site",
    ),
    "tumour-without-annotation": (
        "info", "slides", "are tumour by the table and have no annotation, which others have",
    ),
    "points-outside-slide": ("warning", "annotations", "have points outside of their slide"),
    "outlines-mended": ("info", "annotations", "hold rings that were mended or left out"),
    "slide-remarks": ("warning", "slides", "have a remark"),
    "label-pictures": ("info", "slides", "hold a label or overview picture, which is not read"),
}  # fmt: skip
"""How serious a finding is, what it is about, and what was found, in words."""


@dataclass(frozen=True, kw_only=True)
class SlidesAudit:
    """What was found in the slides and annotations of a cohort.

    Attributes:
        findings: One finding per kind, the serious ones first.
        cohort: The cohort with the columns of `COLUMNS` that are known.
    """

    findings: tuple[Finding, ...]
    cohort: Cohort


@dataclass(kw_only=True)
class _Looked:
    """What is known of one case."""

    cells: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    slide: bool = False
    annotation: bool = False


def audit_slides(
    cohort: Cohort, *, progress: Progress | None = None, threads: int | None = None
) -> SlidesAudit:
    """Open every slide that a cohort names in `slide`, and read every annotation that it names.

    Outlines are read from `annotation`, and a mask TIFF from `mask` where there are no outlines.

    Args:
        cohort: The cohort. `mpp` of a row overrides the microns per pixel of its slide; where no slide is here,
            `microns_per_pixel` gives the scale of the outlines.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        threads: Threads that read slides for the search of near-duplicates; None: one per processor.

    Returns:
        The findings, and the cohort with what is known of its slides.

    Raises:
        UserError: The cohort has none of the columns `slide`, `annotation` and `mask`.
    """
    columns = cohort.cases.columns
    if not {"slide", "annotation", "mask"} & set(columns):
        raise UserError(
            "the cohort names no slides and no annotations, so that there is nothing to look into",
            fix="Put the slides below the folder that is read, or leave out --slides.",
        )
    rows = [{str(k): v for k, v in row.items()} for row in cohort.cases.to_dict("records")]
    looked = []
    for done, row in enumerate(rows, start=1):
        looked.append(_look(cohort, row))
        if progress and (done % 5 == 0 or done == len(rows)):
            progress("looking into slides", done, len(rows))
    _compare_scales(rows, looked)
    _name_tumours_without_annotation(rows, looked)
    findings = [*_faults(rows, looked), *_near_duplicates(cohort, looked, threads, progress)]
    findings.append(_summary(looked, len(rows)))
    order = {"error": 0, "warning": 1, "info": 2}
    return SlidesAudit(
        findings=tuple(sorted(findings, key=lambda finding: order[finding.severity])),
        cohort=_with_columns(cohort, looked),
    )


def _look(cohort: Cohort, row: Mapping[str, Any]) -> _Looked:
    looked = _Looked()
    size: tuple[int, int] | None = None
    if name := _text(row.get("slide")):
        looked.slide = True
        try:
            with open_slide(cohort.file(name), mpp=_number(row.get("mpp"))) as slide:
                size = slide.size_px
                _note_slide(slide, looked)
        except UserError as error:
            looked.faults["slide-unreadable"] = error.what
    if name := _text(row.get("annotation")):
        looked.annotation = True
        try:
            _look_at_annotation(read_annotations(cohort.file(name)), row, size, looked)
        except UserError as error:
            looked.faults["annotation-unreadable"] = error.what
    elif (name := _text(row.get("mask"))).lower().endswith(_MASK_ENDINGS):
        looked.annotation = True
        try:
            _look_at_mask(cohort.file(name), row, size, looked)
        except UserError as error:
            looked.faults["annotation-unreadable"] = error.what
    return looked


def _note_slide(slide: Slide, looked: _Looked) -> None:
    facts = slide.facts
    looked.cells |= {
        "width_px": slide.size_px[0],
        "height_px": slide.size_px[1],
        "levels": len(facts.levels),
        "microns_per_pixel": float(f"{facts.mpp:.6g}"),
        "slide_vendor": facts.vendor,
    }
    if facts.warnings:
        looked.faults["slide-remarks"] = facts.warnings[0]
    if facts.pictures:
        looked.faults["label-pictures"] = f"{len(facts.pictures)} of them"


def _look_at_annotation(
    annotations: Annotations, row: Mapping[str, Any], size: tuple[int, int] | None, looked: _Looked
) -> None:
    if size is not None:
        try:
            annotations = check_inside(annotations, size)
        except UserError as error:
            looked.faults["annotation-of-another-slide"] = error.what
            return
        outside = annotations.counts.get("points outside the slide", 0)
        if outside:
            looked.faults["points-outside-slide"] = f"{outside} points"
    region = resolve(annotations)
    counts = {**annotations.counts, **region.counts}
    mended = sum(int(counts.get(name, 0)) for name in _MENDED)
    if mended:
        looked.faults["outlines-mended"] = f"{mended} rings"
    count = len(annotations.outlines)
    looked.cells["outlines"] = count
    axis_px = float(max(major_axes_px(region), default=0.0))
    _compare_with_table(row, f"{count} outlines" if count else "", axis_px, looked)


def _look_at_mask(path: Path, row: Mapping[str, Any], size: tuple[int, int] | None, looked: _Looked) -> None:
    """A mask TIFF is read at its finest level of few enough pixels."""
    with open_mask(path) as mask:
        small = [at for at, (width, height) in enumerate(mask.levels) if width * height <= _MOST_MASK_PIXELS]
        if size is not None:
            try:
                mask.downsample(size)
            except UserError as error:
                looked.faults["annotation-of-another-slide"] = error.what
                return
        if not small:
            looked.faults["mask-without-small-level"] = "{:,} x {:,} pixels".format(*mask.levels[-1])
            return
        level = small[0]
        tumour = mask.read(0, 0, *mask.levels[level], level=level)
        factor = mask.downsample(size, level=level) if size is not None else None
    found = f"{int(tumour.sum()):,} pixels of the mask" if tumour.any() else ""
    axis_px = None if factor is None else longest_axis_of_mask_px(tumour) * factor
    _compare_with_table(row, found, axis_px, looked)


def _compare_with_table(row: Mapping[str, Any], found: str, axis_px: float | None, looked: _Looked) -> None:
    """Hold what was annotated against the stage in the table; `found` says what there is, and is empty for nothing."""
    tumour = _is_tumour(row)
    if tumour is False and found:
        looked.faults["outlines-on-negative-slide"] = found
    elif tumour is True and not found:
        looked.faults["no-outline-on-tumour-slide"] = f"stage {_text(row.get('stage')) or 'not known'}"
    mpp = looked.cells.get("microns_per_pixel") or _number(row.get("mpp"))
    mpp = mpp or _number(row.get("microns_per_pixel"))
    if mpp is None or axis_px is None:
        return
    axis = axis_px * mpp / 1000.0
    stage = stage_of_axis(axis, any_object=bool(found))
    looked.cells |= {"annotated_axis_mm": round(axis, 6), "annotated_stage": stage}
    stated = _text(row.get("stage"))
    if stated and found and stated != stage and tumour:
        looked.faults["stage-unlike-annotation"] = f"{stated} in the table, {axis:.3g} mm is {stage}"


def _compare_scales(rows: list[dict[str, Any]], looked: list[_Looked]) -> None:
    """Name slides whose scale is not that of most slides of their site: a stale or wrong tag, or another scanner."""
    by_site: dict[str, list[int]] = {}
    for at, (row, one) in enumerate(zip(rows, looked, strict=True)):
        if "microns_per_pixel" in one.cells:
            by_site.setdefault(_text(row.get("site")), []).append(at)
    for members in by_site.values():
        sizes = pd.Series([float(looked[at].cells["microns_per_pixel"]) for at in members])
        usual = float(sizes.median())
        if len(members) < 3 or (sizes / usual).between(1 / 1.05, 1.05).mean() <= 0.5:
            continue
        for at, size in zip(members, sizes, strict=True):
            if not 1 / _OTHER_SCALE <= size / usual <= _OTHER_SCALE:
                looked[at].faults["microns-unlike-site"] = f"{size:.3g}, most have {usual:.3g}"


def _name_tumours_without_annotation(rows: list[dict[str, Any]], looked: list[_Looked]) -> None:
    if not any(one.annotation for one in looked):
        return
    for row, one in zip(rows, looked, strict=True):
        if one.slide and not one.annotation and _is_tumour(row) and not _text(row.get("mask")):
            one.faults["tumour-without-annotation"] = f"stage {_text(row.get('stage')) or 'not known'}"


def _is_tumour(row: Mapping[str, Any]) -> bool | None:
    """Whether the table calls a slide tumour, by its stage or else by its label; None where it does not say."""
    if stage := _text(row.get("stage")):
        return stage != "negative"
    label = row.get("label")
    if isinstance(label, int | float) and label in (0, 1):
        return bool(label)
    return None


def _faults(rows: list[dict[str, Any]], looked: list[_Looked]) -> list[Finding]:
    findings = []
    for kind, (severity, noun, words) in _KINDS.items():
        affected = [at for at, one in enumerate(looked) if kind in one.faults]
        if not affected:
            continue
        total = sum(one.slide if noun == "slides" else one.annotation for one in looked)
        numbers = [at + 1 for at in affected]
        first = looked[affected[0]].faults[kind]
        findings.append(
            Finding(
                kind=kind,
                severity=severity,
                message=f"{len(affected)} of {total} {noun} {words} (rows {name_rows(numbers)}; the first: {first})",
                rows=tuple(numbers),
                ids=tuple(str(rows[at]["case_id"]) for at in affected),
            )
        )
    return findings


def _near_duplicates(
    cohort: Cohort, looked: list[_Looked], threads: int | None, progress: Progress | None
) -> list[Finding]:
    """Slides that show the same piece of glass: scanned twice, compressed again, or saved under another name."""
    readable = [one.slide and "slide-unreadable" not in one.faults for one in looked]
    if sum(readable) < 2:
        return []
    part = cohort.subset(pd.Series(readable))
    cases = part.cases.drop(columns=[name for name in ("image",) if name in part.cases.columns])
    if "stage" in cases.columns:
        cases = cases.assign(label=cases["stage"])
    try:
        found = find_duplicates([replace(part, cases=cases)], threads=threads, progress=progress)
    except UserError as error:
        return [
            Finding(
                kind="near-duplicates-unknown",
                severity="warning",
                message=f"slides were not compared with each other: {error.what}",
            )
        ]
    number = {f"{d}/{c}": at + 1 for at, (d, c) in enumerate(
        zip(cohort.cases["dataset"], cohort.cases["case_id"], strict=True)
    )}  # fmt: skip
    findings = []
    for same_patient, (kind, severity) in NEAR_DUPLICATE_KINDS.items():
        pairs = found.pairs[found.pairs["same_patient"].astype(bool) == same_patient]
        if pairs.empty:
            continue
        one = [number[f"{d}/{c}"] for d, c in zip(pairs["dataset_a"], pairs["case_a"], strict=True)]
        two = [number[f"{d}/{c}"] for d, c in zip(pairs["dataset_b"], pairs["case_b"], strict=True)]
        shown = [f"{a} and {b}" for a, b in zip(one, two, strict=True)]
        whose = "of one patient" if same_patient else "of different patients"
        other = int((pairs["same_label"] == "no").sum())
        findings.append(
            Finding(
                kind=kind,
                severity=severity,
                message=f"{len(pairs)} pairs of slides {whose} show the same tissue (rows {name_rows(shown)})"
                + (f"; {other} with different stages" if other else "")
                + ": keep each pair in one part of a split, or leave one of the two out",
                rows=tuple(sorted({*one, *two})),
                ids=tuple(dict.fromkeys([*pairs["case_a"], *pairs["case_b"]])),
            )
        )
    return findings


def _summary(looked: list[_Looked], cases: int) -> Finding:
    slides = [one for one in looked if one.slide]
    read = [one for one in slides if "width_px" in one.cells]
    vendors = pd.Series([one.cells["slide_vendor"] for one in read], dtype="str").value_counts()
    sizes = sorted(float(one.cells["microns_per_pixel"]) for one in read)
    told = f"{len(slides)} of {cases} cases have a slide, {len(read)} can be read"
    if read:
        listed = ", ".join(f"{count} {name}" for name, count in vendors.items())
        told += f" ({listed}; {sizes[0]:.3g} to {sizes[-1]:.3g} microns per pixel)"
    annotated = sum(one.annotation for one in looked)
    return Finding(kind="slides", severity="info", message=f"{told}; {annotated} have an annotation")


def _with_columns(cohort: Cohort, looked: list[_Looked]) -> Cohort:
    """The cohort with what is known of its slides; its grades, counts and warnings stay."""
    cases = cohort.cases.copy()
    for name in COLUMNS:
        values = [one.cells.get(name) for one in looked]
        if not any(value is not None for value in values):
            continue
        kind = "str" if name in ("slide_vendor", "annotated_stage") else "float64"
        column = pd.Series(values, index=cases.index, dtype=kind)
        if name == "microns_per_pixel" and name in cases.columns:
            column = column.fillna(pd.to_numeric(cases[name], errors="coerce"))
        cases[name] = column
    return Cohort.from_frame(
        cases,
        lesions=cohort.lesions,
        reader=cohort.reader,
        root=cohort.root,
        warnings=cohort.warnings,
        synthetic=cohort.synthetic,
        known=KnownOfCohort(
            id_grades=cohort.id_grades,
            counts=cohort.counts,
            truth_files=cohort.truth_files,
            other_id_column=cohort.other_id_column,
        ),
    )


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return float(value)
    return None
