"""Patches put together in strips, against a canvas of the whole slide."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.predictions.recomposition import PatchLayout, PatchPrediction, recompose


def patches_of(layout, rng, share=0.8, kind=np.float32):
    rows, columns = layout.shape
    size = (layout.patch, layout.patch)
    return [
        PatchPrediction(i=i, j=j, values=rng.random(size).astype(kind))
        for j in range(rows)
        for i in rng.permutation(columns).tolist()
        if rng.random() < share
    ]


def canvas_of(patches, layout):
    grid = layout.grid()
    side = np.ones(layout.patch)
    if layout.weights == "hann":
        side = np.hanning(2 * layout.patch + 1)[1::2]
    shape = [n * layout.stride + layout.patch for n in layout.shape]
    total, weight = np.zeros(shape), np.zeros(shape)
    for one in patches:
        part = np.s_[
            one.j * layout.stride : one.j * layout.stride + layout.patch,
            one.i * layout.stride : one.i * layout.stride + layout.patch,
        ]
        total[part] += one.values * np.outer(side, side)
        weight[part] += np.outer(side, side)
    mean = np.where(weight > 0, total / np.where(weight > 0, weight, 1), 0)
    return mean[: grid.rows, : grid.columns]


@pytest.mark.parametrize(
    ("patch", "stride", "weights"), [(16, 16, "none"), (16, 8, "none"), (16, 4, "hann"), (16, 11, "hann")]
)
def test_strips_equal_a_canvas(patch, stride, weights):
    layout = PatchLayout(
        size_px=(201, 155), mpp=0.25, pixel_um=0.5, patch=patch, stride=stride, weights=weights
    )
    patches = patches_of(layout, np.random.default_rng(stride))
    got = np.concatenate(list(recompose(patches, layout)))
    mean = canvas_of(patches, layout)
    assert got.shape == (78, 101) == mean.shape
    wanted = np.maximum(np.ceil(mean * 256) - 1, 0)
    assert np.abs(got - wanted).max() <= 1
    assert (got != wanted).mean() < 1e-3


def test_hann_weights_fade_so_that_no_seam_is_seen():
    """Two patches that disagree: without weights the mean jumps at their borders, with Hann weights it does not."""
    steps = {}
    for weights in ("none", "hann"):
        layout = PatchLayout(size_px=(48, 32), mpp=0.5, patch=32, stride=16, weights=weights)
        patches = [
            PatchPrediction(i=i, j=0, values=np.full((32, 32), value)) for i, value in ((0, 0.1), (1, 0.9))
        ]
        row = np.concatenate(list(recompose(patches, layout)))[8].astype(int)
        steps[weights] = np.abs(np.diff(row)).max()
    assert steps["none"] > 90 and steps["hann"] < 25


def test_rows_without_patches_are_not_tumour():
    layout = PatchLayout(size_px=(64, 320), mpp=0.5, patch=32, stride=32)
    strips = list(recompose([PatchPrediction(i=1, j=7, values=np.ones((32, 32), dtype=bool))], layout))
    whole = np.concatenate(strips)
    assert whole.shape == (320, 64)
    assert (np.argwhere(whole == 255).min(axis=0) == [224, 32]).all() and whole.sum() == 255 * 32 * 32
    assert np.concatenate(list(recompose([], layout))).sum() == 0


@pytest.mark.parametrize("kind", [np.uint8, bool])
def test_bytes_and_truth_values_keep_their_values(kind):
    values = (np.random.default_rng(0).random((2, 16, 16)) * 255).astype(kind)
    for stride in (16, 8):
        layout = PatchLayout(size_px=(32, 16), mpp=0.5, patch=16, stride=stride)
        patches = [PatchPrediction(i=i * 16 // stride, j=0, values=values[i]) for i in (0, 1)]
        got = np.concatenate(list(recompose(patches, layout)))
        wanted = np.concatenate(list(values), axis=1).astype(np.uint8) * (255 if kind is bool else 1)
        np.testing.assert_array_equal(got, wanted)


LAYOUT = PatchLayout(size_px=(64, 64), mpp=0.5, patch=32, stride=32)


def patch(i=0, j=0, size=32, value=0.5):
    return PatchPrediction(i=i, j=j, values=np.full((size, size), value))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ([patch(), patch(i=1, size=31)], "patch 1, 0 is 31 x 31 and not 32 x 32"),
        ([patch(i=9)], "patch 9, 0 lies outside of the slide"),
        ([patch(j=-1)], "patch 0, -1 lies outside of the slide"),
        ([patch(), patch()], "patch 0, 0 comes twice"),
        ([patch(j=1), patch()], "patch 0, 0 comes after a patch of row 1"),
        ([patch(value=1.2)], "patch 0, 0: probabilities lie between 1.2 and 1.2"),
        ([patch(value=np.nan)], "patch 0, 0: 1,024 of 1,024 probabilities are not a number"),
        ([PatchPrediction(i=0, j=0, values=np.zeros((32, 32), dtype=np.int64))], "holds values of int64"),
    ],
)
def test_bad_patches_are_refused_by_name(patches, message, overlap):
    layout = PatchLayout(size_px=(64, 64), mpp=0.5, patch=32, stride=16 if overlap else 32)
    with pytest.raises(UserError, match=message):
        list(recompose(patches, layout))


@pytest.mark.parametrize(
    "wrong",
    [{"mpp": 0.0}, {"stride": 33}, {"stride": 0}, {"patch": 5000}, {"weights": "gauss"}, {"size_px": (0, 5)}],
)
def test_a_layout_that_cannot_be_is_refused(wrong):
    with pytest.raises(UserError):
        PatchLayout(**({"size_px": (64, 64), "mpp": 0.5, "patch": 32, "stride": 32} | wrong))
