"""Random ensembles of the same size: what the choice of members is compared with (LN-16).

An ensemble of k members is compared with random sets of k of all models: with each of them where there are at most as
many as were asked for, otherwise with random ones. Members that were chosen on other patients are two sets, one for each
half of the patients; there, the models' names are exchanged at random in both sets at once, which keeps how many members
the sets share. Every random ensemble votes by the same rule, on the same slides and folds, and is staged likewise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.analysis.slide_ensembles.rates import N_STAGES, NULL_RATES, rates_of
from elsewhere.ensembles.cell_votes import WordArray, member_words

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class NullSets:
    """The random ensembles that one ensemble is compared with.

    Attributes:
        words: One word of members per random ensemble, for each part of the slides.
        slides: The slides of each part.
        exact: Whether these are all ensembles of this size.
    """

    words: tuple[WordArray, ...]
    slides: tuple[BoolArray, ...]
    exact: bool


def random_sets(
    members: Sequence[Sequence[int]],
    slides: Sequence[BoolArray],
    models: int,
    *,
    count: int,
    rng: np.random.Generator,
) -> NullSets:
    """Draw the random ensembles of one row.

    Args:
        members: The members for each part of the slides.
        slides: The slides of each part.
        models: How many models there are.
        count: How many ensembles are drawn, unless there are fewer.
        rng: The generator of the draw.

    Returns:
        The ensembles.

    Example:
        >>> made = random_sets([[0, 1]], [np.array([True])], 4, count=1000, rng=np.random.default_rng(0))
        >>> made.exact, made.words[0].tolist()
        (True, [3, 5, 9, 6, 10, 12])
    """
    if len(members) == 1 and math.comb(models, len(members[0])) <= count:
        every = list(itertools.combinations(range(models), len(members[0])))
        return NullSets(words=(member_words(every),), slides=tuple(slides), exact=True)
    renamed = rng.permuted(np.tile(np.arange(models), (count, 1)), axis=1)
    words = tuple(member_words([row[list(mine)].tolist() for row in renamed]) for mine in members)
    return NullSets(words=words, slides=tuple(slides), exact=False)


class NullCounts:
    """The stages and sums of random ensembles, added up slide by slide.

    Args:
        size: How many random ensembles there are.
        folds: How many folds there are.
    """

    def __init__(self, size: int, folds: int) -> None:
        self._stages = np.zeros((size, folds, N_STAGES, N_STAGES), dtype=np.int32)
        self._sums = np.zeros((2, 2, size, folds))

    def add(
        self,
        fold: int,
        truth: int,
        stage: npt.NDArray[np.int8],
        dice: FloatArray | None,
        fpr: FloatArray | None,
    ) -> None:
        """Take one slide.

        Args:
            fold: The number of the fold.
            truth: The code of the true stage; -1 where it is not known.
            stage: What each ensemble says.
            dice: The Dice of each; None for a slide without tumour.
            fpr: The false-positive rate of each; None for a slide with tumour.
        """
        if truth >= 0:
            self._stages[np.arange(stage.size), fold, truth, stage] += 1
        for k, values in enumerate((dice, fpr)):
            if values is not None:
                self._sums[k, 0, :, fold] += values
                self._sums[k, 1, :, fold] += 1

    def rates(self) -> dict[str, FloatArray]:
        """Average the rates over the folds.

        Returns:
            One value per random ensemble, by rate; NaN where it is undefined.
        """
        made = rates_of(self._stages.astype(np.float64))
        with np.errstate(invalid="ignore", divide="ignore"):
            made["dice"], made["fpr"] = (part[0] / part[1] for part in self._sums)
        return {name: made[name].mean(axis=1) for name in NULL_RATES}


def share_as_good(value: float, null: FloatArray, *, higher_is_better: bool, exact: bool) -> float | None:
    """Compute the share of random ensembles that are at least as good.

    Args:
        value: The value of the ensemble.
        null: Those of the random ones.
        higher_is_better: Whether a higher value is better.
        exact: Whether the random ones are all of this size, the ensemble among them.

    Returns:
        The share, counting the ensemble itself; None where a value is undefined.

    Example:
        >>> share_as_good(0.8, np.array([0.5, 0.8, 0.9]), higher_is_better=True, exact=False)
        0.75
    """
    if not math.isfinite(value) or not np.isfinite(null).all():
        return None
    good = null >= value - 1e-12 if higher_is_better else null <= value + 1e-12
    count = int(np.count_nonzero(good))
    return count / null.size if exact else (count + 1) / (null.size + 1)
