"""True and false detections, and the classifier that tells them apart (DBT-13, DBT-17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes import Boxes  # noqa: E402
from elsewhere.networks.detectors import build_slice_classifier  # noqa: E402
from elsewhere.training.detection.device_slices import DeviceSlices, StorageSettings  # noqa: E402
from elsewhere.training.detection.draws import NO_AUGMENTATION, Augmentation, draw_epoch  # noqa: E402
from elsewhere.training.detection.false_positives import (  # noqa: E402
    FalsePositiveSettings,
    drop_unlikely,
    hits,
    list_detections,
    score_detections,
)
from elsewhere.training.detection.fitting import FitOptions, fit_slice_classifier  # noqa: E402
from elsewhere.training.detection.sampling import LESION, NEGATIVE, SamplingSettings  # noqa: E402
from worlds.toy_volumes import ToyLesion, ToyView  # noqa: E402

SETTINGS = FalsePositiveSettings(floor_px=20.0, size=(48, 48))


def found_boxes(view):
    """On each volume the lesion itself, and a box at another place."""
    found = {}
    for case in view.cases:
        (lesion,) = view.lesions(case)
        x = lesion.x + (45 if lesion.x < 50 else -45)
        box = [
            [lesion.x, lesion.y, lesion.x + lesion.width, lesion.y + lesion.height],
            [x, lesion.y, x + lesion.width, lesion.y + lesion.height],
        ]
        found[case] = Boxes.on_slice(box, [0.9, 0.8], lesion.slice)
    return found


def test_hits_are_near_in_the_plane_and_over_the_slices():
    lesion = (ToyLesion(0, 0, 40, 40, 20),)
    box = [[0, 0, 40, 40], [30, 0, 70, 40], [0, 0, 40, 40], [0, 0, 40, 40]]
    boxes = Boxes.on_slice(box, [1] * 4, [20, 20, 25, 26])
    near = FalsePositiveSettings(floor_px=0.0)
    assert hits(boxes, lesion, 20, near).tolist() == [True, False, True, False]
    assert hits(boxes, lesion, 20, FalsePositiveSettings()).tolist() == [True, True, True, False]
    assert hits(boxes, (), 20, near).tolist() == [False] * 4


def test_detections_become_rows_of_both_kinds_and_withheld_volumes_none():
    view = ToyView(3, hidden=["T/002"])
    open_view = ToyView(3)
    table = list_detections(view, found_boxes(open_view), SETTINGS)
    assert table.kind.tolist() == [LESION, NEGATIVE] * 2 and set(table.case) == {"T/000", "T/001"}
    assert (table.focus == (table.box[:, 0, :2] + table.box[:, 0, 2:]) / 2).all()
    assert len(list_detections(view, {}, SETTINGS)) == 0


def test_tiles_lie_around_the_detections_on_both_sides():
    view = ToyView(2)
    table = list_detections(view, found_boxes(view), SETTINGS)
    slices = list(zip(table.case, table.z.tolist(), strict=True))
    held = DeviceSlices(view, slices, StorageSettings(pixel=1.0), torch.device("cpu"))
    order = np.arange(len(table))
    draws = draw_epoch(np.random.default_rng(0), order, table, held, NO_AUGMENTATION, batch=4, size=(48, 48))
    tiles = held.tiles(torch.from_numpy(held.rows(slices)), torch.from_numpy(draws.matrix[0]), 48, 48)
    bright = (tiles[:, 1] > 0.45).float().mean((1, 2))
    assert (bright[table.kind == LESION] > 0.1).all() and (bright[table.kind == NEGATIVE] < 0.1).all()
    assert tiles[0, 1, 24, 24] > 0.5 and tiles[2, 1, 24, 24] > 0.5


def test_the_classifier_learns_to_drop_false_detections():
    view = ToyView(8, seed=1)
    found = found_boxes(view)
    table = list_detections(view, {case: found[case] for case in view.cases[:6]}, SETTINGS)
    slices = [(case, int(z)) for case in found for z in found[case].z0]
    held = DeviceSlices(view, slices, StorageSettings(pixel=1.0), torch.device("cpu"))
    model = build_slice_classifier("tiny-cnn")
    options = FitOptions(
        epochs=25,
        batch=6,
        size=SETTINGS.size,
        learning_rate=3e-3,
        sampling=SamplingSettings(negatives=1.0),
        augmentation=Augmentation(rotation=5),
    )
    fit_slice_classifier(model, held, train=table, validation=None, options=options)
    for case in view.cases[6:]:
        probability = score_detections(model, held, case, found[case], size=SETTINGS.size)
        assert drop_unlikely(found[case], probability, 0.5).score.tolist() == [0.9]
    assert len(score_detections(model, held, "T/000", Boxes.none(), size=(48, 48))) == 0
    assert replace(SETTINGS).least == 0.05
