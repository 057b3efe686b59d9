"""Folds inside a recipe's own training part: no group is parted, both outcomes in every fold where they can be.

Everything is drawn from the seed and the order of the cases, never from their names: a renamed case must not
change a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elsewhere.recipes.base import RecipeCase


def fold_of(cases: Sequence[RecipeCase], folds: int, *, seed: int) -> list[int]:
    """The fold (0..folds-1) of each case. Groups stay together; within each stratum (a positive case in it,
    known negatives alone, nothing known; and dataset by dataset) they are dealt in turn after a shuffle.
    """
    if folds < 1:
        raise ValueError(f"{folds} folds")
    members: dict[str, list[RecipeCase]] = {}
    for case in cases:
        members.setdefault(case.group, []).append(case)
    strata: dict[tuple[str, int], list[str]] = {}
    for group, part in members.items():
        strata.setdefault((part[0].dataset, max(case.label for case in part)), []).append(group)
    rng = np.random.default_rng([seed, folds, 0x5F01D])
    place: dict[str, int] = {}
    turn = 0
    for _, groups in sorted(
        strata.items(), key=lambda item: (-item[0][1], _first(members, item[1][0], cases))
    ):
        for at in rng.permutation(len(groups)):
            place[groups[at]] = turn % folds
            turn += 1
    return [place[case.group] for case in cases]


def _first(members: dict[str, list[RecipeCase]], group: str, cases: Sequence[RecipeCase]) -> int:
    return cases.index(members[group][0])


def grouped_folds(
    cases: Sequence[RecipeCase], folds: int, *, seed: int
) -> list[tuple[tuple[RecipeCase, ...], tuple[RecipeCase, ...]]]:
    """(learn from, hold out) of every fold that holds something out and leaves something to learn from."""
    held = fold_of(cases, folds, seed=seed)
    found = []
    for fold in range(folds):
        learn = tuple(case for case, at in zip(cases, held, strict=True) if at != fold)
        out = tuple(case for case, at in zip(cases, held, strict=True) if at == fold)
        if learn and out:
            found.append((learn, out))
    return found
