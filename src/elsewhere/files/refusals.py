"""Refusals of the operating system as messages with the path and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from elsewhere.errors import FileSystemError, UserError

_NO_SPACE = "Free some space, and run the same command again."
_NO_RIGHT = "Name a place where you may read and write, or ask for the right to use this one."
_FIX = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: "Your quota is used up. " + _NO_SPACE,
    errno.EFBIG: "The disk does not accept a file of this size. Write to another disk.",
    errno.EROFS: "The disk may only be read. Name a folder on another disk.",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.ENAMETOOLONG: "Use a shorter name, or a folder with a shorter path.",
    errno.EIO: "The disk or network drive reports a fault. Check it, or use another one.",
    errno.EBUSY: "Another program uses it. Close that program, and run the same command again.",
    errno.EMFILE: "Too many files are open. Close other programs, or raise the limit (ulimit -n).",
    errno.ELOOP: "Its symbolic links lead back to themselves. Name the real file.",
}
_IN_TEXT = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)


def errno_of(error: BaseException) -> int | None:
    """Find the system's number of an error.

    Args:
        error: The error.

    Returns:
        The number; some libraries have it in their text alone. None where there is none.

    Example:
        >>> errno_of(OSError(28, "No space left on device")), errno_of(ValueError("[Errno 13] no"))
        (28, 13)
    """
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        return number
    found = _IN_TEXT.search(str(error))
    return int(found[1]) if found else None


def file_system_error(
    error: OSError | UnicodeError, what: str, *, where: str | Path | None = None
) -> FileSystemError:
    """Make the error to raise for what the system refused.

    Args:
        error: What the system, or a library that wrote a file, raised.
        what: What could not be done, as the beginning of a sentence: "the file cannot be written".
        where: The path as the user knows it; None takes the one in `error`.

    Returns:
        The error, with the reason and what to do.

    Example:
        >>> refused = OSError(28, "No space left on device")
        >>> file_system_error(refused, "the file cannot be written", where="a.csv").fix
        'Free some space, and run the same command again.'
    """
    if isinstance(error, UnicodeError):
        name = getattr(error, "object", None)
        named = name if isinstance(name, str) and len(name) < 300 else None
        return FileSystemError(
            f"{what} (a file name is not valid UTF-8)",
            where=named if where is None else str(where),
            fix="Rename the file or folder with plain letters.",
        )
    number = errno_of(error)
    reason = error.strerror if number == error.errno else None
    reason = reason or (os.strerror(number) if number is not None else str(error)[:200]) or "unknown reason"
    path = where if where is not None else error.filename
    fix = _FIX.get(number) if number is not None else None
    return FileSystemError(
        f"{what} ({reason})",
        where=None if path is None else os.fsdecode(path),
        fix=fix or "Check the path and the disk, and run the same command again.",
    )


@contextlib.contextmanager
def explained_refusals(where: str | Path, what: str, *, inside: Path | None = None) -> Iterator[None]:
    """Turn what the system refuses in the block into a `FileSystemError`.

    Args:
        where: The path that the error names.
        what: What cannot be done, as the beginning of a sentence: "the file cannot be written".
        inside: The file or folder that stands for `where` until it is complete; a file in it is named as it
            would have been called. None for none.

    Yields:
        Nothing.

    Raises:
        FileSystemError: The block raised `OSError`; a broken pipe passes unchanged.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except UserError as error:
        if inside is not None and error.where and Path(error.where).is_relative_to(inside):
            error.where = str(_named(Path(error.where), Path(where), inside))
            error.args = (str(error),)
        raise
    except OSError as error:
        raise file_system_error(error, what, where=_shown(error, Path(where), inside)) from error


def _shown(error: OSError, where: Path, inside: Path | None) -> Path | str:
    name = error.filename
    if not isinstance(name, str | bytes):
        return where
    path = Path(os.fsdecode(name))
    if inside is not None and path.is_relative_to(inside):
        return _named(path, where, inside)
    return where if any(part.startswith(".elsewhere-") for part in path.parts) else path


def _named(path: Path, where: Path, inside: Path) -> Path:
    """Return the name that a staged file would have had in its place."""
    parts = path.relative_to(inside).parts
    hidden = any(part.startswith(".elsewhere-") for part in parts)
    return where if hidden else where.joinpath(*parts)
