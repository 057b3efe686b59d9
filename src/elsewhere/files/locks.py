"""Locks on files that end with their process, however it ends; and workers that end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.untrusted import read_json

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; one run at a time is up to the user
    fcntl = None  # type: ignore[assignment]


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
    """Describe this process, for the message to another process that finds a store locked.

    Returns:
        'pid', 'host', 'since' (local time) and 'command' (at most 300 characters).
    """
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.argv)[:300],
    }


def describe_holder(lock: Path) -> str:
    """Describe the process that holds a lock, from what it wrote into the file.

    Args:
        lock: The locked file, with the content of `describe_this_process` as JSON.

    Returns:
        A phrase such as "process 12 on host a since 2026-01-01 10:00:00 (command)".

    Example:
        >>> describe_holder(Path("/no/such/lock"))
        'an unknown process'
    """
    try:
        held = read_json(lock)
        return f"process {held['pid']} on {held['host']} since {held['since']} ({held['command']})"
    except (OSError, UserError, KeyError):
        return "an unknown process"


def end_with_parent() -> None:
    """End this worker process when its parent ends, even by kill -9; in a process without one nothing happens."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
