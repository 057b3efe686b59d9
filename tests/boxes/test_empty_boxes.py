"""Boxes on background (DBT-17)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from elsewhere.boxes import Boxes
from elsewhere.boxes.empty_boxes import drop_empty, filled_share
from worlds.random_boxes import few_boxes


def test_a_case_by_hand():
    volume = np.zeros((4, 10, 10), dtype=np.uint16)
    volume[:, :, 5:] = 700
    boxes = Boxes.in_volume([[4, 0, 0, 8, 4, 4], [0, 0, 0, 4, 4, 4], [3, 0, 0, 7, 4, 4]], [1, 1, 1])
    assert filled_share(boxes, volume.__getitem__).tolist() == [0.75, 0, 0.5]
    assert drop_empty(boxes, volume.__getitem__).x0.tolist() == [4, 3]  # exactly half stays


@given(few_boxes(slices=5))
def test_shares_are_those_of_the_voxels(boxes):
    volume = np.random.default_rng(0).integers(0, 2, (5, 30, 30))
    share = filled_share(boxes, lambda z: volume[z, 4:, 3:], origin=(3, 4))
    volume[:, :4], volume[:, :, :3] = 0, 0
    for at, (x0, y0, z0, x1, y1, z1) in enumerate(boxes.corners().astype(int)):
        assert share[at] == pytest.approx(volume[z0:z1, y0:y1, x0:x1].mean())


def test_each_slice_is_read_once_and_outside_is_empty():
    read: list[int] = []

    def slice_of(z):
        read.append(z)
        return np.ones((10, 10))

    boxes = Boxes.in_volume([[0, 0, 1, 4, 4, 3], [8, 8, 2, 12, 12, 4], [20, 20, 2, 22, 22, 3]], [1, 1, 1])
    assert filled_share(boxes, slice_of).tolist() == [1, 0.25, 0]
    assert read == [1, 2, 3]
    assert len(drop_empty(Boxes.none(), slice_of)) == 0
