"""The fused instance norm against torch's own, and where a network's weights lie."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from torch.nn import functional  # noqa: E402

from elsewhere.training.cuda_options import CONSERVATIVE, use_cuda_options  # noqa: E402
from elsewhere.training.joint.shared import build_shared  # noqa: E402
from elsewhere.training.volumes import build_network, fingerprint, make_plan  # noqa: E402
from elsewhere.training.volumes.networks import FusedInstanceNorm, layout_of  # noqa: E402
from worlds.ball_volumes import TINY, ball_volumes  # noqa: E402


def maps(dtype=torch.float32, *, shape=(3, 5, 4, 6, 7)):
    generator = torch.Generator().manual_seed(1)
    x = 3 + 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    weight, bias = (torch.rand(shape[1], generator=generator, dtype=torch.float64) for _ in range(2))
    kind = torch.promote_types(dtype, torch.float32)
    x = x.to(dtype).contiguous(memory_format=torch.channels_last_3d)
    return x.requires_grad_(), weight.to(kind).requires_grad_(), bias.to(kind).requires_grad_()


def both(dtype, tolerance):
    """The fused norm and torch's own, with an activation in place after each, forward and backward."""
    found = []
    for norm in (
        lambda x, w, b: FusedInstanceNorm.apply(x, w, b, 1e-5),
        lambda x, w, b: functional.instance_norm(x.float(), weight=w, bias=b, eps=1e-5).to(x.dtype),
    ):
        x, w, b = maps(dtype)
        out = functional.leaky_relu_(norm(x, w, b), 0.01)
        slope = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
        (out.float() * slope).sum().backward()
        found.append([out, x.grad, w.grad, b.grad])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        assert torch.allclose(one.float(), other.float(), atol=tolerance, rtol=tolerance)
    return found[0]


def test_fused_norm_is_instance_norm_forward_and_backward():
    out, grad, *_ = both(torch.float32, 1e-4)
    assert out.is_contiguous(memory_format=torch.channels_last_3d)
    assert grad.is_contiguous(memory_format=torch.channels_last_3d)


def test_fused_norm_sums_half_precision_maps_in_single():
    both(torch.bfloat16, 0.05)
    x, w, b = maps(torch.bfloat16, shape=(1, 2, 64, 64, 64))
    with torch.no_grad():
        out = FusedInstanceNorm.apply(x + 100, w.fill_(1), b.fill_(0), 1e-5).double()
    assert out.mean((2, 3, 4)).abs().max() < 0.01 and (out.std((2, 3, 4)) - 1).abs().max() < 0.01


def test_the_derivative_of_the_fused_norm_is_its_own():
    def norm(x, weight, bias):
        layout = x.contiguous(memory_format=torch.channels_last_3d)
        return FusedInstanceNorm.apply(layout, weight, bias, 1e-5)

    x, w, b = (t.detach().requires_grad_() for t in maps(torch.float64, shape=(2, 3, 2, 2, 3)))
    assert torch.autograd.gradcheck(norm, (x, w, b), check_batched_grad=False)


@pytest.mark.parametrize("build", [build_network, build_shared])
def test_a_network_lies_as_the_options_say(build):
    volumes, _ = ball_volumes(2)
    plan = make_plan(fingerprint(volumes, list(volumes.images), "three"), "three", **TINY)
    assert layout_of(build(plan, seed=0, device="cpu")) == torch.channels_last_3d
    with use_cuda_options(CONSERVATIVE):
        assert layout_of(build(plan, seed=0, device="cpu")) == torch.contiguous_format
