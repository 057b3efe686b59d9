"""What a study found: one row per run, the scores of each run, and its answers.

Every number of a study comes from `scores`, made by the same code as `elsewhere score`. Clusters of every interval
are patients, merged where near-duplicates link them: the column `cluster_id` of every scores table. A run whose
training failed or was not done is there with its reason; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions
from elsewhere.predictions.answers import answer_kinds
from elsewhere.scoring.task import Scores, tasks
from elsewhere.study.file import Study
from elsewhere.study.methods import RUN_KEYS, Method, methods_in

PARTS = ("test", "validation", "normal")
ANSWER_COLUMNS = ("case", "case_id", "patient", "cluster", "label", "probability")
"""Of every part's table; `logit_negative`, `logit_positive` and `distance` where the recipe gives them."""
RUN_COLUMNS = (*RUN_KEYS, "status")
"""Columns that every table of runs has. `model` and `input` are the factors of a pair of the study file's [models] and
[inputs]; a method of [recipes] is its own model and has no input."""
SCORE_KEYS = ("method", "scenario", "seed")
"""Columns of the stored scores of a task that name the run."""
FIXED_TEST = ("external", "leave-one-dataset-out", "nested")
"""Kinds whose test set no seed trains on: only there may models of several seeds answer together."""


class RunKey(NamedTuple):
    """The key of a run.

    Args:
        task: The task, such as 'classification'.
        method: The method's name.
        scenario: The scenario's name.
        seed: The seed of the split and the training.
    """

    task: str
    method: str
    scenario: str
    seed: int


def run_name(key: RunKey) -> str:
    """Name a run as the column `run` does.

    Args:
        key: Which run.

    Returns:
        `SCENARIO|METHOD|TASK|SEED`.

    Example:
        >>> run_name(RunKey("classification", "cnn-roi", "BUSI>BUS-BRA", 1))
        'BUSI>BUS-BRA|cnn-roi|classification|1'
    """
    return f"{key.scenario}|{key.method}|{key.task}|{key.seed}"


def no_answers(run: str) -> dict[str, pd.DataFrame]:
    """Give no answers, for results that hold scores alone.

    Args:
        run: The run's name; it makes no difference.

    Returns:
        No parts.

    Example:
        >>> no_answers("BUSI>BUS-BRA|cnn-roi|classification|1")
        {}
    """
    return {}


@dataclass(frozen=True, kw_only=True)
class Results:
    """What the analyses of a study read.

    Args:
        name: The study's name.
        study: The study file, checked, every default written out.
        cohort: The cohort that the runs are scored against: all datasets of the study.
        table: The study table, one row per case: `case` ('DATASET/case_id'), dataset, case_id, patient, `group` (what
            no split parts and every interval resamples: patients merged by near-duplicates), label, site.
        runs: One row per run: `RUN_COLUMNS`, the training's key, split, counts and the reason of its status (done,
            invalid, failed, skipped).
        scores: Of every run that is done or invalid.
        answers: A run's answers by part ('test', 'validation', 'normal'), as tables with `ANSWER_COLUMNS`; parts that
            were not predicted are absent. For recipes that answer with probabilities.
        costs: One row per predicted case: case, method, task, scenario, seed, seconds, peak_bytes, energy_joule.
        trainings: One row per training, with `notes` and `details` of its recipe.
        skipped: One row per scenario that could not be split, with the reason.
        audit: What was checked before anything was trained.
        metrics: The values of every scored run, without intervals.
        predictions_folder: Where the prediction files are.
    """

    name: str
    study: Study
    cohort: Cohort
    table: pd.DataFrame
    runs: pd.DataFrame
    scores: Mapping[RunKey, Scores]
    answers: Callable[[str], dict[str, pd.DataFrame]] = no_answers
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    trainings: pd.DataFrame = field(default_factory=pd.DataFrame)
    skipped: pd.DataFrame = field(default_factory=pd.DataFrame)
    audit: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[RunKey, dict[str, float]] = field(default_factory=dict)
    predictions_folder: Path = Path()

    @cached_property
    def methods(self) -> dict[str, Method]:
        """The methods of the study by name."""
        return methods_in(self.study)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that were asked, in the order of the runs."""
        return tuple(dict.fromkeys(map(str, self.runs["task"])))

    def done(self) -> pd.DataFrame:
        """List the runs that have valid scores.

        Returns:
            Their rows of `runs`.
        """
        return self.runs[self.runs["status"] == "done"]

    def scored(self) -> pd.DataFrame:
        """List the runs that have scores, whether they are valid by the protocol's rules or not.

        Returns:
            Their rows of `runs`.
        """
        return self.runs[self.runs["status"].isin(["done", "invalid"])]

    def folder(self, key: RunKey) -> Path:
        """Find the folder of a run's prediction files.

        Args:
            key: The run.

        Returns:
            The folder, inside `predictions_folder`; it need not exist.

        Raises:
            UserError: The table of runs, which may come from another machine, names a place outside of it.
        """
        row = self.runs[self.runs["run"] == run_name(key)].iloc[0]
        place = self.predictions_folder / str(row["predictions"])
        if not place.resolve().is_relative_to(self.predictions_folder.resolve()):
            raise UserError("a run's predictions lie outside of its folder", where=str(row["predictions"]))
        return place

    def predictions(self, key: RunKey) -> Predictions:
        """Read the predictions of a run, as they are scored.

        Args:
            key: Which run.

        Returns:
            The prediction table: every case of the test part, and of the cases that are tested apart.

        Raises:
            UserError: The files are not there, as in a bundle without masks.
        """
        task = tasks.get(key.task)
        kind, folder = answer_kinds.get(task.answer_kind), self.folder(key)
        return task.read_predictions(folder if kind.own_folder else folder / kind.files(())[0])

    def scores_table(self) -> pd.DataFrame:
        """Tabulate the metrics of the scored runs.

        Returns:
            One row per run: task, method, scenario, seed, and its metrics.
        """
        rows = [key._asdict() | values for key, values in self.metrics.items()]
        return pd.DataFrame(rows, columns=None if rows else list(RunKey._fields))

    def answers_table(self) -> pd.DataFrame:
        """Join the answers of all scored runs into one table.

        Returns:
            One row per answer: run, part and the columns of `answers`.
        """
        parts = [
            frame.assign(run=run, part=part)
            for run in self.scored()["run"]
            for part, frame in self.answers(str(run)).items()
        ]
        if not parts:
            return pd.DataFrame(columns=["run", "part", *ANSWER_COLUMNS])
        whole = pd.concat(parts, ignore_index=True)
        return whole[["run", "part", *(c for c in whole.columns if c not in ("run", "part"))]]
