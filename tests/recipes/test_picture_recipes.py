"""The recipes that read pictures: what they are shown, and what their settings may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.inputs.source import LESION_BOX, MASK
from elsewhere.recipes.base import given_words, recipe_of
from elsewhere.recipes.pictures.settings import (
    classifier_spec,
    finder_training,
    picture_settings,
    settings_of,
)
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec, finder_settings

CLASSIFIER = recipe_of("picture-classifier")


def test_the_finder_of_a_training_learns_from_the_same_parts():
    spec = classifier_spec(ClassifierSettings(), InputSpec(kind="roi"))
    unit = Training(
        recipe=spec, name="BUSI>* | cnn", train=("a",), validation=("b",), predict=("c", "b"), seed=4
    )
    finder = finder_training(unit, "finder-small", size_px=128, epochs=3)
    held = settings_of(finder.recipe)
    assert (finder.train, finder.validation, finder.predict) == (("a",), ("b",), ("c", "b"))
    assert (finder.recipe.name, finder.seed, held.input.size_px) == ("lesion-finder", 4, 128)
    assert (held.training.weights, held.training.epochs, held.training.shift_px) == ("none", 3, 12)
    assert settings_of(finder_training(unit).recipe).training == finder_settings()
    assert finder_settings().weights == "imagenet"


@pytest.mark.parametrize(
    ("seen", "needs", "shown"),
    [
        (InputSpec(), (), set()),
        (InputSpec(kind="roi"), (), {LESION_BOX}),
        (InputSpec(kind="roi"), ("boxes",), set()),
        (InputSpec(outline=True), (), {MASK}),
        (InputSpec(kind="roi", outline=True), (), {LESION_BOX, MASK}),
    ],
)
def test_boxes_and_masks_of_the_tested_are_shown_where_the_input_needs_them(seen, needs, shown):
    settings = settings_of(classifier_spec(ClassifierSettings(), seen))
    assert CLASSIFIER.shown(settings, needs) == shown
    words = given_words(CLASSIFIER, classifier_spec(ClassifierSettings(), seen).settings, needs)
    assert len(words) == len(shown)


def test_settings_are_read_back_and_a_mistake_is_named():
    given = picture_settings({"training": {"epochs": 3, "scale": [0.8, 1.0]}})
    assert given.training == ClassifierSettings(epochs=3, scale=(0.8, 1.0)) and given.input == InputSpec()
    for values, said in (
        ({"trainin": {}}, "Did you mean training"),
        ({"training": {"epoch": 3}}, "Did you mean epochs"),
        ({"training": {"epochs": "many"}}, "epochs is not of the type int"),
        ({"training": {"scale": [1.0]}}, "pair of numbers"),
        ({"input": 3}, "not a mapping"),
    ):
        with pytest.raises(UserError, match=said):
            picture_settings(values)


def test_what_names_a_training():
    names = ("A/1", "A/2", "B/1")
    cases = Cases(
        case=names,
        dataset=("A", "A", "B"),
        label=np.array([0, 1, 0], dtype=np.int8),
        box=np.array([[1, 2, 9, 8], [2, 2, 5, 5], [3, 3, 5, 6]], dtype=np.int32),
        digest=("a", "b", "c"),
    )
    moved = replace(cases, box=cases.box + 1)

    def key(of=cases, kind="roi", **changes):
        spec = classifier_spec(
            ClassifierSettings(learning_rate=changes.pop("rate", 1e-3)), InputSpec(kind=kind)
        )
        unit = Training(recipe=spec, train=names[:2], validation=names[2:], predict=names)
        return replace(unit, **changes).with_key(of).key

    assert key(predict=names[:1], name="other") == key()
    assert len({key(), key(seed=2), key(rate=1e-4), key(kind="whole"), key(of=moved)}) == 5
    assert key(of=moved, kind="whole") == key(kind="whole")
