"""Fairness beyond the protocol's range (ST-08, MRI-11, MRI-12).

A range (largest - smallest group value) is biased upward, the more so the smaller the groups, and a
percentile bootstrap of it has no valid coverage: resampling widens a range that was already too wide. So
the range comes with a null band, made by permuting whole attribute vectors over patients, and with
simultaneous intervals of the pairwise differences, which are not ranges and can be covered.

Everything is weights: group g is the row of weights (code == g), a permuted group is (code[perm] == g),
a resampled group is the product of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules
from elsewhere.statistics.bootstrap_weights import WeightStream, generator_for, thread_count
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.fairness.disparity import GROUPS_NEEDED, Disparity, Weights
from elsewhere.statistics.fairness.gap_interval import gap_interval, pairwise_of_rates
from elsewhere.statistics.fairness.group_scores import mean_disparity, spread
from elsewhere.statistics.fairness.subgroups import comparable_metrics, group_table
from elsewhere.statistics.paired import holm
from elsewhere.statistics.simultaneous import LEAST_USABLE, Simultaneous, max_t

__all__ = [
    "RANGE_NOTE",
    "Disparity",
    "NullBand",
    "codes_of_patients",
    "comparable_metrics",
    "fairness_report",
    "flag_gaps",
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
RANGE_NOTE = (
    "A range is biased upward and a percentile bootstrap of it has no valid coverage: "
    "read the gap against the null band, its interval from all pairwise differences, and these."
)
PAIRS_BY_RESAMPLING = "max-t over bootstrap resamples of patients"
PAIRS_OF_RATES = "Jeffreys limits of each rate, joined by square-and-add, at Tukey's critical value"
_NO_PAIR = f"a group is not estimable, does not vary, or is empty in more than {1 - LEAST_USABLE:.0%} of the resamples"
_NO_PAIR_OF_RATES = "a group has no positive case or no negative case"
_STREAM = 7008
_BLOCK = 64
_CELLS = 2**24
_BUDGET = 2 * 10**8


def codes_of_patients(partition: Clusters, codes: npt.NDArray[np.int16]) -> npt.NDArray[np.int16] | None:
    """Find the group of each patient.

    Args:
        partition: Maps cases to patients and sites.
        codes: The group of each case; -1 for none.

    Returns:
        The group of each patient, -1 for none; None where some patient has cases in two groups.

    Example:
        >>> import pandas as pd
        >>> two = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "a", "b"]}))
        >>> codes_of_patients(two, np.array([0, 0, 1], dtype=np.int16)).tolist()
        [0, 1]
    """
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
    disparity: Disparity, partition: Clusters, codes: npt.NDArray[np.int16], n_groups: int
) -> FloatArray:
    """Evaluate every group.

    Args:
        disparity: What is compared between groups.
        partition: Maps cases to patients and sites.
        codes: The group of each case; -1 for none.
        n_groups: How many groups there are.

    Returns:
        (groups, metrics) at full weights, for groups of cases (a patient may have cases in several).

    Example:
        >>> import pandas as pd
        >>> from elsewhere.statistics.columns import ColumnMeans
        >>> three = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "b", "c"]}))
        >>> dice = ColumnMeans({"dice": [0.5, 1.0, 0.9]}, three.cluster_of_case, n_clusters=3)
        >>> of_dice = Disparity.of_metrics(dice, ["dice"])
        >>> group_values(of_dice, three, np.array([0, 0, 1], dtype=np.int16), 2).tolist()
        [[0.75], [0.9]]
    """
    of_patients = codes_of_patients(partition, codes)
    if of_patients is not None:
        return disparity.evaluate(_rows_of(of_patients[None, :], n_groups))
    ones = np.ones((1, partition.n_clusters), dtype=np.uint16)
    return np.concatenate([disparity.subset(codes == g)(ones) for g in range(n_groups)])


def _segments(strata: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int32]]:
    """The patients of each stratum that has more than one."""
    order = np.argsort(strata, kind="stable").astype(np.int32)
    cuts = np.flatnonzero(np.diff(strata[order])) + 1
    return [part for part in np.split(order, cuts) if part.size > 1]


def _donors(
    segments: Sequence[npt.NDArray[np.int32]], n: int, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """donor[c]: the patient whose attributes patient c gets; a shuffle inside every stratum."""
    donor = np.arange(n, dtype=np.int32)
    for part in segments:
        donor[part] = rng.permutation(part)
    return donor


def affordable(permutations: int, *, cells: int, floor: int = 99) -> int:
    """Choose how many permutations can be afforded.

    Fewer permutations where one costs much: p = (b + 1)/(B + 1) is exact for any B, only coarser.

    Args:
        permutations: How many permutations are asked for.
        cells: Size of the computation of one permutation, in groups x cases.
        floor: The fewest permutations.

    Returns:
        The number of permutations.

    Example:
        >>> affordable(1000, cells=3 * 200), affordable(1000, cells=10**9)
        (1000, 99)
    """
    return min(permutations, max(floor, _BUDGET // max(1, cells)))


def permuted_gaps(
    disparity: Disparity,
    partition: Clusters,
    codes: Sequence[npt.NDArray[np.int16]],
    n_groups: Sequence[int],
    *,
    key: str,
    seed: int,
    permutations: int,
    threads: int | None = None,
) -> FloatArray:
    """Compute the gaps when whole attribute vectors are permuted over patients (ST-08).

    All variables of a patient move together, so the null keeps their dependence. A vector moves only among
    patients with the same pattern of missing values, hence a missing age stays missing: the test asks nothing
    of why values are missing. Within the outcome class where the disparity says so. Where a patient has cases
    in several groups, vectors move among patients with as many cases. On very large cohorts fewer
    permutations are made (`affordable`).

    Args:
        disparity: What is compared between groups.
        partition: Maps cases to patients and sites.
        codes: For each variable the group of each case; -1 for none.
        n_groups: How many groups each variable has.
        key: Hash of the cohort, which names the stream of random numbers.
        seed: The seed of every draw.
        permutations: How many permutations.
        threads: How many threads; None for all processors.

    Returns:
        (permutations, variables); NaN where fewer than two groups can be estimated.
    """
    of_patients = [codes_of_patients(partition, c) for c in codes]
    whole = [c for c in of_patients if c is not None]
    fast = len(whole) == len(codes)
    n, most = partition.n_clusters, max([1, *n_groups])
    strata = np.zeros(n, dtype=np.int64)
    if disparity.within_class and partition.positive_cluster is not None:
        strata = strata * 2 + partition.positive_cluster
    if fast:
        for c in whole:
            strata = strata * 2 + (c < 0)
    else:
        counts = partition.cases_per_cluster().astype(np.int64)
        strata = strata * (int(counts.max(initial=0)) + 1) + counts
    segments = _segments(strata)
    made = affordable(permutations, cells=sum(n_groups) * partition.n_cases * (1 if fast else 50))
    out = np.full((made, len(codes)), np.nan)
    at_once = max(1, min(_BLOCK, _CELLS // max(1, most * n)))

    def block(index: int) -> None:
        rng = generator_for(key, seed, _STREAM, index)
        for first in range(index * _BLOCK, min((index + 1) * _BLOCK, made), at_once):
            last = min(first + at_once, (index + 1) * _BLOCK, made)
            donors = np.stack([_donors(segments, n, rng) for _ in range(first, last)])
            for v, groups in enumerate(n_groups):
                if fast:
                    values = disparity.evaluate(_rows_of(whole[v][donors], groups))
                    out[first:last, v] = disparity.gap(values.reshape(last - first, groups, -1))
                    continue
                for row, donor in enumerate(donors, start=first):
                    moved = _move_cases(partition, codes[v], donor)
                    out[row, v] = disparity.gap(group_values(disparity, partition, moved, groups))

    with ThreadPoolExecutor(thread_count(threads)) as pool:
        list(pool.map(block, range(-(-made // _BLOCK))))
    return out


def _move_cases(
    partition: Clusters, codes: npt.NDArray[np.int16], donor: npt.NDArray[np.int32]
) -> npt.NDArray[np.int16]:
    """Give patient c the codes of patient donor[c], case by case; both have as many cases."""
    order = partition.cases_by_patient()
    starts = np.concatenate([[0], np.cumsum(partition.cases_per_cluster())])
    sorted_cluster = partition.cluster_of_case[order]
    within = np.arange(order.size) - starts[sorted_cluster]
    moved = np.empty_like(codes)
    moved[order] = codes[order[starts[donor[sorted_cluster]] + within]]
    return moved


def resampled_groups(
    disparity: Disparity,
    codes: npt.NDArray[np.int16],
    n_groups: int,
    stream: WeightStream,
    *,
    threads: int | None = None,
) -> FloatArray:
    """Evaluate every group on the same resamples of patients.

    Args:
        disparity: What may differ between groups.
        codes: The group of each case; -1 for none.
        n_groups: How many groups there are.
        stream: The resamples.
        threads: How many threads; None for all processors.

    Returns:
        (resamples, groups, metrics): every group's values on the same resamples of patients.
    """
    parts = [disparity.subset(codes == g) for g in range(n_groups)]
    out = np.full((stream.resamples, n_groups, len(disparity.metrics)), np.nan)

    def block(index: int) -> None:
        for first, weights in stream.block(index):
            for g, values in enumerate(parts):
                out[first : first + len(weights), g] = values(weights)

    with ThreadPoolExecutor(thread_count(threads)) as pool:
        list(pool.map(block, range(stream.n_blocks)))
    return out


def pairwise_differences(
    point: FloatArray, draws: FloatArray, n_patients: npt.NDArray[np.int64], *, level: float = 0.95
) -> tuple[list[tuple[int, int]], FloatArray, Simultaneous]:
    """Compare all pairs of groups.

    The standard error of a pair gets the small-sample factor sqrt(n/(n-1)) of its groups, and its critical
    value a t-stretch with Satterthwaite's degrees of freedom. A pair with a group that has no variation at
    all has no interval: [0, 0] would be a lie.

    Args:
        point: The score of each group.
        draws: The scores under the resamples, (resamples, groups).
        n_patients: The number of patients of each group.
        level: The level at which all intervals hold together.

    Returns:
        The pairs of groups, their differences, and simultaneous intervals of these (max-t, ST-08).
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
    """The gap between groups, compared with the gaps that permuted attributes give.

    Args:
        gap: The observed gap.
        upper: Upper end of the null band; NaN where it is not known.
        mean: Mean of the permuted gaps.
        p: Share of permutations with a gap at least as large, (b + 1)/(B + 1).

    Example:
        >>> round(NullBand(gap=0.2, upper=0.15, mean=0.1, p=0.01).above, 2)
        0.05
    """

    gap: float
    upper: float
    mean: float
    p: float

    @property
    def above(self) -> float:
        """How far the gap lies above the null band; below 0 it lies inside the band."""
        return self.gap - self.upper


def null_band(gap: float, null: FloatArray, *, level: float = 0.95) -> NullBand:
    """Compute the null band of a gap.

    A permutation without an estimable group counts as extreme: it may not help a claim of unfairness.

    Args:
        gap: The observed gap.
        null: The gaps under permutation.
        level: The level of the band.

    Returns:
        Upper `level` end of the null, its mean, and p = (b + 1)/(B + 1) (ST-12).

    Example:
        >>> null_band(0.2, np.linspace(0.0, 0.1, 99)).p
        0.01
    """
    known = null[np.isfinite(null)]
    if not np.isfinite(gap) or known.size == 0:
        return NullBand(gap, float("nan"), float("nan"), float("nan"))
    b = int((known >= gap - 1e-12).sum()) + null.size - known.size
    upper, mean = float(np.quantile(known, level)), float(known.mean())
    return NullBand(float(gap), upper, mean, (b + 1) / (null.size + 1))


def overall_null(
    disparity: Disparity,
    partition: Clusters,
    codes: Sequence[Any],
    *,
    rules: FairnessRules,
    key: str,
    seed: int,
    permutations: int = 1000,
) -> NullBand:
    """Compute the null band of the mean disparity over variables.

    Args:
        disparity: What is compared between groups.
        partition: Maps cases to patients and sites.
        codes: The groups of each variable, as `GroupCodes`.
        rules: The protocol's rules of fairness.
        key: Hash of the cohort, which names the stream of random numbers.
        seed: The seed of every draw.
        permutations: How many permutations.

    Returns:
        The null band of the mean disparity over variables (1 - the fairness score).
    """
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


def _why_no_gap(disparity: Disparity, values: FloatArray, names: Sequence[str]) -> str:
    """Fewer than two groups have the metric (the first such metric is named)."""
    for metric, column in zip(disparity.metrics, values.T, strict=True):
        known = [name for name, value in zip(names, column, strict=True) if np.isfinite(value)]
        if len(known) < GROUPS_NEEDED:
            only = f"only the group {known[0]} is estimable" if known else "no group is estimable"
            of = f" ({metric})" if len(disparity.metrics) > 1 else ""
            return f"{only}{of}, and a gap needs two groups" if known else f"{only}{of}"
    return "no group is estimable"


def variable_report(
    disparity: Disparity,
    partition: Clusters,
    coded: Any,
    *,
    key: str,
    seed: int,
    resamples: int = 1000,
    by_site: bool = True,
    level: float = 0.95,
) -> dict[str, Any]:
    """Report the gap of one variable.

    With `resamples` 0 the null band and the pairwise intervals are left out. The variance is that of the
    group scores over estimable groups (each group counts once).

    Args:
        disparity: What is compared between groups.
        partition: Maps cases to patients and sites.
        coded: The groups of the variable, as `GroupCodes` (variable, names, codes, missing, note).
        key: Hash of the cohort, which names the stream of random numbers.
        seed: The seed of every draw.
        resamples: How many resamples and permutations.
        by_site: Whether strata of the resampling are divided by site.
        level: The level of the intervals.

    Returns:
        One entry of summary.json's `fairness`: the gap of one variable with its null band, its interval, the
        groups' scores and all pairwise differences (ST-08).
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
    ranges = spread(values, 0, fewest=GROUPS_NEEDED)
    several = known.size >= GROUPS_NEEDED
    entry: dict[str, Any] = {
        "metric": disparity.name,
        "gap": _number(gap),
        "gap_lo": None,
        "gap_hi": None,
        "null_band_upper": None,
        "null_mean": None,
        "gap_above_null": None,
        "p": None,
        "worst_group": names[known[np.argmin(sign * score[known])]] if several else None,
        "best_group": names[known[np.argmax(sign * score[known])]] if several else None,
        "variance": float(np.var(score[known])) if several else None,
        "sizes": {name: int(n) for name, n in zip(names, cases, strict=True)},
        "patients": {name: int(n) for name, n in zip(names, patients, strict=True)},
        "smallest_group": int(cases[cases > 0].min()) if (cases > 0).any() else 0,
        "group_scores": {name: _number(s) for name, s in zip(names, score, strict=True)},
        "group_values": {
            name: {m: _number(v) for m, v in zip(disparity.metrics, row, strict=True)}
            for name, row in zip(names, values, strict=True)
        },
        "gaps": {m: _number(r) for m, r in zip(disparity.metrics, ranges, strict=True)},
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
        entry["undefined_reason"] = _why_no_gap(disparity, values, names)
    if resamples <= 0 or not n_groups:
        return entry
    null = permuted_gaps(
        disparity, partition, [codes], [n_groups], key=key, seed=seed, permutations=resamples
    )
    band = null_band(gap, null[:, 0], level=level)
    entry |= {"null_band_upper": _number(band.upper), "null_mean": _number(band.mean)}
    entry |= {"gap_above_null": _number(band.above), "p": _number(band.p)}
    entry |= {"level": level, "permutations": len(null)}
    stream = WeightStream(
        partition,
        key=key,
        seed=seed,
        resamples=resamples,
        by_site=by_site,
        by_class=disparity.within_class and partition.positive_cluster is not None,
    )
    drawn = resampled_groups(disparity, codes, n_groups, stream)
    trials = None
    if disparity.trials is not None:
        trials = np.stack([disparity.trials(codes == g) for g in range(n_groups)])
    entry |= _interval_of_gap(disparity, values, drawn, coded, patients, trials, level=level)
    if trials is None:
        draws = disparity.score(drawn)
        pairs, difference, together = pairwise_differences(score, draws, patients, level=level)
    else:
        pairs, difference, together = pairwise_of_rates(
            disparity, values, drawn, patients, trials, level=level
        )
    entry["pairwise_method"] = PAIRS_BY_RESAMPLING if trials is None else PAIRS_OF_RATES
    for i, (a, b) in enumerate(pairs):
        if cases[a] == 0 or cases[b] == 0:
            continue
        pair = {"a": names[a], "b": names[b], "difference": _number(difference[i])}
        pair |= {"lo": _number(together.lo[i]), "hi": _number(together.hi[i])}
        if not together.usable[i]:
            pair["undefined_reason"] = _NO_PAIR if trials is None else _NO_PAIR_OF_RATES
        entry["pairwise"].append(pair)
    return entry


def _interval_of_gap(
    disparity: Disparity,
    values: FloatArray,
    drawn: FloatArray,
    coded: Any,
    patients: npt.NDArray[np.int64],
    trials: FloatArray | None,
    *,
    level: float,
) -> dict[str, Any]:
    """`gap_lo`, `gap_hi`, and the groups that have no interval of their own and are left out of it."""
    made = gap_interval(disparity, values, drawn, patients, trials=trials, level=level)
    left_out = [
        name for name, inside, n in zip(coded.names, made.inside, patients, strict=True) if n and not inside
    ]
    return {
        "gap_lo": _number(made.lo),
        "gap_hi": _number(made.hi),
        "gap_interval_without": left_out,
    }


def flag_gaps(report: dict[str, dict[str, Any]], *, alpha: float = 0.05) -> None:
    """Adjust the p-values of a report by Holm's procedure and flag its gaps.

    Without it, a fair model judged by three variables would be called unfair by one of them in a seventh of
    all studies.

    Args:
        report: The entries by variable; each gets `p_holm` and `flagged`.
        alpha: A gap is flagged where its adjusted p is at most this.

    Example:
        >>> report = {"age": {"p": 0.01}, "density": {"p": 0.04}, "site": {"p": None}}
        >>> flag_gaps(report)
        >>> [entry["p_holm"] for entry in report.values()]
        [0.02, 0.04, None]
    """
    for entry, p in zip(report.values(), holm([e["p"] for e in report.values()]), strict=True):
        entry["p_holm"] = p
        entry["flagged"] = None if p is None else bool(p <= alpha)


def fairness_report(
    disparity: Disparity,
    partition: Clusters,
    codes: Sequence[Any],
    *,
    key: str,
    seed: int,
    resamples: int = 1000,
    by_site: bool = True,
    level: float = 0.95,
) -> dict[str, dict[str, Any]]:
    """Report the gaps of all variables.

    Args:
        disparity: What may differ between groups.
        partition: Cases to patients and sites.
        codes: The groups of each variable.
        key: Names the stream of random numbers: the hash of the cohort.
        seed: The seed of every draw.
        resamples: How many resamples and permutations.
        by_site: Whether strata are divided by site.
        level: The level of the interval.

    Returns:
        Summary.json's `fairness`: {variable: entry}, see `variable_report` and `flag_gaps`.
    """
    report = {
        coded.variable: variable_report(
            disparity, partition, coded, key=key, seed=seed, resamples=resamples, by_site=by_site, level=level
        )
        for coded in codes
    }
    flag_gaps(report, alpha=1.0 - level)
    return report
