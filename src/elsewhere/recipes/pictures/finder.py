"""The recipe 'lesion-finder': a network that finds the box of the lesion in a picture (US-33)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from elsewhere.engine.training import RecipeSpec
from elsewhere.recipes.base import Job, JobBatch, Prediction, RecipeSettings, Trained, recipes
from elsewhere.recipes.pictures.classifier import PictureRecipe
from elsewhere.recipes.pictures.settings import FINDER, LESION_BOXES, FinderSettings
from elsewhere.recipes.pictures.shared import picture_training, run_alone, run_together, shared_work
from elsewhere.training.pictures.settings import PictureOutcome, PictureTraining, PictureWork


@recipes.register(FINDER)
class LesionFinder(PictureRecipe):
    """It learns from the masks of the training part alone, so that crops need no annotation where it is used."""

    title = "Finder of lesions"
    kind: ClassVar[str] = "find-boxes"
    answers: ClassVar[Mapping[str, str]] = {LESION_BOXES: "boxes"}
    version = 1
    Settings: ClassVar[type[RecipeSettings]] = FinderSettings
    follows = (
        "No published method: a small U-Net over EfficientNet-Lite0, whose largest region gives the box."
    )

    @classmethod
    def needs_truth(cls, spec: RecipeSpec) -> bool:
        return True

    def run(self, job: Job) -> Trained:
        return run_alone(job, self.run_many)

    def run_many(self, batch: JobBatch) -> None:
        run_together(batch, _train, _emit)

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.training.pictures.prediction import apply_finder

        boxes = apply_finder(picture_training(job), weights, shared_work([job]), device=job.device)
        _hand_over(job, [case.case for case in job.predict], boxes)
        return Trained()


def _train(
    trainings: Sequence[PictureTraining], work: PictureWork, *, lanes: int, progress: Any, **options: Any
) -> None:
    """One after another: each is large enough to fill a device. `progress` counts trainings, and not epochs."""
    from elsewhere.training.detection.finder import train_finders

    train_finders(trainings, work, **options)


def _emit(job: Job, outcome: PictureOutcome) -> None:
    _hand_over(job, outcome.case, outcome.box)


def _hand_over(job: Job, names: Sequence[str], boxes: Any) -> None:
    for case, box in zip(names, boxes, strict=True):
        found = [box.tolist()] if box.any() else []
        job.emit(Prediction(case=case, answers={LESION_BOXES: (found, [1.0] * len(found))}))
