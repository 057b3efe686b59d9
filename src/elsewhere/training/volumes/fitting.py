"""Training one network on prepared volumes: SGD with Nesterov momentum on a poly schedule (MRI-13).

Everything random is drawn before an epoch from (seed, epoch), so that a training that was stopped resumes as
if nothing had happened. The step is `program.StepProgram`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsewhere.errors import TrainingError
from elsewhere.training.cuda import fixed_shapes, mixed_precision
from elsewhere.training.loop import BestWeights, EpochLoop, read_checkpoint, write_checkpoint
from elsewhere.training.volumes.feeding import Feed
from elsewhere.training.volumes.losses import Objective, baseline_objective
from elsewhere.training.volumes.patches import cut, draw_patches
from elsewhere.training.volumes.planning import Plan
from elsewhere.training.volumes.preparing import Prepared
from elsewhere.training.volumes.program import StepProgram
from elsewhere.training.volumes.settings import FitSettings
from elsewhere.training.volumes.windows import forward_of

OnEpoch = Callable[[Mapping[str, float], torch.nn.Module], "Mapping[str, float] | None"]
"""Called after every epoch with its entry of the history and the network; it may return new weights of cases.
"""
Progress = Callable[[str, int, int], None]
SMOOTHING = 0.9
"""The validation Dice that chooses is a moving average, as that of one epoch is noisy."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The report of a training; the network was trained in place.

    Attributes:
        history: One entry per epoch.
        best_epoch: The epoch (from 1) of the network's weights.
        patches: Patches that were trained on.
        weights: The weights of the cases at the end.
    """

    history: tuple[dict[str, float], ...]
    best_epoch: int
    patches: int
    weights: Mapping[str, float] = field(default_factory=dict)


def fit(
    network: torch.nn.Module,
    data: Prepared,
    plan: Plan,
    settings: FitSettings,
    *,
    seed: int,
    validation: Prepared | None = None,
    sample_weights: Mapping[str, float] | None = None,
    on_epoch: OnEpoch | None = None,
    objective: Objective | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Train a network in place.

    Args:
        network: It maps patches [batch, channel, x, y, z] to logits, in training to a list of them, finest
            first.
        data: The training part.
        plan: Patch, batch and channels.
        settings: Optimiser, rates and lengths.
        seed: All draws come from it.
        validation: The validation part; None or empty: no epoch is the best.
        sample_weights: Case to the weight of its patches' loss; 1 where a case is not in it.
        on_epoch: Called after every epoch.
        objective: (network, image, target, weight) to a loss; None: `losses.baseline_objective`. On a GPU it
            is recorded: no work on the host.
        checkpoint: A file that a stopped training resumes from.
        progress: Called with "epoch", the epoch and the number of epochs.

    Returns:
        History, best epoch and weights of cases.

    Raises:
        TrainingError: The loss is no longer a finite number.
        ValueError: The weights of cases are not finite, negative, or all 0.

    Example:
        `fit(network, data, plan, FitSettings(epochs=100), seed=0, validation=data.subset(validation_cases))`
    """
    program = StepProgram(network, data, plan, settings, objective or baseline_objective(plan))
    program.set_weights(_case_weights(data, sample_weights))
    watched = validation if validation is not None and len(validation.cases) else None
    run = _Run(program, data, watched, seed, objective)
    if checkpoint is not None:
        run.resume(checkpoint)
    try:
        run.epochs(on_epoch, checkpoint, progress)
    finally:
        program.release()
    best_epoch = run.loop.finish()
    network.eval()
    return Fitted(
        history=tuple(run.loop.history),
        best_epoch=best_epoch,
        patches=settings.epochs * settings.steps_per_epoch * program.batch,
        weights=dict(zip(data.cases, program.case_weight.tolist(), strict=True)),
    )


class _Run:
    """One training: its step, its epochs, and the smoothed Dice that chooses the best of them."""

    def __init__(
        self,
        program: StepProgram,
        data: Prepared,
        watched: Prepared | None,
        seed: int,
        own: Objective | None,
    ) -> None:
        self.program, self.data, self.watched, self.seed, self.own = program, data, watched, seed, own
        self.settings = program.settings
        self.smoothed = float("nan")
        self.loop = EpochLoop(
            program.network,
            epochs=self.settings.epochs,
            keep=self.settings.keep,
            higher_is_better=True,
            best=BestWeights(program.network, device=torch.device("cpu")),
        )

    def resume(self, file: Path) -> None:
        """Go back to where a checkpoint was written; one of another network is removed."""
        content = read_checkpoint(file)
        if content is None:
            return
        try:
            self.program.load(content)
            self.loop.load(content)
            self.smoothed = content["smoothed"]
        except (KeyError, RuntimeError):
            file.unlink(missing_ok=True)

    def epochs(self, on_epoch: OnEpoch | None, checkpoint: Path | None, progress: Progress | None) -> None:
        """Train from the epoch that is reached to the last one."""
        settings, program = self.settings, self.program
        if not self.loop.is_last:
            program.capture()
        for epoch in self.loop:
            entry, score = self._epoch(epoch)
            entry = self.loop.record(entry, score=score)
            if on_epoch is not None:
                changed = on_epoch(entry, program.network)
                if changed is not None:
                    program.set_weights(_case_weights(self.data, changed))
            if checkpoint is not None and (self.loop.is_last or epoch % settings.checkpoint_every == 0):
                write_checkpoint(
                    checkpoint, program.state() | self.loop.state() | {"smoothed": self.smoothed}
                )
            if progress is not None:
                progress("epoch", epoch, settings.epochs)

    def _epoch(self, epoch: int) -> tuple[dict[str, float], float | None]:
        """An entry of the history and the score."""
        settings, program = self.settings, self.program
        draws = draw_patches(
            np.random.default_rng([self.seed, 1, epoch - 1]),
            self.data,
            program.plan,
            steps=settings.steps_per_epoch,
            batch=program.batch,
            foreground=settings.foreground,
            augment=settings.augment,
        )
        loss = program.epoch(draws, settings.rate_at(epoch - 1))
        if not np.isfinite(loss):
            raise TrainingError(
                f"the training loss is {loss} in epoch {epoch}", fix="Try a smaller learning_rate."
            )
        entry: dict[str, float] = {"epoch": epoch, "train_loss": loss}
        if self.watched is None:
            return entry, None
        entry |= validate(program, self.watched, program.plan, settings, seed=self.seed, own=self.own)
        dice = entry["validation_dice"]
        if not np.isfinite(dice):
            return entry, None
        first = np.isnan(self.smoothed)
        self.smoothed = dice if first else SMOOTHING * self.smoothed + (1 - SMOOTHING) * dice
        return entry, self.smoothed


def forget_compiled(device: str) -> None:
    """Forget compiled code between two networks.

    Dynamo stores eight graphs of one code and then stops compiling.

    Args:
        device: Where the networks train; nothing is done on a CPU.
    """
    if device.startswith("cuda"):
        torch.compiler.reset()
        torch.cuda.empty_cache()


def _case_weights(data: Prepared, weights: Mapping[str, float] | None) -> np.ndarray:
    given = weights or {}
    out = np.array([float(given.get(case, 1.0)) for case in data.cases], dtype=np.float32)
    if not np.isfinite(out).all() or (out < 0).any() or out.sum() <= 0:
        raise ValueError("weights of cases must be finite, not negative, and not all 0")
    return out


@torch.no_grad()
def validate(
    program: StepProgram,
    data: Prepared,
    plan: Plan,
    settings: FitSettings,
    *,
    seed: int,
    own: Objective | None = None,
) -> dict[str, float]:
    """Return loss and Dice over the same unchanged patches of the validation part in every epoch.

    Args:
        program: The network, and how it is run.
        data: The validation part.
        plan: Patch, batch and channels.
        settings: `validation_steps`.
        seed: Seed of the training.
        own: A loss of the recipe's own; its answers are no masks, so that there is no Dice.

    Returns:
        "validation_loss" and "validation_dice" (NaN where it is not defined).
    """
    network, device = program.network, program.device
    draws = draw_patches(
        np.random.default_rng([seed, 2]),
        data,
        plan,
        steps=settings.validation_steps,
        batch=program.batch,
        foreground=settings.foreground,
        augment=False,
    )
    objective = own or baseline_objective(plan)
    feed = Feed(data, program.batch)
    feed.start(draws)
    network.eval()
    tables = [torch.from_numpy(v).to(device) for v in (feed.offsets(draws), draws.shape, draws.matrix)]
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    total = torch.zeros((), device=device)
    weight = torch.ones(program.batch, device=device)
    run = forward_of(network, program.on_gpu and settings.compiled)
    for step in range(len(draws)):
        feed.ready(step)
        offset, shape, matrix = (table[step] for table in tables)
        x, target = cut(feed.images, feed.masks, offset, shape, matrix, plan.patch, whole=True)
        x = x.contiguous(memory_format=program.layout)
        seen: list[torch.Tensor] = []

        def forward(image: torch.Tensor, seen: list[torch.Tensor] = seen) -> Any:
            out = run(image)
            seen.append(out)
            return out

        with mixed_precision(device), fixed_shapes(program.on_gpu):
            total += objective(forward, x, target, weight)
        if own is None:
            predicted = seen[0] > 0
            truth = target > 0.5
            counts += torch.stack([(predicted & truth).sum(), predicted.sum(), truth.sum()])
        feed.done(step)
    network.train()
    both, predicted_n, truth_n = (float(value) for value in counts)
    dice = 2 * both / (predicted_n + truth_n) if predicted_n + truth_n else float("nan")
    return {"validation_loss": float(total) / len(draws), "validation_dice": dice}
