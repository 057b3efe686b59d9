"""Options of reading a text table that is not plain UTF-8 with commas and points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elsewhere.files.limits import MOST_RATIO, RATIO_FROM, size_limit

MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is read: declared by the user, never guessed.

    `None` means the plain form of the file's kind. `max_ratio` stops early on a file that was made to unpack
    without end.

    Args:
        encoding: The encoding of a text table, such as "latin-1"; None: UTF-8, or UTF-16 or UTF-32 with its
            mark.
        delimiter: The character between cells of a text table, or "tab", "semicolon", "comma" or "pipe";
            None: by the file's ending.
        decimal: The decimal mark of numbers in a text table.
        max_bytes: The largest size in bytes once the file is unpacked; None: `ELSEWHERE_MAX_BYTES`, or 2 GB.
        max_ratio: The largest ratio of unpacked to packed size of a compressed file.
        ratio_from_bytes: The unpacked size in bytes from which `max_ratio` applies.

    Example:
        >>> TableOptions(delimiter=";", decimal=",").encoding is None
        True
    """

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    max_bytes: int | None = None
    max_ratio: float = MOST_RATIO
    ratio_from_bytes: int = RATIO_FROM

    @property
    def limit(self) -> int:
        """The largest size in bytes that a file may take."""
        return size_limit() if self.max_bytes is None else self.max_bytes


DEFAULT = TableOptions()
