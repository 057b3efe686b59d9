"""Gaussian mixtures of full covariance by expectation and maximisation (LN-06).

Start: k-means++ and Lloyd's iterations on a sample of at most 10,000 points, three times, each followed by the mixture's
own iterations on that sample; the start of largest likelihood goes on with all points, until the mean log likelihood of a
point changes by less than 0.001. `REGULARISATION` is added to every variance. All draws come from one seed, sums are in the
order of the points, and every number of clusters is fitted alone, so that threads change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.curation import kernels
from elsewhere.errors import UserError

REGULARISATION = 1e-6
SAMPLE = 10_000
STARTS = 3
TOLERANCE = 1e-3
MOST_ITERATIONS = 300
_MOST_LLOYD = 50
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """How a mixture is fitted.

    Attributes:
        starts: How many starts are tried.
        sample: Points of the starts; a group of fewer is taken whole.
        tolerance: The change of the mean log likelihood of a point at which the iterations end.
        most_iterations: Iterations after which they end without that.
        regularisation: What is added to every variance.

    Raises:
        UserError: A number is not positive.
    """

    starts: int = STARTS
    sample: int = SAMPLE
    tolerance: float = TOLERANCE
    most_iterations: int = MOST_ITERATIONS
    regularisation: float = REGULARISATION

    def __post_init__(self) -> None:
        for name in ("starts", "sample", "tolerance", "most_iterations", "regularisation"):
            if not getattr(self, name) > 0:
                raise UserError(
                    f"{name} of a mixture is {getattr(self, name)}", fix="Give a positive number."
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """A Gaussian mixture.

    Attributes:
        weights: The share of each component.
        means: [components, dimensions].
        factors: [components, dimensions, dimensions]: the inverse of the lower Cholesky factor of each covariance.
        log_likelihood: The mean log likelihood of a point under the parameters before the last iteration.
        iterations: Iterations over all points.
        converged: Whether they ended by the tolerance.
    """

    weights: Floats
    means: Floats
    factors: Floats
    log_likelihood: float = math.nan
    iterations: int = 0
    converged: bool = False

    def __len__(self) -> int:
        return len(self.weights)

    def assign(self, x: Floats) -> Assignment:
        """Assign points to components.

        Args:
            x: [points, dimensions].

        Returns:
            The component of each point, its share, and the entropy of its shares.
        """
        x = np.ascontiguousarray(x, np.float64)
        labels, shares, entropies = np.zeros(len(x), np.int64), np.zeros(len(x)), np.zeros(len(x))
        total = kernels.expect(
            x, self.means, self.factors, self._constants(), (labels, shares, entropies), _no_sums()
        )
        return Assignment(
            labels=labels, shares=shares, entropies=entropies, log_likelihood=total / max(len(x), 1)
        )

    def _constants(self) -> Floats:
        dims = self.means.shape[1]
        diagonal = np.diagonal(self.factors, axis1=1, axis2=2)
        with np.errstate(divide="ignore"):
            return np.log(self.weights) + np.log(diagonal).sum(axis=1) - 0.5 * dims * math.log(2 * math.pi)

    def step(self, x: Floats, regularisation: float = REGULARISATION) -> tuple[Mixture, float]:
        """Make one iteration of expectation and maximisation.

        Args:
            x: [points, dimensions].
            regularisation: What is added to every variance.

        Returns:
            The next mixture, and the mean log likelihood of a point under this one.

        Raises:
            UserError: A covariance cannot be inverted.
        """
        parts, dims = self.means.shape
        sums = (np.zeros(parts), np.zeros((parts, dims)), np.zeros((parts, dims, dims)))
        total = kernels.expect(x, self.means, self.factors, self._constants(), _no_points(), sums)
        return _from_moments(self.means, sums, regularisation), total / len(x)


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """Points and their components.

    Attributes:
        labels: The component of largest share of each point.
        shares: That share.
        entropies: The entropy of the point's shares over all components, in nats: 0 where it belongs to one alone.
        log_likelihood: The mean log likelihood of a point.
    """

    labels: Whole
    shares: Floats
    entropies: Floats
    log_likelihood: float


def fit_mixture(x: Floats, clusters: int, *, seed: int, settings: MixtureSettings | None = None) -> Mixture:
    """Fit a Gaussian mixture of full covariance.

    Args:
        x: [points, dimensions].
        clusters: The number of components.
        seed: Seed of the draws.
        settings: How it is fitted; None for the defaults.

    Returns:
        The mixture; its components in order of falling weight.

    Raises:
        UserError: There are more clusters than points, or a number is not finite.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.concatenate([rng.normal(-5, 1, (200, 2)), rng.normal(5, 1, (100, 2))])
        >>> fit_mixture(x, 2, seed=1).weights.round(2).tolist()
        [0.67, 0.33]
    """
    settings = settings or MixtureSettings()
    x = np.ascontiguousarray(x, np.float64)
    if clusters < 1:
        raise UserError(f"{clusters} clusters cannot be fitted", fix="Give 1 or more.")
    if x.ndim != 2 or not x.shape[1]:
        raise UserError("a mixture needs points with one or more dimensions")
    if clusters > len(x):
        raise UserError(
            f"{clusters} clusters were asked for, and there are {len(x):,} points",
            fix="Ask for fewer clusters, or give more patches.",
        )
    if not np.isfinite(x).all():
        raise UserError("a feature is not finite", fix="Compute the features again.")
    rng = np.random.default_rng([seed, clusters])
    sample = x
    if len(x) > settings.sample:
        sample = np.ascontiguousarray(x[np.sort(rng.permutation(len(x))[: settings.sample])])
    tried: list[Mixture] = []
    for _ in range(settings.starts if clusters > 1 else 1):
        began = _start(sample, clusters, rng, settings.regularisation)
        tried.append(_iterate(began, sample, settings))
    best = max(tried, key=lambda one: one.log_likelihood)
    # Points in the order of their components: a block of 64 then has one component that counts, and the others stop early.
    order = np.argsort(best.assign(x).labels, kind="stable")
    return _ordered(_iterate(best, np.ascontiguousarray(x[order]), settings))


def fit_mixtures(
    x: Floats,
    numbers: Sequence[int],
    *,
    seed: int,
    settings: MixtureSettings | None = None,
    threads: int = 1,
) -> dict[int, Mixture]:
    """Fit mixtures of several numbers of clusters, side by side.

    Args:
        x: [points, dimensions].
        numbers: The numbers of clusters.
        seed: Seed of the draws.
        settings: How they are fitted; None for the defaults.
        threads: How many are fitted at once; the result does not depend on it.

    Returns:
        The mixture of each number.

    Raises:
        UserError: There are more clusters than points, or a number is not finite.
    """
    x = np.ascontiguousarray(x, np.float64)
    largest_first = sorted(numbers, reverse=True)
    with ThreadPoolExecutor(max(1, threads)) as pool:
        made = list(
            pool.map(lambda count: fit_mixture(x, count, seed=seed, settings=settings), largest_first)
        )
    found = dict(zip(largest_first, made, strict=True))
    return {count: found[count] for count in numbers}


def _start(x: Floats, clusters: int, rng: np.random.Generator, regularisation: float) -> Mixture:
    """The mixture of the clusters that k-means finds from centres drawn apart from each other."""
    labels, distances = np.zeros(len(x), np.int64), np.zeros(len(x))
    centres = x[[int(rng.integers(len(x)))]]
    while len(centres) < clusters:
        kernels.nearest_centres(x, centres, labels, distances)
        sums = np.cumsum(distances)
        drawn = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        if sums[-1] <= 0:
            drawn = int(rng.integers(len(x)))
        centres = np.concatenate([centres, x[[min(drawn, len(x) - 1)]]])
    labels[:] = -1
    counts = np.zeros(clusters, np.int64)
    for _ in range(_MOST_LLOYD):
        if not kernels.nearest_centres(x, centres, labels, distances):
            break
        kernels.mean_points(x, labels, centres, counts)
    dims = x.shape[1]
    sums3 = (np.zeros(clusters), np.zeros((clusters, dims)), np.zeros((clusters, dims, dims)))
    kernels.moments_of_clusters(x, labels, centres, sums3)
    return _from_moments(centres, sums3, regularisation)


def _iterate(mixture: Mixture, x: Floats, settings: MixtureSettings) -> Mixture:
    before, count, converged = -math.inf, 0, False
    likelihood = -math.inf
    while count < settings.most_iterations and not converged:
        made, likelihood = mixture.step(x, settings.regularisation)
        converged = abs(likelihood - before) < settings.tolerance
        mixture, before, count = made, likelihood, count + 1
    return Mixture(
        weights=mixture.weights,
        means=mixture.means,
        factors=mixture.factors,
        log_likelihood=likelihood,
        iterations=count,
        converged=converged,
    )


def _from_moments(around: Floats, sums: tuple[Floats, Floats, Floats], regularisation: float) -> Mixture:
    """The mixture whose components have these moments; a component that lost its points becomes a narrow one at its place."""
    weights, firsts, seconds = sums
    dims = around.shape[1]
    parts = len(weights)
    # As in other implementations of the method, so that no weight is zero.
    counts = weights + 10 * np.finfo(np.float64).eps
    gaps = firsts / counts[:, None]
    lower = np.tril(seconds) / counts[:, None, None]
    whole = lower + np.tril(lower, -1).transpose(0, 2, 1) - gaps[:, :, None] * gaps[:, None, :]
    whole[:, np.arange(dims), np.arange(dims)] += regularisation
    try:
        choleskys = np.linalg.cholesky(whole)
    except np.linalg.LinAlgError as error:
        raise UserError(
            "the covariance of a cluster cannot be inverted: its patches are too much alike",
            fix="Use fewer clusters or fewer dimensions.",
        ) from error
    factors = np.zeros((parts, dims, dims))
    kernels.invert_lower(choleskys, factors)
    return Mixture(weights=counts / counts.sum(), means=around + gaps, factors=factors)


def _ordered(mixture: Mixture) -> Mixture:
    order = np.argsort(-mixture.weights, kind="stable")
    return Mixture(
        weights=mixture.weights[order],
        means=np.ascontiguousarray(mixture.means[order]),
        factors=np.ascontiguousarray(mixture.factors[order]),
        log_likelihood=mixture.log_likelihood,
        iterations=mixture.iterations,
        converged=mixture.converged,
    )


def _no_points() -> tuple[Whole, Floats, Floats]:
    return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)


def _no_sums() -> tuple[Floats, Floats, Floats]:
    return np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0))
