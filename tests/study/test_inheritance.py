"""`like` and profiles: what a study file says once."""

from __future__ import annotations

import pytest

from elsewhere.errors import UserError
from elsewhere.study.file import load_study
from elsewhere.study.methods import methods_in

HEAD = """
[study]
name = "t"
[[cohort]]
source = "x.csv"
"""
NETWORKS = """
[inputs.whole]
kind = "whole"
[models.plain]
epochs = 3
batch = 4
[models.longer]
like = "plain"
epochs = 9
[models.longest]
like = "longer"
epochs = 20
"""
RECIPES = """
[tasks.segmentation]
[tasks.response]
[recipes.random]
baseline = true
settings = { a = 1, b = 2 }
[recipes.second]
like = "random"
settings = { b = 3 }
[profiles.small.scenarios]
seeds = [7]
[profiles.small.recipes.random.settings]
a = 0
"""


def study(tmp_path, text, **options):
    file = tmp_path / "s.toml"
    file.write_text(HEAD + text)
    return load_study(file, **options).study


def test_a_model_like_another_takes_its_keys_and_keeps_its_own(tmp_path):
    models = study(tmp_path, NETWORKS).models
    assert [(m.epochs, m.batch) for m in models.values()] == [(3, 4), (9, 4), (20, 4)]
    assert models["longest"].recipe() == models["plain"].recipe().__class__(epochs=20, batch=4)
    changed = study(tmp_path, NETWORKS, changes=["models.plain.batch=8"], only_models=["longest"]).models
    assert list(changed) == ["longest"] and changed["longest"].batch == 8


def test_a_recipe_like_another_is_that_recipe_and_no_second_baseline(tmp_path):
    found = study(tmp_path, RECIPES).recipes["second"]
    assert found.recipe == "random"
    assert found.settings == {"a": 1, "b": 3}
    assert not found.baseline


def test_a_study_may_hold_pairs_of_models_and_inputs_and_recipes(tmp_path):
    methods = methods_in(study(tmp_path, NETWORKS + RECIPES))
    assert list(methods) == ["plain-whole", "longer-whole", "longest-whole", "random", "second"]
    assert methods["longer-whole"].factors == {"model": "longer", "input": "whole"}
    assert methods["second"].recipe == "random" and not methods["second"].factors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NETWORKS.replace('like = "plain"', 'like = "longest"'), "circle"),
        (NETWORKS.replace('like = "plain"', 'like = "longer"'), "circle"),
        (NETWORKS.replace('like = "plain"', 'like = "plane"'), "no 'plane'"),
        ("[tasks.segmentation]\n", "'recipes' is missing"),
        (RECIPES.replace("[tasks.response]", "[tasks.answer]"), "no task 'answer'"),
        (RECIPES + '[recipes.third]\ntasks = ["segmentation"]\nlikes = "random"\n', "unknown key"),
    ],
)
def test_mistakes_are_refused(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        study(tmp_path, text)


def test_a_profile_is_laid_over_the_study_before_likes_are_worked_out(tmp_path):
    small = study(tmp_path, RECIPES, profile="small")
    assert small.scenarios.seeds == (7,)
    assert small.recipes["random"].settings == {"a": 0, "b": 2}
    assert small.recipes["second"].settings == {"a": 0, "b": 3}
    assert study(tmp_path, RECIPES).scenarios.seeds == (1, 2, 3, 4, 5)
    with pytest.raises(UserError, match="no profile 'smal'"):
        study(tmp_path, RECIPES, profile="smal")
