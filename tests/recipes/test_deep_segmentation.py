"""Masked autoencoder, shared encoder and subgroup reweighting as whole recipes on small phantoms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.recipes import recipes
from elsewhere.recipes.base import RESPONSE, SEGMENTATION
from elsewhere.recipes.mri.residual_unet import patch_around
from worlds.ball_volumes import SMALL_PLAN
from worlds.contrast_volumes import World, auc, world

SMALL = {
    "patch": [16, 16, 8],
    "widths": [8, 16],
    "blocks": [1, 1],
    "batch": 4,
    "folds": 1,
    "mirror": False,
    "augment": False,
    "compiled": False,
    "skip_air": False,
    "validation_steps": 2,
    "cost_repeats": 0,
    "checkpoint_every": 1,
    "test_box": "given",
}


pytestmark = pytest.mark.usefixtures("one_thread")


def run(name, settings, w: World, tmp_path, *, train, validation, predict, tasks=(SEGMENTATION,), **more):
    recipe = recipes.get(name)()
    job, out = w.job(
        recipe.settings(SMALL | settings),
        tmp_path,
        train=train,
        validation=validation,
        predict=predict,
        tasks=tasks,
        **more,
    )
    return recipe.run(job), out


def dice(w: World, out) -> float:
    found = [p for p in out if p.mask is not None]
    return float(
        np.mean(
            [
                2 * (p.mask & w.volumes.masks[p.case]).sum() / (p.mask.sum() + w.volumes.masks[p.case].sum())
                for p in found
            ]
        )
    )


def test_masked_autoencoder_pretrains_without_masks_then_segments(tmp_path):
    w = world(16, sign="none")
    first = w.cases[0].case
    w.volumes = replace(w.volumes, masks={k: m for k, m in w.volumes.masks.items() if k != first})
    settings = {"pretrain_epochs": 2, "epochs": 4, "steps_per_epoch": 15, "block": 4, "learning_rate": 0.02}
    parts = {"train": slice(0, 10), "validation": slice(10, 12), "predict": slice(12, 16)}
    trained, out = run("masked-autoencoder", settings, w, tmp_path, **parts)
    told = trained.details["pretraining"]
    assert told["cases"] == 10 and len(told["history"]) == 2
    assert told["history"][1]["train_loss"] < told["history"][0]["train_loss"]
    assert any("pretraining alone" in note for note in trained.notes)
    assert len(out) == 4 and dice(w, out) > 0.5
    assert json.dumps(trained.details)


def test_a_killed_masked_autoencoder_goes_on_as_if_it_had_not_been(tmp_path):
    w = world(8, sign="none")
    settings = {"pretrain_epochs": 2, "epochs": 2, "steps_per_epoch": 3, "block": 4}
    parts = {"train": slice(0, 5), "validation": slice(5, 6), "predict": slice(6, 8)}
    whole, out = run("masked-autoencoder", settings, w, tmp_path / "whole", **parts)

    class KilledError(Exception):
        pass

    for stop in (("pretraining", 1), ("epoch", 1)):

        def progress(what, done, total, stop=stop):
            if (what, done) == stop:
                raise KilledError

        folder = tmp_path / stop[0]
        with pytest.raises(KilledError):
            run("masked-autoencoder", settings, w, folder, progress=progress, **parts)
        again, later = run("masked-autoencoder", settings, w, folder, **parts)
        assert [h["train_loss"] for h in again.history] == [h["train_loss"] for h in whole.history]
        assert all(np.array_equal(a.mask, b.mask) for a, b in zip(out, later, strict=True))


@pytest.mark.slow
def test_the_shared_encoder_learns_both_tasks_in_one_unit(tmp_path):
    w = world(72, sign="rim")
    settings = {"epochs": 4, "steps_per_epoch": 30, "batch": 6, "learning_rate": 6e-3, "clip": [0.5, 99.5]}
    parts = {"train": slice(0, 44), "validation": slice(44, 48), "predict": slice(48, 72)}
    trained, out = run("shared-encoder", settings, w, tmp_path, tasks=(SEGMENTATION, RESPONSE), **parts)
    masks = [p for p in out if p.mask is not None]
    values = [p for p in out if p.probability is not None]
    assert len(masks) == len(values) == 24
    assert dice(w, masks) > 0.5
    label = {c.case: c.label for c in w.cases}
    assert auc([label[p.case] for p in values], [p.probability for p in values]) > 0.8
    assert json.dumps(trained.details)


def test_the_shared_encoder_hands_over_what_is_asked_for(tmp_path):
    w = world(10)
    settings = {"epochs": 1, "steps_per_epoch": 2}
    parts = {"train": slice(0, 6), "validation": slice(6, 8), "predict": slice(8, 10)}
    _, out = run("shared-encoder", settings, w, tmp_path / "a", tasks=(RESPONSE,), **parts)
    assert [p.mask for p in out] == [None, None] and all(0 < p.probability < 1 for p in out)
    w.cases = [replace(c, label=0) for c in w.cases]
    with pytest.raises(UserError, match="only one outcome"):
        run("shared-encoder", settings, w, tmp_path / "b", tasks=(RESPONSE,), **parts)
    trained, out = run("shared-encoder", settings, w, tmp_path / "c", **parts)
    assert all(p.mask is not None for p in out) and trained.details["weight_of_pcr"] == 1.0


def test_a_patch_around_a_tumour_at_the_edge_stays_inside():
    image = torch.arange(2 * 20 * 20 * 4, dtype=torch.float32).reshape(2, 20, 20, 4)
    cut = patch_around(image, np.array([[0, 0, 0]]), SMALL_PLAN)
    assert cut.shape == (2, 16, 16, 8)
    assert torch.equal(cut[:, :, :, 2:6], image[:, :16, :16])
    assert float(cut[:, :, :, :2].abs().sum()) == 0.0
    middle = patch_around(image, np.empty((0, 3)), SMALL_PLAN)
    assert torch.equal(middle[:, :, :, 2:6], image[:, 2:18, 2:18])


def test_the_planted_bad_group_gets_more_weight_and_is_named(tmp_path):
    w = world(24, sign="none", hard="B")
    settings = {
        "epochs": 4,
        "steps_per_epoch": 20,
        "every": 2,
        "warm": 0.0,
        "learning_rate": 4e-3,
        "columns": ["dataset", "menopausal_status"],
    }
    parts = {"train": slice(0, 12), "validation": slice(12, 20), "predict": slice(20, 24)}
    trained, out = run("subgroup-reweighting", settings, w, tmp_path, **parts)
    told = trained.details["reweighting"]["0"]
    assert [entry["epoch"] for entry in told] == [2, 4]
    assert "dataset = B" in told[-1]["subgroups"][0]["subgroup"]
    weights = told[-1]["weights"]["by_case"]
    bad = [weights.get(c.case, 1.0) for c in w.cases[:12] if c.dataset == "B"]
    good = [weights.get(c.case, 1.0) for c in w.cases[:12] if c.dataset == "A"]
    assert min(bad) > max(good)
    assert len(out) == 4 and json.dumps(trained.details)


def test_reweighting_without_clinical_values_says_so(tmp_path):
    w = world(10)
    w.cases = [replace(c, clinical={}) for c in w.cases]
    settings = {"epochs": 1, "steps_per_epoch": 2, "every": 1, "warm": 0.0, "columns": ["subtype"]}
    parts = {"train": slice(0, 6), "validation": slice(6, 8), "predict": slice(8, 10)}
    trained, _ = run("subgroup-reweighting", settings, w, tmp_path, **parts)
    assert any("no subgroup was searched for" in note for note in trained.notes)
    assert trained.details["reweighting"] == {"0": []}


@pytest.mark.parametrize("name", ["masked-autoencoder", "shared-encoder", "subgroup-reweighting"])
def test_slices_of_depth_one_and_no_masks_at_all(tmp_path, name):
    w = world(10, shape=(24, 24, 1))
    settings = {"epochs": 1, "steps_per_epoch": 2}
    if name == "masked-autoencoder":
        settings |= {"pretrain_epochs": 1, "block": 4}
    parts = {"train": slice(0, 6), "validation": slice(6, 8), "predict": slice(8, 10)}
    _, out = run(name, settings, w, tmp_path / "a", **parts)
    assert all(p.mask.shape == (24, 24, 1) for p in out)
    w.volumes = MemoryVolumes(images=w.volumes.images)
    with pytest.raises(UserError, match="mask"):
        run(name, settings, w, tmp_path / "b", **parts)
