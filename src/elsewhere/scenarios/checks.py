"""The leak check (US-11): it runs when a split is made, and again when it is read.

It shares no code with the allocation: it compares the columns `patient` and `group` of the table directly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.label_scheme import LESIONS, LabelScheme
from elsewhere.errors import UserError, name_rows
from elsewhere.scenarios.groups import BoolArray, StudyGroups
from elsewhere.scenarios.split import PARTS, Split, counted, hash_of

_FORBIDDEN = (
    ("train", "validation"),
    ("train", "test"),
    ("validation", "test"),
    ("train", "normal"),
    ("validation", "normal"),
)
"""Pairs of parts that may not share a patient. Test and normal may; then the split has a warning (US-18)."""


class LeakError(UserError):
    """A patient or a group of duplicates is in two parts that must be apart; nothing runs after it."""


def check_split(
    table: pd.DataFrame | StudyGroups, partition: Split, *, scheme: LabelScheme = LESIONS
) -> None:
    """Refuse a split that leaks, or that does not belong to this table and scenario.

    Args:
        table: The study table, or its groups.
        partition: The split.
        scheme: The label names of a table; groups have their own.

    Raises:
        LeakError: A patient, a group or a case is in two parts that must be apart, or a case of the target
            is used for training.
        UserError: The split does not belong to this table and scenario, or was changed after it was made.
    """
    study = table if isinstance(table, StudyGroups) else StudyGroups(table, scheme=scheme)
    rows = {part: _rows(study, partition, part) for part in (*PARTS, "left_out")}
    where = _where(partition)
    for one, other in _FORBIDDEN:
        for what, codes, names in (
            ("patient", study.patient_code, study.patients),
            ("group", study.group_code, study.groups),
        ):
            shared = np.intersect1d(codes[rows[one]], codes[rows[other]])
            if shared.size:
                raise LeakError(
                    f"{counted(shared.size, what)} in {one} and in {other}: "
                    f"{name_rows(sorted(names[shared].tolist()))}",
                    where=where,
                    fix="Make the split again from this study table; never edit a split by hand.",
                )
    _check_datasets(study, partition, rows)
    _check_labels(study, partition, rows)
    _check_complete(study, partition, rows)
    if partition.hash != hash_of(partition):
        raise UserError(
            f"the hash is {partition.hash[:12]}..., and the parts give {hash_of(partition)[:12]}...",
            where=where,
            fix="The split was changed after it was made: make it again.",
        )


def _check_datasets(study: StudyGroups, partition: Split, rows: dict[str, npt.NDArray[np.int64]]) -> None:
    scenario = partition.scenario
    for part in PARTS:
        allowed = scenario.sources if part in ("train", "validation") else (scenario.target,)
        known = np.array([name in allowed for name in study.datasets], dtype=bool)
        wrong = rows[part][~known[study.dataset_code[rows[part]]]]
        if wrong.size:
            target = set(study.text["dataset"][wrong].tolist()) == {scenario.target}
            kind = LeakError if target else UserError
            raise kind(
                f"{counted(wrong.size, 'case')} in {part} not of {' or '.join(allowed)}: "
                f"{name_rows(study.case[wrong].tolist())}",
                where=_where(partition),
            )


def _check_labels(study: StudyGroups, partition: Split, rows: dict[str, npt.NDArray[np.int64]]) -> None:
    for part in PARTS:
        wrong = rows[part][study.normal[rows[part]] != (part == "normal")]
        if wrong.size:
            raise UserError(
                f"{counted(wrong.size, 'lesion image' if part == 'normal' else 'normal image')} in {part}: "
                f"{name_rows(study.case[wrong].tolist())}",
                where=_where(partition),
                fix="Normal images are only for the test against lesions, and lesion images are not normal: make the "
                "split again.",
            )


def _check_complete(study: StudyGroups, partition: Split, rows: dict[str, npt.NDArray[np.int64]]) -> None:
    """Check that every lesion image has one part, and that an outer target is tested whole (US-07)."""
    scenario = partition.scenario
    held = np.bincount(np.concatenate(list(rows.values())), minlength=len(study))
    if (held > 1).any():
        raise LeakError(
            f"{counted(int((held > 1).sum()), 'case')} in two parts: {name_rows(study.case[held > 1].tolist())}",
            where=_where(partition),
        )
    needed: BoolArray = np.zeros(len(study), dtype=bool)
    for dataset in {*scenario.sources, scenario.target}:
        needed |= study.of(dataset) & ~study.normal
    may_be_left_out = np.zeros(len(study), dtype=bool)
    may_be_left_out[rows["left_out"]] = not scenario.within
    may_be_left_out &= ~study.of(scenario.target)
    held[rows["left_out"]] -= 1
    lost = np.flatnonzero(needed & (held == 0) & ~may_be_left_out)
    if lost.size:
        raise UserError(
            f"{counted(lost.size, 'lesion image')} without a part: {name_rows(study.case[lost].tolist())}",
            where=_where(partition),
            fix="The study table has grown, or the split was cut: make it again.",
        )


def _rows(study: StudyGroups, partition: Split, part: str) -> npt.NDArray[np.int64]:
    names: tuple[str, ...] = getattr(partition, part)
    unknown = [name for name in names if name not in study.row]
    if unknown:
        raise UserError(
            f"{counted(len(unknown), 'case')} of {part} not in the study table: {name_rows(unknown)}",
            where=_where(partition),
            fix="Read the split with the table it was made from.",
        )
    return np.array([study.row[name] for name in names], dtype=np.int64)


def _where(partition: Split) -> str:
    return f"scenario {partition.scenario.name}, seed {partition.seed}"
