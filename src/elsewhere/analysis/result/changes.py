"""Two results of what should be the same thing. What changed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from elsewhere.analysis.result.assessment import Assessment, ids_of_result
from elsewhere.privacy import Redactor

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
    """What differs between two results: causes (what went in) and effects (numbers and cases that came out).

    No case is named: `cases["first_changed_rows"]` are rows of the first result's scores.parquet, from 1.

    Args:
        causes: One entry per field of the provenance, or of task and protocol, that differs: `name`, both
            values as `a` and `b`, and `why` in words.
        metrics: One entry per metric whose value or interval differs: `name`, `a`, `b`, `change` (b - a, None
            where one is undefined) and `interval_only`.
        counts: One entry per count that differs: `name`, `a` and `b`.
        cases: How many cases are in one result only (`only_a`, `only_b`), in both, and changed, with the
            number of changed cells by column.
        unexplained: Whether a number changed although nothing that went in could have changed it.
    """

    causes: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]
    counts: tuple[dict[str, Any], ...]
    cases: dict[str, Any]
    unexplained: bool

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints.

        Returns:
            The fields of this object as plain lists and dicts; `same` is True where nothing differs.
        """
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


def find_changes(first: Assessment, second: Assessment) -> Changes:
    """Compare two results of what should be the same thing: provenance first, then counts, cases and metrics.

    Args:
        first: A result.
        second: Another.

    Returns:
        What went in differently, and what came out differently; no case is named.
    """
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
