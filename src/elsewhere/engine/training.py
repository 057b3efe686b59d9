"""One training with all its predictions, and what comes of it. Plain data that travels as JSON and arrays.

A training's key is the hash of everything its numbers depend on, so that the same training is never done twice
(US-10: a source's training serves all its targets). Its recipe says what that is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.registry import recipes
from elsewhere.inputs.cases import Cases
from elsewhere.inputs.source import Source

TRAINING_VERSION = 1
"""Goes up when the same training would give other numbers; older results are then not taken for the same."""
COSTS = ("seconds", "peak_bytes", "energy_joule")
"""What `Outcome.cost` holds of a case and task (MRI-12), NaN where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class RecipeSpec:
    """Which recipe trains, and how (MRI-14, MRI-15).

    Args:
        name: The name under which the recipe is registered.
        version: Of the recipe's own code.
        settings: Plain values, every default written out.
        tasks: What is asked of it, in the recipe's order.
        clinical: Whether it reads clinical columns of what it predicts.
        files: Digests of the files that settings name (weights, a folder of masks), by setting.
        kinds: The answer kind of each task that the recipe is not made for, and can answer.
    """

    name: str
    version: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    clinical: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RecipeSpec:
        """The spec that `to_dict` wrote. TypeError where a value is of another type."""
        values = {"name": content["name"], **typed_fields(cls(name=""), content)}
        return cls(**values | {"tasks": _names(values.get("tasks", ()), "tasks")})

    def to_dict(self) -> dict[str, Any]:
        """As JSON gives it back: lists, no tuples. Without files and kinds it is what it was before there were any,
        for keys rest on it."""
        content = dict(json.loads(json.dumps(asdict(self))))
        for name in ("files", "kinds"):
            if not content[name]:
                del content[name]
        return content

    @cached_property
    def text(self) -> str:
        """The same spec gives the same text."""
        return json.dumps(self.to_dict(), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training. Its parts name cases of the study ('DATASET/case_id').

    Args:
        recipe: Which recipe trains, and how.
        key: The hash of all that its numbers depend on; `with_key` sets it.
        name: What a person reads.
        train: The cases that it learns from.
        validation: The cases that it is watched on.
        predict: The cases whose answers are asked for.
        optional: Cases that are predicted when the training is run, and that a stored outcome may lack: it is
            complete without them. They do not change the key.
        seed: All randomness comes from it.
        keep_weights: Whether the outcome holds what was learnt.
        needs: Keys of other trainings whose answers this one uses, by the name that its recipe gives them.
    """

    recipe: RecipeSpec
    key: str = ""
    name: str = ""
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    predict: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    seed: int = 0
    keep_weights: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """What trains, in a word: a network, or the recipe's name."""
        return recipes.get(self.recipe.name).label(self.recipe)

    @property
    def asked(self) -> tuple[str, ...]:
        """All cases that are predicted when the training is run."""
        if not self.optional:
            return self.predict
        held = set(self.predict)
        return (*self.predict, *(name for name in self.optional if name not in held))

    @property
    def cases(self) -> tuple[str, ...]:
        """All cases that it names, each once."""
        return tuple(dict.fromkeys((*self.train, *self.validation, *self.asked)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; `from_dict` reads them."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        content |= {"recipe": self.recipe.to_dict(), "needs": dict(self.needs)}
        for name in ("train", "validation", "predict", "optional"):
            content[name] = list(content[name])
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Training:
        """The training that `to_dict` wrote, in this version or in an earlier one.

        Args:
            content: Plain values; they may come from a stranger.

        Returns:
            The training.

        Raises:
            TypeError: A value is of another type than it should be.
            KeyError: The recipe has no name.
        """
        if "kind" in content:
            from elsewhere.engine.earlier_layout import training_content

            content = training_content(content)
        spec = RecipeSpec.from_dict(as_mapping(content["recipe"], "recipe"))
        like = cls(recipe=spec)
        values = typed_fields(like, {name: value for name, value in content.items() if name != "recipe"})
        for name in ("train", "validation", "predict", "optional"):
            values[name] = _names(values.get(name, ()), name)
        _names(values.get("needs", {}).values(), "needs")
        return cls(**values | {"recipe": spec})

    def fingerprints(self, cases: Cases) -> npt.NDArray[np.uint64]:
        """What this training sees of every case, as its recipe says: an answer is of a case as it was seen."""
        return recipes.get(self.recipe.name).fingerprints(self.recipe, cases)

    def with_key(self, cases: Cases) -> Training:
        """The training with its key. What is predicted does not count: see `Outcome.covers`."""
        return replace(self, key=_hash(recipes.get(self.recipe.name).key_content(self, cases)))


def typed_fields(default: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `content` has of a dataclass, each of the type that its default has.

    Args:
        default: An object of the dataclass.
        content: Values by name; other names are left out.

    Returns:
        Keyword arguments of the dataclass.

    Raises:
        TypeError: A value is of another type than the default's.
    """
    values: dict[str, Any] = {}
    for f in fields(default):
        if f.name not in content:
            continue
        value, like = content[f.name], getattr(default, f.name)
        if isinstance(like, tuple):
            fits = isinstance(value, list | tuple)
            value = tuple(value) if fits else value
        elif isinstance(like, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif isinstance(like, Mapping):
            fits = isinstance(value, Mapping)
        else:
            fits = isinstance(value, type(like)) and isinstance(value, bool) == isinstance(like, bool)
        if not fits:
            raise TypeError(f"{f.name} is no {type(like).__name__}")
        values[f.name] = value
    return values


def as_mapping(value: Any, name: str) -> Mapping[str, Any]:
    """The value, where it is a mapping; TypeError where it is not."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is no mapping")
    return value


def _names(values: Any, name: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} holds something else than names")
    return tuple(values)


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a training gives: the answers to each task, and how the training went.

    Args:
        case: The predicted cases.
        fingerprint: What the training saw of each of them.
        answers: The answers by task, with a row for each case; `elsewhere.predictions.answers` has their classes.
        cost: (n, tasks, 3) `COSTS` of each case, in the order of the training's tasks.
        notes: What the recipe wants the report's reader to know.
        details: What the recipe found out about its training set, as plain JSON.
        history: An entry per epoch: epoch, train_loss, validation_loss, seconds.
        best_epoch: The epoch whose weights predicted.
        images: Training samples seen, repeats counted.
        seconds: How long it took.
        device: Where it ran.
        versions: Of the libraries that made these numbers.
        weights: Where they are kept: what the recipe learnt, as plain values, arrays and tensors.
        trained_on: Beside kept weights: whom they were trained on, hashed (`engine.trained_on`).
    """

    case: tuple[str, ...]
    fingerprint: npt.NDArray[np.uint64]
    answers: Mapping[str, Any] = field(default_factory=dict)
    cost: npt.NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Mapping[str, float], ...] = ()
    best_epoch: int = 0
    images: int = 0
    seconds: float = 0.0
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, Any] | None = None
    trained_on: Mapping[str, Any] | None = None

    def covers(self, names: tuple[str, ...], prints: npt.NDArray[np.uint64]) -> bool:
        """True where every named case was predicted as it is seen today."""
        held = dict(zip(self.case, self.fingerprint.tolist(), strict=True))
        return all(held.get(name) == int(p) for name, p in zip(names, prints, strict=True))


@dataclass(frozen=True, kw_only=True)
class Work:
    """What trainings refer to.

    Args:
        cases: The cases of the study.
        sources: How their pixels are read, by the name that recipes read them under.
        weights: Files of published weights by 'network/imagenet', for machines that cannot fetch them.
        outcomes: The outcome of a training that others need, by key.
        scratch: Where a recipe keeps its checkpoints, one folder per training; None: a temporary one.
        about: What kept weights tell of their training: 'study', 'cohorts' (hash per dataset), 'patients' (case ->
            'DATASET/id' and her id in another set), 'pixels' (case -> digest of its voxels). No number rests on it.
    """

    cases: Cases
    sources: Mapping[str, Source] = field(default_factory=dict)
    weights: Mapping[str, Path] = field(default_factory=dict)
    outcomes: Callable[[str], Outcome] | None = None
    scratch: Path | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
