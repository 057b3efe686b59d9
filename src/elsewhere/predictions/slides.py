"""Predictions for slides: one stage per slide (and per patient), scored points, or mask files.

A csv with `case_id, stage` (or CAMELYON17's own `patient, stage`, where rows of patients and of nodes stand
in one file); a csv with `case_id, x, y, score`, or CAMELYON16's folder with one csv without header per slide
(score, x, y in level-0 pixels); a folder of mask files named by case id; or a csv with `case_id, path` of mask files,
and what they do not state themselves: `mpp`, `offset_x`, `offset_y`, `tumour`, `threshold`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.plain_files import files_inside
from elsewhere.predictions.slide_masks import MASK_ENDINGS, MaskReading
from elsewhere.predictions.stages import PATIENT_STAGES, STAGES, normalise_stage
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.tables import file_digest, read_table, to_number
from elsewhere.tables.identifiers import note_files, note_ids, note_source

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

_ENDINGS = re.compile(r"\.(tif|tiff|svs|ndpi|mrxs|zip)$", re.IGNORECASE)
MASK_COLUMNS = ("mpp", "offset_x", "offset_y", "tumour", "threshold")
"""What a table of masks may state of each file."""


def without_ending(ids: pd.Series) -> pd.Series:
    """Remove the file endings of slide names: CAMELYON's tables name a slide 'patient_000_node_0.tif'.

    Args:
        ids: The names.

    Returns:
        The case ids, without blanks around them.

    Example:
        >>> without_ending(pd.Series(["patient_000_node_0.tif"])).tolist()
        ['patient_000_node_0']
    """
    return ids.astype("string").str.strip().str.replace(_ENDINGS, "", regex=True)


def read_slides(path: Path, options: ReadOptions, cohort: Cohort | None = None) -> Predictions:
    """Read stages, points or masks of slides.

    Which of them it is follows from the files and columns that are there, never from values.

    Args:
        path: A table with `stage`, or with `x`, `y` and `score`; or a folder with one csv or one mask file
            per slide.
        options: How the file is to be read.
        cohort: Not used here.

    Returns:
        The predictions; points are in `points`.

    Raises:
        UserError: There is no prediction, a column or an id is missing, an id is repeated, or a stage is
            unknown and `options.on_invalid` is "error".
    """
    path = Path(path)
    note_source(path)
    if path.is_dir():
        tables, _ = files_inside(path, wanted=lambda file: file.suffix.lower() == ".csv", deep=False)
        note_files(tables, inside=path)
        if tables:
            return _points_folder(path, tables, options)
        masks, _ = files_inside(path, wanted=lambda file: file.suffix.lower() in MASK_ENDINGS, deep=False)
        note_files(masks, inside=path)
        if not masks:
            raise UserError(
                "no prediction found in the folder",
                where=str(path),
                fix="Put `<case_id>.csv` (score, x, y) or `<case_id>.tif`, `.png` or `.geojson` masks into it.",
            )
        stems = pd.Series([unquote(p.stem) for p in masks])
        if stems.duplicated().any():
            raise UserError(
                f"{stems[stems.duplicated()].iloc[0]} has several masks in the folder",
                where=str(path),
                fix="Leave one mask per slide.",
            )
        table = pd.DataFrame({"case_id": [unquote(p.stem) for p in masks], "path": [str(p) for p in masks]})
        digest = _digest_of(masks)
        return Predictions(
            kind="slides", table=table, source=str(path), digest=digest, flow=_flow(len(table))
        )
    ids = [options.column_map.get("case_id", "case_id"), "patient"]
    table = read_table(path, strings=ids, options=options.table, allow_empty=True)
    table = table.rename(columns={source: target for target, source in options.column_map.items()})
    if "case_id" not in table.columns and "patient" in table.columns:
        table = table.rename(columns={"patient": "case_id"})
    if "probability" in table.columns and "score" not in table.columns:
        table = table.rename(columns={"probability": "score"})
    if "case_id" not in table.columns:
        raise UserError(
            f"no column case_id (columns: {', '.join(map(str, table.columns))})",
            where=str(path),
            fix="Name it with `--map case_id=COLUMN`.",
        )
    note_ids(table["case_id"])
    table["case_id"] = without_ending(table["case_id"])
    note_ids(table["case_id"], *(table[name] for name in ("patient_id", "exam_id") if name in table.columns))
    if {"x", "y", "score"} <= set(table.columns):
        points = _points(table, path, options)
        return Predictions(
            kind="slides",
            table=pd.DataFrame({"case_id": points["case_id"].unique()}),
            points=points,
            source=str(path),
            digest=file_digest(path),
            flow=_flow(len(points)),
        )
    if table.empty:
        raise UserError("the table has a header but no rows", where=str(path), fix="Export it again.")
    if "path" in table.columns:
        return _masks(table, path)
    if "stage" not in table.columns:
        raise UserError(
            "neither a stage, nor points (x, y, score), nor paths of masks",
            where=str(path),
            fix="Give `case_id,stage`, or `case_id,x,y,score`, or `case_id,path`, or a folder of masks.",
        )
    return _stages(table, path, options)


def mask_reading(row: pd.Series) -> MaskReading:
    """Return what a row of a table of masks states of its file.

    Args:
        row: A row of the predictions, with some of `MASK_COLUMNS`.

    Returns:
        How the file is to be read; what is empty in the row is left to the file.

    Raises:
        UserError: Only one of `offset_x` and `offset_y` is given.

    Example:
        >>> mask_reading(pd.Series({"case_id": "a", "path": "a.tif", "tumour": 2.0})).tumour
        (2,)
    """
    given = {name: float(row[name]) for name in MASK_COLUMNS if name in row.index and pd.notna(row[name])}
    if ("offset_x" in given) != ("offset_y" in given):
        raise UserError(f"the mask of {row['case_id']} has one of offset_x and offset_y", fix="Give both.")
    return MaskReading(
        pixel_um=given.get("mpp"),
        offset_px=(given["offset_x"], given["offset_y"]) if "offset_x" in given else None,
        tumour=(int(given["tumour"]),) if "tumour" in given else None,
        threshold=given.get("threshold"),
    )


def _masks(table: pd.DataFrame, path: Path) -> Predictions:
    """A table of paths, absolute or relative to the table."""
    named = table["path"].astype("string").fillna("").str.strip()
    for name, empty in (("case_id", table["case_id"].fillna("") == ""), ("path", named == "")):
        if empty.any():
            rows = (empty.to_numpy().nonzero()[0] + 1).tolist()
            raise UserError(f"empty {name}", where=f"{path}, rows {name_rows(rows)}")
    repeated = table["case_id"].duplicated().to_numpy()
    if repeated.any():
        raise UserError(
            f"{repeated.sum()} ids occur twice, for example {table['case_id'][repeated].iloc[0]}",
            where=str(path),
            fix="Give one mask per slide.",
        )
    files = [path.parent / name for name in named]
    note_files(files, inside=path.parent)
    out = pd.DataFrame({"case_id": table["case_id"], "path": [str(file) for file in files]})
    for name in MASK_COLUMNS:
        if name in table.columns:
            out[name] = to_number(table[name], column=name, where=str(path), missing="nan")
    content = hashlib.sha256(file_digest(path).encode())
    content.update(_digest_of([file for file in files if file.is_file()]).encode())
    return Predictions(
        kind="slides", table=out, source=str(path), digest=content.hexdigest(), flow=_flow(len(out))
    )


def _digest_of(files: list[Path]) -> str:
    """One digest of the names and contents of several files, in order of name."""
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(f"{file.name}\0{file_digest(file)}\n".encode())
    return whole.hexdigest()


def _flow(n: int) -> tuple[dict[str, object], ...]:
    return ({"step": "rows in the prediction file", "n": n, "lost": 0, "why": ""},)


def _stages(table: pd.DataFrame, path: Path, options: ReadOptions) -> Predictions:
    empty = table["case_id"].isna() | (table["case_id"] == "")
    if empty.any():
        raise UserError(
            "empty case_id", where=f"{path}, rows {name_rows((empty.to_numpy().nonzero()[0] + 1).tolist())}"
        )
    stages = table["stage"].astype("string").fillna("").map(normalise_stage)
    bad = stages.isna().to_numpy(dtype=bool)
    if bad.any() and options.on_invalid == "error":
        rows = (bad.nonzero()[0] + 1).tolist()
        raise UserError(
            f"'{table['stage'].iloc[rows[0] - 1]}' is no stage",
            where=f"{path}, rows {name_rows(rows)}",
            fix=f"Slides: {', '.join(STAGES)}. Patients: {', '.join(PATIENT_STAGES)}.",
        )
    repeated = table["case_id"].duplicated().to_numpy()
    if repeated.any():
        raise UserError(
            f"{repeated.sum()} ids occur twice, for example {table['case_id'][repeated].iloc[0]}",
            where=str(path),
            fix="Give one stage per slide.",
        )
    out = pd.DataFrame({"case_id": table["case_id"], "stage": stages.astype("object").where(~bad, None)})
    return Predictions(
        kind="slides", table=out, source=str(path), digest=file_digest(path), flow=_flow(len(out))
    )


def _points(table: pd.DataFrame, path: Path, options: ReadOptions) -> pd.DataFrame:
    numbers = {
        name: to_number(
            table[name],
            column=name,
            where=str(path),
            on_invalid="nan" if options.on_invalid == "worst" else "error",
            missing="nan" if options.on_invalid == "worst" else "error",
        )
        for name in ("x", "y", "score")
    }
    return pd.DataFrame({"case_id": table["case_id"].astype("string"), **numbers})


def _points_folder(path: Path, files: list[Path], options: ReadOptions) -> Predictions:
    frames = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        rows = [line.split(",") for line in text.splitlines() if line.strip()]
        if rows and not _is_number(rows[0][0]):
            rows = rows[1:]
        short = [i + 1 for i, row in enumerate(rows) if len(row) != 3]
        if short:
            raise UserError(
                "a line does not have three values (score, x, y)",
                where=f"{file}, lines {name_rows(short)}",
                fix="CAMELYON16's form: score,x,y in level-0 pixels, one point per line.",
            )
        frame = pd.DataFrame(rows, columns=["score", "x", "y"], dtype="string")
        frame.insert(0, "case_id", unquote(file.stem))
        frames.append(_points(frame, file, options))
    points = pd.concat(frames, ignore_index=True)
    return Predictions(
        kind="slides",
        table=pd.DataFrame({"case_id": [unquote(f.stem) for f in files]}),
        points=points,
        source=str(path),
        digest=_digest_of(files),
        flow=_flow(len(points)),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
