"""Finished units as a zip, from one machine's store to another's.

The names in a zip are a stranger's: only `units/<key>/<file of a unit>` is ever written, into a folder of
our own, and put in place once every digest fits. The digests guard against damage, not against malice; what
is read later is arrays without pickles, JSON, and state dicts with `weights_only=True`.
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

from elsewhere.engine.arrays import DAMAGE, check_ratio
from elsewhere.engine.files import explained
from elsewhere.engine.outcomes import StoredWeights, check_outcome
from elsewhere.errors import UserError
from elsewhere.untrusted import check_plain_file

if TYPE_CHECKING:
    from elsewhere.engine.store import Store

_ENTRY = re.compile(
    r"units/(?P<key>[0-9A-Za-z][0-9A-Za-z_-]{0,63})/(?P<file>(unit|history|done)\.json|outputs\.npz|weights\.(pt|npz))"
)
_BIGGEST = {"unit.json": 1 << 28, "history.json": 1 << 28, "done.json": 1 << 24, "outputs.npz": 1 << 32}
_BIGGEST_WEIGHTS = 1 << 36
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


def export(store: Store, keys: list[str], path: Path) -> Path:
    """The same units give the same zip."""
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
    """Every unit is checked before the first is taken; a zip with anything else in it is refused whole."""
    from elsewhere.engine.store import DamagedUnitError, Store

    packed = check_plain_file(path, what="zip of units").st_size
    try:
        archive = zipfile.ZipFile(path)
        check_ratio(sum(entry.file_size for entry in archive.infolist()), packed, what="the zip")
    except DAMAGE as error:
        raise UserError(f"this is no zip of units ({error})", where=str(path)) from error
    with archive, store.borrowed_folder() as folder:
        keys = _extract(archive, path, folder)
        held = Store(folder)
        taken = []
        for key in keys:
            try:
                unit, outcome = held.unit(key), held.load(key)
                if unit.key != key:
                    raise DamagedUnitError(f"unit.json is of unit {unit.key}")
                wrong = check_outcome(unit, outcome)
                if wrong:
                    raise DamagedUnitError(wrong)
                if isinstance(outcome.weights, StoredWeights):
                    outcome.weights.check()
            except (UserError, *DAMAGE) as damage:
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
        if entry.file_size > _BIGGEST.get(match["file"], _BIGGEST_WEIGHTS):
            raise UserError(f"'{entry.filename}' is too large for what it is", where=str(path))
        seen.add(entry.filename)
        keys[match["key"]] = None
        target = folder / "units" / match["key"] / match["file"]
        with explained(target, "unpacking the zip of units"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with archive.open(entry) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
            except DAMAGE as error:
                raise UserError(
                    f"'{entry.filename}' cannot be unpacked ({error}); nothing was taken",
                    where=str(path),
                    fix="Copy or export it again.",
                ) from error
    return list(keys)
