"""`score`: predictions and a cohort to a result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.result.inputs import CohortLike, PredictionsLike, Progress, check_choices
from elsewhere.analysis.result.scoring import ResultOptions, score_predictions
from elsewhere.analysis.result.site_verdicts import site_claim
from elsewhere.errors import UserError, check_seed, near_matches
from elsewhere.predictions import ReadOptions
from elsewhere.results import Result
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.tables import TableOptions, check_out
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT


@remembers_ids
def score(
    task: str,
    cohort: CohortLike,
    predictions: PredictionsLike,
    *,
    out: str | Path | None = None,
    replace: bool = False,
    protocol: str | None = None,
    group_by: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    resamples: int | None = None,
    seed: int = 42,
    threshold: float | None = None,
    calibrate_on: str | Path | None = None,
    matching: str | None = None,
    resample: str = "patients",
    fairness_weight: float | None = None,
    column_map: Mapping[str, str] | None = None,
    scale: str = "0-1",
    unit: str = "case",
    combine: str = "max",
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions = DEFAULT,
    reference_site: str | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Score predictions against a cohort: metrics with intervals, groups, sites, curves, a report.

    Args:
        task: classification, detection, segmentation, response, slides, or the name of a registered task.
        cohort: A path, a data frame or a mapping of arrays.
        predictions: The same.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced; files that Elsewhere did not write stay.
        protocol: The protocol; default, the one that the cohort's reader stands for.
        group_by: Columns whose groups are shown.
        where: The cases are kept whose columns have these values ({"split": "test"}).
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        threshold: Positive at or above it; None for the protocol's.
        calibrate_on: Validation predictions to fit the temperature on.
        matching: Detection: `challenge` or `nearest`.
        resample: `patients`, or `volumes` for detection.
        fairness_weight: The weight of fairness in `combined`.
        column_map: Columns of the file by the name they should have.
        scale: The scale of the scores.
        unit: What a row of the predictions stands for.
        combine: How several rows of one case are combined.
        normalise_ids: How ids are brought together.
        on_invalid: `error` or `worst`.
        failed_status: Words of a status column that mean 'could not be analysed'.
        table: How text tables are written.
        reference_site: With `margin`, every other site gets a verdict against this one (ST-05).
        margin: The largest difference that would not matter.
        alpha: The level of each one-sided test.
        threads: How many threads; None for all processors.
        progress: Called to report how far the work is.

    Returns:
        The result.

    Raises:
        UserError: An input cannot be read, or the two do not belong together.

    Example:
        >>> cohort = {"case_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}
        >>> said = {"case_id": ["a", "b", "c", "d"], "probability": [0.1, 0.8, 0.4, 0.9]}
        >>> score("classification", cohort, said, resamples=0).metrics["auroc"]["value"]
        1.0
    """
    tasks.get(task)
    check_choices(on_invalid=on_invalid, matching=matching)
    inputs = (cohort, predictions, calibrate_on)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    scoring = ScoreOptions(
        threshold=threshold,
        on_invalid=on_invalid,
        matching=matching,
        resample=resample,
        calibrate_on=None if calibrate_on is None else str(calibrate_on),
        read=ReadOptions(
            column_map=dict(column_map or {}),
            scale=scale,
            unit=unit,
            combine=combine,
            normalise_ids=tuple(normalise_ids),
            on_invalid="worst" if on_invalid == "worst" else "error",
            failed_status=tuple(failed_status),
            table=table,
        ),
        normalise_ids=tuple(normalise_ids),
        threads=threads,
        group_by=tuple(group_by),
        fairness_weight=fairness_weight,
        progress=None if progress is None else lambda done, total: progress("scoring", done, total),
    )
    options = ResultOptions(
        protocol=protocol,
        where=where,
        scoring=scoring,
        resamples=resamples,
        seed=seed,
        site_claim=site_claim(reference_site, margin, alpha=alpha),
        progress=progress,
    )
    result = Result.of(score_predictions(task, cohort, predictions, options))
    return result if out is None else result.save(out, replace=replace, inputs=inputs)


def score_arrays(
    task: str,
    *,
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    patient_id: npt.ArrayLike | None = None,
    site: npt.ArrayLike | None = None,
    groups: Mapping[str, npt.ArrayLike] | None = None,
    **options: Any,
) -> Result:
    """Score arrays: row i of every array is one case, so one key serves both tables.

    Args:
        task: classification or response.
        label: The outcome of each case.
        probability: What the model said of each case.
        patient_id: The patient of each case; without it every case is its own patient (grade C). A missing id among
            others is an error.
        site: The site of each case; a case without one counts as one of an unknown site.
        groups: Further columns, by which the result is shown.
        **options: Those of `score`.

    Returns:
        The result.

    Raises:
        UserError: The arrays do not belong together.
        UnknownOptionError: `score` has no such option.

    Example:
        >>> score_arrays("classification", label=[0, 1, 0, 1], probability=[0.1, 0.8, 0.4, 0.9], resamples=0).exit_code
        0
    """
    _check_options(options)
    target = tasks.get(task).target
    given: dict[str, npt.ArrayLike | None] = {
        target or "label": label,
        "probability": probability,
        "patient_id": patient_id,
        "site": site,
        **(groups or {}),
    }
    columns = {name: _column(values, name) for name, values in given.items() if values is not None}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(
            f"the arrays have different lengths: {lengths}", fix="Row i of every array must be case i."
        )
    ids = [f"case{i:07d}" for i in range(lengths["probability"])]
    said = pd.DataFrame({"case_id": ids, "probability": columns.pop("probability")})
    return score(task, {"case_id": ids, **columns}, said, group_by=tuple(groups or ()), **options)


class UnknownOptionError(UserError, TypeError):
    """An option that `score` does not have: as a `TypeError` for those who catch one, with its neighbours."""


def _check_options(options: Mapping[str, Any]) -> None:
    """What `score_arrays` hands on to `score`; a wrong name offers its neighbours."""
    own = {"task", "cohort", "predictions", "group_by"}
    known = [name for name in inspect.signature(score).parameters if name not in own]
    for name in options:
        if name == "group_by":
            raise UnknownOptionError(
                "score_arrays has no option 'group_by'", fix="Give the columns to group by in `groups`."
            )
        if name not in known:
            near = near_matches(name, [*known, "patient_id", "site", "groups", "label", "probability"])
            raise UnknownOptionError(
                f"score_arrays has no option '{name}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Options: {', '.join(sorted(known))}.",
            )


def _column(values: npt.ArrayLike, name: str) -> pd.Series:
    """An array as a column; what is missing (None, NaN, NA) stays missing, and is never the word 'nan'."""
    if isinstance(values, pd.Series | pd.Index):
        return pd.Series(values.array).reset_index(drop=True)
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise UserError(f"'{name}' has {array.ndim} dimensions", fix="Give one value per case.")
    return pd.Series(array).infer_objects()
