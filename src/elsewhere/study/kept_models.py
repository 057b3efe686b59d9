"""Kept models: what a study's trainings left to be used again, and the file in which one goes to another hospital.

A model is a finished unit with its weights (`engine.store`). As a file it is a zip of units that names nobody: no
case that it was trained on or that the study predicted, and whom it was trained on as hashes (`engine.trained_on`).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.kept import WEIGHT_FILES
from elsewhere.engine.outcomes import StoredWeights
from elsewhere.engine.store import Store
from elsewhere.engine.training import COSTS, Outcome, Training
from elsewhere.errors import UserError, unknown_name
from elsewhere.predictions.answers import answer_kinds

LEAST_KEY = 6
"""Characters of a key that may stand for it."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A saved model: a finished training with its weights.

    Args:
        unit: The training.
        outcome: What it left: weights, answers, and whom it was trained on.
        info: What the store says of it: device, versions, digests of its files.
    """

    unit: Training
    outcome: Outcome
    info: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the training; its key where it has no name."""
        return self.unit.name or self.unit.key

    @property
    def trained_on(self) -> dict[str, Any]:
        """Whom the model was trained on, as `training_record` records it; empty without a record."""
        return dict(self.outcome.trained_on or {})

    @property
    def weights_digest(self) -> str:
        """The SHA-256 of the file of weights."""
        digests = self.info["digests"]
        return str(next(digests[name] for name in WEIGHT_FILES if name in digests))

    def about(self) -> dict[str, Any]:
        """Describe the model: the provenance that goes with every prediction.

        Returns:
            The training's key and name, recipe and settings, tasks, seed, digest of the weights, whom it was
            trained on (counts and datasets, no patients), and the device and versions that trained it.
        """
        unit, told = self.unit, self.trained_on
        return {
            "unit": unit.key,
            "name": unit.name,
            "recipe": unit.recipe.name,
            "version": unit.recipe.version,
            "settings": dict(unit.recipe.settings),
            "tasks": list(unit.recipe.tasks),
            "seed": unit.seed,
            "weights_sha256": self.weights_digest,
            "trained_on": {
                name: told.get(name)
                for name in ("study", "cohorts", "datasets", "n_patients", "train", "validation")
            },
            "trained_with": {"device": self.info.get("device"), "versions": self.info.get("versions")},
        }


@contextlib.contextmanager
def open_models(source: str | Path) -> Iterator[Store]:
    """Open the store of trainings behind a folder or a model file.

    Args:
        source: A folder of a study's results, a store, or a model file (.zip). A model file is unpacked into a
            temporary folder for the time of the block.

    Yields:
        The store.

    Raises:
        UserError: There are no finished trainings, or the file is no zip of trainings.
    """
    path = Path(source)
    if path.is_file():
        with tempfile.TemporaryDirectory(prefix="elsewhere-model-") as folder:
            store = Store(folder)
            store.add(path)
            yield store
        return
    found = next((at for at in (path, path / "store") if (at / "units").is_dir()), None)
    if found is None:
        raise UserError(
            "there are no finished trainings here",
            where=str(path),
            fix="Give the folder of a study's results, its store, or a model file (.zip).",
        )
    yield Store(found)


def models_in(store: Store) -> tuple[list[Model], list[str]]:
    """List the saved models of a store.

    Args:
        store: The store.

    Returns:
        The models with their weights, sorted by name, without those that only serve another model; and the
        names of the finished trainings whose weights were not saved.
    """
    kept, bare, needed = [], [], set()
    for key in sorted(store.keys()):
        outcome = store.load(key)
        unit = store.unit(key)
        needed |= set(unit.needs.values())
        if outcome.weights is None:
            bare.append(unit.name or key)
        else:
            kept.append(Model(unit=unit, outcome=outcome, info=store.info(key)))
    kept = [model for model in kept if model.unit.key not in needed]
    kept.sort(key=lambda model: (model.name, model.unit.key))
    return kept, sorted(bare)


def choose_models(store: Store, wanted: str, *, where: str) -> list[Model]:
    """Find the saved models that a name means.

    Args:
        store: The store.
        wanted: The beginning of a model's name, where blanks around '|' do not count, or at least six
            characters of its key.
        where: The place of the store, for messages.

    Returns:
        All models whose name or key begins so, sorted by name; at least one.

    Raises:
        UserError: No weights were saved at all, or not those of this training, or no training has this name
            (the message lists similar ones).
    """
    kept, bare = models_in(store)
    if not kept:
        raise UserError(
            f"no weights were kept of the {len(bare)} trainings here"
            if bare
            else "there is no training here",
            where=where,
            fix='Write keep_weights = ["all"] under [study], or say '
            "`elsewhere run STUDY --set 'study.keep_weights=[\"all\"]'`, and run the study again: it trains these anew.",
        )
    found = [model for model in kept if _begins(model, wanted)]
    if found:
        return found
    lost = [name for name in bare if _plain(name).startswith(_plain(wanted))]
    if lost:
        raise UserError(
            f"the weights of '{lost[0]}' were not kept",
            where=where,
            fix="Name its scenario in keep_weights under [study] and run the study again, unless its recipe says "
            "that it cannot be kept.",
        )
    raise unknown_name("model", wanted, [model.name for model in kept])


def choose_model(store: Store, wanted: str, *, where: str) -> Model:
    """Find the one saved model that a name means.

    Args:
        store: The store.
        wanted: As for `choose_models`.
        where: The place of the store, for messages.

    Returns:
        The model.

    Raises:
        UserError: No model has this name, or several have it.
    """
    found = choose_models(store, wanted, where=where)
    if len(found) > 1:
        shown = "; ".join(model.name for model in found[:4]) + ("; ..." if len(found) > 4 else "")
        raise UserError(
            f"{len(found)} saved models match: {shown}",
            where=where,
            fix="Say which: --model with the beginning of its name or key (`elsewhere models` lists them).",
        )
    return found[0]


def export_models(models: Sequence[Model], store: Store, path: str | Path) -> Path:
    """Write models into one file for another hospital. It holds no predictions and no names of cases.

    Args:
        models: The models; the saved models whose answers they use go with them.
        store: The store that holds them.
        path: The zip file to write; an existing one is replaced.

    Returns:
        The file.

    Raises:
        UserError: The weights of a model are damaged.
        FileSystemError: The file cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="elsewhere-model-") as folder:
        bare = Store(folder)
        for model in models:
            if isinstance(model.outcome.weights, StoredWeights):
                model.outcome.weights.check()
            _save_nameless(bare, model)
            for needed in needed_models(model, store):
                _save_nameless(bare, needed)
        return bare.export(bare.keys(), path)


def needed_models(model: Model, store: Store) -> list[Model]:
    """The kept models whose answers a model uses, as far as the store has them.

    Args:
        model: A model.
        store: Where it is.

    Returns:
        Those that are there with their weights.
    """
    found = []
    for key in model.unit.needs.values():
        if key in store:
            outcome = store.load(key)
            if outcome.weights is not None:
                found.append(Model(unit=store.unit(key), outcome=outcome, info=store.info(key)))
    return found


def _save_nameless(store: Store, model: Model) -> None:
    unit, outcome = model.unit, model.outcome
    tasks = unit.recipe.tasks
    empty = {task: answer_kinds.get(answers.kind).empty() for task, answers in outcome.answers.items()}
    store.save(
        replace(unit, train=(), validation=(), predict=(), optional=()),
        replace(
            outcome,
            case=(),
            fingerprint=np.zeros(0, dtype=np.uint64),
            answers=empty,
            cost=None if outcome.cost is None else np.zeros((0, len(tasks), len(COSTS))),
            notes=(),
            details={},
        ),
    )


def _begins(model: Model, wanted: str) -> bool:
    if len(wanted) >= LEAST_KEY and model.unit.key.startswith(wanted):
        return True
    return _plain(model.name).startswith(_plain(wanted))


def _plain(name: str) -> str:
    return re.sub(r"\s*\|\s*", "|", name.strip())
