"""The five words, and nothing else (ST-05, ST-06).

A verdict compares the 1 - 2 alpha interval of (here - reference) with a margin D declared beforehand.
Words speak of the model, not of the number: where lower is better (NLL, Hausdorff), the interval is turned
round first, so that BELOW always means worse and ABOVE always means better.

Several primary claims must all pass; no correction is needed for that, since each one can only stop the
whole. The overall word: any BELOW makes BELOW; else any NOT ASSESSED makes NOT ASSESSED; else any claim that
has not passed makes INCONCLUSIVE; else all passed: ABOVE if every claim is, EQUIVALENT if every claim is
EQUIVALENT or ABOVE, and otherwise (non-inferior as claimed, though not proved equivalent) INCONCLUSIVE with
exit code 0. Claims that are not primary (subgroups the claim does not name) are descriptive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from elsewhere.errors import (
    EXIT_BELOW,
    EXIT_INCONCLUSIVE,
    EXIT_NOT_ASSESSED,
    EXIT_OK,
    UserError,
    unknown_name,
)
from elsewhere.statistics.differences import Difference
from elsewhere.statistics.power import power_numbers

if TYPE_CHECKING:
    from elsewhere.statistics.answered import AnsweredOnly

ClaimAim = Literal["equivalence", "non-inferiority"]
POWER = 0.8
"""The power at which the smallest detectable drop and the smallest provable margin are given."""


class Verdict(StrEnum):
    """Exactly five (design, 'Words')."""

    EQUIVALENT = "EQUIVALENT"
    BELOW = "BELOW"
    ABOVE = "ABOVE"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_ASSESSED = "NOT ASSESSED"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The word for one interval and margin.

    `flips_at` is the margin at which the verdict would change, and `flips_to` the word beyond it: EQUIVALENT
    ends at margins of `flips_at` or less; BELOW and ABOVE end at `flips_at` or more; INCONCLUSIVE becomes
    EQUIVALENT above it (and, where `worse_or_better_below` is set, BELOW or ABOVE under that margin).
    `non_inferior_from`: non-inferior at every margin above it.
    """

    word: Verdict
    non_inferior: bool
    flips_at: float | None
    flips_to: Verdict | None
    non_inferior_from: float | None
    worse_or_better_below: float | None = None
    reason: str | None = None


def judge(
    lo: float,
    hi: float,
    margin: float,
    *,
    higher_is_better: bool = True,
    reason: str | None = None,
) -> Judgement:
    """ST-05 for one interval of (here - reference). Ends that touch the margin do not pass it."""
    if reason is None and not (math.isfinite(margin) and margin > 0):
        raise UserError(f"the margin is {margin!r}", fix="Declare a finite margin above 0, such as 0.05.")
    if reason is None and (math.isnan(lo) or math.isnan(hi)):
        reason = "there is no interval"
    if reason is not None:
        return Judgement(
            word=Verdict.NOT_ASSESSED,
            non_inferior=False,
            flips_at=None,
            flips_to=None,
            non_inferior_from=None,
            reason=reason,
        )
    if lo > hi:
        raise UserError(f"the interval {lo:g} to {hi:g} stands on its head", fix="Give its lower end first.")
    worst, best = (lo, hi) if higher_is_better else (-hi, -lo)
    outer, inner = max(abs(worst), abs(best)), min(abs(worst), abs(best))
    one_sided = worst > 0 or best < 0
    side = Verdict.ABOVE if worst > 0 else Verdict.BELOW
    if -margin < worst and best < margin:
        word, flips_at = Verdict.EQUIVALENT, outer
        flips_to = side if one_sided and inner == outer else Verdict.INCONCLUSIVE
    elif best < -margin or worst > margin:
        word, flips_at, flips_to = side, inner, Verdict.INCONCLUSIVE
    else:
        word, flips_at, flips_to = Verdict.INCONCLUSIVE, outer, Verdict.EQUIVALENT
    return Judgement(
        word=word,
        non_inferior=worst > -margin,
        flips_at=flips_at,
        flips_to=flips_to,
        non_inferior_from=max(0.0, -worst),
        worse_or_better_below=inner if one_sided and word is Verdict.INCONCLUSIVE else None,
    )


@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """One claim, judged: a row of summary.json's `verdict.claims`."""

    metric: str
    claimed: float | None
    here: float | None
    difference: float | None
    lo: float | None
    hi: float | None
    alpha: float
    margin: float
    margin_source: str
    word: Verdict
    non_inferior: bool
    aim: str
    passes: bool
    primary: bool
    method: str
    reference: str
    reason: str | None
    smallest_detectable_drop: float | None
    smallest_provable_margin: float | None
    flips_at: float | None
    flips_to: Verdict | None
    non_inferior_from: float | None
    out_of_reach: bool
    power_sentence: str
    drop_out_of_reach: bool = False
    group: str | None = None
    warnings: tuple[str, ...] = ()
    answered_only: AnsweredOnly | None = None
    """The claim without the cases that have no usable score; None where there are none."""

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "metric": self.metric,
            "claimed": self.claimed,
            "here": self.here,
            "difference": self.difference,
            "lo": self.lo,
            "hi": self.hi,
            "alpha": self.alpha,
            "margin": _number(self.margin),
            "margin_source": self.margin_source,
            "word": str(self.word),
            "non_inferior": self.non_inferior,
            "aim": self.aim,
            "passes": self.passes,
            "primary": self.primary,
            "method": self.method,
            "reference": self.reference,
            "smallest_detectable_drop": self.smallest_detectable_drop,
            "smallest_provable_margin": self.smallest_provable_margin,
            "flips_at": self.flips_at,
            "flips_to": str(self.flips_to) if self.flips_to else None,
            "non_inferior_from": self.non_inferior_from,
            "out_of_reach": self.out_of_reach,
            "power": self.power_sentence,
            "drop_out_of_reach": self.drop_out_of_reach,
            "warnings": list(self.warnings),
        }
        if self.reason:
            out["reason"] = self.reason
        if self.group:
            out["group"] = self.group
        if self.answered_only is not None:
            out["answered_only"] = self.answered_only.to_dict()
        return out


def assess_claim(
    difference: Difference,
    *,
    margin: float,
    margin_source: str = "declared beforehand",
    aim: ClaimAim = "equivalence",
    primary: bool = True,
    standardised: bool = False,
    group: str | None = None,
    warnings: tuple[str, ...] = (),
) -> ClaimVerdict:
    """A difference and its margin to a judged claim, with both power numbers of ST-07.

    A metric that moves with prevalence is NOT ASSESSED unless it was `standardised` (ST-06).
    """
    if aim not in ("equivalence", "non-inferiority"):
        raise unknown_name("aim", aim, ["equivalence", "non-inferiority"])
    reason = difference.undefined_reason
    if reason is None and difference.moves_with_prevalence and not (standardised or difference.standardised):
        reason = (
            f"{difference.metric} moves with prevalence: a difference may be the case mix and not the model. "
            "Give the source's prevalence to standardise it (ST-06)."
        )
    judged = judge(
        difference.lo, difference.hi, margin, higher_is_better=difference.higher_is_better, reason=reason
    )
    numbers = power_numbers(
        difference.se,
        lo=difference.lo,
        hi=difference.hi,
        margin=margin,
        alpha=difference.alpha,
        power=POWER,
        comparison=difference.comparison,
    )
    passes = judged.word in (Verdict.EQUIVALENT, Verdict.ABOVE) or (
        aim == "non-inferiority" and judged.non_inferior
    )
    return ClaimVerdict(
        metric=difference.metric,
        claimed=_number(difference.reference),
        here=_number(difference.here),
        difference=_number(difference.difference),
        lo=_number(difference.lo),
        hi=_number(difference.hi),
        alpha=difference.alpha,
        margin=margin,
        margin_source=margin_source,
        word=judged.word,
        non_inferior=judged.non_inferior,
        aim=aim,
        passes=passes,
        primary=primary,
        method=difference.method,
        reference=difference.reference_source,
        reason=judged.reason,
        smallest_detectable_drop=numbers.smallest_detectable_drop,
        smallest_provable_margin=numbers.smallest_provable_margin,
        flips_at=judged.flips_at,
        flips_to=judged.flips_to,
        non_inferior_from=judged.non_inferior_from,
        out_of_reach=numbers.out_of_reach,
        power_sentence=numbers.sentence,
        drop_out_of_reach=numbers.drop_out_of_reach,
        group=group,
        warnings=tuple(dict.fromkeys((*difference.warnings, *warnings))),
    )


def not_assessed(
    metric: str,
    reason: str,
    *,
    margin: float | None,
    claimed: float | None = None,
    alpha: float = 0.05,
    margin_source: str = "declared beforehand",
    aim: ClaimAim = "equivalence",
    group: str | None = None,
) -> ClaimVerdict:
    """A claim that cannot be judged at all (not filled in, the metric is not there, the group is too small)."""
    nan = math.nan
    difference = Difference(
        metric=metric,
        here=nan,
        reference=nan if claimed is None else claimed,
        difference=nan,
        lo=nan,
        hi=nan,
        se=nan,
        alpha=alpha,
        method="none",
        reference_source="claimed",
        undefined_reason=reason,
    )
    return assess_claim(
        difference,
        margin=nan if margin is None else margin,
        margin_source=margin_source,
        aim=aim,
        group=group,
    )


@dataclass(frozen=True, kw_only=True)
class OverallVerdict:
    """summary.json's `verdict`."""

    word: Verdict
    exit_code: int
    claims: tuple[ClaimVerdict, ...]
    non_inferior: bool
    reason: str | None = None
    answered_only: OverallVerdict | None = None
    """The verdict without the cases that have no usable score; None where every case has one."""

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "word": str(self.word),
            "exit_code": self.exit_code,
            "non_inferior": self.non_inferior,
            "claims": [claim.to_dict() for claim in self.claims],
        }
        if self.reason:
            out["reason"] = self.reason
        if self.answered_only is not None:
            again = self.answered_only
            out["answered_only"] = {
                "word": str(again.word),
                "non_inferior": again.non_inferior,
                "differs": (again.word, again.exit_code) != (self.word, self.exit_code),
            } | ({"reason": again.reason} if again.reason else {})
        return out


def overall(claims: Iterable[ClaimVerdict]) -> OverallVerdict:
    """All primary claims must pass (ST-05); the rules stand at the head of this module."""
    every = tuple(claims)
    made = _overall(every)
    if not any(claim.answered_only for claim in every):
        return made
    again = [
        replace(claim.answered_only.judged, primary=claim.primary) if claim.answered_only else claim
        for claim in every
    ]
    return replace(made, answered_only=_overall(tuple(again)))


def _overall(every: tuple[ClaimVerdict, ...]) -> OverallVerdict:
    primary = [claim for claim in every if claim.primary]

    def result(word: Verdict, code: int, reason: str | None = None) -> OverallVerdict:
        fine = bool(primary) and all(claim.non_inferior for claim in primary)
        return OverallVerdict(word=word, exit_code=code, claims=every, non_inferior=fine, reason=reason)

    if not primary:
        return result(Verdict.NOT_ASSESSED, EXIT_NOT_ASSESSED, "no primary claim was made")
    below = [claim.metric for claim in primary if claim.word is Verdict.BELOW]
    if below:
        return result(Verdict.BELOW, EXIT_BELOW, f"below the claim: {', '.join(below)}")
    unknown = [claim for claim in primary if claim.word is Verdict.NOT_ASSESSED]
    if unknown:
        text = "; ".join(f"{claim.metric}: {claim.reason}" for claim in unknown)
        return result(Verdict.NOT_ASSESSED, EXIT_NOT_ASSESSED, text)
    open_claims = [claim.metric for claim in primary if not claim.passes]
    if open_claims:
        return result(Verdict.INCONCLUSIVE, EXIT_INCONCLUSIVE, f"not settled: {', '.join(open_claims)}")
    words = {claim.word for claim in primary}
    if words == {Verdict.ABOVE}:
        return result(Verdict.ABOVE, EXIT_OK)
    if words <= {Verdict.ABOVE, Verdict.EQUIVALENT}:
        return result(Verdict.EQUIVALENT, EXIT_OK)
    return result(Verdict.INCONCLUSIVE, EXIT_OK, "non-inferior as claimed; equivalence is not proved")


def _number(x: float) -> float | None:
    return None if math.isnan(x) else float(x)
