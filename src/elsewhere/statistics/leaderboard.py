"""What stands beside a ranking of models that have a performance and a fairness (MRI-10 to MRI-12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.group_scores import combined_score
from elsewhere.statistics.fairness.variants import weighting_table
from elsewhere.statistics.ranking import TENTHS, ranks_of, weight_stability
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import size_strata, top_against_bottom

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FEWEST_SIZES = 5
"""Known sizes below this make no strata."""


def performance_metric(names: Sequence[str]) -> tuple[str, float] | None:
    """The metric that is weighed against fairness, and its value at chance: 0.5 for balanced accuracy."""
    if "performance" in names:
        return "performance", 0.0
    return ("balanced_accuracy", 0.5) if "balanced_accuracy" in names else None


def fairness_weighting(
    evaluators: Sequence[Evaluator],
    *,
    names: Sequence[str],
    baseline: str | None,
    weight: float,
    weights: Sequence[float] = TENTHS,
) -> dict[str, Any]:
    """The ranking at every fairness weight (MRI-10); with a baseline, gated and adaptive too (MRI-12).

    Nothing where a model's performance or fairness is undefined: a weight cannot weigh what is not there.
    """
    values = [evaluator.values() for evaluator in evaluators]
    found = performance_metric(list(values[0]))
    if "fairness" not in values[0] or found is None:
        return {}
    performance, chance = found
    parts = np.array([[v[performance], v["fairness"]] for v in values])
    if not np.isfinite(parts).all():
        return {}
    out: dict[str, Any] = {
        "fairness_weight": weight_stability(
            parts[:, 0], parts[:, 1], names=list(names), reference=weight, weights=weights
        )
    }
    if baseline is not None:
        out["gated_and_adaptive"] = weighting_table(
            parts[:, 0],
            parts[:, 1],
            names=list(names),
            baseline=baseline,
            fairness_weight=weight,
            chance=chance,
        )
    return out


def top_against_bottom_by_size(
    evaluators: Sequence[Evaluator],
    partition: Clusters,
    metric: str,
    sizes: npt.ArrayLike,
    *,
    names: Sequence[str],
    resampling: Resampling,
    by_site: bool,
) -> dict[str, Any]:
    """MRI-11: the best models against the worst, overall and by tumour size; nothing without sizes."""
    volume = np.asarray(sizes, dtype=np.float64)
    if len(evaluators) < 2 or (np.isfinite(volume) & (volume > 0)).sum() < FEWEST_SIZES:
        return {}
    return top_against_bottom(
        evaluators,
        partition,
        metric,
        size_strata(volume),
        names=list(names),
        resampling=resampling,
        by_site=by_site,
    )


def centred_interval(
    value: float, draws: FloatArray, *, df: float, patients: int | None = None, level: float = 0.95
) -> tuple[float, float] | None:
    """value +- t x the bootstrap's standard error: an interval that cannot exclude its own point (MRI-12).

    The percentile interval of a range lies where resampling has pushed it, above a gap and below a fairness,
    and can leave its point outside. This one keeps the spread and gives the place back to the point; the
    point's own bias remains, and the null band tells of it. `df` is patients - strata (default: one stratum).
    """
    known = draws[np.isfinite(draws)]
    if not np.isfinite(value) or known.size < 2:
        return None
    se = float(known.std(ddof=1)) * float(np.sqrt((df + 1 if patients is None else patients) / df))
    reach = float(stats.t.ppf((1 + level) / 2, df)) * se
    return value - reach, value + reach


@dataclass(frozen=True)
class WeightSteps:
    """(steps, models) arrays over the fairness weight: the score, its rank, and where the middle `level` of
    the bootstrap ranks lie. A picture of how firm a place is, not an interval (ST-09)."""

    weights: FloatArray
    scores: FloatArray
    ranks: IntArray
    rank_lo: IntArray
    rank_hi: IntArray


def weight_steps(
    performance: FloatArray,
    fairness: FloatArray,
    *,
    performance_draws: FloatArray,
    fairness_draws: FloatArray,
    steps: int = 101,
    level: float = 0.95,
) -> WeightSteps:
    """MRI-10: the ranking at every weight in equal steps from 0 to 1, by the points and by the resamples.

    `performance` and `fairness` are (models,), the draws (resamples, models), of the same resamples.
    """
    weights = np.linspace(0.0, 1.0, steps)
    models = performance.size
    scores = np.empty((steps, models))
    ranks, low, high = (np.empty((steps, models), dtype=np.int64) for _ in range(3))
    for k, weight in enumerate(weights):
        scores[k] = combined_score(performance, fairness, float(weight))
        ranks[k] = ranks_of(scores[k])
        drawn = combined_score(performance_draws, fairness_draws, float(weight))
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        if not len(drawn):
            low[k] = high[k] = ranks[k]
            continue
        places = 1 + (drawn[:, None, :] > drawn[:, :, None] + 1e-12).sum(axis=2)
        ends = np.quantile(places, [(1 - level) / 2, (1 + level) / 2], axis=0, method="inverted_cdf")
        low[k], high[k] = ends.astype(np.int64)
    return WeightSteps(weights, scores, ranks, low, high)
