"""Reads stretches of a file by their position, safely from several threads and after a fork.

A stretch is read with `pread`, which moves no shared position. The file is not mapped into memory: a mapped file on
a network drive that vanishes ends the process, and a read that fails is an error that can be reported.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.files.refusals import explained_refusals
from elsewhere.untrusted import check_plain_file

CUT_OFF = "Fetch or export the file again: it was cut off or damaged."


class StretchReader:
    """An open file of which stretches are read.

    Args:
        path: The file. A link is followed.

    Attributes:
        path: The file.
        size: Its bytes when it was opened.

    Raises:
        UserError: There is no such file, it is not a plain file, or the operating system refuses to open it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained_refusals(path, "the slide cannot be read"):
            check_plain_file(path, what="slide")
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            self.size = os.fstat(self._descriptor).st_size
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Args:
            offset: Where the stretch begins.
            length: How long it is.

        Returns:
            The bytes.

        Raises:
            UserError: The stretch is not inside the file, the file was closed, or it cannot be read any more.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise UserError(
                f"bytes {offset:,} to {offset + length:,} are needed and the file has {self.size:,}",
                where=str(self.path),
                fix=CUT_OFF,
            )
        if self._descriptor < 0:
            raise UserError(
                "the slide was closed before this read", where=str(self.path), fix="Open it again."
            )
        with explained_refusals(self.path, "the slide cannot be read"):
            content = self._pread(offset, length)
        if len(content) != length:
            raise UserError(
                "the file became shorter while it was read",
                where=str(self.path),
                fix="Check the disk or network drive, and that no other program writes the file.",
            )
        return content

    def _pread(self, offset: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            content = os.pread(self._descriptor, length, offset)
            while len(content) < length and (
                more := os.pread(self._descriptor, length - len(content), offset + len(content))
            ):
                content += more
            return content
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, length)

    def close(self) -> None:
        """Close the file; closing it twice does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()
