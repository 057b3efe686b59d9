"""The baseline, subtraction and breast crop, as jobs (MRI-13 to MRI-15)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.training.volumes.worlds import ball_volumes, dice

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.recipes.base import Job, Prediction, RecipeCase, recipes
from elsewhere.recipes.mri.folded_training import folds_of
from elsewhere.recipes.mri.residual_unet import CHANNELS, KEEP
from elsewhere.training.volumes.channels import CHANNELS as training_channels  # noqa: N811
from elsewhere.training.volumes.postprocessing import KEEP as training_keep  # noqa: N811

SMALL = {
    "patch": [16, 16, 16],
    "widths": [8, 16],
    "blocks": [1, 1],
    "batch": 2,
    "epochs": 2,
    "steps_per_epoch": 15,
    "validation_steps": 2,
    "momentum": 0.9,
    "folds": 1,
    "mirror": False,
    "cost_repeats": 0,
    "spacing_mm": [],
}


pytestmark = pytest.mark.usefixtures("one_thread")


def job(name, volumes, tmp_path, **more):
    cases = [RecipeCase(case=case, dataset="W", group=case, label=-1, clinical={}) for case in volumes.images]
    handed: list[Prediction] = []
    settings = recipes.get(name).settings(SMALL | more)
    made = Job(
        tasks=("segmentation",),
        train=tuple(cases[:4]),
        validation=tuple(cases[4:5]),
        predict=tuple(cases[5:]),
        volumes=volumes,
        settings=settings,
        seed=0,
        device="cpu",
        scratch=tmp_path,
        emit=handed.append,
    )
    return made, handed


def with_boxes(volumes):
    """Boxes around the balls, with room."""
    boxes = {}
    for case, mask in volumes.masks.items():
        at = np.argwhere(mask)
        low, high = np.maximum(0, at.min(0) - 3), np.minimum(mask.shape, at.max(0) + 4)
        boxes[case] = (*(int(v) for v in low), *(int(v) for v in high))
    return MemoryVolumes(images=volumes.images, masks=volumes.masks, boxes=boxes)


@pytest.mark.parametrize("name", ["residual-unet", "subtraction", "breast-crop"])
def test_each_recipe_finds_a_planted_ball(name, tmp_path):
    volumes, truth = ball_volumes(6)
    made, handed = job(name, with_boxes(volumes), tmp_path)
    done = recipes.get(name)().run(made)
    (found,) = handed
    assert found.mask.shape == truth[found.case].shape
    assert dice(found.mask, truth[found.case]) > 0.6
    assert found.seconds > 0
    assert len(done.history) == 2 and done.images == 60
    assert done.details["plan"]["channels"] == (1 if name == "subtraction" else 3)
    assert done.details["plan"]["crop"] == ("breast" if name == "breast-crop" else "none")
    assert any("both breasts" in note for note in done.notes) is (name == "breast-crop")


def test_what_each_recipe_says_of_itself():
    for name, team in (("residual-unet", "nnU-Net"), ("subtraction", "FME"), ("breast-crop", "ViCOROB")):
        recipe = recipes.get(name)
        assert team in recipe.follows and set(recipe.answers) == {"segmentation"} and not recipe.sees
    assert recipes.get("subtraction").settings({}).folds == 5
    assert recipes.get("subtraction").settings({}).keep == "largest"
    assert recipes.get("breast-crop").settings({}).clip == (0.1, 99.9)


def test_five_folds_part_no_group_and_hold_every_case_out_once(tmp_path):
    volumes, _ = ball_volumes(9, shape=(8, 8, 8))
    made, _ = job("residual-unet", volumes, tmp_path, folds=4)
    parts = folds_of(made, made.settings)
    held = [case.case for _, _, out in parts for case in out]
    assert sorted(held) == sorted(case.case for case in (*made.train, *made.validation))
    for _, learn, out in parts:
        assert not {case.group for case in learn} & {case.group for case in out}
    only, _ = job("residual-unet", volumes, tmp_path, folds=4, fold=2)
    assert [fold for fold, _, _ in folds_of(only, only.settings)] == [2]
    assert folds_of(only, only.settings)[0] == parts[2]


def test_an_ensemble_of_folds_resumes_and_gives_the_same(tmp_path):
    volumes, _ = ball_volumes(6, shape=(16, 16, 16))
    short = {"epochs": 1, "steps_per_epoch": 3, "folds": 2, "keep": "largest"}
    made, first = job("residual-unet", volumes, tmp_path, **short)
    done = recipes.get("residual-unet")().run(made)
    assert done.details["folds"] == [0, 1]
    assert {file.name for file in tmp_path.iterdir()} == {"fold-0.pt", "fold-1.pt"}
    again, second = job("residual-unet", volumes, tmp_path, **short)
    recipes.get("residual-unet")().run(again)
    assert np.array_equal(first[0].mask, second[0].mask)


def test_an_empty_prediction_is_handed_over_empty(tmp_path):
    volumes, _ = ball_volumes(6, shape=(16, 16, 16))
    made, handed = job(
        "residual-unet", volumes, tmp_path, epochs=1, steps_per_epoch=1, threshold=0.999999, keep="largest"
    )
    recipes.get("residual-unet")().run(made)
    assert handed[0].mask is not None and not handed[0].mask.any()


def test_a_case_without_a_mask_leaves_training_and_is_named(tmp_path):
    volumes, _ = ball_volumes(6, shape=(16, 16, 16), without_mask=1)
    made, handed = job("residual-unet", volumes, tmp_path, epochs=1, steps_per_epoch=1)
    done = recipes.get("residual-unet")().run(made)
    assert len(handed) == 1 and any(note.startswith("W/0: no mask") for note in done.notes)


def test_single_slices_train_and_predict(tmp_path):
    volumes, truth = ball_volumes(6, shape=(30, 27, 1))
    made, handed = job("residual-unet", volumes, tmp_path, patch=[], memory_gb=0.05, steps_per_epoch=20)
    done = recipes.get("residual-unet")().run(made)
    assert done.details["plan"]["patch"][2] == 1
    assert dice(handed[0].mask, truth[handed[0].case]) > 0.6


def test_the_cost_under_control_is_in_the_details(tmp_path):
    volumes, _ = ball_volumes(6, shape=(12, 12, 12))
    made, _ = job("residual-unet", volumes, tmp_path, epochs=1, steps_per_epoch=1, cost_repeats=2)
    cost = recipes.get("residual-unet")().run(made).details["cost"]
    assert cost["repeats"] == 2 and cost["seconds"] > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"folds": 0},
        {"fold": 5},
        {"clip": [99.0, 1.0]},
        {"overlap": 1.0},
        {"threshold": 0.0},
        {"test_box": "guess"},
        {"chanels": "three"},
        {"window_batch": 0},
    ],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(UserError):
        recipes.get("breast-crop").settings(wrong)


def test_wrong_names_are_met_with_their_neighbours():
    for wrong, message in (({"channels": "tree"}, "three"), ({"keep": "largets"}, "largest")):
        with pytest.raises(UserError, match=r"unknown") as told:
            recipes.get("residual-unet").settings(wrong)
        assert message in str(told.value.fix)
    assert tuple(training_channels) == CHANNELS and training_keep == KEEP
