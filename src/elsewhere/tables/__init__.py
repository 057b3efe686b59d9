"""Tables in and out: the one place where files of unknown origin are opened.

Nothing is guessed: a file in another encoding, with semicolons or with decimal commas is refused with
the option that reads it deliberately. Text formats give strings, so that an id keeps its zeros.
"""

from __future__ import annotations

from elsewhere.files import check_out, check_out_file, staged_directory
from elsewhere.tables.hashing import content_hash, file_digest, infer_types, same_as_csv
from elsewhere.tables.numbers import to_number
from elsewhere.tables.options import TableOptions
from elsewhere.tables.reading import TABLE_ENDINGS, is_table, read_table
from elsewhere.tables.writing import (
    to_jsonable,
    write_json,
    write_table,
    write_text,
)

__all__ = [
    "TABLE_ENDINGS",
    "TableOptions",
    "check_out",
    "check_out_file",
    "content_hash",
    "file_digest",
    "infer_types",
    "is_table",
    "read_table",
    "same_as_csv",
    "staged_directory",
    "to_jsonable",
    "to_number",
    "write_json",
    "write_table",
    "write_text",
]
