"""One segmenter, its optimiser and its training step on one stream, used by many trainings.

On a GPU the step is recorded once as a CUDA graph. It reads the rows and the changes of its patches from static memory by a
counter on the device, and the patches themselves from the pool, which all trainings share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from elsewhere.networks.segmenters import build_segmenter
from elsewhere.networks.segmenters.layers import MaskedDropout
from elsewhere.training.cuda import capture_step, mixed_precision
from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.loop import BestWeights
from elsewhere.training.optimiser import RecordableAdam
from elsewhere.training.patches.augment import (
    CHANGES,
    EpochDraws,
    augment,
    epoch_steps,
    to_input,
    unpack_bits,
)
from elsewhere.training.patches.losses import focal_tversky, hard_counts, soft_counts
from elsewhere.training.patches.settings import PatchSettings, PatchTraining


@dataclass(frozen=True, kw_only=True, eq=False)
class DevicePool:
    """The patches on the device, as bytes.

    Attributes:
        pixels: (n, size, size, 3).
        masks: (n, size * size / 8), packed.
        has_tumour: (n,) whether a mask has any tumour.
        size: Pixels along a patch.
    """

    pixels: torch.Tensor
    masks: torch.Tensor
    has_tumour: torch.Tensor
    size: int


def program_key(settings: PatchSettings) -> PatchSettings:
    """Return what two trainings must have in common to share a recorded step.

    Args:
        settings: The settings of a training.

    Returns:
        Settings without what the step reads from memory: weights, rates, epochs, probabilities of changes.
    """
    return replace(
        settings,
        weights="",
        weights_digest="",
        learning_rate=1.0,
        decay=1.0,
        epochs=1,
        patience=1,
        mirror=0.0,
        jitter=0.0,
        contrast=0.0,
        saturation=0.0,
    )


class PatchProgram:
    """Static memory, a segmenter, and one training step.

    Args:
        unit: A training that the program is made for; see `program_key` for the others that it serves.
        pool: The patches on the device.
        steps: Steps per epoch at most.
        device: Where it trains.

    Attributes:
        model: The segmenter.
        best: The weights of the best epoch.
        loss_sum: The sum of the losses of this epoch's steps, on the device.
        patches_seen: Patches that went through a training step since `start`.
    """

    def __init__(self, unit: PatchTraining, *, pool: DevicePool, steps: int, device: torch.device) -> None:
        self.settings, self.pool, self.device = unit.settings, pool, device
        self.on_gpu = device.type == "cuda"
        self.model = build_segmenter(unit.settings.network).to(device)
        if self.on_gpu and cuda_options().channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.optimiser = RecordableAdam(
            self.model.parameters(), gradient_norm=float("inf"), weight_decay=0.0, device=device
        )
        batch = unit.settings.batch
        self._order = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self._changes = torch.zeros((steps, batch, CHANGES), device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._dropouts = self._dropout_masks(batch)
        self._graph: Any = None
        self.loss_sum = torch.zeros((), device=device)
        self.best = BestWeights(self.model, allocate=True)
        self.patches_seen = 0

    def _dropout_masks(self, batch: int) -> list[tuple[MaskedDropout, torch.Tensor]]:
        """A mask for each dropout, of the shape that its input has with whole batches."""
        parts = [part for part in self.model.modules() if isinstance(part, MaskedDropout) and part.rate > 0]
        shapes: dict[int, torch.Size] = {}
        hooks = [
            part.register_forward_pre_hook(lambda _, given, at=at: shapes.__setitem__(at, given[0].shape))
            for at, part in enumerate(parts)
        ]
        with torch.no_grad():
            self.model.eval()
            self.model(torch.zeros((1, 3, self.pool.size, self.pool.size), device=self.device))
        for hook in hooks:
            hook.remove()
        return [
            (part, torch.ones((batch, *shapes[at][1:]), dtype=torch.bool, device=self.device))
            for at, part in enumerate(parts)
        ]

    def _step(self) -> None:
        at = self._position
        rows = self._order.index_select(0, at)[0]
        x = to_input(self.pool.pixels.index_select(0, rows))
        truth = unpack_bits(self.pool.masks.index_select(0, rows), self.pool.size)
        x, truth = augment(x, truth, self._changes.index_select(0, at)[0])
        if self.on_gpu and cuda_options().channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            logits = self.model(x)
        loss = focal_tversky(soft_counts(logits, truth), self.settings)
        loss.backward()
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self._position += 1

    def _reset_step(self) -> None:
        self.optimiser.zero_gradients()
        self._position.zero_()

    def capture(self, stream: Any) -> None:
        """Record the step on a GPU; do nothing on a CPU. The weights change: `start` writes them again.

        Args:
            stream: The stream that the program trains on.
        """
        if not self.on_gpu or self._graph is not None or not cuda_options().captured:
            return
        self._train_mode()
        self._graph = capture_step(self._step, reset=self._reset_step, stream=stream)

    def _train_mode(self) -> None:
        self.model.train()
        for part, mask in self._dropouts:
            part.mask = mask

    def start(self, state: Mapping[str, torch.Tensor]) -> None:
        """Start a training: its first weights, and an optimiser without moments.

        Args:
            state: The state dict to start with.
        """
        for name, tensor in self.model.state_dict(keep_vars=False).items():
            tensor.copy_(state[name])
        self.optimiser.reset()
        self.patches_seen = 0

    def epoch(
        self, draws: EpochDraws, rate: float, generator: torch.Generator, chunk: int = 8
    ) -> Iterator[None]:
        """Launch the steps of an epoch.

        Args:
            draws: The epoch's order and changes.
            rate: The learning rate.
            generator: Draws the dropout masks.
            chunk: Steps between two turns of other streams.

        Yields:
            None after every `chunk` steps.
        """
        steps = len(draws.order)
        self._order[:steps].copy_(torch.from_numpy(draws.order))
        self._changes[:steps].copy_(torch.from_numpy(np.ascontiguousarray(draws.changes)))
        self._position.zero_()
        self.loss_sum.zero_()
        self.optimiser.set_rate(rate)
        self._train_mode()
        for step in range(steps):
            for part, mask in self._dropouts:
                mask.bernoulli_(1.0 - part.rate, generator=generator)
            if self._graph is not None:
                self._graph.replay()
            else:
                self.optimiser.zero_gradients()
                self._step()
            if step % chunk == chunk - 1:
                yield
        self.patches_seen += steps * self.settings.batch

    @torch.no_grad()
    def measure(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compare the network's answer to some patches with their masks.

        Args:
            rows: Rows of the pool.

        Returns:
            (n, 3) soft counts and (n, 4) pixel counts of each patch, in double precision and as whole numbers.
        """
        self.model.eval()
        x = to_input(self.pool.pixels.index_select(0, rows))
        if self.on_gpu and cuda_options().channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        truth = unpack_bits(self.pool.masks.index_select(0, rows), self.pool.size)
        with mixed_precision(self.device):
            logits = self.model(x)
        probability = logits.sigmoid()
        positive = truth.flatten(1).sum(dim=1, dtype=torch.float64)
        hit = (probability * truth).flatten(1).sum(dim=1, dtype=torch.float64)
        called = probability.flatten(1).sum(dim=1, dtype=torch.float64)
        soft = torch.stack([hit, called - hit, positive - hit], dim=1)
        return soft, hard_counts(logits, truth, self.settings.threshold)

    def state(self) -> dict[str, Any]:
        """Return the network and its optimiser for a checkpoint.

        Returns:
            Copies of the weights and the moments.
        """
        return {
            "model": {name: value.detach().clone() for name, value in self.model.state_dict().items()},
            "optimiser": self.optimiser.state(),
            "patches": self.patches_seen,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned.

        Args:
            state: The state of a checkpoint.
        """
        self.start(state["model"])
        self.optimiser.load(state["optimiser"])
        self.patches_seen = int(state["patches"])


def most_steps(units: list[PatchTraining], key: PatchSettings) -> int:
    """Return the most steps per epoch of the trainings that share a program.

    Args:
        units: Trainings.
        key: The `program_key` of the program.

    Returns:
        Steps, at least 1.
    """
    return max(
        (
            epoch_steps(len(unit.train), unit.settings.batch)
            for unit in units
            if program_key(unit.settings) == key
        ),
        default=1,
    )
