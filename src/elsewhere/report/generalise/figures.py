"""The figures of many models at two domains, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.generalise.plots import models_forest
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, as_float, number
from elsewhere.report.result.prepare import Prepared

LABELS = {"dice": "Dice, tumour patches", "fpr": "False-positive rate, normal patches"}
MOST_MODELS = 150


def generalise_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that many models at two domains can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        One forest per metric by patient, the ratio of false-positive rates, one by fold; or one per printed kind.
    """
    part = data.part("generalise")
    if not part:
        return []
    if part.get("printed"):
        return [_printed(kind) for kind in part["printed"] if isinstance(kind, dict)]
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict) and not row.get("stratum_of")]
    specs = []
    for metric in dict.fromkeys(str(row.get("metric")) for row in rows):
        mine = [row for row in rows if row.get("metric") == metric][:MOST_MODELS]
        label = LABELS.get(metric, metric)
        specs.append(
            _forest(
                f"generalise-{metric}", f"{label}: external {MINUS} internal, by patient", mine, "difference"
            )
        )
        if any(as_float(row.get("ratio_lo")) is not None for row in mine):
            specs.append(
                _forest(f"generalise-{metric}-ratio", f"{label}: external / internal", mine, "ratio")
            )
        if any(as_float(row.get("fold_lo")) is not None for row in mine):
            title = f"{label}: internal {MINUS} external, by fold (the study's test)"
            specs.append(_forest(f"generalise-{metric}-fold", title, mine, "fold"))
    return specs


_KEYS = {
    "difference": ("difference", "lo", "hi", "verdict", "margin"),
    "ratio": ("ratio", "ratio_lo", "ratio_hi", "ratio_verdict", "ratio_margin"),
    "fold": ("fold_difference", "fold_lo", "fold_hi", "", "fold_margin"),
}


def _forest(name: str, title: str, rows: list[dict[str, Any]], kind: str) -> FigureSpec:
    value, lo, hi, verdict, margin = _KEYS[kind]
    drawn = [
        {
            "model": row.get("model"),
            "value": row.get(value),
            "lo": row.get(lo),
            "hi": row.get(hi),
            "verdict": row.get(verdict) if verdict else _of_fold(row),
        }
        for row in rows
    ]
    edge = as_float(rows[0].get(margin)) if rows else None
    neutral = 1.0 if kind == "ratio" else 0.0
    axis = {"difference": f"external {MINUS} internal", "ratio": "external / internal"}.get(
        kind, f"internal {MINUS} external"
    )
    return FigureSpec(
        name=name,
        title=title + ("; dashed: the margins" if edge is not None else ""),
        alt="; ".join(f"{row['model']}: {number(row['value'])}" for row in drawn),
        build=lambda pal: models_forest(drawn, pal, axis_label=axis, margin=edge, neutral=neutral),
    )


def _of_fold(row: Mapping[str, Any]) -> str:
    return "EQUIVALENT" if row.get("fold_equivalent") else "INCONCLUSIVE"


def _printed(kind: dict[str, Any]) -> FigureSpec:
    rows = [
        {
            **row,
            "value": row.get("difference"),
            "verdict": "EQUIVALENT" if row.get("equivalent") else "INCONCLUSIVE",
        }
        for row in kind.get("rows") or []
    ]
    return FigureSpec(
        name=f"generalise-{kind.get('kind')}",
        title=f"{kind.get('kind')}: internal {MINUS} external as printed; dashed: the margins",
        alt="; ".join(f"{row['model']}: {number(row['value'])}" for row in rows),
        build=lambda pal: models_forest(
            rows, pal, axis_label=f"internal {MINUS} external", margin=as_float(kind.get("margin"))
        ),
    )
