"""Which units a run trains, in which order: nothing twice, what shares inputs side by side, box finders first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases


def unique_units(units: Iterable[Training], cases: Cases) -> list[Training]:
    """One unit a key, predicting what any of them predicts (US-10: one training serves all its targets)."""
    found: dict[str, Training] = {}
    for unit in units:
        if not unit.key:
            unit = unit.with_key(cases)
        first = found.get(unit.key)
        if first is None:
            found[unit.key] = unit
            continue
        found[unit.key] = replace(
            first,
            predict=tuple(dict.fromkeys((*first.predict, *unit.predict))),
            keep_weights=first.keep_weights or unit.keep_weights,
        )
    for unit in found.values():
        unknown = [name for name in (*unit.train, *unit.validation, *unit.predict) if name not in cases.row]
        if unknown:
            raise UserError(
                f"unit {unit.name or unit.key} names a case that is not among the {len(cases)} cases:"
                f" '{unknown[0]}'" + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            )
    return list(found.values())


def in_order(units: Sequence[Training]) -> list[Training]:
    """Box finders first, then by input and network (what shares decoded inputs and compiled networks is
    together), otherwise as given.
    """
    seen: dict[tuple[Any, ...], int] = {}

    def place(unit: Training) -> tuple[bool, bool, int]:
        shared = (unit.kind, unit.input, unit.method)
        return (unit.kind != "find-boxes", bool(unit.boxes_from), seen.setdefault(shared, len(seen)))

    return sorted(units, key=place)


def stages(units: Sequence[Training]) -> list[list[Training]]:
    """What may run side by side; units that use boxes which another unit of this run finds come after it.
    Recipes are a stage of their own: another trainer trains them.
    """
    here = {unit.key for unit in units}
    later = [unit for unit in units if unit.boxes_from in here and unit.boxes_from != unit.key]
    after = {unit.key for unit in later}
    first = [unit for unit in units if unit.key not in after]
    recipes = [unit for unit in first if unit.job is not None]
    first = [unit for unit in first if unit.job is None]
    return [in_order(part) for part in (first, later, recipes) if part]


def widened(unit: Training, store: Store, cases: Cases) -> Training:
    """A unit that stands in the store, but lacks a case, is trained again: then it predicts again what it
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
    """In order, `size` at a time; a batch never mixes inputs or networks."""
    found: list[list[Training]] = []
    for unit in units:
        last = found[-1] if found else []
        alike = last and (last[0].kind, last[0].input, last[0].method) == (unit.kind, unit.input, unit.method)
        if alike and len(last) < size:
            last.append(unit)
        else:
            found.append([unit])
    return found
