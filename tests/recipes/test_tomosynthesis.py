"""Detectors of lesions in tomosynthesis: each trains, predicts, is saved and resumes, and none can reach the lesions of
volumes that it only predicts (DBT-10 to DBT-17)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes import Boxes  # noqa: E402
from elsewhere.engine.kept import pack_kept, unpack_kept  # noqa: E402
from elsewhere.engine.store import Store  # noqa: E402
from elsewhere.engine.training import RecipeSpec, Training, Work  # noqa: E402
from elsewhere.engine.work import save_work  # noqa: E402
from elsewhere.errors import TrainingError, UserError  # noqa: E402
from elsewhere.inputs.cases import Cases  # noqa: E402
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource  # noqa: E402
from elsewhere.recipes.base import recipe_of, recipes  # noqa: E402
from elsewhere.recipes.running import run_training  # noqa: E402
from elsewhere.recipes.tomosynthesis.dense_detector import filled_boxes  # noqa: E402
from elsewhere.recipes.tomosynthesis.settings import BY_SIZE, DetectorSettings, sampling_of  # noqa: E402
from worlds.tomosynthesis_world import (  # noqa: E402
    job_of,
    metrics_of,
    phantom_volumes,
    random_answers,
    run_recipe,
)

SMALL = {
    "weights": "none",
    "pixel": 1.0,
    "tile_overlap": 0,
    "floor_px": 8.0,
    "learning_rate": 0.003,
    "checkpoint_seconds": 0.0,
    "boxes_per_slice": 10,
}
FASTER = SMALL | {"network": "faster-rcnn-tiny", "tile": [128, 96]}
CLASSIFIED = {"classifier": "tiny-cnn", "classifier_weights": "none", "classifier_tile": [64, 64]}
SLICES = {
    "slice_network": "tiny-cnn",
    "slice_weights": "none",
    "slice_pixel": 2.0,
    "slice_tile": [96, 64],
    "slice_epochs": 1,
}
SETTINGS = {
    "faster-rcnn": FASTER | {"reach": 3, "least_score": 0.01},
    "dense-detector": SMALL | {"network": "dense-one-stage-tiny", "tile": [128, 96], "batch": 8},
    "nyu": SMALL
    | {"network": "efficientdet-tiny", "tile": [128, 128], "members": 2}
    | {"positive_from": 0.5, "negative_below": 0.3},
    "zedus": SMALL
    | SLICES
    | {"network": "retinanet-tiny", "tile": [128, 128], "depths": [1], "channels": [24, 32]}
    | {"rotations": [0.0], "swin": "retinanet-swin-tiny"},
    "vicorob": FASTER | CLASSIFIED | {"folds": 2, "skipped": 1, "classifier_epochs": 1},
    "ucla-mii": FASTER | {"folds": 2, "best": 1, "linked_from": 0.02, "marker_area": [30.0, 150.0]},
    "pranjalsahu": FASTER | {"reach": 2, "depth": 4},
    "pittrad": SMALL
    | {"network": "csp-tiny", "second": "csp-tiny", "tile": [128, 128], "closing_pixel": 1.0}
    | {"tuned_epochs": 1, "closed_from": 0.005, "false_positives_from": 0.0},
}
ONCE = {"epochs": 1, "lesion_slices": 16}
BETTER = {
    "faster-rcnn": {"epochs": 8, "learning_rate": 0.001},
    "dense-detector": {"epochs": 6},
    "nyu": {"epochs": 5},
    "zedus": {"swin": "", "channels": [32], "depths": [1, 2], "epochs": 6, "slice_epochs": 3},
    "vicorob": {"epochs": 5, "learning_rate": 0.001, "classifier_epochs": 4},
    "ucla-mii": {"epochs": 5, "learning_rate": 0.001, "best": 2},
    "pranjalsahu": {"epochs": 6, "learning_rate": 0.0005},
    "pittrad": {"epochs": 8, "second": "", "false_positives_from": 0.2, "tuned_rate": 0.0003},
}
"""What makes each of them learn something in less than a minute."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world():
    return phantom_volumes(8)


def parts_of(world):
    train, test = world.of_split("train"), world.of_split("test")
    return {"train": train[2:], "validation": train[:2], "predict": test}


def test_all_recipes_of_tomosynthesis_are_here():
    ours = {name for name in recipes.names() if recipe_of(name).reads == "tomosynthesis"}
    assert ours == set(SETTINGS)
    for name in ours:
        recipe = recipe_of(name)
        assert recipe.keeps and recipe.follows and not recipe.sees
        assert recipe.Settings().weights in ("coco", "imagenet", "none")


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_it_trains_predicts_boxes_in_the_volume_and_its_weights_predict_the_same(world, name, tmp_path):
    parts = parts_of(world)
    trained, answers = run_recipe(world, name, SETTINGS[name] | ONCE, tmp_path, keep=True, **parts)
    assert set(answers) == {case.case for case in parts["predict"]}
    for case, (box, score) in answers.items():
        rows, columns, slices = world.source.facts(case).shape
        assert box.shape == (len(score), 6)
        assert (box[:, :3] >= 0).all() and (box[:, 3:] <= [columns, rows, slices]).all()
        assert (box[:, 3:] > box[:, :3]).all() and ((score >= 0) & (score <= 1)).all()
        assert (np.diff(score) <= 0).all()
    assert trained.images > 0 and trained.details["parameters"] > 0
    file = tmp_path / "weights.npz"
    file.write_bytes(pack_kept(trained.weights))
    job, again = job_of(
        world,
        name,
        SETTINGS[name] | ONCE,
        tmp_path / "none",
        train=(),
        validation=(),
        predict=parts["predict"],
    )
    recipe_of(name)().apply(job, unpack_kept(file))
    for case, (box, score) in answers.items():
        assert np.array_equal(box, again[case][0]) and np.array_equal(score, again[case][1])


@pytest.mark.parametrize("name", ["dense-detector", pytest.param("pranjalsahu", marks=pytest.mark.slow)])
def test_a_killed_training_resumes_to_the_same_boxes(world, name, tmp_path):
    parts, settings = parts_of(world), SETTINGS[name] | ONCE | {"epochs": 3}
    _, whole = run_recipe(world, name, settings, tmp_path / "whole", **parts)
    epochs = []

    def killed(what, done, total):
        epochs.append((what, done))
        if len(epochs) == 2:
            raise KeyboardInterrupt

    job, _ = job_of(world, name, settings, tmp_path / "killed", progress=killed, **parts)
    job.scratch.mkdir()
    with pytest.raises(KeyboardInterrupt):
        recipe_of(name)().run(job)
    seen = []
    job, resumed = job_of(
        world, name, settings, tmp_path / "killed", progress=lambda what, *_: seen.append(what), **parts
    )
    recipe_of(name)().run(job)
    networks = [what for what in seen if what != "predict"]
    assert networks and len(networks) < 6
    for case, (box, score) in whole.items():
        assert np.array_equal(box, resumed[case][0]) and np.array_equal(score, resumed[case][1])


IN_QUICK = ("dense-detector", "ucla-mii")
"""One network, and folds of several; the view that recipes read through withholds the truth from all of them."""


class SpySource(TomosynthesisSource):
    """A source that lists every question about the truth of a case."""

    def __init__(self, volumes, truths):
        super().__init__(volumes, truths)
        self.asked = []

    def truth(self, case):
        self.asked.append(case)
        return super().truth(case)


def spied(world):
    spy = SpySource(world.source._volumes, world.source._truths)
    names = tuple(case.case for case in world.cases)
    cases = Cases(
        case=names,
        dataset=tuple(case.dataset for case in world.cases),
        label=np.array([case.label for case in world.cases], dtype=np.int8),
        box=np.zeros((len(names), 4), dtype=np.int32),
        digest=tuple(spy.digest(name) for name in names),
        mask_digest=tuple(spy._truths[name].digest() for name in names),
        group=tuple(case.group for case in world.cases),
    )
    return spy, Work(cases=cases, sources={"tomosynthesis": spy})


def unit_of(world, name, settings):
    parts = parts_of(world)
    recipe = recipe_of(name)
    return Training(
        recipe=RecipeSpec(name=name, version=recipe.version, settings=settings, tasks=("detection",)),
        name=name,
        seed=1,
        **{part: tuple(case.case for case in cases) for part, cases in parts.items()},
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in IN_QUICK else pytest.mark.slow) for n in sorted(SETTINGS)]
)
def test_no_recipe_asks_for_the_truth_of_what_it_predicts(world, name):
    spy, work = spied(world)
    unit = unit_of(world, name, SETTINGS[name] | ONCE)
    outcome = run_training(unit, work)
    assert set(outcome.case) == set(unit.predict) and outcome.answers["detection"].n == len(unit.predict)
    assert spy.asked and set(spy.asked) <= {*unit.train, *unit.validation}


def test_a_recipe_that_asks_for_the_truth_of_predicted_volumes_gets_none(world, monkeypatch):
    spy, work = spied(world)
    unit = unit_of(world, "faster-rcnn", SETTINGS["faster-rcnn"] | ONCE)
    seen = []

    def look(self, job):
        for case in job.predict:
            view = job.pixels
            seen.append((view.lesions(case.case), view.finding(case.case), case.label, case.box))
            with pytest.raises(AttributeError):
                view.truth(case.case)
            assert view.slice(case.case, 0).size
            with pytest.raises((ValueError, TypeError)):
                view.slice(case.case, 0)[:] = 0
        assert all(job.pixels.lesions(case.case) is not None for case in job.train)
        raise TrainingError("looked")

    monkeypatch.setattr(recipe_of("faster-rcnn"), "learn", look)
    with pytest.raises(TrainingError, match="looked"):
        run_training(unit, work)
    assert seen and set(seen) == {(None, None, -1, None)}
    assert set(spy.asked) <= {*unit.train, *unit.validation}


def test_a_training_part_without_lesions_says_so(world, tmp_path):
    parts = parts_of(world)
    without = tuple(case for case in world.cases if case.label == 0)
    with pytest.raises(TrainingError, match="no slice with a lesion"):
        run_recipe(
            world, "faster-rcnn", SETTINGS["faster-rcnn"] | ONCE, tmp_path, **(parts | {"train": without})
        )


def test_a_validation_part_without_lesions_and_detections_of_one_kind_are_no_hindrance(world, tmp_path):
    parts = parts_of(world)
    without = tuple(case for case in world.of_split("train") if case.label == 0)
    settings = SETTINGS["vicorob"] | ONCE | {"least_score": 0.999}
    trained, answers = run_recipe(
        world, "vicorob", settings, tmp_path, **(parts | {"validation": without[:1]})
    )
    assert "all true or all false" in trained.notes[0] and len(answers) == len(parts["predict"])


@pytest.mark.parametrize("name", [pytest.param("vicorob", marks=pytest.mark.slow), "ucla-mii", "nyu"])
def test_folds_and_perturbed_sets_without_a_lesion_are_left_out(world, name, tmp_path):
    positive = next(case for case in world.of_split("train") if case.label)
    without = tuple(case for case in world.cases if case.label == 0)
    parts = {"train": (positive, *without[:2]), "validation": without[2:3], "predict": world.of_split("test")}
    settings = SETTINGS[name] | ONCE | ({"left_out": 0.7} if name == "nyu" else {})
    trained, answers = run_recipe(world, name, settings, tmp_path, **parts)
    assert len(answers) == len(parts["predict"])
    if name != "nyu":
        assert any("no lesion to learn from" in note for note in trained.notes)


def test_folds_of_which_none_has_a_lesion_end_the_training(world, tmp_path):
    without = tuple(case for case in world.cases if case.label == 0)
    parts = {"train": without[:2], "validation": without[2:3], "predict": world.of_split("test")}
    with pytest.raises(TrainingError, match="no fold"):
        run_recipe(world, "ucla-mii", SETTINGS["ucla-mii"] | ONCE, tmp_path, **parts)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("faster-rcnn", {"tile": [64]}, "tile is"),
        ("faster-rcnn", {"keep_weights": "bset"}, "bset"),
        ("faster-rcnn", {"optimiser": "adan"}, "adan"),
        ("faster-rcnn", {"epochs": 0}, "epochs is 0"),
        ("faster-rcnn", {"reach": -2}, "reach is -2"),
        ("faster-rcnn", {"zoom": [1.2, 0.8]}, "zoom is"),
        ("nyu", {"members": 0}, "members is 0"),
        ("zedus", {"depths": []}, "no RetinaNet"),
        ("vicorob", {"folds": 1}, "folds is 1"),
        ("ucla-mii", {"best": 9}, "best is 9"),
        ("ucla-mii", {"strategy": "consensual"}, "consensual"),
        ("pittrad", {"cube": 4}, "cube is 4"),
    ],
)
def test_settings_that_cannot_be_are_refused(name, settings, said):
    with pytest.raises(UserError, match=said):
        recipe_of(name).settings(settings)


def test_a_network_of_another_kind_is_refused_by_name(world, tmp_path):
    for name in ("nyu", "zedus"):
        settings = SETTINGS[name] | ONCE | {"network": "csp-tiny"}
        with pytest.raises(UserError, match="'csp-tiny' is no"):
            run_recipe(world, name, settings, tmp_path, **parts_of(world))


def test_the_reach_by_size_and_the_weights_that_travel():
    assert sampling_of(DetectorSettings(reach=BY_SIZE)).reach == "size"
    spec = RecipeSpec(name="nyu", settings={"weights": "imagenet", "network": "efficientdet"})
    assert recipe_of("nyu").published_weights(spec) == ("efficientnet-lite0",)
    assert recipe_of("nyu").published_weights(replace(spec, settings={"weights": "none"})) == ()
    assert recipe_of("nyu").files(recipe_of("nyu").settings({"weights": "w.pt"})) == {"weights": Path("w.pt")}


def test_boxes_on_background_are_dropped_in_pixels_of_the_volume(world, tmp_path):
    case = next(case for case in world.cases if world.source.truth(case.case).lesions)
    job, _ = job_of(
        world,
        "dense-detector",
        SETTINGS["dense-detector"],
        tmp_path,
        train=(),
        validation=(),
        predict=(case,),
    )
    (lesion, *_) = world.source.truth(case.case).lesions
    _, columns, _ = job.pixels.shape(case.case)
    corner = [0, 0, 12, 12] if job.pixels.side(case.case) == "right" else [columns - 12, 0, columns, 12]
    boxes = Boxes.on_slice([lesion.box, corner], [0.4, 0.9], lesion.slice)
    stay = filled_boxes(job, boxes, case.case, 0.5)
    assert stay.score.tolist() == [0.4] and np.allclose(stay.plane[0], lesion.box)


BARE = """
import sys
for name in ("numba", "pydicom", "imagecodecs", "pylibjpeg", "monai", "sklearn", "pandas", "matplotlib", "nibabel", "pyarrow"):
    sys.modules[name] = None
from elsewhere.engine.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_it_trains_on_a_machine_with_torch_numpy_and_scipy_alone(world, tmp_path):
    _, work = spied(world)
    unit = unit_of(world, "dense-detector", SETTINGS["dense-detector"] | ONCE)
    unit = unit.with_key(work.cases)
    folder = save_work([unit], work, tmp_path / "work")
    script = tmp_path / "bare.py"
    script.write_text(BARE)
    command = [
        sys.executable,
        script,
        folder,
        "--store",
        tmp_path / "store",
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = Store(tmp_path / "store").load(unit.key)
    here = run_training(unit, work)
    one, other = (held.answers["detection"] for held in (outcome, here))
    assert np.array_equal(one.box, other.box) and np.allclose(one.score, other.score)


@pytest.fixture(scope="module")
def many():
    """Enough volumes for a network of a few thousand weights, and enough lesions to tell it from chance."""
    return phantom_volumes(150, splits=(0.55, 0.05, 0.40))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_it_finds_more_lesions_than_random_boxes(name, many, tmp_path):
    train, validation, test = (many.of_split(split) for split in ("train", "validation", "test"))
    settings = SETTINGS[name] | BETTER[name]
    _, answers = run_recipe(many, name, settings, tmp_path, train=train, validation=validation, predict=test)
    main = "mean_sensitivity_1_to_4"
    chance = [metrics_of(many, random_answers(many, test, seed=seed))[main] for seed in range(20)]
    assert metrics_of(many, answers)[main] > max(chance)
