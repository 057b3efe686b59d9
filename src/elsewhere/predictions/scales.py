"""A vendor's scale to a probability: declared by the user, never guessed.

| `--scale` | what it means |
|---|---|
| `0-1` | a probability |
| `0-100`, `0-10`, `MIN-MAX` | linear from MIN (0) to MAX (1); `1-0` turns a score round |
| `logit` | log odds; 0 is one half |
| `birads` | BI-RADS categories, by the table below |

BI-RADS categories are ranks. The value put in the place of each is the middle of the range of malignancy
that the BI-RADS atlas gives it, so that the order is right and a threshold can be named; it is no
probability that anybody estimated, so calibration (ECE, NLL, Brier) is undefined for it.
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
taken as 4B. 0 is an incomplete examination: it was not analysed, whatever the picture shows.
"""
BIRADS_BIOPSY_THRESHOLD = 0.02
"""Parts 3 from 4A: 'category 4 or more is positive' is `--threshold 0.02`."""
ORDINAL_REASON = "BI-RADS categories are ranks, not probabilities: calibration is not defined for them"

_BIRADS = re.compile(
    r"^(?:(?:acr|bi[\s_-]*rads|category|cat\.?|assessment)[\s:._-]*)*([0-6])(?:\.0+)?[\s._-]*([abc]?)$",
    re.IGNORECASE,
)
_RANGE = re.compile(r"^(-?\d+(?:\.\d+)?)\s*(?:-|\.\.|to)\s*(-?\d+(?:\.\d+)?)$")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """`low` is probability 0 and `high` is probability 1 of a linear scale; low > high turns it round."""

    name: str
    kind: Literal["linear", "logit", "birads"]
    low: float = 0.0
    high: float = 1.0

    @property
    def ordinal(self) -> bool:
        return self.kind == "birads"


def parse_scale(text: str) -> Scale:
    """`0-1`, `0-100`, `-5-5`, `logit`, `birads`; anything else is an error that lists them."""
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
    """(probability, outside): NaN where the value is not finite or lies outside the scale."""
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
    """(probability, incomplete, unreadable) of BI-RADS cells such as `4b`, `BI-RADS 4B`, `5`, `0`."""
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
    """The `--scale` these numbers would fit, offered in an error; None where nothing fits."""
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
    """A warning where every value fits the declared scale but hardly uses it."""
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
