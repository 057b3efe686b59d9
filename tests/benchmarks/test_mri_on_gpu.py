"""The program of the GPU run, small, where nibabel and the like are not installed; scored here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = (
    "pyarrow",
    "pydantic",
    "numba",
    "typer",
    "rich",
    "matplotlib",
    "nibabel",
    "openpyxl",
    "xgboost",
    "ray",
)
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # as if they were not installed
import runpy
sys.argv[0] = "benchmarks.mri_on_gpu"
runpy.run_module("benchmarks.mri_on_gpu", run_name="__main__", alter_sys=True)
"""
TINY = ("widths=[4,8]", "blocks=[1,1]", "patch=[16,16,16]", "batch=2", "spacing_mm=[6,6,6]", "cost_repeats=1")


@pytest.fixture(autouse=True)
def _benchmarks_are_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def bare(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BARE, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_all(keep: Path, out: Path, *more: str) -> str:
    settings = [word for text in TINY for word in ("--set", text)]
    return bare(
        *(
            "all",
            "--keep",
            str(keep),
            "--out",
            str(out),
            "--device",
            "cpu",
            "--patients",
            "4",
            "--size",
            "48",
        ),
        *("--processes", "1", "--steps", "4", "--steps-per-epoch", "2", "--mirror", "no", *settings),
        *("--no-bench", "--seconds", "2000", "--probe-seconds", "1", *more),
    )


def test_a_split_parts_no_patient_and_keeps_the_other_site_whole():
    pytest.importorskip("torch")
    from benchmarks.mri_world import split_of

    from elsewhere.inputs.cases import Cases

    names = tuple(f"{site}/{n}" for site in ("A", "B", "C") for n in range(30))
    cases = Cases(
        case=names,
        dataset=tuple(name[0] for name in names),
        label=np.array([n % 3 - 1 for n in range(90)], dtype=np.int8),
        box=np.zeros((90, 4), dtype=np.int32),
        digest=names,
        group=names,
    )
    split = split_of(cases, elsewhere="B", folds=3, seed=0)
    parts = split["parts"]
    assert sorted(name for held in parts.values() for name in held) == sorted(names)
    assert parts["elsewhere"] == [name for name in names if name[0] == "B"]
    assert {part: len(held) for part, held in parts.items()} == {
        "train": 36, "validation": 4, "home": 20, "elsewhere": 30,
    }  # fmt: skip
    assert {name[0] for name in parts["home"]} == {"A", "C"}
    assert split_of(cases, elsewhere="B", folds=3, seed=1)["hash"] != split["hash"]


def place(folder: Path, *, left: float = 1e6) -> Any:
    from benchmarks.mri_on_gpu import Place

    return Place(keep=folder, began=time.time(), until=time.time() + left)


@pytest.mark.parametrize(
    ("failed", "ways"),
    [
        ((), (True, True, True)),
        (("captured",), (False, True, True)),
        (("norm",), (True, False, False)),
        (("convolutions-last",), (True, False, True)),
        (("loader", "machine"), (True, True, True)),
    ],
)
def test_what_fails_in_the_probe_is_done_without(failed, ways):
    from benchmarks.mri_probe import CHECKS, chosen_ways

    told = {name: {"ok": False if name in failed else None if name == "joint" else True} for name in CHECKS}
    assert tuple(chosen_ways(told).values()) == ways


def test_the_probe_of_a_norm_sees_a_wrong_one(monkeypatch):
    pytest.importorskip("monai")
    from benchmarks import mri_probe
    from elsewhere.training.volumes.networks import FusedInstanceNorm

    assert mri_probe.norm("cpu")["ok"]
    right = FusedInstanceNorm.apply
    monkeypatch.setattr(FusedInstanceNorm, "apply", lambda x, w, b, eps: right(x, w * 1.05, b, eps))
    assert not mri_probe.norm("cpu")["ok"]


@pytest.mark.parametrize(("probe_seconds", "ok"), [(60.0, False), (0.1, None)])
def test_a_check_that_hangs_fails_and_one_without_time_says_nothing(tmp_path, monkeypatch, probe_seconds, ok):
    pytest.importorskip("torch")
    from argparse import Namespace

    from benchmarks import mri_children, mri_probe

    monkeypatch.setattr(mri_children, "GRACE_S", 0.2)
    monkeypatch.setattr(mri_probe, "CHECKS", {"captured": lambda device: time.sleep(600)})
    given = Namespace(device="cpu", probe_seconds=probe_seconds, check_seconds=1.5)
    told = mri_probe.probe(place(tmp_path), given)
    assert told["checks"]["captured"]["ok"] is ok
    assert told["ways"]["captured"] is (ok is None)


def test_a_child_tells_how_it_ended(capfd):
    from benchmarks.mri_children import TimeUpError, start

    from benchmarks import mri_children

    def broken() -> None:
        raise ValueError("spoilt")

    def late() -> None:
        raise TimeUpError("epoch 3")

    soon = time.time() + 60
    assert start("well", lambda: None, until=soon).ended() == ""
    assert start("broken", broken, until=soon).ended() == "failed: exit code 1"
    assert "spoilt" in capfd.readouterr().err
    assert start("late", late, until=soon).ended() == "cut off: its time was up"
    assert start("dead", lambda: os.kill(os.getpid(), 9), until=soon).ended() == "failed: signal 9"
    hung = start("hung", lambda: time.sleep(600), until=time.time() - mri_children.GRACE_S)
    assert hung.ended() == "cut off: it did not end in time" and not hung.process.is_alive()


def test_a_training_ends_at_the_checkpoint_before_the_time_is_up(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from benchmarks.mri_children import TimeUpError

    from benchmarks import mri_training

    now = [1000.0]
    monkeypatch.setattr(mri_training.time, "time", lambda: now[0])
    here = place(tmp_path)
    here.until = 1000.0 + 55
    watch = mri_training.Watch(here, "r", {"checkpoint_every": 10}, {"predict_planned": 20.0})
    ended = None
    for epoch in range(1, 101):
        now[0] += 1.0
        try:
            watch("epoch", epoch, 100)
        except TimeUpError:
            ended = epoch
            break
    assert ended == 50
    whole = mri_training.Watch(here, "r", {"checkpoint_every": 10}, {"predict_planned": 20.0})
    now[0] = 1000.0 + 30
    whole("epoch", 100, 100)
    now[0] = 1000.0 + 40
    with pytest.raises(TimeUpError):
        whole("epoch", 100, 100)
    with pytest.raises(TimeUpError):
        now[0] = 1000.0 + 56
        whole("predict", 1, 9)


def test_a_stage_that_fails_leaves_the_others_to_go_on(tmp_path, capsys):
    from benchmarks.mri_on_gpu import _guarded

    here = place(tmp_path)
    _guarded(here, "bench", lambda: 1 / 0)
    assert "bench: failed: ZeroDivisionError" in capsys.readouterr().out
    assert json.loads((tmp_path / "mri-stages.jsonl").read_text())["wrong"] == "division by zero"


def test_a_world_that_has_no_time_is_what_is_there(tmp_path):
    from benchmarks.mri_world import make_world, world_specs

    specs = world_specs(patients=1, size=48)
    assert make_world(tmp_path, specs, processes=1, until=time.time() - 1) == []
    first = make_world(tmp_path, specs[:1], processes=1)
    assert make_world(tmp_path, specs, processes=1, until=time.time() - 1) == first != []


@pytest.mark.slow
def test_every_check_of_the_probe_passes_on_a_bare_cpu(tmp_path):
    pytest.importorskip("monai")
    times = ("--seconds", "3000", "--probe-seconds", "2900", "--check-seconds", "900")
    said = bare("probe", "--keep", str(tmp_path), "--device", "cpu", *times)
    probe = json.loads((tmp_path / "mri-probe.json").read_text())
    assert all(entry["ok"] for entry in probe["checks"].values()), said


@pytest.mark.slow
def test_made_trained_cut_off_and_scored(tmp_path):
    pytest.importorskip("monai")
    nibabel = pytest.importorskip("nibabel")
    keep, out = tmp_path / "keep", tmp_path / "out"
    said = run_all(keep, out, "--recipes", "no-such-recipe,residual-unet")
    assert "no-such-recipe: failed" in said and "residual-unet: done" in said
    probe = json.loads((keep / "mri-probe.json").read_text())
    assert len(probe["checks"]) > 10 and all(probe["ways"].values())
    drawn = {file.name: file.stat().st_mtime_ns for file in (keep / "mri-world").glob("*.npy")}
    said = run_all(keep, out, "--recipes", "residual-unet,breast-crop")
    assert "residual-unet: was there" in said and "breast-crop: done" in said
    assert drawn == {file.name: file.stat().st_mtime_ns for file in (keep / "mri-world").glob("*.npy")}
    scored = tmp_path / "scored"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mri_on_gpu", "score", str(out), str(scored)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    board = pd.read_csv(scored / "report" / "tables" / "leaderboard.csv")
    assert set(board["recipe"]) == {"residual-unet", "breast-crop"}
    assert set(board["kind"]) == {"internal", "external"}
    trainings = pd.read_csv(scored / "trainings.csv")
    assert (trainings["steps"] == 4).all() and (trainings["case_seconds"] > 0).all()
    told = json.loads((keep / "mri-world" / "WEST_001.json").read_text())
    split = json.loads((keep / "mri-split.json").read_text())["parts"]
    for name in (*split["home"], *split["elsewhere"]):
        case = name.partition("/")[2]
        held = json.loads((keep / "mri-world" / f"{case}.json").read_text())
        truth = nibabel.load(scored / "truth" / f"{case}.nii.gz")
        assert np.allclose(truth.affine, held["affine"]) and list(truth.shape) == held["shape"]
        volume = np.asarray(truth.dataobj).sum() * np.prod(held["spacing_mm"])
        assert volume == pytest.approx(held["volume_mm3"], rel=1e-3)
    assert told["plane"] == "sagittal"
