"""Recording a step, as far as a CPU can tell: the same numbers as without it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("monai")

from elsewhere.training.cuda_options import CudaOptions, use_cuda_options  # noqa: E402
from elsewhere.training.volumes import (  # noqa: E402
    FitSettings,
    build_network,
    fingerprint,
    fit,
    make_plan,
    prepare,
)
from worlds.ball_volumes import TINY, ball_volumes  # noqa: E402


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

    from elsewhere.training.volumes import fitting, program

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
    monkeypatch.setattr(program, "fixed_shapes", lambda on_gpu: contextlib.nullcontext())

    class Program(program.StepProgram):
        def __init__(self, *given):
            super().__init__(*given)
            self.on_gpu = True
            FakeGraph.program = self
            group = self.optimiser.param_groups[0]
            group["lr"] = self.rate
            group["capturable"] = False

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

    def losses(options):
        with use_cuda_options(options):
            done = fit(build_network(plan, seed=0), data, plan, settings, seed=0)
        return [entry["train_loss"] for entry in done.history]

    plain = losses(CudaOptions(captured=False))
    assert not captures
    assert losses(CudaOptions()) == pytest.approx(plain, rel=1e-5)
    assert len(captures) == 1
