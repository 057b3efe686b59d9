"""Synthetic tomosynthesis as .npy files with the nine tables, for a machine that reads no DICOM.

It needs numpy, scipy and pandas only. Volumes are in corrected coordinates, as boxes are; they can be mapped
into memory slice by slice.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_patients import Case, World
from elsewhere.phantom.tomosynthesis_tables import (
    Drawn,
    Faults,
    planted,
    stated,
    tables_of,
    truth_of,
)

Progress = Callable[[str, int, int], None]


def array_name(case: Case) -> str:
    """Name the file of a volume.

    Args:
        case: The volume.

    Returns:
        Its name below the folder of arrays, such as 'DBT-S10001-lcc.npy'.
    """
    return f"{case.patient.study_id}-{case.view}.npy"


def write_arrays(
    world: World, folder: str | Path, *, workers: int = 1, progress: Progress | None = None
) -> Path:
    """Write a world as uint16 arrays (slices, rows, columns) with the published tables.

    A volume that is there already is not drawn again, so that a stopped run resumes.

    Args:
        world: The specification.
        folder: The folder to write; `volumes/` holds the arrays.
        workers: Number of processes that draw volumes; the files do not depend on it.
        progress: Called after each volume with the step, the volumes done and their number; None for silence.

    Returns:
        The folder.
    """
    folder = Path(folder)
    (folder / "volumes").mkdir(parents=True, exist_ok=True)
    cases = world.cases()
    write = functools.partial(_write_one, folder=folder / "volumes")
    drawn: list[Drawn] = []
    with ProcessPoolExecutor(max(1, workers)) as pool:
        for at, one in enumerate(pool.map(write, cases) if workers > 1 else map(write, cases)):
            drawn.append(one)
            if progress:
                progress("drawing volumes", at + 1, len(cases))
    for name, table in tables_of(drawn).items():
        table.to_csv(folder / name, index=False, lineterminator="\n")
    truth = truth_of(drawn)
    truth["file"] = [f"volumes/{array_name(one.case)}" for one in drawn]
    truth["window_centre"] = [one.case.vendor.window[0] for one in drawn]
    truth["window_width"] = [one.case.vendor.window[1] for one in drawn]
    truth.to_csv(folder / "truth.csv", index=False, lineterminator="\n")
    text = json.dumps(planted(world, drawn, Faults()), indent=2)
    (folder / "planted.json").write_text(text + "\n", encoding="utf-8")
    return folder


def _write_one(case: Case, *, folder: Path) -> Drawn:
    phantom = draw(case)
    path = folder / array_name(case)
    if not path.exists():
        partial = path.with_suffix(".part")
        with partial.open("wb") as file:
            np.save(file, phantom.volume())
        partial.replace(path)
    return stated(phantom, Faults())
