"""Features next to a store: computed once, resumed, and never mixed up."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.cohort.patch_table import read_patch_table
from elsewhere.commands.slide_patches import CutSettings, cut_patches
from elsewhere.commands.slide_store import StoreSettings, pack_patches
from elsewhere.curation.appearance import describe_patches
from elsewhere.curation.features import (
    Appearance,
    compute_features,
    count_missing,
    features_folder,
    make_network_encoder,
    select_patches,
)
from elsewhere.errors import UserError
from elsewhere.files.locks import FileLock
from elsewhere.inputs.patches.store import PatchStore
from worlds.patch_rows import write_slides


class Counting:
    """Means of the colours, and how many patches were asked for."""

    name, words, features = "means", "mean colours", 3

    def __init__(self, digest: str = "0" * 64, stop_after: int = 10**9) -> None:
        self.digest, self.stop_after, self.done = digest, stop_after, 0

    def encode(self, pixels):
        if self.done >= self.stop_after:
            raise KeyboardInterrupt
        self.done += len(pixels)
        return pixels.mean(axis=(1, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    cohort = write_slides(folder)
    cut_patches([cohort], out=folder / "patches.parquet", settings=CutSettings(size_px=32, least_tissue=0.0))
    pack_patches(folder / "patches.parquet", slides=[cohort], out=folder / "store", settings=StoreSettings())
    return folder


@pytest.fixture
def patches(packed, tmp_path):
    import shutil

    shutil.copytree(packed / "store", tmp_path / "store")
    return select_patches(PatchStore(tmp_path / "store"), read_patch_table(packed / "patches.parquet").rows)


def test_features_are_computed_once(patches):
    encoder = Counting()
    assert count_missing(patches, encoder) == len(patches) > 20
    steps = []
    made = compute_features(patches, encoder, progress=lambda *step: steps.append(step))
    assert np.array_equal(made, patches.batch(np.arange(len(patches))).mean(axis=(1, 2)).astype(np.float32))
    assert encoder.done == len(patches) and steps[-1] == ("features: means", len(patches), len(patches))
    again = Counting()
    assert np.array_equal(compute_features(patches, again), made) and again.done == 0
    assert count_missing(patches, again) == 0
    other = Counting("1" * 64)
    compute_features(patches, other)
    assert other.done == len(patches) and features_folder(patches.store.path, other).is_dir()


def test_a_part_first_and_in_another_order(patches):
    encoder = Counting()
    few = select_patches(patches.store, _rows(patches)[::3])
    compute_features(few, encoder)
    compute_features(patches, encoder)
    assert encoder.done == len(patches)
    backwards = select_patches(patches.store, _rows(patches)[::-1])
    pixels = backwards.batch(np.arange(len(backwards)))
    assert np.array_equal(compute_features(backwards, encoder), pixels.mean(axis=(1, 2)).astype(np.float32))


def _rows(patches):
    import pandas as pd

    parts = []
    for slide in patches.store.slides.values():
        for shard in slide.shards:
            parts.append(
                pd.DataFrame({"dataset": slide.dataset, "case_id": slide.case_id, "i": shard.i, "j": shard.j})
            )
    return pd.concat(parts, ignore_index=True)


def test_a_run_that_was_stopped_resumes(patches):
    first = Counting(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        compute_features(patches, first)
    assert 0 < first.done < len(patches)
    second = Counting()
    made = compute_features(patches, second)
    assert second.done == len(patches) - first.done
    assert np.array_equal(made, patches.batch(np.arange(len(patches))).mean(axis=(1, 2)).astype(np.float32))


@pytest.mark.parametrize("damage", ["cut", "other", "shape", "bomb"])
def test_a_damaged_file_is_computed_anew(patches, damage):
    encoder = Counting()
    made = compute_features(patches, encoder)
    path = sorted(features_folder(patches.store.path, encoder).glob("*.npz"))[0]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "other":
        path.write_bytes(b"something else")
    elif damage == "shape":
        np.savez(path, rows=np.array([5, 4]), values=np.zeros((2, 3), np.float32))
    else:
        np.savez_compressed(path, rows=np.arange(2), values=np.zeros((3_000_000, 3), np.float32))
    again = Counting()
    assert np.array_equal(compute_features(patches, again), made) and 0 < again.done < len(patches)


def test_a_slide_that_was_packed_anew_has_other_features(patches):
    encoder = Counting()
    compute_features(patches, encoder)
    shard = patches.store.shards[0]
    object.__setattr__(shard, "pixels_sha256", "f" * 64)
    again = Counting()
    compute_features(patches, again)
    assert again.done == len(shard)


def test_two_runs_at_once_are_refused(patches):
    encoder = Counting()
    folder = features_folder(patches.store.path, encoder)
    folder.mkdir(parents=True)
    lock = FileLock(folder / ".lock")
    assert lock.acquire()
    with pytest.raises(UserError, match="another run computes these features"):
        compute_features(patches, encoder)
    lock.release()
    compute_features(patches, encoder)


def test_a_network_gives_the_same_features_in_any_company(patches):
    pytest.importorskip("torch")
    encoder = make_network_encoder("random", "mobilenet-v3-small", "none", device="cpu")
    pixels = patches.batch(np.arange(20))
    whole = encoder.encode(pixels)
    assert whole.shape == (20, 576) and np.isfinite(whole).all()
    assert np.array_equal(encoder.encode(pixels[7:9]), whole[7:9])
    with pytest.raises(UserError, match="unknown device 'abacus'"):
        make_network_encoder("random", "resnet18", "none", device="abacus")


def test_blur_and_stain_are_measured():
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    sharp = rng.integers(60, 200, (64, 64)).astype(np.float64)
    stack = np.stack([gaussian_filter(sharp, sigma) for sigma in (0.0, 1.0, 2.0)])
    pixels = np.repeat(stack[..., None], 3, axis=3).round().astype(np.uint8)
    found = describe_patches(pixels)
    assert (np.diff(found[:, 0]) < -1).all()
    blue, pink = (
        np.full((1, 16, 16, 3), (90, 80, 160), np.uint8),
        np.full((1, 16, 16, 3), (220, 130, 180), np.uint8),
    )
    assert describe_patches(blue)[0, 1] > describe_patches(pink)[0, 1] + 0.1
    # By hand: the mean optical density of (90, 80, 160) is (1.0415 + 1.1592 + 0.4661) / 3, and 1.0415 of it is red.
    assert describe_patches(blue)[0, 2] == pytest.approx(0.8889, abs=1e-4)
    assert describe_patches(blue)[0, 1] == pytest.approx(1.0415 / 2.6668, abs=1e-4)
    assert np.isnan(describe_patches(np.full((1, 16, 16, 3), 250, np.uint8))).all()
    assert Appearance().encode(pixels).shape == (3, 3)
