"""Allocation of patients to parts: how many patients a part gets, and which (US-05 to US-07).

How many: per stratum, by the largest remainder (a tie goes to the earlier part), and at least one per part
wherever there are as many patients as parts. Which: by a permutation that depends on the seed, the
dataset's name, the purpose and the stratum alone, over patients in the order of their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from elsewhere.errors import UserError
from elsewhere.scenarios.groups import BoolArray, IntArray, SourceUnits

INTERNAL_SHARES = (70, 10, 20)
"""Per cent of a stratum's patients for training, validation and test (US-06)."""
SOURCE_SHARES = (85, 15)
"""Per cent for training and validation, where the test is another dataset (US-07)."""
FOLD_SHARES = (90, 10)
"""Per cent of the patients outside the tested fold for training and validation."""


def apportion(count: int, shares: Sequence[int]) -> IntArray:
    """Divide a number of patients over parts by per cents and the largest remainder; at least one per part.

    With fewer patients than parts, the parts with the largest shares get one patient each.

    Args:
        count: How many patients there are, 0 or more.
        shares: Per cent of the patients for each part; they add up to 100.

    Returns:
        How many patients each part gets, in the order of `shares`; they add up to `count`.

    Example:
        >>> apportion(20, (70, 10, 20)).tolist(), apportion(2, (70, 10, 20)).tolist()
        ([14, 2, 4], [1, 0, 1])
    """
    weight = np.asarray(shares, dtype=np.int64)
    if count < weight.size:
        out = np.zeros(weight.size, dtype=np.int64)
        out[np.argsort(-weight, kind="stable")[:count]] = 1
        return out
    out, remainder = np.divmod(count * weight, 100)
    extra = count - int(out.sum())
    out[np.argsort(-remainder, kind="stable")[:extra]] += 1
    while not out.all():
        out[int(np.argmax(out))] -= 1
        out[int(np.argmin(out))] += 1
    return out


def shuffled(items: IntArray, *, seed: int, dataset: str, purpose: str) -> IntArray:
    """Shuffle items by a random stream of their own for each seed, dataset and purpose.

    No other dataset and no other draw changes the order. The items are sorted by raw words of a named bit
    generator: numpy keeps that stream from version to version, and does not promise as much of `permutation`.

    Args:
        items: The items, 1-D.
        seed: A whole number, 0 or more.
        dataset: The name of the dataset that the items come from.
        purpose: What the order is for, such as "internal malignant"; each purpose has its own stream.

    Returns:
        The same items in their random order.

    Raises:
        UserError: The seed is not a whole number of 0 or more.

    Example:
        >>> order = shuffled(np.arange(5), seed=1, dataset="BUSI", purpose="folds")
        >>> sorted(order.tolist())
        [0, 1, 2, 3, 4]
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"the seed {seed!r}", fix="Give a whole number, 0 or more.")
    entropy = np.random.SeedSequence([int(seed), _number(dataset), _number(purpose)])
    words = np.random.Generator(np.random.PCG64(entropy)).bit_generator.random_raw(items.size)
    return items[np.argsort(words, kind="stable")]


def allocate(
    units: SourceUnits,
    shares: Sequence[int],
    *,
    seed: int,
    dataset: str,
    purpose: str,
    keep: BoolArray | None = None,
) -> IntArray:
    """Allocate units to parts, by shares per stratum; both classes in each part where that is feasible.

    Units outside `keep` are ordered with the others and taken out afterwards, so that leaving a few out moves
    as few of the others as possible.

    Args:
        units: The units of the dataset.
        shares: Per cent of each stratum's units for each part.
        seed: The seed of the allocation.
        dataset: The name of the dataset, which the random order depends on.
        purpose: What the parts are for; each purpose has its own random order.
        keep: True for the units that are allocated, one entry per unit; None allocates all.

    Returns:
        The part of each unit, as an index into `shares`; -1 for units outside `keep`.
    """
    malignant, benign = _strata(units, seed=seed, dataset=dataset, purpose=purpose)
    unknown = _unknown(units, seed=seed, dataset=dataset, purpose=purpose)
    if keep is not None:
        malignant, benign, unknown = (part[keep[part]] for part in (malignant, benign, unknown))
    out = _dealt(units, malignant, benign, apportion(malignant.size, shares), apportion(benign.size, shares))
    out[unknown] = np.repeat(np.arange(len(shares)), apportion(unknown.size, shares))
    return out


def allocate_folds(units: SourceUnits, folds: int, *, seed: int, dataset: str) -> IntArray:
    """Allocate each unit to one of several folds, each stratum as evenly as possible.

    Where a stratum cannot be divided evenly, the first folds get one more unit of the malignant stratum and
    the last folds one more of the benign stratum, so that the folds stay of equal size together.

    Args:
        units: The units of one dataset.
        folds: How many folds.
        seed: The seed of the allocation.
        dataset: The name of the dataset, which the random order depends on.

    Returns:
        The fold of each unit, counted from 0.
    """
    malignant, benign = _strata(units, seed=seed, dataset=dataset, purpose="folds")
    at = np.arange(folds)
    out = _dealt(
        units,
        malignant,
        benign,
        malignant.size // folds + (at < malignant.size % folds),
        benign.size // folds + (at >= folds - benign.size % folds),
    )
    unknown = _unknown(units, seed=seed, dataset=dataset, purpose="folds")
    out[unknown] = np.arange(unknown.size) % folds
    return out


def _strata(units: SourceUnits, *, seed: int, dataset: str, purpose: str) -> tuple[IntArray, IntArray]:
    """Return the malignant and the benign stratum (US-05), each in its random order."""
    return (
        shuffled(np.flatnonzero(units.malignant), seed=seed, dataset=dataset, purpose=f"{purpose} malignant"),
        shuffled(
            np.flatnonzero(units.benign & ~units.malignant),
            seed=seed,
            dataset=dataset,
            purpose=f"{purpose} benign",
        ),
    )


def _unknown(units: SourceUnits, *, seed: int, dataset: str, purpose: str) -> IntArray:
    """Return the units of no known class, in their random order; none where every label is known."""
    return shuffled(np.flatnonzero(units.unknown), seed=seed, dataset=dataset, purpose=f"{purpose} unknown")


def _dealt(
    units: SourceUnits, malignant: IntArray, benign: IntArray, quota_m: IntArray, quota_b: IntArray
) -> IntArray:
    """Allocate both strata in their random order, one part after the other.

    A part that gets no patient of the benign stratum first takes a mixed patient, who has benign images too.
    """
    part = np.full(len(units), -1, dtype=np.int64)
    parts = np.arange(quota_m.size)
    part[benign] = np.repeat(parts, quota_b)
    without = np.flatnonzero((quota_b == 0) & (quota_m > 0))
    first = malignant[units.benign[malignant]][: without.size]
    part[first] = without[: first.size]
    left = quota_m - np.bincount(part[first], minlength=quota_m.size)
    part[malignant[part[malignant] < 0]] = np.repeat(parts, left)
    return part


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
