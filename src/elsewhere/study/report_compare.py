"""The sections that compare: crop and whole image, models, without one dataset, margins, several sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import BLANK, Cell, Note, Section, Table, cnt, num, p_cell, pct, text
from elsewhere.report.page.numbers import as_float, count, number, signed
from elsewhere.study.analysis_design import KIND_WORDS, configuration, word
from elsewhere.study.analysis_drop import OVERALL
from elsewhere.study.figures import METRIC_WORDS, pair_words
from elsewhere.study.report_sections import (
    PAPER_HEAD,
    Rows,
    Specs,
    beside,
    named,
    pair,
    rows_of,
    with_interval,
)

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

MOST_ATTEMPTS = 60
_TITLES = {
    "input": "The lesion crop or the whole image",
    "boxes": "Found boxes or annotated ones",
    "model": "One model or the other",
    "method": "Other ways to train",
}


def comparisons(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("paired"))
    if not rows:
        return None
    blocks: list[Any] = pair(specs, "paired")
    for what, title in _TITLES.items():
        part = [r for r in rows if r["what"] == what]
        if part:
            blocks.append(_paired(part, title))
            if what == "boxes" and (found := rows_of(summary.tables.get("found_boxes"))):
                blocks.append(_found_boxes(found))
    notes = sorted({str(r["note"]) for r in rows if r.get("note")})
    blocks += [Note(text=n) for n in notes[:3]]
    return Section(
        id="comparisons",
        title="What makes it travel",
        short="Comparisons",
        lead="Paired over the same scenarios: seeds averaged, then one difference a scenario (US-20).",
        blocks=blocks,
    )


def _paired(rows: Rows, title: str) -> Table:
    """A row a pair and kind of scenario, external first; both metrics side by side."""
    paper = any(as_float(r.get("paper_difference")) is not None for r in rows)
    held = {(pair_words(r), str(r["kind"]), str(r["metric"])): r for r in rows}
    kinds = sorted(dict.fromkeys(k for _, k, _ in held), key=lambda k: k != "external")
    columns = ["Difference"]
    for name in ("AUROC", "Balanced accuracy"):
        columns += [name, "p", *([PAPER_HEAD] if paper else [])]
    cells = []
    for kind in kinds:
        for name in dict.fromkeys(n for n, k, _ in held if k == kind):
            some = next(r for (n, k, _), r in held.items() if n == name and k == kind)
            line = [text(name, sub=f"{KIND_WORDS.get(kind, kind)}, {some['pairs']} pairs")]
            for metric in ("auroc", "balanced_accuracy"):
                r = held.get((name, kind, metric))
                line += (
                    [with_interval(r["difference"], r["lo"], r["hi"], sign=True), p_cell(r["p"])]
                    if r
                    else [BLANK, BLANK]
                )
                if paper:
                    line.append(beside(r["difference"], r.get("paper_difference")) if r else BLANK)
            cells.append(line)
    printed = sorted({str(r["paper_p"]) for r in rows if r.get("paper_p")})
    note = "Brackets: 95 % t interval of the mean difference; p: exact Wilcoxon signed-rank, not corrected for the number of rows."
    if printed:
        note += f" The paper's p: {', '.join(printed)}."
    return Table(
        name=f"paired-{rows[0]['what']}",
        caption=title,
        columns=columns,
        rows=cells,
        note=note,
        stacked=paper,
    )


def _found_boxes(rows: Rows) -> Table:
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
        name="found-boxes",
        caption="How the found boxes lie on the annotated ones",
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
        note="Seeds averaged. IoU: the shared area over the joint area; a lesion without a found box counts 0, and the "
        "classifier sees the whole picture there. Covered: mean share of the annotated box that the found one covers (US-33).",
    )


def without(summary: StudySummary, specs: Specs) -> Section | None:
    rows = [
        r for r in rows_of(summary.tables.get("without_dataset")) if r["kind"] in ("internal", "external")
    ]
    if not rows:
        return None
    asked = [d for d in summary.design.without if any(r["without"] == d for r in rows)]
    left = asked + [d for d in dict.fromkeys(r["without"] for r in rows) if d not in asked]
    blocks: list[Any] = []
    for kind in ("external", "internal"):
        for metric in ("auroc", "balanced_accuracy"):
            part = [r for r in rows if r["kind"] == kind and r["metric"] == metric]
            if part and (kind == "external" or metric == "auroc"):
                blocks.append(_without(part, left, f"{KIND_WORDS[kind].capitalize()} {METRIC_WORDS[metric]}"))
    return Section(
        id="without",
        title="Without one dataset",
        short="Without one dataset",
        lead="Every mean again without the scenarios that touch a dataset. A conclusion that turns on one of them is that one's.",
        blocks=blocks,
    )


def _without(rows: Rows, left: list[str], caption: str) -> Table:
    held = {(r["model"], r["input"], r["without"]): r for r in rows}
    configurations = list(dict.fromkeys((r["model"], r["input"]) for r in rows))
    configurations.sort(key=lambda c: c[0] == OVERALL)
    printed = next(
        (
            d
            for d in left
            if any(as_float(r.get("paper_value")) is not None for r in rows if r["without"] == d)
        ),
        None,
    )
    columns = ["Configuration", "All"]
    for name in left:
        columns += [f"Without {name}"] + ([PAPER_HEAD] if name == printed else [])
    cells = []
    for model, input_ in configurations:
        line = [named({"model": model, "input": input_})]
        some = [held[model, input_, d] for d in left if (model, input_, d) in held]
        line.append(num(some[0]["all"]) if some else BLANK)
        for name in left:
            r = held.get((model, input_, name))
            line.append(num(r["value"]) if r else BLANK)
            if name == printed:
                line.append(beside(r["value"], r.get("paper_value")) if r else BLANK)
        cells.append(line)
    return Table(name=f"without-{len(caption)}", caption=caption, columns=columns, rows=cells)


def margins(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("margins"))
    if not rows:
        return None
    reference = summary.design.margin_reference
    paper = any(as_float(r.get("paper_auroc")) is not None for r in rows)
    shown = f"p against {100 * (reference or 0):g} %"
    columns = [
        "Model",
        "Margin",
        "AUROC",
        shown,
        *([PAPER_HEAD] if paper else []),
        "Balanced accuracy",
        shown,
    ]
    columns += [PAPER_HEAD] if paper else []
    cells = []
    for r in rows:
        line = [text(word(r["model"])), text(f"{100 * r['margin']:g} %", kind="number")]
        for metric in ("auroc", "balanced_accuracy"):
            line += [with_interval(r[metric], r[f"{metric}_lo"], r[f"{metric}_hi"])]
            line += [text("reference") if r["margin"] == reference else p_cell(r.get(f"{metric}_p"))]
            if paper:
                line.append(beside(r[metric], r.get(f"paper_{metric}")))
        cells.append(line)
    least = min((v for r in rows if (v := as_float(r.get("auroc_smallest_p"))) is not None), default=None)
    note = f"{rows[0]['scenarios']} scenarios, {rows[0]['seeds']} seeds. p: exact Wilcoxon signed-rank over scenarios."
    if least is not None:
        note += (
            f" With {rows[0]['scenarios']} scenarios its smallest possible p is {number(least)}: no difference could be significant."
            if least > 0.05
            else ""
        )
    return Section(
        id="margins",
        title="How much around the lesion",
        short="Margin of the crop",
        lead="The crop grown by each margin on every side, on the same transfers and seeds (US-22).",
        blocks=[
            *pair(specs, "margins"),
            Table(
                name="margins", caption="Margins of the lesion crop", columns=columns, rows=cells, note=note
            ),
        ],
    )


def multi_source(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("multi_source"))
    chosen = _chosen(summary)
    if not rows:
        return None
    targets = [d for d in summary.design.datasets if any(r["target"] == d for r in rows)]
    single = ("single_mean", "single_best")
    alone = any(as_float(r[name]) is not None for r in rows for name in single)
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
        means = [_mean(part, name) if whole else None for name in ("auroc", *(single if alone else ()))]
        cells.append([*line, *[num(v) for v in means]])
    return Section(
        id="sources",
        title="All others train",
        short="Several sources",
        lead="One dataset is the target, all the others train (US-31).",
        blocks=[
            *chosen,
            Table(
                name="multi-source",
                caption="AUROC where all other datasets train, target by target",
                columns=[
                    "Configuration",
                    *targets,
                    "Mean",
                    *(("Single source, mean", "Single source, best") if alone else ()),
                ],
                rows=cells,
                note="Mean over seeds of one network each. "
                + (
                    "In brackets: the gain over the mean of single sources at that target. The best single source was picked with "
                    "the target's labels, so it is a bar to hold against, not a choice one could have made. "
                    if alone
                    else ""
                )
                + "A mean stands where every target has a value. Intervals over patients are in tables/multi_source.csv.",
            ),
        ],
    )


def _mean(part: dict[str, Any], name: str) -> float | None:
    known = [v for r in part.values() if (v := as_float(r[name])) is not None]
    return sum(known) / len(known) if known else None


CHOSEN_COLUMNS = [
    "Target",
    "AUROC on the sources",
    "Seeds",
    "AUROC at the target",
    "Seeds",
    "Mean of the seeds",
]


def _chosen(summary: StudySummary) -> list[Any]:
    rows = rows_of(summary.tables.get("selection"))
    attempts = rows_of(summary.tables.get("selection_attempts"))
    if not rows:
        return []
    most = _Most(
        nested=max(int(r["nested_seeds"]) for r in attempts), target=max(int(r["seeds"]) for r in attempts)
    )
    plain = rows_of(summary.tables.get("selection_without_outline"))
    tried = len(dict.fromkeys((r["model"], r["input"]) for r in attempts))
    lines = []
    for r in attempts[:MOST_ATTEMPTS]:
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
    cut = (
        f" {MOST_ATTEMPTS} of {count(len(attempts))} rows; all are in tables/selection_attempts.csv."
        if len(attempts) > MOST_ATTEMPTS
        else ""
    )
    return [
        Table(
            name="chosen",
            caption="What was chosen on the sources alone, and what it gave at the hospital left out",
            columns=CHOSEN_COLUMNS,
            rows=_chosen_cells(rows, most),
            note=f"{tried} configurations were tried; the target's labels chose none of them (ST-12). Brackets: 95 % interval over "
            f"the target's patients, and over targets in the last row.{most.fewer(attempts)}",
        ),
        *(
            [
                Table(
                    name="chosen-without-outline",
                    caption="The same choice among configurations that do not see the annotated outline",
                    columns=CHOSEN_COLUMNS,
                    rows=_chosen_cells(plain, most),
                    note="An outline is drawn by a person, and its shape can give the label away without the picture: what a "
                    "network reaches without it is the fairer number where nobody draws outlines.",
                )
            ]
            if plain
            else []
        ),
        Table(
            name="attempts",
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
            note="The best at the target was not known beforehand, and may not be claimed. Without a number there: it was not "
            f"chosen, and not trained for that target.{cut}",
        ),
    ]


def _chosen_cells(rows: Rows, most: _Most) -> list[list[Any]]:
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
        names = [
            configuration(str(r["model"]), str(r["input"]))
            for r in attempts
            if int(r["nested_seeds"]) < self.nested or 0 < int(r["seeds"]) < self.target
        ]
        if not names:
            return ""
        shown = "; ".join(dict.fromkeys(names))
        return f" Fewer seeds than the others, so weaker as an ensemble or judged less surely: {shown}."
