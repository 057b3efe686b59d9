"""The interface of a task: how its predictions become scores, and its scores become an evaluator.

One file per task implements this; `tasks.get("segmentation")` finds it. Scoring a case is separate from
summing up: `score` writes the case table, and `evaluator` reads nothing but that table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.label_scheme import LabelScheme
from elsewhere.errors import UserError
from elsewhere.protocols import Protocol, protocols
from elsewhere.registry import Registry, object_of
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.subgroups import comparable_metrics
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.resampling import Resampling

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions, ReadOptions

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of scoring that a user may set besides the protocol.

    Args:
        threshold: The probability above which a case is called positive; None takes the protocol's.
        on_invalid: What an invalid answer does: 'error' stops, 'worst' scores it as the worst value.
        matching: How boxes are matched to lesions, 'challenge' or 'nearest'; None takes the protocol's.
        resample: The unit that is resampled, one of the task's `resampling_units`.
        calibrate_on: A table to fit the temperature on; None for no calibration.
        read: How prediction files are read; None takes the defaults.
        normalise_ids: Which differences between ids are ignored.
        threads: How many threads; None for all processors.
        group_by: Columns of the cohort to report groups by.
        fairness_weight: The weight of fairness in the combined score, 0 to 1; None takes the protocol's.
        progress: Called with the number of cases that are done, and of all.
    """

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
    """The scores of one model on one cohort: everything else reads these and the cohort, never an image.

    Args:
        task: The name of the task.
        protocol: The rules that were applied.
        cases: One row per case of the cohort: `case_id, patient_id, dataset, site, status` (scored, missing,
            invalid, not_analysable, undefined), the case's metrics by name, what the other metrics are summed
            from, and the group attributes.
        events: One row per box, point or normal picture, for metrics that need more than sums (FROC); else
            None.
        counts: Numbers of cases by status, and further counts of the task.
        flow: What happened to rows and cases, as steps of `elsewhere.scoring.flow`.
        warnings: Sentences for the report, without ids.
        extras: Further parts of the summary by their keys.
    """

    task: str
    protocol: Protocol
    cases: pd.DataFrame
    events: pd.DataFrame | None = None
    counts: dict[str, int] = field(default_factory=dict)
    flow: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)

    def take(self, rows: npt.ArrayLike) -> Scores:
        """Select cases, with their events.

        Args:
            rows: The positions of the cases in the order that is wanted, or a mask with one value per case.

        Returns:
            The scores of these cases; counts, flow and warnings stay those of all.
        """
        cases = self.cases.iloc[np.arange(len(self.cases))[np.asarray(rows)]].reset_index(drop=True)
        events = self.events
        if events is not None:
            of_these = events["case_id"].astype(str).isin(set(cases["case_id"].astype(str)))
            events = events[of_these].reset_index(drop=True)
        return replace(self, cases=cases, events=events)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of a check: the errors at which scoring would stop, and the warnings that it would give.

    Args:
        errors: The errors; all of them where they can be found in one pass.
        warnings: The warnings.
        notes: What was checked, and what was not.
        scores: The scores, where the check computed them.
    """

    errors: tuple[UserError, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scores: Scores | None = None


def main_metric(specs: Sequence[MetricSpec], protocol: Protocol) -> str:
    """Find the metric that leads a report.

    Args:
        specs: The metrics of a task.
        protocol: The rules, whose `headline` comes first.

    Returns:
        The name of the first headline that is there, else of the metric marked primary, else of the first.

    Example:
        >>> task, rules = tasks.get("segmentation"), protocols.get("mamamia-paper")
        >>> main_metric(task.metrics(rules), rules), main_metric(task.metrics(rules), protocols.get("plain"))
        ('combined', 'combined')
    """
    names = [spec.name for spec in specs]
    wanted = [*protocol.headline, *(spec.name for spec in specs if spec.primary), *names]
    return next(name for name in wanted if name in names)


@dataclass(frozen=True, kw_only=True)
class StudyMetrics:
    """Which metrics of a task a study reports, and where.

    Args:
        main: The metric that transfers, centres and sizes are compared by. Not a range over groups, nor a
            score that contains one: its interval does not have the coverage that it states.
        shown: Columns of the leaderboard, in order.
        paired: The metrics by which each method is compared with the baseline.
        grouped: The metrics that are reported for every group of patients.
        baseline: The recipe that others are compared with, where the study file names none.
    """

    main: str
    shown: tuple[str, ...] = ()
    paired: tuple[str, ...] = ()
    grouped: tuple[str, ...] = ()
    baseline: str = ""


class Task(ABC):
    """A task declares its scoring unit, its cluster, its target column and its metrics (ST-01).

    Attributes:
        name: What users call it on the command line.
        title: Its heading in reports.
        unit: What one row of the scores is.
        units: The same in the plural, for counts in reports.
        cluster: The column of the unit that is resampled.
        target: The column of the cohort that holds the truth; None where the truth is a table of its own.
        truth_columns: Further columns of the cohort that hold the truth, such as the end of an interval whose start
            is the target; a bundle keeps them.
        truth_column: The column of the scores that holds the outcome as 0 and 1, where the task has two
            classes.
        answer_kind: The kind of its predictions; `elsewhere.predictions.answer_kinds` has
            each.
        protocols: Protocols it accepts besides those that name it in their `tasks`.
        default_protocol: The protocol where neither the user nor the cohort's reader names one.
        study_protocol: The protocol of a study whose file names none; empty: `default_protocol`.
        resampling_units: What `--resample` may name; patients always come first.
        ranking_curve: The curve of `curves` that a ranking shows for each model; None for none.
        compares_groups: Whether the protocol's fairness variables are groups of every report of this task.
        label_scheme: What the labels of a study table are called, where splits keep this task's classes
            apart.
        needed_classes: The classes, as 0 and 1, that a training part and a tested part must hold.
        lesion_columns: The columns of the cohort's table of lesions that scoring reads, beside `case_id`; a bundle
            keeps them.
        case_columns: Columns of the scores that say how a case went, for the list of the worst cases.
        stored_columns: Columns without which a stored table of scores is refused.
    """

    name: str
    title: str
    unit: str = "case"
    units: str = "cases"
    cluster: str = "patient_id"
    target: str | None = None
    truth_columns: tuple[str, ...] = ()
    truth_column: str | None = None
    answer_kind: str = "probability"
    protocols: tuple[str, ...] = ("plain",)
    default_protocol: str = "plain"
    study_protocol: str = ""
    resampling_units: tuple[str, ...] = ("patients",)
    ranking_curve: str | None = None
    compares_groups: bool = False
    label_scheme: LabelScheme | None = None
    needed_classes: frozenset[int] = frozenset({0, 1})
    lesion_columns: tuple[str, ...] = ()
    case_columns: tuple[str, ...] = ("nll", "probability")
    stored_columns: tuple[str, ...] = ()

    def read_predictions(
        self, path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
    ) -> Predictions:
        """Read predictions by the reader of the task's answer kind.

        Args:
            path: The file or folder.
            options: How it is to be read.
            cohort: The cases that ids are compared with, where a format needs them.

        Returns:
            The prediction table.

        Raises:
            UserError: The file is not what the answer kind expects.
        """
        from elsewhere.predictions import read_answers

        return read_answers(self.answer_kind, path, options, cohort)

    def accepts(self, protocol: Protocol) -> bool:
        """Check whether the task may be scored by a protocol.

        Args:
            protocol: The rules.

        Returns:
            Whether the protocol names this task, or this task the protocol.
        """
        return self.name in protocol.tasks or protocol.name in self.protocols

    def protocol_for(self, reader: str) -> str:
        """Choose the protocol of a cohort: a challenge's cohort is scored by the challenge's rules.

        Args:
            reader: The name of the cohort's reader.

        Returns:
            The name of the protocol that is meant for such cohorts, else of the task's default.

        Example:
            >>> tasks.get("detection").protocol_for("bcs-dbt"), tasks.get("detection").protocol_for("csv")
            ('dbtex-code', 'plain')
        """
        fitting = (name for name, one in protocols if self.name in one.tasks and reader in one.default_for)
        return next(fitting, self.default_protocol)

    def truth(self, scores: Scores) -> npt.NDArray[np.float64] | None:
        """Look up the outcome of each case.

        Args:
            scores: The scores.

        Returns:
            0 or 1 for each case; None where the task does not have two classes.
        """
        column = self.truth_column
        return scores.cases[column].to_numpy(dtype=float) if column in scores.cases.columns else None

    def case_cost(self, scores: Scores) -> npt.NDArray[np.float64] | None:
        """Compute how badly each case went, for the list of the worst cases.

        Args:
            scores: The scores.

        Returns:
            A number for each case, the higher the worse, NaN where nothing went wrong; None where cases
            cannot be ordered. With two classes: how far the probability is from the outcome.
        """
        truth = self.truth(scores)
        if truth is None or "probability" not in scores.cases.columns:
            return None
        return np.abs(truth - scores.cases["probability"].to_numpy(dtype=np.float64))

    def disparity(self, scores: Scores, evaluator: Evaluator, *, headline: str) -> Disparity:
        """Choose what is compared between groups of patients.

        Args:
            scores: The scores.
            evaluator: Their metrics.
            headline: The name of the metric that leads the report.

        Returns:
            The disparity of the headline, or of the first metric that groups can be compared by.
        """
        comparable = comparable_metrics(evaluator)
        return Disparity.of_metrics(evaluator, [headline if headline in comparable else comparable[0]])

    def resampled(self, scores: Scores, units: str) -> Clusters:
        """Make the clusters of the unit that `--resample` names.

        Args:
            scores: The scores.
            units: One of `resampling_units`.

        Returns:
            The clusters; the patients, where a task knows no other unit.
        """
        return self.partition(scores)

    def check_stored(self, cases: pd.DataFrame, events: pd.DataFrame | None, *, where: str) -> None:  # noqa: B027
        """Refuse stored scores that this task cannot have written; ids and statuses were checked before.

        Args:
            cases: The stored table of scores.
            events: The stored table of events, where the task writes one.
            where: The folder of the result.

        Raises:
            UserError: A value that the task reads is not what it may be.
        """

    def ranking_details(self, scores: Mapping[str, Scores]) -> tuple[dict[str, Any], list[str]]:
        """Compute what several models together show of the cases, in addition to their ranks.

        Args:
            scores: The scores of each model, by its name, of the same cases.

        Returns:
            Parts of the ranking's summary by their keys, and warnings.
        """
        return {}, []

    def paired_details(
        self, scores: Mapping[str, Scores], *, baseline: str | None, resampling: Resampling
    ) -> dict[str, Any]:
        """Compare models pair by pair, in addition to the differences of their metrics.

        Args:
            scores: The scores of each model, by its name, of the same cases.
            baseline: The model that all others are compared with; None for every pair.
            resampling: How many resamples are drawn, and from which stream.

        Returns:
            Parts of the summary of a comparison or a ranking by their keys.
        """
        return {}

    def local_tables(self, scores: Mapping[str, Scores]) -> dict[str, pd.DataFrame]:
        """List what the models show of single cases, with their ids: these tables stay with the data.

        Args:
            scores: The scores of each model, by its name, of the same cases.

        Returns:
            Tables by the names of the files that a ranking writes them to.
        """
        return {}

    def case_classes(self, cohort: Cohort) -> pd.Series | None:
        """Look up the class of each case, which splits of a study are stratified by.

        Args:
            cohort: The cohort.

        Returns:
            For each case "0", "1", a class of `label_scheme`, or "" where it is not known; None where the cohort does
            not say, or where the task has no classes.
        """
        if self.label_scheme is None or self.target not in cohort.cases.columns:
            return None
        return cohort.cases[self.target].astype("string").fillna("").str.strip()

    study_metrics: StudyMetrics | None = None
    """The metrics that studies report; None: the primary metric alone, and all metrics on the leaderboard."""

    @abstractmethod
    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        """List the metrics, in the order of the report; the first with `primary` leads.

        Args:
            protocol: The rules, on which labels and bounds may depend.

        Returns:
            The specifications.
        """

    @abstractmethod
    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        """Join predictions to the cohort by id, and score them case by case; a missing one is worst (ST-14).

        Args:
            cohort: The cohort, with the truth.
            predictions: The predictions.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            The scores.

        Raises:
            UserError: The predictions or the cohort are not what the task needs.
        """

    def reported(self, protocol: Protocol) -> StudyMetrics:
        """List the metrics that a study reports of this task.

        Args:
            protocol: The rules of scoring.

        Returns:
            `study_metrics`, or what follows from the metrics.
        """
        if self.study_metrics is not None:
            return self.study_metrics
        names = tuple(spec.name for spec in self.metrics(protocol))
        main = next((spec.name for spec in self.metrics(protocol) if spec.primary), names[0])
        return StudyMetrics(main=main, shown=names, paired=(main,), grouped=(main,))

    def threshold_inclusive(self, protocol: Protocol) -> bool:
        """Return whether a probability equal to the threshold is positive, for tasks with two classes.

        Args:
            protocol: The rules.

        Returns:
            True where it is positive.
        """
        return True

    def has_truth(self, cohort: Cohort) -> bool:
        """Check whether the cohort has the truth of this task; a participant's copy of it does not.

        Args:
            cohort: The cohort.

        Returns:
            True where the target column has a value, or the task has no such column.
        """
        if self.target is None:
            return True
        column = cohort.cases.get(self.target)
        return column is not None and bool((column.astype("string").fillna("").str.strip() != "").any())

    def check(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Checked:
        """Look for everything at which `score` would stop, with the same words; called where `has_truth`.

        Args:
            cohort: The cohort, with the truth.
            predictions: The predictions.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            Errors and warnings.
        """
        try:
            scores = self.score(cohort, predictions, protocol, options)
        except UserError as error:
            return Checked(errors=(error,))
        return Checked(warnings=scores.warnings, scores=scores)

    def check_files(self, predictions: Predictions, cohort: Cohort | None, options: ScoreOptions) -> Checked:
        """Open the files of the predictions without the truth.

        Args:
            predictions: The predictions.
            cohort: The cohort, for example for the grids of its images; None where there is none.
            options: What the user set besides the protocol.

        Returns:
            Errors and warnings; nothing for a task whose predictions are all in the table.
        """
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
        """Make scores from a table that somebody already has (csv or parquet); `summarise` works in this way.

        Args:
            cohort: The cohort.
            table: One row per case, with the columns that the task stores.
            events: The stored events, where the task has any.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            The scores.

        Raises:
            UserError: The table is not what the task needs.
        """

    @abstractmethod
    def partition(self, scores: Scores) -> Clusters:
        """Assign cases to patients, with the truth where the task has classes.

        Args:
            scores: The scores.

        Returns:
            The clusters.
        """

    @abstractmethod
    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> Evaluator:
        """Make the evaluator: the metrics as a function of patient weights.

        Args:
            scores: The scores.
            partition: The clusters that weights are given to.
            options: What the user set besides the protocol.

        Returns:
            The evaluator.
        """

    def curves(
        self, scores: Scores, partition: Clusters, stream: Any, options: ScoreOptions
    ) -> dict[str, Any]:
        """Compute the curves of the report: ROC, PR, FROC or reliability.

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            stream: The weights of the resamples, for the bands; None for curves without bands.
            options: What the user set besides the protocol.

        Returns:
            {name: {"x": [...], "y": [...], "lo": [...], "hi": [...], ...}}; empty where the task has none.
        """
        return {}

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        """Compute further tables of the summary: confusion matrices, calibration, size strata...

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            options: What the user set besides the protocol.

        Returns:
            The tables by their keys; empty where the task has none.
        """
        return {}


def _check_task(name: str, thing: object) -> str:
    wrong = object_of(Task)(name, thing)
    missing = [attribute for attribute in ("name", "title") if not getattr(thing, attribute, "")]
    return wrong or (f"declares no {missing[0]}" if missing else "")


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
    list_command="elsewhere tasks",
    check=_check_task,
)


def read_predictions(
    task: str, path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> Predictions:
    """Read predictions for a task by its name; the task knows its answer kind, and the kind its reader.

    Args:
        task: The name of a task, built in or from another package.
        path: The prediction file or folder.
        options: How it is to be read.
        cohort: The cases that ids are compared with, where a format needs them.

    Returns:
        The prediction table.

    Raises:
        UserError: No such task, or the file is not what the task expects.
    """
    return tasks.get(task).read_predictions(path, options, cohort)
