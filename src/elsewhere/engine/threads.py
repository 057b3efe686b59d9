"""Threads of a CPU: how many, and what they do while they wait.

OpenMP's threads spin at every barrier by default. A small network has thousands of barriers per second, so
that on cores that other processes use too, the spinning takes time from the thread that is waited for: the
same training took 3.9 s on one core and 136 s on two shared ones. Threads that sleep instead cost little
where the cores are free, and no number changes: sums are split by the number of threads, not by how the
threads wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
"""For every OpenMP, and for Intel's and LLVM's. GOMP_SPINCOUNT has precedence where it is set."""
_CPUS = Path("/sys/devices/system/cpu")


def let_threads_sleep() -> None:
    """Let OpenMP's threads sleep while they wait.

    This has to be called before torch is first imported, because OpenMP reads the settings once. Variables
    that the environment has already stay as they are.
    """
    for name, value in SLEEP.items():
        os.environ.setdefault(name, value)


def usable_cpus() -> list[int]:
    """List the logical CPUs that this process may use.

    Returns:
        Their numbers, ascending; at least one.
    """
    try:
        return sorted(os.sched_getaffinity(0)) or [0]
    except AttributeError:  # pragma: no cover - not on every system
        return list(range(os.cpu_count() or 1))


def physical_cores(cpus: Iterable[int], *, tree: Path = _CPUS) -> int:
    """Count the cores behind logical CPUs; two threads of one core add little to the speed of a training.

    Where the system does not say which CPUs share a core, each counts.

    Args:
        cpus: The numbers of logical CPUs.
        tree: The folder in which the system describes its CPUs.

    Returns:
        At least 1.

    Example:
        >>> physical_cores([0, 1], tree=Path("no such folder"))
        2
    """
    cores = set()
    for cpu in cpus:
        try:
            siblings = (tree / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            siblings = str(cpu)
        cores.add(siblings.strip())
    return max(1, len(cores))
