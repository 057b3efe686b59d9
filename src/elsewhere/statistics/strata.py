"""Tumour-size strata, and the best models against the rest within them (MRI-11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.protocols import IntervalRules
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.fairness.subgroups import CaseFacts, group_table
from elsewhere.statistics.ranking import ranks_of
from elsewhere.statistics.resampling import Resampling

LEVEL = 0.95
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SizeStrata:
    """Cases divided by size. It has the shape of group codes, so every table over groups takes it.

    Args:
        variable: Name of the strata in tables.
        names: `small`, `moderate` and `large`.
        codes: Stratum of each case: 0 up to the lower edge, 1 up to the upper edge, 2 above; -1 where the
            size is unknown.
        missing: Number of cases of unknown size.
        note: Where the edges lie, in words.
        edges: The lower and the upper edge, in the unit of the sizes.
    """

    variable: str
    names: tuple[str, ...]
    codes: npt.NDArray[np.int16]
    missing: int
    note: str
    edges: tuple[float, float]


def size_strata(
    sizes: npt.ArrayLike, *, percentiles: tuple[float, float] = (20.0, 80.0), variable: str = "tumour_size"
) -> SizeStrata:
    """Divide cases by size.

    The cuts are this cohort's own: another hospital's 'small' is another size, and the edges are given. A
    size of zero (an empty truth) or NaN is no size.

    Args:
        sizes: The size of each case, such as a volume in ml.
        percentiles: The percentiles at which the sizes are cut (linear interpolation).
        variable: The name of the strata in tables.

    Returns:
        The strata, each (lower, upper].

    Raises:
        UserError: If no size is known.

    Example:
        >>> size_strata([1.0, 2.0, 3.0, 4.0, 10.0, 0.0]).codes.tolist()
        [0, 1, 1, 1, 2, -1]
    """
    values = np.asarray(sizes, dtype=np.float64)
    known = np.isfinite(values) & (values > 0)
    if not known.any():
        raise UserError(
            "no tumour size is known", fix="Strata need a volume (or diameter) above zero per case."
        )
    lower, upper = (float(e) for e in np.percentile(values[known], percentiles))
    codes = np.where(known, np.searchsorted([lower, upper], values, side="left"), -1).astype(np.int16)
    missing = int((~known).sum())
    note = f"Cut at {lower:g} and {upper:g}, the {percentiles[0]:g}th and {percentiles[1]:g}th percentile."
    if missing:
        note += f" {missing} cases without a size are left out."
    return SizeStrata(variable, ("small", "moderate", "large"), codes, missing, note, (lower, upper))


def strata_table(
    evaluator: Evaluator,
    partition: Clusters,
    strata: SizeStrata,
    *,
    rules: IntervalRules,
    resampling: Resampling,
    metrics: Sequence[str] | None = None,
    answered: npt.NDArray[np.bool_] | None = None,
    headline: str | None = None,
) -> dict[str, Any]:
    """Estimate every metric within each stratum of sizes.

    Args:
        evaluator: The metrics of the cases.
        partition: Cases to patients and sites.
        strata: The strata.
        rules: The protocol's rules.
        resampling: The resamples.
        metrics: Names of metrics; None for all.
        answered: The cases with a usable score.
        headline: The metric that gets an interval without the unanswered cases.

    Returns:
        Summary.json's `size_strata`: estimates within each stratum, the edges and the note.
    """
    table = group_table(
        evaluator, partition, [strata], rules=rules, resampling=resampling, metrics=metrics,
        facts=CaseFacts(answered=answered), headline=headline,
    )  # fmt: skip
    return {"edges": list(strata.edges), "note": strata.note, "strata": table[strata.variable]}


def top_against_bottom(
    evaluators: Sequence[Evaluator],
    partition: Clusters,
    metric: str,
    strata: SizeStrata,
    *,
    names: Sequence[str],
    resampling: Resampling,
    count: int = 5,
    by_site: bool = True,
) -> dict[str, Any]:
    """Compare the best models with the worst, overall and by stratum.

    Best and worst by the overall value on this data, so the gap is descriptive and optimistic; the models are
    chosen once, not again in each resample. With fewer than 2 x `count` models, half of them each. The
    interval is a t with the paired bootstrap's standard error.

    Args:
        evaluators: The metrics of each model, all on the same cases.
        partition: Maps cases to patients and sites.
        metric: The name of the metric.
        strata: The strata, as sizes or as group codes.
        names: The names of the models.
        resampling: The resamples; their number may be 0.
        count: How many models on each side.
        by_site: Whether strata of the resampling are divided by site.

    Returns:
        The mean of the `count` best models, of the `count` worst, and their gap, overall and by stratum.

    Raises:
        UserError: If there is one model only.
    """
    m = len(evaluators)
    size = min(count, m // 2)
    if size == 0:
        raise UserError("one model has no top and bottom", fix="Give at least two models.")
    spec = evaluators[0].spec(metric)
    overall = np.array([ev.values()[metric] for ev in evaluators])
    order = np.lexsort((np.arange(m), ranks_of(overall, higher_is_better=spec.higher_is_better)))
    top, bottom = order[:size], order[m - size :]
    chosen = [*top, *bottom]
    parts: dict[str, npt.NDArray[np.bool_]] = {"all": np.ones(strata.codes.size, dtype=bool)}
    parts |= {name: strata.codes == g for g, name in enumerate(strata.names)}
    stream = WeightStream(
        partition, key=resampling.key, seed=resampling.seed, resamples=resampling.resamples, by_site=by_site
    )
    rows: dict[str, Any] = {}
    for name, mask in parts.items():
        if not mask.any():
            rows[name] = {"cases": 0, "undefined_reason": "no case"}
            continue
        inside = [evaluators[i].subset(mask) for i in chosen]
        point = np.array([ev.values()[metric] for ev in inside])
        drawn = (
            draw(inside, stream, metrics=[metric], threads=resampling.threads)
            if resampling.resamples > 1
            else []
        )
        draws = np.stack([d[:, 0] for d in drawn]) if drawn else None
        patients = int(np.unique(partition.cluster_of_case[mask]).size)
        rows[name] = {"cases": int(mask.sum()), "patients": patients} | _gap(point, draws, size, patients)
    return {
        "metric": metric,
        "count": size,
        "top": [names[i] for i in top],
        "bottom": [names[i] for i in bottom],
        "strata": rows,
        "note": "Top and bottom are chosen on this data: the gap is descriptive, and optimistic.",
    }


def _gap(point: FloatArray, draws: FloatArray | None, size: int, patients: int) -> dict[str, Any]:
    top, bottom = float(point[:size].mean()), float(point[size:].mean())
    lo = hi = None
    if draws is not None and patients > 1:
        moved = draws[:size].mean(axis=0) - draws[size:].mean(axis=0)
        moved = moved[np.isfinite(moved)]
        if moved.size > 1:
            se = float(moved.std(ddof=1)) * np.sqrt(patients / (patients - 1))
            reach = float(stats.t.ppf((1 + LEVEL) / 2, patients - 1)) * se
            lo, hi = top - bottom - reach, top - bottom + reach
    return {"top": top, "bottom": bottom, "gap": top - bottom, "lo": lo, "hi": hi}
