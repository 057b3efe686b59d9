"""Relevance inside the lesion: known answers, and what must hold for every map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.explain import box_in_input, relevance_inside
from elsewhere.explain.localisation import box_region


def test_shares_of_a_known_map():
    maps = np.zeros((4, 4, 4))
    maps[0, 0, 0], maps[0, 3, 3] = 3, 1
    maps[1] = 1
    maps[3, 0, 0], maps[3, 1, 1] = -5, 2
    region = np.zeros((4, 4, 4), dtype=bool)
    region[:, :2, :2] = True
    peaked, flat, empty, signed = relevance_inside(maps, region)
    assert (peaked.share, peaked.area, peaked.enrichment, peaked.hit) == (0.75, 0.25, 3, True)
    assert (flat.share, flat.enrichment, flat.hit) == (0.25, 1, False)
    assert np.isnan(empty.share)
    assert not empty.hit
    assert signed.share == 1
    with pytest.raises(ValueError, match="differ"):
        relevance_inside(maps, region[:2])


def test_a_box_follows_its_crop():
    # window 100 px wide becomes 50 px, 50 px high becomes 50 px
    assert box_in_input([120, 60, 170, 80], (100, 50, 200, 100), 50) == (10, 10, 35, 30)
    assert box_in_input([0, 0, 500, 500], (100, 50, 200, 100), 50) == (0, 0, 50, 50)
    with pytest.raises(ValueError, match="empty"):
        box_in_input([0, 0, 1, 1], (5, 5, 5, 9), 50)


def test_a_region_is_half_open():
    region = box_region((1, 0, 3, 2), (4, 4))
    assert region.sum() == 4
    assert region[:2, 1:3].all()
    assert not box_region((0, 0, 0, 0), (4, 4)).any()


@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 8), st.integers(1, 8)),
)
def test_inside_and_outside_make_up_the_whole(seed, box):
    maps = np.random.default_rng(seed).random((1, 8, 8)) + 0.01
    x, y, w, h = box
    region = box_region((x, y, x + w, y + h), (8, 8))[None]
    inside, outside = relevance_inside(maps, region)[0], relevance_inside(maps, ~region)[0]
    assert inside.share + outside.share == pytest.approx(1)
    assert inside.area + outside.area == pytest.approx(1)
    assert inside.hit != outside.hit
