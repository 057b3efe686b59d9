"""What a recipe is: a published method that trains on some cases and predicts others (MRI-14, MRI-15).

A recipe knows neither scenarios nor scores. It is given a `Job` and hands over an answer for each case and
task; the engine keys, stores and resumes it, and scoring is the same for all. Another package adds a recipe
by the entry-point group 'elsewhere.recipes'.
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
"""The cost of predicting a case as a share of the cost of training on it: a rule of thumb for estimates."""
Value = float | str | None
Box = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class RecipeCase:
    """What a recipe may know of a case besides its pixels.

    Args:
        case: The study's name of the case.
        dataset: The dataset that the case comes from.
        group: Cases of one group (a patient, or near-duplicates) must stay on one side of any split a recipe
            makes.
        label: 0 or 1, or -1 where it is not known. Always -1 for a case that is only predicted.
        clinical: Clinical columns (age, subtype, ...). Empty for a predicted case unless the recipe sees
            'clinical': MRI-02 withholds them at test time.
        box: Where the lesion is in a picture: x0, y0, x1, y1. None where it is not known, and for a predicted
            case unless the recipe sees 'lesion-box'.

    Example:
        >>> RecipeCase(case="D1/001", dataset="D1", group="P1", label=1, clinical={"age": 52.0}).box is None
        True
    """

    case: str
    dataset: str
    group: str
    label: int
    clinical: Mapping[str, Value]
    box: Box | None = None


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """The settings of a recipe: a frozen dataclass of plain values, each with a default.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MySettings(RecipeSettings):
        ...     epochs: int = 10
        >>> MySettings(epochs=2)
        MySettings(epochs=2)
    """


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One case's answers, and what they cost.

    Args:
        case: The name of the case.
        mask: The answer of the task whose answers are masks: [x, y, z] on the case's own grid, True in the
            tumour.
        probability: The answer of the task whose answers are probabilities, 0 to 1.
        answers: Answers of any kind, by task: `elsewhere.predictions.answers` says what a kind takes.
        seconds: Wall time of this prediction where it was measured (MRI-12; `recipes.cost`); NaN otherwise.
        peak_bytes: Peak memory in bytes; 0 where it was not measured.
        energy_joule: Energy in joules; NaN where it was not measured.

    Example:
        >>> Prediction(case="D1/001", probability=0.7).peak_bytes
        0
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
        tasks: The tasks that are asked for; at most what the recipe offers.
        train: The cases to learn from.
        validation: The cases on which the training is monitored.
        predict: The cases to predict. Their pixels can be read; their truth is hidden.
        volumes: The view of the recipe's source: of the source 'mri' the volumes, of 'pictures' the pictures.
        settings: An instance of the recipe's own `Settings`.
        seed: All randomness comes from it.
        device: 'cpu', 'cuda' or 'cuda:1'.
        scratch: A folder of this job alone, for checkpoints and caches; it survives a run that is killed.
        threads: CPU threads that the job may use.
        weights: Files of published weights by 'network/imagenet'.
        progress: Called with the name of the step, how much of it is done, and how much there is.
        keep: Whether the study saves this training's weights: a recipe that `keeps` hands them over in
            `Trained.weights`.
        emit: Called once per case and task; the prediction is packed at once, and its arrays may be reused.
        needs: The outcomes of other trainings that this one uses, by the name that the recipe gives them.
        kinds: The answer kind of each task.
        key: The training's key, which distinguishes jobs that run at the same time.
        name: The training's name, for a person.

    Example:
        >>> job = Job(tasks=("response",), train=(), validation=(), predict=(), volumes=None,
        ...           settings=RecipeSettings(), seed=1, device="cpu", scratch=Path("scratch"))
        >>> job.keep
        False
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
        """The view of the recipe's source, whatever the source is."""
        return self.volumes


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a recipe reports when its job is done.

    Args:
        history: One entry per epoch: epoch, train_loss, validation_loss, seconds.
        best_epoch: The epoch whose weights predicted.
        images: Training samples (pictures, patches, crops, slices) seen, repeats counted.
        notes: What a reader of the report must know: cases without a mask, a phase that was missing.
        details: Plain JSON: the fingerprint of the training set, spacing, patch size, chosen subgroups...
        weights: Where `job.keep`: all that `Recipe.apply` needs, as mappings, lists, numbers, text, bytes,
            arrays and tensors. Nothing that would have to be pickled: a model from another hospital must be
            safe to open.
        seconds: How long the training took, where jobs ran at the same time; None: as long as the call.

    Example:
        >>> Trained(images=40, notes=("2 cases have no mask.",)).best_epoch
        0
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
        jobs: The jobs in the order in which they should begin; each is made when it is asked for.
        finished: Called with a job and what it reports when it is done.
        failed: Called with a job and the exception that ended it; the other jobs continue.
        lanes: How many jobs may run at the same time; 0: as the recipe chooses.
        stop: Asked before a job begins; True leaves the rest undone; None: never. The stop of an engine also
            answers `too_late_for(job)`.
        progress: Called with the name of the step, how much of it is done, and how much there is; None:
            no progress is reported.
    """

    jobs: Iterable[Job]
    finished: Callable[[Job, Trained], None]
    failed: Callable[[Job, Exception], None]
    lanes: int = 0
    stop: Callable[[], bool] | None = None
    progress: Callable[[str, int, int], None] | None = None


class Recipe:
    """A published method that trains on some cases and predicts others; one file per recipe.

    A subclass sets the class attributes and `run`; `recipes.register(NAME)` names it.

    Attributes:
        title: The method in a few words.
        reads: The source whose pixels it is shown; '' for a recipe that looks at none.
        answers: The tasks that it does, each with its answer kind.
        sees: The kinds of truth that it is given of the cases that it predicts, whatever its settings: the
            report lists them. See `shown`.
        version: Goes up when the same job would give other numbers: it is part of a training's key.
        follows: Whose method it is, and how this recipe differs.
        keeps: Whether its weights can be saved: `run` hands them over where `job.keep` is set, and `apply`
            predicts from them.
        predicts: The parts of a split whose cases it predicts: 'test'; 'validation' where answers are
            calibrated on it, and 'normal' where cases without a lesion are tested separately.
        holds_out_validation: Whether no weights are learned from the validation part: it decides at most when
            training stops, which weights are used, and a shift of the operating point. Then the recipe also
            predicts that part, and its probabilities are calibrated on it.
        costs: Whether its predictions report what each of them cost.
        maps: 'package.module:Class' of what draws relevance maps of its saved weights; '' for none.
        needs: The names of the trainings that it may need; `study` plans know how to make them.

    Example:
        >>> class Half(Recipe):
        ...     answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
        ...     def run(self, job):
        ...         for case in job.predict:
        ...             job.emit(Prediction(case=case.case, probability=0.5))
        ...         return Trained()
        >>> Half.settings({})
        RecipeSettings()
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
        """Train on `job.train`, monitor on `job.validation`, and predict `job.predict`.

        Every case of `job.predict` goes to `job.emit`, for every task of `job.tasks`.

        Args:
            job: What to train and predict. All randomness has to come from `job.seed`.

        Returns:
            What a report needs to know of the training, with the weights where `job.keep` is set.

        Raises:
            NotImplementedError: The subclass does not define it.
        """
        raise NotImplementedError

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        """Predict `job.predict` from saved weights, for a hospital that the training never saw.

        Only a recipe that `keeps` needs it. `job.train` and `job.validation` are empty.

        Args:
            job: What to predict.
            weights: What `run` handed over in `Trained.weights`; tuples come back as lists.

        Returns:
            What a report needs to know of the predictions.

        Raises:
            NotImplementedError: The subclass does not define it.
        """
        raise NotImplementedError

    def run_many(self, batch: JobBatch) -> None:
        """Run several jobs: one after another, unless a recipe overrides this to share a device.

        Args:
            batch: The jobs, and the functions to call with their outcomes.
        """
        for job in batch.jobs:
            if batch.stop is not None and batch.stop():
                return
            try:
                trained = self.run(job) or Trained()
            except Exception as error:  # noqa: BLE001 - another author's code; the caller decides
                batch.failed(job, error)
            else:
                batch.finished(job, trained)

    @classmethod
    def shown(cls, settings: Any, needs: Collection[str] = ()) -> frozenset[str]:
        """Return the kinds of truth that a training is shown of the cases that it predicts.

        Args:
            settings: An instance of `Settings`.
            needs: The names of the other trainings whose answers it uses.

        Returns:
            Kinds of `elsewhere.inputs.source`. Without 'breast-box', for example, `job.volumes.breast_box` of
            a predicted case is None, and the breasts have to be found.
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
        """Return the files and folders that these settings name, by setting.

        Their bytes are a part of a training's key. A folder 'masks' must not hold the experts' masks
        (MRI-02).

        Args:
            settings: An instance of `Settings`.

        Returns:
            The paths; empty where the settings name none.
        """
        return {}

    @classmethod
    def settings(cls, values: Mapping[str, Any], *, where: str = "") -> RecipeSettings:
        """Make the recipe's settings from a study file.

        Args:
            values: Settings by name, as the file holds them; the rest have their defaults.
            where: The place in the file that messages name.

        Returns:
            An instance of `Settings`.

        Raises:
            UserError: A name is unknown (the message lists similar names), or a value is not of the type of
                its default.

        Example:
            >>> Recipe.settings({})
            RecipeSettings()
        """
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
        """Return what a training's key depends on.

        This is the recipe with its settings, the seed, and what it is given of its training and validation
        parts: pixels, mask, label, clinical values, and which cases share a dataset or a group. Names do not
        count, and what is predicted does not (see `Outcome.covers`).

        Args:
            training: The training, without its key.
            cases: The cases of the study.

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
        """Return what a training sees of every case: its pixels, and clinical values where it reads them.

        Args:
            spec: The recipe as the study asks for it.
            cases: The cases of the study.

        Returns:
            One number per case, a different one where what is seen differs.
        """
        prints = cases.fingerprints(with_box=False)
        return mixed_prints(prints, cases.clinical_prints) if spec.clinical else prints

    @classmethod
    def label(cls, spec: RecipeSpec) -> str:
        """Return the short name of what trains, for lists and progress.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            The name of the recipe, or of its network.
        """
        return spec.name

    @classmethod
    def group(cls, spec: RecipeSpec) -> str:
        """Return the group of a training.

        Trainings of one group share what is prepared for them and train at the same time.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            The name of the group.
        """
        return spec.name

    @classmethod
    def published_weights(cls, spec: RecipeSpec) -> tuple[str, ...]:
        """Return the networks whose ImageNet weights a training starts from.

        They follow from its settings `weights` and `network`.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            Names of networks; empty where it starts from none.
        """
        network = spec.settings.get("network")
        starts = spec.settings.get("weights") == "imagenet" and isinstance(network, str)
        return (str(network),) if starts else ()

    @classmethod
    def needs_truth(cls, spec: RecipeSpec) -> bool:
        """Say whether the experts' annotations must travel with its cases to a bare GPU machine.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            True where it needs them.
        """
        return True

    @classmethod
    def describe(cls, spec: RecipeSpec) -> dict[str, Any]:
        """Describe a training for a list of trainings.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            Plain JSON: recipe, version and settings.
        """
        return {"recipe": spec.name, "version": spec.version, "settings": dict(spec.settings)}

    # What an estimate asks

    @classmethod
    def effort(cls, training: Training, cases: Cases) -> float:
        """Estimate how much a training has to do, in a unit of the recipe's own.

        Trainings that are `alike` take the same number of seconds per unit.

        Args:
            training: The training, with its parts.
            cases: The cases of the study.

        Returns:
            Training cases, plus `PREDICTING` times the predicted cases.
        """
        return len(training.train) + PREDICTING * len(training.predict)

    @classmethod
    def samples(cls, training: Training, cases: Cases) -> int:
        """Return how many samples a training learns from at most, repeats counted.

        Args:
            training: The training, with its parts.
            cases: The cases of the study.

        Returns:
            The number of samples.
        """
        return len(training.train)

    @classmethod
    def effort_done(cls, training: Training, info: Mapping[str, Any]) -> float:
        """Return the effort of a training that is done, in the unit of `effort`.

        Args:
            training: The training, with its parts.
            info: What its store reports of it.

        Returns:
            The effort; 0 where `info` does not say.
        """
        return max(len(training.train) + PREDICTING * len(training.predict), 1.0)

    @classmethod
    def alike(cls, spec: RecipeSpec) -> str:
        """Return a text that is the same for trainings that take the same time for the same effort.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            The text.
        """
        return spec.text

    @classmethod
    def rough_seconds(cls, spec: RecipeSpec, device: str, cores: int) -> float | None:
        """Guess the seconds per unit of effort on a machine of which nothing is known yet.

        Args:
            spec: The recipe as the study asks for it.
            device: 'cpu' or 'cuda'.
            cores: Cores of the CPU.

        Returns:
            Seconds; None where it would be a mere guess: a recipe may be a coin or a week on a GPU.
        """
        return None

    @classmethod
    def together(cls, spec: RecipeSpec) -> int:
        """Return how many trainings of this recipe share a GPU.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            1 or more.
        """
        return 1


def recipe_of(name: str) -> type[Recipe]:
    """Return the registered recipe of a name.

    Args:
        name: The name that it is registered by.

    Returns:
        The class.

    Raises:
        UserError: There is none; the message lists near matches.

    Example:
        >>> recipe_of("random").title
        'Random classifier'
    """
    return cast(type[Recipe], recipes.get(name))


def codes(values: Sequence[str]) -> list[int]:
    """Number each value by its first appearance: names do not count, who shares one does.

    Args:
        values: Names, such as the dataset of each case.

    Returns:
        One number per value, from 0 on.

    Example:
        >>> codes(["B", "A", "B"])
        [0, 1, 0]
    """
    seen: dict[str, int] = {}
    return [seen.setdefault(value, len(seen)) for value in values]


def mixed_prints(one: npt.NDArray[np.uint64], two: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Combine two fingerprints of each case into one.

    Args:
        one: One fingerprint per case, (n,).
        two: Another fingerprint per case, (n,).

    Returns:
        One number per case, (n,), a different one where either fingerprint differs.

    Example:
        >>> one = np.array([1, 2], dtype=np.uint64)
        >>> bool(mixed_prints(one, one)[0] != mixed_prints(one, one[::-1])[0])
        True
    """
    pairs = np.column_stack([one, two]).astype("<u8")
    heads = b"".join(hashlib.sha256(pair.tobytes()).digest()[:8] for pair in pairs)
    return np.frombuffer(heads, dtype="<u8").astype(np.uint64)


def sees_clinical(recipe: type[Recipe]) -> bool:
    """Say whether a recipe reads clinical columns of the cases that it predicts.

    Args:
        recipe: The recipe.

    Returns:
        True where it does.

    Example:
        >>> sees_clinical(recipe_of("clinical")), sees_clinical(recipe_of("radiomics"))
        (True, False)
    """
    return CLINICAL in recipe.sees


def given_words(
    recipe: type[Recipe], values: Mapping[str, Any] | None = None, needs: Collection[str] = ()
) -> tuple[str, ...]:
    """Say in words what a recipe is given of a tested case besides its pixels.

    Args:
        recipe: The recipe.
        values: Its settings, as a study file holds them. Settings that this version does not take count as
            none.
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
    """Return the cases whose outcome is known.

    Args:
        cases: Cases with a label of 0, 1 or -1.

    Returns:
        Those with 0 or 1, in their order.

    Example:
        >>> case = RecipeCase(case="a", dataset="D", group="a", label=-1, clinical={})
        >>> of_label([case])
        ()
    """
    return tuple(case for case in cases if case.label >= 0)
