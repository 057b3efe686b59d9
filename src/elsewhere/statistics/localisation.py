"""The JAFROC family: figures of merit of marks that localise lesions (DBT-18).

A reader, or a model, gives marks: a place with a rating. A mark that lies on a lesion localises it, any other
is a non-lesion mark. All five figures are Mann-Whitney statistics (Chakraborty and Berbaum 2004; Chakraborty,
Observer Performance Methods for Diagnostic Imaging, 2017), a share of pairs in which a positive item has the
higher rating, ties half:

| figure | positive items | negative items |
|---|---|---|
| AFROC | lesions, each with its highest mark | cases without a lesion, each with its highest non-lesion mark |
| AFROC1 | the same | all cases, each with its highest non-lesion mark |
| wAFROC, wAFROC1 | lesions by weight: those of one case add up to 1, equal by default | as above |
| inferred ROC | cases with a lesion, each with its highest mark of any kind | cases without a lesion |

A lesion or a case without a mark has the rating -inf, and two such items tie. A further mark on a lesion that
has a higher one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.evaluator import MannWhitneyInputs
from elsewhere.statistics.mann_whitney import PairSums, pair_sums

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Figure = Literal["wafroc", "wafroc1", "afroc", "afroc1", "inferred_roc"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
LABELS: dict[Figure, str] = {
    "wafroc": "wAFROC",
    "wafroc1": "wAFROC1",
    "afroc": "AFROC",
    "afroc1": "AFROC1",
    "inferred_roc": "inferred ROC",
}
"""What readers of a report call the figures."""


@dataclass(frozen=True, kw_only=True)
class LesionTruth:
    """The cases of a study and their lesions.

    Args:
        n_cases: How many cases there are, with and without lesions.
        case: The number of each lesion's case, from 0.
        weight: The weight of each lesion; those of one case add up to 1. None for equal weights.

    Raises:
        ValueError: A lesion lies in no case, or weights are not above 0, or do not add up to 1 in a case.
    """

    n_cases: int
    case: IntArray
    weight: FloatArray | None = None

    def __post_init__(self) -> None:
        case = np.asarray(self.case, dtype=np.int64)
        object.__setattr__(self, "case", case)
        if case.size and (case.min() < 0 or case.max() >= self.n_cases):
            raise ValueError("a lesion lies in none of the cases")
        if self.weight is None:
            return
        weight = np.asarray(self.weight, dtype=np.float64)
        object.__setattr__(self, "weight", weight)
        if weight.shape != case.shape or not (np.isfinite(weight) & (weight > 0.0)).all():
            raise ValueError("a lesion needs a weight above 0")
        total = np.bincount(case, weight, self.n_cases)[self.n_lesions > 0]
        if not np.allclose(total, 1.0, rtol=0.0, atol=1e-6):
            raise ValueError("the weights of a case's lesions do not add up to 1")

    @property
    def n_lesions(self) -> IntArray:
        """How many lesions each case has."""
        return np.bincount(self.case, minlength=self.n_cases).astype(np.int64)

    @property
    def weights(self) -> FloatArray:
        """The weight of each lesion: the given one, else 1 / number of lesions of its case."""
        return 1.0 / self.n_lesions[self.case] if self.weight is None else self.weight


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The marks of one reader or model.

    Args:
        case: The number of each mark's case.
        score: Its rating: any finite number, higher means more suspicious.
        lesion: The number of the lesion that it lies on; -1 for a non-lesion mark.
    """

    case: IntArray
    score: FloatArray
    lesion: IntArray


@dataclass(frozen=True, kw_only=True)
class Ratings:
    """The marks of one reader as far as the figures read them; -inf where there is no mark.

    Args:
        of_lesion: The highest rating of a mark on each lesion.
        false: The highest rating of a non-lesion mark in each case.
        highest: The highest rating of any mark in each case.
        n_false: How many non-lesion marks each case has.
    """

    of_lesion: FloatArray
    false: FloatArray
    highest: FloatArray
    n_false: IntArray


def ratings_of(truth: LesionTruth, marks: Marks) -> Ratings:
    """Find the highest ratings of lesions and cases.

    Args:
        truth: The cases and their lesions.
        marks: The marks.

    Returns:
        The ratings.

    Raises:
        ValueError: A rating is not finite, a mark lies in none of the cases, or its lesion in another case.
    """
    case, lesion = np.asarray(marks.case, dtype=np.int64), np.asarray(marks.lesion, dtype=np.int64)
    score = np.asarray(marks.score, dtype=np.float64)
    if not np.isfinite(score).all():
        raise ValueError("a mark needs a finite rating")
    if case.size and (case.min() < 0 or case.max() >= truth.n_cases):
        raise ValueError("a mark lies in none of the cases")
    hit = lesion >= 0
    if (lesion >= truth.case.size).any() or (truth.case[lesion[hit]] != case[hit]).any():
        raise ValueError("a mark lies on a lesion of another case")
    of_lesion = np.full(truth.case.size, -np.inf)
    np.maximum.at(of_lesion, lesion[hit], score[hit])
    false = np.full(truth.n_cases, -np.inf)
    np.maximum.at(false, case[~hit], score[~hit])
    highest = false.copy()
    np.maximum.at(highest, case[hit], score[hit])
    n_false = np.bincount(case[~hit], minlength=truth.n_cases).astype(np.int64)
    return Ratings(of_lesion=of_lesion, false=false, highest=highest, n_false=n_false)


def figure_inputs(
    figure: Figure, truth: LesionTruth, ratings: Ratings, *, cluster_of_case: npt.ArrayLike | None = None
) -> MannWhitneyInputs:
    """List the positive and negative items of a figure of merit.

    Args:
        figure: One of `FIGURES`.
        truth: The cases and their lesions.
        ratings: Their highest ratings.
        cluster_of_case: The number of each case's patient; None where each case is a cluster of its own.

    Returns:
        The items, positive ones first.

    Raises:
        ValueError: There is no such figure.
    """
    if figure not in FIGURES:
        raise ValueError(f"no figure of merit is called {figure!r}")
    cluster = np.arange(truth.n_cases) if cluster_of_case is None else np.asarray(cluster_of_case)
    has_lesion = truth.n_lesions > 0
    if figure == "inferred_roc":
        positive = np.flatnonzero(has_lesion)
        above, weight = ratings.highest[positive], np.ones(positive.size)
    else:
        positive, above = truth.case, ratings.of_lesion
        weight = truth.weights if figure in ("wafroc", "wafroc1") else np.ones(positive.size)
    everyone = figure in ("wafroc1", "afroc1")
    negative = np.arange(truth.n_cases) if everyone else np.flatnonzero(~has_lesion)
    return MannWhitneyInputs(
        positive=np.arange(positive.size + negative.size) < positive.size,
        score=np.concatenate([above, ratings.false[negative]]),
        weight=np.concatenate([weight, np.ones(negative.size)]),
        cluster=cluster[np.concatenate([positive, negative])].astype(np.int64),
    )


def figure_sums(
    figure: Figure,
    truth: LesionTruth,
    marks: Marks | Ratings,
    *,
    cluster_of_case: npt.ArrayLike | None = None,
    n_clusters: int | None = None,
) -> PairSums:
    """Compute a figure of merit with its structural components per case, or per patient.

    `PairSums.without_each` is the figure without each case (the jackknife of an MRMC analysis),
    `PairSums.components` gives the clustered variance and, by subtraction, that of a difference.

    Args:
        figure: One of `FIGURES`.
        truth: The cases and their lesions.
        marks: The marks of one reader, or their ratings where several figures are computed of them.
        cluster_of_case: The number of each case's patient; None where each case is a cluster of its own.
        n_clusters: How many patients there are; None for the largest number + 1.

    Returns:
        The sums; their `value` is NaN where the figure has no positive or no negative item.

    Raises:
        ValueError: The marks do not belong to the cases, or there is no such figure.

    Example:
        >>> truth = LesionTruth(n_cases=3, case=np.array([0, 0]))
        >>> marks = Marks(case=np.array([0, 1]), score=np.array([0.8, 0.5]), lesion=np.array([0, -1]))
        >>> figure_sums("wafroc", truth, marks).value
        0.625
    """
    ratings = marks if isinstance(marks, Ratings) else ratings_of(truth, marks)
    inputs = figure_inputs(figure, truth, ratings, cluster_of_case=cluster_of_case)
    if n_clusters is None:
        n_clusters = (
            truth.n_cases if cluster_of_case is None else int(np.max(cluster_of_case, initial=-1)) + 1
        )
    return pair_sums(inputs, n_clusters=n_clusters)


def figure_of_merit(figure: Figure, truth: LesionTruth, marks: Marks | Ratings) -> float:
    """Compute a figure of merit.

    Args:
        figure: One of `FIGURES`.
        truth: The cases and their lesions.
        marks: The marks of one reader, or their ratings.

    Returns:
        The value, 0 to 1; NaN where the figure has no positive or no negative item.

    Example:
        >>> truth = LesionTruth(n_cases=2, case=np.array([0]))
        >>> none = Marks(case=np.array([], int), score=np.array([]), lesion=np.array([], int))
        >>> figure_of_merit("afroc", truth, none)
        0.5
    """
    return figure_sums(figure, truth, marks).value


@dataclass(frozen=True, kw_only=True)
class MarkFractions:
    """Where the curves of a reader end: at the rating of the least suspicious mark.

    Args:
        max_llf: Lesions with a mark / lesions; NaN without a lesion.
        max_nlf: Non-lesion marks / cases; NaN without a case.
    """

    max_llf: float
    max_nlf: float


def mark_fractions(truth: LesionTruth, marks: Marks | Ratings) -> MarkFractions:
    """Compute the maximal lesion localisation fraction and the maximal non-lesion localisation fraction.

    Args:
        truth: The cases and their lesions.
        marks: The marks of one reader, or their ratings.

    Returns:
        Both fractions, over all cases.

    Example:
        >>> truth = LesionTruth(n_cases=2, case=np.array([0, 0]))
        >>> marks = Marks(case=np.array([0, 1]), score=np.array([0.8, 0.5]), lesion=np.array([1, -1]))
        >>> mark_fractions(truth, marks)
        MarkFractions(max_llf=0.5, max_nlf=0.5)
    """
    ratings = marks if isinstance(marks, Ratings) else ratings_of(truth, marks)
    marked = np.isfinite(ratings.of_lesion)
    return MarkFractions(
        max_llf=float(marked.mean()) if marked.size else np.nan,
        max_nlf=float(ratings.n_false.mean()) if truth.n_cases else np.nan,
    )
