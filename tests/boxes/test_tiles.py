"""Tiles that cover the breast, and boxes that their borders cut (DBT-12)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elsewhere.boxes import Boxes, iou
from elsewhere.boxes.tiles import TileOptions, cover_with_tiles, join_tiles
from elsewhere.errors import UserError

SMALL = TileOptions(height=40, width=30, overlap=10)


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(1, 200), st.integers(1, 200))
def test_tiles_cover_the_region_overlap_enough_and_stay_inside(x, y, width, height):
    tiles = cover_with_tiles((x, y, x + width, y + height), SMALL)
    covered = np.zeros((height, width), dtype=bool)
    for x0, y0, x1, y1 in tiles - [x, y, x, y]:
        covered[y0:y1, x0:x1] = True
        assert (x1 - x0, y1 - y0) == (30, 40)
        assert x0 >= 0 and y0 >= 0 and (x1 <= max(width, 30)) and (y1 <= max(height, 40))
    assert covered.all()
    for column, size in ((0, 30), (1, 40)):
        step = np.diff(np.unique(tiles[:, column]))
        assert (size - step >= 10).all()


def seen_through(tiles: np.ndarray, lesions: Boxes) -> list[Boxes]:
    """What a perfect detector finds on each tile."""
    found = []
    for x0, y0, x1, y1 in tiles:
        plane = np.clip(lesions.plane, [x0, y0, x0, y0], [x1, y1, x1, y1])
        visible = (plane[:, 2] > plane[:, 0]) & (plane[:, 3] > plane[:, 1])
        found.append(Boxes.on_slice(plane[visible], lesions.score[visible], lesions.z0[visible]))
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 90), st.integers(4, 60), st.integers(4, 60)),
        min_size=1,
        max_size=5,
    )
)
def test_a_perfect_detector_gives_each_lesion_once_and_whole(rows):
    corner = np.array(rows, dtype=float)
    plane = np.hstack([corner[:, :2], np.minimum(corner[:, :2] + corner[:, 2:], 100)])
    lesions = Boxes.on_slice(plane, 1 - np.arange(len(rows)) / 10, np.arange(len(rows)) % 2)
    overlap = iou(lesions, lesions) * (lesions.z0[:, None] == lesions.z0)
    assume((overlap[~np.eye(len(rows), dtype=bool)] == 0).all())
    tiles = cover_with_tiles((0, 0, 100, 100), SMALL)
    options = TileOptions(height=40, width=30, overlap=10, border=0)
    found = join_tiles(seen_through(tiles, lesions), tiles, options)
    assert (found.corners() == lesions.corners()).all() and (found.score == lesions.score).all()


def test_a_piece_is_replaced_by_the_whole_box_of_the_next_tile_even_if_the_piece_scores_higher():
    tiles = [[0, 0, 30, 40], [20, 0, 50, 40]]
    piece, whole = Boxes.on_slice([[25, 5, 30, 20]], [0.9], 0), Boxes.on_slice([[25, 5, 45, 20]], [0.5], 0)
    found = join_tiles([piece, whole], tiles, SMALL)
    assert found.plane.tolist() == [[25, 5, 45, 20]] and found.score.tolist() == [0.5]


def test_the_border_of_the_region_cuts_nothing():
    tiles = cover_with_tiles((0, 0, 50, 40), SMALL)
    found = join_tiles([Boxes.on_slice([[0, 5, 10, 20]], [0.9], 0), Boxes.none()], tiles, SMALL)
    assert found.plane.tolist() == [[0, 5, 10, 20]]


def test_pieces_on_different_slices_are_not_joined():
    tiles = [[0, 0, 30, 40], [20, 0, 50, 40]]
    left, right = Boxes.on_slice([[5, 5, 30, 20]], [0.9], 0), Boxes.on_slice([[20, 5, 48, 20]], [0.5], 1)
    assert len(join_tiles([left, right], tiles, SMALL)) == 2


def test_no_boxes_and_bad_input():
    tiles = cover_with_tiles((0, 0, 50, 40), SMALL)
    assert len(join_tiles([Boxes.none()] * len(tiles), tiles, SMALL)) == 0
    with pytest.raises(UserError, match="is empty"):
        cover_with_tiles((5, 0, 5, 10))
    with pytest.raises(UserError, match="tiles of"):
        TileOptions(height=10, width=10, overlap=10)
    with pytest.raises(UserError, match="and 2 tiles"):
        join_tiles([Boxes.none()], tiles, SMALL)
