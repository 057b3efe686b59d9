"""Where recipes look in a case whose mask and breast box are hidden: the same in training and in the test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elsewhere.inputs.mri.breasts import find_breasts
from elsewhere.inputs.volumes import Grid, MemoryVolumes
from elsewhere.phantom.mri import PhantomCase, make_world, memory_volumes
from elsewhere.phantom.mri_sites import hospitals
from elsewhere.radiomics import case_features, case_region
from elsewhere.recipes import recipes
from elsewhere.recipes.base import Job, RecipeCase
from elsewhere.recipes.mri.residual_unet import box_notes, kept_box
from elsewhere.recipes.mri.slice_cnn import SliceSettings, slice_picture
from elsewhere.training.response.lesions import LesionSource, find_lesion


@pytest.fixture(scope="module")
def phantoms() -> list[PhantomCase]:
    return make_world(hospitals(sites=4, patients=24, size=64, seed=5), seed=5)


def grid_of(case: PhantomCase) -> Grid:
    return Grid(shape=case.phases[0].shape, spacing_mm=case.spacing_mm, affine=case.affine)


def test_the_region_finds_the_tumour_without_being_told_the_breast(phantoms):
    """Without the breasts it lay in the heart: it touched the tumour in 18 of 160 phantoms."""
    touched = near = 0
    for case in phantoms:
        before, early = (case.phases[at].astype(np.float32) for at in (0, 1))
        grid, mask = grid_of(case), case.mask.astype(bool)
        touched += bool((case_region(before, early, grid) & mask).any())
        box = find_lesion(before, early, spacing_mm=grid.spacing_mm, breast=find_breasts(before, grid))
        middle = (np.array(box[:3]) + box[3:]) / 2
        near += np.linalg.norm((middle - np.argwhere(mask).mean(0)) * grid.spacing_mm) < 15
    assert touched >= 0.85 * len(phantoms)
    assert near >= 0.75 * len(phantoms)


def test_boxes_and_masks_change_nothing_that_a_response_recipe_sees(phantoms):
    told = memory_volumes(phantoms[:3])
    shy = MemoryVolumes(images=told.images, spacing_mm=told.spacing_mm)
    small = SliceSettings(size_px=32)
    for name in told.images:
        assert case_features(told, name).values == case_features(shy, name).values
        assert np.array_equal(slice_picture(told, name, small), slice_picture(shy, name, small))
        before, after = told.images[name][:2]
        boxes = [LesionSource().box(v, name, before=before, after=after) for v in (told, shy)]
        assert boxes[0] == boxes[1]


def test_a_round_bright_piece_goes_before_a_large_dull_one():
    rng = np.random.default_rng(0)
    grid = Grid(shape=(48, 48, 24), spacing_mm=(1.0, 1.0, 1.0))
    at = np.stack(np.meshgrid(*(np.arange(n) for n in grid.shape), indexing="ij"), axis=-1)
    tumour = np.linalg.norm(at - np.array([14, 24, 12]), axis=-1) < 6
    gland = np.zeros(grid.shape, dtype=bool)
    gland[10:46, 30:33, 4:20] = True
    bridge = np.zeros(grid.shape, dtype=bool)
    bridge[12:16, 24:33, 10:14] = True
    before = rng.normal(100, 3, grid.shape).astype(np.float32)
    early = (before + 90 * tumour + 40 * ((gland | bridge) & ~tumour)).astype(np.float32)
    found = case_region(before, early, grid)
    assert 2 * (found & tumour).sum() / (found.sum() + tumour.sum()) > 0.7


def job(volumes: MemoryVolumes, tmp_path, **settings) -> Job:
    cases = [RecipeCase(case=name, dataset="W", group=name, label=-1, clinical={}) for name in volumes.images]
    return Job(
        tasks=("segmentation",),
        train=(),
        validation=(),
        predict=tuple(cases),
        volumes=volumes,
        settings=recipes.get("masked-autoencoder").settings(settings),
        seed=0,
        device="cpu",
        scratch=tmp_path,
    )


def test_a_mask_is_kept_inside_breasts_that_are_found_unless_the_given_box_is_asked_for(phantoms, tmp_path):
    volumes = memory_volumes(phantoms[:1])
    (name,) = volumes.images
    found = find_breasts(volumes.phase(name, 0), volumes.grid(name))
    assert found != volumes.breast_box(name)
    made = job(volumes, tmp_path)
    assert kept_box(made, made.settings, name) == found
    assert "found by the localiser" in box_notes(made, made.settings)[0]
    asked = job(volumes, tmp_path, test_box="given")
    assert kept_box(asked, asked.settings, name) == volumes.breast_box(name)
    assert box_notes(asked, asked.settings) == []
    lacking = replace(asked, volumes=replace(volumes, boxes={}))
    assert kept_box(lacking, lacking.settings, name) == found
    assert box_notes(lacking, lacking.settings) == [
        f"{name}: the dataset gives no breast box, so both breasts were found by the localiser"
    ]
    everywhere = job(volumes, tmp_path, keep="all")
    assert kept_box(everywhere, everywhere.settings, name) is None and not box_notes(
        everywhere, everywhere.settings
    )
