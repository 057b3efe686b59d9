"""Masked autoencoding, the shared encoder's parts, subgroups: known answers and planted signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.joint.masked import MaskedAutoencoder, hand_over, masked_objective
from elsewhere.training.joint.shared import (
    PhaseAttention,
    build_shared,
    outcome_codes,
    shared_objective,
)
from elsewhere.training.joint.subgroups import attributes_of, divergent_subgroups, weights_of
from elsewhere.training.volumes import FitSettings, build_network, fit, prepare
from worlds.ball_volumes import SMALL_PLAN


def waves(count: int, seed: int = 0) -> MemoryVolumes:
    """Smooth volumes: what is hidden follows from what is seen around it; phase 1 is phase 0 turned over."""
    rng = np.random.default_rng(seed)
    x, y, z = np.meshgrid(np.arange(20), np.arange(20), np.arange(10), indexing="ij")
    images = {}
    for at in range(count):
        a, b, c = rng.uniform(0.1, 0.25, 3)
        first = np.sin(a * x + rng.uniform(0, 6)) + np.sin(b * y + rng.uniform(0, 6)) + 0.2 * np.cos(c * z)
        images[f"w{at}"] = [first.astype(np.float32), (-first).astype(np.float32)]
    return MemoryVolumes(images=images)


def test_exactly_the_asked_share_of_blocks_is_hidden_and_every_step_hides_others():
    network = MaskedAutoencoder(SMALL_PLAN, seed=1, hidden=0.75, block=4).train()
    image = torch.randn(2, 2, 16, 16, 8, generator=torch.Generator().manual_seed(0))
    first = network.hide(2)
    assert first.shape == (2, 1, 16, 16, 8)
    assert first.mean(dim=(1, 2, 3, 4)).tolist() == [0.75, 0.75]
    blocks = first.reshape(2, 4, 4, 4, 4, 2, 4).permute(0, 1, 3, 5, 2, 4, 6).reshape(2, -1, 64)
    assert ((blocks == blocks[..., :1]).all(dim=-1)).all()
    assert not torch.equal(first[0], first[1])
    _, used = network(image)
    assert torch.equal(used, first)
    assert not torch.equal(network.hide(2), first)
    network.eval()
    stays = network.hide(2)
    network(image)
    assert torch.equal(network.hide(2), stays)


def test_what_is_hidden_cannot_be_seen():
    network = MaskedAutoencoder(SMALL_PLAN, seed=1, hidden=0.75, block=4).eval()
    image = torch.randn(2, 2, 16, 16, 8, generator=torch.Generator().manual_seed(0))
    hidden = network.hide(2)
    changed = torch.where(hidden.bool(), image + 100.0, image)
    with torch.no_grad():
        assert torch.equal(network(image)[0], network(changed)[0])
        other = torch.where(hidden.bool(), image, image + 1.0)
        assert not torch.equal(network(image)[0], network(other)[0])


def test_it_reconstructs_unseen_volumes_better_than_the_mean_does():
    volumes = waves(12)
    names = list(volumes.images)
    data = prepare(volumes, names, SMALL_PLAN, (0, 1), need_mask=False)
    network = MaskedAutoencoder(SMALL_PLAN, seed=1, hidden=0.6, block=4)
    how = FitSettings(
        epochs=4,
        steps_per_epoch=40,
        optimiser="adamw",
        learning_rate=5e-3,
        foreground=0.0,
        augment=False,
        compiled=False,
    )
    done = fit(network, data.subset(names[:10]), SMALL_PLAN, how, seed=3, objective=masked_objective)
    assert done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    network.eval()
    image = torch.stack([data.volume(name)[0][:, :16, :16, :8] for name in names[10:]])
    with torch.no_grad():
        drawn, hidden = network(image)
    error = ((drawn - image).square() * hidden).sum()
    flat = (image.square() * hidden).sum()
    assert float(error) < 0.5 * float(flat)


def test_the_encoder_is_handed_over_and_the_heads_are_not():
    pretrained = MaskedAutoencoder(SMALL_PLAN, seed=1)
    network = build_network(SMALL_PLAN, seed=2)
    heads = {k: v.clone() for k, v in network.decoder.heads.state_dict().items()}
    hand_over(pretrained, network)
    for name, value in pretrained.encoder.state_dict().items():
        assert torch.equal(network.encoder.state_dict()[name], value)
    assert all(torch.equal(network.decoder.heads.state_dict()[k], v) for k, v in heads.items())


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
    plan = SMALL_PLAN
    network = build_shared(plan, seed=1, device="cpu").train()
    maps, response = network(torch.zeros(2, 2, 16, 16, 8))
    assert maps[0].shape == (2, 1, 16, 16, 8) and response.shape == (2,)
    response.sum().backward()
    assert all(p.grad is not None for p in network.encoder.parameters())
    network.eval()
    assert network(torch.zeros(2, 2, 16, 16, 8)).shape == (2, 1, 16, 16, 8)
    same = build_shared(plan, seed=1, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(same.parameters(), network.parameters(), strict=True))


def test_divergence_by_hand():
    score = [0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.9, 0.3]
    rows = [
        {"centre": "B" if s < 0.5 else "A", "side": "left" if i % 2 else "right"} for i, s in enumerate(score)
    ]
    found = divergent_subgroups(score, rows, support=0.1, longest=2)
    worst = found[0]
    assert worst.items == (("centre", "B"),) and worst.cases == 3
    assert worst.mean == pytest.approx(0.3)
    assert worst.divergence == pytest.approx(0.3 - np.mean(score))
    assert worst.t < -5
    assert found[-1].divergence > 0
    assert all(group.cases >= 3 for group in found)


def test_subgroups_of_two_values_are_found_where_neither_alone_is_as_bad():
    rows, score = [], []
    for a in "xy":
        for b in "xy":
            for k in range(10):
                rows.append({"a": a, "b": b})
                score.append((0.2 if (a, b) == ("x", "y") else 0.8) + 0.01 * k)
    worst = divergent_subgroups(score, rows)[0]
    assert worst.items == (("a", "x"), ("b", "y"))


def test_the_worst_subgroups_cases_get_more_weight():
    rows = {f"c{i}": {"centre": "B" if i < 4 else "A"} for i in range(12)}
    score = [0.4 + 0.01 * i if i < 4 else 0.8 + 0.01 * i for i in range(12)]
    found = divergent_subgroups(score, list(rows.values()))
    weights = weights_of(found, rows, strength=5.0, least_t=1.0, most=4.0)
    assert np.mean(list(weights.values())) == pytest.approx(1.0)
    assert weights["c0"] / weights["c11"] == pytest.approx(1 - 5 * found[0].divergence)
    assert set(weights_of(found, rows, strength=0.0, least_t=1.0, most=4.0).values()) == {1.0}
    assert set(weights_of(found, rows, strength=5.0, least_t=1e9, most=4.0).values()) == {1.0}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(4, 40))
def test_divergences_of_a_columns_groups_balance(seed, n):
    """Where a column is known for all, its groups' divergences weighted by size sum to zero."""
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    rows = [{"c": str(v)} for v in rng.integers(0, 2, n)]
    found = divergent_subgroups(score, rows, support=0.0, longest=1)
    if len(found) == 2:
        assert sum(g.cases * g.divergence for g in found) == pytest.approx(0.0, abs=1e-9)
    for group in found:
        inside = [s for s, row in zip(score, rows, strict=True) if group.holds(row)]
        assert group.mean == pytest.approx(np.mean(inside)) and group.cases == len(inside)


def test_attributes_are_words_and_empty_cells_are_none():
    clinical = {"age": 40.0, "subtype": " luminal ", "vendor": "", "site": None, "field": float("nan")}
    columns = ("age", "subtype", "vendor", "site", "field", "dataset")
    assert attributes_of(clinical, "DUKE", columns) == {
        "age": "group 0",
        "subtype": "luminal",
        "dataset": "DUKE",
    }
    assert attributes_of({"age": "old"}, "DUKE", ("age",)) == {}
    assert attributes_of({"age": 71}, "DUKE", ("age",)) == {"age": "group 4"}
