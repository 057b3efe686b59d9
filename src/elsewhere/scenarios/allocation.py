"""Who goes where: how many patients a part gets, and which (US-05 to US-07).

How many: per stratum, by the largest remainder (a tie goes to the earlier part), and at least one a part
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
"""Per cent of a stratum's patients that train, validate and test (US-06)."""
SOURCE_SHARES = (85, 15)
"""Per cent that train and validate, where the test is another dataset (US-07)."""
FOLD_SHARES = (90, 10)
"""Per cent of the patients outside the tested fold that train and validate."""


def apportion(count: int, shares: Sequence[int]) -> IntArray:
    """`count` patients over parts of these per cents, by the largest remainder; at least one each.

    Fewer patients than parts: one each for the largest parts.
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
    """The items in a drawn order, from a stream of their own for each seed, dataset and purpose: no other
    dataset and no other draw moves it.

    Sorted by raw words of a named bit generator: numpy keeps that stream from version to version, and
    does not promise as much of `permutation`.
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
    """The part of each unit, by shares per stratum; both classes in each part where that is feasible.

    Units outside `keep` get -1. They are drawn with the others and taken out afterwards, so that leaving
    a few out moves as few of the others as can be.
    """
    malignant, benign = _strata(units, seed=seed, dataset=dataset, purpose=purpose)
    unknown = _unknown(units, seed=seed, dataset=dataset, purpose=purpose)
    if keep is not None:
        malignant, benign, unknown = (part[keep[part]] for part in (malignant, benign, unknown))
    out = _dealt(units, malignant, benign, apportion(malignant.size, shares), apportion(benign.size, shares))
    out[unknown] = np.repeat(np.arange(len(shares)), apportion(unknown.size, shares))
    return out


def allocate_folds(units: SourceUnits, folds: int, *, seed: int, dataset: str) -> IntArray:
    """The fold of each unit, from 0: per stratum as even as can be. The malignant stratum's odd ones go
    to the first folds, the benign one's to the last, so that the folds stay even together."""
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
    """The malignant and the benign stratum (US-05), each in its drawn order."""
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
    """Units of no known class, in their drawn order; none where every label is known."""
    return shuffled(np.flatnonzero(units.unknown), seed=seed, dataset=dataset, purpose=f"{purpose} unknown")


def _dealt(
    units: SourceUnits, malignant: IntArray, benign: IntArray, quota_m: IntArray, quota_b: IntArray
) -> IntArray:
    """Both strata in their drawn order, a part at a time. A part to which no patient of the benign
    stratum falls first takes a mixed patient, who brings benign images."""
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
