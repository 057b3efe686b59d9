"""xlsx: one sheet, cells as the strings a person sees; a formula counts only with its stored result."""

from __future__ import annotations

import contextlib
import datetime
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.errors import ElsewhereWarning, UserError, unknown_name
from elsewhere.files.limits import DAMAGED_ARCHIVE, SizeLimitError, how_to_raise, human_bytes
from elsewhere.files.refusals import file_system_error
from elsewhere.tables.bytes_in import check_regular_file
from elsewhere.tables.options import DEFAULT, TableOptions
from elsewhere.tables.text import drop_unnamed_empty, header_names

MAX_ROWS = 1_048_576
MAX_COLUMNS = 16_384
MAX_CELLS = 50_000_000


_DAMAGE = (AssertionError, *DAMAGED_ARCHIVE)
"""What openpyxl, its zip and its xml are known to raise on a broken file; the fuzz test keeps the list true."""


def _check_archive(path: Path, options: TableOptions) -> None:
    where = str(path)
    if not zipfile.is_zipfile(path):
        raise UserError(
            "this is not an .xlsx workbook (it is not a zip archive)",
            where=where,
            fix="Save an old .xls as .xlsx, call a text file .csv, remove a password.",
        )
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    packed = max(path.stat().st_size, 1)
    if unpacked > options.limit or (
        unpacked > options.ratio_from_bytes and unpacked / packed > options.max_ratio
    ):
        raise SizeLimitError(
            f"the workbook ({human_bytes(packed)}) unpacks to {human_bytes(unpacked)}, over the limit",
            where=where,
            fix=f"Export the sheet as csv or parquet. {how_to_raise(unpacked)}",
        )


def _as_text(value: Any, number_format: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < 1e15 else value
    if isinstance(value, int):
        # '0000' is how spreadsheets keep the zeros of an id: the cell shows 0007.
        return str(value).zfill(len(number_format)) if re.fullmatch(r"0{2,}", number_format) else str(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(sep=" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)


def _cells(worksheet: Any, where: str) -> Iterator[tuple[Any, ...]]:
    """The sheet's rows. The stated dimension is not believed: a mutilated one would pad without end."""
    worksheet.reset_dimensions()
    total = 0
    for number, row in enumerate(worksheet.iter_rows(), start=1):
        total += len(row)
        if number > MAX_ROWS or len(row) > MAX_COLUMNS or total > MAX_CELLS:
            raise UserError(
                "the sheet claims more cells than a sheet can have", where=where, fix="Export it as csv."
            )
        yield row


def _stored_results(
    path: Path, title: str, wanted: set[tuple[int, int]], where: str
) -> dict[tuple[int, int], Any]:
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        found: dict[tuple[int, int], Any] = {}
        for cell_row in _cells(book[title], where):
            for cell in cell_row:
                key = (getattr(cell, "row", 0), getattr(cell, "column", 0))
                if key in wanted:
                    found[key] = cell.value
        return found
    finally:
        book.close()


def _header(worksheet: Any) -> set[str]:
    """The words of the first row that has any, near the top."""
    for row in worksheet.iter_rows(max_row=20, values_only=True):
        words = {str(value).strip() for value in row if value is not None}
        if words:
            return words
    return set()


def _read_sheet(path: Path, sheet: str | None) -> tuple[list[list[str | None]], str, list[str]]:
    """The sheet's rows and its title; where none was asked for by name, also the titles of other visible sheets
    that share a column with it, and may have been meant."""
    import openpyxl

    where = str(path)
    book = openpyxl.load_workbook(path, read_only=True)
    try:
        titles = [ws.title for ws in book.worksheets]
        if not titles:
            raise UserError("the workbook has no sheet", where=where)
        if sheet is not None and sheet not in titles:
            raise unknown_name("sheet", sheet, titles)
        visible = [ws.title for ws in book.worksheets if ws.sheet_state == "visible"] or titles
        title = sheet or visible[0]
        headers = {} if sheet else {name: _header(book[name]) for name in visible}
        others = [name for name in headers if name != title and headers[name] & headers[title]]
        rows: list[list[str | None]] = []
        formulas: dict[tuple[int, int], tuple[int, int]] = {}
        for cells in _cells(book[title], where):
            values: list[str | None] = []
            for at, cell in enumerate(cells):
                if cell.value is None:
                    values.append(None)
                    continue
                if cell.data_type == "f":
                    formulas[(cell.row, cell.column)] = (len(rows), at)
                values.append(
                    _as_text(cell.value, cell.number_format if isinstance(cell.value, int | float) else "")
                )
            rows.append(values)
    finally:
        book.close()
    if formulas:
        results = _stored_results(path, title, set(formulas), where)
        for (row, column), (at_row, at_column) in formulas.items():
            value = results.get((row, column))
            if value is None:
                raise UserError(
                    f"row {row}, column {column} of sheet '{title}' is a formula without a stored result",
                    where=where,
                    fix="Open and save the workbook in a spreadsheet, or paste values in place of formulas.",
                )
            rows[at_row][at_column] = _as_text(value, "")
    return rows, title, others


def sheet_titles(path: str | Path, options: TableOptions = DEFAULT) -> list[str]:
    """List the sheets of a workbook, within the same limits as `read_workbook`.

    Args:
        path: The file.
        options: The limits of size.

    Returns:
        The titles, in the order of the workbook.

    Raises:
        UserError: The file is not a workbook, is damaged, or is larger than the limit.
    """
    import openpyxl

    path = Path(path)
    check_regular_file(path)
    with _explained(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check_archive(path, options)
        book = openpyxl.load_workbook(path, read_only=True)
        try:
            return [sheet.title for sheet in book.worksheets]
        finally:
            book.close()


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what a damaged workbook raises into an error that says so."""
    where = str(path)
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise file_system_error(error, "the workbook cannot be read", where=where) from error
    except MemoryError as error:
        raise UserError(
            "the workbook does not fit into memory", where=where, fix="Export it as csv."
        ) from error
    except _DAMAGE as error:
        raise UserError(
            f"the workbook is damaged or cannot be read ({type(error).__name__}: {str(error)[:150]})",
            where=where,
            fix="Open it in a spreadsheet and save it again as .xlsx, or export csv.",
        ) from error


def read_workbook(path: Path, options: TableOptions, *, sheet: str | None = None) -> pd.DataFrame:
    """Read a sheet of a workbook; its first non-empty row is the header.

    Args:
        path: The file.
        options: How it is read or scored.
        sheet: The sheet of a workbook.

    Returns:
        The table.

    Raises:
        UserError: What was given cannot be used; the message says what, where and what to do.
    """
    where = str(path)
    check_regular_file(path)
    with _explained(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl's remarks on styles and validations it does not keep
        _check_archive(path, options)
        rows, title, others = _read_sheet(path, sheet)
    while rows and not any(value is not None for value in rows[-1]):
        rows.pop()
    start = next((at for at, row in enumerate(rows) if any(value is not None for value in row)), None)
    if start is None:
        raise UserError(
            f"sheet '{title}' is empty",
            where=where,
            fix="Put the table on the first sheet, or export it as csv.",
        )
    width = max(len(row) for row in rows[start:])
    names = header_names(rows[start] + [None] * (width - len(rows[start])), where)
    body = [row + [None] * (width - len(row)) for row in rows[start + 1 :]]
    frame = (
        pd.DataFrame(body, columns=names, dtype="str")
        if body
        else pd.DataFrame({name: pd.Series([], dtype="str") for name in names})
    )
    frame = drop_unnamed_empty(frame)
    if others:
        also = ", ".join(f"'{name}'" for name in others)
        warnings.warn(
            f"{where}: sheet '{title}' is read; the workbook also has {also}", ElsewhereWarning, stacklevel=3
        )
    frame.attrs["sheet"] = title
    return frame
