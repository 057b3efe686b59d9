"""Recipes on every engine: two processes, Ray, a bare machine; killed at any moment, the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.engine.work import load_work, save_work
from worlds import child_environment, fake_recipes  # noqa: F401 - registers
from worlds.breast_volumes import make_recipe_work, recipe_unit

TRAINER = "worlds.fake_recipes:train"
"""The engine's own trainer, in a process that has imported the fake recipes."""
BLOCKED = (
    "pyarrow",
    "pydantic",
    "numba",
    "typer",
    "rich",
    "matplotlib",
    "nibabel",
    "monai",
    "xgboost",
    "ray",
)
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # as if they were not installed
from worlds import fake_recipes
import runpy
sys.argv[0] = "elsewhere.engine"
runpy.run_module("elsewhere.engine", run_name="__main__")
"""


@pytest.fixture
def work():
    return make_recipe_work()


@pytest.fixture
def log(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELSEWHERE_RECIPE_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def volumes_of(work):
    return work.sources["mri"].volumes


def same(one: Store, other: Store, units) -> bool:
    pairs = [(one.load(u.key), other.load(u.key)) for u in units]
    return all(
        a.case == b.case
        and a.answers["segmentation"] == b.answers["segmentation"]
        and a.answers["response"].probability.tobytes() == b.answers["response"].probability.tobytes()
        for a, b in pairs
    )


def units_of(work, n, **settings):
    return [recipe_unit(work, "threshold", seed=seed, settings=settings) for seed in range(n)]


def test_two_processes_give_the_same_and_share_the_threads(work, tmp_path, log):
    units = units_of(work, 4)
    alone, pool = Store(tmp_path / "a"), Store(tmp_path / "b")
    run_units(units, work, alone, device="cpu", threads=2)
    report = run_units(units, work, pool, device="cpu,cpu", threads=2, trainer=TRAINER)
    assert set(report.done) == {u.key for u in units}
    assert same(alone, pool, units)
    threads = [line.split()[2] for line in log.read_text().splitlines()]
    assert threads == ["2"] * 4 + ["1"] * 4


def test_a_process_that_dies_is_tried_again_with_its_scratch(work, tmp_path, log):
    """SIGKILL in the middle of a recipe: what it left in its scratch folder is there the second time."""
    units = [recipe_unit(work, "threshold", settings={"fault": "die"}), *units_of(work, 2)]
    report = run_units(units, work, Store(tmp_path / "s"), device="cpu,cpu", trainer=TRAINER)
    assert set(report.done) == {u.key for u in units}
    told = [line.split(maxsplit=4)[4] for line in log.read_text().splitlines()]
    assert told.count("['once']") == 1


def test_a_bare_machine_runs_recipes_and_what_it_did_comes_back(work, tmp_path):
    units = units_of(work, 2)
    save_work(units, work, tmp_path / "work")
    back, there = load_work(tmp_path / "work")
    assert [u.key for u in back] == [u.key for u in units]
    assert (there.cases.clinical, there.cases.group) == (work.cases.clinical, work.cases.group)
    for name in work.cases.case:
        assert np.array_equal(volumes_of(there).phase(name, 1), volumes_of(work).phase(name, 1))
        assert volumes_of(there).breast_box(name) == volumes_of(work).breast_box(name)
    done = subprocess.run(
        [
            *(sys.executable, "-c", BARE, str(tmp_path / "work"), "--store", str(tmp_path / "there")),
            *("--device", "cpu", "--zip", str(tmp_path / "done.zip")),
        ],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 units, 8 volumes" in done.stdout and "2 trained" in done.stdout
    here, alone = Store(tmp_path / "here"), Store(tmp_path / "alone")
    assert set(here.add(tmp_path / "done.zip")) == {u.key for u in units}
    run_units(units, work, alone, device="cpu")
    assert same(here, alone, units)
    assert run_units(units, work, here, device="cpu").done == ()


@pytest.mark.slow
def test_killed_with_sigkill_the_same_run_goes_on(work, tmp_path, log):
    units = units_of(work, 4, seconds=1.0)
    save_work(units, work, tmp_path / "work")
    command = [
        sys.executable,
        "-c",
        BARE,
        str(tmp_path / "work"),
        "--store",
        str(tmp_path / "s"),
        "--device",
        "cpu",
    ]
    running = subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not Store(tmp_path / "s").keys() and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before = set(Store(tmp_path / "s").keys())
    assert before and len(before) < 4
    subprocess.run(command, env=child_environment(), check=True, capture_output=True)
    assert set(Store(tmp_path / "s").keys()) == {u.key for u in units}
    counts = [line.split()[0] for line in log.read_text().splitlines()]
    assert all(counts.count(str(u.seed)) == 1 for u in units if u.key in before)
    alone = Store(tmp_path / "alone")
    run_units(units, work, alone, device="cpu")
    assert same(Store(tmp_path / "s"), alone, units)


def test_ray_gives_the_same(work, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    units = units_of(work, 3)
    alone, cluster = Store(tmp_path / "a"), Store(tmp_path / "b")
    run_units(units, work, alone, device="cpu", threads=1)
    report = run_units(units, work, cluster, engine="ray", device="cpu", threads=1, trainer=TRAINER)
    assert set(report.done) == {u.key for u in units}
    assert same(alone, cluster, units)
