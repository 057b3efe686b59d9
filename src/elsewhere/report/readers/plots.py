"""Figures of a reader study: the readers with each treatment, and differences of treatments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.axes import shorten, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "D", "^", "v", "P")


def reader_values(
    rows: Sequence[Mapping[str, Any]],
    treatments: Sequence[str],
    pal: Palette,
    *,
    axis_label: str,
    model: Mapping[str, float] | None = None,
) -> Figure:
    """Draw the figure of merit of each reader, one mark per treatment; a line joins a reader's marks.

    Args:
        rows: One row per reader and treatment, with `reader`, `treatment` and `value`.
        treatments: The treatments, in the order of their marks.
        pal: The colours.
        axis_label: The label of the horizontal axis.
        model: The figure of merit of a model by treatment, drawn as lines; None for none.

    Returns:
        The figure.
    """
    readers = list(dict.fromkeys(str(row["reader"]) for row in rows))
    colours = (pal.accent, pal.second, pal.good, pal.warn, pal.above, pal.muted)
    figure, axes = new_figure(1.25 + 0.34 * len(readers), pal)
    style(axes, pal, grid="x")
    by_reader: dict[str, dict[str, float]] = {}
    for row in rows:
        value = as_float(row.get("value"))
        if value is not None:
            by_reader.setdefault(str(row["reader"]), {})[str(row["treatment"])] = value
    for at, reader in enumerate(readers):
        values = by_reader.get(reader, {})
        y = len(readers) - 1 - at
        if len(values) > 1:
            axes.plot(
                [min(values.values()), max(values.values())], [y, y], color=pal.line, linewidth=2, zorder=1
            )
    for number, treatment in enumerate(treatments):
        marks = [
            (by_reader[reader][treatment], len(readers) - 1 - i)
            for i, reader in enumerate(readers)
            if treatment in by_reader.get(reader, {})
        ]
        colour = colours[number % len(colours)]
        axes.plot(
            [x for x, _ in marks],
            [y for _, y in marks],
            linestyle="none",
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=7,
            color=colour,
            markeredgecolor=pal.paper,
            label=shorten(str(treatment), 20),
            zorder=2,
        )
        if model and treatment in model:
            axes.axvline(model[treatment], color=colour, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0)
    axes.set_yticks(range(len(readers))[::-1], [shorten(name) for name in readers])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(readers) - 0.4)
    axes.set_xlabel(axis_label)
    if len(treatments) > 1 or model:
        legend = figure.legend(
            loc="outside upper center", ncols=min(len(treatments), 3), frameon=False, fontsize=10.5
        )
        for text in legend.get_texts():
            text.set_color(pal.ink)
    return figure


def analysis_differences(
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    pal: Palette,
    *,
    axis_label: str,
    margin: float | None = None,
) -> Figure:
    """Draw differences with their intervals around 0.

    Args:
        rows: (name, row with `value`, `lo` and `hi`), from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.
        margin: Where the non-inferiority margin lies on the axis, with its sign; None for none.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.95 + 0.36 * len(rows), pal)
    style(axes, pal, grid="x")
    axes.axvline(0, color=pal.ink, linewidth=0.9)
    if margin is not None:
        axes.axvline(margin, color=pal.bad, linewidth=1.1, linestyle=(0, (4, 3)))
    for i, (_, row) in enumerate(rows):
        y = len(rows) - 1 - i
        value, lo, hi = (as_float(row.get(key)) for key in ("value", "lo", "hi"))
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=pal.accent, linewidth=2)
        if value is not None:
            axes.plot([value], [y], marker="o", markersize=6, color=pal.accent, markeredgecolor=pal.paper)
    axes.set_yticks(range(len(rows))[::-1], [shorten(name, 26) for name, _ in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(axis_label)
    use_minus_sign(axes)
    return figure
