"""Which trainings a run does, in which order: nothing twice, what shares inputs side by side, what others need first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elsewhere.engine.registry import recipes
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases


def unique_units(units: Iterable[Training], cases: Cases) -> list[Training]:
    """One training per key, predicting what any of them predicts (US-10: one training serves all its targets)."""
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
    """Two trainings of one key as one that predicts for both."""
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
    """What shares a group shares what its recipe prepares: it is trained side by side."""
    return recipes.get(unit.recipe.name).group(unit.recipe)


def in_order(units: Sequence[Training]) -> list[Training]:
    """Trainings that others need first, then by group, otherwise as given."""
    needed = {key for unit in units for key in unit.needs.values()}
    seen: dict[str, int] = {}

    def place(unit: Training) -> tuple[bool, bool, int]:
        return (unit.key not in needed, bool(unit.needs), seen.setdefault(group_of(unit), len(seen)))

    return sorted(units, key=place)


def stages(units: Sequence[Training]) -> list[list[Training]]:
    """What may run side by side: a training comes in a later stage than those of this run that it needs."""
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
    """A training that stands in the store, but lacks a case, is done again: then it predicts again what it
    had predicted of these cases too, so that all of a study's predictions come from one training.
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
    """In order, `size` at a time; a batch never mixes groups."""
    found: list[list[Training]] = []
    for unit in units:
        last = found[-1] if found else []
        if last and len(last) < size and group_of(last[0]) == group_of(unit):
            last.append(unit)
        else:
            found.append([unit])
    return found
