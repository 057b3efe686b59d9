"""Train many picture classifiers at the same time on one device.

Every `StreamWorker` has a CUDA stream and a program of its own. One thread drives all workers in turn: each
training is a generator that yields whenever its stream has work enough, so that no worker waits for another
and nothing is shared but the pictures. On a CPU there is one worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from elsewhere.errors import UserError
from elsewhere.networks import NETWORKS
from elsewhere.training.cuda import device_name, enable_determinism, select_device
from elsewhere.training.pictures.crops import DevicePictures
from elsewhere.training.pictures.initial_weights import InitialWeights
from elsewhere.training.pictures.settings import (
    Failed,
    Finished,
    PictureOutcome,
    PictureTraining,
    PictureWork,
)
from elsewhere.training.pictures.stream_worker import SharedInputs, StreamWorker
from elsewhere.training.turns import Stop, take_turns

Progress = Callable[[str, int, int], None]
CONCURRENT_NETWORKS_BYTES = 40 * 2**30
"""With so much free memory all networks of a study train at the same time. An EfficientNet-Lite0 and a
ViT-B/16 gained 4 % from it in a trial on an H200: either fills the card."""
HEAVY_STEP_GFLOP = 1000
"""A training step of more fills a large GPU nearly alone."""


@dataclass(frozen=True, kw_only=True)
class Callbacks:
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


def train_all(
    units: Sequence[PictureTraining], work: PictureWork, *, device: str, lanes: int, callbacks: Callbacks
) -> None:
    """Train and predict; see `elsewhere.training.train_units`.

    Args:
        units: Picture classifiers.
        work: Cases, pictures and files of weights.
        device: "auto", "cpu", "cuda" or "cuda:N".
        lanes: Trainings at the same time; 0: the default of the network.
        callbacks: The functions to call.

    Raises:
        UserError: There is no such device, its memory is too small, or weights are missing.
    """
    if not units:
        return
    chosen = select_device(device)
    enable_determinism()
    try:
        _train_all(units, work, chosen, lanes, callbacks)
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"no memory left on {device_name(chosen)}: {str(error).splitlines()[0]}",
            fix="The batch belongs to the study and is not made smaller silently. Use --lanes 1, free the "
            "GPU, or set a smaller batch in the study file. Finished trainings are stored: run again to resume.",
        ) from error


def _train_all(
    units: Sequence[PictureTraining],
    work: PictureWork,
    device: torch.device,
    lanes: int,
    callbacks: Callbacks,
) -> None:
    done = 0

    def finished(unit: PictureTraining, outcome: PictureOutcome) -> None:
        nonlocal done
        done += 1
        callbacks.finished(unit, outcome)
        if callbacks.progress:
            callbacks.progress("trainings", done, len(units))

    counted = Callbacks(finished=finished, failed=callbacks.failed, stop=callbacks.stop)
    shared = _load_inputs(units, work, device)
    by_network = itertools.groupby(sorted(units, key=_size_order), key=lambda unit: unit.recipe.network)
    groups = [list(group) for _, group in by_network]
    # A person who sets the lanes has a reason, and it is mostly memory.
    at_once = (
        not lanes
        and device.type == "cuda"
        and torch.cuda.mem_get_info(device)[0] >= CONCURRENT_NETWORKS_BYTES
    )
    for concurrent in [groups] if at_once else [[group] for group in groups]:
        _train_concurrently(concurrent, shared, lanes, counted)


def _load_inputs(units: Sequence[PictureTraining], work: PictureWork, device: torch.device) -> SharedInputs:
    """Put on the device whatever the trainings read, before any of them starts."""
    names = {name for unit in units for part in (unit.train, unit.validation, unit.predict) for name in part}
    pictures = DevicePictures(work.cases, work.pictures, device=device, rows=work.cases.rows(sorted(names)))
    initial_weights = InitialWeights(work, device)
    for unit in units:
        pictures.cut(unit.input)
        if unit.input.outline:
            pictures.outline(unit.input)
        initial_weights.load(unit)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return SharedInputs(
        device=device,
        pictures=pictures,
        work=work,
        initial_weights=initial_weights,
    )


def _train_concurrently(
    groups: Sequence[Sequence[PictureTraining]], shared: SharedInputs, lanes: int, callbacks: Callbacks
) -> None:
    """Train groups, each the trainings of one network, with as many workers as suit each network."""
    workers: list[tuple[list[PictureTraining], StreamWorker]] = []
    for units in groups:
        queue = list(units)
        count = lanes or (default_lanes(units) if shared.device.type == "cuda" else 1)
        workers += [(queue, StreamWorker(shared, units)) for _ in range(count)]
    take_turns(workers, finished=callbacks.finished, failed=callbacks.failed, stop=callbacks.stop)


def _size_order(unit: PictureTraining) -> tuple[Any, ...]:
    """Programs together, the long trainings first, so that the workers end together."""
    return (unit.recipe.network, unit.recipe.method, unit.input.size_px, -len(unit.train))


def default_lanes(units: Sequence[PictureTraining]) -> int:
    """Return how many trainings of a network run at the same time where no number is given.

    Small networks leave a large GPU idle between kernels: more trainings fill it.

    Args:
        units: Trainings of one network.

    Returns:
        2 or 6.
    """
    heaviest = max(NETWORKS[u.recipe.network].training_gflop * u.recipe.batch for u in units)
    return 2 if heaviest > HEAVY_STEP_GFLOP else 6
