"""The figures of many models at two domains, by name."""

from __future__ import annotations

from typing import Any

from elsewhere.report.generalise.forests import difference_forest
from elsewhere.report.generalise.kinds import kind_figures
from elsewhere.report.generalise.labels import LABELS
from elsewhere.report.generalise.plots import models_forest
from elsewhere.report.generalise.strata import stratum_figures
from elsewhere.report.generalise.trade_off import trade_off_figures
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, as_float, number
from elsewhere.report.result.prepare import Prepared


def generalise_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that many models at two domains can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        Dice against false positives; forests per metric by patient, as a ratio, at an equal mix, by fold and per stratum;
        heat maps of the strata; means by share and clustering. Of printed numbers, one forest per kind of patch.
    """
    part = data.part("generalise")
    if not part:
        return []
    if part.get("printed"):
        return [_printed(kind) for kind in part["printed"] if isinstance(kind, dict)]
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict) and not row.get("stratum_of")]
    specs = trade_off_figures(part)
    for metric in dict.fromkeys(str(row.get("metric")) for row in rows):
        mine = [row for row in rows if row.get("metric") == metric]
        label = LABELS.get(metric, metric)
        specs.append(
            difference_forest(
                f"generalise-{metric}", f"{label}: external {MINUS} internal, by patient", mine, "difference"
            )
        )
        if any(as_float(row.get("ratio_lo")) is not None for row in mine):
            specs.append(
                difference_forest(
                    f"generalise-{metric}-ratio", f"{label}: external / internal", mine, "ratio"
                )
            )
        if any(as_float(row.get("standardised_lo")) is not None for row in mine):
            title = f"{label}: at the internal mix of cases"
            specs.append(difference_forest(f"generalise-{metric}-mix", title, mine, "mix"))
        if any(as_float(row.get("fold_lo")) is not None for row in mine):
            title = f"{label}: internal {MINUS} external, by fold (the study's test)"
            specs.append(difference_forest(f"generalise-{metric}-fold", title, mine, "fold"))
    return [*specs, *stratum_figures(part), *kind_figures(part)]


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
