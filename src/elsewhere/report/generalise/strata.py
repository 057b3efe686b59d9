"""Strata of slides, such as stages: models x strata as a heat map, a forest with its own margin for each (LN-13, LN-18)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elsewhere.report.generalise.forests import difference_forest
from elsewhere.report.generalise.labels import LABELS
from elsewhere.report.generalise.plots import HeatColumn, heat_map
from elsewhere.report.generalise.tables import verdict_table
from elsewhere.report.page.blocks import Cell, Fold, Pair, Section, Table, cnt, num, text
from elsewhere.report.page.figures import FigureSpec, Specs, picture, pictures
from elsewhere.report.page.numbers import MINUS, as_float, number
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]
MOST_HEAT_COLUMNS = 6
_ORDER = {"negative": 0, "itc": 1, "micro": 2, "macro": 3}


def _cells(part: Row) -> Iterator[tuple[str, str, str, list[Row]]]:
    """Metric, column and value of each stratum, with the models' rows; stages in their clinical order."""
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict) and row.get("stratum_of")]
    keys = dict.fromkeys(
        (str(r.get("metric")), str(r.get("stratum_of")), str(r.get("stratum"))) for r in rows
    )
    firsts = {key[:2]: k for k, key in reversed(list(enumerate(keys)))}
    for key in sorted(keys, key=lambda key: (firsts[key[:2]], _ORDER.get(key[2].lower(), -1))):
        yield (
            *key,
            [
                row
                for row in rows
                if (str(row.get("metric")), str(row.get("stratum_of")), str(row.get("stratum"))) == key
            ],
        )


def stratum_figures(part: Row) -> list[FigureSpec]:
    """Draw the heat maps and the forests of the strata.

    Args:
        part: The part `generalise` of a summary.

    Returns:
        One heat map per metric and column of strata, and one forest per stratum that has an interval.
    """
    cells = list(_cells(part))
    specs: list[FigureSpec] = []
    for metric, column in dict.fromkeys(cell[:2] for cell in cells):
        mine = [(value, rows) for m, c, value, rows in cells if (m, c) == (metric, column)]
        specs.append(_heat(len(specs), metric, column, mine))
    for number_, (metric, column, value, rows) in enumerate(cells):
        if any(as_float(row.get("lo")) is not None for row in rows):
            title = f"{LABELS.get(metric, metric)}, {column} {value}: external {MINUS} internal"
            specs.append(difference_forest(f"generalise-stratum-{number_}", title, rows, "difference"))
    return specs


def _heat(number_: int, metric: str, column: str, strata: Sequence[tuple[str, Sequence[Row]]]) -> FigureSpec:
    shown = strata[:MOST_HEAT_COLUMNS]
    models = list(dict.fromkeys(str(row.get("model")) for _, rows in shown for row in rows))
    columns = []
    for value, rows in shown:
        of_model = {str(row.get("model")): row for row in rows}
        for side, word in (("internal", "int."), ("external", "ext.")):
            values = [as_float(of_model.get(model, {}).get(side)) for model in models]
            columns.append(HeatColumn(group=value, name=word, values=values))
    rest = "" if len(shown) == len(strata) else f", the first {len(shown)} of {len(strata)}"
    per_cent = metric == "fpr"
    unit = ", per cent" if per_cent else ""
    spoken = "; ".join(
        f"{one.group} {one.name} {number(_middle(one.values))}"
        for one in columns
        if _middle(one.values) is not None
    )
    return FigureSpec(
        name=f"generalise-heat-{number_}",
        title=f"{LABELS.get(metric, metric)}{unit}, by {column}{rest}",
        alt=f"Means of {len(models)} models by {column}, internal and external; medians over models: {spoken}. The tables have all numbers.",
        build=lambda pal: heat_map(models, columns, pal, per_cent=per_cent),
    )


def _middle(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def model_strata(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the strata, such as stages.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without strata.
    """
    cells = list(_cells(data.part("generalise")))
    if not cells:
        return None
    overview: dict[str, list[list[Cell]]] = {}
    folds = []
    for k, (metric, column, value, rows) in enumerate(cells):
        words = [str(row.get("verdict")) for row in rows]
        overview.setdefault(metric, []).append(
            [
                text(f"{column} {value}"),
                num(rows[0].get("margin")),
                *(cnt(words.count(word)) for word in ("EQUIVALENT", "ABOVE", "INCONCLUSIVE", "BELOW")),
                cnt(
                    words.count("NOT ASSESSED"),
                    sub=next((str(row.get("reason")) for row in rows if row.get("reason")), ""),
                ),
                cnt(sum(bool(row.get("non_inferior")) for row in rows)),
                cnt(sum(bool(row.get("fold_equivalent")) for row in rows)),
            ]
        )
        caption = f"{LABELS.get(metric, metric)}, {column} {value}"
        forest = picture(specs, f"generalise-stratum-{k}")
        table = verdict_table(f"generalise-{metric}-{column}-{value}", caption, rows)
        folds.append(
            Fold(
                summary=caption,
                blocks=[*([Pair(pictures=[forest])] if forest else []), table],
                closed=True,
            )
        )
    tables = [
        Table(
            name=f"generalise-strata-{metric}",
            caption=f"{LABELS.get(metric, metric)}: models by verdict",
            columns=[
                "Stratum",
                "Margin",
                "Equivalent",
                "Above",
                "Inconclusive",
                "Below",
                "Not assessed",
                "Non-inferior",
                "Equivalent by fold",
            ],
            rows=rows,
            stacked=True,
        )
        for metric, rows in overview.items()
    ]
    maps = pictures(specs, "generalise-heat-")
    return Section(
        id="generalise-strata",
        title="Strata",
        short="Strata",
        lead="Strata are descriptive: a verdict over all slides is not overturned by one of them. Each stratum has its own margin where "
        "margins were made from the data.",
        blocks=[*([Pair(pictures=maps)] if maps else []), *tables, *folds],
    )
