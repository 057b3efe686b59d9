"""The section on subgroups: estimates per group, and what the gaps between groups are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from elsewhere.report.page.blocks import (
    BLANK,
    Cell,
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import Specs, pictures
from elsewhere.report.page.labels import headline, in_sentence, label, leading_metrics
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.answered import answered_estimate
from elsewhere.report.result.prepare import Prepared


def subgroups(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about groups and fairness.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without groups.
    """
    groups = {v: rows for v, rows in data.part("groups").items() if isinstance(rows, dict) and rows}
    fairness = {v: e for v, e in data.part("fairness").items() if isinstance(e, dict)}
    if not groups and not fairness:
        return None
    head = headline(data.data)
    blocks: list[Any] = []
    forests = [
        replace(p, caption=f"{p.caption} (cases)")
        for p in pictures(specs, "forest-")
        if p.name not in ("forest-sites", "forest-size")
    ]
    if forests:
        blocks.append(Pair(pictures=forests))
    for variable, rows in groups.items():
        blocks.append(rows_table(variable, rows, head, first="Group"))
    if fairness:
        blocks.append(fairness_table(fairness))
        pairs = [
            [
                text(label(v)),
                text(f"{p.get('a')} against {p.get('b')}"),
                estimate({**p, "value": p.get("difference"), "undefined_reason": p.get("note")}, sign=True),
            ]
            for v, e in fairness.items()
            for p in (e.get("pairwise") or [])[:12]
            if isinstance(p, dict)
        ]
        if pairs:
            columns = ["Variable", "Groups", "Difference"]
            methods = dict.fromkeys(
                str(e["pairwise_method"]) for e in fairness.values() if e.get("pairwise_method")
            )
            note = "Intervals hold for all pairs of a variable together."
            note += f" Method: {'; '.join(methods)}." if methods else ""
            blocks.append(
                Table(name="pairs", caption="Group against group", columns=columns, rows=pairs, note=note)
            )
    lead = (
        "Subgroups are descriptive unless a claim names them. The gap between the best and the worst group "
        "is never 0, even for a fair model: compare it with the gaps that chance alone gives."
    )
    return Section(
        id="subgroups", title="Subgroups and fairness", short="Subgroups", lead=lead, blocks=blocks
    )


def rows_table(variable: str, rows: Mapping[str, Any], head: str | None, *, first: str) -> Table:
    """Make a table of groups, sites or strata.

    Args:
        variable: The grouping variable.
        rows: The rows by the name of the group.
        head: The metric that comes first; None for no preference.
        first: The heading of the first column.

    Returns:
        The table.
    """
    lost = any(isinstance(r, dict) and r.get("without_score") for r in rows.values())
    chosen = leading_metrics(rows, head, 2 if lost else 3)
    sizes = {
        key: words
        for key, words in (
            ("without_score", "Without a score"),
            ("patients", label("patients")),
            ("positives", label("positives")),
        )
        if any(isinstance(r, dict) and key in r for r in rows.values())
    }
    example = {
        m: next((r["metrics"][m] for r in rows.values() if m in (r.get("metrics") or {})), None)
        for m in chosen
    }
    columns = [first, "Cases", *sizes.values()]
    for m in chosen:
        columns.append(label(m, example[m] if isinstance(example[m], dict) else None))
        if lost and m == chosen[0]:
            columns.append(f"{columns[-1]}, answered only")
    body = []
    for name, row in rows.items():
        if not isinstance(row, dict):
            continue
        note = str(row.get("note") or "")
        entries = [(row.get("metrics") or {}).get(m) for m in chosen]
        undefined = [e for e in entries if isinstance(e, dict) and as_float(e.get("value")) is None]
        said = any(e.get("undefined_reason") == note for e in undefined)
        said = said or (note.startswith("Not estimable") and not undefined)
        cells = [text(name, sub="" if said else note), cnt(row.get("cases"))]
        cells += [cnt(row.get(key, 0 if key == "without_score" else None)) for key in sizes]
        for at, entry in enumerate(entries):
            cells.append(estimate(entry) if isinstance(entry, dict) else BLANK)
            if lost and at == 0:
                known = isinstance(entry, dict) and as_float(entry.get("answered_only")) is not None
                cells.append(estimate(answered_estimate(entry)) if known and entry else BLANK)
        body.append(cells)
    lost_note = (
        "A case without a usable score counts as the worst value: compare a low value with the one of the answered "
        "cases alone."
    )
    return Table(
        name=f"rows-{variable}",
        caption=label(variable),
        columns=columns,
        rows=body,
        note=lost_note if lost else "",
    )


def fairness_table(fairness: Mapping[str, Mapping[str, Any]]) -> Table:
    """Make the table of gaps between groups.

    Args:
        fairness: The gap of each variable, with its interval, null band and groups.

    Returns:
        The table.
    """
    rows = []
    for variable, e in fairness.items():
        gap, band = as_float(e.get("gap")), as_float(e.get("null_band_upper"))
        verdict = "" if gap is None or band is None else "beyond chance" if gap > band else "within chance"
        if isinstance(e.get("flagged"), bool):
            above = verdict == "beyond chance"
            verdict = "beyond chance" if e["flagged"] else "not beyond, by Holm" if above else verdict
        sizes = e["sizes"] if isinstance(e.get("sizes"), dict) else {}
        rows.append(
            [
                text(label(variable)),
                num(e.get("gap"), sub=verdict) if gap is not None else _no_gap(e),
                _gap_interval(e),
                num(
                    e.get("null_band_upper"),
                    sub=f"mean {number(e.get('null_mean'))}" if e.get("null_mean") else "",
                ),
                p_cell(e.get("p")),
                text(e.get("worst_group"), sub=f"best: {e['best_group']}" if e.get("best_group") else ""),
                num(e.get("variance")),
                text(", ".join(f"{g} {_plain(n)}" for g, n in sizes.items())),
                cnt(e.get("missing")),
            ]
        )
    metrics = {in_sentence(label(str(e["metric"]))) for e in fairness.values() if e.get("metric")}
    what = f" of {', '.join(sorted(metrics))}" if metrics else ""
    about = (
        "Chance: the upper 95 % of gaps when the attribute is permuted over patients; 'beyond chance' is judged for all "
        "variables together (Holm). The interval follows from all pairwise differences at once and reaches 0 where a "
        "fair model is possible. Missing values are shown, never in the gap."
    )
    return Table(
        name="fairness",
        caption=f"Largest gap{what}",
        columns=[
            "Variable",
            "Gap",
            "Its interval",
            "Chance gives up to",
            "p",
            "Worst group",
            "Variance",
            "Sizes",
            "Missing",
        ],
        rows=rows,
        note=" ".join(dict.fromkeys([about, *(str(e["note"]) for e in fairness.values() if e.get("note"))])),
    )


def _no_gap(entry: Mapping[str, Any]) -> Cell:
    return text("undefined", sub=str(entry.get("undefined_reason") or "no gap"), kind="undefined")


def _gap_interval(entry: Mapping[str, Any]) -> Any:
    """Print the interval of the gap; a group too small to have one is named."""
    lo, hi = as_float(entry.get("gap_lo")), as_float(entry.get("gap_hi"))
    if lo is None or hi is None:
        return BLANK
    without = entry.get("gap_interval_without") or []
    return text(
        f"{number(lo)} to {number(hi)}", sub=f"without {', '.join(map(str, without))}" if without else ""
    )


def _plain(value: Any) -> str:
    return cnt(value).text
