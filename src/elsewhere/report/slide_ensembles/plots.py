"""Scatter, forest and comparison with random ensembles, of models and ensembles on slides (LN-15, LN-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.axes import shorten
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
_ROW, _LETTERS = 0.24, 24


def _colour(row: Row, pal: Palette) -> str:
    return pal.muted if row.get("kind") == "model" else pal.accent


def rates_scatter(
    rows: Sequence[Row], pal: Palette, *, x_label: str, y_label: str, named: Sequence[str]
) -> Figure:
    """Draw one point per model and ensemble, ensembles with their intervals.

    Args:
        rows: Rows with `name`, `kind`, and `x` and `y`: each a value with `lo` and `hi`.
        pal: The colours.
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.
        named: The names that are written next to their points.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.6, pal)
    style(axes, pal, grid="both")
    for row in sorted(rows, key=lambda one: one.get("kind") != "model"):
        x, y = as_float(row["x"].get("value")), as_float(row["y"].get("value"))
        if x is None or y is None:
            continue
        colour = _colour(row, pal)
        ensemble = row.get("kind") != "model"
        if ensemble and row["name"] in named:
            for key, at, draw in (("x", y, axes.hlines), ("y", x, axes.vlines)):
                lo, hi = as_float(row[key].get("lo")), as_float(row[key].get("hi"))
                if lo is not None and hi is not None:
                    draw(at, lo, hi, color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(
            [x],
            [y],
            marker="o" if ensemble else "D",
            markersize=6 if ensemble else 4,
            color=colour if ensemble else pal.paper,
            markeredgecolor=pal.paper if ensemble else colour,
            markeredgewidth=0.8,
            linestyle="none",
        )
    for row in rows:
        x, y = as_float(row["x"].get("value")), as_float(row["y"].get("value"))
        if row["name"] in named and x is not None and y is not None:
            right = x > sum(axes.get_xlim()) / 2
            axes.annotate(
                shorten(str(row["name"]), _LETTERS),
                (x, y),
                xytext=(-6 if right else 6, 5),
                textcoords="offset points",
                ha="right" if right else "left",
                fontsize=8,
                color=pal.ink,
            )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return figure


def rates_forest(rows: Sequence[Row], pal: Palette, *, axis_label: str) -> Figure:
    """Draw one interval per model and ensemble, and the printed value where there is one.

    Args:
        rows: Rows with `name`, `kind`, `value`, `lo`, `hi` and `printed`, from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.95 + _ROW * max(len(rows), 1), pal)
    style(axes, pal, grid="x")
    for i, row in enumerate(rows):
        y = len(rows) - 1 - i
        value, lo, hi, printed = (as_float(row.get(key)) for key in ("value", "lo", "hi", "printed"))
        colour = _colour(row, pal)
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=colour, linewidth=1.6)
        if value is not None:
            axes.plot([value], [y], marker="o", markersize=5, color=colour, markeredgecolor=pal.paper)
        if printed is not None:
            axes.plot([printed], [y], marker="x", markersize=5, color=pal.second, linestyle="none")
    _names(axes, rows, pal)
    axes.set_xlabel(axis_label)
    return figure


def against_random(rows: Sequence[Row], pal: Palette, *, axis_label: str) -> Figure:
    """Draw each ensemble on the central 95 % of random ensembles of its size.

    Args:
        rows: Rows with `name`, `value`, `random`, `lo`, `hi` (of the random ones) and `p`, from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.95 + _ROW * max(len(rows), 1), pal)
    style(axes, pal, grid="x")
    for i, row in enumerate(rows):
        y = len(rows) - 1 - i
        value, middle, lo, hi, p = (as_float(row.get(key)) for key in ("value", "random", "lo", "hi", "p"))
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=pal.line, linewidth=7, solid_capstyle="butt")
        if middle is not None:
            axes.plot([middle], [y], marker="|", markersize=9, color=pal.muted)
        if value is not None:
            colour = pal.good if p is not None and p <= 0.05 else pal.ink
            axes.plot([value], [y], marker="o", markersize=5, color=colour, markeredgecolor=pal.paper)
    _names(axes, rows, pal)
    axes.set_xlabel(axis_label)
    return figure


def _names(axes: Any, rows: Sequence[Row], pal: Palette) -> None:
    axes.set_yticks(range(len(rows))[::-1], [shorten(str(row["name"]), _LETTERS) for row in rows], fontsize=8)
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.locator_params(axis="x", nbins=5)
