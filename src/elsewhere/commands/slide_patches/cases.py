"""Which slides a command works on: named files, folders, or the cases of a cohort; each with its annotation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.cohort.loading import load_cohort
from elsewhere.cohort.patch_table import SlideFacts
from elsewhere.cohort.slide_files import (
    MASK_WORDS,
    OUTLINE_ENDINGS,
    SLIDE_ENDINGS,
    files_below,
    fold_name,
)
from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import is_table
from elsewhere.tables.identifiers import note_files

CUT_ENDINGS = (*SLIDE_ENDINGS, ".png", ".jpg", ".jpeg")
"""What can be cut: slides, and pictures whose scale is stated."""
TIFF_MASKS = (".tif", ".tiff")
BARE_DATASET = "slides"


@dataclass(frozen=True, kw_only=True)
class SlideCase:
    """A slide to work on.

    Attributes:
        facts: What it is called, and what is known of it.
        slide: The file; None where only its annotation is used.
        annotation: Outlines or a mask TIFF; None without one.
        mpp: Microns per pixel at level 0 that are stated for it; None for those of the file. Text that is no number is
            kept, and refused when the slide is opened.
    """

    facts: SlideFacts
    slide: Path | None = None
    annotation: Path | None = None
    mpp: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class SlideCases:
    """The slides to work on.

    Attributes:
        cases: The slides by dataset and case.
        refused: What cannot be worked on, with the reason.
        warnings: What a reader should know, as sentences.
    """

    cases: tuple[SlideCase, ...]
    refused: tuple[tuple[str, UserError], ...] = ()
    warnings: tuple[str, ...] = ()


def find_cases(
    paths: Sequence[Path], *, annotations: Path | None = None, outlines_only: bool = False
) -> SlideCases:
    """Find the slides that are meant.

    Args:
        paths: Slides; folders of slides; or one cohort: a cohort folder or a table with `case_id`. With `outlines_only`, annotation
            files and folders of them.
        annotations: A folder of annotations with the names of the slides, or the annotation of the only slide.
        outlines_only: Whether only the annotations are used.

    Returns:
        The slides, sorted by name.

    Raises:
        UserError: Nothing is there, a path does not exist, or two files have one name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "b.tif").touch(), (Path(folder) / "a.svs").touch()
        ...     [case.facts.case_id for case in find_cases([Path(folder)]).cases]
        ['a', 'b']
    """
    if not paths:
        raise UserError("no slide was named", fix="Name slides, a folder of slides, or a cohort.")
    if len(paths) == 1 and _is_cohort(paths[0]):
        found = _of_cohort(load_cohort(paths[0]), annotations, outlines_only)
    else:
        found = _of_files(paths, annotations, outlines_only)
    if not found.cases and not found.refused:
        raise UserError(
            "there are no annotations here" if outlines_only else "there is no slide here",
            where=", ".join(str(path) for path in paths[:3]),
            fix=f"Known endings: {', '.join(OUTLINE_ENDINGS if outlines_only else CUT_ENDINGS)}.",
        )
    return found


def is_mask(path: Path) -> bool:
    """Say whether an annotation is a mask by its ending.

    Args:
        path: The file.

    Returns:
        True for .tif and .tiff.

    Example:
        >>> is_mask(Path("a_mask.tif")), is_mask(Path("a.xml"))
        (True, False)
    """
    return path.suffix.lower() in TIFF_MASKS


def _is_cohort(path: Path) -> bool:
    return (path / "cohort.json").is_file() or path.name == "cohort.json" or is_table(path)


def _of_files(paths: Sequence[Path], annotations: Path | None, outlines_only: bool) -> SlideCases:
    endings = OUTLINE_ENDINGS if outlines_only else CUT_ENDINGS
    inside = annotations if annotations is not None and annotations.is_dir() else None
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += [
                file
                for file in _files_below(path, endings)
                if not _is_named_mask(file) and (inside is None or not _is_below(file, inside))
            ]
        else:
            files.append(path)
    note_files(files)
    names: dict[str, Path] = {}
    for file in files:
        name = file.parent.name if file.suffix.lower() == ".dcm" else file.stem
        other = names.setdefault(fold_name(name), file)
        if other != file and not (file.suffix.lower() == ".dcm" and other.parent == file.parent):
            raise UserError(
                f"two files have the name '{name}': {other} and {file}",
                fix="Rename one, or put both into a cohort table with case ids of their own.",
            )
    listing = _Annotations.of(annotations, len(names))
    cases, refused = [], []
    for file in names.values():
        name = file.parent.name if file.suffix.lower() == ".dcm" else file.stem
        facts = SlideFacts(dataset=BARE_DATASET, patient_id=name, case_id=name)
        try:
            own = file if outlines_only else listing.of_slide(name)
        except UserError as error:
            refused.append((name, error))
            continue
        cases.append(SlideCase(facts=facts, slide=None if outlines_only else file, annotation=own))
    unused = listing.unused(names)
    warnings = []
    if cases:
        warnings.append("patients are not known: every slide counts as a patient of its own")
    if unused:
        warnings.append(f"{len(unused)} annotations belong to no slide: {name_rows(unused)}")
    return SlideCases(cases=_sorted(cases), refused=tuple(refused), warnings=tuple(warnings))


class _Annotations:
    """Annotation files by the name of their slide."""

    def __init__(self, files: Iterable[Path], only: Path | None = None) -> None:
        self.only = only
        self.by_name: dict[str, list[Path]] = {}
        for file in files:
            name = fold_name(file.stem)
            for word in MASK_WORDS if is_mask(file) else ():
                name = name.removesuffix(word)
            self.by_name.setdefault(name, []).append(file)

    @classmethod
    def of(cls, path: Path | None, slides: int) -> _Annotations:
        if path is None:
            return cls(())
        if path.is_dir():
            files = _files_below(path, (*OUTLINE_ENDINGS, *TIFF_MASKS))
            if not files:
                raise UserError(
                    "there are no annotations in this folder",
                    where=str(path),
                    fix=f"Known endings: {', '.join((*OUTLINE_ENDINGS, *TIFF_MASKS))}.",
                )
            return cls(files)
        if slides != 1:
            raise UserError(
                f"one annotation file is given and {slides} slides",
                where=str(path),
                fix="Give a folder with annotations that have the names of the slides.",
            )
        if not path.exists():
            raise UserError("there is no such annotation file", where=str(path))
        return cls((), only=path)

    def of_slide(self, name: str) -> Path | None:
        """The annotation of a slide; refuse where several have its name."""
        if self.only is not None:
            return self.only
        found = self.by_name.get(fold_name(name), [])
        if len(found) > 1:
            raise UserError(
                f"several annotations have the name of the slide: {', '.join(file.name for file in found[:4])}",
                where=name,
                fix="Keep one of them in the folder.",
            )
        return found[0] if found else None

    def unused(self, names: Iterable[str]) -> tuple[str, ...]:
        known = set(names)
        return tuple(
            sorted(file.name for name, files in self.by_name.items() if name not in known for file in files)
        )


def _of_cohort(cohort: Cohort, annotations: Path | None, outlines_only: bool) -> SlideCases:
    listing = _Annotations.of(annotations, len(cohort.cases))
    cases, refused, without = [], [], []
    for row in cohort.cases.to_dict("records"):
        name = str(row["case_id"])
        facts = SlideFacts(
            dataset=_text(row.get("dataset")),
            patient_id=_text(row.get("patient_id")) or name,
            case_id=name,
            stage=_text(row.get("stage")),
            site=_text(row.get("site")),
            domain=_text(row.get("domain")),
        )
        slide, own = _text(row.get("slide")), _text(row.get("annotation")) or _text(row.get("mask"))
        try:
            annotation = cohort.file(own) if own else listing.of_slide(name)
        except UserError as error:
            refused.append((name, error))
            continue
        if not (annotation if outlines_only else slide):
            without.append(name)
            continue
        cases.append(
            SlideCase(
                facts=facts,
                slide=None if outlines_only else cohort.file(slide),
                annotation=annotation,
                mpp=_mpp(row.get("mpp")),
            )
        )
    what = "annotation" if outlines_only else "slide"
    if without and not cases and not refused:
        raise UserError(
            f"no case of the cohort has an entry in its column '{what}'",
            fix=f"Add the column '{what}' with the file of each case, and read the cohort again.",
        )
    warnings = [f"{len(without)} cases name no {what}: {name_rows(without)}"] if without else []
    unused = listing.unused(fold_name(str(name)) for name in cohort.cases["case_id"])
    if unused:
        warnings.append(f"{len(unused)} annotations belong to no case: {name_rows(unused)}")
    return SlideCases(cases=_sorted(cases), refused=tuple(refused), warnings=tuple(warnings))


def _sorted(cases: Iterable[SlideCase]) -> tuple[SlideCase, ...]:
    return tuple(sorted(cases, key=lambda case: case.facts.key))


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value).strip()


def _mpp(value: Any) -> float | str | None:
    text = _text(value)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return text if math.isnan(number) else number


def _is_named_mask(file: Path) -> bool:
    return is_mask(file) and fold_name(file.stem).endswith(MASK_WORDS)


def _is_below(file: Path, folder: Path) -> bool:
    return file.resolve().is_relative_to(folder.resolve())


def _files_below(folder: Path, endings: Sequence[str]) -> list[Path]:
    """Files with one of the endings, in order of name."""
    return [
        path
        for path in files_below(folder)
        if path.name.lower().endswith(tuple(endings)) and not path.name.startswith(".")
    ]
