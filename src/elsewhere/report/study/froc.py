"""FROC curves: internal and external, method by method, and all methods together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.analysis.study.boards import BOARD_LABELS
from elsewhere.report.page.blocks import Note, Section, Table, estimate, text
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import number
from elsewhere.report.study.cells import kind_label, slug
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_UP_TO = 5.0
"""False positives per volume on the horizontal axis."""
READ_AT = (1.0, 2.0, 4.0)
POPULATION = "positive volumes"
_INTERNAL = ("internal", "folds")


@figure("froc", tables=("froc",))
def curves(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw a figure with all methods of the leading board, and one per method with the kinds of scenarios.

    Args:
        page: The page of one task.

    Yields:
        The figures.
    """
    table = page.of("froc", volumes=POPULATION)
    board = page.board["board"]
    all_methods = {str(m): rows for m, rows in table[table["board"] == board].groupby("method", sort=False)}
    if len(all_methods) > 1:
        yield FigureSpec(
            name="froc-all",
            title=f"FROC of all methods, {BOARD_LABELS.get(board, board)}",
            alt="; ".join(f"{page.method(m)}: {_read(rows)}" for m, rows in all_methods.items()),
            build=partial(draw, {page.method(m): rows for m, rows in all_methods.items()}, bands=False),
        )
    for method, rows in table.groupby("method", sort=False):
        kinds = {kind_label(str(kind)): one for kind, one in _by_kind(rows).items()}
        if kinds:
            yield FigureSpec(
                name=slug(f"froc-{method}"),
                title=f"FROC of {page.method(method)}",
                alt="; ".join(f"{kind}: {_read(one)}" for kind, one in kinds.items()),
                build=partial(draw, kinds, bands=True),
            )


def _by_kind(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The first board of each kind, external ones first."""
    found: dict[str, pd.DataFrame] = {}
    for (kind, _), part in rows.groupby(["kind", "board"], sort=False):
        found.setdefault(str(kind), part)
    return dict(sorted(found.items(), key=lambda item: item[0] in _INTERNAL))


def _read(rows: pd.DataFrame) -> str:
    """The sensitivity at some rates, in words."""
    return ", ".join(f"{number(_at(rows, x)['sensitivity'])} at {x:g}" for x in READ_AT)


def _at(rows: pd.DataFrame, rate: float) -> dict[str, Any]:
    """The point of a curve at a rate of false positives."""
    nearest = (rows["false_positives"] - rate).abs().argmin()
    return {str(name): value for name, value in rows.iloc[nearest].items()}


def draw(curves: Mapping[str, pd.DataFrame], pal: Palette, *, bands: bool) -> Figure:
    """Draw FROC curves.

    Args:
        curves: The points of each curve, by its name in the legend.
        pal: The colours.
        bands: Whether the pointwise intervals are drawn.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.6, pal)
    style(axes, pal, grid="y")
    colours = (pal.second, pal.accent, pal.ink, pal.muted)
    dashes: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)))
    for place, (name, rows) in enumerate(curves.items()):
        shown = rows[rows["false_positives"] <= SHOWN_UP_TO]
        colour = colours[place % len(colours)]
        x = shown["false_positives"].to_numpy()
        if bands and shown["lo"].notna().any():
            axes.fill_between(x, shown["lo"], shown["hi"], color=colour, alpha=0.16, linewidth=0)
        axes.plot(
            x,
            shown["sensitivity"],
            color=colour,
            linewidth=1.8,
            linestyle=dashes[place // len(colours) % len(dashes)],
            label=name,
        )
    axes.set_xlim(0, SHOWN_UP_TO)
    axes.set_ylim(0, 1.005)
    axes.set_xlabel(f"False positives per volume ({POPULATION})")
    axes.set_ylabel("Sensitivity")
    axes.legend(frameon=False, fontsize=9, labelcolor=pal.ink, loc="upper left", ncols=2)
    return figure


@section("froc", place="ranking", tables=("froc",))
def froc(page: StudyPage) -> Section | None:
    """Show the FROC curves with their bands, and the sensitivity at some rates of false positives.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    names = page.figures_like("froc-")
    singles = [name for name in names if name != "froc-all"]
    blocks: list[Any] = list(page.pair("froc-all"))
    for place in range(0, len(singles), 2):
        blocks += page.pair(*singles[place : place + 2])
    table = page.of("froc", volumes=POPULATION)
    cells = []
    for (board, method), rows in table.groupby(["board", "method"], sort=False):
        points = (_at(rows, x) for x in READ_AT)
        cells.append(
            [
                text(page.method(method)),
                text(BOARD_LABELS.get(str(board), str(board))),
                *(estimate({"value": p["sensitivity"], "lo": p["lo"], "hi": p["hi"]}) for p in points),
            ]
        )
    blocks.append(
        Table(
            name=page.name("froc-points"),
            caption="Sensitivity at some numbers of false positives per volume, over volumes with a lesion",
            columns=["Method", "Scenarios", *(f"At {x:g}" for x in READ_AT)],
            rows=cells,
        )
    )
    blocks.append(
        Note(
            text="Curves are linear between the scores of boxes that hit a lesion. Bands are pointwise percentile "
            "intervals over resampled patients: they hold at each rate by itself, not for the whole curve at once."
        )
    )
    return page.section(
        "froc",
        "FROC curves",
        blocks,
        lead="How many lesions are found, by how many false positives per volume one is ready to look at.",
    )
