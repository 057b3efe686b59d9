"""The explainer sees what the unit saw: annotated or found boxes, with the mask as a channel or without."""

from __future__ import annotations

import dataclasses
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError
from elsewhere.explain.trainings import Explainer
from elsewhere.inputs import Cases, Pictures
from elsewhere.networks import build_network
from elsewhere.predictions.answers import FoundBoxes, Probabilities
from elsewhere.recipes.pictures.settings import classifier_spec
from elsewhere.training.crops import DevicePictures
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

NAMES = ("A/0", "A/1", "A/2")


def png(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    Image.fromarray(array).save(held, "png")
    return held.getvalue()


@pytest.fixture
def work() -> Work:
    rng = np.random.default_rng(0)
    images = {name: png(rng.integers(0, 256, (50, 70)).astype(np.uint8)) for name in NAMES}
    mask = np.zeros((50, 70), dtype=np.uint8)
    mask[12:28, 14:38] = 255
    pictures = Pictures(images, {"A/0": [png(mask)]})
    cases = Cases(
        case=NAMES,
        dataset=("A",) * 3,
        label=np.array([1, 0, -1], dtype=np.int8),
        box=np.array([[14, 12, 38, 28], [20, 10, 40, 40], [0, 0, 0, 0]], dtype=np.int32),
        digest=tuple(pictures.digest(name) for name in NAMES),
    )
    return Work(cases=cases, sources={"pictures": pictures})


def unit_of(**spec: object) -> Training:
    settings = ClassifierSettings(network="tiny-cnn", weights="none", dropout=0.0)
    return Training(
        name="u", predict=NAMES, recipe=classifier_spec(settings, InputSpec(**({"size_px": 32} | spec)))
    )


def answers_of(logits: np.ndarray) -> dict[str, object]:
    return {"classification": Probabilities.from_logits(logits)}


def outcome_of(network: str = "tiny-cnn", *, weights: bool = True) -> Outcome:
    state = build_network(network, size_px=32, seed=3).state_dict()
    return Outcome(
        case=NAMES,
        fingerprint=np.zeros(3, dtype=np.uint64),
        answers=answers_of(np.zeros((3, 2), dtype=np.float32)),
        weights=state if weights else None,
    )


@pytest.mark.parametrize("spec", [InputSpec(size_px=32), InputSpec(kind="roi", size_px=32, margin=0.3)])
def test_pixels_are_those_of_the_training(work, spec):
    import torch

    unit = unit_of(**dataclasses.asdict(spec))
    seen = Explainer(unit, outcome_of(), work, device="cpu").explain(NAMES)
    trained_on = DevicePictures(work.cases, work.sources["pictures"], device=torch.device("cpu")).cut(spec)
    assert np.array_equal(seen.pixels, trained_on.numpy())
    assert seen.region == ("mask", "box", "none")
    assert seen.inside[2] is None
    assert seen.maps.shape == (3, 32, 32)


def test_found_boxes_replace_the_annotated_ones(work):
    unit = replace(unit_of(kind="roi", margin=0.0), needs={"boxes": "k"})
    boxes = FoundBoxes.from_best([[0, 0, 70, 50], [20, 10, 40, 40], [0, 0, 0, 0]])
    found = replace(outcome_of(), answers={"lesion-boxes": boxes})
    seen = Explainer(unit, outcome_of(), work, device="cpu", needs={"boxes": found}).explain(NAMES)
    whole = Explainer(unit_of(), outcome_of(), work, device="cpu").explain(NAMES)
    assert np.array_equal(seen.pixels[0], whole.pixels[0])
    assert not np.array_equal(seen.pixels[1], whole.pixels[1])
    assert np.array_equal(seen.pixels[2], whole.pixels[2])
    assert seen.box[0].tolist() == pytest.approx([14 * 32 / 70, 12 * 32 / 50, 38 * 32 / 70, 28 * 32 / 50])
    assert seen.box[1].tolist() == [0, 0, 32, 32]
    with pytest.raises(UserError, match="no box was found"):
        Explainer(unit, outcome_of(), work, device="cpu").explain(NAMES)


def test_the_mask_is_a_channel_where_the_unit_says_so(work):
    with_mask = Explainer(unit_of(outline=True), outcome_of(), work, device="cpu")
    images = with_mask._tensor(with_mask._inputs(NAMES)[0], NAMES)
    assert images[0, 2].max() == 1
    assert images[1, 2].max() == 0
    assert (images[0, 0] == images[0, 1]).all()


def test_other_probabilities_than_the_stored_ones_are_a_warning(work):
    far = replace(outcome_of(), answers=answers_of(np.array([[-9, 9]] * 3, dtype=np.float32)))
    assert "differ" in Explainer(unit_of(), far, work, device="cpu").explain(NAMES).warnings[0]
    close = Explainer(unit_of(), outcome_of(), work, device="cpu").explain(NAMES)
    logits = np.log(np.stack([1 - close.probability, close.probability], 1)).astype("f")
    near = replace(outcome_of(), answers=answers_of(logits))
    assert Explainer(unit_of(), near, work, device="cpu").explain(NAMES).warnings == ()


def test_without_weights_or_outside_the_prediction_there_is_nothing_to_explain(work):
    with pytest.raises(UserError, match="keep_weights"):
        Explainer(unit_of(), outcome_of(weights=False), work, device="cpu")
    one = Explainer(unit_of(), replace(outcome_of(), case=("A/0", "A/1", "A/9")), work, device="cpu")
    with pytest.raises(UserError, match="did not predict A/2"):
        one.explain(NAMES)
