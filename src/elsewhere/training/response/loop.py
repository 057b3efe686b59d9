"""One training of one response network, and what it says of crops.

Everything random of an epoch comes from (seed, epoch), so that a run that is killed goes on from its last
checkpoint as if nothing had happened. On CUDA the step is in bfloat16 and asks the device for nothing; on a
CPU it is float32 and gives the same bits every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.errors import TrainingError
from elsewhere.training.response.augment import GENTLE, Augmentation, Views, draw_views, flips, make_views
from elsewhere.training.response.contrast import Contrast, nt_xent
from elsewhere.training.response.crops import Crops
from elsewhere.training.response.networks import ResponseNetwork

Rows = npt.NDArray[np.int64]
WARM = 0.05
"""Of the steps: the learning rate rises in a line, then falls along a cosine."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    name: str
    """For progress and in the checkpoint."""
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
    """A view shows one phase, drawn in training; in use the first."""
    keep: Literal["best", "last"] = "best"
    """'best': the weights of the least validation loss, once the contrastive loss has no weight any more."""
    checkpoint: Path | None = None
    checkpoint_seconds: float = 120.0
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    history: tuple[Mapping[str, float], ...]
    best_epoch: int
    images: int


def fit(
    network: ResponseNetwork, crops: Crops, *, train: Rows, validation: Rows, label: Rows, options: FitOptions
) -> Fitted:
    """Train in place. `label` of every crop, -1 where it is not known: such crops are seen by the contrastive
    loss alone. The two classes weigh the same, so that one half is the place to decide (balanced accuracy)."""
    labelled = train[label[train] >= 0]
    if len(np.unique(label[labelled])) < 2:
        raise TrainingError(
            f"the training part of {options.name} holds one class alone ({len(labelled)} known outcomes)",
            fix="Train on a part with both outcomes.",
        )
    if options.contrast is None:
        train = labelled
    run = _Run(network, crops, train, label, options)
    key = _key(crops, train, validation, label, options)
    state = _read(options.checkpoint, key)
    epoch, best, best_epoch, history, kept = 0, math.inf, 0, [], None
    if state is not None:
        run.restore(state)
        epoch, best, best_epoch = state["epoch"], state["best"], state["best_epoch"]
        history, kept = state["history"], state["kept"]
    written = time.perf_counter()
    watched = validation[label[validation] >= 0]
    while epoch < options.epochs:
        epoch += 1
        began = time.perf_counter()
        weight = options.contrast.weight(epoch, options.epochs) if options.contrast else 0.0
        loss = run.epoch(epoch, weight)
        held = balanced_loss(probabilities(network, crops, watched, options=options), label[watched])
        seconds = time.perf_counter() - began
        entry = {"epoch": float(epoch), "train_loss": loss, "contrast_weight": weight, "seconds": seconds}
        history.append(entry | ({"validation_loss": held} if math.isfinite(held) else {}))
        if options.keep == "best" and weight == 0.0 and held < best:
            best, best_epoch = held, epoch
            kept = {name: value.detach().clone() for name, value in network.state_dict().items()}
        options.progress(options.name, epoch, options.epochs)
        last = epoch == options.epochs
        if last or time.perf_counter() - written >= options.checkpoint_seconds:
            if last and kept is not None:
                network.load_state_dict(kept)
            more = {"epoch": epoch, "best": best, "best_epoch": best_epoch, "history": history, "kept": kept}
            _write(options.checkpoint, {"key": key, **more}, run, done=last)
            written = time.perf_counter()
    return Fitted(
        history=tuple(history), best_epoch=best_epoch or epoch, images=epoch * run.steps * run.batch
    )


class _Run:
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
            with _precision(device):
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
        warm = max(1, round(WARM * steps))
        share = (
            (step + 1) / warm
            if step < warm
            else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
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
    """Of pCR, a crop; `flip`: the mean over all mirrored crops."""
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
    """The mean probability over networks and mirrored crops [n, phases, x, y, z]; modes are left as found."""
    x = images[:, :1] if one_phase else images
    x = x.float()
    turned = flips(x.shape[4] > 1) if flip else ((),)
    total = torch.zeros(len(x), device=x.device)
    for network in networks:
        was = network.training
        network.eval()
        with _precision(x.device.type):
            for axes in turned:
                total += torch.sigmoid(network(torch.flip(x, axes) if axes else x).float())
        network.train(was)
    return total / (len(networks) * len(turned))


def balanced_loss(probability: npt.NDArray[np.float64], label: Rows) -> float:
    """Cross entropy with both classes of the same weight; NaN without a case."""
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    each = -np.where(label == 1, np.log(p), np.log(1 - p))
    parts = [each[label == kind].mean() for kind in (0, 1) if (label == kind).any()]
    return float(np.mean(parts)) if parts else math.nan


@contextlib.contextmanager
def _precision(device: str) -> Iterator[None]:
    if device.startswith("cuda"):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            yield
    else:
        yield


def _key(crops: Crops, train: Rows, validation: Rows, label: Rows, options: FitOptions) -> str:
    plain = {
        k: v for k, v in vars(options).items() if k not in ("checkpoint", "checkpoint_seconds", "progress")
    }
    what = (crops.cases, tuple(crops.images.shape), train.tolist(), validation.tolist(), label.tolist())
    return hashlib.sha256(repr((what, sorted(plain.items()))).encode()).hexdigest()


def _read(path: Path | None, key: str) -> dict[str, Any] | None:
    if path is None or not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state if state["key"] == key else None


def _write(path: Path | None, state: dict[str, Any], run: _Run, *, done: bool) -> None:
    """A finished training keeps its weights alone."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    state = state | {
        "network": run.network.state_dict(),
        "optimiser": {} if done else run.optimiser.state_dict(),
        "kept": None if done else state["kept"],
    }
    torch.save(state, part)
    part.replace(path)
