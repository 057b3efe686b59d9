"""A drop between two domains, divided over interventions (LN-22): what each gives back, in no order.

The drop is a difference of two means over patches. An intervention changes the patches of one side, so that the same
patches have a mean with every set of interventions. What an intervention gives back depends on which ones came before; its
Shapley value is the mean over all orders. All values of the interventions and what is left over add up to the drop.

Every quantity is a contrast of means of the same patches, so that its standard error comes from leaving out one patient
at a time, and its degrees of freedom from Kish's effective number of patients (`many_models`). A percentile bootstrap of
patients stands next to it.

Shapley, in Contributions to the Theory of Games II, 1953, 307-317.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from elsewhere.errors import UserError
from elsewhere.statistics.evaluator import FloatArray
from elsewhere.statistics.limits import check_alpha
from elsewhere.statistics.many_models import FEWEST_PATIENTS, SideSums, draw_side
from elsewhere.statistics.resampling import Resampling

DROP, ALL, LEFT = "drop", "all", "left over"
ALONE, PART = "alone", "part"
MOST_INTERVENTIONS = 6
Names = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One line of a decomposition, for all models.

    Attributes:
        kind: "drop", "part" (Shapley value), "alone", "all" or "left over".
        intervention: Its intervention; empty for the drop, for all together, and for what is left over.
        value: One per model; above 0 where the external side is worse, or where an intervention gives back.
        lo: Lower ends of the 1 - 2 alpha interval; NaN where there is none.
        hi: Upper ends.
        bootstrap_lo: Lower ends of the percentile bootstrap; NaN without resamples.
        bootstrap_hi: Its upper ends.
        share: The value over the drop; NaN where the drop is not reliably above 0.
        share_lo: Lower ends of its bootstrap interval.
        share_hi: Upper ends.
    """

    kind: str
    intervention: str
    value: FloatArray
    lo: FloatArray
    hi: FloatArray
    bootstrap_lo: FloatArray
    bootstrap_hi: FloatArray
    share: FloatArray
    share_lo: FloatArray
    share_hi: FloatArray


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The means of all versions of the patches.

    Attributes:
        internal: The sums of each set of interventions that changes internal patches; the empty set is the patches as
            they are.
        external: The same of external patches.
        sides: Whose patches each intervention changes: "internal" or "external".
    """

    internal: Mapping[Names, SideSums]
    external: Mapping[Names, SideSums]
    sides: Mapping[str, str]

    def __post_init__(self) -> None:
        if len(self.sides) > MOST_INTERVENTIONS:
            raise UserError(f"{len(self.sides)} interventions; at most {MOST_INTERVENTIONS} can be divided")
        for side, held in (("internal", self.internal), ("external", self.external)):
            mine = [name for name, of in self.sides.items() if of == side]
            for subset in subsets(mine):
                if subset not in held:
                    raise UserError(
                        f"the {side} patches with {', '.join(sorted(subset)) or 'no intervention'} have no scores"
                    )


def subsets(names: Sequence[str]) -> list[Names]:
    """List all sets of names, the empty one first.

    Args:
        names: The names.

    Returns:
        2 to the power of their number.

    Example:
        >>> [sorted(one) for one in subsets(["a", "b"])]
        [[], ['a'], ['b'], ['a', 'b']]
    """
    return [frozenset(part) for n in range(len(names) + 1) for part in itertools.combinations(names, n)]


def shapley_weights(names: Sequence[str], name: str) -> dict[Names, float]:
    """Find how often each set stands in the Shapley value of one name, of a game in which a set is worth its drop.

    Args:
        names: All names.
        name: One of them.

    Returns:
        The coefficient of each set's drop: the mean over all orders of the drop before the name less the one after.

    Example:
        >>> made = shapley_weights(["a", "b"], "a")
        >>> {"".join(sorted(key)): value for key, value in made.items()}
        {'': 0.5, 'a': -0.5, 'b': 0.5, 'ab': -0.5}
    """
    others = [one for one in names if one != name]
    n = len(names)
    made: dict[Names, float] = {}
    for before in subsets(others):
        k = len(before)
        weight = math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n)
        made[before] = weight
        made[before | {name}] = -weight
    return made


def decompose(
    versions: Sides,
    *,
    higher_is_better: bool,
    alpha: float = 0.05,
    resampling: Resampling | None = None,
) -> list[Quantity]:
    """Divide the drop over the interventions.

    Args:
        versions: The sums of all versions, of all models at once.
        higher_is_better: Whether a higher mean is better.
        alpha: The level of each one-sided limit; intervals are 1 - 2 alpha.
        resampling: The resamples of the bootstrap; None for none.

    Returns:
        The drop; the part and the effect alone of every intervention; all together; what is left over.

    Example:
        >>> def side(mean):
        ...     value = np.linspace(mean - 0.1, mean + 0.1, 8)[None]
        ...     return SideSums(patients=tuple("abcdefgh"), total=value * 10, count=np.full(8, 10.0))
        >>> none, stain = frozenset(), frozenset({"stain"})
        >>> sums = Sides(
        ...     internal={none: side(0.9)}, external={none: side(0.6), stain: side(0.8)}, sides={"stain": "external"}
        ... )
        >>> [(one.kind, one.value.round(3).tolist()) for one in decompose(sums, higher_is_better=True)]
        [('drop', [0.3]), ('part', [0.2]), ('alone', [0.2]), ('all', [0.2]), ('left over', [0.1])]
    """
    check_alpha(alpha)
    names = list(versions.sides)
    none: Names = frozenset()
    every: Names = frozenset(names)
    asked: list[tuple[str, str, dict[Names, float]]] = [(DROP, "", {none: 1.0})]
    for name in names:
        asked.append((PART, name, shapley_weights(names, name)))
        asked.append((ALONE, name, {none: 1.0, frozenset({name}): -1.0}))
    asked.append((ALL, "", {none: 1.0, every: -1.0} if names else {}))
    asked.append((LEFT, "", {every: 1.0}))
    sign = -1.0 if higher_is_better else 1.0
    external = [_contrast(versions.external, versions, "external", part, sign) for _, _, part in asked]
    internal = [_contrast(versions.internal, versions, "internal", part, -sign) for _, _, part in asked]
    weights = _draws(internal[0], external[0], resampling)
    drop = _measured(internal[0], external[0], alpha, weights)
    reliable = drop.lo > 0
    made = []
    for (kind, name, _), inside, outside in zip(asked, internal, external, strict=True):
        one = _measured(inside, outside, alpha, weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(reliable, one.value / drop.value, np.nan)
        share_lo, share_hi = _shares(one.resampled, drop.resampled, alpha, reliable)
        made.append(
            Quantity(
                kind=kind, intervention=name, value=one.value, lo=one.lo, hi=one.hi, bootstrap_lo=one.bootstrap[0],
                bootstrap_hi=one.bootstrap[1], share=share, share_lo=share_lo, share_hi=share_hi,
            )
        )  # fmt: skip
    return made


def _contrast(
    held: Mapping[Names, SideSums], versions: Sides, side: str, part: Mapping[Names, float], sign: float
) -> SideSums:
    """The sums of a contrast on one side: sets that this side does not tell apart are added up."""
    plain = held[frozenset()]
    mine = {name for name, of in versions.sides.items() if of == side}
    coefficients: dict[Names, float] = {}
    for subset, weight in part.items():
        own = subset & mine
        coefficients[own] = coefficients.get(own, 0.0) + weight
    total = np.zeros_like(plain.total)
    for subset, weight in coefficients.items():
        if abs(weight) > 1e-12:
            total = total + sign * weight * held[subset].total
    return SideSums(patients=plain.patients, total=total, count=plain.count)


@dataclass(frozen=True)
class _Measured:
    value: FloatArray
    lo: FloatArray
    hi: FloatArray
    bootstrap: tuple[FloatArray, FloatArray]
    resampled: FloatArray | None


def _draws(
    internal: SideSums, external: SideSums, resampling: Resampling | None
) -> tuple[FloatArray, FloatArray] | None:
    if resampling is None or resampling.resamples < 1:
        return None
    if min(internal.n_patients, external.n_patients) < FEWEST_PATIENTS:
        return None
    return draw_side(internal, resampling.named("internal")), draw_side(
        external, resampling.named("external")
    )


def _measured(
    internal: SideSums, external: SideSums, alpha: float, weights: tuple[FloatArray, FloatArray] | None
) -> _Measured:
    value = internal.value + external.value
    nothing = np.full(value.size, np.nan)
    if min(internal.n_patients, external.n_patients) < FEWEST_PATIENTS:
        return _Measured(value, nothing, nothing, (nothing, nothing), None)
    s1, s2 = internal.jackknife_se(), external.jackknife_se()
    n1, n2 = (float(side.count.sum()) ** 2 / float(side.count @ side.count) for side in (internal, external))
    se = np.hypot(s1, s2)
    bottom = s1**4 / max(n1 - 1, 1.0) + s2**4 / max(n2 - 1, 1.0)
    df = np.divide(se**4, bottom, out=np.ones_like(se), where=bottom > 0)
    half = np.asarray(special.stdtrit(np.maximum(df, 1.0), 1 - alpha)) * se
    if weights is None:
        return _Measured(value, value - half, value + half, (nothing, nothing), None)
    resampled = internal.under(weights[0])[0] + external.under(weights[1])[0]
    defined = resampled[np.isfinite(resampled).all(axis=1)]
    if len(defined) < 2:
        return _Measured(value, value - half, value + half, (nothing, nothing), None)
    lo, hi = np.quantile(defined, [alpha, 1 - alpha], axis=0)
    return _Measured(value, value - half, value + half, (lo, hi), resampled)


def _shares(
    part: FloatArray | None, drop: FloatArray | None, alpha: float, reliable: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    nothing = np.full(reliable.size, np.nan)
    if part is None or drop is None:
        return nothing, nothing
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = part / drop
    lo, hi = nothing.copy(), nothing.copy()
    for i in np.flatnonzero(reliable):
        column = ratio[:, i]
        column = column[np.isfinite(column)]
        if len(column) >= 2:
            lo[i], hi[i] = np.quantile(column, [alpha, 1 - alpha])
    return lo, hi
