"""nnunetv2 through its own interface. ELSEWHERE_NNUNET_PYTHON may name an interpreter that has it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

import nibabel
import numpy as np
import pytest
from tests.recipes.deep_worlds import world

from elsewhere.errors import UserError
from elsewhere.recipes import recipes
from elsewhere.recipes.base import SEGMENTATION
from elsewhere.recipes.mri.nnunet import _splits, export, need_nnunet

PYTHON = os.environ.get("ELSEWHERE_NNUNET_PYTHON") or (
    sys.executable if importlib.util.find_spec("nnunetv2") else ""
)


def make_job(tmp_path, settings, **more):
    w = world(8, shape=(32, 32, 16))
    recipe = recipes.get("nnunet")()
    parts = {"train": slice(0, 4), "validation": slice(4, 6), "predict": slice(6, 8)}
    job, out = w.job(recipe.settings(settings), tmp_path, **parts, tasks=(SEGMENTATION,), **more)
    return w, recipe, job, out


def test_without_nnunet_the_extra_is_named(tmp_path, monkeypatch):
    _, recipe, job, _ = make_job(tmp_path, {"python": "/nowhere/python"})
    with pytest.raises(UserError, match="cannot be started") as told:
        recipe.run(job)
    assert "elsewhere[nnunet]" in told.value.fix
    if not importlib.util.find_spec("nnunetv2"):
        with pytest.raises(UserError, match="needs nnunetv2"):
            need_nnunet(sys.executable)


def test_the_export_is_nnunets_raw_format(tmp_path):
    w, _, job, _ = make_job(tmp_path, {})
    known = [*job.train, *job.validation]
    names = {case.case: f"case_{at:05d}" for at, case in enumerate((*known, *job.predict))}
    export(job, known, names, tmp_path, (0, 1, -1))
    raw = tmp_path / "raw" / "Dataset001_Elsewhere"
    about = json.loads((raw / "dataset.json").read_text())
    assert about["numTraining"] == 6 and about["labels"] == {"background": 0, "tumour": 1}
    assert len(about["channel_names"]) == 3
    assert len(list((raw / "imagesTr").iterdir())) == 18
    assert len(list((raw / "labelsTr").iterdir())) == 6
    assert len(list((tmp_path / "imagesTs").iterdir())) == 6
    read = nibabel.load(raw / "imagesTr" / "case_00000_0002.nii.gz")
    assert np.allclose(read.get_fdata(), w.volumes.images[w.cases[0].case][2], atol=1e-5)
    mask = nibabel.load(raw / "labelsTr" / "case_00000.nii.gz").get_fdata()
    assert np.array_equal(mask > 0, w.volumes.masks[w.cases[0].case])
    splits = _splits(job.train, known, names, folds=1, seed=0)
    assert splits == [{"train": [f"case_0000{i}" for i in range(4)], "val": ["case_00004", "case_00005"]}]
    several = _splits(job.train, known, names, folds=3, seed=0)
    assert sorted(name for part in several for name in part["val"]) == [f"case_0000{i}" for i in range(6)]
    assert all(not set(part["train"]) & set(part["val"]) for part in several)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="nnunetv2 is not installed (extra 'nnunet')")
def test_nnunet_trains_and_predicts_for_real(tmp_path):
    told = []
    settings = {
        "planner": "ExperimentPlanner",
        "epochs": 2,
        "steps_per_epoch": 12,
        "validation_steps": 1,
        "mirror": False,
        "python": PYTHON,
    }
    w, recipe, job, out = make_job(tmp_path, settings, progress=lambda *what: told.append(what), threads=1)
    trained = recipe.run(job)
    assert [p.case for p in out] == [c.case for c in w.cases[6:8]]
    assert all(p.mask.shape == (32, 32, 16) and p.mask.dtype == bool and p.seconds > 0 for p in out)
    assert [h["epoch"] for h in trained.history] == [1, 2]
    assert trained.history[1]["train_loss"] < trained.history[0]["train_loss"]
    assert trained.details["configuration"] == "3d_fullres" and trained.details["plan"]["patch_size"]
    assert ("nnU-Net, fold 0", 2, 2) in told
    told.clear()
    again = recipe.run(job)
    assert again.history == trained.history
    assert not any(what[0].startswith("nnU-Net") for what in told)
    assert np.array_equal(out[0].mask, out[2].mask)
