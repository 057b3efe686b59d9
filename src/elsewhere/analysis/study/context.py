"""The context of an analysis of a study: the results of one task, and what several analyses share, made once.

Nothing here opens an image or trains. Every random draw is keyed by the cohort and a fixed seed, so that the
same scores give the same numbers on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.boards import NESTED, Board, boards_of, chance_methods
from elsewhere.analysis.study.design import Design, read_design
from elsewhere.analysis.study.overall import complete_kinds
from elsewhere.analysis.study.probability_runs import Judged, judge_run
from elsewhere.analysis.study.published import Reference, reference
from elsewhere.analysis.study.scenarios import patient_intervals, scenario_table
from elsewhere.protocols import Protocol, protocols
from elsewhere.scoring.task import StudyMetrics, tasks
from elsewhere.study.file.sections import TaskSection
from elsewhere.study.methods import RUN_KEYS, Method
from elsewhere.study.results import Results, RunKey

KEPT_COLUMNS = (*RUN_KEYS, "training_method", "margin", "training")
"""Columns of the table of runs that a judged run keeps."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """One task of a study, with what several analyses share.

    Args:
        results: Results of the study.
        task: Name of the task.
        resamples: Number of resamples of patients, for every interval that resamples.
        salt: Key of the hashes that replace case ids in tables.
        made: Tables of this task that earlier analyses made.
    """

    results: Results
    task: str
    resamples: int
    salt: str = field(repr=False)
    made: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the first task of the study."""
        return self.task == self.results.tasks[0]

    @property
    def section(self) -> TaskSection:
        """How the study file scores and judges the task."""
        return self.results.study.task(self.task)

    @cached_property
    def protocol(self) -> Protocol:
        """Protocol by which the task is scored."""
        return protocols.get(self.section.protocol)

    @cached_property
    def metrics(self) -> StudyMetrics:
        """Which metrics are reported."""
        return tasks.get(self.task).reported(self.protocol)

    @property
    def margin(self) -> float | None:
        """The largest drop that would not matter; None where none was declared."""
        return self.section.verdict_margin or None

    @cached_property
    def planned(self) -> pd.DataFrame:
        """Every run of the task, done or not."""
        runs = self.results.runs
        return runs[runs["task"] == self.task].reset_index(drop=True)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The runs of the task that are done; not those that only serve to choose a method."""
        runs = self.planned
        return runs[(runs["status"] == "done") & (runs["kind"] != NESTED)].reset_index(drop=True)

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The methods that have a run of the task, by name."""
        names = set(self.planned["method"])
        return {name: method for name, method in self.results.methods.items() if name in names}

    @cached_property
    def chance_methods(self) -> frozenset[str]:
        """The methods that predict by chance."""
        return chance_methods(self.results.methods)

    @cached_property
    def design(self) -> Design:
        """What varies in the task."""
        return read_design(self.results.study, self.task, self.results.table, self.runs)

    @cached_property
    def boards(self) -> list[Board]:
        """Boards of methods that are compared with each other; the leading board first."""
        return boards_of(self.results, self.task, resamples=self.resamples)

    @property
    def leading(self) -> Board | None:
        """The board that the first page reports."""
        return self.boards[0] if self.boards else None

    @cached_property
    def has_probabilities(self) -> bool:
        """Whether the runs answered with probabilities of two classes."""
        return not self.runs.empty and bool(self.results.answers(str(self.runs["run"].iloc[0])))

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """Every run with probabilities: its metrics before and after calibration, and the arrays behind them."""
        codes: dict[str, int] = {}

        def number_of(clusters: npt.NDArray[np.object_]) -> npt.NDArray[np.int32]:
            return np.array([codes.setdefault(str(name), len(codes)) for name in clusters], dtype=np.int32)

        judged = {}
        for row in self.runs.to_dict(orient="records"):
            run = str(row["run"])
            keys = {name: row[name] for name in KEPT_COLUMNS if name in row}
            key = RunKey(str(row["task"]), str(row["method"]), str(row["scenario"]), int(row["seed"]))
            judged[run] = judge_run(
                keys, self.results.answers(run), self.results.scores[key], number_of=number_of
            )
        return judged

    @cached_property
    def judged_runs(self) -> pd.DataFrame:
        """One row per run with probabilities."""
        return pd.DataFrame([self.judged[str(run)].row for run in self.runs["run"]])

    @cached_property
    def scenarios(self) -> pd.DataFrame:
        """One row per scenario and configuration, seeds averaged, with intervals over patients."""
        table = scenario_table(self.judged_runs)
        intervals = patient_intervals(
            self.judged, self.judged_runs, key=self.results.cohort.hash, resamples=self.resamples
        )
        keys = ["kind", "scenario", "model", "input"]
        apart = intervals[intervals["kind"] != "folds"]
        return table.merge(apart, on=keys, how="left", validate="one_to_one")

    @cached_property
    def published(self) -> Reference | None:
        """The published study that the numbers are compared with."""
        return reference(self.design.reference) if self.design.reference else None

    @cached_property
    def complete_kinds(self) -> frozenset[str]:
        """Kinds of scenarios that are those of the published study, all of them and no others."""
        return complete_kinds(self.scenarios, self.published)

    def table(self, name: str) -> pd.DataFrame:
        """Find a table of this task that an earlier analysis made.

        Args:
            name: Name of the table.

        Returns:
            The table, empty where nothing made it.
        """
        return self.made.get(name, pd.DataFrame())

    def by_name(self) -> Mapping[str, pd.DataFrame]:
        """List all tables of this task that earlier analyses made.

        Returns:
            The tables by name.
        """
        return self.made
