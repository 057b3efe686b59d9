"""The inputs of an assessment: cohorts and predictions as paths, data frames or arrays; the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.cohort import Cohort, load_cohort
from elsewhere.errors import UserError, near_matches
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.protocols import Protocol, protocols
from elsewhere.scoring.task import Task, read_predictions
from elsewhere.tables import TableOptions, content_hash
from elsewhere.tables.options import DEFAULT

CohortLike = Cohort | str | Path | pd.DataFrame | Mapping[str, Any]
PredictionsLike = Predictions | str | Path | pd.DataFrame | Mapping[str, Any]
Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)` is called to report how far a long step is."""


def as_cohort(source: CohortLike, table: TableOptions = DEFAULT) -> Cohort:
    """Make a cohort of a path, a data frame or arrays.

    Args:
        source: A cohort, a path, a data frame, or a mapping of arrays.
        table: How a text table is written.

    Returns:
        The cohort.

    Example:
        >>> len(as_cohort({"case_id": ["a", "b"], "label": [0, 1]}).cases)
        2
    """
    if isinstance(source, Cohort):
        return source
    if isinstance(source, str | Path):
        return open_cohort(Path(source), table)
    return Cohort.from_frame(pd.DataFrame(source))


def open_cohort(path: Path, table: TableOptions = DEFAULT) -> Cohort:
    """Open a cohort from a path.

    The options of text tables are meant for the predictions first: a cohort that is plain UTF-8 with commas
    is read plainly, and with the options only where that is refused. When both fail, the error is that of the
    reading that could split the table into columns.

    Args:
        path: A folder or a table.
        table: How a text table is written.

    Returns:
        The cohort.

    Raises:
        UserError: If the cohort cannot be read either way.
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
    """Make predictions of a path, a data frame or arrays; both of the latter are read like a file.

    Args:
        task: The task.
        source: Predictions, a path, a data frame or a mapping of arrays.
        options: How the predictions are read.
        cohort: The cohort that they are about.

    Returns:
        The predictions.

    Raises:
        UserError: If the predictions cannot be read.
    """
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
    """Turn a column of numbers and words, such as a vendor's probabilities, into text, as it is in a csv
    file.
    """
    mixed = [
        name
        for name in frame.columns
        if frame[name].dtype == object and len({type(cell) for cell in frame[name].dropna()}) > 1
    ]
    return frame.assign(**{str(name): frame[name].astype("string") for name in mixed}) if mixed else frame


def choose_protocol(task: Task, name: str | None, reader: str) -> Protocol:
    """Choose the protocol.

    Args:
        task: The task.
        name: Its name; None for the one that belongs to the cohort's reader.
        reader: The reader of the cohort.

    Returns:
        The protocol.

    Raises:
        UserError: If there is no such protocol, or it is not one for this task.
    """
    protocol = protocols.get(name or task.protocol_for(reader))
    if not task.accepts(protocol):
        fitting = [n for n, p in protocols if task.accepts(p)]
        raise UserError(
            f"protocol {protocol.name} is not for {task.name}", fix=f"For {task.name}: {', '.join(fitting)}."
        )
    return protocol


def check_choices(*, on_invalid: str, matching: str | None) -> None:
    """Refuse choices that are not known.

    Args:
        on_invalid: `error` or `worst`.
        matching: None, `challenge` or `nearest`.

    Raises:
        UserError: If one of them has another value.
    """
    if on_invalid not in ("error", "worst"):
        raise UserError(f"--on-invalid '{on_invalid}' is not known", fix="Use error or worst.")
    if matching not in (None, "challenge", "nearest"):
        raise UserError(f"--matching '{matching}' is not known", fix="Use challenge or nearest.")


def known_columns(cohort: Cohort, names: Sequence[str]) -> tuple[str, ...]:
    """Refuse columns that the cohort does not have.

    Args:
        cohort: The cohort.
        names: Names of columns.

    Returns:
        The names, each once.

    Raises:
        UserError: If the cohort lacks a column; the message offers similar names.
    """
    columns = [str(c) for c in cohort.cases.columns]
    for name in names:
        if name not in columns:
            near = near_matches(name, columns)
            raise UserError(
                f"the cohort has no column '{name}' to group by",
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Columns: {', '.join(columns)}.",
            )
    return tuple(dict.fromkeys(names))
