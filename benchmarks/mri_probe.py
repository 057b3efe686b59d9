"""A minute at the start of a lease: every way that only a GPU takes, tried small, each in a process of its own.

A line a check, `pass` or `FAIL`; what fails is done without, and the choice is written down (KEEP/mri-probe.json).
Nothing here ends the run.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mri_children import check_no_cuda, start

WORDS = {True: "pass", False: "FAIL", None: "not known"}
SPREAD = 0.06
"""Losses on a GPU are bf16's, and those of a CPU float32's: alike, not equal."""


def probe(place: Any, given: Any) -> dict[str, Any]:
    """Every check; `ways` is what training shall do without."""
    import torch  # noqa: F401 - once here, so that no child takes seconds for it

    check_no_cuda()
    until = min(place.until, time.time() + given.probe_seconds)
    told: dict[str, Any] = {}
    for name, check in CHECKS.items():
        file = place.keep / f".probe-{name}.json"
        file.unlink(missing_ok=True)
        began = time.time()
        if began > until:
            told[name] = {"ok": None, "said": "no time left for it", "seconds": 0.0}
            continue

        def work(check: Callable[[str], dict[str, Any]] = check, file: Path = file) -> None:
            found = check(given.device)
            file.write_text(json.dumps(found, default=float), encoding="utf-8")

        whole = began + given.check_seconds
        limit = min(whole, until + given.check_seconds / 3)
        wrong = start(name, work, until=limit).ended()
        said = json.loads(file.read_text(encoding="utf-8")) if file.exists() and not wrong else {}
        file.unlink(missing_ok=True)
        # Ended before its own time was up, it says nothing; ended after, it hung.
        ok = None if wrong.startswith("cut off") and limit < whole else not wrong and said.pop("ok", True)
        told[name] = {"ok": ok, "said": wrong or said, "seconds": round(time.time() - began, 1)}
        place.say(f"probe {name}: {WORDS[ok]} {_short(told[name]['said'])}")
    result = {"checks": told, "ways": chosen_ways(told)}
    place.write("probe", result)
    place.write("machine", {"machine": _machine(told, given.device), "python": sys.version})
    place.say(f"probe: {result['ways']}", seconds=sum(entry["seconds"] for entry in told.values()))
    return result


def chosen_ways(told: dict[str, Any]) -> dict[str, bool]:
    """What was not shown to fail is used: a check without a word says nothing against it."""

    def works(name: str) -> bool:
        return told.get(name, {}).get("ok") is not False

    last = works("convolutions-last")
    return {
        "captured": works("captured"),
        "channels_last": last and works("norm"),
        "fused_norm": works("norm"),
    }


def _short(said: Any) -> str:
    return " ".join(str(said).split())[:160]


def _machine(told: dict[str, Any], device: str) -> str:
    said = told.get("machine", {}).get("said", {})
    name = said.get("name", device) if isinstance(said, dict) else device
    import torch

    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}"


def machine(device: str) -> dict[str, Any]:
    """Names, versions, and the two ceilings."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found: dict[str, Any] = {
        "name": platform.processor() or "CPU",
        "memory_gib": round(memory),
        "shared_memory_gib": round(shutil.disk_usage("/dev/shm").total / 2**30, 1),
        "disk_free_gib": round(shutil.disk_usage("/").free / 2**30),
    }
    if device.startswith("cuda"):
        from elsewhere.recipes.power import energy_counter

        found |= {
            "name": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
            "free_gib": round(torch.cuda.mem_get_info()[0] / 2**30),
            "energy": energy_counter(device)[1],
        }
        a, b = (torch.randn((8192, 8192), device=device).bfloat16() for _ in range(2))
        found["bf16_tflops"] = round(2 * 8192**3 / _seconds(lambda: a @ b, 10) / 1e12)
        one, two = (torch.empty(2**30, dtype=torch.uint8, device=device).random_() for _ in range(2))
        found["copy_tb_s"] = round(2 * 2**30 / _seconds(lambda: one.copy_(two), 10) / 1e12, 2)
    return found


def _seconds(work: Callable[[], object], repeats: int) -> float:
    import torch

    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


def _error(found: Any, right: Any) -> float:
    known = right.detach().double()
    return float((found.detach().double() - known).norm() / known.norm().clamp_min(1e-12))


def convolutions(device: str, *, last: bool) -> dict[str, Any]:
    """bf16 against float32 on the CPU, forward and backward: some cuDNN versions were wrong in 3D."""
    import torch
    from torch.nn import functional

    from elsewhere.training.volumes.networks import fastest

    gpu = device.startswith("cuda")
    torch.manual_seed(0)
    layout = torch.channels_last_3d if last else torch.contiguous_format
    worst: dict[str, float] = {}
    shapes = (
        ("3", 32, 32, (3, 3, 3), 1, (2, 32, 24, 40, 24)),
        ("stem", 3, 32, (3, 3, 3), 1, (2, 3, 24, 40, 24)),
        ("flat", 32, 64, (3, 3, 1), (2, 2, 1), (2, 32, 24, 40, 24)),
        ("stride", 64, 128, (3, 3, 3), 2, (2, 64, 16, 24, 16)),
        ("deep", 320, 320, (3, 3, 3), 1, (2, 320, 6, 6, 4)),
        ("head", 32, 1, (1, 1, 1), 1, (2, 32, 24, 40, 24)),
        ("up", 64, 32, (2, 2, 2), 2, (2, 64, 12, 20, 12)),
    )
    for name, inside, outside, kernel, stride, shape in shapes:
        up = name == "up"
        weight = torch.randn((inside, outside, *kernel) if up else (outside, inside, *kernel))
        weight = weight / weight[0].numel() ** 0.5
        x = torch.randn(shape)
        results = []
        for where, kind in (("cpu", torch.float32), (device, torch.bfloat16)):
            values, filters = (
                t.clone().to(where).to(kind).contiguous(memory_format=layout).requires_grad_()
                for t in (x, weight)
            )
            with fastest(gpu and where == device):
                if up:
                    out = functional.conv_transpose3d(values, filters, stride=stride)
                else:
                    padding = [k // 2 for k in kernel]
                    out = functional.conv3d(values, filters, stride=stride, padding=padding)
                slope = torch.cos(torch.arange(out.numel())).reshape(out.shape).to(where).to(kind)
                out.backward(slope.contiguous(memory_format=layout))
            results.append([t.detach().float().cpu() for t in (out, values.grad, filters.grad)])
        worst[name] = max(_error(found, right) for right, found in zip(*results, strict=True))
    return {"ok": max(worst.values()) < 0.03, "error": {k: round(v, 4) for k, v in worst.items()}}


def norm(device: str) -> dict[str, Any]:
    """The fused instance norm against double precision, in bf16 and float32, forward and backward."""
    import torch

    from elsewhere.training.volumes.networks import FusedInstanceNorm, InstanceNorm

    torch.manual_seed(0)
    worst = {}
    for kind, shape in ((torch.float32, (2, 8, 12, 10, 6)), (torch.bfloat16, (2, 32, 48, 64, 24))):
        x = (5 + 2 * torch.randn(shape)).to(kind).to(device)
        slope = torch.randn(shape, device=device).to(kind)
        plain = InstanceNorm(shape[1]).double().to(device)
        right_x = x.double().requires_grad_()
        values = (right_x - right_x.mean((2, 3, 4), keepdim=True)) * torch.rsqrt(
            right_x.var((2, 3, 4), correction=0, keepdim=True) + plain.eps
        )
        values.backward(slope.double())
        own = x.contiguous(memory_format=torch.channels_last_3d).requires_grad_()
        w, b = (t.float().detach().requires_grad_() for t in (plain.weight, plain.bias))
        out = FusedInstanceNorm.apply(own, w, b, plain.eps)
        out.backward(slope.contiguous(memory_format=torch.channels_last_3d))
        shift = _error(b.grad, slope.double().sum((0, 2, 3, 4)))
        worst[str(kind)] = max(_error(out, values), _error(own.grad, right_x.grad), shift)
    return {"ok": worst["torch.float32"] < 1e-3 and worst["torch.bfloat16"] < 0.02, "error": worst}


def _world() -> Any:
    from elsewhere.inputs.volumes import MemoryVolumes

    rng = np.random.default_rng(0)
    at = np.stack(np.meshgrid(*(np.arange(edge) for edge in (24, 22, 20)), indexing="ij"), axis=-1)
    images, masks = {}, {}
    for case in range(4):
        ball = ((at - rng.uniform(8, 14, 3)) ** 2).sum(-1) < 20
        base = rng.normal(10, 1, ball.shape)
        images[f"P/{case}"] = [(base + gain * ball).astype(np.float32) for gain in (0, 6, 5)]
        masks[f"P/{case}"] = ball
    return MemoryVolumes(images=images, masks=masks)


def _trained(device: str, *, memory: str = "auto", ways: Any = None, **settings: Any) -> tuple[Any, ...]:
    from elsewhere.training.cuda_options import CudaOptions, use_cuda_options
    from elsewhere.training.volumes import FitSettings, build_network, fingerprint, fit, make_plan, prepare

    volumes = _world()
    cases = list(volumes.images)
    plan = make_plan(
        fingerprint(volumes, cases, "three"), "three",
        widths=(8, 16), blocks=(1, 1), patch=(16, 16, 16), batch=2,
    )  # fmt: skip
    with use_cuda_options(ways or CudaOptions()):
        network = build_network(plan, seed=0, device=device)
        how = {"epochs": 2, "steps_per_epoch": 6, "validation_steps": 2, "momentum": 0.9, "compiled": False}
        data = prepare(volumes, cases, plan, "three", device=device, memory=memory)
        done = fit(
            network, data, plan, FitSettings(**(how | settings)), seed=0, validation=data.subset(cases[:1])
        )
    losses = [entry[name] for entry in done.history for name in ("train_loss", "validation_loss")]
    return losses, network, plan, volumes


def _alike(one: list[float], other: list[float]) -> dict[str, Any]:
    gap = float(np.abs(np.subtract(one, other)).max())
    return {"ok": gap < SPREAD, "gap": round(gap, 4), "losses": [round(v, 3) for v in one]}


def captured(device: str) -> dict[str, Any]:
    return _alike(_trained(device)[0], _trained("cpu")[0])


def plain_step(device: str) -> dict[str, Any]:
    from elsewhere.training.cuda_options import CONSERVATIVE

    return _alike(_trained(device, ways=CONSERVATIVE)[0], _trained("cpu")[0])


def adamw(device: str) -> dict[str, Any]:
    how = {"optimiser": "adamw", "learning_rate": 1e-3}
    return _alike(_trained(device, **how)[0], _trained("cpu", **how)[0])


def pinned(device: str) -> dict[str, Any]:
    memory = ("pinned", "device") if device.startswith("cuda") else ("auto", "auto")
    return _alike(*(_trained(device, memory=kind)[0] for kind in memory))


def predicted(device: str) -> dict[str, Any]:
    from elsewhere.recipes.cost import CostMeter
    from elsewhere.training.volumes import predict

    _, network, plan, volumes = _trained(device, steps_per_epoch=30)
    meter = CostMeter(device)
    with meter:
        found = predict(network, volumes, "P/1", plan, "three", device=device, batch=4)
        found.mask()
    right = predict(network.cpu(), volumes, "P/1", plan, "three")
    gap = float((found.probability.cpu() - right.probability).abs().max())
    return {"ok": gap < SPREAD, "gap": round(gap, 4), **meter.fields()}


def joint(device: str) -> dict[str, Any]:
    """The captured steps of masked autoencoding and of the shared encoder."""
    from elsewhere.training.joint.masked import MaskedAutoencoder, masked_objective
    from elsewhere.training.joint.shared import build_shared, outcome_codes, shared_objective
    from elsewhere.training.volumes import FitSettings, fingerprint, fit, make_plan, prepare

    volumes = _world()
    cases = list(volumes.images)
    plan = make_plan(
        fingerprint(volumes, cases, "three"), "three",
        widths=(8, 16), blocks=(1, 1), patch=(16, 16, 16), batch=2,
    )  # fmt: skip
    codes = outcome_codes({case: at % 2 for at, case in enumerate(cases)})
    losses: dict[str, list[float]] = {}
    for where in (device, "cpu"):
        data = prepare(volumes, cases, plan, "three", device=where)
        how = FitSettings(epochs=2, steps_per_epoch=4, optimiser="adamw", learning_rate=1e-3, compiled=False)
        masked = MaskedAutoencoder(plan, seed=0, block=4).to(where)
        shared = build_shared(plan, seed=0, device=where)
        for network, objective, weights in (
            (masked, masked_objective, None),
            (shared, shared_objective(0.5, 1.0), codes),
        ):
            done = fit(network, data, plan, how, seed=0, objective=objective, sample_weights=weights)
            losses.setdefault(where, []).extend(entry["train_loss"] for entry in done.history)
    return _alike(losses[device], losses["cpu"])


def response(device: str) -> dict[str, Any]:
    """A training of the response loop, mirrored probabilities, contrastive views."""
    import torch

    from elsewhere.training.response.contrast import Contrast
    from elsewhere.training.response.crops import Crops
    from elsewhere.training.response.loop import FitOptions, fit, probabilities
    from elsewhere.training.response.networks import build_response_network

    rng = np.random.default_rng(0)
    label = np.arange(12, dtype=np.int64) % 2
    pictures = rng.normal(0, 1, (12, 3, 16, 16, 8)).astype(np.float16)
    pictures += label.astype(np.float16)[:, None, None, None, None]
    found = {}
    for where in (device, "cpu"):
        crops = Crops(
            cases=tuple(map(str, range(12))),
            images=torch.from_numpy(pictures).to(where),
            counts=torch.full((12,), 3).to(where),
        )
        network = build_response_network("tiny-3d", phases=3, seed=0, projection=True)
        options = FitOptions(
            name="probe", epochs=3, batch=4, learning_rate=1e-3, seed=0, device=where, contrast=Contrast()
        )
        rows = np.arange(12, dtype=np.int64)
        fit(network, crops, train=rows[:8], validation=rows[8:], label=label, options=options)
        found[where] = probabilities(network, crops, rows, options=options, flip=True)
    finite = bool(np.isfinite(found[device]).all())
    return {"ok": finite, "gap": round(float(np.abs(found[device] - found["cpu"]).max()), 3)}


def loader(device: str) -> dict[str, Any]:
    """Worker processes that hand over large batches: what the plain loop of the benchmark lives on."""
    import torch
    from torch.utils.data import DataLoader

    big = (3, 192, 192, 32) if device.startswith("cuda") else (3, 8, 8, 8)
    batches = DataLoader(
        [torch.zeros(big) for _ in range(8)], batch_size=2, num_workers=4, pin_memory=device != "cpu"
    )
    return {"ok": sum(len(batch.to(device)) for batch in batches) == 8}


CHECKS: dict[str, Callable[[str], dict[str, Any]]] = {
    "machine": machine,
    "convolutions-last": lambda device: convolutions(device, last=True),
    "convolutions-first": lambda device: convolutions(device, last=False),
    "norm": norm,
    "captured": captured,
    "plain-step": plain_step,
    "predicted": predicted,
    "pinned": pinned,
    "adamw": adamw,
    "loader": loader,
    "joint": joint,
    "response": response,
}


def ways_of(place: Any) -> Any:
    """As the probe and the first calibration chose; the library's own where neither ran."""
    from elsewhere.training.cuda_options import CudaOptions

    chosen = place.read("ways").get("ways") or place.read("probe").get("ways") or asdict(CudaOptions())
    return CudaOptions(**chosen)


def candidates(place: Any) -> list[Any]:
    """Ways to be timed on the real plan, the likeliest first."""
    first = ways_of(place)
    return [first, replace(first, channels_last=False)] if first.channels_last else [first]
