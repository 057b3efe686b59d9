"""How good a number of clusters is: the indices of Calinski-Harabasz and Davies-Bouldin, and the elbow of their curves (LN-06).

The elbow is the number of clusters whose point lies farthest from the chord between the first and the last point of the
curve, both axes scaled to 0 to 1. The published study chose by eye. Where the two indices have different elbows, the
clusters that overlap less are taken: those with the smaller mean entropy of the patches' shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.curation import kernels

Floats = npt.NDArray[np.float64]
_SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class Indices:
    """How good a clustering is.

    Attributes:
        calinski_harabasz: Variance between clusters by variance within them; larger is better.
        davies_bouldin: The mean over clusters of the worst ratio of spread to distance; smaller is better.
        entropy: The mean entropy of the patches' shares, in nats; smaller is less overlap.
        used: Clusters that hold a patch.
    """

    calinski_harabasz: float
    davies_bouldin: float
    entropy: float
    used: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The number of clusters that was chosen, and why.

    Attributes:
        clusters: The number.
        by_calinski_harabasz: The elbow of that index.
        by_davies_bouldin: The elbow of that index.
        reason: Why this number, as a sentence.
    """

    clusters: int
    by_calinski_harabasz: int
    by_davies_bouldin: int
    reason: str


def judge_clusters(x: Floats, labels: npt.NDArray[np.int64], entropies: Floats) -> Indices:
    """Compute both indices of a clustering.

    Args:
        x: [points, dimensions].
        labels: The cluster of each point.
        entropies: The entropy of each point's shares.

    Returns:
        The indices; not defined (NaN) where fewer than two clusters hold points.

    Example:
        >>> x = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> found = judge_clusters(x, np.array([0, 0, 1, 1]), np.zeros(4))
        >>> found.calinski_harabasz, round(found.davies_bouldin, 3)
        (200.0, 0.1)
    """
    names, labels = np.unique(labels, return_inverse=True)
    used = len(names)
    entropy = float(entropies.mean()) if len(entropies) else math.nan
    if used < 2 or len(x) <= used:
        return Indices(calinski_harabasz=math.nan, davies_bouldin=math.nan, entropy=entropy, used=used)
    counts = np.bincount(labels, minlength=used).astype(np.float64)
    centres = np.stack([x[labels == one].mean(axis=0) for one in range(used)])
    distances, squares = kernels.scatter_of_clusters(
        np.ascontiguousarray(x, np.float64), labels.astype(np.int64), centres
    )
    between = float((counts * ((centres - x.mean(axis=0)) ** 2).sum(axis=1)).sum())
    within = float(squares.sum())
    harabasz = math.inf if within == 0 else between / within * (len(x) - used) / (used - 1)
    spread = distances / counts
    gaps = np.sqrt(((centres[:, None] - centres[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (spread[:, None] + spread[None]) / gaps
    np.fill_diagonal(ratios, 0.0)
    ratios = np.where(np.isnan(ratios), 0.0, ratios)
    return Indices(
        calinski_harabasz=harabasz,
        davies_bouldin=float(ratios.max(axis=1).mean()),
        entropy=entropy,
        used=used,
    )


def find_elbow(numbers: Sequence[int], values: Sequence[float]) -> int | None:
    """Find the elbow of a curve: the point farthest from its chord, both axes scaled to 0 to 1.

    Args:
        numbers: The numbers of clusters, rising.
        values: The index of each.

    Returns:
        The number at the elbow; the smallest where several are as far. None for fewer than three points, for a value
        that is not defined, and for a straight line, which has no elbow.

    Example:
        >>> find_elbow([2, 3, 4, 5], [9.0, 3.0, 2.0, 1.0])
        3
    """
    x, y = np.asarray(numbers, np.float64), np.asarray(values, np.float64)
    if len(x) < 3 or not np.isfinite(y).all() or y.max() == y.min():
        return None
    x = (x - x[0]) / (x[-1] - x[0])
    y = (y - y.min()) / (y.max() - y.min())
    rise = y[-1] - y[0]
    distance = np.abs(y - y[0] - rise * x) / math.sqrt(1.0 + rise * rise)
    if distance.max() < _SAME:
        return None
    return int(numbers[int(np.flatnonzero(distance >= distance.max() - _SAME)[0])])


def choose_clusters(found: Mapping[int, Indices]) -> Choice:
    """Choose the number of clusters by the elbows of both indices.

    Args:
        found: The indices by number of clusters.

    Returns:
        The number. Where an index has no elbow, its best value counts: the largest of Calinski-Harabasz, the smallest of
        Davies-Bouldin.

    Example:
        >>> def made(ch, db, entropy=0.1):
        ...     return Indices(calinski_harabasz=ch, davies_bouldin=db, entropy=entropy, used=2)
        >>> choose_clusters({2: made(9, 2.0), 3: made(3, 1.1), 4: made(2, 1.0), 5: made(1, 0.9)}).reason
        'both indices have their elbow at 3'
    """
    numbers = sorted(found)
    by_harabasz = _elbow_or_best(numbers, [found[n].calinski_harabasz for n in numbers], largest=True)
    by_davies = _elbow_or_best(numbers, [found[n].davies_bouldin for n in numbers], largest=False)
    if by_harabasz == by_davies:
        reason, chosen = f"both indices have their elbow at {by_harabasz}", by_harabasz
    else:
        first, second = found[by_harabasz].entropy, found[by_davies].entropy
        if abs(first - second) < _SAME:
            chosen = min(by_harabasz, by_davies)
            why = "both overlap as much, and fewer clusters are taken"
        else:
            chosen = by_harabasz if first < second else by_davies
            why = f"{chosen} clusters overlap less (mean entropy {first:.3g} and {second:.3g})"
        reason = f"Calinski-Harabasz has its elbow at {by_harabasz} and Davies-Bouldin at {by_davies}; {why}"
    return Choice(
        clusters=chosen, by_calinski_harabasz=by_harabasz, by_davies_bouldin=by_davies, reason=reason
    )


def _elbow_or_best(numbers: Sequence[int], values: Sequence[float], *, largest: bool) -> int:
    elbow = find_elbow(numbers, values)
    if elbow is not None:
        return elbow
    y = np.asarray(values, np.float64)
    if np.isnan(y).all():
        return numbers[0]
    return numbers[int(np.nanargmax(y) if largest else np.nanargmin(y))]
