"""What clusters are: whether they are hospitals, patients, slides, blur or stain, and whether they are there again with another seed (LN-23).

Mutual information is divided by the smaller of the two entropies: 1 where one of the two tells the other. Two clusterings
of the same patches always share some information by chance, more so where patches of one patient are alike. For the
hospital the chance level therefore comes from giving the patients to the hospitals at random, whole; for all else
from shuffling the patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.curation.clusters import GROUP_WORDS, GroupClusters, refit_labels
from elsewhere.curation.mixtures import MixtureSettings

Whole = npt.NDArray[np.int64]
ATTRIBUTES = {
    "slide": "slide",
    "patient": "patient",
    "site": "hospital",
    "sharpness": "sharpness",
    "stain": "stain",
    "strength": "strength of stain",
}
"""What clusters are compared with, in the words of a report."""
PARTS = 3
"""Sharpness and stain are cut into so many parts of equal size."""
ARE, FOLLOW = 0.5, 0.1
"""Share of the information from which clusters are hospitals, and from which they follow hospitals in part."""
LEVEL = 0.05
_SHUFFLES = 20
_PERMUTATIONS = 999
STABLE = 0.8
"""Adjusted Rand index from which clusters count as the same."""


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """The clusters of a group against one attribute of the patches.

    Attributes:
        group: NN, NT or TT.
        attribute: One of `ATTRIBUTES`.
        levels: Values of the attribute.
        patches: Patches whose value is known.
        information: Mutual information over the smaller entropy: 0 for none, 1 where one tells the other.
        normalised: Mutual information over the mean of both entropies.
        chance: The information that chance alone gives.
        p_value: How often chance gives as much; NaN where it was not tested.
        purity: The share of patches with the most frequent value of their cluster.
        guessing: The share of patches with the most frequent value of all.
    """

    group: str
    attribute: str
    levels: int
    patches: int
    information: float
    normalised: float
    chance: float
    p_value: float
    purity: float
    guessing: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute.
        """
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Stability:
    """Whether clusters are found again.

    Attributes:
        group: NN, NT or TT.
        seeds: How many seeds were compared.
        over_seeds: The mean adjusted Rand index of all pairs of seeds.
        least_over_seeds: The smallest.
        over_halves: The adjusted Rand index of the clusters of two halves of the patients; NaN with one patient.
    """

    group: str
    seeds: int
    over_seeds: float
    least_over_seeds: float
    over_halves: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute.
        """
        return dict(vars(self))

    def sentence(self) -> str:
        """Say what was found.

        Returns:
            One sentence.
        """
        halves = (
            "the halves of one patient's patches were not compared"
            if math.isnan(self.over_halves)
            else f"from one half of the patients to the other {self.over_halves:.2f}"
        )
        same = self.over_seeds >= STABLE and not self.over_halves < STABLE
        word = "are found again" if same else "are not surely the same twice"
        return (
            f"The clusters of {self.group} {word}: adjusted Rand index {self.over_seeds:.2f} over {self.seeds} seeds, "
            f"{halves} (1: the same clusters)."
        )


def count_pairs(one: Whole, two: Whole) -> npt.NDArray[np.int64]:
    """Count how often two labels occur together.

    Args:
        one: Labels from 0.
        two: Labels from 0 of the same items.

    Returns:
        [labels of one, labels of two].

    Example:
        >>> count_pairs(np.array([0, 0, 1]), np.array([0, 1, 1])).tolist()
        [[1, 1], [0, 1]]
    """
    rows, columns = int(one.max(initial=-1)) + 1, int(two.max(initial=-1)) + 1
    return np.bincount(one * columns + two, minlength=rows * columns).reshape(rows, columns)


def entropy_of(counts: npt.NDArray[Any]) -> float:
    """Compute the entropy of counts.

    Args:
        counts: How often each value occurs.

    Returns:
        The entropy in nats.

    Example:
        >>> round(entropy_of(np.array([2, 2])), 4)
        0.6931
    """
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum()) + 0.0


def mutual_information(counts: npt.NDArray[np.int64]) -> float:
    """Compute the mutual information of two labels.

    Args:
        counts: How often they occur together, as `count_pairs` counts.

    Returns:
        The information in nats, at least 0.

    Example:
        >>> round(mutual_information(np.array([[5, 0], [0, 5]])), 4)
        0.6931
    """
    whole = entropy_of(counts.sum(axis=0)) + entropy_of(counts.sum(axis=1)) - entropy_of(counts.ravel())
    return max(0.0, whole)


def adjusted_rand(one: Whole, two: Whole) -> float:
    """Compute the adjusted Rand index of two clusterings: 1 for the same, 0 on average for unrelated ones.

    Args:
        one: The cluster of each item.
        two: The same in the other clustering.

    Returns:
        The index; 1 where both have a single cluster, or each item alone.

    Example:
        >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
        1.0
    """
    counts = count_pairs(one, two).astype(np.float64)

    def pairs(values: npt.NDArray[np.float64]) -> float:
        return float((values * (values - 1) / 2).sum())

    both, first, second = pairs(counts), pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    every = len(one) * (len(one) - 1) / 2
    expected = first * second / every if every else 0.0
    most = (first + second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def split_by_rank(values: npt.NDArray[np.floating], parts: int = PARTS) -> Whole:
    """Cut values into parts of equal size.

    Args:
        values: The values; NaN is not known.
        parts: How many parts.

    Returns:
        The part of each value, from 0; -1 where it is not known. Equal values are in one part.

    Example:
        >>> split_by_rank(np.array([5.0, 1.0, np.nan, 3.0])).tolist()
        [2, 0, -1, 1]
    """
    made = np.full(len(values), -1, np.int64)
    known = np.flatnonzero(~np.isnan(values))
    if len(known):
        ordered = np.sort(values[known])
        first = np.searchsorted(ordered, values[known], side="left")
        made[known] = first * parts // len(known)
    return made


def audit_group(
    clusters: GroupClusters,
    attributes: Mapping[str, Whole],
    *,
    patients: Whole | None = None,
    seed: int = 0,
) -> list[AuditRow]:
    """Compare the clusters of a group with attributes of its patches.

    Args:
        clusters: The clusters.
        attributes: By name of `ATTRIBUTES`, the value of each patch as a number from 0; -1 where it is not known.
        patients: The patient of each patch as a number from 0, for the chance level of the hospital; None: slides or
            patients are not known, and patches are shuffled.
        seed: Seed of the shuffles.

    Returns:
        One row per attribute.
    """
    return [
        _row(clusters, name, values, patients if name == "site" else None, np.random.default_rng([seed, at]))
        for at, (name, values) in enumerate(attributes.items())
    ]


def _row(
    clusters: GroupClusters, name: str, values: Whole, patients: Whole | None, rng: np.random.Generator
) -> AuditRow:
    known = values >= 0
    values = np.unique(values[known], return_inverse=True)[1].astype(np.int64)
    labels = clusters.labels[known]
    nothing = AuditRow(
        group=clusters.group, attribute=name, levels=int(values.max(initial=-1)) + 1, patches=int(known.sum()),
        information=math.nan, normalised=math.nan, chance=math.nan, p_value=math.nan, purity=math.nan, guessing=math.nan,
    )  # fmt: skip
    if nothing.levels < 2 or len(np.unique(labels)) < 2:
        return nothing
    counts = count_pairs(labels, values)
    information = shared_information(counts)
    mean = (entropy_of(counts.sum(axis=0)) + entropy_of(counts.sum(axis=1))) / 2
    if patients is None:
        drawn = [shared_information(count_pairs(labels, rng.permutation(values))) for _ in range(_SHUFFLES)]
        p_value = math.nan
    else:
        drawn = _of_patients(labels, values, patients[known], rng)
        p_value = (1 + sum(one >= information - 1e-12 for one in drawn)) / (1 + len(drawn))
    return AuditRow(
        group=clusters.group,
        attribute=name,
        levels=nothing.levels,
        patches=nothing.patches,
        information=information,
        normalised=mutual_information(counts) / mean,
        chance=float(np.mean(drawn)),
        p_value=p_value,
        purity=float(counts.max(axis=1).sum() / counts.sum()),
        guessing=float(counts.sum(axis=0).max() / counts.sum()),
    )


def shared_information(counts: npt.NDArray[np.int64]) -> float:
    """Compute the mutual information of two labels over the smaller of their entropies.

    Args:
        counts: How often they occur together, as `count_pairs` counts.

    Returns:
        0 for none to 1 where one tells the other; 0 where a label has one value.

    Example:
        >>> round(shared_information(np.array([[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 4]])), 6)
        1.0
    """
    least = min(entropy_of(counts.sum(axis=0)), entropy_of(counts.sum(axis=1)))
    return mutual_information(counts) / least if least > 0 else 0.0


def _of_patients(labels: Whole, sites: Whole, patients: Whole, rng: np.random.Generator) -> list[float]:
    """The information where patients are given to hospitals at random, whole. A patient of two hospitals counts as two."""
    _, units = np.unique(np.stack([patients, sites], axis=1), axis=0, return_inverse=True)
    units = units.ravel().astype(np.int64)
    site_of = np.zeros(int(units.max()) + 1, np.int64)
    site_of[units] = sites
    per_unit = count_pairs(units, labels).astype(np.float64)
    given = rng.permuted(np.tile(site_of, (_PERMUTATIONS, 1)), axis=1)
    counts = np.stack([(given == site) @ per_unit for site in range(int(sites.max()) + 1)], axis=1)
    return _shared(counts)


def _shared(counts: npt.NDArray[np.float64]) -> list[float]:
    """`shared_information` of many tables at once, [tables, rows, columns] with the same total."""
    total = counts[0].sum()

    def entropy(some: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        shares = some / total
        logs = np.log(np.where(shares > 0, shares, 1.0))
        made: npt.NDArray[np.float64] = -(shares * logs).reshape(len(some), -1).sum(axis=1)
        return made

    rows, columns = entropy(counts.sum(axis=2)), entropy(counts.sum(axis=1))
    information = np.maximum(0.0, rows + columns - entropy(counts))
    least = np.minimum(rows, columns)
    return np.where(least > 0, information / np.where(least > 0, least, 1.0), 0.0).tolist()


def hospital_sentence(row: AuditRow) -> str:
    """Say in plain words whether clusters are hospitals.

    Args:
        row: The clusters against the hospital.

    Returns:
        One or two sentences.

    Example:
        >>> row = AuditRow(group="NN", attribute="site", levels=3, patches=300, information=0.97, normalised=0.9, chance=0.1,
        ...     p_value=0.001, purity=0.99, guessing=0.4)
        >>> hospital_sentence(row)[:43]
        'The clusters of NN (normal patches of norma'
    """
    of = f"The clusters of {row.group} ({GROUP_WORDS.get(row.group, row.group)})"
    if math.isnan(row.information):
        why = (
            "all patches with a known hospital come from one"
            if row.levels == 1
            else "no patch has a known hospital"
            if row.levels == 0
            else "there is one cluster"
        )
        return f"{of} cannot be compared with hospitals: {why}."
    tells = (
        f"knowing the cluster, the hospital of {row.purity:.0%} of the patches is guessed right, and without it of "
        f"{row.guessing:.0%} (shared information {row.information:.2f}, by chance {row.chance:.2f})"
    )
    by_chance = not row.p_value <= LEVEL
    if row.information >= ARE and not by_chance:
        return f"{of} are hospitals: {tells}. A set that is even over them is even over hospitals, and not over kinds of tissue."
    if row.information >= FOLLOW and not by_chance:
        return f"{of} follow the hospitals in part: {tells}."
    if row.information >= FOLLOW:
        return f"{of} differ between hospitals no more surely than patients given to hospitals at random would: {tells}."
    return f"{of} are not hospitals: {tells}."


def judge_stability(
    clusters: GroupClusters,
    patients: Whole,
    *,
    seed: int,
    seeds: int = 5,
    settings: MixtureSettings | None = None,
    progress: Callable[[], None] | None = None,
) -> Stability | None:
    """Cluster a group again with other seeds, and from two halves of its patients.

    Args:
        clusters: The clusters.
        patients: The patient of each patch, as a number from 0.
        seed: The seed of the clusters; those that follow it are tried.
        seeds: How many seeds are compared, that of the clusters among them.
        settings: How the mixtures are fitted; None for the defaults.
        progress: Called after each fit; None for no reports.

    Returns:
        What was found; None for one cluster.
    """
    points, number = clusters.points, clusters.number
    if points is None or clusters.mixture is None or number < 2:
        return None
    asked = len(clusters.mixture)

    def again(**how: Any) -> Whole:
        made = refit_labels(points, asked, settings=settings, **how)
        if progress is not None:
            progress()
        return made

    found = [clusters.labels, *(again(seed=seed + at) for at in range(1, seeds))]
    over = [adjusted_rand(one, two) for one, two in combinations(found, 2)]
    halves = math.nan
    half = _half_of(patients, seed)
    if half is not None and min(half.sum(), (~half).sum()) >= asked:
        halves = adjusted_rand(again(seed=seed, part=half), again(seed=seed, part=~half))
    return Stability(
        group=clusters.group,
        seeds=seeds,
        over_seeds=float(np.mean(over)) if over else math.nan,
        least_over_seeds=float(np.min(over)) if over else math.nan,
        over_halves=halves,
    )


def _half_of(patients: Whole, seed: int) -> npt.NDArray[np.bool_] | None:
    """Half of the patients, those with many patches dealt out first; None where there is one."""
    counts = np.bincount(patients)
    present = np.flatnonzero(counts)
    if len(present) < 2:
        return None
    shuffled = np.random.default_rng([seed, 7]).permutation(present)
    ordered = shuffled[np.argsort(-counts[shuffled], kind="stable")]
    sums = [0, 0]
    first: list[int] = []
    for patient in ordered.tolist():
        side = int(sums[1] < sums[0])
        sums[side] += int(counts[patient])
        if side == 0:
            first.append(patient)
    return np.isin(patients, first)


def sentences_of(rows: Sequence[AuditRow], stability: Sequence[Stability]) -> list[str]:
    """Say what an audit found.

    Args:
        rows: The clusters against attributes.
        stability: Whether they are found again.

    Returns:
        One sentence per group about hospitals, then one about stability.
    """
    return [hospital_sentence(row) for row in rows if row.attribute == "site"] + [
        one.sentence() for one in stability
    ]
