"""The captured, compiled and streamed ways against the plain one, on a GPU.

On a bare machine without pytest, from the repository's root:
`PYTHONPATH=src:.:carried python3 -m tests.training.volumes.test_on_gpu`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from elsewhere.training.cuda_options import CONSERVATIVE, use_cuda_options
from elsewhere.training.volumes import (
    FitSettings,
    build_network,
    fingerprint,
    fit,
    make_plan,
    predict,
    prepare,
)
from worlds.ball_volumes import TINY, ball_volumes, dice

try:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
except ImportError:
    pass

FAST = FitSettings(
    epochs=3, steps_per_epoch=6, validation_steps=2, checkpoint_every=1, momentum=0.9, compiled=False
)


def world():
    volumes, truth = ball_volumes(6)
    cases = list(volumes.images)
    return volumes, truth, cases, make_plan(fingerprint(volumes, cases[:4], "three"), "three", **TINY)


def losses(device: str, memory: str = "auto", **more) -> list[float]:
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:4], plan, "three", device=device, memory=memory)
    network = build_network(plan, seed=0, device=device)
    settings = dataclasses.replace(FAST, **more)
    done = fit(network, data, plan, settings, seed=0, validation=data.subset(cases[:1]))
    return [entry[name] for entry in done.history for name in ("train_loss", "validation_loss")]


def test_a_captured_step_trains_as_a_cpu_does():
    """bf16 and float16 volumes: alike, not equal."""
    assert np.allclose(losses("cuda"), losses("cpu"), atol=0.05)


def test_compiled_is_as_plain():
    assert np.allclose(losses("cuda", compiled=True), losses("cuda"), atol=0.05)


def test_adamw_is_captured_too():
    cuda, cpu = (losses(device, optimiser="adamw", learning_rate=1e-3) for device in ("cuda", "cpu"))
    assert np.allclose(cuda, cpu, atol=0.08)


def test_pinned_memory_gives_what_the_device_gives():
    assert np.allclose(losses("cuda", memory="pinned"), losses("cuda", memory="device"), atol=0.01)


def test_a_killed_training_goes_on():
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:4], plan, "three", device="cuda")
    whole = fit(build_network(plan, seed=0, device="cuda"), data, plan, FAST, seed=0)

    def kill(entry, network):
        if entry["epoch"] == 2:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.pt"
        with contextlib.suppress(KeyboardInterrupt):
            fit(
                build_network(plan, seed=0, device="cuda"),
                data,
                plan,
                FAST,
                seed=0,
                checkpoint=file,
                on_epoch=kill,
            )
        again = fit(build_network(plan, seed=9, device="cuda"), data, plan, FAST, seed=0, checkpoint=file)
    one, two = ([entry["train_loss"] for entry in done.history] for done in (whole, again))
    assert np.allclose(one, two, atol=0.02)


def test_prediction_is_the_cpus():
    volumes, truth, cases, plan = world()
    data = prepare(volumes, cases[:4], plan, "three", device="cuda")
    network = build_network(plan, seed=0, device="cuda")
    fit(network, data, plan, dataclasses.replace(FAST, steps_per_epoch=20), seed=0)
    for compiled in (False, True):
        found = predict(network, volumes, cases[5], plan, "three", device="cuda", batch=4, compiled=compiled)
        assert dice(found.mask(), truth[cases[5]]) > 0.7
        plain = predict(network.cpu(), volumes, cases[5], plan, "three")
        assert float((found.probability.cpu() - plain.probability).abs().max()) < 0.05
        network.to("cuda")


def test_the_safest_ways_train_alike():
    with use_cuda_options(CONSERVATIVE):
        plain = losses("cuda")
    assert np.allclose(plain, losses("cuda"), atol=0.05)


def main() -> int:
    """Every check, whatever became of the others; how many failed."""
    import traceback

    if not torch.cuda.is_available():
        print("no GPU: nothing is checked", flush=True)
        return 0
    checks = {name: check for name, check in globals().items() if name.startswith("test_")}
    failed = 0
    for name in sorted(checks, key=lambda name: "compiled" in name):
        try:
            checks[name]()
        except Exception:  # noqa: BLE001 - printed whole, and counted
            traceback.print_exc()
            failed += 1
            print(f"{name}: FAILED", flush=True)
        else:
            print(f"{name}: passed", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
