"""Other ways to count fairness that the MAMA-MIA study asks for as future work (MRI-12).

Gate: a model must beat the baseline before its fairness counts. Adaptive weight: how much fairness counts
depends on how far the task is from chance. Worst-group, best-group and variance measures complement the
range, since a range can be narrowed by making the best group worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.statistics.fairness.disparity import GROUPS_NEEDED
from elsewhere.statistics.ranking import ranks_of

FloatArray = npt.NDArray[np.float64]


def _check_weight(weight: float) -> None:
    """Refuse a weight of fairness outside [0, 1] (MRI-07)."""
    if not 0.0 <= weight <= 1.0:
        raise UserError(f"the fairness weight is {weight}", fix="Give a weight between 0 and 1.")


@dataclass(frozen=True)
class Gated:
    """Scores under the performance gate.

    Args:
        passed: Whether each model passed the gate.
        score: Score of each model under the gate.
    """

    passed: npt.NDArray[np.bool_]
    score: FloatArray


def gated_score(
    performance: npt.ArrayLike,
    fairness: npt.ArrayLike,
    *,
    baseline: float,
    fairness_weight: float = 0.5,
    performance_lo: npt.ArrayLike | None = None,
) -> Gated:
    """Compute the performance-gated fairness of models.

    The score is (1 - w) x performance + w x max(fairness, 0) if the gate is passed, else (1 - w) x
    performance.

    The gate is performance > baseline; with `performance_lo` (the lower ends of the intervals) it is that
    lower end > baseline: beaten surely, not by luck. For w < 1 no model that failed the point gate can stand
    above one that passed it, since fairness adds at least 0 and performance is above the baseline.

    Args:
        performance: The performance of each model.
        fairness: The fairness of each model.
        baseline: The performance that opens the gate.
        fairness_weight: The weight w of fairness, from 0 to 1.
        performance_lo: The lower limit of each performance; None for the gate by the performance itself.

    Returns:
        The scores, and which models passed the gate.

    Raises:
        UserError: If the weight is not between 0 and 1.

    Example:
        >>> gated_score([0.75, 0.5], [0.5, 1.0], baseline=0.5).score.tolist()
        [0.625, 0.25]
    """
    _check_weight(fairness_weight)
    perf, fair = np.asarray(performance, dtype=np.float64), np.asarray(fairness, dtype=np.float64)
    judged = perf if performance_lo is None else np.asarray(performance_lo, dtype=np.float64)
    passed = judged > baseline
    added = np.where(passed, np.maximum(fair, 0.0), 0.0)
    return Gated(passed, (1.0 - fairness_weight) * perf + fairness_weight * added)


def adaptive_weight(
    reference_performance: float, *, chance: float, ceiling: float = 1.0, largest: float = 0.5
) -> float:
    """Compute one fairness weight for all models of a task.

    `reference_performance` describes the task, not a model: the baseline's, or the best of the field. At
    chance the weight is 0 (being uniformly wrong is not rewarded); at the ceiling it is `largest`. It is the
    same for all models, so nobody picks its own weight.

    Args:
        reference_performance: The performance of the reference model.
        chance: The performance of guessing.
        ceiling: The performance beyond which the weight no longer grows.
        largest: The largest weight, from 0 to 1.

    Returns:
        largest x (reference - chance)/(ceiling - chance), cut to between 0 and `largest`.

    Raises:
        UserError: If the largest weight is not between 0 and 1, or the ceiling is not above chance.

    Example:
        >>> adaptive_weight(0.75, chance=0.5)
        0.25
    """
    _check_weight(largest)
    if ceiling <= chance:
        raise UserError(f"the ceiling {ceiling} is not above chance {chance}", fix="Give ceiling > chance.")
    return float(largest * np.clip((reference_performance - chance) / (ceiling - chance), 0.0, 1.0))


@dataclass(frozen=True)
class Variants:
    """Fairness of one variable, counted in several ways.

    For scores in [0, 1] each of the first five lies in [0, 1]; higher is better, NaN is undefined.

    Args:
        range_based: 1 - (best - worst), the protocol's own.
        worst_group: Score of the worst group.
        best_group: Score of the best group.
        variance_based: 1 - 2 sd of the group scores, each group once (the sd of numbers in [0, 1] is at most
            1/2).
        weighted_variance_based: The same with groups weighed by their size, so that a tiny group cannot rule
            it.
        worst_name: Name of the worst group; None where no group can be estimated.
        best_name: Name of the best group; None likewise.
        variance: Variance of the group scores.
    """

    range_based: float
    worst_group: float
    best_group: float
    variance_based: float
    weighted_variance_based: float
    worst_name: str | None
    best_name: str | None
    variance: float


def fairness_variants(
    scores: npt.ArrayLike, *, names: Sequence[str], sizes: Sequence[int], higher_is_better: bool = True
) -> Variants:
    """Compute the variants of fairness from the scores of the groups of one variable.

    With a single group left, its own score is known, and nothing that compares groups is.

    Args:
        scores: The score of each group.
        names: The names of the groups.
        sizes: The cases of each group.
        higher_is_better: Whether a higher value is better.

    Returns:
        The variants; groups that are NaN are left out.
    """
    values = np.asarray(scores, dtype=np.float64)
    if not higher_is_better:
        values = 1.0 - values
    known = np.flatnonzero(np.isfinite(values))
    if known.size == 0:
        nan = float("nan")
        return Variants(nan, nan, nan, nan, nan, None, None, nan)
    kept, weight = values[known], np.asarray(sizes, dtype=np.float64)[known]
    low, high = int(np.argmin(kept)), int(np.argmax(kept))
    if known.size < GROUPS_NEEDED:
        nan, name = float("nan"), names[known[0]]
        return Variants(nan, float(kept[0]), float(kept[0]), nan, nan, name, name, nan)
    mean = np.average(kept, weights=weight) if weight.sum() > 0 else kept.mean()
    weighted = np.average((kept - mean) ** 2, weights=weight) if weight.sum() > 0 else kept.var()
    return Variants(
        range_based=float(1.0 - (kept[high] - kept[low])),
        worst_group=float(kept[low]),
        best_group=float(kept[high]),
        variance_based=float(1.0 - 2.0 * kept.std()),
        weighted_variance_based=float(1.0 - 2.0 * np.sqrt(weighted)),
        worst_name=names[known[low]],
        best_name=names[known[high]],
        variance=float(kept.var()),
    )


def quadrants(
    performance: npt.ArrayLike, fairness: npt.ArrayLike, *, names: Sequence[str], baseline: str
) -> dict[str, str]:
    """Say where each model lies against the baseline (MRI-11).

    Better means strictly better, on the points alone.

    Args:
        performance: The performance of each model.
        fairness: The fairness of each model.
        names: The names of the models.
        baseline: The model that the others are compared with.

    Returns:
        In what each model beats the baseline: `both`, `fairness`, `performance` or `neither`; `baseline` for
        itself.

    Raises:
        UserError: If no model is called like the baseline.

    Example:
        >>> quadrants([0.8, 0.9], [0.7, 0.6], names=["base", "mine"], baseline="base")
        {'base': 'baseline', 'mine': 'performance'}
    """
    if baseline not in names:
        raise unknown_name("model", baseline, list(names))
    at = list(names).index(baseline)
    perf, fair = np.asarray(performance, dtype=np.float64), np.asarray(fairness, dtype=np.float64)
    words = {(True, True): "both", (False, True): "fairness", (True, False): "performance"}
    where = {
        name: words.get((bool(p > perf[at]), bool(f > fair[at])), "neither")
        for name, p, f in zip(names, perf, fair, strict=True)
    }
    return where | {baseline: "baseline"}


def weighting_table(
    performance: npt.ArrayLike,
    fairness: npt.ArrayLike,
    *,
    names: Sequence[str],
    baseline: str,
    fairness_weight: float = 0.5,
    chance: float = 0.0,
    performance_lo: npt.ArrayLike | None = None,
) -> list[dict[str, Any]]:
    """Tabulate rank and score by every weighting.

    The gate is the baseline's performance. The adaptive weight rests on the best performance of the field,
    between `chance` (0.5 for balanced accuracy, 0 for Dice) and 1, and is at most `fairness_weight`.

    Args:
        performance: The performance of each model.
        fairness: The fairness of each model.
        names: The names of the models.
        baseline: The model that the others are compared with.
        fairness_weight: The weight of fairness, from 0 to 1.
        chance: The performance of guessing.
        performance_lo: The lower limit of each performance; None for the gate by the performance itself.

    Returns:
        One row per model: its score and rank by the protocol's weight, under the gate, and by the adaptive
        weight.
    """
    where = quadrants(performance, fairness, names=names, baseline=baseline)
    perf, fair = np.asarray(performance, dtype=np.float64), np.asarray(fairness, dtype=np.float64)
    base = float(perf[list(names).index(baseline)])
    plain = (1.0 - fairness_weight) * perf + fairness_weight * fair
    gate = gated_score(
        perf, fair, baseline=base, fairness_weight=fairness_weight, performance_lo=performance_lo
    )
    weight = adaptive_weight(float(np.nanmax(perf)), chance=chance, largest=fairness_weight)
    adaptive = (1.0 - weight) * perf + weight * fair
    ranks = [ranks_of(scores) for scores in (plain, gate.score, adaptive)]
    return [
        {
            "model": name,
            "combined": _number(plain[i]),
            "rank": int(ranks[0][i]),
            "gated": _number(gate.score[i]),
            "gated_rank": int(ranks[1][i]),
            "passed_gate": bool(gate.passed[i]),
            "adaptive": _number(adaptive[i]),
            "adaptive_rank": int(ranks[2][i]),
            "adaptive_weight": weight,
            "quadrant": where[name],
        }
        for i, name in enumerate(names)
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
