from __future__ import annotations

import numpy as np
import pytest

from elsewhere.inputs.volumes import Grid
from elsewhere.training.volumes.locating import find_breasts, front

LAS = np.diag([-1.0, 1.0, 1.0, 1.0])
PSR = np.array([[0, 0, 1.0, 0], [-1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 1.0]])


def test_the_front_of_axial_and_sagittal_volumes():
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1), affine=LAS)) == (1, 1)
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1), affine=PSR)) == (0, -1)
    assert front(Grid(shape=(4, 4, 4), spacing_mm=(1, 1, 1))) == (1, 1)


def torso() -> tuple[np.ndarray, np.ndarray]:
    """A slab of chest with two half balls before it, 2 mm a voxel."""
    x, y, z = np.meshgrid(np.arange(160), np.arange(120), np.arange(60), indexing="ij")
    chest = y < 60
    breasts = [((x - c) ** 2 + (y - 60) ** 2 + (z - 30) ** 2 < 28**2) & ~chest for c in (45, 115)]
    image = np.random.default_rng(0).rayleigh(2, x.shape) + 100.0 * (chest | breasts[0] | breasts[1])
    return image.astype(np.float32), breasts[0] | breasts[1]


@pytest.mark.parametrize("forward", [1, -1])
def test_both_breasts_are_in_the_box_and_most_of_the_chest_is_not(forward):
    image, breasts = torso()
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
