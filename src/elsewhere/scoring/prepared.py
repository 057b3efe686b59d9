"""Scores made ready for statistics: one partition and one evaluator, for commands and studies alike (ST-01)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.protocols import Protocol
from elsewhere.scoring.composite import with_extra_metrics
from elsewhere.scoring.detection import DetectionTask
from elsewhere.scoring.task import ScoreOptions, Scores, Task, tasks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.subgroups import comparable_metrics

WITHOUT_SCORE = ("missing", "invalid", "not_analysable")
"""The statuses of a case that has no usable score."""
BINARY = {"classification": "label", "response": "pcr"}


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
    """Patients, always (ST-01); volumes on request for detection, whose study does not name its unit."""
    if options.resample == "patients":
        return task.partition(scores)
    if options.resample != "volumes" or not isinstance(task, DetectionTask):
        raise UserError(
            f"--resample {options.resample} is not for {task.name}",
            fix="Intervals resample patients; volumes may be resampled for detection only (DBT-06).",
        )
    return task.partition(scores, cluster="case_id")


def primary_metric(evaluator: Evaluator, protocol: Protocol) -> str:
    """What the report leads with: `combined` under MAMA-MIA's rules, else the task's primary metric."""
    names = [spec.name for spec in evaluator.specs]
    if protocol.name.startswith("mamamia") and "combined" in names:
        return "combined"
    chosen = {"camelyon16": "froc_score", "camelyon16-code": "froc_score", "camelyon17": "pn_kappa"}.get(
        protocol.name
    )
    if chosen in names:
        return str(chosen)
    return next((spec.name for spec in evaluator.specs if spec.primary), names[0])


def answered_cases(scores: Scores) -> npt.NDArray[np.bool_]:
    """The cases with a usable score; the others count as the worst value (ST-14)."""
    if "status" not in scores.cases.columns:
        return np.ones(len(scores.cases), dtype=bool)
    return ~scores.cases["status"].isin(WITHOUT_SCORE).to_numpy(dtype=bool)


def truth_of(scores: Scores) -> npt.NDArray[np.float64] | None:
    """The outcome of each case, where the task has two classes."""
    column = BINARY.get(scores.task)
    return scores.cases[column].to_numpy(dtype=float) if column in scores.cases.columns else None


def binary_part(evaluator: Evaluator) -> Any:
    """The evaluator of probabilities inside one that adds to it (foreign metrics, fairness)."""
    base: Any = getattr(evaluator, "base", evaluator)
    return getattr(base, "binary", base)


def fairness_disparity(scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
    """What may differ between groups: equalised odds, Dice with NormHD, or the task's headline."""
    names = {spec.name for spec in evaluator.specs}
    if scores.task == "response":
        truth, decision = truth_of(scores), getattr(getattr(evaluator, "base", evaluator), "decision", None)
        if truth is not None and decision is not None:
            return Disparity.equalised_odds(
                evaluator.cluster_of_case,
                truth,
                decision,
                n_clusters=evaluator.n_clusters,
                rules=scores.protocol.fairness,
            )
    if scores.task == "segmentation" and {"dice", "norm_hd"} <= names:
        return Disparity.of_metrics(evaluator, ["dice", "norm_hd"])
    comparable = comparable_metrics(evaluator)
    return Disparity.of_metrics(evaluator, [headline if headline in comparable else comparable[0]])
