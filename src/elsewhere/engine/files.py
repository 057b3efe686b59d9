"""Writes files that are complete or absent.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elsewhere.errors import FileSystemError
from elsewhere.files.locks import FileLock as FileLock

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
