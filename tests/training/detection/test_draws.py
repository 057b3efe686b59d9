"""The draws of an epoch: lesions lie on their tiles, and a seed gives the same again (DBT-14)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.networks.detectors.base import Targets  # noqa: E402
from elsewhere.training.detection.augment import inverse, move_boxes  # noqa: E402
from elsewhere.training.detection.device_slices import DeviceSlices, StorageSettings  # noqa: E402
from elsewhere.training.detection.draws import NO_AUGMENTATION, Augmentation, draw_epoch  # noqa: E402
from elsewhere.training.detection.sampling import SamplingSettings, list_slices  # noqa: E402
from worlds.toy_volumes import ToyView  # noqa: E402

SETTINGS = SamplingSettings(reach=1, negatives=1.0)


@pytest.fixture(scope="module")
def world():
    view = ToyView(5, normals=1, size=(220, 180, 16))
    table = list_slices(view, view.cases, SETTINGS, rng=np.random.default_rng(0))
    slices = [*zip(table.case, table.z.tolist(), strict=True)]
    return table, DeviceSlices(view, slices, StorageSettings(pixel=1.0), torch.device("cpu"))


def drawn(world, augmentation, seed=0):
    table, held = world
    order = np.arange(len(table))
    rng = np.random.default_rng(seed)
    return draw_epoch(rng, order, table, held, augmentation, batch=4, size=(96, 96))


def test_every_lesion_slice_shows_its_lesion_whatever_the_augmentation(world):
    table, held = world
    found = drawn(world, Augmentation(rotation=30, shear=0.2))
    for sample, matrix in zip(found.sample.ravel(), found.matrix.reshape(-1, 2, 3), strict=True):
        if table.label[sample, 0] < 0:
            continue
        box = torch.from_numpy(held.frame[table.case[sample]].to_stored(table.box[sample])).float()
        lesion = Targets(box=box[None], label=torch.from_numpy(table.label[sample])[None])
        assert move_boxes(lesion, inverse(torch.from_numpy(matrix)[None]), (96, 96)).there.any()


def test_without_augmentation_a_lesion_lies_in_the_middle(world):
    table, held = world
    found = drawn(world, NO_AUGMENTATION)
    row = int(np.flatnonzero(table.label[:, 0] >= 0)[0])
    matrix = found.matrix.reshape(-1, 2, 3)[row]
    box = held.frame[table.case[row]].to_stored(table.box[row, 0])
    assert np.allclose(matrix @ [48, 48, 1], [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2], atol=1e-3)
    assert not found.flip.any() and (found.light == 1).all()


def test_a_seed_gives_the_same_again_and_batches_are_full(world):
    one, two, three = (drawn(world, Augmentation(), seed=seed) for seed in (1, 1, 2))
    assert (one.matrix == two.matrix).all() and not (one.matrix == three.matrix).all()
    assert one.sample.shape[1] == 4 and one.sample.size >= len(world[0])
    assert set(one.sample.ravel()) == set(range(len(world[0])))
