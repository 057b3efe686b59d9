"""Metrics with intervals within each group, and recall within each class: descriptive tables.

A group that cannot be estimated is in the table with its reason; the cases whose attribute is missing
have a row of their own, and enter no range (ST-08).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import IntervalRules
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricKind
from elsewhere.statistics.resampling import Resampling

MISSING = "missing"
NOT_OF_A_GROUP = frozenset({"fairness", "combined"})


def comparable_metrics(evaluator: Evaluator) -> tuple[str, ...]:
    """List the metrics that a group can have of its own.

    Args:
        evaluator: The metrics of the cases.

    Returns:
        The metrics a group can have of its own: ranges over groups, and what holds them, cannot.
    """
    return tuple(
        s.name for s in evaluator.specs if s.kind is not MetricKind.RANGE and s.name not in NOT_OF_A_GROUP
    )


@dataclass(frozen=True, kw_only=True)
class CaseFacts:
    """What is known of each case in addition to its metrics.

    Attributes:
        truth: The outcome of each case, above 0 for a positive one; None where the task has no classes.
        answered: The cases with a usable score; None where every case has one.
    """

    truth: npt.ArrayLike | None = None
    answered: npt.NDArray[np.bool_] | None = None

    def positive(self) -> npt.NDArray[np.bool_] | None:
        """Find the positive cases; a case of unknown outcome is not one.

        Returns:
            A mask of the cases; None where the task has no classes.

        Example:
            >>> CaseFacts(truth=[0.0, 1.0, float("nan")]).positive().tolist()
            [False, True, False]
        """
        if self.truth is None:
            return None
        return np.asarray(np.nan_to_num(np.asarray(self.truth, dtype=np.float64)) > 0, dtype=np.bool_)


NOTHING_KNOWN = CaseFacts()


def group_table(
    evaluator: Evaluator,
    partition: Clusters,
    codes: Sequence[Any],
    *,
    rules: IntervalRules,
    resampling: Resampling,
    metrics: Sequence[str] | None = None,
    facts: CaseFacts = NOTHING_KNOWN,
    headline: str | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Estimate every metric within each group: summary.json's `groups`.

    Args:
        evaluator: The metrics of all cases.
        partition: Cases to patients and sites.
        codes: `GroupCodes`, one per variable.
        rules: The protocol's rules for intervals.
        resampling: The resamples of the groups' intervals.
        metrics: Names of metrics; None for all that a group can have of its own.
        facts: Outcomes, which add the number of positives; and the cases with a usable score: a group with
            others has their number in `without_score`, and the values without them.
        headline: The metric that gets an interval without the unanswered cases as well.

    Returns:
        {variable: {group: {cases, patients, positives?, without_score?, metrics, note?}}}.
    """
    wanted = tuple(metrics) if metrics is not None else comparable_metrics(evaluator)
    table = _Groups(
        evaluator, partition, wanted, headline, facts.positive(), facts.answered, rules, resampling
    )
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for coded in codes:
        rows: dict[str, dict[str, Any]] = {}
        labels = [*enumerate(coded.names), *([(-1, MISSING)] if coded.missing else [])]
        for code, name in labels:
            label = f"{name} (no value)" if code == -1 and name in coded.names else name
            rows[label] = table.row(coded.codes == code)
            if code == -1:
                rows[label]["note"] = "Missing or left out by the protocol: shown, never in the range."
        out[coded.variable] = rows
    return out


@dataclass(frozen=True)
class _Groups:
    """What all rows of a table of groups share."""

    evaluator: Evaluator
    partition: Clusters
    metrics: Sequence[str]
    headline: str | None
    truth: npt.NDArray[np.bool_] | None
    answered: npt.NDArray[np.bool_] | None
    rules: IntervalRules
    resampling: Resampling

    def row(self, mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """The row of the cases of one group."""
        evaluator, partition, metrics = self.evaluator, self.partition, self.metrics
        cases = int(mask.sum())
        patients = int(np.unique(partition.cluster_of_case[mask]).size)
        row: dict[str, Any] = {"cases": cases, "patients": patients}
        if self.truth is not None:
            row["positives"] = int(self.truth[mask].sum())
        if cases == 0:
            empty = {"value": None, "lo": None, "hi": None, "method": "none", "undefined_reason": "no case"}
            return row | {"metrics": {m: dict(empty) for m in metrics}, "note": "No case in this group."}
        estimates = estimate_all(
            evaluator.subset(mask), partition.within(mask), rules=self.rules, resampling=self.resampling,
            level=self.rules.level, metrics=metrics,
        )  # fmt: skip
        row["metrics"] = {name: estimate.to_dict() for name, estimate in estimates.items()}
        undefined = [name for name, estimate in estimates.items() if estimate.value is None]
        if undefined:
            row["note"] = f"Not estimable here: {', '.join(undefined)}."
        both = mask if self.answered is None else mask & self.answered
        if int(both.sum()) < cases:
            row["without_score"] = cases - int(both.sum())
        if both.any() and int(both.sum()) < cases:
            made = answered_values(
                evaluator.subset(both), partition.within(both), rules=self.rules, resampling=self.resampling,
                metrics=metrics, interval_of=self.headline,
            )  # fmt: skip
            for name, entry in made.items():
                row["metrics"][name] |= entry
        return row


def answered_values(
    evaluator: Evaluator,
    partition: Clusters,
    *,
    rules: IntervalRules,
    resampling: Resampling,
    metrics: Sequence[str],
    interval_of: str | None,
) -> dict[str, dict[str, Any]]:
    """Evaluate the answered cases alone: missing stays the worst value in the metric itself (ST-14).

    Args:
        evaluator: The metrics of the answered cases.
        partition: These cases to patients and sites.
        rules: The protocol's rules for intervals.
        resampling: The resamples of the interval.
        metrics: Names of metrics.
        interval_of: The metric that gets an interval.

    Returns:
        `answered_only` of each metric (None: undefined), and `answered_only_interval` of one.
    """
    values = evaluator.values()
    out: dict[str, dict[str, Any]] = {
        name: {"answered_only": None if np.isnan(values[name]) else values[name]} for name in metrics
    }
    if interval_of in out:
        made = estimate_all(
            evaluator, partition, rules=rules, resampling=resampling, level=rules.level, metrics=[interval_of]
        )[interval_of]
        if made.lo is not None or made.hi is not None:
            out[interval_of]["answered_only_interval"] = [made.lo, made.hi]
    return out
