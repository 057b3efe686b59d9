"""`score`: score predictions against a cohort."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.result.detection_pictures import PictureOptions
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
    pictures: int | None = None,
) -> Result:
    """Score predictions against a cohort: metrics with intervals, groups, sites, curves, a report.

    With `reference_site` and `margin`, every other site gets a verdict against the reference (ST-05).

    Args:
        task: classification, detection, segmentation, response, slides, or the name of a registered task.
        cohort: A path, a data frame, a mapping of arrays or a cohort.
        predictions: A path, a data frame, a mapping of arrays or predictions.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced; files that Elsewhere did not write stay.
        protocol: The protocol; None for the one that the cohort's reader names.
        group_by: Columns whose groups are shown.
        where: Only cases whose columns have these values are scored ({"split": "test"}).
        resamples: The number of resamples; None for the protocol's number, 0 for no resampled intervals.
        seed: The seed of every draw.
        threshold: Positive at or above it; None for the protocol's.
        calibrate_on: Validation predictions to fit the temperature on; None for no calibration.
        matching: Detection: 'challenge' or 'nearest'; None for the protocol's.
        resample: What is resampled: 'patients', or 'volumes' for detection.
        fairness_weight: The weight of fairness in `combined`, in [0, 1]; None for the protocol's.
        column_map: The names of the file's columns by the names that they should have.
        scale: The scale of the scores: '0-1', '0-100', 'MIN-MAX' as numbers, 'logit' or 'birads'.
        unit: What the cohort's cases are, where the file has finer rows: 'case', 'exam', 'breast' or
            'patient'.
        combine: How several rows of one case are combined: 'max', 'mean' or 'noisy-or'.
        normalise_ids: Steps that make ids comparable: 'zeros', 'case', 'unicode', 'blanks', 'paths'.
        on_invalid: 'error' to stop at an invalid score, 'worst' to score it as the worst value.
        failed_status: Words of a status column that mean 'could not be analysed'.
        table: How text tables are written: encoding, delimiter and decimal mark.
        reference_site: The site that every other site is compared with; None for no comparison.
        margin: The largest difference that would not matter, declared beforehand.
        alpha: The level of each one-sided test.
        threads: How many threads; None for all processors.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        pictures: Detection: how many of the hardest lesions and of the highest-scoring false positives the report shows in
            their slices. Slides: how many of the worst, median and best masks, and of negative slides with false positives.
            None for none. The report then holds parts of patients' images.

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
        pictures=None if pictures is None else PictureOptions(count=pictures),
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
        task: The name of a task with two classes: 'classification' or 'response'.
        label: The outcome of each case.
        probability: The model's probability of the positive class for each case.
        patient_id: The patient of each case; None: every case is its own patient (grade C). A missing id
            among others is an error.
        site: The site of each case; a case without one counts as one of an unknown site.
        groups: Further columns by name; the result is shown for each of their groups.
        **options: The other options of `score`.

    Returns:
        The result.

    Raises:
        UserError: The arrays do not belong together.
        UnknownOptionError: `score` has no such option.

    Example:
        >>> said = [0.1, 0.8, 0.4, 0.9]
        >>> score_arrays("classification", label=[0, 1, 0, 1], probability=said, resamples=0).exit_code
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
    """An option that `score` does not have; also a `TypeError`, for callers who catch one."""


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the options that `score_arrays` passes on to `score`; an error suggests similar names."""
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
    """Make a column of an array; a missing value (None, NaN, NA) stays missing and never becomes 'nan'."""
    if isinstance(values, pd.Series | pd.Index):
        return pd.Series(values.array).reset_index(drop=True)
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise UserError(f"'{name}' has {array.ndim} dimensions", fix="Give one value per case.")
    return pd.Series(array).infer_objects()
