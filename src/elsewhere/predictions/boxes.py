"""Detection predictions: boxes with scores, in our own columns or as DBTex's csv.

Native: `case_id, x, y, width, height, z, depth, score`, upper left corner and first slice, in original
pixels and slices (csv, parquet, xlsx). Pictures without slices leave `z` and `depth` out.

- Any number of boxes per volume, also none: a file with a header alone means that nothing was found anywhere.
- Repeated rows are allowed: the challenge counts each of several equal false positives, and ignores further
  hits on a lesion that was hit before, so that a repeated row is a (costly) answer of the model, no mistake.
- A box is invalid when a number is missing or not finite, a size is negative, or its centre lies farther
  outside its volume than a hit can reach: 100 px, or 25 % of the slices (`volume_slices`, and
  `image_width`, `image_height` of the cohort, where known). Nearer ones are scored: the published
  evaluation lets a box that overshoots the edge hit a lesion next to it.
- In DBTex's csv a view may be written in capitals: `RMLO` is the cohort's `rmlo`.
- In DBTex's csv any finite `Depth` is accepted, also -1 and 0, which the organisers' baseline and other
  published files have: the published evaluation takes Z + Depth/2 as the centre slice and checks nothing
  (DBT-07).
- A position or size of over a million pixels or slices is invalid, also where the extent of the volume is not
  known: no picture has as many, and arithmetic with such numbers loses the small ones.
- With `on_invalid="worst"` an invalid box becomes a false positive with the highest score of its volume
  (ST-14): it can only cost sensitivity, so writing NaN never pays.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, near_matches
from elsewhere.predictions.dbtex import (
    DBTEX_COLUMNS,
    DBTEX_IDS,
    NATIVE_OF_DBTEX,
    BoxPredictions,
    case_ids,
    is_dbtex,
    read_layout,
    write_dbtex,
)
from elsewhere.predictions.join import as_ids, check_normalisations, join_by_id
from elsewhere.predictions.table import Predictions, ReadOptions
from elsewhere.tables import file_digest, read_table, to_number
from elsewhere.tables.identifiers import note_ids, note_source

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

PLANE_COLUMNS = ("x", "y", "width", "height")
SLICE_COLUMNS = ("z", "depth")
BOX_COLUMNS = (*PLANE_COLUMNS, *SLICE_COLUMNS, "score")
_EXTENT = ("volume_slices", "image_width", "image_height")
_REACH_PX = 100.0
_LARGEST_PX = 1e6
_REACH_OF_SLICES = 0.25
_REACH_UNKNOWN_SLICES = 25.0


def read_boxes(
    path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> BoxPredictions:
    """Read boxes from DBTex's csv or from a table with our own columns, and check each row.

    With a cohort, boxes are also checked against the extent of their volume, and `--normalise-ids` brings the
    ids to the cohort's spelling. Boxes in volumes that the cohort does not list stay, as false positives.

    Args:
        path: A csv, parquet or xlsx table.
        options: How the file is to be read; None: the defaults of ReadOptions.
        cohort: The cases; None: no check against volumes.

    Returns:
        The boxes, with the layout of the file where it is DBTex's csv and no column was renamed.

    Raises:
        UserError: The file cannot be read, a column or an id is missing, or a box is invalid and
            `options.on_invalid` is "error".
    """
    path, options = Path(path), options or ReadOptions()
    ids = [options.column_map.get(name, name) for name in ("case_id", "patient_id", *DBTEX_IDS)]
    note_source(path)
    raw = read_table(path, allow_empty=True, strings=ids, options=options.table)
    note_ids(*(raw[name] for name in ids if name in raw.columns and name != "View"))
    found = boxes_from_frame(raw, options, cohort, source=str(path), digest=file_digest(path))
    if not is_dbtex(raw.columns) or options.column_map:
        return found
    return dataclasses.replace(found, layout=read_layout(path, found.table))


def boxes_from_frame(
    raw: pd.DataFrame,
    options: ReadOptions | None = None,
    cohort: Cohort | None = None,
    *,
    source: str = "predictions",
    digest: str = "",
) -> BoxPredictions:
    """Check boxes that are in a data frame, as `read_boxes` checks those of a file.

    Args:
        raw: One row per box, with DBTex's columns or our own.
        options: How the columns are to be read; None: the defaults of ReadOptions.
        cohort: The cases; None: no check against volumes.
        source: What messages call the frame.
        digest: The digest of the file that it comes from; empty: it comes from none.

    Returns:
        The boxes; `row` in their table counts the rows of the frame from 1.

    Raises:
        UserError: A column or an id is missing, or a box is invalid and `options.on_invalid` is "error".

    Example:
        >>> box = {"case_id": "a", "x": 5, "y": 5, "width": 9, "height": 9, "score": 0.7}
        >>> boxes_from_frame(pd.DataFrame([box])).table["score"].tolist()
        [0.7]
    """
    options = options or ReadOptions()
    raw = _rename(raw.reset_index(drop=True), options, source=source)
    dbtex = is_dbtex(raw.columns)
    needed = DBTEX_COLUMNS if dbtex else ("case_id", *PLANE_COLUMNS, "score")
    _need_columns(raw, needed, where=source, dbtex=dbtex)
    if dbtex:
        study = _whole_ids(raw["StudyUID"], what="boxes (column StudyUID)", where=source)
        view = _whole_ids(raw["View"], what="boxes (column View)", where=source)
        table = pd.DataFrame({"case_id": case_ids(study, view)})
        table["patient_id"] = raw["PatientID"].astype("string")
        note_ids(table["case_id"])
        sources = {native: name for name, native in NATIVE_OF_DBTEX.items()}
    else:
        table = pd.DataFrame({"case_id": _whole_ids(raw["case_id"], what="boxes", where=source)})
        if "patient_id" in raw.columns:
            table["patient_id"] = raw["patient_id"].astype("string")
        sources = {name: name for name in BOX_COLUMNS}
        lone = [name for name in SLICE_COLUMNS if name in raw.columns]
        if len(lone) == 1:
            other = next(name for name in SLICE_COLUMNS if name not in lone)
            raise UserError(
                f"a column '{lone[0]}' but no '{other}'",
                where=source,
                fix="Give both (first slice and number of slices), or neither for pictures without slices.",
            )
    on_bad_cell: Literal["error", "nan"] = "nan" if options.on_invalid == "worst" else "error"
    for native, name in sources.items():
        if name in raw.columns:
            cells = raw[name]
            table[native] = to_number(
                cells, column=name, where=source, on_invalid=on_bad_cell, infinite="keep"
            )
        else:
            table[native] = np.nan
    table["row"] = np.arange(1, len(table) + 1, dtype=np.int64)
    warnings = _remarks(table, study if dbtex else None)
    if cohort is not None and dbtex:
        spelt = _views_of_cohort(table["case_id"], cohort.cases["case_id"])
        changed = int((spelt != table["case_id"]).sum())
        table["case_id"] = spelt
        if changed:
            warnings.append(
                f"{changed} boxes were joined to their volume without regard to the view's letter case."
            )
    if cohort is not None and options.normalise_ids:
        spelt = to_cohort_spelling(
            table["case_id"], cohort.cases["case_id"], options.normalise_ids, source=source
        )
        changed = int((spelt != table["case_id"]).sum())
        table["case_id"] = spelt
        if changed:
            rules = ",".join(options.normalise_ids)
            warnings.append(f"{changed} boxes were joined to their volume after --normalise-ids {rules}.")
    extent = volume_extent(cohort) if cohort is not None else None
    return BoxPredictions(
        kind="boxes",
        table=check_boxes(
            table, extent=extent, on_invalid=options.on_invalid, source=source, any_depth=dbtex
        ),
        source=source,
        digest=digest,
        flow=({"step": "boxes in the prediction file", "n": len(table), "lost": 0, "why": ""},),
        warnings=tuple(warnings),
        extras={"form": "dbtex" if dbtex else "native"},
    )


def _remarks(table: pd.DataFrame, study: pd.Series | None) -> list[str]:
    """What can be scored and is hardly meant: no box, one score for all boxes, one study under two patients."""
    if table.empty:
        return ["The file has no boxes: it is scored as a model that finds nothing in any volume."]
    notes = []
    score = table["score"].to_numpy(dtype=float)
    if len(score) > 1 and np.isfinite(score[0]) and (score == score[0]).all():
        notes.append(
            f"All {len(score)} boxes have the score {score[0]:g}: no threshold can be chosen, and every false positive "
            "counts from the first hit on."
        )
    if study is not None:
        pairs = pd.DataFrame({"study": study, "patient": table["patient_id"]}).dropna().drop_duplicates()
        several = int((pairs["study"].value_counts() > 1).sum())
        if several:
            notes.append(
                f"{several} {'study is' if several == 1 else 'studies are'} under more than one PatientID in the file; boxes are "
                "joined by StudyUID and View, and the cohort says who the patient is."
            )
    return notes


def _views_of_cohort(ids: pd.Series, cohort_ids: pd.Series) -> pd.Series:
    """Spell views as the cohort does, where they differ in letter case alone (S1/RMLO and S1/rmlo)."""
    known = cohort_ids.astype("string")
    strangers = ids[~ids.isin(known)].drop_duplicates()
    if strangers.empty:
        return ids
    spelling: dict[str, str | None] = {}
    for name in known:
        key = _plain_view(name)
        spelling[key] = None if spelling.get(key, name) != name else name
    renamed = {name: spelling.get(_plain_view(name)) or name for name in strangers}
    return ids.map(lambda name: renamed.get(name, name)).astype("string")


def _plain_view(case_id: str) -> str:
    study, _, view = case_id.rpartition("/")
    return f"{study}/{view.lower()}"


def _whole_ids(ids: pd.Series, *, what: str, where: str) -> pd.Series:
    """Ids as text, none of them empty. Text stays as it is; other types are converted one by one."""
    if isinstance(ids.dtype, pd.StringDtype) and not (ids.isna() | (ids == "")).any():
        return ids.astype("string")
    return pd.Series(as_ids(ids, what=what, where=where), dtype="string")


def _rename(raw: pd.DataFrame, options: ReadOptions, *, source: str) -> pd.DataFrame:
    wanted = {source: target for target, source in options.column_map.items()}
    absent = [source for source in wanted if source not in raw.columns]
    if absent:
        near = near_matches(absent[0], [str(name) for name in raw.columns])
        raise UserError(
            f"no column '{absent[0]}' to map to '{wanted[absent[0]]}'",
            where=source,
            fix=f"Did you mean {' or '.join(near)}?"
            if near
            else f"Columns: {', '.join(map(str, raw.columns))}.",
        )
    return raw.rename(columns=wanted)


def _need_columns(raw: pd.DataFrame, needed: tuple[str, ...], *, where: str, dbtex: bool) -> None:
    missing = [name for name in needed if name not in raw.columns]
    if not missing:
        return
    form = "DBTex's csv" if dbtex else "a box table"
    raise UserError(
        f"{form} needs the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
        where=where,
        fix=f"It has {', '.join(map(str, raw.columns))}. Use {', '.join(DBTEX_COLUMNS)} (DBTex) or case_id, "
        f"{', '.join(BOX_COLUMNS)}; `--map score=COLUMN` names a column that is called otherwise.",
    )


def to_cohort_spelling(
    ids: pd.Series, cohort_ids: pd.Series, rules: tuple[str, ...], *, source: str
) -> pd.Series:
    """Spell the ids of volumes as the cohort does, where some rules make them equal.

    Args:
        ids: The ids of the predictions, one per box.
        cohort_ids: The ids of the cohort.
        rules: Names of rules of `--normalise-ids`, such as `case` or `zeros`.
        source: The prediction file, for messages.

    Returns:
        The ids; those that match none of the cohort stay as they are.

    Raises:
        UserError: A rule makes two ids one, or no id matches at all.

    Example:
        >>> to_cohort_spelling(pd.Series(["V7", "V7"]), pd.Series(["v7"]), ("case",), source="x.csv").tolist()
        ['v7', 'v7']
    """
    unique = ids.drop_duplicates()
    joined = join_by_id(
        cohort_ids, unique, normalise=check_normalisations(rules), source=source, what="volume"
    )
    rows = joined.row_of_case
    found = rows >= 0
    spelling = dict(zip(unique.to_numpy()[rows[found]], cohort_ids.to_numpy()[found], strict=True))
    return ids.map(lambda text: spelling.get(text, text)).astype("string")


def rows_of(ids: pd.Series, index: pd.Index) -> npt.NDArray[np.int64]:
    """Find the position of each id in an index.

    Args:
        ids: The ids; each distinct one is looked up once.
        index: Unique ids.

    Returns:
        The positions; -1 where the index does not have the id.

    Example:
        >>> rows_of(pd.Series(["b", "x", "b"]), pd.Index(["a", "b"])).tolist()
        [1, -1, 1]
    """
    codes, unique = pd.factorize(ids.astype("string"))
    places = index.get_indexer(pd.Index(unique)).astype(np.int64)
    return np.where(codes >= 0, places[codes], -1) if places.size else np.full(len(ids), -1, dtype=np.int64)


def volume_extent(cohort: Cohort) -> pd.DataFrame:
    """Collect the number of slices and the picture size of each volume, as far as the cohort knows them.

    The number of slices is that of the volume's first lesion row, as in scoring; a column of the case table
    has precedence.

    Args:
        cohort: The cases.

    Returns:
        `volume_slices`, `image_width` and `image_height` by case id; NaN: unknown.
    """
    cases = cohort.cases.drop_duplicates("case_id")
    index = pd.Index(cases["case_id"].astype("string"))
    extent = pd.DataFrame(index=index)
    for column in _EXTENT:
        values = pd.to_numeric(cases[column], errors="coerce") if column in cases.columns else None
        extent[column] = np.nan if values is None else values.to_numpy(dtype=float, na_value=np.nan)
    lesions = cohort.lesions
    if lesions is not None and "volume_slices" in lesions.columns and len(lesions):
        first = lesions.drop_duplicates("case_id").set_index("case_id")["volume_slices"]
        known = pd.to_numeric(first, errors="coerce").reindex(index).to_numpy(dtype=float, na_value=np.nan)
        extent["volume_slices"] = extent["volume_slices"].fillna(pd.Series(known, index=index))
    return extent


def check_boxes(
    table: pd.DataFrame,
    *,
    extent: pd.DataFrame | None = None,
    on_invalid: str = "error",
    source: str = "",
    any_depth: bool = False,
) -> pd.DataFrame:
    """Find out for each box whether it can be scored.

    Args:
        table: One row per box, with `case_id` and the columns BOX_COLUMNS.
        extent: What `volume_extent` returned; None: the extent of no volume is known.
        on_invalid: "error" raises for the first kind of fault; "worst" keeps such boxes and gives their
            reason.
        source: The file, for messages.
        any_depth: Whether depths below 0 are accepted, as the challenge's evaluation does in DBTex's csv
            (DBT-07).

    Returns:
        The table with a column `reason`: missing where the box is valid, otherwise why it is not.

    Raises:
        UserError: A box is invalid and `on_invalid` is not "worst"; the message names the rows.
    """
    n = len(table)
    reason = np.full(n, None, dtype=object)
    if "reason" in table.columns:
        reason[:] = table["reason"].astype(object).where(table["reason"].notna(), None).to_numpy()
    numbers = {name: table[name].to_numpy(dtype=float) for name in BOX_COLUMNS}
    flat = bool(np.isnan(numbers["z"]).all() and np.isnan(numbers["depth"]).all())
    needed = (*PLANE_COLUMNS, "score") if flat else BOX_COLUMNS

    def note(bad: npt.NDArray[np.bool_], why: str) -> None:
        new = bad & pd.isna(reason)
        if new.any() and on_invalid != "worst":
            rows = (np.flatnonzero(new) + 1).tolist()
            raise UserError(
                f"{len(rows)} of {n} boxes: {why}",
                where=f"{source}, rows {name_rows(rows)}" if source else f"rows {name_rows(rows)}",
                fix="Correct the rows, or give `--on-invalid worst`: each then counts as a false positive "
                "with the highest score of its volume.",
            )
        reason[new] = why

    for name in needed:
        note(~np.isfinite(numbers[name]), f"{name} is missing or not a finite number")
    for name in ("width", "height") if any_depth else ("width", "height", "depth"):
        note(numbers[name] < 0, f"{name} is negative")
    for name in (*PLANE_COLUMNS, *SLICE_COLUMNS):
        note(
            np.abs(numbers[name]) > _LARGEST_PX,
            f"{name} is over {_LARGEST_PX:,.0f}, and no picture is as large",
        )
    limits = _limits(table, extent)
    for low, size, column in (
        ("x", "width", "image_width"),
        ("y", "height", "image_height"),
        ("z", "depth", "volume_slices"),
    ):
        with np.errstate(invalid="ignore"):
            centre, limit = numbers[low] + numbers[size] / 2.0, limits[column]
        reach = np.full(n, _REACH_PX)
        if low == "z":
            reach = np.where(np.isnan(limit), _REACH_UNKNOWN_SLICES, limit * _REACH_OF_SLICES)
        note(centre < -reach, f"the box lies outside its volume ({low} far below 0)")
        note(centre > limit + reach, f"the box lies outside its volume ({low} far beyond its {column})")
    out = table.copy()
    sound = bool(pd.isna(reason).all())
    out["reason"] = pd.Series(pd.NA if sound else list(reason), index=out.index, dtype="string")
    return out


def _limits(table: pd.DataFrame, extent: pd.DataFrame | None) -> dict[str, npt.NDArray[np.float64]]:
    """The extent of each box's volume, NaN where it is unknown."""
    if extent is None or extent.empty:
        return {column: np.full(len(table), np.nan) for column in _EXTENT}
    rows = rows_of(table["case_id"], extent.index)
    return {
        column: np.where(rows >= 0, extent[column].to_numpy(dtype=float)[rows], np.nan) for column in _EXTENT
    }


__all__ = [
    "BOX_COLUMNS",
    "BoxPredictions",
    "Predictions",
    "boxes_from_frame",
    "check_boxes",
    "read_boxes",
    "rows_of",
    "to_cohort_spelling",
    "volume_extent",
    "write_dbtex",
]
