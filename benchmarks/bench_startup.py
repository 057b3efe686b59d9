"""`elsewhere --help`: how long, and that nothing heavy is imported for it. The peer is `import pandas`."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any


def best_of(command: list[str], times: int) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return min(found)


def run(quick: bool = False) -> dict[str, Any]:
    times = 3 if quick else 10
    ours = best_of([sys.executable, "-m", "elsewhere", "--help"], times)
    peer = best_of([sys.executable, "-c", "import pandas"], times)
    return {
        "job": "elsewhere --help",
        "peer": "python -c 'import pandas'",
        "peer_seconds": peer,
        "ours_seconds": ours,
        "ratio": peer / ours,
        "bar": "0.5 s",
        "bar_kind": "text",
        "bar_met": ours <= 0.5,
        "notes": f"best of {times}",
    }
