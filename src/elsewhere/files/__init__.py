"""Writing files whole or not at all; nothing is replaced that Elsewhere did not write.

Standard library only: the engine on a bare machine uses this room too.
"""

from __future__ import annotations

from elsewhere.files.folders import (
    JOURNAL,
    MARKER,
    check_out,
    check_out_file,
    rewritten,
    settle,
    staged_directory,
    staged_files,
)
from elsewhere.files.limits import (
    DAMAGED_ARCHIVE,
    LIMIT_VARIABLE,
    SizeLimitError,
    check_archive,
    check_size,
    check_zip_size,
    human_bytes,
    size_limit,
)
from elsewhere.files.refusals import explained_refusals, file_system_error
from elsewhere.files.writing import replacing, reserve, write_bytes

__all__ = [
    "DAMAGED_ARCHIVE",
    "JOURNAL",
    "LIMIT_VARIABLE",
    "MARKER",
    "SizeLimitError",
    "check_archive",
    "check_out",
    "check_out_file",
    "check_size",
    "check_zip_size",
    "explained_refusals",
    "file_system_error",
    "human_bytes",
    "replacing",
    "reserve",
    "rewritten",
    "settle",
    "size_limit",
    "staged_directory",
    "staged_files",
    "write_bytes",
]
