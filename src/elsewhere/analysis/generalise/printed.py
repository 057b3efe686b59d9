"""The answers of a study from the numbers that it printed: margins, who passes, and what rounding leaves open (LN-12).

A table has one row per model, and per kind of patch the columns `KIND_difference`, `KIND_lo90`, `KIND_hi90` and, where
printed, `KIND_p`: internal - external with its 90 % interval and the p of the equivalence test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.scoring.patch_scores import DICE, FPR, PatchMetric
from elsewhere.statistics.equivalence import StudyMargin, study_margin
from elsewhere.tables import TableOptions, read_table, to_number
from elsewhere.tables.options import DEFAULT

KINDS = {"tumor": DICE, "tumour": DICE, "dice": DICE, "normal": FPR, "fpr": FPR}
_DIFFERENCE = re.compile(r"^(.+)_difference$")


@dataclass(frozen=True, kw_only=True)
class PrintedKind:
    """One kind of patch of a printed table.

    Attributes:
        kind: Its name in the table.
        metric: The metric.
        margin: The margin, rounded as the differences are printed.
        study: How it was made from the differences; None for a declared one.
        rows: One row per model: difference, interval, p, and what they decide.
    """

    kind: str
    metric: PatchMetric
    margin: float
    study: StudyMargin | None
    rows: tuple[dict[str, Any], ...]

    def names(self, key: str) -> list[str]:
        """List the models for which something holds.

        Args:
            key: `equivalent`, `non_inferior` or `undecidable`.

        Returns:
            The names.
        """
        return [str(row["model"]) for row in self.rows if row[key]]

    def to_dict(self) -> dict[str, Any]:
        """Return what summary.json holds.

        Returns:
            The margin, who passes by name, and the rows.
        """
        return {
            "kind": self.kind,
            "metric": self.metric.name,
            "margin": self.margin,
            "study_margin": None if self.study is None else self.study.to_dict(),
            "models": len(self.rows),
            "equivalent": self.names("equivalent"),
            "non_inferior": self.names("non_inferior"),
            "undecidable": self.names("undecidable"),
            "rows": list(self.rows),
        }


def read_printed(
    source: str | Path | pd.DataFrame,
    *,
    margins: dict[str, float | str],
    alpha: float = 0.05,
    table: TableOptions = DEFAULT,
) -> list[PrintedKind]:
    """Read a printed table and say who passes.

    A model passes by its printed p where there is one, else by its interval. Where an end of the interval, as printed,
    stands on the margin, the interval cannot decide; where p then says 'equivalent', the row is listed as undecidable
    within rounding.

    Args:
        source: The table, or its file.
        margins: The margin of each metric: a number, or 'study' to make it from the printed differences.
        alpha: The level of each one-sided test.
        table: How text tables are written.

    Returns:
        The kinds of patch, in the order of the table.

    Raises:
        UserError: A column is missing or holds no numbers, an interval does not hold its difference, or a model is
            there twice.

    Example:
        >>> rows = {"model": ["a", "b"], "tumor_difference": ["0.01", "0.03"]}
        >>> rows |= {"tumor_lo90": ["0.00", "0.01"], "tumor_hi90": ["0.02", "0.05"]}
        >>> made = read_printed(pd.DataFrame(rows), margins={"dice": "study"})[0]
        >>> made.margin, made.names("equivalent"), made.names("non_inferior")
        (0.04, ['a'], ['a'])
    """
    if isinstance(source, pd.DataFrame):
        frame, where = source.astype("string").reset_index(drop=True), "data frame"
    else:
        frame, where = read_table(Path(source), options=table), str(source)
        frame = frame.astype("string")
    kinds = [found[1] for name in frame.columns if (found := _DIFFERENCE.match(str(name)))]
    if not kinds:
        raise UserError(
            "no column ends with _difference",
            where=where,
            fix="A printed table has tumor_difference, tumor_lo90, tumor_hi90 and tumor_p (and normal_...), internal - "
            "external; a table of patch scores goes without --means.",
        )
    names = _model_names(frame, where)
    return [_kind(frame, kind, names, margins, alpha, where) for kind in kinds]


def _model_names(frame: pd.DataFrame, where: str) -> list[str]:
    if "model" in frame.columns:
        names = frame["model"].fillna("").tolist()
    else:
        parts = [name for name in ("clustering", "partial_share") if name in frame.columns]
        if not parts:
            raise UserError("no column model", where=where, fix="Name each row in a column `model`.")
        names = frame[parts].fillna("").agg("-".join, axis=1).tolist()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or "" in names:
        raise UserError(
            f"model '{twice[0]}' is there twice" if twice else "a model has no name",
            where=where,
            fix="Give one row per model, each with its name.",
        )
    return [str(name) for name in names]


def _decimals(texts: pd.Series) -> int:
    return max((len(text.partition(".")[2]) for text in texts.dropna().str.strip()), default=0)


def _kind(
    frame: pd.DataFrame,
    kind: str,
    names: list[str],
    margins: dict[str, float | str],
    alpha: float,
    where: str,
) -> PrintedKind:
    metric = KINDS.get(kind.lower())
    if metric is None:
        raise UserError(
            f"it is not known whether a higher '{kind}' is better",
            where=where,
            fix=f"Name the columns after one of {', '.join(KINDS)}.",
        )
    columns = [f"{kind}_{end}" for end in ("difference", "lo90", "hi90")]
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise UserError(f"no column {', '.join(missing)}", where=where, fix="Give difference, lo90 and hi90.")
    numbers = {
        name: to_number(frame[name], column=name, where=where, missing="error").to_numpy() for name in columns
    }
    d, lo, hi = (numbers[name] for name in columns)
    digits = _decimals(frame[columns[0]])
    slack = 10.0**-digits
    odd = np.flatnonzero(~((lo <= hi) & (lo - slack <= d) & (d <= hi + slack)))
    if odd.size:
        raise UserError(
            f"the interval of {kind} does not hold its difference in {odd.size} rows",
            where=f"{where}, rows {name_rows((odd + 1).tolist())}",
            fix="Give the lower end, then the upper end.",
        )
    given = margins.get(metric.name, "study")
    study = study_margin(d) if given == "study" else None
    margin = round(study.value, digits) if study is not None else float(given)
    p = _p(frame, f"{kind}_p", where)
    printed_p = frame.get(f"{kind}_p", pd.Series([""] * len(names), dtype="string"))
    bound = printed_p.fillna("").str.strip().str.startswith("<").tolist()
    rows = tuple(
        _row(names[i], metric, (d[i], lo[i], hi[i]), p[i], margin=margin, half=slack / 2, alpha=alpha)
        | {"p_is_bound": bound[i]}
        for i in range(len(names))
    )
    return PrintedKind(kind=kind, metric=metric, margin=margin, study=study, rows=rows)


def _p(frame: pd.DataFrame, column: str, where: str) -> list[float | None]:
    """A printed p; '<0.001' is a bound, and passes as what it bounds."""
    if column not in frame.columns:
        return [None] * len(frame)
    values = to_number(frame[column].str.strip().str.lstrip("<"), column=column, where=where).to_numpy()
    beyond = np.flatnonzero((values < 0) | (values > 1))
    if beyond.size:
        raise UserError(
            f"{column} is no p value",
            where=f"{where}, rows {name_rows((beyond + 1).tolist())}",
            fix="Between 0 and 1.",
        )
    return [None if np.isnan(value) else float(value) for value in values]


def _row(
    name: str,
    metric: PatchMetric,
    estimate: tuple[float, float, float],
    p: float | None,
    *,
    margin: float,
    half: float,
    alpha: float,
) -> dict[str, Any]:
    d, lo, hi = (float(value) for value in estimate)
    near = half / 2
    inside = lo > -margin + near and hi < margin - near
    touches = abs(hi - margin) < near or abs(lo + margin) < near
    by_p = None if p is None else p < alpha
    # Internal - external: a loss is above 0 where higher is better, and below 0 where lower is.
    loss_end = hi if metric.higher_is_better else -lo
    return {
        "model": name,
        "difference": d,
        "lo": lo,
        "hi": hi,
        "p": p,
        "inside": inside,
        "equivalent": inside if by_p is None else by_p,
        "non_inferior": loss_end < margin - near,
        "undecidable": touches and (by_p is None or by_p),
        "on_the_margin": touches,
    }
