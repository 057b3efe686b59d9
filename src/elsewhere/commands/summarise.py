"""`summarise`: the same as score, from scores that exist already; large tables are read as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.commands.analyse import Facts, Report, analyse
from elsewhere.commands.score import CohortLike, as_cohort, check_choices, choose_protocol, facts_of
from elsewhere.commands.where import choose_part
from elsewhere.errors import UserError, check_seed
from elsewhere.results import Result, load_result
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.tables import (
    TableOptions,
    check_out,
    content_hash,
    file_digest,
    read_table,
    write_json,
    write_table,
)
from elsewhere.tables.bytes_in import check_regular_file
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT
from elsewhere.tables.reading import require_columns

_MEANS = ("dice", "fpr", "hausdorff_mm", "hausdorff95_mm", "norm_hd", "nll", "brier", "correct", "slide_dice")


@dataclass(frozen=True, kw_only=True)
class StreamSummary:
    """Group means of a table too large to hold, with clustered intervals where patients are known."""

    table: pd.DataFrame
    by: tuple[str, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "by": list(self.by),
            "rows": self.table.to_dict("records"),
            "path": None if self.path is None else str(self.path),
        }

    def lines(self) -> Iterator[str]:
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
    progress: Report | None = None,
) -> Result | StreamSummary:
    """Every number again from a scores table, or a result folder, without opening a prediction.

    `by` names key columns (model, fold, seed, scenario, stage): group means in one pass over the file.
    """
    chosen = tasks.get(task)
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (cohort, scores)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    if by:
        return _stream(scores, tuple(by), out, replace=replace)
    part = choose_part(as_cohort(cohort, table), where)
    who = part.cohort
    events: pd.DataFrame | None = None
    digest: str
    if isinstance(scores, pd.DataFrame):
        given, digest = scores.copy(), content_hash(scores)
    elif Path(scores).is_dir():
        earlier = load_result(scores)
        if earlier.scores.task != task:
            raise UserError(
                f"the result is of task {earlier.scores.task}",
                where=str(scores),
                fix=f"Say `elsewhere summarise {earlier.scores.task} ...`.",
            )
        given, events = earlier.scores.cases, earlier.scores.events
        protocol = protocol or earlier.summary["protocol"]
        digest = str(earlier.summary["provenance"].get("predictions_digest"))
    else:
        given, digest = (
            read_table(Path(scores), strings=("case_id",), options=table),
            file_digest(Path(scores)),
        )
        beside = Path(scores).with_name("events.parquet")
        events = read_table(beside) if Path(scores).name.startswith("scores") and beside.exists() else None
    given = renamed(
        given, column_map or {}, where="data frame" if isinstance(scores, pd.DataFrame) else str(scores)
    )
    if "case_id" not in given.columns:
        raise UserError(
            f"the scores have no column case_id (columns: {', '.join(map(str, given.columns))})",
            where=None if isinstance(scores, pd.DataFrame) else str(scores),
            fix="Name it with `--map case_id=COLUMN`.",
        )
    rules = choose_protocol(chosen, protocol, who.reader)
    options = ScoreOptions(
        threshold=threshold,
        on_invalid=on_invalid,
        group_by=tuple(group_by),
        fairness_weight=fairness_weight,
        threads=threads,
    )
    kept_events = None if events is None else part.rows(events)
    made = part.told(chosen.from_table(who, part.rows(given), kept_events, rules, options))
    facts: Facts = facts_of(who, predictions_digest=digest, command="summarise", part=part)
    from elsewhere.commands.verdicts import site_verdicts

    extra = site_verdicts(
        made, options, reference_site, margin, alpha=0.05, key=who.hash, seed=seed, resamples=resamples
    )
    result = analyse(
        made, facts, options=options, resamples=resamples, seed=seed, extra=extra, progress=progress
    )
    return result if out is None else result.save(out, replace=replace, inputs=inputs)


def renamed(frame: pd.DataFrame, column_map: Mapping[str, str], *, where: str) -> pd.DataFrame:
    """Columns under the names that `--map` gives them; a column that is not there is an error."""
    require_columns(frame, list(column_map.values()), where=where)
    return frame.rename(columns={source: target for target, source in column_map.items()})


def _stream(
    scores: str | Path | pd.DataFrame, by: tuple[str, ...], out: str | Path | None, *, replace: bool
) -> StreamSummary:
    import pyarrow as pa
    import pyarrow.dataset as pds

    from elsewhere.statistics.streaming import summarise_stream

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
    from elsewhere.tables import staged_directory

    with staged_directory(out, replace=replace, inputs=(scores,)) as folder:
        write_table(table, folder / "groups.csv")
        write_json({"by": list(by), "rows": table.to_dict("records")}, folder / "summary.json")
    return StreamSummary(table=table, by=by, path=Path(out))
