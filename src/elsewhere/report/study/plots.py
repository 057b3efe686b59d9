"""Draw the figures of a study's report; what they show is chosen in the modules of the sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.abstention import SCORE_LABELS
from elsewhere.analysis.study.design import KIND_LABELS, shown_name
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.result import plots as result_plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANCE = 0.5
INTERNAL, EXTERNAL = "internal", "external"


def composition(rows: Sequence[dict[str, Any]], pal: Palette) -> Figure:
    """Draw stacked images by label, with a diamond at the number of patient ids.

    Args:
        rows: The datasets, each with `dataset`, `benign`, `malignant`, `normal` and `patients`.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.95 + 0.42 * len(rows), pal)
    style(axes, pal, grid="x")
    sides = (("benign", pal.accent, 0.9), ("malignant", pal.second, 0.9), ("normal", pal.muted, 0.45))
    longest = max((sum(as_float(r[s]) or 0.0 for s, _, _ in sides) for r in rows), default=1.0) or 1.0
    for i, row in enumerate(rows):
        y, left = len(rows) - 1 - i, 0.0
        for label, colour, alpha in sides:
            size = as_float(row[label]) or 0.0
            axes.barh(y, size, left=left, height=0.56, color=colour, alpha=alpha, linewidth=0)
            left += size
        patients = as_float(row["patients"]) or 0.0
        axes.plot([patients], [y], marker="D", markersize=6, color=pal.ink, markeredgecolor=pal.paper)
        axes.text(
            max(left, patients) + 0.02 * longest, y, count(left), va="center", color=pal.ink, fontsize=10.5
        )
    axes.set_yticks(range(len(rows))[::-1], [str(r["dataset"]) for r in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_xlim(0, 1.16 * longest)
    axes.set_ylim(-0.55, len(rows) - 0.1)
    for x, (label, colour, _) in zip((0.0, 0.2, 0.46), sides, strict=True):
        axes.text(x, 1.02, f"■ {label}", color=colour, transform=axes.transAxes, fontsize=10.5, va="bottom")
    axes.text(
        0.66, 1.02, "◆ patient ids", color=pal.ink, transform=axes.transAxes, fontsize=10.5, va="bottom"
    )
    axes.set_xlabel("Images")
    return figure


def with_zero(figure: Figure, pal: Palette) -> Figure:
    """Extend the horizontal axis of a figure to 0 and mark it by a line.

    Args:
        figure: The figure; it is changed.
        pal: The colours.

    Returns:
        The same figure.
    """
    axes = figure.axes[0]
    lo, hi = axes.get_xlim()
    axes.set_xlim(min(lo, -0.01), max(hi, 0.01))
    axes.axvline(0, color=pal.ink, linewidth=0.9)
    return figure


def bars(rows: Sequence[dict[str, Any]], pal: Palette, *, axis: str) -> Figure:
    """Draw bars that start at chance, with the published values.

    Error bars are standard deviations over seeds, a diamond is the published value.

    Args:
        rows: The configurations, each with `name`, `internal` and `external`, and where known
            `internal_sd`, `internal_published` and the same of `external`.
        pal: The colours.
        axis: The metric, for the label of the vertical axis.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.1, pal)
    style(axes, pal, grid="y")
    values = [v for r in rows for k in (INTERNAL, EXTERNAL) if (v := as_float(r.get(k))) is not None]
    low = min([*values, CHANCE])
    for i, row in enumerate(rows):
        for kind, shift, colour in ((INTERNAL, -0.19, pal.accent), (EXTERNAL, 0.19, pal.second)):
            value, sd = as_float(row.get(kind)), as_float(row.get(f"{kind}_sd"))
            if value is None:
                continue
            axes.bar(
                i + shift, value - CHANCE, bottom=CHANCE, width=0.36, color=colour, alpha=0.85, linewidth=0
            )
            if sd is not None:
                axes.plot([i + shift] * 2, [value - sd, value + sd], color=pal.ink, linewidth=1.2)
            published = as_float(row.get(f"{kind}_published"))
            if published is not None:
                axes.plot(
                    [i + shift], [published], marker="D", markersize=5.5, markerfacecolor=pal.paper,
                    markeredgecolor=pal.ink, markeredgewidth=1.1, linestyle="none",
                )  # fmt: skip
    axes.axhline(CHANCE, color=pal.muted, linewidth=0.9)
    axes.set_xticks(range(len(rows)), [str(r["name"]).replace(", ", "\n", 1) for r in rows])
    for tick in axes.get_xticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(low - 0.02, 1.0)
    axes.set_xlim(-0.55, len(rows) - 0.45)
    axes.text(0.0, 1.02, "■ internal", color=pal.accent, transform=axes.transAxes, fontsize=10.5, va="bottom")
    axes.text(
        0.22, 1.02, "■ external", color=pal.second, transform=axes.transAxes, fontsize=10.5, va="bottom"
    )
    if any(as_float(r.get(f"{k}_published")) is not None for r in rows for k in (INTERNAL, EXTERNAL)):
        axes.text(
            0.46, 1.02, "◇ published", color=pal.ink, transform=axes.transAxes, fontsize=10.5, va="bottom"
        )
    axes.set_ylabel(f"{axis[:1].upper()}{axis[1:]} (0.5: chance)")
    return figure


def heat(
    rows: Sequence[str], columns: Sequence[str], cells: dict[tuple[str, str], float], pal: Palette
) -> Figure:
    """Draw a map of results: trained on (rows) and tested on (columns); internal cells are framed.

    Args:
        rows: The sources, from top to bottom.
        columns: The targets, from left to right.
        cells: The value of each (source, target), in [0, 1]; a dash where there is none.
        pal: The colours.

    Returns:
        The figure.
    """
    from matplotlib.patches import Rectangle

    figure, axes = new_figure(0.75 + 0.5 * len(rows), pal, width=4.4)
    style(axes, pal, grid="none")
    axes.spines["bottom"].set_visible(False)
    for i, source in enumerate(rows):
        y = len(rows) - 1 - i
        for j, target in enumerate(columns):
            value = as_float(cells.get((source, target)))
            if value is None:
                axes.text(j + 0.5, y + 0.5, "–", ha="center", va="center", color=pal.muted, fontsize=10)
                continue
            good = min(max((value - CHANCE) / 0.5, 0.0), 1.0)
            colour, alpha = (pal.accent, 0.05 + 0.5 * good) if value >= CHANCE else (pal.bad, 0.35)
            axes.add_patch(
                Rectangle((j + 0.02, y + 0.03), 0.96, 0.94, facecolor=colour, alpha=alpha, linewidth=0)
            )
            if source == target:
                axes.add_patch(
                    Rectangle((j + 0.035, y + 0.05), 0.93, 0.9, fill=False, edgecolor=pal.ink, linewidth=1.1)
                )
            axes.text(
                j + 0.5, y + 0.5, number(value), ha="center", va="center", color=pal.ink, fontsize=11,
            )  # fmt: skip
    axes.set_xlim(0, len(columns))
    axes.set_ylim(0, len(rows))
    axes.set_xticks(np.arange(len(columns)) + 0.5, list(columns))
    axes.set_yticks(np.arange(len(rows))[::-1] + 0.5, list(rows))
    axes.tick_params(length=0)
    for tick in [*axes.get_yticklabels(), *axes.get_xticklabels()]:
        tick.set_color(pal.ink)
    axes.set_xlabel("Tested on")
    axes.set_ylabel("Trained on")
    return figure


def margins(table: pd.DataFrame, pal: Palette) -> Figure:
    """Draw AUROC by margin of the crop, one line per model; hollow marks are published values.

    Args:
        table: One row per model and margin, with `model`, `margin` (a share), `auroc` and, where known,
            `published_auroc`.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.0, pal)
    style(axes, pal, grid="y")
    colours = (pal.accent, pal.second, pal.good, pal.warn)
    for at, (model, rows) in enumerate(table.groupby("model", sort=False)):
        colour = colours[at % len(colours)]
        x = 100 * rows["margin"].to_numpy(dtype=float)
        axes.plot(
            x, rows["auroc"], color=colour, linewidth=1.8, marker="o", markersize=6, markeredgecolor=pal.paper
        )
        if "published_auroc" in rows.columns and rows["published_auroc"].notna().any():
            axes.plot(
                x, rows["published_auroc"], color=colour, linewidth=1, linestyle=(0, (3, 3)), marker="D",
                markersize=5, markerfacecolor=pal.paper,
            )  # fmt: skip
        axes.text(
            x[-1] + 0.6,
            float(rows["auroc"].iloc[-1]),
            shown_name(str(model)),
            color=colour,
            va="center",
            fontsize=10.5,
        )
    axes.set_xlabel("Margin on each side, % of the box's larger side" + _hollow(table))
    axes.set_ylabel("AUROC")
    axes.set_xlim(right=float(100 * table["margin"].max()) + 4)
    return figure


def _hollow(table: pd.DataFrame) -> str:
    return "   (◇ published)" if "published_auroc" in table.columns else ""


def dumbbells(rows: Sequence[tuple[str, str, float, float]], pal: Palette, *, axis: str) -> Figure:
    """Draw values before (hollow) and after (filled), one row per configuration under the kind of scenario.

    Args:
        rows: (kind of scenario, configuration, before, after).
        pal: The colours.
        axis: The measure, for the label of the horizontal axis.

    Returns:
        The figure.
    """
    kinds = list(dict.fromkeys(k for k, *_ in rows))
    lines: list[tuple[str, float | None, float | None]] = []
    for kind in kinds:
        lines.append((KIND_LABELS.get(kind, kind).capitalize(), None, None))
        lines += [(name, a, b) for k, name, a, b in rows if k == kind]
    figure, axes = new_figure(0.75 + 0.28 * len(lines), pal)
    style(axes, pal, grid="x")
    for i, (_, before, after) in enumerate(lines):
        y = len(lines) - 1 - i
        if before is None or after is None:
            continue
        axes.plot([before, after], [y, y], color=pal.muted, linewidth=1.2)
        axes.plot(
            [before],
            [y],
            marker="o",
            markersize=7,
            markerfacecolor=pal.paper,
            markeredgecolor=pal.accent,
            markeredgewidth=1.5,
        )
        axes.plot([after], [y], marker="o", markersize=6.5, color=pal.accent, markeredgecolor=pal.paper)
    axes.set_yticks(range(len(lines))[::-1], [name for name, _, _ in lines])
    for tick, (_, before, _) in zip(axes.get_yticklabels(), lines, strict=True):
        tick.set_color(pal.ink)
        tick.set_fontweight("bold" if before is None else "normal")
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.set_xlim(0, 1.06 * max(max(a, b) for *_, a, b in rows))
    axes.set_xlabel(f"{axis}   (○ raw, ● calibrated)")
    return figure


def dots(rows: Sequence[tuple[str, str, float]], pal: Palette, *, axis: str, chance: float | None) -> Figure:
    """Draw one row per configuration, with one mark per kind of scenario.

    Args:
        rows: (kind of scenario, configuration, value).
        pal: The colours.
        axis: The label of the horizontal axis.
        chance: The value that chance gives, drawn as a dashed line; None for none.

    Returns:
        The figure.
    """
    names = list(dict.fromkeys(n for _, n, _ in rows))
    marks = {
        INTERNAL: ("o", pal.accent),
        EXTERNAL: ("D", pal.second),
        "leave-one-dataset-out": ("s", pal.good),
    }
    figure, axes = new_figure(0.95 + 0.34 * len(names), pal)
    style(axes, pal, grid="x")
    if chance is not None:
        axes.axvline(chance, color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
    for kind, name, value in rows:
        marker, colour = marks.get(kind, ("^", pal.warn))
        axes.plot(
            [value],
            [len(names) - 1 - names.index(name)],
            marker=marker,
            markersize=7,
            color=colour,
            markeredgecolor=pal.paper,
            linestyle="none",
        )
    axes.set_yticks(range(len(names))[::-1], names)
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(names) - 0.4)
    ends = [v for *_, v in rows] + ([chance] if chance is not None else [])
    axes.set_xlim(max(0.0, min(ends) - 0.06), min(1.0, max(ends) + 0.06))
    _legend(axes, [(k, marks.get(k, ("^", pal.warn))) for k in dict.fromkeys(k for k, *_ in rows)])
    axes.set_xlabel(axis)
    return figure


def _legend(axes: Axes, entries: Sequence[tuple[str, tuple[str, str]]]) -> None:
    shapes = {"o": "●", "D": "◆", "s": "■", "^": "▲"}
    x = 0.0
    for kind, (marker, colour) in entries:
        text = f"{shapes[marker]} {KIND_LABELS.get(kind, kind)}"
        axes.text(x, 1.02, text, color=colour, transform=axes.transAxes, fontsize=10.5, va="bottom")
        x += 0.06 + 0.028 * len(text)


def risk(table: pd.DataFrame, pal: Palette) -> Figure:
    """Draw the error rate among the answered cases by coverage, one line per score of uncertainty.

    Args:
        table: One row per score and coverage, with `score`, `coverage` and `risk` as shares.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.2, pal)
    style(axes, pal, grid="both")
    looks = {
        "max_softmax": (pal.accent, "-"),
        "energy": (pal.second, (0, (5, 2))),
        "mahalanobis": (pal.warn, (0, (1, 1.5))),
        "ensemble_entropy": (pal.good, "-"),
        "ensemble_variance": (pal.good, (0, (3, 2))),
    }
    for score, rows in table.groupby("score", sort=False):
        colour, dashes = looks.get(str(score), (pal.muted, "-"))
        axes.plot(
            100 * rows["coverage"],
            100 * rows["risk"],
            color=colour,
            linestyle=dashes,
            linewidth=1.9,
            label=SCORE_LABELS[str(score)],
        )
    axes.axvline(80, ymax=0.72, color=pal.muted, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlim(10, 100)
    axes.set_ylim(0, 1.32 * max(1.0, 100 * float(table["risk"].max())))
    axes.legend(
        frameon=False,
        fontsize=9.5,
        labelcolor=pal.ink,
        loc="upper left",
        ncols=2,
        handlelength=2.2,
        columnspacing=1.0,
    )
    axes.set_xlabel("Answered, % of cases (the most certain first)")
    axes.set_ylabel("Errors among them, %")
    return figure


def tradeoff(rows: Sequence[dict[str, Any]], pal: Palette) -> Figure:
    """Draw fairness against performance; the quadrant better than the baseline in both is shaded (MRI-11).

    Args:
        rows: The methods, each with `name`, `performance`, `fairness`, `quadrant` and `passed_gate`.
        pal: The colours.

    Returns:
        The figure.
    """
    from matplotlib.patches import Rectangle

    figure, axes = new_figure(3.9, pal)
    style(axes, pal)
    x, y = (np.array([float(r[k]) for r in rows]) for k in ("performance", "fairness"))
    pads = [max(0.12 * float(np.ptp(v)), 0.01) for v in (x, y)]
    axes.set_xlim(x.min() - pads[0], x.max() + 2.4 * pads[0])
    axes.set_ylim(y.min() - pads[1], y.max() + pads[1])
    base = next((r for r in rows if r["quadrant"] == "baseline"), None)
    if base is not None:
        bx, by = float(base["performance"]), float(base["fairness"])
        for draw_line, level in ((axes.axvline, bx), (axes.axhline, by)):
            draw_line(level, color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.add_patch(
            Rectangle(
                (bx, by),
                axes.get_xlim()[1] - bx,
                axes.get_ylim()[1] - by,
                color=pal.good,
                alpha=0.09,
                linewidth=0,
            )
        )
    for r in rows:
        passed = bool(r["passed_gate"])
        colour = pal.muted if r is base else pal.good if r["quadrant"] == "both" else pal.accent
        at = (float(r["performance"]), float(r["fairness"]))
        axes.plot(
            [at[0]],
            [at[1]],
            marker="s" if r is base else "o",
            markersize=7,
            markerfacecolor=colour if passed or r is base else pal.paper,
            markeredgecolor=colour,
            markeredgewidth=1.5,
        )
    clear = 0.04 * (axes.get_ylim()[1] - axes.get_ylim()[0])
    points = [
        (str(r["name"]), float(r["performance"]), float(r["fairness"]) + (clear if r is base else 0.0))
        for r in rows
    ]
    _labels(axes, points, pal)
    axes.set_xlabel("Performance   (hollow: below the gate)")
    axes.set_ylabel("Fairness")
    return figure


def _labels(axes: Axes, points: Sequence[tuple[str, float, float]], pal: Palette) -> None:
    """Write names beside their points, moved up where two would overlap."""
    low, high = axes.get_ylim()
    least = 0.062 * (high - low)
    last = -np.inf
    for name, x, y in sorted(points, key=lambda p: p[2]):
        at = max(y, last + least)
        last = at
        axes.annotate(
            name if len(name) <= 20 else name[:19] + "…", (x, y), xytext=(x, at), textcoords="data",
            fontsize=10, color=pal.ink, va="center", ha="left", annotation_clip=False,
        ).set_position((x + 0.018 * (axes.get_xlim()[1] - axes.get_xlim()[0]), at))  # fmt: skip


def two_marks(
    rows: Sequence[tuple[str, float, float]], pal: Palette, *, axis: str, labels: tuple[str, str]
) -> Figure:
    """Draw two joined marks per row, a filled and a hollow one: two classes, or the best and worst methods.

    Args:
        rows: (name, value of the filled mark, value of the hollow mark).
        pal: The colours.
        axis: The label of the horizontal axis.
        labels: What the filled and the hollow mark mean.

    Returns:
        The figure.
    """
    figure, axes = new_figure(0.95 + 0.31 * len(rows), pal)
    style(axes, pal, grid="x")
    for i, (_, a, b) in enumerate(rows):
        y = len(rows) - 1 - i
        axes.plot([a, b], [y, y], color=pal.muted, linewidth=1.2)
        axes.plot([a], [y], marker="o", markersize=7, color=pal.accent, markeredgecolor=pal.paper)
        axes.plot(
            [b], [y], marker="D", markersize=6.2, markerfacecolor=pal.paper, markeredgecolor=pal.second,
            markeredgewidth=1.5,
        )  # fmt: skip
    axes.set_yticks(range(len(rows))[::-1], [n if len(n) <= 26 else n[:25] + "…" for n, _, _ in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    values = [v for _, a, b in rows for v in (a, b) if np.isfinite(v)]
    axes.set_xlim(min(0.0, *values) if min(values) < 0.25 else min(values) - 0.05, max(values) + 0.04)
    axes.set_xlabel(f"{axis}   (● {labels[0]}, ◇ {labels[1]})")
    return figure


def reliable(rows: Sequence[dict[str, Any]], pal: Palette) -> Figure:
    """Draw quantile bins with their sizes; the diagonal is perfect, the dotted line the prevalence (MRI-11).

    Args:
        rows: The bins, each with `predicted`, `observed`, `lo`, `hi`, `cases` and `prevalence`.
        pal: The colours.

    Returns:
        The figure.
    """
    x = [float(r["predicted"]) for r in rows]
    y = [float(r["observed"]) for r in rows]
    curve = {"x": x, "y": y, "lo": [r["lo"] for r in rows], "hi": [r["hi"] for r in rows]}
    curve["n"] = [r["cases"] for r in rows]
    figure = result_plots.reliability({"reliability": curve}, pal)
    axes = figure.axes[0]
    prevalence = float(rows[0]["prevalence"])
    axes.axhline(prevalence, color=pal.second, linewidth=1.1, linestyle=(0, (1, 2)))
    axes.text(0.02, 0.97, f"┄ prevalence {number(prevalence)}", color=pal.second, fontsize=10, va="top")
    for px, py, r in zip(x, y, rows, strict=True):
        axes.text(px, min(py + 0.05, 0.97), f"{int(r['cases'])}", fontsize=9.5, color=pal.muted, ha="center")
    return figure
