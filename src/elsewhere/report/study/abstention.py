"""Sections on uncertainty: images without a lesion, and abstention from uncertain cases (US-18, US-32)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from elsewhere.analysis.study.abstention import SCORE_LABELS
from elsewhere.analysis.study.design import configuration
from elsewhere.report.page.blocks import BLANK, Cell, Note, Section, Table, cnt, num, pct, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, number, signed
from elsewhere.report.study import plots
from elsewhere.report.study.cells import Rows, any_known, joined, kind_label, rows_of, slug
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section
from elsewhere.report.study.transfer_matrix import shown_configurations


@figure("lesion against normal", tables=("lesion_against_normal",))
def normal_figures(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw how well the uncertainty separates normal images from lesions, by configuration.

    Args:
        page: The page of one task.

    Yields:
        One figure for AUROC and one for AUPRC, where the study has such results.
    """
    table = page.of("summary")
    for metric, name in (("normal_auroc", "AUROC"), ("normal_auprc", "AUPRC")):
        part = table[(table["metric"] == metric) & table["value"].notna()] if len(table) else table
        rows = [
            (str(r["kind"]), configuration(str(r["model"]), str(r["input"])), float(r["value"]))
            for r in rows_of(part)
        ]
        if rows:
            yield FigureSpec(
                name=f"normal-{name.lower()}",
                title=f"Lesion against normal, {name}",
                alt="; ".join(f"{k}, {n}: {number(v)}" for k, n, v in rows),
                build=partial(plots.dots, rows, axis=name, chance=plots.CHANCE if name == "AUROC" else None),
            )


@section("lesion against normal", place="trust", tables=("lesion_against_normal",))
def normal(page: StudyPage) -> Section | None:
    """Show whether models are less certain of images without a lesion (US-18).

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("lesion_against_normal")
    shown = [r for r in rows if as_float(r["auroc"]) is not None]
    blocks: list[Any] = [*page.pair(*page.figures_like("normal-"))]
    if shown:
        blocks.append(_normal(page, shown))
    missing = {str(r["target"]): str(r["unavailable"]) for r in rows if r["unavailable"]}
    blocks += [Note(text=f"{target}: not available ({why}).") for target, why in missing.items()]
    mixed = sorted({str(r["target"]) for r in shown if r["shared_patients"] > 0})
    if mixed:
        blocks.append(
            Note(
                tone="warn",
                text=f"Lesion and normal images of {joined(mixed)} share patients: the two sides are not independent.",
            )
        )
    return page.section(
        "normal",
        "Uncertainty on normal images",
        blocks,
        short="Lesion against normal",
        lead="Trained on lesions alone, a model should be less certain of a normal image. The score is 1 minus the largest "
        "probability.",
    )


def _normal(page: StudyPage, rows: Rows) -> Table:
    targets = sorted({str(r["target"]) for r in rows})
    held = {(str(r["kind"]), str(r["model"]), str(r["input"]), str(r["target"])): r for r in rows}
    columns = ["Configuration"]
    for target in targets:
        columns += [f"{target}: AUROC", "AUPRC (by chance)"]
    cells = []
    for kind, model, input_ in dict.fromkeys(key[:3] for key in held):
        line = [text(configuration(model, input_), sub=kind_label(kind))]
        for target in targets:
            r = held.get((kind, model, input_, target))
            line += (
                [num(r["auroc"]), num(r["auprc"], sub=f"({number(r['share_normal'], 2)})")]
                if r
                else [BLANK, BLANK]
            )
        cells.append(line)
    return Table(
        name=page.name("normal"),
        caption="Uncertainty of normal images compared with that of lesions",
        columns=columns,
        rows=cells,
        note="By chance the AUPRC is the share of normal images. Normal images have no box: both inputs show the whole image.",
    )


@figure("risk and coverage", tables=("risk_coverage", "abstention"))
def risk_figures(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the error rate among the answered cases by coverage.

    Args:
        page: The page of one task.

    Yields:
        One figure per configuration, of the external scenarios where there are any.
    """
    table, scores = page.of("risk_coverage"), page.of("abstention")
    kind = "external" if "external" in set(table["kind"]) else str(table["kind"].iloc[0])
    for model, input_ in shown_configurations(page):
        where = {"kind": kind, "model": model, "input": input_}
        one = page.of("risk_coverage", **where)
        if one.empty:
            continue
        held = scores[(scores["kind"] == kind) & (scores["model"] == model) & (scores["input"] == input_)]
        words = "; ".join(
            f"{SCORE_LABELS[str(r['score'])]}: error {number(r['error_at_80'])} at 80 % coverage"
            for r in rows_of(held)
        )
        yield FigureSpec(
            name=slug(f"risk-{model}-{input_}"),
            title=f"{configuration(model, input_)}, {kind_label(kind)}",
            alt=f"Error among the answered over coverage. {words}.",
            build=partial(plots.risk, one),
        )


@section("abstention", place="trust", tables=("abstention",))
def abstention(page: StudyPage) -> Section | None:
    """Show how many errors remain when only the most certain cases are answered (US-32).

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("abstention")
    kinds = list(dict.fromkeys(str(r["kind"]) for r in rows))
    shown = "external" if "external" in kinds else kinds[0]
    blocks: list[Any] = [
        *page.pair(*page.figures_like("risk-")),
        _scores(page, [r for r in rows if r["kind"] == shown], shown),
    ]
    others = [kind_label(k) for k in kinds if k != shown]
    if others:
        blocks.append(Note(text=f"The same for {joined(others)} scenarios: tables/abstention.csv."))
    ensembles = page.rows("ensembles")
    if ensembles:
        blocks.append(_ensembles(page, ensembles))
    return page.section(
        "abstention",
        "Abstention from uncertain cases",
        blocks,
        short="Abstention",
        lead="Only the most certain cases are answered: how many errors remain, and does a score find the errors?",
    )


def _scores(page: StudyPage, rows: Rows, kind: str) -> Table:
    normals = any_known(rows, "normal_auroc")
    cells, last = [], ""
    for r in rows:
        name = configuration(r["model"], r["input"])
        line = [
            text(name) if name != last else BLANK,
            text(SCORE_LABELS[r["score"]]),
            pct(r["error_rate"]),
            pct(r["error_at_80"]),
            num(r["aurc"]),
            num(r["excess_aurc"]),
            num(r["error_detection"]),
        ]
        cells.append([*line, num(r["normal_auroc"])] if normals else line)
        last = name
    columns = [
        "Configuration",
        "Score",
        "Error, all",
        "Error, most certain 80 %",
        "AURC",
        "Above best",
        "AUROC, errors",
    ]
    return Table(
        name=page.name("abstention"),
        caption=f"Scores of uncertainty, {kind_label(kind)} scenarios",
        columns=[*columns, *(["AUROC, normals"] if normals else [])],
        rows=cells,
        note="Means over scenarios, seeds first. AURC: mean error over all coverages; above best: how far it lies above a "
        "perfect order of the same errors. AUROC, errors: does the score separate wrong answers from right ones"
        + ("; normals: normal images from lesions" if normals else "")
        + ". An error rate depends on the share of positive cases: compare within one column.",
    )


def _ensembles(page: StudyPage, rows: Rows) -> Table:
    held: dict[tuple[str, str, str], Rows] = {}
    for r in rows:
        held.setdefault((str(r["kind"]), str(r["model"]), str(r["input"])), []).append(r)
    cells = []
    for (kind, model, input_), part in held.items():
        ensemble = sum(r["auroc"] for r in part) / len(part)
        single = sum(r["mean_of_seeds"] for r in part) / len(part)
        cells.append(
            [
                text(configuration(model, input_)),
                text(kind_label(kind)),
                num(single),
                num(ensemble),
                Cell(text=signed(ensemble - single), kind="number"),
                cnt(part[0]["seeds"]),
            ]
        )
    return Table(
        name=page.name("ensembles"),
        caption="The seeds as one model: AUROC of their mean probability",
        columns=["Configuration", "Scenarios", "Mean of the seeds", "Ensemble", "Gain", "Seeds"],
        rows=cells,
    )
