"""How much is read at once: sizes are looked at before the content is.

One limit, 2 GB by default, holds for whatever a single file may take once it is unpacked: the text of a csv or
a workbook, the arrays of an npz, the estimated memory of a parquet table. The environment variable
`ELSEWHERE_MAX_BYTES` raises (or lowers) it.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError

LIMIT_VARIABLE = "ELSEWHERE_MAX_BYTES"
DEFAULT_LIMIT = 2 * 1024**3
MOST_DEPTH = 64
"""Levels of lists and objects in a JSON file; ours have fewer than ten."""
MOST_RATIO, RATIO_FROM = 200.0, 100 * 1024**2
DAMAGED_ARCHIVE = (
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)
"""What a damaged zip archive, npz or npy is known to raise when it is opened or read."""
_UNITS = {"": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(KB|MB|GB|TB|)\s*", re.IGNORECASE)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class SizeLimitError(UserError):
    """A file is larger than what is read without being asked to."""


def human_bytes(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def size_limit() -> int:
    """The most bytes that one file may take in memory: `ELSEWHERE_MAX_BYTES`, or 2 GB.

    Raises:
        UserError: Where the variable holds no size.
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
    """The advice that goes with every refusal for size."""
    wanted = max(1, -(-int(needed) // 1024**3))
    return f"If the file is what you expect, raise the limit: {LIMIT_VARIABLE}={wanted}GB."


def check_size(size: float, what: str, *, where: str | Path, limit: int | None = None, fix: str = "") -> None:
    """Refuse what is larger than the limit; `what` is a sentence's beginning: "the file has"."""
    most = size_limit() if limit is None else limit
    if size > most:
        raise SizeLimitError(
            f"{what} {human_bytes(size)}; the limit is {human_bytes(most)}",
            where=str(where),
            fix=f"{fix} {how_to_raise(size)}".strip(),
        )


def check_zip_size(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse a zip archive (an npz) by what its directory says that it unpacks to.

    Reading an entry never gives more than the directory says, so that nothing else need be believed. How well it
    is packed says nothing: masks without a tumour pack a thousandfold.
    """
    check_size(sum(entry.file_size for entry in archive.infolist()), "the file unpacks to", where=path)


def check_archive(path: Path) -> None:
    """Refuse an npz or a torch file by what it unpacks to, before any of it is read.

    Raises:
        SizeLimitError: Where that is over the limit.
        ValueError: Where it is no zip archive.
    """
    check_size(path.stat().st_size, "the file has", where=path)
    try:
        with zipfile.ZipFile(path) as archive:
            check_zip_size(archive, path)
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{path.name} is not a whole archive ({error})") from error


def limited_json(path: Path, *, most_bytes: int = 1 << 26, most_depth: int = MOST_DEPTH) -> Any:
    """A JSON file of stated size and depth.

    Raises:
        OSError: Where it cannot be read.
        ValueError: Where it is no plain file, too large, too deep, or no JSON.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path.name} is not a regular file")
    if status.st_size > most_bytes:
        raise ValueError(
            f"{path.name} has {human_bytes(status.st_size)}; the limit is {human_bytes(most_bytes)}"
        )
    return limited_json_text(path.read_text(encoding="utf-8"), most_depth=most_depth)


def limited_json_text(text: str, *, most_depth: int = MOST_DEPTH) -> Any:
    """JSON from text that is not nested deeper than `most_depth`; `ValueError` otherwise."""
    if text.count("[") + text.count("{") > most_depth:
        depth = 0
        for token in _TOKEN.finditer(text):
            first = text[token.start()]
            if first in "[{":
                depth += 1
                if depth > most_depth:
                    raise ValueError(f"the JSON is nested more than {most_depth} levels deep")
            elif first in "]}":
                depth -= 1
    return json.loads(text)
