"""Training of detectors on toy volumes: each learns to find the disc; it resumes, and errors say what to do (DBT-10 to
DBT-17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes.tiles import TileOptions  # noqa: E402
from elsewhere.errors import TrainingError, UserError  # noqa: E402
from elsewhere.networks.detectors import DETECTORS, build_detector, build_slice_classifier  # noqa: E402
from elsewhere.training.cuda_options import CudaOptions, use_cuda_options  # noqa: E402
from elsewhere.training.detection.device_slices import DeviceSlices, StorageSettings  # noqa: E402
from elsewhere.training.detection.draws import Augmentation  # noqa: E402
from elsewhere.training.detection.fitting import (  # noqa: E402
    FitOptions,
    fit_detector,
    fit_slice_classifier,
    make_optimiser,
)
from elsewhere.training.detection.sampling import SamplingSettings, list_slices  # noqa: E402
from elsewhere.training.detection.step import can_be_recorded  # noqa: E402
from elsewhere.training.detection.volume_inference import InferenceOptions, predict_volume  # noqa: E402
from worlds.toy_volumes import ToyView  # noqa: E402

TINY = [name for name in DETECTORS if name.endswith("tiny")]
STORAGE = StorageSettings(pixel=1.0)
SAMPLING = SamplingSettings(reach=2, negatives=0.3)
OPTIONS = FitOptions(
    epochs=3,
    batch=8,
    size=(128, 128),
    learning_rate=3e-3,
    sampling=SAMPLING,
    augmentation=Augmentation(rotation=5.0),
    inference=InferenceOptions(tiles=TileOptions(height=128, width=128, overlap=32), storage=STORAGE),
    floor_px=20.0,
)


class World:
    """A view with a training and a validation part, and their slices."""

    def __init__(self, device=torch.device("cpu")):
        self.view = ToyView(8, normals=2, seed=1)
        cases, rng = self.view.cases, np.random.default_rng(0)
        self.train = list_slices(self.view, cases[:6] + cases[8:], SAMPLING, rng=rng)
        self.validation = list_slices(self.view, cases[6:8], SAMPLING, rng=rng)
        slices = [
            pair
            for table in (self.train, self.validation)
            for pair in zip(table.case, table.z.tolist(), strict=True)
        ]
        self.stored = DeviceSlices(self.view, slices, STORAGE, device)

    def fit(self, model, options, validation=True):
        return fit_detector(
            model,
            self.stored,
            train=self.train,
            validation=self.validation if validation else None,
            options=options,
        )


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.mark.parametrize("name", TINY)
def test_the_loss_falls(world, name):
    fitted = world.fit(build_detector(name), OPTIONS, validation=False)
    losses = [entry["train_loss"] for entry in fitted.history]
    assert losses[-1] < 0.9 * losses[0]
    assert fitted.best_epoch == 3 and fitted.tiles == 3 * 40


def finds_the_discs(world, name, epochs):
    model = build_detector(name)
    fitted = world.fit(model, replace(OPTIONS, epochs=epochs))
    assert max(entry["validation_sensitivity"] for entry in fitted.history) == 1.0
    for case in world.view.cases[6:8]:
        (lesion,) = world.view.lesions(case)
        best = predict_volume(model, world.view, case, OPTIONS.inference).best(1)
        truth = [lesion.x, lesion.y, lesion.x + lesion.width, lesion.y + lesion.height]
        assert np.abs(best.plane[0] - truth).max() <= 8
        assert abs(best.z0[0] - lesion.slice) <= 4  # a disc fades over six slices


@pytest.mark.slow
def test_a_detector_finds_the_discs_of_volumes_that_it_has_not_seen(world):
    finds_the_discs(world, "retinanet-swin-tiny", 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_each_detector_finds_the_discs(world, name):
    finds_the_discs(world, name, 25)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", TINY)
def test_a_gpu_trains_each_detector_and_agrees_with_the_cpu(name):
    world = World(torch.device("cuda"))
    model = build_detector(name).cuda()
    world.fit(model, replace(OPTIONS, epochs=25))
    on_cpu = build_detector(name)
    on_cpu.load_state_dict({key: value.cpu() for key, value in model.state_dict().items()})
    case = world.view.cases[7]
    found, again = (
        predict_volume(one, world.view, case, OPTIONS.inference).best(1) for one in (model, on_cpu)
    )
    assert np.abs(found.plane - again.plane).max() <= 3
    assert np.abs(found.score - again.score).max() <= 0.1


def test_copy_paste_mosaic_and_flips_train_too(world):
    strong = Augmentation(copy_paste=0.5, mosaic=0.5, flip_vertical=0.5, shear=0.1, rotation=20)
    fitted = world.fit(build_detector("csp-tiny"), replace(OPTIONS, augmentation=strong), validation=False)
    losses = [entry["train_loss"] for entry in fitted.history]
    assert losses[-1] < losses[0]


def test_a_stopped_training_resumes_to_the_same_weights(world, tmp_path):
    whole = build_detector("retinanet-tiny")
    world.fit(whole, OPTIONS)
    file = tmp_path / "checkpoint.pt"
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 2

    options = replace(OPTIONS, checkpoint=file, checkpoint_seconds=0.0)
    first = build_detector("retinanet-tiny")
    assert world.fit(first, replace(options, stop=stop)).stopped
    again = build_detector("retinanet-tiny", seed=9)
    fitted = world.fit(again, options)
    assert [entry["epoch"] for entry in fitted.history] == [1, 2, 3]
    one, two = whole.state_dict(), again.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("content", ["another network", "broken"])
def test_a_checkpoint_that_does_not_fit_is_left_aside(world, tmp_path, content):
    file = tmp_path / "checkpoint.pt"
    if content == "broken":
        file.write_bytes(b"half a checkpoint")
    else:
        world.fit(build_detector("dense-one-stage-tiny"), replace(OPTIONS, epochs=1, checkpoint=file))
    options = replace(OPTIONS, epochs=1, checkpoint=file)
    fitted = world.fit(build_detector("retinanet-tiny"), options)
    assert [entry["epoch"] for entry in fitted.history] == [1]


def test_the_best_weights_are_those_of_the_best_epoch(world):
    model = build_detector("retinanet-tiny")
    fitted = world.fit(model, replace(OPTIONS, epochs=4))
    values = [entry["validation_sensitivity"] for entry in fitted.history]
    assert values[fitted.best_epoch - 1] == max(values)


def test_a_slice_classifier_learns_which_tiles_show_a_lesion(world):
    model = build_slice_classifier("tiny-cnn")
    options = replace(OPTIONS, epochs=8, sampling=replace(SAMPLING, negatives=1.0))
    fitted = fit_slice_classifier(
        model, world.stored, train=world.train, validation=world.validation, options=options
    )
    losses = [entry["train_loss"] for entry in fitted.history]
    assert losses[-1] < 0.8 * losses[0] and "validation_loss" in fitted.history[0]


def test_a_loss_that_is_no_number_ends_this_training_with_a_reason(world):
    model = build_detector("retinanet-tiny")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="no number any more in epoch 1"):
        world.fit(model, OPTIONS)


def test_too_little_memory_names_a_smaller_batch(world, monkeypatch):
    model = build_detector("retinanet-tiny")

    def full(pictures, targets):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(model, "losses", full)
    with pytest.raises(TrainingError, match="Set batch = 4"):
        world.fit(model, OPTIONS)


def test_a_part_without_lesions_or_without_others_is_refused(world):
    view = ToyView(0, normals=2)
    table = list_slices(view, view.cases, SAMPLING, rng=np.random.default_rng(0))
    held = DeviceSlices(view, zip(table.case, table.z.tolist(), strict=True), STORAGE, torch.device("cpu"))
    with pytest.raises(TrainingError, match="no slice with a lesion"):
        fit_detector(build_detector("csp-tiny"), held, train=table, validation=None, options=OPTIONS)
    view = ToyView(1)
    table = list_slices(view, view.cases, SamplingSettings(), rng=np.random.default_rng(0))
    held = DeviceSlices(view, zip(table.case, table.z.tolist(), strict=True), STORAGE, torch.device("cpu"))
    with pytest.raises(TrainingError, match="without a lesion"):
        fit_slice_classifier(
            build_slice_classifier("tiny-cnn"), held, train=table, validation=None, options=OPTIONS
        )


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_optimisers_by_name(name):
    model = build_detector("csp-tiny")
    assert make_optimiser(model, replace(OPTIONS, optimiser=name)).param_groups[0]["lr"] == 3e-3
    with pytest.raises(UserError, match="unknown optimiser"):
        make_optimiser(model, replace(OPTIONS, optimiser="adagrad"))


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("retinanet-tiny", True),
        ("csp-tiny", True),
        ("faster-rcnn-tiny", False),
        ("retinanet-swin-tiny", False),
    ],
)
def test_steps_of_one_size_without_chance_can_be_recorded(name, recorded):
    assert can_be_recorded(build_detector(name)) is recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", [name for name in TINY if can_be_recorded(build_detector(name))])
def test_a_recorded_training_is_that_of_single_launches(name):
    world = World(torch.device("cuda"))
    losses = []
    for options in (CudaOptions(), CudaOptions(captured=False)):
        with use_cuda_options(options):
            fitted = world.fit(build_detector(name).cuda(), OPTIONS, validation=False)
        losses.append([entry["train_loss"] for entry in fitted.history])
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.03)
