"""One training with all its predictions, and its outcome: plain data that travels as JSON and arrays.

A training's key is the hash of everything its numbers depend on, so that the same training is never done
twice (US-10: a source's training serves all its targets). Its recipe defines what that is.
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
"""Increased when the same training would give other numbers; older results are then not reused."""
COSTS = ("seconds", "peak_bytes", "energy_joule")
"""The columns of `Outcome.cost` for a case and task (MRI-12); NaN where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class RecipeSpec:
    """Which recipe trains, and how (MRI-14, MRI-15).

    Args:
        name: The name under which the recipe is registered.
        version: The version of the recipe's own code.
        settings: Plain values, every default written out.
        tasks: What is asked of it, in the recipe's order.
        clinical: Whether it reads clinical columns of what it predicts.
        files: Digests of the files that settings name (weights, a folder of masks), by setting.
        kinds: The answer kind of each task that the recipe is not made for, and can answer.

    Example:
        >>> spec = RecipeSpec(name="coin", tasks=("response",))
        >>> RecipeSpec.from_dict(spec.to_dict()) == spec
        True
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
        """Make the spec that `to_dict` described.

        Args:
            content: Values by field; 'name' is required, other fields have defaults, unknown names are
                ignored.

        Returns:
            The spec.

        Raises:
            TypeError: A value is of another type than its field.
            KeyError: The name is missing.
        """
        values = {"name": content["name"], **typed_fields(cls(name=""), content)}
        return cls(**values | {"tasks": _names(values.get("tasks", ()), "tasks")})

    def to_dict(self) -> dict[str, Any]:
        """Describe the spec as JSON gives it back, with lists for tuples.

        Keys depend on this content: without files or kinds it has no such entries, as before there were any.

        Returns:
            Values that JSON can hold, by field.
        """
        content = dict(json.loads(json.dumps(asdict(self))))
        for name in ("files", "kinds"):
            if not content[name]:
                del content[name]
        return content

    @cached_property
    def text(self) -> str:
        """The spec as one line of JSON; the same spec gives the same text."""
        return json.dumps(self.to_dict(), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training. Its parts name cases of the study ('DATASET/case_id').

    Args:
        recipe: Which recipe trains, and how.
        key: The hash of all that its numbers depend on; `with_key` sets it.
        name: The name that lists and messages show.
        train: The cases that it learns from.
        validation: The cases that it is watched on.
        predict: The cases whose answers are asked for.
        optional: Cases that are predicted when the training is run, and that a stored outcome may lack: it is
            complete without them. They do not change the key.
        seed: All randomness comes from it.
        keep_weights: Whether the outcome includes what was learnt.
        needs: Keys of other trainings whose answers this one uses, by the name that its recipe gives them.

    Example:
        >>> unit = Training(recipe=RecipeSpec(name="coin"), train=("A/1",), predict=("B/1",))
        >>> unit.cases, Training.from_dict(unit.to_dict()) == unit
        (('A/1', 'B/1'), True)
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
        """The name of what trains: a network, or the recipe."""
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
        """Describe the training as plain values; `from_dict` reads them.

        Returns:
            Values that JSON can hold, by field.
        """
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        content |= {"recipe": self.recipe.to_dict(), "needs": dict(self.needs)}
        for name in ("train", "validation", "predict", "optional"):
            content[name] = list(content[name])
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Training:
        """Make the training that `to_dict` described, in this version or in an earlier one.

        Args:
            content: Plain values; they may come from a stranger.

        Returns:
            The training.

        Raises:
            TypeError: A value is of another type than it should be.
            KeyError: There is no recipe, or it has no name.
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
        """Return what this training sees of every case, as its recipe defines it.

        An answer belongs to a case as it was seen: where the fingerprint changes, the case is predicted
        again.

        Args:
            cases: The cases of the study.

        Returns:
            (n,) one number per case, in the order of the cases.

        Raises:
            UserError: The recipe is not registered.
        """
        return recipes.get(self.recipe.name).fingerprints(self.recipe, cases)

    def with_key(self, cases: Cases) -> Training:
        """Return the training with its key. What is predicted does not count: see `Outcome.covers`.

        Args:
            cases: The cases of the study, which its parts name.

        Returns:
            The training with the key that its recipe's `key_content` gives.

        Raises:
            UserError: The recipe is not registered.
        """
        return replace(self, key=_hash(recipes.get(self.recipe.name).key_content(self, cases)))


def typed_fields(default: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """Select the fields that `content` has of a dataclass, each of the type that its default has.

    Args:
        default: An object of the dataclass.
        content: Values by name; other names are left out.

    Returns:
        Keyword arguments of the dataclass.

    Raises:
        TypeError: A value is of another type than the default's.

    Example:
        >>> typed_fields(RecipeSpec(name=""), {"tasks": ["response"], "colour": "red"})
        {'tasks': ('response',)}
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
            raise TypeError(f"{f.name} is not of the type {type(like).__name__}")
        values[f.name] = value
    return values


def as_mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return the value where it is a mapping.

    Args:
        value: Any value.
        name: What the value is called in the error.

    Returns:
        The value.

    Raises:
        TypeError: It is no mapping.

    Example:
        >>> as_mapping({"name": "coin"}, "recipe")
        {'name': 'coin'}
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is not a mapping")
    return value


def _names(values: Any, name: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} contains something other than names")
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
        answers: The answers by task, with a row for each case; `elsewhere.predictions.answers` has their
            classes.
        cost: (n, tasks, 3) `COSTS` of each case, in the order of the training's tasks; None: not measured.
        notes: What the recipe wants the report's reader to know.
        details: What the recipe found out about its training set, as plain JSON.
        history: An entry per epoch: epoch, train_loss, validation_loss, seconds.
        best_epoch: The epoch whose weights predicted.
        images: Training samples seen, repeats counted.
        seconds: How long it took.
        device: Where it ran.
        versions: Versions of the libraries that made these numbers, by library.
        weights: What the recipe learnt, as plain values, arrays and tensors; None: weights are not saved.
        trained_on: Who trained the saved weights, hashed (`engine.trained_on`); None: weights are not saved.

    Example:
        >>> outcome = Outcome(case=("A/1",), fingerprint=np.array([7], dtype=np.uint64))
        >>> outcome.covers(("A/1",), outcome.fingerprint), outcome.covers(("B/1",), outcome.fingerprint)
        (True, False)
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
        """Say whether every named case was predicted as it is seen today.

        Args:
            names: The cases.
            prints: The fingerprint of each of them today, in the same order.

        Returns:
            True where none is missing and no fingerprint has changed.
        """
        held = dict(zip(self.case, self.fingerprint.tolist(), strict=True))
        return all(held.get(name) == int(p) for name, p in zip(names, prints, strict=True))


@dataclass(frozen=True, kw_only=True)
class Work:
    """What trainings refer to.

    Args:
        cases: The cases of the study.
        sources: How their pixels are read, by the name that recipes read them under.
        weights: Files of published weights by 'network/imagenet', for machines that cannot fetch them.
        outcomes: A function from the key of a training that others need to its outcome; None: there are none.
        scratch: Where a recipe saves its checkpoints, one folder per training; None: a temporary folder.
        about: What saved weights record of their training: 'study', 'cohorts' (hash per dataset), 'patients'
            (case -> 'DATASET/id' and the id in another dataset), 'pixels' (case -> digest of its voxels). No
            number depends on it.
    """

    cases: Cases
    sources: Mapping[str, Source] = field(default_factory=dict)
    weights: Mapping[str, Path] = field(default_factory=dict)
    outcomes: Callable[[str], Outcome] | None = None
    scratch: Path | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
