"""Figures of the cases behind a result: who was tested, case mix, difficulty, confusion, net benefit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.axes import shorten, to_array, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import MINUS, as_float, count

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def case_mix(levels: Mapping[str, Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw the share of each level here and in the reference: two dots and the step between them.

    Args:
        levels: The levels of a variable, each with the counts `reference` and `here`.
        pal: The colours.

    Returns:
        The figure.
    """
    names = list(levels)
    totals = {
        side: sum(as_float(levels[n].get(side)) or 0.0 for n in names) or 1.0
        for side in ("reference", "here")
    }
    figure, axes = new_figure(0.85 + 0.3 * len(names), pal)
    style(axes, pal, grid="x")
    for i, name in enumerate(names):
        y = len(names) - 1 - i
        a, b = (
            100 * (as_float(levels[name].get(side)) or 0.0) / totals[side] for side in ("reference", "here")
        )
        axes.plot([a, b], [y, y], color=pal.muted, linewidth=1.2)
        axes.plot(
            [a],
            [y],
            marker="o",
            markersize=7,
            color=pal.muted,
            markerfacecolor=pal.paper,
            markeredgecolor=pal.muted,
            markeredgewidth=1.5,
        )
        axes.plot([b], [y], marker="o", markersize=7.5, color=pal.accent, markeredgecolor=pal.paper)
    axes.set_yticks(range(len(names))[::-1], [shorten(str(n)) for n in names])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("Share of cases, %   (○ reference, ● here)")
    return figure


def difficulty(detected_by: Mapping[str, Any], pal: Palette) -> Figure:
    """Draw the lesions by the number of algorithms that find them (DBT-08).

    Args:
        detected_by: How many lesions are found, by the number of algorithms that find them.
        pal: The colours.

    Returns:
        The figure.
    """
    keys = sorted(detected_by, key=lambda k: float(k))
    values = [as_float(detected_by[k]) or 0.0 for k in keys]
    figure, axes = new_figure(2.7, pal)
    style(axes, pal, grid="y")
    axes.bar(
        range(len(keys)),
        values,
        width=0.72,
        color=[pal.second if float(k) == 0 else pal.accent for k in keys],
    )
    for i, value in enumerate(values):
        axes.text(i, value, count(value), ha="center", va="bottom", color=pal.ink, fontsize=10)
    axes.set_xticks(range(len(keys)), keys)
    axes.set_xlabel("Algorithms that find the lesion")
    axes.set_ylabel("Lesions")
    return figure


def net_benefit(data: Mapping[str, Any], pal: Palette) -> Figure:
    """Draw the decision curve: the model compared with recalling all and recalling none.

    Args:
        data: The net benefit by threshold: `x`, `model`, `all` and, where known, `lo` and `hi`.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.2, pal)
    x = to_array(data.get("x") or data.get("threshold") or data.get("thresholds"))
    model, everyone = (
        to_array(data.get("model") or data.get("y")),
        to_array(data.get("all") or data.get("treat_all")),
    )
    lo, hi = to_array(data.get("lo")), to_array(data.get("hi"))
    if lo.size == x.size and hi.size == x.size and x.size:
        axes.fill_between(x, lo, hi, color=pal.accent, alpha=0.16, linewidth=0)
    if everyone.size == x.size and x.size:
        axes.plot(x, everyone, color=pal.second, linewidth=1.4, linestyle=(0, (5, 2)), label="recall all")
    axes.axhline(0, color=pal.muted, linewidth=1, label="recall none")
    if model.size == x.size and x.size:
        axes.plot(x, model, color=pal.accent, linewidth=2, label="model")
        top = float(np.nanmax(model))
        axes.set_ylim(-0.25 * max(top, 1e-3), 1.25 * max(top, 1e-3))
    legend = axes.legend(frameon=False, fontsize=10.5, labelcolor=pal.ink, loc="upper right")
    legend.set_zorder(5)
    axes.set_xlabel("Threshold probability")
    axes.set_ylabel("Net benefit")
    use_minus_sign(axes, "y")
    return figure


def flow(steps: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw who was tested, step by step, for a file; the page shows it as HTML.

    Args:
        steps: The steps of the flow, each with its count.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.3 + 0.82 * max(len(steps), 1), pal, width=6.2)
    axes.set_axis_off()
    for i, step in enumerate(steps):
        y = -i
        axes.text(
            0.0,
            y,
            f"{count(step.get('n'))}   {step.get('step', '')}",
            va="center",
            fontsize=10,
            color=pal.ink,
            bbox={"boxstyle": "square,pad=0.5", "facecolor": "none", "edgecolor": pal.muted, "linewidth": 1},
        )
        if i and steps[i - 1].get("of") == step.get("of"):
            axes.annotate(
                "", (0.06, y + 0.3), (0.06, y + 0.7), arrowprops={"arrowstyle": "->", "color": pal.muted}
            )
            if as_float(step.get("lost")):
                axes.text(
                    0.1,
                    y + 0.5,
                    f"{MINUS}{count(step['lost'])}  {step.get('why', '')}",
                    va="center",
                    fontsize=10,
                    color=pal.second,
                )
    axes.set_xlim(-0.02, 1)
    axes.set_ylim(-len(steps) + 0.5, 0.5)
    return figure


def confusion(labels: Sequence[str], matrix: Sequence[Sequence[Any]], pal: Palette) -> Figure:
    """Draw a confusion matrix: truth down, answer across; suppressed cells stay suppressed.

    Args:
        labels: The names of the classes.
        matrix: The counts, truth by answer; suppressed cells are text.
        pal: The colours.

    Returns:
        The figure.
    """
    from matplotlib.patches import Rectangle

    size = len(labels)
    figure, axes = new_figure(0.9 + 0.42 * size, pal, width=min(4.9, 1.6 + 0.75 * size))
    style(axes, pal, grid="none")
    sums = [sum(as_float(v) or 0.0 for v in row) or 1.0 for row in matrix]
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            share = (as_float(value) or 0.0) / sums[i]
            axes.add_patch(
                Rectangle(
                    (j + 0.02, size - 1 - i + 0.02),
                    0.96,
                    0.96,
                    facecolor=pal.accent if i == j else pal.second,
                    alpha=0.06 + 0.38 * share,
                    linewidth=0,
                )
            )
            axes.text(
                j + 0.5, size - 0.5 - i, count(value), ha="center", va="center", color=pal.ink, fontsize=10
            )
    axes.set_xlim(0, size)
    axes.set_ylim(0, size)
    axes.set_xticks(np.arange(size) + 0.5, [shorten(str(name), 12) for name in labels])
    axes.set_yticks(np.arange(size)[::-1] + 0.5, [shorten(str(name), 12) for name in labels])
    axes.set_xlabel("Model says")
    axes.set_ylabel("Truth")
    axes.spines["bottom"].set_visible(False)
    return figure
