"""A folder of masks: which file belongs to which case.

A folder holds `<case_id>.nii.gz` (or .nii, .png, .tif, .tiff); a `/` in an id is written `%2F`. One folder
per case is accepted too: `<case_id>/<case_id>.nii.gz` and `<case_id>/mask.nii.gz`. A table with `case_id,
path` serves where files have other names; the files lie in the table's folder. The content of a file is read
by `mask_file.py`; `plain_files.py` decides which files may be opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.answers.masks import mask_file_name
from elsewhere.predictions.join import check_normalisations, join_by_id
from elsewhere.predictions.mask_file import MASK_ENDINGS, Mask, check_same_grid, mask_ending, read_mask
from elsewhere.predictions.plain_files import check_plain_file, files_inside, lies_inside
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.tables import file_digest, is_table, read_table
from elsewhere.tables.identifiers import note_files, note_ids, note_source

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

__all__ = ["MASK_ENDINGS", "Mask", "check_same_grid", "mask_file_name", "read_mask", "read_masks"]

INNER_NAMES = frozenset({"mask", "segmentation", "seg", "prediction", "pred"})


def _case_id(folder: Path, file: Path, ending: str, known: frozenset[str]) -> str:
    """The id that a file name stands for: as it is where the cohort has it, otherwise percent-decoded."""
    inside = file.relative_to(folder)
    stem = inside.name[: -len(ending)]
    parents = inside.parent.parts
    names = [stem] if not parents else ["/".join((*parents, stem))]
    if parents and (stem in INNER_NAMES or stem == parents[-1] or unquote(stem) == unquote(parents[-1])):
        names.insert(0, "/".join(parents))
    for name in names:
        for spelt in (name, unquote(name)):
            if spelt in known:
                return spelt
    return unquote(names[0])


def _digest(pairs: Iterable[tuple[str, Path]]) -> str:
    whole = hashlib.sha256()
    for case_id, file in pairs:
        whole.update(f"{case_id}\0{file_digest(file)}\n".encode())
    return whole.hexdigest()


def _from_folder(folder: Path, known: frozenset[str]) -> tuple[pd.DataFrame, list[str], int]:
    files, ignored = files_inside(folder, wanted=lambda path: mask_ending(path) is not None)
    note_files(files, inside=folder)
    found = [(_case_id(folder, file, str(mask_ending(file)), known), file) for file in files]
    note_ids([case_id for case_id, _ in found])
    if not found:
        raise UserError(
            "no mask found in the folder",
            where=str(folder),
            fix=f"Put one file per case into it, named `<case_id>` with one of {', '.join(MASK_ENDINGS)}.",
        )
    warnings = [f"{ignored} files in the folder are no masks and were not read."] if ignored else []
    table = pd.DataFrame(
        {
            "case_id": pd.array([case_id for case_id, _ in found], dtype="string"),
            "path": pd.array([str(file) for _, file in found], dtype="string"),
        }
    )
    return table, warnings, len(found)


def _from_table(path: Path, options: ReadOptions) -> tuple[pd.DataFrame, list[str], int]:
    strings = [options.column_map.get(name, name) for name in ("case_id", "path")]
    frame = read_table(path, strings=strings, options=options.table)
    frame = frame.rename(columns={source: target for target, source in options.column_map.items()})
    note_ids(*(frame[name] for name in ("case_id", "patient_id", "exam_id") if name in frame.columns))
    if "path" in frame.columns:
        note_files(frame["path"].dropna().astype(str), inside=path.parent)
    lacking = [name for name in ("case_id", "path") if name not in frame.columns]
    if lacking:
        raise UserError(
            f"no column {' and no column '.join(lacking)} (columns: {', '.join(map(str, frame.columns))})",
            where=str(path),
            fix="Give a folder of masks, or a table with case_id and path.",
        )
    empty = frame["path"].isna().to_numpy(dtype=bool)
    if empty.any():
        rows = (np.flatnonzero(empty) + 1).tolist()
        raise UserError(
            "empty path", where=f"{path}, rows {name_rows(rows)}", fix="Leave out cases without a mask."
        )
    paths = [str(path.parent / str(value)) for value in frame["path"]]
    for file in map(Path, paths):
        if file.exists() or file.is_symlink() or not lies_inside(file, inside=path.parent):
            check_plain_file(file, inside=path.parent)
    table = pd.DataFrame(
        {"case_id": frame["case_id"].astype("string"), "path": pd.array(paths, dtype="string")}
    )
    return table, [], len(table)


def read_masks(path: Path, options: ReadOptions, cohort: Cohort | None = None) -> Predictions:
    """Find out which mask file belongs to which case; the masks themselves are read when they are scored.

    Args:
        path: A folder of masks, a single mask, or a table with `case_id` and `path`.
        options: How a table and ids are to be read, and whether missing files are errors.
        cohort: The cases, by whose ids file names are decoded; None: they are percent-decoded.

    Returns:
        The predictions, with the columns `case_id` and `path`.

    Raises:
        UserError: There is no mask, a case has two, a file lies outside the folder, or a file is missing and
            `options.on_invalid` is "error".
    """
    path = Path(path)
    note_source(path)
    known = frozenset(cohort.cases["case_id"].astype("string")) if cohort is not None else frozenset()
    if path.is_dir():
        table, warnings, n_files = _from_folder(path, known)
    elif not path.exists():
        raise UserError(
            "there is no such folder", where=str(path), fix="Give a folder with one mask per case."
        )
    elif (ending := mask_ending(path)) is not None:
        case_id = _case_id(path.parent, path, ending, known)
        table = pd.DataFrame({"case_id": [case_id], "path": [str(path)]}, dtype="string")
        note_files([path], inside=path.parent)
        note_ids([case_id])
        warnings, n_files = [], 1
    elif is_table(path):
        table, warnings, n_files = _from_table(path, options)
    else:
        raise UserError(
            "neither a folder nor a mask", where=str(path), fix="Give a folder with one mask per case."
        )
    repeated = table["case_id"].duplicated(keep=False).to_numpy(dtype=bool)
    if repeated.any():
        first = table["case_id"][repeated].iloc[0]
        files = [Path(str(p)).name for p in table["path"][(table["case_id"] == first).to_numpy(dtype=bool)]]
        raise UserError(
            f"case '{first}' has {len(files)} masks: {name_rows(files)}",
            where=str(path),
            fix="Keep one per case.",
        )
    if cohort is not None and options.normalise_ids:
        rules = check_normalisations(options.normalise_ids)
        join = join_by_id(
            cohort.cases["case_id"], table["case_id"], normalise=rules, source=str(path), what="mask"
        )
        spelling = table["case_id"].to_numpy(dtype=object).copy()
        matched = join.row_of_case >= 0
        spelling[join.row_of_case[matched]] = cohort.cases["case_id"].to_numpy(dtype=object)[matched]
        changed = int((spelling != table["case_id"].to_numpy(dtype=object)).sum())
        table["case_id"] = pd.array(spelling, dtype="string")
        if changed:
            warnings.append(f"{changed} masks were joined after --normalise-ids {','.join(rules)}.")
    missing_files = [str(p) for p in table["path"] if not Path(str(p)).is_file()]
    if missing_files and options.on_invalid == "error":
        raise UserError(
            f"{len(missing_files)} mask files are not there",
            where=name_rows(missing_files, limit=3),
            fix="Relative paths start at the table's folder; --on-invalid worst counts them as the worst answer.",
        )
    digest = _digest(
        (str(c), Path(str(p)))
        for c, p in zip(table["case_id"], table["path"], strict=True)
        if Path(str(p)).is_file()
    )
    return Predictions(
        kind="masks",
        table=table,
        source=str(path),
        digest=digest,
        flow=({"step": "mask files", "n": n_files, "lost": 0, "why": ""},),
        warnings=tuple(warnings),
    )
