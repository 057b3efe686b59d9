"""The five verdicts (ST-05, ST-06).

A verdict compares the 1 - 2 alpha interval of (here - reference) with a margin D declared beforehand.
Verdicts describe the model, not the number: where lower is better (NLL, Hausdorff), the sign of the interval
is changed first, so that BELOW always means worse and ABOVE always means better.

Several primary claims must all pass; no correction is needed for that, since each one can only stop the
whole. The overall verdict: any BELOW makes BELOW; else any NOT ASSESSED makes NOT ASSESSED; else any claim
that has not passed makes INCONCLUSIVE; else all passed: ABOVE if every claim is, EQUIVALENT if every claim is
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
    """The five verdicts, and no others."""

    EQUIVALENT = "EQUIVALENT"
    BELOW = "BELOW"
    ABOVE = "ABOVE"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_ASSESSED = "NOT ASSESSED"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict for one interval and margin.

    Args:
        word: The verdict.
        non_inferior: Whether the interval lies above the lower margin.
        flips_at: The margin at which the verdict would change; None where it was not assessed. EQUIVALENT
            ends at margins of `flips_at` or less; BELOW and ABOVE end at `flips_at` or more; INCONCLUSIVE
            becomes EQUIVALENT above it.
        flips_to: The verdict beyond that margin; None likewise.
        non_inferior_from: Non-inferior at every margin above this; None likewise.
        worse_or_better_below: For INCONCLUSIVE, the margin under which it becomes BELOW or ABOVE; None where
            there is none.
        reason: Why it was not assessed; None where it was.
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
    """Judge one interval of (here - reference) against a margin (ST-05).

    Ends that touch the margin do not pass it.

    Args:
        lo: The lower end of the interval.
        hi: The upper end of the interval.
        margin: The largest difference that would not matter, above 0.
        higher_is_better: Whether a higher value is better.
        reason: Why it cannot be judged; None where it can.

    Returns:
        The verdict, and the margins at which it would change.

    Raises:
        UserError: If the margin is not a finite number above 0, or the lower end is above the upper end.

    Example:
        >>> judged = judge(-0.02, 0.03, 0.05)
        >>> str(judged.word), judged.flips_at
        ('EQUIVALENT', 0.03)
    """
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
        raise UserError(
            f"the interval {lo:g} to {hi:g} has its ends in the wrong order", fix="Give its lower end first."
        )
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
    """One claim, judged: a row of summary.json's `verdict.claims`.

    Args:
        metric: Name of the metric.
        claimed: The claimed value, or the reference's; None where there is none.
        here: The value here; None where it is undefined.
        difference: here - claimed; None where one is undefined.
        lo: Lower end of the 1 - 2 alpha interval; None where there is none.
        hi: Upper end of that interval; None where there is none.
        alpha: Level of each one-sided test.
        margin: The largest difference that would not matter; NaN where none was declared.
        margin_source: Who set the margin.
        word: The verdict.
        non_inferior: Whether the interval lies above the lower margin.
        aim: `equivalence` or `non-inferiority`.
        passes: Whether the claim reaches its aim.
        primary: Whether the claim counts for the overall verdict.
        method: How the interval was made.
        reference: What the reference is, in words.
        reason: Why it was not assessed; None where it was.
        smallest_detectable_drop: The smallest drop that these cases would have detected; None where it is not
            known or out of reach.
        smallest_provable_margin: The smallest margin that these cases could have proved; None likewise.
        flips_at: The margin at which the verdict would change; None where it was not assessed.
        flips_to: The verdict beyond that margin; None likewise.
        non_inferior_from: Non-inferior at every margin above this; None likewise.
        out_of_reach: Whether the margin is smaller than the interval's half-width, so that EQUIVALENT could
            not be said.
        power_sentence: Both power numbers in words.
        drop_out_of_reach: Whether not even the largest drop that the metric allows would have been detected.
        group: The group that the claim is about, in words; None for all cases.
        warnings: Full sentences about the comparison.
        answered_only: The claim without the cases that have no usable score; None where there are none.
    """

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

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `metric`, `claimed`, `here`, `difference`, `lo`, `hi`, `alpha`, `margin`,
            `margin_source`, `word`, `non_inferior`, `aim`, `passes`, `primary`, `method`, `reference`,
            `smallest_detectable_drop`, `smallest_provable_margin`, `flips_at`, `flips_to`, `non_inferior_from`,
            `out_of_reach`, `power`, `drop_out_of_reach` and `warnings`; where they apply, also `reason`,
            `group` and `answered_only`.
        """
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
    """Judge a claim, with the smallest detectable drop and the smallest provable margin (ST-07).

    A metric that moves with prevalence is NOT ASSESSED unless it was `standardised` (ST-06).

    Args:
        difference: The difference with its interval.
        margin: The largest difference that would not matter, above 0.
        margin_source: Where the margin comes from.
        aim: `equivalence` or `non-inferiority`.
        primary: Whether the claim counts for the overall verdict.
        standardised: Whether both sides were brought to one prevalence.
        group: The group that the claim is about; None for all cases.
        warnings: Further warnings.

    Returns:
        The judged claim.

    Raises:
        UserError: If the aim is unknown, or the margin is not a finite number above 0.
    """
    if aim not in ("equivalence", "non-inferiority"):
        raise unknown_name("aim", aim, ["equivalence", "non-inferiority"])
    reason = difference.undefined_reason
    if reason is None and difference.moves_with_prevalence and not (standardised or difference.standardised):
        reason = (
            f"{difference.metric} moves with prevalence: a difference may be the case mix and not the model. "
            "Give the source's prevalence to standardise it."
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
    """Make the verdict of a claim that cannot be judged: not filled in, the metric is not there, the group is
    too small.

    Args:
        metric: The name of the metric.
        reason: Why it cannot be judged.
        margin: The margin, or None.
        claimed: The claimed value, or None.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        margin_source: Where the margin comes from.
        aim: `equivalence` or `non-inferiority`.
        group: The group that the claim is about; None for all cases.

    Returns:
        The claim with the verdict NOT ASSESSED.
    """
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
    """The verdict over all claims: the `verdict` entry of summary.json.

    Args:
        word: The verdict.
        exit_code: Exit code of a command with this verdict.
        claims: The judged claims.
        non_inferior: Whether every primary claim is non-inferior.
        reason: What decided the verdict, in words; None where it needs none.
        answered_only: The verdict without the cases that have no usable score; None where every case has one.
    """

    word: Verdict
    exit_code: int
    claims: tuple[ClaimVerdict, ...]
    non_inferior: bool
    reason: str | None = None
    answered_only: OverallVerdict | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `word`, `exit_code`, `non_inferior` and `claims`; where they apply, also `reason`
            and `answered_only`.
        """
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
    """Combine the verdicts of all claims (ST-05).

    All primary claims must pass; the rules stand at the head of this module.

    Args:
        claims: The judged claims.

    Returns:
        The overall verdict.

    Example:
        >>> made = overall([not_assessed("auroc", "the claim is not filled in", margin=None)])
        >>> str(made.word), made.reason
        ('NOT ASSESSED', 'auroc: the claim is not filled in')
    """
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
