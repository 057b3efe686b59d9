"""How models were made, and what that is worth: means by share of partial-tumour patches and by clustering (LN-18).

The kind of a model is its clustering and its share of partial-tumour patches. Both come from a table of the models, or from
names such as `imagenet-20`. The means are over models that share slides, so that no interval goes with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.generalise.ensembles import parse_name
from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.statistics.verdict import Verdict
from elsewhere.tables import TableOptions, read_table
from elsewhere.tables.options import DEFAULT
from elsewhere.untrusted import as_float

SHARE, CLUSTERING = "share", "clustering"
_NUMBER = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%?\s*$")


@dataclass(frozen=True, kw_only=True)
class ModelKinds:
    """The share and the clustering of each model.

    Attributes:
        values: By attribute, `share` or `clustering`: the value of each model by its name; models without one are not there.
        source: Where they come from, in words; empty where nothing is known.

    Example:
        >>> ModelKinds(values={"share": {"a": "10 %", "b": "natural"}}).ordered("share")
        ['natural', '10 %']
    """

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    source: str = ""

    def ordered(self, attribute: str) -> list[str]:
        """List the values of an attribute: natural first, then numbers, then words.

        Args:
            attribute: `share` or `clustering`.

        Returns:
            The values, each once.
        """
        return sorted(set(self.values.get(attribute, {}).values()), key=_order)


def _order(value: str) -> tuple[int, float, str]:
    number = _NUMBER.match(value)
    if value.lower().startswith("natural"):
        return (0, 0.0, value)
    return (1, float(number[1]), value) if number else (2, 0.0, value)


def kinds_of_names(models: Sequence[str]) -> ModelKinds:
    """Read share and clustering from names such as `imagenet-20` or `single-natural`.

    Args:
        models: The names.

    Returns:
        The kinds of the models that are named so.

    Example:
        >>> kinds_of_names(["imagenet-20", "single-natural", "other"]).values["share"]
        {'imagenet-20': '20 %', 'single-natural': 'natural'}
    """
    shares, clusterings = {}, {}
    for name in models:
        parsed = parse_name(name)
        if parsed is not None:
            clusterings[name] = parsed[0]
            shares[name] = parsed[1] if parsed[1] == "natural" else f"{int(parsed[1])} %"
    return ModelKinds(values={SHARE: shares, CLUSTERING: clusterings}, source="the models' names")


def read_kinds(
    source: str | Path | pd.DataFrame,
    models: Sequence[str],
    *,
    columns: Mapping[str, str | None],
    table: TableOptions = DEFAULT,
) -> ModelKinds:
    """Read share and clustering from a table of models.

    Args:
        source: The table with one row per model, or its file; its column `model` has the names.
        models: The models that are judged.
        columns: The column of each attribute; None for the column of its name, where there is one.
        table: How text tables are written.

    Returns:
        The kinds. Empty cells have none; rows of other models are left out.

    Raises:
        UserError: A column is not there, a model is there twice, or one of the models is not there.

    Example:
        >>> rows = pd.DataFrame({"model": ["a", "b"], "pt": ["0", "40"]})
        >>> read_kinds(rows, ["a", "b"], columns={"share": "pt", "clustering": None}).values["share"]
        {'a': '0', 'b': '40'}
    """
    where = "the table of models" if isinstance(source, pd.DataFrame) else str(source)
    wanted = {attribute: column or attribute for attribute, column in columns.items()}
    if isinstance(source, pd.DataFrame):
        frame = source.copy()
    else:
        frame = read_table(source, strings=("model", *wanted.values()), options=table)
    listed = [str(name) for name in frame.columns]
    if "model" not in listed:
        raise unknown_name(f"column of {where}", "model", listed)
    names = frame["model"].astype("string").str.strip()
    twice = sorted(set(names[names.duplicated()].dropna()))
    if twice:
        raise UserError(f"{name_rows(twice)}: listed twice", where=where, fix="Give one row per model.")
    absent = [name for name in models if name not in set(names)]
    if absent:
        raise UserError(
            f"{len(absent)} of {len(models)} models have no row: {name_rows(absent)}",
            where=where,
            fix="Give one row per model, with its name in the column `model` as in the scores.",
        )
    values: dict[str, dict[str, str]] = {}
    for attribute, column in wanted.items():
        if column not in listed:
            if columns[attribute] is not None:
                raise unknown_name(f"column of {where}", column, listed)
            continue
        shown = dict(zip(names, frame[column], strict=True))
        values[attribute] = {name: _text(shown[name]) for name in models if _text(shown[name])}
    if not values:
        raise UserError(
            "the table of models has neither a share nor a clustering",
            where=where,
            fix="Name its columns `share` and `clustering`, or give --share COLUMN and --clustering COLUMN.",
        )
    return ModelKinds(values=values, source="the table of models")


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    number = as_float(value)
    return f"{number:g}" if number is not None and not isinstance(value, str) else str(value).strip()


def means_by_kind(rows: Sequence[Mapping[str, Any]], kinds: ModelKinds) -> list[dict[str, Any]]:
    """Average the means of models of one kind.

    Args:
        rows: One row per model and metric over all slides, as `rows_of` makes them.
        kinds: The kinds.

    Returns:
        One row per attribute with at least two values, value and metric: the number of models, their mean internal and
        external values, and how many of them are equivalent or better and non-inferior.
    """
    made = []
    for attribute, of_model in kinds.values.items():
        order = kinds.ordered(attribute)
        if len(order) < 2:
            continue
        for metric in dict.fromkeys(str(row["metric"]) for row in rows):
            for value in order:
                mine = [
                    row for row in rows if row["metric"] == metric and of_model.get(row["model"]) == value
                ]
                made.append(
                    {
                        "by": attribute,
                        "value": value,
                        "metric": metric,
                        "models": len(mine),
                        "internal": _mean([row["internal"] for row in mine]),
                        "external": _mean([row["external"] for row in mine]),
                        "difference": _mean([row["difference"] for row in mine]),
                        "equivalent": sum(
                            row["verdict"] in (str(Verdict.EQUIVALENT), str(Verdict.ABOVE)) for row in mine
                        ),
                        "non_inferior": sum(bool(row["non_inferior"]) for row in mine),
                    }
                )
    return made


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
