"""Folds inside a recipe's own training part.

Groups stay together, and every fold has both outcomes where that is possible. Everything is drawn from the
seed and the order of the cases, never from their names: renaming a case must not change a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elsewhere.recipes.base import RecipeCase


def fold_of(cases: Sequence[RecipeCase], folds: int, *, seed: int) -> list[int]:
    """Assign each case to a fold, 0 to `folds` - 1.

    Groups stay together. Within each stratum (groups with a positive case, with known negatives alone, with
    nothing known; and dataset by dataset) groups are shuffled and then assigned in turn.

    Args:
        cases: The cases; their order counts, their names do not.
        folds: How many folds, 1 or more.
        seed: Seed of the shuffle.

    Returns:
        One fold per case.

    Raises:
        ValueError: `folds` is less than 1.

    Example:
        >>> names = ("a1", "b1", "a2")
        >>> cases = [RecipeCase(case=c, dataset="D", group=c[0], label=0, clinical={}) for c in names]
        >>> first, second, third = fold_of(cases, 2, seed=1)
        >>> first == third, first != second
        (True, True)
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
    """Split cases into folds that part no group.

    Args:
        cases: The cases; their order counts, their names do not.
        folds: How many folds, 1 or more.
        seed: Seed of the split.

    Returns:
        (cases to learn from, cases held out) for every fold that has both.

    Raises:
        ValueError: `folds` is less than 1.

    Example:
        >>> cases = [RecipeCase(case=c, dataset="D", group=c, label=0, clinical={}) for c in ("a", "b", "c")]
        >>> [(len(learn), len(out)) for learn, out in grouped_folds(cases, 3, seed=1)]
        [(2, 1), (2, 1), (2, 1)]
    """
    held = fold_of(cases, folds, seed=seed)
    found = []
    for fold in range(folds):
        learn = tuple(case for case, at in zip(cases, held, strict=True) if at != fold)
        out = tuple(case for case, at in zip(cases, held, strict=True) if at == fold)
        if learn and out:
            found.append((learn, out))
    return found
