"""Plans a run: no training twice, shared inputs side by side, and what others need first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elsewhere.engine.registry import recipes
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases


def unique_units(units: Iterable[Training], cases: Cases) -> list[Training]:
    """Reduce trainings to one per key, which predicts what any of them predicts.

    One training of a source serves all its targets (US-10).

    Args:
        units: Trainings, with or without keys; some may have the same key.
        cases: The cases of the study, which the keys depend on.

    Returns:
        The trainings with their keys, in the order in which each key appears first.

    Raises:
        UserError: A training names a case that is not among `cases`.
    """
    found: dict[str, Training] = {}
    for unit in units:
        if not unit.key:
            unit = unit.with_key(cases)
        first = found.get(unit.key)
        found[unit.key] = unit if first is None else joined_trainings(first, unit)
    for unit in found.values():
        unknown = [name for name in (*unit.train, *unit.validation, *unit.asked) if name not in cases.row]
        if unknown:
            raise UserError(
                f"unit {unit.name or unit.key} names a case that is not among the {len(cases)} cases:"
                f" '{unknown[0]}'" + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            )
    return list(found.values())


def joined_trainings(first: Training, second: Training) -> Training:
    """Join two trainings of one key into one that predicts for both.

    Args:
        first: The training whose name and order of cases are taken.
        second: Another training of the same key.

    Returns:
        The joined training. A case that either of them requires is not optional in it.

    Example:
        >>> from elsewhere.engine.training import RecipeSpec
        >>> one = Training(recipe=RecipeSpec(name="coin"), predict=("A/1",))
        >>> joined_trainings(one, replace(one, predict=("B/1",), keep_weights=True)).predict
        ('A/1', 'B/1')
    """
    predict = tuple(dict.fromkeys((*first.predict, *second.predict)))
    asked = set(predict)
    return replace(
        first,
        predict=predict,
        optional=tuple(
            name for name in dict.fromkeys((*first.optional, *second.optional)) if name not in asked
        ),
        keep_weights=first.keep_weights or second.keep_weights,
    )


def group_of(unit: Training) -> str:
    """Return the group of a training: those of one group share preparations, and run together.

    Args:
        unit: The training; its recipe must be registered.

    Returns:
        The name of the group, which the recipe chooses.
    """
    return recipes.get(unit.recipe.name).group(unit.recipe)


def in_order(units: Sequence[Training]) -> list[Training]:
    """Sort trainings: those that others need first, then by group, otherwise in the given order.

    Args:
        units: Trainings with keys.

    Returns:
        The same trainings.
    """
    needed = {key for unit in units for key in unit.needs.values()}
    seen: dict[str, int] = {}

    def place(unit: Training) -> tuple[bool, bool, int]:
        return (unit.key not in needed, bool(unit.needs), seen.setdefault(group_of(unit), len(seen)))

    return sorted(units, key=place)


def stages(units: Sequence[Training]) -> list[list[Training]]:
    """Divide trainings into stages: a training comes in a later stage than those that it needs.

    Args:
        units: Trainings with keys.

    Returns:
        One list per stage. The trainings of a stage may run at the same time.

    Raises:
        UserError: Trainings need each other in a circle.
    """
    left, found = list(units), []
    while left:
        waiting = {unit.key for unit in left}
        ready = [unit for unit in left if not (set(unit.needs.values()) - {unit.key}) & waiting]
        if not ready:
            raise UserError(
                f"trainings need each other in a circle: {', '.join(unit.name or unit.key for unit in left[:3])}"
            )
        found.append(in_order(ready))
        done = {unit.key for unit in ready}
        left = [unit for unit in left if unit.key not in done]
    return found


def widened(unit: Training, store: Store, cases: Cases) -> Training:
    """Add to a training what it predicted before, where it has to be done again because a case is missing.

    So all of a study's predictions come from one training. A case whose pixels or box have changed is not
    added.

    Args:
        unit: The training, with its key.
        store: The store that may hold an earlier outcome of it.
        cases: The cases of the study.

    Returns:
        The training with more cases to predict; unchanged where the store does not hold it, or cannot read
        it.
    """
    if unit.key not in store:
        return unit
    try:
        held = store.load(unit.key)
    except UserError:
        return unit
    prints = unit.fingerprints(cases)
    known = [
        name
        for name, print_ in zip(held.case, held.fingerprint.tolist(), strict=True)
        if name in cases.row and int(prints[cases.row[name]]) == print_
    ]
    return replace(unit, predict=tuple(dict.fromkeys((*unit.predict, *known))))


def batches(units: Sequence[Training], size: int) -> list[list[Training]]:
    """Divide trainings into batches, in order; a batch never mixes groups.

    Args:
        units: The trainings, in the order in which they should run.
        size: The largest number of trainings in a batch.

    Returns:
        The batches; none is empty.
    """
    found: list[list[Training]] = []
    for unit in units:
        last = found[-1] if found else []
        if last and len(last) < size and group_of(last[0]) == group_of(unit):
            last.append(unit)
        else:
            found.append([unit])
    return found
