"""From a vendor's scale to a probability. The user declares the scale; it is never guessed.

| `--scale` | what it means |
|---|---|
| `0-1` | a probability |
| `0-100`, `0-10`, `MIN-MAX` | linear from MIN (0) to MAX (1); `1-0` reverses a score |
| `logit` | log odds; 0 is one half |
| `birads` | BI-RADS categories, by the table below |

BI-RADS categories are ranks. Each is replaced by the middle of the range of malignancy that the BI-RADS atlas
gives it, so that the order is right and a threshold can be named. It is not an estimated probability, so that
calibration (ECE, NLL, Brier) is undefined for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

BIRADS_PROBABILITY = {
    "1": 0.0,
    "2": 0.005,
    "3": 0.01,
    "4A": 0.06,
    "4": 0.30,
    "4B": 0.30,
    "4C": 0.725,
    "5": 0.975,
    "6": 1.0,
}
"""Middle of the atlas's range: 3 (0-2 %), 4A (2-10 %), 4B (10-50 %), 4C (50-95 %), 5 (95-100 %).

1 and 2 both mean 'essentially 0 %' and differ only so that their order is kept; 4 without a letter is
read as 4B. 0 is an incomplete examination: it counts as not analysed, whatever the picture shows.
"""
BIRADS_BIOPSY_THRESHOLD = 0.02
"""Lies between 3 and 4A: 'category 4 or more is positive' is `--threshold 0.02`."""
ORDINAL_REASON = "BI-RADS categories are ranks, not probabilities: calibration is not defined for them"

_BIRADS = re.compile(
    r"^(?:(?:acr|bi[\s_-]*rads|category|cat\.?|assessment)[\s:._-]*)*([0-6])(?:\.0+)?[\s._-]*([abc]?)$",
    re.IGNORECASE,
)
_RANGE = re.compile(r"^(-?\d+(?:\.\d+)?)\s*(?:-|\.\.|to)\s*(-?\d+(?:\.\d+)?)$")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A vendor's scale of scores.

    Args:
        name: What the user called it, in lower case.
        kind: `linear`, `logit` or `birads`.
        low: Of a linear scale, the score of probability 0.
        high: Of a linear scale, the score of probability 1; below `low` for a score that falls with
            suspicion.
    """

    name: str
    kind: Literal["linear", "logit", "birads"]
    low: float = 0.0
    high: float = 1.0

    @property
    def ordinal(self) -> bool:
        """Whether its values are ranks, so that calibration is not defined."""
        return self.kind == "birads"


def parse_scale(text: str) -> Scale:
    """Read the name of a scale.

    Args:
        text: `0-1`, `0-100`, `-5-5` (any two different numbers), `logit` or `birads`.

    Returns:
        The scale.

    Raises:
        UserError: It is none of these; the message lists them.

    Example:
        >>> parse_scale("1-5").high, parse_scale("BI-RADS").kind
        (5.0, 'birads')
    """
    name = text.strip().casefold()
    if name in {"logit", "logits", "log-odds"}:
        return Scale(name="logit", kind="logit")
    if name in {"birads", "bi-rads"}:
        return Scale(name="birads", kind="birads")
    found = _RANGE.match(name)
    if found and float(found[1]) != float(found[2]):
        return Scale(name=name, kind="linear", low=float(found[1]), high=float(found[2]))
    raise UserError(
        f"unknown scale '{text}'",
        fix="Known: 0-1, 0-100, 0-10, MIN-MAX (two different numbers, such as 1-5), logit, birads.",
    )


def to_probability(values: FloatArray, scale: Scale) -> tuple[FloatArray, BoolArray]:
    """Bring scores of a linear or logit scale to probabilities.

    Args:
        values: (n,) the scores.
        scale: Their scale.

    Returns:
        (n,) the probabilities, NaN where a score is not finite or lies outside the scale; and (n,) whether it
        does.

    Example:
        >>> probability, outside = to_probability(np.array([50.0, 120.0]), parse_scale("0-100"))
        >>> probability.tolist(), outside.tolist()
        ([0.5, nan], [False, True])
    """
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    if scale.kind == "logit":
        with np.errstate(over="ignore"):
            return np.where(finite, 1.0 / (1.0 + np.exp(-values)), np.nan), ~finite
    low, high = min(scale.low, scale.high), max(scale.low, scale.high)
    with np.errstate(invalid="ignore"):
        outside = ~finite | (values < low) | (values > high)
        if scale.low == 0.0 and scale.high == 1.0:
            return np.where(outside, np.nan, values), outside
        scaled = np.clip((values - scale.low) / (scale.high - scale.low), 0.0, 1.0)
    return np.where(outside, np.nan, scaled), outside


def birads_probability(cells: pd.Series) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Bring BI-RADS categories to the middle of their range of malignancy.

    Args:
        cells: Such as `4b`, `BI-RADS 4B`, `5` or `0`.

    Returns:
        Three arrays with one entry per cell: the probability (NaN where there is none), whether the category
        is 0 (incomplete), and whether the cell is no category.

    Example:
        >>> probability, incomplete, unreadable = birads_probability(pd.Series(["BI-RADS 4B", "0", "x"]))
        >>> probability.tolist(), incomplete.tolist(), unreadable.tolist()
        ([0.3, nan, nan], [False, True, False], [False, False, True])
    """
    text = cells.astype("string").fillna("").str.strip()
    value: dict[str, float] = {}
    kind: dict[str, int] = {}
    for cell in text.unique():
        found = _BIRADS.match(str(cell))
        category = (found[1] + found[2].upper()) if found else ""
        kind[str(cell)] = 1 if category == "0" else 0 if category in BIRADS_PROBABILITY else 2
        value[str(cell)] = BIRADS_PROBABILITY.get(category, np.nan)
    codes = text.map(kind).to_numpy(dtype=np.int64)
    probability: FloatArray = np.asarray(text.map(value), dtype=np.float64)
    return probability, codes == 1, codes == 2


def fitting_scale(values: npt.ArrayLike) -> str | None:
    """Suggest the scale that some scores would fit, for an error message.

    Args:
        values: The scores; those that are not finite are ignored.

    Returns:
        `0-1`, `0-10`, `0-100` or `logit`; None where nothing fits.

    Example:
        >>> fitting_scale([12.0, 80.0]), fitting_scale([-3.0, 2.0])
        ('0-100', 'logit')
    """
    given = np.asarray(values, dtype=np.float64)
    given = given[np.isfinite(given)]
    if given.size == 0:
        return None
    low, high = float(given.min()), float(given.max())
    if low < 0:
        return "logit" if high > 0 or low < -1 else None
    for top, name in ((1.0, "0-1"), (10.0, "0-10"), (100.0, "0-100")):
        if high <= top:
            return name
    return None


def doubt_scale(values: npt.ArrayLike, scale: Scale) -> str | None:
    """Write a warning where every score fits the declared scale but hardly uses it.

    Args:
        values: The scores; those that are not finite are ignored.
        scale: The declared scale.

    Returns:
        The warning; None where there is no doubt.

    Example:
        >>> doubt_scale([0.5] * 10, parse_scale("0-100"))
        'Every score is at most 0.5 on a scale declared as 0-100: is it --scale 0-1?'
    """
    given = np.asarray(values, dtype=np.float64)
    given = given[np.isfinite(given)]
    if scale.kind != "linear" or given.size < 10 or min(scale.low, scale.high) != 0:
        return None
    top, high = max(scale.low, scale.high), float(given.max())
    if top > 1.0 and high <= 1.0:
        return f"Every score is at most {high:.3g} on a scale declared as {scale.name}: is it --scale 0-1?"
    if top == 100.0 and high <= 10.0 and given.size >= 50:
        return f"Every score is at most {high:.3g} on a scale declared as 0-100: is it --scale 0-10?"
    return None
