"""The kinds of failure a person can meet.

A `UserError` is something the user can mend: it says what happened, where, and what to do, and the
command line shows it without a traceback (exit 64). A `FileSystemError` is a `UserError` whose cause is the
operating system: no space left, a read-only folder, a name that is too long (exit 74). Any other exception is
a fault of ours (exit 70).
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

EXIT_OK = 0
EXIT_BELOW = 2
EXIT_INCONCLUSIVE = 3
EXIT_NOT_ASSESSED = 4
EXIT_INCOMPLETE = 5
EXIT_CLAIM_CHANGED = 6
EXIT_BAD_INPUT = 64
EXIT_OUR_FAULT = 70
EXIT_FILE_SYSTEM = 74
_WORD = re.compile(r"[^0-9a-z]+")


class UserError(Exception):
    """A mistake in the input: `what` happened, `where` (file, row, column), and what to do (`fix`)."""

    exit_code: ClassVar[int] = EXIT_BAD_INPUT

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(self.__str__())

    def __str__(self) -> str:
        parts = [self.what if not self.where else f"{self.where}: {self.what}"]
        if self.fix:
            parts.append(self.fix)
        return "\n".join(parts)

    def to_dict(self) -> dict[str, str | None]:
        return {"error": self.what, "where": self.where, "fix": self.fix}


class FileSystemError(UserError):
    """The operating system refused to read or write a file that the user named, or the disk is full.

    A file that is not there, or a folder where a file is needed, is a wrong path and stays a plain `UserError`.
    """

    exit_code: ClassVar[int] = EXIT_FILE_SYSTEM


class TrainingError(UserError):
    """Of one training and its cases alone: one outcome only, no mask, a loss that ran away. That training has
    failed with this reason and the others go on, where any other UserError ends the run.
    """


class ElsewhereWarning(UserWarning):
    """Something a reader of the number must know; also collected into the result's `warnings`."""


def check_seed(seed: int) -> int:
    """The seed of random draws: a whole number from 0 on."""
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if whole < 0:
        raise UserError(f"the seed is {seed!r}", fix="Give a whole number of 0 or more, such as --seed 42.")
    return whole


def near_matches(name: str, options: Iterable[str], *, limit: int = 3) -> list[str]:
    """The options a mistyped `name` probably meant, best first."""
    pool = list(options)
    by_folded = {option.casefold(): option for option in pool}
    found = difflib.get_close_matches(name.casefold(), list(by_folded), n=limit, cutoff=0.5)
    return [by_folded[key] for key in found]


def near_columns(name: str, columns: Iterable[str], *, used: Iterable[str] = ()) -> list[str]:
    """The columns a missing `name` may be, best first: stricter than `near_matches`, for a wrong column that is
    taken is worse than none that is proposed. Short names only as a whole word; never one of `used`."""
    taken = set(used)
    pool = {c.casefold(): c for c in map(str, columns) if c not in taken}
    wanted = name.casefold()
    words = [c for c in pool if wanted == c or wanted in _WORD.split(c)]
    close = difflib.get_close_matches(wanted, list(pool), n=3, cutoff=0.8) if len(wanted) > 4 else []
    return [pool[c] for c in dict.fromkeys([*sorted(words, key=len), *close])][:3]


def unknown_name(
    kind: str, name: str, options: Sequence[str], *, list_command: str | None = None
) -> UserError:
    """The error for a bad name: its neighbours, and the command that lists all."""
    near = near_matches(name, options)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(options)) or 'none'}."
    if list_command:
        hint += f" `{list_command}` lists all."
    return UserError(f"unknown {kind} '{name}'", fix=hint)


def name_rows(rows: Sequence[object], *, limit: int = 5) -> str:
    """'rows 3, 7, 9 and 12 more': enough to find them, never a wall of text."""
    shown = ", ".join(str(row) for row in rows[:limit])
    rest = len(rows) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"
