"""Limits of how much is read at once: sizes are checked before the content is read.

One limit, 2 GB by default, holds for whatever a single file may take once it is unpacked: the text of a csv
or a workbook, the arrays of an npz, the estimated memory of a parquet table. The environment variable
`ELSEWHERE_MAX_BYTES` raises (or lowers) it.
"""

from __future__ import annotations

import lzma
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path

from elsewhere.errors import UserError

LIMIT_VARIABLE = "ELSEWHERE_MAX_BYTES"
DEFAULT_LIMIT = 2 * 1024**3
MOST_RATIO, RATIO_FROM = 200.0, 100 * 1024**2
DAMAGED_ARCHIVE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)
"""Errors that libraries raise when they read a damaged or crafted zip archive, npz, npy or JSON of a unit."""
_UNITS = {"": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(KB|MB|GB|TB|)\s*", re.IGNORECASE)


class SizeLimitError(UserError):
    """A file is larger than the limit for reading."""


def human_bytes(count: float) -> str:
    """Write a number of bytes for people.

    Args:
        count: The number of bytes.

    Returns:
        Text with a unit, in multiples of 1024.

    Example:
        >>> human_bytes(512), human_bytes(3 * 1024**2)
        ('512 bytes', '3.0 MB')
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def size_limit() -> int:
    """Return the most bytes that one file may take in memory: `ELSEWHERE_MAX_BYTES`, or 2 GB.

    Returns:
        The number of bytes.

    Raises:
        UserError: The variable is no size.
    """
    given = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not given:
        return DEFAULT_LIMIT
    found = _SIZE.fullmatch(given)
    limit = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if limit < 1:
        raise UserError(
            f"'{given}' is not a size", where=LIMIT_VARIABLE, fix="Write a number of bytes, or e.g. 8GB."
        )
    return limit


def how_to_raise(needed: float) -> str:
    """Write how a limit of size can be raised.

    Args:
        needed: How many bytes are needed.

    Returns:
        The advice that every refusal for size gives.

    Example:
        >>> how_to_raise(3e9)
        'If the file is what you expect, raise the limit: ELSEWHERE_MAX_BYTES=3GB.'
    """
    wanted = max(1, -(-int(needed) // 1024**3))
    return f"If the file is what you expect, raise the limit: {LIMIT_VARIABLE}={wanted}GB."


def check_size(size: float, what: str, *, where: str | Path, limit: int | None = None, fix: str = "") -> None:
    """Refuse a size above the limit.

    Args:
        size: The size in bytes.
        what: What has this size, as the beginning of a sentence: "the file has".
        where: The file that an error names.
        limit: The limit in bytes; None takes `size_limit()`.
        fix: What an error advises besides raising the limit.

    Raises:
        SizeLimitError: The size is above the limit.

    Example:
        >>> check_size(100, "the file has", where="a.csv", limit=200)
    """
    most = size_limit() if limit is None else limit
    if size > most:
        raise SizeLimitError(
            f"{what} {human_bytes(size)}; the limit is {human_bytes(most)}",
            where=str(where),
            fix=f"{fix} {how_to_raise(size)}".strip(),
        )


def check_zip_size(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse a zip archive (an npz) by the unpacked size that its directory states.

    Reading an entry never gives more than the directory states, so that nothing else need be trusted. How
    well it is packed is no criterion: masks without a tumour pack a thousandfold.

    Args:
        archive: The archive.
        path: The file that an error names.

    Raises:
        SizeLimitError: The unpacked size is above the limit.
    """
    check_size(sum(entry.file_size for entry in archive.infolist()), "the file unpacks to", where=path)


def check_archive(path: Path) -> None:
    """Refuse an npz or a torch file by its unpacked size, before any of it is read.

    Args:
        path: The file.

    Raises:
        SizeLimitError: The file, or its unpacked size, is above the limit.
        ValueError: It is no zip archive, or a damaged one.
    """
    check_size(path.stat().st_size, "the file has", where=path)
    try:
        with zipfile.ZipFile(path) as archive:
            check_zip_size(archive, path)
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{path.name} is not a whole archive ({error})") from error
