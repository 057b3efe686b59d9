"""Every metric of a task with its interval: `estimate_all`.

Each metric has its own method (ST-02, ST-03) unless the protocol names one for all. Resampled intervals come
from at most two streams of weights, patients within site, and patients within site and class (ST-01), and one
pass over a stream serves every metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.protocols import IntervalRules
from elsewhere.statistics.auroc import auroc_interval, interval_from_components
from elsewhere.statistics.bootstrap import (
    LeftOut,
    active_clusters,
    bca_allowed,
    bca_interval,
    jackknife_t_interval,
    leave_out,
    percentile_interval,
)
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.bounds import (
    NO_SPREAD,
    at_a_bound,
    independent_patients,
    is_flat,
    limits_without_spread,
)
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.domain import OWN_METHOD, domain_of
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, MannWhitneyInputs, RatioInputs
from elsewhere.statistics.mann_whitney import pair_sums
from elsewhere.statistics.means import (
    FEW_CLUSTERS,
    ClusteredRatio,
    StudentisedRatio,
    bootstrap_t_interval,
    clustered_ratio,
    t_interval,
)
from elsewhere.statistics.measures import Measures, measures_of
from elsewhere.statistics.metric import PAIR_KINDS, IntervalMethod, MetricKind, MetricSpec
from elsewhere.statistics.proportions import proportion_from_ratio
from elsewhere.statistics.resampling import Resampling

FloatArray = npt.NDArray[np.float64]
MANY_PATIENTS = 5000
"""Beyond this many patients skewness no longer moves the ends: t stands in for the bootstrap-t."""
RESAMPLED = frozenset({IntervalMethod.BOOTSTRAP_T, IntervalMethod.BCA, IntervalMethod.PERCENTILE})


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One metric: value, interval and how it was made. None stands for undefined, with its reason.

    Args:
        spec: The declared properties of the metric.
        value: Its value; None where it is undefined.
        lo: Lower end of the interval; None where there is none.
        hi: Upper end of the interval; None where there is none.
        method: Name of the method of the interval; `none` where there is none.
        se: Standard error; None where the method has none.
        df: Degrees of freedom; None where the method has none.
        defined: Number of cases for which the metric is defined.
        undefined: Number of the other cases.
        undefined_reason: Why the value is undefined; None where it is not.
        warnings: Full sentences about the interval.
        bootstrap: The percentile interval in addition to a closed form (ST-02); None for none.
        draws: The values under the resamples, kept on request; else None.
    """

    spec: MetricSpec
    value: float | None
    lo: float | None = None
    hi: float | None = None
    method: str = IntervalMethod.NONE.value
    se: float | None = None
    df: float | None = None
    defined: int = 0
    undefined: int = 0
    undefined_reason: str | None = None
    warnings: tuple[str, ...] = ()
    bootstrap: tuple[float, float] | None = None
    draws: FloatArray | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the metric's entry in summary.json: full precision, undefined as null.

        Returns:
            The entry.
        """
        out: dict[str, Any] = {
            "value": self.value,
            "lo": self.lo,
            "hi": self.hi,
            "method": self.method,
            "defined": self.defined,
            "undefined": self.undefined,
            "label": self.spec.label,
            "higher_is_better": self.spec.higher_is_better,
            "bounds": [_finite(self.spec.lower_bound), _finite(self.spec.upper_bound)],
            "warnings": list(self.warnings),
        }
        for name in ("se", "df", "undefined_reason"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        if self.bootstrap is not None:
            out["bootstrap"] = list(self.bootstrap)
        return out


def _finite(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else float(x)


class _RatioRows:
    """A ratio and its SE under weights, in the shape that `draw` asks of an evaluator."""

    def __init__(self, ratio: ClusteredRatio, partition: Clusters) -> None:
        self.specs = (None, None)
        self._rows = StudentisedRatio(ratio, partition.site_of_cluster)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        return np.stack(self._rows(weights), axis=1)


class IntervalRun:
    """One call of `estimate_all`: what several metrics share is made once, and only when one asks.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps the cases to patients and sites, with the evaluator's numbers of patients.
        rules: The protocol's rules for intervals.
        resampling: The resamples.
        level: The level of the intervals.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        partition: Clusters,
        *,
        rules: IntervalRules,
        resampling: Resampling,
        level: float,
    ) -> None:
        if partition.n_clusters != evaluator.n_clusters:
            raise ValueError("the evaluator and the partition number different patients")
        self.evaluator, self.partition, self.rules = evaluator, partition, rules
        self.resampling, self.level = resampling, level
        self.active = active_clusters(evaluator)
        self.values = evaluator.values()
        self.counts = evaluator.case_counts()
        self.reasons = evaluator.undefined_reasons()
        self.override = IntervalMethod(rules.method) if rules.method else None
        self.draws: dict[bool, FloatArray] = {}
        self.studentised: dict[str, FloatArray] = {}
        self._left_out: dict[bool, LeftOut] = {}
        self._ratios: dict[str, ClusteredRatio | None] = {}

    def by_class(self, spec: MetricSpec) -> bool:
        """Say whether the resamples of a metric are divided by class.

        Args:
            spec: The declared properties of the metric.

        Returns:
            True where the metric, the protocol and the cohort allow it.
        """
        return spec.stratify_by_class and self.rules.by_class and self.partition.positive_cluster is not None

    def left_out(self, by_class: bool) -> LeftOut:
        """Leave out patients, once for all metrics.

        Args:
            by_class: Whether strata are divided by class as well.

        Returns:
            The values without each patient.
        """
        if by_class not in self._left_out:
            known = next(iter(self._left_out.values()), None)
            self._left_out[by_class] = leave_out(
                self.evaluator,
                self.partition,
                key=self.resampling.key,
                by_class=by_class,
                known=known,
                threads=self.resampling.threads,
            )
        return self._left_out[by_class]

    def ratio(self, metric: str) -> ClusteredRatio | None:
        """Compute a metric as a ratio of sums, once.

        Args:
            metric: The name of the metric.

        Returns:
            The ratio, or None where the metric is none.
        """
        if metric not in self._ratios:
            inputs = self.evaluator.closed_form(metric)
            self._ratios[metric] = (
                clustered_ratio(
                    inputs.numerator,
                    inputs.denominator,
                    self.evaluator.cluster_of_case,
                    n_clusters=self.evaluator.n_clusters,
                    site_of_cluster=self.partition.site_of_cluster if self.rules.by_site else None,
                )
                if isinstance(inputs, RatioInputs)
                else None
            )
        return self._ratios[metric]

    def method(self, spec: MetricSpec) -> tuple[IntervalMethod, list[str]]:
        """Choose the method of an interval before any resample is drawn (ST-03).

        A range gets at most a percentile interval, with a note that it has no valid coverage (ST-08).

        Args:
            spec: The declared properties of the metric.

        Returns:
            The method to use, and sentences that say why it is not the default.
        """
        override = self.override_of(spec)
        wanted = override or spec.interval
        notes: list[str] = []
        if spec.kind is MetricKind.RANGE and wanted is not IntervalMethod.NONE:
            notes.append("A percentile bootstrap of a range has no valid coverage.")
            return IntervalMethod.PERCENTILE, notes
        if wanted is IntervalMethod.BCA and not bca_allowed(spec):
            notes.append("BCa is not valid for this metric: percentile instead.")
            wanted = IntervalMethod.PERCENTILE
        has_ratio = self.ratio(spec.name) is not None
        if wanted is IntervalMethod.WILSON and not (has_ratio and spec.kind is MetricKind.PROPORTION):
            wanted = IntervalMethod.CLUSTERED_T
        if wanted is IntervalMethod.DELONG_LOGIT and spec.kind not in PAIR_KINDS:
            wanted = spec.interval
        if wanted is IntervalMethod.BOOTSTRAP_T and not has_ratio:
            notes.append("The bootstrap-t needs a closed-form standard error: BCa.")
            wanted = IntervalMethod.BCA if bca_allowed(spec) else IntervalMethod.PERCENTILE
        if wanted is IntervalMethod.BOOTSTRAP_T and override is None and self.active.size > MANY_PATIENTS:
            wanted = IntervalMethod.CLUSTERED_T
        few = self.active.size < FEW_CLUSTERS and override is None
        if few and wanted in RESAMPLED and bca_allowed(spec):
            notes.append(f"{self.active.size} patients are too few to resample: t instead.")
            wanted = IntervalMethod.CLUSTERED_T
        return wanted, notes

    def measures(self, spec: MetricSpec, value: float) -> Measures:
        """Measure what an estimate rests on.

        Args:
            spec: The declared properties of the metric.
            value: The value.

        Returns:
            What this estimate rests on, for the domain of ST-04.
        """
        return measures_of(self.evaluator, self.partition, spec, value)

    def override_of(self, spec: MetricSpec) -> IntervalMethod | None:
        """Find the method that the protocol names for a metric.

        Args:
            spec: The declared properties of the metric.

        Returns:
            The protocol's method for all metrics; None where it names none, or the metric keeps its own.
        """
        return None if spec.own_interval else self.override

    def promised(self, spec: MetricSpec) -> bool:
        """Say whether coverage is promised: it is not where a protocol names its own method (ST-04a).

        Args:
            spec: The declared properties of the metric.

        Returns:
            True where the interval is the default of the metric.
        """
        return self.override_of(spec) is None


def estimate_all(
    evaluator: Evaluator,
    partition: Clusters,
    *,
    rules: IntervalRules,
    resampling: Resampling,
    level: float = 0.95,
    metrics: Sequence[str] | None = None,
    keep_draws: bool = False,
) -> dict[str, Estimate]:
    """Estimate every metric with its interval.

    Without resamples the resampled intervals are left out; closed forms stay.

    Args:
        evaluator: The metrics of the cases.
        partition: Maps the cases to patients and sites.
        rules: The protocol's rules for intervals.
        resampling: The resamples; their number may be 0.
        level: The level of the intervals, from 0.5 to below 1.
        metrics: Names of metrics; None for all.
        keep_draws: Whether the values under the resamples stay in the result.

    Returns:
        The estimates by name, in the order of the evaluator's specs.

    Raises:
        UserError: If the number of resamples is negative, the level is not a confidence level, or a metric is
            unknown.

    Example:
        >>> import pandas as pd
        >>> from elsewhere.statistics.columns import ColumnMeans
        >>> means = ColumnMeans({"dice": [0.7, 0.8, 0.9]}, np.array([0, 1, 2]), n_clusters=3)
        >>> patients = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "b", "c"]}))
        >>> none = Resampling(key="", resamples=0)
        >>> round(estimate_all(means, patients, rules=IntervalRules(), resampling=none)["dice"].lo, 3)
        0.552
    """
    if resampling.resamples < 0:
        raise UserError(
            f"{resampling.resamples} resamples cannot be drawn", fix="Use 0 for none, or 1,000 and more."
        )
    if not 0.5 <= level < 1.0:
        raise UserError(f"a level of {level} is not a confidence level", fix="Use a number such as 0.95.")
    names = [spec.name for spec in evaluator.specs]
    for name in metrics or ():
        if name not in names:
            raise unknown_name("metric", name, names)
    chosen = [spec for spec in evaluator.specs if metrics is None or spec.name in metrics]
    run = IntervalRun(evaluator, partition, rules=rules, resampling=resampling, level=level)
    plan = {spec.name: run.method(spec) for spec in chosen}
    if resampling.resamples > 0:
        draw_streams(run, chosen, plan)
    return {spec.name: estimate_metric(run, spec, *plan[spec.name], keep_draws=keep_draws) for spec in chosen}


def draw_streams(
    run: IntervalRun,
    chosen: Sequence[MetricSpec],
    plan: dict[str, tuple[IntervalMethod, list[str]]],
) -> None:
    """Draw the resamples that some metric needs: values of all metrics, and SEs for a bootstrap-t.

    Args:
        run: What the estimates of these cases share.
        chosen: The metrics that are estimated.
        plan: The method of each metric, with notes on it.
    """
    for by_class in (False, True):
        wanted = [
            spec
            for spec in chosen
            if run.by_class(spec) is by_class
            and (plan[spec.name][0] in RESAMPLED or spec.kind in PAIR_KINDS)
            and not math.isnan(run.values[spec.name])
        ]
        if not wanted:
            continue
        rows: dict[str, Any] = {}
        for spec in wanted:
            ratio = run.ratio(spec.name) if plan[spec.name][0] is IntervalMethod.BOOTSTRAP_T else None
            if ratio is not None:
                rows[spec.name] = _RatioRows(ratio, run.partition)
        how = run.resampling
        stream = WeightStream(
            run.partition,
            key=how.key,
            seed=how.seed,
            resamples=how.resamples,
            by_site=run.rules.by_site,
            by_class=by_class,
        )
        values, *pairs = draw(
            [run.evaluator, *rows.values()], stream, threads=how.threads, progress=how.progress
        )
        run.draws[by_class] = values
        run.studentised.update(zip(rows, pairs, strict=True))


def estimate_metric(
    run: IntervalRun, spec: MetricSpec, method: IntervalMethod, notes: list[str], *, keep_draws: bool
) -> Estimate:
    """Estimate one metric from what was drawn.

    Args:
        run: What the estimates of these cases share.
        spec: The declared properties of the metric.
        method: The method of the interval.
        notes: Sentences on the choice of the method.
        keep_draws: Whether the draws stay in the result.

    Returns:
        The estimate.
    """
    value = run.values[spec.name]
    defined, undefined = run.counts.get(spec.name, (run.evaluator.n_cases, 0))
    if math.isnan(value):
        return Estimate(
            spec=spec,
            value=None,
            defined=defined,
            undefined=undefined,
            undefined_reason=run.reasons.get(spec.name, "undefined on these cases"),
        )
    draws = run.draws.get(run.by_class(spec))
    column = None if draws is None else draws[:, run.evaluator.index(spec.name)]
    measures = run.measures(spec, value)
    made = _interval(run, spec, method, value, column)
    if method is not IntervalMethod.NONE:
        made = _never_without_width(run, spec, made, measures)
    warnings = [*notes, *made.notes]
    if made.method != IntervalMethod.NONE.value:
        domain = domain_of(spec)
        if not run.promised(spec):
            warnings.append(OWN_METHOD.format(method=made.method))
        elif domain is not None:
            warnings += domain.complaints(measures)
    lo, hi = made.lo, made.hi
    if lo is not None and hi is not None:
        lo, hi = max(lo, spec.lower_bound), min(hi, spec.upper_bound)
    beside = None
    if column is not None and method not in RESAMPLED and spec.kind in PAIR_KINDS:
        plain = percentile_interval(column, level=run.level)
        beside = None if plain is None else (plain.lo, plain.hi)
    return Estimate(
        spec=spec,
        value=value,
        lo=_finite(lo),
        hi=_finite(hi),
        method=made.method,
        se=_finite(made.se),
        df=_finite(made.df),
        defined=defined,
        undefined=undefined,
        warnings=tuple(warnings),
        bootstrap=beside,
        draws=column.copy() if keep_draws and column is not None else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Made:
    method: str = IntervalMethod.NONE.value
    lo: float | None = None
    hi: float | None = None
    se: float | None = None
    df: float | None = None
    notes: tuple[str, ...] = ()


def _interval(
    run: IntervalRun, spec: MetricSpec, method: IntervalMethod, value: float, draws: FloatArray | None
) -> _Made:
    if method is IntervalMethod.NONE:
        return _Made()
    if run.active.size < 2:
        return _Made(notes=("No interval: fewer than two patients.",))
    if method in RESAMPLED:
        if draws is None and method is IntervalMethod.BOOTSTRAP_T:
            plain = _t(run, spec, value, run.ratio(spec.name))
            why = "No resamples were asked for: t instead of bootstrap-t."
            return replace(plain, notes=(*plain.notes, why))
        if draws is None:
            return _Made(notes=("No interval: it needs resamples, and none were asked for.",))
        return _resampled(run, spec, method, value, draws)
    if method is IntervalMethod.DELONG_LOGIT or method is IntervalMethod.ONE_SIDED:
        inputs = run.evaluator.closed_form(spec.name)
        if isinstance(inputs, AurocInputs):
            made = auroc_interval(
                inputs.label,
                inputs.score,
                run.evaluator.cluster_of_case,
                n_clusters=run.evaluator.n_clusters,
                level=run.level,
            )
            if made is not None:
                notes = (f"One-sided bound: {made.reason}.",) if made.reason else ()
                return _Made(method=made.method, lo=made.lo, hi=made.hi, se=made.se, df=made.df, notes=notes)
        if isinstance(inputs, MannWhitneyInputs):
            parts = pair_sums(inputs, n_clusters=run.evaluator.n_clusters).components()
            if parts is not None:
                made = interval_from_components(parts, level=run.level, label=spec.label.split(" (")[0])
                notes = (f"One-sided bound: {made.reason}.",) if made.reason else ()
                return _Made(method=made.method, lo=made.lo, hi=made.hi, se=made.se, df=made.df, notes=notes)
    ratio = run.ratio(spec.name)
    if ratio is not None and method is IntervalMethod.WILSON:
        wilson = proportion_from_ratio(ratio, level=run.level)
        return _Made(method=method.value, lo=wilson.lo, hi=wilson.hi, se=wilson.se, df=wilson.df)
    return _t(run, spec, value, ratio)


def _never_without_width(run: IntervalRun, spec: MetricSpec, made: _Made, measures: Measures) -> _Made:
    """A sample without spread gets a bound in place of an interval of zero width (ST-02a)."""
    value = measures.value
    flat = made.lo is not None and made.hi is not None and is_flat(made.hi - made.lo, value)
    perfect = made.lo is None and at_a_bound(spec, value) and run.active.size >= 2
    if not flat and not perfect:
        return made
    why = NO_SPREAD.format(label=spec.label)
    ends = None
    if spec.kind is not MetricKind.RANGE:
        patients = independent_patients(spec, measures)
        ends = limits_without_spread(spec, value, patients, alpha=1.0 - run.level, both_sides=True)
    if ends is None:
        return _Made(notes=(*made.notes, f"No interval: {why}."))
    method = IntervalMethod.ONE_SIDED.value
    return _Made(method=method, lo=ends[0], hi=ends[1], notes=(*made.notes, f"One-sided bound: {why}."))


def _t(run: IntervalRun, spec: MetricSpec, value: float, ratio: ClusteredRatio | None) -> _Made:
    """Clustered t: linearised where the metric is a ratio of sums, by leaving patients out otherwise."""
    method = IntervalMethod.CLUSTERED_T.value
    if ratio is not None:
        ends = t_interval(ratio, level=run.level)
        if ends is None:
            return _Made(notes=("No interval: fewer than two patients count towards it.",))
        return _Made(method=method, lo=ends[0], hi=ends[1], se=ratio.se, df=ratio.df)
    left_out = run.left_out(run.by_class(spec))
    made = jackknife_t_interval(value, left_out, run.evaluator.index(spec.name), level=run.level)
    if made is None:
        return _Made(notes=("No interval: undefined, or unchanged, when single patients are left out.",))
    return _Made(method=method, lo=made[0], hi=made[1], se=made[2], df=made[3])


def _resampled(
    run: IntervalRun, spec: MetricSpec, method: IntervalMethod, value: float, draws: FloatArray
) -> _Made:
    undefined = int(np.isnan(draws).sum())
    notes = []
    if undefined:
        notes.append(
            f"{undefined} of {draws.size} resamples left the metric undefined; the interval is of the others."
        )
    se = float(np.nanstd(draws, ddof=1)) if draws.size - undefined > 1 else math.nan
    if method is IntervalMethod.BOOTSTRAP_T:
        ratio, pairs = run.ratio(spec.name), run.studentised[spec.name]
        ends = (
            bootstrap_t_interval(value, ratio.se, pairs[:, 0], pairs[:, 1], level=run.level)
            if ratio
            else None
        )
        if ratio is not None and ends is not None:
            return _Made(
                method=method.value, lo=ends[0], hi=ends[1], se=ratio.se, df=ratio.df, notes=tuple(notes)
            )
        if spec.skewed and run.override_of(spec) is None:
            plain = _t(run, spec, value, ratio)
            why = "The bootstrap-t is not defined here (too many resamples without spread): t."
            return replace(plain, notes=(*notes, *plain.notes, why))
        notes.append("The bootstrap-t is not defined here (no spread between patients): percentile.")
    if method is IntervalMethod.BCA:
        acceleration = run.left_out(run.by_class(spec)).acceleration(run.evaluator.index(spec.name))
        made = bca_interval(value, draws, acceleration, level=run.level)
    else:
        made = percentile_interval(draws, level=run.level)
    if made is None:
        return _Made(notes=(*notes, "No interval: fewer than half of the resamples are defined."))
    if made.reason:
        notes.append(f"{made.reason}: percentile instead.")
    return _Made(method=made.method, lo=made.lo, hi=made.hi, se=se, notes=tuple(notes))
