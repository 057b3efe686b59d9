"""The ways of a GPU, as far as a CPU can tell: the same numbers, and who chooses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from torch.nn import functional  # noqa: E402

from elsewhere.training.joint.shared import build_shared  # noqa: E402
from elsewhere.training.volumes import (  # noqa: E402
    FitSettings,
    build_network,
    fingerprint,
    fit,
    make_plan,
    prepare,
)
from elsewhere.training.volumes.networks import FusedInstanceNorm, layout_of  # noqa: E402
from elsewhere.training.volumes.ways import SAFEST, GpuWays, gpu_ways, using  # noqa: E402
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


def test_ways_hold_inside_alone():
    assert gpu_ways() == GpuWays()
    with pytest.raises(KeyError), using(SAFEST):
        assert not gpu_ways().captured
        raise KeyError
    assert gpu_ways() == GpuWays()


@pytest.mark.parametrize("build", [build_network, build_shared])
def test_a_network_lies_as_the_ways_say(build):
    volumes, _ = ball_volumes(2)
    plan = make_plan(fingerprint(volumes, list(volumes.images), "three"), "three", **TINY)
    assert layout_of(build(plan, seed=0, device="cpu")) == torch.channels_last_3d
    with using(SAFEST):
        assert layout_of(build(plan, seed=0, device="cpu")) == torch.contiguous_format


def test_a_fitted_network_holds_no_gradients():
    """A captured step's gradients lie in the graph's own memory: held, they would hold all of it."""
    volumes, _ = ball_volumes(2)
    cases = list(volumes.images)
    plan = make_plan(fingerprint(volumes, cases, "three"), "three", **TINY)
    network = build_network(plan, seed=0)
    fit(
        network,
        prepare(volumes, cases, plan, "three"),
        plan,
        FitSettings(epochs=1, steps_per_epoch=1),
        seed=0,
    )
    assert all(p.grad is None for p in network.parameters())


class FakeGraph:
    """Replays by doing the step again, as a CUDA graph does."""

    program = None

    def replay(self):
        self.program.optimiser.zero_grad(set_to_none=True)
        self.program._step()


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_capturing_leaves_no_trace_in_weights_or_optimiser(monkeypatch, optimiser):
    """Its warm-up steps are undone: what follows is what would have been without it, also after a kill."""
    import contextlib

    from elsewhere.training.volumes import fitting

    captures = []

    class Stream:
        def __init__(self, device):
            self.device = device

        def wait_stream(self, other):
            pass

        synchronize = wait_event = lambda self: None

    @contextlib.contextmanager
    def graph(made, stream):
        captures.append(made)
        yield

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(fitting, "fastest", lambda on_gpu: contextlib.nullcontext())

    class Program(fitting.StepProgram):
        def __init__(self, *given):
            super().__init__(*given)
            self.on_gpu = True
            FakeGraph.program = self
            group = self.optimiser.param_groups[0]
            group["lr"] = self.rate
            group["capturable"] = False

        def autocast(self):
            return contextlib.nullcontext()

        def epoch(self, draws, rate):
            self.optimiser.param_groups[0]["lr"] = rate
            return super().epoch(draws, rate)

    monkeypatch.setattr(fitting, "StepProgram", Program)
    volumes, _ = ball_volumes(3)
    cases = list(volumes.images)
    plan = make_plan(fingerprint(volumes, cases, "three"), "three", **TINY)
    data = prepare(volumes, cases, plan, "three")
    settings = FitSettings(
        epochs=3, steps_per_epoch=2, compiled=False, optimiser=optimiser, learning_rate=1e-3, momentum=0.9
    )

    def losses(ways):
        with using(ways):
            done = fit(build_network(plan, seed=0), data, plan, settings, seed=0)
        return [entry["train_loss"] for entry in done.history]

    plain = losses(GpuWays(captured=False))
    assert not captures
    assert losses(GpuWays()) == pytest.approx(plain, rel=1e-5)
    assert len(captures) == 1
