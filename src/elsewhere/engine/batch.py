"""What an engine is given, and how a trainer is called: the same on this machine and on a cluster."""

from __future__ import annotations

import inspect
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from elsewhere.engine.threads import let_threads_sleep, physical_cores, usable_cpus
from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError

DEFAULT_TRAINER = "elsewhere.recipes.running:train_all"
Progress: TypeAlias = Callable[[str, int, int], None]
Finished: TypeAlias = Callable[[Training, Outcome], None]
Failed: TypeAlias = Callable[[Training, str], None]
Trainer: TypeAlias = Callable[..., None]
"""(trainings, work, *, device, lanes, finished, failed, progress[, stop][, threads]) -> None."""


class Timed(Protocol):
    """What a training's time depends on."""

    @property
    def train(self) -> Sequence[Any]:
        """What it learns from."""

    @property
    def method(self) -> str:
        """What trains, in a word."""


@dataclass
class Deadline:
    """True, once called, when a unit as long as the longest so far would no longer end in time."""

    at: float | None = None
    """Seconds since the epoch; None: there is all the time in the world."""
    longest: float = 0.0
    slowest: dict[str, float] = field(default_factory=dict)
    """By network or recipe: the most seconds a training case that a unit took so far."""

    def heard(self, unit: Training, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        rate = seconds / max(1, len(unit.train))
        self.slowest[unit.method] = max(self.slowest.get(unit.method, 0.0), rate)

    def __call__(self) -> bool:
        return self.at is not None and time.time() + self.longest >= self.at

    def too_late_for(self, unit: Timed) -> bool:
        """Less strict: a unit that trains on few cases is as long as few cases take."""
        rate = self.slowest.get(unit.method)
        if self.at is None or rate is None:
            return self()
        return time.time() + min(self.longest, rate * len(unit.train)) >= self.at


@dataclass(kw_only=True)
class TrainingBatch:
    """One stage of a run. `finished` saves; it and `failed` are called from the engine's own thread alone."""

    units: Sequence[Training]
    work: Work
    trainer: Trainer | str
    finished: Finished
    failed: Failed
    progress: Progress
    stop: Deadline = field(default_factory=Deadline)
    device: str = "auto"
    lanes: int = 0
    threads: int = 1
    """Of a process that trains on a CPU: the same number gives the same bits on the same kind of CPU."""
    address: str | None = None
    batch: int = 0
    """Units a task of a cluster; 0: the engine chooses."""


def all_cores() -> int:
    """Logical cores that this process may use."""
    return len(usable_cpus())


def training_threads() -> int:
    """Of one process that trains on this CPU, where nobody says: one a physical core it may use."""
    return physical_cores(usable_cpus())


def find_trainer(trainer: Trainer | str) -> Trainer:
    """The callable itself, or the one a dotted name ('package.module:function') means."""
    if not isinstance(trainer, str):
        return trainer
    module, colon, name = trainer.partition(":")
    if not colon or not name:
        raise UserError(f"'{trainer}' names no trainer", fix="Write it as 'package.module:function'.")
    try:
        if module.partition(".")[0] == "elsewhere":
            # Ours load torch late; it must be there when its threads are set.
            let_threads_sleep()
            # A recipe may do without it, and says so itself where it cannot.
            with suppress(ModuleNotFoundError):
                import_module("torch")
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name or module
        known = missing.partition(".")[0] in ("torch", "torchvision", "monai")
        raise UserError(
            f"training needs the package '{missing}', which is not installed",
            where=None if known else trainer,
            fix="pip install 'elsewhere[train]'" if known else "Install it, or mend its name.",
        ) from error
    except AttributeError as error:
        raise UserError(f"module '{module}' has no '{name}'", where=trainer) from error
    if not callable(found):
        raise UserError(f"'{trainer}' cannot be called", where=trainer)
    return found


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """torch on `count` threads, if torch is there: the sums of a CPU depend on how they are split."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(batch: TrainingBatch, units: Sequence[Training]) -> None:
    """Call the trainer on `units`, and see that each is finished, failed, or left because time is up.

    UserErrors end the run, as does whatever `finished` raises (a full disk). Any other exception is one
    unit's: where several were in hand, the rest is tried one by one, so that it hits the guilty one alone.
    """
    trainer = find_trainer(batch.trainer)
    open_units = {unit.key: unit for unit in units}
    fatal: list[BaseException] = []

    def told(key: str, call: Callable[[Training], None]) -> None:
        if fatal:
            raise fatal[0]
        unit = open_units.pop(key, None)
        if unit is None:
            return
        try:
            call(unit)
        except BaseException as error:
            fatal.append(error)
            raise

    def finished(unit: Training, outcome: Outcome) -> None:
        batch.stop.heard(unit, outcome.seconds)
        if batch.device.startswith("cpu"):
            outcome = replace(outcome, versions={**outcome.versions, "threads": str(batch.threads)})
        told(unit.key, lambda ours: batch.finished(ours, outcome))

    def failed(unit: Training, reason: str) -> None:
        told(unit.key, lambda ours: batch.failed(ours, reason))

    options: dict[str, Any] = {
        "device": batch.device,
        "lanes": batch.lanes,
        "finished": finished,
        "failed": failed,
        "progress": batch.progress,
    }
    takes_stop = _accepts(trainer, "stop")
    if takes_stop:
        options["stop"] = batch.stop
    if _accepts(trainer, "threads", by_name=True):
        options["threads"] = batch.threads
    # A trainer that cannot be stopped is given little at a time where time is short.
    step = max(1, batch.lanes) if batch.stop.at is not None and not takes_stop else len(units)
    todo = list(units)
    with pinned_threads(batch.threads):
        while todo and not batch.stop():
            part, todo = todo[:step], todo[step:]
            try:
                trainer(part, batch.work, **options)
            except UserError:
                raise
            except Exception as error:  # noqa: BLE001 - a stranger's code; one unit's fault is not the run's
                if fatal:
                    raise fatal[0] from None
                left = [unit for unit in part if unit.key in open_units]
                if len(left) == 1:
                    failed(left[0], reason_of(error))
                elif left:
                    step, todo = 1, left + todo
            else:
                if fatal:
                    raise fatal[0]
                for unit in part:
                    if unit.key in open_units and not batch.stop():
                        failed(unit, "the trainer ended without a word about this unit")


def reason_of(error: BaseException) -> str:
    """Type, message, and the last place in the code."""
    last = traceback.extract_tb(error.__traceback__)[-1:] if error.__traceback__ else []
    where = f" ({last[0].filename.rpartition('/')[2]}:{last[0].lineno})" if last else ""
    text = str(error).strip()
    return f"{type(error).__name__}{': ' + text if text else ''}{where}"


def _accepts(function: Trainer, name: str, *, by_name: bool = False) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.name == name or (not by_name and p.kind is inspect.Parameter.VAR_KEYWORD) for p in parameters
    )
