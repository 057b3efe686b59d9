"""`score`: predictions and a cohort to a result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort, audit, load_cohort
from elsewhere.commands.analyse import Facts, Report, analyse
from elsewhere.commands.verdicts import site_verdicts
from elsewhere.commands.where import Part, choose_part
from elsewhere.errors import UserError, check_seed, near_matches
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.protocols import Protocol, protocols
from elsewhere.results import Result
from elsewhere.scoring.task import ScoreOptions, Task, read_predictions, tasks
from elsewhere.tables import TableOptions, check_out, content_hash
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT

CohortLike = Cohort | str | Path | pd.DataFrame | Mapping[str, Any]
PredictionsLike = Predictions | str | Path | pd.DataFrame | Mapping[str, Any]


def as_cohort(source: CohortLike, table: TableOptions = DEFAULT) -> Cohort:
    """A cohort, however it is given: loaded, a path, a data frame, or a mapping of arrays."""
    if isinstance(source, Cohort):
        return source
    if isinstance(source, str | Path):
        return open_cohort(Path(source), table)
    return Cohort.from_frame(pd.DataFrame(source))


def open_cohort(path: Path, table: TableOptions = DEFAULT) -> Cohort:
    """A cohort from a path. What is declared of text tables is meant for the predictions first: a cohort
    that is plain UTF-8 with commas is read plainly, and as declared where that is refused. When both fail, the
    error is that of the reading that could part the table into columns.
    """
    plain = TableOptions(decimal=table.decimal)
    if path.is_dir() or (table.encoding is None and table.delimiter is None):
        return load_cohort(path, options=plain)
    try:
        return load_cohort(path, options=plain)
    except UserError as refused:
        try:
            return load_cohort(path, options=table)
        except UserError as declared:
            raise (declared if _is_of_the_text(refused) else refused) from None


def _is_of_the_text(error: UserError) -> bool:
    """Whether a table could not even be split into columns."""
    return any(f"--{name}" in (error.fix or "") for name in ("encoding", "delimiter"))


def as_predictions(task: str, source: PredictionsLike, options: ReadOptions, cohort: Cohort) -> Predictions:
    """Predictions, however they are given; a data frame or arrays take the same road as a file."""
    if isinstance(source, Predictions):
        return source
    if isinstance(source, str | Path):
        return read_predictions(task, Path(source), options, cohort)
    import tempfile

    frame = pd.DataFrame(source)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "predictions.parquet"
        _one_type_a_column(frame).to_parquet(file)
        try:
            read = read_predictions(task, file, options, cohort)
        except UserError as error:
            where = error.where and error.where.replace(str(file), "data frame")
            raise UserError(error.what, where=where, fix=error.fix) from None
    return replace(read, source="data frame", digest=content_hash(frame))


def _one_type_a_column(frame: pd.DataFrame) -> pd.DataFrame:
    """A column of numbers and words, such as a vendor's probabilities, as text: a csv file has it so."""
    mixed = [
        name
        for name in frame.columns
        if frame[name].dtype == object and len({type(cell) for cell in frame[name].dropna()}) > 1
    ]
    return frame.assign(**{str(name): frame[name].astype("string") for name in mixed}) if mixed else frame


def choose_protocol(task: Task, name: str | None, reader: str) -> Protocol:
    """The named protocol, or the one that the cohort means; it must be one for this task."""
    protocol = protocols.get(name or task.protocol_for(reader))
    if not task.accepts(protocol):
        fitting = [n for n, p in protocols if task.accepts(p)]
        raise UserError(
            f"protocol {protocol.name} is not for {task.name}", fix=f"For {task.name}: {', '.join(fitting)}."
        )
    return protocol


def facts_of(
    cohort: Cohort, *, predictions_digest: str | None, command: str, part: Part | None = None
) -> Facts:
    """Hash, grades and audit of the cohort, as the summary carries them."""
    return Facts(
        cohort_hash=cohort.hash,
        reader=cohort.reader,
        predictions_digest=predictions_digest,
        command=command,
        where=part.where if part else {},
        id_grades={
            dataset: {"grade": grade.grade, "why": grade.why} for dataset, grade in cohort.id_grades.items()
        },
        audit=tuple(finding.to_dict() for finding in audit(part.whole if part else cohort)),
    )


def check_choices(*, on_invalid: str, matching: str | None) -> None:
    if on_invalid not in ("error", "worst"):
        raise UserError(f"--on-invalid '{on_invalid}' is not known", fix="Use error or worst.")
    if matching not in (None, "challenge", "nearest"):
        raise UserError(f"--matching '{matching}' is not known", fix="Use challenge or nearest.")


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
    progress: Report | None = None,
) -> Result:
    """Score predictions against a cohort: metrics with intervals, groups, sites, curves, a report.

    `cohort` and `predictions` are paths, data frames or mappings of arrays; nothing is written unless
    `out` names a folder. An earlier result in `out` is replaced only with `replace`, and files that Elsewhere
    did not write always stay. `where` keeps the cases with these column values ({"split": "test"}). With `reference_site` and `margin`, every other site gets a verdict (ST-05).
    """
    chosen = tasks.get(task)
    check_choices(on_invalid=on_invalid, matching=matching)
    inputs = (cohort, predictions, calibrate_on)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    part = choose_part(as_cohort(cohort, table), where)
    who = part.cohort
    rules = choose_protocol(chosen, protocol, who.reader)
    read = ReadOptions(
        column_map=dict(column_map or {}),
        scale=scale,
        unit=unit,
        combine=combine,
        normalise_ids=tuple(normalise_ids),
        on_invalid="worst" if on_invalid == "worst" else "error",
        failed_status=tuple(failed_status),
        table=table,
    )
    said = part.predictions(as_predictions(task, predictions, read, part.whole))
    options = ScoreOptions(
        threshold=threshold,
        on_invalid=on_invalid,
        matching=matching,
        resample=resample,
        calibrate_on=None if calibrate_on is None else str(calibrate_on),
        read=read,
        normalise_ids=tuple(normalise_ids),
        threads=threads,
        group_by=_known_columns(who, group_by),
        fairness_weight=fairness_weight,
        progress=None if progress is None else lambda done, total: progress("scoring", done, total),
    )
    scores = part.told(chosen.score(who, said, rules, options))
    facts = facts_of(who, predictions_digest=said.digest, command="score", part=part)
    extra = site_verdicts(
        scores, options, reference_site, margin, alpha=alpha, key=who.hash, seed=seed, resamples=resamples
    )
    result = analyse(
        scores, facts, options=options, resamples=resamples, seed=seed, extra=extra, progress=progress
    )
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
    """Arrays in, result out: row i of every array is one case, so one key serves both tables.

    For classification and response. Without `patient_id`, every case is its own patient (grade C); a missing id
    among others is an error. A case without a site counts as one of an unknown site. `options` are those of `score`.
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


def _known_columns(cohort: Cohort, names: Sequence[str]) -> tuple[str, ...]:
    columns = [str(c) for c in cohort.cases.columns]
    for name in names:
        if name not in columns:
            near = near_matches(name, columns)
            raise UserError(
                f"the cohort has no column '{name}' to group by",
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Columns: {', '.join(columns)}.",
            )
    return tuple(dict.fromkeys(names))
