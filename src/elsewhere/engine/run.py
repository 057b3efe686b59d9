"""`run_units`: train what the store lacks, on the chosen engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from elsewhere.engine.batch import (
    DEFAULT_TRAINER,
    Deadline,
    Progress,
    Trainer,
    TrainingBatch,
    training_threads,
)
from elsewhere.engine.outcomes import check_outcome
from elsewhere.engine.plan import stages, unique_units, widened
from elsewhere.engine.registry import engines
from elsewhere.engine.store import Store
from elsewhere.engine.threads import let_threads_sleep
from elsewhere.engine.trained_on import training_record
from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """What a run did. Trainings are named by their keys.

    Args:
        done: Trained and saved in this run, in the order in which they ended.
        reused: Already in the store.
        failed: The reason by key; the next run tries these again.
        left: Not begun, because the time was up.
        damaged: Trainings of the store whose files were damaged, set aside, and trained again: what was wrong
            by key.
        seconds: How long the run took.
    """

    done: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    damaged: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def run_units(
    units: Iterable[Training],
    work: Work,
    store: Store,
    *,
    engine: str = "local",
    device: str = "auto",
    lanes: int = 0,
    address: str | None = None,
    trainer: Trainer | str | None = None,
    progress: Progress | None = None,
    threads: int = 0,
    batch: int = 0,
    deadline: float | None = None,
    each: Callable[[Training, Outcome | str], None] | None = None,
) -> EngineReport:
    """Train what the store lacks, save each training as it ends, and report what was done.

    A run that was killed, or ended by an error, resumes when it is started again. Where one training fails,
    its reason is recorded (`store.failures()`), and the others continue.

    Args:
        units: The trainings; those of the same key are done once.
        work: What they refer to: cases, pixels, weights.
        store: Where outcomes are saved. Only one run at a time writes to a store.
        engine: The name of the engine: 'local', 'ray', or one that another package brings.
        device: 'auto' (every CUDA device, else the CPU), 'cpu', 'cuda', 'cuda:1', or several with commas.
        lanes: Trainings side by side on one device; 0: the trainer chooses.
        address: The address of a Ray cluster, for the engine 'ray'; None starts one on this machine.
        trainer: A function or 'package.module:function', see `elsewhere.engine.batch.Trainer`; None: the one
            that runs recipes.
        progress: Called as `progress(what, done, total)`: 'units' counts the trainings of this run, other
            words are the trainer's.
        threads: The threads of a process that trains on a CPU; 0: one per physical core. The same number
            gives the same bits.
        batch: How many trainings one task of a cluster has; 0: the engine chooses.
        deadline: When the time is up, in seconds since the epoch. No training is begun that would probably
            end later. None: there is no limit.
        each: Called with a training and its outcome after it was saved, or with the reason after it failed.

    Returns:
        What was done, reused, failed and left.

    Raises:
        UserError: The engine or the trainer is unknown, a training names an unknown case, trainings need each
            other in a circle, another run is writing to the store, or the trainer raised it.
        FileSystemError: The store cannot be written, for example because the disk is full.
    """
    begin = time.monotonic()
    let_threads_sleep()
    run_engine = engines.get(engine)
    todo_all = unique_units(units, work.cases)
    with store.lock():
        reused = [unit.key for unit in todo_all if store.has(unit, work.cases)]
        have = set(reused)
        _add_records([unit for unit in todo_all if unit.key in have], work, store)
        todo = [widened(unit, store, work.cases) for unit in todo_all if unit.key not in have]
        tally = _Tally(store, work, progress, each, reused=len(reused), asked={u.key for u in todo_all})
        stop = Deadline(deadline)
        for stage in stages(todo):
            ready = tally.with_needs(stage)
            if not ready:
                continue
            run_engine(
                TrainingBatch(
                    units=ready,
                    work=replace(work, outcomes=tally.outcome, scratch=store.scratch.resolve()),
                    trainer=trainer or DEFAULT_TRAINER,
                    finished=tally.finished,
                    failed=tally.failed,
                    progress=tally.heard,
                    stop=stop,
                    device=device,
                    lanes=lanes,
                    threads=threads or training_threads(),
                    address=address,
                    batch=batch,
                )
            )
    ended = {*tally.done, *tally.failures, *reused}
    return EngineReport(
        done=tuple(tally.done),
        reused=tuple(reused),
        failed=tally.failures,
        left=tuple(unit.key for unit in todo_all if unit.key not in ended),
        damaged=dict(store.damaged),
        seconds=time.monotonic() - begin,
    )


def _add_records(units: Iterable[Training], work: Work, store: Store) -> None:
    """Add the record of who trained saved weights where an earlier version of Elsewhere wrote none.

    The same key means the same patients.
    """
    for unit in units:
        if unit.keep_weights:
            held = store.load(unit.key)
            if held.trained_on is None:
                store.save(unit, replace(held, trained_on=training_record(unit, work)))


class _Tally:
    """Counts how trainings end; only this object writes to the store in a run."""

    def __init__(
        self,
        store: Store,
        work: Work,
        progress: Progress | None,
        each: Callable[[Training, Outcome | str], None] | None,
        *,
        reused: int,
        asked: set[str],
    ) -> None:
        self.store, self.work, self.progress, self.each = store, work, progress, each
        self.reused, self.asked = reused, asked
        self.done: list[str] = []
        self.failures: dict[str, str] = {}
        self._count()

    def finished(self, unit: Training, outcome: Outcome) -> None:
        wrong = check_outcome(unit, outcome)
        prints = unit.fingerprints(self.work.cases)[self.work.cases.rows(unit.asked)]
        if not wrong and not outcome.covers(unit.asked, prints):
            wrong = "the trainer did not predict every case that the unit names, as the unit sees it"
        if wrong:
            self.failed(unit, wrong)
            return
        if outcome.weights is not None and outcome.trained_on is None:
            outcome = replace(outcome, trained_on=training_record(unit, self.work))
        self.store.save(unit, outcome)
        self.done.append(unit.key)
        self._count()
        if self.each:
            self.each(unit, outcome)

    def failed(self, unit: Training, reason: str) -> None:
        self.store.record_failure(unit, reason)
        self.failures[unit.key] = reason
        self._count()
        if self.each:
            self.each(unit, reason)

    def heard(self, what: str, done: int, total: int) -> None:
        if self.progress and what not in ("units", "trainings"):
            self.progress(what, done, total)

    def _count(self) -> None:
        if self.progress:
            self.progress("units", self.reused + len(self.done) + len(self.failures), len(self.asked))

    def outcome(self, key: str) -> Outcome:
        """Return the outcome of a training that another needs: from this store, or from the work."""
        if key not in self.store and self.work.outcomes is not None:
            return self.work.outcomes(key)
        return self.store.load(key)

    def with_needs(self, units: list[Training]) -> list[Training]:
        """Return the trainings whose needs are done; record a failure where they failed or are unknown."""
        ready = []
        for unit in units:
            lacking = {
                role: key
                for role, key in unit.needs.items()
                if key not in self.store and not self._knows(key)
            }
            failed = [(role, self.failures[key]) for role, key in lacking.items() if key in self.failures]
            strange = [(role, key) for role, key in lacking.items() if key not in self.asked]
            if failed:
                self.failed(unit, f"the training that gives its {failed[0][0]} failed: {failed[0][1]}")
            elif strange:
                role, key = strange[0]
                self.failed(
                    unit, f"the training {key} that gives its {role} is neither in the store nor in this run"
                )
            elif not lacking:
                ready.append(unit)
        return ready

    def _knows(self, key: str) -> bool:
        if self.work.outcomes is None:
            return False
        try:
            self.work.outcomes(key)
        except (UserError, LookupError, ValueError):
            return False
        return True
