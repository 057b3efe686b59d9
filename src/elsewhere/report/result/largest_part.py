"""The leading number of a divided drop: the intervention that gives back most of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.numbers import as_float, interval, signed
from elsewhere.report.result.prepare import Prepared


def largest_part(data: Prepared) -> Mapping[str, str] | None:
    """Say which intervention gives back most of the first drop that is reliably above 0.

    Args:
        data: The summary as it may be printed.

    Returns:
        The leading number of the first page; None for other summaries.
    """
    part = data.part("shift")
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict)]
    if not rows:
        return None
    labels = {
        str(one.get("name")): str(one.get("label"))
        for one in part.get("metrics") or []
        if isinstance(one, dict)
    }
    reliable = [row for row in rows if row.get("quantity") == "drop" and (as_float(row.get("lo")) or 0.0) > 0]
    if not reliable:
        return _hero(
            "The drop at the other laboratory",
            "not reliable",
            "By patient, all models and metrics",
            "No model has a drop whose interval lies above 0, so that there is nothing to divide.",
        )
    drop = reliable[0]
    mine = [
        row
        for row in rows
        if (row.get("model"), row.get("metric")) == (drop.get("model"), drop.get("metric"))
    ]
    parts = [row for row in mine if row.get("quantity") == "part" and row.get("direction") != "not applied"]
    metric = labels.get(str(drop.get("metric")), str(drop.get("metric")))
    left = next((row for row in mine if row.get("quantity") == "left over"), {})
    sizes = f"Drop {_sized(drop)}; left over {_sized(left)}."
    if not parts:
        return _hero(
            f"The drop in {metric}, {drop.get('model')}",
            str(signed(drop.get("value"))),
            "By patient",
            f"No difference of the pictures was large enough to be rendered. {sizes}",
        )
    best = max(parts, key=lambda row: as_float(row.get("value")) or 0.0)
    share = as_float(best.get("share")) or 0.0
    return _hero(
        f"Largest part of the drop in {metric}, {drop.get('model')}",
        f"{str(best.get('intervention')).capitalize()}: {100 * share:.0f} %",
        "In the mean over all orders of the interventions, by patient",
        f"It gives back {_sized(best)}. {sizes}",
    )


def _sized(row: Mapping[str, Any]) -> str:
    return f"{signed(row.get('value'))} {interval(row, sign=True)}".strip()


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
