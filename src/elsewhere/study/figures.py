"""The figures of a study (US-24), drawn in the report's own style: inline for the page, or as files.

Each function takes tables of a `StudySummary` and a palette; `study_figures` names them all. matplotlib is
imported at the first figure, never at import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.report.leaderboard import plots as board_plots
from elsewhere.report.page import canvas
from elsewhere.report.page.figures import FORMATS, FigureSpec, save_figure
from elsewhere.report.page.numbers import MINUS, count, number
from elsewhere.report.result import plots
from elsewhere.study.analysis_abstention import SCORE_WORDS
from elsewhere.study.analysis_design import KIND_WORDS, configuration, word
from elsewhere.study.analysis_drop import OVERALL
from elsewhere.study.figures_plots import (
    AWAY,
    CHANCE,
    HOME,
    bars,
    composition,
    dots,
    dumbbells,
    heat,
    margins,
    risk,
    with_zero,
)

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

MOST_SHOWN = 8
METRIC_WORDS = {"auroc": "AUROC", "balanced_accuracy": "balanced accuracy"}


def study_figures(summary: StudySummary) -> dict[str, FigureSpec]:
    """The figures that this study can have, by name, in the order of the page."""
    specs = [
        *_composition(summary),
        *_drop(summary),
        *_bars(summary),
        *_heat(summary),
        *_paired(summary),
        *_margins(summary),
        *_calibration(summary),
        *_normal(summary),
        *_risk(summary),
    ]
    return {spec.name: spec for spec in specs}


def inline_figures(summary: StudySummary) -> dict[str, str]:
    """Each figure as an SVG element in the page's own colours."""
    out = {}
    for name, spec in study_figures(summary).items():
        with canvas.drawing():
            out[name] = canvas.inline(spec.build(canvas.STAND_IN), name, spec.alt)
    return out


def write_study_figures(
    summary: StudySummary, directory: str | Path, formats: Sequence[str] = ("svg", "pdf")
) -> list[Path]:
    """Each figure as `<name>.<format>`; returns the paths written."""
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise UserError(f"unknown figure format '{unknown[0]}'", fix=f"Known: {', '.join(FORMATS)}.")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in study_figures(summary).items():
        for kind in formats:
            path = folder / f"{name}.{kind}"
            with canvas.drawing():
                save_figure(spec.build(canvas.LIGHT), path, kind)
            written.append(path)
    return written


def _table(summary: StudySummary, name: str) -> pd.DataFrame:
    return summary.tables.get(name, pd.DataFrame())


def _composition(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "datasets")
    if table.empty:
        return
    rows = table.to_dict(orient="records")
    words = "; ".join(
        f"{r['dataset']}: {count(r['benign'])} benign, {count(r['malignant'])} malignant and "
        f"{count(r['normal'])} normal images, {count(r['patients'])} patient ids"
        for r in rows
    )
    yield FigureSpec(
        name="cohorts", title="Images and patient ids of each dataset", alt=words,
        build=lambda pal: composition([{str(k): v for k, v in r.items()} for r in rows], pal),
    )  # fmt: skip


def _drop(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "drop")
    if table.empty:
        return
    rows = table[table["metric"] == "auroc"].to_dict(orient="records")
    entries = [
        (
            "all" if r["model"] == OVERALL else configuration(str(r["model"]), str(r["input"])),
            {"value": r["by_source"], "lo": r["by_source_lo"], "hi": r["by_source_hi"]},
        )
        for r in rows
    ]
    overall = next((e for name, e in entries if name == "all"), None)
    lines = [(name, e, None) for name, e in entries if name != "all"]
    spoken = "; ".join(
        f"{name}: {number(e['value'])} [{number(e['lo'])}, {number(e['hi'])}]" for name, e in entries
    )
    yield FigureSpec(
        name="drop", title=f"AUROC, external {MINUS} internal", alt=f"Change of AUROC elsewhere. {spoken}.",
        build=lambda pal: with_zero(
            plots.forest([("", lines)], pal, overall=overall, axis_label=f"AUROC, external {MINUS} internal"), pal
        ),
    )  # fmt: skip


def _bars(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "summary")
    if table.empty:
        return
    paper = _table(summary, "overall")
    for metric, short in (("auroc", "auroc"), ("balanced_accuracy", "bacc")):
        part = table[(table["metric"] == metric) & table["kind"].isin([HOME, AWAY])]
        rows = []
        for model, input_ in summary.design.configurations:
            one = part[(part["model"] == model) & (part["input"] == input_)].set_index("kind")
            if one.empty:
                continue
            row: dict[str, Any] = {"name": configuration(model, input_)}
            for kind in (HOME, AWAY):
                if kind in one.index:
                    row[kind] = float(one["value"][kind])
                    row[f"{kind}_sd"] = float(one["sd_over_seeds"][kind])
                column = f"paper_{kind}_{short}"
                if column in paper.columns:
                    held = paper[(paper["model"] == model) & (paper["input"] == input_)][column]
                    row[f"{kind}_paper"] = float(held.iloc[0]) if len(held) else np.nan
            rows.append(row)
        if rows:
            spoken = "; ".join(
                f"{r['name']}: internal {number(r.get(HOME))}, external {number(r.get(AWAY))}" for r in rows
            )
            name = METRIC_WORDS[metric]
            yield FigureSpec(
                name=f"home-and-away-{short}", title=f"Mean {name} at home and elsewhere",
                alt=f"Bars of mean {name}. {spoken}. Error bars: standard deviation over seeds.",
                build=partial(bars, rows, axis=name),
            )  # fmt: skip


def _shown(summary: StudySummary) -> list[tuple[str, str]]:
    """The configurations that get pictures of their own: all but the other margins of a crop."""
    design = summary.design
    inputs = {i for _, i in design.main} | design.found | design.whole
    return [c for c in design.configurations if c[1] in inputs][:MOST_SHOWN]


def _heat(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "scenarios")
    names = list(summary.design.datasets)
    if table.empty:
        return
    for metric, short in (("auroc", "auroc"), ("balanced_accuracy", "bacc")):
        for model, input_ in _shown(summary):
            part = table[(table["model"] == model) & (table["input"] == input_)]
            cells: dict[tuple[str, str], float] = {}
            for row in part.to_dict(orient="records"):
                if row["kind"] in (HOME, AWAY):
                    cells[str(row["source"]), str(row["target"])] = float(row[metric])
                elif row["kind"] == "leave-one-dataset-out":
                    cells["all others", str(row["target"])] = float(row[metric])
            if all(source == "all others" for source, _ in cells):
                continue
            rows = [n for n in [*names, "all others"] if any(s == n for s, _ in cells)]
            columns = [n for n in names if any(t == n for _, t in cells)]
            spoken = "; ".join(f"{s} to {t} {number(v)}" for (s, t), v in cells.items())
            yield FigureSpec(
                name=_file(f"transfer-{short}-{model}-{input_}"), title=configuration(model, input_),
                alt=f"Heat map of mean {METRIC_WORDS[metric]}, {configuration(model, input_)}: {spoken}.",
                build=partial(heat, rows, columns, cells),
            )  # fmt: skip


def _paired(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "paired")
    if table.empty:
        return
    kinds = list(dict.fromkeys(table["kind"]))
    kind = AWAY if AWAY in kinds else kinds[0]
    part = table[(table["metric"] == "auroc") & (table["kind"] == kind)]
    rows = [(pair_words(r), r) for r in part.to_dict(orient="records")]
    named = [(name, {str(k): v for k, v in r.items()}) for name, r in rows][:14]
    if named:
        spoken = "; ".join(f"{n} {number(r['difference'])}" for n, r in named)
        yield FigureSpec(
            name="paired", title=f"Paired differences of AUROC, {KIND_WORDS.get(kind, kind)} scenarios",
            alt=f"Mean paired differences of AUROC with intervals: {spoken}.",
            build=lambda pal: board_plots.differences(named, pal, axis_label="Difference of AUROC"),
        )  # fmt: skip


def pair_words(row: Any) -> str:
    """`CNN: ROI − whole image`."""
    if row["what"] in ("input", "boxes"):
        return f"{word(row['a_model'])}: {word(row['a_input'])} {MINUS} {word(row['b_input'])}"
    return f"{word(row['a_input'])}: {word(row['a_model'])} {MINUS} {word(row['b_model'])}"


def _margins(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "margins")
    if not table.empty:
        yield FigureSpec(
            name="margins", title="Mean external AUROC by margin of the crop",
            alt="; ".join(
                f"{word(str(r['model']))} at {100 * r['margin']:g} %: {number(r['auroc'])}"
                for r in table.to_dict(orient="records")
            ),
            build=lambda pal: margins(table, pal),
        )  # fmt: skip


def _calibration(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "summary")
    for metric, short, name in (("ece_confidence", "ece", "ECE"), ("nll", "nll", "NLL")):
        part = table[table["metric"].isin([metric, f"{metric}_calibrated"])] if len(table) else table
        rows = []
        for kind in summary.design.kinds if len(part) else ():
            for model, input_ in summary.design.configurations:
                one = part[(part["kind"] == kind) & (part["model"] == model) & (part["input"] == input_)]
                held = one.set_index("metric")["value"]
                if len(held) == 2:
                    rows.append(
                        (
                            kind,
                            configuration(model, input_),
                            float(held[metric]),
                            float(held[f"{metric}_calibrated"]),
                        )
                    )
        if rows:
            yield FigureSpec(
                name=f"calibration-{short}", title=f"{name} before and after temperature scaling",
                alt="; ".join(f"{k}, {n}: {number(a)} to {number(b)}" for k, n, a, b in rows),
                build=partial(dumbbells, rows, axis=name),
            )  # fmt: skip
    for kind, curves in summary.curves.get("reliability", {}).items():
        yield FigureSpec(
            name=_file(f"reliability-{kind}"), title=f"Reliability, {KIND_WORDS.get(kind, kind)}",
            alt="Malignant fraction against predicted probability, all runs pooled, before and after scaling.",
            build=partial(plots.reliability, curves),
        )  # fmt: skip


def _normal(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "summary")
    for metric, name in (("normal_auroc", "AUROC"), ("normal_auprc", "AUPRC")):
        part = table[(table["metric"] == metric) & table["value"].notna()] if len(table) else table
        rows = [
            (str(r["kind"]), configuration(str(r["model"]), str(r["input"])), float(r["value"]))
            for r in part.to_dict(orient="records")
        ]
        if rows:
            yield FigureSpec(
                name=f"normal-{name.lower()}", title=f"Lesion against normal, {name}",
                alt="; ".join(f"{k}, {n}: {number(v)}" for k, n, v in rows),
                build=partial(dots, rows, axis=name, chance=CHANCE if metric == "normal_auroc" else None),
            )  # fmt: skip


def _risk(summary: StudySummary) -> Iterator[FigureSpec]:
    table = _table(summary, "risk_coverage")
    if table.empty:
        return
    kind = AWAY if AWAY in set(table["kind"]) else str(table["kind"].iloc[0])
    part = table[table["kind"] == kind]
    scores = _table(summary, "abstention")
    for model, input_ in _shown(summary):
        one = part[(part["model"] == model) & (part["input"] == input_)]
        if one.empty:
            continue
        held = scores[(scores["kind"] == kind) & (scores["model"] == model) & (scores["input"] == input_)]
        spoken = "; ".join(
            f"{SCORE_WORDS[str(r['score'])]}: error {number(r['error_at_80'])} at 80 % coverage"
            for r in held.to_dict(orient="records")
        )
        yield FigureSpec(
            name=_file(f"risk-{model}-{input_}"), title=f"{configuration(model, input_)}, {KIND_WORDS.get(kind, kind)}",
            alt=f"Error among the answered over coverage. {spoken}.",
            build=partial(risk, one),
        )  # fmt: skip


def _file(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text.lower())
