"""A reader study: the truth, and the marks of each reader with each treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows
from elsewhere.statistics.localisation import LesionTruth, Marks

Paradigm = Literal["ROC", "FROC"]


@dataclass(frozen=True, kw_only=True)
class ReaderStudy:
    """The truth of the cases, and the marks of each reader with each treatment.

    Args:
        paradigm: 'ROC' where every case has one rating, 'FROC' where readers mark places.
        truth: The cases and their lesions.
        case_ids: The id of each case.
        patient_of_case: The number of each case's patient.
        treatments: The names of the treatments.
        readers: The names of the readers of each treatment; the same for all unless `nested`.
        marks: The marks by treatment and reader. In a ROC study the rating of a case is a mark on its lesion,
            or a non-lesion mark where it has none.
        nested: Whether each treatment has readers of its own.
        model: The name of a model that reads the same cases beside the readers; None for none.
        model_marks: The marks of the model by treatment; the same for all where it has one set of marks.
        counts: What was left out or combined, by name.
        warnings: Full sentences about that.

    Raises:
        UserError: A reader has no marks table, or a ROC study lacks ratings or has several for one case.
    """

    paradigm: Paradigm
    truth: LesionTruth
    case_ids: tuple[str, ...]
    patient_of_case: npt.NDArray[np.int64]
    treatments: tuple[str, ...]
    readers: tuple[tuple[str, ...], ...]
    marks: Mapping[tuple[str, str], Marks]
    nested: bool = False
    model: str | None = None
    model_marks: Mapping[str, Marks] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.paradigm != "ROC":
            return
        of_model = {(treatment, str(self.model)): marks for treatment, marks in self.model_marks.items()}
        for (treatment, reader), marks in {**self.marks, **of_model}.items():
            times = np.bincount(marks.case, minlength=self.truth.n_cases)
            for wrong, what in ((times == 0, "no rating"), (times > 1, "more than one rating")):
                cases = [self.case_ids[at] for at in np.flatnonzero(wrong)]
                if cases:
                    raise UserError(
                        f"reader {reader} with treatment {treatment} has {what} for {len(cases)} cases: case "
                        f"{name_rows(cases)}",
                        fix="A ROC study needs one rating per case, reader and treatment. Leave the reader or the "
                        "case out; where readers mark places, the paradigm is FROC.",
                    )

    @property
    def n_patients(self) -> int:
        """The number of patients; of cases where the patients are not known."""
        return int(self.patient_of_case.max(initial=-1)) + 1

    @property
    def has_patients(self) -> bool:
        """Whether a patient has several cases, so that leaving out a case is not leaving out a patient."""
        return self.n_patients < self.truth.n_cases

    def pairs(self) -> list[tuple[str, str]]:
        """List treatments with their readers.

        Returns:
            The pairs, treatment by treatment.
        """
        return [
            (treatment, reader)
            for treatment, readers in zip(self.treatments, self.readers, strict=True)
            for reader in readers
        ]


def in_natural_order(names: Sequence[str]) -> list[str]:
    """Sort names as people do: numbers by value, everything else in the order of first appearance.

    Args:
        names: The names, with repetitions.

    Returns:
        Each name once.

    Example:
        >>> in_natural_order(["10", "2", "2"]), in_natural_order(["unaided", "aided"])
        (['2', '10'], ['unaided', 'aided'])
    """
    once = list(dict.fromkeys(names))
    return sorted(once, key=int) if all(name.isdecimal() for name in once) else once
