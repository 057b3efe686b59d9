"""The recipe 'picture-classifier': a network on whole pictures or lesion crops (US-12 to US-16)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.engine.training import RecipeSpec, Training
from elsewhere.errors import UserError
from elsewhere.inputs.source import LESION_BOX, MASK
from elsewhere.predictions.answers import ProbabilityAnswer
from elsewhere.recipes.base import (
    PREDICTING,
    Job,
    JobBatch,
    Prediction,
    Recipe,
    RecipeSettings,
    Trained,
    recipes,
)
from elsewhere.recipes.pictures.settings import (
    CLASSIFICATION,
    CLASSIFIER,
    NEEDS_BOXES,
    PictureSettings,
    picture_settings,
    settings_of,
)
from elsewhere.recipes.pictures.shared import (
    picture_key_content,
    picture_training,
    run_alone,
    run_together,
    shared_work,
)
from elsewhere.recipes.pictures.speed import lanes_of, rough_seconds
from elsewhere.training.pictures.settings import PictureOutcome

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases


class PictureRecipe(Recipe):
    """What the recipes that read pictures share: settings, keys and estimates."""

    reads: ClassVar[str] = "pictures"
    kind: ClassVar[str] = ""
    """As the keys of stored trainings name it."""
    keeps: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = ("validation", "test", "normal")
    costs: ClassVar[bool] = False
    Settings: ClassVar[type[RecipeSettings]] = PictureSettings

    @classmethod
    def settings(cls, values: Mapping[str, Any], *, where: str = "") -> RecipeSettings:
        made = cls.Settings()
        return picture_settings(values, where=where, made=made if isinstance(made, PictureSettings) else None)

    @classmethod
    def key_content(cls, training: Training, cases: Cases) -> Mapping[str, Any]:
        prints = cls.fingerprints(training.recipe, cases)
        return picture_key_content(training, cases, cls.kind, prints)

    @classmethod
    def fingerprints(cls, spec: RecipeSpec, cases: Cases) -> npt.NDArray[np.uint64]:
        """The pixels; the box too for a crop; the mask too where it is a channel or what is learnt.

        Args:
            spec: The recipe as the study asks for it.
            cases: The cases of the study.

        Returns:
            One number per case, a different one where what is seen differs.
        """
        with_mask = cls.needs_truth(spec)
        with_box = settings_of(spec).input.kind == "roi" or with_mask
        return cases.fingerprints(with_box=with_box, with_mask=with_mask)

    @classmethod
    def needs_truth(cls, spec: RecipeSpec) -> bool:
        return settings_of(spec).input.outline

    @classmethod
    def label(cls, spec: RecipeSpec) -> str:
        return settings_of(spec).training.network

    @classmethod
    def group(cls, spec: RecipeSpec) -> str:
        held = settings_of(spec)
        return f"{spec.name} {held.training.network} {held.input}"

    @classmethod
    def published_weights(cls, spec: RecipeSpec) -> tuple[str, ...]:
        held = settings_of(spec).training
        return (held.network,) if held.weights == "imagenet" else ()

    @classmethod
    def effort(cls, training: Training, cases: Cases) -> float:
        return cls.samples(training, cases) + PREDICTING * len(training.predict)

    @classmethod
    def samples(cls, training: Training, cases: Cases) -> int:
        return len(training.train) * settings_of(training.recipe).training.epochs

    @classmethod
    def effort_done(cls, training: Training, info: Mapping[str, Any]) -> float:
        images = int(info.get("images") or 0)
        return images + PREDICTING * len(training.predict) if images else 0.0

    @classmethod
    def alike(cls, spec: RecipeSpec) -> str:
        held = settings_of(spec)
        return f"{held.training.network} {held.input.kind} {held.input.size_px}"

    @classmethod
    def rough_seconds(cls, spec: RecipeSpec, device: str, cores: int) -> float | None:
        held = settings_of(spec)
        return rough_seconds(held.training, held.input, device, cores)

    @classmethod
    def together(cls, spec: RecipeSpec) -> int:
        return lanes_of(settings_of(spec).training)


@recipes.register(CLASSIFIER)
class PictureClassifier(PictureRecipe):
    """Trainings of one batch share the decoded pictures and, on a GPU, run at the same time."""

    title = "Network on pictures"
    kind: ClassVar[str] = "classify"
    answers: ClassVar[Mapping[str, str]] = {CLASSIFICATION: "probability"}
    version = 1
    follows = (
        "The published study's CNN and vision transformer; also other networks and multi-source methods."
    )
    needs: ClassVar[tuple[str, ...]] = (NEEDS_BOXES,)
    maps: ClassVar[str] = "elsewhere.explain.trainings:Explainer"

    @classmethod
    def shown(cls, settings: Any, needs: Collection[str] = ()) -> frozenset[str]:
        held: PictureSettings = settings
        crop = {LESION_BOX} if held.input.kind == "roi" and NEEDS_BOXES not in needs else set()
        return frozenset(crop | ({MASK} if held.input.outline else set()))

    @classmethod
    def samples(cls, training: Training, cases: Cases) -> int:
        """At most: every epoch, with the rarer class drawn as often as the other.

        Args:
            training: The training, with its parts.
            cases: The cases of the study.

        Returns:
            The number of samples.
        """
        held = settings_of(training.recipe).training
        label = cases.label[cases.rows(training.train)]
        counts = np.bincount(label[label >= 0], minlength=2)
        return (2 * int(counts.max()) if held.oversample else len(label)) * held.epochs

    def run(self, job: Job) -> Trained:
        return run_alone(job, self.run_many)

    def run_many(self, batch: JobBatch) -> None:
        from elsewhere.training import train_units

        run_together(batch, train_units, _emit)

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        if find_spec("torch") is None:
            raise UserError("a network needs torch", fix="pip install 'elsewhere[train]'")
        from elsewhere.training.pictures.prediction import apply_network

        training, work = picture_training(job), shared_work([job])
        logits = apply_network(training, weights, work, device=job.device)
        _emit(
            job,
            PictureOutcome(
                case=training.predict, logits=logits, distance=np.full(len(logits), np.nan, np.float32)
            ),
        )
        if training.input.kind != "roi":
            return Trained()
        boxes = work.cases.box if training.boxes is None else np.array(list(training.boxes.values()))
        bare = int((~boxes.any(axis=1)).sum())
        how = "no box is known" if training.boxes is None else "the finder found no lesion"
        note = f"{how} in {bare} of {len(boxes)} pictures: the crop is the whole picture."
        return Trained(notes=(note,) if bare else ())


def _emit(job: Job, outcome: PictureOutcome) -> None:
    for case, logits, distance in zip(outcome.case, outcome.logits, outcome.distance, strict=True):
        answer = ProbabilityAnswer(logits=(logits[0], logits[1]), distance=distance)
        job.emit(Prediction(case=case, answers={CLASSIFICATION: answer}))
