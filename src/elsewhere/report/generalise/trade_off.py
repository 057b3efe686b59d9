"""Dice against false-positive rate: one mark per model at each domain (LN-18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.generalise.plots import MOST_NAMED, best_of_both, trade_off_scatter
from elsewhere.report.page.blocks import Pair, Section
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]
_NAME = "generalise-trade-off"


def _points(part: Row) -> list[dict[str, Any]]:
    """One point per model that has both metrics at both domains."""
    found: dict[str, dict[str, Any]] = {}
    for row in part.get("rows") or []:
        if isinstance(row, dict) and not row.get("stratum_of"):
            mine = found.setdefault(str(row.get("model")), {"model": str(row.get("model"))})
            for side in ("internal", "external"):
                mine[f"{row.get('metric')}_{side}"] = as_float(row.get(side))
    wanted = [f"{metric}_{side}" for metric in ("dice", "fpr") for side in ("internal", "external")]
    return [one for one in found.values() if all(one.get(key) is not None for key in wanted)]


def trade_off_figures(part: Row) -> list[FigureSpec]:
    """Draw Dice against the false-positive rate.

    Args:
        part: The part `generalise` of a summary.

    Returns:
        The figure; nothing where no model has both metrics.
    """
    points = _points(part)
    if not points:
        return []
    spoken = "; ".join(
        f"{one['model']}: internal {number(one['dice_internal'])} at {number(one['fpr_internal'], 4)}, "
        f"external {number(one['dice_external'])} at {number(one['fpr_external'], 4)}"
        for one in points
    )
    return [
        FigureSpec(
            name=_NAME,
            title="Dice of tumour patches against false-positive rate of normal ones",
            alt=f"Dice at false-positive rate. {spoken}.",
            build=lambda pal: trade_off_scatter(points, pal),
        )
    ]


def trade_off(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with Dice against false-positive rate.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where no model has both metrics.
    """
    points = _points(data.part("generalise"))
    drawn = picture(specs, _NAME)
    if not points or drawn is None:
        return None
    best = best_of_both(points)
    names = ", ".join(best[:MOST_NAMED]) + (
        f" and {len(best) - MOST_NAMED} more" if len(best) > MOST_NAMED else ""
    )
    return Section(
        id="generalise-trade-off",
        title="Dice against false positives",
        short="Trade-off",
        lead="Upper left is better. A line joins the two marks of a model. No other model has both a higher Dice and fewer false "
        f"positives at the external hospital: {names}. That order is a picture of these slides, not a test.",
        blocks=[Pair(pictures=[drawn])],
    )
