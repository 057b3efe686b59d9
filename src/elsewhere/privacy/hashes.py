"""Salted hashes in place of case ids, and the key file that resolves them.

A hash without a salt can be undone by hashing every id of the hospital. The salt is therefore secret: it is
not written anywhere, and the ids are only in the key file, which stays with the data.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.files import replacing

HASH_LENGTH = 10
SHORTEST_SALT = 8
_OUR_HASH = re.compile(r"^h-[0-9a-f]{8,64}$")
_HEX_WITH_LETTER = re.compile(r"^(?=.*[a-f])[0-9a-f]{8,64}$")


def new_salt() -> str:
    """Draw a salt from the system's own randomness: it is a secret, not a part of the analysis' seed.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> len(new_salt())
        32
    """
    return os.urandom(16).hex()


def hash_ids(ids: Iterable[Any], salt: str) -> list[str]:
    """Hash ids with a secret salt; the same id and salt give the same hash.

    Args:
        ids: Ids of cases or patients.
        salt: The secret, at least eight characters.

    Returns:
        For each id `h-` and ten hexadecimal digits.

    Raises:
        UserError: The salt is too short.

    Example:
        >>> hash_ids(["case-1"], "a secret salt") == hash_ids(["case-1"], "a secret salt")
        True
    """
    if len(salt) < SHORTEST_SALT:
        raise UserError(
            f"the salt for hashed ids has {len(salt)} characters",
            fix=f"give at least {SHORTEST_SALT}, or let the program draw one",
        )
    key = salt.encode()
    return ["h-" + hmac.new(key, str(i).encode(), hashlib.sha256).hexdigest()[:HASH_LENGTH] for i in ids]


def write_key_file(
    path: str | Path, ids: Iterable[Any], salt: str, *, originals: Mapping[str, str] | None = None
) -> Path:
    """Write `hash,id` next to the report, readable by its owner alone: it resolves the worst cases locally.

    Args:
        path: The file to write.
        ids: Ids that the report has as hashes.
        salt: The salt of these hashes.
        originals: The ids that were taken out of texts, by the mark that replaced each; None for none.

    Returns:
        The path that was written.

    Raises:
        UserError: The salt is too short.
    """
    listed = [str(i) for i in dict.fromkeys(ids)]
    pairs = [*zip(hash_ids(listed, salt), listed, strict=True), *(originals or {}).items()]
    return write_pairs(path, ("hash", "id"), pairs)


def write_pairs(path: str | Path, header: tuple[str, str], pairs: Iterable[tuple[str, str]]) -> Path:
    """Write a csv of two columns that only its owner can read.

    Args:
        path: The file to write.
        header: The names of the two columns.
        pairs: The rows.

    Returns:
        The path that was written.
    """
    target = Path(path)
    with replacing(target) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(pairs)
    return target


def looks_hashed(text: str) -> bool:
    """Check whether a name of a case can be a hash; any other name is hashed before it is printed.

    Args:
        text: The name of a case.

    Returns:
        True for `h-` with hexadecimal digits, and for hexadecimal digits that are no plain number.

    Example:
        >>> looks_hashed("h-0123456789"), looks_hashed("patient 7")
        (True, False)
    """
    return bool(_OUR_HASH.match(text) or _HEX_WITH_LETTER.match(text))
