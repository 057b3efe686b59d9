"""Synthetic MRI hospitals on disk, in the folders and the table of MAMA-MIA (MRI-01).

The reader of the public set reads them and knows nothing of phantoms. The truth that the layout has no place
for (values that a hospital does not know, what was planted) is in `truth.csv`, next to the published folders.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.files import write_bytes
from elsewhere.inputs.mri.layout import box_to_published
from elsewhere.phantom.mri import PhantomCase, case_rng, make_case
from elsewhere.phantom.mri_patient import COLUMNS
from elsewhere.phantom.mri_sites import CaseSpec, HospitalSpec, case_specs, hospital_from, hospitals
from elsewhere.tables import staged_directory, to_jsonable, write_json, write_table

MARK = "phantom.json"
"""File with the specification that the world was made from; a folder that has it may be replaced."""
TABLE = "clinical_and_imaging_info.xlsx"
Progress = Callable[[str, int, int], None]


def write_world(
    world: HospitalSpec | Sequence[HospitalSpec],
    folder: str | Path,
    *,
    replace: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Write hospitals under one folder, as MAMA-MIA keeps its collections.

    The folder is written whole or not at all. The files do not depend on the number of workers.

    Args:
        world: One hospital or several, with different names.
        folder: The folder to write.
        replace: Whether an earlier phantom in the same place may be replaced.
        workers: Number of processes that draw volumes.
        progress: Called after each volume with the step, the volumes done and their number; None for silence.

    Returns:
        The folder.

    Raises:
        UserError: There is no hospital, or two have the same name; or `folder` exists and may not be
            replaced.
    """
    many = _checked([world] if isinstance(world, HospitalSpec) else list(world))
    specs = case_specs(many)
    folder = Path(folder)
    with staged_directory(folder, replace=replace) as staged:
        for part in ("images", "segmentations/expert", "patient_info_files"):
            (staged / part).mkdir(parents=True)
        rows, truths = [], []
        for at, (row, truth) in enumerate(_written(specs, staged, workers)):
            rows.append(row)
            truths.append(truth)
            if progress:
                progress("drawing volumes", at + 1, len(specs))
        _write_table(rows, staged / TABLE)
        write_table(pd.DataFrame(truths), staged / "truth.csv")
        write_json({"hospitals": _told(many)}, staged / MARK)
    return folder


def _checked(many: list[HospitalSpec]) -> list[HospitalSpec]:
    if not many or len({spec.name.casefold() for spec in many}) != len(many):
        raise UserError("every hospital of a world needs a name of its own", fix="E.g. NORTH, SOUTH.")
    return many


def _told(many: Sequence[HospitalSpec]) -> Any:
    return json.loads(json.dumps(to_jsonable([asdict(spec) for spec in many])))


def _written(
    specs: Sequence[CaseSpec], folder: Path, workers: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if workers <= 1 or len(specs) < 2:
        for spec in specs:
            yield _write_one(spec, folder)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(specs)), mp_context=context) as pool:
        yield from pool.map(_write_one, specs, [folder] * len(specs))


def _write_one(spec: CaseSpec, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    case = make_case(spec, case_rng(spec, spec.hospital.seed))
    write_case(case, folder)
    return case.clinical, truth_row(case)


def write_case(case: PhantomCase, folder: str | Path) -> None:
    """Write a case's phases, expert mask and breast box under the layout's root.

    Args:
        case: The drawn case.
        folder: The root of the layout; missing folders are made.
    """
    root, name = Path(folder), case.patient_id
    images = root / "images" / name
    images.mkdir(parents=True, exist_ok=True)
    for at, phase in enumerate(case.phases):
        _save(phase, case.affine, images / f"{name}_{at:04d}.nii.gz")
    masks = root / "segmentations" / "expert"
    masks.mkdir(parents=True, exist_ok=True)
    _save(case.mask, case.affine, masks / f"{name}.nii.gz")
    row = case.clinical
    info = {
        "patient_id": name,
        "primary_lesion": {"breast_coordinates": box_to_published(case.breast_box)},
        "imaging_data": {
            "bilateral": bool(row["bilateral_mri"]),
            "dataset": row["dataset"],
            "site": row["site"],
            "scanner_manufacturer": row["manufacturer"],
            "scanner_model": row["scanner_model"],
            "field_strength": row["field_strength"],
        },
    }
    told = root / "patient_info_files"
    told.mkdir(parents=True, exist_ok=True)
    write_json(info, told / f"{name.lower()}.json")


def _save(values: npt.NDArray[Any], affine: npt.NDArray[np.float64], path: Path) -> None:
    import nibabel

    image = nibabel.Nifti1Image(values, affine)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = b"synthetic"
    nibabel.save(image, path)


def truth_row(case: PhantomCase) -> dict[str, Any]:
    """Collect what is true of a patient, known to her hospital or not.

    Args:
        case: The drawn case.

    Returns:
        Her row of `truth.csv` by column.
    """
    patient, notes = case.patient, case.notes
    return {
        "patient_id": case.patient_id,
        "dataset": case.spec.hospital.name,
        **{
            name: getattr(patient, name) for name in ("age", "menopausal_status", "breast_density", "subtype")
        },
        "pcr": patient.pcr,
        "side": patient.side,
        "lesion": patient.lesion,
        "foci": patient.foci,
        "clip": int(patient.clip),
        "implant": int(patient.implant),
        "kinetics": patient.z,
        "wash_in": patient.wash_in,
        "wash_out": patient.wash_out,
        "background": patient.background,
        "gap": patient.blur,
        "volume_mm3": notes["volume_mm3"],
        "gland_fraction": notes["gland_fraction"],
    }


def _write_table(rows: list[dict[str, Any]], path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    if sheet is None:
        raise RuntimeError("a new workbook has no sheet")
    sheet.title = "dataset_info"
    sheet.append(COLUMNS)
    for row in rows:
        sheet.append([row[name] for name in COLUMNS])
    book.create_sheet("legend").append(["Field", "Description", "Options"])
    content = io.BytesIO()
    book.save(content)
    write_bytes(content.getvalue(), path)


def world_from(spec: Mapping[str, Any], *, where: str = "phantom") -> list[HospitalSpec]:
    """Read the hospitals that a study file specifies.

    Args:
        spec: The keys of `HospitalSpec` for one hospital; or, with `sites` (a number, or names), the keys
            that all of them share, and `patients` as the number of patients of the whole world.
        where: The place of the specification, for messages.

    Returns:
        The hospitals.

    Raises:
        UserError: A key is unknown, a value is not allowed, or a world of sites has a `name` or a `scanner`.

    Example:
        >>> [(h.name, h.patients) for h in world_from({"sites": ["NORTH", "SOUTH"], "patients": 5})]
        [('NORTH', 3), ('SOUTH', 2)]
    """
    words = dict(spec)
    sites = words.pop("sites", None)
    if sites is None:
        return [hospital_from(words, where=where)]
    if "name" in words or "scanner" in words:
        raise UserError("a world with sites takes no name and no scanner", where=where, fix="Leave both out.")
    hospital_from({key: value for key, value in words.items() if key != "patients"}, where=where)
    patients = words.pop("patients", 24)
    if not isinstance(patients, int):
        raise UserError(f"patients is {patients!r}", where=where, fix="Give a whole number.")
    if not isinstance(sites, int) and not (
        isinstance(sites, list | tuple) and all(isinstance(name, str) for name in sites)
    ):
        raise UserError(f"sites is {sites!r}", where=where, fix='Give a number or names: ["NORTH", "SOUTH"].')
    return hospitals(sites, patients=patients, **words)


def make_phantom_world(
    spec: Mapping[str, Any] | Sequence[HospitalSpec], folder: str | Path, *, where: str = "phantom"
) -> Path:
    """Return the folder of a world for the reader 'mama-mia'; draw it only where it does not exist yet.

    A folder whose `phantom.json` has the same specification is taken as it is, so that a study that was
    stopped resumes with the same files.

    Args:
        spec: The specification as `world_from` reads it, or the hospitals.
        folder: The folder of the world; an earlier phantom with another specification is replaced.
        where: The place of the specification, for messages.

    Returns:
        The folder.

    Raises:
        UserError: The specification is not allowed; or `folder` holds something other than a phantom.
    """
    many = world_from(spec, where=where) if isinstance(spec, Mapping) else list(spec)
    folder = Path(folder)
    try:
        held = json.loads((folder / MARK).read_text(encoding="utf-8"))["hospitals"]
    except (OSError, ValueError, KeyError, TypeError):
        held = None
    return folder if held == _told(many) else write_world(many, folder, replace=True)
