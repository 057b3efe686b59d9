"""The program of the GPU run, small, where nibabel and the like are not installed; scored here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
        *("--processes", "1", "--steps", "4", "--steps-per-epoch", "2", "--mirror", "no", *settings, *more),
    )


def test_a_split_parts_no_patient_and_keeps_the_other_site_whole():
    pytest.importorskip("torch")
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.mri_world import split_of
    finally:
        sys.path.remove(str(ROOT))
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


@pytest.mark.slow
def test_made_trained_cut_off_and_scored(tmp_path):
    pytest.importorskip("monai")
    nibabel = pytest.importorskip("nibabel")
    keep, out = tmp_path / "keep", tmp_path / "out"
    run_all(keep, out, "--recipes", "residual-unet")
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
