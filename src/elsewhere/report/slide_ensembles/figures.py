"""The figures of many models and their ensembles on slides, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import MINUS, number
from elsewhere.report.result.plots_cases import confusion
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.slide_ensembles.plots import against_random, rates_forest, rates_scatter

Row = Mapping[str, Any]
F1, DICE, FPR = "f1_mean_left_out", "dice", "fpr"
COMPARED = {
    F1: "F1, mean of both classes, ITC left out",
    DICE: "Dice, slides with tumour",
    FPR: "False-positive rate, negative slides",
}
STAGES = ("negative", "itc", "micro", "macro")
_MOST = 62


def scored_rows(part: Row) -> list[Row]:
    """List the models and ensembles that have rates.

    Args:
        part: The part of the summary.

    Returns:
        Their rows.
    """
    return [
        row for row in part.get("rows") or [] if isinstance(row, dict) and isinstance(row.get("rates"), dict)
    ]


def label_of(row: Row) -> str:
    """Name a row: rules whose members were chosen on other patients have a star.

    Args:
        row: The row.

    Returns:
        The name.

    Example:
        >>> label_of({"name": "Generalising", "kind": "cross-fitted"})
        'Generalising *'
    """
    return f"{row.get('name')} *" if row.get("kind") == "cross-fitted" else str(row.get("name"))


def ensemble_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that many models and their ensembles can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        Scatter of rates, forest of F1, Dice against false positives, random ensembles, confusion matrices.
    """
    part = data.part("slide_ensembles")
    rows = scored_rows(part)
    if not rows:
        return []
    selected = [str(name) for name in part.get("selected") or []]
    specs = [
        _scatter(
            "slide-ensembles-roc",
            f"Sensitivity against 1 {MINUS} specificity (ITC as negative)",
            rows,
            ("specificity_negative", "sensitivity_negative"),
            (f"1 {MINUS} specificity", "sensitivity"),
            selected,
        ),
        _scatter(
            "slide-ensembles-dice-fpr",
            "Dice against the false-positive rate",
            rows,
            (FPR, DICE),
            ("false-positive rate, negative slides", "Dice, slides with tumour"),
            selected,
        ),
        _forest(part, rows),
    ]
    nulls = [row for row in part.get("null") or [] if isinstance(row, dict)]
    if nulls:
        specs += [_random(nulls, rate, title) for rate, title in COMPARED.items()]
    for i, name in enumerate(selected):
        row = next(
            (row for row in rows if row.get("name") == name and row.get("kind") != "cross-fitted"), None
        )
        if row is not None:
            specs += _confusions(i, row)
    return specs


def _scatter(
    name: str,
    title: str,
    rows: Sequence[Row],
    rates: tuple[str, str],
    axes: tuple[str, str],
    named: Sequence[str],
) -> FigureSpec:
    drawn = [
        {
            "name": row.get("name"),
            "kind": row.get("kind"),
            "x": _complement(row["rates"][rates[0]]) if axes[0].startswith("1 ") else row["rates"][rates[0]],
            "y": row["rates"][rates[1]],
        }
        for row in rows
        if row.get("kind") != "cross-fitted"
    ]
    return FigureSpec(
        name=name,
        title=f"{title}; diamonds: models, dots: ensembles",
        alt="; ".join(
            f"{row['name']}: {number(row['x']['value'])}, {number(row['y']['value'])}" for row in drawn
        ),
        build=lambda pal: rates_scatter(drawn, pal, x_label=axes[0], y_label=axes[1], named=named),
    )


def _complement(entry: Row) -> dict[str, Any]:
    def of(value: Any) -> Any:
        return 1 - value if isinstance(value, int | float) else value

    return {"value": of(entry.get("value")), "lo": of(entry.get("hi")), "hi": of(entry.get("lo"))}


def _forest(part: Row, rows: Sequence[Row]) -> FigureSpec:
    printed = {
        str(row.get("name")): row.get("f1_printed") for row in (part.get("published") or {}).get("rows") or []
    }
    drawn = [
        {"name": label_of(row), "kind": row.get("kind"), **row["rates"][F1]}
        | {"printed": None if row.get("kind") == "cross-fitted" else printed.get(str(row.get("name")))}
        for row in [
            *(r for r in rows if r.get("kind") != "model"),
            *(r for r in rows if r.get("kind") == "model"),
        ]
    ][:_MOST]
    more = "; crosses: the study's printed values" if any(row["printed"] is not None for row in drawn) else ""
    return FigureSpec(
        name="slide-ensembles-f1",
        title=f"{COMPARED[F1]}: ensembles, then models{more}",
        alt="; ".join(f"{row['name']}: {number(row['value'])}" for row in drawn),
        build=lambda pal: rates_forest(drawn, pal, axis_label="F1, mean of both classes"),
    )


def _random(nulls: Sequence[Row], rate: str, title: str) -> FigureSpec:
    drawn = [{"name": label_of(row), **row["rates"][rate]} for row in nulls]
    return FigureSpec(
        name=f"slide-ensembles-random-{rate.split('_', maxsplit=1)[0]}",
        title=f"{title}; bars: the central 95 % of random ensembles of the same size; green: p at most 0.05",
        alt="; ".join(
            f"{row['name']}: {number(row['value'])}, random {number(row['random'])}" for row in drawn
        ),
        build=lambda pal: against_random(drawn, pal, axis_label=title),
    )


def _confusions(i: int, row: Row) -> list[FigureSpec]:
    made = row.get("confusion") or {}
    name, folds = row.get("name"), "slides, mean over the folds"
    two, four = made.get("two_class_negative"), made.get("four_class")

    def spec(kind: str, labels: Sequence[str], matrix: Any) -> FigureSpec:
        shown = [[_rounded(value) for value in line] for line in matrix]
        return FigureSpec(
            name=f"slide-ensembles-confusion-{i}-{kind}",
            title=f"{name}: {folds}" + (" (ITC as negative)" if kind == "two" else ""),
            alt="; ".join(
                f"{truth} called {said}: {value}"
                for truth, line in zip(labels, shown, strict=True)
                for said, value in zip(labels, line, strict=True)
            ),
            build=lambda pal: confusion(labels, shown, pal),
        )

    out = []
    if two:
        out.append(spec("two", ("negative", "positive"), two))
    if four:
        out.append(spec("four", STAGES, four))
    return out


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) and value % 1 else int(value)
