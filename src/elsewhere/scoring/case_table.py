"""Predictions joined to the cohort: the case table that classification and response share.

One row per case with `case_id, patient_id, dataset, site, status`, the truth, the probability (NaN where
there is no usable answer), and the attributes that define groups. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, unknown_name
from elsewhere.predictions.join import join_by_id
from elsewhere.predictions.table import Predictions
from elsewhere.statistics.auroc import auroc, auroc_interval
from elsewhere.statistics.clusters import Clusters

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

IDENTITY = ("case_id", "patient_id", "exam_id", "dataset", "site")
ATTRIBUTES = ("age", "menopausal_status", "breast_density")
PROBABILITY_KIND = "probability_kind"
STATUSES = ("scored", "missing", "invalid", "not_analysable")
_STATUS_OF = {"ok": "scored", "invalid": "invalid", "not_analysable": "not_analysable"}


@dataclass(frozen=True, kw_only=True)
class CaseTable:
    """The cases of a cohort with their probabilities and statuses.

    Args:
        cases: One row for every case of the cohort, in its order.
        n_extra: How many ids of the predictions the cohort does not have.
        flow: What happened to the rows of the prediction file, as steps of `elsewhere.scoring.flow`.
        warnings: Sentences for the report, without ids.
        status_words: Every word of the predictions' status column, how many rows have it, and how they were
            counted.
    """

    cases: pd.DataFrame
    n_extra: int
    flow: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    status_words: tuple[dict[str, Any], ...] = ()

    @property
    def extras(self) -> dict[str, Any]:
        """What the summary repeats of the prediction file besides its cases."""
        return {"status_words": list(self.status_words)} if self.status_words else {}


def check_group_by(cohort_cases: pd.DataFrame, group_by: Sequence[str]) -> None:
    """Refuse columns to group by that the cohort does not have.

    Args:
        cohort_cases: The cases of the cohort.
        group_by: Names of columns.

    Raises:
        UserError: A name is not a column.
    """
    for name in group_by:
        if name not in cohort_cases.columns:
            raise unknown_name("column to group by", name, [str(c) for c in cohort_cases.columns])


def join_probabilities(
    cohort: Cohort,
    predictions: Predictions,
    *,
    group_by: Sequence[str] = (),
    normalise_ids: Sequence[str] = (),
) -> CaseTable:
    """Join every case of the cohort to its probability and status; the extra predictions are counted.

    Args:
        cohort: The cohort.
        predictions: Predictions of the kind 'probability'.
        group_by: Columns of the cohort to keep for groups.
        normalise_ids: Which differences between ids are ignored, as in
            `elsewhere.predictions.join.join_by_id`.

    Returns:
        The case table.

    Raises:
        UserError: The predictions are of another kind, a column to group by is absent, or the ids do not
            join.
    """
    if predictions.kind != "probability":
        raise UserError(
            f"these predictions are {predictions.kind}, not probabilities",
            where=predictions.source,
            fix="Give a table with case_id and probability.",
        )
    source = cohort.cases.reset_index(drop=True)
    check_group_by(source, group_by)
    wanted = dict.fromkeys((*IDENTITY, *ATTRIBUTES, *group_by))
    cases = source[[name for name in wanted if name in source.columns]].copy()
    join = join_by_id(
        source["case_id"], predictions.table["case_id"], normalise=normalise_ids, source=predictions.source
    )
    row = join.row_of_case
    found = row >= 0
    probability = np.full(len(cases), np.nan)
    probability[found] = predictions.table["probability"].to_numpy(dtype=np.float64)[row[found]]
    status = np.full(len(cases), "missing", dtype=object)
    if "status" in predictions.table.columns:
        said = predictions.table["status"].map(_STATUS_OF).fillna("scored").to_numpy(dtype=object)
        status[found] = said[row[found]]
    else:
        status[found] = "scored"
    lost = (status == "scored") & np.isnan(probability)
    status[lost] = "invalid"
    probability[status != "scored"] = np.nan
    cases["status"] = pd.array(status, dtype="string")
    cases["probability"] = probability
    if predictions.extras.get("ordinal"):
        cases[PROBABILITY_KIND] = pd.array(np.full(len(cases), "ordinal", dtype=object), dtype="string")
    return CaseTable(
        cases=cases,
        n_extra=len(join.extra),
        flow=(*predictions.flow, *join.of_predictions),
        warnings=(*predictions.warnings, *join.warnings),
        status_words=tuple(predictions.extras.get("status_words", ())),
    )


def predictions_from_scores(table: pd.DataFrame, *, source: str = "scores table") -> Predictions:
    """Read a table of scores that somebody already has as predictions; `summarise` works in this way.

    Args:
        table: One row per case with `case_id` and `probability`, and `status` where known.
        source: What errors call the table.

    Returns:
        Predictions of the kind 'probability', without the cases that the table says have no prediction.

    Raises:
        UserError: A column is absent, or a probability is no number or outside [0, 1].

    Example:
        >>> rows = pd.DataFrame({"case_id": ["a", "b"], "probability": [0.2, None]})
        >>> predictions_from_scores(rows).table["case_id"].tolist()
        ['a']
    """
    missing = [name for name in ("case_id", "probability") if name not in table.columns]
    if missing:
        raise UserError(
            f"the scores table has no column {', '.join(repr(name) for name in missing)}",
            where=source,
            fix=f"Columns: {', '.join(str(name) for name in table.columns)}.",
        )
    from elsewhere.tables import to_number

    frame = table.reset_index(drop=True)
    probability = to_number(frame["probability"], column="probability", where=source).to_numpy(
        dtype=np.float64
    )
    outside = (probability < 0) | (probability > 1)
    if outside.any():
        rows = (np.flatnonzero(outside) + 1).tolist()
        raise UserError(
            f"{len(rows)} probabilities lie outside [0, 1]",
            where=f"{source}, rows {rows[:5]}",
            fix="Correct the table.",
        )
    if "status" in frame.columns:
        said = (
            frame["status"]
            .astype("string")
            .fillna("scored")
            .replace({"scored": "ok", "undefined": "invalid"})
        )
        keep = (said != "missing").to_numpy(dtype=bool)
    else:
        said = pd.Series("ok", index=frame.index, dtype="string")
        keep = ~np.isnan(probability)
    kind = frame[PROBABILITY_KIND] if PROBABILITY_KIND in frame.columns else pd.Series(dtype="string")
    ordinal = bool((kind == "ordinal").any())
    out = pd.DataFrame(
        {"case_id": frame["case_id"].astype("string"), "probability": probability, "status": said}
    )[keep].reset_index(drop=True)
    return Predictions(
        kind="probability",
        table=out,
        source=source,
        digest="",
        flow=_rows_kept(len(frame), len(out)),
        extras={"ordinal": "ordinal"} if ordinal else {},
    )


def _rows_kept(rows: int, kept: int) -> tuple[dict[str, Any], ...]:
    found = [{"step": "rows in the scores table", "n": rows, "lost": 0, "why": ""}]
    if kept < rows:
        why = "the table says that their cases have no prediction"
        found.append({"step": "rows with a prediction", "n": kept, "lost": rows - kept, "why": why})
    return tuple(found)


def check_threshold(threshold: float) -> float:
    """Refuse a threshold outside [0, 1].

    Thresholds are probabilities, whatever scale the file has: a vendor's 45 of 100 is 0.45.

    Args:
        threshold: The threshold.

    Returns:
        The same threshold.

    Raises:
        UserError: It lies outside [0, 1].

    Example:
        >>> check_threshold(0.45)
        0.45
    """
    if not 0.0 <= threshold <= 1.0:
        raise UserError(
            f"the threshold {threshold:g} lies outside [0, 1]",
            fix="Give it as a probability: 45 on a scale of 0-100 is --threshold 0.45.",
        )
    return threshold


def count_cases(cases: pd.DataFrame, label: npt.NDArray[np.int8], *, n_extra: int) -> dict[str, int]:
    """Count the cases for `counts` of the summary.

    Every case is in exactly one of scored, missing, invalid and not_analysable.

    Args:
        cases: The case table, with the column status.
        label: The class of each case: 1, 0, or -1 without a class.
        n_extra: How many ids of the predictions the cohort does not have.

    Returns:
        Numbers of cases and patients, of each status, and of positives and negatives.
    """
    status = cases["status"].value_counts()
    patients = _n_patients(cases)
    counts = {"cases": len(cases), "patients": patients}
    counts |= {name: int(status.get(name, 0)) for name in STATUSES}
    counts |= {"undefined": 0, "without_boxes": 0, "extra": n_extra}
    return counts | {"positives": int((label == 1).sum()), "negatives": int((label == 0).sum())}


def _n_patients(cases: pd.DataFrame) -> int:
    if "patient_id" not in cases.columns:
        return len(cases)
    keys = ["dataset", "patient_id"] if "dataset" in cases.columns else ["patient_id"]
    return len(cases[keys].drop_duplicates())


_ENOUGH_FOR_DIRECTION = 50_000
REVERSED = "The scores look reversed"


def reversed_warning(label: npt.ArrayLike, cases: pd.DataFrame) -> str | None:
    """Warn where the AUROC lies below one half beyond chance: the scores may mean the other class.

    Of a cohort above 50 000 cases, every k-th case is enough to see it.

    Args:
        label: The class of each case, 0 or 1.
        cases: The case table, with the columns probability and patient_id.

    Returns:
        The warning, or None.
    """
    step = max(1, len(cases) // _ENOUGH_FOR_DIRECTION)
    label, cases = np.asarray(label)[::step], cases.iloc[::step]
    probability = cases["probability"].to_numpy(dtype=np.float64)
    given = np.isfinite(probability)
    truth, score = np.asarray(label)[given], probability[given]
    if not auroc(truth, score) < 0.5:
        return None
    cluster = Clusters.from_table(cases).cluster_of_case[given]
    interval = auroc_interval(truth, score, cluster, level=0.98)
    if interval is None or not interval.hi < 0.5:
        return None
    return (
        f"{REVERSED}: AUROC {interval.value:.3f}, below 0.5 beyond chance. If a high score "
        "means the negative class, reverse the scale: --scale 1-0 (or 100-0)."
    )
