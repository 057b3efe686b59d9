"""Masked autoencoding: what is hidden, and what is learnt from the rest."""

from __future__ import annotations

import numpy as np
import torch

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.joint.masked import MaskedAutoencoder, copy_pretrained, masked_objective
from elsewhere.training.volumes import FitSettings, build_network, fit, prepare
from worlds.ball_volumes import SMALL_PLAN as PLAN


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
    network = MaskedAutoencoder(PLAN, seed=1, hidden=0.75, block=4).train()
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
    network = MaskedAutoencoder(PLAN, seed=1, hidden=0.75, block=4).eval()
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
    data = prepare(volumes, names, PLAN, (0, 1), need_mask=False)
    network = MaskedAutoencoder(PLAN, seed=1, hidden=0.6, block=4)
    how = FitSettings(
        epochs=4,
        steps_per_epoch=40,
        optimiser="adamw",
        learning_rate=5e-3,
        foreground=0.0,
        augment=False,
        compiled=False,
    )
    done = fit(network, data.subset(names[:10]), PLAN, how, seed=3, objective=masked_objective)
    assert done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    network.eval()
    image = torch.stack([data.volume(name)[0][:, :16, :16, :8] for name in names[10:]])
    with torch.no_grad():
        drawn, hidden = network(image)
    error = ((drawn - image).square() * hidden).sum()
    flat = (image.square() * hidden).sum()
    assert float(error) < 0.5 * float(flat)


def test_the_encoder_is_handed_over_and_the_heads_are_not():
    pretrained = MaskedAutoencoder(PLAN, seed=1)
    network = build_network(PLAN, seed=2)
    heads = {k: v.clone() for k, v in network.decoder.heads.state_dict().items()}
    copy_pretrained(pretrained, network)
    for name, value in pretrained.encoder.state_dict().items():
        assert torch.equal(network.encoder.state_dict()[name], value)
    assert all(torch.equal(network.decoder.heads.state_dict()[k], v) for k, v in heads.items())
