"""`summarise`: compute what `score` computes, from existing scores; large tables are read as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.result.inputs import CohortLike, Progress, check_choices
from elsewhere.analysis.result.scoring import ResultOptions, score_table
from elsewhere.analysis.result.site_verdicts import site_claim
from elsewhere.errors import UserError, check_seed
from elsewhere.results import Result
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.streaming import summarise_stream
from elsewhere.tables import TableOptions, check_out, staged_directory, write_json, write_table
from elsewhere.tables.bytes_in import check_regular_file
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT

_MEANS = ("dice", "fpr", "hausdorff_mm", "hausdorff95_mm", "norm_hd", "nll", "brier", "correct", "slide_dice")


@dataclass(frozen=True, kw_only=True)
class StreamSummary:
    """Group means of a table too large to hold, with clustered intervals where patients are known.

    Args:
        table: One row per group, with the mean of every metric.
        by: The columns that make the groups.
        path: The folder that was written; None where nothing was written.
    """

    table: pd.DataFrame
    by: tuple[str, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `by`, `rows` and `path`.
        """
        return {
            "by": list(self.by),
            "rows": self.table.to_dict("records"),
            "path": None if self.path is None else str(self.path),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield self.table.to_string(index=False, max_rows=60)
        if self.path is not None:
            yield f"written: {self.path}"


@remembers_ids
def summarise(
    task: str,
    cohort: CohortLike,
    scores: str | Path | pd.DataFrame,
    *,
    out: str | Path | None = None,
    replace: bool = False,
    protocol: str | None = None,
    group_by: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    resamples: int | None = None,
    seed: int = 42,
    threshold: float | None = None,
    fairness_weight: float | None = None,
    by: Sequence[str] = (),
    column_map: Mapping[str, str] | None = None,
    on_invalid: str = "error",
    table: TableOptions = DEFAULT,
    reference_site: str | None = None,
    margin: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Result | StreamSummary:
    """Compute every number again from a scores table, or a result folder, without opening a prediction.

    Args:
        task: The task of the scores.
        cohort: A path, a data frame, a mapping of arrays or a cohort.
        scores: A csv or parquet file, a data frame or a result folder.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced.
        protocol: The protocol; None for the result's own, or the one that the cohort's reader names.
        group_by: Columns whose groups are shown.
        where: Only cases whose columns have these values are used ({"split": "test"}).
        resamples: The number of resamples; None for the protocol's number, 0 for no resampled intervals.
        seed: The seed of every draw.
        threshold: Positive at or above it; None for the protocol's.
        fairness_weight: The weight of fairness in `combined`, in [0, 1]; None for the protocol's.
        by: Key columns (model, fold, seed, scenario, stage): group means in one pass over a large file.
        column_map: The names of the table's columns by the names that they should have.
        on_invalid: 'error' to stop at an invalid score, 'worst' to score it as the worst value.
        table: How text tables are written: encoding, delimiter and decimal mark.
        reference_site: The site that every other site is compared with; it needs `margin`.
        margin: The largest difference that would not matter, declared beforehand.
        threads: How many threads; None for all processors.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The result; with `by`, a table of group means.

    Raises:
        UserError: An input cannot be read, or the two do not belong together.

    Example:
        >>> cohort = {"case_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}
        >>> scores = pd.DataFrame({"case_id": ["a", "b", "c", "d"], "probability": [0.1, 0.8, 0.4, 0.9]})
        >>> summarise("classification", cohort, scores, resamples=0).metrics["auroc"]["value"]
        1.0
    """
    tasks.get(task)
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (cohort, scores)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    if by:
        return _stream(scores, tuple(by), out, replace=replace)
    options = ResultOptions(
        protocol=protocol,
        where=where,
        scoring=ScoreOptions(
            threshold=threshold,
            on_invalid=on_invalid,
            group_by=tuple(group_by),
            fairness_weight=fairness_weight,
            threads=threads,
        ),
        resamples=resamples,
        seed=seed,
        site_claim=site_claim(reference_site, margin),
        progress=progress,
    )
    made = score_table(task, cohort, scores, options, column_map=column_map, table=table)
    result = Result.of(made)
    return result if out is None else result.save(out, replace=replace, inputs=inputs)


def _stream(
    scores: str | Path | pd.DataFrame, by: tuple[str, ...], out: str | Path | None, *, replace: bool
) -> StreamSummary:
    import pyarrow as pa
    import pyarrow.dataset as pds

    if isinstance(scores, pd.DataFrame):
        raise UserError(
            "--by reads a parquet file or folder as a stream",
            fix="Give a path, or use pandas' groupby on your frame.",
        )
    if not Path(scores).is_dir():
        check_regular_file(Path(scores))
    try:
        columns = [str(name) for name in pds.dataset(Path(scores), format="parquet").schema.names]
    except pa.ArrowException as error:
        raise UserError(
            f"the parquet files cannot be read ({str(error)[:150]})",
            where=str(scores),
            fix="--by reads a parquet file, or a folder of them.",
        ) from error
    missing = [name for name in by if name not in columns]
    if missing:
        raise UserError(
            f"no column {', '.join(missing)}", where=str(scores), fix=f"Columns: {', '.join(columns)}."
        )
    values = [name for name in _MEANS if name in columns]
    if not values:
        raise UserError("no metric column to average", where=str(scores), fix=f"Known: {', '.join(_MEANS)}.")
    table = summarise_stream(
        scores, by=list(by), values=values, cluster="patient_id" if "patient_id" in columns else None
    )
    if out is None:
        return StreamSummary(table=table, by=by)
    with staged_directory(out, replace=replace, inputs=(scores,)) as folder:
        write_table(table, folder / "groups.csv")
        write_json({"by": list(by), "rows": table.to_dict("records")}, folder / "summary.json")
    return StreamSummary(table=table, by=by, path=Path(out))
