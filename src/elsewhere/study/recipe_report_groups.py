"""The sections of a recipe study's report about places and groups: home and elsewhere, centres, fairness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.privacy import suppress
from elsewhere.report.page.blocks import Cell, Fold, Note, Section, Table, cnt, num, pct, text
from elsewhere.report.page.numbers import ABSENT, MINUS, as_float, count, interval, number, p_value
from elsewhere.study.analysis_design import KIND_WORDS
from elsewhere.study.recipe_analysis_boards import MAIN
from elsewhere.study.recipe_analysis_groups import CENTRES, OVERALL, SIZE
from elsewhere.study.recipe_analysis_home import could_be_seen
from elsewhere.study.recipe_figures import METRIC_WORDS, VARIABLE_WORDS, group_words
from elsewhere.study.recipe_report_board import SHORT_WORDS, TASK_WORDS, Specs, about
from elsewhere.study.report_sections import pair, rows_of, with_interval

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary

MOST_ROWS = 40
NO_BREAK = "\N{NO-BREAK SPACE}"


def elsewhere(summary: RecipeSummary, specs: Specs, task: str) -> Section | None:
    told = about(summary, task)
    home = rows_of(summary.of("home_and_elsewhere", task=task))
    drop = rows_of(summary.of("drop", task=task))
    blocks: list[Any] = []
    word = any(r.get("word") for r in home)
    shown = {summary.headline["tasks"][task]["best"], told["baseline"]}
    if drop:
        blocks.append(_drops(task, drop, word=word))
    blocks += pair(specs, f"{task}-drop", f"{task}-centres")
    if home:
        blocks.append(_home(task, [r for r in home if r["recipe"] in shown], word=word))
    if home and not drop:
        blocks.append(
            Note(
                text="The study has no scenario at home, so that nothing can be said of a drop; the values elsewhere stand alone."
            )
        )
    blocks += _centres(summary, task, told)
    if not blocks:
        return None
    return Section(
        id=f"{task}-elsewhere",
        title=f"{TASK_WORDS[task]}: at home and elsewhere",
        short=f"{SHORT_WORDS[task]}: elsewhere",
        lead=f"{METRIC_WORDS[MAIN[task]]} where the recipe was not trained, against where it was; and each centre against the others.",
        blocks=blocks,
    )


def _drops(task: str, rows: list[dict[str, Any]], *, word: bool) -> Table:
    cells = [
        [
            text(r["recipe"], sub=KIND_WORDS.get(str(r["kind"]), str(r["kind"]))),
            num(r["home"]),
            num(r["elsewhere"]),
            with_interval(r["difference"], r["lo"], r["hi"], sign=True),
            cnt(r["datasets"]),
            *([Cell(text=str(r["word"]), kind="word")] if word else []),
        ]
        for r in rows
    ]
    few = sorted({str(r["reason"]) for r in rows if r["reason"]})
    return Table(
        name=f"{task}-drops",
        caption=f"{METRIC_WORDS[MAIN[task]]}: the mean change over datasets",
        columns=[
            "Recipe",
            "At home",
            "Elsewhere",
            f"Elsewhere {MINUS} home",
            "Datasets",
            *(["Word"] if word else []),
        ],
        rows=cells,
        note="Brackets: 95 % t interval over datasets, each one observation."
        + (f" No word: {few[0]}." if few and word else ""),
    )


def _word(value: Any) -> str:
    """A cell of a table that may be empty: NaN is no word."""
    return value if isinstance(value, str) else ""


def _without(row: Mapping[str, Any]) -> str:
    """What the word is without the cases that have no usable score, where there are such cases."""
    lost = as_float(row.get("without_score"))
    if not lost:
        return ""
    shown_count = suppress(int(lost))
    return f"{_word(row.get('word_answered')) or 'no word'} without {shown_count} cases that have no usable score"


def _home(task: str, rows: list[dict[str, Any]], *, word: bool) -> Any:
    cells = [
        [
            text(r["recipe"]),
            text(
                f"{r['source'] if r['kind'] == 'external' else 'rest'} → {r['target']}".replace(
                    " ", NO_BREAK
                ),
                sub=_word(r.get("compared")),
            ),
            num(r.get("home")),
            with_interval(r["elsewhere"], r["elsewhere_lo"], r["elsewhere_hi"]),
            with_interval(r.get("difference"), r.get("lo90"), r.get("hi90"), sign=True)
            if as_float(r.get("difference")) is not None
            else text(ABSENT, sub=_word(r.get("reason")), kind="undefined"),
            _seen(r.get("smallest_drop"), r.get("home"), MAIN[task]),
            *([Cell(text=str(r["word"]), kind="word", sub=_without(r))] if word else []),
        ]
        for r in rows
    ]
    columns = ["Recipe", "Trained → tested", "At home", "Elsewhere", "Difference", "Could have seen"]
    table = Table(
        name=f"{task}-home",
        caption=f"{METRIC_WORDS[MAIN[task]]}, transfer by transfer",
        columns=[*columns, *(["Word"] if word else [])],
        rows=cells,
        stacked=True,
        note="Elsewhere: 95 % interval. Difference: 90 % interval, which a margin is held against (ST-05). Other patients: against the same "
        "recipe at home in its source. Same patients: against the recipe trained at the target, on the patients that both were tested on. "
        "Could have seen: the smallest drop found with 80 % power at 5 %. Every recipe is in tables/home_and_elsewhere.csv.",
    )
    return Fold(summary=f"{len(cells)} transfers", blocks=[table], closed=True) if len(cells) > 12 else table


def _centres(summary: RecipeSummary, task: str, told: Mapping[str, Any]) -> list[Any]:
    best = summary.headline["tasks"][task]["best"]
    every = rows_of(summary.of("centres", task=task, board=told["board"], recipe=best))
    datasets = {r["centre"] for r in every if r["by"] == "dataset"}
    rows = [r for r in every if as_float(r.get("difference")) is not None]
    rows = [r for r in rows if r["by"] == "dataset" or r["centre"] not in datasets]
    if not rows:
        return []
    lost = sum(as_float(r.get("difference")) is None for r in every)
    word = any(r.get("word") for r in rows)
    cells = [
        [
            text(r["centre"], sub=str(r["by"])),
            cnt(r["patients"]),
            num(r.get("value")),
            num(r.get("others")),
            with_interval(r["difference"], r["lo90"], r["hi90"], sign=True),
            _seen(r.get("smallest_drop"), r.get("others"), MAIN[task]),
            *([Cell(text=str(r["word"]), kind="word", sub=_without(r))] if word else []),
        ]
        for r in rows[:MOST_ROWS]
    ]
    columns = ["Centre", "Patients", METRIC_WORDS[MAIN[task]], "All others", "Difference", "Could have seen"]
    left = len(rows) - MOST_ROWS
    more = f" {left} more centres are in tables/centres.csv." if left > 0 else ""
    more += f" {count(lost)} sites are too small, or lack a class, and are not compared." if lost else ""
    out: list[Any] = [
        Table(
            name=f"{task}-centres",
            caption=f"Where does it drop? {best}, each centre against the others",
            columns=[*columns, *(["Word"] if word else [])],
            rows=cells,
            note=f"Brackets: 90 % interval of the difference.{more} Every recipe is in tables/centres.csv.",
        )
    ]
    mix = rows_of(summary.of("size_mix", task=task))
    if mix:
        edges = f"{number(mix[0]['edge_low_ml'], 2)} and {number(mix[0]['edge_high_ml'], 2)} ml"
        out.append(
            Table(
                name=f"{task}-size-mix",
                caption="Tumour sizes of each dataset",
                columns=["Dataset", "Cases", "Small", "Moderate", "Large", "Share small"],
                rows=[
                    [
                        text(r["dataset"]),
                        cnt(r["cases"]),
                        *(cnt(r[k]) for k in ("small", "moderate", "large")),
                        text(ABSENT) if isinstance(r["small"], str) else pct(r["small_share"]),
                    ]
                    for r in mix
                ],
                note=f"Cut at the 20th and 80th percentile of this board's volumes, {edges}. A dataset with more small tumours has a lower Dice "
                "without any drop of the model (MRI-11).",
            )
        )
    return out


def _seen(drop: Any, level: Any, metric: str) -> Cell:
    """A drop that the metric cannot have from where it is is none that could be seen."""
    found = as_float(drop)
    if found is None or could_be_seen(found, as_float(level), metric):
        return num(drop)
    return text("none", kind="number", title=str(drop))


def groups(summary: RecipeSummary, specs: Specs, task: str) -> Section | None:
    told = about(summary, task)
    best = summary.headline["tasks"][task]["best"]
    blocks: list[Any] = _known(summary, task, told)
    fairness = rows_of(summary.of("fairness", task=task, board=told["board"]))
    if fairness:
        blocks.append(_gaps(task, fairness))
        blocks.append(_variants(task, fairness))
    blocks += pair(specs, f"{task}-groups")
    rows = rows_of(summary.of("groups", task=task, board=told["board"], recipe=best))
    rows = [r for r in rows if r["variable"] not in (*CENTRES, SIZE)]
    if rows:
        blocks.append(_group_table(task, rows, best))
    if not blocks:
        return None
    return Section(
        id=f"{task}-groups",
        title=f"{TASK_WORDS[task]}: is it fair?",
        short=f"{SHORT_WORDS[task]}: groups",
        lead="A gap between groups beside what chance alone gives, since a range is never 0 (ST-08). Subtype is reported, never scored (MRI-06).",
        blocks=blocks,
    )


def _known(summary: RecipeSummary, task: str, told: Mapping[str, Any]) -> list[Any]:
    """What fairness can say at all: nothing is dropped silently."""
    out = []
    for r in rows_of(summary.of("known", task=task, board=told["board"])):
        if r["scored"] and r["reason"]:
            name = VARIABLE_WORDS.get(str(r["variable"]), str(r["variable"]))
            out.append(Note(text=f"{name}: {_counted(str(r['reason']))}.", tone="warn"))
    return out


def _counted(reason: str) -> str:
    return reason[0].lower() + reason[1:]


def _gaps(task: str, rows: list[dict[str, Any]]) -> Table:
    """A row a recipe, a column a variable: the gap, and under it what chance gives."""
    what = "TPR range + FPR range" if task == "response" else "mean range of Dice and NormHD"
    variables = list(dict.fromkeys(str(r["variable"]) for r in rows))
    held = {(r["recipe"], str(r["variable"])): r for r in rows}
    cells = []
    for recipe in dict.fromkeys(r["recipe"] for r in rows):
        cells.append([text(recipe), *(_gap(held.get((recipe, v))) for v in variables)])
    columns = ["Recipe"]
    for v in variables:
        some = next(r for r in rows if r["variable"] == v)
        name = "All scored" if v == OVERALL else VARIABLE_WORDS.get(v, v)
        few = "" if v == OVERALL else f" (smallest group {count(some['smallest_group'])})"
        columns.append(name + few + ("" if some["scored"] else ", reported only"))
    reasons = sorted({str(r["reason"]) for r in rows if isinstance(r.get("reason"), str) and r["reason"]})
    return Table(
        name=f"{task}-gaps",
        caption=f"Gap between groups: {what}",
        columns=columns,
        rows=cells,
        note="In brackets: an interval from all pairwise differences together, which starts at 0 for a fair model; a group too small to have one is in the gap and not in the interval. With several seeds a group's value is their mean, and the gap a "
        "range of those; the board's fairness is the mean of each seed's. Chance: 95 % of the gaps lie "
        "below it when whole attribute vectors are permuted over patients; p after Holm over the scored variables. 'Unequal' where that p is "
        "at most 0.05. Its absence is no proof of fairness: the smallest group says how little could be seen."
        + (f" {'; '.join(reasons)}." if reasons else ""),
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
    left = f"interval without {group_words(without)}" if isinstance(without, str) and without else ""
    parts = [interval(ends), left, f"chance {number(r['null_upper'])}", f"p {p_value(p)}"]
    mark = "unequal " if r.get("flagged") is True else ""
    return Cell(text=f"{mark}{number(r['gap'])}", sub="\n".join(x for x in parts if x), kind="number")


def _variants(task: str, rows: list[dict[str, Any]]) -> Fold:
    cells = [
        [
            text(r["recipe"]),
            text(VARIABLE_WORDS.get(str(r["variable"]), str(r["variable"]))),
            num(r["range_based"]),
            num(r["worst_group_score"], sub=group_words(r["worst_group"] or "")),
            num(r["best_group_score"], sub=group_words(r["best_group"] or "")),
            num(r["variance_based"]),
            num(r["weighted_variance_based"]),
        ]
        for r in rows
        if r["variable"] != OVERALL
    ]
    return Fold(
        summary="Other ways to count fairness",
        closed=True,
        blocks=[
            Table(
                name=f"{task}-variants",
                caption="Beside the range: worst group, best group, spread",
                columns=[
                    "Recipe",
                    "Variable",
                    "1 − range",
                    "Worst group",
                    "Best group",
                    "1 − 2 sd",
                    "Weighted by size",
                ],
                rows=cells,
                note="Of the groups' performance (Dice and 1 − NormHD) or balanced accuracy. A range can be narrowed by making the best group "
                "worse; the worst group's own score cannot (MRI-12).",
            )
        ],
    )


def _group_table(task: str, rows: list[dict[str, Any]], best: str) -> Fold:
    metrics = [
        m
        for m in ("dice", "norm_hd", "balanced_accuracy", "auroc", "sensitivity", "specificity")
        if m in rows[0]
    ]
    metrics = [m for m in metrics if any(as_float(r.get(m)) is not None for r in rows)]
    positives = (
        any("positives" in r and r["positives"] == r["positives"] for r in rows) and task == "response"
    )
    cells = [
        [
            text(f"{VARIABLE_WORDS.get(str(r['variable']), str(r['variable']))}: {group_words(r['group'])}"),
            cnt(r["patients"]),
            *([cnt(r["positives"])] if positives else []),
            *(
                with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi"))
                if as_float(r.get(m)) is not None
                else text("not shown" if r["withheld"] else ABSENT, kind="muted")
                for m in metrics
            ),
        ]
        for r in rows
        if str(r["cases"]) != "0"
    ]
    columns = ["Group", "Patients", *(["pCR"] if positives else []), *(METRIC_WORDS[m] for m in metrics)]
    return Fold(
        summary=f"Every group of {best}",
        closed=True,
        blocks=[
            Table(
                name=f"{task}-group-table",
                caption=f"{best}, group by group",
                columns=columns,
                rows=cells,
                stacked=True,
                note="Groups of one to four patients are withheld. 'Missing': no value, or left out by the protocol; never in a range. Every "
                "recipe is in tables/groups.csv.",
            )
        ],
    )
