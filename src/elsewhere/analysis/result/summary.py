"""From scores to the summary: every number below SCORES, recomputed from the case table alone."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from elsewhere._version import __version__
from elsewhere.analysis.result.analyses import AnalysisContext, analyses
from elsewhere.analysis.result.assessment import Assessment, ids_of
from elsewhere.analysis.result.inputs import Progress
from elsewhere.analysis.result.part import Part
from elsewhere.cohort import Cohort, audit
from elsewhere.scoring.prepared import Prepared, answered_cases, prepare, primary_metric
from elsewhere.scoring.task import ScoreOptions, Scores
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import UNKNOWN_SITE
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.fairness.subgroups import answered_values
from elsewhere.statistics.resampling import Resampling

_CURVE_RESAMPLES = 200


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the summary must carry that the case table does not.

    Attributes:
        cohort_hash: The hash of the cohort's content.
        reader: The reader of the cohort.
        predictions_digest: The digest of the predictions.
        command: What makes the summary.
        id_grades: How far the patient ids of each dataset can be trusted, with the reason.
        audit: The findings of the cohort's audit.
        split_hash: The hash of the split that the cases come from.
        where: The columns and values that chose the cases.
    """

    cohort_hash: str
    reader: str = "table"
    predictions_digest: str | None = None
    command: str = ""
    id_grades: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    audit: tuple[Mapping[str, Any], ...] = ()
    split_hash: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)


def facts_of(
    cohort: Cohort, *, predictions_digest: str | None, command: str, part: Part | None = None
) -> Facts:
    """Collect hash, grades and audit of the cohort, as the summary carries them.

    Args:
        cohort: The cases that are scored.
        predictions_digest: The digest of the predictions.
        command: What makes the summary: score, accept, summarise.
        part: The part of a cohort that was chosen; the audit looks at the whole.

    Returns:
        The facts.
    """
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


def analyse(
    scores: Scores,
    facts: Facts,
    *,
    options: ScoreOptions,
    resamples: int | None = None,
    seed: int = 42,
    extra: Mapping[str, Any] | None = None,
    skip: Sequence[str] = (),
    progress: Progress | None = None,
) -> Assessment:
    """Compute the whole summary of one model on one cohort.

    Args:
        scores: The scores of the model.
        facts: What the case table does not carry.
        options: What was set when the predictions were scored.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        extra: Parts that are merged in last (a verdict, a claim).
        skip: Registered analyses that are left out.
        progress: Called to report how far the work is.

    Returns:
        The summary with its scores.
    """
    ready = prepare(scores, options)
    protocol = scores.protocol
    count = protocol.interval.resamples if resamples is None else resamples
    done = 0

    def tick(rows: int) -> None:
        nonlocal done
        done += rows
        if progress:
            progress("resampling", done, max(done, count))

    estimates = estimate_all(
        ready.evaluator,
        ready.partition,
        rules=protocol.interval,
        resampling=Resampling(
            key=facts.cohort_hash, seed=seed, resamples=count, threads=options.threads, progress=tick
        ),
        level=protocol.interval.level,
    )
    metrics = {name: estimate.to_dict() for name, estimate in estimates.items()}
    headline = primary_metric(ready.evaluator, protocol)
    _add_answered_only(ready, metrics, headline, key=facts.cohort_hash, seed=seed, resamples=count)
    summary: dict[str, Any] = {
        "elsewhere": __version__,
        "task": scores.task,
        "protocol": protocol.name,
        "protocol_version": protocol.version,
        **({"protocol_counterpart": protocol.counterpart} if protocol.counterpart else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "headline": headline,
        "provenance": provenance(scores, facts, options=options, seed=seed, resamples=count),
        "counts": complete_counts(ready),
        "flow": [dict(step) for step in scores.flow],
        "metrics": metrics,
        "curves": _curves(ready, facts, seed=seed, resamples=count),
        "groups": {},
        "fairness": {},
        "audit": [dict(finding) for finding in facts.audit],
        "warnings": list(dict.fromkeys([*_errors(facts.audit), *scores.warnings])),
        "score_extras": dict(scores.extras),
        "notes": list(protocol.notes),
    }
    context = AnalysisContext(
        task=ready.task,
        scores=scores,
        partition=ready.partition,
        evaluator=ready.evaluator,
        options=options,
        key=facts.cohort_hash,
        seed=seed,
        resamples=count,
        headline=summary["headline"],
        id_grades=facts.id_grades,
    )
    for name, run in analyses:
        if name in skip:
            continue
        if progress:
            progress(f"analysis: {name}", 0, 1)
        for key, content in run(context).items():
            if key == "warnings":
                summary["warnings"] += [w for w in content if w not in summary["warnings"]]
            elif isinstance(summary.get(key), dict) and isinstance(content, dict):
                summary[key] = {**summary[key], **content}
            else:
                summary[key] = content
    summary.update(extra or {})
    key_table = summary.pop("_case_key", None)
    return Assessment(
        summary=summary,
        scores=scores,
        case_key=key_table,
        redact=ids_of(scores),
        exit_code=int(summary.get("verdict", {}).get("exit_code", 0)),
    )


def _errors(audit: Sequence[Mapping[str, Any]]) -> list[str]:
    """Errors of the audit as warnings, which the report shows at its top and not only with the audit."""
    return [f"The id audit: {finding['message']}." for finding in audit if finding.get("severity") == "error"]


def provenance(
    scores: Scores, facts: Facts, *, options: ScoreOptions, seed: int, resamples: int
) -> dict[str, Any]:
    """Collect the facts that every number carries: hashes, protocol, seed, version and settings.

    Args:
        scores: The scores.
        facts: The facts that the case table does not carry.
        options: What was set when the predictions were scored.
        seed: The seed of every draw.
        resamples: How many resamples.

    Returns:
        `provenance` of the summary.
    """
    return {
        "cohort_hash": facts.cohort_hash,
        "cohort_reader": facts.reader,
        "predictions_digest": facts.predictions_digest,
        "split_hash": facts.split_hash,
        "protocol_digest": scores.protocol.digest(),
        "seed": seed,
        "resamples": resamples,
        "code_version": __version__,
        "command": facts.command,
        "settings": {
            "threshold": options.threshold,
            "matching": options.matching,
            "resample": options.resample,
            "fairness_weight": options.fairness_weight,
            "group_by": list(options.group_by),
            "where": dict(facts.where),
        },
        "id_grades": {dataset: dict(grade) for dataset, grade in facts.id_grades.items()},
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def complete_counts(ready: Prepared) -> dict[str, int]:
    """Collect every count that a summary must have, whichever of them the task fills in itself.

    Args:
        ready: The scores, prepared for statistics.

    Returns:
        `counts` of the summary.
    """
    cases = ready.scores.cases
    status = cases["status"].astype("string") if "status" in cases.columns else None
    counts: dict[str, int] = {
        "cases": len(cases),
        "patients": _patients(ready),
        "sites": sum(name != UNKNOWN_SITE for name in ready.partition.site_names),
    }
    for name in ("scored", "missing", "undefined", "invalid", "not_analysable"):
        counts[name] = int((status == name).sum()) if status is not None else 0
    counts |= {"without_boxes": 0, "extra": 0}
    if ready.partition.positive_cluster is not None and "label" in cases.columns:
        counts["positives"] = int((cases["label"].astype(float) > 0).sum())
    return counts | {k: int(v) for k, v in ready.scores.counts.items()}


def _patients(ready: Prepared) -> int:
    if ready.options.resample == "patients":
        return ready.partition.n_clusters
    return ready.task.partition(ready.scores).n_clusters


def _add_answered_only(
    ready: Prepared, metrics: dict[str, dict[str, Any]], headline: str, *, key: str, seed: int, resamples: int
) -> None:
    """Add the value of the answered cases alone to the value with missing as worst (ST-14).

    The headline metric gets its interval as well.
    """
    answered = answered_cases(ready.scores)
    if answered.all() or not answered.any():
        return
    rules = ready.scores.protocol.interval
    made = answered_values(
        ready.evaluator.subset(answered), ready.partition.within(answered), rules=rules, resampling=Resampling(key=key, seed=seed, resamples=resamples, threads=ready.options.threads),
        metrics=tuple(metrics), interval_of=headline,
    )  # fmt: skip
    for name, entry in made.items():
        metrics[name] |= entry


def _curves(ready: Prepared, facts: Facts, *, seed: int, resamples: int) -> dict[str, Any]:
    rules = ready.scores.protocol.interval
    stream = WeightStream(
        ready.partition,
        key=facts.cohort_hash,
        seed=seed,
        resamples=min(resamples, _CURVE_RESAMPLES),
        by_site=rules.by_site,
    )
    return ready.task.curves(ready.scores, ready.partition, stream, ready.options)
