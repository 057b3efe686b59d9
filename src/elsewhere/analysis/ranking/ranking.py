"""Rank many models on one cohort, all on the same resamples: the content of a leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.ranking.curves import ranked_curves
from elsewhere.analysis.ranking.entries import Entries, Entry
from elsewhere.analysis.ranking.lesions import with_rule_hits
from elsewhere.analysis.ranking.published import METRIC, READER, printed_comparison
from elsewhere.analysis.ranking.submissions import Failure
from elsewhere.analysis.result.detection_pictures import PictureOptions, picture_detections
from elsewhere.analysis.result.inputs import Progress
from elsewhere.analysis.result.lesion_rows import withhold_small_strata
from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.errors import unknown_name
from elsewhere.privacy import Redactor
from elsewhere.privacy.tables import redacted_table
from elsewhere.scoring.detection.hit_rule_map import HitRuleMap, map_of_rules
from elsewhere.scoring.prepared import Prepared, primary_metric
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.leaderboard import fairness_weighting, top_against_bottom_by_size
from elsewhere.statistics.ranking import rank_models
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables.identifiers import read_folders


@dataclass(frozen=True, kw_only=True)
class RankingOptions:
    """How entries are ranked.

    Attributes:
        metric: The metric to rank by; None for the protocol's primary metric.
        baseline: The entry that the others are tested against; None for no tests.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        threads: How many threads; None for all processors.
        progress: Called to report how many entries have their intervals.
        published_phase: The phase of the DBTex challenge whose printed table is set next to the ranking; None for
            none.
        pictures: Which lesions and false positives are pictured; None for none.
    """

    metric: str | None = None
    baseline: str | None = None
    resamples: int | None = None
    seed: int = 42
    threads: int | None = None
    progress: Progress | None = None
    published_phase: int | None = None
    pictures: PictureOptions | None = None


@dataclass(frozen=True, kw_only=True)
class RankedEntries:
    """A ranking, ready to be written and printed.

    Attributes:
        summary: The content of summary.json; it names no case and no folder.
        failures: The entries that could not be scored, with reasons that may name cases and files.
        redactor: The redactor that took the ids out of the summary.
        tables: Further tables that name no case, by the names of their files.
        local_tables: Tables that name cases and stay with the data.
        pictured: Lesions and false positives in their slices; None where they were not asked for.
    """

    summary: dict[str, Any]
    failures: tuple[Failure, ...]
    redactor: Redactor
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    local_tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    pictured: PicturedDetections | None = None


def rank_entries(entries: Entries, options: RankingOptions) -> RankedEntries:
    """Rank entries: ties, rank intervals, tiers and stability (ST-09, MRI-10).

    Args:
        entries: The models of one cohort.
        options: Metric, baseline and resamples.

    Returns:
        The summary of the ranking, with every entry that could not be scored and why.

    Raises:
        UserError: If no entry could be scored, or the metric or the baseline is unknown.

    Example:
        >>> from elsewhere.analysis.ranking.entries import entries_from_results
        >>> from elsewhere.analysis.result.scoring import ResultOptions, score_predictions
        >>> truth = {"case_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}
        >>> said = {"case_id": ["a", "b", "c", "d"], "probability": [0.1, 0.8, 0.4, 0.9]}
        >>> one = score_predictions("classification", truth, said, ResultOptions(resamples=0))
        >>> made = rank_entries(entries_from_results([one, one]), RankingOptions(resamples=0))
        >>> [row["rank"] for row in made.summary["ranking"]["table"]]
        [1, 1]
    """
    first = entries.first().ready
    rules = first.scores.protocol
    metric = _metric_of(first, options.metric)
    names = [entry.name for entry in entries.ranked]
    if options.baseline is not None and options.baseline not in names:
        raise unknown_name("model", options.baseline, names)
    resampling = Resampling(
        key=entries.key,
        seed=options.seed,
        resamples=rules.interval.resamples if options.resamples is None else options.resamples,
        threads=options.threads,
    )
    ranking = _ranking_part(entries.ranked, metric, resampling, options)
    summary = _summary(entries, ranking, resampling)
    by_name = {entry.name: entry for entry in entries.ranked}
    best_first = [by_name[row["model"]] for row in ranking["table"]]
    scores = {entry.name: entry.ready.scores for entry in best_first}
    details, missing = first.task.ranking_details(scores)
    summary |= details
    summary |= ranked_curves(best_first, resampling)
    summary |= first.task.paired_details(scores, baseline=options.baseline, resampling=resampling)
    summary["warnings"] += missing
    if options.published_phase is not None:
        summary |= _published(entries, summary, options.published_phase)
    local = dict(first.task.local_tables(scores))
    hit_rules = _hit_rules(best_first, ranking)
    if hit_rules is not None:
        summary["hit_rules"] = hit_rules.summary
        local["lesions.csv"] = with_rule_hits(local.get("lesions.csv"), hit_rules.lesions)
    pictured = _pictures(entries, best_first, options)
    summary["warnings"] += [] if pictured is None else pictured.warnings()
    summary = withhold_small_strata(summary)
    redactor = Redactor(entries.ids, folders=read_folders())
    summary = redactor.summary(summary)
    summary["ranking"]["failed"] = [failure.shared(redactor) for failure in entries.failures]
    return RankedEntries(
        summary=summary,
        failures=entries.failures,
        redactor=redactor,
        tables={} if hit_rules is None else {"hit_rules.csv": redacted_table(hit_rules.table, redactor)},
        local_tables=local,
        pictured=pictured,
    )


def incomplete(counts: Mapping[str, Any]) -> str:
    """Say how many entries are not in the ranking.

    Args:
        counts: The counts of the ranking's summary.

    Returns:
        One sentence.

    Example:
        >>> incomplete({"models": 3, "entries": 5, "failed": 2})
        '3 of 5 entries ranked; 2 could not be scored'
    """
    return f"{counts['models']} of {counts['entries']} entries ranked; {counts['failed']} could not be scored"


def _metric_of(first: Prepared, wanted: str | None) -> str:
    chosen = wanted or primary_metric(first.evaluator, first.scores.protocol)
    available = [spec.name for spec in first.evaluator.specs]
    if chosen not in available:
        raise unknown_name("metric", chosen, available)
    return chosen


def _ranking_part(
    entries: Sequence[Entry], metric: str, resampling: Resampling, options: RankingOptions
) -> dict[str, Any]:
    """The `ranking` of a summary: the table, the pairs, every entry's metrics, fairness weights and sizes."""
    first = entries[0].ready
    rules = first.scores.protocol
    names = [entry.name for entry in entries]
    evaluators = [entry.ready.evaluator for entry in entries]
    part = rank_models(
        evaluators,
        first.partition,
        metric,
        names=names,
        resampling=resampling,
        by_site=rules.interval.by_site,
        baseline=options.baseline,
    ).to_dict()
    rows = part.pop("models", None) or part.pop("table")
    estimates = {}
    for number, entry in enumerate(entries):
        found = estimate_all(
            entry.ready.evaluator,
            first.partition,
            rules=rules.interval,
            resampling=resampling,
            metrics=_shown(entry.ready, metric),
        )
        estimates[entry.name] = {name: estimate.to_dict() for name, estimate in found.items()}
        if options.progress:
            options.progress("intervals", number + 1, len(entries))
    shown = [
        {**row, **{k: estimates[row["model"]][metric][k] for k in ("value", "lo", "hi", "method")}}
        for row in rows
    ]
    ranking = {
        **part,
        "metric": metric,
        "table": [{k: v for k, v in row.items() if k != "frequencies"} for row in shown],
        "frequencies": {row["model"]: row["frequencies"] for row in shown if "frequencies" in row},
        "metrics": estimates,
        "failed": [],
        "baseline": options.baseline,
    }
    ranking |= fairness_weighting(
        evaluators, names=names, baseline=options.baseline, weight=rules.fairness.fairness_weight
    )
    return ranking | _by_size(entries, metric, resampling)


def _summary(entries: Entries, ranking: dict[str, Any], resampling: Resampling) -> dict[str, Any]:
    first = entries.first().ready
    rules = first.scores.protocol
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": first.scores.task,
        "protocol": rules.name,
        "protocol_version": rules.version,
        **({"protocol_counterpart": rules.counterpart} if rules.counterpart else {}),
        "provenance": {
            "cohort_hash": entries.key,
            "seed": resampling.seed,
            "resamples": resampling.resamples,
            "code_version": __version__,
            "command": "rank",
            "protocol_digest": rules.digest(),
            "predictions_digest": {entry.name: entry.digest for entry in entries.ranked},
            **({"settings": {"where": dict(entries.where)}} if entries.where else {}),
        },
        "counts": {
            **entries.counts,
            "entries": len(entries.ranked) + len(entries.failures),
            "models": len(entries.ranked),
            "failed": len(entries.failures),
        },
        "metrics": {},
        "ranking": ranking,
        "warnings": [
            *entries.notes,
            *_unknown_status_words(entries.ranked),
            *_remarks_on_boxes(entries.ranked),
        ],
    }
    if entries.failures:
        summary["warnings"].append(incomplete(summary["counts"]))
    return summary


def _shown(ready: Prepared, metric: str) -> list[str]:
    wanted = [metric, "performance", "fairness", "combined", "dice", "norm_hd", "balanced_accuracy", "auroc"]
    if ready.task.name == "detection":
        wanted.append(f"sensitivity_at_{ready.scores.protocol.detection.all_operating_point:g}_all")
    have = {spec.name for spec in ready.evaluator.specs}
    return [name for name in dict.fromkeys(wanted) if name in have]


def _published(entries: Entries, summary: dict[str, Any], phase: int) -> dict[str, Any]:
    """The printed table of the challenge; a synthetic cohort is never compared with it."""
    if entries.reader != READER or METRIC not in [
        spec.name for spec in entries.first().ready.evaluator.specs
    ]:
        return {}
    if entries.synthetic:
        summary["warnings"].append(
            "The cohort is synthetic, so the printed table of the challenge, which is of other volumes, is not shown."
        )
        return {}
    return {"published": printed_comparison(summary["ranking"], summary["counts"], phase=phase)}


def _hit_rules(entries: Sequence[Entry], ranking: Mapping[str, Any]) -> HitRuleMap | None:
    """The map of hit rules, with the rank intervals that say how much of a change chance alone makes."""
    models = {entry.name: entry.under_rules for entry in entries if entry.under_rules is not None}
    if not models:
        return None
    made = map_of_rules(models)
    between = {row["model"]: (row["rank_lo"], row["rank_hi"]) for row in ranking["table"]}
    for row in made.summary["models"]:
        low, high = between[row["model"]]
        row["rank_lo"], row["rank_hi"] = low, high
        row["beyond_rank_interval"] = bool(row["best_rank"] < low or row["worst_rank"] > high)
    return made


def _pictures(
    entries: Entries, best_first: Sequence[Entry], options: RankingOptions
) -> PicturedDetections | None:
    models = {entry.name: entry.boxes for entry in best_first if entry.boxes is not None}
    if options.pictures is None or entries.volumes is None or not models:
        return None
    return picture_detections(models, entries.volumes, options.pictures, progress=options.progress)


def _remarks_on_boxes(entries: Sequence[Entry]) -> list[str]:
    """Boxes of unlisted volumes, files without boxes and the like move a rank, so those of every model are reported."""
    return [
        f"{entry.name}: {warning}"
        for entry in entries
        if entry.ready.scores.task == "detection"
        for warning in entry.ready.scores.warnings
    ]


def _unknown_status_words(entries: Sequence[Entry]) -> list[str]:
    """Status words whose meaning is not known may decide a rank, so those of every model are reported."""
    found = []
    for entry in entries:
        words = entry.ready.scores.extras.get("status_words", ())
        unknown = [word for word in words if not word["understood"]]
        if unknown:
            shown = ", ".join(f"'{word['word']}' ({word['rows']} rows)" for word in unknown[:5])
            found.append(
                f"{entry.name}: status words that are not known: {shown}. Their scores were used; add "
                f"--failed-status '{unknown[0]['word']}' if it means that the case could not be analysed."
            )
    return found


def _by_size(entries: Sequence[Entry], metric: str, resampling: Resampling) -> dict[str, Any]:
    """MRI-11: the best models against the worst, overall and by tumour size."""
    first = entries[0].ready
    cases = first.scores.cases
    if "volume_truth_ml" not in cases.columns:
        return {}
    found = top_against_bottom_by_size(
        [entry.ready.evaluator for entry in entries],
        first.partition,
        "dice" if "dice" in cases.columns else metric,
        cases["volume_truth_ml"].to_numpy(dtype=float),
        names=[entry.name for entry in entries],
        resampling=resampling,
        by_site=first.scores.protocol.interval.by_site,
    )
    return {"top_against_bottom": found} if found else {}
