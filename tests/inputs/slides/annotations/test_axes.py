"""The longest axis of outlines, exactly from their corners, against drawn masks and closed forms (LN-14)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.inputs.slides.annotations import (
    Grid,
    longest_axis_of_mask_px,
    major_axes_px,
    resolve,
    stage_of_axis,
    to_mask,
)
from elsewhere.inputs.slides.annotations.outlines import Annotations, Outline


def axes(*outlines, exclusions=()):
    return sorted(major_axes_px(resolve(Annotations(tuple(outlines), tuple(exclusions)))))


def ellipse(a, b, turn=0.0, corners=400, x=1000.0, y=800.0):
    t = np.linspace(0, 2 * math.pi, corners, endpoint=False)
    u, v = a * np.cos(t), b * np.sin(t)
    points = np.stack(
        [u * math.cos(turn) - v * math.sin(turn), u * math.sin(turn) + v * math.cos(turn)], axis=1
    )
    return Outline(points + np.array([x, y]))


def rectangle(width, height, x=0.0, y=0.0):
    return Outline(np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]], dtype=float))


@settings(max_examples=12, derandomize=True)
@given(a=st.floats(50, 400), share=st.floats(0.1, 1.0), turn=st.floats(0, math.pi))
def test_an_ellipse_has_its_own_axis(a, share, turn):
    (found,) = axes(ellipse(a, a * share, turn))
    assert found == pytest.approx(2 * a, rel=1e-3)


def test_a_bar_and_the_same_bar_far_away_and_turned_the_other_way():
    """Golden: 200 x 10 px gives 4 x 200 / sqrt(12) = 230.9 (spec: 231 px)."""
    expected = 4 * 200 / math.sqrt(12)
    assert axes(rectangle(200, 10)) == pytest.approx([expected])
    far = Outline(rectangle(200, 10, x=180_000, y=90_000).ring[::-1].copy())
    assert axes(far) == pytest.approx([expected], rel=1e-6)


def test_a_hole_is_taken_away():
    outer, inner = rectangle(400, 300), rectangle(200, 100, x=100, y=100)
    whole, gone = 400 * 300, 200 * 100
    mean = whole * 200 - gone * 200
    second = 300 * 400**3 / 3 - 100 * (300**3 - 100**3) / 3
    variance = second / (whole - gone) - (mean / (whole - gone)) ** 2
    assert axes(outer, exclusions=(inner,)) == pytest.approx([4 * math.sqrt(variance)], rel=1e-6)


def test_two_outlines_that_touch_are_one_object_and_a_ring_that_crosses_itself_counts():
    assert axes(rectangle(100, 10), rectangle(100, 10, x=50)) == pytest.approx(
        [4 * 150 / math.sqrt(12)], rel=1e-3
    )
    bow = Outline(np.array([[0.0, 0], [100, 100], [100, 0], [0, 100]]))
    assert 0 < max(axes(bow)) < 200


@pytest.mark.parametrize("outline", [ellipse(300, 120, 0.7), rectangle(500, 90, x=60, y=40)])
def test_the_drawn_mask_has_the_same_axis(outline):
    annotations = Annotations((outline,))
    mask = to_mask(annotations, Grid(x=0, y=0, step_px=1, columns=1600, rows=1400)).astype(bool)
    assert longest_axis_of_mask_px(mask) == pytest.approx(axes(outline)[0], rel=5e-3)


def test_masks():
    mask = np.zeros((50, 300), bool)
    assert longest_axis_of_mask_px(mask) == 0
    mask[10:20, 10:210] = True
    mask[40, 40] = True
    assert round(longest_axis_of_mask_px(mask)) == 231
    diagonal = np.eye(60, dtype=bool)
    assert longest_axis_of_mask_px(diagonal) > 60


@pytest.mark.parametrize(
    ("mm", "stage"), [(2.0001, "macro"), (2.0, "micro"), (0.2001, "micro"), (0.2, "itc"), (0.0, "itc")]
)
def test_the_limits_of_stages(mm, stage):
    assert stage_of_axis(mm, any_object=True) == stage
