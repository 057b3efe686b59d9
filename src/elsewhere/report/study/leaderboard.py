"""Sections that rank the methods of a task: leaderboard, tests, the fairness weight and the gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from elsewhere.analysis.study.boards import BOARD_LABELS
from elsewhere.protocols import protocols
from elsewhere.report.leaderboard import plots as leaderboard_plots
from elsewhere.report.page.blocks import BLANK, Cell, Fold, Note, Section, Table, cnt, num, p_cell, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.page.slider import WeightedModel, WeightSlider
from elsewhere.report.study import plots
from elsewhere.report.study.cells import (
    Rows,
    any_known,
    metric_in_sentence,
    metric_label,
    sentence,
    with_interval,
)
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section
from elsewhere.scoring.task import tasks

MOST_BOARDS = 16
QUADRANTS = {"both": "both better", "performance": "performance only", "fairness": "fairness only"}


def _shown(page: StudyPage, rows: Rows) -> list[str]:
    """The metrics of the leaderboard that some method has."""
    names = [m for m in reported_metrics(page) if any_known(rows, m)]
    return names or [page.metric]


def reported_metrics(page: StudyPage) -> tuple[str, ...]:
    """List the metrics that a leaderboard of the page's task shows.

    Args:
        page: The page of one task.

    Returns:
        Their names in the order of the columns.
    """
    return tasks.get(page.task).reported(protocols.get(page.board["protocol"])).shown


@figure("ranks", tables=("leaderboard",))
def ranks(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the rank and rank interval of every method of the leading board.

    Args:
        page: The page of one task.

    Yields:
        One figure, where two methods or more are ranked.
    """
    rows = [r | {"model": page.method(r["method"])} for r in page.on_board("leaderboard", status="ranked")]
    if len(rows) < 2:
        return
    words = "; ".join(
        f"{r['model']}: rank {r['rank']:g} ({r['rank_lo']:g} to {r['rank_hi']:g})" for r in rows
    )
    yield FigureSpec(
        name="ranks",
        title="Rank and rank interval; a dashed line separates the tiers",
        alt=f"Ranks. {words}.",
        build=lambda pal: leaderboard_plots.rank_intervals(rows, pal),
    )


@section("leaderboard", place="ranking", tables=("leaderboard",))
def leaderboard(page: StudyPage) -> Section | None:
    """Rank the methods of the leading board, with costs, seeds and the other boards below.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.on_board("leaderboard")
    ranked = [r for r in rows if r["status"] == "ranked"]
    blocks: list[Any] = [
        _board(page, ranked),
        *(Note(text=n) for n in _notes(page, ranked)),
        *page.pair("ranks"),
    ]
    lost = [r for r in rows if r["status"] != "ranked"]
    if lost:
        blocks.append(
            Table(
                name=page.name("not-ranked"),
                caption="Methods that are not ranked",
                columns=["Method", "Why"],
                rows=[
                    [text(page.method(r["method"])), text(page.redact.text(str(r["reason"])))] for r in lost
                ],
            )
        )
    blocks += [*_own_point(page, ranked), *_costs(page, ranked), *_other_boards(page), *_seeds(page)]
    about = page.board
    return page.section(
        "board",
        "Leaderboard",
        blocks,
        lead=f"{sentence(about['label'])} {count(about['cases'])} cases of {count(about['patients'])} patients, protocol "
        f"{about['protocol']} {about['protocol_version']}.",
    )


def _board(page: StudyPage, rows: Rows) -> Table:
    shown = _shown(page, rows)
    missing = [m for m in reported_metrics(page) if m not in shown]
    cells = [
        [
            text(page.method(r["method"]), sub="baseline" if r["baseline"] else ""),
            Cell(text=count(int(r["rank"])), sub=_span(r), kind="number"),
            *(with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi")) for m in shown),
        ]
        for r in rows
    ]
    resamples, seed = page.summary.provenance["resamples"], page.summary.provenance["seed"]
    kind = "by percentiles" if page.board["interval"] == "percentile" else "of the kind that fits each metric"
    note = (
        f"Brackets: 95 % intervals over patients, {kind} ({count(resamples)} resamples, seed {seed}; all methods share the "
        "same resamples). The rank has its interval from simultaneous intervals of all pairwise differences; methods of one "
        "tier are not clearly different."
    )
    if missing:
        reasons = sorted(
            {str(r[f"{m}_reason"]) for m in missing for r in rows if _is_text(r.get(f"{m}_reason"))}
        )
        why = f" ({'; '.join(reasons)})" if reasons else ""
        note += f" Not estimable: {', '.join(metric_in_sentence(m) for m in missing)}{why}."
    return Table(
        name=page.name("board"),
        caption=f"Methods ranked by {metric_in_sentence(page.board['ranked_by'])}",
        columns=["Method", "Rank", *(metric_label(m) for m in shown)],
        rows=cells,
        note=note,
        stacked=True,
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _span(r: Mapping[str, Any]) -> str:
    if as_float(r.get("rank_lo")) is None:
        return ""
    lo, hi = int(r["rank_lo"]), int(r["rank_hi"])
    span = f"({lo})" if lo == hi else f"({lo}–{hi})"
    return f"{span}\ntier {int(r['tier'])}" if as_float(r.get("tier")) else span


def _notes(page: StudyPage, rows: Rows) -> list[str]:
    about, found = page.board, []
    if about["ranked_by"] != "combined" and any("combined" in r for r in rows):
        found.append(
            "Fairness cannot be estimated for these cases, so the methods are ranked by performance alone, without the "
            "combined score."
        )
    if about["scenarios"] > 1:
        found.append(
            f"The cases of {about['scenarios']} scenarios are pooled: each was predicted once, by a model that had not seen "
            "it."
            + (
                " An AUROC over pooled cases also depends on how the probabilities of different trainings compare."
                if "auroc" in reported_metrics(page)
                else ""
            )
        )
    if not about["baseline"]:
        found.append("The study names no baseline, so there is no test against it and no gate.")
    return found


def _own_point(page: StudyPage, rows: Rows) -> list[Any]:
    """Compare two intervals of a range: a percentile interval may not contain its own point (MRI-12)."""
    if not any_known(rows, "fairness_t_lo"):
        return []
    metrics = ("fairness", "combined")
    outside = sum(r.get(f"{m}_excludes_itself") is True for r in rows for m in metrics)
    cells = [
        [
            text(page.method(r["method"])),
            *(
                cell
                for m in metrics
                for cell in (
                    with_interval(r.get(m), r.get(f"{m}_lo"), r.get(f"{m}_hi")),
                    with_interval(r.get(m), r.get(f"{m}_t_lo"), r.get(f"{m}_t_hi")),
                )
            ),
        ]
        for r in rows
    ]
    table = Table(
        name=page.name("own-point"),
        caption="The protocol's percentile interval, and a t interval with the bootstrap's standard error",
        columns=["Method", "Fairness, percentile", "Fairness, t", "Combined, percentile", "Combined, t"],
        rows=cells,
        note=f"{outside} of {2 * len(rows)} percentile intervals do not contain their own point: resampling widens a range "
        "between groups that is too wide already. Neither interval has 95 % coverage for a range.",
    )
    return [Fold(summary="Intervals of fairness and combined that contain their own point", blocks=[table])]


def _costs(page: StudyPage, rows: Rows) -> list[Any]:
    if not any_known(rows, "seconds"):
        return []
    cells = [
        [
            text(page.method(r["method"])),
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
            name=page.name("cost"),
            caption="Cost per case",
            columns=[
                "Method",
                "Median, s",
                "Slowest, s",
                "Over 5 min",
                "Peak memory, MB",
                "Energy, J",
                "Cases",
            ],
            rows=cells,
            note="One case at a time. Reading of files is not counted for radiomics and segmentation-xgboost; networks "
            "include it. Memory: on a GPU the peak, on a CPU what a case adds to the process. A dash: the device does not "
            "report it.",
        )
    ]


def _other_boards(page: StudyPage) -> list[Any]:
    """Show every other board in short: one row per board, one column per method."""
    boards = [b for b in page.summary.headline["boards"] if b["task"] == page.task and not b["leading"]]
    if not boards:
        return []
    held = {(r["board"], r["method"]): r for r in page.rows("leaderboard", status="ranked")}
    methods = list(dict.fromkeys(method for _, method in held))
    found: list[Any] = []
    for metric in dict.fromkeys((page.board["ranked_by"], page.metric)):
        cells = []
        for about in boards[:MOST_BOARDS]:
            name = BOARD_LABELS.get(about["board"], about["board"].replace(">", " → "))
            line = [text(name, sub=f"{count(about['patients'])} patients")]
            for method in methods:
                r = held.get((about["board"], method), {})
                line.append(with_interval(r.get(metric), r.get(f"{metric}_lo"), r.get(f"{metric}_hi")))
            cells.append(line)
        found.append(
            Table(
                name=page.name(f"others-{metric}"),
                caption=f"{metric_label(metric)} on every other leaderboard",
                columns=["Leaderboard", *map(page.method, methods)],
                rows=cells,
                stacked=True,
            )
        )
    left = len(boards) - MOST_BOARDS
    more = f", of which the first {MOST_BOARDS} are shown" if left > 0 else ""
    note = Note(text="Ranks, tiers and every metric of these leaderboards are in tables/leaderboard.csv.")
    plural = "s" if len(boards) > 1 else ""
    return [
        Fold(summary=f"{len(boards)} other leaderboard{plural}{more}", blocks=[*found, note], closed=True)
    ]


def _seeds(page: StudyPage) -> list[Any]:
    rows = page.on_board("seeds")
    if not rows:
        return []
    metrics = [m for m in reported_metrics(page) if any_known(rows, m)]
    table = Table(
        name=page.name("seeds"),
        caption="The result of each seed; the leaderboard shows their mean",
        columns=["Method", "Seed", *(metric_label(m) for m in metrics)],
        rows=[
            [text(page.method(r["method"]), sub=str(r["source"]) if _is_text(r.get("source")) else ""), cnt(int(r["seed"])),
             *(num(r.get(m)) for m in metrics)]
            for r in rows
        ],
    )  # fmt: skip
    return [Fold(summary="Seed by seed", blocks=[table], closed=len(rows) > 12)]


@section("tests", place="ranking", tables=("against_baseline", "chance"))
def tests(page: StudyPage) -> Section | None:
    """Compare each method with the baseline and with random classifiers.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    paired, chance = page.on_board("against_baseline"), page.on_board("chance")
    blocks: list[Any] = []
    if paired:
        blocks.append(_paired(page, paired))
    if chance:
        blocks.append(_chance(page, chance))
    return page.section(
        "tests",
        "Comparison with the baseline",
        blocks,
        short="Tests",
        lead="Paired on the same patients; p values also after Holm's correction over the methods.",
    )


def _paired(page: StudyPage, rows: Rows) -> Table:
    metrics = list(dict.fromkeys(r["metric"] for r in rows))
    held = {(r["method"], r["metric"]): r for r in rows}
    columns = ["Method"]
    for m in metrics:
        columns += [f"{metric_label(m)}, difference", "p", "p, Holm"]
    cells = []
    for method in dict.fromkeys(r["method"] for r in rows):
        line = [text(page.method(method))]
        for m in metrics:
            r = held.get((method, m))
            if r is None:
                line += [BLANK] * 3
                continue
            line += [
                with_interval(r["difference"], r["lo"], r["hi"], sign=True),
                p_cell(r["p"]),
                p_cell(r["p_holm"]),
            ]
        cells.append(line)
    used = sorted({_test_label(str(r["test"])) for r in rows if _is_text(r.get("test"))})
    note = f"p: {'; '.join(used)}. Brackets: 95 % interval of the difference."
    if "norm_hd" in metrics:
        note += " A lower NormHD is better."
    return Table(
        name=page.name("paired"),
        caption=f"Each method minus the baseline, {page.method(page.board['baseline'])}",
        columns=columns,
        rows=cells,
        note=note,
    )


def _test_label(test: str) -> str:
    return {"t-paired-patients": "paired t-test over patients"}.get(test, test)


def _chance(page: StudyPage, rows: Rows) -> Table:
    many = any(not r["in_board"] for r in rows)
    cells = [
        [
            text(page.method(r["method"]), sub=str(r["of"]) if many else ""),
            num(r["balanced_accuracy"]),
            num(r["chance_mean"]),
            num(r["chance_upper"]),
            p_cell(r["p"]),
            p_cell(r["p_holm"]),
        ]
        for r in rows
    ]
    note = (
        "A random classifier tosses a fair coin for each patient. p = (number at least as good + 1) / (number of "
        "classifiers + 1), one-sided."
    )
    if many:
        note += (
            " With several seeds the p value of a method is that of one model that predicts the mean of the seeds' "
            "probabilities. Its balanced accuracy is shown here; the leaderboard shows the mean over the seeds."
        )
    return Table(
        name=page.name("chance"),
        caption=f"Balanced accuracy compared with {count(rows[0]['classifiers'])} random classifiers",
        columns=["Method", "Balanced accuracy", "Chance, mean", "Chance, 95th percentile", "p", "p, Holm"],
        rows=cells,
        note=note,
    )


@figure("weights", tables=("weights",))
def weight_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the rank of every method at every fairness weight.

    Args:
        page: The page of one task.

    Yields:
        One figure.
    """
    table = page.of("weights", board=page.board["board"])
    weights = sorted(table["weight"].unique())
    held = {
        page.method(name): part.sort_values("weight")["rank"].tolist()
        for name, part in table.groupby("method", sort=False)
    }
    yield FigureSpec(
        name="weights",
        title="Rank at every fairness weight",
        alt="; ".join(f"{n}: from rank {r[0]} at 0 to {r[-1]} at 1" for n, r in held.items()),
        build=lambda pal: leaderboard_plots.weight_stability(weights, held, pal),
    )


@figure("tradeoff", tables=("gate",))
def tradeoff(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw fairness against performance, with the quadrant in which both are better than the baseline's.

    Args:
        page: The page of one task.

    Yields:
        One figure.
    """
    rows = [r | {"name": page.method(r["method"])} for r in page.on_board("gate")]
    words = "; ".join(
        f"{r['name']}: performance {number(r['performance'])}, fairness {number(r['fairness'])}" for r in rows
    )
    yield FigureSpec(
        name="tradeoff",
        title="Fairness against performance; shaded: both better than the baseline",
        alt=f"Fairness against performance. {words}.",
        build=partial(plots.tradeoff, rows),
    )


@section("fairness weight", place="groups", tables=("weights", "weight_stability"))
def weighting(page: StudyPage) -> Section | None:
    """Show the ranking at every fairness weight, and the gate of the baseline.

    Args:
        page: The page of one task.

    Returns:
        The section; None where the study has no combined score or nothing to show.
    """
    about = (page.on_board("weight_stability") or [{}])[0]
    table = page.of("weights", board=page.board["board"])
    blocks: list[Any] = []
    if table.empty:
        if not about.get("reason") or "combined" not in reported_metrics(page):
            return None
        blocks.append(Note(text=f"The fairness weight cannot be changed: {about['reason']}.", tone="warn"))
    else:
        blocks.append(slider(page, table, reference=float(about["reference"])))
        blocks.append(
            Note(
                text=f"The order stays the same for weights between {number(about['stable_lo'], 2)} and "
                f"{number(about['stable_hi'], 2)}; from 0 to 1, {int(about['crossings'])} pairs of methods change places."
            )
        )
        if about.get("left_out"):
            blocks.append(
                Note(text=f"Left out, without a value of fairness or performance: {about['left_out']}.")
            )
    blocks += page.pair("weights", "tradeoff")
    gate = page.on_board("gate")
    if gate:
        blocks.append(_gate(page, gate))
    return page.section(
        "weights",
        "Ranking by fairness weight",
        blocks,
        short="Fairness weight",
        lead="Score = (1 − w) × performance + w × fairness. Move the weight to see which methods change places.",
    )


def slider(page: StudyPage, table: pd.DataFrame, *, reference: float) -> WeightSlider:
    """Make the block that reorders the methods by a weight.

    Args:
        page: The page of one task.
        table: The table `weights` of the leading board.
        reference: The protocol's weight, at which the page opens, in [0, 1].

    Returns:
        The block.
    """
    models = []
    for method, part in table.groupby("method", sort=False):
        part = part.sort_values("weight")
        models.append(
            WeightedModel(
                name=page.method(method),
                note="baseline" if method == page.board["baseline"] else "",
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
        name=page.task,
        caption="The ranking at this weight",
        performance_label="Performance" if "performance" in reported_metrics(page) else "Balanced accuracy",
        models=models,
        reference=round(reference * steps),
        note="Bootstrap ranks: the range of ranks in the middle 95 % of the resamples. They show how stable a rank is and "
        "are no confidence interval.",
    )


def _gate(page: StudyPage, rows: Rows) -> Table:
    cells = [
        [
            text(page.method(r["method"])),
            num(r["performance"]),
            num(r["fairness"]),
            text(QUADRANTS.get(str(r["quadrant"]), str(r["quadrant"]))),
            Cell(text="clearly" if r["surely_passed_gate"] else "yes" if r["passed_gate"] else "no"),
            cnt(int(r["rank"])),
            num(r["gated"], sub=f"rank {int(r['gated_rank'])}"),
            num(r["adaptive"], sub=f"rank {int(r['adaptive_rank'])}"),
        ]
        for r in sorted(rows, key=lambda r: r["rank"])
    ]
    return Table(
        name=page.name("gate"),
        caption=f"Compared with the baseline, {page.method(rows[0]['baseline'])}: quadrant, gate, adaptive weight",
        columns=[
            "Method",
            "Performance",
            "Fairness",
            "Quadrant",
            "Gate",
            "Rank",
            "Gated score",
            "Adaptive score",
        ],
        rows=cells,
        note="Gate: fairness counts only for a method that performs better than the baseline; clearly: the 95 % interval of "
        f"the difference lies above 0. The adaptive weight, {number(rows[0]['adaptive_weight'])}, is smaller the nearer "
        "the best method is to chance, so that being equally wrong for everybody is not rewarded.",
    )
