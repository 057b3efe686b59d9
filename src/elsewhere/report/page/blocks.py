"""The parts of a page, before they are HTML: the template knows these and nothing of a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elsewhere.report.page import numbers


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`text` for the eye; `title` for the full precision; `sub` is a second, quieter line."""

    text: str
    title: str = ""
    sub: str = ""
    kind: str = "text"

    @property
    def is_number(self) -> bool:
        """Whether the cell holds a number."""
        return self.kind == "number"


def text(value: Any, *, sub: str = "", kind: str = "text", title: str = "") -> Cell:
    """Make a cell of text.

    Args:
        value: What it shows.
        sub: A second, smaller line.
        kind: How it is set.
        title: What is shown on hover, or the title of the page.

    Returns:
        The cell.
    """
    return Cell(text=numbers.ABSENT if value in (None, "") else str(value), sub=sub, kind=kind, title=title)


BLANK = Cell(text="")


def num(value: Any, digits: int = 3, *, sub: str = "") -> Cell:
    """Make a cell of a number.

    Args:
        value: The number.
        digits: How many decimals.
        sub: A second, smaller line.

    Returns:
        The cell.
    """
    return Cell(text=numbers.number(value, digits), title=numbers.full(value), sub=sub, kind="number")


def cnt(value: Any, *, sub: str = "") -> Cell:
    """Make a cell of a count; a suppressed count stays as it is.

    Args:
        value: The count.
        sub: A second, smaller line.

    Returns:
        The cell.
    """
    shown = numbers.count(value)
    return Cell(
        text=shown, title="" if isinstance(value, str) else numbers.full(value), sub=sub, kind="number"
    )


def pct(value: Any, digits: int = 1) -> Cell:
    """Make a cell of a share in per cent.

    Args:
        value: The share.
        digits: How many decimals.

    Returns:
        The cell.
    """
    return Cell(text=numbers.percent(value, digits), title=numbers.full(value), kind="number")


def p_cell(value: Any) -> Cell:
    """Make a cell of a p-value.

    Args:
        value: The p-value.

    Returns:
        The cell.
    """
    return Cell(text=numbers.p_value(value), title=numbers.full(value), kind="number")


def estimate(entry: Any, *, sign: bool = False) -> Cell:
    """Make a cell of an estimate.

    Args:
        entry: An estimate: `value`, `lo`, `hi` and what belongs to them.
        sign: Whether a plus sign is printed.

    Returns:
        A value with its interval below it, or `undefined` with its reason: never an empty cell.
    """
    if not isinstance(entry, dict):
        return Cell(
            text=(numbers.signed if sign else numbers.number)(entry), title=numbers.full(entry), kind="number"
        )
    value = entry.get("value")
    if numbers.as_float(value) is None:
        reason = str(entry.get("undefined_reason") or entry.get("note") or "")
        return Cell(text="not estimable", sub=reason, kind="undefined", title=reason)
    return Cell(
        text=(numbers.signed if sign else numbers.number)(value),
        sub=numbers.interval(entry, sign=sign),
        title=numbers.full_interval(entry),
        kind="number",
    )


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    type: str = "table"
    heat: Sequence[Sequence[float]] | None = None
    stacked: bool = False
    """An interval stands under its value: for tables of many columns."""

    @property
    def few(self) -> bool:
        """Few columns of short text are not stretched over the whole width."""
        longest = max((len(c.text) + len(c.sub) for row in self.rows for c in row), default=0)
        return len(self.columns) <= 3 and longest < 48

    @property
    def numeric(self) -> list[bool]:
        """A column is set right when its cells are numbers."""
        return [
            any(row[i].kind == "number" for row in self.rows if i < len(row)) and i > 0
            for i in range(len(self.columns))
        ]


@dataclass(frozen=True, kw_only=True)
class Facts:
    items: Sequence[tuple[str, Cell]]
    type: str = "facts"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """`name` is the figure in the catalogue; the page fills in `svg`."""

    name: str
    caption: str
    alt: str
    svg: str = ""
    wide: bool = False
    type: str = "picture"


@dataclass(frozen=True, kw_only=True)
class Note:
    """`tone`: plain, warn or alarm; the tone is also a word in front, never a colour alone."""

    text: str
    tone: str = "plain"
    type: str = "note"


@dataclass(frozen=True, kw_only=True)
class Heading:
    text: str
    type: str = "heading"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two or more pictures that stand side by side where there is room."""

    pictures: Sequence[Picture]
    type: str = "pair"


@dataclass(frozen=True, kw_only=True)
class FlowChart:
    steps: Sequence[dict[str, Any]]
    """Steps that count one thing (`of`) are a chain, and add up."""
    outcomes: Sequence[dict[str, Any]]
    type: str = "flow"

    @property
    def chains(self) -> list[list[dict[str, Any]]]:
        """The steps in runs of one `of`."""
        runs: list[list[dict[str, Any]]] = []
        for step in self.steps:
            if runs and runs[-1][-1].get("of") == step.get("of"):
                runs[-1].append(step)
            else:
                runs.append([step])
        return runs


@dataclass(frozen=True, kw_only=True)
class Text:
    paragraphs: Sequence[str]
    type: str = "text"


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Long tables that a reader may close; `closed` from the start where they only go into detail."""

    summary: str
    blocks: Sequence[Any]
    type: str = "fold"
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    id: str
    title: str
    short: str
    lead: str = ""
    blocks: Sequence[Any] = field(default_factory=tuple)
