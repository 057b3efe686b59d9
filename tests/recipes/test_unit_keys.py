"""What a recipe unit's key depends on, and keys of picture units that must stay."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import fake_recipes  # noqa: F401 - registers
import numpy as np
import pytest
from recipe_world import make_recipe_work, recipe_unit

from elsewhere.engine.archive import add
from elsewhere.engine.store import Store
from elsewhere.engine.training import RecipeSpec, Training, Work
from elsewhere.inputs import Cases
from elsewhere.recipes.pictures.settings import classifier_spec, finder_spec, settings_of
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "results" / "ultrasound" / "units"


@pytest.fixture
def work() -> Work:
    return make_recipe_work()


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def pictures_cases() -> Cases:
    return Cases(
        case=("A/1", "A/2", "B/1"),
        dataset=("A", "A", "B"),
        label=np.array([0, 1, 0], dtype=np.int8),
        box=np.array([[1, 2, 9, 8], [0, 0, 0, 0], [3, 3, 5, 6]], dtype=np.int32),
        digest=("a" * 64, "b" * 64, "c" * 64),
        mask_digest=("", "d" * 64, ""),
    )


def test_keys_of_pictures_units_are_what_they_were():
    """The published results are found by these keys; they were computed before recipes were units."""
    plain = classifier_spec(ClassifierSettings(), InputSpec())
    unit = Training(recipe=plain, train=("A/1", "A/2"), validation=("B/1",), predict=("B/1",), seed=3)
    coral = classifier_spec(ClassifierSettings(method="coral"), InputSpec(kind="roi", outline=True))
    crop = replace(unit, recipe=coral)
    finder = replace(unit, recipe=finder_spec(ClassifierSettings(), InputSpec()), needs={"boxes": "x"})
    told = [u.with_key(pictures_cases()).key for u in (unit, crop, finder)]
    assert told == [
        "c800e9f06b6f27eb8900b84aa2d252c6",
        "8c615f86c06602841f74fd6c7790be26",
        "b5e1e6c41506ca627d280e269c770ce9",
    ]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published results are not in this checkout")
def test_published_units_are_still_read(store):
    with zipfile.ZipFile(PUBLISHED / "patient.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith("unit.json")][:3]
        content = json.loads(archive.read(names[0]))
    unit = Training.from_dict(content)
    assert unit.recipe.name == "picture-classifier" and unit.key == names[0].split("/")[1]
    held = settings_of(unit.recipe)
    scale = {"scale": list(held.training.scale)}
    assert dataclasses.asdict(held.input) == content["input"]
    assert dataclasses.asdict(held.training) | scale == content["recipe"]
    assert (list(unit.train), list(unit.predict), unit.seed) == (
        content["train"],
        content["predict"],
        content["seed"],
    )
    assert Training.from_dict(json.loads(json.dumps(unit.to_dict()))) == unit
    taken = add(store, PUBLISHED / "patient.zip")
    assert list(store.load(taken[0]).answers) == ["classification"] and store.load(taken[0]).notes == ()


def changed(work: Work, **columns) -> Cases:
    return replace(work.cases, **columns)


def test_files_that_settings_name_are_in_the_key_and_without_them_it_is_what_it_was(work):
    plain = RecipeSpec(name="threshold", tasks=("response",))
    assert "files" not in plain.to_dict() and RecipeSpec.from_dict(plain.to_dict()) == plain
    named = replace(plain, files={"weights": "ab"})
    assert RecipeSpec.from_dict(named.to_dict()) == named
    keys = {recipe_unit(work, "threshold", recipe=spec).key for spec in (plain, named)}
    assert len(keys) == 2


def test_a_recipe_unit_is_what_it_learns_from(work):
    """Volume, mask, label, clinical values and groups of what trains; not its name, not what is predicted."""
    cases = work.cases
    key = recipe_unit(work, "threshold").key
    flipped = cases.label.copy()
    flipped[0] = 1 - flipped[0]
    other = [
        changed(work, digest=("0" * 64, *cases.digest[1:])),
        changed(work, mask_digest=("0" * 64, *cases.mask_digest[1:])),
        changed(work, label=flipped),
        changed(work, clinical=cases.clinical | {"age": (99.0, *cases.clinical["age"][1:])}),
        changed(work, group=(cases.group[1], *cases.group[1:])),
    ]
    keys = {recipe_unit(replace(work, cases=one), "threshold").key for one in other}
    assert len(keys) == 5 and key not in keys
    last = changed(
        work, digest=(*cases.digest[:-1], "0" * 64), label=np.array([*cases.label[:-1], 0], np.int8)
    )
    assert recipe_unit(replace(work, cases=last), "threshold").key == key
    renamed = {name: f"Z/{at}" for at, name in enumerate(cases.case)}
    other_names = changed(work, case=tuple(renamed.values()), group=tuple(renamed.values()))
    assert recipe_unit(replace(work, cases=other_names), "threshold").key == key


def test_a_recipe_unit_is_what_it_is_asked(work):
    key = recipe_unit(work, "threshold").key
    others = [
        recipe_unit(work, "threshold", seed=2),
        recipe_unit(work, "threshold", tasks=("response",)),
        recipe_unit(work, "threshold", settings={"wash_in": 3.0}),
        recipe_unit(work, "kept-threshold"),
        recipe_unit(
            work,
            "threshold",
            recipe=RecipeSpec(name="threshold", version=2, tasks=("segmentation", "response")),
        ),
    ]
    assert len({key, *(unit.key for unit in others)}) == 6


def test_predictions_hold_while_the_clinical_values_do_only_for_who_reads_them(work):
    cases = work.cases
    older = changed(work, clinical=cases.clinical | {"age": (*cases.clinical["age"][:-1], 99.0)})
    for clinical, same in ((False, True), (True, False)):
        unit = recipe_unit(work, "threshold", clinical=clinical)
        assert np.array_equal(unit.fingerprints(cases), unit.fingerprints(older)) == same


def test_a_unit_of_a_recipe_travels_as_json(work):
    unit = recipe_unit(work, "threshold", settings={"many": [3, 4], "fault": ""})
    assert Training.from_dict(json.loads(json.dumps(unit.to_dict()))) == unit
