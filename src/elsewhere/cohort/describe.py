"""What is in a cohort: counts by dataset, site and class, and how full its attributes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from elsewhere.cohort.groups import count_distinct
from elsewhere.cohort.table import FILE_COLUMNS, LEVELS, Cohort

TARGET_COLUMNS = ("label", "pcr", "stage", "patient_stage", "class")
_MAX_LEVELS = 12


def _as_label(series: pd.Series) -> pd.Series:
    """Text for a table: 1.0 reads as 1, since a column of whole numbers with gaps is stored as floats."""
    if pd.api.types.is_float_dtype(series.dtype):
        return series.map(lambda value: f"{value:g}", na_action="ignore").astype("str")
    return series.astype("str")


def _counts(frame: pd.DataFrame, column: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, rows in frame.groupby(_as_label(frame[column]).fillna("(missing)"), sort=True):
        found[str(name)] = {
            "cases": len(rows),
            "patients": count_distinct(rows, ("dataset", "patient_id")),
        }
    return found


def _attribute(series: pd.Series) -> dict[str, Any]:
    present = series.dropna()
    entry: dict[str, Any] = {
        "known": len(present),
        "missing": int(series.isna().sum()),
        "distinct": int(present.nunique()),
    }
    is_number = pd.api.types.is_numeric_dtype(series.dtype) and not pd.api.types.is_bool_dtype(series.dtype)
    if is_number and entry["distinct"] > _MAX_LEVELS:
        quantiles = present.quantile([0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
        entry |= {
            "kind": "number",
            "mean": float(present.mean()),
            **dict(zip(("min", "q1", "median", "q3", "max"), quantiles, strict=True)),
        }
    else:
        top = _as_label(present).value_counts()
        entry |= {
            "kind": "category",
            "levels": {str(level): int(n) for level, n in top.head(_MAX_LEVELS).items()},
        }
        if len(top) > _MAX_LEVELS:
            entry["levels_not_shown"] = len(top) - _MAX_LEVELS
    return entry


def describe(cohort: Cohort) -> dict[str, Any]:
    """Count what is in a cohort, by dataset, site, class and attribute, as plain data.

    `describe_lines` makes it printable.

    Args:
        cohort: The cohort.

    Returns:
        `hash`, `reader`, `counts`, `id_grades`, `datasets`, `sites`, `classes` (by target column),
        `attributes` (of numbers their quartiles, of categories their most frequent levels) and `warnings`.

    Example:
        >>> table = pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "p"], "label": [0, 1]})
        >>> describe(Cohort.from_frame(table))["classes"]
        {'label': {'0': {'cases': 1, 'patients': 1}, '1': {'cases': 1, 'patients': 1}}}
    """
    cases = cohort.cases
    targets = [name for name in TARGET_COLUMNS if name in cases.columns]
    skip = {*LEVELS, *FILE_COLUMNS, "dataset", "site"}
    return {
        "hash": cohort.hash,
        "reader": cohort.reader,
        "counts": cohort.counts,
        "id_grades": {
            name: {"grade": grade.grade, "why": grade.why} for name, grade in cohort.id_grades.items()
        },
        "datasets": _counts(cases, "dataset"),
        "sites": _counts(cases, "site"),
        "classes": {name: _counts(cases, name) for name in targets if cases[name].nunique() <= 20},
        "attributes": {
            str(name): _attribute(cases[name])
            for name in cases.columns
            if name not in skip and not str(name).endswith(("_path", "_file"))
        },
        "warnings": list(cohort.warnings),
    }


def describe_lines(told: dict[str, Any]) -> Iterator[str]:
    """Print a description as plain lines, for a pipe or a log.

    Args:
        told: What `describe` returned.

    Yields:
        One line per dataset, site and class, then one per attribute.

    Example:
        >>> table = pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "p"], "age": [50, 61]})
        >>> list(describe_lines(describe(Cohort.from_frame(table))))[0]
        'dataset cohort: 2 cases of 1 patients'
    """
    for title, part in (("dataset", told["datasets"]), ("site", told["sites"]), *told["classes"].items()):
        for name, count in part.items():
            yield f"{title} {name}: {count['cases']} cases of {count['patients']} patients"
    for name, entry in told["attributes"].items():
        if name not in told["classes"]:
            missing = f", {entry['missing']} missing" if entry["missing"] else ""
            yield f"{name}: {_short(entry)}{missing}"


def _short(entry: dict[str, Any]) -> str:
    if entry["kind"] == "number":
        return f"median {entry['median']:g} ({entry['min']:g} to {entry['max']:g})"
    shown = ", ".join(f"{level[:24]} {n}" for level, n in list(entry["levels"].items())[:5])
    rest = entry["distinct"] - min(5, len(entry["levels"]))
    return shown + (f" and {rest} more" if rest > 0 else "")
