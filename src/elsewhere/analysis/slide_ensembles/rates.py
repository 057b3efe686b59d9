"""Rates of slides from stages and pixel counts: per fold, mean and SD over the folds, intervals by patient (LN-15, LN-16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.predictions.stages import STAGES
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.evaluator import class_averages
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import Clusters

FloatArray = npt.NDArray[np.float64]
ITC_RULES = ("negative", "left-out")
N_STAGES = len(STAGES)
NEGATIVE, ITC, MICRO, MACRO = range(N_STAGES)
_POSITIVE = np.array([False, False, True, True])


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A rate of slides.

    Attributes:
        name: Its name.
        label: What a table calls it.
        itc: How slides with isolated tumour cells alone count; empty where that does not matter.
        higher_is_better: Whether a higher value is better.
    """

    name: str
    label: str
    itc: str = ""
    higher_is_better: bool = True


_OF_STAGES = (
    ("sensitivity", "Sensitivity", "sensitivity"),
    ("specificity", "Specificity", "specificity"),
    ("recall_mean", "Recall, mean of both classes", "recall_mean"),
    ("precision_mean", "Precision, mean of both classes", "precision_mean"),
    ("f1_mean", "F1, mean of both classes", "f1_mean"),
)
RATES: tuple[Rate, ...] = (
    Rate(name="dice", label="Dice, slides with tumour"),
    Rate(name="fpr", label="False-positive rate, negative slides", higher_is_better=False),
    Rate(name="fpr_tissue", label="False-positive rate over tissue", higher_is_better=False),
    Rate(name="stage_accuracy", label="Stage accuracy"),
    *(
        Rate(name=f"{name}_{itc.replace('-', '_')}", label=label, itc=itc)
        for itc in ITC_RULES
        for name, label, _ in _OF_STAGES
    ),
)
RATE_NAMES = tuple(rate.name for rate in RATES)
NULL_RATES = (
    "dice",
    "fpr",
    "recall_mean_negative",
    "f1_mean_negative",
    "recall_mean_left_out",
    "f1_mean_left_out",
)
"""The rates in which ensembles are compared with random ones."""


def stage_codes(objects: npt.NDArray[np.int64], axis_mm: FloatArray) -> npt.NDArray[np.int8]:
    """Stage masks by the longest axis of their objects (LN-14).

    Args:
        objects: How many objects each mask has.
        axis_mm: The longest major axis.

    Returns:
        0 negative, 1 ITC, 2 micro, 3 macro.

    Example:
        >>> stage_codes(np.array([0, 1, 1, 2]), np.array([0.0, 0.1, 0.5, 2.5])).tolist()
        [0, 1, 2, 3]
    """
    rules = SlideRules()
    found = np.select([axis_mm > rules.macro_above_mm, axis_mm > rules.micro_above_mm], [MACRO, MICRO], ITC)
    return np.asarray(np.where(objects == 0, NEGATIVE, found), dtype=np.int8)


def worst_code(truth: int) -> int:
    """Return the worst stage for a slide: a positive one is missed, any other one called macro (ST-14).

    Args:
        truth: The code of the true stage.

    Returns:
        The code of the answer.

    Example:
        >>> worst_code(MACRO) == NEGATIVE, worst_code(ITC) == MACRO
        (True, True)
    """
    return NEGATIVE if truth in (MICRO, MACRO) else MACRO


def rates_of(confusion: FloatArray) -> dict[str, FloatArray]:
    """Compute all rates that follow from stages.

    Args:
        confusion: Slides by true and said stage in the last two axes.

    Returns:
        The rates by name; NaN where a denominator is 0.

    Example:
        >>> table = np.diag([4.0, 0, 2, 3]); table[0, 3] = 1
        >>> {name: round(float(v), 2) for name, v in rates_of(table).items() if name.endswith("_negative")}["specificity_negative"]
        0.8
    """
    out: dict[str, FloatArray] = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        out["stage_accuracy"] = np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))
    for itc in ITC_RULES:
        negative = ~_POSITIVE & (np.arange(N_STAGES) != ITC if itc == "left-out" else True)
        found = class_averages(
            confusion[..., _POSITIVE, :][..., _POSITIVE].sum(axis=(-2, -1)),
            confusion[..., _POSITIVE, :][..., ~_POSITIVE].sum(axis=(-2, -1)),
            confusion[..., negative, :][..., _POSITIVE].sum(axis=(-2, -1)),
            confusion[..., negative, :][..., ~_POSITIVE].sum(axis=(-2, -1)),
        )
        for name, _, key in _OF_STAGES:
            out[f"{name}_{itc.replace('-', '_')}"] = found[key]
    return out


def two_class(confusion: FloatArray, itc: str) -> FloatArray:
    """Reduce a four-class confusion matrix to negative and positive slides (LN-15).

    Args:
        confusion: Slides by true and said stage.
        itc: Whether slides with isolated tumour cells alone count as 'negative' or are 'left-out'.

    Returns:
        Rows truth, columns answer; negative before positive.

    Example:
        >>> two_class(np.ones((4, 4)), "left-out").tolist()
        [[2.0, 2.0], [4.0, 4.0]]
    """
    rows = [[NEGATIVE] if itc == "left-out" else [NEGATIVE, ITC], [MICRO, MACRO]]
    return np.array(
        [
            [confusion[np.ix_(truth, said)].sum() for said in ([NEGATIVE, ITC], [MICRO, MACRO])]
            for truth in rows
        ]
    )


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What each variant (a model or an ensemble) says of each slide.

    Attributes:
        truth: The code of the true stage of each slide; -1 where it is not known.
        stage: The code of the stage that is said, (variants, folds, slides).
        dice: Dice of slides with tumour in their truth mask, alike; NaN elsewhere.
        fpr: The false-positive rate of slides without tumour over all cells, alike.
        fpr_tissue: The same over cells of tissue.
    """

    truth: npt.NDArray[np.int8]
    stage: npt.NDArray[np.int8]
    dice: FloatArray
    fpr: FloatArray
    fpr_tissue: FloatArray

    def joined(self, first: int, second: int, use_second: npt.NDArray[np.bool_]) -> Outcomes:
        """Take some slides from one variant and the others from another one.

        Args:
            first: The number of the one.
            second: The number of the other.
            use_second: Slides that are taken from the other.

        Returns:
            One variant.
        """

        def of(values: Any) -> Any:
            return np.where(use_second, values[second], values[first])[None]

        return Outcomes(
            truth=self.truth,
            stage=of(self.stage),
            dice=of(self.dice),
            fpr=of(self.fpr),
            fpr_tissue=of(self.fpr_tissue),
        )

    def confusion(self) -> FloatArray:
        """Count slides by true and said stage.

        Returns:
            (variants, folds, true stages, said stages).
        """
        known = self.truth >= 0
        out = np.zeros((*self.stage.shape[:2], N_STAGES, N_STAGES))
        for truth in range(N_STAGES):
            mine = self.stage[:, :, known & (self.truth == truth)]
            for said in range(N_STAGES):
                out[:, :, truth, said] = (mine == said).sum(axis=2)
        return out

    def by_fold(self) -> dict[str, FloatArray]:
        """Compute every rate of every variant and fold.

        Returns:
            (variants, folds) by name; NaN where a rate is undefined.
        """
        made = rates_of(self.confusion())
        for name in ("dice", "fpr", "fpr_tissue"):
            values = getattr(self, name)
            n = np.isfinite(values).sum(axis=2)
            with np.errstate(invalid="ignore", divide="ignore"):
                made[name] = np.where(n > 0, np.nansum(values, axis=2) / n, np.nan)
        return made

    def resampled(self, clusters: Clusters, *, key: str, seed: int, resamples: int) -> dict[str, FloatArray]:
        """Draw patients, within positive and other ones, and compute the average of every rate over the folds.

        Args:
            clusters: The patient of each slide.
            key: Names the stream of random numbers.
            seed: The seed.
            resamples: How many.

        Returns:
            (resamples, variants) by name.
        """
        stream = WeightStream(clusters, key=key, seed=seed, resamples=resamples, by_site=False, by_class=True)
        patient, people = clusters.cluster_of_case, clusters.n_clusters
        variants, folds = self.stage.shape[:2]
        known = np.flatnonzero(self.truth >= 0)
        cells = np.zeros((variants, folds, people, N_STAGES * N_STAGES))
        for v in range(variants):
            for f in range(folds):
                code = self.truth[known].astype(np.int64) * N_STAGES + self.stage[v, f, known]
                np.add.at(cells[v, f], (patient[known], code), 1.0)
        sums = {}
        for name in ("dice", "fpr", "fpr_tissue"):
            values = getattr(self, name)
            total = np.zeros((2, variants, folds, people))
            at = np.broadcast_to(patient, values.shape)
            index = np.indices(values.shape[:2]).reshape(2, *values.shape[:2], 1)
            np.add.at(total[0], (index[0], index[1], at), np.nan_to_num(values))
            np.add.at(total[1], (index[0], index[1], at), np.isfinite(values).astype(float))
            sums[name] = total
        out: dict[str, list[FloatArray]] = {name: [] for name in RATE_NAMES}
        for _, weights in stream:
            w = weights.astype(np.float64)
            table = np.einsum("rp,vfpc->rvfc", w, cells, optimize=True)
            made = rates_of(table.reshape(*table.shape[:3], N_STAGES, N_STAGES))
            for name, total in sums.items():
                top, n = (np.einsum("rp,vfp->rvf", w, part, optimize=True) for part in total)
                with np.errstate(invalid="ignore", divide="ignore"):
                    made[name] = top / n
            for name in RATE_NAMES:
                out[name].append(made[name].mean(axis=2))
        return {
            name: np.concatenate(parts) if parts else np.zeros((0, variants)) for name, parts in out.items()
        }
