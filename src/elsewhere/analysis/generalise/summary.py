"""Many models at two domains as the content of summary.json, with tables for other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.generalise.ensembles import ensembles_of
from elsewhere.analysis.generalise.kinds import ModelKinds, kinds_of_names, means_by_kind
from elsewhere.analysis.generalise.operating_point import carry_thresholds
from elsewhere.analysis.generalise.printed import PrintedKind
from elsewhere.analysis.generalise.settings import STUDY, Domains, GeneraliseOptions
from elsewhere.analysis.generalise.verdicts import ALL, Cell, cells_of, model_verdicts, rows_of, sides_of
from elsewhere.errors import unknown_name
from elsewhere.privacy import Redactor
from elsewhere.scoring.patch_scores import CASE, PATCH_METRICS, PATIENT, PatchScores
from elsewhere.statistics.domain import OUTSIDE
from elsewhere.statistics.equivalence import STUDY_MARGIN_WARNING
from elsewhere.statistics.many_models import SideSums, compare_paired
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import Verdict
from elsewhere.tables.identifiers import read_folders

CARRIERS_OF_RATES = 200
"""The effective number of patients of a false-positive rate from which its interval's coverage is promised."""
QUESTION = "Which of these models still work at the other hospital?"


@dataclass(frozen=True, kw_only=True)
class JudgedModels:
    """Many models that were judged.

    Attributes:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables, by the name of their csv file.
        redactor: The redactor that took the ids out of the summary.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    redactor: Redactor


def judge_models(
    scores: PatchScores,
    domains: Domains,
    options: GeneraliseOptions,
    *,
    source: Mapping[str, Any] | None = None,
    kinds: ModelKinds | None = None,
) -> JudgedModels:
    """Judge every model: by patient, by fold, by stratum, at the reference's mix, and ensembles of them.

    Args:
        scores: The scores.
        domains: Which slides are internal and external.
        options: Margins, strata and levels.
        source: What the provenance says about the inputs; None for nothing.
        kinds: The share and the clustering of each model; None for those that their names tell.

    Returns:
        The summary and the tables.

    Raises:
        UserError: A column or the reference model is not there.
    """
    for column in (*options.by, *options.standardise):
        if column not in scores.parts.columns:
            raise unknown_name("column of slides", column, [str(name) for name in scores.parts.columns])
    if options.reference is not None and options.reference not in scores.models:
        raise unknown_name("model", options.reference, list(scores.models))
    key = str((source or {}).get("scores_digest") or "generalise")
    resampling = Resampling(key=key, seed=options.seed, resamples=options.resamples)
    carried: list[dict[str, Any]] = []
    if len(scores.variants) > len(scores.models):
        scores, carried = carry_thresholds(scores, domains, resampling, alpha=options.alpha)
    cells = list(cells_of(scores, domains, options, resampling))
    rows = [
        row for cell in cells for row in rows_of(cell, scores.variants, ratio_margin=options.ratio_margin)
    ]
    kinds = kinds or kinds_of_names(scores.models)
    part: dict[str, Any] = {
        "domains": domains.rule,
        "models": [
            {**row, **{name: found.get(row["model"], "") for name, found in kinds.values.items() if found}}
            for row in model_verdicts(rows, scores.models)
        ],
        "rows": rows,
        "margins": [_margin(cell) for cell in cells],
        "by_fold": _by_fold(cells, scores),
        "multiplicity": multiplicity(len(scores.models), options.alpha),
        "weight": options.weight,
        "ratio_margin": options.ratio_margin,
        "alpha": options.alpha,
        "folds": len(scores.folds),
        "coverage": [one.to_dict() for one in scores.coverage if one.patches or one.rows],
        "standardised_by": list(options.standardise),
        "left_out_cells": sorted(
            {name for cell in cells if cell.standardised is not None for name in cell.standardised.left_out}
        ),
    }
    by_kind = means_by_kind([row for row in rows if not row["stratum_of"]], kinds)
    if by_kind:
        part["kinds"] = {"source": kinds.source, "rows": by_kind}
    if carried:
        part["operating_points"] = carried
    if options.reference is not None:
        part["reference"] = options.reference
        part["against_reference"] = _against_reference(scores, domains, options)
    if options.ensembles:
        part["ensembles"] = ensembles_of(scores, domains, options)
    ids = [*scores.parts[CASE].astype(str), *scores.parts[PATIENT].astype(str)]
    return _judged(
        part, _counts(scores, domains), _warnings(scores, domains, cells, options), ids, source, options
    )


def judge_printed(
    kinds: Sequence[PrintedKind],
    *,
    alpha: float,
    rates: Sequence[Mapping[str, Any]] = (),
    source: Mapping[str, Any] | None = None,
) -> JudgedModels:
    """Say what a study's printed numbers decide.

    Args:
        kinds: The kinds of patch.
        alpha: The level of each one-sided test.
        rates: Printed rates of slides with their class averages, as `read_printed_rates` makes them.
        source: What the provenance says about the inputs; None for nothing.

    Returns:
        The summary and the tables.
    """
    part: dict[str, Any] = {"printed": [kind.to_dict() for kind in kinds], "alpha": alpha}
    if rates:
        part["printed_rates"] = [dict(row) for row in rates]
    warnings = [STUDY_MARGIN_WARNING] if any(kind.study is not None for kind in kinds) else []
    counts = {"models": max((len(kind.rows) for kind in kinds), default=0)}
    made = _judged(part, counts, warnings, [], source, None)
    table = pd.DataFrame(
        [{"kind": kind.kind, "margin": kind.margin, **row} for kind in kinds for row in kind.rows]
    )
    tables = {"models.csv": table}
    if rates:
        tables["slide_rates.csv"] = pd.DataFrame([dict(row) for row in rates])
    return JudgedModels(summary=made.summary, tables=tables, redactor=made.redactor)


def _judged(
    part: dict[str, Any],
    counts: dict[str, int],
    warnings: list[str],
    ids: list[str],
    source: Mapping[str, Any] | None,
    options: GeneraliseOptions | None,
) -> JudgedModels:
    settings: dict[str, Any] = {"alpha": part["alpha"]}
    if options is not None:
        settings |= {
            "margins": dict(options.margins),
            "ratio_margin": options.ratio_margin,
            "by": list(options.by),
            "standardise": list(options.standardise),
            "weight": options.weight,
            "resamples": options.resamples,
            "seed": options.seed,
        }
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": "many models at two domains",
        "question": QUESTION,
        "provenance": {
            "command": "generalise",
            "code_version": __version__,
            **(source or {}),
            "settings": settings,
        },
        "counts": counts,
        "metrics": {},
        "generalise": part,
        "methods": _methods(part, options),
        "warnings": warnings,
    }
    redactor = Redactor(ids, folders=read_folders())
    summary = redactor.summary(summary)
    return JudgedModels(summary=summary, tables=_tables(summary["generalise"]), redactor=redactor)


def _tables(part: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    tables = {
        "verdicts": part.get("rows"),
        "models": part.get("models"),
        "kinds": (part.get("kinds") or {}).get("rows"),
        "operating_points": part.get("operating_points"),
        "against_reference": part.get("against_reference"),
        "ensembles": [
            {**row, "members": "; ".join(row["members"])}
            for row in (part.get("ensembles") or {}).get("rows", ())
        ],
    }
    return {f"{name}.csv": pd.DataFrame(rows) for name, rows in tables.items() if rows}


def _counts(scores: PatchScores, domains: Domains) -> dict[str, int]:
    def slides(chosen: Any) -> int:
        return int(scores.parts[CASE][chosen].nunique())

    def patients(chosen: Any) -> int:
        return int(scores.parts[PATIENT][chosen].nunique())

    return {
        "models": len(scores.models),
        "folds": len(scores.folds),
        "slides": slides(domains.internal | domains.external),
        "patients": patients(domains.internal | domains.external),
        "internal_slides": slides(domains.internal),
        "internal_patients": patients(domains.internal),
        "external_slides": slides(domains.external),
        "external_patients": patients(domains.external),
        "slides_in_neither": domains.neither,
        **{
            f"{side}_{metric.count[2:]}_patches": int(scores.count[metric.name][chosen].sum())
            for side, chosen in (("internal", domains.internal), ("external", domains.external))
            for metric in PATCH_METRICS
        },
    }


def _margin(cell: Cell) -> dict[str, Any]:
    return {
        "metric": cell.metric.name,
        "label": cell.metric.label,
        "stratum_of": cell.stratum.column,
        "stratum": cell.stratum.value,
        "margin": cell.margin,
        "source": STUDY if cell.folds.study is not None else "declared",
        **({} if cell.folds.study is None else {"study": cell.folds.study.to_dict()}),
    }


def _by_fold(cells: Sequence[Cell], scores: PatchScores) -> list[dict[str, Any]]:
    """Who passes the study's test, by name, in each cell."""
    rows = []
    for cell in cells:
        tests = dict(zip(scores.variants["model"], cell.folds.tests, strict=True))
        done = {name: test for name, test in tests.items() if test is not None}
        up = cell.metric.higher_is_better
        rows.append(
            {
                "metric": cell.metric.name,
                "stratum_of": cell.stratum.column,
                "stratum": cell.stratum.value,
                "margin": cell.folds.margin,
                "tested": len(done),
                "equivalent": [name for name, test in done.items() if test.equivalent],
                "non_inferior": [
                    name
                    for name, test in done.items()
                    if test.lo is not None
                    and test.hi is not None
                    and (test.hi < test.high if up else test.lo > test.low)
                ],
                "reason": cell.folds.reason,
            }
        )
    return rows


def multiplicity(models: int, alpha: float) -> str:
    """State how many models pass by chance.

    Args:
        models: How many models are judged.
        alpha: The level of each one-sided test.

    Returns:
        A sentence; empty for one model.

    Example:
        >>> multiplicity(1, 0.05)
        ''
    """
    if models < 2:
        return ""
    return (
        f"Each verdict has its own level of {100 * alpha:g} %. Among {models} models that all lie exactly on the margin, about "
        f"{models * alpha:.2g} would pass by chance for each metric. A model that is picked because it passed is judged "
        "honestly on other patients, or by the limits that hold for all models at once (column non_inferior_all)."
    )


def _against_reference(
    scores: PatchScores, domains: Domains, options: GeneraliseOptions
) -> list[dict[str, Any]]:
    """Each model - the reference model on external slides; the limits hold for all models at once (Bonferroni)."""
    at = scores.models.index(str(options.reference))
    rows = []
    for metric in PATCH_METRICS:
        everything = np.ones(len(scores.parts), dtype=bool)
        side: SideSums = sides_of(scores, metric, domains, everything, weight=options.weight)[1]
        made = compare_paired(side, at, alpha=options.alpha / max(len(scores.models) - 1, 1))
        for i, model in enumerate(scores.models):
            if i != at:
                rows.append(
                    {
                        "model": model,
                        "metric": metric.name,
                        "difference": made.difference[i],
                        "lo": made.lo[i],
                        "hi": made.hi[i],
                        "surely_better": bool(made.lo[i] > 0 if metric.higher_is_better else made.hi[i] < 0),
                    }
                )
    return rows


def _warnings(
    scores: PatchScores, domains: Domains, cells: Sequence[Cell], options: GeneraliseOptions
) -> list[str]:
    warnings = [*scores.warnings]
    if domains.neither:
        warnings.append(f"{domains.neither} slides are neither internal nor external, and are left out.")
    if STUDY in options.margins.values():
        warnings.append(STUDY_MARGIN_WARNING)
    for metric in PATCH_METRICS:
        if not any(cell.metric is metric for cell in cells):
            warnings.append(f"{metric.label}: {Verdict.NOT_ASSESSED}, no slide has such a patch.")
    for cell in cells:
        where = "" if cell.stratum.value == ALL else f" ({cell.stratum.column} {cell.stratum.value})"
        made = cell.differences
        if any(made.reason) and len(set(made.reason)) == 1:
            warnings.append(f"{cell.metric.label}{where}: {Verdict.NOT_ASSESSED}, {made.reason[0]}.")
            continue
        fewest = float(made.effective.min())
        if cell.metric.skewed and fewest < CARRIERS_OF_RATES and not cell.stratum.column:
            warnings.append(
                f"{OUTSIDE}: {cell.metric.label}: a few slides carry this rate ({fewest:.0f} effective patients on the "
                f"smaller side; the promise begins at {CARRIERS_OF_RATES}). Its upper limit may be too low."
            )
        if made.undefined_resamples:
            warnings.append(
                f"{cell.metric.label}{where}: {made.undefined_resamples} resamples drew no such patch and are left out of "
                "the bootstrap."
            )
        if cell.folds.reason and not cell.stratum.column:
            warnings.append(f"{cell.metric.label}: no test by fold, {cell.folds.reason}.")
        if cell.standardised is not None and cell.standardised.reason:
            warnings.append(f"{cell.metric.label}: not standardised, {cell.standardised.reason}.")
    return list(dict.fromkeys(warnings))


def _methods(part: Mapping[str, Any], options: GeneraliseOptions | None) -> str:
    if options is None:
        return (
            "The decisions were taken from the printed differences (internal - external), their 90 % intervals and p values; "
            "the margin of a kind of patch is |mean| + 1.96 sd / sqrt(n) over the models' differences, rounded as they are "
            f"printed. Analysis: Elsewhere {__version__}."
        )
    level = f"{100 * (1 - 2 * options.alpha):g} %"
    unit = "patches" if options.weight == "patches" else "slides"
    sentences = [
        f"For each model the mean over {unit} was averaged over the folds and compared between the domains ({part['domains']}) as "
        "external - internal.",
        f"Intervals are {level}: a t interval that leaves out one patient at a time, with degrees of freedom from Kish's "
        "effective number of patients; for false-positive rates on the logarithmic scale, joined by MOVER.",
        f"A percentile bootstrap of {options.resamples:,} resamples of patients stands next to them."
        if options.resamples
        else "",
        "By fold, Welch's two one-sided tests were applied to the means of the folds, internal - external, as in the "
        "lymph-node study; they measure retraining and not patients.",
    ]
    if options.standardise:
        sentences.append(
            f"Differences were also standardised to the internal mix of {', '.join(options.standardise)}."
        )
    sentences.append(f"Analysis: Elsewhere {__version__}.")
    return " ".join(one for one in sentences if one)
