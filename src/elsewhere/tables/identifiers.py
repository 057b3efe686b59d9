"""The ids, file names and folders that a command has read, so that nothing it shares prints them.

A page is redacted with the ids of the cohort, but messages also quote other inputs: an id of a prediction
file that the cohort does not have, the name of a mask file, a path with a user name. So the readers note what
they read while a command runs (`remembers_ids`). Outside a command nothing is noted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pandas as pd

P = ParamSpec("P")
T = TypeVar("T")
_ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,5}$")
_GENERIC = frozenset(
    {"annotation", "image", "label", "labels", "mask", "masks", "pred", "prediction", "predictions", "seg"}
    | {"segmentation", "slide", "truth", "volume"}
)


@dataclass
class Identifiers:
    """The ids and folders that were read so far.

    Args:
        columns: Columns and lists of ids, as they were read.
        folders: The folders that lead to the inputs.
    """

    columns: list[Iterable[Any]] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)

    def ids(self) -> tuple[str, ...]:
        """Return every id once, as text; empty ids are left out.

        Returns:
            The ids in the order in which they were first read.

        Example:
            >>> Identifiers(columns=[["P1", "P2", "P1", ""]]).ids()
            ('P1', 'P2')
        """
        found: dict[str, None] = {}
        for column in self.columns:
            series = column if isinstance(column, pd.Series) else pd.Series(list(column), dtype="object")
            found.update(dict.fromkeys(series.dropna().astype("str").unique().tolist()))
        found.pop("", None)
        return tuple(found)


_READ: ContextVar[Identifiers | None] = ContextVar("read", default=None)


@contextmanager
def remembered() -> Iterator[Identifiers]:
    """Note the ids that are read in this block; a block inside another one adds to the outer one.

    Yields:
        The ids and folders noted so far.

    Example:
        >>> with remembered() as read:
        ...     note_ids(["P1"])
        >>> read.ids()
        ('P1',)
    """
    outer = _READ.get()
    if outer is not None:
        yield outer
        return
    token = _READ.set(found := Identifiers())
    try:
        yield found
    finally:
        _READ.reset(token)


def remembers_ids(command: Callable[P, T]) -> Callable[P, T]:
    """Wrap a command so that it notes the ids it reads, for the pages and tables that it writes.

    Args:
        command: The command.

    Returns:
        The wrapped command.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with remembered():
            return command(*args, **kwargs)

    return run


def note_ids(*columns: Iterable[Any]) -> None:
    """Note the values of columns as ids; outside a command nothing is noted.

    Args:
        *columns: Columns of a table, or any lists of names.
    """
    if (read := _READ.get()) is not None:
        read.columns += columns


def note_files(files: Iterable[str | Path], *, inside: Path | None = None) -> None:
    """Note the names of files as ids (a mask has the name of its case).

    Folders with a digit in their name are noted too.

    Args:
        files: The paths.
        inside: The folder that the paths are relative to; None: every folder of the path counts.
    """
    if (read := _READ.get()) is None:
        return
    names: list[str] = []
    for file in files:
        path = Path(file)
        if inside is not None and path.is_relative_to(inside):
            path = path.relative_to(inside)
        names += [part for part in path.parts[:-1] if any(c.isdigit() for c in part)]
        names += [path.name, stem_of(path.name)]
    read.columns.append([name for name in dict.fromkeys(names) if name.casefold() not in _GENERIC])


def note_source(path: str | Path) -> None:
    """Note where an input lies: the folders that lead to it must not be shared.

    Args:
        path: The input.
    """
    if (read := _READ.get()) is not None:
        given = Path(path)
        try:
            whole = given.resolve()
        except (OSError, RuntimeError, ValueError):
            whole = given
        read.folders |= {str(given.parent), str(whole.parent)} - {".", "/"}


def read_ids() -> tuple[str, ...]:
    """Return every id noted so far in this command.

    Returns:
        The ids; empty outside a command.
    """
    read = _READ.get()
    return () if read is None else read.ids()


def read_folders() -> tuple[str, ...]:
    """Return the folders of the inputs noted so far in this command.

    Returns:
        The folders, sorted; empty outside a command.
    """
    read = _READ.get()
    return () if read is None else tuple(sorted(read.folders))


def stem_of(name: str) -> str:
    """Take a file's name without its endings.

    Args:
        name: The name.

    Returns:
        A file's name without its endings: `A.nii.gz` is `A`, `1.2.840.113` stays.

    Example:
        >>> stem_of("A.nii.gz"), stem_of("1.2.840.113")
        ('A', '1.2.840.113')
    """
    while (shorter := _ENDING.sub("", name)) and shorter != name:
        name = shorter
    return name
