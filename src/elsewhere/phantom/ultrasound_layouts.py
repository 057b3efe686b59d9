"""Synthetic ultrasound hospitals on disk, in the folders and tables of BUSI, BUS-BRA, BrEaST and BUS-UCLM.

The readers of the public sets read them and know nothing of phantoms. What was planted, and the truth that
a layout has no place for (BUSI's patients), is in `truth.csv`, next to the published folder.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from elsewhere.errors import unknown_name
from elsewhere.files import write_bytes
from elsewhere.phantom.ultrasound import LAYOUTS, Hospital, Picture, hospital_from, plan, render
from elsewhere.phantom.ultrasound_tissue import Lesion
from elsewhere.tables import staged_directory, write_json, write_table

MARK = "phantom.json"
"""File with the specification that the hospital was made from; a folder that has it may be replaced."""
BREAST_TABLE = "BrEaST-Lesions-USG-clinical-data-Dec-15-2023.xlsx"
BREAST_COLUMNS = (
    "CaseID", "Image_filename", "Mask_tumor_filename", "Mask_other_filename", "Pixel_size", "Age",
    "Tissue_composition", "Signs", "Symptoms", "Shape", "Margin", "Echogenicity", "Posterior_features", "Halo",
    "Calcifications", "Skin_thickening", "Interpretation", "BIRADS", "Verification", "Diagnosis", "Classification",
)  # fmt: skip
DEVICES = (
    "GE Logiq 5 @10-12MHz",
    "GE Logiq 7 @10-14MHz",
    "U-Systems @10-14MHz",
    "Toshiba Aplio 300 @12-14 MHz",
)
HISTOLOGY = {
    "benign": ("fibroadenoma", "cyst", "fibrocystic changes", "sclerosing adenosis"),
    "malignant": ("invasive ductal carcinoma", "invasive lobular carcinoma"),
}
Progress = Callable[[str, int, int], None]


def write_hospital(
    hospital: Hospital,
    folder: str | Path,
    layout: str | None = None,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a hospital's pictures, masks and tables under one folder, which a reader of the layout takes.

    The folder is written whole or not at all.

    Args:
        hospital: The hospital.
        folder: The folder to write.
        layout: Another layout than the hospital's own; None keeps it.
        replace: Whether an earlier phantom in the same place may be replaced.
        progress: Called before each picture with the hospital's name, the pictures done and their number;
            None for silence.

    Returns:
        The folder.

    Raises:
        UserError: The layout is unknown or has no place for a planted fault; or `folder` exists and may not
            be replaced.
    """
    if layout is not None and layout != hospital.layout:
        if layout not in LAYOUTS:
            raise unknown_name("layout", layout, LAYOUTS)
        hospital = dataclasses.replace(hospital, layout=layout)
    folder = Path(folder)
    with staged_directory(folder, replace=replace) as staged, _one_thread():
        rows = WRITERS[hospital.layout](hospital, staged, _drawn(hospital, progress))
        write_table(pd.DataFrame(rows), staged / "truth.csv")
        write_json({"hospital": asdict(hospital), "scanner": asdict(hospital.optics)}, staged / MARK)
    return folder


def make_phantom_cohort(
    spec: Mapping[str, Any] | Hospital, folder: str | Path, *, where: str = "phantom"
) -> Path:
    """Return the folder of a phantom for the reader named like its layout; draw it only where needed.

    A folder whose `phantom.json` has the same specification is taken as it is, so that a study that was
    stopped resumes with the same files.

    Args:
        spec: The hospital, or its fields by name.
        folder: The folder of the phantom; an earlier phantom with another specification is replaced.
        where: The place of the specification, for messages.

    Returns:
        The folder.

    Raises:
        UserError: The specification is not allowed; or `folder` holds something other than a phantom.
    """
    hospital = spec if isinstance(spec, Hospital) else hospital_from(spec, where=where)
    folder = Path(folder)
    try:
        held = json.loads((folder / MARK).read_text(encoding="utf-8"))["hospital"]
    except (OSError, ValueError, KeyError, TypeError):
        held = None
    same = held == json.loads(json.dumps(asdict(hospital)))
    return folder if same else write_hospital(hospital, folder, replace=True)


def _one_thread() -> Any:
    """Limit linear algebra to one thread: the matrices are small, and threads cost more than they save."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _drawn(hospital: Hospital, progress: Progress | None) -> Iterator[Picture]:
    planned = plan(hospital)
    for at, one in enumerate(planned):
        if progress:
            progress(hospital.name, at, len(planned))
        yield render(hospital, one)


def _save_image(picture: Picture, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    held = io.BytesIO()
    Image.fromarray(picture.grey).save(held, "PNG", compress_level=3)
    whole = held.getvalue()
    path.write_bytes(whole[: len(whole) // 2] if picture.plan.defect == "truncated" else whole)


def _save_mask(picture: Picture, mask: npt.NDArray[Any], path: Path) -> bool:
    """Write one mask file, or what was planted in its place; False if no file was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if picture.plan.defect == "missing-mask":
        return False
    image = Image.fromarray(mask)
    if picture.plan.defect == "mask-size":
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.NEAREST)
    image.save(path)
    return True


def _truth(picture: Picture, file: str, names: Mapping[int, str]) -> dict[str, Any]:
    """Collect a row of truth.csv; `names` are the files already written, by their plan's number."""
    planned = picture.plan
    box = picture.box or ("", "", "", "")
    return {
        "file": file,
        "patient": planned.patient,
        "label": planned.label,
        "lesions": len(picture.masks),
        "area_px": int(sum(int(mask.sum()) for mask in picture.masks)),
        "width": picture.grey.shape[1],
        "height": picture.grey.shape[0],
        **dict(zip(("box_x0", "box_y0", "box_x1", "box_y1"), box, strict=True)),
        "marks": int(picture.marks),
        "shortcut": int(picture.shortcut),
        "planted": planned.how or planned.defect,
        "copy_of": names.get(planned.copy_of, "") if planned.copy_of is not None else "",
    }


def _birads(lesion: Lesion | None, rng: np.random.Generator) -> str:
    if lesion is None:
        return "1"
    level = int(np.clip(round(2.2 + 2.9 * lesion.irregular + rng.normal(0, 0.5)), 2, 5))
    return str(level)


def _busi(hospital: Hospital, folder: Path, drawn: Iterator[Picture]) -> list[dict[str, Any]]:
    root = folder / "Dataset_BUSI_with_GT"
    for label in ("benign", "malignant", "normal"):
        (root / label).mkdir(parents=True)
    counts = dict.fromkeys(("benign", "malignant", "normal"), 0)
    names: dict[int, str] = {}
    rows = []
    for picture in drawn:
        label = picture.plan.label
        counts[label] += 1
        stem = f"{label} ({counts[label]})"
        names[picture.plan.number] = file = f"{root.name}/{label}/{stem}.png"
        _save_image(picture, folder / file)
        masks = picture.masks or (np.zeros(picture.grey.shape, dtype=np.bool_),)
        for at, mask in enumerate(masks):
            _save_mask(picture, mask, root / label / f"{stem}_mask{f'_{at}' if at else ''}.png")
        rows.append(_truth(picture, file, names))
    return rows


def _bus_bra(hospital: Hospital, folder: Path, drawn: Iterator[Picture]) -> list[dict[str, Any]]:
    root = folder / "BUSBRA"
    views: dict[int, int] = {}
    for planned in plan(hospital):
        views[planned.patient] = views.get(planned.patient, 0) + 1
    names: dict[int, str] = {}
    rows, table = [], []
    for picture in drawn:
        planned = picture.plan
        rng = hospital.rng(4, planned.patient)
        side = "s" if views[planned.patient] == 1 else "lr"[planned.view]
        number = f"{planned.patient + 1:04d}-{side}"
        names[planned.number] = file = f"{root.name}/Images/bus_{number}.png"
        _save_image(picture, folder / file)
        _save_mask(picture, picture.masks[0], root / "Masks" / f"mask_{number}.png")
        x0, y0, x1, y1 = picture.box or (0, 0, 0, 0)
        table.append(
            {
                "ID": f"bus_{number}",
                "Case": "" if planned.defect == "patient-id" else planned.patient + 1,
                "Histology": str(rng.choice(HISTOLOGY[planned.label])),
                "Pathology": "unknown" if planned.defect == "label" else planned.label,
                "BIRADS": _birads(planned.lesions[0], rng),
                "Device": DEVICES[1 if hospital.scanner is None else hospital.scanner],
                "Width": picture.grey.shape[1],
                "Height": picture.grey.shape[0],
                "Side": {"l": "left", "r": "right", "s": "single"}[side],
                # The publisher counts from 1, and gives the distance of the outermost pixels.
                "BBOX": f"[{x0 + 1},{y0 + 1},{x1 - 1 - x0},{y1 - 1 - y0}]",
            }
        )
        rows.append(_truth(picture, file, names))
    write_table(pd.DataFrame(table), root / "bus_data.csv")
    return rows


def _breast(hospital: Hospital, folder: Path, drawn: Iterator[Picture]) -> list[dict[str, Any]]:
    import openpyxl

    pictures = folder / "BrEaST-Lesions_USG-images_and_masks"
    book = openpyxl.Workbook()
    sheet = book.active
    if sheet is None:
        raise RuntimeError("a new workbook has no sheet")
    sheet.title = "BrEaST-Lesions-USG clinical dat"
    sheet.append(BREAST_COLUMNS)
    names: dict[int, str] = {}
    rows = []
    for picture in drawn:
        planned = picture.plan
        stem = f"case{planned.patient + 1:03d}"
        names[planned.number] = file = f"{pictures.name}/{stem}.png"
        _save_image(picture, folder / file)
        others = []
        for at, mask in enumerate(picture.masks):
            name = f"{stem}_other{at}.png" if at else f"{stem}_tumor.png"
            _save_mask(picture, mask, pictures / name)
            others += [name] if at else []
        row = _breast_row(hospital, picture, stem) | {"Mask_other_filename": "&".join(others) or None}
        sheet.append([row.get(name) for name in BREAST_COLUMNS])
        rows.append(_truth(picture, file, names))
    words = book.create_sheet("Data Dictionary")
    words.append(["type", "description"])
    for name in BREAST_COLUMNS:
        words.append(["Case_ID" if name == "CaseID" else name, None])
    content = io.BytesIO()
    book.save(content)
    write_bytes(content.getvalue(), folder / BREAST_TABLE)
    return rows


def _breast_row(hospital: Hospital, picture: Picture, stem: str) -> dict[str, Any]:
    """Describe what was drawn in the words of the clinical table."""
    planned = picture.plan
    lesion = planned.lesions[0] if planned.lesions else None
    rng = hospital.rng(4, planned.patient)
    row: dict[str, Any] = {
        "CaseID": None if planned.defect == "patient-id" else planned.patient + 1,
        "Image_filename": f"{stem}.png",
        "Mask_tumor_filename": f"{stem}_tumor.png" if lesion else None,
        "Pixel_size": round(hospital.optics.pixel_mm / 10, 7),
        "Age": int(np.clip(rng.normal(54, 13), 18, 87)),
        "Tissue_composition": "homogeneous: " + ("fibroglandular" if planned.breast.density > 0.5 else "fat"),
        "Signs": "no",
        "Symptoms": "no",
        "Skin_thickening": "no",
        "BIRADS": _birads(lesion, rng),
        "Classification": "suspicious" if planned.defect == "label" else planned.label,
    }
    if lesion is None:
        words = ("Shape", "Margin", "Echogenicity", "Posterior_features", "Halo", "Calcifications",
                 "Verification", "Diagnosis")  # fmt: skip
        return row | dict.fromkeys(words, "not applicable") | {"Interpretation": "not applicable"}
    posterior = "no"
    if abs(lesion.absorbs_db_mm) > 0.4:
        posterior = "shadowing" if lesion.absorbs_db_mm > 0 else "enhancement"
    return row | {
        "Shape": "irregular" if lesion.irregular > 0.5 else "oval",
        "Margin": "not circumscribed - indistinct" if lesion.margin_mm > 0.4 else "circumscribed",
        "Echogenicity": "anechoic"
        if lesion.echo_db <= -30
        else ("heterogeneous" if lesion.uneven_db > 3 else "hypoechoic"),
        "Posterior_features": posterior,
        "Halo": "yes" if lesion.halo_db > 2 else "no",
        "Calcifications": "in a mass" if lesion.specks else "no",
        "Interpretation": "Suspicion of malignancy" if lesion.irregular > 0.5 else "Fibroadenoma",
        "Verification": "confirmed by biopsy",
        "Diagnosis": "Fibroadenoma"
        if planned.label == "benign"
        else "Invasive carcinoma of no special type (NST)",
    }


def _bus_uclm(hospital: Hospital, folder: Path, drawn: Iterator[Picture]) -> list[dict[str, Any]]:
    root = folder / "BUS-UCLM"
    codes = _codes(hospital)
    names: dict[int, str] = {}
    rows, table = [], ["Image;Resolution;Label;Doppler;Marks;Combined"]
    for picture in drawn:
        planned = picture.plan
        stem = f"{codes[planned.patient]}_{planned.view:03d}"
        names[planned.number] = file = f"{root.name}/images/{stem}.png"
        _save_image(picture, folder / file)
        height, width = picture.grey.shape
        mask = np.zeros((height, width, 3), dtype=np.uint8)
        for lesion, part in zip(planned.lesions, picture.masks, strict=True):
            mask[part] = (255, 0, 0) if lesion.label == "malignant" else (0, 255, 0)
        _save_mask(picture, mask, root / "masks" / f"{stem}.png")
        label = "Other" if planned.defect == "label" else planned.label.capitalize()
        table.append(f"{stem}.png;{width}x{height};{label};No;{'Yes' if picture.marks else 'No'};No")
        rows.append(_truth(picture, file, names))
    (root / "INFO.csv").write_bytes("\ufeff".encode() + ("\n".join(table) + "\n").encode())
    return rows


def _codes(hospital: Hospital) -> list[str]:
    """Draw one code of four letters per patient, in alphabetical order as the files are."""
    rng = hospital.rng(5)
    wanted = max(planned.patient for planned in plan(hospital)) + 1
    codes: set[str] = set()
    while len(codes) < wanted:
        codes.add("".join(chr(65 + int(at)) for at in rng.integers(0, 26, 4)))
    return sorted(codes)


WRITERS: dict[str, Callable[[Hospital, Path, Iterator[Picture]], list[dict[str, Any]]]] = {
    "busi": _busi,
    "bus-bra": _bus_bra,
    "breast": _breast,
    "bus-uclm": _bus_uclm,
}
