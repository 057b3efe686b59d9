"""The figures of merit of a reader study, with and without each patient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.reader_study.study import ReaderStudy
from elsewhere.statistics.localisation import Figure, LesionTruth, Marks, figure_sums, ratings_of
from elsewhere.statistics.mrmc import FigureMatrix

FloatArray = npt.NDArray[np.float64]
LeftOut = Literal["patient", "case"]


@dataclass(frozen=True, kw_only=True)
class FigureOfMerit:
    """A figure of merit of a reader.

    Args:
        name: Its name in options and results.
        title: What a table calls it.
        about: What it measures, as a clause.
        paradigm: The paradigm that it needs; None for any.
        needs_normal: Whether it needs cases without a lesion.
        bounds: The smallest and the largest value; None for none.
        higher_is_better: Whether a higher value is better.
        other_names: Further names that a user may write.
        at_threshold: Whether it needs a rating from which a case counts as positive.
        threshold: That rating; None where none was given.
    """

    name: str
    title: str
    about: str
    paradigm: Literal["ROC", "FROC"] | None = "FROC"
    needs_normal: bool = True
    bounds: tuple[float, float | None] = (0.0, 1.0)
    higher_is_better: bool = True
    other_names: tuple[str, ...] = ()
    at_threshold: bool = False
    threshold: float | None = None


FIGURES_OF_MERIT = (
    FigureOfMerit(
        name="wafroc",
        title="wAFROC",
        about="lesions by weight against the highest non-lesion mark of each normal case",
    ),
    FigureOfMerit(
        name="wafroc1",
        title="wAFROC1",
        about="lesions by weight against the highest non-lesion mark of every case",
        needs_normal=False,
    ),
    FigureOfMerit(
        name="afroc",
        title="AFROC",
        about="lesions against the highest non-lesion mark of each normal case",
    ),
    FigureOfMerit(
        name="afroc1",
        title="AFROC1",
        about="lesions against the highest non-lesion mark of every case",
        needs_normal=False,
    ),
    FigureOfMerit(
        name="inferred_roc",
        title="Inferred ROC AUC",
        about="cases with a lesion against normal cases, each by its highest mark",
        paradigm=None,
        other_names=("hr-auc", "hrauc", "inferred-roc"),
    ),
    FigureOfMerit(
        name="auroc",
        title="ROC AUC",
        about="cases with a lesion against normal cases, each by its rating",
        paradigm="ROC",
        other_names=("auc", "roc-auc", "wilcoxon"),
    ),
    FigureOfMerit(
        name="sensitivity",
        title="Sensitivity",
        about="the share of the cases with a lesion whose highest rating reaches the threshold",
        paradigm=None,
        needs_normal=False,
        at_threshold=True,
    ),
    FigureOfMerit(
        name="specificity",
        title="Specificity",
        about="the share of the normal cases whose highest rating stays below the threshold",
        paradigm=None,
        at_threshold=True,
    ),
    FigureOfMerit(
        name="max_llf",
        title="Highest lesion localisation fraction",
        about="the share of the lesions that have a mark",
        needs_normal=False,
        other_names=("maxllf",),
    ),
    FigureOfMerit(
        name="max_nlf",
        title="Highest non-lesion localisation fraction",
        about="non-lesion marks per case",
        needs_normal=False,
        bounds=(0.0, None),
        higher_is_better=False,
        other_names=("maxnlf",),
    ),
)
BY_NAME = {figure.name: figure for figure in FIGURES_OF_MERIT}


def find_figure(name: str | None, paradigm: str, *, threshold: float | None = None) -> FigureOfMerit:
    """Find a figure of merit by the name that a user wrote, and check that the study allows it.

    Args:
        name: The name, with hyphens or underscores; None for the usual one of the paradigm.
        paradigm: The paradigm of the study.
        threshold: The rating from which a case counts as positive; None for none.

    Returns:
        The figure of merit.

    Raises:
        UserError: The name is unknown, the figure needs another paradigm, or a threshold is missing or not needed.

    Example:
        >>> find_figure("HR-AUC", "FROC").title, find_figure(None, "ROC").name
        ('Inferred ROC AUC', 'auroc')
    """
    if name is None:
        name = "auroc" if paradigm == "ROC" else "wafroc"
    plain = name.strip().casefold().replace("_", "-")
    for figure in FIGURES_OF_MERIT:
        if plain in (figure.name.replace("_", "-"), *figure.other_names):
            if figure.paradigm not in (None, paradigm):
                raise UserError(
                    f"{figure.title} needs a study of the paradigm {figure.paradigm}, and this one is {paradigm}",
                    where="--fom",
                    fix="One rating per case has no places: use auroc."
                    if paradigm == "ROC"
                    else "Marks are not ratings of whole cases: use wafroc, or inferred_roc for the highest mark of a case.",
                )
            if figure.at_threshold and (threshold is None or not np.isfinite(threshold)):
                raise UserError(
                    f"{figure.title} needs the rating from which a case counts as positive",
                    where="--threshold",
                    fix="Give it on the scale of the ratings, such as --threshold 3.",
                )
            if threshold is not None and not figure.at_threshold:
                raise UserError(
                    f"{figure.title} has no threshold",
                    where="--threshold",
                    fix="Leave it out, or choose --fom sensitivity or specificity.",
                )
            return replace(figure, threshold=threshold)
    raise unknown_name("figure of merit", name, [figure.name for figure in FIGURES_OF_MERIT])


def figure_matrix(
    study: ReaderStudy, figure: FigureOfMerit, *, leave_out: LeftOut = "patient"
) -> FigureMatrix:
    """Compute a figure of merit of every reader with every treatment, and its covariance by the jackknife.

    Args:
        study: The reader study.
        figure: The figure of merit.
        leave_out: What the jackknife leaves out: 'patient' with all cases, or 'case'.

    Returns:
        The figures with the covariance of their errors.

    Raises:
        UserError: The figure is undefined for these cases, or without one of them.

    Example:
        >>> marks = Marks(case=np.array([0, 2]), score=np.array([4.0, 2.0]), lesion=np.array([0, -1]))
        >>> study = ReaderStudy(
        ...     paradigm="FROC",
        ...     truth=LesionTruth(n_cases=4, case=np.array([0, 1])),
        ...     case_ids=("a", "b", "c", "d"),
        ...     patient_of_case=np.arange(4),
        ...     treatments=("unaided",),
        ...     readers=(("1",),),
        ...     marks={("unaided", "1"): marks},
        ... )
        >>> figure_matrix(study, find_figure("wafroc", "FROC")).values.tolist()
        [[0.625]]
    """
    _check_cases(study, figure)
    cluster = (
        study.patient_of_case if leave_out == "patient" else np.arange(study.truth.n_cases, dtype=np.int64)
    )
    shape = (len(study.treatments), len(study.readers[0]))
    if len({len(row) for row in study.readers}) > 1:
        numbers = ", ".join(
            f"{treatment}: {len(row)}" for treatment, row in zip(study.treatments, study.readers, strict=True)
        )
        raise UserError(
            f"the treatments have different numbers of readers ({numbers})",
            fix="The analysis needs as many readers for each treatment: leave some out.",
        )
    values, rows = [], []
    for pair in study.pairs():
        value, without = value_without_each(figure, study.truth, study.marks[pair], cluster)
        values.append(value)
        rows.append(without)
    cube = np.array(rows)
    if not np.isfinite(cube).all():
        what = "patient" if leave_out == "patient" and study.has_patients else "case"
        raise UserError(
            f"{figure.title} is undefined without one of the {what}s: a kind of case is there only once",
            fix="It needs at least two cases with a lesion and two without, of different patients.",
        )
    return FigureMatrix.from_left_out(
        np.array(values).reshape(shape),
        cube.reshape(*shape, -1),
        treatments=study.treatments,
        readers=study.readers if study.nested else study.readers[0],
        nested=study.nested,
    )


def panel_matrices(
    study: ReaderStudy, figure: FigureOfMerit, *, leave_out: LeftOut = "patient"
) -> list[FigureMatrix]:
    """Compute the figures of merit of the readers of each treatment together with the model's.

    Args:
        study: A study with a model.
        figure: The figure of merit.
        leave_out: What the jackknife leaves out: 'patient' with all cases, or 'case'.

    Returns:
        One matrix of one treatment per treatment that the model can be compared in; the model is the last
        reader.

    Raises:
        UserError: The figure is undefined for these cases, or without one of them.
    """
    model = str(study.model)
    return [
        figure_matrix(
            replace(
                study,
                treatments=(treatment,),
                readers=((*readers, model),),
                marks={
                    **{(treatment, reader): study.marks[treatment, reader] for reader in readers},
                    (treatment, model): study.model_marks[treatment],
                },
                nested=False,
                model=None,
                model_marks={},
            ),
            figure,
            leave_out=leave_out,
        )
        for treatment, readers in zip(study.treatments, study.readers, strict=True)
        if treatment in study.model_marks
    ]


def value_without_each(
    figure: FigureOfMerit, truth: LesionTruth, marks: Marks, cluster: npt.NDArray[np.int64]
) -> tuple[float, FloatArray]:
    """Compute a figure of merit of one reader, and its value without each patient that takes part in it.

    Args:
        figure: The figure of merit.
        truth: The cases and their lesions.
        marks: The marks of the reader.
        cluster: The number of the patient of each case.

    Returns:
        The value, and one value per patient; a patient who has nothing that the figure counts has none.
    """
    n_clusters = int(cluster.max(initial=-1)) + 1
    if figure.name in ("sensitivity", "specificity", "max_llf", "max_nlf"):
        above, below = _counts(figure, truth, marks, cluster)
        part = below > 0
        left = below.sum() - below[part]
        with np.errstate(invalid="ignore", divide="ignore"):
            without = np.where(left > 0, (above.sum() - above[part]) / left, np.nan)
        return float(above.sum() / below.sum()), without
    name = cast(Figure, "inferred_roc" if figure.name == "auroc" else figure.name)
    sums = figure_sums(name, truth, marks, cluster_of_case=cluster, n_clusters=n_clusters)
    return sums.value, sums.without_each()


def _counts(
    figure: FigureOfMerit, truth: LesionTruth, marks: Marks, cluster: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """Numerator and denominator of a share, by patient."""
    ratings, n_clusters = ratings_of(truth, marks), int(cluster.max(initial=-1)) + 1
    if figure.name == "max_llf":
        of, hit = cluster[truth.case], np.isfinite(ratings.of_lesion).astype(float)
    elif figure.name == "max_nlf":
        of, hit = cluster, ratings.n_false.astype(float)
    else:
        ill = truth.n_lesions > 0
        part = ill if figure.name == "sensitivity" else ~ill
        positive = ratings.highest[part] >= (np.inf if figure.threshold is None else figure.threshold)
        of, hit = cluster[part], (positive if figure.name == "sensitivity" else ~positive).astype(float)
    above = np.bincount(of, hit, n_clusters).astype(np.float64)
    return above, np.bincount(of, minlength=n_clusters).astype(np.float64)


def _check_cases(study: ReaderStudy, figure: FigureOfMerit) -> None:
    with_lesion = int((study.truth.n_lesions > 0).sum())
    normal = study.truth.n_cases - with_lesion
    if figure.name not in ("max_nlf", "specificity") and with_lesion < 2:
        raise UserError(
            f"{with_lesion} cases have a lesion; {figure.title} needs at least two",
            fix="Look at the truth: LesionID 0 stands for a case without a lesion.",
        )
    if figure.needs_normal and normal < 2:
        one = (
            "wafroc1 counts non-lesion marks of all cases"
            if figure.paradigm == "FROC"
            else "add normal cases"
        )
        raise UserError(
            f"{normal} cases have no lesion; {figure.title} needs at least two",
            fix=f"Without normal cases, {one}.",
        )
