"""What an engine is given, and how it calls a trainer: the same on this machine and on a cluster."""

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
    """What the duration of a training depends on."""

    @property
    def train(self) -> Sequence[Any]:
        """The cases that it learns from."""

    @property
    def method(self) -> str:
        """The name of what trains: a network or a recipe."""


@dataclass
class Deadline:
    """Decides whether another training would end in time.

    Called without arguments, it returns True when a training as long as the longest so far would no longer
    end in time.

    Args:
        at: When the time is up, in seconds since the epoch; None: there is no limit.
        longest: The longest training so far, in seconds.
        slowest: By network or recipe, the most seconds per training case that a training took so far.

    Example:
        >>> Deadline()(), Deadline(at=0.0)()
        (False, True)
    """

    at: float | None = None
    longest: float = 0.0
    slowest: dict[str, float] = field(default_factory=dict)

    def heard(self, unit: Training, seconds: float) -> None:
        """Take into account how long a training took.

        Args:
            unit: The training that ended.
            seconds: How long it took.
        """
        self.longest = max(self.longest, seconds)
        rate = seconds / max(1, len(unit.train))
        self.slowest[unit.method] = max(self.slowest.get(unit.method, 0.0), rate)

    def __call__(self) -> bool:
        return self.at is not None and time.time() + self.longest >= self.at

    def too_late_for(self, unit: Timed) -> bool:
        """Decide whether this training would end too late.

        This is less strict than the call without arguments: a training on few cases is expected to take as
        long as few cases take, once a training of the same network or recipe has ended.

        Args:
            unit: The training, which has not begun.

        Returns:
            True where it would probably not end in time.
        """
        rate = self.slowest.get(unit.method)
        if self.at is None or rate is None:
            return self()
        return time.time() + min(self.longest, rate * len(unit.train)) >= self.at


@dataclass(kw_only=True)
class TrainingBatch:
    """The trainings of one stage of a run, and everything an engine needs to run them.

    `finished` saves an outcome; it and `failed` are called from the engine's own thread only.

    Args:
        units: The trainings.
        work: What they refer to: cases, pixels, weights.
        trainer: The function that trains, or its name as 'package.module:function'.
        finished: Called with a training and its outcome when the training has ended.
        failed: Called with a training and the reason when the training has failed.
        progress: Called with what is being done, how much of it is done, and how much there is.
        stop: When no further training is begun.
        device: 'auto', 'cpu', 'cuda', 'cuda:1', or several separated by commas.
        lanes: How many trainings run side by side on one device; 0: the trainer chooses.
        threads: The threads of a process that trains on a CPU. The same number gives the same bits on the
            same kind of CPU.
        address: The address of a Ray cluster; None: this machine.
        batch: How many trainings one task of a cluster has; 0: the engine chooses.
    """

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
    address: str | None = None
    batch: int = 0


def all_cores() -> int:
    """Count the logical cores that this process may use.

    Returns:
        At least 1.
    """
    return len(usable_cpus())


def training_threads() -> int:
    """Count the threads of one process that trains on this CPU, where the user sets no number.

    Returns:
        One thread per physical core that the process may use.
    """
    return physical_cores(usable_cpus())


def find_trainer(trainer: Trainer | str) -> Trainer:
    """Return the trainer itself, or the one that a name 'package.module:function' refers to.

    Args:
        trainer: The function, or its name.

    Returns:
        The function.

    Raises:
        UserError: The name has another form, its module or a package that the module needs is not installed,
            or the module has no such function.

    Example:
        >>> find_trainer("math:sqrt")(9)
        3.0
    """
    if not isinstance(trainer, str):
        return trainer
    module, colon, name = trainer.partition(":")
    if not colon or not name:
        raise UserError(
            f"'{trainer}' is not the name of a trainer", fix="Write it as 'package.module:function'."
        )
    try:
        if module.partition(".")[0] == "elsewhere":
            # Elsewhere's own trainers import torch late; it has to be imported when its threads are set.
            let_threads_sleep()
            # A recipe may work without torch; one that needs it reports that itself.
            with suppress(ModuleNotFoundError):
                import_module("torch")
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name or module
        known = missing.partition(".")[0] in ("torch", "torchvision", "monai")
        raise UserError(
            f"training needs the package '{missing}', which is not installed",
            where=None if known else trainer,
            fix="pip install 'elsewhere[train]'" if known else "Install it, or correct its name.",
        ) from error
    except AttributeError as error:
        raise UserError(f"module '{module}' has no '{name}'", where=trainer) from error
    if not callable(found):
        raise UserError(f"'{trainer}' cannot be called", where=trainer)
    return found


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run the block with torch on `count` threads, if torch is imported.

    The last bits of a sum on a CPU depend on the number of threads that it is split over.

    Args:
        count: How many threads; at least 1.

    Yields:
        Nothing. The former number is set again when the block ends.
    """
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

    A UserError ends the run, as does whatever `batch.finished` raises (a full disk). Any other exception
    belongs to one training: where several were being trained, the rest is tried one by one, so that only the
    training that causes the exception fails.

    Args:
        batch: The stage of the run that the trainings belong to.
        units: The trainings to run; all of the batch or a part of it.

    Raises:
        UserError: The trainer raised it, or there is no such trainer.
        BaseException: `batch.finished` or `batch.failed` raised it.
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
    # A trainer that cannot be stopped gets few trainings at a time where there is a deadline.
    step = max(1, batch.lanes) if batch.stop.at is not None and not takes_stop else len(units)
    todo = list(units)
    with pinned_threads(batch.threads):
        while todo and not batch.stop():
            part, todo = todo[:step], todo[step:]
            try:
                trainer(part, batch.work, **options)
            except UserError:
                raise
            except Exception as error:  # noqa: BLE001 - a stranger's code; its error fails one training
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
                        failed(unit, "the trainer ended without reporting on this unit")


def reason_of(error: BaseException) -> str:
    """Describe an exception in one line: type, message, and the last place in the code.

    Args:
        error: The exception.

    Returns:
        'Type: message (file.py:line)'; without the place where the exception was never raised.

    Example:
        >>> reason_of(ValueError("no such case"))
        'ValueError: no such case'
    """
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
