"""Classifiers are built as they are named."""

from __future__ import annotations

import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.networks import NETWORKS, build_network


@pytest.mark.parametrize("name", ["efficientnet-b0", "efficientnet-lite0", "efficientnet-lite2", "tiny-cnn"])
def test_networks_give_features_and_two_logits(name):
    model = build_network(name, seed=1).eval()
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert model.features_of(x).shape == (2, NETWORKS[name].features)
        assert model(x).shape == (2, 2)
    assert model.get_submodule(model.last_conv) is not None


def test_the_transformer_takes_384_pixels():
    model = build_network("vit-b-16", seed=1).eval()
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(86.1e6, rel=0.01)
    assert model.last_conv is None
    with torch.no_grad():
        assert model(torch.rand(1, 3, 384, 384)).shape == (1, 2)


def test_a_seed_draws_the_same_weights_and_disturbs_nothing():
    before = torch.random.get_rng_state()
    one, two, other = (build_network("tiny-cnn", seed=s) for s in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)


def test_an_unknown_network_offers_its_neighbours():
    with pytest.raises(UserError, match="efficientnet-lite0"):
        build_network("efficientnet-lite")
