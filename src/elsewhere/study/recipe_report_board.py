"""The sections of a recipe study's report that rank: boards, tests, the fairness weight and the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.report.page.blocks import BLANK, Cell, Fold, Note, Section, Table, cnt, num, p_cell, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.page.slider import WeightedModel, WeightSlider
from elsewhere.study.recipe_analysis_boards import BOARD_WORDS, MAIN, SHOWN
from elsewhere.study.recipe_figures import METRIC_WORDS
from elsewhere.study.report_sections import pair, rows_of, with_interval

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary

Specs = Mapping[str, FigureSpec]
SHORT_WORDS = {"segmentation": "Segmentation", "response": "Response"}
TASK_WORDS = {"segmentation": "Tumour segmentation", "response": "Response to treatment (pCR)"}
MOST_BOARDS = 16
PERCENTILE = "percentile bootstrap over patients"


def about(summary: RecipeSummary, task: str) -> dict[str, Any]:
    """The leading board of a task, as the headline lists it."""
    return next(b for b in summary.headline["boards"] if b["task"] == task and b["leading"])


def board(summary: RecipeSummary, specs: Specs, task: str) -> Section:
    told = about(summary, task)
    rows = rows_of(summary.of("leaderboard", task=task, board=told["board"]))
    ranked = [r for r in rows if r["status"] == "ranked"]
    blocks: list[Any] = [_table(task, ranked, told, summary)]
    blocks += [Note(text=n) for n in _notes(ranked, told)]
    blocks += pair(specs, f"{task}-ranks")
    lost = [r for r in rows if r["status"] != "ranked"]
    if lost:
        blocks.append(
            Table(
                name=f"{task}-lost",
                caption="Not ranked",
                columns=["Recipe", "Why"],
                rows=[[text(r["recipe"]), text(r["reason"])] for r in lost],
            )
        )
    blocks += _own_point(task, ranked)
    blocks += _costs(task, ranked)
    blocks += _others(summary, task)
    seeds = rows_of(summary.of("seeds", task=task, board=told["board"]))
    if seeds:
        blocks.append(_seeds(task, seeds))
    return Section(
        id=f"{task}-board",
        title=f"{TASK_WORDS[task]}: leaderboard",
        short=f"{SHORT_WORDS[task]}: leaderboard",
        lead=f"{told['words'].capitalize()}. {count(told['cases'])} cases of {count(told['patients'])} patients, protocol "
        f"{told['protocol']} {told['protocol_version']}.",
        blocks=blocks,
    )


def _table(task: str, rows: list[dict[str, Any]], told: Mapping[str, Any], summary: RecipeSummary) -> Table:
    shown = [m for m in SHOWN[task] if any(as_float(r.get(m)) is not None for r in rows)]
    lost = [m for m in SHOWN[task] if m not in shown]
    columns = ["Recipe", "Rank", *(METRIC_WORDS[m] for m in shown)]
    cells = []
    for r in rows:
        line = [
            text(r["recipe"], sub="baseline" if r["baseline"] else ""),
            Cell(text=_rank(r), sub=_span(r), kind="number"),
        ]
        cells.append([*line, *(with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi")) for m in shown)])
    resamples = summary.provenance["resamples"]
    how = PERCENTILE if told["interval"] == "percentile" else "each metric's own kind"
    note = (
        f"Brackets: 95 % intervals, {how}, {count(resamples)} resamples, seed {summary.provenance['seed']}; all columns of all "
        "recipes share the same resamples (MRI-08). Rank: with its interval from simultaneous differences of all pairs; recipes of one "
        "tier are not surely apart (ST-09)."
    )
    reasons = sorted({str(r[f"{m}_reason"]) for m in lost for r in rows if _said(r.get(f"{m}_reason"))})
    if lost:
        note += f" Not estimable: {', '.join(METRIC_WORDS[m].lower() for m in lost)}" + (
            f" ({'; '.join(reasons)})." if reasons else "."
        )
    return Table(
        name=f"{task}-board",
        caption=f"Ranked by {METRIC_WORDS.get(told['ranked_by'], told['ranked_by']).lower()}",
        columns=columns,
        rows=cells,
        note=note,
        stacked=True,
    )


def _said(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _rank(r: Mapping[str, Any]) -> str:
    return count(int(r["rank"]))


def _span(r: Mapping[str, Any]) -> str:
    lo, hi = int(r["rank_lo"]), int(r["rank_hi"])
    span = f"({lo})" if lo == hi else f"({lo}–{hi})"
    return f"{span}\ntier {int(r['tier'])}" if r["tier"] else span


def _notes(rows: list[dict[str, Any]], told: Mapping[str, Any]) -> list[str]:
    out = []
    if told["ranked_by"] != "combined" and "combined" in {k for r in rows for k in r}:
        out.append(
            "Fairness cannot be estimated for these cases, so the board is ranked by performance alone; the combined score is not there."
        )
    if told["scenarios"] > 1:
        out.append(
            f"The cases of {told['scenarios']} scenarios are pooled: each was predicted once, by a model that had not seen it. "
            "An AUC over pooled cases also weighs how models of different trainings lie against each other."
        )
    if told["baseline"] is None:
        out.append("The study names no baseline: no test against it, no gate.")
    return out


def _own_point(task: str, rows: list[dict[str, Any]]) -> list[Any]:
    """MRI-12: the protocol's interval of a range can lie beside its own point; the t interval cannot."""
    if not any(as_float(r.get("fairness_t_lo")) is not None for r in rows):
        return []
    outside = sum(bool(r.get(f"{m}_excludes_itself") is True) for r in rows for m in ("fairness", "combined"))
    cells = [
        [
            text(r["recipe"]),
            *(
                c
                for m in ("fairness", "combined")
                for c in (
                    with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi")),
                    with_interval(r.get(m), r.get(f"{m}_t_lo"), r.get(f"{m}_t_hi")),
                )
            ),
        ]
        for r in rows
    ]
    return [
        Fold(
            summary="Intervals of fairness and combined that keep their own point",
            blocks=[
                Table(
                    name=f"{task}-own-point",
                    caption="The protocol's percentile interval, and t with the bootstrap's standard error",
                    columns=[
                        "Recipe",
                        "Fairness, percentile",
                        "Fairness, t",
                        "Combined, percentile",
                        "Combined, t",
                    ],
                    rows=cells,
                    note=f"{outside} of {2 * len(rows)} percentile intervals exclude their own point: resampling widens a range that "
                    "is too wide already. Neither interval covers as it says for a range (ST-08); read the null band.",
                )
            ],
        )
    ]


def _costs(task: str, rows: list[dict[str, Any]]) -> list[Any]:
    if not any(as_float(r.get("seconds")) is not None for r in rows):
        return []
    cells = [
        [
            text(r["recipe"]),
            num(r.get("seconds"), 2),
            num(r.get("slowest_seconds"), 2),
            cnt(r.get("over_limit")),
            num(r.get("peak_mb"), 1),
            num(r.get("energy_joule"), 1),
            cnt(r.get("cost_cases")),
        ]
        for r in rows
    ]
    return [
        Table(
            name=f"{task}-cost",
            caption="What a case costs",
            columns=[
                "Recipe",
                "Median, s",
                "Slowest, s",
                "Over 5 min",
                "Peak memory, MB",
                "Energy, J",
                "Cases",
            ],
            rows=cells,
            note="One case at a time, by the recipe's own clock: radiomics and segmentation-xgboost leave reading out, networks count it in; median over "
            "cases. Memory: of a GPU the peak in all, of a CPU what a case adds to the process. A dash: the device does not tell (MRI-12).",
        )
    ]


def _others(summary: RecipeSummary, task: str) -> list[Any]:
    """Every other board in short: a row a board, a column a recipe."""
    boards = [b for b in summary.headline["boards"] if b["task"] == task and not b["leading"]]
    if not boards:
        return []
    held = {
        (r["board"], r["recipe"]): r for r in rows_of(summary.of("leaderboard", task=task, status="ranked"))
    }
    recipes = list(dict.fromkeys(recipe for _, recipe in held))
    tables = []
    for metric in dict.fromkeys((about(summary, task)["ranked_by"], MAIN[task])):
        cells = []
        for told in boards[:MOST_BOARDS]:
            name = BOARD_WORDS.get(told["board"], told["board"].replace(">", " → "))
            line = [text(name, sub=f"{count(told['patients'])} patients")]
            for recipe in recipes:
                r = held.get((told["board"], recipe), {})
                line.append(with_interval(r.get(metric), r.get(f"{metric}_lo"), r.get(f"{metric}_hi")))
            cells.append(line)
        tables.append(
            Table(
                name=f"{task}-others-{metric}",
                caption=f"{METRIC_WORDS[metric]}, board by board",
                columns=["Board", *recipes],
                rows=cells,
                stacked=True,
            )
        )
    left = len(boards) - MOST_BOARDS
    more = f", the first {MOST_BOARDS}" if left > 0 else ""
    blocks = [
        *tables,
        Note(text="Ranks, tiers and every metric of these boards are in tables/leaderboard.csv."),
    ]
    return [
        Fold(
            summary=f"{len(boards)} other board{'s' if len(boards) > 1 else ''}{more}",
            blocks=blocks,
            closed=True,
        )
    ]


def _seeds(task: str, rows: list[dict[str, Any]]) -> Fold:
    metrics = [m for m in SHOWN[task] if any(as_float(r.get(m)) is not None for r in rows)]
    return Fold(
        summary="Seed by seed",
        blocks=[
            Table(
                name=f"{task}-seeds",
                caption="What each seed gave; the board has their mean",
                columns=["Recipe", "Seed", *(METRIC_WORDS[m] for m in metrics)],
                rows=[
                    [text(r["recipe"]), cnt(int(r["seed"])), *(num(r.get(m)) for m in metrics)] for r in rows
                ],
            )
        ],
    )


def tests(summary: RecipeSummary, specs: Specs, task: str) -> Section | None:
    told = about(summary, task)
    paired = rows_of(summary.of("against_baseline", task=task, board=told["board"]))
    chance = rows_of(summary.of("chance", task=task, board=told["board"]))
    blocks: list[Any] = []
    if paired:
        blocks.append(_paired(task, paired, str(told["baseline"])))
    if chance:
        blocks.append(_chance(task, chance))
    if not blocks:
        return None
    return Section(
        id=f"{task}-tests",
        title=f"{TASK_WORDS[task]}: better than the baseline?",
        short=f"{SHORT_WORDS[task]}: tests",
        lead="Paired on the same patients; p after Holm over the recipes (MRI-09).",
        blocks=blocks,
    )


def _paired(task: str, rows: list[dict[str, Any]], baseline: str) -> Table:
    metrics = list(dict.fromkeys(r["metric"] for r in rows))
    held = {(r["recipe"], r["metric"]): r for r in rows}
    columns = ["Recipe"]
    for m in metrics:
        columns += [f"{METRIC_WORDS[m]}, difference", "p", "p, Holm"]
    cells = []
    for recipe in dict.fromkeys(r["recipe"] for r in rows):
        line = [text(recipe)]
        for m in metrics:
            r = held.get((recipe, m))
            if r is None:
                line += [BLANK] * 3
                continue
            line += [with_interval(r["difference"], r["lo"], r["hi"], sign=True), p_cell(r["p"])]
            line.append(p_cell(r["p_holm"]))
        cells.append(line)
    how = (
        "p: paired t-test over patients."
        if task == "segmentation"
        else "p: of balanced accuracy, t of the paired bootstrap; of AUC, DeLong's paired test, and with several seeds that t."
    )
    return Table(
        name=f"{task}-paired",
        caption=f"Each recipe less the baseline, {baseline}",
        columns=columns,
        rows=cells,
        note=f"{how} Brackets: 95 % interval of the one difference."
        + (" Lower NormHD is better." if "norm_hd" in metrics else ""),
    )


MANY_SEEDS = (
    " With several seeds the board's p, and what the first page says of a coin, is of the one model that says the mean of their "
    "probabilities; its balanced accuracy is here, the board's is the mean of the seeds' own. Holm over the recipes, of that model "
    "and of each seed apart."
)


def _chance(task: str, rows: list[dict[str, Any]]) -> Table:
    many = any(not r["in_board"] for r in rows)
    cells = [
        [
            text(r["recipe"], sub=str(r["of"]) if many else ""),
            num(r["balanced_accuracy"]),
            num(r["chance_mean"]),
            num(r["chance_upper"]),
            p_cell(r["p"]),
            p_cell(r["p_holm"]),
        ]
        for r in rows
    ]
    return Table(
        name=f"{task}-chance",
        caption=f"Balanced accuracy against {count(rows[0]['classifiers'])} random classifiers",
        columns=["Recipe", "Balanced accuracy", "Chance, mean", "Chance, 95 % below", "p", "p, Holm"],
        rows=cells,
        note="A random classifier tosses a fair coin for each patient. p = (those at least as good + 1)/(all + 1), one-sided."
        + (MANY_SEEDS if many else ""),
    )


def weighting(summary: RecipeSummary, specs: Specs, task: str) -> Section | None:
    told = about(summary, task)
    head = summary.headline["tasks"][task]["weights"]
    table = summary.of("weights", task=task, board=told["board"])
    blocks: list[Any] = []
    if table.empty:
        reason = head.get("reason")
        if not reason:
            return None
        blocks.append(Note(text=f"The fairness weight cannot be moved: {reason}.", tone="warn"))
    else:
        blocks.append(slider(table, task=task, baseline=told["baseline"], reference=float(head["reference"])))
        low, high = head["stable_between"]
        blocks.append(
            Note(
                text=f"The order stands still between {number(low, 2)} and {number(high, 2)}; over all weights from 0 to 1, "
                f"{head['crossings']} pairs change places."
            )
        )
        if head.get("left_out"):
            blocks.append(
                Note(text=f"Without a fairness or performance, not weighed: {', '.join(head['left_out'])}.")
            )
    blocks += pair(specs, f"{task}-weights", f"{task}-tradeoff")
    gate = rows_of(summary.of("gate", task=task, board=told["board"]))
    if gate:
        blocks.append(_gate(task, gate))
    return Section(
        id=f"{task}-weights",
        title=f"{TASK_WORDS[task]}: how much fairness counts",
        short=f"{SHORT_WORDS[task]}: fairness weight",
        lead="Score = (1 − w) × performance + w × fairness (MRI-07). Move the weight and see who changes place (MRI-10).",
        blocks=blocks,
    )


def slider(table: pd.DataFrame, *, task: str, baseline: str | None, reference: float) -> WeightSlider:
    """The block from the table of weights, whoever made it."""
    models = []
    for recipe, part in table.groupby("recipe", sort=False):
        part = part.sort_values("weight")
        models.append(
            WeightedModel(
                name=str(recipe),
                note="baseline" if recipe == baseline else "",
                performance=float(part["performance"].iloc[0]),
                fairness=float(part["fairness"].iloc[0]),
                scores=part["score"].tolist(),
                ranks=part["rank"].tolist(),
                rank_lo=part["rank_lo"].tolist(),
                rank_hi=part["rank_hi"].tolist(),
            )
        )
    steps = len(models[0].ranks) - 1
    return WeightSlider(
        name=task,
        caption="The board at this weight",
        performance_label="Performance" if task == "segmentation" else "Balanced accuracy",
        models=models,
        reference=round(reference * steps),
        note="Bootstrap ranks: where the middle 95 % of the resamples put it. They show how firm a place is and are no interval (ST-09).",
    )


def _gate(task: str, rows: list[dict[str, Any]]) -> Table:
    words = {"both": "both better", "performance": "performance only", "fairness": "fairness only"}
    cells = [
        [
            text(r["recipe"]),
            num(r["performance"]),
            num(r["fairness"]),
            text(words.get(str(r["quadrant"]), str(r["quadrant"]))),
            Cell(text="surely" if r["surely_passed_gate"] else "yes" if r["passed_gate"] else "no"),
            cnt(int(r["rank"])),
            num(r["gated"], sub=f"rank {int(r['gated_rank'])}"),
            num(r["adaptive"], sub=f"rank {int(r['adaptive_rank'])}"),
        ]
        for r in sorted(rows, key=lambda r: r["rank"])
    ]
    return Table(
        name=f"{task}-gate",
        caption=f"Against the baseline, {rows[0]['baseline']}: quadrant, gate, adaptive weight",
        columns=[
            "Recipe",
            "Performance",
            "Fairness",
            "Quadrant",
            "Gate",
            "Rank",
            "Gated score",
            "Adaptive score",
        ],
        rows=cells,
        note="Gate: fairness counts only for a recipe that performs better than the baseline; surely: the 95 % interval of the "
        "difference, on the same resamples, lies above 0. "
        f"Adaptive weight: {number(rows[0]['adaptive_weight'])}, less the nearer the best recipe is to chance, so that being equally wrong "
        "for everybody is not rewarded (MRI-12).",
    )
