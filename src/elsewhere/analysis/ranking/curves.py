"""The curve of each ranked model, with its band, where the task of the ranking names one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elsewhere.analysis.ranking.entries import Entry
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.resampling import Resampling

MOST_MODELS = 12
"""The best models have curves; a page with more of them would only show a tangle."""
_MOST_RESAMPLES = 2000
_STEP = 2
_DIGITS = 4


def ranked_curves(best_first: Sequence[Entry], resampling: Resampling) -> dict[str, Any]:
    """Compute the curves of the best models on the same resamples.

    Args:
        best_first: The entries, the best first.
        resampling: The resamples of the ranking; at most 2,000 of them make a band.

    Returns:
        `ranking_curves`, with one entry per model; empty where the task draws no curves of a ranking, or they are not
        defined.
    """
    task = best_first[0].ready.task
    if task.ranking_curve is None:
        return {}
    rows: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for entry in best_first[:MOST_MODELS]:
        ready = entry.ready
        stream = WeightStream(
            ready.partition,
            key=resampling.key,
            seed=resampling.seed,
            resamples=min(resampling.resamples, _MOST_RESAMPLES),
            by_site=ready.scores.protocol.interval.by_site,
        )
        found = task.curves(ready.scores, ready.partition, stream, ready.options).get(task.ranking_curve)
        if found is None:
            continue
        rows.append({"model": entry.name, **{name: _thinned(found[name]) for name in ("y", "lo", "hi")}})
        shared = {"x": _thinned(found["x"]), **{name: found[name] for name in ("x_label", "y_label", "band")}}
    if not rows:
        return {}
    return {"ranking_curves": {"curve": task.ranking_curve, **shared, "models": rows}}


def _thinned(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else np.round(np.asarray(values)[::_STEP], _DIGITS).tolist()
