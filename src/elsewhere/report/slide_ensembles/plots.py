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
    for get, put in ((axes.get_xlim, axes.set_xlim), (axes.get_ylim, axes.set_ylim)):
        lo, hi = get()
        gap = max(0.08 * (hi - lo), 1e-4)
        put(lo - gap, hi + gap)
    axes.locator_params(axis="x", nbins=4)
    _label_points(axes, [row for row in rows if row["name"] in named], pal)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return figure


def _label_points(axes: Any, rows: Sequence[Row], pal: Palette) -> None:
    """Write names next to their points, points of one place together, further names above or below the earlier ones."""
    places: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        x, y = as_float(row["x"].get("value")), as_float(row["y"].get("value"))
        if x is not None and y is not None:
            places.setdefault((round(x, 6), round(y, 6)), []).append(shorten(str(row["name"]), _LETTERS))
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    used: list[tuple[float, float, float]] = []
    for (x, y), names in places.items():
        text = ", ".join(names)
        across, up = (x - left) / (right - left) * 300, (y - low) / (high - low) * 220
        wide = 4.5 * len(text)
        begin = across + 6 if across + 6 + wide < 310 else across - 6 - wide
        for shift in (5, -12, 17, -24, 29, -36, 41):
            if all(begin > b + w or b > begin + wide or abs(up + shift - v) > 10 for b, v, w in used):
                break
        used.append((begin, up + shift, wide))
        axes.annotate(
            text,
            (x, y),
            xytext=(6 if begin > across else -6, shift),
            textcoords="offset points",
            ha="left" if begin > across else "right",
            fontsize=8,
            color=pal.ink,
        )


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
