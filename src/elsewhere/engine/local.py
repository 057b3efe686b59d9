"""Engine 'local': this machine. One process where there is one device; else a process a device."""

from __future__ import annotations

import sys
from dataclasses import replace

from elsewhere.engine.batch import TrainingBatch, train
from elsewhere.engine.registry import engines
from elsewhere.errors import UserError


@engines.register("local")
def run_local(batch: TrainingBatch) -> None:
    devices = devices_of(batch.device)
    if len(devices) == 1:
        train(replace(batch, device=devices[0]), batch.units)
        return
    from elsewhere.engine.pool import run_pool

    run_pool(batch, devices)


def devices_of(device: str) -> list[str]:
    """'auto': every CUDA device, else 'cpu'. Several names with commas are several processes."""
    if device == "auto":
        count = cuda_devices()
        return [f"cuda:{at}" for at in range(count)] if count > 1 else ["cuda" if count else "cpu"]
    named = [part.strip() for part in device.split(",") if part.strip()]
    wrong = [part for part in named if part.partition(":")[0] not in ("cpu", "cuda", "mps")]
    if wrong or not named:
        raise UserError(
            f"unknown device '{wrong[0] if wrong else device}'",
            fix="Use auto, cpu, cuda, cuda:1, or several with commas: cuda:0,cuda:1.",
        )
    return named


def cuda_devices() -> int:
    """Of this machine that torch can use; 0 without torch. Takes no memory of a device."""
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    if sys.platform == "darwin":
        return 0
    return int(torch.cuda.device_count())
