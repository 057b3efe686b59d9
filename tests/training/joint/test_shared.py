"""The shared encoder's parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elsewhere.training.joint.shared import (
    PhaseAttention,
    build_shared,
    outcome_codes,
    shared_objective,
)
from worlds.ball_volumes import SMALL_PLAN as PLAN


def test_attention_shares_sum_to_one_and_a_phase_can_be_chosen():
    attend = PhaseAttention(4, 3)
    with torch.no_grad():
        for value in attend.value:
            value.weight.copy_(torch.eye(4).view(4, 4, 1, 1, 1))
            value.bias.zero_()
        features = torch.randn(2, 3, 4, 5, 5, 2, generator=torch.Generator().manual_seed(0))
        same = features[:, :1].expand(-1, 3, -1, -1, -1, -1)
        assert torch.allclose(attend(same), features[:, 0], atol=1e-5)
        attend.key.weight.zero_()
        attend.key.bias.zero_()
        attend.query.weight.zero_()
        attend.query.bias.fill_(1.0)
        attend.place[1].fill_(200.0)
        assert torch.allclose(attend(features), features[:, 1], atol=1e-4)


def test_the_response_is_learnt_from_patches_with_tumour_and_a_known_outcome_alone():
    assert outcome_codes({"a": -1, "b": 0, "c": 1}) == {"a": 1.0, "b": 2.0, "c": 3.0}
    objective = shared_objective(1.0, 3.0)
    maps = [torch.zeros(3, 1, 4, 4, 2)]
    target = torch.zeros(3, 1, 4, 4, 2)
    target[:2, :, 0] = 1.0

    def loss(logits, weight):
        return float(
            objective(lambda image: (maps, torch.tensor(logits)), target, target, torch.tensor(weight))
        )

    base = loss([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    told = loss([2.0, -1.0, 9.0], [3.0, 2.0, 3.0]) - base
    positive, negative = np.log1p(np.exp(-2.0)), np.log1p(np.exp(-1.0))
    assert told == pytest.approx((3 * positive + negative) / 4, rel=1e-5)


def test_both_heads_come_from_one_encoder():
    plan = PLAN
    network = build_shared(plan, seed=1, device="cpu").train()
    maps, response = network(torch.zeros(2, 2, 16, 16, 8))
    assert maps[0].shape == (2, 1, 16, 16, 8) and response.shape == (2,)
    response.sum().backward()
    assert all(p.grad is not None for p in network.encoder.parameters())
    network.eval()
    assert network(torch.zeros(2, 2, 16, 16, 8)).shape == (2, 1, 16, 16, 8)
    same = build_shared(plan, seed=1, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(same.parameters(), network.parameters(), strict=True))
