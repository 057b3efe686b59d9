"""Figures of many models: ranks with their intervals, frequencies of ranks, differences between models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.axes import shorten, to_array, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def differences(rows: Sequence[tuple[str, Mapping[str, Any]]], pal: Palette, *, axis_label: str) -> Figure:
    """Draw paired differences with their intervals around 0.

    Args:
        rows: (name, row with `difference`, `lo` and `hi`), from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.

    Returns:
        The figure.
    """
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
    axes.set_yticks(range(len(rows))[::-1], [shorten(name, 26) for name, _ in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(axis_label)
    use_minus_sign(axes)
    return figure


def rank_intervals(table: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw rank and rank interval of each model (ST-09); a line separates the tiers.

    Args:
        table: The rows of the ranking, each with `model`, `rank`, `rank_lo`, `rank_hi` and `tier`.
        pal: The colours.

    Returns:
        The figure.
    """
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
    axes.set_yticks(range(len(table))[::-1], [shorten(str(row.get("model", ""))) for row in table])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0.5, len(table) + 0.5)
    if len(table) <= 12:
        axes.set_xticks(range(1, len(table) + 1))
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("Rank (1 is best)")
    return figure


def rank_frequencies(frequencies: Mapping[str, Sequence[Any]], pal: Palette) -> Figure:
    """Draw how often each model took each rank over the resamples: a picture, not an interval (ST-09).

    Args:
        frequencies: The share of resamples at each rank, by model.
        pal: The colours.

    Returns:
        The figure.
    """
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
    axes.set_yticks(range(len(models))[::-1], [shorten(m) for m in models])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0.5, most + 0.5)
    axes.set_ylim(-0.5, len(models) - 0.5)
    if most <= 15:
        axes.set_xticks(range(1, most + 1))
    axes.set_xlabel("Rank; per cent of resamples")
    return figure


def weight_stability(weights: Sequence[Any], ranks: Mapping[str, Sequence[Any]], pal: Palette) -> Figure:
    """Draw the rank of each model at every fairness weight (MRI-10).

    Lines that move are drawn strong and named at both ends, since crossing lines of one colour cannot be
    followed.

    Args:
        weights: The fairness weights, from 0 to 1.
        ranks: The rank of each model at every weight.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.9 + 0.3 * len(ranks), pal)
    style(axes, pal, grid="x")
    x = to_array(weights)
    lowest = 1.0
    ends: dict[float, list[str]] = {}
    starts: dict[int, list[str]] = {}
    for model, values in ranks.items():
        y = to_array(values)
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
            shorten(", ".join(models), 16),
            va="center",
            fontsize=10.5,
            color=pal.ink,
        )
    axes.set_ylim(lowest + 0.5, 0.5)
    if lowest <= 15:
        names = [shorten(", ".join(starts.get(rank, [])), 16) for rank in range(1, int(lowest) + 1)]
        axes.set_yticks(
            range(1, int(lowest) + 1), [f"{name}  {at}".strip() for at, name in enumerate(names, start=1)]
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel("Fairness weight")
    axes.set_ylabel("Rank")
    return figure
