"""The tables of detection: lesions and boxes are checked, events are made, volumes are counted.

Everything here is a plain function from tables to tables; the task in `__init__.py` calls them in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.predictions.boxes import BOX_COLUMNS, rows_of
from elsewhere.predictions.join import join_by_id
from elsewhere.protocols import Protocol
from elsewhere.scoring.detection.matching import Boxes, Lesions, match_boxes
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.tables import to_number

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

KINDS = ("tp", "duplicate", "fp", "fn")
NEAREST_LESION = "nearest_lesion_id"
FINDING = "finding_id"
"""The column that numbers one finding in several views; tables of lesions and events may do without it."""
EVENT_COLUMNS = (
    "case_id",
    "patient_id",
    "lesion_id",
    "lesion_class",
    "score",
    "kind",
    "box",
    NEAREST_LESION,
    "lesion_diagonal_px",
    "lesion_distortion",
    FINDING,
)
_LATER_COLUMNS = (NEAREST_LESION, "lesion_diagonal_px", "lesion_distortion", FINDING)
"""Columns that events of earlier versions, or of cohorts that do not state them, do not have."""
_NUMBERS = ("score", "lesion_diagonal_px", "lesion_distortion")
_KEPT = ("case_id", "patient_id", "exam_id", "dataset", "site", "view", "laterality", "label")
_ATTRIBUTES = ("age", "menopausal_status", "breast_density", "vendor")


def case_frame(cohort: Cohort, options: ScoreOptions) -> pd.DataFrame:
    """Take the columns of the cohort that stay with the scores: ids, levels, site and group attributes.

    Args:
        cohort: The cohort.
        options: The options of scoring; `group_by` adds columns.

    Returns:
        One row per volume, with `case_id` and `patient_id`.

    Raises:
        UserError: A column to group by is absent.
    """
    source = cohort.cases
    absent = [name for name in options.group_by if name not in source.columns]
    if absent:
        raise unknown_name("cohort column", absent[0], [str(name) for name in source.columns])
    wanted = [c for c in dict.fromkeys((*_KEPT, *_ATTRIBUTES, *options.group_by)) if c in source.columns]
    cases = source[wanted].reset_index(drop=True).copy()
    cases["case_id"] = cases["case_id"].astype("string")
    if "patient_id" not in cases.columns:
        cases["patient_id"] = cases["case_id"]
    cases["patient_id"] = cases["patient_id"].astype("string")
    return cases


def lesion_frame(cohort: Cohort, cases: pd.DataFrame) -> pd.DataFrame:
    """Read the lesions in their listed order, with numbers checked; `volume` is the row of their case.

    Args:
        cohort: The cohort, with or without a lesion table.
        cases: The volumes of the cohort.

    Returns:
        One row per lesion; none without a lesion table.

    Raises:
        UserError: A column is absent, or a row has an unknown volume, a repeated id, a negative size, or a
            slice without the number of slices.
    """
    source = cohort.lesions
    if source is None:
        source = pd.DataFrame(
            {name: pd.Series(dtype="string") for name in ("case_id", "x", "y", "width", "height")}
        )
    where = "the cohort's lesions"
    missing = [name for name in ("case_id", "x", "y", "width", "height") if name not in source.columns]
    if missing:
        raise UserError(
            f"the lesion table needs {', '.join(missing)}",
            where=where,
            fix="Lesions are boxes: case_id, lesion_id, x, y, width, height, slice, volume_slices, class.",
        )
    out = pd.DataFrame({"case_id": source["case_id"].astype("string").to_numpy()})
    out["case_id"] = out["case_id"].astype("string")
    if "lesion_id" in source.columns:
        out["lesion_id"] = source["lesion_id"].astype("string").to_numpy()
    else:
        out["lesion_id"] = [str(i) for i in range(len(source))]
    out["lesion_id"] = out["lesion_id"].astype("string")
    class_column = source["class"].astype("string").to_numpy() if "class" in source.columns else None
    out["lesion_class"] = pd.array(
        class_column if class_column is not None else [pd.NA] * len(out), dtype="string"
    )
    if FINDING in source.columns:
        out[FINDING] = pd.array(source[FINDING].astype("string").to_numpy(), dtype="string")
    for name in ("x", "y", "width", "height"):
        out[name] = to_number(source[name], column=name, where=where, missing="error").to_numpy()
    for name in ("slice", "volume_slices"):
        present = name in source.columns
        out[name] = to_number(source[name], column=name, where=where).to_numpy() if present else np.nan
    out["ad"] = (
        to_number(source["ad"], column="ad", where=where, on_invalid="nan").to_numpy()
        if "ad" in source.columns
        else np.nan
    )
    out["volume"] = pd.Index(cases["case_id"]).get_indexer(pd.Index(out["case_id"])).astype(np.int64)
    problems = (
        (
            out["volume"] < 0,
            "lie in volumes that the case table does not list",
            "Add the volumes, or take the boxes out.",
        ),
        (
            out.duplicated(["case_id", "lesion_id"]),
            "have a lesion_id that their volume already has",
            "Number them anew.",
        ),
        ((out["width"] < 0) | (out["height"] < 0), "have a negative size", "Correct the boxes."),
        (
            out["slice"].notna() & ~(out["volume_slices"] > 0),
            "have a slice, but no volume_slices",
            "How far a hit may lie from the lesion's slice depends on the volume's number of slices.",
        ),
    )
    for bad, what, fix in problems:
        rows = (np.flatnonzero(bad.to_numpy(dtype=bool)) + 1).tolist()
        if rows:
            raise UserError(f"{len(rows)} lesions {what}", where=f"{where}, rows {name_rows(rows)}", fix=fix)
    return out


def box_frame(predictions: Predictions) -> pd.DataFrame:
    """Read the predicted boxes, with the columns that a file may leave out.

    Args:
        predictions: Predictions of the kind 'boxes'.

    Returns:
        One row per box; numbers that the file does not state are NaN.

    Raises:
        UserError: A column is absent.
    """
    table = predictions.table.reset_index(drop=True).copy()
    missing = [
        name for name in ("case_id", "x", "y", "width", "height", "score") if name not in table.columns
    ]
    if missing:
        raise UserError(
            f"the box table needs {', '.join(missing)}",
            where=predictions.source,
            fix=f"Columns: case_id, {', '.join(BOX_COLUMNS)}.",
        )
    table["case_id"] = table["case_id"].astype("string")
    for name in BOX_COLUMNS:
        table[name] = table[name].to_numpy(dtype=float, na_value=np.nan) if name in table.columns else np.nan
    if "row" not in table.columns:
        table["row"] = np.arange(1, len(table) + 1, dtype=np.int64)
    if "patient_id" not in table.columns:
        table["patient_id"] = pd.array([pd.NA] * len(table), dtype="string")
    return table


def id_warnings(cases: pd.DataFrame, boxes: pd.DataFrame, *, source: str) -> list[str]:
    """Compare the volumes of the boxes with those of the cohort.

    Boxes join by the volume's exact id; similar ids are diagnosed, and a file without any volume of the
    cohort is refused.

    Args:
        cases: The volumes of the cohort.
        boxes: The boxes.
        source: What errors call the prediction file.

    Returns:
        Warnings, without ids.

    Raises:
        UserError: No volume of the boxes is in the cohort.
    """
    join = join_by_id(cases["case_id"], boxes["case_id"].drop_duplicates(), source=source, what="volume")
    if not join.extra:
        return []
    warnings = [
        f"{len(join.extra)} volumes with boxes are not in the cohort; "
        "their boxes count as false positives over all volumes."
    ]
    if join.diagnosis is not None:
        warnings.append(
            f"{join.diagnosis.sentence(masked=True)}. "
            f"If they are the same volumes, say {join.diagnosis.option()}."
        )
    return warnings


def worst_scores(
    score: FloatArray, volume: npt.NDArray[np.int64], invalid: npt.NDArray[np.bool_], case_id: pd.Series
) -> FloatArray:
    """Give invalid boxes the highest finite score of their volume, else of the file, else 0.

    Args:
        score: The score of each box.
        volume: The number of each box's volume.
        invalid: True for the invalid boxes.
        case_id: The id of each box's volume.

    Returns:
        The score of each box; valid boxes keep theirs.
    """
    if not invalid.any():
        return score
    finite = pd.Series(np.where(np.isfinite(score), score, np.nan))
    of_volume = finite.groupby(case_id.to_numpy()).transform("max")
    top = finite.max()
    filled = of_volume.fillna(0.0 if pd.isna(top) else top).to_numpy(dtype=float)
    return np.where(invalid, filled, score)


def hits_of(
    boxes: pd.DataFrame,
    lesions: pd.DataFrame,
    *,
    volume: npt.NDArray[np.int64],
    ids: pd.Index,
    protocol: Protocol,
) -> npt.NDArray[np.int64]:
    """Match boxes to lesions by the protocol (DBT-03).

    Args:
        boxes: The boxes.
        lesions: The lesions.
        volume: The number of each box's volume; -1 where the cohort does not list it.
        ids: The ids of the cohort's volumes.
        protocol: The rules.

    Returns:
        For each box the row number of its lesion, or -1.

    Raises:
        UserError: The lesions have slices and no box has.
    """
    has_slices = bool(lesions["slice"].notna().any())
    if has_slices and len(boxes) and boxes["z"].isna().all() and boxes["reason"].isna().any():
        raise UserError(
            "the boxes have no slices (z, depth), but the lesions have",
            fix="Give z (first slice) and depth: a box must lie near the lesion's slice to hit it.",
        )

    return match_boxes(as_boxes(boxes, volume), as_lesions(lesions), protocol.detection, n_volumes=len(ids))


def as_boxes(boxes: pd.DataFrame, volume: npt.NDArray[np.int64]) -> Boxes:
    """Take the numbers of boxes out of their table.

    Args:
        boxes: The boxes.
        volume: The number of each box's volume; -1 where the cohort does not list it.

    Returns:
        The boxes as arrays.
    """
    return Boxes(volume=volume, **{name: _numbers(boxes, name) for name in BOX_COLUMNS if name != "score"})


def as_lesions(lesions: pd.DataFrame) -> Lesions:
    """Take the numbers of lesions out of their table.

    Args:
        lesions: The lesions, as `lesion_frame` made them.

    Returns:
        The lesions as arrays.
    """
    names = ("x", "y", "width", "height", "slice", "volume_slices")
    return Lesions(
        volume=lesions["volume"].to_numpy(dtype=np.int64), **{name: _numbers(lesions, name) for name in names}
    )


def _numbers(table: pd.DataFrame, name: str) -> FloatArray:
    return np.ascontiguousarray(table[name].to_numpy(dtype=np.float64))


def events_of(
    boxes: pd.DataFrame,
    lesions: pd.DataFrame,
    *,
    hit: npt.NDArray[np.int64],
    nearest: npt.NDArray[np.int64],
    score: FloatArray,
) -> pd.DataFrame:
    """Make the events: one row per box, in the file's order, then one per lesion that no box hits.

    Args:
        boxes: The boxes.
        lesions: The lesions.
        hit: The lesion of each box by the protocol's matching, or -1.
        nearest: The lesion of each box by matching 'nearest', which defines the difficulty of lesions
            (DBT-08) under every protocol, or -1.
        score: The score of each box.

    Returns:
        The events, with the columns `EVENT_COLUMNS`.
    """
    kind = np.full(len(boxes), "fp", dtype=object)
    by_score = np.argsort(-score, kind="stable")
    hits = by_score[hit[by_score] >= 0]
    kind[hits] = "duplicate"
    kind[hits[np.unique(hit[hits], return_index=True)[1]]] = "tp"
    missed = np.setdiff1d(np.arange(len(lesions)), hit[hits])
    n_missed = missed.size
    lesion = np.concatenate([hit, missed]).astype(np.int64)
    closest = np.concatenate([nearest, np.full(n_missed, -1)]).astype(np.int64)

    def of_lesion(column: str, number: npt.NDArray[np.int64]) -> Any:
        if not len(lesions):
            return pd.array([pd.NA] * len(number), dtype="string")
        none = number < 0
        values = lesions[column].array.take(np.where(none, 0, number))
        values[none] = pd.NA
        return values

    def number_of_lesion(column: FloatArray, number: npt.NDArray[np.int64]) -> FloatArray:
        values = np.append(column, np.nan)
        return values[np.where(number < 0, -1, number)]

    blank = pd.array([pd.NA] * n_missed, dtype="string")
    return pd.DataFrame(
        {
            "case_id": pd.concat([boxes["case_id"], lesions["case_id"].iloc[missed]], ignore_index=True),
            "patient_id": pd.concat(
                [boxes["patient_id"].astype("string"), pd.Series(blank)], ignore_index=True
            ),
            "lesion_id": of_lesion("lesion_id", lesion),
            "lesion_class": of_lesion("lesion_class", lesion),
            "score": np.concatenate([score, np.full(n_missed, np.nan)]),
            "kind": pd.array(np.concatenate([kind, np.full(n_missed, "fn", dtype=object)]), dtype="string"),
            "box": pd.array(
                np.concatenate([boxes["row"].to_numpy(dtype=np.int64), np.full(n_missed, -1)]), dtype="Int64"
            ),
            NEAREST_LESION: of_lesion("lesion_id", closest),
            "lesion_diagonal_px": number_of_lesion(
                np.hypot(_numbers(lesions, "width"), _numbers(lesions, "height")), lesion
            ),
            "lesion_distortion": number_of_lesion(_numbers(lesions, "ad"), lesion),
            **({FINDING: of_lesion(FINDING, lesion)} if FINDING in lesions.columns else {}),
        }
    ).assign(box=lambda table: table["box"].where(table["box"] >= 0))


def is_kind(events: pd.DataFrame, *kinds: str) -> npt.NDArray[np.bool_]:
    """Mark the events of some kinds.

    Args:
        events: The events.
        *kinds: Some of `KINDS`.

    Returns:
        True for each event of one of these kinds.

    Example:
        >>> is_kind(pd.DataFrame({"kind": ["tp", "fp"]}), "tp", "fn").tolist()
        [True, False]
    """
    column = events["kind"]
    found = np.zeros(len(events), dtype=bool)
    for kind in kinds:
        found |= (column == kind).to_numpy(dtype=bool, na_value=False)
    return found


def no_events() -> pd.DataFrame:
    """Make a table of events without rows.

    Returns:
        The table, with the columns `EVENT_COLUMNS`.
    """
    columns = {name: pd.Series(dtype="float64" if name in _NUMBERS else "string") for name in EVENT_COLUMNS}
    return pd.DataFrame(columns)


def checked_events(events: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of saved events their types, and refuse events that contradict themselves.

    Args:
        events: The events, as they were read from a file.

    Returns:
        The events.

    Raises:
        UserError: A column is absent, or a row has an unknown kind, is a box without a score, or a hit or
            missed lesion without its id.
    """
    where = "the events table"
    missing = [name for name in ("case_id", "lesion_id", "score", "kind") if name not in events.columns]
    if missing:
        raise UserError(
            f"the events need {', '.join(missing)}", where=where, fix=f"Columns: {', '.join(EVENT_COLUMNS)}."
        )
    out = pd.DataFrame(index=range(len(events)))
    for name in EVENT_COLUMNS:
        if name in _LATER_COLUMNS and name not in events.columns:
            continue
        if name in _NUMBERS:
            out[name] = to_number(events[name], column=name, where=where).to_numpy()
        elif name in events.columns:
            out[name] = events[name].astype("string").to_numpy()
            out[name] = out[name].astype("string")
        else:
            out[name] = pd.array([pd.NA] * len(events), dtype="string")
    kind, lesion = out["kind"], out["lesion_id"]
    problems = (
        (~kind.isin(KINDS), f"have a kind that is none of {', '.join(KINDS)}"),
        ((kind != "fn") & out["score"].isna(), "are boxes without a score"),
        ((kind != "fp") & lesion.isna(), "name no lesion"),
    )
    for bad, what in problems:
        rows = (np.flatnonzero(bad.fillna(True).to_numpy(dtype=bool)) + 1).tolist()
        if rows:
            raise UserError(
                f"{len(rows)} events {what}", where=f"{where}, rows {name_rows(rows)}", fix="Score again."
            )
    return out


def case_numbers(cases: pd.DataFrame, events: pd.DataFrame, lesions: pd.DataFrame) -> pd.DataFrame:
    """Count lesions, lesions hit at any score, boxes and false positives of each case.

    Args:
        cases: The volumes of the cohort.
        events: The events.
        lesions: The lesions.

    Returns:
        The cases with these counts, and the highest score of a box.
    """
    row = rows_of(events["case_id"], pd.Index(cases["case_id"]))
    listed = row >= 0
    false, missed = is_kind(events, "fp"), is_kind(events, "fn")

    def count(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        return np.bincount(row[mask & listed], minlength=len(cases)).astype(np.int64)

    highest = np.full(len(cases), -np.inf)
    is_box = ~missed & listed
    np.maximum.at(highest, row[is_box], events["score"].to_numpy(dtype=float)[is_box])
    n_lesions = np.bincount(lesions["volume"].to_numpy(dtype=np.int64), minlength=len(cases))
    return cases.assign(
        n_lesions=n_lesions.astype(np.int64),
        n_detected=count(is_kind(events, "tp")),
        n_boxes=count(~missed),
        n_false_positives=count(false),
        max_score=np.where(np.isneginf(highest), np.nan, highest),
    )


def clusters_of_patients(
    patients: pd.Series, cases: pd.DataFrame, partition: Clusters
) -> npt.NDArray[np.int64]:
    """Find the cluster of boxes in volumes that the cohort does not list.

    Args:
        patients: The patient of each such box.
        cases: The volumes of the cohort.
        partition: The clusters of the volumes.

    Returns:
        The cluster of the box's patient; -1 where no patient, or more than one, has this id.
    """
    known = pd.DataFrame({"patient": cases["patient_id"].to_numpy(), "cluster": partition.cluster_of_case})
    known = known.drop_duplicates().drop_duplicates("patient", keep=False)
    return patients.map(known.set_index("patient")["cluster"]).fillna(-1).to_numpy(dtype=np.int64)
