"""The section with the results from each source to each target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from elsewhere.analysis.study.design import configuration
from elsewhere.analysis.study.published import other_networks
from elsewhere.report.page.blocks import (
    Cell,
    Heading,
    Note,
    Section,
    Table,
    cnt,
    num,
    text,
)
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import count, number
from elsewhere.report.study import plots
from elsewhere.report.study.cells import (
    PUBLISHED_HEAD,
    SHORT,
    Rows,
    first_rows,
    metric_label,
    published_cell,
    rows_of,
    slug,
    with_interval,
)
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

MOST_HEATS = 8
MOST_ROWS = 40
EXTREMES = 10


@figure("transfer maps", tables=("scenarios",))
def heat_maps(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the results from each source to each target, one map per metric and configuration.

    Args:
        page: The page of one task.

    Yields:
        The figures; a configuration that was only trained on all other datasets has none.
    """
    table, names = page.of("scenarios"), list(page.design.datasets)
    for metric, short in SHORT.items():
        for model, input_ in shown_configurations(page):
            part = table[(table["model"] == model) & (table["input"] == input_)]
            cells: dict[tuple[str, str], float] = {}
            for row in rows_of(part):
                if row["kind"] in ("internal", "external"):
                    cells[str(row["source"]), str(row["target"])] = float(row[metric])
                elif row["kind"] == "leave-one-dataset-out":
                    cells["all others", str(row["target"])] = float(row[metric])
            if all(source == "all others" for source, _ in cells):
                continue
            down = [n for n in [*names, "all others"] if any(s == n for s, _ in cells)]
            across = [n for n in names if any(t == n for _, t in cells)]
            words = "; ".join(f"{s} to {t} {number(v)}" for (s, t), v in cells.items())
            shown = configuration(model, input_)
            yield FigureSpec(
                name=slug(f"transfer-{short}-{model}-{input_}"),
                title=f"{metric_label(metric)}, {shown}",
                alt=f"Heat map of mean {metric_label(metric)}, {shown}: {words}.",
                build=partial(plots.heat, down, across, cells),
            )


def shown_configurations(page: StudyPage) -> list[tuple[str, str]]:
    """List the configurations that have figures of their own: all but the other margins of a crop.

    Args:
        page: The page of one task.

    Returns:
        Pairs of model and input, at most `MOST_HEATS`.
    """
    design = page.design
    inputs = {i for _, i in design.main} | design.found | design.whole | {""}
    return [c for c in design.configurations if c[1] in inputs][:MOST_HEATS]


@section("transfer matrix", place="transfer", tables=("external_scenarios",))
def transfer_matrix(page: StudyPage) -> Section | None:
    """Show maps of every source and target, and the best and worst transfers.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("external_scenarios")
    blocks: list[Any] = []
    for metric, short in SHORT.items():
        maps = page.pair(*page.figures_like(f"transfer-{short}-"))
        if maps:
            blocks += [Heading(text=metric_label(metric)), *maps]
        if maps and metric == "auroc":
            blocks.append(
                Note(
                    text="Mean over seeds. Framed: internal. The deeper the colour, the further above chance."
                )
            )
        if metric == "auroc" and rows:
            blocks += _extremes(page, rows)
    if not blocks:
        return None
    return page.section(
        "matrix",
        "Results from each source to each target",
        blocks,
        short="Transfer matrix",
        lead="Rows: what a model was trained on. Columns: where it was tested. Transfer is rarely symmetric.",
    )


def _extremes(page: StudyPage, rows: Rows) -> list[Any]:
    best, worst = rows[:EXTREMES], rows[EXTREMES:][-EXTREMES:]
    found = [
        Table(
            name=page.name("extremes"),
            caption=f"Best and worst of {count(len(rows))} transfers" if worst else "Transfers by AUROC",
            columns=["Transfer", "Rank", "AUROC", "s.d. over seeds", "Balanced accuracy"],
            rows=[
                [
                    _named(r),
                    cnt(r["rank"]),
                    with_interval(r["auroc"], r.get("auroc_lo"), r.get("auroc_hi")),
                    num(r.get("auroc_seed_sd")),
                    with_interval(
                        r["balanced_accuracy"], r.get("balanced_accuracy_lo"), r.get("balanced_accuracy_hi")
                    ),
                ]
                for r in [*best, *worst]
            ],
            note="Brackets: 95 % interval over patients of the target, the trained networks as they are (AUROC: clustered "
            "DeLong of the seeds' mean; balanced accuracy: patients resampled). All are in tables/external_scenarios.csv.",
        )
    ]
    printed = [r for r in rows if r.get("published_rank")]
    if printed:
        order = sorted(printed, key=lambda r: (r["published_rank"].startswith("lowest"), r["published_rank"]))
        shown, more = first_rows(order, MOST_ROWS, "external_scenarios")
        found.append(
            Table(
                name=page.name("transfers-published"),
                caption="The transfers that the published study lists",
                columns=[
                    "Transfer",
                    "Published rank",
                    f"Our rank of {len(rows)}",
                    "AUROC",
                    PUBLISHED_HEAD,
                    "Bal. accuracy",
                    PUBLISHED_HEAD,
                ],
                rows=[
                    [
                        _named(r),
                        text(r["published_rank"]),
                        cnt(r["rank"]),
                        num(r["auroc"]),
                        published_cell(r["auroc"], r["published_auroc"]),
                        num(r["balanced_accuracy"]),
                        published_cell(r["balanced_accuracy"], r["published_balanced_accuracy"]),
                    ]
                    for r in shown
                ],
                note=" ".join(other_networks(page.design.network, page.design.weights)) + more,
            )
        )
    return found


def _named(r: Mapping[str, Any]) -> Cell:
    return text(f"{r['source']} → {r['target']}", sub=configuration(str(r["model"]), str(r["input"])))
