"""Many trainings at the same time on one device, driven by one thread.

Each training is a generator that yields None whenever its CUDA stream has work enough, and its outcome at the end. One
thread gives every worker its turn, so that no worker waits for another. On a CPU there is one worker and no stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.engine.batch import Deadline
from elsewhere.errors import UserError

MOST_CHUNKS = 2
"""Pieces of work that a stream may have waiting while the other workers have their turns."""
Stop = Callable[[], bool]
T = TypeVar("T")
Outcome = TypeVar("Outcome")
Unit = TypeVar("Unit", contravariant=True)
Result = TypeVar("Result", covariant=True)


class DeviceStream:
    """A stream of a GPU, on which one training at a time is launched in small pieces.

    Args:
        device: Where the trainings run.

    Attributes:
        device: Where the trainings run.
        stream: The stream; None on a CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def turn(self) -> AbstractContextManager[Any]:
        """Return the context in which work is launched.

        Returns:
            A context manager.
        """
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait(self, marks: deque[Any]) -> Iterator[None]:
        """Give the turn; come back when at most `MOST_CHUNKS` pieces of work are waiting on this stream.

        Args:
            marks: The pieces of work that are waiting; one is added.

        Yields:
            None while others have their turns.
        """
        if self.stream is None:
            yield None
            return
        mark = torch.cuda.Event()
        mark.record(self.stream)
        marks.append(mark)
        yield None
        while len(marks) > MOST_CHUNKS:
            if marks[0].query():
                marks.popleft()
            else:
                yield None

    def fetch(self, values: torch.Tensor) -> Generator[None, None, npt.NDArray[Any]]:
        """Copy values to the host without stopping the other workers.

        Args:
            values: What is copied.

        Yields:
            None while others have their turns.

        Returns:
            The values.
        """
        if self.stream is None:
            return np.asarray(values.detach().numpy())
        pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        pinned.copy_(values.detach(), non_blocking=True)
        mark = torch.cuda.Event()
        mark.record(self.stream)
        while not mark.query():
            yield None
        return np.asarray(pinned.numpy().copy())


class Worker(Protocol[Unit, Result]):
    """What runs one training after another."""

    def turn(self) -> AbstractContextManager[Any]:
        """Return the context in which its work is launched.

        Returns:
            A context manager.
        """

    def train(self, unit: Unit, /) -> Iterator[Result | None]:
        """Run a training.

        Args:
            unit: The training.

        Yields:
            None whenever the stream has work enough, and the outcome at the end.
        """


def take_turns(
    workers: Sequence[tuple[list[T], Worker[T, Outcome]]],
    *,
    finished: Callable[[T, Outcome], None],
    failed: Callable[[T, str], None],
    stop: Stop | None = None,
) -> None:
    """Run all trainings; several workers may take theirs from one list.

    Args:
        workers: Workers, each with the list that it takes its trainings from; the lists are emptied.
        finished: Called with every outcome.
        failed: Called with the reason of every training that could not run.
        stop: Asked before a training starts; True leaves the rest undone.
    """
    active: dict[int, tuple[T, Iterator[Outcome | None]]] = {}
    while active or any(queue for queue, _ in workers):
        for index, (queue, worker) in enumerate(workers):
            if index not in active:
                following = next((unit for unit in queue if not too_late(stop, unit)), None)
                if following is None:
                    continue
                queue.remove(following)
                active[index] = (following, worker.train(following))
            unit, steps = active[index]
            try:
                with worker.turn():
                    outcome = next(steps)
            except UserError as error:
                failed(unit, str(error))
                del active[index]
                continue
            if outcome is not None:
                del active[index]
                finished(unit, outcome)
        if not active and all(too_late(stop, unit) for queue, _ in workers for unit in queue):
            return


def too_late(stop: Stop | None, unit: Any) -> bool:
    """Decide whether a training should not start any more.

    Args:
        stop: True: no more; a `Deadline` is asked about this training.
        unit: The training.

    Returns:
        Whether it is too late.

    Example:
        >>> too_late(None, "any"), too_late(lambda: True, "any")
        (False, True)
    """
    if isinstance(stop, Deadline):
        return stop.too_late_for(unit)
    return stop is not None and stop()
