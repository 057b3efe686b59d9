"""The figures of a reader study, by name."""

from __future__ import annotations

from typing import Any

from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, as_float, number
from elsewhere.report.readers import plots
from elsewhere.report.result.prepare import Prepared

MOST_READERS = 40


def reader_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that a reader study can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        The readers with each treatment, and the differences in the leading analysis and per reader.
    """
    part = data.part("readers")
    rows = [row for row in part.get("per_reader") or [] if isinstance(row, dict)]
    if not rows:
        return []
    title = str((part.get("figure") or {}).get("title") or "Figure of merit")
    treatments = [str(name) for name in part.get("treatments") or []]
    of_model = {
        str(panel.get("treatment")): panel["value"]
        for panel in part.get("panel") or []
        if as_float(panel.get("value")) is not None
    }
    noun = str(part.get("readers_are") or "readers")[:-1]
    specs = []
    names = [f"{row['treatment']}: {row['reader']}" for row in rows]
    nested = part.get("design") == "nested"
    shown = [{**row, "reader": name} for row, name in zip(rows, names, strict=True)] if nested else rows
    if len({row["reader"] for row in shown}) <= MOST_READERS:
        lines = ", dashed: the model" if of_model else ""
        specs.append(
            FigureSpec(
                name="reader-values",
                title=f"{title} of each {noun}{lines}",
                alt="; ".join(f"{row['treatment']}, {row['reader']}: {number(row['value'])}" for row in rows),
                build=lambda pal: plots.reader_values(
                    shown, treatments, pal, axis_label=title, model=of_model
                ),
            )
        )
    differences = _differences(part)
    if differences:
        margin = _margin(data, part)
        specs.append(
            FigureSpec(
                name="reader-analyses",
                title=f"Differences of {title}, {_level(part)} intervals"
                + ("; dashed: the non-inferiority margin" if margin is not None else ""),
                alt="; ".join(f"{name}: {number(row.get('value'))}" for name, row in differences),
                build=lambda pal: plots.analysis_differences(
                    differences, pal, axis_label=f"Difference of {title}", margin=margin
                ),
            )
        )
    return specs


def _differences(part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The differences of the figure: each analysis, then each reader where there are two treatments."""
    analyses = part.get("analyses") or {}
    panels = part.get("panel") or []
    rows: list[tuple[str, dict[str, Any]]] = []
    leading = analyses.get(part.get("random")) or {}
    if panels:
        for panel in panels:
            row = (panel.get("analyses") or {}).get(part.get("random")) or {}
            rows.append((f"{panel['model']} {MINUS} readers, {panel['treatment']}", row))
    pairs = leading.get("differences") or []
    rows += [(f"{row['first']} {MINUS} {row['second']}", row) for row in pairs]
    if len(pairs) == 1:
        readers = part.get("reader_differences") or []
        if len(readers) <= MOST_READERS:
            rows += [(f"reader {row['reader']}", row) for row in readers]
    return [(name, row) for name, row in rows if as_float(row.get("value")) is not None]


def _level(part: dict[str, Any]) -> str:
    return f"{100 * (as_float(part.get('level')) or 0.95):g} %"


def _margin(data: Prepared, part: dict[str, Any]) -> float | None:
    claims = data.part("verdict").get("claims") or []
    margin = as_float(claims[0].get("margin")) if claims and isinstance(claims[0], dict) else None
    if margin is None:
        return None
    return -margin if (part.get("figure") or {}).get("higher_is_better", True) else margin
