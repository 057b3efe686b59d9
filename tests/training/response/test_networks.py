"""Published weights of video networks."""

from __future__ import annotations

import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.training.response.networks import build_response_network


def test_published_weights_fit_and_a_stem_of_one_channel_answers_a_grey_picture_alike(tmp_path):
    from torchvision.models.video import mc3_18

    whole = mc3_18(weights=None)
    torch.save(whole.state_dict(), tmp_path / "mc3_18.pth")
    three = build_response_network("mc3_18", phases=3, weights=str(tmp_path), seed=1).eval()
    one = build_response_network("mc3_18", phases=1, weights=str(tmp_path / "mc3_18.pth"), seed=1).eval()
    x = torch.rand(1, 1, 16, 16, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(three.features(x.expand(-1, 3, -1, -1, -1)), one.features(x), atol=1e-4)
    with pytest.raises(UserError, match="do not fit r2plus1d_18"):
        build_response_network("r2plus1d_18", phases=3, weights=str(tmp_path / "mc3_18.pth"))
    with pytest.raises(UserError, match="unknown network 'r3d_17'"):
        build_response_network("r3d_17", phases=3)
