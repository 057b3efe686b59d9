"""Forests of many models with dashed margins: by patient, as a ratio, at an equal mix of cases, by fold (LN-13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.report.generalise.plots import models_forest
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, as_float, number

MOST_MODELS = 150


_KEYS = {
    "difference": ("difference", "lo", "hi", "verdict", "margin"),
    "ratio": ("ratio", "ratio_lo", "ratio_hi", "ratio_verdict", "ratio_margin"),
    "mix": ("standardised_difference", "standardised_lo", "standardised_hi", "", "margin"),
    "fold": ("fold_difference", "fold_lo", "fold_hi", "", "fold_margin"),
}


def difference_forest(name: str, title: str, models: Sequence[Mapping[str, Any]], kind: str) -> FigureSpec:
    """Draw one interval per model.

    Args:
        name: The name of the figure.
        title: Its title, to which a remark on the margins is added.
        models: Rows of one metric in one stratum; the first 150 are drawn.
        kind: `difference`, `ratio`, `mix` (at an equal mix of cases) or `fold`.

    Returns:
        The figure.

    Example:
        >>> difference_forest("a", "Dice", [{"model": "unet", "difference": 0.1, "margin": 0.2}], "difference").title
        'Dice; dashed: the margins'
    """
    rows = models[:MOST_MODELS]
    value, lo, hi, verdict, margin = _KEYS[kind]
    drawn = [
        {
            "model": row.get("model"),
            "value": row.get(value),
            "lo": row.get(lo),
            "hi": row.get(hi),
            "verdict": row.get(verdict) if verdict else _of_fold(row) if kind == "fold" else "",
        }
        for row in rows
    ]
    edge = as_float(rows[0].get(margin)) if rows else None
    neutral = 1.0 if kind == "ratio" else 0.0
    axes = {"fold": f"internal {MINUS} external", "ratio": "external / internal"}
    axis = axes.get(kind, f"external {MINUS} internal")
    return FigureSpec(
        name=name,
        title=title + ("; dashed: the margins" if edge is not None else ""),
        alt="; ".join(f"{row['model']}: {number(row['value'])}" for row in drawn),
        build=lambda pal: models_forest(drawn, pal, axis_label=axis, margin=edge, neutral=neutral),
    )


def _of_fold(row: Mapping[str, Any]) -> str:
    return "EQUIVALENT" if row.get("fold_equivalent") else "INCONCLUSIVE"
