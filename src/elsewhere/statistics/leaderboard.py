"""Additions to a ranking of models that have a performance and a fairness (MRI-10 to MRI-12)."""

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
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.ranking import TENTHS, ranks_of, weight_stability
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.strata import size_strata, top_against_bottom

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FEWEST_SIZES = 5
"""Fewer known sizes than this make no strata."""


def performance_metric(specs: Sequence[MetricSpec]) -> MetricSpec | None:
    """Find the metric that is weighed against fairness; its `chance` is where the weight begins (MRI-12).

    Args:
        specs: The metrics of an evaluator.

    Returns:
        The first that declares `weighed_with_fairness`, or None.

    Example:
        >>> from elsewhere.protocols import protocols
        >>> from elsewhere.scoring.task import tasks
        >>> found = performance_metric(tasks.get("response").metrics(protocols.get("mamamia-paper")))
        >>> found.name, found.chance
        ('balanced_accuracy', 0.5)
    """
    return next((spec for spec in specs if spec.weighed_with_fairness), None)


def fairness_weighting(
    evaluators: Sequence[Evaluator],
    *,
    names: Sequence[str],
    baseline: str | None,
    weight: float,
    weights: Sequence[float] = TENTHS,
) -> dict[str, Any]:
    """Rank models at every fairness weight (MRI-10).

    There is no such ranking where a model's performance or fairness is undefined.

    Args:
        evaluators: The metrics of each model, all on the same cases.
        names: The names of the models.
        baseline: The baseline's name, or None.
        weight: The protocol's weight of fairness.
        weights: The weights to try.

    Returns:
        The ranking at every fairness weight (MRI-10); with a baseline, gated and adaptive too (MRI-12).
    """
    values = [evaluator.values() for evaluator in evaluators]
    performance = performance_metric(evaluators[0].specs)
    if "fairness" not in values[0] or performance is None:
        return {}
    parts = np.array([[v[performance.name], v["fairness"]] for v in values])
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
            chance=performance.chance,
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
    """Compare the best models with the worst, overall and by tumour size (MRI-11).

    Args:
        evaluators: The metrics of each model, all on the same cases.
        partition: Cases to patients and sites.
        metric: The name of the metric.
        sizes: The sizes.
        names: The names of the models.
        resampling: The resamples.
        by_site: Whether strata are divided by site.

    Returns:
        The comparison; empty without sizes.
    """
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
    """Compute an interval that cannot exclude its own point (MRI-12).

    The percentile interval of a range lies where resampling has pushed it, above a gap and below a fairness,
    and can leave its point outside. This one keeps the spread and is centred at the point; the point's own
    bias remains, and the null band shows it.

    Args:
        value: The value.
        draws: The values under the resamples, (resamples,).
        df: The degrees of freedom: patients - strata.
        patients: How many patients there are; None for df + 1, which is one stratum.
        level: The level of the interval.

    Returns:
        Value +- t x the bootstrap's standard error; None where the value, or all but one resample, is
        undefined.
    """
    known = draws[np.isfinite(draws)]
    if not np.isfinite(value) or known.size < 2:
        return None
    se = float(known.std(ddof=1)) * float(np.sqrt((df + 1 if patients is None else patients) / df))
    reach = float(stats.t.ppf((1 + level) / 2, df)) * se
    return value - reach, value + reach


@dataclass(frozen=True)
class WeightSteps:
    """The ranking of models at each fairness weight, as (steps, models) arrays.

    The bootstrap ranks are a picture of how firm a place is, not a confidence interval (ST-09).

    Args:
        weights: The fairness weights, (steps,).
        scores: Combined score of each model.
        ranks: Rank by the score, 1 for the best.
        rank_lo: Lower end of the middle `level` of the ranks over the resamples.
        rank_hi: Upper end of the same.
    """

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
    """Rank models at fairness weights in equal steps from 0 to 1 (MRI-10).

    Args:
        performance: The performance of each model, (models,).
        fairness: The fairness of each model, (models,).
        performance_draws: The performance under the resamples, (resamples, models).
        fairness_draws: The fairness under the same resamples, (resamples, models).
        steps: How many weights.
        level: The share of the bootstrap ranks that lies between `rank_lo` and `rank_hi`.

    Returns:
        Scores, ranks and the middle of the bootstrap ranks at each weight.
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
