"""Segmenters on patches: what they learn, reproducibility, early stopping, and resuming (LN-09)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.networks.segmenters import build_segmenter
from elsewhere.training import loop
from elsewhere.training.patches import worker as worker_module
from elsewhere.training.patches.concurrent import PatchCallbacks, PatchOptions, train_segmenters
from elsewhere.training.patches.settings import PatchPool, PatchSettings, PatchTraining
from elsewhere.training.patches.worker import patch_means
from worlds.discs import disc_pool

POOL = disc_pool()
FAST = PatchSettings(network="deeplab-tiny", weights="none", epochs=4, learning_rate=5e-3, decay=1.0)


def unit(key="a", settings=FAST, **changes):
    parts = {"train": np.arange(32), "validation": np.arange(32, 40), "predict": np.arange(40, 48)}
    return PatchTraining(key=key, name=key, settings=settings, **{**parts, **changes})


def train(units, pool=POOL, **options):
    done, broken = {}, {}
    train_segmenters(
        units,
        pool,
        callbacks=PatchCallbacks(
            finished=lambda one, outcome: done.__setitem__(one.key, outcome),
            failed=lambda one, reason: broken.__setitem__(one.key, reason),
        ),
        options=PatchOptions(device="cpu", **options),
    )
    return done, broken


def same(one, other):
    return all(torch.equal(value, other.weights[name]) for name, value in one.weights.items())


@pytest.mark.parametrize("loss", ["abraham", "smp"])
def test_a_network_learns_to_mark_discs(loss):
    settings = replace(FAST, network="unet-tiny", loss=loss, epochs=8, learning_rate=1e-2)
    outcome = train([unit(settings=settings)])[0]["a"]
    losses = [entry["validation_loss"] for entry in outcome.history]
    assert losses[-1] < losses[0]
    # A network that calls every pixel tumour has Dice of about 0.3 and a false-positive rate of 1.
    dice, fpr = patch_means(outcome.counts, np.arange(40, 48) % 2 == 1)
    assert dice > 0.6
    assert fpr < 0.05
    assert outcome.patches == 8 * 32
    assert (outcome.counts.sum(axis=1) == POOL.size**2).all()


def test_counts_are_those_of_the_kept_weights():
    outcome = train([unit()])[0]["a"]
    model = build_segmenter("deeplab-tiny").eval()
    model.load_state_dict(outcome.weights)
    rows = np.arange(40, 48)
    x = torch.from_numpy(POOL.pixels[rows]).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        called = model(x)[:, 0].sigmoid().numpy() > 0.5
    truth = np.unpackbits(POOL.masks[rows], axis=1).reshape(len(rows), POOL.size, POOL.size) == 1
    expected = [(a & b).sum(axis=(1, 2)) for a in (called, ~called) for b in (truth, ~truth)]
    hit, alarm, miss, rest = outcome.counts.T
    for found, wanted in zip((hit, alarm, miss, rest), expected, strict=True):
        assert np.abs(found - wanted).max() <= 1


def test_the_same_seed_gives_the_same_weights_whatever_trains_beside_it():
    alone = train([unit()])[0]["a"]
    together = train([unit("b", seed=7), unit("a"), unit("c", settings=replace(FAST, network="unet-tiny"))])[
        0
    ]
    assert same(alone, together["a"])
    assert not same(alone, together["b"])
    assert np.array_equal(alone.counts, together["a"].counts)


def test_the_best_epoch_is_kept_and_training_stops_early():
    settings = replace(FAST, learning_rate=0.3, epochs=30, patience=2)
    outcome = train([unit(settings=settings)])[0]["a"]
    losses = [entry["validation_loss"] for entry in outcome.history]
    assert len(losses) < 30
    assert len(losses) == outcome.best_epoch + 2
    assert losses[outcome.best_epoch - 1] == min(losses)
    shorter = train([unit(settings=replace(settings, epochs=outcome.best_epoch))])[0]["a"]
    assert same(outcome, shorter)


def test_a_training_that_was_killed_resumes_and_gives_the_same_weights(tmp_path, monkeypatch):
    whole = train([unit(checkpoint=tmp_path / "whole.pt")])[0]["a"]
    broken_off, writes = unit(checkpoint=tmp_path / "a.pt"), []

    def write_and_die(path, content):
        loop.write_checkpoint(path, content)
        writes.append(content["loop"]["epoch"])
        if len(writes) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(worker_module, "write_checkpoint", write_and_die)
        with pytest.raises(KeyboardInterrupt):
            train([broken_off], checkpoint_seconds=0.0)
    assert writes == [1, 2]
    resumed = train([broken_off])[0]["a"]
    assert same(whole, resumed)
    assert resumed.patches == whole.patches
    assert [one["validation_loss"] for one in resumed.history] == [
        one["validation_loss"] for one in whole.history
    ]


def test_a_checkpoint_of_another_training_or_cut_off_is_not_used(tmp_path):
    plain = train([unit()])[0]["a"]
    other = unit("other", seed=5, checkpoint=tmp_path / "a.pt")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker_module, "read_checkpoint", lambda path: None)
        train([other], checkpoint_seconds=0.0)
    assert (tmp_path / "a.pt").exists()
    assert same(plain, train([unit(checkpoint=tmp_path / "a.pt")])[0]["a"])
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:100])
    assert same(plain, train([unit(checkpoint=tmp_path / "a.pt")])[0]["a"])


def test_parts_that_cannot_be_trained_on_fail_alone():
    units = [
        unit("good", settings=replace(FAST, epochs=1)),
        unit("empty", validation=np.empty(0, np.int64)),
        unit("normal", train=np.arange(0, 32, 2)),
        unit("unwatched", validation=np.arange(32, 40, 2)),
    ]
    done, broken = train(units)
    assert set(done) == {"good"}
    assert "the validation part of empty is empty" in broken["empty"]
    assert "the training part of normal has no patch with tumour" in broken["normal"]
    assert "the validation part of unwatched has no patch with tumour" in broken["unwatched"]


def test_a_training_whose_loss_is_never_a_number_fails():
    settings = replace(FAST, learning_rate=1e30, epochs=2)
    done, broken = train([unit(settings=settings)])
    assert not done
    assert "no epoch had a finite validation loss" in broken["a"]


def test_what_is_refused_before_anything_trains():
    with pytest.raises(UserError, match="names patch 48 of a pool of 48"):
        train([unit(predict=np.array([48]))])
    with pytest.raises(UserError, match="no coco weights are published"):
        train([unit(settings=replace(FAST, weights="coco"))])
    with pytest.raises(UserError, match="side is a multiple of 16"):
        PatchPool(pixels=np.zeros((1, 20, 20, 3), np.uint8), masks=np.zeros((1, 50), np.uint8))
    with pytest.raises(UserError, match="masks have the shape"):
        PatchPool(pixels=np.zeros((1, 32, 32, 3), np.uint8), masks=np.zeros((1, 50), np.uint8))


def test_nothing_starts_after_stop():
    done = []
    train_segmenters(
        [unit()],
        POOL,
        callbacks=PatchCallbacks(finished=lambda *one: done.append(one), failed=print, stop=lambda: True),
        options=PatchOptions(device="cpu"),
    )
    assert not done


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_step_gives_what_a_launched_one_gives():
    from elsewhere.training.cuda_options import CudaOptions, use_cuda_options

    def on_gpu(captured):
        done = {}
        with use_cuda_options(CudaOptions(captured=captured)):
            train_segmenters(
                [unit(), unit("b", seed=3), unit("c", seed=4)],
                POOL,
                callbacks=PatchCallbacks(
                    finished=lambda one, got: done.__setitem__(one.key, got), failed=pytest.fail
                ),
                options=PatchOptions(device="cuda", lanes=2),
            )
        return done

    recorded, launched = on_gpu(captured=True), on_gpu(captured=False)
    for key, one in recorded.items():
        assert one.history[-1]["validation_loss"] == pytest.approx(
            launched[key].history[-1]["validation_loss"], rel=0.05
        )
    again = on_gpu(captured=True)
    assert all(same(one, again[key]) for key, one in recorded.items())
