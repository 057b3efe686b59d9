"""Slices on the device: the right pixels, in the right place, on both sides (DBT-01a, DBT-12)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.training.detection.device_slices import DeviceSlices, Frame, StorageSettings  # noqa: E402
from worlds.toy_volumes import ToyView  # noqa: E402

CPU = torch.device("cpu")
PLAIN = torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]])


def stored(view, slices, **settings):
    return DeviceSlices(view, slices, StorageSettings(**settings), CPU)


def whole(held, case, z, height, width, matrix=PLAIN):
    return held.tiles(torch.from_numpy(held.rows([(case, z)])), matrix, height, width)[0]


def expected(view, case, z):
    found = view.slice(case, z) / 1000.0
    return np.clip(found[:, ::-1] if view.side(case) == "right" else found, 0, 1)


@pytest.mark.parametrize("case", ["T/000", "T/001"])
def test_a_tile_is_the_windowed_slice_with_its_neighbours_mirrored_on_the_right(case):
    view = ToyView(2)
    held = stored(view, [(case, 4)], pixel=1.0)
    height, width = view.slice(case, 4).shape
    tile = whole(held, case, 4, height, width)
    for channel, z in enumerate((3, 4, 5)):
        assert np.abs(tile[channel].numpy() - expected(view, case, z)).max() <= 0.5 / 255 + 1e-6


def test_the_first_slice_has_itself_as_the_one_before():
    view = ToyView(1)
    tile = whole(stored(view, [("T/000", 0)], pixel=1.0), "T/000", 0, 32, 32)
    assert torch.equal(tile[0], tile[1]) and not torch.equal(tile[1], tile[2])


def test_two_bytes_keep_more():
    view = ToyView(1)
    deep = whole(stored(view, [("T/000", 4)], pixel=1.0, deep=True), "T/000", 4, 128, 112)
    assert np.abs(deep[1].numpy() - expected(view, "T/000", 4)).max() < 1e-4


def test_half_size_is_the_mean_of_four_pixels():
    view = ToyView(2)
    held = stored(view, [("T/001", 4)], pixel=2.0)
    rows, columns = held.size("T/001")
    tile = whole(held, "T/001", 4, rows, columns)
    plain = expected(view, "T/001", 4)
    mean = plain.reshape(rows, 2, columns, 2).mean((1, 3))
    assert np.abs(tile[1].numpy() - mean).max() < 0.01 and held.zoom("T/001") == 1.0


def test_outside_of_the_slice_is_black():
    view = ToyView(1)
    held = stored(view, [("T/000", 4)], pixel=1.0)
    away = torch.tensor([[[1.0, 0, -50], [0, 1.0, -50]]])
    tile = whole(held, "T/000", 4, 300, 300, away)
    assert tile[:, :49].max() == 0 and tile[:, :, :49].max() == 0 and tile[:, 180:].max() == 0
    assert tile[1, 60:160, 60:150].min() > 0


@pytest.mark.parametrize("case", ["T/000", "T/001"])
@pytest.mark.parametrize(("reduced", "pixel"), [(1, 1.0), (1, 2.0), (2, 2.0), (2, 3.0)])
def test_lesions_lie_where_their_boxes_are(case, reduced, pixel):
    view = ToyView(2, reduced=reduced)
    (lesion,) = view.lesions(case)
    held = stored(view, [(case, lesion.slice)], pixel=pixel)
    corners = [lesion.x, lesion.y, lesion.x + lesion.width, lesion.y + lesion.height]
    x0, y0, x1, y1 = held.frame[case].to_stored(corners)
    rows, columns = held.size(case)
    tile = whole(held, case, lesion.slice, rows, columns)[1].numpy()
    ys, xs = np.nonzero(tile > 0.5)
    assert np.abs(np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - [x0, y0, x1, y1]).max() <= 1.5
    assert np.allclose(held.frame[case].to_volume([x0, y0, x1, y1]), corners)


@given(
    st.integers(0, 500),
    st.integers(1, 2000),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_boxes_go_to_stored_pixels_and_back_exactly(x, width, pixel, mirrored, at):
    frame = Frame(x=x, y=7, width=width * pixel, pixel=pixel, mirrored=mirrored)
    box = np.array([[at, at + 1, at + 40, at + 90]], dtype=float)
    there = frame.to_stored(box)
    assert (frame.to_volume(there) == box).all()
    assert (there[:, 2:] - there[:, :2] == (box[:, 2:] - box[:, :2]) / pixel).all()


def test_mirroring_can_be_switched_off_and_slices_are_stored_once():
    view = ToyView(2)
    held = stored(view, [("T/001", 4), ("T/001", 4), ("T/001", 5)], pixel=1.0, mirror=False)
    assert not held.frame["T/001"].mirrored
    assert held.rows([("T/001", 4), ("T/001", 5)]).tolist() == [1, 2]
    with pytest.raises(KeyError):
        held.rows([("T/001", 8)])


def test_without_neighbours_the_channels_are_one_slice():
    view = ToyView(1)
    held = DeviceSlices(view, [("T/000", 4)], StorageSettings(pixel=1.0), CPU, neighbours=False)
    tile = whole(held, "T/000", 4, 64, 64)
    assert torch.equal(tile[0], tile[1]) and torch.equal(tile[1], tile[2])
