"""Delimited text: header checked by hand, rows parsed by Arrow, every cell a string."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.tables.options import TableOptions

_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_DECIMAL_COMMA = r"^\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*$"


def _first_record(data: bytes, delimiter: str, where: str) -> list[str]:
    head = data[: 1 << 20].decode("utf-8", errors="ignore")
    try:
        return next(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter), [])
    except csv.Error as error:
        raise UserError(f"the header line cannot be read ({error})", where=where) from error


def _choose_delimiter(data: bytes, path: Path, options: TableOptions) -> str:
    """The kind's own delimiter. Another one is diagnosed, never adopted."""
    where = str(path)
    if options.delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ",", "pipe": "|"}.get(
            options.delimiter, options.delimiter
        )
        if len(delimiter) != 1 or delimiter in '"\r\n' or ord(delimiter) > 127:
            raise UserError(
                f"'{options.delimiter}' cannot be a delimiter", fix="One character: , ; | or the word tab."
            )
        return delimiter
    names = [suffix.lower() for suffix in path.suffixes]
    if ".tsv" in names or ".tab" in names:
        expected = "\t"
    elif ".txt" in names:
        width = {mark: len(_first_record(data, mark, where)) for mark in (",", "\t")}
        expected = "\t" if width["\t"] > width[","] else ","
    else:
        expected = ","
    if re.match(rb"sep=.\r?\n", data[:8]):
        raise UserError(
            "the first line is a spreadsheet's 'sep=' mark",
            where=where,
            fix="Remove that line. Where the delimiter is not a comma, name it: --delimiter ';'.",
        )
    widths = {mark: len(_first_record(data, mark, where)) for mark in _NAMES}
    best = max(widths, key=lambda mark: widths[mark])
    if widths[best] > widths[expected]:
        option = "tab" if best == "\t" else best
        raise UserError(
            f"the columns are separated by {_NAMES[best]} ({widths[best]} in all), not by {_NAMES[expected]}",
            where=where,
            fix=f"Save it with {_NAMES[expected]}. Or read it with --delimiter '{option}' "
            "(and --decimal ',' if its numbers have decimal commas).",
        )
    return expected


def _check_quotes(data: bytes, where: str) -> None:
    if data.count(b'"') % 2 == 0:
        return
    for number, line in enumerate(data.splitlines(), start=1):
        if line.count(b'"') % 2:
            raise UserError(
                f"a double quote is opened and never closed, probably in line {number}",
                where=where,
                fix='Close it, or write a quote inside a cell as "".',
            )


def header_names(raw: Sequence[object], where: str) -> list[str]:
    """Clean the names of columns; a name used twice is refused.

    Args:
        raw: The header as it stands in the file.
        where: The file that an error names.

    Returns:
        The names, without blanks around them; unnamed columns get one.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    names = [str(name).strip() if name is not None else "" for name in raw]
    names = [name or f"Unnamed: {at}" for at, name in enumerate(names)]
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        if name in seen:
            raise UserError(
                f"two columns are called '{name}' (columns {seen[name] + 1} and {at + 1})",
                where=where,
                fix="Rename or remove one of them.",
            )
        seen[name] = at
    return names


def drop_unnamed_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop nameless empty columns, which trailing delimiters make.

    Trailing delimiters make nameless empty columns: they hold nothing, so nothing is lost.

    Args:
        frame: The table.

    Returns:
        The frame without them.
    """
    empty = [c for c in frame.columns if re.fullmatch(r"Unnamed: \d+", str(c)) and frame[c].isna().all()]
    return frame.drop(columns=empty) if empty and len(empty) < frame.shape[1] else frame


def read_text_table(
    data: bytes, path: Path, options: TableOptions, *, keep: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a text table with all cells as strings, an empty cell missing.

    Args:
        data: The bytes.
        path: The file.
        options: How it is read or scored.
        keep: The columns that are left alone.

    Returns:
        The table.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    where = str(path)
    data = data.lstrip(b"\r\n")
    if not data.strip():
        raise UserError(
            "the file is empty", where=where, fix="Export it again, with a header line and one row per case."
        )
    unended = not data.endswith((b"\n", b"\r"))
    if unended:
        data += b"\n"
    delimiter = _choose_delimiter(data, path, options)
    _check_quotes(data, where)
    names = header_names(_first_record(data, delimiter, where), where)
    bad: list[tuple[int | None, int, str]] = []
    bad_count = 0

    def on_invalid(row: pacsv.InvalidRow) -> str:
        nonlocal bad_count
        bad_count += 1
        if len(bad) < 6:
            bad.append((row.number, row.actual_columns, row.text))
        return "skip"

    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                column_names=names,
                skip_rows_after_names=1,
                use_threads=False,
                block_size=min(max(len(data) + 1, 1024), 1 << 30),
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_invalid
            ),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise UserError(
            f"the table cannot be parsed ({str(error).splitlines()[0][:200]})", where=where
        ) from error
    if bad_count:
        raise _ragged(bad, bad_count, len(names), delimiter, where, cut=unended)
    if unended and table.num_rows:
        warnings.warn(
            f"{where}: the last line has no line end, so that the file may have been cut off: its last row is "
            f"row {table.num_rows:,}. Check that it is whole, and that no row is missing",
            ElsewhereWarning,
            stacklevel=3,
        )
    if options.decimal == ",":
        table = _points_for_commas(table, keep)
    return drop_unnamed_empty(table.to_pandas())


def _ragged(
    bad: list[tuple[int | None, int, str]], count: int, width: int, delimiter: str, where: str, *, cut: bool
) -> UserError:
    shown = ", ".join(f"line {number} has {columns}" for number, columns, _ in bad[:4])
    more = f" and {count - 4} more" if count > 4 else ""
    fix = "Give every row one cell per column (quote cells that hold the delimiter)."
    if cut and count == 1 and bad[0][1] < width:
        fix = "The file ends in the middle of that line: it was cut off. Fetch or export it again."
    if (
        delimiter == ","
        and all(columns > width for _, columns, _ in bad)
        and any(re.search(r"(^|,)-?\d+,\d+", t) for _, _, t in bad)
    ):
        fix += (
            " If the numbers have decimal commas, export them with points. Or export with semicolons, "
            "and read with --delimiter ';' --decimal ','."
        )
    return UserError(f"the header has {width} columns, but {shown}{more}", where=where, fix=fix)


def _points_for_commas(table: pa.Table, keep: Sequence[str]) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in keep:
            continue
        column = table.column(name)
        hit = pc.match_substring_regex(column, _DECIMAL_COMMA)
        table = table.set_column(
            at, name, pc.if_else(pc.fill_null(hit, False), pc.replace_substring(column, ",", "."), column)
        )
    return table
