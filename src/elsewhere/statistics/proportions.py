"""Proportions: Wilson's interval with the design effect of the clusters (ST-03).

Two eyes of one patient are not two observations. The effective number of cases is the number divided by the
design effect (linearised clustered variance over the binomial one), and the normal quantile gives way to t
with patients - sites degrees of freedom, after Korn and Graubard (1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy.typing as npt
from scipy import special

from elsewhere.statistics.means import ClusteredRatio, clustered_ratio


@dataclass(frozen=True, kw_only=True)
class ProportionInterval:
    """A proportion with Wilson's interval.

    Args:
        value: The proportion.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
        se: Standard error with the effective number of cases.
        df: Degrees of freedom of the t quantile.
        effective_n: Number of independent cases that would be as sure.
        design_effect: Clustered over binomial variance; 1 means that clusters did not matter.
        patients: Number of patients.
    """

    value: float
    lo: float
    hi: float
    se: float
    df: float
    effective_n: float
    design_effect: float
    patients: int


def wilson(value: float, n: float, *, z: float) -> tuple[float, float]:
    """Compute Wilson's score interval.

    Args:
        value: The proportion.
        n: How many (effective) cases.
        z: The normal (or t) quantile.

    Returns:
        The lower and the upper end.

    Example:
        >>> [round(end, 3) for end in wilson(1.0, 10, z=1.96)]
        [0.722, 1.0]
    """
    z2 = z * z
    centre = (value + z2 / (2.0 * n)) / (1.0 + z2 / n)
    half = z / (1.0 + z2 / n) * math.sqrt(value * (1.0 - value) / n + z2 / (4.0 * n * n))
    return (0.0 if value <= 0.0 else max(0.0, centre - half)), (
        1.0 if value >= 1.0 else min(1.0, centre + half)
    )


def proportion_from_ratio(ratio: ClusteredRatio, *, level: float = 0.95) -> ProportionInterval:
    """Compute the interval of a proportion from its clustered ratio.

    The design effect is not let below 1. At 0 or 1 it cannot be estimated, and is taken as the most that
    clusters can cost: Kish's effective number of patients stands for the number of cases.

    Args:
        ratio: The ratio with its standard error.
        level: The level of the interval.

    Returns:
        Wilson from a ratio whose numerator counts successes among its denominator's trials.
    """
    n, p = ratio.denominator, min(1.0, max(0.0, ratio.value))
    trials = ratio.denominator_of_cluster
    if p in (0.0, 1.0) or not math.isfinite(ratio.variance):
        effect = float(trials @ trials) / n
    else:
        effect = ratio.variance / (p * (1.0 - p) / n)
    effect = max(effect, 1.0)
    effective_n = n / effect
    df = max(ratio.df, 1.0)
    lo, hi = wilson(p, effective_n, z=float(special.stdtrit(df, 0.5 + level / 2.0)))
    return ProportionInterval(
        value=ratio.value,
        lo=lo,
        hi=hi,
        se=math.sqrt(p * (1.0 - p) / effective_n),
        df=df,
        effective_n=effective_n,
        design_effect=effect,
        patients=ratio.patients,
    )


def proportion_interval(
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    cluster_of_case: npt.ArrayLike,
    *,
    n_clusters: int,
    site_of_cluster: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> ProportionInterval | None:
    """Compute the interval of a proportion from cases.

    Args:
        successes: Successes of each case.
        trials: Trials of each case.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.
        site_of_cluster: The site of each patient, or None for one stratum.
        level: The level of the interval.

    Returns:
        The interval; None where there is no trial.

    Example:
        >>> made = proportion_interval([1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 2, 3], n_clusters=4)
        >>> made.value, round(made.lo, 2), round(made.hi, 2)
        (0.75, 0.13, 0.98)
    """
    ratio = clustered_ratio(
        successes, trials, cluster_of_case, n_clusters=n_clusters, site_of_cluster=site_of_cluster
    )
    return None if ratio is None else proportion_from_ratio(ratio, level=level)
