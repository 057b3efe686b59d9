"""Obuchowski and Rockette's analysis of a reader study, with the degrees of freedom of Hillis (ST-15).

With t treatments, r readers, mean squares MS and averages Var, Cov1, Cov2, Cov3 of the covariance of the errors
over the cases, a treatment's effect is compared with

- random readers and cases: MS(TR) + r max(Cov2 - Cov3, 0), with Hillis' (2007) degrees of freedom
  [MS(TR) + r max(Cov2 - Cov3, 0)]^2 / [MS(TR)^2 / ((t - 1)(r - 1))];
- fixed readers, random cases: Var - Cov1 + (r - 1) max(Cov2 - Cov3, 0), with infinite degrees of freedom;
- random readers, fixed cases: MS(TR), with (t - 1)(r - 1) degrees of freedom.

F is MS(T) over that; the variance of a difference of two treatments is 2 / r times it. The interval of one
treatment uses its own readers and cases alone (Hillis 2007): MS(R) and Cov2 of that treatment. Where each
treatment has readers of its own (Hillis 2014), MS(R within T) with t (r - 1) degrees of freedom stands in the
place of MS(TR), and Cov3 in that of Cov1.

Literature: Obuchowski and Rockette, Commun Stat Simul Comput 24:285 (1995); Hillis, Stat Med 26:596 (2007);
Hillis, Berbaum and Metz, Acad Radiol 15:647 (2008); Hillis, Stat Med 33:330 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np
from scipy import stats

from elsewhere.errors import UserError, unknown_name
from elsewhere.statistics.mrmc.components import (
    ErrorCovariances,
    MeanSquares,
    error_covariances,
    mean_squares,
    treatment_covariances,
)
from elsewhere.statistics.mrmc.figures import FigureMatrix, FloatArray
from elsewhere.statistics.paired import holm

ONE_READER = "there is one reader: readers as a random factor need two or more"
ONE_TREATMENT = "there is one treatment"
NO_SPREAD = "the standard error is 0: the figures of merit do not vary"
FEWEST_DF = 4
"""Below this many degrees of freedom of the readers' mean square (five readers with two treatments) the tests with
random readers reject more often than their level says; docs/reference/levels.md has the rates."""
_TOO_OFTEN = {1: "about 10 %", 2: "up to 7 %", 3: "up to 6 %"}
_NOTHING = 1e-24
"""A variance below this share of 1 is rounding: figures of merit are of the order of 1."""


class RandomFactors(StrEnum):
    """What is a sample of a larger population: the conclusion reaches as far as this."""

    READERS_AND_CASES = "readers,cases"
    CASES = "cases"
    READERS = "readers"

    @property
    def heading(self) -> str:
        """The analysis as a noun phrase."""
        return _TITLES[self]

    @classmethod
    def parse(cls, text: str) -> RandomFactors:
        """Read what a user wrote, such as 'readers,cases' or 'cases, readers'.

        Args:
            text: The factors, separated by commas.

        Returns:
            The random factors.

        Raises:
            UserError: A factor is unknown, or none is given.

        Example:
            >>> RandomFactors.parse("cases, readers").value
            'readers,cases'
        """
        words = {word.strip().casefold() for word in text.split(",") if word.strip()}
        for word in sorted(words):
            if word not in ("readers", "cases"):
                raise unknown_name("random factor", word, ["readers", "cases", "readers,cases"])
        if not words:
            raise UserError("no random factor is given", fix="Write readers,cases or cases or readers.")
        return cls(",".join(name for name in ("readers", "cases") if name in words))


_TITLES = {
    RandomFactors.READERS_AND_CASES: "Random readers and random cases",
    RandomFactors.CASES: "Fixed readers and random cases",
    RandomFactors.READERS: "Random readers and fixed cases",
}


@dataclass(frozen=True, kw_only=True)
class OverallTest:
    """The test that all treatments have the same expected figure of merit.

    Args:
        f: The F statistic; None where it is undefined.
        df1: Its numerator's degrees of freedom.
        df2: Its denominator's degrees of freedom; infinity for fixed readers.
        p: The p-value; None where it is undefined.
        denominator: What MS(T) is divided by.
        reason: Why it is undefined; None where it is not.
    """

    f: float | None
    df1: int
    df2: float | None
    p: float | None
    denominator: float | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class TreatmentMean:
    """The mean figure of merit of a treatment over its readers.

    Args:
        treatment: The name of the treatment.
        value: The mean.
        se: Its standard error; None where it is undefined.
        df: The degrees of freedom of the t quantile; infinity for fixed readers; None where undefined.
        lo: Lower end of the interval; None likewise.
        hi: Upper end of the interval; None likewise.
        reason: Why there is no interval; None where there is one.
    """

    treatment: str
    value: float
    se: float | None
    df: float | None
    lo: float | None
    hi: float | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class TreatmentDifference:
    """The difference of two treatments.

    Args:
        first: The name of the first treatment.
        second: The name of the treatment that is subtracted.
        value: The difference of their means.
        se: Its standard error; None where it is undefined.
        df: The degrees of freedom; infinity for fixed readers; None where undefined.
        t: The difference over its standard error; None likewise.
        p: The two-sided p-value, not corrected for several differences; None likewise.
        p_holm: The p-value after Holm's correction over all differences; None likewise.
        lo: Lower end of the interval; None likewise.
        hi: Upper end of the interval; None likewise.
        reason: Why there is no interval; None where there is one.
    """

    first: str
    second: str
    value: float
    se: float | None
    df: float | None
    t: float | None
    p: float | None
    p_holm: float | None
    lo: float | None
    hi: float | None
    reason: str | None = None

    def ends(self, level: float) -> tuple[float, float]:
        """Compute the interval at another level.

        Args:
            level: The level, such as 0.9.

        Returns:
            The lower and the upper end; NaN where there is no interval.
        """
        if self.se is None or self.df is None:
            return math.nan, math.nan
        half = _quantile(level, self.df) * self.se
        return self.value - half, self.value + half


@dataclass(frozen=True, kw_only=True)
class ReaderDifference:
    """The difference of two treatments for one reader; the cases are random.

    Args:
        reader: The name of the reader.
        first: The name of the first treatment.
        second: The name of the treatment that is subtracted.
        value: The difference.
        se: Its standard error.
        z: The difference over its standard error; None where that is 0.
        p: The two-sided p-value; None likewise.
        lo: Lower end of the interval.
        hi: Upper end of the interval.
    """

    reader: str
    first: str
    second: str
    value: float
    se: float
    z: float | None
    p: float | None
    lo: float
    hi: float


@dataclass(frozen=True, kw_only=True)
class FactorialAnalysis:
    """One of the three analyses: what is random decides how far its conclusion reaches.

    Args:
        random: The random factors.
        test: The test of all treatments.
        means: The mean of each treatment.
        differences: The difference of each pair of treatments, the later minus the earlier one.
    """

    random: RandomFactors
    test: OverallTest
    means: tuple[TreatmentMean, ...]
    differences: tuple[TreatmentDifference, ...]

    def difference(self, first: str, second: str) -> TreatmentDifference:
        """Find the difference of two treatments, in either order.

        Args:
            first: The name of a treatment.
            second: The name of the treatment that is subtracted.

        Returns:
            first - second.

        Raises:
            KeyError: There is no such pair.
        """
        for row in self.differences:
            if (row.first, row.second) == (first, second):
                return row
            if (row.first, row.second) == (second, first):
                return TreatmentDifference(
                    first=first,
                    second=second,
                    value=-row.value,
                    se=row.se,
                    df=row.df,
                    t=None if row.t is None else -row.t,
                    p=row.p,
                    p_holm=row.p_holm,
                    lo=None if row.hi is None else -row.hi,
                    hi=None if row.lo is None else -row.lo,
                    reason=row.reason,
                )
        raise KeyError((first, second))


@dataclass(frozen=True, kw_only=True)
class ReaderStudyAnalysis:
    """The whole analysis of a reader study.

    Args:
        study: The figures of merit.
        level: The level of the intervals.
        mean_squares: The analysis of variance.
        covariances: Var, Cov1, Cov2 and Cov3 over all treatments and readers.
        of_treatment: Var and Cov2 of each treatment.
        variance_components: The variances of readers (`reader`) and of their interaction with the treatments
            (`treatment_reader`) as estimated, which may be below 0; None where one cannot be estimated.
        analyses: The three analyses by what is random.
        reader_differences: The differences of each reader; empty where readers are nested.
        reader_se: The standard error of each figure of merit over the cases, treatments x readers.
        notes: Full sentences about estimates that were cut off at 0.
    """

    study: FigureMatrix
    level: float
    mean_squares: MeanSquares
    covariances: ErrorCovariances
    of_treatment: tuple[ErrorCovariances, ...]
    variance_components: Mapping[str, float | None]
    analyses: Mapping[RandomFactors, FactorialAnalysis]
    reader_differences: tuple[ReaderDifference, ...]
    reader_se: FloatArray
    notes: tuple[str, ...]


def analyse_readers(study: FigureMatrix, *, level: float = 0.95) -> ReaderStudyAnalysis:
    """Analyse a reader study with readers, cases or both as the random factor.

    Args:
        study: The figures of merit with the covariance of their errors.
        level: The level of the intervals.

    Returns:
        The analysis of variance, the error covariances, and the three analyses. What one reader or one
        treatment does not allow is None, with the reason.

    Raises:
        UserError: The level is not between 0 and 1.

    Example:
        >>> values = np.array([[0.80, 0.75, 0.78], [0.88, 0.84, 0.83]])
        >>> covariance = 0.0004 * (np.eye(6) + np.ones((6, 6)))
        >>> study = FigureMatrix.crossed(
        ...     values, covariance, treatments=("without", "with"), readers=("1", "2", "3")
        ... )
        >>> made = analyse_readers(study).analyses[RandomFactors.READERS_AND_CASES]
        >>> round(made.test.f, 1), round(made.test.df2, 1), round(made.differences[0].value, 3)
        (37.2, 2.0, 0.073)
    """
    check_level(level)
    squares, errors = mean_squares(study), error_covariances(study)
    own = treatment_covariances(study)
    notes = _truncation_notes(study, errors, own)
    analyses = {
        random: FactorialAnalysis(
            random=random,
            test=_overall_test(random, study, squares, errors),
            means=tuple(_mean(random, study, at, own[at], level) for at in range(study.shape[0])),
            differences=_differences(random, study, squares, errors, level),
        )
        for random in RandomFactors
    }
    components = _variance_components(study, squares, errors)
    below = [name for name, value in components.items() if value is not None and value < 0]
    if below:
        shown = " and ".join(
            {"reader": "readers", "treatment_reader": "treatment x reader"}[n] for n in below
        )
        notes.append(
            f"The estimated variance of {shown} is negative, which stands for a variance of about 0; the tests "
            "do not use it."
        )
    return ReaderStudyAnalysis(
        study=study,
        level=level,
        mean_squares=squares,
        covariances=errors,
        of_treatment=tuple(own),
        variance_components=components,
        analyses=analyses,
        reader_differences=_reader_differences(study, level),
        reader_se=np.sqrt(np.maximum(np.diag(study.covariance), 0.0)).reshape(study.shape),
        notes=tuple(notes),
    )


def few_readers(df: int, random: RandomFactors) -> str | None:
    """Say that a test with random readers rests on too few of them.

    Args:
        df: The degrees of freedom of the mean square of the readers, or of their interaction with treatments.
        random: What is random.

    Returns:
        A full sentence; None where the readers suffice, are fixed, or are one.

    Example:
        >>> few_readers(4, RandomFactors.READERS_AND_CASES) is None
        True
    """
    if random is not RandomFactors.READERS_AND_CASES or df not in _TOO_OFTEN:
        return None
    return (
        f"The readers give {df} degree{'s' if df > 1 else ''} of freedom: in simulated studies without any difference, "
        f"tests with so few readers reject in {_TOO_OFTEN[df]} of the studies in place of 5 %. Their level holds from {FEWEST_DF} on: "
        "five readers with two treatments."
    )


def check_level(level: float) -> None:
    """Check the level of intervals.

    Args:
        level: The level.

    Raises:
        UserError: It is not between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise UserError(
            f"the level of the intervals is {level:g}", fix="Give a number between 0 and 1: 0.95."
        )


def single_mean(
    random: RandomFactors, values: FloatArray, errors: ErrorCovariances
) -> tuple[float | None, float | None, str | None]:
    """Compute the standard error of the mean of one treatment's readers (Hillis 2007).

    Args:
        random: The random factors.
        values: The figure of merit of each reader.
        errors: Var and Cov2 of this treatment.

    Returns:
        The standard error, its degrees of freedom, and why there are none; one of both is None.
    """
    readers = values.size
    shared = max(errors.cov2 or 0.0, 0.0)
    if random is RandomFactors.CASES:
        variance, df = (errors.var + (readers - 1) * shared) / readers, math.inf
    elif readers < 2:
        return None, None, ONE_READER
    else:
        between = float(values.var(ddof=1))
        total = between + (readers * shared if random is RandomFactors.READERS_AND_CASES else 0.0)
        variance, df = total / readers, satterthwaite(total, between, readers - 1)
    if not variance > _NOTHING:
        return None, None, NO_SPREAD
    return math.sqrt(variance), df, None


def satterthwaite(total: float, random: float, df: int) -> float:
    """Compute Hillis' degrees of freedom of a sum of a mean square and a constant.

    Args:
        total: The sum.
        random: The mean square in it.
        df: The degrees of freedom of the mean square.

    Returns:
        total^2 / (random^2 / df); infinity where the mean square is 0.

    Example:
        >>> satterthwaite(2.0, 1.0, 4)
        16.0
    """
    return math.inf if random * random <= 0.0 else total * total / (random * random / df)


def two_sided_p(t: float, df: float) -> float:
    """Compute the two-sided p-value of a t statistic.

    Args:
        t: The statistic.
        df: Its degrees of freedom; infinity for a normal one.

    Returns:
        The p-value.

    Example:
        >>> round(two_sided_p(1.96, math.inf), 2)
        0.05
    """
    return float(2.0 * (stats.norm.sf(abs(t)) if math.isinf(df) else stats.t.sf(abs(t), df)))


def half_width(level: float, df: float, se: float) -> float:
    """Compute half of an interval's width.

    Args:
        level: The level of the interval.
        df: The degrees of freedom; infinity for a normal quantile.
        se: The standard error.

    Returns:
        The quantile times the standard error.
    """
    return _quantile(level, df) * se


def _quantile(level: float, df: float) -> float:
    at = 0.5 + level / 2.0
    return float(stats.norm.ppf(at) if math.isinf(df) else stats.t.ppf(at, df))


def _denominator(
    random: RandomFactors, study: FigureMatrix, squares: MeanSquares, errors: ErrorCovariances
) -> tuple[float | None, float | None, str | None]:
    """What MS(T) is compared with, its degrees of freedom, and why there is none."""
    treatments, readers = study.shape
    if treatments < 2:
        return None, None, ONE_TREATMENT
    if random is RandomFactors.CASES:
        with_another = errors.cov3 if study.nested else errors.cov1
        alone = errors.var - (with_another or 0.0)
        return alone + (readers - 1) * errors.shared_by_readers, math.inf, None
    if squares.interaction is None:
        return None, None, ONE_READER
    if random is RandomFactors.READERS:
        return squares.interaction, float(squares.df_interaction), None
    total = squares.interaction + readers * errors.shared_by_readers
    return total, satterthwaite(total, squares.interaction, squares.df_interaction), None


def _overall_test(
    random: RandomFactors, study: FigureMatrix, squares: MeanSquares, errors: ErrorCovariances
) -> OverallTest:
    denominator, df2, reason = _denominator(random, study, squares, errors)
    df1 = study.shape[0] - 1
    if denominator is not None and not denominator > _NOTHING:
        reason = NO_SPREAD
    if reason is not None or denominator is None or df2 is None or squares.treatment is None:
        return OverallTest(f=None, df1=df1, df2=df2, p=None, denominator=denominator, reason=reason)
    f = squares.treatment / denominator
    p = stats.chi2.sf(f * df1, df1) if math.isinf(df2) else stats.f.sf(f, df1, df2)
    return OverallTest(f=float(f), df1=df1, df2=float(df2), p=float(p), denominator=denominator)


def _mean(
    random: RandomFactors, study: FigureMatrix, at: int, errors: ErrorCovariances, level: float
) -> TreatmentMean:
    values = study.values[at]
    se, df, reason = single_mean(random, values, errors)
    middle, half = float(values.mean()), None
    if se is not None and df is not None:
        half = half_width(level, df, se)
    return TreatmentMean(
        treatment=study.treatments[at],
        value=middle,
        se=se,
        df=df,
        lo=None if half is None else middle - half,
        hi=None if half is None else middle + half,
        reason=reason,
    )


def _differences(
    random: RandomFactors,
    study: FigureMatrix,
    squares: MeanSquares,
    errors: ErrorCovariances,
    level: float,
) -> tuple[TreatmentDifference, ...]:
    denominator, df, reason = _denominator(random, study, squares, errors)
    if study.shape[0] < 2:
        return ()
    if denominator is not None and not denominator > _NOTHING:
        reason = NO_SPREAD
    means = study.values.mean(axis=1)
    rows = []
    for earlier, later in combinations(range(study.shape[0]), 2):
        value = float(means[later] - means[earlier])
        se = t = p = lo = hi = None
        if reason is None and denominator is not None and df is not None:
            se = math.sqrt(2.0 * denominator / study.shape[1])
            t, half = value / se, half_width(level, df, se)
            p, lo, hi = two_sided_p(t, df), value - half, value + half
        rows.append((later, earlier, value, se, t, p, lo, hi))
    corrected = holm([row[5] for row in rows])
    return tuple(
        TreatmentDifference(
            first=study.treatments[later],
            second=study.treatments[earlier],
            value=value,
            se=se,
            df=df if se is not None else None,
            t=t,
            p=p,
            p_holm=holm,
            lo=lo,
            hi=hi,
            reason=reason,
        )
        for (later, earlier, value, se, t, p, lo, hi), holm in zip(rows, corrected, strict=True)
    )


def _reader_differences(study: FigureMatrix, level: float) -> tuple[ReaderDifference, ...]:
    if study.nested:
        return ()
    blocks, rows = study.blocks, []
    for first, second in ((b, a) for a, b in combinations(range(study.shape[0]), 2)):
        for j, reader in enumerate(study.readers[0]):
            value = float(study.values[first, j] - study.values[second, j])
            variance = (
                blocks[first, j, first, j] + blocks[second, j, second, j] - 2 * blocks[first, j, second, j]
            )
            se = math.sqrt(variance) if variance > _NOTHING else 0.0
            half = half_width(level, math.inf, se)
            rows.append(
                ReaderDifference(
                    reader=reader,
                    first=study.treatments[first],
                    second=study.treatments[second],
                    value=value,
                    se=se,
                    z=value / se if se > 0 else None,
                    p=two_sided_p(value / se, math.inf) if se > 0 else None,
                    lo=value - half,
                    hi=value + half,
                )
            )
    return tuple(rows)


def _variance_components(
    study: FigureMatrix, squares: MeanSquares, errors: ErrorCovariances
) -> dict[str, float | None]:
    """Solve the expected mean squares of Obuchowski and Rockette for the variances of the random effects."""
    reader = interaction = None
    if study.nested:
        if squares.interaction is not None:
            reader = squares.interaction - errors.var + (errors.cov2 or 0.0)
    elif squares.interaction is not None and squares.reader is not None and errors.cov1 is not None:
        reader = (squares.reader - squares.interaction) / study.shape[0] - errors.cov1 + (errors.cov3 or 0.0)
        interaction = squares.interaction - errors.var + errors.cov1 + errors.shared_by_readers
    elif squares.reader is not None:
        reader = squares.reader - errors.var + (errors.cov2 or 0.0)
    return {"reader": reader, "treatment_reader": interaction}


def _truncation_notes(
    study: FigureMatrix, errors: ErrorCovariances, own: Sequence[ErrorCovariances]
) -> list[str]:
    notes = []
    if errors.cov2 is not None and errors.cov3 is not None and errors.cov2 < errors.cov3:
        notes.append(
            f"Cov2 - Cov3 is negative ({errors.cov2 - errors.cov3:.3g}) and counts as 0 in the tests, as Hillis "
            "(2007) proposes."
        )
    below = [name for name, one in zip(study.treatments, own, strict=True) if (one.cov2 or 0.0) < 0]
    if below:
        notes.append(
            f"Cov2 is negative for {', '.join(below)} and counts as 0 in the intervals of single treatments."
        )
    return notes
