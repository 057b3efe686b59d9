"""Fairness beyond the protocol's range (ST-08, MRI-11, MRI-12).

A range (largest - smallest group value) is biased upward, the more so the smaller the groups, and a
percentile bootstrap of it has no valid coverage: resampling widens a range that was already too wide. So
beside the range stand a null band, made by permuting whole attribute vectors over patients, and
simultaneous intervals of the pairwise differences, which are not ranges and can be covered.

Everything is weights: group g is the row of weights (code == g), a permuted group is (code[perm] == g),
a resampled group is the product of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.group_scores import EqualisedOdds, mean_disparity, spread
from elsewhere.statistics.partition import Partition
from elsewhere.statistics.resampling import WeightStream, generator_for, thread_count
from elsewhere.statistics.simultaneous import LEAST_USABLE, Simultaneous, max_t
from elsewhere.statistics.subgroups import comparable_metrics, group_table

__all__ = [
    "RANGE_NOTE",
    "Disparity",
    "NullBand",
    "codes_of_patients",
    "comparable_metrics",
    "fairness_report",
    "group_table",
    "group_values",
    "null_band",
    "overall_null",
    "pairwise_differences",
    "permuted_gaps",
    "resampled_groups",
    "variable_report",
]

FloatArray = npt.NDArray[np.float64]
Weights = npt.NDArray[np.uint16]
RANGE_NOTE = (
    "A range is biased upward and a percentile bootstrap of it has no valid coverage: "
    "read the gap against the null band, and the pairwise intervals."
)
_STREAM = 7008
_BLOCK = 64
_CELLS = 2**24


@dataclass(frozen=True)
class Disparity:
    """What is compared over groups: values (rows, metrics) under patient weights, and how ranges combine.

    `how` 'mean' is MRI-04 (mean over metrics of their ranges), 'sum' is MRI-05 (TPR range + FPR range).
    `better` has +1 where higher is better, -1 where lower is, 0 where neither. A group's *score* is the mean
    over metrics of the value (or of 1 - value where lower is better): with Dice and NormHD the group's
    performance, with TPR and FPR its balanced accuracy. `within_class` keeps each permutation inside the
    outcome class, as equalised odds asks.
    """

    name: str
    metrics: tuple[str, ...]
    evaluate: Callable[[Weights], FloatArray]
    better: tuple[int, ...]
    subset: Callable[[npt.NDArray[np.bool_]], Callable[[Weights], FloatArray]]
    how: str = "mean"
    within_class: bool = False

    @classmethod
    def of_metrics(
        cls,
        evaluator: Evaluator,
        metrics: Sequence[str],
        *,
        name: str | None = None,
        how: str = "mean",
        within_class: bool | None = None,
    ) -> Disparity:
        """Of any evaluator. `within_class` None: as the metrics' own resampling asks (AUROC, ...)."""
        columns = [evaluator.index(m) for m in metrics]
        specs = [evaluator.specs[c] for c in columns]
        inside = any(s.stratify_by_class for s in specs) if within_class is None else within_class

        def pick(source: Evaluator) -> Callable[[Weights], FloatArray]:
            return lambda weights: source.evaluate(weights)[:, columns]

        return cls(
            name=name or "+".join(metrics),
            metrics=tuple(metrics),
            evaluate=pick(evaluator),
            better=tuple(1 if s.higher_is_better else -1 for s in specs),
            subset=lambda mask: pick(evaluator.subset(mask)),
            how=how,
            within_class=inside,
        )

    @classmethod
    def equalised_odds(
        cls,
        cluster_of_case: npt.NDArray[np.int32],
        truth: npt.ArrayLike,
        decision: npt.ArrayLike,
        *,
        n_clusters: int,
        rules: FairnessRules | None = None,
    ) -> Disparity:
        """MRI-05 with the protocol's own rules for groups of one class."""
        truth_value, decided = np.asarray(truth, dtype=np.float64), np.asarray(decision, dtype=np.float64)
        zeros = np.zeros(truth_value.size, dtype=np.int16)

        def rates(mask: npt.NDArray[np.bool_] | None) -> Callable[[Weights], FloatArray]:
            one_group = zeros if mask is None else np.where(mask, 0, -1)
            if not (one_group >= 0).any():
                return lambda weights: np.full((len(weights), 2), np.nan)
            odds = EqualisedOdds(
                cluster_of_case, truth_value, decided, [one_group], n_clusters=n_clusters, rules=rules
            )
            return lambda weights: np.concatenate(odds.rates(weights)[0], axis=1)

        return cls(
            name="equalised_odds",
            metrics=("tpr", "fpr"),
            evaluate=rates(None),
            better=(1, -1),
            subset=rates,
            how="sum",
            within_class=True,
        )

    def gap(self, values: FloatArray) -> FloatArray:
        """(..., groups, metrics) -> (...): ranges over the estimable groups, combined over metrics."""
        ranges = spread(values, -2)
        total: FloatArray = ranges.sum(axis=-1)
        return total / len(self.metrics) if self.how == "mean" else total

    def score(self, values: FloatArray) -> FloatArray:
        """(..., groups, metrics) -> (..., groups): higher is better; a single metric keeps its own value."""
        if len(self.metrics) == 1:
            return values[..., 0]
        turned = np.where(np.asarray(self.better) < 0, 1.0 - values, values)
        score: FloatArray = turned.mean(axis=-1)
        return score

    @property
    def score_is_better_high(self) -> bool:
        return len(self.metrics) > 1 or self.better[0] >= 0


def codes_of_patients(partition: Partition, codes: npt.NDArray[np.int16]) -> npt.NDArray[np.int16] | None:
    """The group of each patient, or None where some patient has cases in two groups."""
    low = np.full(partition.n_clusters, np.iinfo(np.int16).max, dtype=np.int16)
    high = np.full(partition.n_clusters, -1, dtype=np.int16)
    np.minimum.at(low, partition.cluster_of_case, codes)
    np.maximum.at(high, partition.cluster_of_case, codes)
    return high if bool((low[high >= 0] == high[high >= 0]).all()) else None


def _rows_of(codes: npt.NDArray[np.int16], n_groups: int) -> Weights:
    """(permutations, patients) codes -> (permutations x groups, patients) weights."""
    groups = np.arange(n_groups, dtype=np.int16)[None, :, None]
    return (codes[:, None, :] == groups).astype(np.uint16).reshape(-1, codes.shape[-1])


def group_values(
    disparity: Disparity, partition: Partition, codes: npt.NDArray[np.int16], n_groups: int
) -> FloatArray:
    """(groups, metrics) at full weights, for groups of cases (a patient may have cases in several)."""
    of_patients = codes_of_patients(partition, codes)
    if of_patients is not None:
        return disparity.evaluate(_rows_of(of_patients[None, :], n_groups))
    ones = np.ones((1, partition.n_clusters), dtype=np.uint16)
    return np.concatenate([disparity.subset(codes == g)(ones) for g in range(n_groups)])


def _permuted(
    vectors: npt.NDArray[np.int64], strata: npt.NDArray[np.int64], rng: np.random.Generator, count: int
) -> Iterator[npt.NDArray[np.int64]]:
    """`count` shufflings of `vectors` (a number a patient) inside strata."""
    places = np.argsort(strata, kind="stable")
    for _ in range(count):
        order = np.lexsort((rng.random(strata.size), strata))
        out = np.empty_like(vectors)
        out[places] = vectors[order]
        yield out


def permuted_gaps(
    disparity: Disparity,
    partition: Partition,
    codes: Sequence[npt.NDArray[np.int16]],
    n_groups: Sequence[int],
    *,
    key: str,
    seed: int,
    permutations: int,
    threads: int | None = None,
) -> FloatArray:
    """(permutations, variables) gaps when whole attribute vectors are permuted over patients (ST-08).

    All variables of a patient move together, so the null keeps their dependence. A vector moves only among
    patients with the same pattern of missing values, hence a missing age stays missing: the test asks
    nothing of why values are missing. Within the outcome class where the disparity says so. Where a patient
    has cases in several groups, vectors move among patients with as many cases.
    """
    of_patients = [codes_of_patients(partition, c) for c in codes]
    whole = [c for c in of_patients if c is not None]
    fast = len(whole) == len(codes)
    strata = np.zeros(partition.n_clusters, dtype=np.int64)
    if disparity.within_class and partition.positive_cluster is not None:
        strata = strata * 2 + partition.positive_cluster
    if fast:
        for c in whole:
            strata = strata * 2 + (c < 0)
    else:
        strata = (
            strata * (int(partition.cases_per_cluster().max(initial=0)) + 1) + partition.cases_per_cluster()
        )
    out = np.full((permutations, len(codes)), np.nan)
    donors = np.arange(partition.n_clusters)

    def block(index: int) -> None:
        rng = generator_for(key, seed, _STREAM, index)
        first = index * _BLOCK
        count = min(_BLOCK, permutations - first)
        shuffled = np.stack(list(_permuted(donors, strata, rng, count)))
        for v, n in enumerate(n_groups):
            if fast:
                rows = max(1, _CELLS // max(1, n * partition.n_clusters))
                for at in range(0, count, rows):
                    piece = shuffled[at : at + rows]
                    values = disparity.evaluate(_rows_of(whole[v][piece], n))
                    out[first + at : first + at + len(piece), v] = disparity.gap(
                        values.reshape(len(piece), n, -1)
                    )
            else:
                for at, donor in enumerate(shuffled):
                    moved = _move_cases(partition, codes[v], donor)
                    out[first + at, v] = disparity.gap(group_values(disparity, partition, moved, n))

    with ThreadPoolExecutor(thread_count(threads)) as pool:
        list(pool.map(block, range(-(-permutations // _BLOCK))))
    return out


def _move_cases(
    partition: Partition, codes: npt.NDArray[np.int16], donor: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    """Give patient c the codes of patient donor[c], case by case; both have as many cases."""
    order = np.argsort(partition.cluster_of_case, kind="stable")
    starts = np.concatenate([[0], np.cumsum(partition.cases_per_cluster())])
    sorted_cluster = partition.cluster_of_case[order]
    within = np.arange(order.size) - starts[sorted_cluster]
    moved = np.empty_like(codes)
    moved[order] = codes[order[starts[donor[sorted_cluster]] + within]]
    return moved


def resampled_groups(
    disparity: Disparity,
    partition: Partition,
    codes: npt.NDArray[np.int16],
    n_groups: int,
    stream: WeightStream,
) -> FloatArray:
    """(resamples, groups, metrics): every group's values on the same resamples of patients."""
    of_patients = codes_of_patients(partition, codes)
    out = np.full((stream.resamples, n_groups, len(disparity.metrics)), np.nan)
    parts = None if of_patients is not None else [disparity.subset(codes == g) for g in range(n_groups)]
    for first, weights in stream:
        for g in range(n_groups):
            if of_patients is not None:
                values = disparity.evaluate(weights * (of_patients == g).astype(np.uint16))
            else:
                values = parts[g](weights) if parts is not None else np.empty((0, 0))
            out[first : first + len(weights), g] = values
    return out


def pairwise_differences(
    point: FloatArray, draws: FloatArray, n_patients: npt.NDArray[np.int64], *, level: float = 0.95
) -> tuple[list[tuple[int, int]], FloatArray, Simultaneous]:
    """Simultaneous intervals of all pairwise differences of group scores (max-t, ST-08).

    `point` (groups,), `draws` (resamples, groups). The standard error of a pair gets the small-sample factor
    sqrt(n/(n-1)) of its groups, and its critical value a t-stretch with Satterthwaite's degrees of freedom.
    A pair with a group that has no variation at all has no interval: [0, 0] would be a lie.
    """
    pairs = list(combinations(range(point.size), 2))
    if not pairs:
        empty = np.zeros(0)
        return [], empty, Simultaneous(empty, empty, empty, np.zeros(0, dtype=bool), float("nan"))
    a, b = np.array(pairs).T
    difference = point[a] - point[b]
    with np.errstate(invalid="ignore"):
        spread_of = np.array(
            [np.nanvar(col, ddof=1) if np.isfinite(col).sum() > 1 else np.nan for col in draws.T]
        )
    n = np.maximum(n_patients.astype(np.float64), 2.0)
    var = spread_of * n / (n - 1)
    moving = np.isfinite(var) & (var > 1e-24)
    pair_draws = draws[:, a] - draws[:, b]
    pair_draws[:, ~(moving[a] & moving[b])] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        total = var[a] + var[b]
        df = total**2 / (var[a] ** 2 / (n[a] - 1) + var[b] ** 2 / (n[b] - 1))
        inflate = np.sqrt(total / (spread_of[a] + spread_of[b]))
    together = max_t(
        difference,
        pair_draws,
        level=level,
        inflate=np.nan_to_num(inflate, nan=1.0),
        df=np.nan_to_num(df, nan=1.0),
    )
    return pairs, difference, together


@dataclass(frozen=True)
class NullBand:
    """The gap against what permuted attributes give. `above` = gap - upper (below 0: inside the band)."""

    gap: float
    upper: float
    mean: float
    p: float

    @property
    def above(self) -> float:
        return self.gap - self.upper


def null_band(gap: float, null: FloatArray, *, level: float = 0.95) -> NullBand:
    """Upper `level` end of the null, its mean, and p = (b + 1)/(B + 1) (ST-12)."""
    known = null[np.isfinite(null)]
    if not np.isfinite(gap) or known.size == 0:
        return NullBand(gap, float("nan"), float("nan"), float("nan"))
    b = int((known >= gap - 1e-12).sum())
    return NullBand(
        float(gap), float(np.quantile(known, level)), float(known.mean()), (b + 1) / (known.size + 1)
    )


def overall_null(
    disparity: Disparity,
    partition: Partition,
    codes: Sequence[Any],
    *,
    rules: FairnessRules,
    key: str,
    seed: int,
    permutations: int = 1000,
) -> NullBand:
    """The null band of the mean disparity over variables (1 - the fairness score)."""
    arrays, sizes = [c.codes for c in codes], [len(c.names) for c in codes]
    real = np.array(
        [
            [
                float(disparity.gap(group_values(disparity, partition, a, n)))
                for a, n in zip(arrays, sizes, strict=True)
            ]
        ]
    )
    null = permuted_gaps(disparity, partition, arrays, sizes, key=key, seed=seed, permutations=permutations)
    return null_band(float(mean_disparity(real, rules)[0]), mean_disparity(null, rules))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _why_not(disparity: Disparity, values: FloatArray, cases: int) -> str | None:
    if cases == 0:
        return "no case"
    missing = [m for m, v in zip(disparity.metrics, values, strict=True) if not np.isfinite(v)]
    return f"not estimable: {', '.join(missing)}" if missing else None


def variable_report(
    disparity: Disparity,
    partition: Partition,
    coded: Any,
    *,
    key: str,
    seed: int,
    resamples: int = 1000,
    by_site: bool = True,
    level: float = 0.95,
) -> dict[str, Any]:
    """One entry of summary.json's `fairness`: the gap of one variable with all that ST-08 puts beside it.

    `codes` is a `GroupCodes` (variable, names, codes, missing, note). With `resamples` 0 the null band and
    the pairwise intervals are left out. The variance is that of the group scores over estimable groups
    (each group counts once).
    """
    codes, names = coded.codes, coded.names
    n_groups = len(names)
    values = group_values(disparity, partition, codes, n_groups)
    cases = np.array([(codes == g).sum() for g in range(n_groups)], dtype=np.int64)
    patients = np.array(
        [np.unique(partition.cluster_of_case[codes == g]).size for g in range(n_groups)], dtype=np.int64
    )
    gap = float(disparity.gap(values)) if n_groups else float("nan")
    score = disparity.score(values) if n_groups else np.zeros(0)
    sign = 1.0 if disparity.score_is_better_high else -1.0
    known = np.flatnonzero(np.isfinite(score))
    entry: dict[str, Any] = {
        "metric": disparity.name,
        "gap": _number(gap),
        "null_band_upper": None,
        "null_mean": None,
        "gap_above_null": None,
        "p": None,
        "worst_group": names[known[np.argmin(sign * score[known])]] if known.size else None,
        "best_group": names[known[np.argmax(sign * score[known])]] if known.size else None,
        "variance": float(np.var(score[known])) if known.size else None,
        "sizes": {name: int(n) for name, n in zip(names, cases, strict=True)},
        "patients": {name: int(n) for name, n in zip(names, patients, strict=True)},
        "smallest_group": int(cases[cases > 0].min()) if (cases > 0).any() else 0,
        "group_scores": {name: _number(s) for name, s in zip(names, score, strict=True)},
        "group_values": {
            name: {m: _number(v) for m, v in zip(disparity.metrics, row, strict=True)}
            for name, row in zip(names, values, strict=True)
        },
        "gaps": {m: _number(r) for m, r in zip(disparity.metrics, spread(values, 0), strict=True)},
        "unestimable": {
            name: why
            for name, row, n in zip(names, values, cases, strict=True)
            if (why := _why_not(disparity, row, int(n)))
        },
        "pairwise": [],
        "missing": int(coded.missing),
        "note": " ".join(part for part in (coded.note, RANGE_NOTE) if part),
    }
    if codes_of_patients(partition, codes) is None:
        entry["note"] += (
            " Some patients have cases in several groups: permuted among patients with as many cases."
        )
    if np.isnan(gap):
        entry["undefined_reason"] = "no group is estimable"
    if resamples <= 0 or not n_groups:
        return entry
    null = permuted_gaps(
        disparity, partition, [codes], [n_groups], key=key, seed=seed, permutations=resamples
    )
    band = null_band(gap, null[:, 0], level=level)
    entry |= {"null_band_upper": _number(band.upper), "null_mean": _number(band.mean)}
    entry |= {"gap_above_null": _number(band.above), "p": _number(band.p), "level": level}
    stream = WeightStream(partition, key=key, seed=seed, resamples=resamples, by_site=by_site)
    draws = disparity.score(resampled_groups(disparity, partition, codes, n_groups, stream))
    pairs, difference, together = pairwise_differences(score, draws, patients, level=level)
    for i, (a, b) in enumerate(pairs):
        if cases[a] == 0 or cases[b] == 0:
            continue
        pair = {"a": names[a], "b": names[b], "difference": _number(difference[i])}
        pair |= {"lo": _number(together.lo[i]), "hi": _number(together.hi[i])}
        if not together.usable[i]:
            pair["undefined_reason"] = (
                "a group is not estimable, does not vary, or is empty in more than "
                f"{1 - LEAST_USABLE:.0%} of the resamples"
            )
        entry["pairwise"].append(pair)
    return entry


def fairness_report(
    disparity: Disparity,
    partition: Partition,
    codes: Sequence[Any],
    *,
    key: str,
    seed: int,
    resamples: int = 1000,
    by_site: bool = True,
    level: float = 0.95,
) -> dict[str, dict[str, Any]]:
    """summary.json's `fairness`: {variable: entry}, see `variable_report`."""
    return {
        coded.variable: variable_report(
            disparity, partition, coded, key=key, seed=seed, resamples=resamples, by_site=by_site, level=level
        )
        for coded in codes
    }
