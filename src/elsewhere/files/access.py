"""Checks before any work is done: whether something is at a path, and whether it may be written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elsewhere.errors import FileSystemError, UserError
from elsewhere.files.refusals import explained_refusals


def exists(path: Path) -> bool:
    """Check whether something is at a path; a link that leads nowhere exists too.

    Args:
        path: The path.

    Returns:
        True where something is there. Other refusals of the system raise `OSError`.

    Raises:
        UserError: The text cannot be a path, for example because of a null character.

    Example:
        >>> exists(Path("/"))
        True
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError as error:
        raise UserError(f"this cannot be a path ({error})", where=repr(str(path))[:200]) from error
    return True


def check_may_write(out: Path) -> None:
    """Refuse before the work what the system would refuse after it: a read-only disk, a name too long.

    Args:
        out: The path to write.

    Raises:
        FileSystemError: The disk may only be read, the folder may not be written, or the path is refused.
    """
    with explained_refusals(out, "nothing can be written here"):
        at = out
        while not exists(at) and at != at.parent:
            at = at.parent
        folder = at if at.is_dir() else at.parent
        with contextlib.suppress(AttributeError):
            if os.statvfs(folder).f_flag & os.ST_RDONLY:
                raise FileSystemError(
                    "the disk may only be read", where=str(out), fix="Name a folder on another disk."
                )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise FileSystemError(
                f"you may not write to {folder}",
                where=str(out),
                fix="Name a folder that you may write to, or ask for the right to write there.",
            )
