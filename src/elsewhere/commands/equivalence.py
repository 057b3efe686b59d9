"""`equivalence`: is it the same elsewhere? By bootstrap over patients, or by Welch TOST from summaries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.commands.compare import options_of
from elsewhere.errors import EXIT_OK, UserError, check_seed, unknown_name
from elsewhere.results import Result, load_result
from elsewhere.scoring.prepared import answered_cases, prepare, primary_metric
from elsewhere.statistics.answered import BoolArray, with_answered_only
from elsewhere.statistics.differences import Difference, difference_subsets
from elsewhere.statistics.equivalence import equivalence_table, study_margin
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.two_sides import difference_of_sides
from elsewhere.statistics.verdict import ClaimVerdict, assess_claim, overall
from elsewhere.tables import (
    TableOptions,
    check_out_file,
    read_table,
    to_jsonable,
    to_number,
    write_json,
    write_table,
)
from elsewhere.tables.options import DEFAULT

_NEEDED = ("mean_1", "sd_1", "n_1", "mean_2", "sd_2", "n_2")


@dataclass(frozen=True, kw_only=True)
class EquivalenceRows:
    """Welch TOST, a row each."""

    table: pd.DataFrame
    margin: dict[str, Any] | None = None
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.table.to_dict("records"), "study_margin": self.margin}

    def lines(self) -> Iterator[str]:
        yield self.table.to_csv(index=False).rstrip("\n")
        if self.margin:
            yield f"margin from the data: {self.margin['margin']:.6g}. {self.margin['warning']}"


@dataclass(frozen=True, kw_only=True)
class EquivalenceVerdict:
    """One metric, here against the reference, and the word for it."""

    summary: dict[str, Any]
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        return self.summary

    def lines(self) -> Iterator[str]:
        from elsewhere.report.result.answered import claim_sentence, verdict_lines

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
    """From group summaries (`means`), from two results, or from two parts of one (`split_by`)."""
    check_seed(seed)
    check_out_file(out, replace=replace, inputs=(*results, means))
    if means is not None:
        if results:
            raise UserError(
                "--means stands alone", fix="Give a csv of summaries, or result folders, not both."
            )
        return _from_means(means, margin, alpha, out, table)
    if margin is None:
        raise UserError("no margin was given", fix="Declare it beforehand: --margin 0.05.")
    declared = _declared(margin)
    loaded = [r if isinstance(r, Result) else load_result(r) for r in results]
    if split_by is None and len(loaded) != 2:
        raise UserError(
            f"{len(loaded)} results were given",
            fix="Give two (here, and the reference), or one with --split-by and --reference.",
        )
    if split_by is not None and (len(loaded) != 1 or reference is None):
        raise UserError("--split-by takes one result and --reference VALUE")
    here = prepare(loaded[0].scores, options_of(loaded[0]))
    chosen = metric or primary_metric(here.evaluator, here.scores.protocol)
    names = [spec.name for spec in here.evaluator.specs]
    if chosen not in names:
        raise unknown_name("metric", chosen, names)
    key = loaded[0].summary["provenance"]["cohort_hash"]
    count = here.scores.protocol.interval.resamples if resamples is None else resamples
    if split_by is not None:
        column = _part(here.scores.cases, split_by)
        inside = (column == reference).fillna(False).to_numpy(dtype=bool)
        outside = (column != reference).fillna(False).to_numpy(dtype=bool)
        if not inside.any():
            raise unknown_name(
                f"value of {split_by}", str(reference), sorted(column.dropna().unique().tolist())
            )
        if not outside.any():
            raise UserError(
                f"every case has {split_by} = {reference}: there is nothing to compare it with",
                fix="Name a column that parts the cases.",
            )
        answered = answered_cases(here.scores)

        def compare(among: BoolArray) -> Difference:
            return difference_subsets(
                here.evaluator,
                here.partition,
                outside & among,
                inside & among,
                chosen,
                alpha=alpha,
                resampling=Resampling(key=key, seed=seed, resamples=count),
            )
    else:
        if loaded[0].scores.task != loaded[1].scores.task:
            raise UserError(
                f"the results are of two tasks, {loaded[0].scores.task} and {loaded[1].scores.task}",
                fix="Give two results of one task.",
            )
        if loaded[0].summary["protocol"] != loaded[1].summary["protocol"]:
            raise UserError(
                "the results were scored by different protocols",
                fix="Score both by one protocol: `elsewhere score ... --protocol NAME`.",
            )
        there = prepare(loaded[1].scores, options_of(loaded[1]))
        known = [spec.name for spec in there.evaluator.specs]
        if chosen not in known:
            raise unknown_name("metric of the reference result", chosen, known)
        sides = [answered_cases(one.scores) for one in (here, there)]
        answered = np.concatenate(sides)
        outside = np.arange(answered.size) < sides[0].size
        inside = ~outside

        def compare(among: BoolArray) -> Difference:
            return difference_of_sides(
                here.partition,
                here.evaluator_over,
                there.partition,
                there.evaluator_over,
                chosen,
                among=among,
                alpha=alpha,
                resampling=Resampling(key=key, seed=seed, resamples=count),
            )

    def judge(among: BoolArray) -> ClaimVerdict:
        return assess_claim(compare(among), margin=declared, margin_source="declared on the command line")

    claim = with_answered_only(
        judge(np.ones(answered.size, dtype=bool)), judge, answered, here=outside, reference=inside
    )
    judged = overall([claim])
    summary = {
        "task": here.scores.task,
        "metric": chosen,
        "seed": seed,
        "resamples": count,
        "verdict": judged.to_dict(),
    }
    if out is not None:
        write_json(summary, Path(out))
    return EquivalenceVerdict(
        summary=json.loads(json.dumps(to_jsonable(summary))), exit_code=judged.exit_code
    )


def _declared(margin: str | float) -> float:
    try:
        declared = float(margin)
    except ValueError as problem:
        raise UserError(
            f"--margin '{margin}' is no number", fix="Such as 0.05; 'study' goes with --means."
        ) from problem
    if not 0 < declared < float("inf"):
        raise UserError(
            f"the margin is {margin}", fix="Declare the largest difference that would not matter, above 0."
        )
    return declared


def _part(cases: pd.DataFrame, column: str) -> pd.Series:
    if column not in cases.columns:
        raise unknown_name("column", column, [str(c) for c in cases.columns])
    return cases[column].astype("string")


def _from_means(
    means: str | Path | pd.DataFrame,
    margin: str | float | None,
    alpha: float,
    out: str | Path | None,
    options: TableOptions,
) -> EquivalenceRows:
    where = "data frame" if isinstance(means, pd.DataFrame) else str(means)
    table = (
        means.copy()
        if isinstance(means, pd.DataFrame)
        else read_table(Path(means), required=_NEEDED, options=options)
    )
    for column in (*_NEEDED, "low", "high"):
        if column in table.columns:
            table[column] = to_number(table[column], column=column, where=where)
    found = None
    if margin is not None:
        if str(margin) == "study":
            study = study_margin(table["mean_1"] - table["mean_2"])
            found, width = study.to_dict(), study.value
        else:
            width = _declared(margin)
        table["low"], table["high"] = -width, width
    rows = equivalence_table(table, alpha=alpha)
    if out is not None:
        write_table(rows, Path(out))
    return EquivalenceRows(table=rows, margin=found)
