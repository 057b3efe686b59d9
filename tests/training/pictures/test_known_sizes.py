"""Batches of few sizes on a GPU give what a batch of the very size gives."""

from __future__ import annotations

import copy

import pytest
import torch

from elsewhere.networks import build_network
from elsewhere.training.pictures.program import KNOWN_SIZES, _norms_of_first, to_known_size


@pytest.mark.parametrize("count", [1, 63, 64, 65, 256])
def test_the_last_row_fills_up_to_a_known_size(count):
    rows = torch.arange(count)
    filled = to_known_size(rows)
    assert len(filled) in KNOWN_SIZES
    assert torch.equal(filled[:count], rows)
    assert set(filled[count:].tolist()) <= {count - 1}
    pictures = torch.rand(count, 2, 3)
    assert torch.equal(to_known_size(pictures)[:count], pictures)


def test_more_than_the_largest_stays_as_it_is():
    rows = torch.arange(max(KNOWN_SIZES) + 1)
    assert torch.equal(to_known_size(rows), rows)


def test_batch_statistics_are_those_of_the_pictures_without_what_fills_up():
    plain = build_network("tiny-cnn", size_px=32, seed=0).train()
    filled, naive = copy.deepcopy(plain), copy.deepcopy(plain)
    pictures = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    x = to_known_size(pictures)
    norms = [m for m in filled.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    with torch.no_grad():
        plain.features_of(pictures)
        with _norms_of_first(norms, len(pictures)):
            filled.features_of(x)
        naive.features_of(x)

    def far(one: torch.nn.Module) -> float:
        pairs = zip(one.state_dict().values(), plain.state_dict().values(), strict=True)
        return max(float((a.float() - b.float()).abs().max()) for a, b in pairs)

    assert far(filled) < 1e-6 < 1e-4 < far(naive)
    assert all("forward" not in vars(norm) for norm in norms)
