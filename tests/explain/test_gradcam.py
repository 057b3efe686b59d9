"""Maps of networks whose relevant region is known by construction; gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from elsewhere.errors import UserError
from elsewhere.explain import grad_cam, method_for, occlusion_map, target_score, to_unit


class Corner(nn.Module):
    """Log-odds = sum of the pixels of the upper left 8 x 8, times `gain`; the benign logit adds an equal shift."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain
        self.conv = nn.Conv2d(3, 1, 1, bias=False)
        nn.init.constant_(self.conv.weight, 1 / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.gain * self.conv(x)[:, 0, :8, :8].sum(dim=(1, 2))
        gauge = x.sum(dim=(1, 2, 3))
        return torch.stack([gauge, gauge + value], dim=1)


class TwoDetectors(nn.Module):
    """Channel 0 sees the picture as it is and speaks for malignant, channel 1 its negative and speaks against."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=True)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.conv.weight[0] = 1 / 3
            self.conv.weight[1] = -1 / 3
            self.conv.bias.copy_(torch.tensor([-0.5, 0.5]))
            self.head.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, -2.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.conv(x)).mean(dim=(2, 3)))


def test_log_odds_do_not_move_with_a_shift_of_all_logits():
    logits = torch.tensor([[1.0, 3.0, 0.5], [0.0, -2.0, 4.0]])
    assert torch.allclose(target_score(logits), target_score(logits + 7))
    probability = torch.softmax(logits, 1)[:, 1]
    assert torch.allclose(torch.sigmoid(target_score(logits)), probability)
    assert torch.equal(target_score(logits[:, :1]), logits[:, 0])
    with pytest.raises(ValueError, match="classes"):
        target_score(logits[0])


def test_unit_maps_keep_what_speaks_for_the_class():
    maps = np.array([[[-3.0, 1.0], [2.0, 4.0]], [[-1.0, -2.0], [0.0, 0.0]]])
    assert np.array_equal(to_unit(maps), [[[0, 0.25], [0.5, 1]], [[0, 0], [0, 0]]])


def test_occlusion_finds_the_corner_that_decides_and_its_exact_drop():
    images = torch.full((2, 3, 24, 24), 0.5)
    images[1] = 1.0
    maps = occlusion_map(Corner(), images, patch=8, stride=8, fill=0.0)
    expected = np.zeros((2, 24, 24), dtype=np.float32)
    expected[0, :8, :8], expected[1, :8, :8] = 32.0, 64.0
    assert np.allclose(maps, expected, atol=1e-4)


def test_occlusion_averages_over_the_squares_that_cover_a_pixel():
    images = torch.ones((1, 3, 12, 12))
    maps = occlusion_map(Corner(), images, patch=8, stride=4, fill=0.0)
    # squares start at 0 and 4 in each direction: 8x8, 4x8, 8x4 and 4x4 of the corner are hidden
    assert maps[0, 0, 0] == pytest.approx(64)
    assert maps[0, 0, 5] == pytest.approx((64 + 32) / 2)
    assert maps[0, 5, 5] == pytest.approx((64 + 32 + 32 + 16) / 4)
    assert maps[0, 11, 11] == pytest.approx(16)


@pytest.mark.parametrize(("patch", "stride"), [(5, 3), (7, 7), (4, 1)])
def test_occlusion_by_hand_square_by_square(patch, stride):
    generator = torch.Generator().manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 10 * 8, 2)).eval()
    images = torch.rand((2, 3, 12, 10), generator=generator)
    maps = occlusion_map(net, images, patch=patch, stride=stride, batch=7, measure="probability")
    with torch.no_grad():
        for at in range(2):
            total, count = np.zeros((12, 10)), np.zeros((12, 10))
            whole = torch.softmax(net(images[at : at + 1]), 1)[0, 1].item()
            for y in sorted({*range(0, 12 - patch + 1, stride), 12 - patch}):
                for x in sorted({*range(0, 10 - patch + 1, stride), 10 - patch}):
                    hidden = images[at : at + 1].clone()
                    hidden[:, :, y : y + patch, x : x + patch] = images[at].mean()
                    fall = whole - torch.softmax(net(hidden), 1)[0, 1].item()
                    total[y : y + patch, x : x + patch] += fall
                    count[y : y + patch, x : x + patch] += 1
            assert count.min() > 0
            assert np.allclose(maps[at], total / count, atol=1e-5)


def test_occlusion_does_not_depend_on_the_batch():
    images = torch.rand((3, 3, 16, 16), generator=torch.Generator().manual_seed(2))
    one, many = (occlusion_map(Corner(0.1), images, patch=4, stride=2, batch=b) for b in (1, 1000))
    assert np.allclose(one, many, atol=1e-5)


def test_squares_that_leave_gaps_are_refused():
    with pytest.raises(UserError, match="do not cover"):
        occlusion_map(Corner(), torch.zeros((1, 3, 16, 16)), patch=4, stride=5)
    with pytest.raises(UserError, match="unknown measure"):
        occlusion_map(Corner(), torch.zeros((1, 3, 16, 16)), measure="logodds")


def test_grad_cam_of_two_detectors_is_the_formula():
    images = torch.zeros((1, 3, 16, 16))
    images[:, :, 4:8, 10:14] = 1.0
    maps = grad_cam(TwoDetectors(), "act", images)
    # bright place: 3/256 * 0.5; dark place: -2/256 * 0.5, cut to nothing
    expected = np.zeros((16, 16), dtype=np.float32)
    expected[4:8, 10:14] = 1.0
    assert np.allclose(maps[0], expected, atol=1e-6)
    against = grad_cam(TwoDetectors(), "act", images, target_class=0)
    assert np.allclose(against[0], 1 - expected, atol=1e-6)


def test_a_layer_before_an_in_place_activation_is_kept_as_it_was():
    images = torch.zeros((1, 3, 16, 16))
    images[:, :, 4:8, 10:14] = 1.0
    maps = grad_cam(TwoDetectors(), "conv", images)
    # before the activation the channels carry +-0.5; their mean slopes are those of the places that pass it
    for_it = 3 * 16 / 256 / 256
    against = -2 * 240 / 256 / 256
    bright = for_it * 0.5 + against * -0.5
    dark = for_it * -0.5 + against * 0.5
    assert bright > 0 > dark
    assert maps[0, 5, 11] == pytest.approx(1)
    assert maps[0, 0, 0] == 0


def test_channel_weights_agree_with_finite_differences():
    generator = torch.Generator().manual_seed(3)
    first = nn.Conv2d(3, 5, 3, padding=1).double()
    rest = nn.Sequential(nn.Softplus(), nn.Conv2d(5, 2, 8), nn.Flatten()).double()
    net = nn.Sequential(first, rest)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    images = torch.rand((6, 3, 8, 8), generator=generator, dtype=torch.float64)
    step = 1e-5
    with torch.no_grad():
        at = first(images)
        weight = torch.empty((6, 5), dtype=torch.float64)
        for channel in range(5):
            bump = torch.zeros_like(at)
            bump[:, channel] = step
            up, down = target_score(rest(at + bump)), target_score(rest(at - bump))
            # all 64 places moved at once: 64 times their mean slope
            weight[:, channel] = (up - down) / (2 * step) / 64
        cam = torch.relu((weight[:, :, None, None] * at).sum(1)).numpy()
    assert (cam.max(axis=(1, 2)) > 0).sum() >= 3
    assert np.allclose(grad_cam(net, first, images), to_unit(cam), atol=1e-5)


def test_frozen_weights_and_dropout_do_not_matter_and_the_mode_comes_back():
    net = TwoDetectors()
    net.requires_grad_(False)
    net.train()
    net.conv.eval()
    images = torch.rand((3, 3, 8, 8), generator=torch.Generator().manual_seed(4))
    parts = grad_cam(net, "act", images, batch=2)
    assert np.allclose(parts, grad_cam(net, "act", images))
    assert net.training
    assert not net.conv.training
    assert not net.act._forward_hooks


def test_grad_cam_where_there_is_no_picture_left_says_what_to_do():
    with pytest.raises(UserError, match="occlusion"):
        grad_cam(TwoDetectors(), "head", torch.rand((1, 3, 8, 8)))
    with pytest.raises(UserError, match="does not depend on the layer"):
        idle = nn.Conv2d(3, 1, 1)
        grad_cam(TwoDetectors(), idle, torch.rand((1, 3, 8, 8)))


def test_the_method_follows_the_network():
    net = TwoDetectors()
    assert method_for(net)[0] == "occlusion"
    net.last_conv = "act"
    assert method_for(net)[0] == "grad-cam"
    assert method_for(net, "occlusion")[0] == "occlusion"
    with pytest.raises(UserError, match="grad-cam"):
        method_for(net, "gradcam")
    net.last_conv = None
    with pytest.raises(UserError, match="convolution"):
        method_for(net, "grad-cam")


@pytest.mark.parametrize("name", ["grad-cam", "occlusion"])
def test_both_methods_point_at_the_spot_of_a_trained_network(trained, name):
    from elsewhere.explain import relevance_inside

    net, images, truth, corner = trained
    images, corner = images[truth == 1], corner[truth == 1]
    _, method = method_for(net, name, layer="relu_b")
    maps = method(net, images)
    assert maps.shape == (len(images), 32, 32)
    assert maps.min() >= 0
    assert maps.max() <= 1
    regions = np.zeros(maps.shape, dtype=bool)
    for at, (y, x) in enumerate(corner.tolist()):
        regions[at, y - 2 : y + 10, x - 2 : x + 10] = True
    found = relevance_inside(maps, regions)
    assert np.mean([one.hit for one in found]) > 0.8
    assert np.median([one.enrichment for one in found]) > 2


@pytest.mark.parametrize("name", ["tiny-cnn", "efficientnet-lite0", "efficientnet-b0"])
def test_networks_of_the_study_have_a_layer_for_grad_cam(name):
    from elsewhere.networks import build_network

    net = build_network(name, size_px=64, seed=1)
    images = torch.rand((2, 3, 64, 64), generator=torch.Generator().manual_seed(6))
    used, method = method_for(net)
    maps = method(net, images)
    assert used == "grad-cam"
    assert maps.shape == (2, 64, 64)
    assert np.isfinite(maps).all()


def test_a_transformer_is_explained_by_occlusion():
    from elsewhere.networks.classifiers import NETWORKS

    assert NETWORKS["vit-b-16"].last_conv is None
