"""How a text table is to be understood, when it is not plain UTF-8 with commas and points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elsewhere.files.limits import MOST_RATIO, RATIO_FROM, size_limit

MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Declared by the user, never guessed. `None` means the plain form of the file's kind.

    `max_bytes` bounds what a file may take once it is unpacked (None: `ELSEWHERE_MAX_BYTES`, or 2 GB); `max_ratio`
    bounds unpacked : packed beyond `ratio_from_bytes`, so that a file made to unpack without end stops early.
    """

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    max_bytes: int | None = None
    max_ratio: float = MOST_RATIO
    ratio_from_bytes: int = RATIO_FROM

    @property
    def limit(self) -> int:
        """The most bytes that a file may take."""
        return size_limit() if self.max_bytes is None else self.max_bytes


DEFAULT = TableOptions()
