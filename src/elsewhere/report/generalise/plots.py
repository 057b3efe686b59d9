"""Pictures of many models at two domains: forests with dashed margins, Dice against false positives, heat maps (LN-13, LN-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.axes import shorten, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RATIO_TICKS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20)
_ROW, _NARROW_ROW, _MANY = 0.27, 0.15, 45
_MARKERS = {"EQUIVALENT": "o", "ABOVE": "^", "BELOW": "v", "INCONCLUSIVE": "D"}


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
    """Draw one interval per model; colour and shape of its mark are those of its verdict.

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
        axes.locator_params(axis="x", nbins=4)
    if margin is not None:
        for edge in (margin, 1 / margin) if neutral == 1.0 else (-margin, margin):
            axes.axvline(edge, color=pal.muted, linewidth=1.1, linestyle=(0, (4, 3)))
    for word in dict.fromkeys(str(row.get("verdict", "")) for row in rows):
        colour = pal.verdict(word)
        mine = [
            (len(rows) - 1 - i, *(as_float(row.get(key)) for key in ("value", "lo", "hi")))
            for i, row in enumerate(rows)
            if str(row.get("verdict", "")) == word
        ]
        lines = [(y, lo, hi) for y, _, lo, hi in mine if lo is not None and hi is not None]
        if lines:
            heights, lows, highs = zip(*lines, strict=True)
            axes.hlines(heights, lows, highs, color=colour, linewidth=1.2 if many else 2)
        marks = [(value, y) for y, value, _, _ in mine if value is not None]
        if marks:
            axes.plot(
                *zip(*marks, strict=True),
                linestyle="none",
                marker=_MARKERS.get(word, "o"),
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


MOST_NAMED = 6
"""So many models are named in the scatter plot."""


def best_of_both(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the models of which no other has both a higher Dice and a lower false-positive rate externally.

    Args:
        points: Models with `model`, `dice_external` and `fpr_external`.

    Returns:
        Their names, by falling Dice.

    Example:
        >>> best_of_both([{"model": "a", "dice_external": 0.8, "fpr_external": 0.1},
        ...               {"model": "b", "dice_external": 0.7, "fpr_external": 0.2}])
        ['a']
    """
    ordered = sorted(points, key=lambda one: (-one["dice_external"], one["fpr_external"]))
    names, lowest = [], float("inf")
    for one in ordered:
        if one["fpr_external"] < lowest:
            names.append(str(one["model"]))
            lowest = one["fpr_external"]
    return names


def trade_off_scatter(points: Sequence[Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw Dice against the false-positive rate of every model at both domains.

    Args:
        points: Models with `model` and `dice_` and `fpr_` of `internal` and `external`.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(4.4, pal)
    few = len(points) <= _MANY
    for one in points:
        axes.plot(
            [one["fpr_internal"], one["fpr_external"]],
            [one["dice_internal"], one["dice_external"]],
            color=pal.muted,
            linewidth=0.7,
            alpha=0.55 if few else 0.25,
        )
    for side, marker, colour in (("internal", "o", pal.accent), ("external", "s", pal.second)):
        axes.plot(
            [one[f"fpr_{side}"] for one in points],
            [one[f"dice_{side}"] for one in points],
            linestyle="none",
            marker=marker,
            markersize=6 if few else 4,
            color=colour,
            markeredgecolor=pal.paper,
            markeredgewidth=0.6,
            label=side,
        )
    _name_best(axes, points, pal)
    axes.margins(y=0.08)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("False-positive rate, normal patches")
    axes.set_ylabel("Dice, tumour patches")
    axes.legend(frameon=False, labelcolor=pal.ink, fontsize=10, loc="upper center", bbox_to_anchor=(0.5, 1.1), ncols=2)  # fmt: skip
    return figure


def _name_best(axes: Axes, points: Sequence[Mapping[str, Any]], pal: Palette) -> None:
    """Write the names of the best models to their left, at least a line of text apart."""
    of_name = {str(one["model"]): one for one in points}
    named = sorted(
        (of_name[name] for name in best_of_both(points)[:MOST_NAMED]),
        key=lambda one: float(one["dice_external"]),
    )
    values = [float(one[f"dice_{side}"]) for one in points for side in ("internal", "external")]
    line = (max(values) - min(values) or 1.0) * 0.06
    rates = [float(one[f"fpr_{side}"]) for one in points for side in ("internal", "external")]
    reach = max(rates) - min(rates) or 1.0
    at = float("-inf")
    for one in named:
        at = max(float(one["dice_external"]), at + line)
        axes.annotate(
            shorten(str(one["model"]), 24),
            (float(one["fpr_external"]), float(one["dice_external"])),
            xytext=(min(rates) - 0.06 * reach, at),
            textcoords="data",
            fontsize=9,
            color=pal.ink,
            ha="right",
            va="center",
            arrowprops={"arrowstyle": "-", "color": pal.ink, "linewidth": 0.5, "shrinkB": 3},
        )
    axes.set_xlim(min(rates) - 0.62 * reach, max(rates) + 0.08 * reach)


@dataclass(frozen=True, kw_only=True)
class HeatColumn:
    """One column of a heat map.

    Attributes:
        group: What it belongs to, such as a stage; adjacent columns of one group share the heading.
        name: Its own heading.
        values: One value per row; None where there is none.
    """

    group: str
    name: str
    values: Sequence[float | None]


def heat_map(
    models: Sequence[str], columns: Sequence[HeatColumn], pal: Palette, *, per_cent: bool = False
) -> Figure:
    """Draw models x strata with the numbers in the cells; a darker cell has a higher value.

    Args:
        models: The rows.
        columns: The columns.
        pal: The colours.
        per_cent: Whether the numbers are printed as per cent.

    Returns:
        The figure.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    figure, axes = new_figure(0.7 + 0.235 * max(len(models), 1), pal)
    style(axes, pal, grid="none")
    axes.spines["bottom"].set_visible(False)
    known = [value for one in columns for value in one.values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    size = 9 if len(columns) <= 8 else 7
    boxes = []
    for x, one in enumerate(columns):
        for i, value in enumerate(one.values):
            y = len(models) - 1 - i
            if value is not None:
                share = (value - low) / (high - low) if high > low else 0.5
                box = Rectangle(
                    (x + 0.03, y - 0.47), 0.94, 0.94, facecolor=pal.accent, alpha=0.04 + 0.36 * share
                )
                box.set_linewidth(0)
                boxes.append(box)
            shown = "–" if value is None else f"{100 * value:.2f}" if per_cent else f"{value:.2f}"
            cell = axes.text(x + 0.5, y, shown, ha="center", va="center", fontsize=size, color=pal.ink)
            cell.set_in_layout(False)
    axes.add_collection(PatchCollection(boxes, match_original=True))
    top = len(models)
    starts = [x for x, one in enumerate(columns) if x == 0 or columns[x - 1].group != one.group]
    for start, stop in zip(starts, [*starts[1:], len(columns)], strict=True):
        name = shorten(columns[start].group, 14)
        axes.text((start + stop) / 2, top + 0.55, name, ha="center", fontsize=10, color=pal.ink)
        if start:
            axes.plot([start, start], [-0.5, top + 1.2], color=pal.line, linewidth=1.0)
    for x, one in enumerate(columns):
        axes.text(x + 0.5, top - 0.3, one.name, ha="center", fontsize=9, color=pal.muted)
    axes.set_xticks([])
    axes.set_yticks(range(top)[::-1], [shorten(name, 24) for name in models], fontsize=9)
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0, max(len(columns), 1))
    axes.set_ylim(-0.6, top + 1.2)
    return figure


def dots_by_kind(groups: Sequence[Mapping[str, Any]], pal: Palette, *, x_label: str, y_label: str) -> Figure:
    """Draw every model, and the mean of its kind, at both domains.

    Args:
        groups: Rows with `value`, the means `internal` and `external`, and `dots`, the models' pairs of them.
        pal: The colours.
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.2, pal)
    style(axes, pal, grid="y")
    for x, group in enumerate(groups):
        sides = (("internal", "o", pal.accent, -0.17, 0), ("external", "s", pal.second, 0.17, 1))
        for side, marker, colour, shift, at in sides:
            dots = [value for pair in group["dots"] if (value := as_float(pair[at])) is not None]
            axes.plot(
                [x + shift] * len(dots),
                dots,
                linestyle="none",
                marker=marker,
                markersize=4.5,
                color=colour,
                alpha=0.75,
                markeredgewidth=0,
                label=side if x == 0 else None,
            )
            mean = as_float(group.get(side))
            if mean is not None:
                axes.plot([x + shift - 0.13, x + shift + 0.13], [mean, mean], color=colour, linewidth=2.4)
    names = [shorten(str(group.get("value")), 16) for group in groups]
    long = sum(len(name) for name in names) > 42
    axes.set_xticks(range(len(groups)), names, rotation=30 if long else 0, ha="right" if long else "center")
    for tick in axes.get_xticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False, labelcolor=pal.ink, fontsize=9.5, loc="upper center", bbox_to_anchor=(0.5, 1.17), ncols=2)  # fmt: skip
    return figure
