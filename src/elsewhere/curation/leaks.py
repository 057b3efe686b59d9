"""What a training set must not share with a test set: patients, slides, and slides that show the same piece of glass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.duplicates import find_duplicates
from elsewhere.cohort.table import Cohort

Report = Callable[[str, int, int], None]
SlideName = tuple[str, str]
KINDS = {
    "patient": "patients are in training and test",
    "slide": "slides are in training and test",
    "same tissue": "pairs of slides, one of training and one of test, show the same tissue",
    "two patients": "pairs of slides of different patients in training show the same tissue",
}
"""Kinds of findings, in words. The last is no leak into the test, but one between folds."""


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Something that training and test share.

    Attributes:
        kind: One of `KINDS`.
        what: What is shared, such as a patient, or two slides.
        slides: The slides of training that it concerns.
    """

    kind: str
    what: str
    slides: frozenset[SlideName]

    @property
    def is_between_folds(self) -> bool:
        """Whether it lies within training alone."""
        return self.kind == "two patients"


def slide_names(rows: pd.DataFrame) -> list[SlideName]:
    """Name the slide of each row.

    Args:
        rows: Rows of a patch table.

    Returns:
        Dataset, "" where there is none, and case of each.

    Example:
        >>> slide_names(pd.DataFrame({"dataset": [None], "case_id": ["a"]}))
        [('', 'a')]
    """
    return list(zip(rows["dataset"].fillna("").astype(str), rows["case_id"].astype(str), strict=True))


def number_patients(rows: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Number the patients of rows; where none is stated, every slide counts as a patient.

    Args:
        rows: Rows of a patch table.

    Returns:
        A number per row, from 0.

    Example:
        >>> number_patients(pd.DataFrame({"dataset": ["A"] * 3, "patient_id": ["p", "p", None], "case_id": list("abc")})).tolist()
        [0, 0, 1]
    """
    dataset = rows["dataset"].fillna("").astype(str)
    patient = rows["patient_id"]
    named = dataset + "\0patient\0" + patient.fillna("").astype(str)
    keys = named.where(patient.notna(), dataset + "\0slide\0" + rows["case_id"].astype(str))
    return pd.factorize(keys, sort=True)[0].astype(np.int64)


def shared_names(training: pd.DataFrame, test: pd.DataFrame) -> list[Leak]:
    """Find patients and slides that are in training and in the test.

    Args:
        training: Rows of a patch table.
        test: Rows of another.

    Returns:
        One finding per patient, and one per slide whose patient is not among them.
    """
    found = []
    mine, others = _slides_of_patients(training), _slides_of_patients(test)
    covered: set[SlideName] = set()
    for patient in sorted(set(mine) & set(others)):
        found.append(Leak(kind="patient", what=patient[1], slides=frozenset(mine[patient])))
        covered |= mine[patient]
    tested = set(slide_names(test))
    for slide in sorted((set(slide_names(training)) & tested) - covered):
        found.append(Leak(kind="slide", what=slide[1], slides=frozenset({slide})))
    return found


def same_tissue(
    training: pd.DataFrame,
    test: pd.DataFrame | None,
    files: Mapping[SlideName, Path],
    *,
    mpp: Mapping[SlideName, float] | None = None,
    threads: int | None = None,
    progress: Report | None = None,
) -> list[Leak]:
    """Find slides that show the same piece of glass: saved under another name, compressed again, or scanned twice.

    Args:
        training: Rows of a patch table.
        test: Rows of another; None: only training is searched.
        files: The file of each slide; slides without one are not compared.
        mpp: Microns per pixel that are stated, by slide.
        threads: Threads that read slides; None: one per processor.
        progress: Called with a step, how much of it is done, and how much there is; None for no reports.

    Returns:
        One finding per pair.

    Raises:
        UserError: A slide cannot be read.
    """
    patient_of = _patients(training)
    in_test = set(slide_names(test)) if test is not None else set()
    if test is not None:
        patient_of = _patients(test) | patient_of
    names = sorted(name for name in patient_of if name in files)
    if len(names) < 2:
        return []
    numbered = {f"slide {at:06d}": name for at, name in enumerate(names)}
    cases = pd.DataFrame({
        "case_id": list(numbered),
        "patient_id": [patient_of[name] for name in names],
        "dataset": "slides",
        "site": "",
        "slide": [str(files[name].resolve()) for name in names],
    })  # fmt: skip
    if mpp:
        cases["mpp"] = [mpp.get(name, np.nan) for name in names]
    pairs = find_duplicates([Cohort.from_frame(cases)], threads=threads, progress=progress).pairs
    mine = set(slide_names(training))
    found = []
    for row in pairs.to_dict("records"):
        one, two = numbered[str(row["case_a"])], numbered[str(row["case_b"])]
        what = f"{one[1]} and {two[1]} ({row['kind']}, distance {row['distance']:.3f})"
        trained = frozenset({one, two} & mine - in_test)
        tested = {one, two} & in_test
        if trained and tested:
            found.append(Leak(kind="same tissue", what=what, slides=trained))
        elif len(trained) == 2 and not row["same_patient"]:
            found.append(Leak(kind="two patients", what=what, slides=trained))
    return found


def _slides_of_patients(rows: pd.DataFrame) -> dict[tuple[str, str], set[SlideName]]:
    found: dict[tuple[str, str], set[SlideName]] = {}
    known = rows[rows["patient_id"].notna()]
    each = known[["dataset", "patient_id", "case_id"]].drop_duplicates()
    for slide, patient in zip(slide_names(each), each["patient_id"].astype(str), strict=True):
        found.setdefault((slide[0], patient), set()).add(slide)
    return found


def _patients(rows: pd.DataFrame) -> dict[SlideName, str]:
    each = rows[["dataset", "patient_id", "case_id"]].drop_duplicates(["dataset", "case_id"])
    return {
        slide: f"{slide[0]}/{slide[1] if pd.isna(patient) else patient}"
        for slide, patient in zip(slide_names(each), each["patient_id"], strict=True)
    }
