"""Cells, tables and captions that several sections share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from elsewhere.analysis.study.design import KIND_LABELS, configuration
from elsewhere.analysis.study.overall import OVERALL
from elsewhere.report.page.blocks import BLANK, Cell, estimate, text
from elsewhere.report.page.labels import in_sentence, label
from elsewhere.report.page.numbers import ABSENT, MINUS, as_float, count, number, signed
from elsewhere.scoring.task import tasks

Rows = list[dict[str, Any]]
PUBLISHED_HEAD = f"Published (ours {MINUS} published)"
SHORT = {"auroc": "auroc", "balanced_accuracy": "bacc"}
"""Metrics of the averages by the short names of their columns."""
METRIC_LABELS = {
    "combined": "Combined",
    "hausdorff_mm": "HD, mm",
    "norm_hd": "NormHD",
}
"""Shorter names than the metrics' own, for narrow columns."""
VARIABLE_LABELS = {
    "age": "Age",
    "menopausal_status": "Menopausal status",
    "breast_density": "Breast density",
    "subtype": "Subtype",
    "birads": "BI-RADS",
    "vendor": "Vendor",
    "field_strength": "Field strength, T",
    "device": "Device",
    "dataset": "Dataset",
    "site": "Site",
    "tumour_size": "Tumour size",
    "all": "All",
}


def rows_of(table: pd.DataFrame | None) -> Rows:
    """List the rows of a table; none where there is no table."""
    if table is None or table.empty:
        return []
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def metric_label(metric: str) -> str:
    """Name a metric for a narrow column."""
    return METRIC_LABELS.get(metric) or label(metric)


def metric_in_sentence(metric: str) -> str:
    """Name a metric inside a sentence."""
    return in_sentence(metric_label(metric))


def plural(number: Any, noun: str) -> str:
    """Count things: '1 dataset', '2 datasets'."""
    return f"{count(number)} {noun}" if as_float(number) == 1 else f"{count(number)} {noun}s"


def task_label(task: str) -> str:
    """Name a task in a heading."""
    return tasks.get(task).title if task in tasks else label(task)


def variable_label(variable: Any) -> str:
    """Name a variable by which patients are grouped."""
    return VARIABLE_LABELS.get(str(variable)) or label(str(variable))


def group_label(group: object) -> str:
    """Name a group of patients."""
    return str(group).replace("<=", "≤").replace("_", " ")


def kind_label(kind: Any) -> str:
    """Name a kind of scenario in a sentence."""
    return KIND_LABELS.get(str(kind), str(kind))


def positive_labels(task: str) -> tuple[str, str]:
    """Name the two classes of a task: positive, negative."""
    scheme = tasks.get(task).label_scheme if task in tasks else None
    return ("positive", "negative") if scheme is None else (scheme.classes[1], scheme.classes[0])


def configuration_cell(row: Mapping[str, Any]) -> Cell:
    """Name the model and input of a row, or the mean over all of them."""
    if row["model"] == OVERALL:
        return text("All", sub="unweighted mean")
    return text(configuration(str(row["model"]), str(row.get("input") or "")))


def with_interval(value: Any, lo: Any, hi: Any, *, sign: bool = False) -> Cell:
    """Show a value with its interval below it."""
    ends = {"value": value, "lo": as_float(lo), "hi": as_float(hi)}
    if as_float(value) is None:
        return text(ABSENT)
    return estimate(ends, sign=sign)


def published_cell(ours: Any, published: Any, *, digits: int = 3) -> Cell:
    """Show a published value, and how far ours lies from it."""
    if as_float(published) is None:
        return BLANK
    difference = (as_float(ours) or math.nan) - float(published)
    shown = signed(round(difference, 6), digits) if math.isfinite(difference) else ABSENT
    return Cell(
        text=number(published, digits),
        sub=f"({shown})",
        title=f"ours {ours!r}, published {published!r}",
        kind="number",
    )


def any_known(rows: Rows, *names: str) -> bool:
    """Whether some row has a number in one of the columns."""
    return any(as_float(row.get(name)) is not None for row in rows for name in names)


def first_rows(rows: Rows, most: int, table: str) -> tuple[Rows, str]:
    """Cut long tables: the first rows, and a sentence on where the others are."""
    if len(rows) <= most:
        return rows, ""
    return rows[:most], f" {most} of {count(len(rows))} rows are shown; tables/{table}.csv has all."


def sentence(text: Any) -> str:
    """Begin with a capital and end with a full stop."""
    said = str(text or "").strip()
    said = said[:1].upper() + said[1:]
    return said if not said or said.endswith((".", "!", "?")) else f"{said}."


def joined(names: Sequence[str]) -> str:
    """Join names by commas and 'and'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def slug(name: str) -> str:
    """Make a name fit for an id of the page or a file."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name.lower())
