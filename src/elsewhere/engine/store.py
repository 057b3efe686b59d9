"""The store of finished units: a folder that survives kill -9 at any moment, a full disk, and two writers.

    units/<key>/    unit.json, outputs.npz, history.json, weights.pt or .npz (where saved), done.json (last)
    failed/<key>.json   why a unit could not be done; removed when it is done
    damaged/        units whose files no longer fit their digests, set aside; they are done again
    scratch/<key>/  checkpoints of a training that was begun; removed when it is saved
    .writers/       one locked file per living writer: what a dead writer left behind is removed

A unit is one training with its outcome. It is written beside its place and renamed into it, so that it is
there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elsewhere.engine.files import (
    digest_of,
    explained,
    sync_folder,
    to_json,
    write_atomically,
    write_synced,
)
from elsewhere.engine.kept import WEIGHT_FILES
from elsewhere.engine.outcomes import NotInstalledError, from_files, merged, to_files
from elsewhere.engine.training import Outcome, Training
from elsewhere.errors import ElsewhereWarning, FileSystemError, UserError
from elsewhere.files import DAMAGED_ARCHIVE, SizeLimitError, file_system_error
from elsewhere.files.locks import FileLock, describe_holder, describe_this_process
from elsewhere.inputs import Cases
from elsewhere.untrusted import read_json

STORE_VERSION = 1
KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
FILES = ("unit.json", "outputs.npz", "history.json", *WEIGHT_FILES)
_PARTIAL = re.compile(r"\.(?P<token>[0-9a-f]{16})\.(?P<key>[0-9A-Za-z_-]+)\.(?P<what>partial|old)")


class DamagedUnitError(UserError):
    """A stored training has damaged files. It was set aside, and the next run does it again."""


class Store:
    """Outcomes of finished trainings by key. Reading needs no lock; `lock()` is for a run that writes.

    Args:
        path: The folder of the store; the first write makes it where it does not exist.

    Raises:
        UserError: The path is a file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.damaged: dict[str, str] = {}
        """Trainings that this object found damaged and set aside: what is wrong, by key."""
        self._writer: FileLock | None = None
        self._token = ""
        self._locked: FileLock | None = None
        self._depth = 0
        self._committing: FileLock | None = None
        if self.path.exists() and not self.path.is_dir():
            raise UserError("the store must be a folder, and this is a file", where=str(self.path))

    # Reading

    def keys(self) -> list[str]:
        """List the keys of the finished trainings.

        Returns:
            Sorted keys; none where the store does not exist.
        """
        if not self._units.is_dir():
            return []
        found = (entry.name for entry in os.scandir(self._units) if KEY.fullmatch(entry.name))
        return sorted(key for key in found if (self._units / key / "done.json").is_file())

    def __contains__(self, key: str) -> bool:
        return KEY.fullmatch(key) is not None and (self._units / key / "done.json").is_file()

    def has(self, unit: Training, cases: Cases) -> bool:
        """Say whether a training need not be done again (US-10).

        It need not where the store has its outcome undamaged, with weights if the training saves them, and
        with a prediction of every case that the training predicts, made from the same pixels and box. A
        damaged outcome is set aside with a warning.

        Args:
            unit: The training, with its key.
            cases: The cases of the study, with the pixels and boxes of today.

        Returns:
            True where the outcome can be used as it is.

        Raises:
            UserError: The outcome was written by another version, or needs a package that is not installed.
            FileSystemError: A file cannot be read.
        """
        if unit.key not in self:
            return False
        try:
            outcome = self.load(unit.key)
        except DamagedUnitError as damage:
            warnings.warn(str(damage), ElsewhereWarning, stacklevel=2)
            return False
        if unit.keep_weights and outcome.weights is None:
            return False
        return outcome.covers(unit.predict, unit.fingerprints(cases)[cases.rows(unit.predict)])

    def load(self, key: str) -> Outcome:
        """Read the outcome of a training.

        Every digest is checked, that of the weights when they are first used.

        Args:
            key: The training's key.

        Returns:
            The outcome.

        Raises:
            DamagedUnitError: A file does not fit its digest; the training is set aside and will be done
                again.
            UserError: The key is not in the store, or the outcome was written by another version, needs a
                package that is not installed, or does not fit into memory.
            FileSystemError: A file cannot be read.
            ValueError: The text cannot be a key.
        """
        for _ in range(3):
            folder = self._folder(key)
            if not (folder / "done.json").is_file():
                break
            try:
                return from_files(folder, _read_done(folder, key))
            except UserError as wrong:
                if isinstance(
                    wrong, OtherVersionError | NotInstalledError | SizeLimitError | FileSystemError
                ):
                    raise
                damage = self._set_aside(key, wrong)
                if damage is not None:
                    raise damage from wrong
            except MemoryError as error:
                raise UserError(f"unit {key} does not fit into memory", where=str(folder)) from error
            except (_MisfitError, *DAMAGED_ARCHIVE) as wrong:
                damage = self._set_aside(key, wrong)
                if damage is not None:
                    raise damage from wrong
            except OSError as error:
                raise file_system_error(error, f"unit {key} cannot be read", where=folder) from error
        raise UserError(f"unit {key} is not in the store", where=str(self.path), fix="Run the study first.")

    def info(self, key: str) -> dict[str, Any]:
        """Read 'done.json' of a training: name, seconds, device, versions, epochs, digests.

        Args:
            key: The training's key.

        Returns:
            The content of the file.

        Raises:
            UserError: As `load`.
        """
        self.load(key)
        return _read_done(self._folder(key), key, deep=False)

    def unit(self, key: str) -> Training:
        """Read a training as it was asked for when it was done.

        Args:
            key: The training's key.

        Returns:
            The training.

        Raises:
            UserError: As `load`, or its description cannot be understood.
        """
        self.load(key)
        file = self._folder(key) / "unit.json"
        try:
            return Training.from_dict(read_json(file, what="description of the unit"))
        except DAMAGED_ARCHIVE as wrong:
            raise UserError(
                f"unit {key} cannot be understood ({wrong})",
                where=str(file),
                fix="The next run does it again.",
            ) from wrong

    # Writing

    def save(self, unit: Training, outcome: Outcome) -> bool:
        """Save a finished training, as a whole or not at all.

        Where the store has it already (another writer was first), the outcome in the store stays, unless it
        lacks something that this one has: then both are joined.

        Args:
            unit: The training, with its key.
            outcome: Its outcome, checked by `engine.outcomes.check_outcome`.

        Returns:
            True where something was written; False where the store had all of it.

        Raises:
            FileSystemError: The store cannot be written, for example because the disk is full.
            ValueError: The training has no valid key.
        """
        folder = self._folder(unit.key)
        with explained(self.path, f"saving unit {unit.key} ({unit.name})"):
            self._join_writers()
            with self._commit():
                joined = self._joined(unit, outcome)
                if joined is not None:
                    self._put(self._stage(unit.key, to_files(unit, joined)), folder)
                self._failure_file(unit.key).unlink(missing_ok=True)
            shutil.rmtree(self.scratch / unit.key, ignore_errors=True)
        return joined is not None

    def _joined(self, unit: Training, outcome: Outcome) -> Outcome | None:
        """Return the outcome to write; None where the store has all of it."""
        if unit.key not in self:
            return outcome
        try:
            old = self.load(unit.key)
        except DamagedUnitError:
            return outcome
        lacks = any(
            getattr(outcome, name) is not None and getattr(old, name) is None
            for name in ("weights", "trained_on")
        )
        if old.covers(outcome.case, outcome.fingerprint) and not lacks:
            return None
        return merged(old, outcome)

    def _stage(self, key: str, files: dict[str, bytes | dict[str, Any]]) -> Path:
        staged = self._units / f".{self._token}.{key}.partial"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            done = files["done.json"]
            contents = {name: content for name, content in files.items() if isinstance(content, bytes)}
            digests = {name: write_synced(staged / name, content) for name, content in contents.items()}
            sizes = {name: len(content) for name, content in contents.items()}
            if not isinstance(done, dict):
                raise TypeError("done.json is made by the store")
            head = {"version": STORE_VERSION, "key": key, "digests": digests, "sizes": sizes}
            write_synced(staged / "done.json", to_json(head | done))
            sync_folder(staged)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        return staged

    def _put(self, staged: Path, folder: Path) -> None:
        """Rename into place; killed between two renames, the next sweep finishes or undoes them."""
        old = staged.with_suffix(".old")
        try:
            if folder.exists():
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
            staged.rename(folder)
            sync_folder(self._units)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)

    # Failures

    def record_failure(self, unit: Training, reason: str) -> None:
        """Record why a training failed.

        The record stays until the training succeeds; every run tries it again.

        Args:
            unit: The training, with its key.
            reason: The reason, as a sentence for the user.

        Raises:
            FileSystemError: The store cannot be written.
        """
        with explained(self.path, f"recording that unit {unit.key} failed"):
            file = self._failure_file(unit.key)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, to_json({"key": unit.key, "name": unit.name, "reason": reason}))

    def failures(self) -> dict[str, str]:
        """List the trainings that failed and have not succeeded since.

        Returns:
            The reason by key. Records that cannot be read are left out.
        """
        found = {}
        for file in sorted((self.path / "failed").glob("*.json")):
            with contextlib.suppress(OSError, UserError, KeyError):
                content = read_json(file)
                if content["key"] not in self:
                    found[str(content["key"])] = str(content["reason"])
        return found

    # To and from another machine

    def export(self, keys: Iterable[str], zip_path: str | Path) -> Path:
        """Write finished trainings into a zip file, digests checked, for `add` on another machine.

        Args:
            keys: The keys of the trainings.
            zip_path: The file to write; an existing one is replaced.

        Returns:
            The file.

        Raises:
            UserError: A key is not in the store, or its files are damaged.
            FileSystemError: The zip cannot be written.
        """
        from elsewhere.engine.archive import export

        return export(self, list(keys), Path(zip_path))

    def add(self, zip_path: str | Path) -> list[str]:
        """Add the trainings of a zip file that `export` wrote; all of them or, where one is damaged, none.

        Args:
            zip_path: The file.

        Returns:
            The keys that were new to the store, or that added something to what the store had.

        Raises:
            UserError: The file is missing, is no zip of trainings, or holds a damaged training.
            FileSystemError: A file cannot be read or written.
        """
        from elsewhere.engine.archive import add

        return add(self, Path(zip_path))

    @contextlib.contextmanager
    def borrowed_folder(self) -> Iterator[Path]:
        """Make a temporary folder on the store's disk for the time of the block.

        If the process dies, the next run removes the folder like a half-written training.

        Yields:
            The folder.

        Raises:
            FileSystemError: The folder cannot be made.
        """
        with explained(self.path, "opening the store"):
            self._join_writers()
            folder = self._units / f".{self._token}.borrowed-{secrets.token_hex(3)}.partial"
            folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # One run at a time

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store for the time of the block, so that only one run writes at a time.

        Entering removes what processes that died left behind. The same object may enter again. The lock ends
        with its process, so that there are no stale locks.

        Yields:
            Nothing.

        Raises:
            UserError: Another run is writing to the store; the message names it.
            FileSystemError: The store cannot be opened.
        """
        if self._locked is None:
            with explained(self.path, "opening the store"):
                self._units.mkdir(parents=True, exist_ok=True)
                lock = FileLock(self.path / ".lock")
                held = lock.acquire()
            if not held:
                raise UserError(
                    f"another run is writing to this store: {describe_holder(lock.path)}",
                    where=str(self.path),
                    fix="Wait until it ends, or give this run another --store.",
                )
            lock.write(to_json(describe_this_process()))
            self._locked = lock
            with explained(self.path, "cleaning up the store"):
                self.sweep()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._locked is not None:
                self._locked.write(b"")
                self._locked.release()
                self._locked = None
                self._leave_writers()

    def sweep(self) -> list[str]:
        """Remove what dead writers left half-written; put in place what they had written completely.

        Returns:
            The names of the temporary folders that were found.
        """
        found: list[str] = []
        if not self._units.is_dir():
            return found
        for entry in sorted(self._units.iterdir()):
            match = _PARTIAL.fullmatch(entry.name)
            if not match or match["token"] == self._token:
                continue
            writer = FileLock(self._writers / match["token"])
            self._writers.mkdir(parents=True, exist_ok=True)
            if not writer.acquire():
                continue
            found.append(entry.name)
            self._rescue(entry, match["key"])
            shutil.rmtree(entry, ignore_errors=True)
            writer.release(remove=True)
        for folder in self.scratch.iterdir() if self.scratch.is_dir() else ():
            if folder.name in self:
                shutil.rmtree(folder, ignore_errors=True)
        for file in self._writers.iterdir() if self._writers.is_dir() else ():
            writer = FileLock(file)
            if file.name != self._token and writer.acquire():
                writer.release(remove=True)
        return found

    def _rescue(self, leftover: Path, key: str) -> None:
        """Put a complete training in its place; '.old' comes before '.partial', and `save` replaces it."""
        folder = self._units / key
        if folder.exists() or not (leftover / "done.json").is_file():
            return
        partial = leftover.with_suffix(".partial")
        if leftover.suffix == ".old" and _is_whole(partial, key):
            return
        if _is_whole(leftover, key):
            leftover.rename(folder)

    # Places

    @property
    def scratch(self) -> Path:
        """The folder for checkpoints: one folder per training, which a killed run leaves to the next."""
        return self.path / "scratch"

    @property
    def _units(self) -> Path:
        return self.path / "units"

    @property
    def _writers(self) -> Path:
        return self.path / ".writers"

    def _folder(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"'{key}' is not the key of a unit")
        return self._units / key

    def _failure_file(self, key: str) -> Path:
        return self.path / "failed" / f"{key}.json"

    def _join_writers(self) -> None:
        """Mark temporary folders of this object as those of a living writer from now on."""
        if self._writer is not None:
            return
        self._writers.mkdir(parents=True, exist_ok=True)
        self._units.mkdir(parents=True, exist_ok=True)
        self._token = secrets.token_hex(8)
        writer = FileLock(self._writers / self._token)
        if not writer.acquire():
            raise UserError("a lock of the store cannot be taken", where=str(writer.path))
        self._writer = writer

    def _leave_writers(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.release(remove=True)
            self._writer, self._token = None, ""

    @contextlib.contextmanager
    def _commit(self) -> Iterator[None]:
        """Hold the lock under which a training's folder is put in place; wait for another writer."""
        if self._committing is not None:
            yield
            return
        lock = FileLock(self.path / ".commit")
        lock.acquire(wait=True)
        self._committing = lock
        try:
            yield
        finally:
            self._committing = None
            lock.release()

    def _set_aside(self, key: str, wrong: Exception) -> DamagedUnitError | None:
        """Move a damaged training aside; return None where a writer has just replaced it by a whole one."""
        folder = self._folder(key)
        place = self.path / "damaged" / f"{key}.{secrets.token_hex(3)}"
        why = str(wrong) if isinstance(wrong, _MisfitError) else f"it cannot be read ({wrong})"
        moved = False
        with contextlib.suppress(OSError), self._commit():
            if isinstance(wrong, _MisfitError) and (not folder.exists() or _is_whole(folder, key)):
                return None
            place.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(place)
            moved = True
        self.damaged[key] = why
        return DamagedUnitError(
            f"unit {key} is damaged: {why}" + (f"; it was set aside as {place}" if moved else ""),
            where=str(folder),
            fix="The next run does it again.",
        )


class OtherVersionError(UserError):
    """The store was written by another version of Elsewhere; nothing in it is damaged."""


class _MisfitError(Exception):
    """A file does not belong in a training's folder as it is."""


def _read_done(folder: Path, key: str, *, deep: bool = True) -> dict[str, Any]:
    """Read done.json; with `deep`, check every file but the weights against its digest."""
    try:
        done = read_json(folder / "done.json", what="done.json")
    except UserError as error:
        raise _MisfitError(f"done.json is not JSON as the store writes it ({error.what})") from error
    if not isinstance(done.get("digests"), dict) or not isinstance(done.get("sizes"), dict):
        raise _MisfitError("done.json lists no digests")
    if not isinstance(done.get("name", ""), str):
        raise _MisfitError("the name in done.json is not text")
    if done.get("version") != STORE_VERSION:
        raise OtherVersionError(
            f"the store was written by another version of Elsewhere ({done.get('version')}, not {STORE_VERSION})",
            where=str(folder),
            fix="Give another --store.",
        )
    if done.get("key") != key:
        raise _MisfitError(f"done.json belongs to unit {done.get('key')}")
    unknown = set(done["digests"]) - set(FILES)
    if unknown or not {"unit.json", "outputs.npz", "history.json"} <= set(done["digests"]):
        raise _MisfitError("done.json does not list the files of a unit")
    if deep:
        for name, digest in done["digests"].items():
            file = folder / name
            if not file.is_file():
                raise _MisfitError(f"{name} is missing")
            if file.stat().st_size != done.get("sizes", {}).get(name):
                raise _MisfitError(f"{name} has another size than when it was written")
            if name not in WEIGHT_FILES and digest_of(file) != digest:
                raise _MisfitError(f"{name} differs from what was written")
    return done


def _is_whole(folder: Path, key: str) -> bool:
    try:
        done = _read_done(folder, key)
        kept = [name for name in WEIGHT_FILES if name in done["digests"]]
        return all(digest_of(folder / name) == done["digests"][name] for name in kept)
    except (_MisfitError, UserError, OSError):
        return False
