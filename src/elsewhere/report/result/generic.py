"""Show any part of a summary as facts and tables, so that what a task or a plug-in adds is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere import privacy
from elsewhere.report.page.blocks import Cell, Facts, Heading, Note, Table, cnt, estimate, num, p_cell, text
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, count

MOST_ROWS = 60
MOST_COLUMNS = 14
MOST_WORDS = 24
_COUNTS = ("cases", "patients", "positives", "negatives", "n")
_SKIP = ("rows", "label", "higher_is_better", "bounds")


def generic_blocks(value: Any, name: str, *, depth: int = 0) -> list[Any]:
    """Show a part of a summary that no section knows.

    Args:
        value: The part: a scalar, a mapping or a list.
        name: Its key in the summary.
        depth: How many headings the part lies under.

    Returns:
        Scalars as facts, estimates with intervals, rows as tables, nested parts under a heading.
    """
    if isinstance(value, list):
        return _list(value, name)
    if not isinstance(value, Mapping):
        return [Facts(items=[(label(name), cell(name, value))])] if value not in (None, "") else []
    out: list[Any] = []
    facts = [(label(k), cell(k, v)) for k, v in value.items() if _is_simple(k, v)]
    if facts:
        out.append(Facts(items=facts))
    for key, item in value.items():
        if _is_simple(key, item) or _hidden(key) or item in (None, "", [], {}):
            continue
        if key in ("note", "notes", "reason") and isinstance(item, str):
            out.append(Note(text=item))
        elif isinstance(item, Mapping) and _is_rows(item):
            out.append(_rows(item, key))
        elif isinstance(item, Mapping) and all(not isinstance(v, Mapping | list) for v in item.values()):
            out.append(_rows({str(k).replace("_", " "): {"value": v} for k, v in item.items()}, key))
        elif isinstance(item, list):
            out += _list(item, key)
        elif isinstance(item, Mapping) and depth < 2:
            out += [Heading(text=label(key)), *generic_blocks(item, key, depth=depth + 1)]
    if out and not facts and depth == 0 and isinstance(value, Mapping) and _is_rows(value):
        return [_rows(value, name)]
    return out


def cell(key: str, value: Any) -> Cell:
    """Print one value in the way that its key suggests.

    Args:
        key: The key of the value, such as 'p' or 'cases'.
        value: The value.

    Returns:
        The cell.
    """
    if isinstance(value, Mapping):
        return estimate(dict(value))
    if isinstance(value, list):
        shown = ", ".join(_word(v) for v in value[:MOST_WORDS])
        return text(
            shown + (f" and {count(len(value) - MOST_WORDS)} more" if len(value) > MOST_WORDS else "")
        )
    if key in _COUNTS:
        return cnt(privacy.suppress(value))
    if key == "p" or key.startswith("p_"):
        return p_cell(value)
    if isinstance(value, bool):
        return text("yes" if value else "no")
    if as_float(value) is not None:
        return num(value)
    return text(value)


def _word(value: Any) -> str:
    return num(value).text if as_float(value) is not None else str(value)


def _hidden(key: str) -> bool:
    return key in _SKIP or key.endswith(("_id", "_ids")) or key in ("id", "ids")


def _is_simple(key: str, value: Any) -> bool:
    if _hidden(key) or key in ("note", "notes") or value is None or value == "":
        return False
    if isinstance(value, Mapping):
        return "value" in value and not isinstance(value["value"], Mapping | list)
    if isinstance(value, list):
        return 0 < len(value) <= MOST_WORDS and all(not isinstance(v, Mapping | list) for v in value)
    return True


def _is_rows(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(isinstance(v, Mapping) and "x" not in v for v in value.values())


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if _hidden(key) or value in ([], {}):
            continue
        if isinstance(value, Mapping) and "value" not in value:
            for inner, deep in value.items():
                if not isinstance(deep, list):
                    flat[f"{key} {inner}" if key != "metrics" else inner] = deep
        elif not (isinstance(value, list) and any(isinstance(v, Mapping | list) for v in value)):
            flat[key] = value
    return flat


def _rows(value: Mapping[str, Any], name: str) -> Table:
    flat = {str(key): _flatten(row) for key, row in value.items()}
    return _table([{"": key, **row} for key, row in flat.items()], name)


def _list(value: list[Any], name: str) -> list[Any]:
    rows = [row for row in value if isinstance(row, Mapping)]
    if rows:
        return [_table([_flatten(row) for row in rows], name)]
    words = [v for v in value if not isinstance(v, list)]
    return [Facts(items=[(label(name), cell(name, words))])] if words else []


def _table(rows: list[dict[str, Any]], name: str) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    notes = []
    if len(columns) > MOST_COLUMNS:
        notes.append(f"{len(columns) - MOST_COLUMNS} further columns are in summary.json.")
        columns = columns[:MOST_COLUMNS]
    if len(rows) > MOST_ROWS:
        notes.append(f"{MOST_ROWS} of {count(len(rows))} rows.")
    return Table(
        name=name,
        caption=label(name),
        columns=[label(c) if c else "" for c in columns],
        rows=[
            [text(row[c]) if c == "" else cell(c, row.get(c)) for c in columns] for row in rows[:MOST_ROWS]
        ],
        note=" ".join(notes),
    )
