"""What is compared over groups: some metrics of any evaluator, or the rates of equalised odds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.group_scores import EqualisedOdds, spread

FloatArray = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint16]
GROUPS_NEEDED = 2
"""A gap lies between two groups; fewer have none."""


@dataclass(frozen=True)
class Disparity:
    """What is compared over groups: values (rows, metrics) under patient weights, and how ranges combine.

    A group's *score* is the mean over metrics of the value (or of 1 - value where lower is better): with Dice
    and NormHD the group's performance, with TPR and FPR its balanced accuracy.

    Args:
        name: Name of the disparity in reports.
        metrics: Names of the metrics.
        evaluate: Gives the metrics of all cases under patient weights, (rows, metrics).
        better: For each metric +1 where higher is better, -1 where lower is, 0 where neither.
        subset: Makes the same function for some of the cases, by a mask.
        how: How the ranges of several metrics combine: `mean` (MRI-04), or `sum` (MRI-05: TPR range + FPR
            range).
        within_class: Whether permutations stay inside the outcome class, as equalised odds asks.
        widest: The largest difference that each metric can have; empty where that is not known.
        trials: Gives the denominators of a group's rates, by a mask of its cases; None where the metrics are
            not rates.
    """

    name: str
    metrics: tuple[str, ...]
    evaluate: Callable[[Weights], FloatArray]
    better: tuple[int, ...]
    subset: Callable[[npt.NDArray[np.bool_]], Callable[[Weights], FloatArray]]
    how: str = "mean"
    within_class: bool = False
    widest: tuple[float, ...] = ()
    trials: Callable[[npt.NDArray[np.bool_]], FloatArray] | None = None

    @classmethod
    def of_metrics(
        cls,
        evaluator: Evaluator,
        metrics: Sequence[str],
        *,
        name: str | None = None,
        how: str = "mean",
        within_class: bool | None = None,
    ) -> Disparity:
        """Measure the disparity of metrics of any evaluator.

        Args:
            evaluator: The metrics of the cases.
            metrics: Names of the metrics that are compared.
            name: Name in reports; None for the names of the metrics joined by `+`.
            how: How ranges of several metrics combine: `mean` or `sum`.
            within_class: Whether attributes are permuted within a class; None for what the metrics' own
                resampling asks.

        Returns:
            The disparity.
        """
        columns = [evaluator.index(m) for m in metrics]
        specs = [evaluator.specs[c] for c in columns]
        inside = any(s.stratify_by_class for s in specs) if within_class is None else within_class

        def pick(source: Evaluator) -> Callable[[Weights], FloatArray]:
            return lambda weights: source.evaluate(weights)[:, columns]

        return cls(
            name=name or "+".join(metrics),
            metrics=tuple(metrics),
            evaluate=pick(evaluator),
            better=tuple(1 if s.higher_is_better else -1 for s in specs),
            subset=lambda mask: pick(evaluator.subset(mask)),
            how=how,
            within_class=inside,
            widest=tuple(s.upper_bound - s.lower_bound for s in specs),
        )

    @classmethod
    def equalised_odds(
        cls,
        cluster_of_case: npt.NDArray[np.int32],
        truth: npt.ArrayLike,
        decision: npt.ArrayLike,
        *,
        n_clusters: int,
        rules: FairnessRules | None = None,
    ) -> Disparity:
        """Measure equalised odds, with the protocol's own rules for groups of one class (MRI-05).

        Args:
            cluster_of_case: The number of the patient of each case.
            truth: The outcome of each case.
            decision: The decision on each case.
            n_clusters: How many patients there are.
            rules: The protocol's rules.

        Returns:
            The disparity.
        """
        truth_value, decided = np.asarray(truth, dtype=np.float64), np.asarray(decision, dtype=np.float64)
        zeros = np.zeros(truth_value.size, dtype=np.int16)

        def rates(mask: npt.NDArray[np.bool_] | None) -> Callable[[Weights], FloatArray]:
            one_group = zeros if mask is None else np.where(mask, 0, -1)
            if not (one_group >= 0).any():
                return lambda weights: np.full((len(weights), 2), np.nan)
            odds = EqualisedOdds(
                cluster_of_case, truth_value, decided, [one_group], n_clusters=n_clusters, rules=rules
            )
            return lambda weights: np.concatenate(odds.rates(weights)[0], axis=1)

        usable = np.isfinite(truth_value) & np.isfinite(decided)

        def of_class(mask: npt.NDArray[np.bool_]) -> FloatArray:
            judged = truth_value[mask & usable] > 0
            return np.array([judged.sum(), (~judged).sum()], dtype=np.float64)

        return cls(
            name="equalised_odds",
            metrics=("tpr", "fpr"),
            evaluate=rates(None),
            better=(1, -1),
            subset=rates,
            how="sum",
            within_class=True,
            widest=(1.0, 1.0),
            trials=of_class,
        )

    @classmethod
    def over_seeds(cls, members: Sequence[Disparity]) -> Disparity:
        """Average the disparities of several trainings of one method (US-20).

        A group's value is the mean over the trainings, under every weight. So the gap is a range of means;
        the mean of the ranges would grow with what one training alone does.

        Args:
            members: The disparity of each training.

        Returns:
            The disparity of the mean.
        """
        first = members[0]
        if len(members) == 1:
            return first

        def mean(parts: Sequence[Callable[[Weights], FloatArray]]) -> Callable[[Weights], FloatArray]:
            return lambda weights: np.mean([part(weights) for part in parts], axis=0)

        return replace(
            first,
            evaluate=mean([member.evaluate for member in members]),
            subset=lambda mask: mean([member.subset(mask) for member in members]),
        )

    def gap(self, values: FloatArray) -> FloatArray:
        """Compute gaps from values of groups.

        A range needs two groups: with one it would be 0, and every permutation's too, so that the test would
        call a variable fair (p = 1) that says nothing (ST-08a). So NaN where any metric has fewer.

        Args:
            values: The values, (..., groups, metrics).

        Returns:
            The ranges over the estimable groups, combined over metrics, (...).
        """
        ranges = spread(values, -2, fewest=GROUPS_NEEDED)
        total: FloatArray = ranges.sum(axis=-1)
        return total / len(self.metrics) if self.how == "mean" else total

    def score(self, values: FloatArray) -> FloatArray:
        """Compute the scores of groups.

        Args:
            values: The values, (..., groups, metrics).

        Returns:
            (..., groups); higher is better, but a single metric keeps its own value.
        """
        if len(self.metrics) == 1:
            return values[..., 0]
        turned = np.where(np.asarray(self.better) < 0, 1.0 - values, values)
        score: FloatArray = turned.mean(axis=-1)
        return score

    @property
    def score_is_better_high(self) -> bool:
        """Whether a higher score of a group is better."""
        return len(self.metrics) > 1 or self.better[0] >= 0
