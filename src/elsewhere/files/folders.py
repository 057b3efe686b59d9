"""A result folder, written whole or not at all, in which other people's files stay.

    OUT/.elsewhere-result.json      the marker: what Elsewhere wrote (see `marker.py`)
    OUT/.elsewhere-<token>.new/     a result that is being written; its writer holds a lock on it
    OUT/.elsewhere-replacing.json   the journal: a replacement is in progress
    OUT/.elsewhere-<token>.old/     the earlier result, until the new one is complete

A new folder is written next to its place and renamed into it. An existing one is never renamed (it may be a
mount point, somebody's working directory, or hold other things): the new files are staged inside it, the
journal is written, the earlier files are moved aside, the new ones take their places, and the removal of the
journal completes the replacement. Killed at any moment, the folder holds the old result, the new one, or a
journal, and whoever opens it next puts the old result back.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.files.access import check_may_write, exists
from elsewhere.files.marker import (
    MARKER,
    describe,
    files_below,
    is_unchanged,
    marker_bytes,
    read_marker,
    safe_name,
)
from elsewhere.files.refusals import explained_refusals, file_system_error
from elsewhere.files.writing import make_folders, remove_empty, replacing, write_bytes
from elsewhere.untrusted import read_json

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock
    fcntl = None  # type: ignore[assignment]

JOURNAL = ".elsewhere-replacing.json"
_WORK = re.compile(r"\.elsewhere-(?P<token>[0-9a-f]{16})\.(?P<what>new|old)")
_PARTIAL = re.compile(r"\.elsewhere-[0-9a-f]{16}\.partial")
_DURING = "the result cannot be written"

Owned = Callable[[Path], Iterable[str]]
"""Names inside a folder that are Elsewhere's, whatever they contain: for folders that it rewrites by
itself."""


def check_out(
    out: str | Path | None,
    *,
    replace: bool = False,
    inputs: Iterable[Any] = (),
    owned: Owned | None = None,
) -> None:
    """Refuse a folder that must not be written to, before any work is done.

    Args:
        out: The folder; None is no folder, and passes.
        replace: Whether an earlier result in it may be replaced.
        inputs: What the command reads; those that are paths must not lie in `out`.
        owned: Lists names in it that are Elsewhere's, whatever they contain; None for none.

    Raises:
        UserError: It is a file, holds an input, an earlier result without `replace`, other things without
            the marker of a result, or files of a result that somebody has changed.
        FileSystemError: The system does not let it be written.
    """
    if out is not None:
        _to_replace(Path(out), replace=replace, inputs=inputs, owned=owned)


def check_out_file(out: str | Path | None, *, replace: bool = False, inputs: Iterable[Any] = ()) -> None:
    """Refuse a file that exists without `replace`, and one that is read.

    Args:
        out: The file to write; None is no file, and passes.
        replace: Whether a file that exists may be replaced.
        inputs: What the command reads; those that are paths must not be `out`.

    Raises:
        UserError: It is a folder, is read by the same command, or exists and `replace` is False.
        FileSystemError: The system does not let it be written.
    """
    if out is None:
        return
    path = Path(out)
    with explained_refusals(path, "the file cannot be written"):
        there, is_folder = exists(path), path.is_dir()
    if is_folder:
        raise UserError("there is a folder of this name", where=str(path), fix="Name a file.")
    for source in _paths(inputs):
        if _resolved(source) == _resolved(path):
            raise UserError(
                "this file is read by the same command", where=str(path), fix="Name another file."
            )
    if there and not replace:
        raise UserError(
            "there is a file of this name already",
            where=str(path),
            fix="Name another file, or add --replace (replace=True in Python).",
        )
    check_may_write(path)


@contextlib.contextmanager
def staged_directory(
    out: str | Path,
    *,
    replace: bool = False,
    inputs: Iterable[Any] = (),
    owned: Owned | None = None,
) -> Iterator[Path]:
    """Make a temporary folder that becomes `out` when the block ends well, and is removed when it does not.

    The parameters are those of `check_out`. Where `out` exists, the files that Elsewhere wrote there are
    replaced, all or none, and every other file stays where it is.

    Args:
        out: The folder to write, which may hold an earlier result.
        replace: Whether an earlier result in it may be replaced.
        inputs: What the command reads; those that are paths must not lie in `out`.
        owned: Lists names in it that are Elsewhere's, whatever they contain; None for none.

    Yields:
        The temporary folder.

    Raises:
        UserError: As `check_out`; also where another command changed the folder while the block ran.
        FileSystemError: As `check_out`; also where the block cannot write its files.
    """
    out = Path(out)
    old = _to_replace(out, replace=replace, inputs=inputs, owned=owned)
    with _staging(out) as staged:
        yield staged
        with explained_refusals(out, _DURING, inside=staged):
            listed = describe(staged, files_below(staged))
            (staged / MARKER).write_bytes(marker_bytes(listed))
            _install(staged, out, old=old, new=[*listed, MARKER])


@contextlib.contextmanager
def staged_files(folder: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Make a temporary folder whose files are added to `folder`, all or none, when the block ends well.

    For exports into a folder that may hold anything: no marker is written, and a file that exists is replaced
    only with `replace`.

    Args:
        folder: The folder, which is made where it does not exist.
        replace: Whether files of the same names may be replaced.

    Yields:
        The temporary folder.

    Raises:
        UserError: `folder` is a file, or holds files of the same names and `replace` is False.
        FileSystemError: The system does not let the files be written.
    """
    folder = Path(folder)
    with explained_refusals(folder, _DURING):
        if folder.is_dir():
            settle(folder)
        elif exists(folder):
            raise UserError("there is a file of this name", where=str(folder), fix="Name a folder.")
    check_may_write(folder)
    with _staging(folder) as staged:
        yield staged
        with explained_refusals(folder, _DURING, inside=staged):
            new = files_below(staged)
            there = [name for name in new if os.path.lexists(folder / name)]
            if there and not replace:
                raise UserError(
                    f"the folder already holds {_named(there)}",
                    where=str(folder),
                    fix="Name another folder, or add --replace (replace=True in Python).",
                )
            _install(staged, folder, old=there, new=new)


@contextlib.contextmanager
def rewritten(file: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Make a temporary file that takes the place of `file`; where a result's marker lists it, the marker
    follows.

    Args:
        file: The file to write.
        replace: Whether a file that Elsewhere did not write there may be replaced.

    Yields:
        The temporary file.

    Raises:
        UserError: The file exists, is not what Elsewhere wrote there, and `replace` is False.
        FileSystemError: The system refuses; the file and the marker are then as they were.
    """
    path = Path(file)
    folder = path.parent
    with explained_refusals(path, "the file cannot be written"):
        there = exists(path)
        if path.is_dir():
            raise UserError("there is a folder of this name", where=str(path), fix="Name a file.")
        settle(folder)
    listed = read_marker(folder)
    ours = listed is not None and path.name in listed and is_unchanged(folder, path.name, listed[path.name])
    if there and not ours and not replace:
        raise UserError(
            "the file was changed after Elsewhere wrote it, or is somebody else's"
            if listed is not None
            else "there is a file of this name already",
            where=str(path),
            fix="Name another file with --out, or add --replace (replace=True in Python).",
        )
    if listed is None:
        with replacing(path) as temporary:
            yield temporary
        return
    check_may_write(path)
    with _staging(folder) as staged:
        yield staged / path.name
        with explained_refusals(folder, _DURING, inside=staged):
            listed |= describe(staged, [path.name])
            (staged / MARKER).write_bytes(marker_bytes(listed))
            old = [path.name, MARKER] if there else [MARKER]
            _install(staged, folder, old=old, new=[path.name, MARKER])


def settle(folder: str | Path) -> None:
    """Undo a replacement that was interrupted in this folder: the earlier result is put back, with a warning.

    Args:
        folder: The folder; where nothing was interrupted, nothing happens.

    Raises:
        UserError: Another command is writing there now, or the journal cannot be understood.
        FileSystemError: The system does not let the files be moved.
    """
    folder = Path(folder)
    if not os.path.lexists(folder / JOURNAL):
        return
    token, old, new = _read_journal(folder)
    staged = folder / f".elsewhere-{token}.new"
    lock = _lock(staged)
    if lock is None:
        raise UserError(
            "another command is writing to this folder",
            where=str(folder),
            fix="Wait until it ends, or name another --out.",
        )
    try:
        if not os.path.lexists(folder / JOURNAL):
            return
        with explained_refusals(folder, "an interrupted replacement cannot be undone"):
            _roll_back(folder, staged, old, new)
    finally:
        os.close(lock)
    warnings.warn(
        f"{folder}: the replacement of this result was interrupted, so the earlier result was put back",
        ElsewhereWarning,
        stacklevel=2,
    )


# What may be replaced


def _to_replace(out: Path, *, replace: bool, inputs: Iterable[Any], owned: Owned | None) -> list[str]:
    """List the files of `out` that give way to new ones."""
    with explained_refusals(out, "the folder cannot be used"):
        if exists(out) and not out.is_dir():
            raise UserError("there is a file of this name", where=str(out), fix="Give another --out.")
        _refuse_inputs(out, inputs)
        old = _ours(out, replace=replace, owned=owned) if out.is_dir() else []
    check_may_write(out)
    return old


def _ours(out: Path, *, replace: bool, owned: Owned | None) -> list[str]:
    settle(out)
    held = [entry.name for entry in os.scandir(out) if not _is_work(entry.name)]
    if not held:
        return []
    always = {name for name in owned(out) if safe_name(name)} if owned else set()
    listed = read_marker(out)
    if listed is None and not always:
        raise UserError(
            "the folder holds other things and is not marked as a result of Elsewhere, so it is left alone",
            where=str(out),
            fix="Give a new or empty --out. If it is a result of an earlier version, which set no mark, move "
            "what you want to keep, and remove the folder.",
        )
    if not replace:
        raise UserError(
            "the folder holds an earlier result",
            where=str(out),
            fix="Give a new --out, or add --replace (replace=True in Python): only the files that Elsewhere "
            "wrote are replaced, and everything else in the folder stays.",
        )
    listed = listed or {}
    names = [name for name in listed if os.path.lexists(out / name)]
    changed = [n for n in names if n not in always and not is_unchanged(out, n, listed[n])]
    if changed and owned is None:
        raise UserError(
            f"{_named(changed)} was changed after Elsewhere wrote it, so nothing is replaced"
            if len(changed) == 1
            else f"{_named(changed)} were changed after Elsewhere wrote them, so nothing is replaced",
            where=str(out),
            fix="Move or rename what you want to keep, or give a new --out.",
        )
    mine = {*names, *(n for n in always if (out / n).is_file())} - set(changed)
    return sorted(mine) + ([MARKER] if os.path.lexists(out / MARKER) else [])


def _refuse_inputs(out: Path, inputs: Iterable[Any]) -> None:
    if not exists(out):
        return
    folder = _resolved(out)
    for source in _paths(inputs):
        if _resolved(source).is_relative_to(folder):
            raise UserError(
                f"the folder is or holds what this command reads: {source}",
                where=str(out),
                fix="Give an --out that holds no input.",
            )


def _paths(inputs: Iterable[Any]) -> Iterator[Path]:
    for source in inputs:
        if isinstance(source, str | Path):
            yield Path(source)


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _is_work(name: str) -> bool:
    return bool(_WORK.fullmatch(name) or _PARTIAL.fullmatch(name))


# Staging and putting in place


@contextlib.contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """Make an empty folder on the disk of `out`, locked while this process lives."""
    target = _resolved(out)
    created: list[Path] = []
    staged: Path | None = None
    lock: int | None = None
    try:
        with explained_refusals(out, _DURING):
            place = target if target.is_dir() else target.parent
            created = make_folders(place)
            _sweep(place)
            staged = place / f".elsewhere-{secrets.token_hex(8)}.new"
            staged.mkdir()
            lock = _lock(staged)
        with explained_refusals(out, _DURING, inside=staged):
            yield staged
    finally:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        if not os.path.lexists(target):
            remove_empty(created)


def _sweep(place: Path) -> None:
    """Remove what writers that no longer run left incomplete."""
    if os.path.lexists(place / JOURNAL):
        return
    for entry in list(os.scandir(place)):
        if _WORK.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            lock = _lock(Path(entry.path))
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Take an exclusive lock on a folder, held until it is closed; None where another process holds it."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    if fcntl is None:  # pragma: no cover
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _install(staged: Path, out: Path, *, old: Sequence[str], new: Sequence[str]) -> None:
    """Put the staged files in place: all of them, or none."""
    target = _resolved(out)
    if staged.parent != target:
        staged.rename(target)
        return
    _refuse_collisions(target, out, old, new)
    if not all(os.path.lexists(target / name) for name in old):
        raise UserError(
            "another command changed this folder while the result was made, so nothing is replaced",
            where=str(out),
            fix="Run the command again, or give a new --out.",
        )
    token = _token(staged)
    previous = target / f".elsewhere-{token}.old"
    write_bytes(json.dumps({"token": token, "old": list(old), "new": list(new)}).encode(), target / JOURNAL)
    try:
        previous.mkdir()
        for name in old:
            _move(target / name, previous / name)
        for name in new:
            _move(staged / name, target / name)
        (target / JOURNAL).unlink()
    except BaseException:
        _roll_back(target, staged, old, new)
        raise
    _prune(target, old)
    shutil.rmtree(previous, ignore_errors=True)


def _refuse_collisions(target: Path, out: Path, old: Sequence[str], new: Sequence[str]) -> None:
    """Refuse to replace a file that Elsewhere did not write, or to leave the folder through a link."""
    going = set(old)
    strangers = [name for name in new if name not in going and os.path.lexists(target / name)]
    above = {parent for name in new for parent in Path(name).parents if parent != Path()}
    for parent in sorted(above):
        place = target / parent
        blocked = os.path.lexists(place) and (place.is_symlink() or not place.is_dir())
        if blocked and parent.as_posix() not in going:
            strangers.append(parent.as_posix())
    if strangers:
        raise UserError(
            f"the folder holds {_named(strangers)}, which Elsewhere did not write and would have to replace",
            where=str(out),
            fix="Move or rename it, or give a new --out.",
        )


def _roll_back(target: Path, staged: Path, old: Sequence[str], new: Sequence[str]) -> None:
    """Restore the earlier result. Every step may have been done already: this can be interrupted too.

    A new file that is in place is distinguished from an earlier one of the same name by its absence from
    `staged`.
    """
    previous = staged.with_suffix(".old")
    for name in reversed(new):
        if not os.path.lexists(staged / name) and os.path.lexists(target / name):
            _move(target / name, staged / name)
    for name in old:
        if os.path.lexists(previous / name):
            _move(previous / name, target / name)
    _prune(target, new)
    with contextlib.suppress(FileNotFoundError):
        (target / JOURNAL).unlink()
    shutil.rmtree(staged, ignore_errors=True)
    shutil.rmtree(previous, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    if not target.parent.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _prune(target: Path, names: Sequence[str]) -> None:
    """Remove the folders of these files that are empty by now."""
    folders = {parent for name in names for parent in Path(name).parents if parent != Path()}
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        with contextlib.suppress(OSError):
            (target / folder).rmdir()


def _token(staged: Path) -> str:
    found = _WORK.fullmatch(staged.name)
    if found is None:
        raise ValueError(f"{staged.name} is no staging folder")
    return found["token"]


def _read_journal(folder: Path) -> tuple[str, list[str], list[str]]:
    """Return the journal's token, and the names of the earlier and of the new files."""
    problem = None
    try:
        content = read_json(folder / JOURNAL, most=1 << 28, any_name=True)
    except OSError as error:
        raise file_system_error(error, "the journal of a replacement cannot be read", where=folder) from error
    except UserError as error:
        content, problem = None, error
    if isinstance(content, dict):
        token, old, new = content.get("token"), content.get("old"), content.get("new")
        if not (isinstance(token, str) and isinstance(old, list) and isinstance(new, list)):
            pass
        elif all(map(safe_name, [*old, *new])):
            staged = folder / f".elsewhere-{token}.new"
            if _WORK.fullmatch(staged.name) and staged.is_dir() and not staged.is_symlink():
                return token, old, new
    raise UserError(
        "the replacement of this result was interrupted, and its journal cannot be followed",
        where=str(folder / JOURNAL),
        fix="Move what you want to keep out of the folder, and give a new --out.",
    ) from problem
