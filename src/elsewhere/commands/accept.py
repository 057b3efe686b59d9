"""`accept`: does the vendor's claim hold here? What was claimed is recorded when the verdict is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.commands.advice import fit_advice
from elsewhere.commands.analyse import analyse
from elsewhere.commands.claim import Claim, ClaimedMetric, read_claim
from elsewhere.commands.claim_lock import ShownVerdict, check_lock, locked, look_back, utc_now
from elsewhere.commands.score import as_cohort, as_predictions, check_choices, choose_protocol, facts_of
from elsewhere.commands.where import choose_part
from elsewhere.errors import EXIT_CLAIM_CHANGED, UserError, check_seed, near_matches
from elsewhere.predictions import ReadOptions
from elsewhere.results import Result
from elsewhere.scoring.groups import group_codes
from elsewhere.scoring.prepared import BINARY, Prepared, answered_cases, binary_part, prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.answered import BoolArray, with_answered_only
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.claimed import ClaimedValue, claimed_limits
from elsewhere.statistics.differences import difference_from_claim
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import ClaimVerdict, Verdict, assess_claim, not_assessed, overall
from elsewhere.tables import TableOptions, check_out
from elsewhere.tables.identifiers import remembers_ids


@remembers_ids
def accept(
    cohort: str | Path,
    predictions: str | Path,
    *,
    claim: str | Path | Claim,
    out: str | Path | None = None,
    replace: bool = False,
    resamples: int | None = None,
    seed: int = 42,
    column_map: Mapping[str, str] | None = None,
    scale: str | None = None,
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions | None = None,
) -> Result:
    """Judge a claim on the hospital's own cases; options given here override the claim's own.

    What was claimed is written to `CLAIM.lock` when the verdict is there. Where another claim was judged before on
    the same cohort and predictions, the result says what changed, and its exit code is 6.

    An earlier result in `out` is replaced only with `replace`, and files that Elsewhere did not write stay.
    """
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (cohort, predictions, claim.source if isinstance(claim, Claim) else claim)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    promised = claim if isinstance(claim, Claim) else read_claim(Path(claim))
    check_lock(promised.source)
    task = tasks.get(promised.task)
    how = promised.predictions
    written = table or TableOptions(
        encoding=how.get("encoding"), delimiter=how.get("delimiter"), decimal=how.get("decimal", ".")
    )
    part = choose_part(as_cohort(cohort, written), promised.where)
    who = part.cohort
    rules = choose_protocol(task, promised.protocol, who.reader)
    known = {spec.name: spec for spec in task.metrics(rules)}
    for line in (*promised.primary, *promised.subgroup_claims):
        if line.metric not in known:
            near = near_matches(line.metric, known)
            raise UserError(
                f"the claim is about '{line.metric}', which {promised.task} does not have",
                where=str(promised.source),
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(known))}.",
            )
        _check_interval(line, known[line.metric], promised)
    ids = tuple(normalise_ids) or tuple(how.get("normalise_ids", ()))
    read = ReadOptions(
        column_map={**how.get("map", {}), **(column_map or {})},
        scale=scale or how.get("scale", "0-1"),
        unit=how.get("unit", "case"),
        combine=how.get("combine", "max"),
        normalise_ids=ids,
        on_invalid="worst" if on_invalid == "worst" else "error",
        failed_status=tuple(failed_status) or tuple(how.get("failed_status", ())),
        table=written,
    )
    said = part.predictions(as_predictions(promised.task, Path(predictions), read, part.whole))
    columns = [
        v
        for v in dict.fromkeys([*promised.describe, *(str(c.variable) for c in promised.subgroup_claims)])
        if v
    ]
    unknown = [name for name in columns if name not in who.cases.columns]
    if unknown:
        near = near_matches(unknown[0], map(str, who.cases.columns))
        raise UserError(
            f"the cohort has no column '{unknown[0]}' that the claim names",
            where=str(promised.source),
            fix=f"It has: {', '.join(near or map(str, who.cases.columns))}.",
        )
    options = ScoreOptions(
        threshold=promised.threshold, on_invalid=on_invalid, normalise_ids=ids, group_by=tuple(columns)
    )
    scores = part.told(task.score(who, said, rules, options))
    ready = prepare(scores, options)
    count = rules.interval.resamples if resamples is None else resamples
    settings: dict[str, Any] = {"key": who.hash, "seed": seed, "resamples": count}
    claims = [_judge(ready, promised, line, primary=True, **settings) for line in promised.primary]
    claims += [_judge(ready, promised, line, primary=True, **settings) for line in promised.subgroup_claims]
    judged = overall(claims)
    verdict = {
        **judged.to_dict(),
        "model": promised.model,
        "aim": promised.aim,
        "claim_digest": promised.digest,
    }
    shown = ShownVerdict(
        time=utc_now(),
        claim_file=promised.source.name,
        digest=promised.digest,
        cohort=part.whole.hash,
        predictions=said.digest,
        verdict=str(judged.word),
        judged=any(claim.word is not Verdict.NOT_ASSESSED for claim in claims),
        claimed=promised.claimed(),
        described=promised.described(),
        reading=_reading(read) | {"resamples": count, "seed": seed},
    )
    history = look_back(promised.source, shown, out)
    extra: dict[str, Any] = {
        "verdict": verdict,
        "claim": promised.to_dict(),
        "claim_lock": history.to_dict(),
    }
    extra["clinical"] = _clinical(ready, promised)
    source = {line.metric: line.value for line in promised.primary if line.value is not None}
    point = _operating_point(ready, source, **settings)
    if point is not None:
        extra["operating_point"] = point
    result = analyse(
        scores,
        facts_of(who, predictions_digest=said.digest, command="accept", part=part),
        options=options,
        resamples=resamples,
        seed=seed,
        extra=extra,
    )
    warnings = (fit_advice(warning, "accept") for warning in result.summary["warnings"])
    result.summary["warnings"] = list(filter(None, warnings))
    result.summary["warnings"][:0] = history.sentences()
    if promised.outcomes.get("only_biopsied"):
        result.summary["warnings"].append(
            "Only biopsied cases have outcomes: missed cancers without biopsy are absent, so sensitivity is flattered (verification bias)."
        )
    if history.changed:
        result = dataclasses.replace(result, exit_code=EXIT_CLAIM_CHANGED)
    with locked(promised.source, shown):
        return result if out is None else result.save(out, replace=replace, inputs=inputs)


def _reading(read: ReadOptions) -> dict[str, str | int | float | bool | None]:
    """How the vendor's file was read, field by field: it may change the verdict, and is no part of the claim."""
    out: dict[str, str | int | float | bool | None] = {
        f"map {target}": column for target, column in sorted(read.column_map.items())
    }
    out |= {name: getattr(read, name) for name in ("scale", "unit", "combine", "on_invalid")}
    out |= {name: ", ".join(getattr(read, name)) for name in ("normalise_ids", "failed_status")}
    out |= {name: getattr(read.table, name) for name in ("encoding", "delimiter", "decimal")}
    return {name: value for name, value in out.items() if value not in (None, "")}


def _check_interval(line: ClaimedMetric, spec: MetricSpec, claim: Claim) -> None:
    """An interval of every possible value is no information: with it no model could ever be found worse."""
    if line.lo is None or line.hi is None:
        return
    if line.lo <= spec.lower_bound and line.hi >= spec.upper_bound:
        raise UserError(
            f"the claimed interval of {spec.label}, {line.lo:g} to {line.hi:g}, holds every possible value: it says "
            "nothing",
            where=str(claim.source),
            fix="Give the interval that was published, or n (and positives); or leave lo and hi out: the value is "
            "then taken as a constant.",
        )


def _own_uncertainty(
    value: ClaimedValue, spec: MetricSpec, *, margin: float, alpha: float
) -> tuple[str, ...]:
    """A warning where the claim is so unsure of itself that no number of cases here can confirm it."""
    limits, _ = claimed_limits(value, spec, alpha=alpha)
    if max(limits.hi - limits.value, limits.value - limits.lo) < margin:
        return ()
    return (
        f"The claim's own {100 * (1 - 2 * alpha):.4g} % interval, {limits.lo:.3f} to {limits.hi:.3f}, reaches further "
        f"than the margin of {margin:g}: with so vague a claim EQUIVALENT cannot be reached, and a drop is hard to "
        "show, whatever the number of cases here.",
    )


def _judge(
    ready: Prepared, claim: Claim, line: ClaimedMetric, *, primary: bool, key: str, seed: int, resamples: int
) -> ClaimVerdict:
    """One claimed number against this hospital: its uncertainty is the claim's own where it brings any (ST-05)."""
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
            resampling=Resampling(key=key, seed=seed, resamples=resamples),
        )
        return assess_claim(
            difference,
            margin=margin,
            margin_source=line.margin_source,
            aim=claim.aim,
            primary=primary,
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
    from elsewhere.statistics.prevalence import STANDARDISABLE, StandardisedEvaluator, standardised_name

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
    column = BINARY.get(ready.scores.task)
    cases = ready.scores.cases
    if column is None or "probability" not in cases.columns:
        return None
    truth = cases[column].to_numpy(dtype=float)
    score = cases["probability"].to_numpy(dtype=float)
    return truth, np.where(np.isnan(score), np.where(truth > 0, 0.0, 1.0), score)


def _operating_point(
    ready: Prepared, source: Mapping[str, float], *, key: str, seed: int, resamples: int
) -> dict[str, Any] | None:
    """The claim's threshold here, and the threshold that would restore what was claimed (ST-12)."""
    from elsewhere.statistics.operating_point import operating_point

    pair = _truth_and_score(ready)
    threshold = getattr(binary_part(ready.evaluator), "threshold", None)
    if pair is None or threshold is None:
        return None
    truth, score = pair
    stream = (
        WeightStream(ready.partition, key=key, seed=seed, resamples=resamples, by_class=True)
        if resamples
        else None
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
    from elsewhere.statistics.benefit import at_prevalence, decision_curve
    from elsewhere.statistics.operating_point import rates_at

    truth, score = pair
    given = claim.population.get("prevalence_of_use")
    prevalence = float(given) if given is not None else float((truth > 0).mean())
    if not 0.0 < prevalence < 1.0:
        part["undefined_reason"] = (
            "these cases are of one class, so that they say nothing of the prevalence; the claim's [population] "
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
