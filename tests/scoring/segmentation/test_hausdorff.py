"""Dice and surface distances: the vectors of four libraries, and scipy by brute force."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from scipy.spatial.distance import cdist

from elsewhere.errors import UserError
from elsewhere.scoring.segmentation.hausdorff import (
    dice_and_hausdorff,
    measure_pair,
)


def by_scipy_edges(mask: np.ndarray, *, outside_is_tumour: bool = False) -> np.ndarray:
    """Surface voxels: removed by an erosion with the face neighbours; axes of length one have none."""
    mask = np.asarray(mask) > 0
    kept = [axis for axis in range(mask.ndim) if mask.shape[axis] > 1]
    flat = mask.reshape([mask.shape[axis] for axis in kept])
    if flat.ndim == 0:
        return np.argwhere(np.zeros_like(mask))
    cross = ndimage.generate_binary_structure(flat.ndim, 1)
    eroded = ndimage.binary_erosion(flat, cross, border_value=1 if outside_is_tumour else 0)
    return np.argwhere((flat & ~eroded).reshape(mask.shape))


def by_scipy_directed(a: np.ndarray, b: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    return cdist(a * spacing, b * spacing).min(axis=1)


def by_scipy_dice(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a > 0, b > 0
    return 2 * float((a & b).sum()) / float(a.sum() + b.sum())


def by_scipy_components(a: np.ndarray, b: np.ndarray) -> tuple[int, int]:
    """(components of a, of those the ones that share a voxel with b), corners joined."""
    labels, n = ndimage.label(a > 0, ndimage.generate_binary_structure(a.ndim, a.ndim))
    return n, len(set(labels[(b > 0) & (labels > 0)].tolist()))


@pytest.fixture(scope="module")
def pairs(vectors_dir):
    masks = np.load(vectors_dir / "hausdorff" / "masks.npz")
    expected = json.loads((vectors_dir / "hausdorff" / "expected.json").read_text())
    return {
        name: (masks[f"{name}__gt"], masks[f"{name}__pred"], row["spacing_zyx_mm"], row)
        for name, row in expected.items()
    }


NAMES = ["spheres_shifted_aniso", "disjoint", "pred_two_components", "identical"]


@pytest.mark.parametrize("name", NAMES)
def test_vectors_maximum(pairs, name):
    truth, prediction, spacing, row = pairs[name]
    _, quick = dice_and_hausdorff(truth, prediction, spacing)
    assert quick == row["scipy_directed_hausdorff_edge_voxels_mm"]
    assert quick == pytest.approx(row["sitk_hausdorff_all_voxels_mm"], abs=1e-12)
    assert quick == pytest.approx(row["monai_hd_mm"], rel=1e-6)
    assert measure_pair(truth, prediction, spacing).hausdorff_mm == quick


@pytest.mark.parametrize("name", NAMES)
def test_vectors_hd95_is_the_larger_directed_percentile(pairs, name):
    truth, prediction, spacing, row = pairs[name]
    got = measure_pair(truth, prediction, spacing).hausdorff95_mm
    assert got == pytest.approx(row["monai_hd95_mm"], rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_vectors_mamamia_code_distance(pairs, name):
    truth, prediction, spacing, row = pairs[name]
    measured = measure_pair(truth, prediction, spacing, contour=True)
    assert measured.contour95_voxels == row["mamamia_hd95_voxels"]


def ball(shape, centre, radius):
    axes = np.ogrid[tuple(slice(0, n) for n in shape)]
    return sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)) <= radius**2


def compare(a, b, spacing):
    spacing = np.asarray(spacing, dtype=float)
    measured = measure_pair(a, b, spacing, contour=True)
    dice, hausdorff = dice_and_hausdorff(a, b, spacing)
    there = by_scipy_directed(by_scipy_edges(a), by_scipy_edges(b), spacing)
    back = by_scipy_directed(by_scipy_edges(b), by_scipy_edges(a), spacing)
    assert dice == measured.dice == by_scipy_dice(a, b)
    assert hausdorff == measured.hausdorff_mm
    assert hausdorff == pytest.approx(max(there.max(), back.max()), rel=1e-13)
    assert measured.hausdorff95_mm == pytest.approx(
        max(np.percentile(there, 95), np.percentile(back, 95)), rel=1e-13
    )
    both = np.concatenate([there, back])
    assert measured.average_surface_distance_mm == pytest.approx(both.mean(), rel=1e-12)
    near = [np.mean(both <= 1.0 + slack) for slack in (-1e-12, 1e-12)]
    assert near[0] <= measured.surface_dice_1mm <= near[1]
    contour_a = by_scipy_edges(a, outside_is_tumour=True)
    contour_b = by_scipy_edges(b, outside_is_tumour=True)
    if len(contour_a) and len(contour_b):
        one = np.ones(a.ndim)
        want = max(
            np.percentile(by_scipy_directed(contour_a, contour_b, one), 95),
            np.percentile(by_scipy_directed(contour_b, contour_a, one), 95),
        )
        assert measured.contour95_voxels == pytest.approx(want, rel=1e-13)
    elif a.all() and b.all():
        assert measured.contour95_voxels == 0.0
    else:
        assert np.isnan(measured.contour95_voxels)
    for one, two, n, hit in (
        (a, b, measured.components.truth, measured.components.found),
        (
            b,
            a,
            measured.components.prediction,
            measured.components.prediction - measured.components.false_components,
        ),
    ):
        assert (n, hit) == by_scipy_components(one, two)


@st.composite
def mask_pairs(draw):
    ndim = draw(st.sampled_from([2, 3, 3]))
    shape = (
        *tuple(draw(st.integers(1, 9)) for _ in range(ndim - 1)),
        draw(st.sampled_from([1, 3, 8, 13, 16, 67])),
    )
    spacing = [draw(st.sampled_from([0.5, 0.7, 1.0, 2.0, 3.3])) for _ in range(ndim)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.02, 0.3, 0.8, 0.98]))
    a, b = (rng.random(shape) < share for _ in range(2))
    for mask in (a, b):
        mask.flat[rng.integers(mask.size)] = True
    values = draw(st.sampled_from([bool, np.uint8, np.int16, np.float32]))
    scale = 1 if values is bool else draw(st.sampled_from([1, 2, 100]))
    order = draw(st.sampled_from("CF"))
    return (
        np.asarray(a * scale, dtype=values, order=order),
        np.asarray(b * scale, dtype=values, order=order),
        spacing,
    )


@settings(max_examples=150, deadline=None)
@given(mask_pairs())
def test_random_masks_against_brute_force(case):
    a, b, spacing = case
    if all(n == 1 for n in a.shape):
        return
    compare(a, b, spacing)


SHAPE = (20, 40, 70)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ball(SHAPE, (10, 20, 30), 8), ball(SHAPE, (12, 18, 33), 7)),
        (ball(SHAPE, (3, 3, 3), 1), ball(SHAPE, (17, 36, 65), 2)),
        (ball(SHAPE, (0, 0, 0), 6), ball(SHAPE, (19, 39, 69), 6)),
        (ball(SHAPE, (10, 20, 30), 0), ball(SHAPE, (10, 20, 30), 0)),
        (ball(SHAPE, (10, 20, 30), 9) & ~ball(SHAPE, (10, 20, 30), 4), ball(SHAPE, (10, 20, 30), 9)),
        (np.ones(SHAPE, dtype=bool), ball(SHAPE, (10, 20, 30), 5)),
        (ball(SHAPE, (10, 20, 64), 6), ball(SHAPE, (10, 20, 63), 6)),
    ],
    ids=["overlapping", "far", "corners", "one voxel", "hollow", "full volume", "at a word's end"],
)
def test_shapes_against_brute_force(a, b):
    compare(a, b, (2.0, 0.7, 0.7))


def test_many_boxes_against_distance_transform():
    shape, spacing = (60, 150, 160), np.array([1.3, 0.8, 0.8])
    a = ball(shape, (30, 70, 70), 28) | ball(shape, (10, 130, 140), 6)
    b = ball(shape, (28, 76, 75), 27) | ball(shape, (50, 10, 10), 5)
    got = []
    for one, two in ((a, b), (b, a)):
        surface = np.zeros(shape, dtype=bool)
        surface[tuple(by_scipy_edges(two).T)] = True
        transform = ndimage.distance_transform_edt(~surface, sampling=spacing)
        got.append(transform[tuple(by_scipy_edges(one).T)])
    measured = measure_pair(a, b, spacing)
    assert measured.hausdorff_mm == pytest.approx(max(got[0].max(), got[1].max()), rel=1e-12)
    assert measured.hausdorff_mm == dice_and_hausdorff(a, b, spacing)[1]
    assert measured.hausdorff95_mm == pytest.approx(max(np.percentile(g, 95) for g in got), rel=1e-12)


def test_hollow_mask_is_measured_at_its_inner_surface():
    full = ball((21, 21, 21), (10, 10, 10), 9)
    hollow = full & ~ball((21, 21, 21), (10, 10, 10), 7)
    inner = hollow.copy()
    assert dice_and_hausdorff(full, inner, 1.0)[1] > 0
    edge_only = dice_and_hausdorff(hollow, full, 1.0)[1]
    assert edge_only == dice_and_hausdorff(full, hollow, 1.0)[1]
    all_voxels = np.argwhere(full)
    holes = np.argwhere(hollow)
    assert edge_only != by_scipy_directed(all_voxels, holes, np.ones(3)).max()


def test_contour_rule_of_the_code_ignores_the_image_border():
    a = np.zeros((6, 6, 6), dtype=bool)
    a[:3] = True
    b = np.zeros((6, 6, 6), dtype=bool)
    b[:5] = True
    assert measure_pair(a, b, 1.0, contour=True).contour95_voxels == 2.0
    assert np.isnan(measure_pair(np.ones((6, 6, 6)), a, 1.0, contour=True).contour95_voxels)
    assert dice_and_hausdorff(np.ones((6, 6, 6)), a, 1.0)[1] == 3.0


def test_empty_masks_are_undefined():
    empty, full = np.zeros((4, 4, 4)), np.ones((4, 4, 4))
    assert np.isnan(dice_and_hausdorff(empty, empty, 1.0)).all()
    dice, distance = dice_and_hausdorff(full, empty, 1.0)
    assert dice == 0.0
    assert np.isnan(distance)
    assert measure_pair(empty, full, 1.0).components.false_components == 1


def test_volumes_in_ml_and_pictures_without():
    mask = np.ones((10, 10, 10))
    assert measure_pair(mask, mask, (1.0, 2.0, 0.5)).volume_truth_ml == pytest.approx(1.0)
    assert np.isnan(measure_pair(mask[0], mask[0], (1.0, 1.0)).volume_truth_ml)


def test_without_spacing_nothing_is_in_mm():
    mask = np.zeros((8, 8))
    mask[2:5, 2:5] = 1
    measured = measure_pair(mask, mask, None, contour=True)
    assert measured.dice == 1.0
    assert np.isnan([measured.hausdorff_mm, measured.hausdorff95_mm, measured.surface_dice_1mm]).all()
    assert measured.contour95_voxels == 0.0


@pytest.mark.parametrize(
    ("a", "b", "spacing", "words"),
    [
        (np.ones((3, 3)), np.ones((3, 4)), 1.0, "shape"),
        (np.ones(3), np.ones(3), 1.0, "shape"),
        (np.ones((3, 3)), np.ones((3, 3)), (1.0, 0.0), "spacing"),
        (np.ones((3, 3)), np.ones((3, 3)), (1.0, 1.0, 1.0), "spacing"),
        (np.full((3, 3), np.nan), np.ones((3, 3)), 1.0, "NaN"),
        (np.full((3, 3), "x"), np.ones((3, 3)), 1.0, "type"),
    ],
)
def test_bad_arrays_are_refused(a, b, spacing, words):
    with pytest.raises(UserError, match=words):
        measure_pair(a, b, spacing)
