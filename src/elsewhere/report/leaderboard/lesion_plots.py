"""Figures of the lesions that many models find, and of the hit rules under which their ranks change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.axes import shorten
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAINT, _STRONG = 0.05, 0.5


def added_lesions(models: Sequence[str], adds: Sequence[Sequence[int]], pal: Palette) -> Figure:
    """Draw what each model adds to each other one: lesions that it finds and the other misses.

    Args:
        models: The names of the models.
        adds: For each model (row) and each other one (column) the lesions that the column's model finds and the row's
            misses; on the diagonal, what the model itself finds.
        pal: The colours.

    Returns:
        The figure.
    """
    n = len(models)
    figure, axes = new_figure(1.2 + 0.34 * n, pal)
    style(axes, pal, grid="none")
    largest = max((adds[i][j] for i in range(n) for j in range(n) if i != j), default=0) or 1
    for i in range(n):
        for j in range(n):
            own = i == j
            _cell(
                axes,
                (j, n - 1 - i),
                count(adds[i][j]),
                pal,
                colour=pal.muted if own else pal.accent,
                strength=0.0 if own else adds[i][j] / largest,
            )
    axes.set_yticks(range(n)[::-1], [shorten(name, 16) for name in models])
    axes.set_xticks(range(n), [shorten(name, 12) for name in models], rotation=40, ha="right")
    for tick in (*axes.get_yticklabels(), *axes.get_xticklabels()):
        tick.set_color(pal.ink)
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_ylim(-0.5, n - 0.5)
    return figure


def union_of_sets(sets: Sequence[Mapping[str, Any]], lesions: int, pal: Palette) -> Figure:
    """Draw how many lesions the best set of k models finds.

    Args:
        sets: The rows of the best sets, from one model up.
        lesions: How many lesions there are.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.0, pal)
    style(axes, pal, grid="y")
    k = [int(row["models"]) for row in sets]
    axes.axhline(lesions, color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(k[0], lesions, "all lesions", va="bottom", ha="left", fontsize=10, color=pal.muted)
    for key, colour, name in (
        ("found", pal.accent, "whole budget for each model"),
        ("found_at_shared_budget", pal.second, "budget shared by the models"),
    ):
        axes.plot(k, [row[key] for row in sets], color=colour, marker="o", markersize=5, label=name)
    axes.set_xticks(k)
    axes.set_ylim(0, lesions * 1.12 if lesions else 1)
    axes.set_xlabel("Models in the best set")
    axes.set_ylabel("Lesions found")
    legend = axes.legend(loc="lower right", frameon=False, fontsize=10)
    for text in legend.get_texts():
        text.set_color(pal.ink)
    return figure


def rule_map(part: Mapping[str, Any], pal: Palette) -> Figure:
    """Draw the map of hit rules: how many pairs of models stand in another order than under the protocol's own.

    Args:
        part: `hit_rules` of a summary.
        pal: The colours.

    Returns:
        The figure.
    """
    planes, depths = list(part["in_plane"]), list(part["slice_tolerances"])
    matchings = list(part["matchings"])
    tall = len(planes) + 0.9
    figure, axes = new_figure(0.9 + 0.34 * tall * len(matchings), pal)
    style(axes, pal, grid="none")
    most = max((int(row["pairs_in_other_order"]) for row in part["map"]), default=0) or 1
    bottom = {name: tall * (len(matchings) - 1 - m) for m, name in enumerate(matchings)}
    for row in part["map"]:
        y = bottom[row["matching"]] + len(planes) - 1 - planes.index(row["in_plane"])
        changed = int(row["pairs_in_other_order"])
        _cell(
            axes,
            (depths.index(row["slice_tolerance"]), y),
            str(changed) if changed else "–",
            pal,
            colour=pal.second,
            strength=changed / most if changed else 0.0,
        )
    for name in matchings:
        y = bottom[name] + len(planes) - 0.4
        axes.text(-0.46, y, f"matching {name}", ha="left", va="bottom", fontsize=10.5, color=pal.ink)
    axes.set_xticks(range(len(depths)), [f"{100 * d:g} %" for d in depths])
    axes.set_yticks(
        [bottom[name] + len(planes) - 1 - k for name in matchings for k in range(len(planes))],
        [plane for _ in matchings for plane in planes],
    )
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(-0.5, len(depths) - 0.5)
    axes.set_ylim(-0.5, tall * len(matchings) - 0.3)
    axes.set_xlabel("Slice tolerance (share of the slices)")
    return figure


def rank_ranges(models: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw the ranks that each model takes under all rules, next to its rank interval under its own.

    Args:
        models: The rows of the models of `hit_rules`.
        pal: The colours.

    Returns:
        The figure.
    """
    rows = sorted(models, key=lambda row: (int(row["rank"]), str(row["model"])))
    n = len(rows)
    figure, axes = new_figure(1.15 + 0.34 * n, pal)
    style(axes, pal, grid="x")
    for i, row in enumerate(rows):
        y = n - 1 - i
        low, high = as_float(row.get("rank_lo")), as_float(row.get("rank_hi"))
        if low is not None and high is not None:
            axes.plot([low, high], [y, y], color=pal.accent, linewidth=9, alpha=0.25, solid_capstyle="round")
        beyond = bool(row.get("beyond_rank_interval"))
        colour = pal.second if beyond else pal.ink
        axes.plot([row["best_rank"], row["worst_rank"]], [y, y], color=colour, linewidth=1.8)
        axes.plot([row["rank"]], [y], marker="o", markersize=6.5, color=colour, markeredgecolor=pal.paper)
    axes.set_yticks(range(n)[::-1], [shorten(str(row["model"])) for row in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    if n <= 12:
        axes.set_xticks(range(1, n + 1))
    axes.set_xlim(0.5, n + 0.5)
    axes.set_ylim(-0.6, n - 0.4)
    axes.set_xlabel("Rank: line, all rules; band, rank interval")
    return figure


def _cell(
    axes: Axes, at: tuple[float, float], text: str, pal: Palette, *, colour: str, strength: float
) -> None:
    from matplotlib.patches import Rectangle

    x, y = at
    alpha = _FAINT + (_STRONG - _FAINT) * min(1.0, max(0.0, strength))
    axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, facecolor=colour, alpha=alpha, linewidth=0))
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=pal.ink)
