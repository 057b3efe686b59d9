"""The curves of the ranked models, one small picture per model, with the other models behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.axes import shorten
from elsewhere.report.page.blocks import Section, Table, num, text
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.numbers import number
from elsewhere.report.result.prepare import Prepared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_UP_TO = 5.0
_READ_AT = (0.5, 1.0, 2.0, 4.0)
_COLUMNS = 3


def ranking_curves(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the curves.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the ranking has no curves.
    """
    part = data.part("ranking_curves")
    rows = _rows(part)
    if not rows:
        return None
    drawn = picture(specs, "ranking-curves")
    table = Table(
        name="ranking_curves",
        caption="Sensitivity at some false positives per volume, volumes with a lesion",
        columns=["Model", *(f"{rate:g}" for rate in _READ_AT)],
        rows=[[text(row["model"]), *(num(_at(part, row["y"], rate)) for rate in _READ_AT)] for row in rows],
    )
    band = str(part.get("band") or "")
    return Section(
        id="curves",
        title="FROC of each model",
        short="Curves",
        lead=f"Shaded: {band}. Grey: the other models." if band else "Grey: the other models.",
        blocks=[*([drawn] if drawn else []), table],
    )


def curve_figures(data: Prepared) -> Iterable[FigureSpec]:
    """List the figure of the curves.

    Args:
        data: The summary as it may be printed.

    Yields:
        One figure with a small picture per model, where the ranking has curves.
    """
    part = data.part("ranking_curves")
    rows = _rows(part)
    if rows:
        yield FigureSpec(
            name="ranking-curves",
            title="FROC of each model",
            alt="; ".join(f"{row['model']}: {number(_at(part, row['y'], 2.0))} at 2" for row in rows),
            build=lambda pal: draw_curves(part, rows, pal),
        )


def draw_curves(part: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw one small picture per model.

    Args:
        part: The `ranking_curves` of a summary.
        rows: Its models.
        pal: The colours.

    Returns:
        The figure.
    """
    x = _numbers(part["x"])
    shown = x <= _SHOWN_UP_TO
    lines = math.ceil(len(rows) / _COLUMNS)
    figure, first = new_figure(0.5 + 1.75 * lines, pal)
    first.remove()
    grid = figure.subplots(lines, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(rows):
            axes.set_visible(False)
            continue
        style(axes, pal, grid="y")
        row = rows[place]
        for other in rows:
            if other is not row:
                axes.plot(x[shown], _numbers(other["y"])[shown], color=pal.line, linewidth=0.9)
        if row.get("lo") is not None and row.get("hi") is not None:
            low, high = _numbers(row["lo"])[shown], _numbers(row["hi"])[shown]
            axes.fill_between(x[shown], low, high, color=pal.accent, alpha=0.18, linewidth=0)
        axes.plot(x[shown], _numbers(row["y"])[shown], color=pal.accent, linewidth=1.8)
        axes.set_title(shorten(str(row["model"]), 22), fontsize=10.5, color=pal.ink, loc="left")
        axes.set_xlim(0, _SHOWN_UP_TO)
        axes.set_xticks([0, 2, 4])
        axes.set_ylim(0, 1.005)
    figure.supxlabel(str(part.get("x_label") or ""), fontsize=11, color=pal.ink)
    figure.supylabel(str(part.get("y_label") or ""), fontsize=11, color=pal.ink)
    return figure


def _rows(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = part.get("models")
    x = part.get("x")
    if not isinstance(rows, list) or not isinstance(x, list):
        return []
    whole = [row for row in rows if isinstance(row, Mapping)]
    return [row for row in whole if isinstance(row.get("y"), list) and len(row["y"]) == len(x)]


def _numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(values, dtype=np.float64)


def _at(part: Mapping[str, Any], values: Any, rate: float) -> float:
    return float(np.interp(rate, _numbers(part["x"]), _numbers(values)))
