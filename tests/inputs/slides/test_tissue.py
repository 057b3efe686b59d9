"""Tissue is what scikit-image's Otsu on saturation says, by one threshold for the whole slide (LN-02)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.tissue import (
    find_tissue,
    otsu_threshold,
    saturation,
    tissue_mask,
)
from worlds.slide_files import pyramid, tissue_picture, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")


def plain_saturation(pixels: np.ndarray) -> np.ndarray:
    """255 (max - min) / max in whole numbers, halves up."""
    high, low = pixels.max(axis=-1).astype(int), pixels.min(axis=-1).astype(int)
    return np.where(high > 0, (2 * 255 * (high - low) + high) // (2 * np.maximum(high, 1)), 0)


def test_every_pair_of_highest_and_lowest_colour_is_right():
    high, low = np.divmod(np.arange(1 << 16), 256)
    pairs = np.stack([high, low, low], axis=-1)[high >= low].astype(np.uint8)[None]
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        assert np.array_equal(saturation(pairs[..., order]), plain_saturation(pairs))


def test_the_mask_is_scikit_images():
    color = pytest.importorskip("skimage.color")
    filters = pytest.importorskip("skimage.filters")
    for seed in range(3):
        picture = tissue_picture(300, 200, seed=seed)
        values = np.floor(color.rgb2hsv(picture)[..., 1] * 255 + 0.5 + 1e-9).astype(np.uint8)
        threshold = filters.threshold_otsu(values)
        mask, otsu = tissue_mask(picture)
        assert otsu.threshold == threshold
        assert np.array_equal(mask, values > threshold)


def test_the_threshold_separates_best_among_all():
    counts = np.bincount(saturation(tissue_picture(200, 200)).reshape(-1), minlength=256)
    values = np.arange(256)

    def between(threshold: int) -> float:
        below, above = counts[: threshold + 1], counts[threshold + 1 :]
        if not below.sum() or not above.sum():
            return 0.0
        means = (
            (below @ values[: threshold + 1]) / below.sum(),
            (above @ values[threshold + 1 :]) / above.sum(),
        )
        return float(below.sum() * above.sum() * (means[0] - means[1]) ** 2)

    best = max(range(256), key=between)
    assert otsu_threshold(counts).threshold == best


def test_glass_alone_and_one_colour_are_named(tmp_path):
    glass = np.clip(np.random.default_rng(0).normal(242, 1.5, (400, 400, 3)), 0, 255).astype(np.uint8)
    _, otsu = tissue_mask(glass)
    assert "may hold no tissue" in otsu.warnings[0]
    for value in (0, 128, 255):
        mask, otsu = tissue_mask(np.full((20, 20, 3), value, np.uint8))
        assert not mask.any()
        assert otsu.share == 0.0
        assert "no tissue is found" in otsu.warnings[0]


def test_a_slide_has_one_threshold_whatever_its_levels(tmp_path):
    picture = tissue_picture(1024, 768)
    with open_slide(write_tiff(tmp_path / "a.tif", pyramid(picture, 4), mpp=0.5, compression="lzw")) as slide:
        found = find_tissue(slide, mpp=4.0)
        assert found.mask.shape == (96, 128)
        expected, otsu = tissue_mask(slide.read_mpp(0, 0, 128, 96, mpp=4.0, rule="nearest"))
        assert np.array_equal(found.mask, expected)
        assert found.otsu == otsu
        patch = slide.read(0, 0, 64, 64)
        mask, kept = tissue_mask(patch, threshold=otsu.threshold)
        assert np.array_equal(mask, plain_saturation(patch) > otsu.threshold)
        assert kept.threshold == otsu.threshold
        with pytest.raises(UserError, match="never enlarged"):
            find_tissue(slide, mpp=0.3)
