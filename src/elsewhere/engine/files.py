"""Writes files that are complete or absent, and locks files until the process ends.

The engine may not use `elsewhere.tables`, which needs pandas; this is the small part of it that a store
needs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elsewhere.errors import FileSystemError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; one run at a time is up to the user
    fcntl = None  # type: ignore[assignment]

GO_ON = "Run the same command again: it resumes where it was stopped."


def write_synced(path: Path, content: bytes) -> str:
    """Write a file and wait until its bytes are on the disk (fsync).

    Args:
        path: The file; an existing one is overwritten.
        content: Its bytes.

    Returns:
        The sha256 of the content, hexadecimal.
    """
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk: a rename is durable only when its folder is synced.

    Args:
        folder: The folder in which files were renamed.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole or not at all.

    The bytes go to a temporary file in the same folder, which is synced and then renamed.

    Args:
        path: The file; an existing one is replaced.
        content: Its bytes.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        write_synced(temporary, content)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def to_json(content: Any) -> bytes:
    r"""Encode plain values as JSON, indented by one space, with a line break at the end.

    Args:
        content: Mappings, lists, text, finite numbers, True, False and None.

    Returns:
        The text in UTF-8.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has no form in JSON.

    Example:
        >>> to_json([1, None])
        b'[\n 1,\n null\n]\n'
    """
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest_of(path: Path) -> str:
    """Return the sha256 of a file's bytes.

    Args:
        path: The file.

    Returns:
        The digest, hexadecimal.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def explained(where: Path, doing: str) -> Iterator[None]:
    """Turn errors of the operating system in the block into errors that say what the user can do.

    Args:
        where: The file or folder that the message names.
        doing: What the block does, as a phrase for the message ('writing the zip of trainings').

    Yields:
        Nothing.

    Raises:
        FileSystemError: The block raised an OSError, for example because the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FileSystemError(
                f"no space left on the disk while {doing}; nothing that was finished is lost",
                where=str(where),
                fix=f"Free some space. {GO_ON}",
            ) from error
        raise FileSystemError(
            f"{doing}: {error.strerror or error}", where=str(error.filename or where), fix=GO_ON
        ) from error


class FileLock:
    """An exclusive flock on a file, held until `release` or the end of the process, however it ends.

    Args:
        path: The file; `acquire` makes it where it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """Take the lock.

        Args:
            wait: Whether to wait until the present holder releases it.

        Returns:
            True where the lock was taken; False where another process, or another object of this process,
            holds it.
        """
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _flock(handle, wait=wait):
                os.close(handle)
                return False
            # Another process may have removed the file between open and flock; such a lock is useless.
            try:
                same = os.path.samestat(self.path.stat(), os.fstat(handle))
            except FileNotFoundError:
                same = False
            if same:
                self._handle = handle
                return True
            os.close(handle)

    def write(self, content: bytes) -> None:
        """Replace the content of the locked file; without the lock nothing is written.

        Args:
            content: The new content, for example a description of the holder.
        """
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, content, 0)

    def release(self, *, remove: bool = False) -> None:
        """Release the lock; without the lock nothing happens.

        Args:
            remove: Whether the file is deleted too.
        """
        if self._handle is None:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def __del__(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)


def _flock(handle: int, *, wait: bool) -> bool:
    if fcntl is None:  # pragma: no cover
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def describe_this_process() -> dict[str, Any]:
    """Describe this process, for the message to another process that finds the store locked.

    Returns:
        'pid', 'host', 'since' (local time) and 'command' (at most 300 characters).
    """
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.argv)[:300],
    }
