"""Work in processes of their own: what one of them does to the GPU, or to itself, is lost with it alone.

A child is a fork: the patients that its parent holds are its own without a copy. That works as long as the
parent has never begun CUDA, so it never does.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

CUT = 3
"""The exit code of a child that ended because its time was up; what it has is on disk."""
GRACE_S = 6.0
"""What a child may take to see that its time is up before it is ended."""


class TimeUpError(BaseException):
    """No Exception: a recipe's failure is caught on the way, this is not."""


@dataclass
class Child:
    name: str
    process: BaseProcess
    until: float
    """Seconds since the epoch."""

    def ended(self) -> str:
        """Waits; '' where it ended well, else in words. Past its time it is ended."""
        self.process.join(max(0.0, self.until + GRACE_S - time.time()))
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(3.0)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
            return "cut off: it did not end in time"
        code = self.process.exitcode or 0
        if code == CUT:
            return "cut off: its time was up"
        return "" if code == 0 else f"failed: exit code {code}" if code > 0 else f"failed: signal {-code}"


def start(name: str, work: Callable[[], object], *, until: float) -> Child:
    def run() -> None:
        # A group of its own would outlive a killed parent: pools of a child end with their pipes.
        code = 0
        try:
            work()
        except TimeUpError as error:
            print(f"{name}: time is up: {error}", flush=True)
            code = CUT
        except BaseException:  # noqa: BLE001 - printed whole; the exit code tells the parent
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    sys.stdout.flush()
    sys.stderr.flush()
    process = multiprocessing.get_context("fork").Process(target=run, name=name)
    process.start()
    return Child(name, process, until)


def check_no_cuda() -> None:
    """In the parent, before a fork."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("CUDA has begun in the parent: its children could not use it")
