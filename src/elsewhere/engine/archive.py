"""Copies finished trainings as a zip file from one machine's store to another's.

The names in a zip file come from a stranger: only `units/<key>/<file of a unit>` is ever written, into a
folder of our own, and put in place after every digest was checked. The digests guard against damage, not
against malice; what is read later is arrays without pickles, JSON, and state dicts with `weights_only=True`.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from elsewhere.engine.files import explained
from elsewhere.engine.outcomes import StoredWeights, check_outcome
from elsewhere.engine.registry import wrong_settings
from elsewhere.errors import FileSystemError, UserError
from elsewhere.files import (
    DAMAGED_ARCHIVE,
    SizeLimitError,
    check_size,
    file_system_error,
    human_bytes,
)
from elsewhere.files.limits import MOST_RATIO, RATIO_FROM

if TYPE_CHECKING:
    from elsewhere.engine.store import Store

_ENTRY = re.compile(
    r"units/(?P<key>[0-9A-Za-z][0-9A-Za-z_-]{0,63})/(?P<file>(unit|history|done)\.json|outputs\.npz|weights\.(pt|npz))"
)
_BIGGEST_JSON = 1 << 26
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


def export(store: Store, keys: list[str], path: Path) -> Path:
    """Write finished trainings into a zip file; the same trainings give the same bytes.

    The zip is written beside `path` and renamed when it is complete.

    Args:
        store: The store that holds the trainings.
        keys: Their keys, in any order; a key that is named twice is written once.
        path: The zip file to write. Missing folders are made, and an existing file is replaced.

    Returns:
        `path`.

    Raises:
        UserError: A key is not in the store, or its files are damaged.
        FileSystemError: The zip cannot be written, for example because the disk is full.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    with explained(path, "writing the zip of units"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(partial, "w", allowZip64=True) as archive:
                for key in sorted(set(keys)):
                    digests = store.info(key)["digests"]
                    for name in (*sorted(digests), "done.json"):
                        _put(archive, store.path / "units" / key / name, f"units/{key}/{name}")
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    return path


def _put(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    entry = zipfile.ZipInfo(name, _FIRST_DATE)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
    entry.file_size = file.stat().st_size
    with file.open("rb") as source, archive.open(entry, "w") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def add(store: Store, path: Path) -> list[str]:
    """Add the trainings of a zip file to a store.

    Every training is checked before the first is added, and a zip that contains anything else is refused as a
    whole.

    Args:
        store: The store to add to.
        path: A zip file that `export` wrote.

    Returns:
        The keys that were new to the store, or that added something to what the store had.

    Raises:
        UserError: The file is missing, is no zip of trainings, or holds a damaged training.
        SizeLimitError: It unpacks to more than the limit.
        FileSystemError: A file cannot be read or written.
    """
    from elsewhere.engine.store import DamagedUnitError, Store

    archive = _opened(path)
    with archive, store.borrowed_folder() as folder:
        keys = _extract(archive, path, folder)
        held = Store(folder)
        taken = []
        for key in keys:
            try:
                unit, outcome = held.unit(key), held.load(key)
                if unit.key != key:
                    raise DamagedUnitError(f"unit.json belongs to unit {unit.key}")
                wrong = check_outcome(unit, outcome) or wrong_settings(unit)
                if wrong:
                    raise DamagedUnitError(wrong)
                if isinstance(outcome.weights, StoredWeights):
                    outcome.weights.check()
            except (FileSystemError, SizeLimitError):
                raise
            except (UserError, *DAMAGED_ARCHIVE) as damage:
                what = (
                    damage.what if isinstance(damage, UserError) else f"unit.json cannot be read ({damage})"
                )
                raise UserError(
                    f"unit {key} of the zip is damaged ({held.damaged.get(key, what)}); nothing was taken",
                    where=str(path),
                    fix="Copy or export it again, with the same version of Elsewhere on both machines.",
                ) from damage
            taken.append((unit, outcome))
        return [unit.key for unit, outcome in taken if store.save(unit, outcome)]


def _opened(path: Path) -> zipfile.ZipFile:
    """Open the zip after checking that it is a plain file that does not unpack to far more than its size."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError("this is not a regular file", where=str(path), fix="Give a zip of units.")
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise UserError("there is no such file", where=str(path)) from error
    except OSError as error:
        raise file_system_error(error, "the zip of units cannot be read", where=path) from error
    except DAMAGED_ARCHIVE as error:
        raise UserError(
            f"this is not a zip file of finished units ({error})",
            where=str(path),
            fix="Copy or export it again.",
        ) from error
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > RATIO_FROM and unpacked > MOST_RATIO * path.stat().st_size:
        archive.close()
        raise SizeLimitError(
            f"the zip unpacks to {human_bytes(unpacked)}, more than {MOST_RATIO:g} times its size",
            where=str(path),
            fix="It was probably made to fill the disk. Fetch it again from its source.",
        )
    return archive


def _extract(archive: zipfile.ZipFile, path: Path, folder: Path) -> list[str]:
    seen: set[str] = set()
    keys: dict[str, None] = {}
    for entry in archive.infolist():
        match = _ENTRY.fullmatch(entry.filename)
        odd = stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG)
        if not match or odd or entry.filename in seen:
            raise UserError(
                f"'{entry.filename[:200]}' does not belong in a zip of units; nothing was taken",
                where=str(path),
                fix="Only zips written by `elsewhere` (Store.export) can be added.",
            )
        most = _BIGGEST_JSON if match["file"].endswith(".json") else None
        check_size(entry.file_size, f"'{entry.filename}' unpacks to", where=path, limit=most)
        seen.add(entry.filename)
        keys[match["key"]] = None
        target = folder / "units" / match["key"] / match["file"]
        with explained(target, "unpacking the zip of units"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with archive.open(entry) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
            except DAMAGED_ARCHIVE as error:
                raise UserError(
                    f"'{entry.filename}' cannot be unpacked ({error}); nothing was taken",
                    where=str(path),
                    fix="Copy or export it again.",
                ) from error
    return list(keys)
