"""The clusters of each group of patches: 2 to 10 of them, the number chosen by two indices; or a single one (LN-06).

Each group (patches without tumour of normal slides, without tumour of tumour slides, with tumour) is clustered by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.curation.indices import Choice, Indices, choose_clusters, judge_clusters
from elsewhere.curation.mixtures import Mixture, MixtureSettings, fit_mixture, fit_mixtures
from elsewhere.curation.projection import DIMENSIONS, dimensions_for, project
from elsewhere.errors import UserError, check_seed

GROUPS = ("NN", "NT", "TT")
GROUP_WORDS = {
    "NN": "normal patches of normal slides",
    "NT": "normal patches of tumour slides",
    "TT": "tumour patches",
}
FEWEST, MOST = 2, 10
LEAST_PATCHES = 5
"""Patches per cluster, on average, below which a number of clusters is not tried."""
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """How groups are clustered.

    Attributes:
        fewest: The smallest number of clusters that is tried.
        most: The largest.
        fixed: A stated number of clusters by group, which is then not chosen.
        dimensions: Principal components that are kept, at most.
        seed: Seed of the mixtures.
        threads: Mixtures that are fitted at once; they do not depend on it.
        mixture: How a mixture is fitted.

    Raises:
        UserError: A number is not possible, or a group is unknown.
    """

    fewest: int = FEWEST
    most: int = MOST
    fixed: Mapping[str, int] = field(default_factory=dict)
    dimensions: int = DIMENSIONS
    seed: int = 42
    threads: int = 1
    mixture: MixtureSettings = field(default_factory=MixtureSettings)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 2 <= self.fewest <= self.most <= 100:
            raise UserError(
                f"from {self.fewest} to {self.most} clusters were asked for",
                fix="Give a range within 2 to 100, such as 2 to 10.",
            )
        if self.dimensions < 1:
            raise UserError(f"{self.dimensions} dimensions were asked for", fix="Give 1 or more.")
        for group, number in self.fixed.items():
            if group not in GROUPS:
                raise UserError(f"there is no group '{group}'", fix=f"Groups: {', '.join(GROUPS)}.")
            if not 1 <= number <= 100:
                raise UserError(f"{number} clusters of {group} were asked for", fix="Give 1 to 100.")


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupClusters:
    """The clusters of a group.

    Attributes:
        group: NN, NT or TT.
        labels: The cluster of each patch, from 0; the largest cluster first.
        shares: How much of the patch belongs to it.
        indices: Both indices by number of clusters; none where nothing was chosen.
        choice: The number that was chosen, and why; None where it was stated, or there is one cluster.
        points: The features that were clustered, on their principal components; None for one cluster.
        explained: The share of the variance that these hold.
        mixture: The mixture; None for one cluster.
        notes: What a reader must know, as sentences.
    """

    group: str
    labels: Whole
    shares: Floats
    indices: Mapping[int, Indices] = field(default_factory=dict)
    choice: Choice | None = None
    points: Floats | None = None
    explained: float = 1.0
    mixture: Mixture | None = None
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """How many clusters hold patches."""
        return int(self.labels.max()) + 1 if len(self.labels) else 0

    def sizes(self) -> list[int]:
        """Count the patches of each cluster.

        Returns:
            One count per cluster.
        """
        return [int(n) for n in np.bincount(self.labels, minlength=self.number)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            The numbers of the choice; no patch.
        """
        mixture = self.mixture
        return {
            "group": self.group,
            "patches": len(self.labels),
            "clusters": self.number,
            "sizes": self.sizes(),
            "chosen": None
            if self.choice is None
            else {
                "clusters": self.choice.clusters,
                "elbow_calinski_harabasz": self.choice.by_calinski_harabasz,
                "elbow_davies_bouldin": self.choice.by_davies_bouldin,
                "reason": self.choice.reason,
            },
            "indices": [
                {
                    "clusters": number,
                    "calinski_harabasz": one.calinski_harabasz,
                    "davies_bouldin": one.davies_bouldin,
                    "mean_entropy": one.entropy,
                }
                for number, one in sorted(self.indices.items())
            ],
            "dimensions": None if self.points is None else int(self.points.shape[1]),
            "explained": self.explained,
            "log_likelihood": None if mixture is None else mixture.log_likelihood,
            "iterations": None if mixture is None else mixture.iterations,
            "converged": None if mixture is None else mixture.converged,
            "notes": list(self.notes),
        }


def single_cluster(group: str, patches: int, *, notes: Sequence[str] = ()) -> GroupClusters:
    """Put all patches of a group into one cluster.

    Args:
        group: NN, NT or TT.
        patches: How many there are.
        notes: What a reader must know.

    Returns:
        The cluster.

    Example:
        >>> single_cluster("NN", 3).sizes()
        [3]
    """
    return GroupClusters(
        group=group, labels=np.zeros(patches, np.int64), shares=np.ones(patches), notes=tuple(notes)
    )


def cluster_group(
    features: npt.NDArray[np.floating], group: str, settings: ClusterSettings | None = None
) -> GroupClusters:
    """Cluster the patches of a group.

    Args:
        features: [patches, features], in an order that does not depend on anything but the patches.
        group: NN, NT or TT.
        settings: How it is clustered; None for the defaults.

    Returns:
        The clusters. A group that is too small for a choice is one cluster, with a note.

    Raises:
        UserError: More clusters were stated than there are patches, or a feature is not finite.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = np.concatenate([rng.normal(at, 1, (100, 3)) for at in (-20, 0, 20)])
        >>> cluster_group(x, "NN").sizes()
        [100, 100, 100]
    """
    settings = settings or ClusterSettings()
    count = len(features)
    fixed = settings.fixed.get(group)
    if fixed is not None and fixed > count:
        raise UserError(
            f"{fixed} clusters of the group {group} were asked for, and it has {count:,} patches",
            fix="Ask for fewer clusters, or give more patches.",
        )
    numbers = list(range(settings.fewest, settings.most + 1)) if fixed is None else [fixed]
    notes: list[str] = []
    if fixed is None:
        possible = [n for n in numbers if n * LEAST_PATCHES <= count]
        if not possible:
            return single_cluster(
                group,
                count,
                notes=[
                    f"{group} has {count:,} patches, too few for {settings.fewest} clusters of {LEAST_PATCHES}: it is one cluster."
                ],
            )
        if len(possible) < len(numbers):
            notes.append(
                f"{group} has {count:,} patches: at most {possible[-1]} clusters were tried, not {numbers[-1]}."
            )
        numbers = possible
    if numbers == [1]:
        return single_cluster(group, count)
    projected = project(
        features, dimensions_for(count, features.shape[1], numbers[-1], most=settings.dimensions)
    )
    mixtures = fit_mixtures(
        projected.points, numbers, seed=settings.seed, settings=settings.mixture, threads=settings.threads
    )
    assigned = {number: mixture.assign(projected.points) for number, mixture in mixtures.items()}
    indices = {
        number: judge_clusters(projected.points, one.labels, one.entropies)
        for number, one in assigned.items()
    }
    choice = None
    if fixed is None:
        choice = choose_clusters(indices)
        chosen = choice.clusters
    else:
        chosen = fixed
    mixture, found = mixtures[chosen], assigned[chosen]
    late = [number for number, one in mixtures.items() if not one.converged]
    if late:
        notes.append(
            f"{group}: the mixtures of {', '.join(map(str, late))} clusters had not settled after "
            f"{settings.mixture.most_iterations} iterations."
        )
    used, labels = np.unique(found.labels, return_inverse=True)
    if len(used) < chosen:
        notes.append(f"{group}: {chosen - len(used)} of {chosen} clusters hold no patch and were left out.")
    order = np.argsort(-np.bincount(labels), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return GroupClusters(
        group=group,
        labels=rank[labels],
        shares=found.shares,
        indices=indices,
        choice=choice,
        points=projected.points,
        explained=projected.explained,
        mixture=mixture,
        notes=tuple(notes),
    )


def refit_labels(
    points: Floats,
    clusters: int,
    *,
    seed: int,
    part: npt.NDArray[np.bool_] | None = None,
    settings: MixtureSettings | None = None,
) -> Whole:
    """Cluster points once more, with another seed or from a part of them.

    Args:
        points: [patches, dimensions].
        clusters: How many clusters.
        seed: The seed.
        part: Which points the mixture is fitted to; None for all. All are assigned.
        settings: How the mixture is fitted; None for the defaults.

    Returns:
        The cluster of each point.

    Raises:
        UserError: There are more clusters than points.
    """
    fitted = fit_mixture(points if part is None else points[part], clusters, seed=seed, settings=settings)
    return fitted.assign(points).labels
