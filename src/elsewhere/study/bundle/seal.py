"""The digests of a bundle's files, and the mark that says what a folder is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.files import MARKER
from elsewhere.tables import file_digest
from elsewhere.tables.writing import write_json, write_text
from elsewhere.untrusted import read_json, read_text

MARK, SUMS = "bundle.json", "SHA256SUMS"
FORMAT = "elsewhere-study-bundle-2"
MOST_SUMS, MOST_BYTES = 1 << 26, 1 << 32
"""Of the list of digests, and of each file of a bundle."""


def seal(staged: Path, about: dict[str, Any]) -> None:
    """Write the digest of every file, and last the mark that says what the folder is.

    Args:
        staged: The folder of the bundle.
        about: What the mark says beside the number of files.
    """
    files = sorted(p for p in staged.rglob("*") if p.is_file() and p != staged / MARKER)
    sums = {p.relative_to(staged).as_posix(): file_digest(p) for p in files}
    write_text("".join(f"{d}  {n}\n" for n, d in sums.items()), staged / SUMS)
    write_json(about | {"files": len(sums)}, staged / MARK)


def read_mark(folder: Path) -> dict[str, Any]:
    """Read what a bundle says of itself.

    Args:
        folder: Of the bundle.

    Returns:
        The content of the mark.

    Raises:
        UserError: The folder is no bundle.
    """
    fix = "Give a folder that `run --bundle` wrote."
    if not (folder / MARK).is_file():
        raise UserError("this is no release bundle", where=str(folder), fix=fix)
    return read_json(folder / MARK, what="mark of the bundle", fix=fix)


def broken_files(folder: Path) -> tuple[int, list[str]]:
    """Compare the files of a bundle with their digests.

    Args:
        folder: Of the bundle.

    Returns:
        How many files the bundle lists, and one sentence per file that changed, is missing or is not listed.
    """
    stated: dict[str, str] = {}
    listed = read_text(folder / SUMS, most=MOST_SUMS, what="list of digests", fix="Fetch the bundle again.")
    for line in listed.splitlines():
        digest, _, name = line.partition("  ")
        stated[name] = digest
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    found -= {SUMS, MARK, MARKER}
    wrong = [f"{name}: it is not there" for name in sorted(set(stated) - found)]
    wrong += [f"{name}: it is not listed" for name in sorted(found - set(stated))]
    for name in sorted(found & set(stated)):
        if (folder / name).stat().st_size > MOST_BYTES:
            wrong.append(f"{name}: it has over {MOST_BYTES:,} bytes, and was not read")
        elif file_digest(folder / name) != stated[name]:
            wrong.append(f"{name}: it has changed")
    return len(stated), wrong
