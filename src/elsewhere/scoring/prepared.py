"""Scores made ready for statistics: one partition and one evaluator, for commands and studies alike (ST-01)."""

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
    """A task's scores made ready for statistics; one partition serves everything (ST-01)."""

    task: Task
    scores: Scores
    partition: Clusters
    evaluator: Evaluator
    options: ScoreOptions

    def evaluator_over(self, partition: Clusters) -> Evaluator:
        """The same metrics of the same cases, with patients numbered by another partition of these cases."""
        made = self.task.evaluator(self.scores, partition, self.options)
        return with_extra_metrics(made, self.scores, self.task.name)


def prepare(scores: Scores, options: ScoreOptions) -> Prepared:
    """Clusters and evaluator of a table of scores, with the metrics that other packages bring."""
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
    """Patients, always (ST-01); another unit on request, where the task knows one."""
    if options.resample not in task.resampling_units:
        raise UserError(
            f"--resample {options.resample} is not for {task.name}",
            fix=f"For {task.name}: {' or '.join(task.resampling_units)}.",
        )
    return task.resampled(scores, options.resample)


def primary_metric(evaluator: Evaluator, protocol: Protocol) -> str:
    """What a report leads with: the protocol's headline where the task has it, else its primary metric."""
    return main_metric(evaluator.specs, protocol)


def answered_cases(scores: Scores) -> npt.NDArray[np.bool_]:
    """The cases with a usable score; the others count as the worst value (ST-14)."""
    if "status" not in scores.cases.columns:
        return np.ones(len(scores.cases), dtype=bool)
    return ~scores.cases["status"].isin(WITHOUT_SCORE).to_numpy(dtype=bool)


def truth_of(scores: Scores) -> npt.NDArray[np.float64] | None:
    """The outcome of each case, where the task has two classes."""
    return tasks.get(scores.task).truth(scores)


def binary_part(evaluator: Evaluator) -> Any:
    """The evaluator of probabilities inside one that adds to it (foreign metrics, fairness)."""
    base: Any = getattr(evaluator, "base", evaluator)
    return getattr(base, "binary", base)


def fairness_disparity(scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
    """What may differ between groups, as the task declares it."""
    return tasks.get(scores.task).disparity(scores, evaluator, headline=headline)
