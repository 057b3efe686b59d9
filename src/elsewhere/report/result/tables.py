"""Every table of the report as a DataFrame, as csv and as LaTeX, at full precision in the csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.files import staged_files
from elsewhere.privacy import Redactor
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.many_models import generalise_rows
from elsewhere.report.result.prepare import Prepared, prepare
from elsewhere.report.result.slide_masks import recall_rows
from elsewhere.untrusted import file_name

_ESTIMATE = ("value", "lo", "hi", "method", "undefined_reason")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "—": "---",
    "–": "--",
    "\u202f": r"\,",
    "\n": " ",
}


def summary_tables(
    summary: Mapping[str, Any] | Prepared, *, redact: Iterable[Any] | Redactor = ()
) -> dict[str, pd.DataFrame]:
    """Make every table of a summary; small cells and ids are taken out as on the page.

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.
        redact: Ids of all inputs, which are taken out of every text that names one.

    Returns:
        The tables by name; one without rows is left out.

    Example:
        >>> summary_tables({"task": "response", "counts": {"cases": 40}})["counts"]["n"].tolist()
        [40]
    """
    from elsewhere.report.result.checklist import checklist_rows

    data = prepare(summary, redact=redact)
    rows: dict[str, list[dict[str, Any]]] = {
        "metrics": list(_metrics(data)),
        "claims": [_claim(c) for c in data.part("verdict").get("claims") or [] if isinstance(c, dict)],
        "counts": [
            {"count": key, "n": value} for key, value in data.part("counts").items() if not _nested(value)
        ],
        "flow": [row for row in data.rows("flow") if isinstance(row, dict)],
        "groups": list(_groups(data)),
        "fairness": list(_fairness(data)),
        "fairness_pairs": list(_pairs(data)),
        "sites": list(_rows_of("site", data.part("sites"))),
        "operating_point": list(_operating_point(data)),
        "operating_point_restoring": _dicts(data.part("operating_point").get("restoring")),
        "thresholds": list(_thresholds(data)),
        "carried_threshold": list(_rows_of("part", data.part("carried_threshold").get("rows") or {})),
        "calibration": list(_calibration(data)),
        "case_mix": list(_case_mix(data)),
        "size_strata": list(_rows_of("stratum", _strata(data))),
        "difficulty": _difficulty(data),
        "comparison": [{"metric": k, **_flat(e)} for k, e in _items(data.part("comparison").get("metrics"))],
        "ranking": _dicts(data.part("ranking").get("table")),
        "rank_frequencies": list(_frequencies(data)),
        "fairness_weight": list(_weights(data)),
        "clinical": list(_estimates(data.part("clinical"))),
        "worst_cases": [row for row in data.rows("worst_cases") if isinstance(row, dict)],
        "audit": [{k: v for k, v in row.items() if k != "rows"} for row in _dicts(data.data.get("audit"))],
        "provenance": [{"item": k, "value": v} for k, v in data.part("provenance").items() if not _nested(v)],
        "checklist": [dict(row) for row in checklist_rows(data)],
    }
    rows |= generalise_rows(data.part("generalise"))
    rows["lesion_recall"] = recall_rows(data)
    for name, entry in _items(data.part("confusion")):
        if entry.get("labels") and isinstance(entry.get("matrix"), list):
            names = [str(item) for item in entry["labels"]]
            rows[f"confusion_{name}"] = [
                {"truth": truth, **dict(zip(names, line, strict=False))}
                for truth, line in zip(names, entry["matrix"], strict=False)
            ]
    return {name: pd.DataFrame(table) for name, table in rows.items() if table}


def write_tables(
    summary: Mapping[str, Any] | Prepared, directory: str | Path, *, replace: bool = False
) -> list[Path]:
    """Write every table as csv and LaTeX, all or none.

    Files of these names that are there already are replaced only with `replace`. The name of a table may
    come from the summary; its file's name is made safe (`untrusted.file_name`).

    Args:
        summary: The content of summary.json, or the same as `prepare` returned it.
        directory: The folder to write to.
        replace: Whether files that exist may be replaced.

    Returns:
        The paths that were written.

    Example:
        Write the tables of a result::

            write_tables(result.to_dict(), "tables")
    """
    folder = Path(directory)
    written: list[Path] = []
    with staged_files(folder, replace=replace) as staged:
        for name, table in summary_tables(summary).items():
            safe = file_name(name)
            csv, tex = f"{safe}.csv", f"{safe}.tex"
            table.to_csv(staged / csv, index=False)
            digits = 4 if name.startswith("generalise_") else 3
            text = to_latex(table, caption=label(name), key=f"tab:{safe}", digits=digits)
            (staged / tex).write_text(text, encoding="utf-8")
            written += [folder / csv, folder / tex]
    return written


def escape_latex(text: Any) -> str:
    """Escape text for LaTeX.

    Args:
        text: The text.

    Returns:
        The text with every character that LaTeX reads as a command escaped.
    """
    return "".join(_LATEX.get(character, character) for character in str(text))


def to_latex(table: pd.DataFrame, *, caption: str = "", key: str = "", digits: int = 3) -> str:
    """Set a table in LaTeX.

    Args:
        table: The table.
        caption: The caption; empty for none.
        key: The name in its label; empty for no label.
        digits: How many decimals a value below 10 has.

    Returns:
        A booktabs table: numbers are aligned right and rounded as on the page, and all text is escaped.
    """
    numeric = [bool(table[c].map(lambda v: as_float(v) is not None).any()) for c in table.columns]
    lines = [r"\begin{table}", r"\centering"]
    if caption:
        lines.append(rf"\caption{{{escape_latex(caption)}}}")
    if key:
        lines.append(rf"\label{{{key}}}")
    lines += [
        rf"\begin{{tabular}}{{{''.join('r' if n else 'l' for n in numeric)}}}",
        r"\toprule",
        " & ".join(escape_latex(label(str(c))) for c in table.columns) + r" \\",
        r"\midrule",
    ]
    for row in table.itertuples(index=False, name=None):
        lines.append(" & ".join(_latex_cell(value, digits) for value in row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_cell(value: Any, digits: int) -> str:
    if isinstance(value, list | tuple):
        return escape_latex(", ".join(str(v) for v in value))
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return "---"
    return escape_latex(
        number(value, digits) if as_float(value) is not None or isinstance(value, bool) else value
    )


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    """Make the row of a claim; its verdict on the answered cases alone has columns of its own."""
    again = claim.get("answered_only")
    row = {key: value for key, value in claim.items() if key != "answered_only"}
    if isinstance(again, dict):
        row |= {f"answered_only_{key}": value for key, value in again.items()}
    return row


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _items(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield from ((str(k), v) for k, v in value.items() if isinstance(v, dict))


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not _nested(v)}


def _metrics(data: Prepared) -> Iterator[dict[str, Any]]:
    for name, entry in _items(data.part("metrics")):
        yield {
            "metric": name,
            "label": label(name, entry),
            **{key: entry.get(key) for key in ("value", "lo", "hi", "method", "defined", "undefined")},
            "answered_only": entry.get("answered_only"),
            "undefined_reason": entry.get("undefined_reason"),
        }


def _rows_of(kind: str, rows: Mapping[str, Any], **first: Any) -> Iterator[dict[str, Any]]:
    for name, row in _items(rows):
        sizes: dict[str, Any] = {
            key: row.get(key) for key in ("cases", "patients", "positives", "without_score") if key in row
        }
        metrics = list(_items(row.get("metrics")))
        if not metrics:
            yield {**first, kind: name, **sizes, "note": row.get("note")}
        for metric, entry in metrics:
            estimate = {key: entry.get(key) for key in _ESTIMATE}
            if "answered_only" in entry:
                estimate["answered_only"] = entry["answered_only"]
            yield {**first, kind: name, **sizes, "metric": metric, **estimate, "note": row.get("note")}


def _groups(data: Prepared) -> Iterator[dict[str, Any]]:
    for variable, rows in _items(data.part("groups")):
        yield from _rows_of("group", rows, variable=variable)


def _fairness(data: Prepared) -> Iterator[dict[str, Any]]:
    for variable, entry in _items(data.part("fairness")):
        yield {"variable": variable, **_flat(entry)}


def _pairs(data: Prepared) -> Iterator[dict[str, Any]]:
    for variable, entry in _items(data.part("fairness")):
        for pair in _dicts(entry.get("pairwise")):
            yield {"variable": variable, **_flat(pair)}


def _estimates(part: Mapping[str, Any], **first: Any) -> Iterator[dict[str, Any]]:
    for name, entry in part.items():
        if isinstance(entry, dict) and "value" in entry:
            yield {**first, "item": name, **{key: entry.get(key) for key in _ESTIMATE}}
        elif not _nested(entry):
            yield {**first, "item": name, "value": entry}


def _operating_point(data: Prepared) -> Iterator[dict[str, Any]]:
    part = data.part("operating_point")
    for side in ("here", "reference"):
        if isinstance(part.get(side), dict):
            yield from _estimates(part[side], where=side)
    yield from _estimates({k: v for k, v in part.items() if k not in ("here", "reference")}, where="")


def _thresholds(data: Prepared) -> Iterator[dict[str, Any]]:
    for point in _dicts(data.part("thresholds").get("points")):
        at = {"volumes": point.get("volumes"), "rate": point.get("rate")}
        if isinstance(point.get("metrics"), dict):
            yield from _estimates(point["metrics"], **at)


def _calibration(data: Prepared) -> Iterator[dict[str, Any]]:
    part = data.part("calibration")
    for side in ("before", "after"):
        if isinstance(part.get(side), dict):
            yield from _estimates(part[side], when=side)
    yield from _estimates({k: v for k, v in part.items() if k not in ("before", "after")}, when="")


def _case_mix(data: Prepared) -> Iterator[dict[str, Any]]:
    for variable, entry in _items(data.part("case_mix")):
        flat = dict(_flat(entry))
        for side in ("reference", "here"):
            if isinstance(entry.get(side), dict):
                flat.update({f"{side}_{k}": v for k, v in _flat(entry[side]).items()})
        levels = list(_items(entry.get("levels")))
        if not levels:
            yield {"variable": variable, "level": "", **flat}
        for level, counts in levels:
            yield {"variable": variable, "level": level, **_flat(counts), **flat}


def _strata(data: Prepared) -> dict[str, Any]:
    part = data.part("size_strata")
    inner = part.get("strata")
    rows = inner if isinstance(inner, dict) else part
    return {k: v for k, v in rows.items() if isinstance(v, dict) and "metrics" in v}


def _difficulty(data: Prepared) -> list[dict[str, Any]]:
    detected = data.part("difficulty").get("detected_by")
    return (
        [{"algorithms": k, "lesions": n} for k, n in detected.items()] if isinstance(detected, dict) else []
    )


def _frequencies(data: Prepared) -> Iterator[dict[str, Any]]:
    frequencies = data.part("ranking").get("frequencies")
    if isinstance(frequencies, dict):
        for model, shares in frequencies.items():
            if isinstance(shares, list):
                yield {"model": model, **{f"rank_{i + 1}": share for i, share in enumerate(shares)}}


def _weights(data: Prepared) -> Iterator[dict[str, Any]]:
    part = data.part("ranking").get("fairness_weight")
    if (
        isinstance(part, dict)
        and isinstance(part.get("weights"), list)
        and isinstance(part.get("ranks"), dict)
    ):
        for i, weight in enumerate(part["weights"]):
            ranks = {m: r[i] for m, r in part["ranks"].items() if isinstance(r, list) and i < len(r)}
            yield {"fairness_weight": weight, **ranks}
