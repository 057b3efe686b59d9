"""The part of a study table of a source that brings no rules of its own: what the source says of each case is enough.

A source of another package is joined here. A source with rules of its own (pictures, volumes) registers a `PartBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.label_scheme import UNLABELLED, LabelScheme
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs import Cases
from elsewhere.inputs.source import MASK, Source, sources
from elsewhere.scoring.task import Task, tasks
from elsewhere.study.case_frame import (
    FRAME_COLUMNS,
    about_dataset,
    case_frame,
    clinical_columns,
    left_out_rows,
)
from elsewhere.study.case_rows import case_rows
from elsewhere.study.file import StudyFile
from elsewhere.study.identical_cases import join_identical_cases
from elsewhere.study.pictures import Report
from elsewhere.study.table import PartBuilder, StudyTable


def plain_part(name: str) -> PartBuilder:
    """Make the builder of a source without rules of its own.

    Args:
        name: The source.

    Returns:
        The builder.
    """
    return PartBuilder(source=name, build=partial(join_cases, name), fits=partial(has_cases, name))


def has_cases(name: str, cohort: Cohort) -> bool:
    """Say whether a source finds pixels in a cohort's rows.

    Args:
        name: The source.
        cohort: The cohort.

    Returns:
        Whether at least one row is a case of it.
    """
    rows = case_rows(cohort)
    source = sources.get(name).of_cases(rows)
    return any(row.name in source for row in rows)


def join_cases(
    name: str,
    file: StudyFile,
    cohorts: Mapping[str, Cohort],
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> StudyTable:
    """Join the cohorts of a source.

    Args:
        name: The source.
        file: The study.
        cohorts: Those that the source reads.
        cache: A folder for what is slow to find out; not used.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        Their table.

    Raises:
        UserError: A case cannot be read, or the labels of two tasks do not fit together.
    """
    joined = case_frame(file, cohorts)
    frame, cohort = joined.frame, joined.cohort
    source = sources.get(name).of_cases([row for one in cohorts.values() for row in case_rows(one)])
    names = frame["case"].tolist()
    there = [case for case in names if case in source]
    _check(source, names, there)
    scheme, label, without = _labels(file, cohorts)
    frame["label"] = pd.Series([scheme.labels[code] if code >= 0 else scheme.unknown for code in label])
    digest = _asked(source.digest, there, f"looking at {source.noun}", progress)
    truth = _asked(source.truth_digest, there, "looking at annotations", progress)
    identity = _asked(source.identity, there, "looking for duplicates", progress)
    frame["group"], duplicates, doubled = join_identical_cases(
        frame, identity, keep_together=file.study.scenarios.keep_duplicates_together, noun=source.noun
    )
    frame = frame[list(FRAME_COLUMNS)]
    if MASK in source.truths:
        frame["has_mask"] = [bool(truth.get(case)) for case in names]
    noun = source.noun.removesuffix("s")
    absent = ~frame["case"].isin(there)
    reasons = [
        (absent, f"without a {noun}: used only by recipes that read none, and left out of the leaderboard")
    ]
    if without is not None:
        why = f"without a value in '{without.target}'" if without.target else str(scheme.unknown)
        reasons.append((frame["label"] == scheme.unknown, why))
    return StudyTable(
        source=name,
        frame=frame,
        datasets=tuple(dict.fromkeys(frame["dataset"])),
        cases=Cases(
            case=tuple(names),
            dataset=tuple(frame["dataset"]),
            label=label,
            box=np.zeros((len(frame), 4), dtype=np.int32),
            digest=tuple(digest.get(case, "") for case in names),
            mask_digest=tuple(truth.get(case, "") for case in names),
            group=tuple(frame["group"]),
            clinical=clinical_columns(file, cohort),
        ),
        sources={name: source},
        audit={
            "ids": "patient",
            "publication": file.study.study.publication,
            "cohorts": {
                one: about_dataset(part, cohort, str(one))
                | {source.noun: int(part["case"].isin(there).sum())}
                for one, part in frame.groupby("collection", sort=False)
            },
            "left_out": left_out_rows(frame, reasons),
            "duplicates": duplicates,
            "warnings": [*joined.warnings, *doubled],
        },
        cohort=cohort,
        label_scheme=scheme,
        also={case: other for case, other in zip(names, cohort.other_ids(), strict=True) if other},
        pixels=dict(identity),
    )


def _check(source: Source, names: list[str], there: list[str]) -> None:
    lacking = [case for case in names if case not in source]
    noun = source.noun.removesuffix("s")
    if lacking and (source.complete or not there):
        raise UserError(f"{len(lacking)} cases have no {noun} ({name_rows(lacking, limit=3)})")
    wrong = source.problems(there)
    if wrong:
        first, why = next(iter(wrong.items()))
        others = list(wrong)[1:]
        raise UserError(
            f"the {noun} of case '{first}' cannot be used: {why}"
            + (f" (likewise {name_rows(others)})" if others else ""),
            fix="Fetch the file again, or take the case out of the cohort.",
        )


def _labels(
    file: StudyFile, cohorts: Mapping[str, Cohort]
) -> tuple[LabelScheme, npt.NDArray[np.int8], Task | None]:
    """The classes of the first task of the study that has two, of each case its class, and the task."""
    found = [
        (task, values) for task in map(tasks.get, file.study.tasks) for values in _classes(task, cohorts)
    ]
    if not found:
        count = sum(len(one.cases) for one in cohorts.values())
        return UNLABELLED, np.full(count, -1, dtype=np.int8), None
    first, values = found[0]
    for other, _ in found[1:]:
        if other.target != first.target:
            raise UserError(
                f"the tasks {first.name} and {other.name} have other classes: {_origin(first)}, {_origin(other)}",
                where=str(file.path),
                fix="A study has one outcome per case: write one study for each task.",
            )
    scheme = first.label_scheme or UNLABELLED
    words = [name.casefold() for name in scheme.classes]
    known = {"0": 0, "0.0": 0, "1": 1, "1.0": 1, words[0]: 0, words[1]: 1, "": -1}
    spelt = [value.casefold() for value in values]
    odd = sorted(set(spelt) - set(known))
    if odd:
        raise UserError(
            f"the column '{first.target}' holds {name_rows(odd)}",
            where=str(file.path),
            fix=f"It may hold 0, 1, {scheme.classes[0]}, {scheme.classes[1]}, or nothing.",
        )
    if scheme.unknown is None and "" in spelt:
        raise UserError(f"{spelt.count('')} cases have no value in '{first.target}'", where=str(file.path))
    codes = np.array([known[value] for value in spelt], dtype=np.int8)
    return scheme, codes, first


def _classes(task: Task, cohorts: Mapping[str, Cohort]) -> Iterator[list[str]]:
    """The classes of all cases, once, where one of the cohorts says them for the task."""
    parts = [task.case_classes(one) for one in cohorts.values()]
    if any(part is not None for part in parts):
        yield [
            str(value)
            for one, part in zip(cohorts.values(), parts, strict=True)
            for value in ([""] * len(one.cases) if part is None else part)
        ]


def _origin(task: Task) -> str:
    return f"column '{task.target}'" if task.target else "the table of lesions"


def _asked(ask: Callable[[str], str], names: list[str], what: str, progress: Report | None) -> dict[str, Any]:
    found = {}
    for done, case in enumerate(names, start=1):
        found[case] = ask(case)
        if progress and (done % 50 == 0 or done == len(names)):
            progress(what, done, len(names))
    return found
