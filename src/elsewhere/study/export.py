"""What is still to train as a folder for a bare machine: units, cases, what their recipes read, weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.engine.work import save_work
from elsewhere.errors import UserError
from elsewhere.recipes.base import recipe_of
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan


def export_work(
    plan: Plan,
    units: Sequence[Training],
    folder: Path,
    *,
    store: Store,
    replace: bool = False,
    progress: Report | None = None,
) -> tuple[Path | None, tuple[str, ...]]:
    """Write what is still to train as a work folder for a machine without the data.

    Args:
        plan: What the study asks for.
        units: The trainings to write.
        folder: The work folder.
        store: The finished trainings: outcomes that the written ones use travel with them.
        replace: Whether an earlier work folder may be replaced.
        progress: Called with what is done, how much, and how much there is; None: nobody is told.

    Returns:
        The folder, or None where nothing is left to train; and notes, such as published weights that could not
        be packed and that the other machine must find itself.

    Raises:
        UserError: The folder exists and may not be replaced, or a picture or volume is missing.
        FileSystemError: The folder cannot be written.
    """
    if not units:
        return None, ("nothing is left to train, so no work folder was written",)
    weights, notes = _weights(plan, units)
    if progress:
        progress("packing the work", 0, 1)
    work = dataclasses.replace(plan.work, weights=weights, outcomes=store.load)
    made = save_work(units, work, folder, replace=replace)
    if progress:
        progress("packing the work", 1, 1)
    return made, notes


def _weights(plan: Plan, units: Sequence[Training]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """The published weights travel with the work: a bare machine cannot fetch them."""
    found = dict(plan.weights)
    notes: list[str] = []
    for network in sorted(set(_networks(units))):
        try:
            from elsewhere.networks import find_weights

            path = find_weights(network, "imagenet", found)
        except ImportError as error:
            path, why = None, f"{error.name} is not installed here"
        except UserError as error:
            path, why = None, error.what
        if path is None:
            notes.append(
                f"the weights of {network} do not travel with the work ({why}): it must find them there"
            )
        else:
            found[f"{network}/imagenet"] = path
    return found, tuple(notes)


def _networks(units: Sequence[Training]) -> set[str]:
    """Networks whose ImageNet weights a training reads, as its recipe says."""
    return {name for unit in units for name in recipe_of(unit.recipe.name).published_weights(unit.recipe)}
