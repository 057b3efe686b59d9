"""Synthetic tomosynthesis on disk, in the folders and the nine tables of BCS-DBT (DBT-01).

The reader of the public set reads it and knows nothing of phantoms. What the layout has no place for is in
`truth.csv` (one row per volume) and `planted.json` (what was planted), next to the published tables.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.described import SUFFIX
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_dicom import check_libraries, write_dicom
from elsewhere.phantom.tomosynthesis_on_demand import description_of
from elsewhere.phantom.tomosynthesis_patients import Case, World, world_from
from elsewhere.phantom.tomosynthesis_tables import (
    MANIFESTS,
    Drawn,
    Faults,
    paths_of,
    plan_faults,
    planted,
    stated,
    tables_of,
    truth_of,
)
from elsewhere.tables import staged_directory, to_jsonable, write_json, write_table

MARK = "phantom.json"
"""File with the specification that the world was made from; a folder that has it may be replaced."""
PLANTED = "planted.json"
Progress = Callable[[str, int, int], None]


def write_world(
    world: World,
    folder: str | Path,
    *,
    replace: bool = False,
    faults: bool = False,
    syntax: str | None = "jpeg-ls",
    workers: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Write a world under one folder, as BCS-DBT is downloaded.

    The folder is written whole or not at all. The files do not depend on the number of workers.

    Args:
        world: The specification.
        folder: The folder to write.
        replace: Whether an earlier phantom in the same place may be replaced.
        faults: Whether faults are planted: wrong tags, turned volumes, a box on background, a wrong number
            of slices.
        syntax: The encoding of the DICOM files, a name out of `SYNTAXES`; None to write a description of each volume
            in place of its file, from which it is drawn when it is read.
        workers: Number of processes that draw and write volumes.
        progress: Called after each volume with the step, the volumes done and their number; None for silence.

    Returns:
        The folder.

    Raises:
        UserError: The syntax is unknown or a library is missing; faults are asked for without DICOM files, which have
            them; or `folder` exists and may not be replaced.
    """
    if syntax is not None:
        check_libraries(syntax)
    elif faults:
        raise UserError(
            "faults are planted in DICOM files, and none are written",
            where="faults",
            fix="Write the volumes as files, or leave the faults out.",
        )
    cases = world.cases()
    plan = plan_faults(cases) if faults else Faults()
    folder = Path(folder)
    with staged_directory(folder, replace=replace) as staged:
        write = functools.partial(_write_one, plan=plan, folder=staged, syntax=syntax)
        drawn = []
        for at, one in enumerate(_in_processes(write, cases, workers)):
            drawn.append(one)
            if progress:
                progress("drawing volumes", at + 1, len(cases))
        for name, table in tables_of(drawn).items():
            write_table(table, staged / name)
        truth, content = truth_of(drawn), planted(world, drawn, plan)
        if syntax is None:  # there are no headers that could have a tag
            truth, content["faults"] = truth.drop(columns=["laterality_tag", "turned"]), {}
        write_table(truth, staged / "truth.csv")
        write_json(content, staged / PLANTED)
        write_json(_specification(world, faults=faults, syntax=syntax), staged / MARK)
    return folder


def _in_processes(write: Callable[[Case], Drawn], cases: Sequence[Case], workers: int) -> Iterator[Drawn]:
    if workers <= 1 or len(cases) < 2:
        yield from map(write, cases)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(cases)), mp_context=context) as pool:
        yield from pool.map(write, cases)


def _write_one(case: Case, *, plan: Faults, folder: Path, syntax: str | None) -> Drawn:
    phantom = draw(case)
    drawn = stated(phantom, plan)
    path = folder / MANIFESTS[case.patient.split] / paths_of(case)[0]
    if syntax is None:
        path.parent.mkdir(parents=True)
        write_json(description_of(case), path.with_name(path.stem + SUFFIX))
    else:
        write_dicom(phantom, drawn, path, syntax)
    return drawn


def _specification(world: World, *, faults: bool, syntax: str | None) -> Any:
    made = {"world": to_jsonable(world), "faults": faults, "syntax": syntax}
    return json.loads(json.dumps(made))


def make_phantom_world(spec: Mapping[str, Any], folder: str | Path, *, where: str = "phantom") -> Path:
    """Return the folder of a world for the reader 'bcs-dbt'; draw it only where it does not exist yet.

    Args:
        spec: The specification as `world_from` reads it, with `faults` and `syntax` as in `write_world`; `on_demand`
            stands for no syntax.
        folder: The folder of the world; an earlier phantom with another specification is replaced.
        where: The place of the specification, for messages.

    Returns:
        The folder.

    Raises:
        UserError: The specification is not allowed; or `folder` holds something other than a phantom.
    """
    world = world_from(spec, where=where)
    faults = bool(spec.get("faults", False))
    syntax = None if spec.get("on_demand", False) else str(spec.get("syntax", "jpeg-ls"))
    folder = Path(folder)
    try:
        held = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        held = None
    if held == _specification(world, faults=faults, syntax=syntax):
        return folder
    return write_world(world, folder, replace=True, faults=faults, syntax=syntax)
