"""The same claim without the cases that have no usable score, in addition to the claim itself (ST-14).

A missing score counts as the worst value. That is right for a model that does not answer, but a lost file
looks the same. So every claim that rests on such cases is judged a second time, on the answered cases alone,
and both verdicts are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.verdict import ClaimVerdict, not_assessed

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class AnsweredOnly:
    """A claim judged on the answered cases alone, with how many cases that leaves out.

    Args:
        judged: The claim on the answered cases.
        cases: Number of cases of here, answered or not.
        without_score: How many of them have no usable score.
        reference_cases: Number of cases of the reference; 0 where the reference is a claimed number.
        reference_without_score: How many of them have no usable score.
    """

    judged: ClaimVerdict
    cases: int
    without_score: int
    reference_cases: int = 0
    reference_without_score: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `here`, `claimed`, `difference`, `lo`, `hi`, `method`, `word`, `non_inferior` and
            `passes` of the claim judged on the answered cases, and `cases`, `without_score`, `reference_cases`
            and `reference_without_score`; where there is one, also `reason`.
        """
        full = self.judged.to_dict()
        kept = ("here", "claimed", "difference", "lo", "hi", "method", "word", "non_inferior", "passes")
        out = {name: full[name] for name in kept} | {
            "cases": self.cases,
            "without_score": self.without_score,
            "reference_cases": self.reference_cases,
            "reference_without_score": self.reference_without_score,
        }
        return out | ({"reason": full["reason"]} if "reason" in full else {})


def with_answered_only(
    judged: ClaimVerdict,
    judge: Callable[[BoolArray], ClaimVerdict],
    answered: BoolArray,
    *,
    here: BoolArray,
    reference: BoolArray | None = None,
) -> ClaimVerdict:
    """Add the same claim, judged on the answered cases alone, to a judged claim (ST-14).

    Args:
        judged: The claim on all cases, where a missing score counts as the worst value.
        judge: Judges the claim on the cases of a mask.
        answered: The cases with a usable score.
        here: The cases that the claim is about.
        reference: The cases they are compared with, or None for a claimed number.

    Returns:
        The claim with `answered_only`; `judged` itself where every case is answered.
    """
    other = np.zeros_like(here) if reference is None else reference
    lost, lost_there = int((here & ~answered).sum()), int((other & ~answered).sum())
    if lost + lost_there == 0:
        return judged
    empty = not (here & answered).any() or (other.any() and not (other & answered).any())
    again = (
        not_assessed(
            judged.metric,
            "no case has a usable score",
            margin=judged.margin,
            alpha=judged.alpha,
            margin_source=judged.margin_source,
        )
        if empty
        else judge(answered)
    )
    return replace(
        judged,
        answered_only=AnsweredOnly(
            judged=again,
            cases=int(here.sum()),
            without_score=lost,
            reference_cases=int(other.sum()),
            reference_without_score=lost_there,
        ),
    )
