"""Hashes of content, not of files: a csv and a parquet of the same table have the same hash."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from elsewhere.errors import UserError

# Always text, also where the values look like numbers: an id is not a number.
TEXT_COLUMNS = frozenset({
    "patient_id", "exam_id", "case_id", "lesion_id", "dataset", "site", "modality", "split", "view",
    "image", "mask", "annotation", "slide", "volume", "path", "file",
})  # fmt: skip
_NUMBER = r"^[+-]?(0|[1-9]\d{0,14}|(0|[1-9]\d*)?\.\d+|[1-9]\d*\.|0\.)([eE][+-]?\d{1,3})?$"
_EXACT = float(2**53)


def file_digest(path: str | Path) -> str:
    """Compute the digest of a file or a folder.

    Args:
        path: The file or folder.

    Returns:
        SHA-256, in hexadecimal: of a file's bytes, or of a folder's sorted relative paths and their digests.

    Raises:
        UserError: The file or folder cannot be read.
    """
    path = Path(path)
    digest = hashlib.sha256()
    try:
        if path.is_dir():
            for child in sorted(p for p in path.rglob("*") if p.is_file()):
                digest.update(f"{child.relative_to(path).as_posix()}\0{file_digest(child)}\n".encode())
            return digest.hexdigest()
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"the file cannot be read ({error.strerror or error})", where=str(path)) from error
    return digest.hexdigest()


def same_as_csv(series: pd.Series, *, text: bool = False) -> pd.Series:
    """Convert a column to what any of the file formats would give back.

    Text that is wholly numbers (no leading zeros) becomes numbers, dates become ISO text, '' is missing.

    Args:
        series: The column.
        text: Whether the column holds ids, names or files: nothing is then turned into a number.

    Returns:
        The column as it would come back from any of the formats: str, int64, float64 or bool.

    Example:
        >>> same_as_csv(pd.Series(["1", "2"])).tolist(), same_as_csv(pd.Series(["01", "2"])).tolist()
        ([1, 2], ['01', '2'])
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        return _dates_as_text(series)
    if pd.api.types.is_bool_dtype(series.dtype):
        if series.isna().any():
            series = series.map({True: "True", False: "False"}).astype("str")
        elif not text:
            return series.astype("bool")
        else:
            return series.astype("str")
    if pd.api.types.is_numeric_dtype(series.dtype):
        return _numbers_as_text(series) if text else _plain_numbers(series)
    column = arrow_text(_as_str(series))
    column = pc.if_else(pc.equal(column, ""), None, column)
    clean = pd.Series(column.to_pandas().array, index=series.index, name=series.name, dtype="str")
    if text or column.null_count == len(column):
        return clean
    present = pc.drop_null(column)
    if pc.all(pc.match_substring_regex(present, _NUMBER)).as_py():
        try:
            numbers = np.asarray(
                pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype="float64"
            )
        except pa.ArrowInvalid:
            return clean
        return (
            _plain_numbers(pd.Series(numbers, index=series.index, name=series.name))
            if np.isfinite(numbers).any()
            else clean
        )
    if (
        column.null_count == 0
        and pc.all(pc.is_in(pc.utf8_lower(present), pa.array(["true", "false"]))).as_py()
    ):
        return pd.Series(
            pc.equal(pc.utf8_lower(column), "true").to_pandas().array, index=series.index, name=series.name
        ).astype("bool")
    return clean


def arrow_text(series: pd.Series) -> pa.Array:
    """Convert a column to one Arrow array of strings.

    Args:
        series: The column.

    Returns:
        One contiguous Arrow array of strings, also where a concatenated pandas column is in chunks.
    """
    array = pa.array(series, type=pa.string(), from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _as_str(series: pd.Series) -> pd.Series:
    if isinstance(series.dtype, pd.StringDtype):
        return series
    return pd.Series([None if _gone(v) else str(v) for v in series], index=series.index, dtype="str")


def _gone(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _dates_as_text(series: pd.Series) -> pd.Series:
    midnight = (series.dropna() == series.dropna().dt.normalize()).all()
    form = "%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M:%S.%f"
    return series.dt.strftime(form).astype("str")


def _plain_numbers(series: pd.Series) -> pd.Series:
    """int64 where every value is a whole number and none is missing; otherwise float64."""
    if pd.api.types.is_integer_dtype(series.dtype):
        present = series.dropna()
        if (present.abs() > _EXACT).any():
            return series.astype("str")
        if len(present) == len(series):
            return series.astype("int64")
    values = series.to_numpy(dtype="float64", na_value=np.nan) + 0.0
    whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 1e15)
    if len(values) and whole.all():
        return pd.Series(values.astype("int64"), index=series.index, name=series.name)
    return pd.Series(values, index=series.index, name=series.name)


def _numbers_as_text(series: pd.Series) -> pd.Series:
    """Write 7 and 7.0 as the id '7': a missing value among whole numbers makes pandas store floats."""

    def one(value: Any) -> str | None:
        if _gone(value):
            return None
        return str(int(value)) if float(value).is_integer() and abs(float(value)) < 1e15 else str(value)

    if pd.api.types.is_integer_dtype(series.dtype) and not series.isna().any():
        return series.astype("int64").astype("str")
    return pd.Series([one(v) for v in series], index=series.index, name=series.name, dtype="str")


def infer_types(frame: pd.DataFrame, *, text: Collection[str] = TEXT_COLUMNS) -> pd.DataFrame:
    """Give every column its plain type, the same from csv, xlsx and parquet.

    Args:
        frame: The table.
        text: The columns that stay text; columns that end in `_id`, `_path` or `_file` stay text too.

    Returns:
        A table with the same rows and columns.

    Example:
        >>> infer_types(pd.DataFrame({"case_id": ["1"], "age": ["61"]})).to_dict("records")
        [{'case_id': '1', 'age': 61}]
    """
    return pd.DataFrame(
        {
            name: same_as_csv(
                frame[name], text=str(name) in text or str(name).endswith(("_id", "_path", "_file"))
            )
            for name in frame.columns
        },
        index=frame.index,
    )


def content_hash(frame: pd.DataFrame, *, text: Collection[str] = TEXT_COLUMNS, typed: bool = False) -> str:
    """Compute the digest of a table's canonical content.

    Row order, column order and file format do not count.

    Args:
        frame: The table.
        text: The columns that stay text.
        typed: Whether the columns have their plain types already, as `infer_types` returns them.

    Returns:
        SHA-256 of the canonical content: columns by name, rows by id, numbers as float64, text as UTF-8.

    Example:
        >>> table = pd.DataFrame({"case_id": ["a", "b"], "age": [61, 55]})
        >>> content_hash(table) == content_hash(table.iloc[::-1])
        True
    """
    plain = frame.copy(deep=False) if typed else infer_types(frame, text=text)
    names = sorted(str(name) for name in plain.columns)
    plain.columns = pd.Index([str(name) for name in plain.columns])
    order = _row_order(plain, names)
    digest = hashlib.sha256(f"elsewhere-table-1 rows {len(plain)}\n".encode())
    for name in names:
        column = plain[name]
        digest.update(f"{len(name.encode())} ".encode() + name.encode())
        if column.isna().all():
            digest.update(b" empty\n")
        elif isinstance(column.dtype, pd.StringDtype):
            array = arrow_text(column).cast(pa.large_string()).take(order)
            lengths = pc.fill_null(pc.binary_length(array), -1).cast(pa.int64())
            digest.update(b" text\n")
            digest.update(np.ascontiguousarray(lengths.to_numpy(zero_copy_only=False), dtype="<i8").tobytes())
            digest.update(_joined(array))
        else:
            values = column.to_numpy(dtype="float64")[order.to_numpy()] + 0.0
            values[np.isnan(values)] = np.nan
            digest.update(b" number\n" if not pd.api.types.is_bool_dtype(column.dtype) else b" bool\n")
            digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    return digest.hexdigest()


def _joined(array: pa.Array) -> bytes:
    """Return the strings' bytes one after another, which is the data buffer of an array fresh from `take`."""
    filled = pc.fill_null(array, "")
    offsets = np.frombuffer(filled.buffers()[1], dtype="<i8")[filled.offset : filled.offset + len(filled) + 1]
    data = filled.buffers()[2]
    return b"" if data is None else data.to_pybytes()[int(offsets[0]) : int(offsets[-1])]


def _row_order(frame: pd.DataFrame, names: list[str]) -> pa.Array:
    table = (
        pa.table({name: pa.array(frame[name], from_pandas=True) for name in names})
        if names
        else pa.table({"_": [None] * len(frame)})
    )
    if "case_id" in names and table.column("case_id").type in (pa.string(), pa.large_string()):
        distinct = pc.count_distinct(table.column("case_id"), mode="all").as_py()
        if distinct == len(frame):
            return pc.sort_indices(table.column("case_id"))
    head = [k for k in ("case_id", "lesion_id") if k in names]
    keys = head + [name for name in names if name not in head]
    if not keys:
        return pa.array(range(len(frame)), type=pa.uint64())
    # By position: a name that begins with a dot would be read as a path into a nested column.
    places = [str(at) for at in range(len(keys))]
    return pc.sort_indices(
        table.select(keys).rename_columns(places), sort_keys=[(place, "ascending") for place in places]
    )
