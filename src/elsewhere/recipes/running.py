"""A recipe as a unit of the engine: what it is given, and what it must have handed over (MRI-02, MRI-17).

A recipe is a stranger's code as likely as ours. It sees no mask and no label of what it only predicts, no
clinical value and no expert's box there unless it says so, and no case that is not its own; a patient on both sides
stops it before it begins. What it emits is checked as it comes.

All this guards against mistakes, not against malice: no attribute leads from a job to what is hidden, but code of the
same process can reach anything that the process holds. A barrier is the sandbox alone, where a recipe runs on a
machine that does not hold the truth (MRI-17).
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.job import reason_of
from elsewhere.engine.packed_masks import PackedMask, pack_mask
from elsewhere.engine.training import COSTS, Outcome, RecipeSpec, Training, Work
from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs.cases import Cases
from elsewhere.inputs.volumes import Box, Grid, MemoryVolumes, Volumes
from elsewhere.recipes.base import (
    RESPONSE,
    SEGMENTATION,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    Trained,
    recipes,
)

NOBODY = MemoryVolumes(images={})


def train_recipe_units(
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
    """Train `units` one after another. A recipe that raises has failed with its message, and the others go
    on. What no training here can do without ends the run: any UserError but a TrainingError, a package that is
    not installed, memory of the GPU.
    """
    for unit in units:
        if stop is not None and stop():
            return
        try:
            outcome = run_unit(unit, work, device=device, threads=threads, progress=progress)
        except TrainingError as error:
            failed(unit, f"{error.where}: {error.what}" if error.where else error.what)
            continue
        except UserError:
            raise
        except Exception as error:
            lacking = _lacking(error, unit)
            if lacking is not None:
                raise lacking from error
            failed(unit, reason_of(error))
            continue
        finished(unit, outcome)


def _lacking(error: Exception, unit: Training) -> UserError | None:
    """What the machine lacks and the person can mend; the next training would end in the same way."""
    recipe = unit.job.name if unit.job else ""
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
            fix="Free the GPU, set a smaller batch or patch, or leave the recipe out; what is done stays done.",
        )
    return None


def run_unit(
    unit: Training,
    work: Work,
    *,
    device: str = "cpu",
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    weights: Mapping[str, Any] | None = None,
) -> Outcome:
    """One recipe's training and predictions, checked; with the `weights` of an earlier training, its predictions
    alone."""
    if unit.job is None:
        raise ValueError(f"unit {unit.name or unit.key} is of kind '{unit.kind}' and no recipe's")
    recipe = find_recipe(unit.job)
    volumes = work.volumes if work.volumes is not None else NOBODY
    collected = _Collected(unit=unit, tasks=unit.job.tasks, shape=_shapes(volumes))
    scratch = _scratch(unit, work)
    try:
        job = make_job(
            unit,
            work,
            recipe,
            device=device,
            threads=threads,
            scratch=scratch,
            emit=lambda prediction: collected.take(prediction),  # a bound method would lead to what is hidden
        )
        if progress is not None:
            job = _telling(job, progress)
        began = time.monotonic()
        trained = recipe().run(job) if weights is None else recipe().apply(job, weights)
        seconds = time.monotonic() - began
    finally:
        if work.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return collected.outcome(trained or Trained(), work.cases, seconds=seconds, device=device)


def find_recipe(spec: RecipeSpec) -> type[Recipe]:
    """The recipe of this name, at the version that the unit's key names."""
    recipe = recipes.get(spec.name)
    if recipe.version != spec.version:
        raise UserError(
            f"recipe '{spec.name}' is of version {recipe.version} here, and the training asks for {spec.version}",
            where=recipes.owner(spec.name),
            fix="Plan or export the study again with this version.",
        )
    lacking = [task for task in spec.tasks if task not in recipe.tasks]
    if lacking or not spec.tasks:
        raise UserError(
            f"recipe '{spec.name}' does not do the task '{lacking[0] if lacking else ''}'",
            where=recipes.owner(spec.name),
            fix=f"It does: {', '.join(sorted(recipe.tasks))}.",
        )
    return recipe


def make_job(
    unit: Training,
    work: Work,
    recipe: type[Recipe],
    *,
    device: str,
    threads: int,
    scratch: Path,
    emit: Callable[[Prediction], None],
) -> Job:
    """What the recipe is given. Patients on both sides are refused here once more (US-11)."""
    if unit.job is None:
        raise ValueError("not a recipe's unit")
    cases = work.cases
    check_sides(unit, cases)
    learnt = {*unit.train, *unit.validation}

    def known(name: str) -> RecipeCase:
        return _case(cases, name, label=int(cases.label[cases.row[name]]), clinical=True)

    def asked(name: str) -> RecipeCase:
        return _case(cases, name, label=-1, clinical=recipe.uses_clinical)

    named = frozenset({*learnt, *unit.predict})
    settings = recipe.settings(unit.job.settings, where=f"recipe '{unit.job.name}'")
    return Job(
        tasks=unit.job.tasks,
        train=tuple(map(known, unit.train)),
        validation=tuple(map(known, unit.validation)),
        predict=tuple(map(asked, unit.predict)),
        volumes=JobVolumes(
            work.volumes if work.volumes is not None else NOBODY,
            named=named,
            hidden=frozenset(named - learnt),
            told_lesions=recipe.uses_lesion_box,
            told_breasts=recipe.asks_breast_box(settings),
        ),
        settings=settings,
        seed=unit.seed,
        device=device,
        scratch=scratch,
        threads=threads,
        weights=work.weights,
        keep=unit.keep_weights,
        emit=emit,
    )


def check_sides(unit: Training, cases: Cases) -> None:
    """No group trains and validates, and none that trains or validates is tested."""
    group = cases.group or cases.case

    def groups(names: Sequence[str]) -> set[str]:
        return {group[at] for at in cases.rows(names)}

    learnt = {*unit.train, *unit.validation}
    tested = [name for name in unit.predict if name not in learnt]
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
                fix="Plan the study again: a patient stays on one side (US-11).",
            )


class JobVolumes:
    """The volumes of one job's cases. Of what is only predicted, masks are not there, nor the experts' boxes but
    for a recipe that says it needs them. What they are kept in is no attribute of it."""

    __slots__ = ("_ask",)
    _ask: Callable[..., Any]

    def __init__(
        self,
        held: Volumes,
        *,
        named: frozenset[str],
        hidden: frozenset[str],
        told_lesions: bool = False,
        told_breasts: bool = False,
    ) -> None:
        withheld = {"mask": True, "lesion_box": not told_lesions, "breast_box": not told_breasts}

        def ask(what: str, case: str, *more: Any) -> Any:
            if what == "__contains__":
                return case in named and case in held
            if what not in _ASKED:
                raise AttributeError(what)
            if case not in named:
                raise KeyError(f"'{case}' is not a case of this job")
            told = getattr(held, what, None)
            if told is None or (case in hidden and withheld.get(what, False)):
                return None
            return told(case, *more)

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("__contains__", case))

    def grid(self, case: str) -> Grid:
        found: Grid = self._ask("grid", case)
        return found

    def phases(self, case: str) -> int:
        return int(self._ask("phases", case))

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._ask("phase", case, at)
        return found

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        found: npt.NDArray[np.bool_] | None = self._ask("mask", case)
        return found

    def breast_box(self, case: str) -> Box | None:
        """The expert's box of the affected breast. The challenge gives it for training alone: of a case that is
        predicted it is told to a recipe that asks for it, by a setting or altogether (MRI-14)."""
        found: Box | None = self._ask("breast_box", case)
        return found

    def lesion_box(self, case: str) -> Box | None:
        """The publisher's box of the lesion: truth as the mask is, but for a recipe that says it needs it."""
        found: Box | None = self._ask("lesion_box", case)
        return found

    def part(self, case: str, at: int, box: Box) -> npt.NDArray[np.float32]:
        """A phase inside a box; of files that allow it, no more is read than that."""
        inside: npt.NDArray[np.float32] | None = self._ask("part", case, at, box)
        if inside is not None:
            return inside
        x0, y0, z0, x1, y1, z1 = box
        return self.phase(case, at)[x0:x1, y0:y1, z0:z1]


_ASKED = frozenset({"grid", "phases", "phase", "part", "mask", "breast_box", "lesion_box"})


def _shapes(volumes: Volumes) -> Callable[[str], tuple[int, int, int] | None]:
    """The shape of a case's grid; None of a case without a volume."""
    return lambda case: volumes.grid(case).shape if case in volumes else None


def _case(cases: Cases, name: str, *, label: int, clinical: bool) -> RecipeCase:
    at = cases.row[name]
    return RecipeCase(
        case=name,
        dataset=cases.dataset[at],
        group=cases.group[at] if cases.group else name,
        label=label,
        clinical=cases.clinical_of(name) if clinical else {},
    )


def _scratch(unit: Training, work: Work) -> Path:
    if work.scratch is None:
        return Path(tempfile.mkdtemp(prefix="elsewhere-recipe-"))
    folder = work.scratch / (unit.key or "unit")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _telling(job: Job, progress: Callable[[str, int, int], None]) -> Job:
    from dataclasses import replace

    return replace(job, progress=progress)


@dataclass(kw_only=True)
class _Collected:
    """What a recipe has emitted: once a case and task, on the case's grid, finite."""

    unit: Training
    tasks: tuple[str, ...]
    shape: Callable[[str], tuple[int, int, int] | None]
    masks: dict[str, PackedMask] = field(default_factory=dict)
    probability: dict[str, float] = field(default_factory=dict)
    cost: dict[tuple[str, str], tuple[float, float, float]] = field(default_factory=dict)

    def take(self, prediction: Prediction) -> None:
        case = prediction.case
        if case not in self._asked:
            raise ValueError(f"it predicted '{case}', which it was not asked for")
        if prediction.mask is None and prediction.probability is None:
            raise ValueError(f"its prediction of '{case}' holds neither a mask nor a probability")
        if prediction.mask is not None:
            self._note(SEGMENTATION, prediction)
            self.masks[case] = self._packed(case, prediction.mask)
        if prediction.probability is not None:
            self._note(RESPONSE, prediction)
            p = float(prediction.probability)
            if not math.isfinite(p) or not 0.0 <= p <= 1.0:
                raise ValueError(f"its probability of '{case}' is {p}, and not from 0 to 1")
            self.probability[case] = p

    @property
    def _asked(self) -> frozenset[str]:
        return frozenset(self.unit.predict)

    def _note(self, task: str, prediction: Prediction) -> None:
        if task not in self.tasks:
            raise ValueError(f"it gave a {task} of '{prediction.case}', which it was not asked for")
        if (prediction.case, task) in self.cost:
            raise ValueError(f"it predicted '{prediction.case}' twice ({task})")
        told = prediction.seconds, float(prediction.peak_bytes or math.nan), prediction.energy_joule
        self.cost[prediction.case, task] = told

    def _packed(self, case: str, mask: npt.NDArray[np.bool_]) -> PackedMask:
        found = np.asarray(mask)
        grid = self.shape(case)
        if grid is not None and found.shape != grid:
            raise ValueError(f"its mask of '{case}' has the shape {found.shape}, and the case {grid}")
        if found.ndim != 3:
            raise ValueError(f"its mask of '{case}' has {found.ndim} dimensions, not 3")
        if found.dtype != np.bool_:
            raise ValueError(f"its mask of '{case}' is of {found.dtype}, not of bool")
        return pack_mask(found)

    def outcome(self, trained: Trained, cases: Cases, *, seconds: float, device: str) -> Outcome:
        for task in self.tasks:
            lacking = [name for name in self.unit.predict if (name, task) not in self.cost]
            if lacking:
                raise ValueError(
                    f"it left out {len(lacking)} of {len(self.unit.predict)} cases of {task}, first '{lacking[0]}'"
                )
        names = self.unit.predict
        cost = [[self.cost[name, task] for task in self.tasks] for name in names]
        return Outcome(
            case=names,
            fingerprint=self.unit.fingerprints(cases)[cases.rows(names)],
            logits=np.zeros((0, 2), dtype=np.float32),
            distance=np.zeros(0, dtype=np.float32),
            probability=np.array([self.probability[name] for name in names], dtype=np.float64)
            if RESPONSE in self.tasks
            else None,
            masks=tuple(self.masks[name] for name in names) if SEGMENTATION in self.tasks else None,
            cost=np.array(cost, dtype=np.float64).reshape(len(names), len(self.tasks), len(COSTS)),
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
    """Of what was loaded to make these numbers."""
    found = {"numpy": np.__version__}
    for name in ("torch", "monai", "sklearn", "scipy", "xgboost"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", ""))
    return found
