"""The cohorts of a study: read from their published layout, from a cohort folder or a table, or made up.

Reading a published set looks at every picture and mask. What came of it is kept beside the store, and holds
for as long as no file of the set and no line of the readers has changed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from elsewhere.cohort import Cohort, IdGrade, load_cohort, read_cohort, readers
from elsewhere.cohort.grades import grade_renamed
from elsewhere.cohort.table import LEVELS, KnownOfCohort
from elsewhere.errors import UserError
from elsewhere.study.file import CohortSection, StudyFile
from elsewhere.study.pictures import Report
from elsewhere.tables import is_table, read_table

FILE_COLUMNS = ("image", "mask")


def read_cohorts(
    file: StudyFile, *, cache: Path | None = None, progress: Report | None = None
) -> dict[str, Cohort]:
    """Read the cohorts of a study: published sets, cohort folders, tables and phantoms.

    Args:
        file: The study.
        cache: A folder for what is slow to find out: published sets as they were read, and the pictures of
            phantoms. None: everything is read anew, and phantoms are drawn into a temporary folder.
        progress: Called with what is done, how many cohorts were read, and how many there are; None: nobody
            is told.

    Returns:
        The cohorts in the order of the file, each by the name of its first dataset.

    Raises:
        UserError: A cohort is missing or cannot be read, or two of them bring the same dataset.
    """
    found: dict[str, Cohort] = {}
    sections = file.study.cohort
    for number, section in enumerate(sections, start=1):
        if progress:
            progress("reading cohorts", number - 1, len(sections))
        where = f"{file.path}, cohort {number}"
        cohort = _open(file, section, cache, where=where)
        for name in map(str, cohort.cases["dataset"].unique()):
            if any(name in set(held.cases["dataset"]) for held in found.values()):
                raise UserError(
                    f"two cohorts bring the dataset '{name}'",
                    where=where,
                    fix='Give one of them another name: name = "...".',
                )
        found[str(cohort.cases["dataset"].iloc[0])] = cohort
    if progress:
        progress("reading cohorts", len(sections), len(sections))
    return found


def merged_cohort(cohorts: Sequence[Cohort], rows: pd.DataFrame) -> Cohort:
    """Make one cohort of the rows of several.

    Args:
        cohorts: The cohorts.
        rows: Their cases in the order of the cohorts; paths in it are absolute.

    Returns:
        A cohort with the id grades, the warnings, the lesions and the ids in other datasets of all of them.
    """
    linked = {one.other_id_column for one in cohorts} - {""}
    if len(linked) > 1:
        rows = rows.assign(other_patient_id=[name for one in cohorts for name in one.other_ids()])
        linked = {"other_patient_id"}
    return Cohort.from_frame(
        rows,
        lesions=_merged_lesions(cohorts, rows),
        reader="+".join(dict.fromkeys(one.reader for one in cohorts)),
        warnings=tuple(word for one in cohorts for word in one.warnings),
        synthetic=all(one.synthetic for one in cohorts),
        known=KnownOfCohort(
            id_grades={name: grade for one in cohorts for name, grade in one.id_grades.items()},
            other_id_column=next(iter(linked), None),
        ),
    )


def _merged_lesions(cohorts: Sequence[Cohort], rows: pd.DataFrame) -> pd.DataFrame | None:
    """The lesions of all cohorts, by the ids that their cases have in `rows`; None where none has a table of lesions."""
    parts = []
    first = 0
    for one in cohorts:
        last = first + len(one.cases)
        if one.lesions is not None:
            new = dict(zip(one.cases["case_id"], rows["case_id"].iloc[first:last], strict=True))
            parts.append(one.lesions.assign(case_id=one.lesions["case_id"].map(new)))
        first = last
    return pd.concat(parts, ignore_index=True) if parts else None


def rows_with_paths(cohort: Cohort) -> pd.DataFrame:
    """Copy the cases of a cohort with absolute paths, so that cohorts in several folders can become one.

    Args:
        cohort: The cohort.

    Returns:
        Its cases, with `image` and `mask` as absolute paths.
    """
    cases = cohort.cases.copy()
    for column in FILE_COLUMNS:
        if column in cases.columns:
            cases[column] = [
                str(cohort.file(path).resolve()) if isinstance(path, str) else path for path in cases[column]
            ]
    return cases


def _open(file: StudyFile, section: CohortSection, cache: Path | None, *, where: str) -> Cohort:
    if section.phantom is not None:
        from elsewhere.study.phantoms import phantom_cohort

        cohort, name = phantom_cohort(section.phantom, cache, where=where)
        return _named(cohort, section.name or name, where=where)
    source = file.source_of(section)
    if not source.exists():
        raise UserError(
            f"there is nothing to read for '{section.reader}'"
            if section.reader
            else "there is no such cohort",
            where=str(source),
            fix="Give the folder that holds the published sets: --data DIR."
            if "{data}" in section.source
            else "Correct 'source' in the study file; it is relative to that file.",
        )
    if section.reader:
        cohort = _read_once(section, source, cache)
    elif section.options:
        raise UserError("options are for a reader", where=where, fix="Name the reader.")
    else:
        whole = file.study.study.publication or not is_table(source)
        cohort = load_cohort(source) if whole else _tolerant(source)
    return _named(cohort, section.name, where=where)


def _read_once(section: CohortSection, source: Path, cache: Path | None) -> Cohort:
    if cache is None or not source.is_dir():
        return read_cohort(section.reader, source, **section.options)
    folder = cache / "cohorts" / f"{section.reader}-{_state(section, source)}"
    if (folder / "cohort.json").is_file():
        try:
            return load_cohort(folder)
        except UserError:
            pass
    cohort = read_cohort(section.reader, source, **section.options)
    cohort.save(folder, replace=True)
    return load_cohort(folder)


def _state(section: CohortSection, source: Path) -> str:
    """Of the set's files (name, size, time of change), the reader's options, and the readers' own lines."""
    digest = hashlib.sha256(json.dumps([section.reader, section.options], default=str).encode())
    digest.update(str(source.resolve()).encode())
    for base, folders, files in os.walk(source):
        folders.sort()
        for name in sorted(files):
            state = (Path(base) / name).stat()
            digest.update(f"{base}/{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    code = Path(inspect.getfile(inspect.unwrap(readers.get(section.reader)))).parent
    for path in sorted(code.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _tolerant(source: Path) -> Cohort:
    """A table some of whose patient ids are empty, outside publication mode: each such row is a patient."""
    frame = read_table(source, required=["case_id"], strings=LEVELS)
    if "patient_id" not in frame.columns:
        return load_cohort(source)
    ids = frame["patient_id"].astype("str")
    empty = frame["patient_id"].isna() | (ids.str.strip() == "")
    if not empty.any():
        return load_cohort(source)
    frame = frame.assign(patient_id=ids.mask(empty, "no id: " + frame["case_id"].astype("str")))
    word = f"{int(empty.sum())} rows without a patient id count as a patient each"
    made = Cohort.from_frame(frame, root=source.parent, where=str(source), warnings=(word,))
    return replace(made, id_grades={name: IdGrade(grade="C", why=word) for name in made.id_grades})


def _named(cohort: Cohort, name: str, *, where: str) -> Cohort:
    if not name:
        return cohort
    names = list(cohort.cases["dataset"].unique())
    if len(names) != 1:
        raise UserError(
            f"a cohort of {len(names)} datasets cannot be given one name", where=where, fix="Leave out name."
        )
    cases = cohort.cases.assign(dataset=pd.Series(name, index=cohort.cases.index, dtype="str"))
    grade = cohort.id_grades.get(str(names[0]))
    if grade is not None and name != str(names[0]):
        grade = grade_renamed(cohort.cases, str(names[0]), grade)
    return replace(cohort, cases=cases, id_grades={name: grade} if grade else {})
