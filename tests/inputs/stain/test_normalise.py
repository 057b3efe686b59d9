"""Patches of a slide: fitted together or alone, by three methods, with what happened counted."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.stain import macenko, reinhard, vahadane
from elsewhere.inputs.stain.fits import angle_degrees
from elsewhere.inputs.stain.normalise import COUNTED, fit_slide, make_target, normalise
from elsewhere.inputs.stain.optical_density import is_background
from worlds import stain_rules


@pytest.fixture(scope="module")
def patches():
    rng = np.random.default_rng(4)
    made = [stain_rules.tissue_picture(rng, (48, 48), strength=(1.0 + i / 5, 0.8)) for i in range(3)]
    glass = np.full((48, 48, 3), 243, dtype=np.uint8)
    black = np.zeros((48, 48, 3), dtype=np.uint8)
    return [*made, glass, black]


def test_what_happened_is_counted(patches):
    done = normalise(patches, fit="patch")
    assert set(done.counts) == set(COUNTED)
    assert (done.counts["normalised"], done.counts["glass"], done.counts["uniform"]) == (3, 1, 1)
    assert (done.patches[3] == patches[3]).all() and (done.patches[4] == patches[4]).all()
    glass = sum(int(is_background(patch).sum()) for patch in patches[:3])
    assert done.counts["background pixels"] == glass
    assert len(done.sentences()) == 4


def test_a_slide_has_one_fit(patches):
    done = normalise(patches[:4])
    assert len(set(map(id, done.fits))) == 1 and done.counts["normalised"] == 4
    assert (done.patches[3] == patches[3]).all()
    again = normalise(patches[:4], fit=fit_slide(patches[:4]))
    assert all((a == b).all() for a, b in zip(done.patches, again.patches, strict=True))


@pytest.mark.parametrize("method", ["macenko", "vahadane", "reinhard"])
def test_every_method_brings_pictures_closer_to_a_target_picture(method, patches):
    rng = np.random.default_rng(11)
    other = stain_rules.tissue_picture(
        rng, (48, 48), stains=np.array([[0.55, 0.75, 0.25], [0.1, 0.9, 0.3]]), strength=(1.6, 1.1)
    )
    done = normalise(patches[:3], other, method=method)

    def colour(picture):
        return picture[~is_background(picture)].mean(axis=0)

    for before, after in zip(patches[:3], done.patches, strict=True):
        assert (
            np.abs(colour(after) - colour(other)).sum() < 0.8 * np.abs(colour(before) - colour(other)).sum()
        )
        glass = is_background(before)
        assert (after[glass] == before[glass]).all()


def test_reinhard_reaches_the_mean_and_the_spread_of_the_target(patches):
    target = reinhard.fit(patches[1])
    made = reinhard.transform(patches[0], reinhard.fit(patches[0]), target)
    tissue = ~is_background(patches[0])
    lab = reinhard.to_lab(made[tissue])
    np.testing.assert_allclose(lab.mean(axis=0), target.mean, atol=2.0)


def test_reinhard_of_one_colour_shifts_without_scaling(patches):
    one = np.full((20, 20, 3), 90, dtype=np.uint8)
    made = reinhard.transform(one, reinhard.fit(one), reinhard.fit(patches[0]))
    assert len(np.unique(made.reshape(-1, 3), axis=0)) == 1


def test_lab_is_that_of_the_standard():
    red = reinhard.to_lab(np.array([[255, 0, 0]], dtype=np.uint8))[0]
    np.testing.assert_allclose(red, [53.24, 80.09, 67.20], atol=0.05)
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (500, 3), dtype=np.uint8)
    assert (reinhard.from_lab(reinhard.to_lab(colours)) == colours).all()


def test_vahadane_is_sparse_and_not_negative():
    unit = stain_rules.STAINS / np.linalg.norm(stain_rules.STAINS, axis=1, keepdims=True)
    rng = np.random.default_rng(1)
    amounts = rng.gamma(1.0, 1.0, (64, 64, 2))
    amounts[rng.random((64, 64)) < 0.5, 0] = 0.0
    picture = np.rint(255 * np.exp(-amounts @ unit)).astype(np.uint8)
    found = vahadane.fit(picture)
    assert (found.matrix >= 0).all()
    for k in range(2):
        assert angle_degrees(np.stack([found.matrix[k], unit[k]])) < 8
    assert vahadane.fit(picture) == found


def test_sparse_amounts_minimise_their_cost():
    rng = np.random.default_rng(2)
    unit = stain_rules.STAINS / np.linalg.norm(stain_rules.STAINS, axis=1, keepdims=True)
    density = rng.gamma(1.0, 0.5, (30, 3))
    found = vahadane.sparse_amounts(density, unit, 0.1)

    def cost(amounts):
        return 0.5 * ((density - amounts @ unit) ** 2).sum(axis=1) + 0.1 * amounts.sum(axis=1)

    best = cost(found)
    for _ in range(300):
        other = np.maximum(found + rng.normal(0, 0.1, found.shape), 0)
        assert (cost(other) >= best - 1e-12).all()


def test_words_that_are_refused(patches):
    with pytest.raises(UserError, match="unknown stain method 'maceko'"):
        normalise(patches, method="maceko")
    with pytest.raises(UserError, match="fit is 'slides'"):
        normalise(patches, fit="slides")
    with pytest.raises(UserError, match="needs colours"):
        normalise(patches, method="reinhard")
    with pytest.raises(UserError, match="another method"):
        make_target(reinhard.fit(patches[0]))
    with pytest.raises(UserError, match="another method"):
        normalise(patches, fit=reinhard.fit(patches[0]))
    with pytest.raises(UserError, match="no stains were found"):
        make_target(patches[3])
    with pytest.raises(UserError, match="no tissue"):
        make_target(patches[3], method="reinhard")
    assert normalise([]).patches == []


def test_patches_are_not_changed_in_place(patches):
    before = [patch.copy() for patch in patches]
    normalise(patches)
    normalise(patches, fit="patch", background="transform")
    assert all((a == b).all() for a, b in zip(before, patches, strict=True))


@pytest.mark.real_data
def test_the_real_patches_of_two_hospitals(data_dir):
    from PIL import Image

    folder = data_dir / "lymph-nodes/CAMELYON16/patches/sample_patches_256"
    files = sorted(folder.glob("*/*.png"))[:6]
    made = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    done = normalise(made, fit="patch", background="transform")
    assert done.counts["normalised"] == len(made)
    target = macenko.target_by_name("study")
    for patch, after in zip(made, done.patches, strict=True):
        assert (after == stain_rules.transform(patch, target.matrix, np.asarray(target.concentrations))).all()
