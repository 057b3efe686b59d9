"""Kernels are checked in a process of their own: Triton reads TRITON_INTERPRET when it is first imported."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Told = dict[str, dict[str, float]]


@pytest.fixture(scope="session")
def interpreted() -> Callable[[str], Told]:
    """What the checks of one kind found: by check, by quantity, the distance from plain torch."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no triton here")
    script = Path(__file__).with_name("interpreted.py")

    def run(kind: str) -> Told:
        done = subprocess.run(
            [sys.executable, str(script), kind], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
