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
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricKind
from elsewhere.statistics.partition import Partition
from elsewhere.statistics.resampling import WeightStream

MISSING = "missing"
NOT_OF_A_GROUP = frozenset({"fairness", "combined"})


def comparable_metrics(evaluator: Evaluator) -> tuple[str, ...]:
    """The metrics a group can have of its own: ranges over groups, and what holds them, cannot."""
    return tuple(
        s.name for s in evaluator.specs if s.kind is not MetricKind.RANGE and s.name not in NOT_OF_A_GROUP
    )


def group_table(
    evaluator: Evaluator,
    partition: Partition,
    codes: Sequence[Any],
    *,
    rules: IntervalRules,
    key: str,
    seed: int,
    resamples: int,
    metrics: Sequence[str] | None = None,
    positive: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """summary.json's `groups`: {variable: {group: {cases, patients, positives?, metrics, note?}}}.

    `codes` are `GroupCodes`. `metrics` None: all that a group can have of its own. `positive` (a truth a
    case) adds the number of positives. Intervals are those of `estimate_all` on the group's cases.
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
                rules=rules, key=key, seed=seed, resamples=resamples, threads=threads,
            )  # fmt: skip
            if code == -1:
                rows[label]["note"] = "Missing or left out by the protocol: shown, never in the range."
        out[coded.variable] = rows
    return out


def _row(
    evaluator: Evaluator,
    partition: Partition,
    mask: npt.NDArray[np.bool_],
    truth: npt.NDArray[np.bool_] | None,
    metrics: Sequence[str],
    *,
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
        evaluator.subset(mask), partition, rules=rules, key=key, seed=seed, resamples=resamples,
        level=rules.level, metrics=metrics, threads=threads,
    )  # fmt: skip
    row["metrics"] = {name: estimate.to_dict() for name, estimate in estimates.items()}
    undefined = [name for name, estimate in estimates.items() if estimate.value is None]
    if undefined:
        row["note"] = f"Not estimable here: {', '.join(undefined)}."
    return row


def recall_by_class(
    partition: Partition,
    truth: npt.ArrayLike,
    decision: npt.ArrayLike,
    *,
    key: str,
    seed: int,
    resamples: int = 1000,
    level: float = 0.95,
    by_site: bool = True,
) -> dict[str, dict[str, float | None]]:
    """Recall of the positive and of the negative class, and their gap, positive - negative (MRI-11).

    A negative gap: the model defaults to the negative class. Percentile intervals over patients: the gap is
    a difference of two means, not a range, so its bootstrap is sound.
    """
    t, d = np.asarray(truth, dtype=np.float64), np.asarray(decision, dtype=np.float64) > 0
    usable = np.isfinite(t)
    sums = []
    for part in (usable & (t > 0), usable & ~(t > 0)):
        right = part & (d == (t > 0))
        for column in (right, part):
            sums.append(
                np.bincount(partition.cluster_of_case, weights=column, minlength=partition.n_clusters)
            )
    matrix = np.stack(sums, axis=1)

    def recalls(weights: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
        total = weights.astype(np.float64) @ matrix
        with np.errstate(invalid="ignore", divide="ignore"):
            pos, neg = total[:, 0] / total[:, 1], total[:, 2] / total[:, 3]
        return np.stack([pos, neg, pos - neg], axis=1)

    point = recalls(np.ones((1, partition.n_clusters), dtype=np.uint16))[0]
    stream = WeightStream(partition, key=key, seed=seed, resamples=resamples, by_site=by_site)
    draws = [recalls(w) for _, w in stream]
    out: dict[str, dict[str, float | None]] = {}
    for i, name in enumerate(("positive", "negative", "gap")):
        column = np.concatenate([d[:, i] for d in draws]) if draws else np.zeros(0)
        known = column[np.isfinite(column)]
        ends = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]) if known.size else [np.nan, np.nan]
        values = {"value": point[i], "lo": ends[0], "hi": ends[1]}
        out[name] = {k: float(v) if np.isfinite(v) else None for k, v in values.items()}
    return out
