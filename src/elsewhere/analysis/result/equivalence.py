"""Is it the same at another hospital? By bootstrap over patients, or by Welch TOST from group summaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.result.assessment import Assessment
from elsewhere.analysis.result.comparison import options_of
from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.prepared import Prepared, answered_cases, prepare, primary_metric
from elsewhere.statistics.answered import BoolArray, with_answered_only
from elsewhere.statistics.differences import Difference, difference_subsets
from elsewhere.statistics.equivalence import equivalence_table, study_margin
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.two_sides import difference_of_sides
from elsewhere.statistics.verdict import ClaimVerdict, OverallVerdict, assess_claim, overall
from elsewhere.tables import to_number

MEANS_COLUMNS = ("mean_1", "sd_1", "n_1", "mean_2", "sd_2", "n_2")
"""What a table of group summaries needs."""


@dataclass(frozen=True, kw_only=True)
class EquivalenceOptions:
    """How two results, or two parts of one, are compared.

    Attributes:
        margin: The largest difference that would not matter, declared beforehand.
        metric: The metric; None for the protocol's primary metric.
        alpha: The level of each one-sided test.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
    """

    margin: float
    metric: str | None = None
    alpha: float = 0.05
    resamples: int | None = None
    seed: int = 42


@dataclass(frozen=True, kw_only=True)
class JudgedEquivalence:
    """One metric, here against the reference, and its verdict.

    Attributes:
        task: The task of the results.
        metric: The metric.
        seed: The seed of every draw.
        resamples: How many resamples.
        verdict: The verdict with its one claim.
    """

    task: str
    metric: str
    seed: int
    resamples: int
    verdict: OverallVerdict

    def to_dict(self) -> dict[str, Any]:
        """Return the summary of the comparison.

        Returns:
            A dictionary with `task`, `metric`, `seed`, `resamples` and `verdict`.
        """
        return {
            "task": self.task,
            "metric": self.metric,
            "seed": self.seed,
            "resamples": self.resamples,
            "verdict": self.verdict.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class _Sides:
    """Both sides of a comparison as masks over cases, and how some of these cases are compared."""

    here: BoolArray
    reference: BoolArray
    answered: BoolArray
    compare: Callable[[BoolArray], Difference]


def equivalence_of_parts(
    result: Assessment, split_by: str, reference: str, options: EquivalenceOptions
) -> JudgedEquivalence:
    """Judge one part of a result against another.

    Args:
        result: The result.
        split_by: The column that divides its cases.
        reference: The value of that column whose cases are the reference; all others are here.
        options: Margin, metric and resamples.

    Returns:
        The verdict.

    Raises:
        UserError: The column, the value or the metric is not there, or one part is empty.
    """
    ready = prepare(result.scores, options_of(result))
    metric, resampling = _settings(ready, result, options)
    column = _column(ready.scores.cases, split_by)
    inside = (column == reference).fillna(False).to_numpy(dtype=bool)
    outside = (column != reference).fillna(False).to_numpy(dtype=bool)
    if not inside.any():
        raise unknown_name(f"value of {split_by}", reference, sorted(column.dropna().unique().tolist()))
    if not outside.any():
        raise UserError(
            f"every case has {split_by} = {reference}: there is nothing to compare it with",
            fix="Name a column that divides the cases.",
        )

    def compare(among: BoolArray) -> Difference:
        return difference_subsets(
            ready.evaluator,
            ready.partition,
            outside & among,
            inside & among,
            metric,
            alpha=options.alpha,
            resampling=resampling,
        )

    answered = answered_cases(ready.scores)
    sides = _Sides(here=outside, reference=inside, answered=answered, compare=compare)
    return _judge(ready, metric, sides, resampling, options)


def equivalence_of_results(
    here: Assessment, reference: Assessment, options: EquivalenceOptions
) -> JudgedEquivalence:
    """Judge one result against another of the same task and protocol.

    Args:
        here: The result that is judged.
        reference: The result it is compared with.
        options: Margin, metric and resamples.

    Returns:
        The verdict.

    Raises:
        UserError: The two are of different tasks or protocols, or the metric is not there.
    """
    ready = prepare(here.scores, options_of(here))
    metric, resampling = _settings(ready, here, options)
    if here.scores.task != reference.scores.task:
        raise UserError(
            f"the results are of two tasks, {here.scores.task} and {reference.scores.task}",
            fix="Give two results of one task.",
        )
    if here.summary["protocol"] != reference.summary["protocol"]:
        raise UserError(
            "the results were scored by different protocols",
            fix="Score both by one protocol: `elsewhere score ... --protocol NAME`.",
        )
    there = prepare(reference.scores, options_of(reference))
    known = [spec.name for spec in there.evaluator.specs]
    if metric not in known:
        raise unknown_name("metric of the reference result", metric, known)
    answered_here, answered_there = answered_cases(ready.scores), answered_cases(there.scores)
    answered = np.concatenate([answered_here, answered_there])
    first = np.arange(answered.size) < answered_here.size

    def compare(among: BoolArray) -> Difference:
        return difference_of_sides(
            ready.partition,
            ready.evaluator_over,
            there.partition,
            there.evaluator_over,
            metric,
            among=among,
            alpha=options.alpha,
            resampling=resampling,
        )

    sides = _Sides(here=first, reference=~first, answered=answered, compare=compare)
    return _judge(ready, metric, sides, resampling, options)


def _settings(ready: Prepared, result: Assessment, options: EquivalenceOptions) -> tuple[str, Resampling]:
    """The metric to compare, and the resamples."""
    chosen = options.metric or primary_metric(ready.evaluator, ready.scores.protocol)
    names = [spec.name for spec in ready.evaluator.specs]
    if chosen not in names:
        raise unknown_name("metric", chosen, names)
    usual = ready.scores.protocol.interval.resamples
    count = usual if options.resamples is None else options.resamples
    return chosen, Resampling(key=result.provenance["cohort_hash"], seed=options.seed, resamples=count)


def _judge(
    ready: Prepared, metric: str, sides: _Sides, resampling: Resampling, options: EquivalenceOptions
) -> JudgedEquivalence:
    def judge(among: BoolArray) -> ClaimVerdict:
        return assess_claim(
            sides.compare(among), margin=options.margin, margin_source="declared on the command line"
        )

    everybody = np.ones(sides.answered.size, dtype=bool)
    claim = with_answered_only(
        judge(everybody), judge, sides.answered, here=sides.here, reference=sides.reference
    )
    return JudgedEquivalence(
        task=ready.scores.task,
        metric=metric,
        seed=resampling.seed,
        resamples=resampling.resamples,
        verdict=overall([claim]),
    )


def _column(cases: pd.DataFrame, column: str) -> pd.Series:
    if column not in cases.columns:
        raise unknown_name("column", column, [str(c) for c in cases.columns])
    return cases[column].astype("string")


def declared_margin(margin: str | float) -> float:
    """Read a margin that was declared beforehand.

    Args:
        margin: A number, or its text.

    Returns:
        The margin.

    Raises:
        UserError: If it is not a finite number above 0.

    Example:
        >>> declared_margin("0.05")
        0.05
    """
    try:
        declared = float(margin)
    except ValueError as problem:
        raise UserError(
            f"--margin '{margin}' is not a number", fix="Such as 0.05; 'study' goes with --means."
        ) from problem
    if not 0 < declared < float("inf"):
        raise UserError(
            f"the margin is {margin}", fix="Declare the largest difference that would not matter, above 0."
        )
    return declared


def equivalence_of_means(
    table: pd.DataFrame, margin: str | float | None, *, alpha: float, where: str
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Run Welch TOST on every row of a table of group summaries.

    Args:
        table: One row per comparison with the columns of `MEANS_COLUMNS`; `low` and `high` where no margin is
            given.
        margin: The margin; `study` makes it from the differences themselves; None for the table's own.
        alpha: The level of each one-sided test.
        where: The file that an error names.

    Returns:
        The table with its tests, and how a margin was made from the data, if it was.

    Raises:
        UserError: If a column is missing or does not hold numbers, or the margin is not usable.
    """
    rows = table.copy()
    for column in (*MEANS_COLUMNS, "low", "high"):
        if column in rows.columns:
            rows[column] = to_number(rows[column], column=column, where=where)
    found = None
    if margin is not None:
        if str(margin) == "study":
            study = study_margin(rows["mean_1"] - rows["mean_2"])
            found, width = study.to_dict(), study.value
        else:
            width = declared_margin(margin)
        rows["low"], rows["high"] = -width, width
    return equivalence_table(rows, alpha=alpha), found
