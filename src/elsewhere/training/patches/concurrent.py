"""Train many segmenters at the same time on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from elsewhere.errors import UserError
from elsewhere.networks.segmenters import find_segmenter_weights, segmenter_entry
from elsewhere.training.cuda import device_name, enable_determinism, select_device
from elsewhere.training.patches.program import DevicePool
from elsewhere.training.patches.settings import Failed, Finished, PatchOutcome, PatchPool, PatchTraining
from elsewhere.training.patches.worker import CHECKPOINT_SECONDS, PatchWorker, SharedPatches
from elsewhere.training.turns import Stop, take_turns

HEAVY_STEP_GFLOP = 400
"""A training step of more fills a large GPU nearly alone."""
COPIED_AT_ONCE = 1024
"""Patches that are copied to the device in one piece."""
WORKING_BYTES = 6 * 2**30
"""Memory of a GPU that is left for the networks and their maps, for each training that runs at the same time."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class PatchCallbacks:
    """The functions that are called while trainings run.

    Attributes:
        finished: Called with every outcome.
        failed: Called with the reason of every training that could not run.
        progress: Called with what is counted, how many are done, and how many there are.
        stop: Asked before a training starts; True leaves the rest undone.
    """

    finished: Finished
    failed: Failed
    progress: Progress | None = None
    stop: Stop | None = None


@dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """Where and how trainings run; none of it changes a training's meaning.

    Attributes:
        device: "auto", "cpu", "cuda" or "cuda:N".
        lanes: Trainings at the same time on a GPU; 0: the default of the network.
        weights: Files of published weights by 'network/imagenet', for machines that cannot fetch.
        checkpoint_seconds: Seconds between two checkpoints of a training.
    """

    device: str = "auto"
    lanes: int = 0
    weights: Mapping[str, Path] = field(default_factory=dict)
    checkpoint_seconds: float = CHECKPOINT_SECONDS


def train_segmenters(
    units: Sequence[PatchTraining],
    pool: PatchPool,
    *,
    callbacks: PatchCallbacks,
    options: PatchOptions | None = None,
) -> None:
    """Train segmenters on one device, and let each predict. The numbers of a training do not depend on what trains beside it.

    Args:
        units: The trainings.
        pool: The patches that they name by row.
        callbacks: The functions to call.
        options: Where and how they run; None for the defaults.

    Raises:
        UserError: There is no such device, its memory is too small, weights are missing, or a row is not in the pool.
    """
    options = options or PatchOptions()
    if not units:
        return
    for unit in units:
        rows = np.concatenate([unit.train, unit.validation, unit.predict])
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(pool)):
            raise UserError(
                f"{unit.name or unit.key} names patch {int(rows.max()):,} of a pool of {len(pool):,}"
            )
    # Weights that cannot be had stop the run before any patch is copied.
    for network, weights in sorted({(unit.settings.network, unit.settings.weights) for unit in units}):
        find_segmenter_weights(network, weights, options.weights)
    device = select_device(options.device)
    enable_determinism()
    lanes = 1 if device.type != "cuda" else options.lanes or default_lanes(units)
    try:
        shared = SharedPatches(
            device=device,
            pool=to_device(pool, device, lanes=lanes, progress=callbacks.progress),
            weights=options.weights,
            checkpoint_seconds=options.checkpoint_seconds,
        )
        _train(units, shared, lanes, callbacks)
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"no memory left on {device_name(device)}: {str(error).splitlines()[0]}",
            fix="The batch belongs to the training and is not made smaller silently. Use --lanes 1, free the GPU, or set a "
            "smaller batch. Finished trainings are stored: run again to resume.",
        ) from error


def _train(
    units: Sequence[PatchTraining], shared: SharedPatches, lanes: int, callbacks: PatchCallbacks
) -> None:
    done = 0

    def finished(unit: PatchTraining, outcome: PatchOutcome) -> None:
        nonlocal done
        done += 1
        callbacks.finished(unit, outcome)
        if callbacks.progress is not None:
            callbacks.progress("trainings", done, len(units))

    # Trainings that share a recorded step follow each other, the long ones first.
    queue = sorted(units, key=lambda unit: (unit.settings.network, unit.settings.batch, -len(unit.train)))
    workers = [(queue, PatchWorker(shared, units)) for _ in range(min(lanes, len(units)))]
    take_turns(workers, finished=finished, failed=callbacks.failed, stop=callbacks.stop)


def default_lanes(units: Sequence[PatchTraining]) -> int:
    """Return how many trainings run at the same time on a GPU where no number is given.

    Args:
        units: The trainings.

    Returns:
        2 for heavy steps, otherwise 4.
    """
    heaviest = max(segmenter_entry(u.settings.network).training_gflop * u.settings.batch for u in units)
    return 2 if heaviest > HEAVY_STEP_GFLOP else 4


def to_device(
    pool: PatchPool, device: torch.device, *, lanes: int = 1, progress: Progress | None = None
) -> DevicePool:
    """Copy the patches to the device as bytes; on a CPU they stay where they are.

    Args:
        pool: The patches.
        device: The device.
        lanes: Trainings at the same time, each of which needs memory besides.
        progress: Called with a step, how many patches are copied, and how many there are.

    Returns:
        The patches on the device.

    Raises:
        UserError: The memory of the GPU is too small.
    """
    tumour = torch.from_numpy(np.array([bool(row.any()) for row in pool.masks], dtype=bool))
    if device.type != "cuda":
        import warnings

        with warnings.catch_warnings():
            # A mapped file is read-only, and nothing here writes.
            warnings.filterwarnings("ignore", message=".*not writable.*")
            pixels, masks = torch.from_numpy(pool.pixels), torch.from_numpy(pool.masks)
        return DevicePool(pixels=pixels, masks=masks, has_tumour=tumour, size=pool.size)
    needed, free = pool.pixels.nbytes + pool.masks.nbytes, torch.cuda.mem_get_info(device)[0]
    if needed + lanes * WORKING_BYTES > free:
        raise UserError(
            f"the patches take {needed / 1e9:,.1f} GB and {lanes} trainings at the same time about "
            f"{lanes * WORKING_BYTES / 1e9:,.0f} GB besides, but {device_name(device)} has {free / 1e9:,.1f} GB free",
            fix="Use --lanes 1, a larger GPU, or fewer patches at a time.",
        )
    parts = []
    for what, array in (("pixels", pool.pixels), ("masks", pool.masks)):
        held = torch.empty(array.shape, dtype=torch.uint8, device=device)
        for begin in range(0, len(array), COPIED_AT_ONCE):
            part = np.ascontiguousarray(array[begin : begin + COPIED_AT_ONCE])
            held[begin : begin + len(part)].copy_(torch.from_numpy(part))
            if progress is not None:
                progress(f"copying {what} to the device", begin + len(part), len(array))
        parts.append(held)
    torch.cuda.synchronize(device)
    return DevicePool(pixels=parts[0], masks=parts[1], has_tumour=tumour.to(device), size=pool.size)
