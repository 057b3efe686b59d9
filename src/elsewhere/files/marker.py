"""The marker of a result folder: which files in it Elsewhere wrote, and what they were when it wrote them.

A folder is an earlier result because of this file alone, never because of a file that happens to be called
`summary.json`. Only the files that it lists, unchanged, are ever replaced; everything else is somebody's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from elsewhere.errors import UserError
from elsewhere.untrusted import read_json

MARKER = ".elsewhere-result.json"
FORMAT = 1
_MOST_BYTES = 1 << 28

Listed = dict[str, tuple[int, str]]
"""Name inside the folder -> size in bytes and sha256."""


def safe_name(name: Any) -> bool:
    """Check whether a name from a file stays inside its folder.

    Args:
        name: The name, of any type.

    Returns:
        True for a plain relative path with slashes and without '..'.

    Example:
        >>> safe_name("plots/roc.svg"), safe_name("../other"), safe_name("/etc/passwd")
        (True, False, False)
    """
    if not isinstance(name, str) or not name or "\\" in name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.as_posix() == name


def files_below(folder: Path) -> list[str]:
    """List every file under a folder; links are not followed.

    Args:
        folder: The folder.

    Returns:
        Their names inside it, with slashes, sorted.
    """
    found = []
    for root, _, names in os.walk(folder):
        found += [(Path(root) / name).relative_to(folder).as_posix() for name in names]
    return sorted(found)


def digest(path: Path) -> str:
    """Compute the digest of a file.

    Args:
        path: The file.

    Returns:
        The sha256 of its bytes, as hexadecimal digits.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(folder: Path, names: Iterable[str]) -> Listed:
    """Measure the size and digest of files.

    Args:
        folder: The folder.
        names: Their names inside the folder.

    Returns:
        What a marker states of them.
    """
    return {name: ((folder / name).stat().st_size, digest(folder / name)) for name in names}


def marker_bytes(listed: Mapping[str, tuple[int, str]]) -> bytes:
    """Make the content of a marker.

    Args:
        listed: Size and sha256 of each file that was written, by its name inside the folder.

    Returns:
        The marker's content; the same files give the same bytes.

    Example:
        >>> marker_bytes({"a.csv": (3, "00")}) == marker_bytes({"a.csv": (3, "00")})
        True
    """
    content = {
        "format": FORMAT,
        "about": "Written by Elsewhere. It replaces the files listed here, while they are unchanged, and no other.",
        "files": {name: {"bytes": size, "sha256": value} for name, (size, value) in sorted(listed.items())},
    }
    text = json.dumps(content, indent=1, ensure_ascii=True)
    return (text + "\n").encode()


def read_marker(folder: Path) -> Listed | None:
    """Read the marker of a folder.

    Args:
        folder: The folder.

    Returns:
        What the marker lists; None where there is none, or none that can be understood.
    """
    try:
        content = read_json(folder / MARKER, most=_MOST_BYTES, any_name=True)
    except (OSError, UserError):
        return None
    files = content.get("files") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(files, dict):
        return None
    listed: Listed = {}
    for name, about in files.items():
        if not safe_name(name) or not isinstance(about, dict):
            return None
        size, value = about.get("bytes"), about.get("sha256")
        if not isinstance(size, int) or not isinstance(value, str):
            return None
        listed[name] = (size, value)
    return listed


def is_unchanged(folder: Path, name: str, about: tuple[int, str]) -> bool:
    """Check whether a listed file is still what was written.

    Args:
        folder: The folder.
        name: The name of the file inside the folder.
        about: The size and sha256 that the marker states.

    Returns:
        True where it is, byte for byte.
    """
    path = folder / name
    try:
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == about[0] and digest(path) == about[1]
    except OSError:
        return False
