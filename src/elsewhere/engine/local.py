"""Engine 'local': trains on this machine, in this process on one device, else in one process per device."""

from __future__ import annotations

import sys
from dataclasses import replace

from elsewhere.engine.batch import TrainingBatch, train
from elsewhere.engine.registry import engines, recipes
from elsewhere.engine.threads import usable_cpus
from elsewhere.errors import UserError


@engines.register("local")
def run_local(batch: TrainingBatch) -> None:
    """Run a batch on this machine: in this process on one device, else in one process per device.

    Args:
        batch: The trainings and how they are run.

    Raises:
        UserError: The device is unknown, or the trainer raised it.
    """
    devices = devices_of(batch.device)
    prepare_sources(batch)
    if len(devices) == 1:
        train(replace(batch, device=devices[0]), batch.units)
        return
    from elsewhere.engine.pool import run_pool

    run_pool(batch, devices)


def prepare_sources(batch: TrainingBatch) -> None:
    """Let sources bring what their trainings read into a cache, with all cores, before the first training begins.

    Args:
        batch: The trainings; those whose source has no `prepare` read their files when they run.
    """
    for name, source in batch.work.sources.items():
        prepare = getattr(source, "prepare", None)
        if prepare is None:
            continue
        reading = [unit for unit in batch.units if recipes.get(unit.recipe.name).reads == name]
        cases = dict.fromkeys(case for unit in reading for case in unit.cases)
        prepare(list(cases), threads=len(usable_cpus()), progress=batch.progress, stop=batch.stop)


def devices_of(device: str) -> list[str]:
    """List the devices that a setting names.

    Args:
        device: 'auto' (every CUDA device, else the CPU), or names separated by commas ('cuda:0,cuda:1');
            every name is one process.

    Returns:
        At least one name.

    Raises:
        UserError: There is no name, or one that does not begin with 'cpu', 'cuda' or 'mps'.

    Example:
        >>> devices_of("cuda:0, cuda:1")
        ['cuda:0', 'cuda:1']
    """
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
    """Count the CUDA devices of this machine that torch can use; no memory of a device is taken.

    Returns:
        The number of devices; 0 without torch, and on macOS.
    """
    try:
        import torch
    except ModuleNotFoundError:
        return 0
    if sys.platform == "darwin":
        return 0
    return int(torch.cuda.device_count())
