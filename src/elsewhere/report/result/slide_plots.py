"""Pictures of slide results: lesion recall by diameter with its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float, count

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def recall_by_diameter(rows: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw the share of lesions that are found in each class of diameters, with its interval and its counts.

    Args:
        rows: Rows with `diameter`, `lesions`, `found`, `recall`, `lo` and `hi`, from the smallest diameter.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.5, pal)
    style(axes, pal, grid="y")
    known = [(x, value) for x, row in enumerate(rows) if (value := as_float(row.get("recall"))) is not None]
    runs: list[list[tuple[int, float]]] = []
    for point in known:
        if runs and runs[-1][-1][0] == point[0] - 1:
            runs[-1].append(point)
        else:
            runs.append([point])
    for run in runs:
        axes.plot([x for x, _ in run], [y for _, y in run], color=pal.accent, linewidth=1.1, alpha=0.6)
    for x, value in known:
        lo, hi = as_float(rows[x].get("lo")), as_float(rows[x].get("hi"))
        if lo is not None and hi is not None:
            axes.plot([x, x], [lo, hi], color=pal.accent, linewidth=2)
        axes.plot([x], [value], marker="o", markersize=6, color=pal.accent, markeredgecolor=pal.paper)
    names = [f"{_short(str(row.get('diameter')))}\n{_counts(row)}" for row in rows]
    axes.set_xticks(range(len(rows)), names, fontsize=9.5)
    for tick in axes.get_xticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("Diameter in mm; lesions found of all")
    axes.set_ylabel("Share of lesions found")
    return figure


def _short(diameter: str) -> str:
    words = diameter.removesuffix(" mm")
    for long, short in (("up to ", "≤"), ("over ", ">"), (" to ", "–")):
        words = words.replace(long, short)
    return words


def _counts(row: Mapping[str, Any]) -> str:
    if isinstance(row.get("lesions"), str):
        return str(row["lesions"])
    if not row.get("lesions"):
        return "none"
    return f"{count(row.get('found'))} of {count(row.get('lesions'))}"
