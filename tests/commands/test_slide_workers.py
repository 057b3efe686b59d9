"""Many slides in several processes: one that ends its process does not end the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elsewhere.commands.slide_patches.workers import run_each
from worlds.slide_sets import dies_on_b

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks at /proc")


def test_a_process_that_dies_takes_only_its_task_with_it():
    found = dict(run_each(dies_on_b, ["a", "b", "c", "d", "e"], workers=2))
    assert sorted(found) == ["a", "b", "c", "d", "e"]
    assert "process that read this slide ended" in found["b"]["error"]
    assert found["c"]["error"] == "bad"
    assert [found[name] for name in "ade"] == [None, None, None]


def test_in_this_process_every_task_is_run_in_order():
    assert list(run_each(lambda task, progress: {"error": task}, ["x", "y"])) == [
        ("x", {"error": "x"}),
        ("y", {"error": "y"}),
    ]


@needs_proc
@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path):
    """A run that is killed must not leave processes that hold memory and slides."""
    code = (
        "from elsewhere.commands.slide_patches.workers import run_each\n"
        "from worlds.slide_sets import writes_its_process_and_waits\n"
        "if __name__ == '__main__':\n"
        f"    list(run_each(writes_its_process_and_waits, [{str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}], workers=2))\n"
    )
    (tmp_path / "run.py").write_text(code)
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)])
    run = subprocess.Popen([sys.executable, tmp_path / "run.py"], env={**os.environ, "PYTHONPATH": paths})
    workers = [_number(tmp_path / name) for name in "ab"]
    assert all(_lives(number) for number in workers)
    run.kill()
    run.wait()
    until = time.monotonic() + 60
    while any(map(_lives, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_lives, workers))


def _number(path: Path) -> int:
    until = time.monotonic() + 120
    while not (path.exists() and path.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    return int(path.read_text())


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
