"""The figures of a recipe study (MRI-10 to MRI-12), drawn in the report's own style.

Each takes tables of a `RecipeSummary` and a palette; `recipe_figures` names them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.report.leaderboard import plots as board_plots
from elsewhere.report.page import canvas
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, number
from elsewhere.report.result import plots
from elsewhere.study.recipe_analysis_boards import MAIN
from elsewhere.study.recipe_analysis_groups import CENTRES, SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from elsewhere.study.recipe_analysis import RecipeSummary

METRIC_WORDS = {
    "combined": "Combined",
    "fairness": "Fairness",
    "performance": "Performance",
    "dice": "Dice",
    "hausdorff_mm": "HD, mm",
    "norm_hd": "NormHD",
    "balanced_accuracy": "Balanced accuracy",
    "auroc": "AUC",
    "sensitivity": "Recall, pCR",
    "specificity": "Recall, no pCR",
}
VARIABLE_WORDS = {
    "age": "Age",
    "menopausal_status": "Menopausal status",
    "breast_density": "Breast density",
    "subtype": "Subtype",
    "vendor": "Vendor",
    "field_strength": "Field strength, T",
    "dataset": "Dataset",
    "site": "Site",
    SIZE: "Tumour size",
    "all": "All",
}
MOST_SITES = 14
MOST_RELIABLE = 3


def group_words(group: object) -> str:
    return str(group).replace("<=", "≤").replace("_", " ")


def recipe_figures(summary: RecipeSummary) -> dict[str, FigureSpec]:
    """The figures that this study can have, by name."""
    specs: list[FigureSpec] = []
    for task, told in summary.headline["tasks"].items():
        specs += _ranks(summary, task, told)
        specs += _drop(summary, task, told)
        specs += _forest(summary, task, told, "centres", CENTRES, "Where does it drop?")
        specs += _forest(summary, task, told, "groups", _group_variables(summary, task), "Group by group:")
        specs += _tradeoff(summary, task, told)
        specs += _weights(summary, task, told)
        specs += _top_bottom(summary, task, told)
    specs += [*_recall(summary), *_reliability(summary)]
    return {spec.name: spec for spec in specs}


def inline_figures(summary: RecipeSummary) -> dict[str, str]:
    """Each figure as an SVG element in the page's own colours."""
    out = {}
    for name, spec in recipe_figures(summary).items():
        with canvas.drawing():
            out[name] = canvas.inline(spec.build(canvas.STAND_IN), name, spec.alt)
    return out


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _board(summary: RecipeSummary, table: str, task: str, told: dict[str, Any]) -> pd.DataFrame:
    return summary.of(table, task=task, board=told["board"])


def _ranks(summary: RecipeSummary, task: str, told: dict[str, Any]) -> Iterator[FigureSpec]:
    lead = _board(summary, "leaderboard", task, told)
    rows = [r | {"model": r["recipe"]} for r in _records(lead[lead["status"] == "ranked"])]
    if len(rows) < 2:
        return
    words = "; ".join(
        f"{r['recipe']}: rank {r['rank']:g} ({r['rank_lo']:g} to {r['rank_hi']:g})" for r in rows
    )
    yield FigureSpec(
        name=f"{task}-ranks", title="Rank and rank interval; a dashed rule parts the tiers",
        alt=f"Ranks. {words}.", build=lambda pal: board_plots.rank_intervals(rows, pal),
    )  # fmt: skip


def _drop(summary: RecipeSummary, task: str, told: dict[str, Any]) -> Iterator[FigureSpec]:
    home = summary.of("home_and_elsewhere", task=task, recipe=told["best"])
    if home.empty or "difference" not in home.columns:
        return
    kept = _records(home[home["difference"].notna()])
    if not kept:
        return
    rows = [
        (
            f"{r['source']} → {r['target']}" if r["kind"] == "external" else f"rest → {r['target']}",
            {"difference": r["difference"], "lo": r["lo90"], "hi": r["hi90"]},
        )
        for r in kept
    ]
    label = f"{METRIC_WORDS[MAIN[task]]}, elsewhere {MINUS} at home"
    words = "; ".join(f"{n}: {number(r['difference'])}" for n, r in rows)
    yield FigureSpec(
        name=f"{task}-drop", title=f"{told['best']}: {label}, 90 % intervals", alt=f"{label}. {words}.",
        build=lambda pal: board_plots.differences(rows, pal, axis_label=label),
    )  # fmt: skip


def _group_variables(summary: RecipeSummary, task: str) -> tuple[str, ...]:
    groups = summary.of("groups", task=task)
    if groups.empty:
        return ()
    return tuple(v for v in dict.fromkeys(groups["variable"]) if v not in CENTRES)


def _forest(
    summary: RecipeSummary, task: str, told: dict[str, Any], name: str, variables: Sequence[str], title: str
) -> Iterator[FigureSpec]:
    groups = _board(summary, "groups", task, told)
    if groups.empty:
        return
    groups = groups[groups["recipe"] == told["best"]]
    metric = MAIN[task]
    blocks = []
    for variable in variables:
        part = groups[(groups["variable"] == variable) & (groups["cases"].astype(str) != "0")]
        if len(part) < 2 or len(part) > MOST_SITES:
            continue
        rows = [
            (
                group_words(r["group"]),
                {"value": r[metric], "lo": r[f"{metric}_lo"], "hi": r[f"{metric}_hi"]},
                r["patients"],
            )
            for r in _records(part)
        ]
        blocks.append((VARIABLE_WORDS.get(variable, variable), rows))
    if not blocks:
        return
    overall = {"value": told["value"], "lo": told["value_lo"], "hi": told["value_hi"]}
    words = "; ".join(f"{n}: {number(e['value'])}" for _, rows in blocks for n, e, _ in rows)
    label = METRIC_WORDS[metric]
    yield FigureSpec(
        name=f"{task}-{name}", title=f"{title} {label} of {told['best']}", alt=f"{label} by group. {words}.",
        build=lambda pal: plots.forest(blocks, pal, overall=overall, axis_label=label),
    )  # fmt: skip


def _tradeoff(summary: RecipeSummary, task: str, told: dict[str, Any]) -> Iterator[FigureSpec]:
    gate = _board(summary, "gate", task, told)
    if gate.empty:
        return
    rows = _records(gate)
    words = "; ".join(
        f"{r['recipe']}: performance {number(r['performance'])}, fairness {number(r['fairness'])}"
        for r in rows
    )
    yield FigureSpec(
        name=f"{task}-tradeoff", title="Fairness against performance, and the baseline's quadrant",
        alt=f"Fairness against performance. {words}.", build=lambda pal: tradeoff(rows, pal),
    )  # fmt: skip


def tradeoff(rows: Sequence[dict[str, Any]], pal: Palette) -> Figure:
    """Up and to the right of the baseline is better in both; its quadrant is shaded (MRI-11)."""
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
        (str(r["recipe"]), float(r["performance"]), float(r["fairness"]) + (clear if r is base else 0.0))
        for r in rows
    ]
    _labels(axes, points, pal)
    axes.set_xlabel("Performance   (hollow: below the gate)")
    axes.set_ylabel("Fairness")
    return figure


def _labels(axes: Axes, points: Sequence[tuple[str, float, float]], pal: Palette) -> None:
    """Names beside their points, moved up where two would stand on each other."""
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


def _weights(summary: RecipeSummary, task: str, told: dict[str, Any]) -> Iterator[FigureSpec]:
    table = _board(summary, "weights", task, told)
    if table.empty:
        return
    weights = sorted(table["weight"].unique())
    ranks = {
        str(n): part.sort_values("weight")["rank"].tolist() for n, part in table.groupby("recipe", sort=False)
    }
    yield FigureSpec(
        name=f"{task}-weights", title="Rank at every fairness weight",
        alt="; ".join(f"{n}: from rank {r[0]} at 0 to {r[-1]} at 1" for n, r in ranks.items()),
        build=lambda pal: board_plots.weight_stability(weights, ranks, pal),
    )  # fmt: skip


def two_marks(
    rows: Sequence[tuple[str, float, float]], pal: Palette, *, axis: str, words: tuple[str, str]
) -> Figure:
    """A full and a hollow mark a row, joined: two classes, or the best and the worst models."""
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
    axes.set_xlabel(f"{axis}   (● {words[0]}, ◇ {words[1]})")
    return figure


def _top_bottom(summary: RecipeSummary, task: str, told: dict[str, Any]) -> Iterator[FigureSpec]:
    table = _board(summary, "top_and_bottom", task, told)
    if table.empty:
        return
    table = table[table["gap"].notna()]
    rows = [
        (
            "All"
            if r["variable"] == "all"
            else f"{VARIABLE_WORDS.get(str(r['variable']), str(r['variable']))}: {group_words(r['group'])}",
            float(r["top_value"]),
            float(r["bottom_value"]),
        )
        for r in _records(table)
    ]
    if not rows:
        return
    count = int(table["count"].iloc[0])
    best, worst = ("best", "worst") if count == 1 else (f"best {count}", f"worst {count}")
    yield FigureSpec(
        name=f"{task}-top-bottom", title=f"The {best} against the {worst}",
        alt="; ".join(f"{n}: {number(a)} and {number(b)}" for n, a, b in rows),
        build=lambda pal: two_marks(rows, pal, axis=METRIC_WORDS[MAIN[task]], words=(best, worst)),
    )  # fmt: skip


def _recall(summary: RecipeSummary) -> Iterator[FigureSpec]:
    table = summary.of("recall")
    if table.empty:
        return
    rows = [(str(r["recipe"]), float(r["pcr"]), float(r["no_pcr"])) for r in _records(table)]
    yield FigureSpec(
        name="response-recall", title="Recall of each class",
        alt="; ".join(f"{n}: pCR {number(a)}, no pCR {number(b)}" for n, a, b in rows),
        build=lambda pal: two_marks(rows, pal, axis="Recall", words=("pCR", "no pCR")),
    )  # fmt: skip


def _reliability(summary: RecipeSummary) -> Iterator[FigureSpec]:
    table = summary.of("reliability")
    for recipe in list(dict.fromkeys(table["recipe"]))[:MOST_RELIABLE] if not table.empty else ():
        rows = _records(table[table["recipe"] == recipe])
        words = "; ".join(f"{number(r['predicted'])} said, {number(r['observed'])} seen" for r in rows)

        def build(pal: Palette, rows: Sequence[dict[str, Any]] = rows) -> Figure:
            return _reliable(rows, pal)

        yield FigureSpec(
            name=f"response-reliability-{_slug(recipe)}",
            title=f"Reliability of {recipe}",
            alt=words,
            build=build,
        )


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.casefold())


def _reliable(rows: Sequence[dict[str, Any]], pal: Palette) -> Figure:
    """Quantile bins with their sizes; the diagonal is perfect, the dotted line the prevalence (MRI-11)."""
    x = [float(r["predicted"]) for r in rows]
    y = [float(r["observed"]) for r in rows]
    curve = {"x": x, "y": y, "lo": [r["lo"] for r in rows], "hi": [r["hi"] for r in rows]}
    curve["n"] = [r["cases"] for r in rows]
    figure = plots.reliability({"reliability": curve}, pal)
    axes = figure.axes[0]
    prevalence = float(rows[0]["prevalence"])
    axes.axhline(prevalence, color=pal.second, linewidth=1.1, linestyle=(0, (1, 2)))
    axes.text(0.02, 0.97, f"┄ prevalence {number(prevalence)}", color=pal.second, fontsize=10, va="top")
    for px, py, r in zip(x, y, rows, strict=True):
        axes.text(px, min(py + 0.05, 0.97), f"{int(r['cases'])}", fontsize=9.5, color=pal.muted, ha="center")
    return figure
