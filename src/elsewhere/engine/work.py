"""A run's work as a folder that travels: units, cases, packed pictures or volumes, files of weights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.files import to_json
from elsewhere.engine.plan import unique_units
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError
from elsewhere.files import staged_directory
from elsewhere.inputs import Cases, Pictures
from elsewhere.inputs.mri.packs import PackedVolumes, pack_volumes

WORK_VERSION = 1


def save_work(units: Iterable[Training], work: Work, folder: str | Path, *, replace: bool = False) -> Path:
    """WORKDIR/{units.json, cases.npz, packs/*.npz, volumes/*, weights/*}: all that `python -m elsewhere.engine`
    needs.

    Only the cases that a unit names travel, pictures in one pack a dataset, volumes in one a case. Boxes that units take from box finders
    which are not among them travel as a small store, `found/`. An earlier work folder is replaced with `replace`.
    """
    folder = Path(folder)
    units = unique_units(units, work.cases)
    with staged_directory(folder, replace=replace) as staged:
        _write(units, work, staged)
    return folder


def _write(units: list[Training], work: Work, folder: Path) -> None:
    named = {name for unit in units for name in (*unit.train, *unit.validation, *unit.predict)}
    rows = np.array([at for at, name in enumerate(work.cases.case) if name in named], dtype=np.int64)
    cases = work.cases.subset([work.cases.case[at] for at in rows])
    seen = {n for u in units if u.job is None for n in (*u.train, *u.validation, *u.predict)}
    missing = [name for name in cases.case if name in seen and name not in work.pictures]
    if missing:
        raise UserError(f"there is no picture of '{missing[0]}' and {len(missing) - 1} more cases")
    cases.save(folder / "cases.npz")
    _write_volumes(units, work, cases, folder)
    (folder / "packs").mkdir()
    with_masks = any(unit.kind == "find-boxes" or unit.input.outline for unit in units)
    for at, dataset in enumerate(dict.fromkeys(cases.dataset)):
        part = [
            name
            for name, owner in zip(cases.case, cases.dataset, strict=True)
            if owner == dataset and name in seen
        ]
        if not part:
            continue
        file = folder / "packs" / f"{at:02d}-{_plain_name(dataset)}.npz"
        work.pictures.subset(part).pack(file, with_masks=with_masks)
    (folder / "weights").mkdir()
    weights = {}
    for at, (name, source) in enumerate(sorted(work.weights.items())):
        weights[name] = f"weights/{at:02d}-{_plain_name(name)}{Path(source).suffix}"
        shutil.copyfile(source, folder / weights[name])
    here = {unit.key for unit in units}
    finders = sorted({unit.boxes_from for unit in units if unit.boxes_from} - here)
    if work.found_boxes is not None:
        for key in finders:
            Store(folder / "found").save(Training(key=key, kind="find-boxes"), work.found_boxes(key))
    content = {"version": WORK_VERSION, "weights": weights, "units": [unit.to_dict() for unit in units]}
    if any(unit.keep_weights for unit in units):
        content["about"] = _about(work, named)
    (folder / "units.json").write_bytes(to_json(content))


def _about(work: Work, named: set[str]) -> dict[str, Any]:
    """What kept weights tell of their training, of the cases that travel alone."""
    about = dict(work.about)
    for part in ("patients", "pixels"):
        held = about.get(part, {})
        about[part] = {name: held[name] for name in sorted(named) if name in held}
    return about


def _write_volumes(units: list[Training], work: Work, cases: Cases, folder: Path) -> None:
    """With their masks and lesion boxes: a recipe over there is shown as little of them as here."""
    recipes = [unit for unit in units if unit.job is not None]
    if not recipes or work.volumes is None:
        return
    digest = dict(zip(cases.case, cases.digest, strict=True))
    masks = dict(zip(cases.case, cases.mask_digest, strict=True)) if cases.mask_digest else {}
    drawn = masks.__getitem__ if masks else None
    named = dict.fromkeys(n for u in recipes for n in (*u.train, *u.validation, *u.predict))
    held = [name for name in named if name in work.volumes]
    if held:
        pack_volumes(work.volumes, held, folder / "volumes", digest=digest.__getitem__, digest_of_mask=drawn)


def load_work(folder: str | Path) -> tuple[list[Training], Work]:
    """What `save_work` wrote. Keys are computed anew: a unit whose cases have changed is another unit."""
    folder = Path(folder)
    try:
        content = json.loads((folder / "units.json").read_text("utf-8"))
        if content["version"] != WORK_VERSION:
            raise UserError(
                f"the work folder is of version {content['version']}, this is {WORK_VERSION}",
                where=str(folder),
                fix="Export it again with this version.",
            )
        cases = Cases.load(folder / "cases.npz")
        pictures = Pictures.from_packs(sorted((folder / "packs").glob("*.npz")))
        volumes = PackedVolumes(folder / "volumes") if (folder / "volumes").is_dir() else None
        weights = {str(name): _inside(folder, str(file)) for name, file in content["weights"].items()}
        units = [Training.from_dict(entry) for entry in content["units"]]
        rekeyed = unique_units([_without_key(unit) for unit in units], cases)
    except FileNotFoundError as error:
        raise UserError(
            "this is no work folder", where=str(error.filename or folder), fix="Make one with `save_work`."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the work folder cannot be read ({error})", where=str(folder)) from error
    changed = [old.name or old.key for old, new in zip(units, rekeyed, strict=True) if old.key != new.key]
    if changed:
        raise UserError(
            f"{len(changed)} units do not fit the cases or this version (first: {changed[0]})",
            where=str(folder),
            fix="Export the work again with this version.",
        )
    found = Store(folder / "found")
    return units, Work(
        cases=cases,
        pictures=pictures,
        volumes=volumes,
        weights=weights,
        found_boxes=found.load,
        about=content.get("about", {}),
    )


def _without_key(unit: Training) -> Training:
    from dataclasses import replace

    return replace(unit, key="")


def _inside(folder: Path, name: str) -> Path:
    if not re.fullmatch(r"weights/[0-9A-Za-z._-]+", name) or not (folder / name).is_file():
        raise UserError(f"the file of weights '{name}' is not there", where=str(folder))
    return folder / name


def _plain_name(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name)[:60].strip(".") or "x"
