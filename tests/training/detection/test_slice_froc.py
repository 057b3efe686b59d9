"""Sensitivity at false positives per slice (DBT-16)."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes import Boxes
from elsewhere.training.detection.slice_froc import slice_sensitivity

LESION = [[100.0, 100, 140, 140]]


def boxes(*rows):
    return Boxes.on_slice([row[:4] for row in rows], [row[4] for row in rows], 0)


def at(x, score):
    return (x, 100, x + 40, 140, score)


def test_a_curve_by_hand():
    slices = [boxes(at(100, 0.5), at(500, 0.9), at(700, 0.8)), Boxes.none()]
    truth = [LESION, LESION]
    assert slice_sensitivity(slices, truth, (0.5,)) == 0.0
    assert slice_sensitivity(slices, truth, (1.0,)) == 0.5
    assert slice_sensitivity(slices, truth, (0.5, 1.0)) == 0.25


def test_a_second_box_on_a_lesion_is_neither_right_nor_wrong():
    slices = [boxes(at(100, 0.9), at(105, 0.8), at(500, 0.7))]
    assert slice_sensitivity(slices, [LESION], (0.0,)) == 1.0


def test_the_floor_decides_how_near_is_near():
    slices = [boxes(at(140, 0.9))]
    assert slice_sensitivity(slices, [LESION], (0.0,)) == 1.0
    assert slice_sensitivity(slices, [LESION], (0.0,), floor_px=0.0) == 0.0


def test_no_lesion_and_no_box():
    assert math.isnan(slice_sensitivity([Boxes.none()], [np.zeros((0, 4))]))
    assert slice_sensitivity([Boxes.none()], [LESION]) == 0.0
