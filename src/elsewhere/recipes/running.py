"""A recipe as a training of the engine: what it is given, and what it has to hand over (MRI-02, MRI-17).

A recipe may be another author's code. It sees no truth and no label of the cases that it only predicts,
unless it declares that it does, and no case that is not its own; a patient on both sides stops it before it
begins. Every answer is checked when it is emitted.

All this guards against mistakes, not against malice: no attribute leads from a job to what is hidden, but
code of the same process can reach anything that the process holds. Only the sandbox is a barrier, where a
recipe runs on a machine that does not hold the truth (MRI-17).
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.batch import reason_of
from elsewhere.engine.training import COSTS, Outcome, RecipeSpec, Training, Work
from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs.cases import Cases
from elsewhere.inputs.source import CLINICAL, LESION_BOX, sources
from elsewhere.predictions.answers import answer_kinds
from elsewhere.recipes.base import Job, JobBatch, Prediction, Recipe, RecipeCase, Trained, recipe_of

SHORTHANDS = {"masks": "mask", "probability": "probability"}
"""Answer kind -> the field of `Prediction` that stands for an answer of this kind."""


def train_all(
    units: Sequence[Training],
    work: Work,
    *,
    device: str = "cpu",
    lanes: int = 0,
    finished: Callable[[Training, Outcome], None],
    failed: Callable[[Training, str], None],
    progress: Callable[[str, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    threads: int = 1,
) -> None:
    """Train on one device, one recipe after another.

    A recipe that raises has failed with its message, and the others continue. An error that every training on
    this machine would meet ends the run: any UserError but a TrainingError, a package that is not installed,
    too little memory of the GPU.

    Args:
        units: The trainings.
        work: What they refer to.
        device: 'cpu', 'cuda', 'cuda:1'.
        lanes: How many trainings may run at the same time; 0: as each recipe chooses.
        finished: Called with a training and its outcome.
        failed: Called with a training and the reason.
        progress: Called with the name of the step, how much of it is done, and how much there is.
        stop: Asked before a training begins; True leaves the rest undone.
        threads: CPU threads that a training may use.

    Raises:
        UserError: As above.
    """
    by_recipe: dict[str, list[Training]] = {}
    for unit in units:
        by_recipe.setdefault(unit.recipe.name, []).append(unit)
    machine = _Machine(device=device, threads=threads, progress=progress)
    for part in by_recipe.values():
        runner = _Runner(work, machine, stop=stop, finished=finished, failed=failed)
        batch = JobBatch(
            jobs=runner.jobs(part),
            finished=runner.ended,
            failed=runner.broke,
            lanes=lanes,
            stop=stop,
            progress=progress,
        )
        try:
            find_recipe(part[0].recipe)().run_many(batch)
        except Exception as error:
            lacking = None if isinstance(error, UserError) else _lacking(error, part[0])
            if lacking is None:
                raise
            raise lacking from error


def run_training(
    unit: Training,
    work: Work,
    *,
    device: str = "cpu",
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    weights: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run one training and its predictions in this process.

    Args:
        unit: The training.
        work: What it refers to.
        device: 'cpu', 'cuda', 'cuda:1'.
        threads: CPU threads that a training may use.
        progress: Called with the name of the step, how much of it is done, and how much there is.
        weights: Saved weights of an earlier training: they are applied, and nothing is trained; None: train.

    Returns:
        The outcome, checked.

    Raises:
        UserError: The training asks for what its recipe does not do, or has a patient on both sides.
        ValueError: The recipe did not hand over what it was asked for.
    """
    recipe = find_recipe(unit.recipe)
    prepared = prepare(unit, work, _Machine(device=device, threads=threads, progress=progress))
    try:
        began = time.monotonic()
        trained = recipe().run(prepared.job) if weights is None else recipe().apply(prepared.job, weights)
        return prepared.outcome(trained or Trained(), work.cases, seconds=time.monotonic() - began)
    finally:
        prepared.tidy_up()


def find_recipe(spec: RecipeSpec) -> type[Recipe]:
    """Return the recipe of a spec, at the version that the spec names.

    Args:
        spec: What a training asks for.

    Returns:
        The recipe's class.

    Raises:
        UserError: There is no such recipe, it is of another version, or it does not do the tasks.
    """
    recipe = recipe_of(spec.name)
    if recipe.version != spec.version:
        raise UserError(
            f"recipe '{spec.name}' is of version {recipe.version} here, and the training asks for {spec.version}",
            where=_owner(recipe),
            fix="Plan or export the study again with this version.",
        )
    given = {*recipe.answers, *(task for task, kind in spec.kinds.items() if recipe.can_give(kind))}
    lacking = [task for task in spec.tasks if task not in given]
    if lacking or not spec.tasks:
        raise UserError(
            f"recipe '{spec.name}' does not do the task '{lacking[0] if lacking else ''}'",
            where=_owner(recipe),
            fix=f"It does: {', '.join(sorted(recipe.answers))}.",
        )
    return recipe


def _owner(recipe: type[Recipe]) -> str:
    return f"{recipe.__module__}:{recipe.__qualname__}"


def check_sides(unit: Training, cases: Cases) -> None:
    """Check that no group trains and validates, and that none that trains or validates is tested (US-11).

    Args:
        unit: The training.
        cases: The cases of the study.

    Raises:
        UserError: One does; the message names it.
    """
    group = cases.group or cases.case

    def groups(names: Sequence[str]) -> set[str]:
        return {group[at] for at in cases.rows(names)}

    learnt = {*unit.train, *unit.validation}
    tested = [name for name in unit.asked if name not in learnt]
    for one, other, words in (
        (unit.train, unit.validation, "trains and validates"),
        (unit.train, tested, "trains and is tested"),
        (unit.validation, tested, "validates and is tested"),
    ):
        both = sorted(groups(one) & groups(other))
        if both:
            raise UserError(
                f"'{both[0]}' {words} ({len(both)} such groups in all)",
                where=f"unit {unit.name or unit.key}",
                fix="Plan the study again: a patient must stay on one side of the split.",
            )


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """The device and threads on which trainings run."""

    device: str
    threads: int
    progress: Callable[[str, int, int], None] | None = None


class _NoPixels:
    """The view of a recipe that looks at no pixels."""

    def __contains__(self, case: str) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A training as a job, and where its answers are gathered."""

    unit: Training
    job: Job
    collected: _Collected
    borrowed: Path | None = None
    """A scratch folder that is removed when the job is done."""

    def outcome(self, trained: Trained, cases: Cases, *, seconds: float) -> Outcome:
        return self.collected.outcome(trained, cases, seconds=seconds, device=self.job.device)

    def tidy_up(self) -> None:
        if self.borrowed is not None:
            shutil.rmtree(self.borrowed, ignore_errors=True)


def prepare(unit: Training, work: Work, machine: _Machine) -> _Prepared:
    """Make the job that a recipe is given; a patient on both sides is refused here once more (US-11).

    Args:
        unit: The training, with its parts and settings.
        work: Cases, sources of pixels, weights and outcomes that trainings of a study refer to.
        machine: The device and threads that it runs on.

    Returns:
        The job, and what gathers its answers.

    Raises:
        UserError: A patient is in the training part and among the predicted cases, a setting is unknown, or a
            training that it needs is missing.
    """
    recipe, cases = find_recipe(unit.recipe), work.cases
    check_sides(unit, cases)
    learnt = frozenset({*unit.train, *unit.validation})
    named = frozenset({*learnt, *unit.asked})
    settings = recipe.settings(unit.recipe.settings, where=f"recipe '{unit.recipe.name}'")
    shown = recipe.shown(settings, tuple(unit.needs))
    source = work.sources.get(recipe.reads)
    if source is None and recipe.reads:
        source = sources.get(recipe.reads).of_cases(())
    view = source.view(cases=named, hidden=named - learnt, sees=shown) if source is not None else _NoPixels()

    def known(name: str) -> RecipeCase:
        return _case(cases, name, label=int(cases.label[cases.row[name]]), clinical=True, box=True)

    def asked(name: str) -> RecipeCase:
        return _case(
            cases, name, label=-1, clinical=CLINICAL in shown, box=LESION_BOX in shown or name in learnt
        )

    kinds = {**recipe.answers, **unit.recipe.kinds}
    collected = _Collected(
        unit=unit,
        kinds=kinds,
        shape=source.shape if source is not None else lambda case: None,
        costs=recipe.costs,
    )
    scratch = _scratch(unit, work)
    options = {} if machine.progress is None else {"progress": machine.progress}
    job = Job(
        tasks=unit.recipe.tasks,
        train=tuple(map(known, unit.train)),
        validation=tuple(map(known, unit.validation)),
        predict=tuple(map(asked, unit.asked)),
        volumes=view,
        settings=settings,
        seed=unit.seed,
        device=machine.device,
        scratch=scratch,
        threads=machine.threads,
        weights=work.weights,
        keep=unit.keep_weights,
        emit=lambda prediction: collected.take(prediction),  # a bound method would lead to what is hidden
        needs=_needed(unit, work),
        kinds={task: kinds[task] for task in unit.recipe.tasks},
        key=unit.key,
        name=unit.name,
        **options,
    )
    return _Prepared(
        unit=unit, job=job, collected=collected, borrowed=scratch if work.scratch is None else None
    )


def _needed(unit: Training, work: Work) -> dict[str, Outcome]:
    found = {}
    for role, key in unit.needs.items():
        if work.outcomes is None:
            raise UserError(
                f"the training that provides its {role} is not available ({key})",
                where=f"unit {unit.name or unit.key}",
                fix="Run both in one store.",
            )
        found[role] = work.outcomes(key)
    return found


def _case(cases: Cases, name: str, *, label: int, clinical: bool, box: bool) -> RecipeCase:
    at = cases.row[name]
    x0, y0, x1, y1 = map(int, cases.box[at])
    return RecipeCase(
        case=name,
        dataset=cases.dataset[at],
        group=cases.group[at] if cases.group else name,
        label=label,
        clinical=cases.clinical_of(name) if clinical else {},
        box=(x0, y0, x1, y1) if box and any((x0, y0, x1, y1)) else None,
    )


def _scratch(unit: Training, work: Work) -> Path:
    if work.scratch is None:
        return Path(tempfile.mkdtemp(prefix="elsewhere-recipe-"))
    folder = work.scratch / (unit.key or "unit")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Runner:
    """Turn trainings into jobs one by one, and the result of a job into an outcome or a reason."""

    def __init__(
        self,
        work: Work,
        machine: _Machine,
        *,
        stop: Callable[[], bool] | None,
        finished: Callable[[Training, Outcome], None],
        failed: Callable[[Training, str], None],
    ) -> None:
        self.work, self.machine, self.stop = work, machine, stop
        self.finished, self.failed = finished, failed
        self._open: dict[int, _Prepared] = {}
        self._began = 0.0

    def jobs(self, units: Sequence[Training]) -> Iterator[Job]:
        """Yield one job after another, each made when it is asked for."""
        for unit in units:
            if self.stop is not None and self.stop():
                return
            prepared = prepare(unit, self.work, self.machine)
            self._open[id(prepared.job)] = prepared
            self._began = time.monotonic()
            yield prepared.job

    def ended(self, job: Job, trained: Trained) -> None:
        seconds = time.monotonic() - self._began if trained.seconds is None else trained.seconds
        prepared = self._open.pop(id(job))
        prepared.tidy_up()
        try:
            outcome = prepared.outcome(trained, self.work.cases, seconds=seconds)
        except ValueError as error:
            self.failed(prepared.unit, reason_of(error))
            return
        self.finished(prepared.unit, outcome)

    def broke(self, job: Job, error: Exception) -> None:
        prepared = self._open.pop(id(job))
        prepared.tidy_up()
        unit = prepared.unit
        if isinstance(error, TrainingError):
            self.failed(unit, f"{error.where}: {error.what}" if error.where else error.what)
            return
        if isinstance(error, UserError):
            raise error
        lacking = _lacking(error, unit)
        if lacking is not None:
            raise lacking from error
        self.failed(unit, reason_of(error))


def _lacking(error: Exception, unit: Training) -> UserError | None:
    """Find what the machine lacks and the user can correct; the next training would fail in the same way."""
    recipe = unit.recipe.name
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        ours = package in ("torch", "torchvision", "monai", "xgboost")
        return UserError(
            f"recipe '{recipe}' needs the package '{package}', which is not installed",
            where=unit.name or unit.key,
            fix="pip install 'elsewhere[train]'" if ours else f"Install it, or leave '{recipe}' out.",
        )
    if type(error).__name__ == "OutOfMemoryError":
        return UserError(
            f"recipe '{recipe}' asks for more memory than the GPU has left",
            where=unit.name or unit.key,
            fix="Free the GPU, set a smaller batch or patch, or leave the recipe out; finished trainings stay stored.",
        )
    return None


@dataclass(kw_only=True)
class _Collected:
    """What a recipe has emitted: one answer per case and task, of the task's answer kind."""

    unit: Training
    kinds: Mapping[str, str]
    shape: Callable[[str], tuple[int, ...] | None]
    costs: bool = True
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    cost: dict[tuple[str, str], tuple[float, float, float]] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.unit.recipe.tasks

    @cached_property
    def asked(self) -> frozenset[str]:
        return frozenset(self.unit.asked)

    def take(self, prediction: Prediction) -> None:
        case = prediction.case
        if case not in self.asked:
            raise ValueError(f"it predicted '{case}', which it was not asked for")
        given = dict(prediction.answers)
        for kind, name in SHORTHANDS.items():
            value = getattr(prediction, name)
            if value is not None:
                given[self._task_of(kind)] = value
        if not given:
            raise ValueError(
                f"its prediction of '{case}' holds neither a mask nor a probability, nor another answer"
            )
        cost = prediction.seconds, float(prediction.peak_bytes or math.nan), prediction.energy_joule
        for task, value in given.items():
            if task not in self.tasks:
                raise ValueError(f"it gave a {task} of '{case}', which it was not asked for")
            if (case, task) in self.answers:
                raise ValueError(f"it predicted '{case}' twice ({task})")
            try:
                packed = answer_kinds.get(self.kinds[task]).one(value, shape=self.shape(case))
            except (TypeError, ValueError) as error:
                raise ValueError(f"its {task} of '{case}' {error}") from error
            self.answers[case, task], self.cost[case, task] = packed, cost

    def _task_of(self, kind: str) -> str:
        """Return the task whose answers are of a kind, preferably one that was asked for."""
        fitting = [task for task, own in self.kinds.items() if own == kind]
        return next((task for task in fitting if task in self.tasks), fitting[0] if fitting else kind)

    def outcome(self, trained: Trained, cases: Cases, *, seconds: float, device: str) -> Outcome:
        names, tasks = self.unit.asked, self.tasks
        for task in tasks:
            lacking = [name for name in names if (name, task) not in self.answers]
            if lacking:
                raise ValueError(
                    f"it left out {len(lacking)} of {len(names)} cases of {task}, first '{lacking[0]}'"
                )
        cost = np.array([[self.cost[name, task] for task in tasks] for name in names], dtype=np.float64)
        return Outcome(
            case=names,
            fingerprint=self.unit.fingerprints(cases)[cases.rows(names)],
            answers={
                task: answer_kinds.get(self.kinds[task]).gather([self.answers[name, task] for name in names])
                for task in tasks
            },
            cost=cost.reshape(len(names), len(tasks), len(COSTS)) if self.costs else None,
            history=tuple(dict(entry) for entry in trained.history),
            best_epoch=int(trained.best_epoch),
            images=int(trained.images),
            seconds=seconds,
            device=_device_name(device),
            versions=_versions(),
            notes=tuple(trained.notes),
            details=dict(trained.details),
            weights=trained.weights if self.unit.keep_weights else None,
        )


def _device_name(device: str) -> str:
    torch = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        return str(torch.cuda.get_device_name(device))
    return "cpu" if device == "auto" else device


def _versions() -> dict[str, str]:
    """Return the versions of the packages that made these numbers."""
    found = {"numpy": np.__version__}
    for name in ("torch", "monai", "sklearn", "scipy", "xgboost"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", ""))
    return found
