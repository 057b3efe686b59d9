"""Panels are drawn, and the drawing shows the map where it is."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.explain import Caption, panel
from elsewhere.explain.panels import overlay, warm

CAPTION = Caption(title="A/1", label="malignant", probability=0.9134, method="grad-cam")


def test_colour_grows_with_relevance_and_none_leaves_the_picture():
    picture = np.full((4, 4), 90, dtype=np.uint8)
    relevance = np.zeros((4, 4))
    relevance[1, 2] = 1
    mixed = overlay(picture, relevance)
    untouched = np.ones((4, 4), dtype=bool)
    untouched[1, 2] = False
    assert (mixed[untouched] == 90).all()
    assert mixed[1, 2, 0] > 150
    assert (np.diff(warm(np.linspace(0, 1, 50)).sum(-1)) > 0).all()


def test_a_panel_holds_picture_map_box_and_caption():
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 255, (40, 60)).astype(np.uint8)
    relevance = np.zeros((40, 60))
    relevance[10:20, 30:40] = 1
    bare = np.asarray(panel(picture, relevance, CAPTION, size_px=120))
    boxed = np.asarray(panel(picture, relevance, CAPTION, box=(30, 10, 40, 20), size_px=120))
    assert bare.shape == boxed.shape == (80 + 44 + 8, 2 * 120 + 3 * 8 + 10 + 8, 3)
    assert (bare != boxed).any(axis=2).sum() > 100
    assert (bare[:44] < 128).any(), "no caption was drawn"
    left, right = bare[44:124, 8:128], bare[44:124, 136:256]
    differs = np.abs(left.astype(int) - right).sum(2) > 30
    assert differs[25:38, 62:78].mean() > 0.8
    assert differs[50:, :40].mean() < 0.05


def test_long_captions_are_cut_and_wrong_maps_refused():
    long = Caption(title="x" * 500, label="benign", probability=0.1, method="occlusion", note="n" * 300)
    page = panel(np.zeros((8, 8), dtype=np.uint8), np.zeros((8, 8)), long, size_px=64)
    assert page.width < 200
    with pytest.raises(ValueError, match="differ"):
        panel(np.zeros((8, 8), dtype=np.uint8), np.zeros((8, 9)), CAPTION)


def test_the_caption_says_truth_and_probability():
    assert CAPTION.lines() == ("A/1", "malignant; malignant with 0.913; grad-cam")
