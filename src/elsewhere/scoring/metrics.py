"""Metrics that other packages bring: a function of the scores table, by decorator or entry point.

Such a metric gives one numerator and one denominator per case; its value is the ratio of their sums. That is
enough for every mean and proportion, and it is all that intervals, groups, sites and paired tests need:
the metric takes part in them without any code of its own.

    @case_metric(MetricSpec(name="mean_probability", ...), tasks=("classification",))
    def mean_probability(cases: pd.DataFrame) -> RatioInputs:
        return RatioInputs(cases["probability"].to_numpy(), np.ones(len(cases)))

and in the package's pyproject.toml

    [project.entry-points."elsewhere.metrics"]
    mean_probability = "my_package:mean_probability"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import protocols
from elsewhere.registry import Registry, object_of
from elsewhere.scoring.composite import ExtraMetric, with_extra_metrics
from elsewhere.statistics.evaluator import RatioInputs
from elsewhere.statistics.metric import MetricSpec

__all__ = ["CaseMetric", "case_metric", "evaluate_case_metric", "metrics", "with_extra_metrics"]

EVERY_TASK = "*"
PerCase = Callable[[pd.DataFrame], RatioInputs]


@dataclass(frozen=True, kw_only=True)
class CaseMetric:
    """A metric of another package: a ratio of sums over cases.

    Args:
        spec: The declared properties of the metric.
        tasks: Names of the tasks that it is computed for; '*' is every task.
        per_case: Takes the scores table and returns a numerator and a denominator per case; NaN is undefined.
    """

    spec: MetricSpec
    tasks: tuple[str, ...]
    per_case: PerCase

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.spec.name

    def serves(self, task: str) -> bool:
        """Check whether the metric is computed for a task.

        Args:
            task: The name of the task.

        Returns:
            True where it is.
        """
        return task in self.tasks or EVERY_TASK in self.tasks


metrics: Registry[CaseMetric] = Registry(
    "metric", group="elsewhere.metrics", list_command="elsewhere metrics", check=object_of(CaseMetric)
)


def case_metric(spec: MetricSpec, *, tasks: Sequence[str]) -> Callable[[PerCase], CaseMetric]:
    """Turn the decorated function into a `CaseMetric`, and register it under the name of the specification.

    Args:
        spec: The declared properties of the metric.
        tasks: Names of the tasks that it is computed for; '*' is every task.

    Returns:
        The decorator.
    """

    def keep(per_case: PerCase) -> CaseMetric:
        metric = CaseMetric(spec=spec, tasks=tuple(tasks), per_case=per_case)
        # the registry names an owner by these two, so that a collision shows whose function it was
        object.__setattr__(metric, "__module__", per_case.__module__)
        object.__setattr__(metric, "__qualname__", per_case.__qualname__)
        metrics.add(spec.name, metric)
        return metric

    return keep


def metric_label(name: str) -> str | None:
    """Find what a metric is called, where only its name is at hand.

    Args:
        name: The name of a metric of any task, or of another package.

    Returns:
        The label that its `MetricSpec` declares, without what a protocol adds in brackets; None where no
        installed package declares such a metric.

    Example:
        >>> metric_label("auroc"), metric_label("norm_hd")
        ('AUROC', 'Normalised Hausdorff distance')
    """
    from elsewhere.scoring.task import tasks

    for _, task in tasks:
        for spec in task.metrics(protocols.get(task.default_protocol)):
            if spec.name == name:
                return spec.label.split(" (")[0]
    return metrics.get(name).spec.label if name in metrics else None


def evaluate_case_metric(metric: CaseMetric, cases: pd.DataFrame) -> ExtraMetric:
    """Compute the inputs of a metric and check them: one per case, finite, no negative denominator.

    Args:
        metric: The metric.
        cases: The scores table.

    Returns:
        The metric over these cases.

    Raises:
        UserError: The function returned something else.
    """
    inputs = metric.per_case(cases)
    if not isinstance(inputs, RatioInputs):
        raise UserError(
            f"the metric '{metric.name}' gave {type(inputs).__name__}, not RatioInputs",
            where=metrics.owner(metric.name) if metric.name in metrics else None,
            fix="Tell its authors, or uninstall the package that brings it.",
        )
    numerator = np.array(inputs.numerator, dtype=np.float64)
    denominator = np.array(inputs.denominator, dtype=np.float64)
    if numerator.shape != (len(cases),) or denominator.shape != (len(cases),) or (denominator < 0).any():
        raise UserError(
            f"the metric '{metric.name}' gave {numerator.size} numerators, {denominator.size} denominators "
            f"for {len(cases)} cases, or a negative denominator",
            where=metrics.owner(metric.name) if metric.name in metrics else None,
            fix="Tell its authors, or uninstall the package that brings it.",
        )
    undefined = ~np.isfinite(numerator) | ~np.isfinite(denominator)
    numerator[undefined] = 0.0
    denominator[undefined] = 0.0
    return ExtraMetric(spec=metric.spec, numerator=numerator, denominator=denominator, undefined=undefined)
