"""One training of one response network, and its predictions for crops.

Everything random of an epoch comes from (seed, epoch), so that a training that was stopped resumes from its
last checkpoint as if nothing had happened. On CUDA the step is in bfloat16 and asks the device for nothing;
on a CPU it is float32 and gives the same bits every time.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.errors import TrainingError
from elsewhere.training.cuda import mixed_precision
from elsewhere.training.loop import EpochLoop, read_checkpoint, write_checkpoint
from elsewhere.training.response.augment import GENTLE, Augmentation, Views, draw_views, flips, make_views
from elsewhere.training.response.contrast import Contrast, nt_xent
from elsewhere.training.response.crops import Crops
from elsewhere.training.response.networks import ResponseNetwork

Rows = npt.NDArray[np.int64]
WARM_UP_SHARE = 0.05
"""The share of the steps in which the learning rate rises linearly; then it falls along a cosine."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How a response network is trained.

    Attributes:
        name: For progress and error messages, and in the checkpoint.
        epochs: How often the training part is seen.
        batch: Crops per step.
        learning_rate: The highest rate.
        weight_decay: Weight decay of AdamW.
        seed: All draws come from it.
        device: "cpu", "cuda" or "cuda:N".
        spacing_mm: The voxel size of the crops in mm.
        augmentation: How views are made.
        contrast: SimCLR's loss and its weight; None: the supervised loss alone.
        one_phase: Whether a view shows one phase: a random one in training, the first at prediction.
        keep: "best": the weights of the least validation loss, once the contrastive loss has no weight any
            more; "last": the final ones.
        checkpoint: A file that a stopped training resumes from.
        checkpoint_seconds: Between two checkpoints.
        progress: Called with the name, the epoch and the number of epochs.
    """

    name: str
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float = 0.01
    seed: int
    device: str = "cpu"
    spacing_mm: tuple[float, float, float] = (1.0, 1.0, 1.0)
    augmentation: Augmentation = GENTLE
    contrast: Contrast | None = None
    one_phase: bool = False
    keep: Literal["best", "last"] = "best"
    checkpoint: Path | None = None
    checkpoint_seconds: float = 120.0
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The report of a training; the network was trained in place.

    Attributes:
        history: One entry per epoch.
        best_epoch: The epoch (from 1) of the network's weights.
        images: Crops that were trained on.
    """

    history: tuple[Mapping[str, float], ...]
    best_epoch: int
    images: int


def fit(
    network: ResponseNetwork, crops: Crops, *, train: Rows, validation: Rows, label: Rows, options: FitOptions
) -> Fitted:
    """Train a network in place.

    The two classes weigh the same in the loss, so that one half is the place to decide (balanced accuracy).

    Args:
        network: The network.
        crops: The crops of all cases.
        train: Rows of the training part.
        validation: Rows of the validation part; those of unknown label are left out.
        label: 0 or 1 for every crop, -1 where it is not known: such crops are seen by the contrastive loss
            alone.
        options: Rates, lengths, augmentation.

    Returns:
        History, best epoch and number of crops.

    Raises:
        TrainingError: The training part holds one class alone.
    """
    labelled = train[label[train] >= 0]
    if len(np.unique(label[labelled])) < 2:
        raise TrainingError(
            f"the training part of {options.name} has only one class ({len(labelled)} known outcomes)",
            fix="Train on a part with both outcomes.",
        )
    if options.contrast is None:
        train = labelled
    run = _Run(network, crops, train, label, options)
    loop = EpochLoop(network, epochs=options.epochs, keep=options.keep)
    key = _key(crops, train, validation, label, options)
    state = read_checkpoint(options.checkpoint)
    if state is not None and state["key"] == key:
        run.restore(state)
        loop.load(state)
    written = time.perf_counter()
    watched = validation[label[validation] >= 0]
    for epoch in loop:
        weight = options.contrast.weight(epoch, options.epochs) if options.contrast else 0.0
        loss = run.epoch(epoch, weight)
        validation_loss = balanced_loss(
            probabilities(network, crops, watched, options=options), label[watched]
        )
        known = math.isfinite(validation_loss)
        loop.record(
            {"epoch": float(epoch), "train_loss": loss, "contrast_weight": weight}
            | ({"validation_loss": validation_loss} if known else {}),
            score=validation_loss if known and weight == 0.0 else None,
        )
        options.progress(options.name, epoch, options.epochs)
        if loop.is_last:
            loop.finish()
        if options.checkpoint is not None and (
            loop.is_last or time.perf_counter() - written >= options.checkpoint_seconds
        ):
            content = {"key": key} | run.state() | loop.state()
            # A finished training needs its weights alone.
            write_checkpoint(
                options.checkpoint, content | ({"optimiser": {}, "kept": None} if loop.is_last else {})
            )
            written = time.perf_counter()
    return Fitted(
        history=tuple(loop.history), best_epoch=loop.finish(), images=loop.epoch * run.steps * run.batch
    )


class _Run:
    """A network, its optimiser, and the training part on the device."""

    def __init__(
        self, network: ResponseNetwork, crops: Crops, train: Rows, label: Rows, options: FitOptions
    ) -> None:
        self.network, self.crops, self.options, self.train = network, crops, options, train
        self.batch = min(options.batch, len(train))
        self.steps = max(1, len(train) // self.batch)
        known = label[train]
        positive, negative = (known == 1).sum(), (known == 0).sum()
        self.heavier = torch.tensor(negative / positive, dtype=torch.float32, device=options.device)
        self.label = torch.from_numpy(label).to(options.device)
        on_gpu = options.device.startswith("cuda")
        if on_gpu:
            network.to(device=options.device, memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        self.optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=options.learning_rate,
            weight_decay=options.weight_decay,
            fused=on_gpu,
        )

    def state(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        if state["optimiser"]:
            self.optimiser.load_state_dict(state["optimiser"])

    def epoch(self, epoch: int, weight: float) -> float:
        options, device = self.options, self.options.device
        rng = np.random.default_rng(np.random.SeedSequence([options.seed, 7, epoch]))
        generator = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
        count = self.steps * self.batch
        order = torch.from_numpy(rng.permutation(self.train)[:count]).to(device)
        twice = 2 if options.contrast else 1
        size = tuple(self.crops.images.shape[2:])
        views = [
            draw_views(
                rng,
                count,
                options.augmentation,
                size=size,  # type: ignore[arg-type]
                spacing_mm=options.spacing_mm,
                device=device,
            )
            for _ in range(twice)
        ]
        total = torch.zeros((), device=device)
        self.network.train()
        for step in range(self.steps):
            self._rate((epoch - 1) * self.steps + step)
            at = torch.arange(step * self.batch, (step + 1) * self.batch, device=device)
            rows = order.index_select(0, at)
            x = torch.cat([self._view(rows, view, at, generator) for view in views])
            with mixed_precision(torch.device(device), cache=True):
                features = self.network.features(x)
                logits = self.network.head(features).squeeze(1)
                projected = self.network.project(features) if weight else None
            loss = torch.zeros((), device=device)
            if weight < 1.0:
                loss = (1.0 - weight) * self._supervised(logits.float(), rows.repeat(twice))
            if projected is not None and options.contrast is not None:
                first, second = projected.float().chunk(2)
                loss = loss + weight * nt_xent(first, second, temperature=options.contrast.temperature)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
            self.optimiser.step()
            total += loss.detach()
        return float(total) / self.steps

    def _rate(self, step: int) -> None:
        steps = self.steps * self.options.epochs
        warm_up = max(1, round(WARM_UP_SHARE * steps))
        share = (
            (step + 1) / warm_up
            if step < warm_up
            else 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
        )
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.learning_rate * share

    def _view(
        self, rows: torch.Tensor, views: Views, at: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        images = self.crops.images.index_select(0, rows)
        if self.options.one_phase:
            own = self.crops.counts.index_select(0, rows)
            phase = (views.pick.index_select(0, at) * own).long()
            images = images[torch.arange(len(images), device=images.device), phase].unsqueeze(1)
        return make_views(images, views, at, generator)

    def _supervised(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        label = self.label.index_select(0, rows)
        known = (label >= 0).float()
        weight = known * torch.where(label == 1, self.heavier, 1.0)
        each = functional.binary_cross_entropy_with_logits(
            logits, label.clamp_min(0).float(), reduction="none"
        )
        return (each * weight).sum() / weight.sum().clamp_min(1e-6)


def probabilities(
    network: ResponseNetwork, crops: Crops, rows: Rows, *, options: FitOptions, flip: bool = False
) -> npt.NDArray[np.float64]:
    """Return the probability of pCR for crops.

    Args:
        network: The network.
        crops: The crops of all cases.
        rows: Which of them.
        options: `one_phase` and `batch`.
        flip: The mean over all mirrored crops.

    Returns:
        One probability per row.
    """
    parts = [
        crop_probability(
            [network],
            crops.images.index_select(0, torch.from_numpy(part).to(crops.images.device)),
            one_phase=options.one_phase,
            flip=flip,
        )
        for part in np.array_split(rows, max(1, math.ceil(len(rows) / (2 * options.batch))))
        if len(part)
    ]
    return torch.cat(parts).cpu().numpy().astype(np.float64) if parts else np.zeros(0)


@torch.no_grad()
def crop_probability(
    networks: list[ResponseNetwork], images: torch.Tensor, *, one_phase: bool = False, flip: bool = False
) -> torch.Tensor:
    """Return the mean probability over networks and mirrored crops.

    Args:
        networks: At least one; each goes back to the mode (training or not) that it was in.
        images: [crops, phases, x, y, z].
        one_phase: The networks see the first phase alone.
        flip: The mean over all mirrored crops.

    Returns:
        One probability per crop, on the crops' device.
    """
    x = images[:, :1] if one_phase else images
    x = x.float()
    mirrored = flips(x.shape[4] > 1) if flip else ((),)
    total = torch.zeros(len(x), device=x.device)
    for network in networks:
        training = network.training
        network.eval()
        with mixed_precision(x.device, cache=True):
            for axes in mirrored:
                total += torch.sigmoid(network(torch.flip(x, axes) if axes else x).float())
        network.train(training)
    return total / (len(networks) * len(mirrored))


def balanced_loss(probability: npt.NDArray[np.float64], label: Rows) -> float:
    """Return the cross-entropy with both classes of the same weight.

    Args:
        probability: The probability of class 1, per case.
        label: 0 or 1.

    Returns:
        One number; NaN without a case.

    Example:
        >>> round(balanced_loss(np.array([0.5, 0.5]), np.array([0, 1])), 3)
        0.693
    """
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    each = -np.where(label == 1, np.log(p), np.log(1 - p))
    parts = [each[label == kind].mean() for kind in (0, 1) if (label == kind).any()]
    return float(np.mean(parts)) if parts else math.nan


def _key(crops: Crops, train: Rows, validation: Rows, label: Rows, options: FitOptions) -> str:
    plain = {
        k: v for k, v in vars(options).items() if k not in ("checkpoint", "checkpoint_seconds", "progress")
    }
    what = (crops.cases, tuple(crops.images.shape), train.tolist(), validation.tolist(), label.tolist())
    return hashlib.sha256(repr((what, sorted(plain.items()))).encode()).hexdigest()
