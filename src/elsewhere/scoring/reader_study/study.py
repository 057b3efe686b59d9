"""A reader study: the truth, and the marks of each reader with each treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows, unknown_name
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
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.paradigm != "ROC":
            return
        for (treatment, reader), marks in self.marks.items():
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

    def only(self, *, treatments: Sequence[str] = (), readers: Sequence[str] = ()) -> ReaderStudy:
        """Take some of the treatments and readers.

        Args:
            treatments: The treatments to keep; empty for all.
            readers: The readers to keep; empty for all.

        Returns:
            The smaller study.

        Raises:
            UserError: A name is unknown, or nothing is left.
        """
        everyone = tuple(dict.fromkeys(name for row in self.readers for name in row))
        for chosen, known, what in (
            (treatments, self.treatments, "treatment"),
            (readers, everyone, "reader"),
        ):
            for name in chosen:
                if name not in known:
                    raise unknown_name(what, name, known)
        rows = {
            treatment: tuple(name for name in row if not readers or name in readers)
            for treatment, row in zip(self.treatments, self.readers, strict=True)
            if not treatments or treatment in treatments
        }
        if any(not row for row in rows.values()):
            empty = next(treatment for treatment, row in rows.items() if not row)
            raise UserError(
                f"treatment {empty} has none of the chosen readers",
                fix="Choose readers that read with every chosen treatment.",
            )
        kept = replace(self, treatments=tuple(rows), readers=tuple(rows.values()))
        nested = self.nested and len(set(kept.readers)) > 1
        return replace(kept, nested=nested, marks={pair: self.marks[pair] for pair in kept.pairs()})


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
