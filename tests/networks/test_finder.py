"""Finders: sizes, parameters, and where their encoder's weights come from."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.networks.finder import FINDERS, build_finder  # noqa: E402


@pytest.mark.parametrize("name", sorted(FINDERS))
def test_every_finder_gives_logits_at_half_the_size(name):
    model = build_finder(name, seed=1).eval()
    with torch.no_grad():
        assert model(torch.rand((2, 3, 64, 96))).shape == (2, 1, 32, 48)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters < 4_500_000
    same, other = build_finder(name, seed=1), build_finder(name, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    assert not torch.equal(model.head.weight, other.head.weight)


def test_the_encoder_takes_the_classifiers_weights(tmp_path):
    from elsewhere.networks import build_network

    classifier = build_network("efficientnet-lite0", seed=4)
    path = tmp_path / "lite0.pth"
    torch.save(classifier.body.state_dict() | {"_fc.weight": torch.zeros(1000, 1280)}, path)
    model = build_finder(
        "finder-lite0", weights="imagenet", known={"efficientnet-lite0/imagenet": path}, seed=7
    )
    assert torch.equal(model.encoder.stem.weight, classifier.body._conv_stem.weight)
    assert torch.equal(
        model.encoder.blocks[5]._depthwise_conv.weight, classifier.body._blocks[5]._depthwise_conv.weight
    )
    fresh = build_finder("finder-lite0", seed=7)
    assert torch.equal(model.head.weight, fresh.head.weight)
    assert not torch.equal(model.encoder.stem.weight, fresh.encoder.stem.weight)
    whole = tmp_path / "whole.pt"
    torch.save(fresh.state_dict(), whole)
    again = build_finder("finder-lite0", weights=str(whole), seed=1)
    assert torch.equal(again.head.weight, fresh.head.weight)
