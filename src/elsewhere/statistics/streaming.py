"""Group means of a table too large for memory, in one stream (LN-11: patches x models x folds).

Rows are read batch by batch from a parquet file or folder; key columns become codes. Memory holds one row of
sums per group, or, with `cluster`, one per group and patient: enough for means, spreads and clustered t
intervals (ST-03), and never the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from scipy import stats

from elsewhere.errors import UserError, unknown_name

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BATCH_ROWS = 1 << 20
_MOST_CELLS = 50_000_000
_SECOND = 1 << 31


class _Codes:
    """Values of one key column to dense codes, in the order in which they are met."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[object] = []
        self._code_of: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Codes of a batch; the distinct values of the batch alone pass through Python."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        table = np.empty(len(column.dictionary) + 1, dtype=np.int64)
        for place, value in enumerate(column.dictionary.to_pylist()):
            table[place] = self._code(value)
        indices = column.indices
        if indices.null_count:
            table[-1] = self._code(None)
            indices = pc.fill_null(indices, pa.scalar(len(table) - 1, indices.type))
        return table[indices.to_numpy(zero_copy_only=False)]

    def _code(self, value: object) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _add(cell: IntArray, values: FloatArray, count: IntArray, mean: FloatArray, square: FloatArray) -> None:
    """Welford's running mean and squares per cell: no digits lost over 10^8 rows. NaN is skipped."""
    for i in range(cell.size):
        c = cell[i]
        for k in range(values.shape[0]):
            x = values[k, i]
            if not np.isnan(x):
                count[c, k] += 1
                step = x - mean[c, k]
                mean[c, k] += step / count[c, k]
                square[c, k] += step * (x - mean[c, k])


class _Pairs:
    """Pairs of codes (a, b) to dense numbers, in the order in which they are met."""

    def __init__(self) -> None:
        self.pair = np.zeros(0, dtype=np.int64)
        self._index: pd.Index = pd.Index(self.pair)

    def number(self, a: IntArray, b: IntArray) -> IntArray:
        inverse, found = pd.factorize(a * _SECOND + b)
        distinct = pd.Index(np.asarray(found, dtype=np.int64))
        place = self._index.get_indexer(distinct)
        new = distinct[place < 0]
        if new.size:
            self._index = self._index.append(new)
            self.pair = np.concatenate([self.pair, new.to_numpy()])
            place = self._index.get_indexer(distinct)
        return place.astype(np.int64)[inverse]

    @property
    def first(self) -> IntArray:
        return self.pair // _SECOND

    @property
    def second(self) -> IntArray:
        return self.pair % _SECOND


class _Cells:
    """Growing arrays of sums: one row per cell (a group, or a group and patient)."""

    def __init__(self, n_values: int) -> None:
        self.size = 0
        self.rows = np.zeros(0, dtype=np.int64)
        self.count = np.zeros((0, n_values), dtype=np.int64)
        self.mean = np.zeros((0, n_values))
        self.square = np.zeros((0, n_values))

    def add(self, cell: IntArray, table: FloatArray) -> None:
        self._grow(int(cell.max()) + 1)
        _add(cell, table, self.count, self.mean, self.square)
        self.rows[: self.size] += np.bincount(cell, minlength=self.size)

    def _grow(self, size: int) -> None:
        self.size = max(self.size, size)
        if self.size <= self.rows.size:
            return
        room = max(self.size, int(1.5 * self.rows.size) + 1024)
        for name in ("rows", "count", "mean", "square"):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
            new[: old.shape[0]] = old
            setattr(self, name, new)


def summarise_stream(
    path: str | Path,
    *,
    by: list[str],
    values: list[str],
    cluster: str | None = None,
    level: float = 0.95,
    batch_rows: int = BATCH_ROWS,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Summarise a large parquet table in one pass.

    Memory grows with groups x patients, not with rows.

    Args:
        path: A parquet file or folder.
        by: The columns that name a group.
        values: The columns to average.
        cluster: The column of the patients; None for no intervals.
        level: The level of the intervals.
        batch_rows: How many rows are read at once.
        progress: Called with the number of rows of each batch that was read; None for no report.

    Returns:
        One row per group and value: the keys, `value` (the column's name), `n` (defined rows), `undefined`,
        `mean`, `sd`; and with `cluster` also `patients`, `patient_mean` (each patient once), `se`, `df`,
        `lo`, `hi`: the row mean's clustered t interval (ST-03).

    Raises:
        UserError: If no column is named, the file is not readable parquet, lacks a column or holds text where
            numbers are needed, or there are too many groups.
    """
    if not by or not values:
        raise UserError(
            "nothing to group by, or no value to average", fix="Name at least one column of each."
        )
    columns = [*by, *values, *([cluster] if cluster else [])]
    source = _open(path, columns)
    keys = [_Codes(name) for name in by]
    nested = [_Pairs() for _ in by[1:]]
    people, persons = _Codes(cluster or ""), _Pairs()
    cells = _Cells(len(values))
    for batch in source.to_batches(
        columns=columns, batch_size=batch_rows, batch_readahead=2, fragment_readahead=1
    ):
        if batch.num_rows == 0:
            continue
        group = keys[0].encode(batch.column(by[0]))
        for key, pairs in zip(keys[1:], nested, strict=True):
            group = pairs.number(group, key.encode(batch.column(key.name)))
        if cluster:
            group = persons.number(group, people.encode(batch.column(cluster)))
        cells.add(group, np.stack([_floats(batch.column(name), name, path) for name in values]))
        if cells.size > _MOST_CELLS:
            raise UserError(
                f"more than {_MOST_CELLS:,} combinations of {', '.join(columns[: len(by)])}",
                where=str(path),
                fix="Group by columns with few distinct values.",
            )
        if progress:
            progress(batch.num_rows)
    labels = _labels(keys, nested)
    group_of_cell = persons.first if cluster else np.arange(cells.size)
    return _finish(cells, labels, group_of_cell, values, clustered=cluster is not None, level=level)


def _labels(keys: Sequence[_Codes], nested: Sequence[_Pairs]) -> dict[str, list[object]]:
    """The keys of each group, unfolded from the innermost pairs outwards."""
    code_of = nested[-1].first if nested else np.arange(len(keys[0]))
    parts = [nested[-1].second] if nested else []
    for pairs in reversed(nested[:-1]):
        parts.append(pairs.second[code_of])
        code_of = pairs.first[code_of]
    parts.append(code_of)
    return {
        key.name: [key.values[int(c)] for c in part] for key, part in zip(keys, reversed(parts), strict=True)
    }


def _open(path: str | Path, needed: Sequence[str]) -> pds.Dataset:
    if not Path(path).exists():
        raise UserError("no such file or folder", where=str(path))
    try:
        source = pds.dataset(str(path), format="parquet")
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError("cannot be read as parquet", where=str(path), fix=str(error)) from error
    for name in needed:
        if name not in source.schema.names:
            raise unknown_name("column", name, source.schema.names)
    return source


def _floats(column: pa.Array, name: str, path: str | Path) -> FloatArray:
    try:
        return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UserError(f"column {name} is not numeric", where=str(path), fix=str(error)) from error


def _finish(
    cells: _Cells,
    labels: dict[str, list[object]],
    group: IntArray,
    values: Sequence[str],
    *,
    clustered: bool,
    level: float,
) -> pd.DataFrame:
    """Merge the patients' cells of each group (Chan's formula) and lay the table out, keys sorted."""
    n_groups = len(next(iter(labels.values())))
    rows = np.bincount(group, weights=cells.rows[: cells.size], minlength=n_groups).astype(np.int64)
    pieces = []
    for k, name in enumerate(values):
        n_cell = cells.count[: cells.size, k].astype(float)
        total = cells.mean[: cells.size, k] * n_cell
        n = np.bincount(group, weights=n_cell, minlength=n_groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.bincount(group, weights=total, minlength=n_groups) / n
            apart = n_cell * (cells.mean[: cells.size, k] - mean[group]) ** 2
            square = np.bincount(group, weights=cells.square[: cells.size, k] + apart, minlength=n_groups)
            sd = np.where(n > 1, np.sqrt(square / (n - 1)), np.nan)
        piece = pd.DataFrame(labels | {"value": name})
        piece["n"], piece["undefined"] = n.astype(np.int64), rows - n.astype(np.int64)
        piece["mean"], piece["sd"] = mean, sd
        if clustered:
            used = n_cell > 0
            patients = np.bincount(group[used], minlength=n_groups).astype(float)
            residual = total - mean[group] * n_cell
            with np.errstate(divide="ignore", invalid="ignore"):
                of_patients = np.bincount(
                    group[used], weights=cells.mean[: cells.size, k][used], minlength=n_groups
                )
                spread = np.bincount(group[used], weights=residual[used] ** 2, minlength=n_groups)
                se = np.where(patients > 1, np.sqrt(patients / (patients - 1) * spread) / n, np.nan)
                piece["patients"], piece["patient_mean"] = patients.astype(np.int64), of_patients / patients
            df = np.maximum(patients - 1, 1)
            half = stats.t.ppf(0.5 + level / 2.0, df) * se
            piece["se"], piece["df"] = se, np.where(patients > 1, patients - 1, np.nan)
            piece["lo"], piece["hi"] = mean - half, mean + half
        pieces.append(piece)
    out = pd.concat(pieces, ignore_index=True)
    return out.sort_values([*labels, "value"], ignore_index=True)
