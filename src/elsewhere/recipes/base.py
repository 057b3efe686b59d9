"""What a recipe is: a published method that trains on some cases and predicts others (MRI-14, MRI-15).

A recipe knows neither scenarios nor scores. It is given a `Job` and hands over a mask or a probability a
case; the engine keys, stores and resumes it, and scoring is the same for all. Another package brings a recipe
by the entry-point group 'elsewhere.recipes'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.volumes import Volumes
from elsewhere.registry import Registry

SEGMENTATION, RESPONSE = "segmentation", "response"
TASKS = (SEGMENTATION, RESPONSE)
Value = float | str | None


@dataclass(frozen=True, kw_only=True)
class RecipeCase:
    """What a recipe may know of a case beside its volume."""

    case: str
    dataset: str
    group: str
    """Cases of one group (a patient, or near-duplicates) must stay on one side of any split a recipe makes."""
    label: int
    """pCR: 0, 1, or -1 where it is not known. Always -1 for a case that is only predicted."""
    clinical: Mapping[str, Value]
    """Clinical columns (age, subtype, ...). Empty for a predicted case unless the recipe `uses_clinical`:
    MRI-02 withholds them at test time."""


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """Of a recipe: a frozen dataclass of plain values, each with a default."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training and its predictions."""

    tasks: tuple[str, ...]
    """What is asked for; at most what the recipe offers."""
    train: tuple[RecipeCase, ...]
    validation: tuple[RecipeCase, ...]
    predict: tuple[RecipeCase, ...]
    """Volumes of these can be read; `volumes.mask` answers None for a case that is only predicted."""
    volumes: Volumes
    settings: Any
    """An instance of the recipe's own `Settings`."""
    seed: int
    device: str
    """'cpu', 'cuda', 'cuda:1'."""
    scratch: Path
    """A folder of this job's own, kept between a killed run and the next: checkpoints and caches go here."""
    threads: int = 1
    weights: Mapping[str, Path] = field(default_factory=dict)
    """Files of weights by 'network/imagenet'."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    keep: bool = False
    """The study keeps this training's weights: a recipe that `keeps` hands them over in `Trained.weights`."""
    emit: Callable[[Prediction], None] = field(default=lambda prediction: None)
    """Called once a case and task; what was handed over is packed and may be reused."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case: a mask on its own grid, or a probability of pCR. `seconds`, `peak_bytes` and `energy_joule`
    are the cost of this prediction where it was measured (MRI-12; `recipes.cost`), NaN, 0 and NaN where not."""

    case: str
    mask: npt.NDArray[np.bool_] | None = None
    probability: float | None = None
    seconds: float = float("nan")
    peak_bytes: int = 0
    energy_joule: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a job says of itself when it is done."""

    history: tuple[Mapping[str, float], ...] = ()
    """An entry an epoch: epoch, train_loss, validation_loss, seconds."""
    best_epoch: int = 0
    images: int = 0
    """Training samples (patches, crops, slices) seen, repeats counted."""
    notes: tuple[str, ...] = ()
    """What a reader of the report must know: cases without a mask, a phase that was missing."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON: the fingerprint of the training set, spacing, patch size, chosen subgroups..."""
    weights: Mapping[str, Any] | None = None
    """Where `job.keep`: all that `Recipe.apply` needs, as mappings, lists, numbers, text, bytes, arrays and tensors.
    Nothing that would have to be pickled: a model from elsewhere must be safe to open."""


class Recipe:
    """One file each. A subclass sets the class attributes and `run`; `recipes.register(NAME)` names it.

    `version` goes up when the same job would give other numbers: it is part of a training's key.
    """

    title: ClassVar[str] = ""
    tasks: ClassVar[frozenset[str]] = frozenset()
    version: ClassVar[int] = 1
    follows: ClassVar[str] = ""
    """Whose method, and how this differs."""
    uses_clinical: ClassVar[bool] = False
    """It reads clinical columns of the cases that it predicts."""
    uses_lesion_box: ClassVar[bool] = False
    """It is told where the lesion is in the cases that it predicts, by the publisher's box, where there is
    one: truth that a clinic would have to find first. The report says so."""
    uses_breast_box: ClassVar[bool] = False
    """Whatever its settings, it is told the expert's box of the affected breast in the cases that it predicts. The
    challenge gives that box for training alone: the report says so. See `asks_breast_box`."""
    uses_volumes: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    """Its weights can be kept: `run` hands them over where `job.keep` says so, and `apply` predicts from them."""
    Settings: ClassVar[type[RecipeSettings]] = RecipeSettings

    def run(self, job: Job) -> Trained:
        """Train on `job.train`, watch `job.validation`, and `job.emit` every case of `job.predict` for every
        task of `job.tasks`. All randomness comes from `job.seed`."""
        raise NotImplementedError

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        """Predict `job.predict` from `weights`, as `run` handed them over (tuples come back as lists), for a hospital
        that the training never saw. `job.train` and `job.validation` are empty. Of a recipe that `keeps`."""
        raise NotImplementedError

    @classmethod
    def asks_breast_box(cls, settings: Any) -> bool:
        """Whether these settings ask for the expert's box of the affected breast in cases that are predicted:
        without it `job.volumes.breast_box` of such a case is None, and the breasts have to be found."""
        return cls.uses_breast_box

    @classmethod
    def files(cls, settings: Any) -> Mapping[str, Path]:
        """Files and folders that these settings name, by setting: their bytes are a part of a training's key. A
        folder 'masks' must not hold the experts' (MRI-02)."""
        return {}

    @classmethod
    def settings(cls, values: Mapping[str, Any], *, where: str = "") -> RecipeSettings:
        """The recipe's settings from a study file; a key it does not know is refused with its neighbours."""
        known = {f.name: f for f in dataclasses.fields(cls.Settings)}
        for name in values:
            if name not in known:
                raise UserError(
                    f"unknown setting '{name}'",
                    where=where,
                    fix=_neighbours(name, list(known)),
                )
        clean: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        made = cls.Settings()
        for name, value in clean.items():
            wanted = getattr(made, name)
            if not _fits(value, wanted):
                raise UserError(
                    f"the setting '{name}' is {value!r}",
                    where=where,
                    fix=f"It is of the kind of its default, {wanted!r}.",
                )
            clean[name] = float(value) if isinstance(wanted, float) else value
        return cls.Settings(**clean)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value of a study file can stand for a default: a whole number passes for a decimal one."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, tuple):
        return isinstance(value, tuple)
    return default is None or isinstance(value, type(default))


def _neighbours(name: str, known: list[str]) -> str:
    near = near_matches(name, known)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known) or 'none'}."


recipes: Registry[type[Recipe]] = Registry(
    "recipe",
    group="elsewhere.recipes",
    builtin_modules=("elsewhere.recipes.builtin",),
    list_command="elsewhere recipes",
)


def of_label(cases: Sequence[RecipeCase]) -> tuple[RecipeCase, ...]:
    """Those whose outcome is known."""
    return tuple(case for case in cases if case.label >= 0)
