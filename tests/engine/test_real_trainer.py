"""Elsewhere's own trainer on every engine: the same bits with the same threads on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_helpers import packed, picture_bytes
from test_work_folder import BARE

from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training, Work
from elsewhere.engine.work import save_work
from elsewhere.inputs import Cases, Pictures
from elsewhere.recipes.pictures.settings import classifier_spec, finder_training
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="the extra `train` is not installed")


@pytest.fixture(scope="module")
def study() -> tuple[list[Training], Work]:
    """Dark ellipses with masks; two trainings of a tiny network, a box finder, and a unit that uses it."""
    rng = np.random.default_rng(3)
    images, masks, boxes = {}, {}, []
    for at in range(40):
        pixels = rng.normal(120, 10, (48, 64))
        mask = np.zeros(pixels.shape, np.uint8)
        y, x, width = rng.integers(4, 28), rng.integers(4, 30), 24 if at % 2 else 12
        pixels[y : y + 12, x : x + width] -= 60
        mask[y : y + 12, x : x + width] = 255
        name = f"A/{at:02d}"
        images[name], masks[name] = picture_bytes(pixels.clip(0, 255).astype(np.uint8)), [picture_bytes(mask)]
        boxes.append([x, y, x + width, y + 12])
    pictures = Pictures(images, masks)
    cases = Cases(
        case=tuple(images),
        dataset=("A",) * 40,
        label=(np.arange(40) % 2).astype(np.int8),
        box=np.array(boxes, dtype=np.int32),
        digest=tuple(pictures.digest(name) for name in images),
    )
    work = Work(cases=cases, sources={"pictures": pictures})
    names = cases.case
    parts = {"train": names[:24], "validation": names[24:32], "predict": names[32:]}
    recipe = ClassifierSettings(network="tiny-cnn", weights="none", epochs=2, batch=8, learning_rate=3e-3)
    whole, roi = InputSpec(size_px=32), InputSpec(kind="roi", size_px=32)
    draft = Training(name="found", seed=3, recipe=classifier_spec(recipe, roi), **parts)
    finder = finder_training(draft, "finder-tiny", size_px=64, epochs=1).with_key(cases)
    units = [
        Training(name="one", seed=1, recipe=classifier_spec(recipe, whole), keep_weights=True, **parts),
        Training(name="two", seed=2, recipe=classifier_spec(recipe, roi), **parts),
        finder,
        replace(draft, needs={"boxes": finder.key}),
    ]
    return [unit.with_key(cases) for unit in units], work


@pytest.fixture(scope="module")
def here(study, tmp_path_factory) -> Store:
    store = Store(tmp_path_factory.mktemp("real") / "here")
    report = run_units(*study, store, device="cpu", threads=1)
    assert report.failed == {}
    assert len(report.done) == 4
    assert store.load(report.done[0]).versions["threads"] == "1"
    return store


def same_bits(one: Store, two: Store, units: list[Training]) -> bool:
    for unit in units:
        a, b = one.load(unit.key), two.load(unit.key)
        if a.case != b.case or packed(a) != packed(b):
            return False
        if unit.keep_weights and not all(torch.equal(a.weights[name], b.weights[name]) for name in a.weights):
            return False
    return True


def test_a_process_a_device(study, here, tmp_path):
    there = Store(tmp_path / "there")
    run_units(*study, there, device="cpu,cpu", threads=2)
    assert same_bits(here, there, study[0])


def test_on_a_ray_cluster(study, here, tmp_path):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    there = Store(tmp_path / "there")
    report = run_units(*study, there, engine="ray", device="cpu", threads=1, batch=2)
    assert report.failed == {}
    assert same_bits(here, there, study[0])


def test_on_a_bare_machine(study, here, tmp_path):
    folder = save_work(*study, tmp_path / "w")
    command = [sys.executable, "-c", BARE, folder, "--store", tmp_path / "s", "--device", "cpu"]
    command += ["--threads", "1", "--zip", tmp_path / "z.zip"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    there = Store(tmp_path / "there")
    assert sorted(there.add(Path(tmp_path / "z.zip"))) == sorted(unit.key for unit in study[0])
    assert same_bits(here, there, study[0])
