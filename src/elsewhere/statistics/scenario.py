"""The scenario as the unit (US-19 to US-21), and what a new hospital may see (ST-10).

Seeds are averaged first: five seeds of one transfer are one observation. Twelve transfers among four
datasets are not twelve independent ones either, so the study's t interval is shown together with the range
over leaving each dataset out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize, special, stats

from elsewhere.errors import UserError

EXACT_UP_TO = 25
"""Signed-rank tests are exact up to this many non-zero differences, with ties and all."""
SITES_NEEDED = 5
"""Fewer sites than this do not show the spread between hospitals (ST-10)."""

_SPREADS, _MEANS = 200, 40
"""Quantiles of the between-site variance and of the mean that a prediction interval averages over."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ScenarioSummary:
    """Mean over scenarios with a t interval, cut to the metric's bounds (US-19).

    Args:
        value: The mean; NaN without scenarios.
        lo: Lower end of the interval; None with fewer than two scenarios.
        hi: Upper end of the interval; None likewise.
        sd: Standard deviation over scenarios; None likewise.
        scenarios: Number of scenarios with a value.
        undefined: Number of the others.
        level: Level of the interval.
        method: Name of the method; `none` where there is no interval.
        undefined_reason: Why there is no interval; None where there is one.
    """

    value: float
    lo: float | None
    hi: float | None
    sd: float | None
    scenarios: int
    undefined: int
    level: float
    method: str = "t-scenarios"
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `value`, `lo`, `hi`, `sd`, `method`, `scenarios`, `defined` and `undefined`; where
            there is one, also `undefined_reason`.
        """
        out: dict[str, Any] = {
            "value": None if math.isnan(self.value) else self.value,
            "lo": self.lo,
            "hi": self.hi,
            "sd": self.sd,
            "method": self.method,
            "scenarios": self.scenarios,
            "defined": self.scenarios,
            "undefined": self.undefined,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


def average_over_seeds(
    runs: pd.DataFrame, metrics: Sequence[str], *, keys: Sequence[str] = ("scenario",), seed: str = "seed"
) -> pd.DataFrame:
    """Average the runs of a scenario over its seeds.

    An undefined seed (NaN) is left out of its mean and counted in `<metric>_undefined`.

    Args:
        runs: One row per run.
        metrics: The columns to average.
        keys: The columns that name a scenario.
        seed: The column of the seed.

    Returns:
        One row per scenario (and model, input...): seeds averaged first, with their number in `seeds`.

    Raises:
        UserError: If the table lacks a column, or two runs have one scenario and seed.

    Example:
        >>> runs = pd.DataFrame({"scenario": ["A>B", "A>B"], "seed": [1, 2], "auroc": [0.75, 0.25]})
        >>> average_over_seeds(runs, ["auroc"]).to_dict("records")
        [{'scenario': 'A>B', 'seeds': 2, 'auroc': 0.5, 'auroc_undefined': 0}]
    """
    missing = [name for name in (*keys, seed, *metrics) if name not in runs.columns]
    if missing:
        raise UserError(f"no column {', '.join(missing)} in the table of runs")
    twice = runs.duplicated([*keys, seed])
    if twice.any():
        raise UserError(
            f"{int(twice.sum())} runs are listed twice for one scenario and seed",
            where=f"rows {', '.join(str(i + 1) for i in np.flatnonzero(twice)[:5])}",
            fix="Keep one run per scenario, seed and configuration, or add the column that distinguishes them.",
        )
    grouped = runs.groupby(list(keys), sort=True, dropna=False)
    out = grouped[list(metrics)].mean()
    out.insert(0, "seeds", grouped.size())
    for metric in metrics:
        out[f"{metric}_undefined"] = out["seeds"] - grouped[metric].count()
    return out.reset_index()


def scenario_summary(
    values: npt.ArrayLike, *, bounds: tuple[float, float] | None = (0.0, 1.0), level: float = 0.95
) -> ScenarioSummary:
    """Summarise a metric over scenarios.

    Args:
        values: One value per scenario, seeds already averaged; NaN scenarios are left out and counted.
        bounds: The least and the largest value that is possible; None for no bounds.
        level: The level of the interval.

    Returns:
        The mean with its t interval.

    Example:
        >>> made = scenario_summary([0.7, 0.8, 0.9])
        >>> round(made.value, 3), round(made.lo, 3), made.hi
        (0.8, 0.552, 1.0)
    """
    given = np.asarray(values, dtype=float).ravel()
    x = given[np.isfinite(given)]
    lost = int(given.size - x.size)
    if x.size < 2:
        return ScenarioSummary(
            value=float(x[0]) if x.size else math.nan,
            lo=None,
            hi=None,
            sd=None,
            scenarios=int(x.size),
            undefined=lost,
            level=level,
            method="none",
            undefined_reason=f"{x.size} scenario: an interval needs at least two",
        )
    sd = float(x.std(ddof=1))
    half = float(stats.t.ppf(0.5 + level / 2, x.size - 1)) * sd / math.sqrt(x.size)
    lo, hi = float(x.mean()) - half, float(x.mean()) + half
    if bounds:
        lo, hi = max(lo, bounds[0]), min(hi, bounds[1])
    return ScenarioSummary(
        value=float(x.mean()), lo=lo, hi=hi, sd=sd, scenarios=int(x.size), undefined=lost, level=level
    )


@dataclass(frozen=True, kw_only=True)
class SignedRank:
    """Wilcoxon's signed-rank test.

    Args:
        p: Two-sided p; None where every difference is zero.
        smallest_p: The least p that this many differences can reach; None likewise.
        statistic: The smaller of both sums of ranks.
        nonzero: Number of differences that are not zero.
        zeros: Number of the others, which are left out.
        method: `wilcoxon-exact`, `wilcoxon-normal` or `none`.
    """

    p: float | None
    smallest_p: float | None
    statistic: float
    nonzero: int
    zeros: int
    method: str


def signed_rank_test(differences: npt.ArrayLike) -> SignedRank:
    """Run Wilcoxon's signed-rank test, two-sided.

    Zeros are left out and counted; ties share ranks. Exact by counting all sign patterns of the ranks at hand
    (so ties are exact too) up to 25 differences, else normal, corrected for ties.

    Args:
        differences: The paired differences, all finite.

    Returns:
        The test.

    Raises:
        UserError: If a difference is not finite.

    Example:
        >>> made = signed_rank_test([0.1, 0.2, 0.3, 0.4, 0.5])
        >>> made.p, made.smallest_p
        (0.0625, 0.0625)
    """
    d = np.asarray(differences, dtype=float).ravel()
    if not np.isfinite(d).all():
        raise UserError("a paired difference is not finite", fix="Leave undefined scenarios out.")
    nonzero = d[d != 0]
    n, zeros = int(nonzero.size), int(d.size - nonzero.size)
    if n == 0:
        return SignedRank(p=None, smallest_p=None, statistic=0.0, nonzero=0, zeros=zeros, method="none")
    ranks = stats.rankdata(np.round(np.abs(nonzero), 12))
    plus = float(ranks[nonzero > 0].sum())
    if n <= EXACT_UP_TO:
        doubled = np.rint(2 * ranks).astype(np.int64)
        ways = np.zeros(int(doubled.sum()) + 1)
        ways[0] = 1.0
        for r in doubled:
            ways[r:] = ways[r:] + ways[:-r]
        ways /= ways.sum()
        at = round(2 * plus)
        p = min(1.0, 2 * min(float(ways[: at + 1].sum()), float(ways[at:].sum())))
        return SignedRank(
            p=p,
            smallest_p=min(1.0, 2.0 ** (1 - n)),
            statistic=min(plus, float(ranks.sum()) - plus),
            nonzero=n,
            zeros=zeros,
            method="wilcoxon-exact",
        )
    mean, variance = float(ranks.sum()) / 2, float((ranks**2).sum()) / 4
    z = max(0.0, abs(plus - mean) - 0.5) / math.sqrt(variance)
    return SignedRank(
        p=float(2 * stats.norm.sf(z)),
        smallest_p=2.0 ** (1 - n),
        statistic=min(plus, float(ranks.sum()) - plus),
        nonzero=n,
        zeros=zeros,
        method="wilcoxon-normal",
    )


@dataclass(frozen=True, kw_only=True)
class PairedScenarios:
    """a - b over the scenarios that both have (US-20).

    Args:
        difference: Mean difference; NaN without pairs.
        lo: Lower end of its t interval; None with fewer than two pairs.
        hi: Upper end of its t interval; None likewise.
        p: p of the signed-rank test; None where every difference is zero.
        smallest_p: The least p that this many pairs can reach; None likewise.
        pairs: Number of scenarios that both have.
        left_out: Number of the others.
        zeros: Number of pairs without a difference.
        method: Names of both methods.
        note: A sentence where p cannot reach alpha; None where it can.
    """

    difference: float
    lo: float | None
    hi: float | None
    p: float | None
    smallest_p: float | None
    pairs: int
    left_out: int
    zeros: int
    method: str
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `difference`, `lo`, `hi`, `p`, `smallest_p`, `pairs`, `left_out`, `zeros`,
            `method` and `note`.
        """
        return {
            "difference": None if math.isnan(self.difference) else self.difference,
            "lo": self.lo,
            "hi": self.hi,
            "p": self.p,
            "smallest_p": self.smallest_p,
            "pairs": self.pairs,
            "left_out": self.left_out,
            "zeros": self.zeros,
            "method": self.method,
            "note": self.note,
        }


def paired_scenarios(
    a: pd.Series | npt.ArrayLike,
    b: pd.Series | npt.ArrayLike,
    *,
    level: float = 0.95,
    alpha: float = 0.05,
    bounds: tuple[float, float] | None = None,
) -> PairedScenarios:
    """Compare two series of scenarios.

    The interval is that of the mean difference (t), cut to `bounds`; the p-value that of the signed-rank
    test. A note says where p cannot reach alpha.

    Args:
        a: One value per scenario.
        b: The values it is compared with. Two series are matched by their index (the scenario's name), arrays
            by position.
        level: The level of the interval.
        alpha: The level that p is compared with, for the note.
        bounds: The least and the largest difference that is possible; None for no bounds.

    Returns:
        The mean of a - b with its interval and test.

    Raises:
        UserError: If a scenario is there twice, or arrays have different lengths.

    Example:
        >>> made = paired_scenarios([0.9, 0.8, 0.7], [0.8, 0.8, 0.5])
        >>> round(made.difference, 3), made.pairs, made.zeros
        (0.1, 3, 1)
    """
    if isinstance(a, pd.Series) and isinstance(b, pd.Series):
        if a.index.has_duplicates or b.index.has_duplicates:
            raise UserError("a scenario is listed twice", fix="Average over seeds first.")
        joined = pd.concat({"a": a, "b": b}, axis=1)
        x, y = joined["a"].to_numpy(dtype=float), joined["b"].to_numpy(dtype=float)
    else:
        x, y = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
        if x.size != y.size:
            raise UserError(f"{x.size} scenarios against {y.size}", fix="Give series indexed by scenario.")
    d = x - y
    kept = d[np.isfinite(d)]
    summary = scenario_summary(kept, bounds=bounds, level=level)
    test = signed_rank_test(kept)
    note = None
    if test.smallest_p is not None and test.smallest_p > alpha:
        note = (
            f"With {test.nonzero} scenario{'' if test.nonzero == 1 else 's'} the smallest p that this test can give is {test.smallest_p:.4g}: "
            f"it cannot fall below {alpha:g}."
        )
    return PairedScenarios(
        difference=summary.value,
        lo=summary.lo,
        hi=summary.hi,
        p=test.p,
        smallest_p=test.smallest_p,
        pairs=int(kept.size),
        left_out=int(d.size - kept.size),
        zeros=test.zeros,
        method=f"{test.method}; t-scenarios",
        note=note,
    )


@dataclass(frozen=True, kw_only=True)
class LeaveOneDatasetOut:
    """The average again without the scenarios that touch each dataset in turn (US-21, ST-10).

    Args:
        all: The average over all scenarios.
        without: The average without each dataset, by its name.
        lo: The smallest of these means; None where there is none.
        hi: The largest of these means; None where there is none.
    """

    all: ScenarioSummary
    without: dict[str, ScenarioSummary]
    lo: float | None
    hi: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `all`, `without` and `range`.
        """
        return {
            "all": self.all.to_dict(),
            "without": {name: summary.to_dict() for name, summary in self.without.items()},
            "range": [self.lo, self.hi],
        }


def leave_one_dataset_out(
    scenarios: pd.DataFrame,
    metric: str,
    *,
    source: str = "source",
    target: str = "target",
    bounds: tuple[float, float] | None = (0.0, 1.0),
    level: float = 0.95,
) -> LeaveOneDatasetOut:
    """Summarise scenarios without each dataset in turn.

    Args:
        scenarios: One row per scenario with its source and target dataset, seeds averaged. A source may name
            several datasets, joined by '+' (multi-source training).
        metric: The column of the metric.
        source: The column of the source dataset.
        target: The column of the target dataset.
        bounds: The least and the largest value that is possible; None for no bounds.
        level: The level of the intervals.

    Returns:
        The average over all scenarios, and without each dataset.

    Raises:
        UserError: If the table lacks one of the columns.
    """
    for column in (source, target, metric):
        if column not in scenarios.columns:
            raise UserError(f"no column {column} in the table of scenarios")
    touched = [
        set(str(s).split("+")) | {str(t)} for s, t in zip(scenarios[source], scenarios[target], strict=True)
    ]
    names = sorted(set().union(*touched)) if touched else []
    values = scenarios[metric].to_numpy(dtype=float)
    without = {
        name: scenario_summary(
            values[np.array([name not in t for t in touched], dtype=bool)], bounds=bounds, level=level
        )
        for name in names
    }
    means = [s.value for s in without.values() if not math.isnan(s.value)]
    return LeaveOneDatasetOut(
        all=scenario_summary(values, bounds=bounds, level=level),
        without=without,
        lo=min(means) if means else None,
        hi=max(means) if means else None,
    )


@dataclass(frozen=True, kw_only=True)
class NewHospital:
    """What the next hospital may see: mean over sites, and the prediction interval of one more site.

    Args:
        value: Mean over sites; None where it is not estimable.
        lo: Lower end of the mean's interval; None likewise.
        hi: Upper end of the mean's interval; None likewise.
        prediction_lo: Lower end of the prediction interval of one more site; None likewise.
        prediction_hi: Upper end of it; None likewise.
        tau: Standard deviation between sites, on the scale of the model; None likewise.
        sites: Number of sites with a usable value and standard error.
        left_out: Number of sites without one.
        level: Level of both intervals.
        method: Name of the method; `none` where it is not estimable.
        undefined_reason: Why it is not estimable; None where it is.
    """

    value: float | None
    lo: float | None
    hi: float | None
    prediction_lo: float | None
    prediction_hi: float | None
    tau: float | None
    sites: int
    left_out: int
    level: float
    method: str
    undefined_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `value`, `lo`, `hi`, `prediction_lo`, `prediction_hi`, `tau`, `sites`, `left_out`,
            `level` and `method`; where there is one, also `undefined_reason`.
        """
        out: dict[str, Any] = {
            "value": self.value,
            "lo": self.lo,
            "hi": self.hi,
            "prediction_lo": self.prediction_lo,
            "prediction_hi": self.prediction_hi,
            "tau": self.tau,
            "sites": self.sites,
            "left_out": self.left_out,
            "level": self.level,
            "method": self.method,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


def new_hospital(
    estimates: npt.ArrayLike,
    ses: npt.ArrayLike,
    *,
    level: float = 0.95,
    scale: str = "identity",
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> NewHospital:
    """Predict the value at one more site (ST-10, ST-10a).

    The mean has the Hartung-Knapp interval at the Paule-Mandel between-site variance. The prediction interval
    does not rest on that one variance, which is 0 by chance in many sets of few sites: it averages over all
    variances that the sites allow, each as probable as the heterogeneity statistic makes it (the confidence
    distribution; Iyer, Wang and Mathew 2004, Nagashima, Noma and Furukawa 2019). Higgins' interval with sites
    - 2 degrees of freedom covers 84 to 92 % where the spread is small, this one 93 % or more
    (docs/reference/levels.md).

    Below five sites it is not estimable.

    Args:
        estimates: The estimate of each site.
        ses: Their standard errors.
        level: The level of both intervals.
        scale: `identity`, or `logit` for values inside (0, 1), with the delta method's errors; `tau` is then
            on that scale.
        bounds: The least and the largest value that is possible; None for no bounds.

    Returns:
        The mean over sites, and the random-effects prediction interval of one more site.

    Raises:
        UserError: If the numbers of estimates and standard errors differ, or the scale is unknown.

    Example:
        >>> made = new_hospital([0.85, 0.88, 0.9, 0.8, 0.92], [0.02] * 5)
        >>> round(made.value, 2), made.prediction_lo < made.lo
        (0.87, True)
    """
    y, s = np.asarray(estimates, dtype=float).ravel(), np.asarray(ses, dtype=float).ravel()
    if y.size != s.size:
        raise UserError(f"{y.size} estimates with {s.size} standard errors")
    usable = np.isfinite(y) & np.isfinite(s) & (s > 0)
    if scale == "logit":
        usable &= (y > 0) & (y < 1)
    elif scale != "identity":
        raise UserError(f"unknown scale '{scale}'", fix="Use identity or logit.")
    left_out = int(y.size - usable.sum())
    y, s = y[usable], s[usable]
    k = int(y.size)
    if k < SITES_NEEDED:
        return NewHospital(
            value=None,
            lo=None,
            hi=None,
            prediction_lo=None,
            prediction_hi=None,
            tau=None,
            sites=k,
            left_out=left_out,
            level=level,
            method="none",
            undefined_reason=f"not estimable: {k} sites with a standard error, and it takes {SITES_NEEDED}",
        )
    if scale == "logit":
        s, y = s / (y * (1 - y)), np.log(y / (1 - y))
    tau2 = _paule_mandel(y, s)
    w = 1 / (s**2 + tau2)
    mean = float((w * y).sum() / w.sum())
    q = float((w * (y - mean) ** 2).sum() / (k - 1))
    se = math.sqrt(max(q, 1.0 if tau2 == 0 else 0.0) / float(w.sum()))
    half = float(stats.t.ppf(0.5 + level / 2, k - 1)) * se
    ends = np.array([mean, mean - half, mean + half, *_one_more_site(y, s, level)])
    if scale == "logit":
        ends = 1 / (1 + np.exp(-ends))
    elif bounds:
        ends = np.clip(ends, *bounds)
    return NewHospital(
        value=float(ends[0]),
        lo=float(ends[1]),
        hi=float(ends[2]),
        prediction_lo=float(ends[3]),
        prediction_hi=float(ends[4]),
        tau=math.sqrt(tau2),
        sites=k,
        left_out=left_out,
        level=level,
        method=f"random-effects prediction (Hartung-Knapp, confidence distribution of the spread, {scale})",
    )


def _one_more_site(y: FloatArray, s: FloatArray, level: float) -> tuple[float, float]:
    """Both ends for a new site, on the working scale.

    At the true between-site variance the weighted squares are chi-squared with k - 1 degrees of freedom and
    fall with that variance, so that each quantile of chi-squared gives one variance (0 where even 0 gives
    fewer squares). Given it, the mean is t with the Hartung-Knapp error (never below the random-effects one),
    and the new site is normal around it. No random numbers: both are grids of quantiles.
    """
    k = y.size
    squares = stats.chi2.ppf((np.arange(_SPREADS) + 0.5) / _SPREADS, k - 1)
    scale2 = float(y.var(ddof=1)) + float(s.max()) ** 2
    candidates = np.concatenate([[0.0], np.geomspace(1e-6 * scale2, 10 * k * scale2 / squares[0], 200)])
    given = _weighted_squares(y, s, candidates)[1]
    tau2 = np.interp(squares, given[::-1], candidates[::-1], right=0.0)
    weights = 1 / (s**2 + tau2[:, None])
    mean, found = _weighted_squares(y, s, tau2)
    error = np.sqrt(np.maximum(found / (k - 1), 1.0) / weights.sum(axis=1))
    t = stats.t.ppf((np.arange(_MEANS) + 0.5) / _MEANS, k - 1)
    still, moving = tau2 <= 0.0, tau2 > 0.0
    centre = (mean[moving, None] + error[moving, None] * t).ravel()
    tau = np.repeat(np.sqrt(tau2[moving]), _MEANS)

    def below(x: float) -> float:
        """P(the new site <= x); where nothing spreads the sites, it is the mean itself."""
        of_mean = special.stdtr(k - 1, (x - mean[still]) / error[still]).sum()
        return float(of_mean + special.ndtr((x - centre) / tau).sum() / _MEANS) / _SPREADS

    reach = 50 * float(np.max(error) + math.sqrt(float(tau2.max())))
    low, high = float(mean.min()) - reach, float(mean.max()) + reach
    first, last = (
        float(optimize.brentq(lambda x, p=p: below(x) - p, low, high, xtol=1e-8 * (high - low), rtol=1e-12))
        for p in (0.5 - level / 2, 0.5 + level / 2)
    )
    return first, last


def _weighted_squares(y: FloatArray, s: FloatArray, tau2: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(weighted mean, weighted sum of squares about it) at each between-site variance."""
    w = 1 / (s**2 + tau2[:, None])
    mean = (w * y).sum(axis=1) / w.sum(axis=1)
    return mean, (w * (y - mean[:, None]) ** 2).sum(axis=1)


def _paule_mandel(y: FloatArray, s: FloatArray) -> float:
    """The between-site variance at which the weighted squares are what chance would give."""

    def excess(tau2: float) -> float:
        w = 1 / (s**2 + tau2)
        mean = (w * y).sum() / w.sum()
        return float((w * (y - mean) ** 2).sum() - (y.size - 1))

    if excess(0.0) <= 0:
        return 0.0
    high = float(y.var(ddof=1)) + float(s.max()) ** 2
    while excess(high) > 0:
        high *= 2
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-14))
