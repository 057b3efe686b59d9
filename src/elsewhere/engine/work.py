"""Writes a run's work as a folder for another machine: trainings, cases, pixels, files of weights."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.files import to_json
from elsewhere.engine.plan import unique_units
from elsewhere.engine.registry import recipes
from elsewhere.engine.store import Store
from elsewhere.engine.training import RecipeSpec, Training, Work
from elsewhere.errors import UserError
from elsewhere.files import staged_directory
from elsewhere.inputs import Cases
from elsewhere.inputs.source import sources

WORK_VERSION = 2
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


def save_work(units: Iterable[Training], work: Work, folder: str | Path, *, replace: bool = False) -> Path:
    """Write a folder with all that `python -m elsewhere.engine` needs.

    The folder has units.json, cases.npz, sources/NAME/* and weights/*. Only the cases that a training names
    travel. Outcomes that trainings need and that are not among them travel as a small store, `needed/`.

    Args:
        units: The trainings.
        work: What they refer to.
        folder: The folder to write.
        replace: Whether an earlier work folder may be replaced.

    Returns:
        The folder.

    Raises:
        UserError: A training names an unknown case, a case has no pixels in a source that must have all, or
            the folder exists and may not be replaced.
        FileSystemError: The folder cannot be written.
    """
    folder = Path(folder)
    units = unique_units(units, work.cases)
    with staged_directory(folder, replace=replace) as staged:
        _write(units, work, staged)
    return folder


def _write(units: list[Training], work: Work, folder: Path) -> None:
    named = {name for unit in units for name in unit.cases}
    rows = np.array([at for at, name in enumerate(work.cases.case) if name in named], dtype=np.int64)
    cases = work.cases.subset([work.cases.case[at] for at in rows])
    cases.save(folder / "cases.npz")
    read = []
    for name, source in work.sources.items():
        reading = [unit for unit in units if recipes.get(unit.recipe.name).reads == name]
        wanted = {case for unit in reading for case in unit.cases}
        packed = cases.subset([case for case in cases.case if case in wanted and case in source])
        lacking = [case for case in cases.case if case in wanted and case not in source]
        if lacking and source.complete:
            raise UserError(f"there are no {source.noun} of '{lacking[0]}' and {len(lacking) - 1} more cases")
        if len(packed):
            (folder / "sources" / name).mkdir(parents=True)
            with_truth = any(recipes.get(unit.recipe.name).needs_truth(unit.recipe) for unit in reading)
            source.pack(folder / "sources" / name, packed, with_truth=with_truth)
            read.append(name)
    (folder / "weights").mkdir()
    weights = {}
    for at, (name, file) in enumerate(sorted(work.weights.items())):
        weights[name] = f"weights/{at:02d}-{_plain_name(name)}{Path(file).suffix}"
        shutil.copyfile(file, folder / weights[name])
    here = {unit.key for unit in units}
    needed = sorted({key for unit in units for key in unit.needs.values()} - here)
    if work.outcomes is not None:
        for key in needed:
            outcome = work.outcomes(key)
            stands = Training(key=key, recipe=RecipeSpec(name="needed", tasks=tuple(outcome.answers)))
            Store(folder / "needed").save(stands, outcome)
    content = {
        "version": WORK_VERSION,
        "sources": read,
        "weights": weights,
        "units": [unit.to_dict() for unit in units],
    }
    if any(unit.keep_weights for unit in units):
        content["about"] = _about(work, named)
    (folder / "units.json").write_bytes(to_json(content))


def _about(work: Work, named: set[str]) -> dict[str, Any]:
    """Select what saved weights record of their training, for the cases that travel."""
    about = dict(work.about)
    for part in ("patients", "pixels"):
        held = about.get(part, {})
        about[part] = {name: held[name] for name in sorted(named) if name in held}
    return about


def load_work(folder: str | Path) -> tuple[list[Training], Work]:
    """Read the trainings and the work that `save_work` wrote.

    Keys are computed again: a training whose cases have changed is another training.

    Args:
        folder: The work folder.

    Returns:
        The trainings, and what they refer to.

    Raises:
        UserError: It is no work folder, it cannot be read, it was written by another version, or a key does
            not fit the cases.
    """
    folder = Path(folder)
    try:
        content = json.loads((folder / "units.json").read_text("utf-8"))
        if content["version"] != WORK_VERSION:
            raise UserError(
                f"the work folder has version {content['version']}, and this program reads version {WORK_VERSION}",
                where=str(folder),
                fix="Export it again with this version.",
            )
        cases = Cases.load(folder / "cases.npz")
        read = {
            str(name): sources.get(str(name)).unpack(folder / "sources" / str(name))
            for name in content["sources"]
            if _NAME.fullmatch(str(name))
        }
        weights = {str(name): _inside(folder, str(file)) for name, file in content["weights"].items()}
        units = [Training.from_dict(entry) for entry in content["units"]]
        rekeyed = unique_units([dataclasses.replace(unit, key="") for unit in units], cases)
    except FileNotFoundError as error:
        raise UserError(
            "this is not a work folder", where=str(error.filename or folder), fix="Make one with `save_work`."
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
    return units, Work(
        cases=cases,
        sources=read,
        weights=weights,
        outcomes=Store(folder / "needed").load,
        about=content.get("about", {}),
    )


def _inside(folder: Path, name: str) -> Path:
    if not re.fullmatch(r"weights/[0-9A-Za-z._-]+", name) or not (folder / name).is_file():
        raise UserError(f"the file of weights '{name}' is missing", where=str(folder))
    return folder / name


def _plain_name(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]+", "_", name)[:60].strip(".") or "x"
