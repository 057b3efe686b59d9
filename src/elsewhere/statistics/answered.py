"""The same claim without the cases that have no usable score, beside the claim itself (ST-14).

A missing score counts as the worst value, which is right for a model that does not answer and can also be what a
lost file does to it. So every claim that rests on such cases is judged a second time, on the answered cases alone,
and the reader is told both verdicts.
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
    """`judged` is the claim on the answered cases; `cases` of here, `without_score` of them unanswered.

    `reference_cases` is 0 where the reference is a claimed number.
    """

    judged: ClaimVerdict
    cases: int
    without_score: int
    reference_cases: int = 0
    reference_without_score: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json."""
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
    """`judged`, with the claim judged on the answered cases beside it; itself where every case is answered.

    Args:
        judged: The claim on all cases, a missing score being the worst value.
        judge: Judges the claim on some of the cases.
        answered: The cases with a usable score.
        here: The cases that the claim is about.
        reference: The cases it is compared with, or None for a claimed number.
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
