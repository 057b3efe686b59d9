"""`equivalence`: judge equivalence at another hospital, from results or from group summaries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.result.equivalence import (
    MEANS_COLUMNS,
    EquivalenceOptions,
    declared_margin,
    equivalence_of_means,
    equivalence_of_parts,
    equivalence_of_results,
)
from elsewhere.errors import EXIT_OK, UserError, check_seed
from elsewhere.report.result.answered import claim_sentence, verdict_lines
from elsewhere.results import Result, load_result
from elsewhere.tables import TableOptions, check_out_file, read_table, to_jsonable, write_json, write_table
from elsewhere.tables.options import DEFAULT


@dataclass(frozen=True, kw_only=True)
class EquivalenceRows:
    """Welch's two one-sided tests (TOST), one comparison per row.

    Args:
        table: The comparisons with their intervals, p values and whether they are equivalent.
        margin: The margin that was made from the data, and a warning; None for a declared margin.
        exit_code: The exit code of the command.
    """

    table: pd.DataFrame
    margin: dict[str, Any] | None = None
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `rows` and `study_margin`.
        """
        return {"rows": self.table.to_dict("records"), "study_margin": self.margin}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield self.table.to_csv(index=False).rstrip("\n")
        if self.margin:
            yield f"margin from the data: {self.margin['margin']:.6g}. {self.margin['warning']}"


@dataclass(frozen=True, kw_only=True)
class EquivalenceVerdict:
    """One metric here against the reference, and its verdict.

    Args:
        summary: The verdict with its claims, as JSON holds it.
        exit_code: The exit code that stands for the verdict.
    """

    summary: dict[str, Any]
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the comparison.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        verdict = self.summary["verdict"]
        for claim in verdict["claims"]:
            if claim["difference"] is None:
                yield f"{claim['metric']}: {claim.get('reason') or 'undefined'}"
                continue
            yield (
                f"{claim['metric']}: here {claim['here']:.4f}, reference {claim['claimed']:.4f}, difference "
                f"{claim['difference']:+.4f} [{claim['lo']:+.4f}, {claim['hi']:+.4f}] ({claim['method']})"
            )
            flips = (
                "" if claim["flips_at"] is None else f"; the verdict would change at {claim['flips_at']:.4f}"
            )
            yield f"margin {claim['margin']:g} ({claim['margin_source']}){flips}"
            yield claim["power"]
        for claim in verdict["claims"]:
            if claim.get("answered_only"):
                yield claim_sentence(claim)
            for warning in claim["warnings"]:
                yield f"warning: {warning}"
        yield from verdict_lines(verdict)


def equivalence(
    results: Sequence[str | Path | Result] = (),
    *,
    means: str | Path | pd.DataFrame | None = None,
    metric: str | None = None,
    margin: str | float | None = None,
    alpha: float = 0.05,
    split_by: str | None = None,
    reference: str | None = None,
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    table: TableOptions = DEFAULT,
) -> EquivalenceRows | EquivalenceVerdict:
    """Judge equivalence from group summaries, from two results, or from two parts of one.

    Args:
        results: Two results (here, and the reference), or one with `split_by` and `reference`.
        means: A table of group summaries, or its file, in place of results.
        metric: The metric; None for the protocol's primary metric.
        margin: The largest difference that would not matter; with `means`, 'study' makes it from the data.
        alpha: The level of each one-sided test.
        split_by: The column that divides the cases of one result.
        reference: The value of that column whose cases are the reference.
        resamples: The number of resamples; None for the protocol's number.
        seed: The seed of every draw.
        out: The file to write; None to write nothing.
        replace: Whether that file may be replaced.
        table: How text tables are written: encoding, delimiter and decimal mark.

    Returns:
        A verdict; with `means`, one row per comparison.

    Raises:
        UserError: The inputs do not belong together, or no margin was given.

    Example:
        >>> here, there = {"mean_1": [0.91], "sd_1": [0.02], "n_1": [10]}, {"mean_2": [0.90], "sd_2": [0.02]}
        >>> rows = pd.DataFrame(here | there | {"n_2": [10]})
        >>> bool(equivalence(means=rows, margin=0.05).table["equivalent"][0])
        True
    """
    check_seed(seed)
    check_out_file(out, replace=replace, inputs=(*results, means))
    if means is not None:
        if results:
            raise UserError(
                "--means and result folders exclude each other",
                fix="Give a csv of summaries, or result folders, not both.",
            )
        return _from_means(means, margin, alpha, out, table)
    if margin is None:
        raise UserError("no margin was given", fix="Declare it beforehand: --margin 0.05.")
    options = EquivalenceOptions(
        margin=declared_margin(margin), metric=metric, alpha=alpha, resamples=resamples, seed=seed
    )
    loaded = [r if isinstance(r, Result) else load_result(r) for r in results]
    if split_by is None and len(loaded) != 2:
        raise UserError(
            f"{len(loaded)} results were given",
            fix="Give two (here, and the reference), or one with --split-by and --reference.",
        )
    if split_by is None:
        judged = equivalence_of_results(loaded[0], loaded[1], options)
    elif len(loaded) != 1 or reference is None:
        raise UserError("--split-by takes one result and --reference VALUE")
    else:
        judged = equivalence_of_parts(loaded[0], split_by, reference, options)
    summary = judged.to_dict()
    if out is not None:
        write_json(summary, Path(out))
    return EquivalenceVerdict(
        summary=json.loads(json.dumps(to_jsonable(summary))), exit_code=judged.verdict.exit_code
    )


def _from_means(
    means: str | Path | pd.DataFrame,
    margin: str | float | None,
    alpha: float,
    out: str | Path | None,
    options: TableOptions,
) -> EquivalenceRows:
    where = "data frame" if isinstance(means, pd.DataFrame) else str(means)
    given = (
        means
        if isinstance(means, pd.DataFrame)
        else read_table(Path(means), required=MEANS_COLUMNS, options=options)
    )
    rows, found = equivalence_of_means(given, margin, alpha=alpha, where=where)
    if out is not None:
        write_table(rows, Path(out))
    return EquivalenceRows(table=rows, margin=found)
