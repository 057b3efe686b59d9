"""The lock file of a claim: what was claimed when a verdict was shown, and what has changed since.

The lock is written when a verdict is shown, not before: a claim that ends in an error leaves no trace. It
records, for every verdict, the claim's content, the digests of the cohort and of the predictions, how the
file was read, the verdict and the time. A later run on the same cohort and predictions is compared with the
first one that was judged: under this claim file, under any other claim in the same folder (`cp claim.toml
claim2.toml`), and in the `--out` folder that it replaces.

Three things are distinguished. The *claim* decides the verdict: a change of it is reported, and the command
ends with exit code 6. *Descriptions* (the model's name, how outcomes were verified) and *reading options*
(columns, scale, how views are combined) are only reported where they change.

It is a record for people who want to be honest, and not a proof: whoever deletes the file has hidden it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.tables import write_json
from elsewhere.untrusted import read_json, read_text

LOCK_ENDING = ".lock"
FORMAT = 2
_MARK = "elsewhere_claim_lock"
_NOTE = "What was claimed when a verdict was shown. Keep this file beside the claim, and do not edit it."
_MOST_BYTES = 4 * 2**20
_MOST_SUMMARY_BYTES = 64 * 2**20
_MOST_LOCKS = 500
_LONGEST = 50_000
_LARGEST = 1e300
_TEXTS = ("time", "claim_file", "digest", "cohort", "predictions", "verdict")
_PARTS = ("claimed", "described", "reading")
Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class ShownVerdict:
    """One verdict that was shown, as the lock file records it.

    Args:
        time: When it was shown, in ISO format with a time zone.
        claim_file: Name of the claim's file, without its folder.
        digest: SHA-256 of what was claimed.
        cohort: Hash of the whole cohort.
        predictions: Digest of the predictions.
        verdict: The overall verdict.
        judged: False where no line of the claim could be judged.
        claimed: What decided the verdict, field by field.
        described: What only describes the model and its outcomes, field by field.
        reading: How the vendor's file was read, and the options of resampling, field by field.
    """

    time: str
    claim_file: str
    digest: str
    cohort: str
    predictions: str
    verdict: str
    judged: bool
    claimed: Mapping[str, Scalar]
    described: Mapping[str, Scalar]
    reading: Mapping[str, Scalar]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            The fields by name.
        """
        out: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        return out | {"judged": self.judged} | {name: dict(getattr(self, name)) for name in _PARTS}

    def same_data(self, other: ShownVerdict) -> bool:
        """Say whether another verdict is of the same predictions and cases.

        `where` does not make other data of them, for a part may be chosen after the verdict; only two claims
        that name different values of the same columns (site = North, site = South) share no case.

        Args:
            other: Another verdict.

        Returns:
            The same predictions of the same cohort, and not two claims about different parts of it.
        """
        same = (self.cohort, self.predictions) == (other.cohort, other.predictions)
        mine, theirs = self._where(), other._where()
        return same and not (mine and mine.keys() == theirs.keys() and mine != theirs)

    def _where(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.claimed.items() if name.startswith("where ")}

    def same_but_for_the_time(self, other: ShownVerdict) -> bool:
        """Say whether another verdict says the same at another time.

        Args:
            other: Another verdict.

        Returns:
            True where all else is equal.
        """
        return {**self.to_dict(), "time": ""} == {**other.to_dict(), "time": ""}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field of a claim, before and now.

    Args:
        field: Name of the field.
        before: Its earlier value; None where the field was absent.
        now: Its present value; None where the field is absent.

    Example:
        >>> str(Change(field="threshold", before=0.5, now=0.4))
        'threshold: 0.5, now 0.4'
    """

    field: str
    before: Scalar
    now: Scalar

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `field`, `before` and `now`.
        """
        return {"field": self.field, "before": self.before, "now": self.now}

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.before)}, now {_shown(self.now)}"


def changes(before: Mapping[str, Scalar], now: Mapping[str, Scalar]) -> tuple[Change, ...]:
    """List the fields in which two contents differ.

    Args:
        before: The earlier content.
        now: The present content.

    Returns:
        One entry per field that differs, in the order of the present content; fields that are gone come last.

    Example:
        >>> [str(change) for change in changes({"alpha": 0.05, "margin": 0.1}, {"alpha": 0.05})]
        ['margin: 0.1, now not there']
    """
    fields = dict.fromkeys((*now, *before))
    return tuple(
        Change(field=name, before=before.get(name), now=now.get(name))
        for name in fields
        if before.get(name) != now.get(name)
    )


@dataclass(frozen=True, kw_only=True)
class ClaimHistory:
    """This verdict among those that were shown before: the summary holds it as `claim_lock`.

    Args:
        now: The present verdict.
        same_data: Earlier verdicts on the same cases and predictions, oldest first.
        other_data: Earlier verdicts that share either the cohort or the predictions, oldest first.
        unreadable: Names of lock files beside the claim that could not be read.
    """

    now: ShownVerdict
    same_data: tuple[ShownVerdict, ...]
    other_data: tuple[ShownVerdict, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def first(self) -> ShownVerdict | None:
        """The first verdict on the same cohort and predictions: what later claims are compared with."""
        return next((record for record in self.same_data if record.judged), None)

    @property
    def changed(self) -> bool:
        """Whether another claim was judged first on the same cohort and predictions."""
        return self.first is not None and self.now.judged and self.first.digest != self.now.digest

    @property
    def locked_at(self) -> str:
        """When this claim was first judged on these data."""
        times = [record.time for record in self.same_data if record.digest == self.now.digest]
        return min([*times, self.now.time], key=datetime.fromisoformat)

    def _part_changes(self, part: str) -> tuple[Change, ...]:
        return () if self.first is None else changes(getattr(self.first, part), getattr(self.now, part))

    def sentences(self) -> list[str]:
        """Say what a reader of the verdict must know about the claim's past.

        Returns:
            Full sentences; empty where there is nothing to report.
        """
        out = []
        first = self.first
        if first is not None and self.changed:
            described = "; ".join(str(change) for change in self._part_changes("claimed"))
            out.append(
                f"The claim was changed after the verdict {first.verdict} of {when(first.time)} on the same cohort and "
                f"predictions ({first.claim_file}). Changed: {described}."
            )
        elif first is not None:
            others = {r.digest for r in self.same_data if r.judged} - {first.digest}
            if others and self.now.judged:
                out.append(
                    f"This claim was judged first on these cases ({when(first.time)}); {len(others)} other "
                    f"{'claim was' if len(others) == 1 else 'claims were'} judged on them since."
                )
        else:
            looked = next((r for r in self.same_data if not r.judged), None)
            if looked is not None and self.now.judged:
                out.append(
                    f"Results of these cases were already shown at {when(looked.time)}, before the claim could be judged "
                    f"({looked.claim_file}: {looked.verdict})."
                )
        for part, what in (("described", "Descriptions"), ("reading", "Options of reading and resampling")):
            found = self._part_changes(part)
            if found and first is not None:
                described = "; ".join(map(str, found))
                out.append(
                    f"{what} changed since the verdict {first.verdict} of {when(first.time)}: {described}."
                )
        other = next((r for r in self.other_data if r.judged and r.digest != self.now.digest), None)
        if other is not None and not self.changed:
            which = (
                "these predictions with another cohort"
                if other.cohort != self.now.cohort
                else "this cohort with other predictions"
                if other.predictions != self.now.predictions
                else "other cases of this cohort"
            )
            described = "; ".join(map(str, changes(other.claimed, self.now.claimed)))
            out.append(
                f"On {which}, another claim was judged at {when(other.time)} ({other.claim_file}: {other.verdict}). "
                f"Different: {described}."
            )
        out += [f"{name} could not be read, and was not compared." for name in self.unreadable]
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `digest`, `locked_at`, `changed`, `changed_since`, `changes`,
            `description_changes`, `reading_changes`, `sentences` and `history`.
        """
        first = self.first
        return {
            "digest": self.now.digest,
            "locked_at": self.locked_at,
            "changed": self.changed,
            "changed_since": None
            if first is None or not self.changed
            else {
                "time": first.time,
                "when": when(first.time),
                "verdict": first.verdict,
                "claim_file": first.claim_file,
            },
            "changes": [c.to_dict() for c in self._part_changes("claimed")] if self.changed else [],
            "description_changes": [c.to_dict() for c in self._part_changes("described")],
            "reading_changes": [c.to_dict() for c in self._part_changes("reading")],
            "sentences": self.sentences(),
            "history": [record.to_dict() for record in (*self.same_data, self.now)],
        }


def lock_path(claim: Path) -> Path:
    """Name the lock of a claim.

    Args:
        claim: The file of the claim.

    Returns:
        The path beside the claim.

    Example:
        >>> lock_path(Path("claims/vendor.toml")).name
        'vendor.toml.lock'
    """
    return claim.with_name(claim.name + LOCK_ENDING)


def check_lock(claim: Path) -> None:
    """Refuse a lock that cannot be understood, before any work is done.

    Args:
        claim: The file of the claim.

    Raises:
        UserError: If the lock of the claim exists and is damaged or of another version.
    """
    _records_of_lock(lock_path(claim))


def look_back(claim: Path, now: ShownVerdict, out: str | Path | None = None) -> ClaimHistory:
    """Find every verdict that was shown before.

    Verdicts are looked for in the claim's lock, in the locks beside it, and in the result that `out` holds.

    Args:
        claim: The file of the claim.
        now: The present verdict.
        out: The folder that will be written and may hold an earlier result; None for none.

    Returns:
        The history. Locks of other claims that cannot be read are listed in it.

    Raises:
        UserError: If the claim's own lock cannot be read.
    """
    own = lock_path(claim)
    records = list(_records_of_lock(own))
    unreadable = []
    for other in _locks_beside(own):
        try:
            records += _records_of_lock(other)
        except UserError:
            unreadable.append(other.name)
    if out is not None:
        records += _records_of_result(Path(out))
    unique: dict[str, ShownVerdict] = {
        json.dumps(record.to_dict(), sort_keys=True): record for record in records
    }
    ordered = sorted(unique.values(), key=lambda record: datetime.fromisoformat(record.time))
    return ClaimHistory(
        now=now,
        same_data=tuple(r for r in ordered if r.same_data(now)),
        other_data=tuple(
            r
            for r in ordered
            if not r.same_data(now) and (r.cohort == now.cohort or r.predictions == now.predictions)
        ),
        unreadable=tuple(unreadable),
    )


@contextlib.contextmanager
def locked(claim: Path, now: ShownVerdict) -> Iterator[None]:
    """Add a verdict to the claim's lock when the block, which shows it, ends well.

    The lock is tried on a file beside it first: a verdict that cannot be recorded is not shown. A verdict
    that the lock records already, but for its time, is not added again.

    Args:
        claim: The file of the claim.
        now: The verdict that is shown.

    Yields:
        Nothing; the lock is written at the end of the block.
    """
    path = lock_path(claim)
    history = list(_records_of_lock(path))
    if any(record.same_but_for_the_time(now) for record in history):
        yield
        return
    content = {
        _MARK: FORMAT,
        "claim": claim.name,
        "note": _NOTE,
        "history": [record.to_dict() for record in (*history, now)],
    }
    trial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.trial")
    try:
        write_json(content, trial)
        yield
        write_json(content, path)
    finally:
        with contextlib.suppress(OSError):
            trial.unlink(missing_ok=True)


def utc_now() -> str:
    """Return the present time.

    Returns:
        The time in UTC in ISO format, with milliseconds.
    """
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def when(time: str) -> str:
    """Print a time of a lock.

    Args:
        time: A time in ISO format.

    Returns:
        The time in UTC as a person reads it.

    Example:
        >>> when("2026-01-31T12:00:00.000+01:00")
        '2026-01-31 11:00:00 UTC'
    """
    return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _shown(value: Scalar) -> str:
    if value is None:
        return "not there"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else f"{value:g}"


def _not_understood(path: Path, why: str) -> UserError:
    return UserError(
        f"the lock file of the claim cannot be read ({why})",
        where=str(path),
        fix="Restore it; or, if it is of an earlier version, keep it elsewhere with your records, and run the command "
        "again.",
    )


def _records_of_lock(path: Path) -> tuple[ShownVerdict, ...]:
    """The records of a claim's lock file; () where there is no file."""
    if not path.exists():
        return ()
    try:
        content = read_json(path, what="lock file of the claim", most=_MOST_BYTES)
        if not isinstance(content, dict) or content.get(_MARK) != FORMAT:
            raise ValueError(f"it is not a lock of this version, {FORMAT}")
        history = content.get("history")
        if not isinstance(history, list):
            raise ValueError("it has no history")
        return tuple(_record(entry) for entry in history)
    except (ValueError, OSError) as problem:
        raise _not_understood(path, str(problem)) from problem
    except UserError as problem:
        raise _not_understood(path, problem.what) from problem


def _record(entry: Any) -> ShownVerdict:
    """A checked record; a ValueError says what is wrong with it."""
    if not isinstance(entry, dict) or not isinstance(entry.get("judged"), bool):
        raise ValueError("an entry of its history is not complete")
    for name in _TEXTS:
        if not isinstance(entry.get(name), str) or len(entry[name]) > _LONGEST:
            raise ValueError(f"an entry of its history has no {name}")
    for name in _PARTS:
        part = entry.get(name)
        if not isinstance(part, dict) or not all(_is_plain(value) for value in part.values()):
            raise ValueError(f"an entry of its history has no {name}")
    time = datetime.fromisoformat(entry["time"])
    if time.tzinfo is None or not 2000 < time.year < 9000:
        raise ValueError("a time of its history is not valid")
    return ShownVerdict(
        judged=entry["judged"],
        **{name: entry[name] for name in (*_TEXTS, *_PARTS)},
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return value is None or (isinstance(value, int | float) and abs(value) < _LARGEST)


def _locks_beside(own: Path) -> Sequence[Path]:
    """Lock files of other claims in the folder; those of other programs are left out."""
    found = []
    for path in sorted(own.parent.glob(f"*{LOCK_ENDING}"))[:_MOST_LOCKS]:
        if path.name == own.name or path.is_symlink() or not path.is_file():
            continue
        with contextlib.suppress(UserError, OSError):
            if _MARK in read_text(path, most=_MOST_BYTES):
                found.append(path)
    return found


def _records_of_result(out: Path) -> Sequence[ShownVerdict]:
    """The verdicts that an earlier result in `out` records; () where it is not a result of a claim."""
    path = out / "summary.json"
    try:
        content = read_json(path, most=_MOST_SUMMARY_BYTES)
        history = content["claim_lock"]["history"]
        return [_record(entry) for entry in history]
    except (UserError, ValueError, OSError, KeyError, TypeError):
        return ()
