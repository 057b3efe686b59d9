"""Threads of a CPU: how many, and what they do while they wait.

OpenMP's threads spin at every barrier by default. A small network has thousands of barriers a second, so that
on cores that others use too the spinning takes the time of the thread that is waited for: the same training
took 3.9 s on one core and 136 s on two shared ones. Threads that sleep instead cost little where the cores
are free, and no number changes: sums are split by the count of threads, not by how they wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""For every OpenMP, and for Intel's and LLVM's; GOMP_SPINCOUNT, where somebody set it, goes before."""
_CPUS = Path("/sys/devices/system/cpu")


def let_threads_sleep() -> None:
    """Before torch is first imported: OpenMP reads it once. What the environment already says stands."""
    for name, value in SLEEP.items():
        os.environ.setdefault(name, value)


def usable_cpus() -> list[int]:
    """Logical CPUs that this process may use."""
    try:
        return sorted(os.sched_getaffinity(0)) or [0]
    except AttributeError:  # pragma: no cover - not on every system
        return list(range(os.cpu_count() or 1))


def physical_cores(cpus: Iterable[int], *, tree: Path = _CPUS) -> int:
    """Cores behind these logical CPUs; two threads of one core add little to a training's sums.

    Where the system does not say which CPUs are siblings, each counts.
    """
    cores = set()
    for cpu in cpus:
        try:
            siblings = (tree / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            siblings = str(cpu)
        cores.add(siblings.strip())
    return max(1, len(cores))
