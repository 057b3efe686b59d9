"""Sections and figures of a study's report: functions from tables to blocks, found by the study's tables.

A section appears when one of the tables that it names exists. It is written once per task, or once for the
whole study. Other packages register theirs by the entry-point groups `elsewhere.report_sections` and
`elsewhere.report_figures`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elsewhere.registry import Registry, decorated, mark_registered
from elsewhere.report.page.blocks import Section
from elsewhere.report.page.figures import FigureSpec

if TYPE_CHECKING:
    from elsewhere.report.study.page import StudyPage

SectionFunction = Callable[["StudyPage"], Section | None]
FigureFunction = Callable[["StudyPage"], Iterator[FigureSpec]]
PLACES = ("cohort", "ranking", "transfer", "groups", "comparison", "trust", "cases", "published", "audit")
"""Where a section may stand, from the top of the page to its end."""


@dataclass(frozen=True, kw_only=True)
class SectionEntry:
    """A registered section.

    Args:
        name: The name under which it is listed.
        function: Writes the section; it returns None where it has nothing to show.
        place: One of `PLACES`.
        tables: Tables of the study, of which at least one must exist; empty: the section always appears.
        whole_study: Whether it is written once for the study instead of once per task.
        number: The position in the order of registration.
    """

    name: str
    function: SectionFunction
    place: str
    tables: tuple[str, ...] = ()
    whole_study: bool = False
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(frozen=True, kw_only=True)
class FigureEntry:
    """A registered figure.

    Args:
        name: The name under which it is listed.
        function: Yields the figures.
        tables: Tables that must all exist.
        whole_study: Whether it is drawn once for the study instead of once per task.
    """

    name: str
    function: FigureFunction
    tables: tuple[str, ...] = ()
    whole_study: bool = False


_MODULES = tuple(
    f"elsewhere.report.study.{name}"
    for name in (
        "cohort",
        "leaderboard",
        "froc",
        "transfers",
        "transfer_matrix",
        "fairness",
        "comparisons",
        "calibration",
        "abstention",
        "cases",
        "relevance",
        "published",
        "provenance",
    )
)
sections: Registry[SectionEntry] = Registry(
    "section of study reports",
    group="elsewhere.report_sections",
    builtin_modules=_MODULES,
    check=decorated(SectionEntry, "section"),
)
figures: Registry[FigureEntry] = Registry(
    "figure of study reports",
    group="elsewhere.report_figures",
    builtin_modules=_MODULES,
    check=decorated(FigureEntry, "figure"),
)


def section(
    name: str, *, place: str, tables: tuple[str, ...] = (), whole_study: bool = False
) -> Callable[[SectionFunction], SectionFunction]:
    """Register a function as a section of study reports.

    A function `noise(page)` under `@section("noise", place="trust", tables=("noise",))` writes a section
    among those on trust, in every study that has a table `noise`.

    Args:
        name: The name under which it is listed.
        place: One of `PLACES`.
        tables: Tables of the study, of which at least one must exist; empty: the section always appears.
        whole_study: Whether it is written once for the study instead of once per task.

    Returns:
        The decorator.

    Raises:
        ValueError: There is no such place.
    """
    if place not in PLACES:
        raise ValueError(f"there is no place '{place}' in a report; places: {', '.join(PLACES)}")

    def register(function: SectionFunction) -> SectionFunction:
        entry = SectionEntry(
            name=name, function=function, place=place, tables=tables, whole_study=whole_study
        )
        mark_registered(function, entry)
        sections.add(name, entry, owner=f"{function.__module__}:{function.__qualname__}")
        return function

    return register


def figure(
    name: str, *, tables: tuple[str, ...] = (), whole_study: bool = False
) -> Callable[[FigureFunction], FigureFunction]:
    """Register a function as figures of study reports.

    Args:
        name: The name under which it is listed.
        tables: Tables that must all exist.
        whole_study: Whether it is drawn once for the study instead of once per task.

    Returns:
        The decorator.
    """

    def register(function: FigureFunction) -> FigureFunction:
        entry = FigureEntry(name=name, function=function, tables=tables, whole_study=whole_study)
        mark_registered(function, entry)
        figures.add(name, entry, owner=f"{function.__module__}:{function.__qualname__}")
        return function

    return register


def ordered_sections() -> list[SectionEntry]:
    """List all sections in the order of the page.

    Returns:
        The sections by their place; within a place those of Elsewhere in the order of their modules, then
        those of other packages, each in the order of registration.

    Example:
        >>> ordered_sections()[0].name
        'who was tested'
    """

    def position(entry: SectionEntry) -> tuple[int, int, int]:
        module = entry.function.__module__
        return (
            PLACES.index(entry.place),
            _MODULES.index(module) if module in _MODULES else len(_MODULES),
            entry.number,
        )

    return sorted((entry for _, entry in sections), key=position)
