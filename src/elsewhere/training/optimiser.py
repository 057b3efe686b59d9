"""Adam in a form that a CUDA graph can hold: its learning rate and its step counter live on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from elsewhere.training.loop import copy_optimiser_state, restore_optimiser_state, set_learning_rate


class RecordableAdam:
    """Clipping by the global gradient norm, then Adam with L2 weight decay (US-14).

    Args:
        parameters: What is trained.
        gradient_norm: Gradients of a larger norm are scaled down to it.
        weight_decay: Added to the gradient, times the weight (Adam, not AdamW).
        device: Where the parameters are.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        gradient_norm: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        self._parameters = list(parameters)
        self._gradient_norm = gradient_norm
        self._rate = torch.zeros((), device=device)
        self._on_gpu = device.type == "cuda"
        self._adam = torch.optim.Adam(
            self._parameters,
            lr=self._rate if self._on_gpu else 0.0,
            weight_decay=weight_decay,
            fused=self._on_gpu,
            capturable=self._on_gpu,
            foreach=None if self._on_gpu else True,
        )

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps.

        Args:
            rate: The learning rate; a recorded step reads it from the device.
        """
        set_learning_rate(self._adam, rate, self._rate)

    def step(self) -> None:
        """Clip the gradients and update the parameters."""
        torch.nn.utils.clip_grad_norm_(self._parameters, self._gradient_norm, foreach=True)
        self._adam.step()

    def reset(self) -> None:
        """Forget all moments: a new training starts. On a GPU they are zeroed where they are, as a recorded step
        knows their addresses."""
        if not self._on_gpu:
            self._adam.state.clear()
        for entry in self._adam.state.values():
            for tensor in entry.values():
                tensor.zero_()

    def state(self) -> list[dict[str, torch.Tensor]]:
        """Copy the moments for a checkpoint.

        Returns:
            Tensors by name, one entry per parameter.
        """
        return copy_optimiser_state(self._adam, self._parameters)

    def load(self, copies: Sequence[Mapping[str, torch.Tensor]]) -> None:
        """Take over the moments of a checkpoint.

        Args:
            copies: What `state` returned.
        """
        restore_optimiser_state(self._adam, self._parameters, copies)
