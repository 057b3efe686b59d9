"""Sections that compare inputs, models, margins of the crop, datasets left out, and several sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elsewhere.analysis.study.design import configuration, shown_name
from elsewhere.analysis.study.overall import OVERALL
from elsewhere.report.leaderboard import plots as leaderboard_plots
from elsewhere.report.page.blocks import BLANK, Cell, Note, Section, Table, cnt, num, p_cell, pct, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, as_float, count, number, signed
from elsewhere.report.study import plots
from elsewhere.report.study.cells import (
    PUBLISHED_HEAD,
    Rows,
    any_known,
    configuration_cell,
    first_rows,
    kind_label,
    metric_in_sentence,
    metric_label,
    published_cell,
    rows_of,
    with_interval,
)
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

MOST_ATTEMPTS = 60
MOST_PAIRS = 14
METRICS = ("auroc", "balanced_accuracy")
TITLES = {
    "input": "Lesion crop and whole image",
    "boxes": "Found boxes and annotated boxes",
    "model": "One model and the other",
    "method": "Other training methods",
}


def pair_label(row: Any) -> str:
    """Name a paired difference, such as 'CNN: ROI − whole image'.

    Args:
        row: A row of the table `paired`, with `what` and the model and input of both sides.

    Returns:
        The name.
    """
    if row["what"] in ("input", "boxes"):
        first, second = shown_name(row["a_input"]), shown_name(row["b_input"])
        return f"{shown_name(row['a_model'])}: {first} {MINUS} {second}"
    names = f"{shown_name(row['a_model'])} {MINUS} {shown_name(row['b_model'])}"
    return f"{shown_name(row['a_input'])}: {names}" if row["a_input"] else names


@figure("paired differences", tables=("paired",))
def paired_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the mean paired differences of AUROC, external where there are external scenarios.

    Args:
        page: The page of one task.

    Yields:
        One figure, where there are such differences.
    """
    table = page.of("paired")
    kinds = list(dict.fromkeys(table["kind"]))
    kind = "external" if "external" in kinds else kinds[0]
    rows = rows_of(table[(table["metric"] == "auroc") & (table["kind"] == kind)])
    named = [(pair_label(r), r) for r in rows][:MOST_PAIRS]
    if named:
        words = "; ".join(f"{n} {number(r['difference'])}" for n, r in named)
        yield FigureSpec(
            name="paired",
            title=f"Paired differences of AUROC, {kind_label(kind)} scenarios",
            alt=f"Mean paired differences of AUROC with intervals: {words}.",
            build=lambda pal: leaderboard_plots.differences(named, pal, axis_label="Difference of AUROC"),
        )


@section("comparisons", place="comparison", tables=("paired",))
def comparisons(page: StudyPage) -> Section | None:
    """Compare inputs, models and ways to train over the same scenarios.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("paired")
    blocks: list[Any] = [*page.pair("paired")]
    for what, title in TITLES.items():
        part = [r for r in rows if r["what"] == what]
        if part:
            blocks.append(_paired(page, part, title))
            if what == "boxes" and (found := page.rows("found_boxes")):
                blocks.append(_found_boxes(page, found))
    blocks += [Note(text=n) for n in sorted({str(r["note"]) for r in rows if r.get("note")})[:3]]
    return page.section(
        "comparisons",
        "Comparison of inputs and models",
        blocks,
        short="Comparisons",
        lead="Paired over the same scenarios: seeds averaged first, then one difference per scenario.",
    )


def _paired(page: StudyPage, rows: Rows, title: str) -> Table:
    """One row per pair and kind of scenario, external first; both metrics side by side."""
    printed = any_known(rows, "published_difference")
    held = {(pair_label(r), str(r["kind"]), str(r["metric"])): r for r in rows}
    kinds = sorted(dict.fromkeys(k for _, k, _ in held), key=lambda k: k != "external")
    columns = ["Difference"]
    for metric in METRICS:
        columns += [metric_label(metric), "p", *([PUBLISHED_HEAD] if printed else [])]
    cells = []
    for kind in kinds:
        for name in dict.fromkeys(n for n, k, _ in held if k == kind):
            some = next(r for (n, k, _), r in held.items() if n == name and k == kind)
            line = [text(name, sub=f"{kind_label(kind)}, {some['pairs']} pairs")]
            for metric in METRICS:
                r = held.get((name, kind, metric))
                line += (
                    [with_interval(r["difference"], r["lo"], r["hi"], sign=True), p_cell(r["p"])]
                    if r
                    else [BLANK, BLANK]
                )
                if printed:
                    line.append(
                        published_cell(r["difference"], r.get("published_difference")) if r else BLANK
                    )
            cells.append(line)
    values = sorted({str(r["published_p"]) for r in rows if r.get("published_p")})
    note = (
        "Brackets: 95 % t interval of the mean difference. p: exact Wilcoxon signed-rank test, not corrected for the number "
        "of rows."
    )
    if values:
        note += f" Published p: {', '.join(values)}."
    return Table(
        name=page.name(f"paired-{rows[0]['what']}"),
        caption=title,
        columns=columns,
        rows=cells,
        note=note,
        stacked=printed,
    )


def _found_boxes(page: StudyPage, rows: Rows) -> Table:
    cells = [
        [
            text(r["target"], sub=f"finder trained on {r['source']}"),
            cnt(r["lesions"]),
            *(num(r[name], 2) for name in ("mean_iou", "median_iou")),
            *(pct(r[name], 0) for name in ("found", "none", "covered")),
        ]
        for r in rows
    ]
    return Table(
        name=page.name("found-boxes"),
        caption="Overlap of the found boxes with the annotated ones",
        columns=[
            "Tested on",
            "Lesions",
            "Mean IoU",
            "Median IoU",
            "IoU of 0.5 and more",
            "No box",
            "Covered",
        ],
        rows=cells,
        note="Seeds averaged. IoU: the shared area divided by the joint area. A lesion without a found box counts 0, and the "
        "classifier sees the whole picture there. Covered: mean share of the annotated box that the found one covers.",
    )


@section("without one dataset", place="comparison", tables=("without_dataset",))
def without(page: StudyPage) -> Section | None:
    """Show every mean again without the scenarios that involve a dataset.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = [r for r in page.rows("without_dataset") if r["kind"] in ("internal", "external")]
    asked = [d for d in page.design.without if any(r["without"] == d for r in rows)]
    left = asked + [d for d in dict.fromkeys(r["without"] for r in rows) if d not in asked]
    blocks: list[Any] = []
    for kind, metric in (("external", "auroc"), ("external", "balanced_accuracy"), ("internal", "auroc")):
        part = [r for r in rows if r["kind"] == kind and r["metric"] == metric]
        if part:
            name = f"{kind}-{metric}"
            caption = f"{kind_label(kind).capitalize()} {metric_in_sentence(metric)}"
            blocks.append(_without(page.name(f"without-{name}"), part, left, caption))
    return page.section(
        "without",
        "Means without one dataset",
        blocks,
        short="Without one dataset",
        lead="Every mean again without the scenarios that involve a dataset. A conclusion that depends on one dataset is about "
        "that dataset.",
    )


def _without(name: str, rows: Rows, left: list[str], caption: str) -> Table:
    held = {(r["model"], r["input"], r["without"]): r for r in rows}
    configurations = list(dict.fromkeys((r["model"], r["input"]) for r in rows))
    configurations.sort(key=lambda c: c[0] == OVERALL)
    printed = next(
        (d for d in left if any_known([r for r in rows if r["without"] == d], "published_value")), None
    )
    columns = ["Configuration", "All"]
    for dataset in left:
        columns += [f"Without {dataset}"] + ([PUBLISHED_HEAD] if dataset == printed else [])
    cells = []
    for model, input_ in configurations:
        line = [configuration_cell({"model": model, "input": input_})]
        some = [held[model, input_, d] for d in left if (model, input_, d) in held]
        line.append(num(some[0]["all"]) if some else BLANK)
        for dataset in left:
            r = held.get((model, input_, dataset))
            line.append(num(r["value"]) if r else BLANK)
            if dataset == printed:
                line.append(published_cell(r["value"], r.get("published_value")) if r else BLANK)
        cells.append(line)
    return Table(name=name, caption=caption, columns=columns, rows=cells)


@figure("margins", tables=("margins",))
def margins_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the mean external AUROC by margin of the crop.

    Args:
        page: The page of one task.

    Yields:
        One figure.
    """
    table = page.of("margins")
    yield FigureSpec(
        name="margins",
        title="Mean external AUROC by margin of the crop",
        alt="; ".join(
            f"{shown_name(str(r['model']))} at {100 * r['margin']:g} %: {number(r['auroc'])}"
            for r in rows_of(table)
        ),
        build=lambda pal: plots.margins(table, pal),
    )


@section("margins", place="comparison", tables=("margins",))
def margins(page: StudyPage) -> Section | None:
    """Compare margins around the lesion on the same transfers and seeds.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("margins")
    reference = page.design.margin_reference
    printed = any_known(rows, "published_auroc")
    against = f"p against {100 * (reference or 0):g} %"
    columns = ["Model", "Margin"]
    for metric in METRICS:
        columns += [metric_label(metric), against, *([PUBLISHED_HEAD] if printed else [])]
    cells = []
    for r in rows:
        line = [text(shown_name(r["model"])), text(f"{100 * r['margin']:g} %", kind="number")]
        for metric in METRICS:
            line.append(with_interval(r[metric], r[f"{metric}_lo"], r[f"{metric}_hi"]))
            line.append(text("reference") if r["margin"] == reference else p_cell(r.get(f"{metric}_p")))
            if printed:
                line.append(published_cell(r[metric], r.get(f"published_{metric}")))
        cells.append(line)
    least = min((v for r in rows if (v := as_float(r.get("auroc_smallest_p"))) is not None), default=None)
    note = f"{rows[0]['scenarios']} scenarios, {rows[0]['seeds']} seeds. p: exact Wilcoxon signed-rank test over scenarios."
    if least is not None and least > 0.05:
        note += (
            f" With {rows[0]['scenarios']} scenarios its smallest possible value is {number(least)}: no difference can be "
            "significant."
        )
    table = Table(
        name=page.name("margins"),
        caption="Margins of the lesion crop",
        columns=columns,
        rows=cells,
        note=note,
    )
    return page.section(
        "margins",
        "Margin around the lesion",
        [*page.pair("margins"), table],
        short="Margin of the crop",
        lead="The crop grown by each margin on every side, on the same transfers and seeds.",
    )


@section("several sources", place="comparison", tables=("multi_source", "selection"))
def several_sources(page: StudyPage) -> Section | None:
    """Show the results of training on all other datasets, and of methods chosen on the sources alone.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("multi_source")
    blocks = [*_selection(page), *([_multi_source(page, rows)] if rows else [])]
    return page.section(
        "sources",
        "Training on all other datasets",
        blocks,
        short="Several sources",
        lead="One dataset is the target, all the others train.",
    )


def _multi_source(page: StudyPage, rows: Rows) -> Table:
    targets = [d for d in page.design.datasets if any(r["target"] == d for r in rows)]
    alone = any_known(rows, "single_mean", "single_best")
    single = ("single_mean", "single_best") if alone else ()
    cells = []
    for model, input_ in dict.fromkeys((r["model"], r["input"]) for r in rows):
        part = {r["target"]: r for r in rows if r["model"] == model and r["input"] == input_}
        method = next(iter(part.values()))["method"]
        line = [text(configuration(model, input_), sub="" if method == "plain" else str(method))]
        for target in targets:
            r = part.get(target)
            gain = as_float(r["gain_over_mean"]) if r else None
            line.append(num(r["auroc"], sub="" if gain is None else f"({signed(gain)})") if r else BLANK)
        whole = len(part) == len(targets)
        cells.append([*line, *(num(_mean(part, name) if whole else None) for name in ("auroc", *single))])
    note = "Mean over seeds of one network each."
    if alone:
        note += (
            " In brackets: the gain over the mean of single sources at that target. The best single source is picked with the "
            "target's labels, so it is a bound for comparison and not a choice that could have been made."
        )
    return Table(
        name=page.name("multi-source"),
        caption="AUROC where all other datasets train, by target",
        columns=[
            "Configuration",
            *targets,
            "Mean",
            *(("Single source, mean", "Single source, best") if alone else ()),
        ],
        rows=cells,
        note=f"{note} A mean is shown where every target has a value. Intervals over patients are in "
        "tables/multi_source.csv.",
    )


def _mean(part: dict[str, Any], name: str) -> float | None:
    known = [v for r in part.values() if (v := as_float(r[name])) is not None]
    return sum(known) / len(known) if known else None


_SELECTION_COLUMNS = [
    "Target",
    "AUROC on the sources",
    "Seeds",
    "AUROC at the target",
    "Seeds",
    "Mean of the seeds",
]


def _selection(page: StudyPage) -> list[Any]:
    rows, attempts = page.rows("selection"), page.rows("selection_attempts")
    if not rows or not attempts:
        return []
    most = _Most(
        nested=max(int(r["nested_seeds"]) for r in attempts), target=max(int(r["seeds"]) for r in attempts)
    )
    plain = page.rows("selection_without_outline")
    tried = len(dict.fromkeys((r["model"], r["input"]) for r in attempts))
    found = [
        Table(
            name=page.name("chosen"),
            caption="Methods chosen on the sources alone, and their result at the hospital left out",
            columns=_SELECTION_COLUMNS,
            rows=_chosen(rows, most),
            note=f"{tried} configurations were tried; the labels of the target chose none of them. Brackets: 95 % interval over "
            f"the target's patients, and over targets in the last row.{most.fewer(attempts)}",
        )
    ]
    if plain:
        found.append(
            Table(
                name=page.name("chosen-without-outline"),
                caption="The same choice among configurations that do not see the annotated outline",
                columns=_SELECTION_COLUMNS,
                rows=_chosen(plain, most),
                note="An outline is drawn by a person, and its shape can reveal the label without the picture. Where nobody "
                "draws outlines, this is the fairer number.",
            )
        )
    shown, cut = first_rows(attempts, MOST_ATTEMPTS, "selection_attempts")
    lines = []
    for r in shown:
        nested, target = most.cells(r)
        lines.append(
            [
                text(r["target"]),
                text(configuration(r["model"], r["input"])),
                num(r["nested_auroc"]),
                nested,
                with_interval(r["ensemble_auroc"], r["lo"], r["hi"]),
                target,
                text("chosen" if r["chosen"] else r["left_out"] or " "),
            ]
        )
    found.append(
        Table(
            name=page.name("attempts"),
            caption="Every attempt",
            columns=[
                "Target",
                "Configuration",
                "AUROC on the sources",
                "Seeds",
                "AUROC at the target",
                "Seeds",
                "Chosen",
            ],
            rows=lines,
            note="The best one at the target was not known beforehand, and may not be claimed. Without a number there: it was "
            f"not chosen, and not trained for that target.{cut}",
        )
    )
    return found


def _chosen(rows: Rows, most: _Most) -> list[list[Any]]:
    cells = []
    for r in rows:
        nested, target = most.cells(r)
        cells.append(
            [
                text(r["target"], sub=r["members"]),
                num(r["nested_auroc"]),
                nested,
                with_interval(r["ensemble_auroc"], r["lo"], r["hi"]),
                target,
                num(r["auroc"]),
            ]
        )
    return cells


@dataclass(frozen=True, kw_only=True)
class _Most:
    """The most seeds that any configuration has: of the trainings that chose, and of those at the target."""

    nested: int
    target: int

    def cells(self, row: dict[str, Any]) -> list[Cell]:
        """Both numbers of a row, with the most where others have more."""
        held = (int(row["nested_seeds"]), self.nested), (int(row["seeds"]), self.target)
        return [
            text(None if not n else count(n) if n == most else f"{n} of {most}", kind="number")
            for n, most in held
        ]

    def fewer(self, attempts: Rows) -> str:
        """Name the configurations with fewer seeds than the others."""
        names = [
            configuration(str(r["model"]), str(r["input"]))
            for r in attempts
            if int(r["nested_seeds"]) < self.nested or 0 < int(r["seeds"]) < self.target
        ]
        if not names:
            return ""
        shown = "; ".join(dict.fromkeys(names))
        return f" Fewer seeds than the others, and so a weaker ensemble or a less certain choice: {shown}."
