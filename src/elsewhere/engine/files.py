"""Bytes that reach the disk whole, and locks that vanish with their process.

The engine may not use `elsewhere.tables` (it needs pandas): this is the little of it that a store needs.
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
except ImportError:  # pragma: no cover - Windows has no flock: one run at a time is then the user's care
    fcntl = None  # type: ignore[assignment]

GO_ON = "Run the same command again: it goes on where it was."


def write_synced(path: Path, content: bytes) -> str:
    """Write and fsync; the sha256 of what was written."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def sync_folder(folder: Path) -> None:
    """A rename is on disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Through a synced temporary sibling that takes the name at the end."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        write_synced(temporary, content)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def to_json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def explained(where: Path, doing: str) -> Iterator[None]:
    """What the disk says, as a mistake that the user can mend."""
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
    """An exclusive flock on a file, held until `release` or the end of the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """False where another living process (or another object of this one) holds it, unless we wait."""
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _flock(handle, wait=wait):
                os.close(handle)
                return False
            # Between open and flock another may have removed the file: a lock on a file without a name is none.
            try:
                same = os.path.samestat(self.path.stat(), os.fstat(handle))
            except FileNotFoundError:
                same = False
            if same:
                self._handle = handle
                return True
            os.close(handle)

    def write(self, content: bytes) -> None:
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, content, 0)

    def release(self, *, remove: bool = False) -> None:
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
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.argv)[:300],
    }
