"""Repair and mirror are exact, each its own inverse, for pixels and boxes (DBT-01a), at odd and even widths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.inputs.tomosynthesis.orientation import (
    mirror,
    mirror_box,
    mirror_boxes,
    repair,
    repair_box,
    repair_boxes,
)
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
from elsewhere.inputs.tomosynthesis.volume import Pixels, examine, stored_slices

WIDTHS = (1890, 1996, 1997, 7, 8, 1)


@st.composite
def slice_and_boxes(draw):
    rows, columns = draw(st.integers(1, 60)), draw(st.sampled_from(WIDTHS))
    ends = []
    for _ in range(draw(st.integers(1, 4))):
        x0, y0 = draw(st.integers(0, columns - 1)), draw(st.integers(0, rows - 1))
        x1, y1 = draw(st.integers(x0 + 1, columns)), draw(st.integers(y0 + 1, rows))
        ends.append((x0, y0, draw(st.integers(0, 70)), x1, y1, draw(st.integers(71, 140))))
    return rows, columns, np.array(ends)


@given(slice_and_boxes())
def test_pixels_and_boxes_move_together_and_come_back(drawn):
    """The pixels inside a moved box are the moved pixels of the box; twice is nothing; the slice stays."""
    rows, columns, boxes = drawn
    pixels = np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns)
    for move, move_boxes in (
        (repair, lambda found: repair_boxes(found, rows=rows, columns=columns)),
        (mirror, lambda found: mirror_boxes(found, columns=columns)),
    ):
        assert np.array_equal(move(move(pixels)), pixels)
        moved = move_boxes(boxes)
        assert np.array_equal(move_boxes(moved), boxes)
        assert np.array_equal(moved[:, [2, 5]], boxes[:, [2, 5]])
        flat = move_boxes(boxes[:, [0, 1, 3, 4]])
        assert np.array_equal(flat, moved[:, [0, 1, 3, 4]])
        for before, after in zip(boxes, moved, strict=True):
            x0, y0, _, x1, y1, _ = before
            a0, b0, _, a1, b1, _ = after
            assert 0 <= a0 < a1 <= columns and 0 <= b0 < b1 <= rows
            assert np.array_equal(move(pixels)[b0:b1, a0:a1], move(pixels[y0:y1, x0:x1]))


@given(slice_and_boxes())
def test_fractions_of_a_pixel_come_back_too(drawn):
    rows, columns, boxes = drawn
    fine = boxes[:, [0, 1, 3, 4]] + 1 / 1024
    assert np.array_equal(mirror_boxes(mirror_boxes(fine, columns=columns), columns=columns), fine)
    again = repair_boxes(repair_boxes(fine, rows=rows, columns=columns), rows=rows, columns=columns)
    assert np.array_equal(again, fine)


@given(slice_and_boxes())
def test_single_boxes_are_moved_as_arrays_are(drawn):
    rows, columns, boxes = drawn
    for x0, y0, _, x1, y1, _ in boxes.tolist():
        one = (x0, y0, x1, y1)
        assert mirror_box(one, columns=columns) == tuple(mirror_boxes([one], columns=columns)[0])
        assert repair_box(one, rows=rows, columns=columns) == tuple(
            repair_boxes([one], rows=rows, columns=columns)[0]
        )


def test_a_box_has_four_or_six_ends():
    with pytest.raises(ValueError, match="4 or 6 ends, not 5"):
        mirror_boxes([[1, 2, 3, 4, 5]], columns=9)


@pytest.mark.parametrize("columns", [1890, 1996, 1997])
@pytest.mark.parametrize(
    ("tag", "stored", "name"), list(itertools.product(["L", "R"], ["left", "right"], ["left", "right"]))
)
def test_the_brightest_voxel_lies_in_its_box_for_every_tag_pixels_and_name(
    tmp_path, columns, tag, stored, name
):
    """After repair, after mirroring a right view for a detector, and back: whatever the tag says."""
    pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
    from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
    from worlds.tomosynthesis_files import Bto, breast, write_bto

    rows = 120
    truth = breast(rows, columns, slices=3, side=name)
    box = (40, 50, 61, 73) if name == "left" else (columns - 61, 50, columns - 40, 73)
    truth[1, 59, box[0] + 5] = 1023
    as_stored = truth if stored == name else truth[:, ::-1, ::-1]
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", np.ascontiguousarray(as_stored), Bto(laterality=tag)))
    pixels = Pixels(shape=volume.shape, read=volume.read, window=volume.window)
    facts = examine(pixels, side_by_name=name)
    assert (facts.turned, facts.side, facts.side_by_pixels) == (stored != name, name, stored)

    x0, y0, x1, y1 = facts.breast
    repaired = list(stored_slices(pixels, facts))[1]
    np.testing.assert_array_equal(repaired, truth[1, y0:y1, x0:x1])
    y, x = np.unravel_index(int(repaired.argmax()), repaired.shape)
    point = (x + x0, y + y0)
    assert box[0] <= point[0] < box[2] and box[1] <= point[1] < box[3]

    seen = mirror(truth[1]) if name == "right" else truth[1]
    seen_box = mirror_box(box, columns=columns) if name == "right" else box
    y, x = np.unravel_index(int(seen.argmax()), seen.shape)
    assert seen_box[0] <= x < seen_box[2] and seen_box[1] <= y < seen_box[3]
    predicted = np.array([[x, y, 1, x + 1, y + 1, 2]])
    back = mirror_boxes(predicted, columns=columns) if name == "right" else predicted
    assert back[0, :2].tolist() == [point[0], point[1]]


def test_the_side_of_a_right_view_in_memory():
    from worlds.tomosynthesis_files import breast

    volume = ArrayVolume(breast(side="right"))
    assert TomosynthesisSource({"A/1": volume}).facts("A/1").side == "right"
