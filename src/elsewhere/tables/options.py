"""How a text table is to be understood, when it is not plain UTF-8 with commas and points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Declared by the user, never guessed. `None` means the plain form of the file's kind.

    `max_bytes` bounds what a file may unpack to; `max_ratio` bounds unpacked : packed beyond
    `ratio_from_bytes`, so that a file made to unpack without end stops early.
    """

    encoding: str | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    max_bytes: int = 4 * GIB
    max_ratio: float = 200.0
    ratio_from_bytes: int = 100 * MIB


DEFAULT = TableOptions()
