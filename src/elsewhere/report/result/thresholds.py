"""Sections about thresholds of a detector: at each rate of false positives, and carried to another hospital."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import Cell, Facts, Note, Section, Table, cnt, estimate, text
from elsewhere.report.page.figures import Specs
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.prepare import Prepared

LEVELS = ("lesion", "breast", "patient")
_TITLES = {"lesion": "Lesions in volumes", "breast": "Breasts (any view)", "patient": "Patients"}
_UNITS = {"lesion": "lesions in volumes", "breast": "breasts or findings", "patient": "patients"}


def thresholds(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the thresholds at each rate of false positives, with three levels of truth.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None for a task without boxes.
    """
    part = data.part("thresholds")
    points = [p for p in _list(part.get("points")) if isinstance(p, dict)]
    if not points:
        return None
    units = part.get("units")
    rows = []
    for point in points:
        metrics = _mapping(point.get("metrics"))
        rows.append(
            [
                text(f"at most {_rate(point.get('rate'))}", sub=str(point.get("volumes") or "")),
                _threshold(_mapping(metrics.get("threshold"))),
                *(estimate(metrics.get(level, {})) for level in LEVELS),
            ]
        )
    lead = ""
    if isinstance(units, dict):
        counts = ", ".join(f"{number(units.get(level))} {_UNITS[level]}" for level in LEVELS)
        lead = f"Sensitivity is counted three times: over {counts}."
    table = Table(
        name="thresholds",
        caption="Thresholds and what they find",
        columns=["False positives per volume", "Threshold (score)", *(_TITLES[level] for level in LEVELS)],
        rows=rows,
        note=str(part.get("note") or ""),
        stacked=True,
    )
    blocks: list[Any] = [table, *_warnings(part)]
    return Section(
        id="thresholds", title="Thresholds and levels of truth", short="Thresholds", lead=lead, blocks=blocks
    )


def carried_threshold(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the threshold that one hospital set and the others use.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where none was carried over.
    """
    part = data.part("carried_threshold")
    rows = {name: row for name, row in _mapping(part.get("rows")).items() if isinstance(row, dict)}
    if not rows:
        return None
    home, rate = str(part.get("reference") or ""), part.get("rate")
    facts = [
        ("Set at", text(home)),
        (
            "For",
            text(f"at most {_rate(rate)} false positive{'' if as_float(rate) == 1 else 's'} per volume"),
        ),
        ("Threshold (score)", _threshold(_mapping(part.get("threshold")))),
    ]
    body, changes = [], []
    for name, row in rows.items():
        metrics = _mapping(row.get("metrics"))
        body.append(
            [
                text(name, sub="set here" if name == home else ""),
                cnt(row.get("cases"), sub="volumes"),
                estimate(metrics.get("false_positives", {})),
                *(estimate(metrics.get(level, {})) for level in LEVELS),
            ]
        )
        words = _mapping(row.get("words"))
        if name != home and words:
            changes.append(
                [
                    text(name),
                    estimate(metrics.get("false_positives_difference", {}), sign=True),
                    estimate(metrics.get("false_positives_ratio", {})),
                    text(words.get("false_positives")),
                    estimate(metrics.get("lesion_difference", {}), sign=True),
                    text(words.get("sensitivity")),
                ]
            )
    blocks: list[Any] = [
        Facts(items=facts),
        Table(
            name="carried-threshold",
            caption="The same threshold everywhere",
            columns=[
                "Where",
                "Volumes",
                "False positives per volume",
                *(f"Sensitivity: {_TITLES[level].lower()}" for level in LEVELS),
            ],
            rows=body,
            note=str(part.get("note") or ""),
            stacked=True,
        ),
    ]
    if changes:
        blocks.append(
            Table(
                name="carried-threshold-changes",
                caption=f"Compared with {home}",
                columns=[
                    "Where",
                    "False positives: difference",
                    "Ratio",
                    "In a word",
                    "Sensitivity: difference",
                    "In a word",
                ],
                rows=changes,
                note="Differences and ratios are of the same resamples of patients, in each of which the threshold is set anew. "
                "A word is given where the whole interval lies on one side; no margin was declared, so it is no verdict.",
                stacked=True,
            )
        )
    blocks += _warnings(part)
    sentences = [str(_mapping(row.get("words")).get("sentence") or "") for row in rows.values()]
    lead = " ".join(sentence for sentence in sentences[:4] if sentence)
    return Section(
        id="carried-threshold",
        title="The threshold carried over",
        short="Carried threshold",
        lead=lead,
        blocks=blocks,
    )


def _rate(value: Any) -> str:
    rate = as_float(value)
    return "?" if rate is None else f"{rate:g}"


def _threshold(entry: Mapping[str, Any]) -> Cell:
    """A threshold with four significant digits: scores may be small, and the number is there to be used."""
    value = as_float(entry.get("value"))
    if value is None:
        return estimate(entry)
    lo, hi = as_float(entry.get("lo")), as_float(entry.get("hi"))
    ends = "" if lo is None or hi is None else f"[{lo:.4g}, {hi:.4g}]"
    return Cell(text=f"{value:.4g}", sub=ends, kind="number", title=f"{value!r} {ends}".strip())


def _warnings(part: Mapping[str, Any]) -> list[Note]:
    return [Note(text=str(w), tone="warn") for w in _list(part.get("warnings"))]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
