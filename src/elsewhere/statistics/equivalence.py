"""Equivalence from group summaries: Welch TOST (LN-11), and the study's margin from the data (LN-12).

Two one-sided tests ask the opposite of a usual test: the burden is on showing that two groups are close,
so that few folds or few patients never pass for 'no difference'. Differences of any metric between two
sets of patients live in `differences.py`; the words of the verdict in `verdict.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from elsewhere.errors import UserError, name_rows
from elsewhere.statistics.claimed import ClaimedValue, claimed_limits
from elsewhere.statistics.differences import (
    Difference,
    difference_from_claim,
    difference_independent,
    difference_subsets,
)
from elsewhere.statistics.limits import check_alpha

__all__ = [
    "ClaimedValue",
    "Difference",
    "GroupSummary",
    "StudyMargin",
    "TostResult",
    "claimed_limits",
    "difference_from_claim",
    "difference_independent",
    "difference_subsets",
    "equivalence_table",
    "study_margin",
    "welch_tost",
]

WELCH_TOST = "welch-tost"
REQUIRED_COLUMNS = ("mean_1", "sd_1", "n_1", "mean_2", "sd_2", "n_2", "low", "high")

STUDY_MARGIN_WARNING = (
    "This margin was made from the same differences that it judges: the larger the drop, the larger the "
    "margin. Simulated with 21 models whose drops vary by sd 0.02, a true mean drop of 0.05, 0.20 or 0.40 "
    "lets about 42 % of the models pass, and a true drop of 0 lets 3 % pass (with other spreads the levels "
    "differ, but they are as flat). It reproduces the published lymph-node study; for a decision, declare a "
    "margin beforehand."
)


@dataclass(frozen=True, kw_only=True)
class TostResult:
    """One Welch TOST. Where neither group has any spread, `p`, `df` and `equivalent` are None with the
    reason.

    Args:
        difference: Mean of group 1 - mean of group 2.
        lo: Lower end of the 1 - 2 alpha interval.
        hi: Upper end of the 1 - 2 alpha interval.
        se: Standard error of the difference.
        df: Satterthwaite degrees of freedom.
        p_low: p of the test that the difference is above `low`.
        p_high: p of the test that the difference is below `high`.
        p: The larger of the two.
        equivalent: Whether p < alpha.
        low: Lower margin.
        high: Upper margin.
        alpha: Level of each one-sided test.
        method: Name of the method.
        undefined_reason: Why no test is defined; None where one is.
    """

    difference: float
    lo: float | None
    hi: float | None
    se: float
    df: float | None
    p_low: float | None
    p_high: float | None
    p: float | None
    equivalent: bool | None
    low: float
    high: float
    alpha: float
    method: str = WELCH_TOST
    undefined_reason: str | None = None

    @property
    def lo90(self) -> float | None:
        """The lower end; at the default alpha of 0.05 it is the 90 % interval's."""
        return self.lo

    @property
    def hi90(self) -> float | None:
        """The upper end of the 90 % interval."""
        return self.hi

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `difference`, the ends of its 1 - 2 alpha interval by their names (`lo90` and
            `hi90` for an alpha of 0.05), `df`, `p`, `equivalent`, `se`, `low`, `high`, `alpha` and `method`;
            where there is one, also `undefined_reason`.
        """
        lo_name, hi_name = interval_names(self.alpha)
        out: dict[str, Any] = {
            "difference": self.difference,
            lo_name: self.lo,
            hi_name: self.hi,
            "df": self.df,
            "p": self.p,
            "equivalent": self.equivalent,
            "se": self.se,
            "low": self.low,
            "high": self.high,
            "alpha": self.alpha,
            "method": self.method,
        }
        if self.undefined_reason:
            out["undefined_reason"] = self.undefined_reason
        return out


def interval_names(alpha: float) -> tuple[str, str]:
    """Name the columns of an interval by its level.

    Args:
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.

    Returns:
        The names of the lower and the upper end: the name says the level of the interval, never another one.

    Example:
        >>> interval_names(0.05)
        ('lo90', 'hi90')
    """
    level = f"{100 * (1 - 2 * alpha):g}".replace(".", "_")
    return f"lo{level}", f"hi{level}"


def _check_group(mean: float, sd: float, n: float, *, group: int, where: str | None) -> None:
    if not math.isfinite(mean):
        raise UserError(
            f"mean_{group} is {mean:g}", where=where, fix="Give the group's mean as a finite number."
        )
    if not math.isfinite(sd) or sd < 0:
        raise UserError(f"sd_{group} is {sd:g}", where=where, fix="Give a standard deviation of 0 or more.")
    if not math.isfinite(n) or n != int(n) or n < 2:
        raise UserError(
            f"n_{group} is {n:g}",
            where=where,
            fix="Each group needs a whole number of at least 2 values: one value has no standard deviation.",
        )


@dataclass(frozen=True, kw_only=True)
class GroupSummary:
    """A group as papers print it.

    Attributes:
        mean: The mean of its values.
        sd: Their standard deviation, with n - 1.
        n: How many values.
    """

    mean: float
    sd: float
    n: float


def welch_tost(
    first: GroupSummary,
    second: GroupSummary,
    *,
    low: float,
    high: float,
    alpha: float = 0.05,
    where: str | None = None,
) -> TostResult:
    """Test low < mean of first - mean of second < high with two one-sided Welch tests (LN-11).

    SE = sqrt(s1^2/n1 + s2^2/n2), Satterthwaite df, p the larger of the two one-sided p; equivalent when
    p < alpha, which is the same as: the 1 - 2 alpha interval lies inside (low, high).

    Args:
        first: The group that is judged.
        second: The group it is compared with.
        low: The lower margin.
        high: The upper margin.
        alpha: The level of each one-sided test.
        where: The file and row that an error names.

    Returns:
        The difference with its interval, both p and the answer.

    Raises:
        UserError: A number is missing or impossible, or the margins are the wrong way round.

    Example:
        >>> a, b = GroupSummary(mean=0.91, sd=0.02, n=10), GroupSummary(mean=0.90, sd=0.02, n=10)
        >>> welch_tost(a, b, low=-0.05, high=0.05).equivalent
        True
    """
    check_alpha(alpha)
    for group, one in enumerate((first, second), start=1):
        _check_group(one.mean, one.sd, one.n, group=group, where=where)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(
            f"the margins are low = {low:g}, high = {high:g}",
            where=where,
            fix="Give finite margins with low below high, such as -0.05 and 0.05.",
        )
    difference = first.mean - second.mean
    v1, v2 = first.sd**2 / first.n, second.sd**2 / second.n
    se = math.sqrt(v1 + v2)
    if se == 0.0:
        return TostResult(
            difference=difference,
            lo=None,
            hi=None,
            se=0.0,
            df=None,
            p_low=None,
            p_high=None,
            p=None,
            equivalent=None,
            low=low,
            high=high,
            alpha=alpha,
            undefined_reason="neither group has any spread: the standard error is 0 and no test is defined",
        )
    df = (v1 + v2) ** 2 / (v1**2 / (first.n - 1) + v2**2 / (second.n - 1))
    p_low = float(stats.t.sf((difference - low) / se, df))
    p_high = float(stats.t.cdf((difference - high) / se, df))
    half = float(stats.t.ppf(1 - alpha, df)) * se
    p = max(p_low, p_high)
    return TostResult(
        difference=difference,
        lo=difference - half,
        hi=difference + half,
        se=se,
        df=df,
        p_low=p_low,
        p_high=p_high,
        p=p,
        equivalent=p < alpha,
        low=low,
        high=high,
        alpha=alpha,
    )


def equivalence_table(
    table: pd.DataFrame, *, alpha: float = 0.05, where: str = "the table of means"
) -> pd.DataFrame:
    """Run Welch TOST on every row of a table.

    Text cells are read as numbers. A row without any spread in either group keeps its difference, with the
    rest missing and `undefined_reason` filled.

    Args:
        table: One row per comparison, with the columns of `REQUIRED_COLUMNS`.
        alpha: The level of each one-sided test; the interval is 1 - 2 alpha.
        where: The file that an error names.

    Returns:
        The input's columns, then `difference, lo90, hi90, df, p, equivalent`, one test per row.

    Raises:
        UserError: If a column is missing, a cell is not a finite number, or a row cannot be tested; the
            message names the row.
    """
    missing = [name for name in REQUIRED_COLUMNS if name not in table.columns]
    if missing:
        raise UserError(
            f"no column {', '.join(missing)}",
            where=where,
            fix=f"It needs {', '.join(REQUIRED_COLUMNS)}; found {', '.join(map(str, table.columns))}.",
        )
    numbers = {name: _numbers(table[name], name, where) for name in REQUIRED_COLUMNS}
    rows = [
        welch_tost(
            *(
                GroupSummary(mean=numbers[f"mean_{k}"][i], sd=numbers[f"sd_{k}"][i], n=numbers[f"n_{k}"][i])
                for k in (1, 2)
            ),
            low=numbers["low"][i],
            high=numbers["high"][i],
            alpha=alpha,
            where=f"{where}, row {i + 1}",
        )
        for i in range(len(table))
    ]
    lo_name, hi_name = interval_names(alpha)
    out = table.copy()
    out["difference"] = np.array([r.difference for r in rows], dtype=float)
    for name, key in ((lo_name, "lo"), (hi_name, "hi"), ("df", "df"), ("p", "p")):
        out[name] = np.array([np.nan if (v := getattr(r, key)) is None else v for r in rows], dtype=float)
    out["equivalent"] = pd.array([r.equivalent for r in rows], dtype="boolean")
    if any(r.undefined_reason for r in rows):
        out["undefined_reason"] = pd.array([r.undefined_reason for r in rows], dtype="string")
    return out


def _numbers(column: pd.Series, name: str, where: str) -> npt.NDArray[np.float64]:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise UserError(
            f"column {name} has {bad.size} cells that are not finite numbers",
            where=f"{where}, rows {name_rows((bad + 1).tolist())}",
            fix="Fill them with numbers (decimal points, not commas) or take the rows out.",
        )
    return values


@dataclass(frozen=True, kw_only=True)
class StudyMargin:
    """A margin made from the models' own differences (LN-12), with the warning that such a margin needs.

    Args:
        value: The margin.
        mean: Mean of the differences.
        sd: Their standard deviation, with n - 1.
        n: How many differences.
        warning: What a reader must know of such a margin.
        source: Name of the way it was made.
    """

    value: float
    mean: float
    sd: float
    n: int
    warning: str = STUDY_MARGIN_WARNING
    source: str = "study"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `margin`, `margin_source`, `mean`, `sd`, `n` and `warning`.
        """
        return {
            "margin": self.value,
            "margin_source": self.source,
            "mean": self.mean,
            "sd": self.sd,
            "n": self.n,
            "warning": self.warning,
        }


def study_margin(differences: npt.ArrayLike) -> StudyMargin:
    """Make a margin from the models' own differences (LN-12).

    Args:
        differences: The mean difference of each model.

    Returns:
        D = |mean| + 1.96 sd / sqrt(n) over the models' mean differences, sd with n - 1 (LN-12).

    Raises:
        UserError: If there are fewer than two differences, or one is not finite.

    Example:
        >>> round(study_margin([0.01, 0.03]).value, 4)
        0.0396
    """
    values = np.asarray(differences, dtype=float).ravel()
    if values.size < 2 or not np.isfinite(values).all():
        raise UserError(
            f"the study's margin needs at least two finite differences; got {values.size}, "
            f"{int((~np.isfinite(values)).sum())} of them not finite",
            fix="Give one mean difference per model, or declare a margin instead.",
        )
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    return StudyMargin(
        value=abs(mean) + 1.96 * sd / math.sqrt(values.size), mean=mean, sd=sd, n=int(values.size)
    )
