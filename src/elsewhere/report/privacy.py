"""No patient in the page: salted hashes for cases, suppressed small cells, ids taken out of free text.

A hash without a salt can be undone by hashing every id of the hospital, so the salt is secret and
lives, with the ids, only in the key file that stays beside the data.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.files import replacing
from elsewhere.report.numbers import as_float

SMALLEST_CELL = 5
SUPPRESSED = "<5"
ROUGHLY = 10
HASH_LENGTH = 10
SHORTEST_SALT = 8
REMOVED = "[id removed]"
_OUR_HASH = re.compile(r"^h-[0-9a-f]{8,64}$")
_HEX_WITH_LETTER = re.compile(r"^(?=.*[a-f])[0-9a-f]{8,64}$")
_TOKEN = re.compile(r"[^\s,;\"'`()\[\]{}<>=]+")
_LONGEST_BLANK_SEARCH = 5000


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


def write_key_file(path: str | Path, ids: Iterable[Any], salt: str) -> Path:
    """`hash,id` beside the report, readable by its owner alone: resolves the worst cases locally."""
    target = Path(path)
    listed = [str(i) for i in dict.fromkeys(ids)]
    with replacing(target) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["hash", "id"])
            writer.writerows(zip(hash_ids(listed, salt), listed, strict=True))
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


def _names(text: str) -> bool:
    return bool(text) and not (text.isdigit() and len(text) < 4)


class Redactor:
    """Takes known ids out of free text (audit messages, warnings, reasons), as whole words only.

    Numbers of up to three digits stay: `12` in a message is nearly always a count, and names nobody.
    """

    def __init__(self, ids: Iterable[Any] = ()) -> None:
        self._ids = frozenset(map(str.strip, map(str, ids)))
        blank = re.compile(r"\s").search
        spaced = (
            (i for i in self._ids if blank(i)) if blank("\n".join(self._ids).replace("\n", "")) else iter(())
        )
        self._with_blanks: Sequence[str] = sorted(spaced, key=len)[::-1][:_LONGEST_BLANK_SEARCH]
        self.removed = 0

    def __contains__(self, text: str) -> bool:
        return text in self._ids and _names(text)

    def text(self, text: str) -> str:
        if not self._ids or not text:
            return text
        for one in self._with_blanks:
            if one in text:
                self.removed += text.count(one)
                text = text.replace(one, REMOVED)
        return _TOKEN.sub(self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        token = match.group(0)
        for core in (token, token.rstrip(".:!?"), token.strip(".:!?*")):
            if core in self:
                self.removed += 1
                return token.replace(core, REMOVED)
        return token

    def tree(self, value: Any) -> Any:
        """Every text below `value`, keys too: a group's name can be an id when somebody groups by it."""
        if not self._ids:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value
