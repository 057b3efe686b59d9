"""Segmenters: shapes, published names of parameters, and weights that do not fit (LN-09)."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from elsewhere.errors import UserError
from elsewhere.networks.efficientnet_lite import EfficientNetLite, SameConv
from elsewhere.networks.segmenters import (
    SEGMENTERS,
    build_segmenter,
    find_segmenter_weights,
    segmenter_weights_digest,
)
from elsewhere.networks.segmenters.layers import BilinearUpsample, MaskedDropout

V3 = "deeplab-mobilenet-v3"


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """For every test of this file."""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Files in the layouts that torchvision publishes, with weights of no use."""
    from torchvision.models import mobilenet_v2, mobilenet_v3_large
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(3)
    networks = {
        "coco": deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=21, aux_loss=True
        ),
        "imagenet": mobilenet_v3_large(weights=None),
        "v2": mobilenet_v2(weights=None),
        "lite0": EfficientNetLite("efficientnet-lite0"),
    }
    for name, network in networks.items():
        torch.save(network.state_dict(), folder / f"{name}.pth")
    return folder, networks


@pytest.mark.parametrize("name", SEGMENTERS)
def test_logits_have_the_size_of_the_patch_and_every_weight_has_a_gradient(name):
    model = build_segmenter(name).train()
    logits = model(torch.rand(2, 3, 64, 48))
    assert logits.shape == (2, 1, 64, 48)
    (logits**2).sum().backward()
    assert all(value.grad is not None for value in model.parameters())


def test_fresh_weights_follow_the_seed_and_leave_the_global_state_alone():
    before = torch.random.get_rng_state()
    one, same, other = (build_segmenter("deeplab-tiny", seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_torchvisions_network_gives_the_same_logits(published):
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    folder, networks = published
    mine = build_segmenter(V3, path=folder / "coco.pth").train()
    theirs = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=1).train()
    coco = networks["coco"].state_dict()
    theirs.load_state_dict(
        {name: value for name, value in coco.items() if not name.startswith(("classifier.4", "aux"))},
        strict=False,
    )
    theirs.classifier[4].load_state_dict(mine.network.classifier[4].state_dict())
    for part in (*mine.modules(), *theirs.modules()):
        # Batch statistics stay, so that the signal does not vanish in fresh weights; dropout does not.
        if isinstance(part, nn.Dropout | MaskedDropout):
            part.eval()
    x = torch.rand(2, 3, 128, 96)
    with torch.no_grad():
        expected = theirs((x - mine.mean) / mine.deviation)["out"]
        found = mine(x)
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("network", "file", "theirs", "ours"),
    [
        (V3, "coco", "classifier.0.convs.2.0.weight", "network.classifier.0.convs.2.0.weight"),
        (V3, "coco", "backbone.16.0.weight", "network.backbone.16.0.weight"),
        (V3, "imagenet", "features.16.0.weight", "network.backbone.16.0.weight"),
        ("deeplab-mobilenet-v2", "v2", "features.17.conv.2.weight", "network.backbone.17.conv.2.weight"),
        (
            "deeplab-lite0",
            "lite0",
            "_blocks.3._project_conv.weight",
            "network.backbone.encoder.blocks.3._project_conv.weight",
        ),
    ],
)
def test_published_names_reach_their_place(published, network, file, theirs, ours):
    folder, networks = published
    model = build_segmenter(network, path=folder / f"{file}.pth", seed=1)
    assert torch.equal(model.state_dict()[ours], networks[file].state_dict()[theirs])
    fresh = build_segmenter(network, seed=1).state_dict()
    head = "network.classifier.4.weight"
    assert torch.equal(model.state_dict()[head], fresh[head]), "the last layer is for other classes"


def test_a_saved_network_is_loaded_whole(tmp_path):
    model = build_segmenter("unet-tiny", seed=4)
    torch.save({"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, tmp_path / "a.pt")
    again = build_segmenter("unet-tiny", path=tmp_path / "a.pt", seed=5)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("network", "file"),
    [
        (V3, "v2"),
        ("deeplab-mobilenet-v2", "imagenet"),
        ("deeplab-lite0", "coco"),
        ("unet", "v2"),
        (V3, "lite0"),
    ],
)
def test_weights_of_another_network_are_refused_by_name(published, network, file):
    with pytest.raises(UserError, match=f"do not fit {network}") as caught:
        build_segmenter(network, path=published[0] / f"{file}.pth")
    assert file in str(caught.value)


def test_files_that_are_no_state_dict_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(nn.Linear(2, 2), path)
    with pytest.raises(UserError, match="cannot be loaded"):
        build_segmenter("unet", path=path)
    path.write_bytes(b"PK no archive")
    with pytest.raises(UserError, match="cannot be loaded"):
        build_segmenter("unet", path=path)
    torch.save([1, 2], path)
    with pytest.raises(UserError, match="holds no state dict"):
        build_segmenter("unet", path=path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    state = build_segmenter("unet-tiny").state_dict()
    state["network.head.bias"] = torch.tensor([float("nan")])
    torch.save(state, tmp_path / "a.pt")
    with pytest.raises(
        UserError, match="1 parameters hold values that are not finite, first network"
    ):
        build_segmenter("unet-tiny", path=tmp_path / "a.pt")


def test_names_of_weights(tmp_path):
    assert find_segmenter_weights(V3, "none") is None
    file = tmp_path / "w.pth"
    file.write_bytes(b"12")
    assert find_segmenter_weights(V3, "coco", {f"{V3}/coco": file}) == file
    assert find_segmenter_weights(V3, str(file)) == file
    assert segmenter_weights_digest(V3, str(file)).startswith("6b51d431df5d7f141cbececcf79edf3d")
    with pytest.raises(UserError, match="no coco weights are published for segmenter 'unet'"):
        find_segmenter_weights("unet", "coco")
    with pytest.raises(UserError, match="no such file of weights"):
        find_segmenter_weights(V3, "imagenets")
    with pytest.raises(UserError, match="segmenter"):
        find_segmenter_weights("deeplab", "none")


def test_weights_that_cannot_be_fetched_say_what_to_do(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(
        UserError, match="COCO weights of deeplab-mobilenet-v3 could not be fetched"
    ) as caught:
        find_segmenter_weights(V3, "coco")
    assert "deeplab-lite0" in str(caught.value)


def test_enlarging_equals_torchs_bilinear_interpolation():
    x = torch.rand(2, 3, 5, 7)
    expected = functional.interpolate(x, scale_factor=16.0, mode="bilinear", align_corners=False)
    torch.testing.assert_close(BilinearUpsample(16)(x), expected, rtol=1e-5, atol=1e-6)


def test_a_same_convolution_that_is_dilated_keeps_the_size():
    conv = SameConv(1, 1, 5, bias=False)
    conv.dilation = (2, 2)
    x = torch.rand(1, 1, 9, 9)
    expected = functional.conv2d(x, conv.weight, padding=4, dilation=2)
    assert torch.equal(conv(x), expected)


def test_dropout_follows_its_mask():
    layer = MaskedDropout(0.5).train()
    layer.mask = torch.tensor([[[[True, False]]]])
    assert layer(torch.ones(1, 1, 1, 2)).tolist() == [[[[2.0, 0.0]]]]
    assert layer.eval()(torch.ones(1, 1, 1, 2)).tolist() == [[[[1.0, 1.0]]]]
