"""Metrics with intervals within each group, and recall within each class: descriptive tables.

A group that cannot be estimated stands in the table with its reason; the cases whose attribute is missing
stand there as a row of their own, and enter no range (ST-08).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import IntervalRules
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricKind

MISSING = "missing"
NOT_OF_A_GROUP = frozenset({"fairness", "combined"})


def comparable_metrics(evaluator: Evaluator) -> tuple[str, ...]:
    """The metrics a group can have of its own: ranges over groups, and what holds them, cannot."""
    return tuple(
        s.name for s in evaluator.specs if s.kind is not MetricKind.RANGE and s.name not in NOT_OF_A_GROUP
    )


def group_table(
    evaluator: Evaluator,
    partition: Clusters,
    codes: Sequence[Any],
    *,
    rules: IntervalRules,
    key: str,
    seed: int,
    resamples: int,
    metrics: Sequence[str] | None = None,
    positive: npt.ArrayLike | None = None,
    answered: npt.NDArray[np.bool_] | None = None,
    headline: str | None = None,
    threads: int | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """summary.json's `groups`: {variable: {group: {cases, patients, positives?, without_score?, metrics, note?}}}.

    `codes` are `GroupCodes`. `metrics` None: all that a group can have of its own. `positive` (a truth a
    case) adds the number of positives. Intervals are those of `estimate_all` on the group's cases. `answered`
    marks the cases with a usable score: a group with others has their number in `without_score`, and the values
    without them, the `headline` metric with its interval.
    """
    wanted = tuple(metrics) if metrics is not None else comparable_metrics(evaluator)
    truth = None if positive is None else np.nan_to_num(np.asarray(positive, dtype=np.float64)) > 0
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for coded in codes:
        rows: dict[str, dict[str, Any]] = {}
        labels = [*enumerate(coded.names), *([(-1, MISSING)] if coded.missing else [])]
        for code, name in labels:
            label = f"{name} (no value)" if code == -1 and name in coded.names else name
            rows[label] = _row(
                evaluator, partition, coded.codes == code, truth, wanted,
                answered=answered, headline=headline,
                rules=rules, key=key, seed=seed, resamples=resamples, threads=threads,
            )  # fmt: skip
            if code == -1:
                rows[label]["note"] = "Missing or left out by the protocol: shown, never in the range."
        out[coded.variable] = rows
    return out


def _row(
    evaluator: Evaluator,
    partition: Clusters,
    mask: npt.NDArray[np.bool_],
    truth: npt.NDArray[np.bool_] | None,
    metrics: Sequence[str],
    *,
    answered: npt.NDArray[np.bool_] | None,
    headline: str | None,
    rules: IntervalRules,
    key: str,
    seed: int,
    resamples: int,
    threads: int | None,
) -> dict[str, Any]:
    cases = int(mask.sum())
    row: dict[str, Any] = {"cases": cases, "patients": int(np.unique(partition.cluster_of_case[mask]).size)}
    if truth is not None:
        row["positives"] = int(truth[mask].sum())
    if cases == 0:
        empty = {"value": None, "lo": None, "hi": None, "method": "none", "undefined_reason": "no case"}
        return row | {"metrics": {m: dict(empty) for m in metrics}, "note": "No case in this group."}
    estimates = estimate_all(
        evaluator.subset(mask), partition.within(mask), rules=rules, key=key, seed=seed, resamples=resamples,
        level=rules.level, metrics=metrics, threads=threads,
    )  # fmt: skip
    row["metrics"] = {name: estimate.to_dict() for name, estimate in estimates.items()}
    undefined = [name for name, estimate in estimates.items() if estimate.value is None]
    if undefined:
        row["note"] = f"Not estimable here: {', '.join(undefined)}."
    both = mask if answered is None else mask & answered
    if int(both.sum()) < cases:
        row["without_score"] = cases - int(both.sum())
    if both.any() and int(both.sum()) < cases:
        made = answered_values(
            evaluator.subset(both), partition.within(both), rules=rules, key=key, seed=seed,
            resamples=resamples, metrics=metrics, interval_of=headline, threads=threads,
        )  # fmt: skip
        for name, entry in made.items():
            row["metrics"][name] |= entry
    return row


def answered_values(
    evaluator: Evaluator,
    partition: Clusters,
    *,
    rules: IntervalRules,
    key: str,
    seed: int,
    resamples: int,
    metrics: Sequence[str],
    interval_of: str | None,
    threads: int | None,
) -> dict[str, dict[str, Any]]:
    """`answered_only` of each metric (None: undefined), and `answered_only_interval` of one.

    `evaluator` has the answered cases alone: missing stays the worst value in the metric itself (ST-14).
    """
    values = evaluator.values()
    out: dict[str, dict[str, Any]] = {
        name: {"answered_only": None if np.isnan(values[name]) else values[name]} for name in metrics
    }
    if interval_of in out:
        made = estimate_all(
            evaluator, partition, rules=rules, key=key, seed=seed, resamples=resamples, level=rules.level,
            metrics=[interval_of], threads=threads,
        )[interval_of]  # fmt: skip
        if made.lo is not None or made.hi is not None:
            out[interval_of]["answered_only_interval"] = [made.lo, made.hi]
    return out
