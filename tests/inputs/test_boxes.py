"""Components and boxes of maps, against known answers and against scipy's labelling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from elsewhere.inputs.boxes import box_iou, box_quality, boxes_of_maps


def test_the_component_with_the_largest_sum_is_chosen():
    maps = np.zeros((3, 10, 12))
    maps[0, 1, 1] = 1.0  # a bright speck
    maps[0, 4:8, 3:6] = 0.6  # a larger region, sum 7.2
    maps[1, 0, 0:3] = 0.9
    maps[1, 5, 5:8] = 0.9  # equal sums: the first
    assert boxes_of_maps(maps, 0.5).tolist() == [[3, 4, 6, 8], [0, 0, 3, 1], [0, 0, 0, 0]]
    assert boxes_of_maps(maps, 0.7).tolist() == [[1, 1, 2, 2], [0, 0, 3, 1], [0, 0, 0, 0]]
    assert boxes_of_maps(maps, 0.9)[1].tolist() == [0, 0, 3, 1], "at the threshold counts"


def test_corners_connect_and_a_gap_does_not():
    maps = np.zeros((2, 6, 6))
    for at in range(4):
        maps[0, at, 4 - at] = 1.0
    maps[1, 0:2, 0] = 1.0
    maps[1, 3:6, 0] = 1.0
    assert boxes_of_maps(maps, 0.5).tolist() == [[1, 0, 5, 4], [0, 3, 1, 6]]


def test_a_ring_and_what_lies_in_it_are_two():
    maps = np.zeros((1, 9, 9))
    maps[0, 0, :] = maps[0, -1, :] = maps[0, :, 0] = maps[0, :, -1] = 0.6
    maps[0, 3:6, 3:6] = 1.0
    assert boxes_of_maps(maps, 0.5).tolist() == [[0, 0, 9, 9]]  # 32 * 0.6 against 9
    maps[0, 2:7, 2:7] = 1.0
    assert boxes_of_maps(maps, 0.5).tolist() == [[2, 2, 7, 7]]


def test_a_box_covers_every_picture_pixel_that_it_touches():
    maps = np.zeros((2, 10, 10))
    maps[:, 3:5, 2:7] = 1.0
    found = boxes_of_maps(maps, 0.5, widths=[20, 33], heights=[5, 10])
    assert found.tolist() == [[4, 1, 14, 3], [6, 3, 24, 5]]  # 2*3.3 = 6.6 down, 7*3.3 = 23.1 up


def test_a_map_of_nothing_and_a_wrong_shape():
    assert boxes_of_maps(np.zeros((0, 4, 4)), 0.5).shape == (0, 4)
    assert boxes_of_maps(np.full((1, 1, 1), 0.5), 0.5).tolist() == [[0, 0, 1, 1]]
    with pytest.raises(ValueError, match="height"):
        boxes_of_maps(np.zeros((4, 4)), 0.5)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.2, 0.5, 0.6, 0.9])
)
def test_as_scipy_labels(seed, height, width, threshold):
    maps = np.random.default_rng(seed).random((3, height, width))
    for one, box in zip(maps, boxes_of_maps(maps, threshold).tolist(), strict=True):
        label, count = ndimage.label(one >= threshold, np.ones((3, 3)))
        if count == 0:
            assert box == [0, 0, 0, 0]
            continue
        best = int(np.argmax(ndimage.sum(one, label, range(1, count + 1))))
        rows, columns = ndimage.find_objects(label)[best]
        assert box == [columns.start, rows.start, columns.stop, rows.stop]


def test_a_winding_component_is_one():
    maps = np.zeros((1, 21, 21))
    maps[0, ::2, :] = 1.0
    for at, row in enumerate(range(1, 21, 2)):
        maps[0, row, -1 if at % 2 == 0 else 0] = 1.0
    assert boxes_of_maps(maps, 0.5).tolist() == [[0, 0, 21, 21]]
    rotated = np.ascontiguousarray(maps.transpose(0, 2, 1))
    assert boxes_of_maps(rotated, 0.5).tolist() == [[0, 0, 21, 21]]


def test_iou_known_answers():
    a = [[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 0, 0], [5, 5, 6, 6], [0, 0, 0, 0]]
    b = [[0, 0, 10, 10], [5, 0, 15, 10], [0, 0, 10, 10], [6, 5, 7, 6], [0, 0, 0, 0]]
    assert box_iou(a, b) == pytest.approx([1, 50 / 150, 0, 0, 0])


def test_quality_counts_every_lesion_and_every_false_box():
    found = [[0, 0, 10, 10], [0, 0, 0, 0], [40, 0, 60, 10], [1, 1, 2, 2], [0, 0, 0, 0]]
    truth = [[0, 0, 10, 10], [0, 0, 10, 10], [45, 0, 55, 10], [0, 0, 0, 0], [0, 0, 0, 0]]
    quality = box_quality(found, truth, ["A", "A", "B", "B", "B"])
    assert quality["all"]["lesions"] == 3
    assert quality["all"]["mean_iou"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert quality["all"]["median_iou"] == pytest.approx(0.5)
    assert quality["all"]["found"] == pytest.approx(2 / 3)
    assert quality["all"]["centre_inside"] == pytest.approx(2 / 3)
    assert quality["all"]["none"] == pytest.approx(1 / 3)
    assert quality["all"]["covered"] == pytest.approx(2 / 3)
    assert (quality["all"]["false_boxes"], quality["all"]["without"]) == (1, 2)
    assert quality["A"]["lesions"] == 2
    assert quality["A"]["mean_iou"] == pytest.approx(0.5)
    assert quality["B"]["mean_iou"] == pytest.approx(0.5)
    assert box_quality([[0, 0, 0, 0]], [[0, 0, 0, 0]])["all"]["mean_iou"] is None
    with pytest.raises(ValueError, match="both sides"):
        box_quality([[0, 0, 1, 1]], [[0, 0, 1, 1], [0, 0, 1, 1]])


boxes = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)).map(
    lambda v: [v[0], v[1], v[0] + v[2], v[1] + v[3]]
)


@given(st.lists(st.tuples(boxes, boxes), min_size=1, max_size=8))
def test_iou_is_symmetric_and_between_0_and_1(pairs):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    one, other = box_iou(a, b), box_iou(b, a)
    assert np.array_equal(one, other)
    assert ((one >= 0) & (one <= 1)).all()
    same = box_iou(a, a)
    assert all(
        value == (1.0 if x[2] > x[0] and x[3] > x[1] else 0.0) for value, x in zip(same, a, strict=True)
    )
