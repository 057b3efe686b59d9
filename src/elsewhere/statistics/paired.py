"""Two models on the same cases: the difference with its interval, and the tests of no difference.

The patient is the unit throughout (ST-01): resamples weigh both models alike, permutations swap whole
patients between the models, and the t and Wilcoxon tests compare patients' means (MRI-09 tests per case,
and there a patient is a case). AUROC has its clustered paired DeLong (ST-02). Differences are a - b.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from elsewhere.errors import UserError, unknown_name
from elsewhere.protocols import IntervalRules
from elsewhere.statistics.accumulators import cluster_sums
from elsewhere.statistics.auroc import paired_auroc, paired_from_components
from elsewhere.statistics.bootstrap import bca_allowed, bca_interval, leave_out, percentile_interval
from elsewhere.statistics.bootstrap_weights import BLOCK, WeightStream, draw, generator_for
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.domain import OWN_METHOD, domain_warnings
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, MannWhitneyInputs, RatioInputs
from elsewhere.statistics.mann_whitney import pair_sums
from elsewhere.statistics.means import site_strata
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.simultaneous import constant_difference_p

FloatArray = npt.NDArray[np.float64]
Progress = Callable[[int], None]

_SWAP_STREAM = 501
_STILL = 1e-12
"""Differences closer together than this are the same: sums in another order differ in the last digit."""
_ROW_BUDGET_BYTES = 32 * 2**20
PERMUTATION = "permutation"
DELONG = "delong-clustered-paired"
LINEARISED_T = "t-clustered"
PAIRED_T = "t-paired-patients"
WILCOXON = "wilcoxon-patients"


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """One test of 'no difference'.

    Args:
        p: Two-sided p; None where it is undefined.
        statistic: The test's statistic; None where it has none.
        df: Degrees of freedom; None where it has none.
        n: Number of patients, or of permutations; None where it is not reported.
        reason: Why p is undefined, or exact by another test; None for the usual test.
    """

    p: float | None
    statistic: float | None = None
    df: float | None = None
    n: int | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `p`, and those of `statistic`, `df`, `n` and `reason` that the test has.
        """
        named = {"p": self.p, "statistic": self.statistic, "df": self.df, "n": self.n, "reason": self.reason}
        return {k: v for k, v in named.items() if v is not None or k == "p"}


@dataclass(frozen=True, kw_only=True)
class PairedResult:
    """a - b of one metric, with its interval and tests.

    Args:
        spec: The declared properties of the metric.
        value_a: Value of model a; None where it is undefined.
        value_b: Value of model b; None where it is undefined.
        difference: a - b; None where one is undefined.
        lo: Lower end of the interval; None where there is none.
        hi: Upper end of the interval; None where there is none.
        method: Name of the method of the interval.
        se: Standard error of the difference; None where there is none.
        p: p of the test that belongs to the interval; None where there is none.
        p_method: Name of that test.
        tests: All tests by name.
        bootstrap: The percentile interval of the resampled differences; None without resamples.
        undefined_reason: Why there is no difference; None where there is one.
        warnings: Full sentences about the interval and the tests.
    """

    spec: MetricSpec
    value_a: float | None
    value_b: float | None
    difference: float | None
    lo: float | None = None
    hi: float | None = None
    method: str = IntervalMethod.NONE.value
    se: float | None = None
    p: float | None = None
    p_method: str | None = None
    tests: dict[str, PairedTest] = field(default_factory=dict)
    bootstrap: tuple[float, float] | None = None
    undefined_reason: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json.

        Returns:
            A dictionary with `metric`, `label`, `higher_is_better`, `a`, `b`, `difference`, `lo`, `hi`,
            `method`, `se`, `p`, `p_method`, `tests`, `bootstrap`, `undefined_reason` and `warnings`.
        """
        return {
            "metric": self.spec.name,
            "label": self.spec.label,
            "higher_is_better": self.spec.higher_is_better,
            "a": self.value_a,
            "b": self.value_b,
            "difference": self.difference,
            "lo": self.lo,
            "hi": self.hi,
            "method": self.method,
            "se": self.se,
            "p": self.p,
            "p_method": self.p_method,
            "tests": {name: test.to_dict() for name, test in self.tests.items()},
            "bootstrap": None if self.bootstrap is None else list(self.bootstrap),
            "undefined_reason": self.undefined_reason,
            "warnings": list(self.warnings),
        }


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values by Holm's step-down procedure.

    Args:
        p_values: The p-values; None for no test.

    Returns:
        The adjusted values in the same order; None (no test) stays None and is not counted among the tests.

    Example:
        >>> holm([0.01, None, 0.04])
        [0.02, None, 0.04]
    """
    known = [(p, i) for i, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    out: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(sorted(known)):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        out[i] = largest
    return out


def permutation_p(observed: float, permuted: FloatArray) -> float:
    """Compute the p-value of a permutation test.

    Args:
        observed: The observed difference.
        permuted: The differences under permutation; NaN where undefined.

    Returns:
        Two-sided p = (b + 1)/(B + 1) (ST-12); an undefined permutation counts as extreme.

    Example:
        >>> permutation_p(0.5, np.array([0.1, -0.6, 0.2, np.nan]))
        0.6
    """
    slack = 1e-12 * max(1.0, abs(observed))
    extreme = np.isnan(permuted) | (np.abs(permuted) >= abs(observed) - slack)
    return (int(extreme.sum()) + 1) / (permuted.size + 1)


def swapped_differences(
    evaluator_a: Evaluator,
    evaluator_b: Evaluator,
    *,
    key: str,
    seed: int,
    permutations: int,
    progress: Progress | None = None,
) -> FloatArray:
    """Swap patients between two models at random.

    Metrics that read the order of scores alone swap ranks: a score of one model says nothing on the scale of
    the other, and a monotone change of one model's scores must change nothing (ST-12a).

    Args:
        evaluator_a: The metrics of the first model.
        evaluator_b: The metrics of the second model, on the same cases.
        key: Names the stream of random numbers: the hash of the cohort.
        seed: The seed of every draw.
        permutations: How many permutations.
        progress: Called to report how far the work is.

    Returns:
        (permutations, metrics): a - b after each patient was given to the other model with probability 1/2.
    """
    n = evaluator_a.n_clusters
    by_rank = np.array([spec.rank_based for spec in evaluator_a.specs], dtype=bool)
    pooled: list[tuple[Evaluator, npt.NDArray[np.bool_]]] = []
    if not by_rank.all():
        pooled.append((evaluator_a.stack(evaluator_b), ~by_rank))
    if by_rank.any():
        pooled.append((evaluator_a.ranked().stack(evaluator_b.ranked()), by_rank))
    out = np.empty((permutations, len(evaluator_a.specs)))
    rows = max(1, min(BLOCK, _ROW_BUDGET_BYTES // max(1, 8 * n)))
    for block, begin in enumerate(range(0, permutations, BLOCK)):
        rng = generator_for(key, seed, _SWAP_STREAM, block)
        end = min(begin + BLOCK, permutations)
        for first in range(begin, end, rows):
            last = min(first + rows, end)
            swap = rng.integers(0, 2, size=(last - first, n), dtype=np.uint16)
            stay = (1 - swap).astype(np.uint16)
            first_model = np.concatenate([stay, swap], axis=1)
            second_model = np.concatenate([swap, stay], axis=1)
            for both, columns in pooled:
                moved = both.evaluate(first_model) - both.evaluate(second_model)
                out[first:last, columns] = moved[:, columns]
        if progress:
            progress(end - begin)
    return out


def _check_pair(a: Evaluator, b: Evaluator, partition: Clusters) -> None:
    same = (
        a.n_clusters == b.n_clusters == partition.n_clusters
        and a.n_cases == b.n_cases
        and bool((a.cluster_of_case == b.cluster_of_case).all())
        and [s.name for s in a.specs] == [s.name for s in b.specs]
    )
    if not same:
        raise UserError(
            f"the two results are not of the same cases ({a.n_cases} and {b.n_cases})",
            fix="Score both models on one cohort with one protocol, then compare.",
        )


def _patient_means(inputs: RatioInputs, cluster: npt.NDArray[np.int32], n_clusters: int) -> FloatArray:
    columns = np.stack([inputs.numerator, inputs.denominator], axis=1).astype(float)
    columns[np.isnan(columns).any(axis=1)] = 0.0
    sums = cluster_sums(cluster, n_clusters, columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.nan)


def _constant(patients: int) -> PairedTest:
    """The exact p where the difference is not zero and the same in every patient (ST-09a)."""
    return PairedTest(
        p=constant_difference_p(patients),
        n=patients,
        reason="the difference is the same in every patient: exact sign test",
    )


def patient_tests(
    a: RatioInputs, b: RatioInputs, cluster_of_case: npt.NDArray[np.int32], *, n_clusters: int
) -> dict[str, PairedTest]:
    """Test the patients' means with a paired t and Wilcoxon's signed-rank test.

    Patients undefined in either model are left out. Where every patient has the same difference, and it is
    not zero, both are the exact sign test, which is what the signed-rank test becomes; a t would be infinite.

    Args:
        a: The metric of the first model, case by case.
        b: The metric of the second model, case by case.
        cluster_of_case: The number of the patient of each case.
        n_clusters: How many patients there are.

    Returns:
        Both tests by name.

    Example:
        >>> ones = np.ones(3)
        >>> a, b = RatioInputs(np.array([0.9, 0.8, 0.7]), ones), RatioInputs(np.array([0.8, 0.8, 0.5]), ones)
        >>> round(patient_tests(a, b, np.array([0, 1, 2]), n_clusters=3)[PAIRED_T].p, 3)
        0.225
    """
    means_a = _patient_means(a, cluster_of_case, n_clusters)
    means_b = _patient_means(b, cluster_of_case, n_clusters)
    difference = (means_a - means_b)[~np.isnan(means_a - means_b)]
    n = int(difference.size)
    spread = float(np.ptp(difference)) if n else 0.0
    same = n > 0 and spread <= _STILL * max(1.0, float(np.abs(difference).max()))
    if n >= 2 and same and abs(float(difference[0])) > _STILL:
        constant = _constant(n)
        return {PAIRED_T: constant, WILCOXON: constant}
    if n < 2 or same:
        reason = "fewer than two patients" if n < 2 else "every patient has the same result in both"
        undefined = PairedTest(p=None, n=n, reason=reason)
        return {PAIRED_T: undefined, WILCOXON: undefined}
    t = stats.ttest_1samp(difference, 0.0)
    w = stats.wilcoxon(difference)
    return {
        PAIRED_T: PairedTest(p=float(t.pvalue), statistic=float(t.statistic), df=float(n - 1), n=n),
        WILCOXON: PairedTest(p=float(w.pvalue), statistic=float(w.statistic), n=n),
    }


@dataclass(frozen=True)
class _Closed:
    lo: float
    hi: float
    se: float
    p: float | None
    df: float | None
    method: str
    test: PairedTest


def _linearised(
    a: RatioInputs,
    b: RatioInputs,
    cluster: npt.NDArray[np.int32],
    partition: Clusters,
    level: float,
    *,
    by_site: bool,
) -> _Closed | None:
    """The difference of two ratios on the same patients: t on the difference of their linearised terms."""
    columns = np.stack([a.numerator, a.denominator, b.numerator, b.denominator], axis=1).astype(float)
    for k in (0, 2):
        columns[np.isnan(columns[:, k : k + 2]).any(axis=1), k : k + 2] = 0.0
    sums = cluster_sums(cluster, partition.n_clusters, columns)
    total = sums.sum(axis=0)
    if total[1] <= 0 or total[3] <= 0:
        return None
    value_a, value_b = total[0] / total[1], total[2] / total[3]
    pull = (sums[:, 0] - value_a * sums[:, 1]) / total[1] - (sums[:, 2] - value_b * sums[:, 3]) / total[3]
    part = (sums[:, 1] > 0) | (sums[:, 3] > 0)
    stratum = site_strata(partition.site_of_cluster if by_site else None, part)
    size = np.bincount(stratum)
    df = float(stratum.size - size.size)
    if df < 1:
        return None
    kept = pull[part]
    centred = kept - (np.bincount(stratum, weights=kept) / size)[stratum]
    variance = float((size / (size - 1.0) * np.bincount(stratum, weights=centred**2)).sum())
    se, difference = math.sqrt(variance), float(value_a - value_b)
    half = float(special.stdtrit(df, 0.5 + level / 2.0)) * se
    if se > _STILL * max(1.0, abs(value_a), abs(value_b)):
        test = PairedTest(p=float(2.0 * stats.t.sf(abs(difference) / se, df)), df=df)
    else:
        test = _constant(int(part.sum())) if abs(difference) > _STILL else PairedTest(p=None, df=df)
    return _Closed(difference - half, difference + half, se, test.p, df, LINEARISED_T, test)


def _rarer_class_patients(inputs: AurocInputs, evaluator: Evaluator) -> int:
    """Patients with a case of the class that fewer patients have."""
    positive = np.asarray(inputs.label) > 0
    return min(int(np.unique(evaluator.cluster_of_case[side]).size) for side in (positive, ~positive))


def _pairs(
    of_a: MannWhitneyInputs, of_b: MannWhitneyInputs, *, n_clusters: int, level: float
) -> tuple[_Closed | None, dict[str, PairedTest]]:
    """The difference of two weighted shares of pairs: its components are the differences of theirs."""
    parts_a = pair_sums(of_a, n_clusters=n_clusters).components()
    parts_b = pair_sums(of_b, n_clusters=n_clusters).components()
    if parts_a is None or parts_b is None:
        return None, {}
    made = paired_from_components(parts_a, parts_b, level=level)
    if math.isnan(made.se):
        return None, {}
    test = PairedTest(p=made.p, statistic=made.difference / made.se if made.se > 0 else None, df=made.df)
    if made.se <= _STILL and abs(made.difference) > _STILL:
        test = _constant(min(parts_a.positive_patients, parts_a.negative_patients))
    return _Closed(made.lo, made.hi, made.se, test.p, made.df, DELONG, test), {DELONG: test}


def _closed(
    a: Evaluator, b: Evaluator, partition: Clusters, spec: MetricSpec, level: float, *, by_site: bool
) -> tuple[_Closed | None, dict[str, PairedTest]]:
    """The closed form of the difference, where the metric has one, with the tests on patients' means."""
    of_a, of_b = a.closed_form(spec.name), b.closed_form(spec.name)
    if isinstance(of_a, AurocInputs) and isinstance(of_b, AurocInputs) and spec.kind is MetricKind.AUROC:
        made = paired_auroc(
            of_a.label, of_a.score, of_b.score, a.cluster_of_case, n_clusters=a.n_clusters, level=level
        )
        if made is None or math.isnan(made.se):
            return None, {}
        statistic = made.difference / made.se if made.se > 0 else None
        test = PairedTest(p=made.p, statistic=statistic, df=made.df)
        if made.se <= _STILL and abs(made.difference) > _STILL:
            test = _constant(_rarer_class_patients(of_a, a))
        return _Closed(made.lo, made.hi, made.se, test.p, made.df, DELONG, test), {DELONG: test}
    if isinstance(of_a, MannWhitneyInputs) and isinstance(of_b, MannWhitneyInputs):
        return _pairs(of_a, of_b, n_clusters=a.n_clusters, level=level)
    if not (isinstance(of_a, RatioInputs) and isinstance(of_b, RatioInputs)):
        return None, {}
    closed = _linearised(of_a, of_b, a.cluster_of_case, partition, level, by_site=by_site)
    tests: dict[str, PairedTest] = {}
    if closed is not None:
        tests[LINEARISED_T] = closed.test
    if spec.kind is MetricKind.MEAN:
        tests.update(patient_tests(of_a, of_b, a.cluster_of_case, n_clusters=a.n_clusters))
    return closed, tests


def _by_class(spec: MetricSpec, rules: IntervalRules, partition: Clusters) -> bool:
    return spec.stratify_by_class and rules.by_class and partition.positive_cluster is not None


def compare_pair(
    evaluator_a: Evaluator,
    evaluator_b: Evaluator,
    partition: Clusters,
    *,
    rules: IntervalRules,
    resampling: Resampling,
    level: float = 0.95,
    metrics: Sequence[str] | None = None,
    permutations: int | None = None,
) -> dict[str, PairedResult]:
    """Compare two models on the same cases, metric by metric.

    The interval is the closed form where there is one (and the protocol names no other), else BCa or
    percentile of the resampled differences; the bootstrap interval is given in addition to a closed form.

    Args:
        evaluator_a: The metrics of the first model.
        evaluator_b: The metrics of the second model, on the same cases.
        partition: Maps cases to patients and sites.
        rules: The protocol's rules for intervals.
        resampling: The resamples; their number may be 0.
        level: The level of the intervals.
        metrics: Names of metrics; None for all.
        permutations: How many permutations; None for the number of resamples, 0 for no permutation test.

    Returns:
        a - b of each metric, with its interval and tests.

    Raises:
        UserError: If the two models have different cases or metrics, or a metric is unknown.
    """
    _check_pair(evaluator_a, evaluator_b, partition)
    names = [spec.name for spec in evaluator_a.specs]
    for name in metrics or ():
        if name not in names:
            raise unknown_name("metric", name, names)
    chosen = [spec for spec in evaluator_a.specs if metrics is None or spec.name in metrics]
    values_a, values_b = evaluator_a.values(), evaluator_b.values()
    draws: dict[bool, FloatArray] = {}

    how = resampling
    if how.resamples > 0:
        for split in sorted({_by_class(spec, rules, partition) for spec in chosen}):
            stream = WeightStream(
                partition,
                key=how.key,
                seed=how.seed,
                resamples=how.resamples,
                by_site=rules.by_site,
                by_class=split,
            )
            of_a, of_b = draw([evaluator_a, evaluator_b], stream, threads=how.threads, progress=how.progress)
            draws[split] = of_a - of_b
    count = how.resamples if permutations is None else permutations
    swapped = (
        swapped_differences(
            evaluator_a, evaluator_b, key=how.key, seed=how.seed, permutations=count, progress=how.progress
        )
        if count > 0
        else None
    )
    pair = _Pair(evaluator_a, evaluator_b, partition, rules, how.key, level)
    out: dict[str, PairedResult] = {}
    for spec in chosen:
        column = evaluator_a.index(spec.name)
        of_spec = draws.get(_by_class(spec, rules, partition))
        out[spec.name] = pair.compare(
            spec,
            values_a[spec.name],
            values_b[spec.name],
            draws=None if of_spec is None else of_spec[:, column],
            swapped=None if swapped is None else swapped[:, column],
        )
    return out


class _Pair:
    """Two models on the same cases: what the comparisons of their metrics share."""

    def __init__(
        self, a: Evaluator, b: Evaluator, partition: Clusters, rules: IntervalRules, key: str, level: float
    ) -> None:
        self.a, self.b, self.partition, self.rules, self.key, self.level = a, b, partition, rules, key, level
        self.override = IntervalMethod(rules.method) if rules.method else None
        self._left_out: dict[bool, Any] = {}

    def acceleration(self, spec: MetricSpec) -> float:
        split = _by_class(spec, self.rules, self.partition)
        if split not in self._left_out:
            by_site = self.rules.by_site
            a = leave_out(self.a, self.partition, key=self.key, by_class=split, by_site=by_site)
            b = leave_out(self.b, self.partition, key=self.key, by_class=split, by_site=by_site)
            self._left_out[split] = replace(a, values=a.values - b.values)
        return float(self._left_out[split].acceleration(self.a.index(spec.name)))

    def compare(
        self,
        spec: MetricSpec,
        value_a: float,
        value_b: float,
        *,
        draws: FloatArray | None,
        swapped: FloatArray | None,
    ) -> PairedResult:
        a, b, partition, override, level = self.a, self.b, self.partition, self.override, self.level
        if spec.own_interval:
            override = None
        if math.isnan(value_a) or math.isnan(value_b):
            who = a if math.isnan(value_a) else b
            return PairedResult(
                spec=spec,
                value_a=None if math.isnan(value_a) else value_a,
                value_b=None if math.isnan(value_b) else value_b,
                difference=None,
                undefined_reason=who.undefined_reasons().get(spec.name, "undefined on these cases"),
            )
        difference = value_a - value_b
        closed, tests = _closed(a, b, partition, spec, level, by_site=self.rules.by_site)
        warnings: list[str] = []
        if swapped is not None:
            undefined = int(np.isnan(swapped).sum())
            if undefined:
                warnings.append(
                    f"{undefined} of {swapped.size} permutations left the metric undefined and count as extreme."
                )
            tests[PERMUTATION] = PairedTest(p=permutation_p(difference, swapped), n=int(swapped.size))
        plain = None if draws is None else percentile_interval(draws, level=level)
        if plain is not None and plain.undefined_resamples and draws is not None:
            warnings.append(
                f"{plain.undefined_resamples} of {draws.size} resamples left the difference undefined; "
                "the bootstrap interval is of the others."
            )
        beside = None if plain is None else (plain.lo, plain.hi)
        lo: float | None = None
        hi: float | None = None
        se: float | None = None
        method = IntervalMethod.NONE.value
        if closed is not None and override in (None, IntervalMethod.DELONG_LOGIT, IntervalMethod.CLUSTERED_T):
            lo, hi, se, method = closed.lo, closed.hi, closed.se, closed.method
        elif draws is not None and plain is not None:
            chosen = plain
            if override is not IntervalMethod.PERCENTILE and bca_allowed(spec):
                chosen = bca_interval(difference, draws, self.acceleration(spec), level=level) or plain
            if chosen.reason:
                warnings.append(f"{chosen.reason}: percentile instead.")
            lo, hi, method, se = chosen.lo, chosen.hi, chosen.method, float(np.nanstd(draws, ddof=1))
        if method != IntervalMethod.NONE.value:
            if override is not None:
                warnings.append(OWN_METHOD.format(method=method))
            else:
                for evaluator, value in ((a, value_a), (b, value_b)):
                    warnings += domain_warnings(evaluator, partition, spec, value)
        first = DELONG if DELONG in tests else LINEARISED_T if LINEARISED_T in tests else PERMUTATION
        main = tests.get(first)
        return PairedResult(
            spec=spec,
            value_a=value_a,
            value_b=value_b,
            difference=difference,
            lo=lo,
            hi=hi,
            method=method,
            se=se,
            p=None if main is None else main.p,
            p_method=None if main is None else first,
            tests=tests,
            bootstrap=beside,
            warnings=tuple(dict.fromkeys(warnings)),
        )
