"""Objects of a streamed mask against sums of whole numbers, scikit-image and hulls of all pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from skimage.measure import regionprops

from elsewhere.errors import UserError
from elsewhere.scoring.slides import objects
from elsewhere.scoring.slides.object_kernels import CC, RC, RR
from elsewhere.scoring.slides.objects import ObjectStream, SlideObjects, measure_objects, measure_strips

EIGHT = np.ones((3, 3), dtype=bool)


def strips_of(mask, heights):
    row, k = 0, 0
    while row < len(mask):
        height = heights[k % len(heights)]
        yield mask[row : row + height]
        row, k = row + height, k + 1


def by_whole_numbers(mask):
    """Every object by a loop over its pixels with Python's whole numbers, in the order of a scan by rows."""
    labels, count = ndimage.label(mask, structure=EIGHT)
    out = []
    for label in range(1, count + 1):
        rows, columns = (np.asarray(v).tolist() for v in np.nonzero(labels == label))
        corners = np.array(
            [(r + i, c + j) for r, c in zip(rows, columns, strict=True) for i in (0, 1) for j in (0, 1)]
        )
        corners = np.unique(corners, axis=0)
        gaps = corners[:, None] - corners[None]
        n = len(rows)
        out.append(
            {
                "first": (rows[0], columns[0]),
                "area": n,
                "rr": sum(r * r for r in rows),
                "cc": sum(c * c for c in columns),
                "rc": sum(r * c for r, c in zip(rows, columns, strict=True)),
                "box": (min(rows), min(columns), max(rows) + 1, max(columns) + 1),
                "feret": int((gaps**2).sum(axis=2).max()),
                "label": label,
            }
        )  # fmt: skip
    return sorted(out, key=lambda one: one["first"]), labels


def check_against_whole_numbers(mask, found: SlideObjects):
    wanted, labels = by_whole_numbers(mask)
    assert found.count == len(wanted)
    second = {
        name: (found.table[:, k + 1] << 32) + found.table[:, k]
        for name, k in (("rr", RR), ("cc", CC), ("rc", RC))
    }
    assert found.area_px.tolist() == [one["area"] for one in wanted]
    assert found.first_px.tolist() == [list(one["first"]) for one in wanted]
    assert found.boxes_px.tolist() == [list(one["box"]) for one in wanted]
    assert found.feret_squared_px.tolist() == [one["feret"] for one in wanted]
    for name, values in second.items():
        assert values.tolist() == [one[name] for one in wanted]
    axes = {one.label: one.axis_major_length for one in regionprops(labels)}
    by_skimage = np.array([axes[one["label"]] for one in wanted])
    np.testing.assert_allclose(found.major_axis_px, by_skimage, rtol=1e-9, atol=1e-6)


@st.composite
def masks(draw):
    height, width = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.05, 0.3, 0.45, 0.6, 0.9]))
    mask = rng.random((height, width)) < share
    return ndimage.binary_closing(mask) if draw(st.booleans()) else mask


@settings(max_examples=60, deadline=None)
@given(masks(), st.lists(st.integers(1, 17), min_size=1, max_size=4))
def test_strips_of_any_heights_equal_whole_numbers(mask, heights):
    found = measure_strips(mask.shape[1], strips_of(mask, heights))
    check_against_whole_numbers(mask, found)
    np.testing.assert_array_equal(found.table, measure_objects(mask).table)


def spiral(n):
    mask = np.zeros((n, n), dtype=bool)
    top, left, bottom, right = 0, 0, n - 1, n - 1
    while top <= bottom and left <= right:
        mask[top, max(left - 2, 0) : right + 1] = True
        mask[top : bottom + 1, right] = True
        mask[bottom, left : right + 1] = True
        mask[top + 2 : bottom + 1, left] = True
        top, left, bottom, right = top + 2, left + 2, bottom - 2, right - 2
    return mask


def ring(n):
    mask = np.ones((n, n), dtype=bool)
    mask[3:-3, 3:-3] = False
    mask[n // 2, n // 2] = True
    return mask


def comb(n):
    mask = np.zeros((n, n), dtype=bool)
    mask[:, ::3] = True
    mask[-1] = True
    return mask


@pytest.mark.parametrize(
    "shape", [spiral(41), ring(33), comb(40), comb(40)[::-1], np.eye(37, dtype=bool)[:, ::-1]]
)
@pytest.mark.parametrize("height", [1, 7, 64])
def test_spirals_holes_combs_and_single_pixels(shape, height):
    mask = np.zeros((len(shape) + 9, shape.shape[1] + 13), dtype=bool)
    mask[5 : 5 + len(shape), 6 : 6 + shape.shape[1]] = shape
    mask[0, 0] = mask[-1, -1] = True
    check_against_whole_numbers(mask, measure_strips(mask.shape[1], strips_of(mask, [height])))


def test_an_object_over_four_quarters_is_one():
    mask = np.zeros((64, 64), dtype=bool)
    mask[20:44, 20:44] = True
    found = measure_strips(64, strips_of(mask, [32]))
    assert found.count == 1
    assert found.feret_px.tolist() == pytest.approx([24 * np.sqrt(2)])


def test_an_empty_mask_and_a_full_row_have_the_objects_one_expects():
    assert measure_objects(np.zeros((7, 9), dtype=bool)).count == 0
    assert measure_objects(np.ones((1, 1000), dtype=bool)).feret_squared_px.tolist() == [1000**2 + 1]
    assert measure_objects(np.ones((1, 1), dtype=bool)).major_axis_px.tolist() == [0.0]


def test_sums_beyond_64_bits_are_exact():
    """A bar near the last row that a slide may have: the sum of its squared rows is over 2**63."""
    width, height, offset = 8192, 1200, objects.MOST_EDGE - 2000
    stream = ObjectStream(width)
    stream._state[objects.kernels.NEXT_ROW] = offset
    for part in (500, 700):
        stream.add(np.ones((part, width), dtype=bool))
    found = stream.finish()
    total = width * sum(r * r for r in range(offset, offset + height))
    assert total > 2**63
    assert (int(found.table[0, RR + 1]) << 32) + int(found.table[0, RR]) == total
    assert found.major_axis_px[0] == pytest.approx(4 * np.sqrt((width**2 - 1) / 12), rel=1e-12)


def test_moments_of_huge_objects_use_whole_numbers_of_any_size():
    """The columns of a table as a full mask of 300,000 x 200,000 pixels would fill them."""
    h, w = 300_000, 200_000
    found = measure_objects(np.ones((2, 3), dtype=bool))
    table = found.table.copy()
    values = {
        objects.kernels.RR: w * (h - 1) * h * (2 * h - 1) // 6,
        objects.kernels.CC: h * (w - 1) * w * (2 * w - 1) // 6,
        objects.kernels.RC: (h - 1) * h // 2 * ((w - 1) * w // 2),
    }
    for column, value in values.items():
        table[0, column], table[0, column + 1] = value & 0xFFFFFFFF, value >> 32
    table[0, objects.kernels.AREA] = h * w
    table[0, objects.kernels.SUM_R], table[0, objects.kernels.SUM_C] = (
        w * h * (h - 1) // 2,
        h * w * (w - 1) // 2,
    )
    table[0, objects.kernels.BOTTOM], table[0, objects.kernels.RIGHT] = h, w
    np.testing.assert_allclose(
        SlideObjects(table=table).moments[0], [(h**2 - 1) / 12, (w**2 - 1) / 12, 0.0], rtol=1e-14, atol=1e-3
    )


def test_marks_of_another_mask_are_counted_per_object():
    rng = np.random.default_rng(4)
    mask, other = rng.random((50, 61)) < 0.4, rng.random((50, 61)) < 0.5
    pairs = zip(strips_of(mask, [7]), strips_of(other, [7]), strict=True)
    found = measure_strips(61, pairs)
    labels, _ = ndimage.label(mask, structure=EIGHT)
    wanted = [int(other[labels == labels[r, c]].sum()) for r, c in found.first_px.tolist()]
    assert found.marked_px.tolist() == wanted


def test_noise_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(objects, "MOST_OBJECTS", 5000)
    mask = np.zeros((400, 400), dtype=bool)
    mask[::2, ::2] = True
    with pytest.raises(UserError, match="separate objects: it is noise"):
        measure_objects(mask)


def test_a_strip_of_another_width_is_refused():
    with pytest.raises(UserError, match="a strip of 2 x 5 in a mask of 4 columns"):
        ObjectStream(4).add(np.zeros((2, 5), dtype=bool))
