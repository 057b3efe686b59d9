"""Lesion crops, and pictures at the network's size (US-12, US-13)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.training.pictures.crops import DevicePictures, crop_window, resize
from elsewhere.training.pictures.settings import InputSpec
from worlds.lesion_pictures import make_work


def test_the_crop_grows_by_12_percent_of_the_larger_side_on_each_side():
    # US-13: a box of 100 x 50 grows by 12 px on every side.
    assert crop_window((100, 100, 200, 150), 400, 300, 0.12) == ((88, 88, 212, 162), False)
    assert crop_window((0, 0, 100, 50), 110, 55, 0.12) == ((0, 0, 110, 55), False)


@pytest.mark.parametrize("box", [(0, 0, 0, 0), (5, 5, 5, 9), (500, 0, 510, 9), (-9, 0, 0, 9), (9, 5, 3, 9)])
def test_a_bad_box_falls_back_to_the_whole_picture_and_says_so(box):
    assert crop_window(box, 400, 300, 0.12) == ((0, 0, 400, 300), True)


@given(st.tuples(*[st.integers(-50, 400)] * 4), st.integers(1, 300), st.integers(1, 300), st.floats(0, 0.5))
def test_a_crop_is_never_empty_and_never_outside(box, width, height, margin):
    (x0, y0, x1, y1), fell_back = crop_window(box, width, height, margin)
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    if not fell_back:
        assert x0 <= max(box[0], 0)
        assert x1 >= min(box[2], width)


def test_resizing_averages_rather_than_skips():
    stripes = torch.tensor([[0, 255] * 32] * 64, dtype=torch.uint8)
    small = resize(stripes, (0, 0, 64, 64), 16)
    assert small[4:-4, 4:-4].float().sub(127.5).abs().max() < 8


def test_crops_on_the_device_hold_the_lesion():
    work = make_work(12)
    pictures = DevicePictures(work.cases, work.pictures, device=torch.device("cpu"))
    roi = pictures.cut(InputSpec(kind="roi", size_px=32)).float()
    whole = pictures.cut(InputSpec(kind="whole", size_px=32)).float()
    outline = pictures.outline(InputSpec(kind="roi", size_px=32)).float()
    assert roi.mean() < whole.mean() - 10  # the lesion is dark and fills the crop
    assert (outline > 127).float().mean() > 0.4
    moved = pictures.cut_boxes(
        InputSpec(kind="roi", size_px=32), np.array([0]), np.array([[0, 0, 8, 8]], np.int32)
    )
    assert not torch.equal(moved[0], pictures.cut(InputSpec(kind="roi", size_px=32))[0])
