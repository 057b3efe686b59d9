"""Sections on groups of patients: gaps between them, and each group's own result (ST-08, MRI-06)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elsewhere.analysis.study.groups import CENTRES, OVERALL, SIZE
from elsewhere.report.page.blocks import Cell, Fold, Note, Section, Table, cnt, num, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import ABSENT, as_float, count, interval, number, p_value
from elsewhere.report.study.cells import (
    Rows,
    any_known,
    group_label,
    metric_label,
    positive_labels,
    variable_label,
    with_interval,
)
from elsewhere.report.study.leaderboard import reported_metrics
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section
from elsewhere.report.study.transfers import group_forest

GAPS = {
    "equalised_odds": "range of the true positive rate plus range of the false positive rate",
    "dice+norm_hd": "mean range of Dice and NormHD",
}


@figure("groups", tables=("groups",))
def groups_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the best method's main metric in each group of patients.

    Args:
        page: The page of one task.

    Yields:
        One figure, where some variable has two groups or more.
    """
    variables = [v for v in dict.fromkeys(page.of("groups")["variable"]) if v not in (*CENTRES, SIZE)]
    yield from group_forest(page, "groups", variables, "by group of patients")


@section("fairness", place="groups", tables=("groups", "fairness", "known"))
def fairness(page: StudyPage) -> Section | None:
    """Show the gaps between groups of patients, compared with what chance gives, and each group's result.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    blocks: list[Any] = []
    if "fairness" in reported_metrics(page):
        blocks += [
            Note(text=f"{variable_label(r['variable'])}: {_lower(str(r['reason']))}.", tone="warn")
            for r in page.on_board("known")
            if r["scored"] and r["reason"]
        ]
    rows = page.on_board("fairness")
    if rows:
        blocks += [_gaps(page, rows), _variants(page, rows)]
    blocks += page.pair("groups")
    best = page.headline["best"]
    groups = [r for r in page.on_board("groups", method=best) if r["variable"] not in (*CENTRES, SIZE)]
    if groups:
        blocks.append(_group_table(page, groups, page.method(best)))
    return page.section(
        "groups",
        "Groups of patients",
        blocks,
        short="Groups",
        lead="The gap between groups, compared with what chance alone gives, since a range is never 0. Subtype is reported "
        "and never scored.",
    )


def _lower(reason: str) -> str:
    return reason[:1].lower() + reason[1:]


def _gaps(page: StudyPage, rows: Rows) -> Table:
    """One row per method, one column per variable: the gap, and below it what chance gives."""
    variables = list(dict.fromkeys(str(r["variable"]) for r in rows))
    held = {(r["method"], str(r["variable"])): r for r in rows}
    cells = [
        [text(page.method(method)), *(_gap(held.get((method, v))) for v in variables)]
        for method in dict.fromkeys(r["method"] for r in rows)
    ]
    columns = ["Method"]
    for v in variables:
        some = next(r for r in rows if r["variable"] == v)
        name = "All scored" if v == OVERALL else variable_label(v)
        few = "" if v == OVERALL else f" (smallest group {count(some['smallest_group'])})"
        columns.append(name + few + ("" if some["scored"] else ", reported only"))
    reasons = sorted({str(r["reason"]) for r in rows if isinstance(r.get("reason"), str) and r["reason"]})
    what = GAPS.get(str(rows[0]["metric"]), metric_label(str(rows[0]["metric"])))
    return Table(
        name=page.name("gaps"),
        caption=f"Gap between groups: {what}",
        columns=columns,
        rows=cells,
        note="In brackets: an interval from all pairwise differences together, which starts at 0 for a fair model. A group "
        "that is too small to have an interval counts in the gap and not in the interval. With several seeds a group's value "
        "is their mean. Chance: 95 % of the gaps are smaller when the attributes are permuted over patients. p: after Holm's "
        "correction over the scored variables; 'unequal' where it is at most 0.05. Its absence is no proof of fairness: the "
        "smallest group shows how little could be detected." + (f" {'; '.join(reasons)}." if reasons else ""),
        stacked=True,
    )


def _gap(r: dict[str, Any] | None) -> Cell:
    if r is None:
        return text(ABSENT)
    if as_float(r["gap"]) is None:
        return text("not estimable", sub=str(r.get("reason") or ""), kind="undefined")
    ends = {"value": r["gap"], "lo": as_float(r.get("gap_lo")), "hi": as_float(r.get("gap_hi"))}
    p = r["p"] if as_float(r.get("p_holm")) is None else r["p_holm"]
    without = r.get("interval_without")
    named = isinstance(without, str) and without and interval(ends)
    left = f"interval without {group_label(without)}" if named else ""
    parts = [interval(ends), left, f"chance {number(r['null_upper'])}", f"p {p_value(p)}"]
    mark = "unequal " if r.get("flagged") is True else ""
    return Cell(text=f"{mark}{number(r['gap'])}", sub="\n".join(x for x in parts if x), kind="number")


def _variants(page: StudyPage, rows: Rows) -> Fold:
    cells = [
        [
            text(page.method(r["method"])),
            text(variable_label(r["variable"])),
            num(r["range_based"]),
            num(r["worst_group_score"], sub=group_label(r["worst_group"] or "")),
            num(r["best_group_score"], sub=group_label(r["best_group"] or "")),
            num(r["variance_based"]),
            num(r["weighted_variance_based"]),
        ]
        for r in rows
        if r["variable"] != OVERALL
    ]
    table = Table(
        name=page.name("variants"),
        caption="Other measures of fairness: worst group, best group, spread",
        columns=[
            "Method",
            "Variable",
            "1 − range",
            "Worst group",
            "Best group",
            "1 − 2 s.d.",
            "Weighted by size",
        ],
        rows=cells,
        note="Of the performance, or balanced accuracy, of each group. A range can be narrowed by making the best group worse; "
        "the worst group's own value cannot.",
    )
    return Fold(summary="Other measures of fairness", closed=True, blocks=[table])


def _group_table(page: StudyPage, rows: Rows, best: str) -> Fold:
    found = [c.removesuffix("_lo") for c in rows[0] if c.endswith("_lo")]
    metrics = [m for m in found if m in rows[0] and any_known(rows, m)]
    positives = any(r.get("positives") == r.get("positives") and r.get("positives") is not None for r in rows)
    cells = []
    for r in rows:
        if str(r["cases"]) == "0":
            continue
        line = [text(f"{variable_label(r['variable'])}: {group_label(r['group'])}"), cnt(r["patients"])]
        line += [cnt(r["positives"])] if positives else []
        for m in metrics:
            if as_float(r.get(m)) is not None:
                line.append(with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi")))
            else:
                line.append(text("not shown" if r["withheld"] else ABSENT, kind="muted"))
        cells.append(line)
    name = positive_labels(page.task)[0]
    columns = [
        "Group",
        "Patients",
        *([name if not name.islower() else name.capitalize()] if positives else []),
    ]
    table = Table(
        name=page.name("group-table"),
        caption=f"{best}, group by group",
        columns=[*columns, *(metric_label(m) for m in metrics)],
        rows=cells,
        stacked=True,
        note="Groups of one to four patients are withheld. 'Missing': no value, or left out by the protocol; it is never part "
        "of a gap. Every method is in tables/groups.csv.",
    )
    return Fold(summary=f"Every group of {best}", closed=True, blocks=[table])
