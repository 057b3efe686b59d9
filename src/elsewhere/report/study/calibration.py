"""Sections on probabilities: calibration by temperature, recall, reliability (US-16, MRI-11)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from elsewhere.analysis.study.design import configuration
from elsewhere.report.page.blocks import BLANK, Note, Section, Table, cnt, num, pct, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.report.result import plots as result_plots
from elsewhere.report.study import plots
from elsewhere.report.study.cells import (
    Rows,
    any_known,
    configuration_cell,
    kind_label,
    positive_labels,
    rows_of,
    slug,
    with_interval,
)
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

MEASURES = (("ece_confidence", "ece", "ECE"), ("nll", "nll", "NLL"))
MOST_RELIABLE = 3
CURVES = {"raw": "reliability", "calibrated": "reliability_calibrated"}
"""The states of a curve by the names under which curves are drawn."""


@figure("calibration measures", tables=("summary",))
def measures(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw ECE and NLL of each configuration before and after temperature scaling.

    Args:
        page: The page of one task.

    Yields:
        One figure per measure that was computed before and after.
    """
    table = page.of("summary")
    for metric, short, name in MEASURES:
        part = table[table["metric"].isin([metric, f"{metric}_calibrated"])]
        rows = []
        for kind in page.design.kinds:
            for model, input_ in page.design.configurations:
                one = part[(part["kind"] == kind) & (part["model"] == model) & (part["input"] == input_)]
                held = one.set_index("metric")["value"].dropna()
                if len(held) == 2:
                    values = (float(held[metric]), float(held[f"{metric}_calibrated"]))
                    rows.append((kind, configuration(model, input_), *values))
        if rows:
            yield FigureSpec(
                name=f"calibration-{short}",
                title=f"{name} before and after temperature scaling",
                alt="; ".join(f"{k}, {n}: {number(a)} to {number(b)}" for k, n, a, b in rows),
                build=partial(plots.dumbbells, rows, axis=name),
            )


@figure("calibration curves", tables=("calibration_curves",))
def curves(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the observed share of the positive class by predicted probability, before and after scaling.

    Args:
        page: The page of one task.

    Yields:
        One figure per kind of scenario.
    """
    positive = positive_labels(page.task)[0]
    for kind, part in page.of("calibration_curves").groupby("kind", sort=False):
        drawn = {
            CURVES[str(state)]: {
                "x": rows["predicted"].tolist(),
                "y": rows["observed"].tolist(),
                "lo": rows["lo"].tolist(),
                "hi": rows["hi"].tolist(),
                "n": rows["cases"].tolist(),
            }
            for state, rows in part.groupby("state", sort=False)
        }
        yield FigureSpec(
            name=slug(f"reliability-{kind}"),
            title=f"Reliability, {kind_label(kind)} scenarios",
            alt=f"Share of {positive} against predicted probability, all runs pooled, before and after scaling.",
            build=partial(result_plots.reliability, drawn),
        )


@section("calibration", place="trust", tables=("calibration_eligibility",))
def calibration(page: StudyPage) -> Section | None:
    """Show calibration before and after a temperature that was fitted on the source (US-16).

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    blocks: list[Any] = [*page.pair("calibration-ece", "calibration-nll")]
    drawn = page.pair(*page.figures_like("reliability-"))
    if drawn:
        note = f"Reliability of the probability of {positive_labels(page.task)[0]}, runs pooled. Bands: Wilson intervals by patient, before calibration."
        blocks += [*drawn, Note(text=note)]
    overall = page.rows("overall")
    blocks += [_measure(page, overall, short, name) for _, short, name in MEASURES if overall]
    blocks.append(_eligible(page, page.rows("calibration_eligibility")))
    return page.section(
        "calibration",
        "Calibration of the probabilities",
        blocks,
        short="Calibration",
        lead="A temperature is fitted on the source's validation part alone, where that part is large enough.",
    )


def _measure(page: StudyPage, rows: Rows, short: str, name: str) -> Table:
    kinds = [k for k in ("internal", "external") if any(f"{k}_{short}_raw" in r for r in rows)]
    printed = [k for k in kinds if any_known(rows, f"published_{k}_{short}_raw")]
    columns = ["Configuration"]
    for kind in kinds:
        for state in ("raw", "calibrated"):
            columns += [f"{kind_label(kind).capitalize()}, {state}"] + (
                ["Published"] if kind in printed else []
            )
    cells = []
    for r in rows:
        line = [text(configuration_cell(r).text)]
        for kind in kinds:
            for state in ("raw", "cal"):
                key = f"{kind}_{short}_{state}"
                line.append(num(r.get(key)))
                if kind in printed:
                    theirs = r.get(f"published_{key}")
                    line.append(num(theirs) if as_float(theirs) is not None else BLANK)
        cells.append(line)
    note = ""
    if short == "ece":
        note = (
            "ECE over ten equal bins of the confidence in the predicted class. The ECE of the positive class's probability is "
            "in tables/summary.csv."
        )
    return Table(
        name=page.name(f"calibration-{short}"),
        caption=f"{name}, mean over scenarios",
        columns=columns,
        rows=cells,
        note=note,
    )


def _eligible(page: StudyPage, rows: Rows) -> Table:
    printed = any_known(rows, "published_eligible")
    columns = ["Runs", "Trained on", "Eligible", "Share", "At a bound", "Median temperature"]
    columns += ["Published"] if printed else []
    cells = []
    for r in rows:
        line = [
            text(kind_label(r["kind"])),
            text("all sources" if r["source"] == "all" else r["source"]),
            text(f"{count(r['eligible'])} of {count(r['runs'])}", kind="number"),
            pct(r["share"], 0),
            cnt(r["at_a_bound"]),
            num(r["median_temperature"], 2),
        ]
        if printed:
            known = as_float(r.get("published_eligible")) is not None
            shown = f"{count(r['published_eligible'])} of {count(r['published_runs'])}" if known else ""
            line.append(text(shown, kind="number") if known else BLANK)
        cells.append(line)
    note = (
        "Eligible: at least 40 validation cases with 10 of each class; otherwise the temperature is 1. Bounds: 0.5 and 5. The "
        "reason of every run is in tables/calibration_eligibility.csv."
    )
    return Table(
        name=page.name("eligibility"),
        caption="Runs whose temperature could be fitted",
        columns=columns,
        rows=cells,
        note=note,
    )


@figure("recall", tables=("recall",))
def recall_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw sensitivity and specificity of every method.

    Args:
        page: The page of one task.

    Yields:
        One figure.
    """
    positive, negative = positive_labels(page.task)
    rows = [
        (page.method(r["method"]), float(r["sensitivity"]), float(r["specificity"]))
        for r in page.rows("recall")
    ]
    yield FigureSpec(
        name="recall",
        title="Recall of each class",
        alt="; ".join(f"{n}: {positive} {number(a)}, {negative} {number(b)}" for n, a, b in rows),
        build=partial(plots.two_marks, rows, axis="Recall", labels=(positive, negative)),
    )


@figure("reliability of methods", tables=("reliability",))
def reliability_figures(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the reliability of the first methods of the leaderboard in quantile bins.

    Args:
        page: The page of one task.

    Yields:
        One figure per method, at most `MOST_RELIABLE`.
    """
    table = page.of("reliability")
    for method in list(dict.fromkeys(table["method"]))[:MOST_RELIABLE]:
        rows = rows_of(table[table["method"] == method])
        yield FigureSpec(
            name=slug(f"method-reliability-{method}"),
            title=f"Reliability of {page.method(method)}",
            alt="; ".join(
                f"predicted {number(r['predicted'])}, observed {number(r['observed'])}" for r in rows
            ),
            build=partial(plots.reliable, rows),
        )


@section("recall and reliability", place="trust", tables=("recall",))
def recall(page: StudyPage) -> Section | None:
    """Show the recall of both classes, and how reliable the probabilities of each method are (MRI-11).

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("recall")
    positive, negative = positive_labels(page.task)
    table = Table(
        name=page.name("recall"),
        caption="Recall of each class, and the gap",
        columns=["Method", f"Recall, {positive}", f"Recall, {negative}", "Gap"],
        rows=[
            [
                text(page.method(r["method"])),
                *(with_interval(r[n], r[f"{n}_lo"], r[f"{n}_hi"]) for n in ("sensitivity", "specificity")),
                with_interval(r["gap"], r["gap_lo"], r["gap_hi"], sign=True),
            ]
            for r in rows
        ],
        note=f"A negative gap: the method predicts '{negative}' too often. Brackets: percentile bootstrap over patients; with "
        "several seeds, of their mean.",
    )
    blocks: list[Any] = [*page.pair("recall"), table]
    names = page.figures_like("method-reliability-")
    if names:
        reliability = page.rows("reliability")
        seeds = max((int(r["seeds"]) for r in reliability), default=1)
        slopes = {page.method(r["method"]): r["slope"] for r in reliability}
        shown = ", ".join(f"{n} {number(v, 2)}" for n, v in slopes.items() if as_float(v) is not None)
        note = f"Quantile bins with their numbers of cases; dashed: perfect; dotted: the share of {positive}."
        if seeds > 1:
            note += f" The bins pool up to {seeds} seeds, so that a case counts once per seed."
        if shown:
            note += f" Calibration slope (1 is ideal; below 1, the probabilities are too extreme): {shown}."
        blocks += [*page.pair(*names), Note(text=note)]
    return page.section(
        "recall",
        "Recall and reliability",
        blocks,
        short="Recall and reliability",
        lead="Which class each method finds, and whether its probabilities can be believed.",
    )
