"""Sections on single cases: tumour sizes, the best against the worst methods, and the hardest cases."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from elsewhere.analysis.study.groups import SIZE
from elsewhere.report.page.blocks import Heading, Note, Pair, Picture, Section, Table, num, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.study import plots
from elsewhere.report.study.cells import group_label, metric_label, rows_of, variable_label, with_interval
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

MOST_METHODS = 6


@figure("best and worst", tables=("top_and_bottom",))
def top_bottom(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the best against the worst methods, group by group.

    Args:
        page: The page of one task.

    Yields:
        One figure, where the two differ in some group.
    """
    table = page.of("top_and_bottom", board=page.board["board"])
    table = table[table["gap"].notna()] if len(table) else table
    if table.empty:
        return
    rows = [
        (
            "All"
            if r["variable"] == "all"
            else f"{variable_label(r['variable'])}: {group_label(r['group'])}",
            float(r["top_value"]),
            float(r["bottom_value"]),
        )
        for r in rows_of(table)
    ]
    many = int(table["count"].iloc[0])
    best, worst = ("best", "worst") if many == 1 else (f"best {many}", f"worst {many}")
    yield FigureSpec(
        name="top-bottom",
        title=f"The {best} and the {worst}",
        alt="; ".join(f"{n}: {number(a)} and {number(b)}" for n, a, b in rows),
        build=partial(plots.two_marks, rows, axis=metric_label(page.metric), labels=(best, worst)),
    )


@section("sizes", place="cases", tables=("groups", "top_and_bottom"))
def sizes(page: StudyPage) -> Section | None:
    """Show the main metric by tumour size, and the best against the worst methods.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.on_board("groups", variable=SIZE)
    top = page.on_board("top_and_bottom")
    metric, best = page.metric, page.headline["best"]
    blocks: list[Any] = []
    if rows and metric in rows[0]:
        names = list(dict.fromkeys(str(r["group"]) for r in rows if str(r["cases"]) != "0"))
        held = {(r["method"], str(r["group"])): r for r in rows}
        cells = [
            [
                text(page.method(method)),
                *(
                    with_interval(r.get(metric), r.get(f"{metric}_lo"), r.get(f"{metric}_hi"))
                    for r in (held[method, name] for name in names)
                ),
            ]
            for method in dict.fromkeys(r["method"] for r in rows)
        ]
        blocks.append(
            Table(
                name=page.name("sizes"),
                caption=f"{metric_label(metric)} by tumour size",
                columns=["Method", *(f"{n.capitalize()} ({held[best, n]['patients']})" for n in names)],
                rows=cells,
                note="In brackets in the heading: patients. Small and large: below the 20th and above the 80th percentile of "
                "volume.",
            )
        )
    if top:
        blocks += page.pair("top-bottom")
        blocks.append(
            Note(
                text=f"Best: {_names(page, top[0]['top'])}. Worst: {_names(page, top[0]['bottom'])}. Both are chosen on these "
                "cases, so their gap is descriptive and too large; its intervals are in tables/top_and_bottom.csv."
            )
        )
    title = "Small tumours, and the best and worst methods" if rows else "Best and worst methods"
    return page.section("sizes", title, blocks, short="Sizes" if rows else "Best and worst")


def _names(page: StudyPage, names: Any) -> str:
    return ", ".join(page.method(name.strip()) for name in str(names).split(","))


@section("hardest cases", place="cases", tables=("hardest",))
def hardest(page: StudyPage) -> Section | None:
    """Show the cases that are worst for all methods together, with pictures where they were asked for.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("hardest")
    ranked = [r["method"] for r in page.on_board("leaderboard")]
    methods = [m for m in ranked if as_float(rows[0].get(m)) is not None][:MOST_METHODS]
    cells = [
        [
            text(r["case"], kind="code"),
            text(r["why"], sub=str(r["size"]) if isinstance(r.get("size"), str) else ""),
            num(r["mean"]),
            *(num(r.get(m)) for m in methods),
        ]
        for r in rows
    ]
    metric = str(rows[0]["metric"])
    what = (
        "Agreement of the probability with the outcome (1 is right)"
        if page.summary.tables.get("recall") is not None and metric not in _board_metrics(page)
        else metric_label(metric)
    )
    blocks: list[Any] = [
        Table(
            name=page.name("hardest"),
            caption=f"{what} for the hardest cases",
            columns=["Case", "Chosen as", "Mean", *map(page.method, methods)],
            rows=cells,
            note="Cases are named by salted hashes. The key file in the folder of the report resolves them; it stays with the data.",
        )
    ]
    shown = page.pictures.contours.get(page.task, ())
    if shown:
        blocks.append(Heading(text="Contours of the methods"))
        if (page.of("leaderboard", status="ranked")["seeds"] > 1).any():
            blocks.append(Note(text="With several seeds, the contour of the first seed is drawn."))
        blocks.append(Pair(pictures=[Picture(name=n, caption=n, alt=n) for n, _ in shown]))
    elif "volume_truth_ml" in page.summary.tables.get("hardest", {}) or metric == "dice":
        blocks.append(
            Note(
                text="Pictures of these cases are drawn on request (--pictures); they hold pixels of patients."
            )
        )
    return page.section(
        "hardest",
        "Hardest cases",
        blocks,
        short="Hardest cases",
        lead=f"The worst cases for all methods together, of {count(page.board['cases'])} cases, and the worst case of each "
        "kind that the cohort marks.",
    )


def _board_metrics(page: StudyPage) -> set[str]:
    return set(page.of("leaderboard").columns)
