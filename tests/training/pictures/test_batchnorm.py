"""Batch-norm statistics of padded batches, and of several batches together."""

from __future__ import annotations

import copy

import torch

from elsewhere.networks import build_network
from elsewhere.training.cuda import pad_to_cached_batch
from elsewhere.training.pictures.batchnorm import batchnorm_layers, momentum, statistics_of_first


def test_batch_statistics_are_those_of_the_pictures_without_the_padding():
    plain = build_network("tiny-cnn", size_px=32, seed=0).train()
    filled, naive = copy.deepcopy(plain), copy.deepcopy(plain)
    pictures = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    x = pad_to_cached_batch(pictures)
    layers = batchnorm_layers(filled)
    assert layers
    with torch.no_grad():
        plain.features_of(pictures)
        with statistics_of_first(layers, len(pictures)):
            filled.features_of(x)
        naive.features_of(x)

    def far(one: torch.nn.Module) -> float:
        pairs = zip(one.state_dict().values(), plain.state_dict().values(), strict=True)
        return max(float((a.float() - b.float()).abs().max()) for a, b in pairs)

    assert far(filled) < 1e-6 < 1e-4 < far(naive)
    assert all("forward" not in vars(norm) for norm in layers)


def test_a_momentum_of_one_over_n_gives_the_mean_of_the_batches():
    norm = torch.nn.BatchNorm1d(2).train()
    batches = torch.randn(4, 8, 2, generator=torch.Generator().manual_seed(1))
    for turn, batch in enumerate(batches, start=1):
        with momentum([norm], 1 / turn):
            norm(batch)
    assert norm.momentum == 0.1
    assert torch.allclose(norm.running_mean, batches.mean(dim=(0, 1)), atol=1e-6)
