"""The blocks of a page: the templates set them as HTML and know nothing of a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elsewhere.report.page import numbers


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table, or one value of a list of facts.

    Args:
        text: What is printed.
        title: The full precision, shown on hover; empty for none.
        sub: A second, smaller line, such as an interval; empty for none.
        kind: How the cell is set: 'text', 'number', 'word' (a verdict), 'severity', 'code', 'muted',
            'stable', 'indent' or 'undefined'.
    """

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
        value: What is printed; None and '' give a dash.
        sub: A second, smaller line.
        kind: How the cell is set: 'text', 'number', 'word', 'code', 'muted' or 'undefined'.
        title: What is shown on hover.

    Returns:
        The cell.

    Example:
        >>> text("Alder", sub="42 patients").sub
        '42 patients'
    """
    return Cell(text=numbers.ABSENT if value in (None, "") else str(value), sub=sub, kind=kind, title=title)


BLANK = Cell(text="")


def num(value: Any, digits: int = 3, *, sub: str = "") -> Cell:
    """Make a cell of a number.

    Args:
        value: The number; None for a dash.
        digits: How many decimals a value below 10 has.
        sub: A second, smaller line.

    Returns:
        The cell; its title has every digit.

    Example:
        >>> num(0.84217).text
        '0.842'
    """
    return Cell(text=numbers.number(value, digits), title=numbers.full(value), sub=sub, kind="number")


def cnt(value: Any, *, sub: str = "") -> Cell:
    """Make a cell of a count; a suppressed count, which is text, is printed unchanged.

    Args:
        value: The count, or the text in its place.
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
        value: The share, in [0, 1].
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
    """Make a cell of an estimate: the value, and its interval below it.

    Args:
        entry: A mapping with `value`, `lo` and `hi`, or a plain number.
        sign: Whether a positive value is printed with a plus sign.

    Returns:
        The cell; 'not estimable' with the reason where the value is undefined, never an empty cell.

    Example:
        >>> cell = estimate({"value": 0.842, "lo": 0.801, "hi": 0.876})
        >>> cell.text, cell.sub
        ('0.842', '[0.801, 0.876]')
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
    """A table of a section.

    Args:
        name: The id of the table on the page, unique there.
        caption: A noun phrase above the table.
        columns: The headings.
        rows: The cells, row by row, as many per row as there are columns.
        note: A note below the table; empty for none.
        type: The kind of block, by which the template finds how it is set.
        heat: Shades of the cells, of the shape of `rows`. No template draws them.
        stacked: Whether an interval is printed below its value: for tables of many columns.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    type: str = "table"
    heat: Sequence[Sequence[float]] | None = None
    stacked: bool = False

    @property
    def few(self) -> bool:
        """Whether the table has few columns of short text, which are not stretched over the whole width."""
        longest = max((len(c.text) + len(c.sub) for row in self.rows for c in row), default=0)
        return len(self.columns) <= 3 and longest < 48

    @property
    def numeric(self) -> list[bool]:
        """Which columns are aligned right, because a cell of theirs is a number; never the first."""
        return [
            any(row[i].kind == "number" for row in self.rows if i < len(row)) and i > 0
            for i in range(len(self.columns))
        ]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A list of names and values.

    Args:
        items: The names and their values.
        type: The kind of block, by which the template finds how it is set.
    """

    items: Sequence[tuple[str, Cell]]
    type: str = "facts"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The position of a figure on the page.

    Args:
        name: The name of the figure in the catalogue of the page.
        caption: The line below it.
        alt: What the figure shows, in words, for a reader who does not see it.
        svg: The drawn figure; empty until the page fills it in.
        wide: Whether it takes the whole width.
        type: The kind of block, by which the template finds how it is set.
    """

    name: str
    caption: str
    alt: str
    svg: str = ""
    wide: bool = False
    type: str = "picture"


@dataclass(frozen=True, kw_only=True)
class Note:
    """A remark; its tone is also a word in front, never a colour alone.

    Args:
        text: One or more sentences.
        tone: 'plain', 'warn' or 'alarm'.
        type: The kind of block, by which the template finds how it is set.
    """

    text: str
    tone: str = "plain"
    type: str = "note"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading inside a section.

    Args:
        text: A noun phrase.
        type: The kind of block, by which the template finds how it is set.
    """

    text: str
    type: str = "heading"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two or more pictures, set side by side where there is room.

    Args:
        pictures: The pictures.
        type: The kind of block, by which the template finds how it is set.
    """

    pictures: Sequence[Picture]
    type: str = "pair"


@dataclass(frozen=True, kw_only=True)
class FlowChart:
    """A flow of cases, from those that were read to those that were scored.

    Args:
        steps: The steps, each with its count. Steps that count the same thing (`of`) are a chain and add up.
        outcomes: What became of the cases at the end, each with its count.
        type: The kind of block, by which the template finds how it is set.
    """

    steps: Sequence[dict[str, Any]]
    outcomes: Sequence[dict[str, Any]]
    type: str = "flow"

    @property
    def chains(self) -> list[list[dict[str, Any]]]:
        """The steps in runs of the same `of`."""
        runs: list[list[dict[str, Any]]] = []
        for step in self.steps:
            if runs and runs[-1][-1].get("of") == step.get("of"):
                runs[-1].append(step)
            else:
                runs.append([step])
        return runs


@dataclass(frozen=True, kw_only=True)
class Text:
    """Paragraphs of prose.

    Args:
        paragraphs: The paragraphs.
        type: The kind of block, by which the template finds how it is set.
    """

    paragraphs: Sequence[str]
    type: str = "text"


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Blocks that a reader may open and close, such as long tables.

    Args:
        summary: The line that stays visible.
        blocks: The blocks inside.
        type: The kind of block, by which the template finds how it is set.
        closed: Whether it is closed at first, because it only goes into detail.
    """

    summary: str
    blocks: Sequence[Any]
    type: str = "fold"
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page.

    Args:
        id: The anchor of the section, unique on the page.
        title: A noun phrase.
        short: The title in the table of contents.
        lead: One or two sentences below the title; empty for none.
        blocks: The content, from top to bottom.
    """

    id: str
    title: str
    short: str
    lead: str = ""
    blocks: Sequence[Any] = field(default_factory=tuple)
