"""The cohort table: who was tested."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from elsewhere.cohort.groups import count_distinct, rows_that_vary
from elsewhere.cohort.rows import rows_that_are_no_case
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import content_hash, file_digest, infer_types, staged_directory, write_json, write_table
from elsewhere.tables.hashing import TEXT_COLUMNS, arrow_text
from elsewhere.tables.identifiers import note_files, note_ids

LEVELS = ("patient_id", "exam_id", "case_id", "lesion_id")
FILE_COLUMNS = ("image", "mask", "annotation", "slide", "volume", "path", "file")
TRUTH_COLUMNS = ("mask", "annotation")
OTHER_ID_COLUMNS = ("other_patient_id", "mamamia_id")
"""Columns with the id that the same patient has in another dataset, where a reader names no column."""
_FURTHER_TRUTH = re.compile(r"(other_)?mask_\d+_path")
CATEGORY_COLUMNS = (
    "class",
    "stage",
    "patient_stage",
    "menopausal_status",
    "breast_density",
    "subtype",
    "vendor",
)
DEFAULT_DATASET = "cohort"
WORDS_FOR_MISSING = ("nan", "none", "<na>", "nat", "null", "n/a", "#n/a")
"""Words that software writes where a value is missing: not the id of a patient, nor the name of a site."""


@dataclass(frozen=True, kw_only=True)
class IdGrade:
    """How far the patient ids of a dataset can be trusted. It is printed with every number.

    Args:
        grade: `A`: verified patients. `B`: ids finer than patients, or only partly known. `C`: no patient
            ids.
        why: The reason, as a clause for a report.

    Example:
        >>> IdGrade(grade="C", why="no patient ids").grade
        'C'
    """

    grade: str
    why: str


@dataclass(frozen=True, kw_only=True)
class KnownOfCohort:
    """What a reader or an earlier run knows of a cohort in addition to its tables.

    Attributes:
        id_grades: How far the patient ids of a dataset can be trusted; other datasets are graded by content.
        counts: Counts of the reading, such as rows that were left out. Under `named_files` and `named_ids` stand
            names in the warnings that are in no column: nothing that is shared prints them.
        truth_files: Digests stored earlier, which stand in for truth files that are not here now.
        other_id_column: The column with the id that the same patient has in another dataset; None: the first
            of `OTHER_ID_COLUMNS` that exists.
    """

    id_grades: Mapping[str, IdGrade] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    truth_files: Mapping[str, str] = field(default_factory=dict)
    other_id_column: str | None = None


NOTHING_KNOWN = KnownOfCohort()


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """The cases of an evaluation, one row each, and their lesions where the truth has parts. Ids are text.

    Args:
        cases: One row per case, with `case_id`, `patient_id`, `dataset` and `site`.
        lesions: One row per lesion, with `case_id` and `lesion_id`; None: the truth has no parts.
        reader: The name of the reader that made the tables.
        id_grades: How far the patient ids can be trusted, by dataset.
        warnings: What the reader noticed, as sentences for a report.
        counts: Numbers of cases, patients and so on, and what the reader counted.
        hash: SHA-256 of the tables' content and of the truth files.
        root: The folder that the paths in the tables are relative to; None: the paths stand alone.
        truth_files: The digest of each truth file (masks, annotations), by its path in the table.
        synthetic: Whether the cases are simulated in the layout of a published set: they are never compared
            with what is published of that set.
        other_id_column: The column with the id that the same patient has in another dataset; empty: there is
            none.

    Example:
        >>> cohort = Cohort.from_frame(pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "q"]}))
        >>> cohort.counts["patients"], cohort.id_grades["cohort"].grade
        (2, 'B')
    """

    cases: pd.DataFrame
    lesions: pd.DataFrame | None = None
    reader: str = "table"
    id_grades: dict[str, IdGrade] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    root: Path | None = None
    truth_files: dict[str, str] = field(default_factory=dict)
    synthetic: bool = False
    other_id_column: str = ""

    @classmethod
    def from_frame(
        cls,
        cases: pd.DataFrame,
        *,
        lesions: pd.DataFrame | None = None,
        reader: str = "table",
        root: str | Path | None = None,
        warnings: tuple[str, ...] = (),
        where: str | None = None,
        synthetic: bool = False,
        known: KnownOfCohort = NOTHING_KNOWN,
    ) -> Cohort:
        """Make a checked cohort: levels nest, ids are whole, columns in their plain types, content hashed.

        Without a `patient_id` column each case is a patient of its own: grade C, and a warning (US-02); an
        empty patient id among others is an error that names the rows.

        Args:
            cases: One row per case.
            lesions: One row per lesion, by `case_id`.
            reader: The reader that made the tables.
            root: The folder that files of the cases are relative to.
            warnings: What the reader noticed, as sentences for a report.
            where: The file that an error names.
            synthetic: Whether the cases are simulated.
            known: What a reader or an earlier run knows in addition to the tables.

        Returns:
            The cohort.

        Raises:
            UserError: An id is missing or not unique, or a value is impossible.

        Example:
            >>> table = pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "p"]})
            >>> Cohort.from_frame(table).counts["patients"]
            1
        """
        from elsewhere.cohort.grades import grade_all

        other_id_column = known.other_id_column
        if other_id_column is None:
            other_id_column = next((name for name in OTHER_ID_COLUMNS if name in cases.columns), "")
        root_path = Path(root) if root is not None else None
        _note(cases)
        if lesions is not None:
            _note(lesions)
        note_files(_names_in(known.counts, "named_files"))
        note_ids(_names_in(known.counts, "named_ids"))
        table, ids_made, notes = _checked_cases(cases, where=where, root=root_path)
        parts = _checked_lesions(lesions, table, where=where) if lesions is not None else None
        digests, absent = _truth_digests(table, root_path, known.truth_files)
        if absent and known.truth_files:
            notes.append(f"{absent} truth files are not under {root_path}: their stored digests are used")
        grades = grade_all(table, ids_made=ids_made, synthetic=synthetic) | dict(known.id_grades)
        return cls(
            cases=table,
            lesions=parts,
            reader=reader,
            id_grades=grades,
            warnings=tuple(dict.fromkeys([*warnings, *notes])),
            counts=_count(table, parts) | dict(known.counts),
            hash=_cohort_hash(table, parts, digests),
            root=root_path,
            truth_files=digests,
            synthetic=synthetic,
            other_id_column=other_id_column,
        )

    def other_ids(self) -> pd.Series:
        """List the ids that the patients have in another dataset.

        Returns:
            A text for each case in the order of `cases`; empty where none is known.

        Example:
            >>> frame = pd.DataFrame({"case_id": ["a", "b"], "other_patient_id": ["DUKE_001 ", None]})
            >>> Cohort.from_frame(frame).other_ids().tolist()
            ['DUKE_001', '']
        """
        if self.other_id_column not in self.cases.columns:
            return pd.Series("", index=self.cases.index, dtype="str")
        told = self.cases[self.other_id_column]
        return told.map(lambda name: name.strip() if isinstance(name, str) else "").astype("str")

    def patient_ids(self, case_ids: Sequence[str]) -> list[str]:
        """Find the patients of some cases.

        Args:
            case_ids: Ids of cases of the cohort.

        Returns:
            The id of each case's patient, in the same order.

        Raises:
            KeyError: The cohort has no such case.

        Example:
            >>> frame = pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "q"]})
            >>> Cohort.from_frame(frame).patient_ids(["b"])
            ['q']
        """
        known = dict(
            zip(self.cases["case_id"].astype("str"), self.cases["patient_id"].astype("str"), strict=True)
        )
        return [known[str(name)] for name in case_ids]

    def save(self, directory: str | Path, *, replace: bool = False, inputs: Iterable[Any] = ()) -> Path:
        """Write `cases.parquet`, `lesions.parquet` and `cohort.json` into a folder, whole or not at all.

        Args:
            directory: The folder to write.
            replace: Whether an earlier cohort or result in it may be replaced.
            inputs: Paths that must not lie in the folder, because they are read.

        Returns:
            The folder.
        """
        from elsewhere._version import __version__
        from elsewhere.cohort.grades import worst_grade

        directory = Path(directory)
        overall = worst_grade(self.id_grades)
        with staged_directory(directory, replace=replace, inputs=inputs) as staged:
            write_table(self.cases, staged / "cases.parquet")
            if self.lesions is not None:
                write_table(self.lesions, staged / "lesions.parquet")
            write_json(
                {
                    "elsewhere": __version__,
                    "hash": self.hash,
                    "reader": self.reader,
                    "id_grade": overall.grade,
                    "id_grade_why": overall.why,
                    "id_grades": self.id_grades,
                    "counts": self.counts,
                    "warnings": self.warnings,
                    "root": str(self.root.resolve()) if self.root is not None else None,
                    "truth_files": self.truth_files,
                    "synthetic": self.synthetic,
                    **({"other_id_column": self.other_id_column} if self.other_id_column else {}),
                },
                staged / "cohort.json",
            )
        return directory

    def subset(self, keep: np.ndarray | pd.Series) -> Cohort:
        """Keep some of the cases, with their lesions, as a cohort with its own hash.

        Args:
            keep: For each case, in the order of `cases`, whether it stays.

        Returns:
            The smaller cohort; grades, counts and truth files are those of the cases that stay.

        Example:
            >>> whole = Cohort.from_frame(pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "q"]}))
            >>> whole.subset(np.array([True, False])).cases["case_id"].tolist()
            ['a']
        """
        mask = np.asarray(keep, dtype=bool)
        cases = self.cases[mask].reset_index(drop=True)
        lesions = self.lesions
        if lesions is not None:
            lesions = lesions[lesions["case_id"].isin(cases["case_id"])].reset_index(drop=True)
        names = set(cases["dataset"])
        return replace(
            self,
            cases=cases,
            lesions=lesions,
            id_grades={name: grade for name, grade in self.id_grades.items() if name in names},
            counts=_count(cases, lesions),
            hash=_cohort_hash(cases, lesions, _named_in(cases, self.truth_files)),
            truth_files=_named_in(cases, self.truth_files),
        )

    def file(self, relative: str) -> Path:
        """Return the full path of a file named in the table.

        Args:
            relative: The path as the table has it.

        Returns:
            The path below `root`; as it is where there is no root.

        Example:
            >>> table = pd.DataFrame({"case_id": ["a"], "patient_id": ["p"]})
            >>> Cohort.from_frame(table, root="/data").file("masks/a.png").as_posix()
            '/data/masks/a.png'
        """
        return Path(relative) if self.root is None else self.root / relative


def _note(table: pd.DataFrame) -> None:
    """Remember ids and names of files: what a command shares must not print them."""
    note_ids(*(table[name] for name in LEVELS if name in table.columns))
    for name in (*FILE_COLUMNS, *(str(c) for c in table.columns if _FURTHER_TRUTH.fullmatch(str(c)))):
        if name in table.columns:
            note_files(table[name].dropna().astype(str).unique())


def _names_in(counts: Mapping[str, Any], key: str) -> list[str]:
    names = counts.get(key)
    return [str(name) for name in names] if isinstance(names, list) else []


def _checked_cases(
    frame: pd.DataFrame, *, where: str | None, root: Path | None
) -> tuple[pd.DataFrame, bool, list[str]]:
    notes: list[str] = []
    if frame.columns.duplicated().any():
        name = frame.columns[frame.columns.duplicated()][0]
        raise UserError(f"two columns are called '{name}'", where=where)
    if "case_id" not in frame.columns:
        raise UserError(
            "no column 'case_id'",
            where=where,
            fix=f"Name it: --map case_id=COL. The columns are: {', '.join(map(str, frame.columns[:20]))}.",
        )
    if frame.empty:
        raise UserError("the cohort has no cases", where=where)
    text = TEXT_COLUMNS | set(CATEGORY_COLUMNS)
    table = infer_types(frame.reset_index(drop=True), text=text)
    table.columns = pd.Index([str(name) for name in table.columns])
    _whole_ids(table, "case_id", where=where, fix=_why_no_id(table))
    if pc.count_distinct(arrow_text(table["case_id"])).as_py() < len(table):
        twice = table["case_id"].duplicated(keep=False)
        rows = [f"{at + 1} ({table['case_id'].iloc[at]})" for at in np.flatnonzero(twice.to_numpy())]
        raise UserError(
            f"{int(twice.sum())} rows share a case_id: rows {name_rows(rows)}",
            where=where,
            fix="Keep one row per case. If a row is an image or a view, give each an id of its own and "
            "keep exam_id and patient_id.",
        )
    ids_made = "patient_id" not in table.columns
    if ids_made:
        table.insert(0, "patient_id", table["case_id"])
        notes.append(
            "no patient_id column: each case counts as a patient (grade C); intervals are too "
            "narrow if patients repeat"
        )
    else:
        _whole_ids(
            table,
            "patient_id",
            where=where,
            fix="Fill them in; or, if no ids are known at all, leave the column out: the cohort "
            "is then graded C.",
        )
        _refuse_words_for_missing(table["patient_id"], where=where)
    if "dataset" not in table.columns:
        table["dataset"] = pd.Series(DEFAULT_DATASET, index=table.index, dtype="str")
    elif table["dataset"].isna().any():
        _whole_ids(table, "dataset", where=where, fix="Fill it in, or leave the column out.")
    if "site" not in table.columns:
        table["site"] = table["dataset"]
    else:
        table["site"] = table["site"].mask(_is_word_for_missing(table["site"]))
    for name in [
        column for column in table.columns if column in FILE_COLUMNS or column.endswith(("_path", "_file"))
    ]:
        table[name] = _relative_paths(table[name], root)
    _levels_nest(table, where=where)
    return table, ids_made, notes


def _why_no_id(table: pd.DataFrame) -> str:
    """Advice for a missing id: often the row is no case, but a total, a mean or a blank line."""
    if not table["case_id"].isna().any():
        return "Give every row an id."
    told = {at: why for at, why in rows_that_are_no_case(table, "case_id").items() if "it has no" not in why}
    if not told:
        return "Give every row an id."
    shown = "; ".join(f"row {at + 1}: {why}" for at, why in list(told.items())[:3])
    return f"Give every row an id, and remove rows that are no case ({shown})."


def _whole_ids(table: pd.DataFrame, column: str, *, where: str | None, fix: str) -> None:
    ids = table[column]
    empty = ids.isna().to_numpy(dtype=bool) | (ids.str.strip() == "").to_numpy(dtype=bool)
    if empty.any():
        rows = list(np.flatnonzero(empty) + 1)
        plural = "rows" if len(rows) > 1 else "row"
        raise UserError(
            f"column '{column}' is empty in {plural} {name_rows(rows)} ({len(rows)} of {len(ids)})",
            where=where,
            fix=fix,
        )


def _is_word_for_missing(series: pd.Series) -> pd.Series:
    """Cells that are blank, or a word that software writes for a missing value."""
    folded = series.astype("str").str.strip().str.casefold()
    return series.notna() & folded.isin(["", *WORDS_FOR_MISSING])


def _refuse_words_for_missing(ids: pd.Series, *, where: str | None) -> None:
    """Refuse words for missing values: rows with the id 'nan' are people without an id, not one patient."""
    missing = _is_word_for_missing(ids).to_numpy(dtype=bool)
    if missing.any():
        rows = list(np.flatnonzero(missing) + 1)
        words = ", ".join(f"'{word}'" for word in dict.fromkeys(ids[missing].str.strip()))
        raise UserError(
            f"column 'patient_id' holds {words} in {'rows' if len(rows) > 1 else 'row'} {name_rows(rows)} "
            f"({len(rows)} of {len(ids)}): a missing id is no patient",
            where=where,
            fix="Fill the ids in; or, if no ids are known at all, leave the column out: the cohort "
            "is then graded C.",
        )


def _relative_paths(series: pd.Series, root: Path | None) -> pd.Series:
    """Posix paths, relative to the root where they lie below it: the hash must not depend on the machine."""
    base = root.resolve() if root is not None else None

    def one(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        posix = PureWindowsPath(value).as_posix() if "\\" in value else value
        if base is not None and posix.startswith("/"):
            for candidate in (base, root):
                if candidate is not None and PurePosixPath(posix).is_relative_to(candidate.as_posix()):
                    return PurePosixPath(posix).relative_to(candidate.as_posix()).as_posix()
        return posix

    return pd.Series(
        [one(value) for value in series.array], index=series.index, name=series.name, dtype="str"
    )


def _levels_nest(table: pd.DataFrame, *, where: str | None) -> None:
    """Check that patient > exam > case: an exam of two patients is a mistake in the ids."""
    if "exam_id" not in table.columns:
        return
    known = table[table["exam_id"].notna()]
    split = rows_that_vary(known, ("dataset", "exam_id"), "patient_id")
    if split.any():
        exams = known["exam_id"][split].unique()
        rows = list(known.index.to_numpy()[split & (known["exam_id"] == exams[0]).to_numpy(dtype=bool)] + 1)
        raise UserError(
            f"{len(exams)} exams belong to more than one patient, for example '{exams[0]}' "
            f"(rows {name_rows(rows)})",
            where=where,
            fix="An exam belongs to one patient: correct exam_id or patient_id.",
        )


def _checked_lesions(lesions: pd.DataFrame, cases: pd.DataFrame, *, where: str | None) -> pd.DataFrame:
    if "case_id" not in lesions.columns:
        raise UserError("the lesions have no column 'case_id'", where=where)
    table = infer_types(lesions.reset_index(drop=True), text=TEXT_COLUMNS | {"class"})
    if len(table):
        _whole_ids(table, "case_id", where=where, fix="Every lesion belongs to a case.")
    stray = ~table["case_id"].isin(cases["case_id"])
    if stray.any():
        rows = [f"{at + 1} ({table['case_id'].iloc[at]})" for at in np.flatnonzero(stray.to_numpy())]
        raise UserError(
            f"{int(stray.sum())} lesions belong to no case in the cohort: rows {name_rows(rows)}", where=where
        )
    if "lesion_id" not in table.columns:
        table["lesion_id"] = table.groupby("case_id").cumcount().astype("str")
    elif table.duplicated(subset=["case_id", "lesion_id"]).any():
        at = int(np.flatnonzero(table.duplicated(subset=["case_id", "lesion_id"]).to_numpy())[0])
        raise UserError(
            f"row {at + 1} repeats lesion_id '{table['lesion_id'].iloc[at]}' of its case", where=where
        )
    return table


def truth_columns(table: pd.DataFrame) -> list[str]:
    """List the columns of a table that name truth files; a picture may have several masks.

    Args:
        table: The cases.

    Returns:
        `mask`, `annotation`, `mask_2_path`, `other_mask_1_path` and so on, as far as the table has them.

    Example:
        >>> truth_columns(pd.DataFrame(columns=["case_id", "image", "mask", "mask_2_path"]))
        ['mask', 'mask_2_path']
    """
    return [name for name in table.columns if name in TRUTH_COLUMNS or _FURTHER_TRUTH.fullmatch(name)]


def _truth_digests(
    table: pd.DataFrame, root: Path | None, stored: Mapping[str, str]
) -> tuple[dict[str, str], int]:
    digests: dict[str, str] = {}
    absent = 0
    for column in truth_columns(table):
        for relative in table[column].dropna().unique():
            path = Path(relative) if root is None else root / relative
            if path.is_file():
                digests[relative] = file_digest(path)
            elif relative in stored:
                digests[relative] = stored[relative]
                absent += 1
    return digests, absent


def _named_in(table: pd.DataFrame, digests: Mapping[str, str]) -> dict[str, str]:
    named = {value for column in truth_columns(table) for value in table[column].dropna()}
    return {name: digest for name, digest in digests.items() if name in named}


def _cohort_hash(cases: pd.DataFrame, lesions: pd.DataFrame | None, digests: Mapping[str, str]) -> str:
    text = TEXT_COLUMNS | set(CATEGORY_COLUMNS)
    digest = hashlib.sha256(b"elsewhere-cohort-1\n")
    digest.update(content_hash(cases, text=text, typed=True).encode())
    digest.update(
        (content_hash(lesions, text=text, typed=True) if lesions is not None else "no lesions").encode()
    )
    for name in sorted(digests):
        digest.update(f"{name}\0{digests[name]}\n".encode())
    return digest.hexdigest()


def _count(cases: pd.DataFrame, lesions: pd.DataFrame | None) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "cases": len(cases),
        "patients": count_distinct(cases, ("dataset", "patient_id")),
        "datasets": int(cases["dataset"].nunique()),
        "sites": int(cases["site"].nunique()),
    }
    if "exam_id" in cases.columns:
        counts["exams"] = count_distinct(cases, ("dataset", "exam_id"))
    if lesions is not None:
        counts["lesions"] = len(lesions)
        counts["cases_with_lesions"] = int(lesions["case_id"].nunique())
    return counts
