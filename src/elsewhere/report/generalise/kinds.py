"""How models were made: Dice and false-positive rate by share of partial-tumour patches and by clustering (LN-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.report.generalise.labels import LABELS, SHORT
from elsewhere.report.generalise.plots import dots_by_kind
from elsewhere.report.generalise.tables import digits_of
from elsewhere.report.page.blocks import Pair, Section, Table, cnt, num, text
from elsewhere.report.page.figures import FigureSpec, Specs, pictures
from elsewhere.report.page.numbers import number
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]
_NOUNS = {"share": "Share of partial-tumour patches", "clustering": "Clustering"}


def kind_figures(part: Row) -> list[FigureSpec]:
    """Draw each metric by share and by clustering.

    Args:
        part: The part `generalise` of a summary.

    Returns:
        One figure per attribute and metric.
    """
    means = _means(part)
    models = {str(row.get("model")): row for row in part.get("models") or [] if isinstance(row, dict)}
    rows = [row for row in part.get("rows") or [] if isinstance(row, dict) and not row.get("stratum_of")]
    specs = []
    for by in dict.fromkeys(str(row.get("by")) for row in means):
        for metric in dict.fromkeys(str(row.get("metric")) for row in means):
            groups = [
                {
                    **mean,
                    "dots": [
                        (row.get("internal"), row.get("external"))
                        for row in rows
                        if row.get("metric") == metric
                        and str(models.get(str(row.get("model")), {}).get(by)) == str(mean.get("value"))
                    ],
                }
                for mean in means
                if mean.get("by") == by and mean.get("metric") == metric
            ]
            specs.append(_figure(by, metric, groups))
    return specs


def _means(part: Row) -> list[Row]:
    rows = (part.get("kinds") or {}).get("rows") or []
    return [row for row in rows if isinstance(row, dict) and row.get("models")]


def _figure(by: str, metric: str, groups: list[dict[str, Any]]) -> FigureSpec:
    noun = _NOUNS.get(by, by)
    spoken = "; ".join(
        f"{group.get('value')}: internal {number(group.get('internal'))}, external {number(group.get('external'))}"
        for group in groups
    )
    return FigureSpec(
        name=f"generalise-kind-{by}-{metric}",
        title=f"{SHORT.get(metric, metric)} by {noun[0].lower()}{noun[1:]}",
        alt=f"{LABELS.get(metric, metric)} by {noun.lower()}, mean of models. {spoken}.",
        build=lambda pal: dots_by_kind(groups, pal, x_label=noun, y_label=SHORT.get(metric, metric)),
    )


def model_kinds(data: Prepared, specs: Specs) -> Section | None:
    """Make the section by share and by clustering.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where nothing is known of how the models were made.
    """
    part = data.part("generalise")
    means = _means(part)
    if not means:
        return None
    drawn = pictures(specs, "generalise-kind-")
    blocks: list[Any] = [Pair(pictures=drawn)] if drawn else []
    for by in dict.fromkeys(str(row.get("by")) for row in means):
        for metric in dict.fromkeys(str(row.get("metric")) for row in means):
            mine = [row for row in means if row.get("by") == by and row.get("metric") == metric]
            blocks.append(_table(by, metric, mine))
    return Section(
        id="generalise-kinds",
        title="By share and by clustering",
        short="Share, clustering",
        lead="Each mark is a model, each bar the mean of the models: circles and the left bar internal, squares and the right bar external. "
        f"From {(part.get('kinds') or {}).get('source')}. No interval: all models were scored on the same slides, so that their "
        "spread says nothing about other slides.",
        blocks=blocks,
    )


def _table(by: str, metric: str, rows: Sequence[Row]) -> Table:
    digits = digits_of(rows)
    return Table(
        name=f"generalise-kind-{by}-{metric}",
        caption=f"{LABELS.get(metric, metric)}, by {_NOUNS.get(by, by).lower()}",
        columns=[by.capitalize(), "Models", "Internal", "External", "Equivalent or above", "Non-inferior"],
        rows=[
            [
                text(row.get("value")),
                cnt(row.get("models")),
                num(row.get("internal"), digits),
                num(row.get("external"), digits),
                cnt(row.get("equivalent")),
                cnt(row.get("non_inferior")),
            ]
            for row in rows
        ],
    )
