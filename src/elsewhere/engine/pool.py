"""Trains in one process per device. The driver distributes the trainings, and only it writes to the store.

When a process dies (killed for memory, a crash in a library), only its present trainings are lost: they are
tried again one by one, and a training whose process died twice is recorded as failed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from elsewhere.engine.batch import Deadline, TrainingBatch, train
from elsewhere.engine.outcomes import StoredWeights
from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError
from elsewhere.files.locks import end_with_parent

TRIES = 2


@dataclass
class _Worker:
    device: str
    process: BaseProcess
    pipe: Connection
    hands: dict[str, Training] = field(default_factory=dict)
    busy: bool = False
    """True until the process reports that it is idle; `hands` may be empty before that."""


def run_pool(batch: TrainingBatch, devices: Sequence[str]) -> None:
    """Run a batch with one process per device.

    Each device gets a share of what is left. The shares become smaller and smaller, so that the devices end
    together. Threads of the CPU are divided between the processes.

    Args:
        batch: The trainings and how they are run.
        devices: One name per process; a device may be named several times.

    Raises:
        UserError: The trainer raised it in a process.
        RuntimeError: A process broke in a way that does not belong to one training.
    """
    context = multiprocessing.get_context("spawn")
    threads = max(1, batch.threads // len(devices))
    todo: list[tuple[Training, bool]] = [(unit, False) for unit in batch.units]
    deaths: dict[str, int] = {}
    workers: list[_Worker] = []

    def start(device: str) -> _Worker:
        ours, theirs = context.Pipe()
        order = _Order(
            trainer=batch.trainer,
            work=replace(batch.work, outcomes=None),
            device=device,
            lanes=batch.lanes,
            threads=threads,
            deadline=batch.stop.at,
        )
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        ours.send_bytes(pickle.dumps(order))
        return _Worker(device, process, ours)

    def hand_out(worker: _Worker) -> None:
        if not todo or batch.stop():
            return
        share = -(-len(todo) // (2 * len(devices)))
        size = 1 if todo[0][1] else max(1, batch.lanes, share)
        taken = [unit for unit, alone in todo[:size] if not alone or size == 1]
        del todo[: len(taken)]
        worker.hands, worker.busy = {unit.key: unit for unit in taken}, True
        needed = {key for unit in taken for key in unit.needs.values()}
        found = {key: batch.work.outcomes(key) for key in needed} if batch.work.outcomes else {}
        with contextlib.suppress(OSError):
            worker.pipe.send_bytes(pickle.dumps((taken, found, batch.stop.longest)))

    def heard(worker: _Worker, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "finished":
            unit = worker.hands.pop(rest[0])
            batch.stop.heard(unit, rest[1].seconds)
            batch.finished(unit, rest[1])
        elif kind == "failed":
            batch.failed(worker.hands.pop(rest[0]), rest[1])
        elif kind == "progress":
            batch.progress(*rest)
        elif kind == "idle":
            worker.hands, worker.busy = {}, False
        elif kind == "stop":
            raise UserError(rest[0]["error"], where=rest[0]["where"], fix=rest[0]["fix"])
        elif kind == "broken":
            raise RuntimeError(f"the process of device {worker.device} broke:\n{rest[0]}")

    def died(worker: _Worker) -> None:
        worker.process.join()
        code = worker.process.exitcode or 0
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        for unit in worker.hands.values():
            deaths[unit.key] = deaths.get(unit.key, 0) + 1
            if deaths[unit.key] >= TRIES:
                batch.failed(unit, f"the process that trained it died twice ({cause})")
            else:
                todo.insert(0, (unit, True))
        worker.pipe.close()
        workers.remove(worker)
        if todo and not batch.stop():
            fresh = start(worker.device)
            workers.append(fresh)
            hand_out(fresh)

    try:
        for device in devices[: max(1, len(batch.units))]:
            workers.append(start(device))
            hand_out(workers[-1])
        while any(worker.busy for worker in workers):
            ready = wait([worker.pipe for worker in workers if worker.busy])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                try:
                    message = pickle.loads(worker.pipe.recv_bytes())
                except (EOFError, OSError):
                    died(worker)
                else:
                    heard(worker, message)
            for worker in workers:
                if not worker.busy:
                    hand_out(worker)
    finally:
        _end(workers)


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        if worker.busy:
            worker.process.terminate()
    until = time.monotonic() + 10
    for worker in workers:
        worker.process.join(max(0.1, until - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What a process is given once, before its first trainings."""

    trainer: Any
    work: Work
    device: str
    lanes: int
    threads: int
    deadline: float | None


def _serve(pipe: Connection) -> None:
    """Run in a process of the pool: read the order, then train until the driver closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()

    def tell(*message: Any) -> None:
        pipe.send_bytes(pickle.dumps(message))

    try:
        order: _Order = pickle.loads(pipe.recv_bytes())
        while True:
            units, found, longest = pickle.loads(pipe.recv_bytes())
            batch = TrainingBatch(
                units=units,
                work=replace(order.work, outcomes=found.__getitem__),
                trainer=order.trainer,
                finished=lambda unit, outcome: tell("finished", unit.key, portable(outcome)),
                failed=lambda unit, reason: tell("failed", unit.key, reason),
                progress=lambda what, done, total: tell("progress", what, done, total),
                stop=Deadline(order.deadline, longest),
                device=order.device,
                lanes=order.lanes,
                threads=order.threads,
            )
            try:
                train(batch, units)
            except UserError as error:
                tell("stop", error.to_dict())
                return
            tell("idle")
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception:  # noqa: BLE001 - reported to the driver, which raises it
        with contextlib.suppress(OSError):
            tell("broken", traceback.format_exc())


def portable(outcome: Outcome) -> Outcome:
    """Return an outcome that can be pickled: weights that are still on disk are read.

    Args:
        outcome: The outcome.

    Returns:
        The outcome with its weights in memory.

    Raises:
        UserError: The file of weights cannot be read, or differs from what was written.
    """
    if isinstance(outcome.weights, StoredWeights):
        return replace(outcome, weights=dict(outcome.weights))
    return outcome
