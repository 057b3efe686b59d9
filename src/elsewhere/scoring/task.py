"""What a task is: how its predictions become scores, and its scores become an evaluator.

One file a task implements this; `tasks.get("segmentation")` finds it. Scoring a case is kept apart
from summing up: `score` writes the case table, and `evaluator` reads nothing but that table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import Protocol
from elsewhere.registry import Registry
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricSpec

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions, ReadOptions

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What a user may set beside the protocol. `threshold` None: the protocol's."""

    threshold: float | None = None
    on_invalid: str = "error"
    matching: str | None = None
    resample: str = "patients"
    calibrate_on: str | None = None
    read: ReadOptions | None = None
    normalise_ids: tuple[str, ...] = ()
    threads: int | None = None
    group_by: tuple[str, ...] = ()
    fairness_weight: float | None = None
    progress: Progress | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """SCORES of the design: everything below reads this and the cohort, never an image.

    `cases` has one row a cohort case: `case_id, patient_id, dataset, site, status` (scored, missing,
    invalid, not_analysable, undefined), the case's metrics by name, the sufficient statistics of the
    rest, and the group attributes. `events` is for metrics that need more than sums (FROC).
    """

    task: str
    protocol: Protocol
    cases: pd.DataFrame
    events: pd.DataFrame | None = None
    counts: dict[str, int] = field(default_factory=dict)
    flow: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What scoring would stop at (`errors`; all of them where they can be told apart), and what it would remark.

    `notes` say what was looked at, and what was not.
    """

    errors: tuple[UserError, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scores: Scores | None = None


@dataclass(frozen=True, kw_only=True)
class StudyMetrics:
    """Which metrics of a task a study reports, and where.

    Args:
        main: What transfers, centres and sizes are compared by. Not a range over groups, nor a score that holds one:
            its interval does not have the coverage that it states.
        shown: Columns of the leaderboard, in order.
        paired: What each method is compared with the baseline by.
        grouped: What is reported of every group of patients.
        baseline: The recipe that others are compared with, where the study file names none.
    """

    main: str
    shown: tuple[str, ...] = ()
    paired: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    baseline: str = ""


class Task(ABC):
    """A task declares its scoring unit, its cluster, its target column and its metrics (ST-01)."""

    name: str
    title: str
    unit: str = "case"
    cluster: str = "patient_id"
    target: str | None = None
    study_metrics: StudyMetrics | None = None
    """What studies report; None: the primary metric alone, and all metrics on the leaderboard."""

    @abstractmethod
    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        """The metrics, in the order of the report; the first with `primary` leads."""

    @abstractmethod
    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        """Predictions joined to the cohort by id, scored case by case; missing is worst (ST-14)."""

    def reported(self, protocol: Protocol) -> StudyMetrics:
        """List what a study reports of this task.

        Args:
            protocol: By which it is scored.

        Returns:
            `study_metrics`, or what follows from the metrics.
        """
        if self.study_metrics is not None:
            return self.study_metrics
        names = tuple(spec.name for spec in self.metrics(protocol))
        main = next((spec.name for spec in self.metrics(protocol) if spec.primary), names[0])
        return StudyMetrics(main=main, shown=names, paired=(main,), grouped=(main,))

    def threshold_inclusive(self, protocol: Protocol) -> bool:
        """Whether a probability equal to the threshold is positive, for tasks with two classes."""
        return True

    def has_truth(self, cohort: Cohort) -> bool:
        """Whether the cohort holds the truth of this task; a participant's copy of it does not."""
        if self.target is None:
            return True
        column = cohort.cases.get(self.target)
        return column is not None and bool((column.astype("string").fillna("").str.strip() != "").any())

    def check(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Checked:
        """Everything at which `score` would stop, with the same words. Called where `has_truth`."""
        try:
            scores = self.score(cohort, predictions, protocol, options)
        except UserError as error:
            return Checked(errors=(error,))
        return Checked(warnings=scores.warnings, scores=scores)

    def check_files(self, predictions: Predictions, cohort: Cohort | None, options: ScoreOptions) -> Checked:
        """The files of the predictions, opened without the truth; nothing where the table holds all there is."""
        return Checked()

    @abstractmethod
    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        """Scores from a table that somebody already has (csv or parquet): the way of `summarise`."""

    @abstractmethod
    def partition(self, scores: Scores) -> Clusters:
        """Cases to patients; with the truth where the task has classes."""

    @abstractmethod
    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> Evaluator:
        """The metrics as a function of patient weights."""

    def curves(
        self, scores: Scores, partition: Clusters, stream: Any, options: ScoreOptions
    ) -> dict[str, Any]:
        """ROC, PR, FROC, reliability: {name: {"x": [...], "y": [...], "lo": [...], "hi": [...], ...}}."""
        return {}

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        """Task-specific tables for the summary (confusion matrices, calibration, size strata...)."""
        return {}


tasks: Registry[Task] = Registry(
    "task",
    group="elsewhere.tasks",
    builtin_modules=(
        "elsewhere.scoring.classification",
        "elsewhere.scoring.detection",
        "elsewhere.scoring.segmentation",
        "elsewhere.scoring.response",
        "elsewhere.scoring.slides",
    ),
    list_command="elsewhere score --help",
)
