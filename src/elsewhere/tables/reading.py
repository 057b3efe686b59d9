"""`read_table` reads csv, tsv, txt (and .gz of these), parquet and xlsx."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elsewhere.errors import UserError, near_columns
from elsewhere.files.limits import check_size
from elsewhere.files.refusals import file_system_error
from elsewhere.tables.bytes_in import check_regular_file, decode, read_bytes
from elsewhere.tables.options import DEFAULT, TableOptions
from elsewhere.tables.text import header_names, read_text_table
from elsewhere.tables.workbook import read_workbook

TABLE_ENDINGS = (
    ".csv",
    ".tsv",
    ".tab",
    ".txt",
    ".csv.gz",
    ".tsv.gz",
    ".txt.gz",
    ".parquet",
    ".pq",
    ".xlsx",
    ".xlsm",
)


def is_table(path: str | Path) -> bool:
    """Say whether a name ends like a table that `read_table` opens.

    Args:
        path: The file.

    Returns:
        True for csv, tsv, txt (and their .gz), xlsx and parquet.

    Example:
        >>> is_table("scores.csv.gz"), is_table("scores.pdf")
        (True, False)
    """
    return str(path).lower().endswith(TABLE_ENDINGS)


def read_table(
    path: str | Path,
    *,
    required: Sequence[str] = (),
    sheet: str | None = None,
    strings: Sequence[str] = (),
    options: TableOptions = DEFAULT,
    allow_empty: bool = False,
) -> pd.DataFrame:
    """Read a table file; every mistake in it is a `UserError` that names the place.

    In csv and xlsx every cell is a string (ids keep their zeros), and an empty cell is missing; the text `NA`
    or `nan` stays text, so that `to_number` notices an infinite or missing score. A parquet file is typed.

    Args:
        path: The file; its ending says its format.
        required: The columns that must be there.
        sheet: The sheet of a workbook; None: the first visible one.
        strings: The columns that stay text: of a parquet file they are read as text, of a text table their
            decimal commas are left alone.
        options: Encoding, delimiter, decimal mark and limits of size.
        allow_empty: Whether a table without rows is accepted.

    Returns:
        The table.

    Raises:
        UserError: The file cannot be read, lacks a column, or has no rows where rows are needed.
    """
    path = Path(path)
    lower = path.name.lower()
    if lower.endswith((".parquet", ".pq")):
        frame = _read_parquet(path, options, strings, required)
    elif lower.endswith((".xlsx", ".xlsm")):
        frame = read_workbook(path, options, sheet=sheet)
    elif lower.endswith(TABLE_ENDINGS):
        frame = read_text_table(decode(read_bytes(path, options), path, options), path, options, keep=strings)
    else:
        check_regular_file(path)
        hint = (
            "Save the sheet as .xlsx or .csv."
            if lower.endswith((".xls", ".ods", ".xlsb"))
            else f"Known: {', '.join(TABLE_ENDINGS)}."
        )
        raise UserError(
            f"tables of the kind '{path.suffix or path.name}' cannot be read", where=str(path), fix=hint
        )
    require_columns(frame, required, where=str(path))
    if frame.empty and not allow_empty:
        raise UserError(
            "the table has a header but no rows",
            where=str(path),
            fix="Export it again, with one row per case.",
        )
    return frame


def require_columns(frame: pd.DataFrame, required: Sequence[str], *, where: str) -> None:
    """Refuse a table that lacks columns: one error names all of them, each with similar columns.

    The message names no option: a reader of a public layout has none for its columns, nor does `run`.

    Args:
        frame: The table.
        required: The columns that must be there.
        where: The file that an error names.

    Raises:
        UserError: A column is missing.

    Example:
        >>> require_columns(pd.DataFrame({"case_id": []}), ["case_id"], where="a.csv")
    """
    missing = [name for name in required if name not in frame.columns]
    if not missing:
        return
    have = [str(column) for column in frame.columns]
    hints = []
    for name in missing:
        near = near_columns(name, have, used=required)
        if near:
            hints.append(f"'{name}': perhaps {' or '.join(repr(n) for n in near)}")
    listed = ", ".join(have[:20]) + (f" and {len(have) - 20} more" if len(have) > 20 else "")
    raise UserError(
        f"no column {', '.join(repr(name) for name in missing)}",
        where=where,
        fix="; ".join([*hints, f"the columns are: {listed}"]) + ".",
    )


def _read_parquet(
    path: Path, options: TableOptions, strings: Sequence[str], required: Sequence[str]
) -> pd.DataFrame:
    """Read the table after its schema and its size were checked: nothing is decoded before."""
    where = str(path)
    check_regular_file(path)
    try:
        # Arrow accepts only names in UTF-8; an open file needs no name.
        with path.open("rb") as source, pq.ParquetFile(source) as file:
            names = header_names(file.schema_arrow.names, where)
            require_columns(pd.DataFrame(columns=names), required, where=where)
            needed = estimated_memory(file, strings)
            check_size(
                needed,
                f"the file holds {file.metadata.num_rows:,} rows of {file.metadata.num_columns} columns, which "
                "take about",
                where=where,
                limit=options.limit,
                fix="Split it, or keep the columns that are needed.",
            )
            risky = _risky_columns(file, options.limit)
            table = _decoded(source, risky, options.limit, where)
            table.validate(full=True)
        table = table.rename_columns(names)
        index = [name for name in names if name.startswith("__index_level_")]
        return _plain_types(table.drop_columns(index) if index else table, strings, where, options.limit)
    except UserError:
        raise
    except (
        pa.ArrowException,
        OSError,
        MemoryError,
        OverflowError,
        ValueError,
        TypeError,
        LookupError,
        UnicodeError,
        AttributeError,
    ) as error:
        if isinstance(error, OSError) and isinstance(error.errno, int):
            raise file_system_error(error, "the parquet file cannot be read", where=path) from error
        raise UserError(
            f"the parquet file cannot be read ({type(error).__name__}: {str(error)[:150]})",
            where=where,
            fix="Write or fetch it again.",
        ) from error


def estimated_memory(file: pq.ParquetFile, strings: Sequence[str]) -> int:
    """Estimate the memory of a parquet table as a data frame, from its metadata alone.

    A number takes 8 bytes; a text 32 and at least its part of the uncompressed pages (a dictionary may make
    the pages much smaller than the texts: see `_risky_columns`).

    Args:
        file: The file.
        strings: The columns that stay text.

    Returns:
        About how many bytes.

    Raises:
        ValueError: The metadata is damaged.
    """
    meta = file.metadata
    rows = meta.num_rows
    if rows < 0:
        raise ValueError("the file claims a negative number of rows")
    pages: dict[str, int] = {}
    for at in range(meta.num_row_groups):
        group = meta.row_group(at)
        for column in range(group.num_columns):
            chunk = group.column(column)
            name = chunk.path_in_schema.split(".")[0]
            pages[name] = pages.get(name, 0) + max(chunk.total_uncompressed_size, 0)
    total = 0
    for field in file.schema_arrow:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        as_text = field.name in strings or not (
            number or pa.types.is_temporal(field.type) or pa.types.is_boolean(field.type)
        )
        total += rows * 32 + pages.get(field.name, 0) if as_text else rows * 8
    return total


def _decoded(source: BinaryIO, risky: list[str], limit: int, where: str) -> pa.Table:
    """Read the whole table; the columns in `risky` as dictionaries, whose texts are counted first."""
    source.seek(0)
    with pq.ParquetFile(source, read_dictionary=risky) as file:
        table = file.read()
    check_size(table.nbytes, "the table takes", where=where, limit=limit)
    return table


def _risky_columns(file: pq.ParquetFile, limit: int) -> list[str]:
    """Text columns of which the pages may hold a text once that every row repeats.

    Pages hold each of their texts at least once, so that no column takes more memory than its rows times its
    pages. Where that stays under the limit the column is safe.
    """
    meta = file.metadata
    most, names = 0, set()
    for at in range(meta.num_row_groups):
        group = meta.row_group(at)
        for column in range(group.num_columns):
            chunk = group.column(column)
            if chunk.physical_type == "BYTE_ARRAY" and "DELTA_BYTE_ARRAY" not in chunk.encodings:
                most += group.num_rows * max(chunk.total_uncompressed_size, 0)
                names.add(chunk.path_in_schema)
    return sorted(names) if most > limit else []


def _plain_types(table: pa.Table, strings: Sequence[str], where: str, limit: int) -> pd.DataFrame:
    """Decode dictionaries, turn decimals into floats and id columns into text, and refuse nested columns."""
    columns: dict[str, pd.Series] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            _check_expanded(column, where, limit)
            column = column.cast(column.type.value_type)
        if pa.types.is_nested(column.type):
            raise UserError(
                f"column '{name}' holds lists or structures",
                where=where,
                fix="Each cell must hold one value.",
            )
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        if (
            pa.types.is_binary(column.type)
            or pa.types.is_large_binary(column.type)
            or pa.types.is_fixed_size_binary(column.type)
        ):
            column = column.cast(pa.string())
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        if name in strings and not pa.types.is_string(column.type):
            column = pc.cast(column, pa.string())
        if pa.types.is_boolean(column.type) and column.null_count:
            columns[name] = column.to_pandas(types_mapper=lambda _: pd.BooleanDtype())
        else:
            columns[name] = column.to_pandas()
    return pd.DataFrame(columns) if columns else pd.DataFrame()


def _check_expanded(column: pa.ChunkedArray, where: str, limit: int) -> None:
    """A dictionary may hold one long text for millions of rows: its size is counted before it is written out."""
    if not pa.types.is_string(column.type.value_type) and not pa.types.is_large_string(
        column.type.value_type
    ):
        return
    size = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        size += pc.sum(pc.take(lengths, chunk.indices.drop_null())).as_py() or 0
    check_size(size, "a column takes", where=where, limit=limit)
