"""Which files of a prediction folder may be opened: plain files inside it.

Predictions come from strangers. A mask that is a symbolic link to the truth would score as perfect, and
opening a pipe or a device would block. So every link is followed: a file that really lies outside the folder
that the user named is refused, and so is whatever is not a plain file. The folder itself may be a link, since
the user named it, and links inside the folder are accepted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from elsewhere.errors import UserError

_INSIDE = "Put the file itself into the folder: no link leads out of it, since that could be the truth."


def check_plain_file(path: Path, *, inside: Path) -> Path:
    """Check that a file is a plain one and lies inside a folder, every link followed.

    Args:
        path: The file.
        inside: The folder that the user named.

    Returns:
        The file, as it was given.

    Raises:
        UserError: It does not exist, lies outside the folder, or is a folder, a pipe or a device.
    """
    return _checked(path, os.path.realpath(inside))


def lies_inside(path: Path, *, inside: Path) -> bool:
    """Check whether a path lies in a folder once every link on the way is followed.

    Args:
        path: The path; it need not exist.
        inside: The folder.

    Returns:
        Whether it does.

    Example:
        >>> lies_inside(Path("a/../b/mask.png"), inside=Path("a"))
        False
    """
    return _is_inside(os.path.realpath(path), os.path.realpath(inside))


def files_inside(
    folder: Path, *, wanted: Callable[[Path], bool], deep: bool = True
) -> tuple[list[Path], int]:
    """List the wanted files of a folder, and count the others; hidden files are left out.

    Things that are neither wanted nor plain files are not opened.

    Args:
        folder: The folder that the user named.
        wanted: Whether a file is wanted, by its name.
        deep: Whether folders below it are searched too.

    Returns:
        The wanted files in order of name, and how many other plain files there are.

    Raises:
        UserError: A wanted file lies outside the folder or is no plain file, or a link leads to a folder
            outside.
    """
    files: list[Path] = []
    others = 0
    for path in _walk(folder, os.path.realpath(folder), wanted, deep, frozenset()):
        if wanted(path):
            files.append(path)
        else:
            others += path.is_file()
    return sorted(files), others


def _walk(
    folder: Path, root: str, wanted: Callable[[Path], bool], deep: bool, above: frozenset[str]
) -> Iterator[Path]:
    above = above | {os.path.realpath(folder)}
    with os.scandir(folder) as entries:
        found = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    for name in found:
        path = folder / name
        if wanted(path):
            yield _checked(path, root)
        elif not _is_folder(path):
            yield path
        elif deep:
            real = os.path.realpath(path)
            if not _is_inside(real, root):
                raise _leads_out(path)
            if real not in above:
                yield from _walk(path, root, wanted, deep, above)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, RuntimeError):
        return False


def _checked(path: Path, root: str) -> Path:
    try:
        real = os.path.realpath(path, strict=True)
        mode = os.lstat(real).st_mode
    except OSError as error:
        if path.is_symlink():
            raise UserError(
                "this is a link that leads nowhere", where=str(path), fix="Copy the file itself."
            ) from error
        raise UserError("there is no such file", where=str(path)) from error
    if not _is_inside(real, root):
        raise _leads_out(path)
    if not stat.S_ISREG(mode):
        raise UserError(
            "this is not a plain file (a folder, a pipe or a device)",
            where=str(path),
            fix="Save the prediction as a file of its own.",
        )
    return path


def _is_inside(real: str, root: str) -> bool:
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


def _leads_out(path: Path) -> UserError:
    what = "this is a link that leads" if _by_link(path) else "this path leads"
    return UserError(f"{what} out of the prediction folder", where=str(path), fix=_INSIDE)


def _by_link(path: Path) -> bool:
    """Whether a link, rather than `..` or an absolute path, leads there."""
    return os.path.realpath(path) != os.path.realpath(path.parent) + os.sep + path.name
