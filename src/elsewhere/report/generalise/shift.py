"""The section and figures of a drop that is divided over stain, sharpness, compression and scale (LN-22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.generalise.plots import models_forest
from elsewhere.report.page.blocks import Cell, Fold, Note, Pair, Section, Table, cnt, estimate, num, text
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.numbers import MINUS, as_float, count, number
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]
MOST_DRAWN = 6
NOT_APPLIED = "not applied"
_WORDS = {"drop": "Drop", "all": "All together", "left over": "Left over"}
_DIRECTIONS = {
    "external to internal": "external patches rendered as internal ones",
    "internal to external": "internal patches degraded to external ones",
    NOT_APPLIED: NOT_APPLIED,
}


def _parts(data: Prepared) -> tuple[list[Row], list[tuple[str, str]], list[str]]:
    """The rows, the metrics with their labels, and the models."""
    part = data.part("shift")
    rows: list[Row] = [row for row in part.get("rows") or [] if isinstance(row, dict)]
    labels = {
        str(one.get("name")): str(one.get("label"))
        for one in part.get("metrics") or []
        if isinstance(one, dict)
    }
    names = dict.fromkeys(str(row.get("metric")) for row in rows)
    return (
        rows,
        [(name, labels.get(name, name)) for name in names],
        list(dict.fromkeys(str(row.get("model")) for row in rows)),
    )


def _of(rows: list[Row], metric: str, model: str, *quantities: str) -> list[Row]:
    return [
        row
        for row in rows
        if row.get("metric") == metric and row.get("model") == model and row.get("quantity") in quantities
    ]


def _label(row: Row) -> str:
    return _WORDS.get(str(row.get("quantity"))) or str(row.get("intervention")).capitalize()


def shift_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures of a divided drop.

    Args:
        data: The summary as it may be printed.

    Returns:
        One per metric and model, of the first models.
    """
    rows, metrics, models = _parts(data)
    specs = []
    for metric, label in metrics:
        for number_of_model, model in enumerate(models[:MOST_DRAWN]):
            drawn = [
                {**row, "model": _label(row), "verdict": ""}
                for row in _of(rows, metric, model, "drop", "part", "left over")
                if row.get("direction") != NOT_APPLIED
            ]
            specs.append(_figure(f"shift-{metric}-{number_of_model}", f"{label}: {model}", drawn))
    return specs


def _figure(name: str, title: str, drawn: list[dict[str, Any]]) -> FigureSpec:
    return FigureSpec(
        name=name,
        title=f"{title}; the parts and what is left over add up to the drop",
        alt="; ".join(f"{row['model']}: {number(row.get('value'))}" for row in drawn),
        build=lambda pal: models_forest(
            drawn, pal, axis_label="worse externally (drop), or given back (parts)", margin=None
        ),
    )


def divided_drop(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of a divided drop.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary has none.
    """
    part = data.part("shift")
    rows, metrics, models = _parts(data)
    if not rows:
        return None
    blocks: list[Any] = [_interventions(part)]
    for metric, label in metrics:
        names = [f"shift-{metric}-{at}" for at in range(min(len(models), MOST_DRAWN))]
        drawn = [found for found in (picture(specs, name) for name in names) if found]
        if drawn:
            blocks.append(Pair(pictures=drawn))
        blocks.append(_table(rows, metric, label, models))
        more = _alone(rows, metric, label, models)
        blocks.append(Fold(summary=more.caption, blocks=[more]))
    if part.get("standardised"):
        blocks.append(_standardised(part, dict(metrics)))
    blocks.append(Fold(summary="The means of every version", blocks=[_versions(part, dict(metrics))]))
    if part.get("note"):
        blocks.append(Note(text=str(part["note"])))
    level = f"{100 * (1 - 2 * (as_float(part.get('alpha')) or 0.05)):g} %"
    counts = data.part("counts")
    sides = "; ".join(
        f"{side}: {count(counts.get(f'{side}_patches'))} patches of {count(counts.get(f'{side}_patients'))} patients"
        for side in ("internal", "external")
    )
    return Section(
        id="shift",
        title="Where the drop comes from",
        short="Drop",
        lead=f"How much of the difference between internal and external patches comes back when the same patches are rendered "
        f"without one difference, in the mean over all orders, with {level} intervals over patients. {sides}.",
        blocks=blocks,
    )


def _interventions(part: Row) -> Table:
    return Table(
        name="shift-interventions",
        caption="What was measured, and what was done",
        columns=["Intervention", "Direction", "Measured"],
        rows=[
            [
                text(str(one.get("name")).capitalize()),
                text(_DIRECTIONS.get(str(one.get("direction")), str(one.get("direction")))),
                text(one.get("what")),
            ]
            for one in part.get("interventions") or []
            if isinstance(one, dict)
        ],
        stacked=True,
        note="What an optic or a compression has removed cannot be brought back: then the internal patches are degraded, and the drop "
        "that this takes away counts as the intervention's part.",
    )


def _share(row: Row) -> Cell:
    share = as_float(row.get("share"))
    if share is None:
        return text("")
    lo, hi = as_float(row.get("share_lo")), as_float(row.get("share_hi"))
    ends = "" if lo is None or hi is None else f"[{100 * lo:.0f}, {100 * hi:.0f}]".replace("-", MINUS)
    return text(f"{100 * share:.0f} %".replace("-", MINUS), sub=ends, kind="number")


def _value(row: Row) -> Cell:
    return estimate({"value": row.get("value"), "lo": row.get("lo"), "hi": row.get("hi")}, sign=True)


def _table(rows: list[Row], metric: str, label: str, models: list[str]) -> Table:
    body = []
    for model in models:
        for row in _of(rows, metric, model, "drop", "part", "all", "left over"):
            skipped = row.get("direction") == NOT_APPLIED
            body.append(
                [
                    text(_label(row), sub=model if len(models) > 1 else ""),
                    text(NOT_APPLIED) if skipped else _value(row),
                    text("") if skipped or row.get("quantity") == "drop" else _share(row),
                ]
            )
    return Table(
        name=f"shift-{metric}",
        caption=label,
        columns=["", "Value", "Share of the drop"],
        rows=body,
        stacked=True,
        note="Above 0: worse externally (drop, left over), or given back by the intervention. Left over: tissue, case mix, "
        "annotation, and what cannot be rendered. No shares where the drop is not reliably above 0.",
    )


def _alone(rows: list[Row], metric: str, label: str, models: list[str]) -> Table:
    body = []
    for model in models:
        alone = {str(row.get("intervention")): row for row in _of(rows, metric, model, "alone")}
        for row in _of(rows, metric, model, "drop", "part", "all", "left over"):
            if row.get("direction") == NOT_APPLIED:
                continue
            other = alone.get(str(row.get("intervention"))) if row.get("quantity") == "part" else None
            lo, hi = as_float(row.get("bootstrap_lo")), as_float(row.get("bootstrap_hi"))
            boot = "" if lo is None or hi is None else f"{lo:+.3f} to {hi:+.3f}".replace("-", MINUS)
            body.append(
                [
                    text(_label(row), sub=model if len(models) > 1 else ""),
                    text("") if other is None else _value(other),
                    text(boot, kind="number"),
                ]
            )
    return Table(
        name=f"shift-{metric}-alone",
        caption=f"{label}: each intervention alone, and the bootstrap",
        columns=["", "Alone", "Bootstrap"],
        rows=body,
        note="Alone: with no other intervention. Bootstrap: percentile intervals over patients of the values above.",
    )


def _standardised(part: Row, labels: Mapping[str, str]) -> Table:
    mix = ", ".join(map(str, part.get("standardised_by") or []))
    return Table(
        name="shift-standardised",
        caption=f"At the internal mix of {mix}",
        columns=["", "Metric", "As the mix is", "At the internal mix", "From the mix"],
        rows=[
            [
                text(
                    _WORDS.get(str(row.get("quantity")), str(row.get("quantity"))), sub=str(row.get("model"))
                ),
                text(labels.get(str(row.get("metric")), row.get("metric"))),
                num(row.get("crude")),
                estimate(
                    {"value": row.get("standardised"), "lo": row.get("lo"), "hi": row.get("hi")}, sign=True
                ),
                num(row.get("from_case_mix")),
            ]
            for row in part.get("standardised") or []
            if isinstance(row, dict)
        ],
        stacked=True,
        note="What is left over and vanishes at the internal mix is due to other cases, and to no property of the pictures.",
    )


def _versions(part: Row, labels: Mapping[str, str]) -> Table:
    return Table(
        name="shift-versions",
        caption="The means of every version",
        columns=["Model", "Metric", "Side", "Interventions", "Mean", "Patches"],
        rows=[
            [
                text(row.get("model")),
                text(labels.get(str(row.get("metric")), row.get("metric"))),
                text(row.get("side")),
                text(row.get("applied") or "none"),
                num(row.get("value")),
                cnt(row.get("patches")),
            ]
            for row in part.get("versions") or []
            if isinstance(row, dict)
        ],
    )
