"""The challenge's combined score on a validation part, to choose networks by (MRI-05 to MRI-07).

Studies are scored by `elsewhere.scoring.response`, which needs packages that a bare training machine does not
have; a test checks that the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
AGE_EDGES = (40.0, 50.0, 60.0, 70.0)
DENSITIES = ("A", "B", "C", "D")


def fairness_groups(clinical: Sequence[Mapping[str, Any]]) -> dict[str, Codes]:
    """Return the fairness variables of cases as group numbers.

    Args:
        clinical: One mapping of clinical columns per case.

    Returns:
        Variable (age, menopausal status, breast density) to one group number per case, -1 where the cell is
        empty or not understood; without the variables that no case has.

    Example:
        >>> fairness_groups([{"age": 45.0}, {"age": 72.0}])
        {'age': array([1, 4])}
    """
    codes = {
        "age": np.array([_age(row.get("age")) for row in clinical], dtype=np.int64),
        "menopausal_status": np.array(
            [_word(row.get("menopausal_status"), ("pre", "post")) for row in clinical], dtype=np.int64
        ),
        "breast_density": np.array(
            [_word(row.get("breast_density"), DENSITIES) for row in clinical], dtype=np.int64
        ),
    }
    return {name: values for name, values in codes.items() if (values >= 0).any()}


def combined_score(
    label: npt.ArrayLike,
    probability: npt.ArrayLike,
    groups: Mapping[str, Codes],
    *,
    fairness_weight: float = 0.5,
) -> float:
    """Return (1 - w) x balanced accuracy + w x fairness at a threshold of one half.

    Args:
        label: 0 or 1 per case.
        probability: The probability of class 1, per case.
        groups: What `fairness_groups` returned for the same cases.
        fairness_weight: w.

    Returns:
        The score; NaN for a constant decision or a part of one class; the balanced accuracy alone where no
        groups can be compared.

    Example:
        >>> combined_score([0, 1], [0.2, 0.9], {})
        1.0
    """
    truth = np.asarray(label).astype(bool)
    yes = np.asarray(probability, dtype=np.float64) >= 0.5
    if truth.all() or not truth.any() or yes.all() or not yes.any():
        return math.nan
    performance = 0.5 * (yes[truth].mean() + (~yes[~truth]).mean())
    gaps = [gap for codes in groups.values() if math.isfinite(gap := _gap(truth, yes, codes))]
    if not gaps or fairness_weight == 0:
        return float(performance)
    return float((1 - fairness_weight) * performance + fairness_weight * (1.0 - np.mean(gaps)))


def _gap(truth: npt.NDArray[np.bool_], yes: npt.NDArray[np.bool_], codes: Codes) -> float:
    """Range of TPR + range of FPR over the groups that have such a rate; NaN where none has."""
    ranges = []
    for side in (truth, ~truth):
        rates = [yes[side & (codes == g)].mean() for g in np.unique(codes[(codes >= 0) & side])]
        if not rates:
            return math.nan
        ranges.append(max(rates) - min(rates))
    return float(sum(ranges))


def _age(value: Any) -> int:
    try:
        age = float(value)
    except (TypeError, ValueError):
        return -1
    return -1 if not math.isfinite(age) else int(np.searchsorted(AGE_EDGES, age, side="left"))


def _word(value: Any, words: Sequence[str]) -> int:
    text = str(value).strip().casefold() if value is not None else ""
    known = [word.casefold() for word in words]
    return known.index(text) if text in known else -1
