"""A method that ignores the weights must fail; one that uses them must pass."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from elsewhere.explain import grad_cam, map_similarity, method_for, randomised, sanity_check


def edges(_model, images):
    """An edge detector: pretty, and blind to the network."""
    grey = images.mean(1)
    across = (grey[:, :, 1:] - grey[:, :, :-1]).abs()
    return torch.nn.functional.pad(across, (0, 1)).numpy()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_grad_cam_of_a_trained_network_passes(trained):
    net, images, *_ = trained
    before = copy.deepcopy(net.state_dict())
    _, method = method_for(net, layer="relu_b")
    check = sanity_check(net, images, method, generator())
    assert check.passed, check
    assert check.rank_correlation < check.threshold
    assert check.pictures + check.flat == len(images)
    assert check.pictures >= len(images) / 2
    assert [name for name, _ in check.cascade] == ["head", "norm", "b", "a"]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_an_edge_detector_fails(trained):
    net, images, *_ = trained
    check = sanity_check(net, images, edges, generator())
    assert not check.passed
    assert check.rank_correlation == pytest.approx(1)
    assert check.ssim == pytest.approx(1)
    assert all(value == pytest.approx(1) for _, value in check.cascade)
    assert "does not show what was learnt" in check.reason


def test_flat_maps_fail(trained):
    net, images, *_ = trained
    check = sanity_check(
        net, images, lambda model, x: np.zeros((len(x), 4, 4), dtype=np.float32), generator()
    )
    assert not check.passed
    assert "flat" in check.reason
    assert (check.pictures, check.flat) == (0, len(images))


def test_pictures_with_a_flat_map_are_set_aside_and_counted(trained):
    net, images, *_ = trained

    def first_only(model, x):
        maps = edges(model, x)
        maps[1:] = 0
        return maps

    check = sanity_check(net, images, first_only, generator(), stages=2, repeats=1)
    assert (check.pictures, check.flat) == (1, len(images) - 1)
    assert check.rank_correlation == pytest.approx(1)
    assert all(value == pytest.approx(1) for _, value in check.cascade)


def test_the_same_generator_gives_the_same_check(trained):
    net, images, *_ = trained
    _, method = method_for(net, layer="relu_b")
    first, again = (sanity_check(net, images[:6], method, generator(3), repeats=1) for _ in range(2))
    assert first == again
    assert sanity_check(net, images[:6], method, generator(4), repeats=1) != first


def test_randomised_layers_change_alone_and_keep_their_spread(trained):
    net, images, *_ = trained
    other = randomised(net, generator(), layers=["b"])
    assert torch.equal(other.a.weight, net.a.weight)
    assert not torch.equal(other.b.weight, net.b.weight)
    assert float((other.b.weight.std() / net.b.weight.std()).detach()) == pytest.approx(1, abs=0.15)
    settled = randomised(net, generator(), images=images)
    assert torch.isfinite(settled(images)).all()
    with torch.no_grad():
        before_norm = settled[:4](images)
    assert torch.allclose(settled.norm.running_mean, before_norm.mean((0, 2, 3)), atol=1e-5)
    assert not settled.norm.training


def test_similarity_known_answers():
    rng = np.random.default_rng(0)
    a = rng.random((2, 20, 20))
    ranks, ssim = map_similarity(a, a)
    assert ranks == pytest.approx([1, 1])
    assert ssim == pytest.approx([1, 1])
    assert map_similarity(a, 1 - a)[0] == pytest.approx([-1, -1])
    assert map_similarity(a, a**3)[0] == pytest.approx([1, 1])
    assert abs(map_similarity(a, rng.random((2, 20, 20)))[0]).max() < 0.2
    flat = np.zeros((2, 20, 20))
    assert list(map_similarity(a, flat)[0]) == [0, 0]
    assert np.isnan(map_similarity(flat, flat)[0]).all()
    with pytest.raises(ValueError, match="compared"):
        map_similarity(a, a[:1])


def test_labels_that_were_shuffled_teach_another_map(trained):
    """Adebayo's second check, for callers who train such a network: the same method, another network."""
    net, images, truth, _ = trained
    noise = randomised(net, generator(), images=images)
    other = torch.optim.Adam(noise.parameters(), 1e-2)
    wrong = truth[torch.randperm(len(truth), generator=generator(1))]
    for _ in range(20):
        other.zero_grad()
        torch.nn.functional.cross_entropy(noise(images), wrong).backward()
        other.step()
    real, shuffled = (grad_cam(one, "relu_b", images) for one in (net, noise))
    assert map_similarity(real, shuffled)[0].mean() < 0.5
