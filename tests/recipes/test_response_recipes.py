"""Random, clinical, radiomics, boosted trees and the slice network on small worlds with a planted sign."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.source import CLINICAL, LESION_BOX
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.recipes import recipes
from elsewhere.recipes.base import Job, RecipeCase
from elsewhere.recipes.mri.clinical import ClinicalDesign
from elsewhere.recipes.mri.random_classifier import draw
from elsewhere.recipes.mri.segmentation_xgboost import Boosted
from elsewhere.recipes.mri.slice_cnn import SliceSettings, slice_picture
from worlds.contrast_volumes import auc, chance_of, world

NAMES = ("random", "clinical", "radiomics", "radiomics-clinical", "segmentation-xgboost", "slice-cnn")
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="no torch: the extra 'train'")
needs_xgboost = pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None, reason="no xgboost: the extra 'train'"
)


def run(name, held, tmp_path, *, train=slice(0, 40), predict=slice(40, None), seed=1, **more):
    recipe = recipes.get(name)
    job, out = held.job(
        recipe.settings(more),
        tmp_path,
        train=train,
        validation=slice(0, 0),
        predict=predict,
        tasks=("response",),
        seed=seed,
    )
    trained = recipe().run(job)
    labels = [case.label for case in held.cases[predict]]
    return trained, labels, [chance_of(p) for p in out], out


def test_all_are_there_and_say_whom_they_follow():
    for name in NAMES:
        recipe = recipes.get(name)
        assert recipe.follows
        assert recipe.answers == {"response": "probability"}


def test_only_the_clinical_ones_read_clinical_columns_of_a_test():
    told = {name for name in NAMES if CLINICAL in recipes.get(name).sees}
    assert told == {"clinical", "radiomics-clinical"}
    assert not any(LESION_BOX in recipes.get(name).sees for name in NAMES)


def test_a_random_probability_rests_on_seed_and_case_alone():
    assert draw(1, "A/1") == draw(1, "A/1")
    drawn = np.array([draw(seed, f"A/{case}") for seed in range(20) for case in range(100)])
    assert len(set(drawn.tolist())) == 2000
    assert drawn.mean() == pytest.approx(0.5, abs=0.03)
    assert drawn.std() == pytest.approx(np.sqrt(1 / 12), abs=0.01)


def patients(n: int, seed: int = 0) -> list[RecipeCase]:
    rng = np.random.default_rng(seed)
    made = []
    for at in range(n):
        subtype = ("HER2pos", "TripleNeg", "HRposHER2neg")[int(rng.integers(3))]
        label = int(rng.random() < {"HER2pos": 0.9, "TripleNeg": 0.5, "HRposHER2neg": 0.05}[subtype])
        status = None if rng.random() < 0.2 else ("pre", "post")[int(rng.integers(2))]
        clinical = {"age": float(rng.normal(50, 10)), "menopausal_status": status, "subtype": subtype}
        made.append(RecipeCase(case=f"A/{at}", dataset="A", group=f"p{at}", label=label, clinical=clinical))
    return made


def clinical_job(train, predict, tmp_path, out, **more) -> Job:
    recipe = recipes.get("clinical")
    return Job(
        tasks=("response",),
        train=tuple(train),
        validation=(),
        predict=tuple(predict),
        volumes=MemoryVolumes(images={}),
        settings=recipe.settings(more),
        seed=1,
        device="cpu",
        scratch=tmp_path,
        emit=out.append,
    )


def test_clinical_finds_the_subtype_without_a_picture(tmp_path):
    cases = patients(300)
    out = []
    recipes.get("clinical")().run(clinical_job(cases[:200], cases[200:], tmp_path, out))
    assert auc([c.label for c in cases[200:]], [chance_of(p) for p in out]) > 0.75


def test_clinical_columns_as_numbers(tmp_path):
    cases = patients(40)
    design = ClinicalDesign.of(cases, ("age", "menopausal_status", "subtype"))
    assert design.names == (
        "age",
        "menopausal_status = post",
        "menopausal_status = pre",
        "subtype = HER2pos",
        "subtype = HRposHER2neg",
        "subtype = TripleNeg",
        "menopausal_status is empty",
    )
    stranger = replace(cases[0], clinical={"age": None, "subtype": "luminal"})
    row = design.table([stranger])[0]
    assert np.isnan(row[0])
    told = [case.clinical["menopausal_status"] for case in cases if case.clinical["menopausal_status"]]
    post = told.count("post") / len(told)
    np.testing.assert_allclose(row[1:], [post, 1 - post, 0, 0, 0, 1])
    assert "menopausal_status is empty for" in design.notes[0]


def test_one_empty_cell_in_training_does_not_decide_over_a_hospital_of_empty_cells(tmp_path):
    cases = [replace(c, clinical=dict(c.clinical) | {"menopausal_status": "pre"}) for c in patients(60)]
    cases[3] = replace(cases[3], clinical=dict(cases[3].clinical) | {"menopausal_status": None})
    away = [
        replace(c, label=-1, clinical=dict(c.clinical) | {"menopausal_status": None}) for c in patients(60, 1)
    ]
    out = []
    recipes.get("clinical")().run(clinical_job(cases, away, tmp_path, out))
    yes = [chance_of(p) >= 0.5 for p in out]
    assert 0.2 < sum(yes) / len(yes) < 0.8


def test_a_misspelt_column_is_met_with_its_neighbour(tmp_path):
    with pytest.raises(UserError, match="menopausal") as caught:
        recipes.get("clinical")().run(
            clinical_job(patients(20), [], tmp_path, [], columns=["age", "menopausal_stats"])
        )
    assert "menopausal_status" in str(caught.value)


def test_one_outcome_only_is_the_users_to_mend(tmp_path):
    cases = [replace(case, label=0) for case in patients(10)]
    with pytest.raises(UserError, match="0 of 10 training cases"):
        recipes.get("clinical")().run(clinical_job(cases, [], tmp_path, []))


def test_radiomics_finds_a_wash_out_that_it_was_not_told_of(tmp_path):
    held = world(60, shape=(20, 20, 10))
    trained, labels, probability, out = run("radiomics", held, tmp_path, model="elastic-net")
    assert auc(labels, probability) > 0.9
    assert any("automatic" in note for note in trained.notes)
    assert trained.details["features"] == 100
    assert all(p.seconds > 0 for p in out)


def test_the_experts_masks_change_nothing(tmp_path):
    held = world(40, shape=(24, 24, 1))
    without = replace(held, volumes=replace(held.volumes, masks={}))
    one = run("radiomics", held, tmp_path, train=slice(0, 30), predict=slice(30, None), model="elastic-net")
    two = run(
        "radiomics", without, tmp_path, train=slice(0, 30), predict=slice(30, None), model="elastic-net"
    )
    assert one[2] == two[2]


def test_radiomics_beside_clinical_columns(tmp_path):
    held = world(50, shape=(24, 24, 1))
    trained, labels, probability = run_with_columns(held, tmp_path)
    assert trained.details["features"] == 100 + 3
    assert auc(labels, probability) > 0.8


def run_with_columns(held, tmp_path):
    recipe = recipes.get("radiomics-clinical")
    chosen = recipe.settings({"model": "elastic-net", "clinical": ["age", "menopausal_status"]})
    job, out = held.job(
        chosen,
        tmp_path,
        train=slice(0, 40),
        validation=slice(0, 0),
        predict=slice(40, None),
        tasks=("response",),
    )
    job = replace(job, predict=tuple(replace(c, label=-1) for c in held.cases[40:]))
    trained = recipe().run(job)
    return trained, [c.label for c in held.cases[40:]], [chance_of(p) for p in out]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"model": "elastic"}, "elastic-net"),
        ({"families": ["shapes"]}, "shape"),
        ({"region": "experts"}, "expert"),
    ],
)
def test_unknown_words_are_met_with_neighbours(settings, word, tmp_path):
    with pytest.raises(UserError) as caught:
        run(
            "radiomics",
            world(8, shape=(16, 16, 1)),
            tmp_path,
            train=slice(0, 6),
            predict=slice(6, 8),
            **settings,
        )
    assert word in str(caught.value)


@needs_xgboost
def test_boosted_trees_find_it_too(tmp_path):
    held = world(70, shape=(24, 24, 1))
    _, labels, probability, _ = run("segmentation-xgboost", held, tmp_path, trees=40, depths=[1])
    assert auc(labels, probability) > 0.85
    again = run("segmentation-xgboost", held, tmp_path, trees=40, depths=[1])[2]
    assert again == probability


@needs_xgboost
@pytest.mark.parametrize("count", [8, 10, 16, 40])
def test_few_cases_are_told_apart_all_the_same(count):
    """With a leaf of weight 2 about ten cases cannot be split: everybody had the same answer."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % 2
    x = rng.normal(size=(count, 20))
    x[:, 0] += 2.5 * y
    model = Boosted(seed=1, depth=1, trees=40, rate=0.05, threads=1).fit(x, y)
    assert np.ptp(model.logit(x)) > 0.5
    assert auc(y, model.logit(x)) > 0.9


def test_without_xgboost_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(UserError, match="xgboost") as caught:
        run("segmentation-xgboost", world(10, shape=(16, 16, 1)), tmp_path)
    assert "elsewhere[train]" in str(caught.value)


def test_the_slice_is_the_one_with_the_tumour_and_the_window_is_round_it():
    before = np.full((40, 40, 8), 50.0, dtype=np.float32)
    early = before.copy()
    tumour = np.zeros(before.shape, dtype=bool)
    tumour[8:16, 20:28, 4:7] = tumour[9:15, 21:27, 3:8] = True
    early[tumour] += 200
    late = before.copy()
    late[tumour] += 100
    volumes = MemoryVolumes(images={"a": (before, early, late)})
    picture = slice_picture(volumes, "a", SliceSettings(size_px=32, crop_mm=32.0))
    assert picture.shape == (3, 32, 32)
    bright = picture[1] > 150
    rows, columns = np.nonzero(bright)
    assert abs(rows.mean() - 15.5) < 1.5
    assert abs(columns.mean() - 15.5) < 1.5
    inside = picture[:, bright].mean(axis=1)
    assert inside[1] > inside[2] > inside[0]


@needs_torch
def test_the_slice_network_learns_and_repeats_itself(tmp_path):
    held = world(64, shape=(24, 24, 1), seed=2)
    small = {
        "network": "tiny-cnn",
        "weights": "none",
        "size_px": 32,
        "crop_mm": 20.0,
        "epochs": 8,
        "batch": 8,
        "learning_rate": 3e-3,
        "dropout": 0.0,
        "rotate_degrees": 5.0,
        "brightness": 0.02,
    }
    trained, labels, probability, _ = run("slice-cnn", held, tmp_path, **small)
    assert auc(labels, probability) > 0.8
    assert len(trained.history) == 8
    short = small | {"epochs": 1}
    part = {"train": slice(0, 16), "predict": slice(40, 44)}
    one, two = (run("slice-cnn", held, tmp_path, **part, **short)[2] for _ in range(2))
    assert one == two
    assert run("slice-cnn", held, tmp_path, seed=2, **part, **short)[2] != one
