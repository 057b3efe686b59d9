"""Many models at two domains: the difference of means over patches, by patient, of all models at once (LN-20).

Every model's mean is a ratio of sums over patients: what its patches add up to, over how many patches there are. All
models share the patients, the numbers of patches and the resamples, so that a thousand resamples of a hundred models
are one product of matrices.

A few slides hold most of the tumour patches. Percentile and studentised bootstrap intervals are then too narrow (the
resamples rarely leave the large slides out, and no resample holds a larger one). The interval that leads leaves one
patient out at a time, and takes its degrees of freedom from Kish's effective number of patients: five slides that hold
nearly all patches count as few. `docs/reference/levels.md` has its coverage, next to those of the bootstrap and of the
study's test by fold. A rate near 0 that a few slides carry has its limits on the logarithmic scale, joined by MOVER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.statistics.limits import check_alpha
from elsewhere.statistics.resampling import Resampling

LEAVE_ONE_OUT = "leave-one-patient-out t, effective patients"
LEAVE_ONE_OUT_LOG = "leave-one-patient-out t on the log scale, MOVER"
FEWEST_PATIENTS = 2
_FEWEST_RESAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class SideSums:
    """What each model's patches add up to in one domain, by patient.

    Attributes:
        patients: The patients, sorted by id.
        total: Sums of the values, (models, patients).
        count: Numbers of patches, one per patient.
    """

    patients: tuple[str, ...]
    total: FloatArray
    count: FloatArray

    @classmethod
    def of_parts(
        cls,
        patients: Sequence[str],
        patient_of_part: npt.NDArray[np.int64],
        *,
        total: FloatArray,
        count: FloatArray,
        chosen: npt.NDArray[np.bool_],
    ) -> SideSums:
        """Add parts up by patient; patients without a patch take no part.

        Args:
            patients: All patients.
            patient_of_part: The number of the patient of each part.
            total: Sums of the values, (models, parts).
            count: Numbers of patches, one per part.
            chosen: The parts of this side.

        Returns:
            The sums by patient.
        """
        used = np.flatnonzero(chosen & (count > 0))
        used = used[np.argsort(patient_of_part[used], kind="stable")]
        here, first = np.unique(patient_of_part[used], return_index=True)
        if not here.size:
            return cls(patients=(), total=np.zeros((total.shape[0], 0)), count=np.zeros(0))
        return cls(
            patients=tuple(patients[i] for i in here),
            total=np.add.reduceat(total[:, used], first, axis=1),
            count=np.add.reduceat(count[used], first),
        )

    @property
    def n_patients(self) -> int:
        """How many patients there are."""
        return len(self.patients)

    @property
    def value(self) -> FloatArray:
        """The mean over patches of each model; NaN without a patch."""
        n = float(self.count.sum())
        return self.total.sum(axis=1) / n if n > 0 else np.full(self.total.shape[0], np.nan)

    def jackknife_se(self) -> FloatArray:
        """Compute the standard error of each mean by leaving out one patient at a time.

        Returns:
            One per model; NaN with fewer than two patients.
        """
        n = self.n_patients
        if n < FEWEST_PATIENTS:
            return np.full(self.total.shape[0], np.nan)
        without = (self.total.sum(axis=1, keepdims=True) - self.total) / (self.count.sum() - self.count)
        spread = without - without.mean(axis=1, keepdims=True)
        return np.asarray(np.sqrt((n - 1) / n * (spread * spread).sum(axis=1)))

    def effective_patients(self) -> FloatArray:
        """Compute Kish's effective number of patients, of the patches and of what adds up to the value.

        Returns:
            The smaller of both, one per model.
        """
        if not self.n_patients:
            return np.zeros(self.total.shape[0])
        of_patches = float(self.count.sum()) ** 2 / float(self.count @ self.count)
        squares = (self.total * self.total).sum(axis=1)
        top = self.total.sum(axis=1) ** 2
        of_values = np.divide(top, squares, out=np.full(top.size, of_patches), where=squares > 0)
        return np.asarray(np.minimum(of_values, of_patches))

    def under(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the means and their linearised standard errors under resampled patients.

        Args:
            weights: How often each patient was drawn, (resamples, patients).

        Returns:
            Both, (resamples, models); NaN where no patch was drawn.
        """
        n, models = self.n_patients, self.total.shape[0]
        a, b = self.total.T, self.count[:, None]
        sums = weights @ np.hstack([a, a * a, a * b, b, b * b])
        top, squares, products = (
            sums[:, :models],
            sums[:, models : 2 * models],
            sums[:, 2 * models : 3 * models],
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            bottom = sums[:, -2:-1]
            value = top / bottom
            square = squares - 2.0 * value * products + value * value * sums[:, -1:]
            se = np.sqrt(n / max(n - 1, 1) * np.maximum(square, 0.0)) / bottom
            return np.where(bottom > 0, value, np.nan), np.where(bottom > 0, se, np.nan)


@dataclass(frozen=True, kw_only=True)
class ManyDifferences:
    """External - internal of every model, with 1 - 2 alpha intervals; NaN where there is none.

    Attributes:
        internal: The means at the reference.
        external: The means at the other place.
        difference: external - internal.
        lo: Lower ends.
        hi: Upper ends.
        se: Standard errors of the differences.
        df: Degrees of freedom of the intervals.
        bootstrap_lo: Lower ends of the percentile bootstrap; NaN without resamples.
        bootstrap_hi: Its upper ends.
        all_lo: Lower ends that hold for all models at once, one-sided at alpha; NaN without resamples.
        all_hi: Upper ends, likewise.
        ratio: external / internal.
        ratio_lo: Lower ends of its 1 - 2 alpha interval.
        ratio_hi: Upper ends.
        alpha: Level of each one-sided test.
        method: How the interval was made.
        patients: Patients with patches, (internal, external).
        effective: Effective numbers of patients, (2, models).
        undefined_resamples: Resamples in which a side had no patch.
        reason: Why there is no interval, for each model; empty where there is one.
    """

    internal: FloatArray
    external: FloatArray
    difference: FloatArray
    lo: FloatArray
    hi: FloatArray
    se: FloatArray
    df: FloatArray
    bootstrap_lo: FloatArray
    bootstrap_hi: FloatArray
    all_lo: FloatArray
    all_hi: FloatArray
    ratio: FloatArray
    ratio_lo: FloatArray
    ratio_hi: FloatArray
    alpha: float
    method: str
    patients: tuple[int, int]
    effective: FloatArray
    undefined_resamples: int
    reason: tuple[str, ...]


def _t(p: float, df: FloatArray) -> FloatArray:
    return np.asarray(special.stdtrit(np.maximum(df, 1.0), p))


def _welch_df(v1: FloatArray, f1: FloatArray, v2: FloatArray, f2: FloatArray) -> FloatArray:
    bottom = v1**2 / np.maximum(f1, 1.0) + v2**2 / np.maximum(f2, 1.0)
    return np.divide((v1 + v2) ** 2, bottom, out=np.ones_like(bottom), where=bottom > 0)


def compare_many(
    internal: SideSums,
    external: SideSums,
    *,
    skewed: bool = False,
    alpha: float = 0.05,
    resampling: Resampling | None = None,
    what: str = "patches",
) -> ManyDifferences:
    """Compare two domains for every model at once.

    Args:
        internal: The reference.
        external: The other place.
        skewed: Whether the limits of a difference are made on the logarithmic scale, for rates near 0.
        alpha: The level of each one-sided test; intervals are 1 - 2 alpha.
        resampling: The resamples of the bootstrap; None for none.
        what: What is averaged, for reasons.

    Returns:
        The differences, ratios and intervals.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def side(mean):
        ...     value = np.clip(rng.normal(mean, 0.05, (2, 30)), 0, 1)
        ...     return SideSums(patients=tuple(map(str, range(30))), total=value * 10, count=np.full(30, 10.0))
        >>> made = compare_many(side(0.8), side(0.7))
        >>> made.difference.round(1).tolist(), bool((made.hi < 0).all())
        ([-0.1, -0.1], True)
    """
    check_alpha(alpha)
    models = internal.total.shape[0]
    reasons = _reasons(internal, external, models, what)
    v1, v2 = internal.value, external.value
    s1, s2 = internal.jackknife_se(), external.jackknife_se()
    n1, n2 = internal.effective_patients(), external.effective_patients()
    se = np.hypot(s1, s2)
    with np.errstate(invalid="ignore", divide="ignore"):
        df = _welch_df(s1**2, n1 - 1, s2**2, n2 - 1)
        relative1, relative2 = s1 / v1, s2 / v2
        ratio = v2 / v1
        ratio_se = np.hypot(relative1, relative2)
        reach = _t(1 - alpha, _welch_df(relative1**2, n1 - 1, relative2**2, n2 - 1)) * ratio_se
        ratio_lo, ratio_hi = ratio * np.exp(-reach), ratio * np.exp(reach)
    no_interval = np.array([bool(reason) for reason in reasons]) | ~(se > 0)
    zero = ~((v1 > 0) & (v2 > 0))
    d = v2 - v1
    if skewed:
        lo, hi = _log_limits(v1, s1, n1, v2, s2, n2, alpha)
        no_interval |= zero
        reasons = [
            reason
            or ("no false positive in one of the domains, so that a rate of 0 has no interval" if z else "")
            for reason, z in zip(reasons, zero, strict=True)
        ]
    else:
        half = _t(1 - alpha, df) * se
        lo, hi = d - half, d + half
    lo, hi = np.maximum(lo, -1.0), np.minimum(hi, 1.0)
    lo, hi = np.where(no_interval, np.nan, lo), np.where(no_interval, np.nan, hi)
    bad_ratio = no_interval | zero
    boot = _bootstrap(internal, external, d, se, alpha, resampling)
    width = np.where(np.isfinite(boot.all_low), np.maximum(boot.all_low, _t(1 - alpha, df)), np.nan)
    width_hi = np.where(np.isfinite(boot.all_high), np.maximum(boot.all_high, _t(1 - alpha, df)), np.nan)
    reasons = [
        reason or ("no spread between patients: no interval is defined" if not s > 0 else "")
        for reason, s in zip(reasons, se, strict=True)
    ]
    return ManyDifferences(
        internal=v1,
        external=v2,
        difference=d,
        lo=lo,
        hi=hi,
        se=np.where(no_interval, np.nan, se),
        df=df,
        bootstrap_lo=np.where(no_interval, np.nan, boot.lo),
        bootstrap_hi=np.where(no_interval, np.nan, boot.hi),
        all_lo=np.where(no_interval, np.nan, np.minimum(d - width * se, lo)),
        all_hi=np.where(no_interval, np.nan, np.maximum(d + width_hi * se, hi)),
        ratio=np.where(v1 > 0, ratio, np.nan),
        ratio_lo=np.where(bad_ratio, np.nan, ratio_lo),
        ratio_hi=np.where(bad_ratio, np.nan, ratio_hi),
        alpha=alpha,
        method=LEAVE_ONE_OUT_LOG if skewed else LEAVE_ONE_OUT,
        patients=(internal.n_patients, external.n_patients),
        effective=np.stack([n1, n2]),
        undefined_resamples=boot.undefined,
        reason=tuple(reasons),
    )


def _reasons(internal: SideSums, external: SideSums, models: int, what: str) -> list[str]:
    for side, name in ((internal, "internal"), (external, "external")):
        if side.n_patients < FEWEST_PATIENTS:
            have = "no patient" if not side.n_patients else "one patient"
            return [f"{have} with {what} in the {name} domain; an interval needs at least two"] * models
    return [""] * models


def _log_limits(
    v1: FloatArray,
    s1: FloatArray,
    n1: FloatArray,
    v2: FloatArray,
    s2: FloatArray,
    n2: FloatArray,
    alpha: float,
) -> tuple[FloatArray, FloatArray]:
    """MOVER of the limits of both rates, each a t interval of its logarithm."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        h1, h2 = _t(1 - alpha, n1 - 1) * s1 / v1, _t(1 - alpha, n2 - 1) * s2 / v2
        l1, u1 = v1 * np.exp(-h1), np.minimum(v1 * np.exp(h1), 1.0)
        l2, u2 = v2 * np.exp(-h2), np.minimum(v2 * np.exp(h2), 1.0)
        d = v2 - v1
        return d - np.hypot(v2 - l2, u1 - v1), d + np.hypot(u2 - v2, v1 - l1)


@dataclass(frozen=True)
class _Boot:
    lo: FloatArray
    hi: FloatArray
    all_low: FloatArray
    all_high: FloatArray
    undefined: int = 0


def draw_side(side: SideSums, resampling: Resampling) -> FloatArray:
    """Draw how often each patient of a side is in each resample.

    Args:
        side: The sums by patient.
        resampling: The resamples; their key names the stream.

    Returns:
        (resamples, patients).
    """
    n = side.n_patients
    clusters = Clusters(
        cluster_of_case=np.arange(n, dtype=np.int32),
        cluster_ids=side.patients,
        site_of_cluster=np.zeros(n, dtype=np.int32),
        site_names=("all",),
    )
    stream = WeightStream(clusters, key=resampling.key, seed=resampling.seed, resamples=resampling.resamples)
    return np.concatenate([piece for _, piece in stream]).astype(np.float64)


def _bootstrap(
    internal: SideSums,
    external: SideSums,
    d: FloatArray,
    se: FloatArray,
    alpha: float,
    resampling: Resampling | None,
) -> _Boot:
    nothing = np.full(d.size, np.nan)
    too_few = min(internal.n_patients, external.n_patients) < FEWEST_PATIENTS
    if resampling is None or resampling.resamples < 1 or too_few:
        return _Boot(nothing, nothing, nothing, nothing)
    r1, e1 = internal.under(draw_side(internal, resampling.named("reference")))
    r2, e2 = external.under(draw_side(external, resampling.named("here")))
    moved = r2 - r1
    defined = np.isfinite(moved).all(axis=1)
    undefined = int((~defined).sum())
    if defined.sum() < _FEWEST_RESAMPLES:
        return _Boot(nothing, nothing, nothing, nothing, undefined)
    lo, hi = np.quantile(moved[defined], [alpha, 1 - alpha], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = (moved[defined] - d) / np.hypot(e1, e2)[defined]
    t = np.where(np.isfinite(t), t, 0.0)[:, se > 0]
    if not t.shape[1]:
        return _Boot(lo, hi, nothing, nothing, undefined)
    low = float(np.quantile(t.max(axis=1), 1 - alpha, method="weibull"))
    high = -float(np.quantile(t.min(axis=1), alpha, method="weibull"))
    return _Boot(lo, hi, np.full(d.size, low), np.full(d.size, high), undefined)


@dataclass(frozen=True, kw_only=True)
class Standardised:
    """The difference at the reference's mix of cases, next to the crude one (LN-21).

    Attributes:
        internal: The means at the reference over the cells that both sides have.
        external: The means of the other place at the reference's mix.
        difference: external - internal.
        lo: Lower ends of the 1 - 2 alpha interval; NaN where there is none.
        hi: Upper ends.
        crude: The difference without standardisation, of all patches.
        from_mix: crude - difference: what the other mix of cases explains.
        cells: How many cells both sides have.
        left_out: Cells that one side has fewer than two patients in, by name.
        share: The share of the reference's patches in the cells that are used.
        reason: Why there is no standardised difference; empty where there is one.
    """

    internal: FloatArray
    external: FloatArray
    difference: FloatArray
    lo: FloatArray
    hi: FloatArray
    crude: FloatArray
    from_mix: FloatArray
    cells: int
    left_out: tuple[str, ...]
    share: float
    reason: str = ""


LEAST_SHARE = 0.5
"""The least share of the reference's patches that must lie in cells that both sides have."""


def standardise_many(
    internal: Sequence[SideSums],
    external: Sequence[SideSums],
    names: Sequence[str],
    *,
    crude: FloatArray,
    alpha: float = 0.05,
) -> Standardised:
    """Compare two domains at the mix of the reference: direct standardisation over cells such as stages.

    The mean of each cell is weighed by the reference's share of patches in it, which is taken as fixed. The interval
    is a t with Kish's effective number of patients, from what each patient contributes to the weighed mean.

    Args:
        internal: The reference's sums, cell by cell.
        external: The other place's, over the same cells.
        names: The names of the cells.
        crude: The difference without standardisation.
        alpha: The level of each one-sided test; intervals are 1 - 2 alpha.

    Returns:
        The standardised differences.
    """
    usable = [
        min(a.n_patients, b.n_patients) >= FEWEST_PATIENTS for a, b in zip(internal, external, strict=True)
    ]
    patches = np.array([float(side.count.sum()) for side in internal])
    kept = [i for i, use in enumerate(usable) if use]
    left_out = tuple(
        name
        for name, use, a, b in zip(names, usable, internal, external, strict=True)
        if not use and (a.n_patients or b.n_patients)
    )
    share = float(patches[kept].sum() / patches.sum()) if patches.sum() > 0 else 0.0
    nothing = np.full(crude.size, np.nan)
    if share < LEAST_SHARE:
        reason = (
            f"the cells that both domains have hold {100 * share:.0f} % of the internal patches; at least "
            f"{100 * LEAST_SHARE:.0f} % are needed"
        )
        return Standardised(
            internal=nothing, external=nothing, difference=nothing, lo=nothing, hi=nothing, crude=crude,
            from_mix=nothing, cells=len(kept), left_out=left_out, share=share, reason=reason,
        )  # fmt: skip
    weight = patches[kept] / patches[kept].sum()
    v1, s1, n1 = _weighed([internal[i] for i in kept], weight)
    v2, s2, n2 = _weighed([external[i] for i in kept], weight)
    se, d = np.hypot(s1, s2), v2 - v1
    half = _t(1 - alpha, _welch_df(s1**2, n1 - 1, s2**2, n2 - 1)) * se
    none = ~(se > 0)
    return Standardised(
        internal=v1,
        external=v2,
        difference=d,
        lo=np.where(none, np.nan, np.maximum(d - half, -1.0)),
        hi=np.where(none, np.nan, np.minimum(d + half, 1.0)),
        crude=crude,
        from_mix=crude - d,
        cells=len(kept),
        left_out=left_out,
        share=share,
    )


def _weighed(cells: Sequence[SideSums], weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The weighed mean of each model, its standard error, and the effective number of patients."""
    people = sorted({name for cell in cells for name in cell.patients})
    number = {name: i for i, name in enumerate(people)}
    models = cells[0].total.shape[0]
    value = np.zeros(models)
    pull = np.zeros((models, len(people)))
    load = np.zeros(len(people))
    for w, cell in zip(weight, cells, strict=True):
        n, m = float(cell.count.sum()), cell.n_patients
        at = [number[name] for name in cell.patients]
        mean = cell.total.sum(axis=1) / n
        value += w * mean
        # Leaving one patient out moves the ratio by her residual over what is left.
        pull[:, at] += w * np.sqrt((m - 1) / m) * (cell.total - mean[:, None] * cell.count) / (n - cell.count)
        load[at] += w * cell.count / n
    effective = float(load.sum()) ** 2 / float(load @ load)
    return value, np.asarray(np.sqrt((pull * pull).sum(axis=1))), np.full(models, effective)


@dataclass(frozen=True, kw_only=True)
class PairedDifferences:
    """Every model - one model, on the same patients.

    Attributes:
        difference: The differences; 0 for the model itself.
        lo: Lower ends of the 1 - 2 alpha intervals; NaN where there is none.
        hi: Upper ends.
    """

    difference: FloatArray
    lo: FloatArray
    hi: FloatArray


def compare_paired(side: SideSums, reference: int, *, alpha: float = 0.05) -> PairedDifferences:
    """Compare every model with one of them on the same patients, patient by patient.

    Args:
        side: The sums of one domain.
        reference: The number of the model that the others are compared with.
        alpha: The level of each one-sided limit.

    Returns:
        The differences, model - reference.

    Example:
        >>> total = np.array([[1.0, 2.0, 3.0], [1.5, 2.4, 3.6]])
        >>> side = SideSums(patients=("a", "b", "c"), total=total, count=np.full(3, 10.0))
        >>> compare_paired(side, 0).difference.round(3).tolist()
        [0.0, 0.05]
    """
    check_alpha(alpha)
    moved = SideSums(patients=side.patients, total=side.total - side.total[reference], count=side.count)
    d, se = moved.value, moved.jackknife_se()
    of_patches = SideSums(patients=side.patients, total=side.count[None, :], count=side.count)
    half = _t(1 - alpha, of_patches.effective_patients() - 1) * se
    none = ~(se > 0)
    return PairedDifferences(
        difference=d, lo=np.where(none, np.nan, d - half), hi=np.where(none, np.nan, d + half)
    )
