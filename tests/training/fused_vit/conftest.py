"""Kernels are checked in a process of their own: Triton reads TRITON_INTERPRET when it is first imported."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

Told = dict[str, dict[str, float]]


@pytest.fixture(scope="session")
def interpreted(made_once) -> dict[str, Told]:
    """What the checks found: by kind, by check, by quantity, the distance from plain torch."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no triton here")
    script = Path(__file__).with_name("interpreted.py")

    def run(folder: Path) -> None:
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        (folder / "told.json").write_text(done.stdout.splitlines()[-1])

    return json.loads((made_once("fused-vit", run) / "told.json").read_text())
