"""The kinds of failure that a user can meet.

A `UserError` is something the user can correct: it says what happened, where, and what to do, and the
command line shows it without a traceback (exit 64). A `FileSystemError` is a `UserError` whose cause is the
operating system: no space left, a read-only folder, a name that is too long (exit 74). Any other exception is
a fault of this package (exit 70).
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
_LONGEST = 6000
"""Characters of a part of a message. A file from elsewhere may have names of a megabyte, and a message quotes them."""


class UserError(Exception):
    r"""A mistake in the input: `what` happened, `where` (file, row, column), and what to do (`fix`).

    The command line shows it without a traceback and ends with exit code 64.

    Args:
        what: What is wrong, as a clause without a final full stop.
        where: The file, row, column or key that holds the mistake; None where there is no single place.
        fix: What the user can do about it, as a full sentence; None where nothing general can be said.

    Example:
        >>> str(UserError("the seed is -1", where="study.toml", fix="Give 0 or more."))
        'study.toml: the seed is -1\nGive 0 or more.'
    """

    exit_code: ClassVar[int] = EXIT_BAD_INPUT

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = _bounded(what)
        self.where = _bounded(where) if where is not None else None
        self.fix = _bounded(fix) if fix is not None else None
        super().__init__(self.__str__())

    def __str__(self) -> str:
        parts = [self.what if not self.where else f"{self.where}: {self.what}"]
        if self.fix:
            parts.append(self.fix)
        return "\n".join(parts)

    def to_dict(self) -> dict[str, str | None]:
        """Return the error as a mapping for JSON output.

        Returns:
            The keys `error`, `where` and `fix`; None stands for a part that was not given.
        """
        return {"error": self.what, "where": self.where, "fix": self.fix}


def _bounded(text: str) -> str:
    return (
        text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text) - _LONGEST:,} more characters)"
    )


class FileSystemError(UserError):
    """The operating system refused to read or write a file that the user named, or the disk is full.

    A file that does not exist, or a folder where a file is needed, is a wrong path and stays a plain
    `UserError`.
    """

    exit_code: ClassVar[int] = EXIT_FILE_SYSTEM


class TrainingError(UserError):
    """A mistake that concerns one training and its cases alone.

    Examples are a training part with only one outcome, cases without a mask, or a loss that diverges. The
    training fails with this reason and the other trainings continue, whereas any other `UserError` ends the
    run.

    Args:
        what: What is wrong, as a clause without a final full stop.
        where: The file, row, column or key that holds the mistake; None where there is no single place.
        fix: What the user can do about it, as a full sentence; None where nothing general can be said.
    """


class ElsewhereWarning(UserWarning):
    """A remark that a reader of the number must see; it is also collected into the result's `warnings`."""


def check_seed(seed: int) -> int:
    """Check that a seed of random draws is a whole number from 0 on.

    Args:
        seed: The seed. Any object with `__index__` is accepted, such as a numpy integer.

    Returns:
        The seed as a Python `int`.

    Raises:
        UserError: The seed is negative or not a whole number.

    Example:
        >>> check_seed(42)
        42
    """
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if whole < 0:
        raise UserError(f"the seed is {seed!r}", fix="Give a whole number of 0 or more, such as --seed 42.")
    return whole


def near_matches(name: str, options: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the options that a mistyped name probably meant, best first.

    Args:
        name: What the user wrote; upper and lower case count as equal.
        options: The names that exist.
        limit: The largest number of names to return.

    Returns:
        The most similar options in their own spelling; empty where none is similar enough.

    Example:
        >>> near_matches("radiomic", ["clinical", "radiomics", "video"])
        ['radiomics']
    """
    pool = list(options)
    by_folded = {option.casefold(): option for option in pool}
    found = difflib.get_close_matches(name.casefold(), list(by_folded), n=limit, cutoff=0.5)
    return [by_folded[key] for key in found]


def near_columns(name: str, columns: Iterable[str], *, used: Iterable[str] = ()) -> list[str]:
    """Return the columns that a missing column may be, best first.

    It is stricter than `near_matches`, because a wrong column that the user accepts does more harm than no
    proposal. A name of up to four letters has to be a whole word of the column's name.

    Args:
        name: The column that is missing.
        columns: The columns that the table has.
        used: Columns that already have another meaning and are never proposed.

    Returns:
        At most three column names; empty where none is similar enough.

    Example:
        >>> near_columns("age", ["Patient age", "stage", "sex"])
        ['Patient age']
    """
    taken = set(used)
    pool = {c.casefold(): c for c in map(str, columns) if c not in taken}
    wanted = name.casefold()
    words = [c for c in pool if wanted == c or wanted in _WORD.split(c)]
    close = difflib.get_close_matches(wanted, list(pool), n=3, cutoff=0.8) if len(wanted) > 4 else []
    return [pool[c] for c in dict.fromkeys([*sorted(words, key=len), *close])][:3]


def unknown_name(
    kind: str, name: str, options: Sequence[str], *, list_command: str | None = None
) -> UserError:
    """Make the error for an unknown name, with similar names and the command that lists all names.

    Args:
        kind: What the name stands for, such as "protocol" or "recipe".
        name: What the user wrote.
        options: The names that exist.
        list_command: A command that lists them all; None where there is none.

    Returns:
        The error, for the caller to raise.

    Example:
        >>> unknown_name("recipe", "vidoe", ["clinical", "video"]).fix
        'Did you mean video?'
    """
    near = near_matches(name, options)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(options)) or 'none'}."
    if list_command:
        hint += f" `{list_command}` lists all."
    return UserError(f"unknown {kind} '{name}'", fix=hint)


def name_rows(rows: Sequence[object], *, limit: int = 5) -> str:
    """Write row names as '3, 7, 9 and 12 more': enough to find them, and never a wall of text.

    Args:
        rows: Row numbers or ids, in the order in which they are shown.
        limit: How many are written out.

    Returns:
        The text.

    Example:
        >>> name_rows([3, 7, 9], limit=2)
        '3, 7 and 1 more'
    """
    shown = ", ".join(str(row) for row in rows[:limit])
    rest = len(rows) - limit
    return shown if rest <= 0 else f"{shown} and {rest} more"
