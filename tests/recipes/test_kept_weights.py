"""Kept weights: what was trained there predicts here what it predicted there, from a file without any code in it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from elsewhere.engine.kept import pack_kept, unpack_kept, wrong_with
from elsewhere.inputs.source import CLINICAL
from elsewhere.recipes import Trained, recipes
from elsewhere.recipes.mri.response_models import Applied, Forest, KeptForest
from worlds.contrast_volumes import chance_of, world

TINY = {
    "patch": [16, 16, 8],
    "widths": [4, 8],
    "blocks": [1, 1],
    "batch": 2,
    "epochs": 1,
    "steps_per_epoch": 3,
    "validation_steps": 1,
    "spacing_mm": [],
    "mirror": False,
    "cost_repeats": 0,
}
CROPS = {"networks": ["tiny-3d"], "epochs": 2, "batch": 8, "size": [12, 12, 8]}
SETTINGS = {
    "random": {},
    "clinical": {"columns": ["age", "menopausal_status"]},
    "radiomics": {"model": "elastic-net"},
    "radiomics-clinical": {"model": "random-forest", "clinical": ["age"]},
    "segmentation-xgboost": {"trees": 20, "depths": [1, 2]},
    "network-xgboost": TINY | {"trees": 20, "depths": [1, 2]},
    "slice-cnn": {"network": "tiny-cnn", "weights": "none", "size_px": 32, "epochs": 1},
    "simclr": CROPS,
    "video": CROPS | {"weights": "none", "learning_rates": [1e-3], "folds": 2, "spacing_mm": [1.0, 1.0, 1.0]},
    "residual-unet": TINY | {"folds": 2},
    "subtraction": TINY | {"folds": 1},
    "breast-crop": TINY,
    "masked-autoencoder": TINY | {"folds": 1, "pretrain_epochs": 1, "block": 4},
    "subgroup-reweighting": TINY,
    "shared-encoder": TINY | {"clip": [0.5, 99.5], "folds": 1},
}
CANNOT = {"nnunet"}
DEEP = {"simclr", "video", "slice-cnn", "residual-unet", "subtraction", "breast-crop"} | {
    "masked-autoencoder",
    "subgroup-reweighting",
    "shared-encoder",
    "network-xgboost",
}


@pytest.fixture(autouse=True)
def one_thread():
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained_and_applied(name, tmp_path, *, keep=True):
    """What a training emitted, and what its kept weights emit for the same cases, through a file."""
    if name in DEEP:
        pytest.importorskip("monai")
    if name.endswith("-xgboost"):
        pytest.importorskip("xgboost")
    recipe = recipes.get(name)
    held = world(26, shape=(24, 24, 12))
    parts = {"train": slice(0, 18), "validation": slice(18, 22), "predict": slice(22, 26)}
    tasks = tuple(task for task in ("segmentation", "response") if task in recipe.answers)
    folder = tmp_path / "scratch"
    folder.mkdir()
    job, first = held.job(recipe.settings(SETTINGS[name]), folder, **parts, tasks=tasks, keep=keep)
    if CLINICAL in recipe.sees:
        told = {case.case: case.clinical for case in held.cases}
        job = replace(job, predict=tuple(replace(c, clinical=told[c.case]) for c in job.predict))
    trained = recipe().run(job)
    if not keep:
        return trained, first, []
    file = tmp_path / "weights.npz"
    file.write_bytes(pack_kept(trained.weights))
    again: list = []
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    blind = replace(job, train=(), validation=(), scratch=empty, emit=again.append, keep=False, seed=99)
    assert isinstance(recipe().apply(blind, unpack_kept(file)), Trained)
    return trained, first, again


def test_every_recipe_that_ships_can_be_kept_but_nnunet():
    ours = {name for name in recipes.names() if recipes.owner(name).startswith("elsewhere")}
    ours = {name for name in ours if recipes.get(name).reads not in ("pictures", "tomosynthesis")}
    assert {name for name in ours if recipes.get(name).keeps} == set(SETTINGS)
    assert ours - set(SETTINGS) == CANNOT


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_kept_weights_predict_what_the_training_predicted(name, tmp_path):
    _, first, again = trained_and_applied(name, tmp_path)
    assert [(p.case, p.mask is None) for p in again] == [(p.case, p.mask is None) for p in first] and first
    for one, other in zip(first, again, strict=True):
        if one.mask is not None:
            assert np.array_equal(one.mask, other.mask)
        assert (one.probability, one.answers) == (other.probability, other.answers)


@pytest.mark.parametrize("name", ["clinical", "residual-unet", "simclr"])
def test_nothing_is_handed_over_that_was_not_asked_for(name, tmp_path):
    trained, _, _ = trained_and_applied(name, tmp_path, keep=False)
    assert trained.weights is None


def test_a_kept_forest_votes_as_the_library_that_grew_it():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 6))
    x[rng.random(x.shape) < 0.1] = np.nan
    y = (np.nan_to_num(x[:, 0]) + 0.3 * rng.normal(size=120) > 0).astype(np.int64)
    forest = Forest(seed=1, leaf=3, trees=40).fit(x[:80], y[:80])
    kept = Applied.of({"model": forest.kept(), "shift": 0.5}, {"forest": KeptForest})
    assert np.array_equal(kept.model.logit(x), forest.logit(x))
    assert np.ptp(forest.logit(x)) > 1


def test_a_column_that_another_hospital_lacks_is_filled_in_and_said(tmp_path):
    recipe = recipes.get("clinical")
    held = world(26)
    cut = {"train": slice(0, 22), "validation": slice(0, 0), "predict": slice(22, 26)}
    job, out = held.job(
        recipe.settings({"columns": ["age", "menopausal_status"]}),
        tmp_path,
        **cut,
        tasks=("response",),
        keep=True,
    )
    kept = recipe().run(job).weights
    told = [{"menopausal_status": "pre"}, {"menopausal_status": "peri"}, {"age": 50.0}, {"age": "fifty"}]
    cases = tuple(replace(c, clinical=v) for c, v in zip(job.predict, told, strict=True))
    done = recipe().apply(replace(job, train=(), validation=(), predict=cases), kept)
    words = " ".join(done.notes)
    assert "age is empty for 2 of 4" in words and "age is no number for 1 of 4" in words
    assert "menopausal_status is empty for 2 of 4" in words
    assert "menopausal_status has a word that training did not know for 1 of 4" in words
    assert all(0 <= chance_of(p) <= 1 for p in out)


def test_a_tree_comes_back_as_it_was(tmp_path):
    torch = pytest.importorskip("torch")
    tree = {
        "a": np.arange(6, dtype=np.float64).reshape(2, 3),
        "scalar": np.float32(0.1),
        "none": None,
        "words": ["x", 3, 0.1, True, float("inf")],
        "raw": b"\x00\xff",
        "deep": {
            "half": torch.ones(2, 3, dtype=torch.bfloat16) * 0.3,
            "count": torch.tensor(7),
            "channels last": torch.randn(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d),
        },
    }
    file = tmp_path / "w.npz"
    file.write_bytes(pack_kept(tree))
    back = unpack_kept(file)
    assert np.array_equal(back["a"], tree["a"]) and back["scalar"] == np.float32(0.1)
    assert back["none"] is None and back["words"] == ["x", 3, 0.1, True, float("inf")]
    assert back["raw"] == b"\x00\xff" and back["deep"]["count"].shape == ()
    for name in ("half", "count", "channels last"):
        assert torch.equal(back["deep"][name], tree["deep"][name])
        assert back["deep"][name].dtype == tree["deep"][name].dtype
    assert pack_kept(tree) == file.read_bytes()


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"model": {"net": object()}}, r"weights\.model\.net is a builtins\.object"),
        ({"list": [1, lambda: 0]}, r"weights\.list\[1\] is a builtins\.function"),
        ({1: 2}, "the key 1"),
        ({"a": np.array([object()])}, r"weights\.a is a numpy\.ndarray"),
    ],
)
def test_what_would_have_to_be_pickled_is_refused_by_its_place(tree, told):
    import re

    assert re.search(told, wrong_with(tree))
    with pytest.raises(TypeError):
        pack_kept(tree)
