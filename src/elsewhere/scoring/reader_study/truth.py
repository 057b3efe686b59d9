"""The truth of a reader study: cases, lesions with their weights, patients, and what it states about the readers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.scoring.reader_study.study import Paradigm, in_natural_order
from elsewhere.scoring.reader_study.tables import PUBLISHED, Remarks, named_columns, numbers, rows_where
from elsewhere.statistics.localisation import LesionTruth

_DESIGNS = {"fctrl", "factorial", "crossed"}
_ROUNDING = 0.02
"""Weights of published workbooks are rounded: three lesions of 0.33 add up to 0.99."""


@dataclass(frozen=True, kw_only=True)
class StudyTruth:
    """The truth as numbers, and what it states about the study.

    Args:
        case_ids: The id of each case.
        lesions: The lesions and their weights.
        lesion_ids: The number of each lesion's case, and the id of the lesion.
        patient_of_case: The number of each case's patient.
        readers: The readers that the truth lists; empty where it lists none.
        treatments: The treatments that it lists; empty likewise.
        paradigm: The paradigm that it states; None where it states none.
    """

    case_ids: tuple[str, ...]
    lesions: LesionTruth
    lesion_ids: tuple[tuple[int, str], ...]
    patient_of_case: npt.NDArray[np.int64]
    readers: tuple[str, ...] = ()
    treatments: tuple[str, ...] = ()
    paradigm: Paradigm | None = None


def read_truth(given: pd.DataFrame, where: str, remarks: Remarks) -> StudyTruth:
    """Read the truth of a reader study.

    Args:
        given: The table: one row per lesion, and one per case without a lesion.
        where: The file and sheet that an error names.
        remarks: Takes what was assumed.

    Returns:
        The truth.

    Raises:
        UserError: A column or value is missing, or rows contradict each other.
    """
    table = named_columns(given, "truth", where)
    stated = _stated_paradigm(table, where)
    table = table[table["case"].notna() | table["lesion"].notna()]
    for name in ("case", "lesion"):
        empty = table[name].isna()
        if empty.any():
            raise UserError(
                f"{PUBLISHED[name]} is empty in {rows_where(empty)}", where=where, fix="Fill the cells."
            )
    if table.empty:
        raise UserError("there is no case in the truth", where=where, fix="Give one row per case or lesion.")
    twice = table.duplicated(["case", "lesion"], keep=False)
    if twice.any():
        raise UserError(
            f"a case and lesion are listed twice in {rows_where(twice)}",
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
            f"cases with both LesionID 0 and a lesion: case {name_rows([case_ids[i] for i in both])}",
            where=where,
            fix="LesionID 0 stands for a case without any lesion: take these rows out.",
        )
    readers, treatments = (_listed(table, name, where) for name in ("reader", "treatment"))
    return StudyTruth(
        case_ids=case_ids,
        lesions=LesionTruth(
            n_cases=len(case_ids),
            case=case[~normal],
            weight=_weights(table, case, normal, case_ids, where, remarks),
        ),
        lesion_ids=tuple(zip(case[~normal].tolist(), table["lesion"][~normal], strict=True)),
        patient_of_case=_patients(table, case, len(case_ids), where),
        readers=readers,
        treatments=treatments,
        paradigm=stated,
    )


def _weights(
    table: pd.DataFrame,
    case: npt.NDArray[np.int64],
    normal: npt.NDArray[np.bool_],
    case_ids: Sequence[str],
    where: str,
    remarks: Remarks,
) -> npt.NDArray[np.float64] | None:
    if "weight" not in table:
        remarks.warnings.append("The truth has no column Weight: the lesions of a case count equally.")
        return None
    weight = numbers(table["weight"].astype("string").fillna("0"), "Weight", where).to_numpy()[~normal]
    if (weight < 0).any():
        below = (table["weight"].notna() & ~normal).to_numpy() & _negative(table["weight"])
        raise UserError(
            f"Weight is negative in {rows_where(pd.Series(below))}",
            where=where,
            fix="Weights are shares of 1.",
        )
    of = case[~normal]
    total = np.bincount(of, weight, len(case_ids))
    lesions = np.bincount(of, minlength=len(case_ids))
    unweighted = (lesions > 0) & (total == 0)
    if unweighted.any():
        weight = np.where(unweighted[of], 1.0 / lesions[of], weight)
        remarks.counts["cases_without_weights"] = int(unweighted.sum())
        if (lesions[unweighted] > 1).any():
            remarks.warnings.append(
                f"Cases without weights (all 0 or empty): {int(unweighted.sum())}. Their lesions count equally."
            )
        total = np.bincount(of, weight, len(case_ids))
    zero = (weight == 0) & ~unweighted[of]
    wrong = (lesions > 0) & (np.abs(total - 1.0) > _ROUNDING)
    if wrong.any():
        shown = [f"{case_ids[i]} ({total[i]:.3g})" for i in np.flatnonzero(wrong).tolist()]
        raise UserError(
            f"the weights of a case do not add up to 1: case {name_rows(shown)}",
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
        remarks.counts["cases_with_rounded_weights"] = int(rounded.sum())
        if (np.abs(total[rounded] - 1.0) > 1e-6).any():
            remarks.warnings.append(
                f"Cases whose weights add up to 1 only after rounding: {int(rounded.sum())}. They were scaled to 1."
            )
    return np.asarray(weight / total[of], dtype=np.float64)


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


def _listed(table: pd.DataFrame, name: str, where: str) -> tuple[str, ...]:
    """The readers or modalities that the truth lists, which must be the same for every case."""
    if name not in table:
        return ()
    lists = Counter(tuple(re.split(r"[,;\s]+", str(cell).strip(" ,;()"))) for cell in table[name].dropna())
    if not lists:
        return ()
    if len({frozenset(row) for row in lists}) > 1:
        raise UserError(
            f"{PUBLISHED[name]} of the truth differs from case to case",
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
        raise UserError(f"PatientID is empty in {rows_where(empty)}", where=where, fix="Fill the cells.")
    number = pd.factorize(table["patient"])[0]
    first = np.full(n_cases, -1, dtype=np.int64)
    first[case[::-1]] = number[::-1]
    differs = first[case] != number
    if differs.any():
        raise UserError(
            f"a case has two patients in {rows_where(pd.Series(differs))}",
            where=where,
            fix="Give it one PatientID.",
        )
    return first
