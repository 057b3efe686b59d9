"""Inference over a volume with detectors that see perfectly: every coordinate must come back (DBT-11, DBT-12)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.boxes.best_slice import BestSliceOptions  # noqa: E402
from elsewhere.boxes.tiles import TileOptions  # noqa: E402
from elsewhere.errors import TrainingError  # noqa: E402
from elsewhere.networks.detectors import DetectOptions, Detector, build_slice_classifier  # noqa: E402
from elsewhere.networks.detectors.base import pad_found  # noqa: E402
from elsewhere.networks.detectors.one_stage import Dense, DenseDetector  # noqa: E402
from elsewhere.training.detection import volume_inference  # noqa: E402
from elsewhere.training.detection.device_slices import StorageSettings  # noqa: E402
from elsewhere.training.detection.volume_inference import (  # noqa: E402
    InferenceOptions,
    averaged_halves,
    best_slices,
    predict_volume,
    score_slices,
    split_rows,
    store_volume,
)
from worlds.toy_volumes import ToyView  # noqa: E402


class SeesBright(Detector):
    """Boxes around what is bright in the middle channel, scored by how bright it is."""

    multiple = 16

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.sizes = set()

    def _look(self, picture):
        ys, xs = torch.nonzero(picture[1] > 0.45, as_tuple=True)
        if len(xs) < 40:
            return torch.zeros(0, 4), torch.zeros(0)
        box = torch.stack([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]).float()
        return box[None], picture[1][ys, xs].mean()[None]

    def detect(self, pictures, options):
        self.sizes.add(tuple(pictures.shape[2:]))
        found = [self._look(picture) for picture in pictures]
        return pad_found([box for box, _ in found], [score for _, score in found], options.most)


class SeesCells(DenseDetector):
    """One anchor per 32 pixels; its score is how much of it is bright."""

    multiple = 32

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def dense(self, pictures):
        share = torch.nn.functional.avg_pool2d((pictures[:, 1:2] > 0.45).float() * pictures[:, 1:2], 32)
        rows, columns = share.shape[2:]
        y, x = torch.meshgrid(torch.arange(rows) * 32.0, torch.arange(columns) * 32.0, indexing="ij")
        box = torch.stack([x, y, x + 32, y + 32], dim=-1).reshape(1, -1, 4)
        return Dense(box=box.expand(len(pictures), -1, 4), score=share.flatten(1))


def corners(lesion):
    return [lesion.x, lesion.y, lesion.x + lesion.width, lesion.y + lesion.height]


SMALL_TILES = TileOptions(height=64, width=64, overlap=40)


@pytest.mark.parametrize("case", ["T/000", "T/001"], ids=["left", "right"])
@pytest.mark.parametrize("tiles", [None, SMALL_TILES], ids=["whole", "tiles"])
@pytest.mark.parametrize(("reduced", "pixel"), [(1, 1.0), (1, 1.5), (2, 2.0)])
def test_boxes_come_back_in_pixels_of_the_volume(case, tiles, reduced, pixel):
    view = ToyView(2, reduced=reduced, seed=4)
    (lesion,) = view.lesions(case)
    options = InferenceOptions(tiles=tiles, batch=4, storage=StorageSettings(pixel=pixel))
    found = predict_volume(SeesBright(), view, case, options).best(1)
    assert np.abs(found.plane[0] - corners(lesion)).max() <= 1.5 * max(reduced, pixel) + 0.5
    assert found.z0[0] == lesion.slice


def test_the_whole_breast_is_brought_to_a_multiple_and_ends_are_skipped():
    view, model = ToyView(1), SeesBright()
    options = InferenceOptions(tiles=None, skipped=4, storage=StorageSettings(pixel=1.0))
    found = predict_volume(model, view, "T/000", options)
    assert set(found.z0.tolist()) <= {4}  # nine slices, four skipped at each end
    assert model.sizes == {(128, 112)}


def test_best_slices_choose_the_lesions_slice_on_the_device():
    view = ToyView(2, seed=4)
    model = SeesCells()
    for case in view.cases:
        options = InferenceOptions(tiles=None, batch=2, storage=StorageSettings(pixel=1.0))
        held, slices = store_volume(model, view, case, options)
        found = best_slices(model, held, case, slices, options, BestSliceOptions(least_score=0.05))
        (lesion,) = view.lesions(case)
        assert found.z0[0] == lesion.slice
        centre, middle = (
            found.centre[0],
            np.array([lesion.x + lesion.width / 2, lesion.y + lesion.height / 2]),
        )
        assert np.abs(centre - middle).max() <= 32


def test_averages_over_the_halves_are_those_of_all_slices():
    view = ToyView(2, seed=4)
    model, options = SeesCells(), InferenceOptions(tiles=None, batch=2, storage=StorageSettings(pixel=1.0))
    held, slices = store_volume(model, view, "T/001", options)
    found = averaged_halves(model, held, "T/001", slices, options, least_score=0.01)
    pictures = []
    for z in slices:
        row = torch.from_numpy(held.rows([("T/001", z)]))
        pictures.append(held.tiles(row, torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]]), 128, 128)[0])
    score = model.dense(torch.stack(pictures)).score.numpy()
    assert found.score[0] == pytest.approx(max(score[:4].mean(0).max(), score[4:].mean(0).max()), abs=1e-5)
    assert set(map(tuple, found.corners()[:, [2, 5]])) <= {(0, 4), (4, 9)}
    (lesion,) = view.lesions("T/001")
    assert np.abs(found.centre[0] - [lesion.x + lesion.width / 2, lesion.y + lesion.height / 2]).max() <= 32


def test_too_little_memory_is_an_error_that_names_a_smaller_batch():
    class Full(SeesBright):
        def detect(self, pictures, options):
            raise torch.OutOfMemoryError

    options = InferenceOptions(batch=6, storage=StorageSettings(pixel=1.0))
    with pytest.raises(TrainingError, match=r"6 tiles at once\nSet batch = 3"):
        predict_volume(Full(), ToyView(1), "T/000", options)


def test_slices_are_scored_whole():
    view, model = ToyView(1), build_slice_classifier("tiny-cnn")
    held, slices = store_volume(model, view, "T/000", InferenceOptions(storage=StorageSettings(pixel=1.0)))
    score = score_slices(model, held, "T/000", slices, size=(64, 64), batch=4)
    assert score.shape == (9,) and ((score > 0) & (score < 1)).all()
    assert DetectOptions().most == 50


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_filled_up_batches_have_one_size_and_lose_nothing(batch):
    rows = torch.arange(7)
    parts = list(split_rows(rows, batch, full=True))
    assert {len(part) for part, _ in parts} == {batch}
    assert torch.equal(torch.cat([part[:count] for part, count in parts]), rows)
    assert torch.equal(torch.cat([part for part, _ in split_rows(rows, batch, full=False)]), rows)


def test_filled_up_batches_find_the_same(monkeypatch):
    view = ToyView(1, seed=4)
    options = InferenceOptions(tiles=None, batch=4, storage=StorageSettings(pixel=1.0))

    def everything():
        boxes = predict_volume(SeesBright(), view, "T/000", options)
        model = SeesCells()
        held, slices = store_volume(model, view, "T/000", options)
        best = best_slices(model, held, "T/000", slices, options, BestSliceOptions(least_score=0.05))
        halves = averaged_halves(model, held, "T/000", slices, options)
        return [(one.corners(), one.score) for one in (boxes, best, halves)]

    plain = everything()
    monkeypatch.setattr(volume_inference, "needs_full_batches", lambda device: True)
    assert sum(len(score) for _, score in plain) > 3
    for (corners, score), (other_corners, other_score) in zip(plain, everything(), strict=True):
        np.testing.assert_array_equal(corners, other_corners)
        np.testing.assert_array_equal(score, other_score)
