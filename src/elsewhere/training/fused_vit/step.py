"""The one interface of this package: a vision transformer's body, its head's optimiser, and their step."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from elsewhere.training.fused_vit.adam import FlatAdam
from elsewhere.training.fused_vit.body import TransformerBody


class FusedTransformerStep:
    """A vision transformer's training step with its passes written by hand (`pictures.step.TrainingStep`).

    Args:
        vit: torchvision's `VisionTransformer` without its heads, on a GPU; its parameters move into one piece
            of memory and must not be moved or cast afterwards.
        head: The parameters of the head, whose gradients autograd computes.
        gradient_norm: Gradients of body and head together of a larger norm are scaled down to it.
        weight_decay: Added to the gradient, times the weight (Adam, not AdamW).
    """

    def __init__(
        self,
        vit: torch.nn.Module,
        head: Iterable[torch.nn.Parameter],
        *,
        gradient_norm: float,
        weight_decay: float,
    ) -> None:
        others = list(head)
        self._rate = torch.zeros((), device=others[0].device)
        self._body = TransformerBody(vit)
        self._adam = FlatAdam(
            self._body.flat,
            others,
            rate=self._rate,
            max_norm=gradient_norm,
            weight_decay=weight_decay,
        )

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of pictures; a backward pass through them fills the gradients.

        Args:
            x: The network's input, [pictures, 3, size, size].

        Returns:
            [pictures, width].
        """
        return self._body(x)

    def inference_features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of pictures without gradients.

        Args:
            x: The network's input, [pictures, 3, size, size].

        Returns:
            [pictures, width].
        """
        return self._body.features(x)

    def zero_gradients(self) -> None:
        """Forget the gradients of the head; those of the body are overwritten by every backward pass."""
        self._adam.zero_grad()

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps.

        Args:
            rate: The learning rate; a recorded step reads it from the device.
        """
        self._rate.fill_(rate)

    def step(self) -> None:
        """Clip the gradients and update the weights."""
        self._adam.step()

    def reset(self) -> None:
        """Start a new training: reset the moments, and copy the weights that were written."""
        self._adam.reset()
        self._body.refresh()

    def weights_changed(self) -> None:
        """Make the half-precision copy of the weights again."""
        self._body.refresh()
