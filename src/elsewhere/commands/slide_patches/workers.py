"""Runs a function on many slides in several processes; a process that dies takes only its own slide with it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from elsewhere.commands.output import Report
from elsewhere.errors import UserError

Task = TypeVar("Task")
Result = dict[str, Any] | None


def run_each(
    function: Callable[..., Result],
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    progress: Report | None = None,
) -> Iterator[tuple[Task, Result]]:
    """Run a function on each task, in this process or in several.

    Args:
        function: A function of a module, called with a task and, in this process, with `progress`; it returns None or an
            error as `UserError.to_dict` writes it.
        tasks: What it is called with; each must survive a pickle.
        workers: Processes; with 1 there is none but this.
        progress: Passed on where there is one process.

    Yields:
        A task and what came of it, in the order in which they end.

    Example:
        >>> list(run_each(lambda task, progress: None, ["a.tif"]))
        [('a.tif', None)]
    """
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, function(task, progress)
        return
    again: list[Task] = []
    for task, result, died in _in_pool(function, tasks, workers):
        if died:
            again.append(task)
        else:
            yield task, result
    for task in again:  # alone: which of those in work ended the process is not known
        for _, result, died in _in_pool(function, [task], 1):
            yield task, _DIED if died else result


_DIED: Result = UserError(
    "the process that read this slide ended: there was too little memory, or a library failed on the file",
    fix="Use fewer workers; if it happens with one, fetch or export the slide again.",
).to_dict()


def _end_with_parent() -> None:
    """End this process when the one that started it is killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_pool(
    function: Callable[..., Result], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[Task, Result, bool]]:
    """Yield task, result, and whether its process died; after a death the rest runs in new processes."""
    context = multiprocessing.get_context("spawn")
    waiting = list(tasks)
    while waiting:
        count = min(workers, len(waiting))
        with ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent) as pool:
            running: dict[Future[Result], Task] = {}
            broken = False
            while (waiting and not broken) or running:
                # No more than there are processes: what waits in the pool would be lost with it.
                while waiting and not broken and len(running) < workers:
                    try:
                        running[pool.submit(function, waiting[0])] = waiting[0]
                    except BrokenProcessPool:
                        broken = True
                        break
                    waiting.pop(0)
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    task = running.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        broken = True
                        yield task, None, True
                    else:
                        yield task, result, False
