"""`generalise`: many models of one table, at two domains; `slides patch-scores`: the table from rows of patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.generalise.kinds import CLUSTERING, SHARE, read_kinds
from elsewhere.analysis.generalise.operating_point import operating_point
from elsewhere.analysis.generalise.printed import read_printed
from elsewhere.analysis.generalise.printed_rates import read_printed_rates
from elsewhere.analysis.generalise.settings import (
    RATIO_MARGIN,
    GeneraliseOptions,
    domains_of,
    parse_margins,
    parse_rule,
)
from elsewhere.analysis.generalise.summary import JudgedModels, judge_models, judge_printed
from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_OK, UserError, check_seed, unknown_name
from elsewhere.report.page.numbers import format_number, p_value
from elsewhere.results import write_summary_folder
from elsewhere.scoring.patch_rows import SummedPatches, sum_patches
from elsewhere.scoring.patch_scores import read_patch_scores
from elsewhere.statistics.limits import check_alpha
from elsewhere.tables import TableOptions, check_out, check_out_file, file_digest, read_table, write_table
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT

_SHOWN = 25


@dataclass(frozen=True, kw_only=True)
class GeneraliseReport:
    """Many models at two domains, judged.

    Args:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables of the result, by the name of their csv file.
        path: The folder that was written; None where nothing was written.
        exit_code: 0: many models have no single verdict.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    path: Path | None = None
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary; with `path` where it was written.
        """
        return self.summary if self.path is None else {**self.summary, "path": str(self.path)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part = self.summary["generalise"]
        if "printed" in part:
            yield from _printed_lines(part)
            if "printed_rates" in part:
                yield from _rate_lines(part["printed_rates"])
        else:
            yield from _verdict_lines(self.summary["counts"], part)
        for warning in self.summary["warnings"]:
            yield f"warning: {warning}"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def _printed_lines(part: Mapping[str, Any]) -> Iterator[str]:
    for kind in part["printed"]:
        source = "declared" if kind["study_margin"] is None else "from the models' differences"
        n = kind["models"]
        yield f"{kind['kind']} ({kind['metric']}), {n} models, internal - external: margin {kind['margin']:g} ({source})"
        yield f"  equivalent: {len(kind['equivalent'])} of {n}: {', '.join(kind['equivalent']) or 'none'}"
        names = "" if len(kind["non_inferior"]) == n else f": {', '.join(kind['non_inferior']) or 'none'}"
        yield f"  non-inferior: {len(kind['non_inferior'])} of {n}{names}"
        for row in kind["rows"]:
            if row["undecidable"]:
                p = "" if row["p"] is None else f"; the printed p of {p_value(row['p'])} says equivalent"
                yield (
                    f"  undecidable within rounding: {row['model']}, interval {row['lo']:g} to {row['hi']:g} as printed, an end "
                    f"of which stands on the margin{p}"
                )


def _rate_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "slides, means of both classes from the printed rates: precision / F1 with ITC left out, and with ITC as negative"
    for row in rows:
        left_out, negative = (
            f"{format_number(row[f'{rule}_precision'])} / {format_number(row[f'{rule}_f1'])}"
            for rule in ("left_out", "negative")
        )
        yield f"  {row['name'][:24]:24s} {left_out}, {negative}"


def _verdict_lines(counts: Mapping[str, int], part: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{_count(counts['models'], 'model')}, {_count(counts['folds'], 'fold')}; internal: {counts['internal_slides']} slides of "
        f"{counts['internal_patients']} patients, external: {counts['external_slides']} slides of "
        f"{counts['external_patients']} patients ({part['domains']})"
    )
    for margin in part["margins"]:
        where = "" if not margin["stratum_of"] else f", {margin['stratum_of']} {margin['stratum']}"
        if margin["margin"] is not None and (margin["source"] == "study" or not margin["stratum_of"]):
            source = "from the models' differences" if margin["source"] == "study" else "declared"
            yield f"margin of {margin['metric']}{where}: {format_number(margin['margin'])} ({source})"
    for name in dict.fromkeys(row["metric"] for row in part["rows"]):
        rows = [row for row in part["rows"] if row["metric"] == name and not row["stratum_of"]]
        yield f"{name}, external - internal, by patient"
        yield f"  {'model':24s} {'internal':>8s} {'external':>8s}  difference"
        for row in rows[:_SHOWN]:
            yield f"  {row['model'][:24]:24s} {_row_text(row)}"
        if len(rows) > _SHOWN:
            yield f"  ... and {len(rows) - _SHOWN} more models (--out writes all, and the strata)"
    for row in part["by_fold"]:
        if row["tested"]:
            where = "" if not row["stratum_of"] else f", {row['stratum_of']} {row['stratum']}"
            names = _named(row["equivalent"]) if not where else ""
            yield (
                f"by fold (Welch TOST, the study's test), {row['metric']}{where}: equivalent {len(row['equivalent'])} of "
                f"{row['tested']}{names}; non-inferior {len(row['non_inferior'])} of {row['tested']}"
            )
    for row in part.get("operating_points", ()):
        yield (
            f"operating point of {row['model']}: {operating_point(row)} fixed on internal slides; external slides would have liked "
            f"{operating_point(row, 'best_external_')} (Dice {_signed(row['cost_dice'])}, false-positive rate "
            f"{_signed(row['cost_fpr'])} from carrying it over)"
        )
    for name in dict.fromkeys(row["metric"] for row in part.get("against_reference", ())):
        better = [
            row["model"]
            for row in part["against_reference"]
            if row["metric"] == name and row["surely_better"]
        ]
        yield (
            f"{name}, external: {_count(len(better), 'model')} reliably better than {part['reference']} (limits hold for all models "
            f"at once){_named(better)}"
        )
    if "ensembles" in part:
        yield "ensembles: mean of the members' external results, next to random ensembles of the same size"
    for row in part.get("ensembles", {}).get("rows", ()):
        strict = "; two members: their strict vote is an AND" if row["is_and"] else ""
        size = (
            "members chosen on other patients"
            if row["members_scored"] == "other patients"
            else _count(len(row["members"]), "member")
        )
        yield (
            f"  {row['name']:22s} {size}: Dice {format_number(row['dice'])}, random {format_number(row['dice_random'])}, "
            f"p {p_value(row['dice_p'])}; false-positive rate {format_number(row['fpr'], 4)}, random "
            f"{format_number(row['fpr_random'], 4)}, p {p_value(row['fpr_p'])}{strict}"
        )
    if part["multiplicity"]:
        yield f"note: {part['multiplicity']}"


def _signed(value: float | None) -> str:
    """A difference with its sign; small ones, as of false-positive rates, with four digits."""
    if value is None:
        return "undefined"
    return f"{value:+.3f}" if abs(value) >= 0.01 else f"{value:+.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(names: Sequence[str]) -> str:
    return f": {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}" if names else ""


def _row_text(row: Mapping[str, Any]) -> str:
    values = f"{format_number(row['internal']):>8s} {format_number(row['external']):>8s}"
    if row["lo"] is None:
        return f"{values}  {row['verdict']} ({row['reason']})"
    text = f"{values}  {_signed(row['difference'])} [{_signed(row['lo'])}, {_signed(row['hi'])}] {row['verdict']}"
    if row["verdict"] == "INCONCLUSIVE" and row["non_inferior"]:
        text += ", non-inferior"
    if row.get("ratio_lo") is not None:
        text += (
            f"; ratio {format_number(row['ratio'], 2)} [{format_number(row['ratio_lo'], 2)}, {format_number(row['ratio_hi'], 2)}] "
            f"{row['ratio_verdict']}"
        )
    if row.get("standardised_lo") is not None:
        text += (
            f"; at the internal mix {_signed(row['standardised_difference'])} "
            f"[{_signed(row['standardised_lo'])}, {_signed(row['standardised_hi'])}]"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class GeneraliseSettings:
    """The options of `generalise` that have a usual value.

    Args:
        internal: COLUMN=VALUE of internal slides; None for the column `domain`.
        external: COLUMN=VALUE of external slides; None likewise.
        by: Columns of slides whose values are strata.
        standardise: Columns of slides whose mix is made equal.
        ratio_margin: The largest ratio of false-positive rates that would not matter.
        weight: 'patches' or 'slides': what counts once in a mean.
        folds: 'all' where every fold scored every slide, 'own' where each has slides of its own.
        reference: The model that the others are compared with on external slides.
        ensembles: Whether ensembles are chosen and compared with random ones.
        models: A table with one row per model, which has their shares and clusterings; None for those that the models'
            names tell.
        share: Its column with the share of partial-tumour patches; None for `share`.
        clustering: Its column with the clustering; None for `clustering`.
        rates: With printed differences, a table of printed sensitivities and specificities of slides.
        alpha: The level of each one-sided test.
        resamples: How many resamples; 0 for none.
        seed: The seed of every draw.
    """

    internal: str | None = None
    external: str | None = None
    by: Sequence[str] = ()
    standardise: Sequence[str] = ()
    ratio_margin: float = RATIO_MARGIN
    weight: str = "patches"
    folds: str = "all"
    reference: str | None = None
    ensembles: bool = False
    models: str | Path | pd.DataFrame | None = None
    share: str | None = None
    clustering: str | None = None
    rates: str | Path | pd.DataFrame | None = None
    alpha: float = 0.05
    resamples: int = 1000
    seed: int = 42


@remembers_ids
def generalise(
    scores: str | Path | pd.DataFrame | None = None,
    *,
    means: str | Path | pd.DataFrame | None = None,
    margins: Sequence[str | float] = (),
    settings: GeneraliseSettings | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    table: TableOptions = DEFAULT,
) -> GeneraliseReport:
    """Judge which of many models generalise from internal to external slides (LN-11, LN-12, LN-20, LN-21).

    Args:
        scores: The table of patch scores, one row per slide, model and fold; None with `means`.
        means: In place of it, a table of printed differences with their intervals.
        margins: 'study', a number for both metrics, or METRIC=NUMBER.
        settings: Domains, strata and levels; None for the usual ones.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced.
        table: How text tables are written.

    Returns:
        The judged models.

    Raises:
        UserError: The table cannot be used, or an option does not fit it.

    Example:
        >>> from elsewhere.phantom.patch_scores import PatchWorld, draw_patch_scores
        >>> import numpy as np
        >>> rows = draw_patch_scores(PatchWorld(internal=40, external=20, models=2), np.random.default_rng(1))
        >>> made = generalise(rows, margins=["dice=0.9", "fpr=0.5"])
        >>> [row["dice_verdict"] for row in made.summary["generalise"]["models"]]
        ['EQUIVALENT', 'EQUIVALENT']
    """
    chosen = settings or GeneraliseSettings()
    check_seed(chosen.seed)
    check_alpha(chosen.alpha)
    inputs = [item for item in (scores, means, chosen.models, chosen.rates) if isinstance(item, str | Path)]
    check_out(out, replace=replace, inputs=inputs)
    if (scores is None) == (means is None):
        raise UserError(
            "generalise takes a table of patch scores, or --means with printed differences",
            fix="elsewhere generalise SCORES --margin dice=0.05, or elsewhere generalise --means TABLE --margin study.",
        )
    if chosen.models is None and (chosen.share or chosen.clustering):
        raise UserError(
            "--share and --clustering name columns of a table of models, and none is given",
            fix="Give it with --models TABLE: one row per model, with the column `model`.",
        )
    if means is not None and chosen.models is not None:
        raise UserError(
            "--models is about patch scores, and printed differences are judged",
            where="--models",
            fix="Leave it out.",
        )
    if means is None and chosen.rates is not None:
        raise UserError(
            "--rates is about printed rates of slides, and patch scores are judged",
            where="--rates",
            fix="Give it together with --means, or score the slides: elsewhere score slides.",
        )
    made: JudgedModels
    if means is not None:
        kinds = read_printed(
            means, margins=parse_margins(margins or ["study"]), alpha=chosen.alpha, table=table
        )
        rates = [] if chosen.rates is None else read_printed_rates(chosen.rates, table=table)
        source = _digest("means_digest", means)
        if chosen.rates is not None:
            source |= _digest("rates_digest", chosen.rates)
        made = judge_printed(kinds, alpha=chosen.alpha, rates=rates, source=source)
    else:
        made = _judge_scores(scores, margins, chosen, table)
    path = None
    if out is not None:
        path = write_summary_folder(
            made.summary, out, made.redactor, replace=replace, inputs=inputs, tables=made.tables
        )
    return GeneraliseReport(summary=made.summary, tables=made.tables, path=path)


def _digest(name: str, source: Any) -> dict[str, str]:
    return {} if isinstance(source, pd.DataFrame) else {name: file_digest(source)}


def _judge_scores(
    scores: Any, margins: Sequence[str | float], chosen: GeneraliseSettings, table: TableOptions
) -> JudgedModels:
    if chosen.folds not in ("all", "own"):
        raise unknown_name("value of --folds", chosen.folds, ["all", "own"])
    if chosen.weight not in ("patches", "slides"):
        raise unknown_name("weight", chosen.weight, ["patches", "slides"])
    options = GeneraliseOptions(
        margins=parse_margins(margins),
        ratio_margin=chosen.ratio_margin,
        by=tuple(chosen.by),
        standardise=tuple(chosen.standardise),
        weight="slides" if chosen.weight == "slides" else "patches",
        reference=chosen.reference,
        alpha=chosen.alpha,
        resamples=chosen.resamples,
        seed=chosen.seed,
        ensembles=chosen.ensembles,
    )
    internal = None if chosen.internal is None else parse_rule(chosen.internal, option="--id")
    external = None if chosen.external is None else parse_rule(chosen.external, option="--ood")
    used = [*chosen.by, *chosen.standardise, *(rule[0] for rule in (internal, external) if rule is not None)]
    read = read_patch_scores(
        scores,
        folds="own" if chosen.folds == "own" else "all",
        columns=list(dict.fromkeys(used)),
        table=table,
    )
    kinds = None
    if chosen.models is not None:
        columns = {SHARE: chosen.share, CLUSTERING: chosen.clustering}
        kinds = read_kinds(chosen.models, read.models, columns=columns, table=table)
    return judge_models(
        read,
        domains_of(read, internal, external),
        options,
        source=_digest("scores_digest", scores),
        kinds=kinds,
    )


@dataclass(frozen=True, kw_only=True)
class PatchTable:
    """A table of patch scores that was written.

    Args:
        summed: The table, and how many patches it was made from.
        path: The file.
    """

    summed: SummedPatches
    path: Path

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `rows`, `patches`, `unscored`, `slides`, `models` and `path`.
        """
        table = self.summed.table
        return {
            "rows": len(table),
            "patches": self.summed.patches,
            "unscored": self.summed.unscored,
            "slides": int(table["case_id"].nunique()),
            "models": int(table["model"].nunique()),
            "path": str(self.path),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        made = self.to_dict()
        yield (
            f"{made['patches']:,} rows of patches, {_count(made['slides'], 'slide')}, {_count(made['models'], 'model')}: "
            f"{made['rows']:,} rows of sums"
        )
        if made["unscored"]:
            yield f"warning: {made['unscored']:,} patches have no value and count as the worst one."
        yield f"written: {self.path}"
        yield f"next: elsewhere generalise {self.path} --margin dice=0.05 --margin fpr=0.005"


@remembers_ids
def patch_scores(
    rows: str | Path | pd.DataFrame,
    out: str | Path,
    *,
    slides: str | Path | pd.DataFrame | None = None,
    replace: bool = False,
    table: TableOptions = DEFAULT,
    progress: Report | None = None,
) -> PatchTable:
    """Make the table of patch scores from rows of patches, and write it.

    Args:
        rows: A parquet file or folder, another table, or a data frame, with one row per patch, model and fold.
        out: The file to write: .parquet or .csv.
        slides: One row per slide with its patient, stage, site or domain; None where the rows have these columns.
        replace: Whether `out` may be replaced.
        table: How text tables are written.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The table.

    Raises:
        UserError: The rows cannot be used, or the result is no usable table of patch scores.

    Example:
        Make a table of sums and judge the models::

            patch_scores("patches.parquet", "scores.parquet", slides="slides.csv")
            generalise("scores.parquet", margins=["dice=0.05", "fpr=0.005"])
    """
    inputs = [item for item in (rows, slides) if isinstance(item, str | Path)]
    check_out_file(out, replace=replace, inputs=inputs)
    known = slides
    if isinstance(slides, str | Path):
        known = read_table(
            Path(slides), required=("case_id",), strings=("case_id", "patient_id"), options=table
        )
    total = _rows_of(rows)
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress("rows of patches", done, max(total, done))

    made = sum_patches(
        rows, slides=known if isinstance(known, pd.DataFrame) else None, table=table, progress=read
    )
    own = "fold" in made.table.columns and not made.table.duplicated(["model", "case_id"]).any()
    read_patch_scores(made.table, folds="own" if own else "all")
    write_table(made.table, Path(out))
    return PatchTable(summed=made, path=Path(out))


def _rows_of(rows: str | Path | pd.DataFrame) -> int:
    """How many rows a parquet file or folder holds, for a progress bar; 0 where it is not known."""
    if isinstance(rows, pd.DataFrame) or not str(rows).lower().endswith((".parquet", ".pq")):
        return 0
    import pyarrow as pa
    import pyarrow.dataset as pds

    try:
        return int(pds.dataset(str(rows), format="parquet").count_rows())
    except (pa.ArrowException, OSError):
        return 0
