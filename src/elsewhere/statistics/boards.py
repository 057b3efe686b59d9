"""What stands beside a ranking of models that have a performance and a fairness (MRI-10 to MRI-12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness_variants import weighting_table
from elsewhere.statistics.partition import Partition
from elsewhere.statistics.ranking import TENTHS, weight_stability
from elsewhere.statistics.strata import size_strata, top_against_bottom

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
    partition: Partition,
    metric: str,
    sizes: npt.ArrayLike,
    *,
    names: Sequence[str],
    key: str,
    seed: int,
    resamples: int,
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
        key=key,
        seed=seed,
        resamples=resamples,
        by_site=by_site,
    )
