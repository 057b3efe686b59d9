"""Digests of large files, noted in a folder for as long as a file keeps its size and its time of change.

FOLDER/<name>.json    the sha256 of one file or group of files; <name> is the digest of its path
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elsewhere.errors import FileSystemError
from elsewhere.files import explained_refusals, write_bytes

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_JSON = 1 << 20


class FileDigests:
    """Digests that are computed once per state of a file.

    Args:
        folder: Where they are noted; a folder that cannot be written costs time and nothing else.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "a.tif"
        ...     _ = file.write_bytes(b"pixels")
        ...     FileDigests(Path(folder) / "notes").digest(file)[:8]
        '6ec9c2b0'
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def digest(self, path: Path, *more: Path, what: str = "file") -> str:
        """Return the sha256 of a file; it is read again only where its size or its time of change differ.

        Args:
            path: The file.
            more: Further files that belong to it; each counts with its name and content.
            what: What the file is, for messages.

        Returns:
            Hexadecimal.

        Raises:
            UserError: A file cannot be read.
        """
        refused = f"the {what} cannot be read"
        state: list[Any] = []
        for one in (path, *more):
            with explained_refusals(one, refused):
                found = one.stat()
            state += [found.st_size, found.st_mtime_ns]
        name = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        note = self.folder / f"{name}.json"
        noted = read_note(note)
        if noted.get("state") == state and _SHA256.fullmatch(str(noted.get("sha256"))):
            return str(noted["sha256"])
        digest = _of_file(path, refused)
        if more:
            whole = hashlib.sha256(digest.encode())
            for one in more:
                whole.update(f"{one.name}\0{_of_file(one, refused)}\n".encode("utf-8", "surrogateescape"))
            digest = whole.hexdigest()
        with contextlib.suppress(FileSystemError):
            write_bytes(json.dumps({"state": state, "sha256": digest}).encode(), note)
        return digest


def slide_parts(path: Path) -> Sequence[Path]:
    """List the files that belong to a slide beside the one that names it.

    Args:
        path: The slide.

    Returns:
        Of a .mrxs file those of its folder, of a .dcm file the others beside it, sorted; none for other formats.

    Example:
        >>> slide_parts(Path("a.tif"))
        []
    """
    ending = path.suffix.lower()
    if ending == ".mrxs":
        return sorted(one for one in path.with_suffix("").glob("*") if one.is_file())
    if ending == ".dcm":
        return sorted(one for one in path.parent.glob("*.dcm") if one.is_file() and one.name != path.name)
    return []


def read_note(path: Path) -> dict[str, Any]:
    """Read a note; one that cannot be read is no note.

    Args:
        path: A file of JSON.

    Returns:
        Its entries; none where it is missing, damaged or no object.

    Example:
        >>> read_note(Path("/no/such/note"))
        {}
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _of_file(path: Path, refused: str) -> str:
    with explained_refusals(path, refused), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
