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
    "mean_sensitivity_1_to_4": "Mean sensitivity at 1 to 4 FP",
    "sensitivity_at_2_all": "Sensitivity at 2 FP, all volumes",
    "mean_sensitivity_1_to_4_all": "Mean sensitivity at 1 to 4 FP, all volumes",
    **{f"sensitivity_at_{x}_positive": f"Sensitivity at {x} FP" for x in range(1, 5)},
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
    """List the rows of a table; none where there is no table.

    Args:
        table: The table; None for no table.

    Returns:
        One dictionary per row, with the columns as keys.

    Example:
        >>> rows_of(pd.DataFrame({"a": [1, 2]}))
        [{'a': 1}, {'a': 2}]
    """
    if table is None or table.empty:
        return []
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def metric_label(metric: str) -> str:
    """Name a metric for a narrow column.

    Args:
        metric: The metric's name in the tables.

    Returns:
        The label.

    Example:
        >>> metric_label("auroc"), metric_label("hausdorff_mm")
        ('AUROC', 'HD, mm')
    """
    return METRIC_LABELS.get(metric) or label(metric)


def metric_in_sentence(metric: str) -> str:
    """Name a metric inside a sentence.

    Args:
        metric: The metric's name in the tables.

    Returns:
        The label, with a small first letter unless it is an abbreviation or a name.

    Example:
        >>> metric_in_sentence("balanced_accuracy")
        'balanced accuracy'
    """
    return in_sentence(metric_label(metric))


def plural(number: Any, noun: str) -> str:
    """Count things: '1 dataset', '2 datasets'.

    Args:
        number: How many there are.
        noun: The thing, in the singular.

    Returns:
        The number and the noun, in the plural unless there is one.

    Example:
        >>> plural(1, "dataset"), plural(2, "dataset")
        ('1 dataset', '2 datasets')
    """
    return f"{count(number)} {noun}" if as_float(number) == 1 else f"{count(number)} {noun}s"


def task_label(task: str) -> str:
    """Name a task in a heading.

    Args:
        task: The task's name.

    Returns:
        The title that the task declares; a readable form of the name where no such task is installed.

    Example:
        >>> task_label("segmentation")
        'Tumour segmentation'
    """
    return tasks.get(task).title if task in tasks else label(task)


def variable_label(variable: Any) -> str:
    """Name a variable by which patients are grouped.

    Args:
        variable: The column of the cohort.

    Returns:
        The label.

    Example:
        >>> variable_label("breast_density")
        'Breast density'
    """
    return VARIABLE_LABELS.get(str(variable)) or label(str(variable))


def group_label(group: object) -> str:
    """Name a group of patients.

    Args:
        group: The value of the grouping variable.

    Returns:
        The label.

    Example:
        >>> group_label("<=40")
        '≤40'
    """
    return str(group).replace("<=", "≤").replace("_", " ")


def kind_label(kind: Any) -> str:
    """Name a kind of scenario in a sentence.

    Args:
        kind: The kind in the tables, such as 'external' or 'leave-one-dataset-out'.

    Returns:
        The label; the kind itself where there is none.
    """
    return KIND_LABELS.get(str(kind), str(kind))


def positive_labels(task: str) -> tuple[str, str]:
    """Name the two classes of a task.

    Args:
        task: The task's name.

    Returns:
        The positive and the negative class, as the task's label scheme names them.

    Example:
        >>> positive_labels("classification")
        ('malignant', 'benign')
    """
    scheme = tasks.get(task).label_scheme if task in tasks else None
    return ("positive", "negative") if scheme is None else (scheme.classes[1], scheme.classes[0])


def configuration_cell(row: Mapping[str, Any]) -> Cell:
    """Name the model and input of a row, or the mean over all of them.

    Args:
        row: A row with the columns `model` and `input`.

    Returns:
        The cell.
    """
    if row["model"] == OVERALL:
        return text("All", sub="unweighted mean")
    return text(configuration(str(row["model"]), str(row.get("input") or "")))


def with_interval(value: Any, lo: Any, hi: Any, *, sign: bool = False) -> Cell:
    """Show a value with its interval below it.

    Args:
        value: The value; a dash where it is None or NaN.
        lo: The lower end; None or NaN for no interval.
        hi: The upper end; None or NaN for no interval.
        sign: Whether positive numbers are printed with a plus sign.

    Returns:
        The cell.

    Example:
        >>> with_interval(0.842, 0.801, 0.876).sub
        '[0.801, 0.876]'
    """
    ends = {"value": value, "lo": as_float(lo), "hi": as_float(hi)}
    if as_float(value) is None:
        return text(ABSENT)
    return estimate(ends, sign=sign)


def published_cell(ours: Any, published: Any, *, digits: int = 3) -> Cell:
    """Show a published value, and how far ours lies from it.

    Args:
        ours: Our value.
        published: The published value; a blank cell where it is None or NaN.
        digits: How many decimals.

    Returns:
        The cell: the published value, and below it ours minus the published one.

    Example:
        >>> cell = published_cell(0.80, 0.75)
        >>> cell.text, cell.sub
        ('0.750', '(+0.050)')
    """
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
    """Check whether some row has a number in one of the columns.

    Args:
        rows: The rows.
        *names: The columns.

    Returns:
        Whether there is such a number.

    Example:
        >>> any_known([{"a": None}, {"a": 0.5}], "a"), any_known([{"a": None}], "a", "b")
        (True, False)
    """
    return any(as_float(row.get(name)) is not None for row in rows for name in names)


def first_rows(rows: Rows, most: int, table: str) -> tuple[Rows, str]:
    """Cut a long table: return its first rows, and a sentence that says where the others are.

    Args:
        rows: All rows.
        most: The largest number of rows that is shown.
        table: The name of the csv file that has all rows.

    Returns:
        The rows that are shown, and the sentence; empty where no row was cut.

    Example:
        >>> first_rows([{"a": 1}, {"a": 2}], 1, "runs")
        ([{'a': 1}], ' 1 of 2 rows are shown; tables/runs.csv has all.')
    """
    if len(rows) <= most:
        return rows, ""
    return rows[:most], f" {most} of {count(len(rows))} rows are shown; tables/{table}.csv has all."


def sentence(text: Any) -> str:
    """Begin a text with a capital and end it with a full stop.

    Args:
        text: The text; None for no text.

    Returns:
        The sentence; empty where there is no text.

    Example:
        >>> sentence("no margin was declared")
        'No margin was declared.'
    """
    said = str(text or "").strip()
    said = said[:1].upper() + said[1:]
    return said if not said or said.endswith((".", "!", "?")) else f"{said}."


def joined(names: Sequence[str]) -> str:
    """Join names by commas and 'and'.

    Args:
        names: The names.

    Returns:
        The names in one phrase; empty where there are none.

    Example:
        >>> joined(["Alder", "Birch", "Cedar"])
        'Alder, Birch and Cedar'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def slug(name: str) -> str:
    """Make a name fit for an id of the page or a file.

    Args:
        name: The name.

    Returns:
        The name in small letters, with '-' for every character that is no ASCII letter, digit, '-' or '_'.

    Example:
        >>> slug("risk-CNN-ROI 10 %")
        'risk-cnn-roi-10--'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name.lower())
