"""One training of a detector or slice classifier, on slices that lie on the device (DBT-10 to DBT-17).

Everything random of an epoch comes from (seed, epoch), so that a training that was stopped resumes from its last
checkpoint as if nothing had happened. On CUDA the network runs in bfloat16.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from elsewhere.errors import TrainingError, unknown_name
from elsewhere.networks.detectors.base import Detector, Targets
from elsewhere.networks.detectors.slice_classifier import SliceClassifier
from elsewhere.training.cuda import mixed_precision
from elsewhere.training.detection.augment import (
    brightness,
    copy_paste,
    flip_horizontal,
    flip_vertical,
    gamma,
    inverse,
    mosaic,
    move_boxes,
)
from elsewhere.training.detection.device_slices import DeviceSlices, as_the_device_reads, lay_out
from elsewhere.training.detection.draws import Augmentation, EpochDraws, draw_epoch
from elsewhere.training.detection.sampling import LESION, SamplingSettings, SliceTable, draw_order
from elsewhere.training.detection.slice_froc import slice_sensitivity
from elsewhere.training.detection.step import NetworkStep
from elsewhere.training.detection.volume_inference import InferenceOptions, detect_slices
from elsewhere.training.loop import EpochLoop, read_checkpoint, scheduled_rate, write_checkpoint

WARM_UP_STEPS = 20
"""Steps of the first epoch in which the learning rate rises linearly."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How a detector is trained.

    Args:
        name: For progress and error messages.
        epochs: How often the lesion slices are seen.
        batch: Tiles per step.
        size: Height and width of the tiles in the detector's pixels.
        optimiser: "adam", "adamw", "sgd" or "rmsprop".
        learning_rate: The highest rate.
        schedule: "constant", or "cosine".
        momentum: Of SGD; of Adam the first of its two (PittRad: 0.937).
        weight_decay: Weight decay.
        gradient_norm: Gradients of a larger norm are scaled down to it.
        lesion_slices: Lesion slices per epoch at most; None: all.
        sampling: Which slices are drawn.
        augmentation: How they are changed.
        inference: How the validation part is looked at.
        floor_px: The least diagonal of a lesion, of which half is the radius of a hit in the validation; in pixels of
            the volume. Small phantoms need less, as otherwise every box is a hit.
        keep: "best": the weights of the epoch with the best validation sensitivity, of equal ones that with the lower
            training loss; "last": the final ones.
        patience: Stop after so many epochs without a better sensitivity; None: never.
        seed: All draws come from it.
        checkpoint: A file that a stopped training resumes from.
        checkpoint_seconds: Between two checkpoints.
        progress: Called with the name, the epoch and the number of epochs.
        stop: Asked before each epoch; True ends the training without a result.
    """

    name: str = "detector"
    epochs: int = 10
    batch: int = 8
    size: tuple[int, int] = (1024, 1024)
    optimiser: Literal["adam", "adamw", "sgd", "rmsprop"] = "adamw"
    learning_rate: float = 1e-4
    schedule: str = "cosine"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    gradient_norm: float = 10.0
    lesion_slices: int | None = None
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    augmentation: Augmentation = field(default_factory=Augmentation)
    inference: InferenceOptions = field(default_factory=InferenceOptions)
    floor_px: float = 100.0
    keep: Literal["best", "last"] = "best"
    patience: int | None = None
    seed: int = 0
    checkpoint: Path | None = None
    checkpoint_seconds: float = 120.0
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    stop: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The report of a training; the network was trained in place.

    Args:
        history: One entry per epoch.
        best_epoch: The epoch (from 1) of the network's weights.
        tiles: Tiles that were trained on.
        stopped: Whether the caller stopped it; the weights are then those of no whole training.
    """

    history: tuple[Mapping[str, float], ...]
    best_epoch: int
    tiles: int
    stopped: bool = False


def make_optimiser(model: torch.nn.Module, options: FitOptions) -> torch.optim.Optimizer:
    """Return the optimiser of a training.

    Args:
        model: The network; frozen parameters are left out.
        options: Which one.

    Returns:
        The optimiser.

    Raises:
        UserError: The optimiser is unknown.
    """
    parameters = [value for value in model.parameters() if value.requires_grad]
    fused = bool(parameters) and parameters[0].is_cuda
    decay, momentum = options.weight_decay, options.momentum
    rate: Any = options.learning_rate
    if fused and options.optimiser in ("adam", "adamw"):
        # A recorded step reads its rate from the device; the other two optimisers are not recorded.
        rate = torch.tensor(rate, device=parameters[0].device)
    if options.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay)
    if options.optimiser == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=rate, weight_decay=decay)
    if options.optimiser == "adam":
        return torch.optim.Adam(
            parameters,
            lr=rate,
            betas=(momentum, 0.999),
            weight_decay=decay,
            fused=fused,
            capturable=fused,
        )
    if options.optimiser == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=rate,
            betas=(momentum, 0.999),
            weight_decay=decay,
            fused=fused,
            capturable=fused,
        )
    raise unknown_name("optimiser", options.optimiser, ["adam", "adamw", "sgd", "rmsprop"])


def fit_detector(
    model: Detector,
    stored: DeviceSlices,
    *,
    train: SliceTable,
    validation: SliceTable | None,
    options: FitOptions,
) -> Fitted:
    """Train a detector in place.

    Args:
        model: The detector, on its device.
        stored: The slices of both parts.
        train: What it is trained on.
        validation: What the best epoch is chosen by: its lesion slices; None: the last epoch counts.
        options: See `FitOptions`.

    Returns:
        History, best epoch and the number of tiles.

    Raises:
        TrainingError: There is no lesion slice, the loss is no number any more, or the device has too little memory.
        UserError: The optimiser is unknown.
    """
    return _fit(model, _DetectorSteps(model, stored, train, options), validation, options)


def fit_slice_classifier(
    model: SliceClassifier,
    stored: DeviceSlices,
    *,
    train: SliceTable,
    validation: SliceTable | None,
    options: FitOptions,
) -> Fitted:
    """Train a slice classifier in place: does the tile show a lesion?

    Lesion slices are positive, all others negative, so that `options.sampling` must ask for some of those.

    Args:
        model: The classifier, on its device.
        stored: The slices of both parts.
        train: What it is trained on.
        validation: What the best epoch is chosen by, its mean loss; None: the last epoch counts.
        options: See `FitOptions`.

    Returns:
        History, best epoch and the number of tiles.

    Raises:
        TrainingError: One of the two kinds of slices is missing, the loss is no number any more, or the device has too
            little memory.
        UserError: The optimiser is unknown.
    """
    if not (train.kind != LESION).any():
        raise TrainingError(
            f"the training part of {options.name} has no slice without a lesion",
            fix="Set sampling.negatives above 0.",
        )
    return _fit(model, _ClassifierSteps(model, stored, train, options), validation, options)


class _Steps:
    """The data of a training on the device: from draws to augmented tiles and their lesions."""

    def __init__(
        self, model: torch.nn.Module, stored: DeviceSlices, table: SliceTable, options: FitOptions
    ) -> None:
        self.model, self.stored, self.table, self.options = model, stored, table, options
        self.device = next(model.parameters()).device
        self._row = torch.from_numpy(stored.rows(list(zip(table.case, table.z.tolist(), strict=True))))
        self._row = self._row.to(self.device)
        self._targets = _stored_targets(stored, table).to(self.device)

    def draw(self, epoch: int, table: SliceTable | None = None) -> EpochDraws:
        rng = np.random.default_rng(np.random.SeedSequence([self.options.seed, epoch]))
        options, held = self.options, table or self.table
        order = draw_order(held, options.sampling, rng, most=options.lesion_slices)
        return draw_epoch(
            rng, order, held, self.stored, options.augmentation, batch=options.batch, size=options.size
        )

    def on_device(self, draws: EpochDraws) -> dict[str, torch.Tensor]:
        """All draws of an epoch in one transfer each."""
        return {
            name: torch.from_numpy(np.ascontiguousarray(getattr(draws, name))).to(self.device)
            for name in ("sample", "matrix", "flip", "light", "paste", "mosaic")
        }

    def batch(self, draws: dict[str, torch.Tensor], step: int) -> tuple[torch.Tensor, Targets]:
        now = {name: values[step] for name, values in draws.items()}
        sample, matrix, size = now["sample"], now["matrix"], self.options.size
        pictures = self.stored.tiles(self._row[sample], matrix, *size)
        targets = Targets(box=self._targets.box[sample], label=self._targets.label[sample])
        targets = move_boxes(targets, inverse(matrix), size)
        change = self.options.augmentation
        pictures, targets = flip_horizontal(pictures, targets, now["flip"][:, 0])
        pictures, targets = flip_vertical(pictures, targets, now["flip"][:, 1])
        if change.copy_paste:
            on, donor, place = now["paste"][:, 0], now["paste"][:, 1].long(), now["paste"][:, 2:]
            pictures, targets = copy_paste(pictures, targets, donor, place, on)
        if change.mosaic:
            on, others, centre = now["mosaic"][:, 0], now["mosaic"][:, 1:4].long(), now["mosaic"][:, 4:]
            pictures, targets = mosaic(pictures, targets, others, centre, on)
        if change.brightness:
            pictures, targets = brightness(pictures, targets, now["light"][:, 0])
        if change.gamma:
            pictures, targets = gamma(pictures, targets, now["light"][:, 1])
        return as_the_device_reads(pictures), targets

    def loss(self, pictures: torch.Tensor, targets: Targets) -> torch.Tensor:
        raise NotImplementedError

    def validate(self, table: SliceTable) -> tuple[dict[str, float], float]:
        raise NotImplementedError


class _DetectorSteps(_Steps):
    def loss(self, pictures: torch.Tensor, targets: Targets) -> torch.Tensor:
        parts = self.model.losses(pictures, targets)  # type: ignore[operator]
        return torch.stack([part.float() for part in parts.values()]).sum()

    def validate(self, table: SliceTable) -> tuple[dict[str, float], float]:
        rows = table.rows(LESION)
        slices = [(table.case[row], int(table.z[row])) for row in rows]
        model: Any = self.model
        found = detect_slices(model, self.stored, slices, self.options.inference)
        by_case = dict(zip(dict.fromkeys(case for case, _ in slices), found, strict=True))
        boxes = [by_case[case].take(by_case[case].z0 == z) for case, z in slices]
        truth = [table.box[row][table.label[row] >= 0] for row in rows]
        value = slice_sensitivity(boxes, truth, floor_px=self.options.floor_px)
        return {"validation_sensitivity": value}, value


class _ClassifierSteps(_Steps):
    def loss(self, pictures: torch.Tensor, targets: Targets) -> torch.Tensor:
        positive = targets.there.any(dim=1)
        loss: torch.Tensor = self.model.losses(pictures, positive)["score"]  # type: ignore[operator]
        return loss

    @torch.no_grad()
    def validate(self, table: SliceTable) -> tuple[dict[str, float], float]:
        other = _ClassifierSteps(self.model, self.stored, table, self.options)
        self.model.eval()
        drawn = other.draw(0)
        draws = other.on_device(drawn)
        losses = []
        for step in range(len(drawn.sample)):
            pictures, targets = other.batch(draws, step)
            with mixed_precision(self.device):
                losses.append(other.loss(pictures, targets))
        value = float(torch.stack(losses).mean())
        return {"validation_loss": value}, -value


def _stored_targets(stored: DeviceSlices, table: SliceTable) -> Targets:
    """The lesions of all slices, in stored pixels."""
    box = np.zeros_like(table.box)
    for at, case in enumerate(table.case):
        there = table.label[at] >= 0
        box[at, there] = stored.frame[case].to_stored(table.box[at, there])
    return Targets(box=torch.from_numpy(box).float(), label=torch.from_numpy(table.label))


def _fit(model: torch.nn.Module, steps: _Steps, validation: SliceTable | None, options: FitOptions) -> Fitted:
    lay_out(model)
    usable = validation is not None and len(validation.rows(LESION)) > 0
    optimiser = make_optimiser(model, options)
    loop = EpochLoop(
        model,
        epochs=options.epochs,
        keep=options.keep if usable else "last",
        patience=options.patience if usable else None,
        higher_is_better=True,
    )
    state = read_checkpoint(options.checkpoint)
    if state is not None and not _fits(model, state):
        state = None
    if state is not None:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        loop.load(state["loop"])
        _rates_to_device(optimiser, steps.device)
    step = NetworkStep(model, optimiser, steps.loss, options.gradient_norm)
    tiles = int(state["tiles"]) if state is not None else 0
    written = time.monotonic()
    for epoch in loop:
        if options.stop():
            return Fitted(history=tuple(loop.history), best_epoch=0, tiles=tiles, stopped=True)
        drawn = steps.draw(epoch)
        rate = scheduled_rate(options.schedule, options.learning_rate, epoch, options.epochs)
        with _seeded(steps.device, options.seed, epoch):
            loss = _train_epoch(model, steps, step, drawn, rate=rate, first=epoch == 1)
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of {options.name} is no number any more in epoch {epoch}",
                fix=f"Set learning_rate below {options.learning_rate:g}.",
            )
        tiles += drawn.sample.size
        entry, score = {"epoch": float(epoch), "train_loss": loss}, None
        if usable and validation is not None:
            more, value = steps.validate(validation)
            score = value - 1e-6 * loss
            entry |= more
        loop.record(entry, score=score)
        options.progress(options.name, epoch, options.epochs)
        if options.checkpoint is not None and (
            time.monotonic() - written >= options.checkpoint_seconds or loop.is_last
        ):
            content = {
                "model": model.state_dict(),
                "optimiser": optimiser.state_dict(),
                "loop": loop.state(),
                "tiles": tiles,
            }
            write_checkpoint(options.checkpoint, content)
            written = time.monotonic()
    best = loop.finish()
    return Fitted(history=tuple(loop.history), best_epoch=best, tiles=tiles)


@contextmanager
def _seeded(device: torch.device, seed: int, epoch: int) -> Iterator[None]:
    """Draw what networks draw by themselves from (seed, epoch): sampled regions of a Faster R-CNN, dropped paths of a
    Swin transformer. The state outside is not changed."""
    number = int(np.random.SeedSequence([seed, epoch, 1]).generate_state(1)[0])
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(number)
        yield


def _fits(model: torch.nn.Module, state: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is of this network; a training with one of another network starts again."""
    own, kept = model.state_dict(), state.get("model", {})
    return own.keys() == kept.keys() and all(value.shape == kept[name].shape for name, value in own.items())


def _rates_to_device(optimiser: torch.optim.Optimizer, device: torch.device) -> None:
    """A checkpoint brings its learning rates on the CPU."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"] = group["lr"].to(device)


def _train_epoch(
    model: torch.nn.Module,
    steps: _Steps,
    step: NetworkStep,
    drawn: EpochDraws,
    *,
    rate: float,
    first: bool,
) -> float:
    """Go once over the drawn tiles; return the mean loss. The host waits for the device once, at the end."""
    model.train()
    draws = steps.on_device(drawn)
    count = len(drawn.sample)
    for at in range(count):
        warm = min(1.0, (at + 1) / WARM_UP_STEPS) if first else 1.0
        try:
            pictures, targets = steps.batch(draws, at)
            step.run(pictures, targets, rate * warm)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"the device has too little memory for {steps.options.batch} tiles per step",
                fix=f"Set batch = {max(1, steps.options.batch // 2)}.",
            ) from error
    return step.take_loss() / max(1, count)
