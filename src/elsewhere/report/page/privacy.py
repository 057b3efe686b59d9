"""No patient in the page: salted hashes for cases and suppressed small cells (ids in text: `redaction.py`).

A hash without a salt can be undone by hashing every id of the hospital, so the salt is secret and
lives, with the ids, only in the key file that stays beside the data.
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
from elsewhere.report.page.numbers import as_float
from elsewhere.report.page.redaction import Redactor

__all__ = ["Redactor", "hash_ids", "new_salt", "suppress", "suppress_counts", "write_key_file"]
SMALLEST_CELL = 5
SUPPRESSED = "<5"
ROUGHLY = 10
HASH_LENGTH = 10
SHORTEST_SALT = 8
_OUR_HASH = re.compile(r"^h-[0-9a-f]{8,64}$")
_HEX_WITH_LETTER = re.compile(r"^(?=.*[a-f])[0-9a-f]{8,64}$")


def new_salt() -> str:
    """A salt from the system's own randomness: it is a secret, not a part of the analysis' seed."""
    return os.urandom(16).hex()


def hash_ids(ids: Iterable[Any], salt: str) -> list[str]:
    """`h-` and ten hex digits an id, keyed by the salt; the same id and salt give the same hash."""
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
    """`hash,id` beside the report, readable by its owner alone: resolves the worst cases locally.

    `originals` are the ids that were taken out of texts, by the mark that stands there now.
    """
    listed = [str(i) for i in dict.fromkeys(ids)]
    pairs = [*zip(hash_ids(listed, salt), listed, strict=True), *(originals or {}).items()]
    return write_pairs(path, ("hash", "id"), pairs)


def write_pairs(path: str | Path, header: tuple[str, str], pairs: Iterable[tuple[str, str]]) -> Path:
    """A csv of two columns that only its owner can read."""
    target = Path(path)
    with replacing(target) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(pairs)
    return target


def looks_hashed(text: str) -> bool:
    """Whether a name of a case can be a hash; what cannot be is hashed again before it is printed."""
    return bool(_OUR_HASH.match(text) or _HEX_WITH_LETTER.match(text))


def suppress(value: Any) -> Any:
    """`<5` for one to four; nothing at all is no person, and stays 0."""
    number = as_float(value)
    return SUPPRESSED if number is not None and 0 < number < SMALLEST_CELL else value


def suppress_counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Small cells of one partition suppressed; where only one is small, the next is rounded to tens.

    Otherwise the small cell would be the total less the others.
    """
    shown = {name: suppress(value) for name, value in counts.items()}
    small = [name for name, value in shown.items() if value == SUPPRESSED]
    open_cells = {
        n: as_float(v) or 0.0 for n, v in shown.items() if n not in small and (as_float(v) or 0) > 0
    }
    if len(small) == 1 and open_cells:
        nearest = min(open_cells, key=lambda name: open_cells[name])
        shown[nearest] = roughly(open_cells[nearest])
    return shown


def roughly(value: Any) -> Any:
    """To the nearest ten, and marked so."""
    x = as_float(value)
    if x is None:
        return value
    tens = ROUGHLY * round(x / ROUGHLY)
    return f"≈{tens}" if tens else f"<{ROUGHLY}"


def is_withheld(value: Any) -> bool:
    """Suppressed or rounded: what `suppress_counts` did not leave as it was."""
    return isinstance(value, str)
