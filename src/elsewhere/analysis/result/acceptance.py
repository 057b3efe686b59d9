"""Does a vendor's claim hold here? Every claimed number judged on the hospital's own cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.analysis.result.assessment import Assessment
from elsewhere.analysis.result.claim import Claim, ClaimedMetric
from elsewhere.analysis.result.claim_lock import ShownVerdict, look_back, utc_now
from elsewhere.analysis.result.inputs import as_cohort, as_predictions, choose_protocol
from elsewhere.analysis.result.part import choose_part
from elsewhere.analysis.result.summary import analyse, facts_of
from elsewhere.cohort import Cohort
from elsewhere.errors import EXIT_CLAIM_CHANGED, UserError, check_seed, near_matches
from elsewhere.predictions import ReadOptions
from elsewhere.scoring.groups import group_codes
from elsewhere.scoring.prepared import Prepared, answered_cases, binary_part, prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.answered import BoolArray, with_answered_only
from elsewhere.statistics.benefit import at_prevalence, decision_curve
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.claimed import ClaimedValue, claimed_limits
from elsewhere.statistics.differences import difference_from_claim
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.operating_point import operating_point, rates_at
from elsewhere.statistics.prevalence import STANDARDISABLE, StandardisedEvaluator, standardised_name
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import (
    ClaimVerdict,
    OverallVerdict,
    Verdict,
    assess_claim,
    not_assessed,
    overall,
)
from elsewhere.tables import TableOptions


@dataclass(frozen=True, kw_only=True)
class AcceptOptions:
    """How a claim is judged. Options that are set here override the claim's own reading options.

    Attributes:
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        column_map: Columns of the vendor's file by the name they should have.
        scale: The scale of the scores; None for the claim's.
        normalise_ids: How ids of both sides are made comparable; empty for the claim's.
        on_invalid: `error` or `worst`.
        failed_status: Words that mean 'could not be analysed'; empty for the claim's.
        table: How text tables are written; None for the claim's.
        earlier: A folder that may hold an earlier result of this claim; None for none.
        fit_advice: Adapts the advice in a warning to the caller; a warning for which it returns None is left
            out.
    """

    resamples: int | None = None
    seed: int = 42
    column_map: Mapping[str, str] = field(default_factory=dict)
    scale: str | None = None
    normalise_ids: tuple[str, ...] = ()
    on_invalid: str = "error"
    failed_status: tuple[str, ...] = ()
    table: TableOptions | None = None
    earlier: str | Path | None = None
    fit_advice: Callable[[str], str | None] = str

    def reading(self, claim: Claim) -> ReadOptions:
        """Combine the claim's reading options with those that were set.

        Args:
            claim: The claim.

        Returns:
            How the vendor's file is read.
        """
        how = claim.predictions
        written = self.table or TableOptions(
            encoding=how.get("encoding"), delimiter=how.get("delimiter"), decimal=how.get("decimal", ".")
        )
        return ReadOptions(
            column_map={**how.get("map", {}), **self.column_map},
            scale=self.scale or how.get("scale", "0-1"),
            unit=how.get("unit", "case"),
            combine=how.get("combine", "max"),
            normalise_ids=self.normalise_ids or tuple(how.get("normalise_ids", ())),
            on_invalid="worst" if self.on_invalid == "worst" else "error",
            failed_status=self.failed_status or tuple(how.get("failed_status", ())),
            table=written,
        )


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A claim that was judged.

    Attributes:
        assessment: The summary with the verdict, and the scores.
        shown: The record for the lock file, to be written when the verdict is shown.
    """

    assessment: Assessment
    shown: ShownVerdict


def judge_claim(
    cohort: str | Path, predictions: str | Path, claim: Claim, options: AcceptOptions
) -> JudgedClaim:
    """Judge every number of a claim on the hospital's own cases.

    Args:
        cohort: The cohort with its outcomes.
        predictions: The vendor's predictions.
        claim: The vendor's claim.
        options: How the claim is judged.

    Returns:
        The verdict, and the record that must be written before it is shown. Nothing is written here.

    Raises:
        UserError: If an input cannot be read, the claim names an unknown metric or column, or a claimed
            interval holds every possible value.
    """
    check_seed(options.seed)
    task = tasks.get(claim.task)
    read = options.reading(claim)
    part = choose_part(as_cohort(cohort, read.table), claim.where)
    who = part.cohort
    rules = choose_protocol(task, claim.protocol, who.reader)
    _check_metrics(claim, {spec.name: spec for spec in task.metrics(rules)})
    said = part.predictions(as_predictions(claim.task, Path(predictions), read, part.whole))
    scoring = ScoreOptions(
        threshold=claim.threshold,
        on_invalid=options.on_invalid,
        normalise_ids=read.normalise_ids,
        group_by=_columns_of(claim, who),
    )
    scores = part.with_choice(task.score(who, said, rules, scoring))
    ready = prepare(scores, scoring)
    count = rules.interval.resamples if options.resamples is None else options.resamples
    resampling = Resampling(key=who.hash, seed=options.seed, resamples=count)
    judged = overall(
        _judge(ready, claim, line, resampling) for line in (*claim.primary, *claim.subgroup_claims)
    )
    shown = ShownVerdict(
        time=utc_now(),
        claim_file=claim.source.name,
        digest=claim.digest,
        cohort=part.whole.hash,
        predictions=said.digest,
        verdict=str(judged.word),
        judged=any(one.word is not Verdict.NOT_ASSESSED for one in judged.claims),
        claimed=claim.claimed(),
        described=claim.described(),
        reading=_reading(read) | {"resamples": count, "seed": options.seed},
    )
    history = look_back(claim.source, shown, options.earlier)
    made = analyse(
        scores,
        facts_of(who, predictions_digest=said.digest, command="accept", part=part),
        options=scoring,
        resamples=options.resamples,
        seed=options.seed,
        extra=_extra(ready, claim, judged, resampling) | {"claim_lock": history.to_dict()},
    )
    warnings = (options.fit_advice(warning) for warning in made.summary["warnings"])
    made.summary["warnings"] = [*history.sentences(), *filter(None, warnings)]
    if claim.outcomes.get("only_biopsied"):
        made.summary["warnings"].append(
            "Only biopsied cases have outcomes: missed cancers without biopsy are absent, so sensitivity is flattered (verification bias)."
        )
    if history.changed:
        made = dataclasses.replace(made, exit_code=EXIT_CLAIM_CHANGED)
    return JudgedClaim(assessment=made, shown=shown)


def _check_metrics(claim: Claim, known: Mapping[str, MetricSpec]) -> None:
    for line in (*claim.primary, *claim.subgroup_claims):
        if line.metric not in known:
            near = near_matches(line.metric, known)
            raise UserError(
                f"the claim is about '{line.metric}', which {claim.task} does not have",
                where=str(claim.source),
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(known))}.",
            )
        _check_interval(line, known[line.metric], claim)


def _columns_of(claim: Claim, cohort: Cohort) -> tuple[str, ...]:
    """The columns whose groups the claim describes or judges."""
    named = [*claim.describe, *(str(line.variable) for line in claim.subgroup_claims)]
    columns = [name for name in dict.fromkeys(named) if name]
    unknown = [name for name in columns if name not in cohort.cases.columns]
    if unknown:
        near = near_matches(unknown[0], map(str, cohort.cases.columns))
        raise UserError(
            f"the cohort has no column '{unknown[0]}' that the claim names",
            where=str(claim.source),
            fix=f"It has: {', '.join(near or map(str, cohort.cases.columns))}.",
        )
    return tuple(columns)


def _extra(ready: Prepared, claim: Claim, judged: OverallVerdict, resampling: Resampling) -> dict[str, Any]:
    """The parts of the summary that a claim adds."""
    named = {"model": claim.model, "aim": claim.aim, "claim_digest": claim.digest}
    extra: dict[str, Any] = {"verdict": {**judged.to_dict(), **named}, "claim": claim.to_dict()}
    extra["clinical"] = _clinical(ready, claim)
    source = {line.metric: line.value for line in claim.primary if line.value is not None}
    point = _operating_point(ready, source, resampling)
    if point is not None:
        extra["operating_point"] = point
    return extra


def _reading(read: ReadOptions) -> dict[str, str | int | float | bool | None]:
    """How the vendor's file was read, field by field: it may change the verdict without being part of the
    claim.
    """
    out: dict[str, str | int | float | bool | None] = {
        f"map {target}": column for target, column in sorted(read.column_map.items())
    }
    out |= {name: getattr(read, name) for name in ("scale", "unit", "combine", "on_invalid")}
    out |= {name: ", ".join(getattr(read, name)) for name in ("normalise_ids", "failed_status")}
    out |= {name: getattr(read.table, name) for name in ("encoding", "delimiter", "decimal")}
    return {name: value for name, value in out.items() if value not in (None, "")}


def _check_interval(line: ClaimedMetric, spec: MetricSpec, claim: Claim) -> None:
    """Refuse an interval that holds every possible value: with it no model could ever be found worse."""
    if line.lo is None or line.hi is None:
        return
    if line.lo <= spec.lower_bound and line.hi >= spec.upper_bound:
        raise UserError(
            f"the claimed interval of {spec.label}, {line.lo:g} to {line.hi:g}, holds every possible value, so it "
            "carries no information",
            where=str(claim.source),
            fix="Give the interval that was published, or n (and positives); or leave lo and hi out: the value is "
            "then taken as a constant.",
        )


def _own_uncertainty(
    value: ClaimedValue, spec: MetricSpec, *, margin: float, alpha: float
) -> tuple[str, ...]:
    """A warning where the claim is so uncertain that no number of cases here can confirm it."""
    limits, _ = claimed_limits(value, spec, alpha=alpha)
    if max(limits.hi - limits.value, limits.value - limits.lo) < margin:
        return ()
    return (
        f"The claim's own {100 * (1 - 2 * alpha):.4g} % interval, {limits.lo:.3f} to {limits.hi:.3f}, reaches further "
        f"than the margin of {margin:g}: with so vague a claim EQUIVALENT cannot be reached, and a drop is hard to "
        "show, whatever the number of cases here.",
    )


def _judge(ready: Prepared, claim: Claim, line: ClaimedMetric, resampling: Resampling) -> ClaimVerdict:
    """Judge one claimed number on this hospital's cases, with the claim's own uncertainty (ST-05)."""
    inside = np.ones(ready.evaluator.n_cases, dtype=bool)
    group = None if line.variable is None else f"{line.variable} = {line.group}"
    if line.missing or line.value is None or line.margin is None:
        return not_assessed(
            line.metric,
            f"the claim is not filled in ({claim.source.name} has no {' and no '.join(line.missing)})",
            margin=line.margin,
            claimed=line.value,
            alpha=claim.alpha,
            margin_source=line.margin_source or "not stated",
            aim=claim.aim,
            group=group,
        )
    if line.variable is not None:
        codes = group_codes(ready.scores.cases, line.variable, ready.scores.protocol.fairness)
        named = {name.casefold(): name for name in codes.names}
        found = line.group if line.group in codes.names else named.get(str(line.group).strip().casefold())
        if found is None:
            return not_assessed(
                line.metric,
                f"there is no group '{line.group}' of {line.variable} (groups: {', '.join(codes.names)})",
                margin=line.margin,
                claimed=line.value,
                alpha=claim.alpha,
                margin_source=line.margin_source,
                aim=claim.aim,
                group=group,
            )
        inside = codes.codes == codes.names.index(str(found))
    prevalence = claim.population.get("prevalence_of_source")
    value = ClaimedValue(value=line.value, lo=line.lo, hi=line.hi, n=line.n, positives=line.positives)
    margin = line.margin

    def judge(among: BoolArray) -> ClaimVerdict:
        chosen = inside & among
        evaluator: Evaluator = ready.evaluator if chosen.all() else ready.evaluator.subset(chosen)
        metric, standardised = line.metric, False
        if evaluator.spec(metric).moves_with_prevalence and prevalence is not None:
            made = _standardised(ready, evaluator, metric, float(prevalence))
            if made is not None:
                evaluator, metric, standardised = made[0], made[1], True
        difference = difference_from_claim(
            evaluator,
            ready.partition,
            metric,
            value,
            alpha=claim.alpha,
            resampling=resampling,
        )
        return assess_claim(
            difference,
            margin=margin,
            margin_source=line.margin_source,
            aim=claim.aim,
            standardised=standardised,
            group=group,
            warnings=_own_uncertainty(value, evaluator.spec(metric), margin=margin, alpha=claim.alpha),
        )

    everybody = np.ones(inside.size, dtype=bool)
    return with_answered_only(judge(everybody), judge, answered_cases(ready.scores), here=inside)


def _standardised(
    ready: Prepared, evaluator: Evaluator, metric: str, prevalence: float
) -> tuple[Evaluator, str] | None:
    """The metric at the source's prevalence (ST-06), where it has a standardised form."""
    base = binary_part(evaluator)
    if metric not in STANDARDISABLE or not hasattr(base, "label"):
        return None
    truth = np.asarray(base.label)
    worst = np.where(np.isnan(base.probability), np.where(truth > 0, 0.0, 1.0), base.probability)
    made = StandardisedEvaluator(
        truth,
        worst,
        base.cluster_of_case,
        n_clusters=base.n_clusters,
        prevalence=prevalence,
        threshold=base.threshold,
    )
    return made, standardised_name(metric)


def _truth_and_score(ready: Prepared) -> tuple[Any, Any] | None:
    column = ready.task.truth_column
    cases = ready.scores.cases
    if column is None or "probability" not in cases.columns:
        return None
    truth = cases[column].to_numpy(dtype=float)
    score = cases["probability"].to_numpy(dtype=float)
    return truth, np.where(np.isnan(score), np.where(truth > 0, 0.0, 1.0), score)


def _operating_point(
    ready: Prepared, source: Mapping[str, float], resampling: Resampling
) -> dict[str, Any] | None:
    """The claim's threshold here, and the threshold that would restore what was claimed (ST-12)."""
    pair = _truth_and_score(ready)
    threshold = getattr(binary_part(ready.evaluator), "threshold", None)
    if pair is None or threshold is None:
        return None
    truth, score = pair
    stream = None
    if resampling.resamples:
        how = resampling
        stream = WeightStream(
            ready.partition, key=how.key, seed=how.seed, resamples=how.resamples, by_class=True
        )
    point = operating_point(
        truth.astype(int),
        score,
        ready.partition,
        threshold=threshold,
        source_sensitivity=source.get("sensitivity"),
        source_specificity=source.get("specificity"),
        stream=stream,
    ).to_dict()
    called, positive = score >= threshold, truth > 0
    return {
        "threshold": threshold,
        "threshold_source": "fixed by the claim" if ready.options.threshold is not None else "the protocol's",
        "here": {"sensitivity": point["sensitivity"], "specificity": point["specificity"]},
        "reference": {
            name: {"value": source[name]} for name in ("sensitivity", "specificity") if name in source
        },
        "restoring": point["restored"],
        "confusion": {
            "tp": int((called & positive).sum()),
            "fp": int((called & ~positive).sum()),
            "fn": int((~called & positive).sum()),
            "tn": int((~called & ~positive).sum()),
        },
    }


def _clinical(ready: Prepared, claim: Claim) -> dict[str, Any]:
    """How outcomes were verified, and what the model would mean at the hospital's own prevalence."""
    part: dict[str, Any] = {
        "verification": claim.outcomes.get("verified_by") or "not stated in the claim",
        "only_biopsied": bool(claim.outcomes.get("only_biopsied", False)),
        "follow_up_months": claim.outcomes.get("follow_up_months"),
    }
    pair = _truth_and_score(ready)
    threshold = getattr(binary_part(ready.evaluator), "threshold", None)
    if pair is None or threshold is None:
        return part
    truth, score = pair
    given = claim.population.get("prevalence_of_use")
    prevalence = float(given) if given is not None else float((truth > 0).mean())
    if not 0.0 < prevalence < 1.0:
        part["undefined_reason"] = (
            "these cases are of one class, so that they do not show the prevalence; the claim's [population] "
            "can give prevalence_of_use"
        )
        return part
    sensitivity, specificity = rates_at(truth.astype(int), score, ready.partition, threshold)
    part |= at_prevalence(sensitivity, specificity, prevalence, patients=ready.partition.n_clusters).to_dict()
    part["prevalence_source"] = (
        "the claim's [population]" if given is not None else "these cases' own share, which may be enriched"
    )
    part["net_benefit"] = decision_curve(
        truth.astype(int), score, ready.partition, prevalence=prevalence
    ).to_dict()
    return part
