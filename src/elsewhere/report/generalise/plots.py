"""The forest of many models: differences between two domains with the margins dashed (LN-13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.axes import shorten, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RATIO_TICKS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20)
_ROW, _NARROW_ROW, _MANY = 0.27, 0.15, 45


def _ratio_range(rows: Sequence[Mapping[str, Any]], margin: float | None) -> tuple[float, float]:
    """A range that holds the margins and the intervals, at most 25 times each way."""
    ends = [as_float(row.get(key)) for row in rows for key in ("value", "lo", "hi")]
    away = [max(end, 1 / end) for end in ends if end is not None and end > 0]
    reach = min(max([*away, margin or 1.5]) * 1.1, 25.0)
    low = min([end for end in ends if end is not None and end > 0] + [1 / (margin or 1.5)]) / 1.1
    return max(low, 1 / reach), reach


def models_forest(
    rows: Sequence[Mapping[str, Any]],
    pal: Palette,
    *,
    axis_label: str,
    margin: float | None,
    neutral: float = 0.0,
) -> Figure:
    """Draw one interval per model, coloured by its verdict.

    Args:
        rows: Rows with `model`, `value`, `lo`, `hi` and `verdict`, from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.
        margin: How far the margins lie from no difference; None for none. On a ratio's axis, the ratio.
        neutral: Where no difference lies: 0, or 1 for ratios, whose axis is logarithmic.

    Returns:
        The figure.
    """
    many = len(rows) > _MANY
    figure, axes = new_figure(0.95 + (_NARROW_ROW if many else _ROW) * max(len(rows), 1), pal)
    style(axes, pal, grid="x")
    axes.axvline(neutral, color=pal.ink, linewidth=0.9)
    if neutral == 1.0:
        axes.set_xscale("log")
        axes.set_xticks(_RATIO_TICKS, [f"{tick:g}" for tick in _RATIO_TICKS])
        axes.set_xticks([], minor=True)
        axes.set_xlim(*_ratio_range(rows, margin))
    else:
        axes.locator_params(axis="x", nbins=5)
    if margin is not None:
        for edge in (margin, 1 / margin) if neutral == 1.0 else (-margin, margin):
            axes.axvline(edge, color=pal.muted, linewidth=1.1, linestyle=(0, (4, 3)))
    for i, row in enumerate(rows):
        y = len(rows) - 1 - i
        value, lo, hi = (as_float(row.get(key)) for key in ("value", "lo", "hi"))
        colour = pal.verdict(str(row.get("verdict", "")))
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=colour, linewidth=1.2 if many else 2)
        if value is not None:
            axes.plot(
                [value],
                [y],
                marker="o",
                markersize=3.5 if many else 5.5,
                color=colour,
                markeredgecolor=pal.paper,
                markeredgewidth=0.6,
            )
    names = [shorten(str(row.get("model")), 24) for row in rows]
    axes.set_yticks(range(len(rows))[::-1], names, fontsize=7 if many else None)
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel(axis_label)
    if neutral == 0.0:
        use_minus_sign(axes)
    return figure
