"""Ranks that say how sure they are (ST-09), and what moves them (MRI-10).

All models share the same resamples. Two models are separated only when the simultaneous interval of their
difference (max-t over all pairs) excludes zero, so the chance that any two equal models are separated
anywhere in the table is at most alpha. Bootstrap rank frequencies are a picture: resampling adds noise to
ranks that already have it, and their spread is not a confidence interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from elsewhere.errors import UserError, unknown_name
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.domain import domain_warnings
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.paired import holm
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.simultaneous import (
    LEAST_USABLE,
    PairDraws,
    constant_difference_p,
    constant_differences,
    max_t,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_EQUAL = 1e-12
"""Values closer together than this are equal: sums in another order differ in the last digits."""
TENTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def ranks_of(values: npt.ArrayLike, *, higher_is_better: bool = True, tolerance: float = _EQUAL) -> IntArray:
    """Rank values.

    An undefined value ranks last (ST-14). Values within `tolerance` are equal: sums in another order must not
    separate two models.

    Args:
        values: The values.
        higher_is_better: Whether a higher value is better.
        tolerance: Differences this small are ties.

    Returns:
        1 is best; equal values share the better rank and the next rank is left out (1, 2, 2, 4).

    Example:
        >>> ranks_of([0.7, 0.9, 0.8, 0.8]).tolist()
        [4, 1, 2, 2]
    """
    v = np.asarray(values, dtype=np.float64)
    signed = np.where(np.isfinite(v), v if higher_is_better else -v, -np.inf)
    better = signed[None, :] > signed[:, None] + tolerance
    ranks: IntArray = better.sum(axis=1) + 1
    return ranks


def rank_frequencies(draws: FloatArray, *, higher_is_better: bool = True) -> FloatArray:
    """Count how often each model took each rank.

    Args:
        draws: The values under the resamples, (resamples, models).
        higher_is_better: Whether a higher value is better.

    Returns:
        (models, ranks): the share of resamples in which a model had that rank.

    Example:
        >>> rank_frequencies(np.array([[0.9, 0.8], [0.7, 0.8]])).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    n_models = draws.shape[1]
    out = np.zeros((n_models, n_models))
    models = np.arange(n_models)
    signed = np.where(np.isfinite(draws), draws if higher_is_better else -draws, -np.inf)
    for row in signed:
        place = np.searchsorted(np.sort(-row), -row - 1e-12, side="left")
        np.add.at(out, (models, np.minimum(place, n_models - 1)), 1.0)
    return out / max(1, len(draws))


def tiers_of(
    values: FloatArray, surely_better: npt.NDArray[np.bool_], *, higher_is_better: bool = True
) -> IntArray:
    """Divide models into tiers.

    Args:
        values: The value of each model; NaN where undefined.
        surely_better: `surely_better[i, j]` is True where model i is surely better than j.
        higher_is_better: Whether a higher value is better.

    Returns:
        Tier 1 = all not surely worse than the best, then the same among the rest; 0 where undefined.

    Example:
        >>> sure = np.array([[False, False, True], [False, False, True], [False, False, False]])
        >>> tiers_of(np.array([0.9, 0.88, 0.7]), sure).tolist()
        [1, 1, 2]
    """
    signed = values if higher_is_better else -values
    tiers = np.zeros(values.size, dtype=np.int64)
    left = np.isfinite(values)
    tier = 0
    while left.any():
        tier += 1
        best = int(np.flatnonzero(left)[np.argmax(signed[left])])
        member = left & ~surely_better[best]
        tiers[member] = tier
        left &= ~member
    return tiers


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """A ranking of models that says how sure it is; the models are in the order given, `order` sorts them.

    Args:
        names: Names of the models.
        metric: Name of the metric that they are ranked by.
        higher_is_better: Whether a higher value is better.
        values: Value of each model; NaN where undefined.
        ranks: Rank of each model by its value, 1 for the best.
        rank_lo: Lower end of each rank interval: 1 + number of models that are surely better.
        rank_hi: Upper end of each rank interval: number of models - number that are surely worse.
        tiers: Tier of each model, from 1; 0 where its value is undefined.
        difference: `difference[i, j]` is value i - value j.
        lo: Lower end of its simultaneous interval; NaN for identical or undefined models. A difference that
            is not zero and the same in every resample is its own interval, see `constant_differences`.
        hi: Upper end of the same.
        frequencies: `frequencies[i, r]` is the share of resamples in which i had rank r + 1: a picture, not
            an interval.
        critical: Critical value that all pairs share.
        level: Level at which all intervals hold together.
        resamples: Number of resamples.
        baseline: The model that the others are tested against; None for none.
        against_baseline: One test per other model: `model`, `difference`, `lo`, `hi`, `p`, `p_holm`.
        left_out_sites: The ranking without the cases of each site, by the site's name.
        notes: Full sentences about the ranking.
    """

    names: tuple[str, ...]
    metric: str
    higher_is_better: bool
    values: FloatArray
    ranks: IntArray
    rank_lo: IntArray
    rank_hi: IntArray
    tiers: IntArray
    difference: FloatArray
    lo: FloatArray
    hi: FloatArray
    frequencies: FloatArray
    critical: float
    level: float
    resamples: int
    baseline: str | None = None
    against_baseline: tuple[dict[str, Any], ...] = ()
    left_out_sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def order(self) -> IntArray:
        """The models from best to worst."""
        return np.lexsort((np.array(self.names), self.ranks)).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json: one row per model, best first, then every pair of models.

        Returns:
            The entry.
        """
        number = _number
        rows = [
            {
                "model": self.names[i],
                "rank": int(self.ranks[i]),
                "rank_lo": int(self.rank_lo[i]),
                "rank_hi": int(self.rank_hi[i]),
                "tier": int(self.tiers[i]) or None,
                "value": number(self.values[i]),
                "frequencies": [float(f) for f in self.frequencies[i]],
            }
            for i in self.order
        ]
        pairs = [
            {
                "a": self.names[i],
                "b": self.names[j],
                "difference": number(self.difference[i, j]),
                "lo": number(self.lo[i, j]),
                "hi": number(self.hi[i, j]),
            }
            for a, i in enumerate(self.order)
            for j in self.order[a + 1 :]
        ]
        return {
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "level": self.level,
            "resamples": self.resamples,
            "method": "max-t over all pairs, shared resamples",
            "critical": number(self.critical),
            "models": rows,
            "pairwise": pairs,
            "baseline": self.baseline,
            "against_baseline": list(self.against_baseline),
            "left_out_sites": self.left_out_sites,
            "notes": list(self.notes),
        }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _check(
    evaluators: Sequence[Evaluator], partition: Clusters, names: Sequence[str], metric: str
) -> MetricSpec:
    if not evaluators:
        raise UserError("there is no model to rank", fix="Give at least one result.")
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if list(names).count(n) > 1})
        raise UserError(
            f"two models are called {', '.join(twice)}", fix="Give every model a name of its own."
        )
    for evaluator, name in zip(evaluators, names, strict=True):
        if evaluator.n_clusters != partition.n_clusters:
            raise UserError(
                f"'{name}' has {evaluator.n_clusters} patients, the cohort {partition.n_clusters}",
                fix="Score every model on the same cohort: all ranks rest on the same resamples of its patients.",
            )
        known = [spec.name for spec in evaluator.specs]
        if metric not in known:
            raise unknown_name("metric", metric, known)
    return evaluators[0].spec(metric)


@dataclass(frozen=True, kw_only=True)
class PatientCounts:
    """How many patients stand behind resampled differences of models.

    Attributes:
        df: Patients - strata; infinite where there are so many that a normal law serves.
        patients: All of them; None for df + 1, which is one stratum.
        fewest: Those of the rarer class, where the metric is a mean over classes; None for all. So many must
            bear a difference that never varies.
    """

    df: float = np.inf
    patients: int | None = None
    fewest: int | None = None

    @property
    def counted(self) -> float:
        """All patients, as far as they are known."""
        return self.df + 1 if self.patients is None else self.patients

    @property
    def inflation(self) -> float:
        """The factor of the standard error that resampling within strata takes away: sqrt(patients / df)."""
        return float(np.sqrt(self.counted / self.df)) if np.isfinite(self.df) else 1.0

    @property
    def bearing(self) -> int:
        """The patients who must bear a difference that never varies."""
        return int(min(self.fewest if self.fewest is not None else self.counted, 10**6))


MANY = PatientCounts()


def rank_models(
    evaluators: Sequence[Evaluator],
    partition: Clusters,
    metric: str,
    *,
    names: Sequence[str],
    resampling: Resampling,
    level: float = 0.95,
    by_site: bool = True,
    baseline: str | None = None,
) -> Ranking:
    """Rank models that were scored on one cohort (ST-09).

    Differences are bootstrapped in pairs, since all models see the same resamples; the standard error gets
    the small-sample factor of the number of patients, and the critical value its t-stretch. With 0 resamples
    no two models are separated: every rank interval is [1, m], every model in tier 1.

    Args:
        evaluators: The metrics of each model, all on the same cases.
        partition: Maps cases to patients and sites.
        metric: The name of the metric.
        names: The names of the models, all different.
        resampling: The resamples; their number may be 0.
        level: The level at which all intervals hold together.
        by_site: Whether strata are divided by site.
        baseline: The model that the others are tested against; None for no tests.

    Returns:
        The ranking.

    Raises:
        UserError: If there is no model, two have one name, a model is of other patients, or the metric or the
            baseline is unknown.
    """
    spec = _check(evaluators, partition, names, metric)
    if baseline is not None and baseline not in names:
        raise unknown_name("model", baseline, list(names))
    values = np.array([ev.values()[metric] for ev in evaluators])
    rarer = partition.rarer_class() if spec.stratify_by_class else None
    stream = WeightStream(
        partition,
        key=resampling.key,
        seed=resampling.seed,
        resamples=resampling.resamples,
        by_site=by_site,
        by_class=spec.stratify_by_class and partition.positive_cluster is not None,
    )
    draws = np.concatenate(draw(evaluators, stream, metrics=[metric], threads=resampling.threads), axis=1)
    ranking = rank_from_draws(
        values,
        draws,
        names=names,
        metric=metric,
        higher_is_better=spec.higher_is_better,
        patients=PatientCounts(
            df=partition.degrees_of_freedom(by_site=by_site, of_class=rarer),
            patients=partition.n_clusters if rarer is None else int(rarer.sum()),
        ),
        level=level,
        baseline=baseline,
    )
    return replace(
        ranking,
        left_out_sites=left_out_sites(evaluators, partition, metric, names=names),
        notes=(*ranking.notes, *_outside_the_domain(evaluators, partition, spec, values)),
    )


def _outside_the_domain(
    evaluators: Sequence[Evaluator], partition: Clusters, spec: MetricSpec, values: FloatArray
) -> list[str]:
    """Notes on models that lie outside the domain of promised coverage (ST-04a)."""
    found = Counter(
        text
        for evaluator, value in zip(evaluators, values, strict=True)
        if np.isfinite(value)
        for text in domain_warnings(evaluator, partition, spec, float(value))
    )
    return [f"{text} This concerns {count} of {values.size} models." for text, count in found.items()]


def rank_from_draws(
    values: FloatArray,
    draws: FloatArray,
    *,
    names: Sequence[str],
    metric: str,
    higher_is_better: bool = True,
    patients: PatientCounts = MANY,
    level: float = 0.95,
    baseline: str | None = None,
) -> Ranking:
    """Rank models once the shared resamples are drawn.

    Args:
        values: The metric of each model.
        draws: The metric under the resamples, (resamples, models).
        names: The names of the models.
        metric: The name of the metric.
        higher_is_better: Whether a higher value is better.
        patients: How many patients stand behind the differences.
        level: The level of the interval.
        baseline: The model that the others are tested against.

    Returns:
        The ranking, without the rankings that leave a site out.
    """
    m = values.size
    a, b = np.triu_indices(m, 1)
    df, factor, bearing = patients.df, patients.inflation, patients.bearing
    pairs = PairDraws(draws, a, b)
    together = max_t(
        values[a] - values[b],
        pairs,
        level=level,
        inflate=factor,
        df=np.full(a.size, df) if np.isfinite(df) else None,
    )
    difference = values[:, None] - values[None, :]
    lo, hi = np.full((m, m), np.nan), np.full((m, m), np.nan)
    certain = constant_differences(values[a] - values[b], pairs, patients=bearing, level=level)
    lo[a, b] = np.where(certain, values[a] - values[b], together.lo)
    hi[a, b] = np.where(certain, values[a] - values[b], together.hi)
    lo[b, a], hi[b, a] = -hi[a, b], -lo[a, b]
    above, below = (lo > 0) & (difference > _EQUAL), (hi < 0) & (difference < -_EQUAL)
    surely_better = above if higher_is_better else below
    notes = []
    undefined = ~np.isfinite(values)
    if undefined.any():
        gone = ", ".join(n for n, u in zip(names, undefined, strict=True) if u)
        notes.append(f"{metric} is undefined for {gone}: ranked last, in no tier.")
    unvarying = np.isfinite(difference[a, b]) & ~together.usable & ~certain
    if len(draws) and unvarying.any():
        notes.append(
            f"{int(unvarying.sum())} pairs of models do not vary over the resamples (equal predictions, or a "
            "constant difference on too few patients) and are not separated."
        )
    if certain.any():
        notes.append(
            f"{int(certain.sum())} pairs of models differ by the same amount in every resample and are separated."
        )
    defined_count = np.where(undefined, m - undefined.sum(), surely_better.sum(axis=0))
    return Ranking(
        names=tuple(names),
        metric=metric,
        higher_is_better=higher_is_better,
        values=values,
        ranks=ranks_of(values, higher_is_better=higher_is_better),
        rank_lo=(1 + defined_count).astype(np.int64),
        rank_hi=np.where(undefined, m, m - surely_better.sum(axis=1) - undefined.sum()).astype(np.int64),
        tiers=tiers_of(values, surely_better, higher_is_better=higher_is_better),
        difference=difference,
        lo=lo,
        hi=hi,
        frequencies=rank_frequencies(draws, higher_is_better=higher_is_better),
        critical=together.critical,
        level=level,
        resamples=len(draws),
        baseline=baseline,
        against_baseline=_against(
            values, draws, names, baseline, df=df, factor=factor, level=level, patients=bearing
        ),
        left_out_sites={},
        notes=tuple(notes),
    )


def _against(
    values: FloatArray,
    draws: FloatArray,
    names: Sequence[str],
    baseline: str | None,
    *,
    df: float,
    factor: float,
    level: float,
    patients: int,
) -> tuple[dict[str, Any], ...]:
    """Each model - baseline: t of the paired bootstrap standard error, two-sided, Holm over the models.

    The interval is that of the one comparison; the Holm p answers for all of them. A difference that never
    varies has the exact p of the sign test over the patients (ST-09a).
    """
    if baseline is None or len(draws) < 2:
        return ()
    at = list(names).index(baseline)
    others = [i for i in range(len(names)) if i != at]
    difference = values[others] - values[at]
    paired = draws[:, others] - draws[:, [at]]
    known = np.isfinite(paired)
    count = np.maximum(known.sum(axis=0), 2)
    mean = np.where(known, paired, 0.0).sum(axis=0) / count
    se = factor * np.sqrt(np.where(known, (paired - mean) ** 2, 0.0).sum(axis=0) / (count - 1))
    usable = np.isfinite(difference) & (se > 1e-12)
    law = stats.t(df) if np.isfinite(df) else stats.norm()
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(usable, 2 * law.sf(np.abs(difference / se)), np.where(difference == 0, 1.0, np.nan))
    constant = ~usable & (difference != 0) & (known.mean(axis=0) >= LEAST_USABLE)
    p = np.where(constant, constant_difference_p(patients), p)
    adjusted = holm([_number(value) for value in p])
    reach = float(law.ppf((1 + level) / 2)) * se
    return tuple(
        {
            "model": names[i],
            "difference": _number(difference[k]),
            "lo": _number(difference[k] - reach[k]) if usable[k] or constant[k] else None,
            "hi": _number(difference[k] + reach[k]) if usable[k] or constant[k] else None,
            "p": _number(p[k]),
            "p_holm": adjusted[k],
        }
        for k, i in enumerate(others)
    )


def left_out_sites(
    evaluators: Sequence[Evaluator], partition: Clusters, metric: str, *, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Rank the models without the cases of each site in turn.

    Args:
        evaluators: The metrics of each model, all on the same cases.
        partition: Cases to patients and sites.
        metric: The name of the metric.
        names: The names of the models.

    Returns:
        The ranking without the cases of each site in turn; a patient seen at two sites keeps her other cases.
    """
    if partition.n_sites < 2:
        return {}
    of_case = partition.site_of_case
    parts = [np.ones(of_case.size, dtype=bool), *(of_case != s for s in range(partition.n_sites))]
    values = np.array([[ev.subset(part).values()[metric] for ev in evaluators] for part in parts])
    better = evaluators[0].spec(metric).higher_is_better
    everyone = ranks_of(values[0], higher_is_better=better)
    out: dict[str, dict[str, Any]] = {}
    for s, site in enumerate(partition.site_names):
        ranks = ranks_of(values[s + 1], higher_is_better=better)
        out[site] = _movement(names, everyone, ranks) | {
            "values": {n: _number(v) for n, v in zip(names, values[s + 1], strict=True)}
        }
    return out


def _movement(names: Sequence[str], before: IntArray, after: IntArray) -> dict[str, Any]:
    """The models that change rank between two rankings, the first ones, and Kendall's tau-b."""
    moved = [
        {"model": n, "from": int(b), "to": int(a)}
        for n, b, a in zip(names, before, after, strict=True)
        if a != b
    ]
    tau = round(float(stats.kendalltau(before, after).statistic), 12) if len(names) > 1 else float("nan")
    return {
        "ranks": {n: int(r) for n, r in zip(names, after, strict=True)},
        "first": [n for n, r in zip(names, after, strict=True) if r == 1],
        "changed": moved,
        "tau": _number(tau),
    }


def weight_stability(
    performance: npt.ArrayLike,
    fairness: npt.ArrayLike,
    *,
    names: Sequence[str],
    reference: float = 0.5,
    weights: Sequence[float] = TENTHS,
) -> dict[str, Any]:
    """Rank models at every fairness weight (MRI-10).

    Scores are straight lines in w, so the weights at which two models change place are exact: w = (p_i - p_j)
    / ((p_i - p_j) - (f_i - f_j)). `crossings` lists them in (0, 1), rising, with who is ahead before and
    after; between two of them the ranking stands still. `stable_between` is that stretch around `reference`.

    Args:
        performance: The performance of each model.
        fairness: The fairness of each model.
        names: The names of the models.
        reference: The protocol's own weight.
        weights: The weights to try.

    Returns:
        The ranking at each weight w, score = (1 - w) x performance + w x fairness, the `crossings` and the
        stretch `stable_between`.

    Raises:
        UserError: If the numbers of names, performances and fairness scores differ.

    Example:
        >>> made = weight_stability([0.75, 0.5], [0.25, 1.0], names=["a", "b"], reference=0.5)
        >>> made["crossings"]
        [{'weight': 0.25, 'ahead_before': 'a', 'ahead_after': 'b'}]
    """
    perf, fair = np.asarray(performance, dtype=np.float64), np.asarray(fairness, dtype=np.float64)
    if not perf.size == fair.size == len(names):
        raise UserError(
            f"{len(names)} names, {perf.size} performances and {fair.size} fairness scores",
            fix="Give one of each per model.",
        )

    def at(weight: float) -> IntArray:
        return ranks_of((1.0 - weight) * perf + weight * fair)

    before = at(reference)
    by_weight = [{"weight": float(w), **_movement(names, before, at(w))} for w in weights]
    crossings = []
    a, b = np.triu_indices(perf.size, 1)
    dp, df = perf[a] - perf[b], fair[a] - fair[b]
    with np.errstate(invalid="ignore", divide="ignore"):
        where = dp / (dp - df)
    for k in np.flatnonzero(np.isfinite(where) & (where > 0) & (where < 1) & (dp * df < 0)):
        first, second = (a[k], b[k]) if dp[k] > 0 else (b[k], a[k])
        crossings.append(
            {"weight": float(where[k]), "ahead_before": names[first], "ahead_after": names[second]}
        )
    crossings.sort(key=lambda c: c["weight"])
    marks = [c["weight"] for c in crossings]
    return {
        "reference": reference,
        "weights": by_weight,
        "crossings": crossings,
        "stable_between": [
            max([w for w in marks if w <= reference], default=0.0),
            min([w for w in marks if w > reference], default=1.0),
        ],
    }
