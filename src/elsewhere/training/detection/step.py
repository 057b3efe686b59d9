"""One step of a detector's training: forward pass, loss, backward pass, update; recorded on a GPU where that is possible.

A step of a small detector has some two thousand kernels, and launching them one by one takes several times as long as they
run. A network whose loss is computed in tensors of one size is recorded as a CUDA graph at its first step. A Faster R-CNN
cannot be: it suppresses and samples regions, of which every picture has another number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchvision.ops import StochasticDepth

from elsewhere.networks.detectors.base import Targets
from elsewhere.training.cuda import capture_step, mixed_precision, side_stream
from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.loop import BestWeights, copy_optimiser_state, restore_optimiser_state

Loss = Callable[[torch.Tensor, Targets], torch.Tensor]


def can_be_recorded(model: nn.Module) -> bool:
    """Tell whether a network does the same work in every training step.

    Args:
        model: The network.

    Returns:
        Whether its losses have one size, and it drops nothing at random.
    """
    random = (nn.Dropout, nn.Dropout2d, StochasticDepth)
    draws = any(isinstance(part, random) and part.p > 0 for part in model.modules())
    return bool(getattr(model, "static_losses", False)) and not draws


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recorded:
    """A recorded step, and the memory that it reads."""

    graph: Any
    pictures: torch.Tensor
    targets: Targets

    def replay(self, pictures: torch.Tensor, targets: Targets) -> None:
        self.pictures.copy_(pictures)
        self.targets.box.copy_(targets.box)
        self.targets.label.copy_(targets.label)
        self.graph.replay()


class NetworkStep:
    """The step of one training.

    Args:
        model: The network, on its device.
        optimiser: Its optimiser. It is recorded with a learning rate that is a tensor on the device.
        loss: Pictures and their lesions to the number that is minimised.
        gradient_norm: Gradients of a larger norm are scaled down to it.

    Attributes:
        recorded: The recorded step; None where every step is launched kernel by kernel.
    """

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, gradient_norm: float
    ) -> None:
        self.model, self.optimiser, self.loss, self.gradient_norm = model, optimiser, loss, gradient_norm
        self.parameters = [value for group in optimiser.param_groups for value in group["params"]]
        self.device = next(model.parameters()).device
        self.recorded: _Recorded | None = None
        self._total = torch.zeros((), device=self.device)

    @property
    def _records(self) -> bool:
        rates = [group["lr"] for group in self.optimiser.param_groups]
        on_device = all(isinstance(rate, torch.Tensor) and rate.is_cuda for rate in rates)
        return on_device and cuda_options().captured and can_be_recorded(self.model)

    def run(self, pictures: torch.Tensor, targets: Targets, rate: float) -> None:
        """Do one step. The loss is added up on the device.

        Args:
            pictures: (n, 3, height, width) from 0 to 1; always of one size.
            targets: Their lesions.
            rate: The learning rate.
        """
        self._set_rate(rate)
        if self._records and self.recorded is None:
            self.recorded = self._record(pictures, targets)
        if self.recorded is None:
            self.optimiser.zero_grad(set_to_none=True)
            self._step(pictures, targets)
        else:
            self.recorded.replay(pictures, targets)

    def take_loss(self) -> float:
        """Return the sum of the losses since the last call. The host waits for the device.

        Returns:
            The sum.
        """
        value = float(self._total)
        self._total.zero_()
        return value

    def _step(self, pictures: torch.Tensor, targets: Targets) -> None:
        with mixed_precision(self.device):
            loss = self.loss(pictures, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.gradient_norm)
        self.optimiser.step()
        self._total += loss.detach()

    def _set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _record(self, pictures: torch.Tensor, targets: Targets) -> _Recorded:
        """Record the step, and put back the weights and the optimiser's state that the warm-up changed."""
        weights = BestWeights(self.model, allocate=True)
        state, total = copy_optimiser_state(self.optimiser, self.parameters), self._total.clone()
        held = pictures.clone(memory_format=torch.preserve_format)
        lesions = Targets(box=targets.box.clone(), label=targets.label.clone())
        graph = capture_step(
            lambda: self._step(held, lesions),
            reset=lambda: self.optimiser.zero_grad(set_to_none=True),
            stream=side_stream(self.device),
        )
        weights.restore()
        restore_optimiser_state(self.optimiser, self.parameters, state)
        self._total.copy_(total)
        return _Recorded(graph=graph, pictures=held, targets=lesions)
