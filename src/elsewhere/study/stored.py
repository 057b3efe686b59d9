"""Read what the store holds for the runs of a plan: which runs are answered, and their probabilities.

A stored training answers a run when it predicts every case of it, with the pictures, volumes and boxes as they are now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import Outcome
from elsewhere.errors import UserError
from elsewhere.predictions.answers import Probabilities, answer_kinds
from elsewhere.scenarios import Split
from elsewhere.study.plan import Plan
from elsewhere.study.results import PARTS, RunKey

TOO_FEW = "it was trained for fewer or other cases, and has not been done again yet"
NOT_TRAINED = "it has not been trained yet"


def key_of(row: Mapping[Any, Any]) -> RunKey:
    """Name the run of a row of the table of runs.

    Args:
        row: The row; task, method, scenario and seed are read.

    Returns:
        The key.

    Example:
        >>> key_of({"task": "classification", "method": "cnn-roi", "scenario": "BUSI", "seed": 1})
        RunKey(task='classification', method='cnn-roi', scenario='BUSI', seed=1)
    """
    return RunKey(str(row["task"]), str(row["method"]), str(row["scenario"]), int(row["seed"]))


@dataclass
class StoredRuns:
    """The runs of a plan as the store answers them.

    Args:
        plan: What the study asks for.
        store: The finished trainings.
        failed: Why trainings failed, by key.
    """

    plan: Plan
    store: Store
    failed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = set(self.store.keys()) & set(self.plan.units)
        self.failed = self.store.failures() | dict(self.failed)
        frame = self.plan.table.frame
        self.case_id = dict(zip(frame["case"], frame["case_id"], strict=True))
        self.patient = dict(zip(frame["case"], frame["patient"], strict=True))
        self.cluster = dict(zip(frame["case"], frame["group"], strict=True))
        self.runs = self.plan.runs.assign(predictions="")
        self._row_of = {str(run): row for row, run in enumerate(self.runs["run"])}
        self.outcome = lru_cache(maxsize=8)(self._outcome)
        self.answers = lru_cache(maxsize=64)(self._answers)

    def _outcome(self, training: str) -> tuple[Outcome, str]:
        """Load a training's outcome, and the digest of what it answered."""
        return self.store.load(training), str(self.store.info(training)["digests"]["outputs.npz"])

    def row(self, run: str) -> dict[str, Any]:
        """Find the row of a run.

        Args:
            run: The run's name, as in the column `run`.

        Returns:
            The row of the table of runs, by column.

        Raises:
            UserError: The study has no such run.
        """
        if run not in self._row_of:
            raise UserError(f"the study has no run '{run}'")
        return {str(name): value for name, value in self.runs.iloc[self._row_of[run]].items()}

    def split(self, row: Mapping[Any, Any]) -> Split:
        """Find the split of a run.

        Args:
            row: The run's row of the table of runs; scenario and seed are read.

        Returns:
            The split.
        """
        return self.plan.partitions[str(row["scenario"]), int(row["seed"])]

    def answered(self, row: Mapping[Any, Any]) -> str:
        """Say why the store does not answer a run.

        Args:
            row: Of the table of runs.

        Returns:
            The reason; empty where the run is answered.
        """
        training = str(row["training"])
        names = (*self.plan.tested(row), *self.split(row).normal)
        if training in self.stored and self._covers(training, names):
            return ""
        return self.failed.get(training, TOO_FEW if training in self.stored else NOT_TRAINED)

    def with_status(self) -> pd.DataFrame:
        """Make the table of runs with the status of each.

        Returns:
            The runs with the status done, failed or skipped, and the reason.
        """
        runs = self.runs.copy()
        for position, row in enumerate(runs.to_dict(orient="records")):
            if row["status"] != "skipped":
                reason = self.answered(row)
                runs.loc[position, ["status", "reason"]] = ("failed", reason) if reason else ("done", "")
        return runs

    def _covers(self, training: str, names: Sequence[str]) -> bool:
        try:
            outcome, _ = self.outcome(training)
        except DamagedUnitError:
            return False
        cases = self.plan.table.cases
        prints = self.plan.units[training].fingerprints(cases)[cases.rows(tuple(names))]
        return outcome.covers(tuple(names), prints)

    def _answers(self, run: str) -> dict[str, pd.DataFrame]:
        """A run's probabilities by part; nothing for methods that answer otherwise. UserError where it has no answers."""
        row = self.row(run)
        task = str(row["task"])
        reason = self.answered(row)
        if reason:
            raise UserError(f"the run '{run}' has no answers: {reason}")
        outcome, _ = self.outcome(str(row["training"]))
        if not isinstance(outcome.answers.get(task), Probabilities):
            return {}
        split, tested, known = self.split(row), set(self.plan.tested(row)), set(outcome.case)
        parts = {}
        for part in PARTS:
            names = tuple(n for n in getattr(split, part) if part != "test" or n in tested)
            if set(names) <= known:
                parts[part] = self._part(outcome, names, task)
        return parts

    def _part(self, outcome: Outcome, names: Sequence[str], task: str) -> pd.DataFrame:
        cases = self.plan.table.cases
        answers: Probabilities = answers_of(outcome, names, task)
        frame = pd.DataFrame(
            {
                "case": pd.Series(names, dtype="str"),
                "case_id": pd.Series([self.case_id[n] for n in names], dtype="str"),
                "patient": pd.Series([self.patient[n] for n in names], dtype="str"),
                "cluster": pd.Series([self.cluster[n] for n in names], dtype="str"),
                "label": cases.label[cases.rows(tuple(names))].astype(np.int64),
                "probability": np.asarray(answers.probability, dtype=np.float64),
            }
        )
        if answers.logits is not None:
            logits = answers.logits.astype(np.float64)
            frame["logit_negative"], frame["logit_positive"] = logits[:, 0], logits[:, 1]
        if answers.distance is not None:
            frame["distance"] = answers.distance.astype(np.float64)
        return frame


def answers_of(outcome: Outcome, names: Sequence[str], task: str) -> Any:
    """Find the answers to a task for these cases.

    Args:
        outcome: Of a training.
        names: The study's names of the cases.
        task: Which task.

    Returns:
        Answers of the task's kind, one row per case, in the order of the names.
    """
    answers = outcome.answers[task]
    position = {name: row for row, name in enumerate(outcome.case)}
    rows = np.array([position[name] for name in names], dtype=np.int64)
    return answer_kinds.get(answers.kind).take(answers, rows)
