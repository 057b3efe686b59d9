"""Scores with their clusters and evaluator, ready for statistics, for commands and studies alike (ST-01)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.protocols import Protocol
from elsewhere.scoring.composite import with_extra_metrics
from elsewhere.scoring.task import ScoreOptions, Scores, Task, main_metric, tasks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.disparity import Disparity

WITHOUT_SCORE = ("missing", "invalid", "not_analysable")
"""The statuses of a case that has no usable score."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The scores of a task with their clusters and evaluator; one partition serves everything (ST-01).

    Args:
        task: The task.
        scores: The scores.
        partition: The clusters that are resampled.
        evaluator: The metrics under weights of the clusters.
        options: The options of scoring.
    """

    task: Task
    scores: Scores
    partition: Clusters
    evaluator: Evaluator
    options: ScoreOptions

    def evaluator_over(self, partition: Clusters) -> Evaluator:
        """Evaluate the same metrics of the same cases over other clusters.

        Args:
            partition: Another partition of these cases.

        Returns:
            The evaluator, with the metrics of other packages.
        """
        made = self.task.evaluator(self.scores, partition, self.options)
        return with_extra_metrics(made, self.scores, self.task.name)


def prepare(scores: Scores, options: ScoreOptions) -> Prepared:
    """Make clusters and evaluator from a table of scores, with the metrics that other packages bring.

    Args:
        scores: The scores.
        options: The options of scoring; `resample` names the clusters.

    Returns:
        The scores with their clusters and evaluator.

    Raises:
        UserError: The task has no such resampling unit, or the prediction is constant and the protocol calls
            that invalid.
    """
    task = tasks.get(scores.task)
    partition = resampled_units(task, scores, options)
    made = task.evaluator(scores, partition, options)
    if getattr(made, "invalid", False):
        raise UserError(
            f"a constant prediction: every patient gets the same decision, which {scores.protocol.name} "
            "calls invalid",
            fix="Check the predictions and their scale. They are scored as they are with --protocol plain.",
        )
    evaluator = with_extra_metrics(made, scores, task.name)
    return Prepared(task=task, scores=scores, partition=partition, evaluator=evaluator, options=options)


def resampled_units(task: Task, scores: Scores, options: ScoreOptions) -> Clusters:
    """Make the clusters that are resampled: patients (ST-01), or another unit where the task has one.

    Args:
        task: The task.
        scores: The scores.
        options: The options of scoring; `resample` names the unit.

    Returns:
        The clusters.

    Raises:
        UserError: The task has no such unit.
    """
    if options.resample not in task.resampling_units:
        raise UserError(
            f"--resample {options.resample} is not for {task.name}",
            fix=f"For {task.name}: {' or '.join(task.resampling_units)}.",
        )
    return task.resampled(scores, options.resample)


def primary_metric(evaluator: Evaluator, protocol: Protocol) -> str:
    """Choose the metric that leads a report: the protocol's headline, else the task's primary metric.

    Args:
        evaluator: The metrics of the task.
        protocol: The rules.

    Returns:
        The name of the metric.
    """
    return main_metric(evaluator.specs, protocol)


def answered_cases(scores: Scores) -> npt.NDArray[np.bool_]:
    """Mark the cases with a usable score; the others count as the worst value (ST-14).

    Args:
        scores: The scores.

    Returns:
        True for each case with a usable score.
    """
    if "status" not in scores.cases.columns:
        return np.ones(len(scores.cases), dtype=bool)
    return ~scores.cases["status"].isin(WITHOUT_SCORE).to_numpy(dtype=bool)


def truth_of(scores: Scores) -> npt.NDArray[np.float64] | None:
    """Look up the outcome of each case.

    Args:
        scores: The scores.

    Returns:
        0 or 1 for each case; None where the task does not have two classes.
    """
    return tasks.get(scores.task).truth(scores)


def binary_part(evaluator: Evaluator) -> Any:
    """Return the evaluator of probabilities inside one that adds to it (metrics of other packages, fairness).

    Args:
        evaluator: The evaluator of a task with two classes.

    Returns:
        The `BinaryEvaluator`; `evaluator` itself where it contains no other.
    """
    base: Any = getattr(evaluator, "base", evaluator)
    return getattr(base, "binary", base)


def fairness_disparity(scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
    """Choose what is compared between groups of patients, as the task declares it.

    Args:
        scores: The scores.
        evaluator: Their metrics.
        headline: The name of the metric that leads the report.

    Returns:
        The disparity.
    """
    return tasks.get(scores.task).disparity(scores, evaluator, headline=headline)
