"""The entries of a ranking: which files they are, what they are called, and why one could not be scored."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.plain_files import check_plain_file, lies_inside
from elsewhere.privacy import Redactor
from elsewhere.tables import is_table, read_table

_MOST_BYTES = 8 * 2**20
_MOST_NAMES = 200_000
_CELL = re.compile(r"[,;\t|\r\n\"]+")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?")
_LONG_NUMBER = re.compile(r"[0-9]{4,}")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An entry that is not in the ranking. `why` may name cases and files; `shared` makes it fit to be
    printed.

    Args:
        model: Name of the entry.
        why: Reason why it could not be scored.
        path: Its file or folder; None for a result that exists already.
        options: How its tables are read; None for the defaults. `shared` reads them to find ids.
    """

    model: str
    why: str
    path: Path | None = None
    options: ReadOptions | None = None

    def shared(self, redactor: Redactor) -> dict[str, str]:
        """Describe a failure without ids and folders, also of an entry that could not be read as a table.

        Args:
            redactor: Takes out the ids.

        Returns:
            Model and reason as they may be shared.
        """
        more = () if self.path is None else tuple(_possible_ids(self.path, self.options or ReadOptions()))
        return {"model": redactor.text(self.model), "why": redactor.knowing(more).text(self.why)}


def entries_of(given: Sequence[Path]) -> list[Path]:
    """List the files and folders to score.

    Args:
        given: The paths that the user named.

    Returns:
        These paths; where one folder was named, everything in it that is not hidden.

    Example:
        >>> [str(path) for path in entries_of([Path("a.csv"), Path("b.csv")])]
        ['a.csv', 'b.csv']
    """
    if len(given) == 1 and given[0].is_dir():
        return sorted(path for path in given[0].iterdir() if not path.name.startswith("."))
    return list(given)


def check_entry(path: Path, given: Sequence[Path]) -> None:
    """Refuse an entry that is a link out of its folder; what the user named by hand may be one.

    Args:
        path: The file or folder.
        given: The paths that the user named.

    Raises:
        UserError: If the entry is a link that leads out of the folder of submissions, or not a plain file.
    """
    if path in given:
        return
    if path.is_dir():
        if not lies_inside(path, inside=path.parent):
            raise UserError(
                "this is a link that leads out of the folder of submissions",
                where=str(path),
                fix="Copy the submission itself into the folder.",
            )
    else:
        check_plain_file(path, inside=path.parent)


def _possible_ids(path: Path, options: ReadOptions) -> Iterator[str]:
    """Everything in an unreadable entry that may be an id: names of its files, or cells that are not scores.

    Only the reason of this entry is redacted with them, so it does no harm that some are not ids.
    """
    if path.is_dir() and not path.is_symlink():
        yield from _names_in(path)
    elif path.is_file():
        yield from _cells_in(path, options)


def _names_in(folder: Path) -> Iterator[str]:
    seen = 0
    for _, folders, files in os.walk(folder):
        for name in (*folders, *files):
            seen += 1
            if seen > _MOST_NAMES:
                return
            stem = name.split(".")[0] or name
            if any(c.isdigit() for c in name):
                yield name
                yield stem


def _cells_in(path: Path, options: ReadOptions) -> Iterator[str]:
    if is_table(path):
        try:
            frame = read_table(path, options=options.table, allow_empty=True)
        except UserError:
            pass
        else:
            yield from filter(_may_be_id, map(str, frame.columns))
            for name in frame.columns:
                yield from filter(_may_be_id, frame[name].dropna().astype("str").unique()[:_MOST_NAMES])
            return
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    yield from filter(_may_be_id, dict.fromkeys(cell.strip(" '") for cell in _CELL.split(text)))


def _may_be_id(cell: str) -> bool:
    """Scores and words are not ids; a long number may be one."""
    if not any(c.isdigit() for c in cell) or len(cell) > 200:
        return False
    return bool(_LONG_NUMBER.fullmatch(cell)) or not _NUMBER.fullmatch(cell)
