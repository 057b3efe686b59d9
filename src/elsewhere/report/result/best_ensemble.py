"""The leading number of ensembles on slides: how many chosen ones beat random ones, chosen on other patients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.numbers import interval, number
from elsewhere.report.result.prepare import Prepared

_RATE = "f1_mean_left_out"
_LEVEL = 0.05


def best_ensemble(data: Prepared) -> Mapping[str, str] | None:
    """Say how many chosen ensembles beat random ones, or which ensemble is the best.

    Args:
        data: The summary as it may be printed.

    Returns:
        The leading number of the first page; None for other summaries.
    """
    part = data.part("slide_ensembles")
    rows = [
        row for row in part.get("rows") or [] if isinstance(row, dict) and isinstance(row.get("rates"), dict)
    ]
    if not rows:
        return None
    best = _sentence(rows)
    crossed = [
        row for row in part.get("null") or [] if isinstance(row, dict) and row.get("kind") == "cross-fitted"
    ]
    if crossed:
        better = [str(row["name"]) for row in crossed if _p(row) is not None and float(_p(row)) <= _LEVEL]
        value = f"{len(better)} of {len(crossed)}"
        named = f" ({', '.join(better)})" if better else ""
        return _hero(
            "Rules of choice whose ensembles have a higher F1 than random ones of the same size",
            value,
            "Members chosen on other patients; p at most 0.05 each",
            f"{value} rules beat chance{named}. {best}",
        )
    top = max(rows, key=lambda row: row["rates"][_RATE]["value"] or -1.0)
    shown = interval(top["rates"][_RATE])
    return _hero(
        f"Highest F1 (mean of both classes, ITC left out): {top['name']}",
        f"{number(top['rates'][_RATE]['value'])} {shown}".strip(),
        "Mean over the folds; picked among all, and therefore optimistic",
        best,
    )


def _p(row: Mapping[str, Any]) -> Any:
    return (row.get("rates") or {}).get(_RATE, {}).get("p")


def _sentence(rows: list[dict[str, Any]]) -> str:
    parts = []
    for kind, word in (("ensemble", "ensemble"), ("model", "model")):
        mine = [row for row in rows if row.get("kind") == kind and row["rates"][_RATE]["value"] is not None]
        if mine:
            top = max(mine, key=lambda row: float(row["rates"][_RATE]["value"]))
            parts.append(f"the best {word} is {top['name']} with {number(top['rates'][_RATE]['value'])}")
    return f"By F1, {' and '.join(parts)}; both were picked on these slides." if parts else ""


def _hero(label: str, value: str, method: str, sentence: str) -> Mapping[str, str]:
    return {
        "label": label,
        "value": value,
        "interval": "",
        "method": method,
        "title": value,
        "spoken": f"{label}: {value}",
        "sentence": sentence,
    }
