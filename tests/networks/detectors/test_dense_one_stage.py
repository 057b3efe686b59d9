"""The cells of the dataset's baseline (DBT-16, DBT-17)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.networks.detectors.base import Targets  # noqa: E402
from elsewhere.networks.detectors.dense_one_stage import DenseOneStage, DenseOneStageSettings  # noqa: E402

SMALL = DenseOneStageSettings(growth=4, blocks=(1, 1, 1, 1, 1), first=4)


def saying(model: DenseOneStage, cells: torch.Tensor) -> DenseOneStage:
    """The detector with fixed outputs in place of its network."""
    model._cells = lambda pictures: cells
    return model


def test_the_published_numbers():
    settings = DenseOneStageSettings()
    assert (settings.cell, settings.anchor, settings.growth) == (96, 256, 16)
    assert settings.blocks == (2, 6, 4, 12, 8)


def test_the_real_size_has_cells_of_96_pixels():
    dense = DenseOneStage(SMALL).eval().dense(torch.rand(1, 3, 288, 192))
    assert dense.box.shape == (1, 6, 4)


def test_what_the_truth_asks_for_is_what_the_cells_decode():
    box = torch.tensor([[[100.0, 150.0, 164.0, 310.0], [10.0, 20.0, 60.0, 40.0], [0.0] * 4]])
    targets = Targets(box=box, label=torch.tensor([[1, 0, -1]]))
    model = DenseOneStage(SMALL)
    truth, wanted = model._wanted(targets, 4, 3)
    assert truth[0].nonzero().tolist() == [[0, 0], [2, 1]]
    logit = torch.full((1, 4, 3, 5), -9.0)
    logit[..., 0] = torch.where(truth > 0, 9.0, -9.0)
    logit[..., 1:3] = torch.atanh(wanted[..., :2].clamp(-0.999, 0.999))
    logit[..., 3:] = torch.logit(wanted[..., 2:].clamp(0.001, 0.999))
    dense = saying(model, logit).dense(torch.zeros(1, 3, 384, 288))
    rows = dense.score[0].topk(2).indices.sort().values
    assert torch.allclose(dense.box[0, rows], box[0, [1, 0]], atol=0.5)
    parts = model.losses(torch.zeros(1, 3, 384, 288), targets)
    assert all(float(part) < 1e-3 for part in parts.values())


def test_the_prior_is_one_lesion_in_77_cells():
    dense = DenseOneStage(SMALL).eval().dense(torch.zeros(1, 3, 96, 96))
    assert float(dense.score.detach().mean()) == pytest.approx(1 / 77, rel=0.3)
