"""`diff`: two results of what should be the same thing. What changed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.privacy import Redactor
from elsewhere.results import Result, ids_of_result, load_result

_WHY = {
    "cohort_hash": "the cohort's content changed",
    "predictions_digest": "the predictions changed",
    "protocol_digest": "the scoring rules changed",
    "seed": "the seed changed (intervals only)",
    "resamples": "the number of resamples changed (intervals only)",
    "code_version": "the software changed",
    "settings": "the settings changed (threshold, matching, fairness weight, groups)",
    "split_hash": "the split changed",
}
_INTERVALS_ONLY = {"seed", "resamples"}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Causes (what went in), and effects (numbers and cases that came out otherwise).

    No case is named: `cases["first_changed_rows"]` are rows of the first result's scores.parquet, from 1.
    """

    causes: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]
    counts: tuple[dict[str, Any], ...]
    cases: dict[str, Any]
    unexplained: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "same": not (
                self.causes
                or self.metrics
                or self.counts
                or self.cases["changed"]
                or self.cases["only_a"]
                or self.cases["only_b"]
            ),
            "causes": list(self.causes),
            "metrics": list(self.metrics),
            "counts": list(self.counts),
            "cases": self.cases,
            "unexplained": self.unexplained,
        }

    def lines(self) -> Iterator[str]:
        if self.to_dict()["same"]:
            yield "nothing changed"
            return
        for cause in self.causes:
            yield f"why: {cause['why']} ({cause['a']} -> {cause['b']})"
        for row in self.counts:
            yield f"count {row['name']}: {row['a']} -> {row['b']}"
        cases = self.cases
        yield f"cases: {cases['only_a']} only in the first, {cases['only_b']} only in the second, {cases['changed']} of {cases['both']} scored otherwise"
        for row in self.metrics:
            move = "" if row["change"] is None else f" ({row['change']:+.6g})"
            yield f"  {row['name']:32s} {row['a']} -> {row['b']}{move}" + (
                " interval only" if row["interval_only"] else ""
            )
        if self.unexplained:
            yield "warning: numbers changed although nothing that went in did; report this as a fault"


def diff(a: str | Path | Result, b: str | Path | Result) -> Changes:
    """Compare two results: provenance first, then counts, cases and metrics."""
    first = a if isinstance(a, Result) else load_result(a)
    second = b if isinstance(b, Result) else load_result(b)
    causes = [
        {
            "name": name,
            "a": first.summary["provenance"].get(name),
            "b": second.summary["provenance"].get(name),
            "why": why,
        }
        for name, why in _WHY.items()
        if first.summary["provenance"].get(name) != second.summary["provenance"].get(name)
    ]
    for name in ("task", "protocol", "protocol_version"):
        if first.summary.get(name) != second.summary.get(name):
            causes.append(
                {
                    "name": name,
                    "a": first.summary.get(name),
                    "b": second.summary.get(name),
                    "why": f"the {name.replace('_', ' ')} changed",
                }
            )
    metrics = []
    for name in dict.fromkeys([*first.metrics, *second.metrics]):
        x, y = first.metrics.get(name, {}), second.metrics.get(name, {})
        if any(x.get(k) != y.get(k) for k in ("value", "lo", "hi")):
            va, vb = x.get("value"), y.get("value")
            metrics.append(
                {
                    "name": name,
                    "a": va,
                    "b": vb,
                    "change": None if va is None or vb is None else vb - va,
                    "interval_only": va == vb,
                }
            )
    counts = [
        {"name": name, "a": first.summary["counts"].get(name), "b": second.summary["counts"].get(name)}
        for name in dict.fromkeys([*first.summary["counts"], *second.summary["counts"]])
        if first.summary["counts"].get(name) != second.summary["counts"].get(name)
    ]
    cases = _changed_cases(first.scores.cases, second.scores.cases)
    values_moved = any(not row["interval_only"] for row in metrics)
    explained = {cause["name"] for cause in causes}
    unexplained = (values_moved and not explained - _INTERVALS_ONLY) or (bool(metrics) and not explained)
    redactor = Redactor([*ids_of_result(first), *ids_of_result(second)])
    return Changes(
        causes=tuple(redactor.tree(causes)),
        metrics=tuple(metrics),
        counts=tuple(counts),
        cases=cases,
        unexplained=unexplained,
    )


def _changed_cases(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Any]:
    x, y = a.set_index("case_id"), b.set_index("case_id")
    shared = x.index.intersection(y.index)
    columns = [c for c in x.columns if c in y.columns]
    left, right = x.loc[shared, columns], y.loc[shared, columns]
    differs = ~((left == right) | (left.isna() & right.isna())).fillna(False).astype(bool)
    changed = differs.any(axis=1)
    return {
        "only_a": len(x.index.difference(y.index)),
        "only_b": len(y.index.difference(x.index)),
        "both": len(shared),
        "changed": int(changed.sum()),
        "columns": {str(c): int(n) for c, n in differs.sum().items() if n},
        "first_changed_rows": (x.index.get_indexer(shared[changed.to_numpy()][:10]) + 1).tolist(),
    }
