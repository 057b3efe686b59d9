"""Tasks whose metrics are means over cases: a subclass computes the values of each case, and nothing more.

Joining by id, missing answers as the worst value, intervals, groups, sites, comparisons and ranks follow from
that. `docs/how-to/add-a-task.md` has a whole task of another package.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.predictions.join import join_by_id
from elsewhere.protocols import Protocol
from elsewhere.scoring.case_table import ATTRIBUTES, IDENTITY, STATUSES, check_group_by
from elsewhere.scoring.flow import participant_flow
from elsewhere.scoring.task import ScoreOptions, Scores, Task
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.metric import MetricSpec
from elsewhere.tables import to_number

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions


class CaseMeanTask(Task):
    """A task whose every metric is the mean of one value per case.

    A subclass sets `name`, `title`, `answer_kind`, `target` and `specs`, and implements `case_values`. A
    metric declares its worst value (`MetricSpec.worst`): it stands for an answer that is missing or has an
    empty cell (ST-14).

    Attributes:
        specs: The metrics, in the order of the report; the first that is `primary` leads.
    """

    specs: tuple[MetricSpec, ...]

    def __init__(self) -> None:
        self.stored_columns = self.case_columns = tuple(spec.name for spec in self.specs)

    @abstractmethod
    def case_values(
        self, cases: pd.DataFrame, answers: pd.DataFrame, protocol: Protocol
    ) -> Mapping[str, npt.ArrayLike]:
        """Judge the answers case by case.

        Args:
            cases: The cohort's cases.
            answers: The answer to each of them, in the same order; a row is empty where there is none.
            protocol: The rules.

        Returns:
            A value for each case by the metric's name, NaN where it is undefined.
        """

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        return self.specs

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        if predictions.kind != self.answer_kind:
            raise UserError(
                f"these predictions are of the kind {predictions.kind}, and {self.name} needs {self.answer_kind}",
                where=predictions.source,
            )
        if not self.has_truth(cohort):
            raise UserError(f"the cohort has no column '{self.target}' with the truth of {self.name}")
        source = cohort.cases.reset_index(drop=True)
        join = join_by_id(
            source["case_id"],
            predictions.table["case_id"],
            normalise=options.normalise_ids,
            source=predictions.source,
        )
        answers = predictions.table.reset_index(drop=True).reindex(join.row_of_case).reset_index(drop=True)
        empty = answers.drop(columns="case_id").isna().any(axis=1).to_numpy(dtype=bool)
        status = np.where(join.row_of_case < 0, "missing", np.where(empty, "invalid", "scored"))
        values = self.case_values(source, answers, protocol)
        return self._scores(
            source,
            {spec.name: np.asarray(values[spec.name], dtype=np.float64) for spec in self.specs},
            status,
            protocol=protocol,
            options=options,
            counts={"extra": len(join.extra)},
            flow=join.of_predictions,
            warnings=(*predictions.warnings, *join.warnings),
        )

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        names = [spec.name for spec in self.specs]
        missing = [name for name in ("case_id", *names) if name not in table.columns]
        if missing:
            raise UserError(
                f"the scores table has no column {', '.join(repr(name) for name in missing)}",
                where="scores table",
                fix=f"Columns: {', '.join(str(name) for name in table.columns)}.",
            )
        source = cohort.cases.reset_index(drop=True)
        join = join_by_id(source["case_id"], table["case_id"], source="scores table")
        held = table.reset_index(drop=True).reindex(join.row_of_case)
        values = {
            name: to_number(held[name], column=name, where="scores table").to_numpy(dtype=np.float64)
            for name in names
        }
        status = np.where(join.row_of_case < 0, "missing", "scored")
        if "status" in held.columns:
            said = held["status"].astype("string").fillna("scored").replace("undefined", "scored")
            status = np.where(join.row_of_case < 0, "missing", said.to_numpy(dtype=object))
        return self._scores(
            source,
            values,
            status,
            protocol=protocol,
            options=options,
            counts={"extra": len(join.extra)},
            flow=join.of_predictions,
            warnings=join.warnings,
        )

    def _scores(
        self,
        source: pd.DataFrame,
        values: Mapping[str, npt.NDArray[np.float64]],
        status: npt.NDArray[Any],
        *,
        protocol: Protocol,
        options: ScoreOptions,
        **about: Any,
    ) -> Scores:
        check_group_by(source, options.group_by)
        wanted = dict.fromkeys((*IDENTITY, *ATTRIBUTES, *protocol.fairness.variables, *options.group_by))
        cases = source[[name for name in wanted if name in source.columns]].copy()
        answered = status == "scored"
        undefined = np.zeros(len(cases), dtype=bool)
        for spec in self.specs:
            column = np.where(answered, values[spec.name], _worst(spec))
            undefined |= ~np.isfinite(column)
            cases[spec.name] = np.where(np.isfinite(column), column, np.nan)
        cases["status"] = pd.array(
            np.where(answered & undefined, "undefined", status).astype(object), dtype="string"
        )
        count = cases["status"].value_counts()
        counts = {"cases": len(cases), **{name: int(count.get(name, 0)) for name in (*STATUSES, "undefined")}}
        return Scores(
            task=self.name,
            protocol=protocol,
            cases=cases,
            counts=counts | about["counts"],
            flow=participant_flow(about["flow"], cohort_cases=len(cases), status=cases["status"]),
            warnings=about["warnings"],
        )

    def case_cost(self, scores: Scores) -> npt.NDArray[np.float64]:
        """Compute how far each case is from the best value of the primary metric.

        Args:
            scores: The scores.

        Returns:
            A number for each case, the higher the worse: the value of the metric, negated where more is better.
        """
        spec = next((spec for spec in self.specs if spec.primary), self.specs[0])
        values = scores.cases[spec.name].to_numpy(dtype=np.float64)
        return -values if spec.higher_is_better else values

    def partition(self, scores: Scores) -> Clusters:
        return Clusters.from_table(scores.cases)

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> ColumnMeans:
        return ColumnMeans(
            {spec.name: scores.cases[spec.name].to_numpy(dtype=np.float64) for spec in self.specs},
            partition.cluster_of_case,
            n_clusters=partition.n_clusters,
            specs=self.specs,
        )


def _worst(spec: MetricSpec) -> float:
    """Return the worst value of a metric, and refuse a metric whose worst value is its best."""
    best = spec.upper_bound if spec.higher_is_better else spec.lower_bound
    if not math.isfinite(spec.worst) or spec.worst == best:
        raise UserError(
            f"the metric '{spec.name}' declares {spec.worst:g} as its worst value",
            fix="Its authors have to give MetricSpec(worst=...): a number that no answer falls below.",
        )
    return spec.worst
