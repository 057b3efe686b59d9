"""Batches in torch: within one grey level of the numpy path, and the same patches passed through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

import torch

from elsewhere.errors import UserError
from elsewhere.inputs.stain import macenko
from elsewhere.inputs.stain.batches import fit_batch, transfer_matrices, transform_batch
from worlds import stain_rules


@pytest.fixture(scope="module")
def patches():
    rng = np.random.default_rng(4)
    made = [stain_rules.tissue_picture(rng, (64, 64), strength=(0.5 + i / 3, 0.9)) for i in range(6)]
    made += [np.full((64, 64, 3), value, dtype=np.uint8) for value in (245, 0, 120)]
    return np.stack(made)


@pytest.mark.parametrize("background", ["keep", "transform"])
def test_a_patch_fit_is_within_one_grey_level(patches, background):
    batch = torch.from_numpy(patches)
    fits = fit_batch(batch)
    made = transform_batch(batch, transfer_matrices(fits), background=background).numpy()
    for k, patch in enumerate(patches):
        own = macenko.fit(patch)
        assert bool(fits.is_fitted[k]) == own.is_fitted
        expected = macenko.transform(patch, own, background=background)
        assert np.abs(made[k].astype(int) - expected).max() <= 1


def test_a_slide_fit_is_within_one_grey_level(patches):
    slide = macenko.fit(patches)
    matrices = transfer_matrices([slide] * len(patches))
    made = transform_batch(torch.from_numpy(patches), matrices).numpy()
    expected = macenko.transform(patches, slide)
    assert np.abs(made.astype(int) - expected).max() <= 1


def test_patches_without_stains_keep_their_bytes(patches):
    batch = torch.from_numpy(patches)
    made = transform_batch(batch, transfer_matrices(fit_batch(batch)), background="transform")
    assert (made[6:] == batch[6:]).all()
    nothing = transfer_matrices([macenko.fit(patch) for patch in patches[6:]])
    assert (transform_batch(batch[6:], nothing) == batch[6:]).all()


def test_other_tensors_are_refused(patches):
    batch = torch.from_numpy(patches)
    matrices = transfer_matrices(fit_batch(batch))
    for wrong in (batch.float(), batch[0], batch.permute(0, 3, 1, 2), patches):
        with pytest.raises(UserError, match="uint8 tensor"):
            fit_batch(wrong)
    with pytest.raises(UserError, match="matrices"):
        transform_batch(batch, matrices[:2])
    with pytest.raises(UserError, match="background"):
        transform_batch(batch, matrices, background="no")


WITHOUT = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        gone = name.split(".")[0] in ("numba", "tifffile", "openslide", "imagecodecs", "cv2", "skimage", "pandas", "pyarrow")
        return None if gone else super().find_spec(name, path, target)
sys.meta_path = [Without if one is PathFinder else one for one in sys.meta_path]
from benchmarks.bench_stain import batch_rows
for row in batch_rows("cpu", quick=True):
    print(row["job"], row["notes"], row.get("bar_met", True), sep="|")
"""


@pytest.mark.slow
def test_the_benchmark_runs_on_a_bare_gpu_machine():
    """Such a machine has torch, torchvision, numpy, scipy and Pillow; the rows state the difference from numpy."""
    pytest.importorskip("torchvision")
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all(line.endswith("|True") for line in lines), done.stdout
    assert all(
        "largest difference from numpy 1 grey level" in line or "numpy 0 grey" in line for line in lines
    )
