"""Several jobs on pictures in the form of the training loops, with their cases and pictures together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.training import TRAINING_VERSION, Training
from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs import Cases
from elsewhere.recipes.base import Job, JobBatch, RecipeCase, Trained
from elsewhere.recipes.pictures.settings import NEEDS_BOXES, PictureSettings, settings_of
from elsewhere.training.pictures.settings import PictureOutcome, PictureTraining, PictureWork


class SharedPictures:
    """The pictures of several jobs.

    Each case is read through a job that may see it, its mask through one that may see that.

    Args:
        jobs: The jobs whose views are used.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._view: dict[str, Any] = {}
        self._masked: dict[str, Any] = {}
        for job in jobs:
            for case in (*job.train, *job.validation, *job.predict):
                self._view.setdefault(case.case, job.pixels)
                if case.case not in self._masked and job.pixels.has_mask(case.case):
                    self._masked[case.case] = job.pixels

    def __contains__(self, case: str) -> bool:
        return case in self._view

    def grey(self, case: str) -> npt.NDArray[np.uint8]:
        """Read a picture.

        Args:
            case: The name of the case.

        Returns:
            Grey values, (height, width), 8 bit.
        """
        found: npt.NDArray[np.uint8] = self._view[case].grey(case)
        return found

    def has_mask(self, case: str) -> bool:
        """Say whether a job may see the lesion's mask.

        Args:
            case: The name of the case.

        Returns:
            True where one may.
        """
        return case in self._masked

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Read the lesion's mask.

        Args:
            case: The name of the case.
            shape: Height and width of the picture.

        Returns:
            True in the lesion, (height, width).
        """
        found: npt.NDArray[np.bool_] = self._masked[case].mask(case, shape)
        return found


def shared_work(jobs: Sequence[Job]) -> PictureWork:
    """Collect the cases and pictures of all jobs.

    A case from which one job learns has its label and its box, also where another job only predicts it: each
    training uses them for its own parts alone.

    Args:
        jobs: The jobs on one device.

    Returns:
        What their trainings refer to.
    """
    known: dict[str, RecipeCase] = {}
    for job in jobs:
        for case in job.predict:
            if case.case not in known or (known[case.case].box is None and case.box is not None):
                known[case.case] = case
    for job in jobs:
        for case in (*job.train, *job.validation):
            known[case.case] = case
    held = list(known.values())
    cases = Cases(
        case=tuple(case.case for case in held),
        dataset=tuple(case.dataset for case in held),
        label=np.array([case.label for case in held], dtype=np.int8),
        box=np.array([case.box or (0, 0, 0, 0) for case in held], dtype=np.int32).reshape(-1, 4),
        digest=("",) * len(held),
    )
    return PictureWork(cases=cases, pictures=SharedPictures(jobs), weights=jobs[0].weights)


def picture_training(job: Job) -> PictureTraining:
    """Turn a job into a training of the picture loops.

    Args:
        job: The job, whose settings are `PictureSettings`.

    Returns:
        The training.

    Raises:
        TrainingError: It needs found boxes and lacks one.
    """
    settings: PictureSettings = job.settings
    return PictureTraining(
        key=job.key,
        name=job.name,
        train=tuple(case.case for case in job.train),
        validation=tuple(case.case for case in job.validation),
        predict=tuple(case.case for case in job.predict),
        input=settings.input,
        recipe=settings.training,
        seed=job.seed,
        keep_weights=job.keep,
        boxes=found_boxes(job),
    )


def found_boxes(job: Job) -> Mapping[str, npt.NDArray[np.int32]] | None:
    """Return the boxes that another training found in the job's predicted cases.

    Args:
        job: The job.

    Returns:
        Case -> x0, y0, x1, y1; None where the job needs no boxes.

    Raises:
        TrainingError: A predicted case has no box.
    """
    outcome = job.needs.get(NEEDS_BOXES)
    if outcome is None:
        return None
    answers = next((one for one in outcome.answers.values() if one.kind == "boxes"), None)
    if answers is None:
        raise TrainingError(f"the boxes that {job.name} needs were not found")
    boxes = dict(zip(outcome.case, answers.best(), strict=True))
    lost = [case.case for case in job.predict if case.case not in boxes]
    if lost:
        raise TrainingError(
            f"the boxes that {job.name} needs were not found in {len(lost)} cases, first {lost[0]}"
        )
    return boxes


def run_together(
    batch: JobBatch,
    train: Callable[..., None],
    emit: Callable[[Job, PictureOutcome], None],
) -> None:
    """Train the jobs of a batch by a loop that knows how to share a device.

    Args:
        batch: The jobs.
        train: Called with the trainings, their work, and `device`, `lanes`, `finished`, `failed`, `progress`,
            `stop`.
        emit: Hands the answers of a training over to its job.
    """
    jobs = list(batch.jobs)
    if not jobs:
        return
    by_key: dict[str, Job] = {}
    trainings = []
    for place, job in enumerate(jobs):
        try:
            training = picture_training(job)
        except TrainingError as error:
            batch.failed(job, error)
            continue
        key = training.key or f"job {place}"
        by_key[key] = job
        trainings.append(training if training.key else _keyed(training, key))

    def finished(training: PictureTraining, outcome: PictureOutcome) -> None:
        job = by_key[training.key]
        try:
            emit(job, outcome)
        except ValueError as error:
            batch.failed(job, error)
            return
        batch.finished(job, as_trained(outcome))

    train(
        trainings,
        shared_work(jobs),
        device=jobs[0].device,
        lanes=batch.lanes,
        finished=finished,
        failed=lambda training, reason: batch.failed(by_key[training.key], TrainingError(reason)),
        progress=batch.progress,
        stop=batch.stop,
    )


def _keyed(training: PictureTraining, key: str) -> PictureTraining:
    from dataclasses import replace

    return replace(training, key=key)


def run_alone(job: Job, run_many: Callable[[JobBatch], None]) -> Trained:
    """Run one job of a recipe whose loop takes many.

    Args:
        job: The job.
        run_many: The `run_many` of the recipe.

    Returns:
        What the recipe reports of the job.

    Raises:
        UserError: The training was not begun.
        Exception: The error that ended the job.
    """
    done: list[Trained] = []
    broken: list[Exception] = []
    run_many(
        JobBatch(
            jobs=[job],
            finished=lambda _, trained: done.append(trained),
            failed=lambda _, error: broken.append(error),
            progress=job.progress,
        )
    )
    if broken:
        raise broken[0]
    if not done:
        raise UserError(f"the training {job.name or job.key} was not started")
    return done[0]


def as_trained(outcome: PictureOutcome) -> Trained:
    """Turn the outcome of a picture loop into a recipe's report.

    Args:
        outcome: The outcome of the training.

    Returns:
        History, best epoch, images, weights and seconds.
    """
    return Trained(
        history=outcome.history,
        best_epoch=outcome.best_epoch,
        images=outcome.images,
        weights=outcome.weights,
        seconds=outcome.seconds,
    )


def picture_key_content(
    training: Training, cases: Cases, kind: str, prints: npt.NDArray[np.uint64]
) -> dict[str, Any]:
    """Return what the key of a training on pictures depends on.

    Names of cases do not count; their pixels, boxes, labels, order and (for methods that use it) dataset do.

    Args:
        training: The training, without its key.
        cases: The cases of the study.
        kind: The kind of training, as the keys of stored trainings name it.
        prints: What it sees of every case.

    Returns:
        Plain JSON.
    """
    settings = settings_of(training.recipe)

    def part(names: tuple[str, ...]) -> list[list[Any]]:
        rows = cases.rows(names)
        groups = {name: at for at, name in enumerate(dict.fromkeys(cases.dataset[r] for r in rows))}
        return [[format(int(prints[r]), "016x"), int(cases.label[r]), groups[cases.dataset[r]]] for r in rows]

    return {
        "version": TRAINING_VERSION,
        "kind": kind,
        "input": asdict(settings.input),
        "recipe": asdict(settings.training),
        "seed": training.seed,
        "boxes_from": training.needs.get(NEEDS_BOXES, ""),
        "train": part(training.train),
        "validation": part(training.validation),
    }
