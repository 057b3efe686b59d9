"""Unpacks gzip files no further than is asked for, with the fastest library that is installed."""

from __future__ import annotations

import struct
import zlib
from typing import Any

try:
    from isal import isal_zlib as fast_zlib
except ImportError:
    fast_zlib = zlib

DAMAGED = (zlib.error, fast_zlib.error, EOFError, OSError, struct.error)
"""What unpacking raises where a file is damaged."""


class Inflater:
    """Bounded reads from a gzip file, across all its members; never more is unpacked than was asked for.

    Args:
        data: The packed file.

    Example:
        >>> import gzip
        >>> source = Inflater(gzip.compress(b"one") + gzip.compress(b"two"))
        >>> source.read(3), source.read(9), source.read(9), source.complete
        (b'one', b'two', b'', True)
    """

    def __init__(self, data: bytes) -> None:
        self._left = data
        self._stream: Any = fast_zlib.decompressobj(31)

    def read(self, most: int) -> bytes:
        """Unpack the next bytes.

        Args:
            most: The largest number of bytes to return; at least 1.

        Returns:
            At least one byte, at most `most`; none where the file is at its end, or is cut off (see
            `complete`).

        Raises:
            zlib.error: The file is damaged; one of `DAMAGED`.
        """
        while True:
            out: bytes = self._stream.decompress(self._left, most)
            self._left = self._stream.unconsumed_tail
            if out or (not self._stream.eof and not self._left):
                return out
            if self._stream.eof:
                self._left = self._stream.unused_data.lstrip(b"\0")
                if not self._left:
                    return b""
                self._stream = fast_zlib.decompressobj(31)

    @property
    def complete(self) -> bool:
        """Whether the last member ended properly; its checksum was verified then."""
        return bool(self._stream.eof)


def unpack(data: bytes, needed: int) -> tuple[bytes, bool]:
    """Unpack the beginning of a gzip file in one go.

    Args:
        data: The packed file.
        needed: How many bytes are wanted; hardly more are unpacked.

    Returns:
        The bytes, over all members, and whether the last member that was reached ended with its checksum.

    Raises:
        zlib.error: The file is damaged; one of `DAMAGED`.

    Example:
        >>> import gzip
        >>> unpack(gzip.compress(b"one") + gzip.compress(b"two"), 6)
        (b'onetwo', True)
    """
    parts: list[bytes] = []
    have = 0
    while True:
        stream = fast_zlib.decompressobj(31)
        part = stream.decompress(data, max(needed - have, 0) + 1)
        while part:
            parts.append(part)
            have += len(part)
            if have > needed or stream.eof:
                break
            part = stream.decompress(stream.unconsumed_tail, needed - have + 1)
        if have > needed:
            return b"".join(parts), True
        if not stream.eof:
            return b"".join(parts), False
        data = stream.unused_data.lstrip(b"\0")
        if not data:
            return b"".join(parts) if len(parts) != 1 else parts[0], True
