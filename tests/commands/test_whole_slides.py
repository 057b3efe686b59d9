"""`elsewhere slides segment`: masks of whole slides by a saved model (LN-09, LN-14)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch

from elsewhere.commands.slide_training import whole_slides
from elsewhere.commands.slide_training.models import ModelFolder
from elsewhere.commands.slide_training.plan import TrainSettings
from elsewhere.commands.slide_training.run import RunOptions, train_models
from elsewhere.commands.slide_training.whole_slides import segment_slides
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.inputs.patches.spec import StainSpec
from elsewhere.inputs.patches.store import PatchStore
from elsewhere.inputs.stain.normalise import make_target
from elsewhere.training.patches.inference import SegmenterGroup
from elsewhere.training.patches.settings import PatchSettings
from worlds.trained_patches import make_patch_world

MODEL = "plain-fold1"


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """For every test of this file."""


@pytest.fixture(scope="module")
def world(made_once):
    return made_once("trained_patches", make_patch_world)


@pytest.fixture(scope="module")
def models(world, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("models") / "models"
    train_models(
        world / "store",
        [world / "plain.parquet"],
        out=out,
        test=world / "test.parquet",
        settings=TrainSettings(
            training=PatchSettings(network="deeplab-tiny", weights="none", epochs=1, learning_rate=1e-2),
            folds=2,
        ),
        options=RunOptions(device="cpu"),
    )
    return out


def segment(models, slides, out, **options):
    return segment_slides(models, slides, model=MODEL, out=out, device="cpu", **options)


def test_the_mask_of_a_slide_is_what_the_model_says_of_its_patches(world, models, tmp_path):
    made = segment(models, [world / "s6.tif"], tmp_path / "masks")
    assert made.exit_code == EXIT_OK
    mask = tifffile.imread(tmp_path / "masks" / "s6.tif") > 127
    assert mask.shape == (150, 200), "150 x 200 pixels of 0.5 um"
    rows = pd.read_parquet(models / "patches" / f"{MODEL}.parquet")
    rows = rows[rows["case_id"] == "s6"]
    assert len(rows) == 24
    called = {(i, j): tp + fp for i, j, tp, fp in rows[["i", "j", "tp", "fp"]].itertuples(index=False)}
    looked, total = 0, 0
    for (i, j), count in called.items():
        found = int(mask[32 * j : 32 * (j + 1), 32 * i : 32 * (i + 1)].sum())
        total += found
        # Probabilities are written in 8 bits: one that is nearly 0.5 may fall on the other side.
        if found or not count:
            assert abs(found - count) <= 12
            looked += found > 0
    assert looked > 2
    assert mask.sum() == total, "nothing beyond the last whole patch is tumour"
    assert made.slides[0].tumour_mm2 == pytest.approx(mask.sum() * 0.25 / 1e6)


def test_glass_is_not_looked_at(world, models, tmp_path, monkeypatch):
    monkeypatch.setattr(
        SegmenterGroup,
        "probabilities",
        lambda self, pixels: iter([np.ones(pixels.shape[:3], np.float32)]),
    )
    made = segment(models, [world / "s0.tif"], tmp_path / "masks").slides[0]
    assert 0 < made.patches < made.places
    mask = tifffile.imread(tmp_path / "masks" / "s0.tif")
    assert (mask > 127).sum() == made.patches * 32 * 32


def test_a_second_run_draws_what_is_missing(world, models, tmp_path):
    out = tmp_path / "masks"
    first = segment(models, [world / "s6.tif"], out)
    assert [one.case_id for one in first.slides] == ["s6"]
    before = (out / "s6.tif").stat().st_mtime_ns
    second = segment(models, [world / "s6.tif", world / "s7.tif"], out)
    assert second.stored == ("s6",)
    assert [one.case_id for one in second.slides] == ["s7"]
    assert (out / "s6.tif").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="masks of another model"):
        segment_slides(models, [world / "s7.tif"], model="plain-fold2", out=out, device="cpu")


def test_the_stain_of_the_store_is_applied(world, models, tmp_path, monkeypatch):
    seen = []
    real = SegmenterGroup.probabilities

    def watch(self, pixels):
        seen.append(pixels.copy())
        return real(self, pixels)

    monkeypatch.setattr(SegmenterGroup, "probabilities", watch)
    segment(models, [world / "s6.tif"], tmp_path / "plain")
    plain, stain = np.concatenate(seen), StainSpec(target=make_target("study"))
    seen.clear()
    spec = replace(PatchStore(world / "store").spec, stain=stain)
    monkeypatch.setattr(whole_slides, "read_spec", lambda *_, **__: spec)
    segment(models, [world / "s6.tif"], tmp_path / "stained")
    stained = np.concatenate(seen)
    assert stained.shape == plain.shape
    assert np.abs(stained.astype(int) - plain).mean() > 3


def test_a_slide_that_cannot_be_read_leaves_the_others(world, models, tmp_path):
    (tmp_path / "slides").mkdir()
    (tmp_path / "slides" / "bad.tif").write_bytes(b"II*\0 no slide")
    (tmp_path / "slides" / "s6.tif").symlink_to(world / "s6.tif")
    made = segment(models, [tmp_path / "slides"], tmp_path / "masks")
    assert made.exit_code == EXIT_INCOMPLETE
    assert [name for name, _ in made.refused] == ["bad"]
    assert any("bad: no mask" in line for line in made.lines())
    assert [one.case_id for one in made.slides] == ["s6"]
    assert not (tmp_path / "masks" / "bad.tif").exists()


def test_what_is_refused(world, models, tmp_path):
    with pytest.raises(UserError, match="unknown model 'plain-fold9'"):
        segment_slides(models, [world / "s6.tif"], model="plain-fold9", out=tmp_path / "m", device="cpu")
    with pytest.raises(UserError, match="there are no models here"):
        segment(tmp_path, [world / "s6.tif"], tmp_path / "m")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "letter.txt").write_text("x")
    with pytest.raises(UserError, match="something else"):
        segment(models, [world / "s6.tif"], tmp_path / "m")
    with pytest.raises(UserError, match="case ids cannot be names of files"):
        whole_slides._check_names(["a", "../a"])
    with pytest.raises(UserError, match="two slides have the case id a"):
        whole_slides._check_names(["a", "a"])


def test_weights_of_another_network_are_refused(world, models, tmp_path, monkeypatch):
    monkeypatch.setattr(ModelFolder, "load", lambda *_: {"a": torch.zeros(1)})
    with pytest.raises(UserError, match="not those of a deeplab-tiny"):
        segment(models, [world / "s6.tif"], tmp_path / "masks")
