"""From the three tables of a reader study to the marks of each reader with each treatment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_matches, unknown_name
from elsewhere.scoring.reader_study.study import Paradigm, ReaderStudy, in_natural_order
from elsewhere.scoring.reader_study.tables import (
    PUBLISHED,
    Remarks,
    StudyTables,
    named_columns,
    numbers,
    rows_where,
)
from elsewhere.scoring.reader_study.truth import StudyTruth, read_truth
from elsewhere.statistics.localisation import Marks

OnInvalid = Literal["error", "skip"]
Chosen = tuple[Sequence[str], Sequence[str]]
"""Treatments, and readers."""
_NOT_MARKED = (-2000.0, -1000.0)
"""Numbers that some programs write where there is no mark."""


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
    truth = read_truth(tables.truth, reading.where("truth"), reading.remarks)
    marks = pd.concat([reading.marks("lesion", truth), reading.marks("non_lesion", truth)], ignore_index=True)
    stated = paradigm or truth.paradigm or _looks_like(marks, truth)
    if stated == "FROC":
        reading.count_further_marks(marks)
    of_model = _marks_of_model(marks, model, truth)
    of_readers, truth = _chosen_part(marks[~of_model], truth, chosen)
    reading.find_pairs(of_readers, truth, model)
    pairs = {pair: _as_marks(rows) for pair, rows in _by_pair(of_readers, reading.pairs)}
    return ReaderStudy(
        paradigm=stated,
        truth=truth.lesions,
        case_ids=truth.case_ids,
        patient_of_case=truth.patient_of_case,
        treatments=tuple(reading.readers_of),
        readers=tuple(tuple(names) for names in reading.readers_of.values()),
        marks=pairs,
        nested=len({tuple(names) for names in reading.readers_of.values()}) > 1,
        model=model,
        model_marks=reading.marks_of_model(marks[of_model], model),
        counts=reading.remarks.counts,
        warnings=tuple(reading.remarks.warnings),
    )


def _chosen_part(marks: pd.DataFrame, truth: StudyTruth, chosen: Chosen) -> tuple[pd.DataFrame, StudyTruth]:
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


def _marks_of_model(marks: pd.DataFrame, model: str | None, truth: StudyTruth) -> pd.Series:
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


@dataclass
class _Reading:
    """What is found while the tables are read."""

    tables: StudyTables
    on_invalid: OnInvalid
    remarks: Remarks = field(default_factory=Remarks)
    readers_of: dict[str, list[str]] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def where(self, kind: str) -> str:
        """Name the sheet of a table."""
        at = ("truth", "lesion", "non_lesion").index(kind)
        return f"{self.tables.source}, sheet {self.tables.sheets[at]}"

    def marks(self, kind: str, truth: StudyTruth) -> pd.DataFrame:
        where = self.where(kind)
        given = self.tables.lesion_marks if kind == "lesion" else self.tables.non_lesion_marks
        table = named_columns(given, kind, where)
        table = table.dropna(how="all").reset_index(drop=True)
        names = ("reader", "treatment", "case", *(("lesion",) if kind == "lesion" else ()))
        for name in names:
            empty = table[name].isna()
            if empty.any():
                raise UserError(
                    f"{PUBLISHED[name]} is empty in {rows_where(empty)}", where=where, fix="Fill the cells."
                )
        rating = numbers(table["rating"], "rating", where, skip=self.on_invalid == "skip")
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

    def _refuse(
        self, wrong: dict[str, pd.Series], table: pd.DataFrame, truth: StudyTruth, where: str
    ) -> None:
        sentences = {
            "marks_without_rating": "marks without a rating that is a number",
            "marks_of_unknown_cases": "marks on cases that are not in the truth",
            "marks_of_unknown_lesions": "marks on lesions that are not in the truth",
        }
        for name, rows in wrong.items():
            if not rows.any():
                continue
            count = int(rows.sum())
            if self.on_invalid == "skip":
                self.remarks.add(
                    name, count, f"{where.split(', ')[-1]}: {sentences[name]} are left out: {count}."
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
                f"{sentences[name]}: {count}, in {rows_where(rows)} (case {cases})", where=where, fix=hint
            )

    def _warn_codes(self, rating: pd.Series, where: str) -> None:
        code = rating.isin(_NOT_MARKED)
        if code.any() and float(rating[~code].min() if (~code).any() else 0) > min(_NOT_MARKED):
            self.remarks.add(
                "marks_with_a_code",
                int(code.sum()),
                f"{where.split(', ')[-1]}: {int(code.sum())} of the ratings are -1000 or -2000, which some programs write "
                "where there is no mark; they count as marks with the lowest rating.",
            )

    def count_further_marks(self, marks: pd.DataFrame) -> None:
        """Count marks on a lesion that has one of the same reader already: the highest rating decides."""
        on_lesion = marks["lesion"] >= 0
        again = marks[on_lesion].duplicated(["reader", "treatment", "case", "lesion"])
        if again.any():
            count = int(again.sum())
            self.remarks.add(
                "further_marks_on_a_lesion",
                count,
                f"Further marks on a lesion that the same reader has marked already: {count}. The highest rating counts.",
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
            self.remarks.warnings.append(
                f"{model} has no marks with {', '.join(without)}, and is not compared there."
            )
        strange = [name for name in sets if name not in self.readers_of]
        if strange:
            self.remarks.warnings.append(
                f"No reader read with {', '.join(strange)}: the marks of {model} there are not used."
            )
        return {name: rows for name, rows in sets.items() if name in self.readers_of}

    def find_pairs(self, marks: pd.DataFrame, truth: StudyTruth, model: str | None) -> None:
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
        for found, stated, what in (
            (readers, truth.readers, "ReaderID"),
            (treatments, truth.treatments, "ModalityID"),
        ):
            strange = [name for name in found if stated and name not in stated]
            if strange:
                raise UserError(
                    f"the marks have a {what} that the truth does not list: {name_rows(strange)}",
                    where=self.tables.source,
                    fix=f"The truth lists {', '.join(stated)}.",
                )
        has = set(zip(marks["treatment"], marks["reader"], strict=True))
        with_marks = {t: [r for r in readers if (t, r) in has] for t in treatments}
        every = [reader for row in with_marks.values() for reader in row]
        if len(treatments) > 1 and len(every) == len(set(every)) and all(with_marks.values()):
            self.readers_of = with_marks
        else:
            absent = [f"{r} with {t}" for t in treatments for r in readers if (t, r) not in has]
            if absent:
                raise UserError(
                    f"no mark of {name_rows(absent)}",
                    where=self.tables.source,
                    fix="Every reader must have read with every treatment: choose with --use-readers and "
                    "--use-treatments. A model that read once beside the readers is named with --model.",
                )
            self.readers_of = dict.fromkeys(treatments, readers)
        self.pairs = [(treatment, reader) for treatment, row in self.readers_of.items() for reader in row]


def _looks_like(marks: pd.DataFrame, truth: StudyTruth) -> Paradigm:
    """ROC where every case has exactly one mark by every reader: on its one lesion, or on a normal case."""
    has_lesion = truth.lesions.n_lesions > 0
    if (truth.lesions.n_lesions > 1).any() or marks.empty:
        return "FROC"
    right = has_lesion[marks["case"]] == (marks["lesion"] >= 0).to_numpy()
    pairs = marks.groupby(["treatment", "reader"]).ngroups
    whole = len(marks) == pairs * len(truth.case_ids)
    once = not marks.duplicated(["treatment", "reader", "case"]).any()
    return "ROC" if bool(right.all()) and whole and once else "FROC"
