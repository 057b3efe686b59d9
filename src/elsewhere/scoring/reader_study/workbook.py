"""Reading the workbook of a JAFROC study: the truth, lesion marks and non-lesion marks on three sheets.

Both published forms are read:

| sheet | older form | newer form |
|---|---|---|
| `Truth` (or `TRUTH`) | CaseID, LesionID, Weight | and ReaderID, ModalityID (lists such as `0,1,2`), Paradigm |
| `TP` (or `LL`) | ReaderID, ModalityID, CaseID, LesionID, TP_Rating (or LLRating) | the same |
| `FP` (or `NL`) | ReaderID, ModalityID, CaseID, FP_Rating (or NLRating) | the same |

A case without a lesion has one row with LesionID 0. A case with lesions has one row per lesion, whose weights add
up to 1; weights that are all 0 or empty stand for equal ones. A lesion or a case without a row on the sheets of
marks was not marked. In a ROC study each case has one rating: on `TP` where it has a lesion, on `FP` where it has
none. `Truth` may have a column PatientID: the jackknife then leaves out patients.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_columns, near_matches, unknown_name
from elsewhere.scoring.reader_study.study import Paradigm, ReaderStudy, in_natural_order
from elsewhere.statistics.localisation import LesionTruth, Marks
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.options import DEFAULT
from elsewhere.tables.workbook import sheet_titles

OnInvalid = Literal["error", "skip"]
Chosen = tuple[Sequence[str], Sequence[str]]
"""Treatments, and readers."""
_SHEETS = {"truth": ("truth",), "lesion": ("tp", "ll"), "non_lesion": ("fp", "nl")}
_SHEET_OF = {
    "truth": "the truth (Truth)",
    "lesion": "lesion marks (TP or LL)",
    "non_lesion": "non-lesion marks (FP or NL)",
}
_COLUMNS = {
    "reader": ("readerid", "reader"),
    "treatment": ("modalityid", "treatmentid", "modality", "treatment"),
    "case": ("caseid", "case"),
    "lesion": ("lesionid", "lesion"),
    "weight": ("weight", "weights", "lesionweight"),
    "patient": ("patientid", "patient"),
    "paradigm": ("paradigm",),
    "rating": ("rating", "tprating", "llrating", "fprating", "nlrating"),
}
_PUBLISHED = {"reader": "ReaderID", "treatment": "ModalityID", "case": "CaseID", "lesion": "LesionID"}
_NEEDS = {
    "truth": ("case", "lesion"),
    "lesion": ("reader", "treatment", "case", "lesion", "rating"),
    "non_lesion": ("reader", "treatment", "case", "rating"),
}
_DESIGNS = {"fctrl", "factorial", "crossed"}
_ROUNDING = 0.02
"""Weights of published workbooks are rounded: three lesions of 0.33 add up to 0.99."""
_NOT_MARKED = (-2000.0, -1000.0)
"""Numbers that some programs write where there is no mark."""


@dataclass(frozen=True, kw_only=True)
class StudyTables:
    """The three tables of a reader study as they were read, with their own column names.

    Args:
        truth: One row per lesion, and one per case without a lesion.
        lesion_marks: One row per mark on a lesion.
        non_lesion_marks: One row per other mark.
        source: What messages call the study.
        sheets: What messages call the three tables.
    """

    truth: pd.DataFrame
    lesion_marks: pd.DataFrame
    non_lesion_marks: pd.DataFrame
    source: str = "the reader study"
    sheets: tuple[str, str, str] = ("Truth", "TP", "FP")


def read_study_workbook(
    path: str | Path,
    *,
    paradigm: Paradigm | None = None,
    model: str | None = None,
    chosen: Chosen = ((), ()),
    on_invalid: OnInvalid = "error",
    options: TableOptions = DEFAULT,
) -> ReaderStudy:
    """Read the workbook of a JAFROC study, in either published form.

    Args:
        path: The workbook (.xlsx).
        paradigm: 'ROC' or 'FROC'; None for what the workbook states, else for what its marks look like.
        model: The ReaderID (or ModalityID) of a model, which is compared with the readers; None for none.
        chosen: The treatments and the readers to take; empty for all.
        on_invalid: 'error' to stop at a mark that cannot be used, 'skip' to leave it out and count it.
        options: The limits of size.

    Returns:
        The study.

    Raises:
        UserError: A sheet or column is missing, or the truth or the marks cannot be used; the message names the
            sheet and the rows, counted from 1 without the header.
    """
    path = Path(path)
    if path.suffix.lower() not in (".xlsx", ".xlsm"):
        raise UserError(
            f"a reader study is read from an .xlsx workbook, not from '{path.suffix or path.name}'",
            where=str(path),
            fix="Save it as .xlsx with the sheets Truth, TP and FP.",
        )
    titles = sheet_titles(path, options)
    sheets = {kind: _find_sheet(kind, titles, path) for kind in _SHEETS}
    tables = {
        kind: read_table(path, sheet=title, options=options, allow_empty=kind != "truth")
        for kind, title in sheets.items()
    }
    made = StudyTables(
        truth=tables["truth"],
        lesion_marks=tables["lesion"],
        non_lesion_marks=tables["non_lesion"],
        source=str(path),
        sheets=(sheets["truth"], sheets["lesion"], sheets["non_lesion"]),
    )
    return study_of_tables(made, paradigm=paradigm, model=model, chosen=chosen, on_invalid=on_invalid)


def _find_sheet(kind: str, titles: Sequence[str], path: Path) -> str:
    names = _SHEETS[kind]
    found = [title for title in titles if title.strip().casefold() in names]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"there are several sheets for {_SHEET_OF[kind]}: {', '.join(found)}",
            where=str(path),
            fix="Keep one of them.",
        )
    near = [title for name in names for title in near_matches(name, titles)]
    hint = f"Did you mean {' or '.join(repr(n) for n in dict.fromkeys(near))}? Rename it. " if near else ""
    raise UserError(
        f"there is no sheet for {_SHEET_OF[kind]}",
        where=str(path),
        fix=f"{hint}The sheets are: {', '.join(titles)}.",
    )


def study_of_tables(
    tables: StudyTables,
    *,
    paradigm: Paradigm | None = None,
    model: str | None = None,
    chosen: Chosen = ((), ()),
    on_invalid: OnInvalid = "error",
) -> ReaderStudy:
    """Make a reader study of its three tables.

    Args:
        tables: Truth, lesion marks and non-lesion marks.
        paradigm: 'ROC' or 'FROC'; None for what the truth states, else for what the marks look like.
        model: The name of a model among the readers (or the treatments); None for none.
        chosen: The treatments and the readers to take; empty for all.
        on_invalid: 'error' to stop at a mark that cannot be used, 'skip' to leave it out and count it.

    Returns:
        The study.

    Raises:
        UserError: A column is missing, or the truth or the marks cannot be used.

    Example:
        >>> truth = pd.DataFrame({"CaseID": ["1", "2"], "LesionID": ["1", "0"], "Weight": ["1", "0"]})
        >>> tp = pd.DataFrame(
        ...     {"ReaderID": ["1"], "ModalityID": ["A"], "CaseID": ["1"], "LesionID": ["1"], "TP_Rating": ["4"]}
        ... )
        >>> fp = pd.DataFrame({"ReaderID": ["1"], "ModalityID": ["A"], "CaseID": ["2"], "FP_Rating": ["2"]})
        >>> made = study_of_tables(StudyTables(truth=truth, lesion_marks=tp, non_lesion_marks=fp))
        >>> made.paradigm, made.readers
        ('ROC', (('1',),))
    """
    reading = _Reading(tables=tables, on_invalid=on_invalid)
    truth = reading.truth()
    marks = pd.concat([reading.marks("lesion", truth), reading.marks("non_lesion", truth)], ignore_index=True)
    stated = paradigm or truth.paradigm or _looks_like(marks, truth)
    if stated == "FROC":
        reading.count_further_marks(marks)
    of_model = _marks_of_model(marks, model, truth)
    of_readers, truth = _chosen_part(marks[~of_model], truth, chosen)
    reading.find_pairs(of_readers, truth, model)
    pairs = {pair: _as_marks(rows) for pair, rows in _by_pair(of_readers, reading.pairs)}
    return ReaderStudy(
        paradigm=cast(Paradigm, stated),
        truth=truth.lesions,
        case_ids=truth.case_ids,
        patient_of_case=truth.patient_of_case,
        treatments=tuple(reading.readers_of),
        readers=tuple(tuple(names) for names in reading.readers_of.values()),
        marks=pairs,
        nested=len({tuple(names) for names in reading.readers_of.values()}) > 1,
        model=model,
        model_marks=reading.marks_of_model(marks[of_model], model),
        counts=reading.counts,
        warnings=tuple(reading.warnings),
    )


def _chosen_part(marks: pd.DataFrame, truth: _Truth, chosen: Chosen) -> tuple[pd.DataFrame, _Truth]:
    """The marks of the chosen treatments and readers, and a truth that lists no others."""
    for names, column, listed in zip(
        chosen, ("treatment", "reader"), (truth.treatments, truth.readers), strict=True
    ):
        known = in_natural_order([*listed, *marks[column]])
        for name in names:
            if name not in known:
                raise unknown_name(column, name, known)
        if names:
            marks = marks[marks[column].isin(list(names))]
    treatments, readers = chosen
    return marks, replace(
        truth,
        treatments=tuple(t for t in truth.treatments if not treatments or t in treatments),
        readers=tuple(r for r in truth.readers if not readers or r in readers),
    )


def _as_marks(rows: pd.DataFrame) -> Marks:
    return Marks(
        case=rows["case"].to_numpy(dtype=np.int64),
        score=rows["rating"].to_numpy(dtype=np.float64),
        lesion=rows["lesion"].to_numpy(dtype=np.int64),
    )


def _marks_of_model(marks: pd.DataFrame, model: str | None, truth: _Truth) -> pd.Series:
    """Which marks are the model's: those of the reader of this name, else those of the treatment."""
    if model is None:
        return pd.Series(False, index=marks.index)
    for column in ("reader", "treatment"):
        if (marks[column] == model).any():
            found: pd.Series = marks[column] == model
            return found
    raise unknown_name(
        "model", model, in_natural_order([*truth.readers, *marks["reader"], *marks["treatment"]])
    )


def _by_pair(
    marks: pd.DataFrame, pairs: Sequence[tuple[str, str]]
) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    groups = {
        cast(tuple[str, str], key): rows for key, rows in marks.groupby(["treatment", "reader"], sort=False)
    }
    return [(pair, groups.get(pair, marks.iloc[:0])) for pair in pairs]


@dataclass(frozen=True, kw_only=True)
class _Truth:
    """The truth as numbers, and what it states about the study."""

    case_ids: tuple[str, ...]
    lesions: LesionTruth
    lesion_ids: tuple[tuple[int, str], ...]
    patient_of_case: npt.NDArray[np.int64]
    readers: tuple[str, ...] = ()
    treatments: tuple[str, ...] = ()
    paradigm: Paradigm | None = None


@dataclass
class _Reading:
    """What is found while the tables are read."""

    tables: StudyTables
    on_invalid: OnInvalid
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    readers_of: dict[str, list[str]] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def where(self, kind: str) -> str:
        at = list(_SHEETS).index(kind)
        return f"{self.tables.source}, sheet {self.tables.sheets[at]}"

    def warn(self, name: str, count: int, sentence: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + count
        self.warnings.append(sentence)

    def truth(self) -> _Truth:
        where = self.where("truth")
        table = _columns(self.tables.truth, "truth", where)
        stated = _stated_paradigm(table, where)
        table = table[table["case"].notna() | table["lesion"].notna()]
        for name in ("case", "lesion"):
            empty = table[name].isna()
            if empty.any():
                raise UserError(
                    f"{_PUBLISHED[name]} is empty in {_rows(empty)}", where=where, fix="Fill the cells."
                )
        if table.empty:
            raise UserError(
                "there is no case in the truth", where=where, fix="Give one row per case or lesion."
            )
        twice = table.duplicated(["case", "lesion"], keep=False)
        if twice.any():
            raise UserError(
                f"a case and lesion are listed twice in {_rows(twice)}",
                where=where,
                fix="Give each lesion of a case one row and a LesionID of its own.",
            )
        case_ids = tuple(dict.fromkeys(table["case"]))
        number = {case: at for at, case in enumerate(case_ids)}
        case = table["case"].map(number).to_numpy(dtype=np.int64)
        normal = (table["lesion"] == "0").to_numpy(dtype=bool)
        both = np.intersect1d(case[normal], case[~normal])
        if both.size:
            raise UserError(
                f"{both.size} cases have both LesionID 0 and a lesion: case {name_rows([case_ids[i] for i in both])}",
                where=where,
                fix="LesionID 0 stands for a case without any lesion: take these rows out.",
            )
        readers, treatments = (_listed(table, name, where, self) for name in ("reader", "treatment"))
        return _Truth(
            case_ids=case_ids,
            lesions=LesionTruth(
                n_cases=len(case_ids), case=case[~normal], weight=self._weights(table, case, normal, case_ids)
            ),
            lesion_ids=tuple(zip(case[~normal].tolist(), table["lesion"][~normal], strict=True)),
            patient_of_case=_patients(table, case, len(case_ids), where),
            readers=readers,
            treatments=treatments,
            paradigm=stated,
        )

    def _weights(
        self,
        table: pd.DataFrame,
        case: npt.NDArray[np.int64],
        normal: npt.NDArray[np.bool_],
        case_ids: Sequence[str],
    ) -> npt.NDArray[np.float64] | None:
        where = self.where("truth")
        if "weight" not in table:
            self.warnings.append("The truth has no column Weight: the lesions of a case count equally.")
            return None
        weight = to_number(table["weight"], column="Weight", where=where).fillna(0.0).to_numpy()[~normal]
        if (weight < 0).any():
            below = (table["weight"].notna() & ~normal).to_numpy() & _negative(table["weight"])
            raise UserError(
                f"Weight is negative in {_rows(pd.Series(below))}",
                where=where,
                fix="Weights are shares of 1.",
            )
        of = case[~normal]
        total = np.bincount(of, weight, len(case_ids))
        lesions = np.bincount(of, minlength=len(case_ids))
        unweighted = (lesions > 0) & (total == 0)
        if unweighted.any():
            weight = np.where(unweighted[of], 1.0 / lesions[of], weight)
            self.counts["cases_without_weights"] = int(unweighted.sum())
            if (lesions[unweighted] > 1).any():
                self.warnings.append(
                    f"{int(unweighted.sum())} cases have no weights (all 0 or empty): their lesions count equally."
                )
            total = np.bincount(of, weight, len(case_ids))
        zero = (weight == 0) & ~unweighted[of]
        wrong = (lesions > 0) & (np.abs(total - 1.0) > _ROUNDING)
        if wrong.any():
            shown = [f"{case_ids[i]} ({total[i]:.3g})" for i in np.flatnonzero(wrong)]
            raise UserError(
                f"the weights of {int(wrong.sum())} cases do not add up to 1: case {name_rows(shown)}",
                where=where,
                fix="Give each lesion its share of 1, or leave the weights of a case empty for equal ones.",
            )
        if zero.any():
            raise UserError(
                f"{int(zero.sum())} lesions have the weight 0 next to others of their case: case "
                f"{name_rows([case_ids[i] for i in dict.fromkeys(of[zero].tolist())])}",
                where=where,
                fix="Give each lesion a weight above 0, or take it out of the truth.",
            )
        rounded = (lesions > 0) & (np.abs(total - 1.0) > 1e-9)
        if rounded.any():
            self.counts["cases_with_rounded_weights"] = int(rounded.sum())
            if (np.abs(total[rounded] - 1.0) > 1e-6).any():
                self.warnings.append(
                    f"The weights of {int(rounded.sum())} cases add up to 1 only after rounding; they were scaled to 1."
                )
        return np.asarray(weight / total[of], dtype=np.float64)

    def marks(self, kind: str, truth: _Truth) -> pd.DataFrame:
        where = self.where(kind)
        given = self.tables.lesion_marks if kind == "lesion" else self.tables.non_lesion_marks
        table = _columns(given, kind, where)
        table = table.dropna(how="all").reset_index(drop=True)
        names = ("reader", "treatment", "case", *(("lesion",) if kind == "lesion" else ()))
        for name in names:
            empty = table[name].isna()
            if empty.any():
                raise UserError(
                    f"{_PUBLISHED[name]} is empty in {_rows(empty)}", where=where, fix="Fill the cells."
                )
        rating = to_number(
            table["rating"],
            column="rating",
            where=where,
            on_invalid="nan" if self.on_invalid == "skip" else "error",
            missing="nan" if self.on_invalid == "skip" else "error",
        )
        number = {case: at for at, case in enumerate(truth.case_ids)}
        case = table["case"].map(number)
        lesion = pd.Series(-1, index=table.index)
        if kind == "lesion":
            lesions = {key: at for at, key in enumerate(truth.lesion_ids)}
            keys = zip(case.fillna(-1).astype(int), table["lesion"], strict=True)
            lesion = pd.Series([lesions.get(key, -1) for key in keys], index=table.index, dtype=int)
        wrong = {
            "marks_without_rating": rating.isna(),
            "marks_of_unknown_cases": case.isna(),
            "marks_of_unknown_lesions": case.notna() & (lesion < 0)
            if kind == "lesion"
            else case.isna() & False,
        }
        self._refuse(wrong, table, truth, where)
        keep = ~(
            wrong["marks_without_rating"]
            | wrong["marks_of_unknown_cases"]
            | wrong["marks_of_unknown_lesions"]
        )
        self._warn_codes(rating[keep], where)
        return pd.DataFrame(
            {
                "reader": table["reader"][keep],
                "treatment": table["treatment"][keep],
                "case": case[keep].astype("int64"),
                "lesion": lesion[keep].astype("int64"),
                "rating": rating[keep].astype("float64"),
            }
        )

    def _refuse(self, wrong: dict[str, pd.Series], table: pd.DataFrame, truth: _Truth, where: str) -> None:
        sentences = {
            "marks_without_rating": "have no rating that is a number",
            "marks_of_unknown_cases": "are on cases that are not in the truth",
            "marks_of_unknown_lesions": "are on lesions that are not in the truth",
        }
        for name, rows in wrong.items():
            if not rows.any():
                continue
            count = int(rows.sum())
            if self.on_invalid == "skip":
                self.warn(
                    name, count, f"{where.split(', ')[-1]}: {count} marks {sentences[name]} and are left out."
                )
                continue
            hint = "Complete the truth, or leave such marks out and count them with --on-invalid skip."
            if name == "marks_of_unknown_cases":
                near = near_matches(str(table["case"][rows].iloc[0]), truth.case_ids[:2000])
                hint = (
                    f"CaseIDs of the truth are, for example, {', '.join(near or truth.case_ids[:3])}. "
                ) + hint
            if name == "marks_of_unknown_lesions" and (table["lesion"][rows] == "0").any():
                hint = (
                    "LesionID 0 stands for no lesion: such marks belong on the sheet of non-lesion marks. "
                    + hint
                )
            cases = name_rows(list(dict.fromkeys(table["case"][rows])))
            raise UserError(
                f"{count} marks {sentences[name]}: {_rows(rows)} (case {cases})", where=where, fix=hint
            )

    def _warn_codes(self, rating: pd.Series, where: str) -> None:
        code = rating.isin(_NOT_MARKED)
        if code.any() and float(rating[~code].min() if (~code).any() else 0) > min(_NOT_MARKED):
            self.warn(
                "marks_with_a_code",
                int(code.sum()),
                f"{where.split(', ')[-1]}: {int(code.sum())} ratings are -1000 or -2000, which some programs write where "
                "there is no mark; they count as marks with the lowest rating.",
            )

    def count_further_marks(self, marks: pd.DataFrame) -> None:
        """Count marks on a lesion that has one of the same reader already: the highest rating decides."""
        on_lesion = marks["lesion"] >= 0
        again = marks[on_lesion].duplicated(["reader", "treatment", "case", "lesion"])
        if again.any():
            count = int(again.sum())
            self.warn(
                "further_marks_on_a_lesion",
                count,
                f"{count} marks are on a lesion that the same reader has marked already; the highest rating counts.",
            )

    def marks_of_model(self, marks: pd.DataFrame, model: str | None) -> dict[str, Marks]:
        """The model's marks for each treatment of the readers: its own set there, or its only set."""
        if model is None:
            return {}
        sets = {str(name): _as_marks(rows) for name, rows in marks.groupby("treatment", sort=False)}
        if len(sets) == 1:
            return dict.fromkeys(self.readers_of, next(iter(sets.values())))
        without = [name for name in self.readers_of if name not in sets]
        if without:
            self.warnings.append(
                f"{model} has no marks with {', '.join(without)}, and is not compared there."
            )
        strange = [name for name in sets if name not in self.readers_of]
        if strange:
            self.warnings.append(
                f"No reader read with {', '.join(strange)}: the marks of {model} there are not used."
            )
        return {name: rows for name, rows in sets.items() if name in self.readers_of}

    def find_pairs(self, marks: pd.DataFrame, truth: _Truth, model: str | None) -> None:
        """Find treatments and readers; where a reader has no mark with a treatment, say so or stop."""
        with_readers = set(marks["treatment"])
        listed = [t for t in truth.treatments if t != model and (model is None or t in with_readers)]
        treatments = in_natural_order([*listed, *marks["treatment"]])
        readers = in_natural_order([*(r for r in truth.readers if r != model), *marks["reader"]])
        if not treatments or not readers:
            raise UserError(
                "there are no marks, and the truth names no readers",
                where=self.tables.source,
                fix="Fill the sheets of marks, or name the readers and modalities in the truth.",
            )
        for names, listed, what in (
            (readers, truth.readers, "ReaderID"),
            (treatments, truth.treatments, "ModalityID"),
        ):
            strange = [name for name in names if listed and name not in listed]
            if strange:
                raise UserError(
                    f"the marks have a {what} that the truth does not list: {name_rows(strange)}",
                    where=self.tables.source,
                    fix=f"The truth lists {', '.join(listed)}.",
                )
        has = set(zip(marks["treatment"], marks["reader"], strict=True))
        with_marks = {t: [r for r in readers if (t, r) in has] for t in treatments}
        every = [reader for row in with_marks.values() for reader in row]
        if len(treatments) > 1 and len(every) == len(set(every)) and all(with_marks.values()):
            self.readers_of = with_marks
        else:
            absent = [f"{r} with {t}" for t in treatments for r in readers if (t, r) not in has]
            if absent and not (truth.readers and truth.treatments):
                raise UserError(
                    f"{len(absent)} readers have no mark with a treatment: {name_rows(absent)}",
                    where=self.tables.source,
                    fix="Every reader must have read with every treatment: choose with --use-readers and "
                    "--use-treatments. Where a reader truly marked nothing, list the readers and modalities in the truth.",
                )
            if absent:
                self.warn(
                    "readers_without_marks",
                    len(absent),
                    f"{len(absent)} readers have no mark with a treatment ({name_rows(absent)}): counted as having marked nothing.",
                )
            self.readers_of = dict.fromkeys(treatments, readers)
        self.pairs = [(treatment, reader) for treatment, row in self.readers_of.items() for reader in row]


def _columns(table: pd.DataFrame, kind: str, where: str) -> pd.DataFrame:
    """The columns by their own names; ids without blanks around them."""
    found: dict[str, str] = {}
    for column in table.columns:
        plain = re.sub(r"[^a-z0-9]", "", str(column).casefold())
        for name, forms in _COLUMNS.items():
            if plain in forms:
                if name in found:
                    raise UserError(
                        f"columns '{found[name]}' and '{column}' have the same meaning",
                        where=where,
                        fix="Keep one of them.",
                    )
                found[name] = str(column)
    missing = [name for name in _NEEDS[kind] if name not in found]
    if missing:
        published = [
            _PUBLISHED.get(name, "TP_Rating" if kind == "lesion" else "FP_Rating") for name in missing
        ]
        near = [n for name in published for n in near_columns(name, table.columns, used=found.values())]
        hint = f"Perhaps {' or '.join(repr(n) for n in near)}? " if near else ""
        raise UserError(
            f"no column {', '.join(published)}",
            where=where,
            fix=f"{hint}The columns are: {', '.join(map(str, table.columns[:20]))}.",
        )
    made = pd.DataFrame({name: table[column] for name, column in found.items()})
    for name in ("reader", "treatment", "case", "lesion", "patient", "paradigm"):
        if name in made:
            text = made[name].astype("string").str.strip()
            made[name] = text.mask(text == "").astype(object).where(text.notna() & (text != ""), None)
    return made


def _rows(mask: pd.Series) -> str:
    at = (np.flatnonzero(mask.to_numpy(dtype=bool)) + 1).tolist()
    return f"{'row' if len(at) == 1 else 'rows'} {name_rows(at)}"


def _negative(column: pd.Series) -> npt.NDArray[np.bool_]:
    return np.asarray(pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan) < 0)


def _stated_paradigm(table: pd.DataFrame, where: str) -> Paradigm | None:
    words = [str(word) for word in table.get("paradigm", pd.Series(dtype=object)).dropna()]
    paradigms = {word.upper() for word in words if word.upper() in ("ROC", "FROC")}
    others = [w for w in words if w.upper() not in ("ROC", "FROC") and w.casefold() not in _DESIGNS]
    if others:
        raise UserError(
            f"the truth states '{others[0]}' under Paradigm",
            where=where,
            fix="Read are ROC and FROC studies of a factorial design (FCTRL), in which every reader reads every case.",
        )
    if len(paradigms) > 1:
        raise UserError("the truth states two paradigms", where=where, fix="State ROC or FROC.")
    return cast(Paradigm, next(iter(paradigms))) if paradigms else None


def _listed(table: pd.DataFrame, name: str, where: str, reading: _Reading) -> tuple[str, ...]:
    """The readers or modalities that the truth lists, which must be the same for every case."""
    if name not in table:
        return ()
    lists = Counter(tuple(re.split(r"[,;\s]+", str(cell).strip(" ,;()"))) for cell in table[name].dropna())
    if not lists:
        return ()
    if len({frozenset(row) for row in lists}) > 1:
        raise UserError(
            f"{_PUBLISHED[name]} of the truth differs from case to case",
            where=where,
            fix="The analysis needs a crossed study: every reader reads every case with every modality. Analyse the "
            "parts that are crossed, one workbook each.",
        )
    return tuple(in_natural_order(next(iter(lists))))


def _patients(
    table: pd.DataFrame, case: npt.NDArray[np.int64], n_cases: int, where: str
) -> npt.NDArray[np.int64]:
    if "patient" not in table or table["patient"].isna().all():
        return np.arange(n_cases, dtype=np.int64)
    empty = table["patient"].isna()
    if empty.any():
        raise UserError(f"PatientID is empty in {_rows(empty)}", where=where, fix="Fill the cells.")
    number = pd.factorize(table["patient"])[0]
    first = np.full(n_cases, -1, dtype=np.int64)
    first[case[::-1]] = number[::-1]
    differs = first[case] != number
    if differs.any():
        raise UserError(
            f"a case has two patients in {_rows(pd.Series(differs))}",
            where=where,
            fix="Give it one PatientID.",
        )
    return first


def _looks_like(marks: pd.DataFrame, truth: _Truth) -> Paradigm:
    """ROC where every case has exactly one mark by every reader: on its one lesion, or on a normal case."""
    has_lesion = truth.lesions.n_lesions > 0
    if (truth.lesions.n_lesions > 1).any() or marks.empty:
        return "FROC"
    right = has_lesion[marks["case"]] == (marks["lesion"] >= 0).to_numpy()
    pairs = marks.groupby(["treatment", "reader"]).ngroups
    whole = len(marks) == pairs * len(truth.case_ids)
    once = not marks.duplicated(["treatment", "reader", "case"]).any()
    return "ROC" if bool(right.all()) and whole and once else "FROC"
