"""Writing one file whole or not at all: a reader never sees half of it, and a crash leaves the old one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from elsewhere.files.refusals import explained_refusals


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Make a temporary file next to `path` that takes its name when the block ends well, or is removed.

    Missing folders above it are made, and removed again where the block fails. The temporary name does not
    depend on the name of the file, so that every name the system allows can be written.

    Args:
        path: The file to write.

    Yields:
        The temporary file, which does not exist yet.

    Raises:
        FileSystemError: The system refuses: no space, no right, a name that is too long.
    """
    path = Path(path)
    temporary = path.with_name(f".elsewhere-{secrets.token_hex(8)}.partial")
    created: list[Path] = []
    complete = False
    with explained_refusals(path, "the file cannot be written", inside=temporary):
        try:
            created = make_folders(path.parent)
            yield temporary
            temporary.replace(path)
            complete = True
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if not complete:
                remove_empty(created)


def write_bytes(content: bytes, path: str | Path) -> None:
    """Write bytes to a file, whole or not at all.

    Args:
        content: The content.
        path: The file to write; one that exists is replaced.

    Raises:
        FileSystemError: The system refuses.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def reserve(path: str | Path, size: int) -> None:
    """Make a file whose space is taken on the disk: writing through a map ends the process where there is none.

    Args:
        path: The file; an existing one is overwritten.
        size: Its bytes.

    Raises:
        OSError: The disk has less space, or the system refuses.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     reserve(Path(folder) / "a", 1000)
        ...     (Path(folder) / "a").stat().st_size
        1000
    """
    with Path(path).open("wb") as file:
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def make_folders(folder: Path) -> list[Path]:
    """Make a folder, and those above it that are missing.

    Args:
        folder: The folder.

    Returns:
        The folders that were made, outermost first.
    """
    missing = []
    at = folder
    while not os.path.lexists(at) and at != at.parent:
        missing.append(at)
        at = at.parent
    created: list[Path] = []
    try:
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            created.append(one)
        if not missing and not folder.is_dir():
            folder.mkdir()
    except OSError:
        remove_empty(created)
        raise
    return created


def remove_empty(folders: list[Path]) -> None:
    """Remove folders that turned out not to be needed, innermost first, where nothing else is in them by now.

    Args:
        folders: The folders that were made, outermost first.
    """
    for one in reversed(folders):
        with contextlib.suppress(OSError):
            one.rmdir()
