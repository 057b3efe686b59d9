"""Tables of many models at two domains: verdicts, ratios and equal case mix, power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.report.page.blocks import Cell, Table, num, pct, text
from elsewhere.report.page.numbers import (
    as_float,
    count,
    full,
    full_interval,
    interval,
    number,
    signed,
)

Row = Mapping[str, Any]


def digits_of(rows: Sequence[Row]) -> int:
    """Choose how many decimals a metric is printed with.

    Args:
        rows: Rows of one metric.

    Returns:
        4 for false-positive rates, which lie near 0; 3 for others.

    Example:
        >>> digits_of([{"metric": "fpr"}])
        4
    """
    return 4 if any(row.get("metric") == "fpr" for row in rows) else 3


def difference_cell(row: Row, value: str, lo: str, hi: str, digits: int, *, sign: bool = True) -> Cell:
    """Make a cell of a difference with its interval, all with the same decimals.

    Args:
        row: A model's row.
        value: The key of the difference.
        lo: The key of the lower limit.
        hi: The key of the upper limit.
        digits: The decimals.
        sign: Whether positive numbers have a plus sign.

    Returns:
        The cell.

    Example:
        >>> difference_cell({"d": 0.1, "lo": -0.1, "hi": 0.3}, "d", "lo", "hi", 2).sub
        '[−0.10, +0.30]'
    """
    entry = {"value": row.get(value), "lo": row.get(lo), "hi": row.get(hi)}
    if as_float(entry["value"]) is None:
        return Cell(text="not estimable", kind="undefined")
    return Cell(
        text=(signed if sign else number)(entry["value"], digits),
        sub=interval(entry, digits, sign=sign),
        title=full_interval(entry),
        kind="number",
    )


def verdict_table(name: str, caption: str, rows: Sequence[Row]) -> Table:
    """Make the table of every model's verdict in one metric.

    Args:
        name: The id of the table.
        caption: Its caption.
        rows: Rows of one metric in one stratum.

    Returns:
        The table.
    """
    digits = digits_of(rows)
    body = [
        [
            text(row.get("model")),
            num(row.get("internal"), digits),
            num(row.get("external"), digits),
            difference_cell(row, "difference", "lo", "hi", digits),
            text(
                row.get("verdict"),
                sub=str(row.get("reason") or "") if row.get("non_inferior") is None else "",
            ),
            _yes(row.get("non_inferior")),
        ]
        for row in rows
    ]
    margin = as_float(rows[0].get("margin")) if rows else None
    note = (
        "" if margin is None else f"Margin {number(margin)}. Non-inferior: not worse by more than the margin."
    )
    return Table(
        name=name,
        caption=caption,
        columns=["Model", "Internal", "External", "Difference", "Verdict", "Non-inferior"],
        rows=body,
        stacked=True,
        note=f"{note} {_effective(rows)}".strip(),
    )


def _yes(value: Any) -> Cell:
    return text("" if value is None else "yes" if value else "no")


def _effective(rows: Sequence[Row]) -> str:
    pairs = []
    for side in ("internal", "external"):
        values = [v for row in rows if (v := as_float(row.get(f"{side}_effective_patients"))) is not None]
        if values:
            pairs.append(
                f"{side} {count(rows[0].get(f'{side}_patients'))} patients count as {min(values):.0f}"
            )
    return f"Patches are spread unevenly: {', '.join(pairs)}." if pairs else ""


def ratio_table(name: str, caption: str, rows: Sequence[Row]) -> Table | None:
    """Make the table of ratios of false-positive rates.

    Args:
        name: The id of the table.
        caption: Its caption.
        rows: Rows of one metric in one stratum.

    Returns:
        The table; None for a metric without ratios.
    """
    with_ratio = [row for row in rows if as_float(row.get("ratio")) is not None]
    if not with_ratio:
        return None
    body = [
        [
            text(row.get("model")),
            difference_cell(row, "ratio", "ratio_lo", "ratio_hi", 2, sign=False),
            text(row.get("ratio_verdict")),
            _yes(row.get("ratio_non_inferior")),
        ]
        for row in with_ratio
    ]
    return Table(
        name=name,
        caption=caption,
        columns=["Model", "External / internal", "Verdict", "Non-inferior"],
        rows=body,
        note=f"The margin is {number(rows[0].get('ratio_margin'), 2)} times, and its inverse. Fewer false positives are never worse.",
    )


def same_mix_table(name: str, caption: str, rows: Sequence[Row]) -> Table | None:
    """Make the table of differences at the internal mix of cases (LN-21).

    Args:
        name: The id of the table.
        caption: Its caption.
        rows: Rows of one metric over all slides.

    Returns:
        The table; None where nothing was standardised.
    """
    done = [row for row in rows if as_float(row.get("standardised_difference")) is not None]
    if not done:
        return None
    digits = digits_of(rows)
    body = [
        [
            text(row.get("model")),
            difference_cell(row, "difference", "lo", "hi", digits),
            difference_cell(row, "standardised_difference", "standardised_lo", "standardised_hi", digits),
            Cell(
                text=signed(row.get("from_case_mix"), digits),
                title=full(row.get("from_case_mix")),
                kind="number",
            ),
        ]
        for row in done
    ]
    return Table(
        name=name,
        caption=caption,
        columns=["Model", "Crude", "At the internal mix", "Due to the mix"],
        rows=body,
        stacked=True,
        note="Due to the mix: what another mix of cases at the external hospital explains, the crude difference less the one at "
        "the internal mix.",
    )


def power_table(name: str, caption: str, rows: Sequence[Row]) -> Table:
    """Make the table of what these slides could have shown.

    Args:
        name: The id of the table.
        caption: Its caption.
        rows: Rows of one metric over all slides.

    Returns:
        The table, with the bootstrap and the spread over patches.
    """
    digits = digits_of(rows)
    body = [
        [
            text(row.get("model")),
            num(row.get("smallest_detectable_drop"), digits),
            num(row.get("smallest_provable_margin"), digits),
            pct(row.get("power_at_margin"), 0),
            _yes(row.get("non_inferior_all")),
            _bootstrap(row, digits),
            num(row.get("internal_sd")),
            num(row.get("external_sd")),
        ]
        for row in rows
    ]
    return Table(
        name=name,
        caption=caption,
        columns=[
            "Model",
            "Detectable drop",
            "Provable margin",
            "Power at the margin",
            "Non-inferior, all at once",
            "Bootstrap",
            "SD internal",
            "SD external",
        ],
        rows=body,
        note="The smallest drop that would have been detected and the smallest margin that could have been proved at 80 % power; the "
        "chance of EQUIVALENT at this margin where there is no difference; whether the model is non-inferior with a limit that holds "
        "for all models at once; the percentile bootstrap, which is too narrow where a few slides hold most patches; the standard "
        "deviation over patches, as papers print it.",
    )


def _bootstrap(row: Row, digits: int) -> Cell:
    lo, hi = as_float(row.get("bootstrap_lo")), as_float(row.get("bootstrap_hi"))
    shown = "" if lo is None or hi is None else f"{signed(lo, digits)} to {signed(hi, digits)}"
    return text(shown, kind="number")
