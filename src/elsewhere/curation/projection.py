"""Principal components of features: the directions of largest variance, by the eigenvectors of the covariance (LN-06).

Full covariances need several points per dimension, so that a small group keeps fewer dimensions than 50. The projected
features are divided by the largest standard deviation among them, which gives the regularisation of the mixtures one meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

DIMENSIONS = 50
POINTS_PER_DIMENSION = 5
"""Points that each cluster of the largest mixture shall have, on average, for every dimension."""
Floats = npt.NDArray[np.float64]
_ROWS = 8192


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """Features on their principal components.

    Attributes:
        points: [points, dimensions].
        explained: The share of the variance that the dimensions hold.
        scale: The standard deviation that the features were divided by.
    """

    points: Floats
    explained: float
    scale: float

    @property
    def dimensions(self) -> int:
        """How many dimensions are left."""
        return int(self.points.shape[1])


def dimensions_for(points: int, features: int, clusters: int, *, most: int = DIMENSIONS) -> int:
    """Choose how many dimensions a group of patches keeps.

    Args:
        points: Patches of the group.
        features: Features per patch.
        clusters: The largest number of clusters.
        most: The largest number of dimensions.

    Returns:
        At most `most` and `features`, and so few that each cluster has on average five points per dimension; at least 2
        where there are two features.

    Example:
        >>> dimensions_for(77_000, 512, 10), dimensions_for(600, 512, 10), dimensions_for(40, 512, 4)
        (50, 12, 2)
    """
    enough = points // (POINTS_PER_DIMENSION * max(clusters, 1))
    return max(1, min(most, features, max(2, enough)))


def project(features: npt.NDArray[np.floating], dimensions: int) -> Projection:
    """Project features on their principal components.

    Args:
        features: [points, features].
        dimensions: How many components are kept; fewer where the features have fewer that vary.

    Returns:
        The projected features. The sign of each component is such that its largest coefficient is positive.

    Raises:
        UserError: There are no points, a feature is not finite, or all points are the same.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = project(rng.normal(size=(500, 4)) * [4, 2, 0, 0], 3)
        >>> found.dimensions, round(found.explained, 3)
        (2, 1.0)
    """
    if features.ndim != 2 or not len(features) or not features.shape[1]:
        raise UserError("there are no features to project")
    count, width = features.shape
    mean = np.zeros(width)
    for begin in range(0, count, _ROWS):
        mean += np.asarray(features[begin : begin + _ROWS], np.float64).sum(axis=0)
    mean /= count
    if not np.isfinite(mean).all():
        raise UserError("a feature is not finite", fix="Compute the features again.")
    covariance = np.zeros((width, width))
    for begin in range(0, count, _ROWS):
        part = np.asarray(features[begin : begin + _ROWS], np.float64) - mean
        covariance += part.T @ part
    covariance /= max(count - 1, 1)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order].clip(min=0), vectors[:, order]
    varying = int((values > values[0] * 1e-12).sum()) if values[0] > 0 else 0
    if not varying:
        raise UserError(
            "all patches of the group have the same features",
            fix="Check the patches and the encoder: a network without weights for these pictures gives this.",
        )
    kept = min(dimensions, varying)
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.where(vectors[largest, np.arange(width)] < 0, -1.0, 1.0)
    scale = float(np.sqrt(values[0]))
    points = np.empty((count, kept))
    for begin in range(0, count, _ROWS):
        part = np.asarray(features[begin : begin + _ROWS], np.float64) - mean
        points[begin : begin + _ROWS] = part @ vectors[:, :kept] / scale
    return Projection(points=points, explained=float(values[:kept].sum() / values.sum()), scale=scale)


def without_site_means(features: npt.NDArray[np.floating], sites: npt.NDArray[np.int64]) -> Floats:
    """Subtract the mean of its hospital from the features of each patch.

    Args:
        features: [points, features].
        sites: The hospital of each point, as numbers from 0.

    Returns:
        Features whose mean is 0 at every hospital.

    Example:
        >>> without_site_means(np.array([[1.0], [3.0], [10.0]]), np.array([0, 0, 1])).ravel().tolist()
        [-1.0, 1.0, 0.0]
    """
    made = np.asarray(features, np.float64).copy()
    for site in np.unique(sites):
        rows = sites == site
        made[rows] -= made[rows].mean(axis=0)
    return made
