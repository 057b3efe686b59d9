"""Small cells: a count of one to four patients could identify somebody, and so could numbers that imply it.

Pages, tables, leaderboards and studies withhold by these rules alone, so that a number withheld in one place
cannot be read in another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.untrusted import as_float

SMALLEST_CELL = 5
SUPPRESSED = "<5"
ROUGHLY = 10


def suppress(value: Any) -> Any:
    """Replace a count of one to four by `<5`; a count of 0 concerns nobody, and stays 0.

    Args:
        value: A count, or anything else, which stays as it is.

    Returns:
        The value as it may be shown.

    Example:
        >>> suppress(3), suppress(0), suppress(12)
        ('<5', 0, 12)
    """
    number = as_float(value)
    return SUPPRESSED if number is not None and 0 < number < SMALLEST_CELL else value


def suppress_counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Suppress the small cells of one partition; where only one is small, round the next to tens.

    Otherwise the small cell would be the total less the others.

    Args:
        counts: The cells of one partition by name.

    Returns:
        The cells as they may be shown.

    Example:
        >>> suppress_counts({"A": 3, "B": 24, "C": 90})
        {'A': '<5', 'B': '≈20', 'C': 90}
    """
    shown = {name: suppress(value) for name, value in counts.items()}
    small = [name for name, value in shown.items() if value == SUPPRESSED]
    open_cells = {
        n: as_float(v) or 0.0 for n, v in shown.items() if n not in small and (as_float(v) or 0) > 0
    }
    if len(small) == 1 and open_cells:
        nearest = min(open_cells, key=lambda name: open_cells[name])
        shown[nearest] = roughly(open_cells[nearest])
    return shown


def roughly(value: Any) -> Any:
    """Round to the nearest ten, and mark the number as rounded.

    Args:
        value: A count; a value that is no number stays as it is.

    Returns:
        Text such as `≈20`, or `<10`.

    Example:
        >>> roughly(24), roughly(3)
        ('≈20', '<10')
    """
    x = as_float(value)
    if x is None:
        return value
    tens = ROUGHLY * round(x / ROUGHLY)
    return f"≈{tens}" if tens else f"<{ROUGHLY}"


def is_withheld(value: Any) -> bool:
    """Check whether `suppress_counts` suppressed or rounded a cell.

    Args:
        value: A cell of `suppress_counts`.

    Returns:
        True where the cell is text.

    Example:
        >>> is_withheld("<5"), is_withheld(12)
        (True, False)
    """
    return isinstance(value, str)


def patients_of_row(row: Mapping[str, Any]) -> float | None:
    """Count the people behind a row of groups or sites: its patients where known, else its cases.

    Args:
        row: A row with `patients`, `cases` or both.

    Returns:
        The number, or None where neither is known.

    Example:
        >>> patients_of_row({"patients": 7, "cases": 9}), patients_of_row({"cases": 9})
        (7.0, 9.0)
    """
    patients = as_float(row.get("patients"))
    return patients if patients is not None else as_float(row.get("cases"))


def suppress_rows(rows: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Withhold the sizes and the metrics of rows that stand for one to four people.

    Args:
        rows: Rows of one partition by name (groups, sites, strata), each with its sizes and `metrics`.

    Returns:
        The rows as they may be shown, and how many were withheld.

    Example:
        >>> shown, withheld = suppress_rows({"A": {"cases": 3}, "B": {"cases": 24}, "C": {"cases": 90}})
        >>> {name: row["cases"] for name, row in shown.items()}, withheld
        ({'A': '<5', 'B': '≈20', 'C': 90}, 2)
    """
    entries = {name: entry for name, entry in rows.items() if isinstance(entry, dict)}
    shown = suppress_counts({name: patients_of_row(entry) for name, entry in entries.items()})
    safe: dict[str, Any] = {}
    withheld = 0
    for name, entry in entries.items():
        if is_withheld(shown[name]):
            safe[name] = _withhold(entry, shown[name])
            withheld += 1
        else:
            safe[name] = _guard_positives(entry)
        if not is_withheld(safe[name].get("without_score")) and "without_score" in entry:
            safe[name]["without_score"] = suppress(entry["without_score"])
    return safe, withheld


def _withhold(entry: dict[str, Any], shown: Any) -> dict[str, Any]:
    """Withhold a row of one to four people: its sizes become `<5`, and its values are those people's own."""
    kept = dict(entry)
    for key in ("cases", "patients", "positives", "negatives", "without_score"):
        if key in kept:
            kept[key] = SUPPRESSED if shown == SUPPRESSED else roughly(kept[key])
    if shown == SUPPRESSED:
        none = {"value": None, "lo": None, "hi": None, "undefined_reason": "fewer than 5 patients: not shown"}
        kept["metrics"] = {name: {"label": m.get("label"), **none} for name, m in _metrics_of(entry).items()}
        kept["note"] = "fewer than 5 patients: not shown"
    return kept


def _metrics_of(entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    metrics = entry.get("metrics")
    return {k: v for k, v in metrics.items() if isinstance(v, dict)} if isinstance(metrics, dict) else {}


def _guard_positives(entry: dict[str, Any]) -> dict[str, Any]:
    """Withhold one to four positives, or all but one to four: they would show those people's outcome."""
    positives, cases = as_float(entry.get("positives")), as_float(entry.get("cases"))
    if positives is None:
        return entry
    if 0 < positives < SMALLEST_CELL:
        return {**entry, "positives": SUPPRESSED}
    if cases is not None and 0 < cases - positives < SMALLEST_CELL:
        return {**entry, "positives": f">{int(cases) - SMALLEST_CELL}"}
    return entry
