"""Synthetic reader studies with a known truth: readers rate, or mark, the same cases with several treatments.

The ratings follow the model of Roe and Metz (Acad Radiol 4:298, 1997): a rating is the sum of what the reader,
the case, and their interactions with each other and with the treatment add. In a study of marks, each case has
suspicious places, and lesions beside them; a reader rates each place by the same model, and marks those above a
threshold, as in a search model. Under `effect` 0 all treatments have the same expected figure of merit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from elsewhere.errors import UserError
from elsewhere.files import check_out_file, write_bytes
from elsewhere.scoring.reader_study.study import Paradigm, ReaderStudy
from elsewhere.scoring.reader_study.tables import StudyTables
from elsewhere.statistics.localisation import LesionTruth, Marks

FloatArray = npt.NDArray[np.float64]
Form = Literal["newer", "older"]
MODEL = "AI"
"""The name of the model among the readers."""


@dataclass(frozen=True, kw_only=True)
class ReaderWorld:
    """What a synthetic reader study is drawn from.

    Args:
        paradigm: 'ROC' for one rating per case, 'FROC' for marks.
        readers: How many readers.
        normal: How many cases without a lesion.
        diseased: How many cases with a lesion.
        treatments: The names of the treatments; every reader reads every case with each.
        separation: How far the ratings of lesions lie above the others, in standard deviations.
        effect: What the last treatment adds to the separation.
        reader_sd: The standard deviation of the readers' separations, once for all treatments and once more
            for each treatment.
        case_shares: The shares of a rating's variance that come from the case, the case with a treatment, and
            the case with a reader; the rest is noise.
        places: The mean number of suspicious places per case without a lesion in them; FROC alone.
        most_lesions: The largest number of lesions per case; FROC alone.
        threshold: The rating above which a place is marked; FROC alone.
        cases_per_patient: How many cases a patient has; a patient's cases are all normal or all diseased.
        patient_share: The share of the variance of a case's effects that a patient's cases have in common.
        model: Whether a model rates the cases as well, once: a further reader called 'AI'.
        model_separation: Its separation; None for that of the readers' mean.

    Raises:
        UserError: A number is too small, or the shares add up to 1 or more.
    """

    paradigm: Paradigm = "FROC"
    readers: int = 5
    normal: int = 60
    diseased: int = 40
    treatments: tuple[str, ...] = ("unaided", "aided")
    separation: float = 1.5
    effect: float = 0.0
    reader_sd: float = 0.15
    case_shares: tuple[float, float, float] = (0.3, 0.1, 0.2)
    places: float = 1.0
    most_lesions: int = 3
    threshold: float = 0.3
    cases_per_patient: int = 1
    patient_share: float = 0.0
    model: bool = False
    model_separation: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("readers", 1), ("normal", 2), ("diseased", 2), ("most_lesions", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}", fix=f"Give {least} or more.")
        if self.cases_per_patient < 1 or not 0.0 <= self.patient_share <= 1.0:
            raise UserError(
                "a patient has at least one case, and her cases share at most all of their effect",
                fix="Give cases_per_patient from 1 on, and patient_share from 0 to 1.",
            )
        if self.paradigm not in ("ROC", "FROC"):
            raise UserError(f"'{self.paradigm}' is no paradigm of a reader study", fix="Give ROC or FROC.")
        if not self.treatments or len(set(self.treatments)) < len(self.treatments):
            raise UserError("the treatments need different names", fix="For example unaided,aided.")
        if min(self.case_shares) < 0 or sum(self.case_shares) >= 1:
            raise UserError(
                f"the shares {self.case_shares} leave nothing for noise",
                fix="Give three shares of 0 or more that add up to less than 1.",
            )


def draw_reader_study(world: ReaderWorld, rng: np.random.Generator) -> ReaderStudy:
    """Draw a reader study.

    Args:
        world: The numbers of readers and cases, and how ratings vary.
        rng: The generator of every draw.

    Returns:
        The study.

    Example:
        >>> made = draw_reader_study(ReaderWorld(readers=3, normal=10, diseased=8), np.random.default_rng(1))
        >>> made.truth.n_cases, len(made.marks)
        (18, 6)
    """
    n_cases = world.normal + world.diseased
    diseased = np.arange(n_cases) >= world.normal
    patient = np.concatenate(
        [
            np.arange(world.normal) // world.cases_per_patient,
            -(-world.normal // world.cases_per_patient)
            + np.arange(world.diseased) // world.cases_per_patient,
        ]
    )
    if world.paradigm == "ROC":
        lesion_case = np.flatnonzero(diseased)
        place_case = np.flatnonzero(~diseased)
    else:
        lesion_case = np.repeat(
            np.flatnonzero(diseased), rng.integers(1, world.most_lesions + 1, world.diseased)
        )
        place_case = np.repeat(np.arange(n_cases), rng.poisson(world.places, n_cases))
    place_of = np.concatenate([lesion_case, place_case])
    is_lesion = np.arange(place_of.size) < lesion_case.size
    names = tuple(str(at + 1) for at in range(world.readers))
    ratings = _ratings(world, patient[place_of], is_lesion, rng)
    lesion_number = np.where(is_lesion, np.arange(place_of.size), -1)

    def marks_of(rating: FloatArray) -> Marks:
        marked = rating > (-np.inf if world.paradigm == "ROC" else world.threshold)
        return Marks(
            case=place_of[marked],
            score=np.round(100.0 * special.ndtr(rating[marked] / 2.0), 2),
            lesion=lesion_number[marked],
        )

    return ReaderStudy(
        paradigm=world.paradigm,
        truth=LesionTruth(n_cases=n_cases, case=lesion_case),
        case_ids=tuple(f"C{at + 1:04d}" for at in range(n_cases)),
        patient_of_case=patient.astype(np.int64),
        treatments=world.treatments,
        readers=(names,) * len(world.treatments),
        marks={
            (treatment, reader): marks_of(ratings[i, j])
            for i, treatment in enumerate(world.treatments)
            for j, reader in enumerate(names)
        },
        model=MODEL if world.model else None,
        model_marks=dict.fromkeys(world.treatments, marks_of(ratings[0, -1])) if world.model else {},
    )


def _ratings(
    world: ReaderWorld,
    patient: npt.NDArray[np.int64],
    is_lesion: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> FloatArray:
    """Treatments x readers x places: each place is a case of its own in the model of Roe and Metz.

    A model is the last reader; its separation does not vary, and its ratings are those with the first treatment.
    """
    treatments, places = len(world.treatments), is_lesion.size
    readers = world.readers + world.model
    of_case, of_treatment, of_reader = world.case_shares
    share = world.patient_share if world.cases_per_patient > 1 else 0.0
    patients = int(patient.max(initial=-1)) + 1

    def of_places(rows: int) -> FloatArray:
        together = rng.normal(size=(rows, 1, patients))[:, :, patient]
        effect: FloatArray = np.sqrt(share) * together + np.sqrt(1.0 - share) * rng.normal(
            size=(rows, 1, places)
        )
        return effect

    separation = np.full((treatments, readers), world.separation)
    separation[-1] += world.effect
    separation += world.reader_sd * rng.normal(size=(1, readers))
    separation += world.reader_sd * rng.normal(size=(treatments, readers))
    if world.model:
        separation[:, -1] = world.separation if world.model_separation is None else world.model_separation
    noise = 1.0 - sum(world.case_shares)
    ratings: FloatArray = (
        separation[:, :, None] * is_lesion
        + np.sqrt(of_case) * of_places(1)
        + np.sqrt(of_treatment) * of_places(treatments)
        + np.sqrt(of_reader) * rng.normal(size=(1, readers, places))
        + np.sqrt(noise) * rng.normal(size=(treatments, readers, places))
    )
    return ratings


def study_tables(study: ReaderStudy, *, form: Form = "newer") -> StudyTables:
    """Make the three tables of a workbook, as text.

    Args:
        study: The study.
        form: 'newer' with readers, modalities and paradigm in the truth, or 'older' without.

    Returns:
        Truth, lesion marks and non-lesion marks.

    Example:
        >>> made = study_tables(draw_reader_study(ReaderWorld(readers=2), np.random.default_rng(1)))
        >>> list(made.lesion_marks.columns)
        ['ReaderID', 'ModalityID', 'CaseID', 'LesionID', 'TP_Rating']
    """
    marks = _mark_rows(study, form)
    truth, on_lesion, others = (
        pd.DataFrame(
            [[None if cell is None else str(cell) for cell in row] for row in rows[1:]],
            columns=[str(name) for name in rows[0]],
            dtype="str",
        )
        for rows in (_truth_rows(study, form), *marks.values())
    )
    return StudyTables(truth=truth, lesion_marks=on_lesion, non_lesion_marks=others)


def write_reader_study(
    study: ReaderStudy, path: str | Path, *, form: Form = "newer", replace: bool = False
) -> Path:
    """Write a reader study as the workbook of a JAFROC study.

    Args:
        study: The study.
        path: The workbook to write (.xlsx).
        form: 'newer' with readers, modalities and paradigm in the truth, or 'older' without.
        replace: Whether an existing file may be replaced.

    Returns:
        The path that was written.

    Raises:
        UserError: The file exists and `replace` is not set, or its name does not end in .xlsx.

    Example:
        Write a study for a first try::

            write_reader_study(draw_reader_study(ReaderWorld(), np.random.default_rng(7)), "study.xlsx")
    """
    import io

    import openpyxl

    path = Path(path)
    if path.suffix.lower() != ".xlsx":
        raise UserError("a reader study is written as .xlsx", where=str(path), fix="Name it study.xlsx.")
    check_out_file(path, replace=replace)
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    sheets = {"Truth" if form == "newer" else "TRUTH": _truth_rows(study, form)}
    sheets |= _mark_rows(study, form)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    stream = io.BytesIO()
    book.save(stream)
    write_bytes(stream.getvalue(), path)
    return path


def _truth_rows(study: ReaderStudy, form: Form) -> list[list[object]]:
    newer = form == "newer"
    names = dict.fromkeys(name for row in study.readers for name in row)
    readers = ",".join([*names, *([study.model] if study.model else [])])
    header = ["CaseID", "LesionID", "Weight"]
    header += ["ReaderID", "ModalityID", "Paradigm"] if newer else []
    header += ["PatientID"] if study.has_patients else []
    numbers = lesion_numbers(study)
    rows: list[list[object]] = [list(header)]
    words = [study.paradigm, "FCTRL"]
    for case in range(study.truth.n_cases):
        lesions = np.flatnonzero(study.truth.case == case)
        for lesion in lesions if lesions.size else [-1]:
            row: list[object] = [study.case_ids[case]]
            row += [0, 0] if lesion < 0 else [int(numbers[lesion]), float(study.truth.weights[lesion])]
            if newer:
                row += [readers, ",".join(study.treatments), words[len(rows) - 1] if len(rows) < 3 else None]
            row += [f"P{study.patient_of_case[case] + 1:04d}"] if study.has_patients else []
            rows.append(row)
    return rows


def _mark_rows(study: ReaderStudy, form: Form) -> dict[str, list[list[object]]]:
    newer = form == "newer"
    columns: list[object] = ["ReaderID", "ModalityID", "CaseID"]
    on_lesion: list[list[object]] = [[*columns, "LesionID", "TP_Rating" if newer else "LLRating"]]
    elsewhere: list[list[object]] = [[*columns, "FP_Rating" if newer else "NLRating"]]
    numbers = lesion_numbers(study)
    of_model = {(study.treatments[0], str(study.model)): marks for marks in [*study.model_marks.values()][:1]}
    for (treatment, reader), marks in {**study.marks, **of_model}.items():
        for case, rating, lesion in zip(marks.case, marks.score, marks.lesion, strict=True):
            row: list[object] = [reader, treatment, study.case_ids[case]]
            if lesion >= 0:
                on_lesion.append([*row, int(numbers[lesion]), float(rating)])
            else:
                elsewhere.append([*row, float(rating)])
    return {"TP" if newer else "LL": on_lesion, "FP" if newer else "NL": elsewhere}


def lesion_numbers(study: ReaderStudy) -> npt.NDArray[np.int64]:
    """Number the lesions of each case from 1.

    Args:
        study: The study.

    Returns:
        The number of each lesion.
    """
    numbers = np.zeros(study.truth.case.size, dtype=np.int64)
    for case in np.unique(study.truth.case):
        at = np.flatnonzero(study.truth.case == case)
        numbers[at] = np.arange(at.size) + 1
    return numbers
