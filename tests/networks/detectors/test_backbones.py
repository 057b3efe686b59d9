"""Bodies of detectors: four maps each, and a pyramid (DBT-16)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.errors import UserError  # noqa: E402
from elsewhere.networks.detectors.backbones import BODIES, Backbone, MultiScaleConv, body_entry  # noqa: E402
from elsewhere.networks.detectors.slice_classifier import build_slice_classifier  # noqa: E402


@pytest.mark.parametrize("name", BODIES)
def test_each_body_has_four_maps_of_the_promised_widths(name):
    body = body_entry(name).build().eval()
    with torch.no_grad():
        maps = body(torch.rand(1, 3, 64, 96))
    assert [tuple(one.shape[1:]) for one in maps] == [
        (width, 64 // step, 96 // step)
        for width, step in zip(BODIES[name].widths, (4, 8, 16, 32), strict=True)
    ]


@pytest.mark.parametrize(("levels", "steps"), [("pool", (4, 8, 16, 32, 64)), ("conv", (8, 16, 32, 64, 128))])
def test_the_pyramid_has_five_levels_of_one_width(levels, steps):
    maps = Backbone("plain", channels=20, levels=levels)(torch.rand(1, 3, 128, 256))
    assert [tuple(one.shape[1:]) for one in maps.values()] == [
        (20, 128 // step, 256 // step) for step in steps
    ]


def test_groups_of_a_res2net_feed_each_other_but_not_where_the_map_is_halved():
    for stride, reaches in ((1, True), (2, False)):
        conv = MultiScaleConv(16, stride).eval()
        x = torch.rand(1, 16, 8, 8)
        other = x.clone()
        other[:, 4:8] += 1  # the second group
        with torch.no_grad():
            change = (conv(x) - conv(other)).abs().amax(dim=(0, 2, 3))
        assert change[4:8].max() > 0 and change[:4].max() == 0
        assert (change[8:].max() > 0) == reaches


def test_an_unknown_body_is_refused():
    with pytest.raises(UserError, match="unknown backbone"):
        Backbone("resnet51")


def test_slice_classifiers_take_slices_of_any_shape():
    model = build_slice_classifier("efficientnet-lite0").eval()
    assert model.score(torch.rand(2, 3, 96, 64)).shape == (2,)
    loss = build_slice_classifier("tiny-cnn").losses(torch.rand(2, 3, 64, 32), torch.tensor([0, 1]))
    assert set(loss) == {"score"}
    with pytest.raises(UserError, match="squares"):
        build_slice_classifier("vit-b-16")


def test_timm_is_asked_for_by_name():
    try:
        import timm  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="needs timm"):
            build_slice_classifier("nfnet-f0")
