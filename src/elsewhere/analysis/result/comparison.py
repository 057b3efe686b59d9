"""Two models on the same cases: every metric's difference, on the same resamples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elsewhere._version import __version__
from elsewhere.analysis.result.assessment import Assessment, ids_of_result
from elsewhere.analysis.result.lesion_rows import withhold_small_strata
from elsewhere.analysis.result.names import names_of
from elsewhere.analysis.result.storage import TABLE_DIGESTS
from elsewhere.errors import UserError, name_rows
from elsewhere.privacy import Redactor
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.resampling import Resampling


@dataclass(frozen=True, kw_only=True)
class ComparedModels:
    """Two models that were compared.

    Attributes:
        summary: The content of summary.json; it names no case.
        redactor: The redactor that took the ids out of the summary.
    """

    summary: dict[str, Any]
    redactor: Redactor


def compare_assessments(
    a: Assessment,
    b: Assessment,
    *,
    metrics: Sequence[str] = (),
    resamples: int | None = None,
    seed: int = 42,
    threads: int | None = None,
) -> ComparedModels:
    """Compare two models on the same cases: bootstrap, permutation, Wilcoxon, t; clustered DeLong for AUROC.

    Args:
        a: The first model.
        b: The second, on the same cases by the same protocol.
        metrics: The metrics to compare; empty for all.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        threads: How many threads; None for all processors.

    Returns:
        a - b of every metric, with its interval and tests.

    Raises:
        UserError: The two are not of the same cases, task and rules.
    """
    same_cases(a, b)
    b = aligned(a, b)
    first, second = prepare(a.scores, options_of(a)), prepare(b.scores, options_of(b))
    rules = a.scores.protocol.interval
    count = rules.resamples if resamples is None else resamples
    rows = compare_pair(
        first.evaluator,
        second.evaluator,
        first.partition,
        rules=rules,
        resampling=Resampling(key=a.provenance["cohort_hash"], seed=seed, resamples=count, threads=threads),
        metrics=list(metrics) or None,
    )
    names = labels_of(a, b)
    summary = {
        "elsewhere": __version__,
        "task": a.scores.task,
        "protocol": a.summary["protocol"],
        "protocol_version": a.summary["protocol_version"],
        "provenance": {
            **{k: v for k, v in a.summary["provenance"].items() if k not in TABLE_DIGESTS},
            "seed": seed,
            "resamples": count,
            "command": "compare",
            "predictions_digest": [r.summary["provenance"].get("predictions_digest") for r in (a, b)],
        },
        "counts": a.summary["counts"],
        "metrics": {},
        "comparison": {
            "a": names[0],
            "b": names[1],
            "metrics": {name: row.to_dict() for name, row in rows.items()},
        },
        "warnings": [],
    }
    scores = {names[0]: a.scores, names[1]: b.scores}
    resampling = Resampling(key=a.provenance["cohort_hash"], seed=seed, resamples=count, threads=threads)
    if len(scores) == 2:
        summary |= first.task.paired_details(scores, baseline=None, resampling=resampling)
        summary = withhold_small_strata(summary)
    redactor = Redactor([*ids_of_result(a), *ids_of_result(b)])
    summary = redactor.summary(summary)
    return ComparedModels(summary=summary, redactor=redactor)


def same_cases(a: Assessment, b: Assessment) -> None:
    """Refuse two results that are not of the same cases, task and rules.

    Args:
        a: A result.
        b: Another.

    Raises:
        UserError: They differ, and in what.
    """
    if a.scores.task != b.scores.task:
        raise UserError(
            f"one result is {a.scores.task}, the other {b.scores.task}", fix="Compare results of one task."
        )
    if a.summary["protocol"] != b.summary["protocol"]:
        raise UserError(
            f"scored by different protocols: {a.summary['protocol']} and {b.summary['protocol']}",
            fix="Score both by one protocol: `elsewhere score ... --protocol NAME`.",
        )
    ours, theirs = set(a.scores.cases["case_id"]), set(b.scores.cases["case_id"])
    if ours != theirs:
        odd = sorted(ours ^ theirs)
        raise UserError(
            f"the results are not of the same cases: {len(ours - theirs)} only in the first, {len(theirs - ours)} only in the second ({name_rows(odd)})",
            fix="Score both models on the same cohort; a case without a prediction is scored as missing there.",
        )


def aligned(a: Assessment, b: Assessment) -> Assessment:
    """Bring the cases of one result into the order of another.

    Args:
        a: A result.
        b: Another of the same cases.

    Returns:
        b with its cases in the order of a's.
    """
    order = b.scores.cases.set_index("case_id").loc[a.scores.cases["case_id"]].reset_index()
    return dataclasses.replace(b, scores=dataclasses.replace(b.scores, cases=order))


def labels_of(a: Assessment, b: Assessment) -> tuple[str, str]:
    """Name the two models by their result folders, without the folders that lead there.

    Args:
        a: A result.
        b: Another.

    Returns:
        Both names.
    """
    if a.path is None or b.path is None:
        return (a.path.name if a.path else "A"), (b.path.name if b.path else "B")
    first, second = names_of([a.path, b.path])
    return first, second


def options_of(result: Assessment) -> ScoreOptions:
    """Read what was set when the result was scored from its own summary.

    Args:
        result: A result.

    Returns:
        The options, as far as the summary carries them.
    """
    set_then = result.summary["provenance"].get("settings") or {}
    return ScoreOptions(
        threshold=set_then.get("threshold"),
        fairness_weight=set_then.get("fairness_weight"),
        matching=set_then.get("matching"),
        resample=set_then.get("resample") or "patients",
        group_by=tuple(set_then.get("group_by") or ()),
    )
