"""The participant flow, as steps that add up: the rows of the prediction file, then the cases of the cohort.

A step is {step, n, lost, why, of}. Steps of one `of` (predictions, cohort, patients...) are a chain: each n
is the n before it less what this step lost, and a row or a case is lost at exactly one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

Step = dict[str, Any]
_WHY = {
    "invalid": "{} with an invalid prediction",
    "not_analysable": "{} that could not be analysed",
    "undefined": "{} without a defined value",
}


def step(name: str, n: int, *, of: str, lost: int = 0, why: str = "") -> Step:
    """Make one step of a flow.

    Args:
        name: What is counted after this step.
        n: How many are left.
        of: The chain that the step belongs to: predictions, cohort, patients...
        lost: How many this step lost.
        why: Why they were lost; left out where none was.

    Returns:
        The step.

    Example:
        >>> step("cohort cases", 20, of="cohort")
        {'step': 'cohort cases', 'n': 20, 'lost': 0, 'why': '', 'of': 'cohort'}
    """
    return {"step": name, "n": int(n), "lost": int(lost), "why": why if lost else "", "of": of}


def participant_flow(
    predictions: Iterable[Mapping[str, Any]],
    *,
    cohort_cases: int,
    status: pd.Series,
    left_out: Sequence[tuple[str, int, str]] = (),
    what: str = "prediction",
) -> tuple[Step, ...]:
    """List the steps of the prediction file, then those of the cohort's cases.

    Args:
        predictions: The steps of the rows of the file.
        cohort_cases: How many cases the cohort has.
        status: The status of each case that is scored, in the words of a case table.
        left_out: Cases of the cohort that are not scored at all: the step's name, how many, and why.
        what: What a case has in the prediction file, such as a mask.

    Returns:
        The steps; the last one counts the cases with the status 'scored'.
    """
    steps: list[Step] = [{"of": "predictions", **one} for one in predictions]
    n = cohort_cases
    steps.append(step("cohort cases", n, of="cohort"))
    for name, lost, why in left_out:
        n -= lost
        steps.append(step(name, n, of="cohort", lost=lost, why=why))
    counts = status.astype("string").value_counts()
    missing = int(counts.get("missing", 0))
    n -= missing
    steps.append(
        step(
            f"cohort cases with a {what}", n, of="cohort", lost=missing,
            why="no row in the prediction file; the worst value, and counted",
        )
    )  # fmt: skip
    parts = [words.format(int(counts[name])) for name, words in _WHY.items() if counts.get(name)]
    lost = sum(int(counts.get(name, 0)) for name in _WHY)
    if lost:
        worst = "; the worst value, and counted" if lost > int(counts.get("undefined", 0)) else ""
        steps.append(
            step(
                "cohort cases with a usable score",
                n - lost,
                of="cohort",
                lost=lost,
                why=", ".join(parts) + worst,
            )
        )
    return tuple(steps)
