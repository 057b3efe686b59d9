"""PatchCamelyon (PCam): 327,680 patches of 96 px at 10x from CAMELYON16, half of them with tumour in the middle.

licence: CC0.
citation: Veeling et al., MICCAI (2018), arXiv:1806.03962.
layout: either pictures in a folder and a table of labels, as the set is often shared (`labels.csv` or
  `train_labels.csv` with `id,label`, pictures named by id, in any format), or the publisher's
  `camelyonpatch_level_2_split_train_y.h5` (train, valid, test) with its `_meta.csv`. Labels in h5 need h5py. Pixels in
  h5 are not read: the column `image` is there for pictures alone.
labels: `label` 1: tumour in the central 32 x 32 px; 0: none there, whatever lies further out.
patients: not published. `_meta.csv` names the slide of each patch (`slide_name`), which stands in for the patient, one
  slide per patient: grade C. Without it each patch counts as a patient: intervals are too narrow, as a slide gives
  about 800 patches.
known defects: patches of one slide are alike; copies of the set on the web have lost slide and hospital; some patches
  occur twice in the first release.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.readers import readers
from elsewhere.cohort.readers.pictures import is_phantom
from elsewhere.cohort.slide_files import files_below
from elsewhere.cohort.table import Cohort, KnownOfCohort
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table

DATASET = "PCam"
PICTURES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp")
_H5 = re.compile(r"^camelyonpatch_level_2_split_(train|valid|test)_y\.h5$", re.IGNORECASE)
_SLIDE = re.compile(r"^camelyon16_(train|test)_(?:(normal|tumor)_)?(\d+)$", re.IGNORECASE)
_SPLITS = {"train": "train", "valid": "validation", "test": "test"}


@readers.register("pcam")
def read_pcam(source: Path) -> Cohort:
    """Read PCam: one case per patch, from pictures with a table of labels, or from the publisher's h5 files.

    Args:
        source: The folder, or the table of labels.

    Returns:
        The cohort.

    Raises:
        UserError: Neither layout is here, a label is neither 0 nor 1, an id is repeated, or h5py is not installed.
    """
    root = source if source.is_dir() else source.parent
    tables = [source] if source.is_file() else sorted(root.glob("*labels.csv"))
    warnings: list[str] = []
    if tables:
        cases = _pictures(tables, root, warnings)
    else:
        cases = _from_h5(root, warnings)
    return Cohort.from_frame(
        cases,
        reader="pcam",
        root=root,
        warnings=tuple(warnings),
        where=str(root),
        synthetic=is_phantom(root),
        known=KnownOfCohort(counts={"tumour_in_the_middle": int(cases["label"].sum())}),
    )


def _pictures(tables: list[Path], root: Path, warnings: list[str]) -> pd.DataFrame:
    parts = []
    for path in tables:
        frame = read_table(path, required=["id", "label"], strings=["id"])
        labels = _labels(frame["label"], where=str(path))
        ids = (
            frame["id"]
            .astype("str")
            .str.strip()
            .str.replace(r"\.(jpe?g|png|tiff?|webp|bmp)$", "", regex=True)
        )
        parts.append(pd.DataFrame({"case_id": ids, "label": labels}))
    cases = pd.concat(parts, ignore_index=True)
    twice = cases["case_id"].duplicated(keep=False)
    if twice.any():
        rows = [f"{at + 1} ({cases['case_id'].iloc[at]})" for at in np.flatnonzero(twice.to_numpy())]
        raise UserError(
            f"{int(twice.sum())} rows share an id: rows {name_rows(rows)}",
            where=", ".join(map(str, tables)),
            fix="Keep one row per patch.",
        )
    files = {path.stem: path for path in files_below(root) if path.suffix.lower() in PICTURES}
    names = [files[name].relative_to(root).as_posix() if name in files else None for name in cases["case_id"]]
    cases["image"] = pd.Series(names, dtype="str")
    _describe(cases)
    lacking = cases.loc[cases["image"].isna(), "case_id"].tolist()
    if lacking:
        warnings.append(f"{len(lacking)} patches have no picture here: {name_rows(lacking)}")
    stray = sorted(set(files) - set(cases["case_id"]))
    if stray:
        warnings.append(f"{len(stray)} pictures have no row in the table: {name_rows(stray)}")
    warnings.append(
        "the slides of the patches are not known: patches of one slide may stand on both sides of a split"
    )
    return cases


def _labels(cells: pd.Series, *, where: str) -> list[float]:
    values = [{"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}.get(str(cell).strip()) for cell in cells]
    wrong = [f"{at + 1} ({cells.iloc[at]})" for at, value in enumerate(values) if value is None]
    if wrong:
        raise UserError(
            f"labels that are neither 0 nor 1: rows {name_rows(wrong)}", where=where, fix="0 or 1."
        )
    return [value for value in values if value is not None]


def _describe(cases: pd.DataFrame) -> None:
    cases["dataset"] = pd.Series(DATASET, index=cases.index, dtype="str")
    cases["modality"] = pd.Series("histology", index=cases.index, dtype="str")


def _from_h5(root: Path, warnings: list[str]) -> pd.DataFrame:
    files = {found[1].lower(): path for path in sorted(root.iterdir()) if (found := _H5.match(path.name))}
    if not files:
        raise UserError(
            "neither a table of labels (id, label) nor a file camelyonpatch_level_2_split_*_y.h5 is here",
            where=str(root),
            fix="Give the folder of the set; unpack .gz files first.",
        )
    parts = []
    for split, path in files.items():
        labels = _read_h5(path)
        part = pd.DataFrame(
            {"case_id": [f"{split}_{at:06d}" for at in range(len(labels))], "label": labels.astype("float64")}
        )
        part["split"] = _SPLITS[split]
        _add_slides(part, path, warnings)
        parts.append(part)
    cases = pd.concat(parts, ignore_index=True)
    _describe(cases)
    warnings.append("pixels in h5 files are not read: the cohort has labels, and no pictures")
    return cases


def _read_h5(path: Path) -> np.ndarray:
    try:
        import h5py
    except ImportError as error:
        raise UserError("labels in h5 need h5py", where=str(path), fix="pip install h5py") from error
    try:
        with h5py.File(path, "r") as file:
            held = file["y"]
            shape = tuple(held.shape)
            if not 1 <= len(shape) <= 4 or int(np.prod(shape)) != shape[0] or shape[0] > 10_000_000:
                raise UserError(
                    f"the labels have the shape {shape}", where=str(path), fix="Fetch the file again."
                )
            labels = np.asarray(held).reshape(-1)
    except (OSError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"the labels cannot be read ({error})",
            where=str(path),
            fix="Fetch the file again, and unpack it.",
        ) from error
    if not np.isin(labels, (0, 1)).all():
        raise UserError("there are labels that are neither 0 nor 1", where=str(path))
    return labels


def _add_slides(part: pd.DataFrame, path: Path, warnings: list[str]) -> None:
    """The slide of each patch, from the table beside the labels: it stands in for the patient."""
    table = path.with_name(re.sub(r"_y\.h5$", "_meta.csv", path.name, flags=re.IGNORECASE))
    if not table.is_file():
        warnings.append(f"{table.name} is not here: the slides of {len(part)} patches are not known")
        part["patient_id"] = part["case_id"]
        return
    frame = read_table(table, required=["wsi"])
    if len(frame) != len(part):
        raise UserError(
            f"{len(frame)} rows for {len(part)} labels", where=str(table), fix="Fetch both files again."
        )
    part["slide_name"] = [_slide(cell) for cell in frame["wsi"]]
    part["patient_id"] = part["slide_name"]


def _slide(cell: Any) -> str:
    found = _SLIDE.match(str(cell).strip())
    return f"{(found[2] or found[1]).lower()}_{int(found[3]):03d}" if found else str(cell).strip()
