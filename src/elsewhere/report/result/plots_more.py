"""The pictures of many models and of the case mix: ranks, differences, difficulty, net benefit, flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import MINUS, as_float, count
from elsewhere.report.result.plots import _array, _minus, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def differences(rows: Sequence[tuple[str, Mapping[str, Any]]], pal: Palette, *, axis_label: str) -> Figure:
    """Paired differences with their intervals around 0."""
    figure, axes = new_figure(0.8 + 0.34 * len(rows), pal)
    style(axes, pal, grid="x")
    axes.axvline(0, color=pal.ink, linewidth=0.9)
    for i, (_, row) in enumerate(rows):
        y = len(rows) - 1 - i
        middle, lo, hi = (as_float(row.get(k)) for k in ("difference", "lo", "hi"))
        if middle is None:
            continue
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=pal.accent, linewidth=2)
        axes.plot([middle], [y], marker="o", markersize=6, color=pal.accent, markeredgecolor=pal.paper)
    axes.set_yticks(range(len(rows))[::-1], [_short(name, 26) for name, _ in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(axis_label)
    _minus(axes)
    return figure


def rank_intervals(table: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Rank and rank interval of each model (ST-09); a rule parts the tiers."""
    figure, axes = new_figure(0.75 + 0.3 * len(table), pal)
    style(axes, pal, grid="x")
    before: Any = None
    for i, row in enumerate(table):
        y = len(table) - 1 - i
        rank, lo, hi = (as_float(row.get(k)) for k in ("rank", "rank_lo", "rank_hi"))
        colour = pal.accent if row.get("tier") in (1, None) else pal.muted
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=colour, linewidth=6, alpha=0.35, solid_capstyle="round")
        if rank is not None:
            axes.plot([rank], [y], marker="o", markersize=6.5, color=colour, markeredgecolor=pal.paper)
        if i and row.get("tier") != before:
            axes.axhline(y + 0.5, color=pal.second, linewidth=0.9, linestyle=(0, (4, 3)))
        before = row.get("tier")
    axes.set_yticks(range(len(table))[::-1], [_short(str(row.get("model", ""))) for row in table])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0.5, len(table) + 0.5)
    if len(table) <= 12:
        axes.set_xticks(range(1, len(table) + 1))
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("Rank (1 is best)")
    return figure


def rank_frequencies(frequencies: Mapping[str, Sequence[Any]], pal: Palette) -> Figure:
    """How often each model took each rank over the resamples: a picture, not an interval (ST-09)."""
    from matplotlib.patches import Rectangle

    models = list(frequencies)
    most = max((len(v) for v in frequencies.values()), default=1)
    figure, axes = new_figure(0.8 + 0.3 * len(models), pal)
    style(axes, pal, grid="none")
    largest = max((as_float(v) or 0.0 for row in frequencies.values() for v in row), default=1.0) or 1.0
    for i, model in enumerate(models):
        y = len(models) - 1 - i
        for j, raw in enumerate(frequencies[model]):
            share = as_float(raw) or 0.0
            if share <= 0.002:
                continue
            axes.add_patch(
                Rectangle(
                    (j + 0.54, y - 0.46),
                    0.92,
                    0.92,
                    facecolor=pal.accent,
                    alpha=0.06 + 0.39 * share / largest,
                    linewidth=0,
                )
            )
            if share >= 0.05 and most <= 12:
                axes.text(
                    j + 1,
                    y,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=10,
                    color=pal.ink,
                )
    axes.set_yticks(range(len(models))[::-1], [_short(m) for m in models])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0.5, most + 0.5)
    axes.set_ylim(-0.5, len(models) - 0.5)
    if most <= 15:
        axes.set_xticks(range(1, most + 1))
    axes.set_xlabel("Rank; per cent of resamples")
    return figure


def weight_stability(weights: Sequence[Any], ranks: Mapping[str, Sequence[Any]], pal: Palette) -> Figure:
    """The rank of each model at every fairness weight (MRI-10); lines that move are drawn strong, and named at both
    ends, since crossing lines of one colour cannot be followed."""
    figure, axes = new_figure(0.9 + 0.3 * len(ranks), pal)
    style(axes, pal, grid="x")
    x = _array(weights)
    lowest = 1.0
    ends: dict[float, list[str]] = {}
    starts: dict[int, list[str]] = {}
    for model, values in ranks.items():
        y = _array(values)
        n = min(x.size, y.size)
        moves = n > 0 and np.nanmax(y[:n]) != np.nanmin(y[:n])
        axes.plot(
            x[:n],
            y[:n],
            color=pal.accent if moves else pal.muted,
            linewidth=1.8 if moves else 1.2,
            alpha=0.85,
        )
        if n:
            lowest = max(lowest, float(np.nanmax(y[:n])))
            ends.setdefault(float(y[n - 1]), []).append(model)
            if np.isfinite(y[0]):
                starts.setdefault(round(float(y[0])), []).append(model)
    for rank, models in ends.items():
        axes.text(
            float(x[-1]) + 0.015,
            rank,
            _short(", ".join(models), 16),
            va="center",
            fontsize=10.5,
            color=pal.ink,
        )
    axes.set_ylim(lowest + 0.5, 0.5)
    if lowest <= 15:
        names = [_short(", ".join(starts.get(rank, [])), 16) for rank in range(1, int(lowest) + 1)]
        axes.set_yticks(
            range(1, int(lowest) + 1), [f"{name}  {at}".strip() for at, name in enumerate(names, start=1)]
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel("Fairness weight")
    axes.set_ylabel("Rank")
    return figure


def case_mix(levels: Mapping[str, Mapping[str, Any]], pal: Palette) -> Figure:
    """Share of each level here and in the reference: two dots and the step between them."""
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
    axes.set_yticks(range(len(names))[::-1], [_short(str(n)) for n in names])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("Share of cases, %   (○ reference, ● here)")
    return figure


def difficulty(detected_by: Mapping[str, Any], pal: Palette) -> Figure:
    """Lesions by the number of algorithms that find them (DBT-08)."""
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
    """Decision curve: the model against recalling all and recalling none."""
    figure, axes = new_figure(3.2, pal)
    x = _array(data.get("x") or data.get("threshold") or data.get("thresholds"))
    model, everyone = (
        _array(data.get("model") or data.get("y")),
        _array(data.get("all") or data.get("treat_all")),
    )
    lo, hi = _array(data.get("lo")), _array(data.get("hi"))
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
    _minus(axes, "y")
    return figure


def flow(steps: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Who was tested, step by step, as a file; the page has it as HTML."""
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
    """Truth down, answer across; small cells come suppressed and stay so."""
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
    axes.set_xticks(np.arange(size) + 0.5, [_short(str(name), 12) for name in labels])
    axes.set_yticks(np.arange(size)[::-1] + 0.5, [_short(str(name), 12) for name in labels])
    axes.set_xlabel("Model says")
    axes.set_ylabel("Truth")
    axes.spines["bottom"].set_visible(False)
    return figure
