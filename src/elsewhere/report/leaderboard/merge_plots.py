"""Figures of a merge: the teams beside it, and the values of all settings that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.axes import shorten
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TEAMS = 30


@dataclass(frozen=True, kw_only=True)
class TeamRow:
    """One row of the figure of teams.

    Args:
        name: The team, or what the merge is called.
        last: The estimate on the test volumes, or on the only ones.
        first: The estimate on the validation volumes; None where there are none beside the test.
        merged: Whether it is a merge.
    """

    name: str
    last: Mapping[str, Any]
    first: Mapping[str, Any] | None
    merged: bool


def team_rows(part: Mapping[str, Any]) -> list[TeamRow]:
    """Put the merge and its teams in order.

    Args:
        part: The `merging` of a summary.

    Returns:
        The merge, the merge by the published setting, then the teams, the highest value first.
    """
    metric = part.get("metric")
    roles = [role for role in ("validation", "test") if role in (part.get("merged") or {})]
    if not roles or metric is None:
        return []
    last, first = roles[-1], roles[0] if len(roles) > 1 else None
    merged = part["merged"]
    rows = [
        TeamRow(
            name="merged",
            last=merged[last]["metrics"][metric],
            first=merged[first]["metrics"][metric] if first else None,
            merged=True,
        )
    ]
    if part.get("published"):
        of_study = part["published"]
        rows.append(
            TeamRow(
                name="published setting",
                last=of_study[last],
                first=of_study[first] if first else None,
                merged=True,
            )
        )
    teams = [
        TeamRow(name=str(row.get("team")), last=row[last], first=row[first] if first else None, merged=False)
        for row in part.get("teams") or []
        if isinstance(row, Mapping) and last in row
    ]
    teams.sort(key=lambda row: -(as_float(row.last.get("value")) or 0.0))
    return [*rows, *teams[:MOST_TEAMS]]


def teams_beside_merge(rows: Sequence[TeamRow], pal: Palette, *, axis_label: str) -> Figure:
    """Draw the value of the merge and of each team, on validation and with its interval on test.

    Args:
        rows: The rows, from top to bottom.
        pal: The colours.
        axis_label: The label of the horizontal axis.

    Returns:
        The figure.
    """
    figure, axes = new_figure(1.1 + 0.3 * len(rows), pal)
    style(axes, pal, grid="x")
    both = any(row.first is not None for row in rows)
    for i, row in enumerate(rows):
        y = len(rows) - 1 - i
        colour = pal.accent if row.merged else pal.ink
        middle, lo, hi = (as_float(row.last.get(name)) for name in ("value", "lo", "hi"))
        if lo is not None and hi is not None:
            axes.plot([lo, hi], [y, y], color=colour, linewidth=2, alpha=0.8)
        if middle is not None:
            axes.plot([middle], [y], marker="o", markersize=6.5, color=colour, markeredgecolor=pal.paper)
        before = as_float(row.first.get("value")) if row.first else None
        if before is not None:
            axes.plot([before], [y], marker="D", markersize=5.5, color=pal.second, markerfacecolor="none")
    if both:
        axes.plot([], [], marker="o", color=pal.ink, linewidth=2, label="test, with interval")
        axes.plot(
            [], [], marker="D", color=pal.second, markerfacecolor="none", linestyle="", label="validation"
        )
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
            fontsize=10,
            labelcolor=pal.ink,
        )
    axes.set_yticks(range(len(rows))[::-1], [shorten(row.name, 22) for row in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(axis_label)
    return figure


def settings_in_order(
    search: Mapping[str, Any], single: float | None, pal: Palette, *, axis_label: str
) -> Figure:
    """Draw the values of all settings in falling order, with the chosen and the published one.

    Args:
        search: The `search` of a merge.
        single: The value of the best single team on the same volumes; None where it is undefined.
        pal: The colours.
        axis_label: The label of the vertical axis.

    Returns:
        The figure.
    """
    values = np.sort(np.array([v for v in search["values"] if as_float(v) is not None], dtype=float))[::-1]
    figure, axes = new_figure(3.4, pal)
    style(axes, pal, grid="y")
    axes.plot(np.arange(1, values.size + 1), values, color=pal.muted, linewidth=2.2, label="settings")
    axes.plot(
        [1],
        [values[0]],
        marker="o",
        markersize=7.5,
        linestyle="",
        color=pal.accent,
        label="chosen",
        clip_on=False,
    )
    rank, of_study = as_float(search.get("published_rank")), as_float(search.get("published_value"))
    if rank is not None and of_study is not None:
        axes.plot(
            [rank], [of_study], marker="D", markersize=6.5, linestyle="", color=pal.second, label="published"
        )
    if single is not None:
        axes.axhline(single, color=pal.ink, linewidth=1.0, linestyle=(0, (4, 3)), label="best single team")
    axes.set_xlim(0, values.size + 1)
    axes.set_xlabel("Settings, best first")
    axes.set_ylabel(axis_label)
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.45, 1.0),
        ncols=2,
        frameon=False,
        fontsize=10,
        labelcolor=pal.ink,
    )
    return figure
