"""An evaluator with the metrics of other packages besides its own: ratios of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.statistics.accumulators import cluster_sums, weigh_sums
from elsewhere.statistics.evaluator import ClosedForm, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import MetricSpec

if TYPE_CHECKING:
    from elsewhere.scoring.task import Scores, Task


@dataclass(frozen=True, kw_only=True)
class ExtraMetric:
    """A metric of the value sum(numerator) / sum(denominator); an undefined case has 0 in both.

    Args:
        spec: The declared properties of the metric.
        numerator: One value per case.
        denominator: One value per case, 0 or more.
        undefined: True for the cases without a value, which are counted.
    """

    spec: MetricSpec
    numerator: FloatArray
    denominator: FloatArray
    undefined: npt.NDArray[np.bool_]

    def take(self, mask: npt.NDArray[np.bool_]) -> ExtraMetric:
        """Take some of the cases.

        Args:
            mask: True for the cases to keep.

        Returns:
            The same metric over these cases.
        """
        return ExtraMetric(
            spec=self.spec,
            numerator=self.numerator[mask],
            denominator=self.denominator[mask],
            undefined=self.undefined[mask],
        )

    def join(self, other: ExtraMetric) -> ExtraMetric:
        """Join the cases of two models.

        Args:
            other: The same metric of the other model.

        Returns:
            The metric over both models' cases, those of this one first.
        """
        return ExtraMetric(
            spec=self.spec,
            numerator=np.concatenate([self.numerator, other.numerator]),
            denominator=np.concatenate([self.denominator, other.denominator]),
            undefined=np.concatenate([self.undefined, other.undefined]),
        )


class CompositeEvaluator(Evaluator):
    """An evaluator with further metrics: those of `base` first, then `extra`.

    Args:
        base: The evaluator of the task.
        extra: The further metrics, over the same cases.
    """

    def __init__(self, base: Evaluator, extra: Sequence[ExtraMetric]) -> None:
        self.base, self.extra = base, tuple(extra)
        self.specs = (*base.specs, *(metric.spec for metric in self.extra))
        self.cluster_of_case, self.n_clusters = base.cluster_of_case, base.n_clusters
        columns = [column for metric in self.extra for column in (metric.numerator, metric.denominator)]
        self._sums = cluster_sums(
            self.cluster_of_case,
            self.n_clusters,
            np.stack(columns, axis=1) if columns else np.zeros((base.n_cases, 0)),
        )

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        sums = weigh_sums(weights, self._sums)
        numerator, denominator = sums[:, 0::2], sums[:, 1::2]
        values = np.full(numerator.shape, np.nan)
        np.divide(numerator, denominator, out=values, where=denominator > 0)
        return np.concatenate([self.base.evaluate(weights), values], axis=1)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> CompositeEvaluator:
        return CompositeEvaluator(
            self.base.subset(case_mask), [metric.take(case_mask) for metric in self.extra]
        )

    def stack(self, other: Evaluator) -> CompositeEvaluator:
        if not isinstance(other, CompositeEvaluator) or [m.spec.name for m in self.extra] != [
            m.spec.name for m in other.extra
        ]:
            raise TypeError("two models are stacked only when both were judged by the same metrics")
        joined = [a.join(b) for a, b in zip(self.extra, other.extra, strict=True)]
        return CompositeEvaluator(self.base.stack(other.base), joined)

    def ranked(self) -> CompositeEvaluator:
        return CompositeEvaluator(self.base.ranked(), self.extra)

    def _own(self, metric: str) -> ExtraMetric | None:
        return next((own for own in self.extra if own.spec.name == metric), None)

    def closed_form(self, metric: str) -> ClosedForm | None:
        own = self._own(metric)
        if own is None:
            return self.base.closed_form(metric)
        return RatioInputs(own.numerator, own.denominator)

    def undefined_reasons(self) -> dict[str, str]:
        reasons = self.base.undefined_reasons()
        for own in self.extra:
            if not own.denominator.sum() > 0:
                reasons[own.spec.name] = "no case has a value of it"
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        counts = self.base.case_counts()
        for own in self.extra:
            undefined = int(own.undefined.sum())
            counts[own.spec.name] = (own.undefined.size - undefined, undefined)
        return counts


def with_extra_metrics(evaluator: Evaluator, scores: Scores, task: Task | str) -> Evaluator:
    """Append the registered metrics of other packages to the evaluator of a task.

    Args:
        evaluator: The evaluator of the task.
        scores: The scores, from which the metrics are computed.
        task: The task, or its name.

    Returns:
        The evaluator with these metrics; `evaluator` itself where there are none for this task.

    Raises:
        UserError: A metric has the name of one of the task's own, or does not give valid inputs.
    """
    from elsewhere.scoring import metrics as plug_ins

    name = task if isinstance(task, str) else task.name
    found: list[ExtraMetric] = []
    have = {spec.name for spec in evaluator.specs}
    for _, metric in plug_ins.metrics:
        if not metric.serves(name):
            continue
        if metric.spec.name in have:
            raise UserError(
                f"the metric '{metric.spec.name}' is one of {name}'s own",
                where=plug_ins.metrics.owner(metric.spec.name),
                fix="Rename it, or uninstall the package that brings it.",
            )
        found.append(plug_ins.evaluate_case_metric(metric, scores.cases))
    return CompositeEvaluator(evaluator, found) if found else evaluator
