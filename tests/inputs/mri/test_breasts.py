from __future__ import annotations

import numpy as np
import pytest

from elsewhere.inputs.mri.breasts import find_breasts, front
from elsewhere.inputs.volumes import Grid
from elsewhere.phantom.mri import case_rng, make_case
from elsewhere.phantom.mri_sites import case_specs, hospitals

LAS = np.diag([-1.0, 1.0, 1.0, 1.0])
PSR = np.array([[0, 0, 1.0, 0], [-1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 1.0]])


def test_the_front_of_axial_and_sagittal_volumes():
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1), affine=LAS)) == (1, 1)
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1), affine=PSR)) == (0, -1)
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1))) == (1, 1)


def torso(air: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """A slab of chest with two half balls before it, 2 mm a voxel."""
    x, y, z = np.meshgrid(np.arange(160), np.arange(120), np.arange(60), indexing="ij")
    chest = y < 60
    breasts = [((x - c) ** 2 + (y - 60) ** 2 + (z - 30) ** 2 < 28**2) & ~chest for c in (45, 115)]
    image = np.random.default_rng(0).rayleigh(air, x.shape) + 100.0 * (chest | breasts[0] | breasts[1])
    return image.astype(np.float32), breasts[0] | breasts[1]


@pytest.mark.parametrize("air", [2.0, 12.0])
@pytest.mark.parametrize("forward", [1, -1])
def test_both_breasts_are_in_the_box_and_most_of_the_chest_is_not(forward, air):
    image, breasts = torso(air)
    affine = LAS.copy()
    affine[1, 1] = forward
    if forward < 0:
        image, breasts = image[:, ::-1], breasts[:, ::-1]
    box = find_breasts(image, Grid(shape=image.shape, spacing_mm=(2.0, 2.0, 2.0), affine=affine))
    x0, y0, z0, x1, y1, z1 = box
    assert breasts[x0:x1, y0:y1, z0:z1].sum() == breasts.sum()
    assert y1 - y0 < 60


def test_nothing_to_see_leaves_the_volume_whole():
    grid = Grid(shape=(8, 9, 10), spacing_mm=(1.0, 1.0, 1.0))
    assert find_breasts(np.zeros((8, 9, 10), np.float32), grid) == (0, 0, 0, 8, 9, 10)


def test_the_noise_of_a_phantoms_air_is_no_body():
    """At 2 mm a voxel the mean of the noise is above a tenth of the bright: tumours were cut off."""
    for hospital in hospitals(sites=4, patients=8, size=112, seed=991):
        for spec in case_specs([hospital]):
            case = make_case(spec, case_rng(spec, 991))
            grid = Grid(shape=case.phases[0].shape, spacing_mm=case.spacing_mm, affine=case.affine)
            x0, y0, z0, x1, y1, z1 = find_breasts(case.phases[0].astype(np.float32), grid)
            assert case.mask[x0:x1, y0:y1, z0:z1].sum() >= 0.95 * case.mask.sum(), case.name
            assert (x1 - x0) * (y1 - y0) * (z1 - z0) < 0.9 * case.mask.size
