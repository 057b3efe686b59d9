"""One segmentation network, its optimiser and its training step, over volumes in static memory.

On a GPU the whole step (cut, change, forward, backward, update) is recorded once as a CUDA graph and replayed: it reads
its position in the epoch from a counter on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from elsewhere.training.cuda import capture_step, fixed_shapes, mixed_precision, side_stream
from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.loop import (
    BestWeights,
    copy_optimiser_state,
    restore_optimiser_state,
    set_learning_rate,
)
from elsewhere.training.volumes.feeding import Feed
from elsewhere.training.volumes.losses import Objective
from elsewhere.training.volumes.networks import layout_of
from elsewhere.training.volumes.patches import (
    JITTERS,
    PLAIN,
    PatchDraws,
    change,
    cut,
    noise_values,
)
from elsewhere.training.volumes.planning import Plan
from elsewhere.training.volumes.preparing import Prepared
from elsewhere.training.volumes.settings import FitSettings


class StepProgram:
    """Static memory and one training step.

    Args:
        network: What is trained; it is on the data's device.
        data: The training part.
        plan: Patch, batch and channels.
        settings: Optimiser, rates and lengths.
        objective: The loss.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        data: Prepared,
        plan: Plan,
        settings: FitSettings,
        objective: Objective,
    ) -> None:
        self.network, self.plan, self.settings, self.objective = network, plan, settings, objective
        self.device = data.device
        self.on_gpu = self.device.type == "cuda"
        self.batch = settings.batch or plan.batch
        self.feed = Feed(data, self.batch)
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.rate = torch.zeros((), device=self.device)
        self.optimiser = self._optimiser()
        steps, batch, device = settings.steps_per_epoch, self.batch, self.device
        self.rows = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self.offset = torch.zeros_like(self.rows)
        self.shape = torch.ones((steps, batch, 3), dtype=torch.int64, device=device)
        self.matrix = torch.zeros((steps, batch, 3, 4), device=device)
        self.jitter = torch.zeros((steps, batch, plan.channels, JITTERS), device=device)
        self.shift = torch.zeros_like(self.rows)
        self.case_weight = torch.ones(len(data.cases), device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.noise = noise_values(device)
        compiled = self.on_gpu and settings.compiled
        self.layout = layout_of(network)
        self._forward: Any = torch.compile(network, dynamic=False) if compiled else network
        self._patches: Any = torch.compile(self._make, dynamic=False) if compiled else self._make
        self.graph: Any = None

    def _optimiser(self) -> torch.optim.Optimizer:
        settings = self.settings
        rate: Any = self.rate if self.on_gpu else 0.0
        if settings.optimiser == "sgd":
            return torch.optim.SGD(
                self.parameters,
                lr=rate,
                momentum=settings.momentum,
                nesterov=settings.momentum > 0,
                weight_decay=settings.weight_decay,
                fused=self.on_gpu,
            )
        return torch.optim.AdamW(
            self.parameters,
            lr=rate,
            weight_decay=settings.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
        )

    def _make(
        self,
        offset: torch.Tensor,
        shape: torch.Tensor,
        matrix: torch.Tensor,
        jitter: torch.Tensor,
        shift: torch.Tensor,
        active: list[bool] | None = None,
        whole: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, target = cut(
            self.feed.images, self.feed.masks, offset, shape, matrix, self.plan.patch, whole=whole
        )
        if self.settings.augment:
            x = change(x, jitter, shift, self.noise, active=active)
        return x, target

    def _step(self, active: list[bool] | None = None, whole: bool = False) -> None:
        at = self._position
        with torch.no_grad():
            x, target = self._patches(
                *(
                    table.index_select(0, at)[0]
                    for table in (self.offset, self.shape, self.matrix, self.jitter, self.shift)
                ),
                active,
                whole,
            )
            x = x.contiguous(memory_format=self.layout)
            weight = self.case_weight.index_select(0, self.rows.index_select(0, at)[0])
        with mixed_precision(self.device):
            loss = self.objective(self._forward, x, target, weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.gradient_norm, foreach=True)
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self._position += 1

    def _reset_step(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self._position.zero_()

    def capture(self) -> None:
        """Record the step on a GPU; put back the weights and the optimiser's state that the warm-up changed."""
        if not self.on_gpu or self.graph is not None or not cuda_options().captured:
            return
        weights, state = BestWeights(self.network, allocate=True), self._optimiser_state()
        self.network.train()
        self.matrix[:, :, :, :3] = torch.eye(3, device=self.device)
        self.jitter.copy_(torch.from_numpy(np.broadcast_to(PLAIN, self.jitter.shape).copy()))
        with fixed_shapes(True):
            self.graph = capture_step(
                self._step, reset=self._reset_step, stream=side_stream(self.device), free_cache=True
            )
        weights.restore()
        restore_optimiser_state(self.optimiser, self.parameters, state)

    def epoch(self, draws: PatchDraws, rate: float) -> float:
        """Run the steps of an epoch.

        Args:
            draws: Which patches, and how they are changed.
            rate: The learning rate.

        Returns:
            The mean loss.
        """
        steps = len(draws)
        tables: tuple[tuple[torch.Tensor, np.ndarray], ...] = (
            (self.rows, draws.row),
            (self.offset, self.feed.offsets(draws)),
            (self.shape, draws.shape),
            (self.matrix, draws.matrix),
            (self.jitter, draws.jitter),
            (self.shift, draws.shift),
        )
        for table, values in tables:
            table[:steps].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        self._position.zero_()
        self.loss_sum.zero_()
        set_learning_rate(self.optimiser, rate, self.rate)
        self.network.train()
        self.feed.start(draws)
        with fixed_shapes(self.on_gpu):
            for step in range(steps):
                self.feed.ready(step)
                if self.graph is not None:
                    self.graph.replay()
                else:
                    self.optimiser.zero_grad(set_to_none=True)
                    self._step(*((None, False) if self.on_gpu else _needed(draws, step)))
                self.feed.done(step)
        return float(self.loss_sum) / steps

    def release(self) -> None:
        """Free the gradients and the recorded step's memory, whoever still holds the network."""
        self.optimiser.zero_grad(set_to_none=True)
        self.graph = self._patches = self._forward = None

    def set_weights(self, weights: np.ndarray) -> None:
        """Set how much each case's patches count in the loss.

        Args:
            weights: One per case.
        """
        self.case_weight.copy_(torch.from_numpy(weights))

    def _optimiser_state(self) -> list[dict[str, torch.Tensor]]:
        return copy_optimiser_state(self.optimiser, self.parameters)

    def state(self) -> dict[str, Any]:
        """Return network, optimiser and case weights for a checkpoint.

        Returns:
            Tensors on the CPU.
        """
        return {
            "network": {k: v.detach().cpu() for k, v in self.network.state_dict().items()},
            "optimiser": [{k: v.cpu() for k, v in entry.items()} for entry in self._optimiser_state()],
            "weights": self.case_weight.cpu(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a checkpoint; before `capture`.

        Args:
            state: What `state` returned.

        Raises:
            RuntimeError: It is of another network.
            KeyError: Something is missing.
        """
        network, optimiser, weights = state["network"], state["optimiser"], state["weights"]
        own = self.network.state_dict()
        if {k: v.shape for k, v in network.items()} != {k: v.shape for k, v in own.items()}:
            raise RuntimeError("the checkpoint is of another network")
        self.network.load_state_dict(network)
        for p, values in zip(self.parameters, optimiser, strict=True):
            if values:
                self.optimiser.state[p].update({k: v.to(self.device) for k, v in values.items()})
        self.case_weight.copy_(weights)


def _needed(draws: PatchDraws, step: int) -> tuple[list[bool], bool]:
    """Which changes any patch of a step has, and whether none is turned or scaled: a CPU leaves out the rest."""
    active = (draws.jitter[step] != PLAIN).any(axis=(0, 1)).tolist()
    return active, bool((np.abs(draws.matrix[step, :, :, :3]) == np.eye(3)).all())
