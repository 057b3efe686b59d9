"""What a recipe is: a published method that trains on some cases and predicts others (MRI-14, MRI-15).

A recipe knows neither scenarios nor scores. It is given a `Job` and hands over an answer for each case and task; the
engine keys, stores and resumes it, and scoring is the same for all. Another package brings a recipe by the
entry-point group 'elsewhere.recipes'.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from elsewhere.engine.registry import recipes
from elsewhere.engine.training import TRAINING_VERSION, Outcome, RecipeSpec, Training
from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.source import CLINICAL, sources

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

__all__ = [
    "RESPONSE",
    "SEGMENTATION",
    "Job",
    "Prediction",
    "Recipe",
    "RecipeCase",
    "RecipeSettings",
    "Trained",
    "recipes",
]

SEGMENTATION, RESPONSE = "segmentation", "response"
PREDICTING = 0.35
"""What predicting a case costs, as a part of training on it: a rule of thumb for estimates."""
Value = float | str | None
Box = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class RecipeCase:
    """What a recipe may know of a case beside its pixels.

    Args:
        case: The study's name of the case.
        dataset: Of the case.
        group: Cases of one group (a patient, or near-duplicates) must stay on one side of any split a recipe makes.
        label: 0 or 1, or -1 where it is not known. Always -1 for a case that is only predicted.
        clinical: Clinical columns (age, subtype, ...). Empty for a predicted case unless the recipe sees 'clinical':
            MRI-02 withholds them at test time.
        box: Where the lesion is in a picture: x0, y0, x1, y1. None where it is not known, and for a predicted case
            unless the recipe sees 'lesion-box'.
    """

    case: str
    dataset: str
    group: str
    label: int
    clinical: Mapping[str, Value]
    box: Box | None = None


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """Of a recipe: a frozen dataclass of plain values, each with a default."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case's answers, and what they cost.

    Args:
        case: Which.
        mask: Of the task whose answers are masks: on the case's own grid.
        probability: Of the task whose answers are probabilities.
        answers: By task, of any kind: `elsewhere.predictions.answers` says what a kind takes.
        seconds: The cost of this prediction where it was measured (MRI-12; `recipes.cost`).
        peak_bytes: Memory; 0 where it was not measured.
        energy_joule: Energy.
    """

    case: str
    mask: npt.NDArray[np.bool_] | None = None
    probability: float | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = float("nan")
    peak_bytes: int = 0
    energy_joule: float = float("nan")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training and its predictions, as a recipe is given them.

    Args:
        tasks: What is asked for; at most what the recipe offers.
        train: The cases to learn from.
        validation: The cases to watch.
        predict: The cases to predict. Their pixels can be read; their truth is hidden.
        volumes: The view of the recipe's source: of the source 'mri' the volumes, of 'pictures' the pictures.
        settings: An instance of the recipe's own `Settings`.
        seed: All randomness comes from it.
        device: 'cpu', 'cuda', 'cuda:1'.
        scratch: A folder of this job's own, kept between a killed run and the next: for checkpoints and caches.
        threads: Of a CPU.
        weights: Files of published weights by 'network/imagenet'.
        progress: Called with what is done, how much, and how much there is.
        keep: Whether the study keeps this training's weights: a recipe that `keeps` hands them over in
            `Trained.weights`.
        emit: Called once a case and task; what was handed over is packed and may be reused.
        needs: The outcomes of other trainings that this one uses, by the name that the recipe gives them.
        kinds: The answer kind of each task.
        key: The training's, to tell jobs that run side by side from each other.
        name: What a person reads.
    """

    tasks: tuple[str, ...]
    train: tuple[RecipeCase, ...]
    validation: tuple[RecipeCase, ...]
    predict: tuple[RecipeCase, ...]
    volumes: Any
    settings: Any
    seed: int
    device: str
    scratch: Path
    threads: int = 1
    weights: Mapping[str, Path] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    keep: bool = False
    emit: Callable[[Prediction], None] = field(default=lambda prediction: None)
    needs: Mapping[str, Outcome] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    name: str = ""

    @property
    def pixels(self) -> Any:
        """The view of the recipe's source, whatever it is."""
        return self.volumes


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a job says of itself when it is done.

    Args:
        history: An entry per epoch: epoch, train_loss, validation_loss, seconds.
        best_epoch: The epoch whose weights predicted.
        images: Training samples (pictures, patches, crops, slices) seen, repeats counted.
        notes: What a reader of the report must know: cases without a mask, a phase that was missing.
        details: Plain JSON: the fingerprint of the training set, spacing, patch size, chosen subgroups...
        weights: Where `job.keep`: all that `Recipe.apply` needs, as mappings, lists, numbers, text, bytes, arrays and
            tensors. Nothing that would have to be pickled: a model from elsewhere must be safe to open.
        seconds: How long it took, where jobs ran side by side; None: as long as the call.
    """

    history: tuple[Mapping[str, float], ...] = ()
    best_epoch: int = 0
    images: int = 0
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobBatch:
    """Several jobs of one recipe on one device.

    Args:
        jobs: In the order in which they should begin; each is made when it is asked for.
        finished: Called when a job is done.
        failed: Called with the exception that ended a job; the others go on.
        lanes: How many may run side by side; 0: as the recipe chooses.
        stop: Asked before a job begins; True leaves the rest undone. An engine's own also answers
            `too_late_for(job)`.
        progress: Called with what is done, how much, and how much there is.
    """

    jobs: Iterable[Job]
    finished: Callable[[Job, Trained], None]
    failed: Callable[[Job, Exception], None]
    lanes: int = 0
    stop: Callable[[], bool] | None = None
    progress: Callable[[str, int, int], None] | None = None


class Recipe:
    """One file each. A subclass sets the class attributes and `run`; `recipes.register(NAME)` names it.

    Attributes:
        title: In words.
        reads: The source whose pixels it is shown; '' for a recipe that looks at none.
        answers: The tasks that it does, each with its answer kind.
        sees: The kinds of truth that it is given of the cases that it predicts, whatever its settings: the report
            says so. See `shown`.
        version: Goes up when the same job would give other numbers: it is part of a training's key.
        follows: Whose method, and how this differs.
        keeps: Whether its weights can be kept: `run` hands them over where `job.keep` says so, and `apply` predicts
            from them.
        predicts: The parts of a split whose cases it predicts: 'test'; 'validation' where answers are calibrated on it,
            and 'normal' where cases without a lesion are tested apart.
        holds_out_validation: Whether the validation part decides at most when training stops and which weights are
            used. Then the recipe also predicts that part, and its probabilities are calibrated on it.
        costs: Whether its predictions tell what each of them cost.
        maps: 'package.module:Class' of what draws relevance maps of its kept weights; '' for none.
        needs: The names of the trainings that it may need; `study` plans know how to make them.
    """

    title: ClassVar[str] = ""
    reads: ClassVar[str] = "mri"
    answers: ClassVar[Mapping[str, str]] = {}
    sees: ClassVar[frozenset[str]] = frozenset()
    version: ClassVar[int] = 1
    follows: ClassVar[str] = ""
    keeps: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("test",)
    holds_out_validation: ClassVar[bool] = False
    costs: ClassVar[bool] = True
    maps: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    Settings: ClassVar[type[RecipeSettings]] = RecipeSettings

    def run(self, job: Job) -> Trained:
        """Train on `job.train`, watch `job.validation`, and `job.emit` every case of `job.predict` for every
        task of `job.tasks`. All randomness comes from `job.seed`."""
        raise NotImplementedError

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        """Predict `job.predict` from `weights`, as `run` handed them over (tuples come back as lists), for a hospital
        that the training never saw. `job.train` and `job.validation` are empty. Of a recipe that `keeps`."""
        raise NotImplementedError

    def run_many(self, batch: JobBatch) -> None:
        """Run several jobs: one after another, unless a recipe shares a device better than that.

        Args:
            batch: The jobs, and whom to tell what came of them.
        """
        for job in batch.jobs:
            if batch.stop is not None and batch.stop():
                return
            try:
                trained = self.run(job) or Trained()
            except Exception as error:  # noqa: BLE001 - a stranger's code; whoever asked decides what it means
                batch.failed(job, error)
            else:
                batch.finished(job, trained)

    @classmethod
    def shown(cls, settings: Any, needs: Collection[str] = ()) -> frozenset[str]:
        """The kinds of truth that a training with these settings is shown of the cases that it predicts.

        Args:
            settings: An instance of `Settings`.
            needs: The names of the other trainings whose answers it uses.

        Returns:
            Kinds of `elsewhere.inputs.source`. Without 'breast-box', say, `job.volumes.breast_box` of a predicted case
            is None, and the breasts have to be found.
        """
        return cls.sees

    @classmethod
    def can_give(cls, kind: str) -> bool:
        """Say whether it can answer any task whose answers are of a kind, beside the tasks of `answers`.

        Args:
            kind: The name of an answer kind.

        Returns:
            Whether it can. `job.kinds` then names the kind of each task.
        """
        return False

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

    # What the engine asks

    @classmethod
    def key_content(cls, training: Training, cases: Cases) -> Mapping[str, Any]:
        """What a training's key depends on: the recipe with its settings, the seed, and what it is given of its
        training and validation parts: pixels, mask, label, clinical values, and which of them share a dataset or a
        group. Names do not count, and what is predicted does not (see `Outcome.covers`).

        Args:
            training: Without its key.
            cases: Of the study.

        Returns:
            Plain JSON.
        """
        rows = cases.rows((*training.train, *training.validation))
        prints, clinical = cases.fingerprints(with_box=False), cases.clinical_prints
        datasets = codes([cases.dataset[r] for r in rows])
        groups = codes([cases.group[r] if cases.group else cases.case[r] for r in rows])
        seen = [
            [
                format(int(prints[r]), "016x"),
                cases.mask_digest[r] if cases.mask_digest else "",
                int(cases.label[r]),
                format(int(clinical[r]), "016x"),
                dataset,
                group,
            ]
            for r, dataset, group in zip(rows, datasets, groups, strict=True)
        ]
        content = {
            "version": TRAINING_VERSION,
            "kind": "recipe",
            "job": training.recipe.to_dict(),
            "seed": training.seed,
            "train": seen[: len(training.train)],
            "validation": seen[len(training.train) :],
        }
        return content | ({"needs": dict(training.needs)} if training.needs else {})

    @classmethod
    def fingerprints(cls, spec: RecipeSpec, cases: Cases) -> npt.NDArray[np.uint64]:
        """What a training sees of every case: its pixels, and clinical values where it reads them.

        Args:
            spec: The recipe as the study asks for it.
            cases: Of the study.

        Returns:
            A number for each case, another one where what is seen differs.
        """
        prints = cases.fingerprints(with_box=False)
        return mixed_prints(prints, cases.clinical_prints) if spec.clinical else prints

    @classmethod
    def label(cls, spec: RecipeSpec) -> str:
        """What trains, in a word."""
        return spec.name

    @classmethod
    def group(cls, spec: RecipeSpec) -> str:
        """Trainings of one group share what is prepared for them: they are trained side by side."""
        return spec.name

    @classmethod
    def published_weights(cls, spec: RecipeSpec) -> tuple[str, ...]:
        """The networks whose ImageNet weights a training starts from: by its settings `weights` and `network`."""
        network = spec.settings.get("network")
        starts = spec.settings.get("weights") == "imagenet" and isinstance(network, str)
        return (str(network),) if starts else ()

    @classmethod
    def needs_truth(cls, spec: RecipeSpec) -> bool:
        """Whether the experts' annotations must travel with its cases to a bare machine."""
        return True

    @classmethod
    def describe(cls, spec: RecipeSpec) -> dict[str, Any]:
        """What a list of trainings says of it."""
        return {"recipe": spec.name, "version": spec.version, "settings": dict(spec.settings)}

    # What an estimate asks

    @classmethod
    def effort(cls, training: Training, cases: Cases) -> float:
        """How much there is to do, in a unit of the recipe's own: trainings that are `alike` take as many seconds for
        each."""
        return len(training.train) + PREDICTING * len(training.predict)

    @classmethod
    def samples(cls, training: Training, cases: Cases) -> int:
        """How many samples it trains on at most, repeats counted."""
        return len(training.train)

    @classmethod
    def effort_done(cls, training: Training, info: Mapping[str, Any]) -> float:
        """The effort of a training that is done; `info` is what its store says of it. 0 where it tells nothing."""
        return max(len(training.train) + PREDICTING * len(training.predict), 1.0)

    @classmethod
    def alike(cls, spec: RecipeSpec) -> str:
        """Trainings of which this is the same take the same time for the same effort."""
        return spec.text

    @classmethod
    def rough_seconds(cls, spec: RecipeSpec, device: str, cores: int) -> float | None:
        """Seconds for each effort on a 'cpu' of so many cores, or a 'cuda' GPU, of which nothing is known yet.

        Returns:
            None where it would be a mere guess: a recipe may be a coin or a week on a GPU.
        """
        return None

    @classmethod
    def together(cls, spec: RecipeSpec) -> int:
        """How many of its trainings share a GPU."""
        return 1


def recipe_of(name: str) -> type[Recipe]:
    """The registered recipe of this name.

    Args:
        name: As it is registered.

    Returns:
        The class.

    Raises:
        UserError: There is none; the message lists near matches.
    """
    return cast(type[Recipe], recipes.get(name))


def codes(values: Sequence[str]) -> list[int]:
    """Number each value by its first appearance: names do not count, who shares one does."""
    seen: dict[str, int] = {}
    return [seen.setdefault(value, len(seen)) for value in values]


def mixed_prints(one: npt.NDArray[np.uint64], two: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Two fingerprints of each case as one."""
    pairs = np.column_stack([one, two]).astype("<u8")
    heads = b"".join(hashlib.sha256(pair.tobytes()).digest()[:8] for pair in pairs)
    return np.frombuffer(heads, dtype="<u8").astype(np.uint64)


def sees_clinical(recipe: type[Recipe]) -> bool:
    """Whether a recipe reads clinical columns of the cases that it predicts."""
    return CLINICAL in recipe.sees


def given_words(
    recipe: type[Recipe], values: Mapping[str, Any] | None = None, needs: Collection[str] = ()
) -> tuple[str, ...]:
    """Say in words what a recipe is given of a tested case beside its pixels.

    Args:
        recipe: The recipe.
        values: Its settings, as a study file holds them. Settings that this version does not take count as none.
        needs: The names of the other trainings whose answers it uses.

    Returns:
        Nouns for a report; none where it is given nothing.

    Example:
        >>> given_words(recipe_of("clinical"))
        ('clinical columns',)
    """
    try:
        shown = recipe.shown(recipe.settings(values or {}), needs)
    except UserError:
        shown = recipe.sees
    truths = sources.get(recipe.reads).truths if recipe.reads else {}
    return tuple(
        word for kind, word in ({CLINICAL: "clinical columns"} | dict(truths)).items() if kind in shown
    )


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


def of_label(cases: Sequence[RecipeCase]) -> tuple[RecipeCase, ...]:
    """Those whose outcome is known."""
    return tuple(case for case in cases if case.label >= 0)
