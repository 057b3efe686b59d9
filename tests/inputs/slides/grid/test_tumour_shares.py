"""Tumour shares from outlines by both rules and from masks, and the counts of the public outlines."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import Annotations, Outline, open_mask, tumour_shares, write_mask
from elsewhere.inputs.slides.grid import PatchGrid, lay_outline_grid, tumour_shares_on
from worlds.outline_files import square, tangled

GRID = PatchGrid(scale="mpp", size_px=256, mpp=0.5, patch_px=512.0, columns=3, rows=2)


def test_exact_shares_count_the_pixels_of_the_patch():
    found = tumour_shares_on(Annotations((Outline(square(0, 0, 256)),)), GRID)
    assert found.shares.tolist() == [[0.25, 0, 0], [0, 0, 0]]
    assert found.outside == 0


def test_a_boundary_widens_the_outline_by_the_pixels_that_it_touches():
    """By hand: corners at 0 and 8 of 16 pixels, both inside, make 9 x 9 of 256."""
    pytest.importorskip("cv2")
    one = Annotations((Outline(square(0, 0, 256)),))
    assert tumour_shares_on(one, GRID, fill="boundary").shares[0, 0] == 81 / 256
    shifted = Annotations((Outline(square(8, 8, 240)),))  # cut to 0 and 7, where rounding gives 0 and 8
    assert tumour_shares_on(shifted, GRID, fill="boundary").shares[0, 0] == 64 / 256
    hole = Annotations((Outline(square(0, 0, 256)),), (Outline(square(64, 64, 64)),))
    assert tumour_shares_on(hole, GRID, fill="boundary").shares[0, 0] == (81 - 9) / 256

    own = Annotations((Outline(square(0, 0, 256), (square(192, 192, 128),)), Outline(square(224, 224, 160))))
    # 9 x 9 less its hole from 6 to 8, and another outline from 7 to 12 that keeps what the hole takes from the first
    assert tumour_shares_on(own, GRID, fill="boundary").shares[0, 0] == (81 - 9 + 36) / 256
    outside = Annotations((Outline(square(0, 0, 256), (square(400, 400, 64),)),))
    assert tumour_shares_on(outside, GRID, fill="boundary").shares[0, 0] == 81 / 256


@pytest.mark.parametrize("seed", range(8))
def test_both_rules_agree_but_for_the_boundary(seed):
    """On rings that do not cross themselves, the rules differ by less than the pixels along the lines."""
    pytest.importorskip("cv2")
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 30))
    ring = np.array([700.0, 500.0]) + 350 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    one = Annotations((Outline(ring),))
    exact, wide = (tumour_shares_on(one, GRID, fill=fill).shares for fill in ("exact", "boundary"))
    length = np.linalg.norm(ring - np.roll(ring, 1, axis=0), axis=1).sum()
    assert abs(wide - exact).sum() * 256 < 2 * length / 32 + 30
    assert wide.sum() > exact.sum()


@pytest.mark.parametrize("seed", range(4))
def test_exact_is_the_share_of_the_region(seed):
    made = tangled(np.random.default_rng(seed))
    grid = PatchGrid(scale="mpp", size_px=64, mpp=0.5, patch_px=70.3, columns=9, rows=9)
    found = tumour_shares_on(made, grid)
    expected = tumour_shares(made, patch_px=70.3, shape=(9, 9), samples=64)
    np.testing.assert_array_equal(found.shares, expected)


def test_tumour_that_no_whole_patch_covers_is_counted():
    found = tumour_shares_on(
        Annotations((Outline(square(1536, 0, 256)), Outline(square(0, 1024, 512)))), GRID
    )
    assert not found.shares.any()
    assert found.outside == pytest.approx(1.25)


def test_a_mask_gives_what_its_outlines_give(tmp_path):
    pytest.importorskip("tifffile")
    made = Annotations((Outline(square(100, 200, 600)),), (Outline(square(300, 300, 100)),))
    path = write_mask(tmp_path / "m.tif", made, size_px=(1600, 1100), mpp=0.25)
    with open_mask(path) as mask:
        found = tumour_shares_on(mask, GRID, size_px=(1600, 1100))
        np.testing.assert_allclose(found.shares, tumour_shares_on(made, GRID).shares, atol=1e-12)
        with pytest.raises(UserError, match="size of its slide"):
            tumour_shares_on(mask, GRID)
        with pytest.raises(UserError, match="does not fit"):
            tumour_shares_on(mask, GRID, size_px=(1600, 2200))


def test_what_is_refused(monkeypatch):
    one = Annotations((Outline(square(0, 0, 256)),))
    with pytest.raises(UserError, match="unknown rule for the pixels of outlines 'wide'"):
        tumour_shares_on(one, GRID, fill="wide")
    huge = PatchGrid(scale="mpp", size_px=256, mpp=0.5, patch_px=512.0, columns=4000, rows=4000)
    with pytest.raises(UserError, match="use the rule 'exact'"):
        tumour_shares_on(one, huge, fill="boundary")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match="OpenCV, which is not installed"):
        tumour_shares_on(one, GRID, fill="boundary")


@pytest.mark.real_data
@pytest.mark.slow
def test_the_published_counts_of_camelyon16(data_dir):
    """FT 56,237, PT of at least 10 % 24,565, under 10 % 5,463 (spec LN-04): the boundary rule, from the slide's corner."""
    pytest.importorskip("cv2")
    import tarfile

    from elsewhere.inputs.slides.annotations.reading import json_annotations

    counts = {"exact": np.zeros(3, int), "boundary": np.zeros(3, int)}
    with tarfile.open(data_dir / "lymph-nodes/CAMELYON16/polygons_json.tar.xz") as tar:
        for member in tar:
            if not member.isfile() or (content := tar.extractfile(member)) is None:
                continue
            one = json_annotations(json.load(content), where=member.name)
            grid = lay_outline_grid(one, 0.243, scale="study")
            for fill, total in counts.items():
                share = tumour_shares_on(one, grid, fill=fill).shares
                total += [
                    (share == 1).sum(),
                    ((share >= 0.1) & (share < 1)).sum(),
                    ((share > 0) & (share < 0.1)).sum(),
                ]
    assert counts["boundary"].tolist() == [56237, 24565, 5463]
    assert counts["exact"].tolist() == [54957, 24810, 6560]
