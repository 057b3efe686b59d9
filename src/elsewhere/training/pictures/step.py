"""How gradients are made and used in one step of a picture classifier: one interface, two implementations.

`AutogradStep` serves every network. `elsewhere.training.fused_vit.FusedTransformerStep` serves a vision transformer on a
GPU and gives the same numbers to within rounding, in two thirds of the time.
"""

from __future__ import annotations

from typing import Protocol

import torch

from elsewhere.networks.classifiers import Classifier
from elsewhere.training.optimiser import RecordableAdam


class TrainingStep(Protocol):
    """The part of a step between the pictures and the classifier's head, and the optimiser of both."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of pictures; a backward pass through them fills the gradients.

        Args:
            x: The network's input, [pictures, 3, size, size].

        Returns:
            [pictures, features].
        """

    def inference_features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of pictures without gradients.

        Args:
            x: The network's input, [pictures, 3, size, size].

        Returns:
            [pictures, features].
        """

    def zero_gradients(self) -> None:
        """Forget the gradients."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps.

        Args:
            rate: The learning rate.
        """

    def step(self) -> None:
        """Clip the gradients and update the weights."""

    def reset(self) -> None:
        """Start a new training: new weights were written into the network, and no moments are left."""

    def weights_changed(self) -> None:
        """Follow weights that were written into the network in the middle of a training."""


class AutogradStep:
    """Gradients by autograd, updates by `RecordableAdam`.

    Args:
        model: The classifier.
        gradient_norm: See `RecordableAdam`.
        weight_decay: See `RecordableAdam`.
    """

    def __init__(self, model: Classifier, *, gradient_norm: float, weight_decay: float) -> None:
        self._model = model
        self._adam = RecordableAdam(
            (p for p in model.parameters() if p.requires_grad),
            gradient_norm=gradient_norm,
            weight_decay=weight_decay,
            device=model.head.weight.device,
        )

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """See `TrainingStep.features`.

        Args:
            x: The network's input, [pictures, 3, size, size].

        Returns:
            [pictures, features].
        """
        return self._model.features_of(x)

    inference_features = features

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        self._adam.zero_gradients()

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps.

        Args:
            rate: The learning rate.
        """
        self._adam.set_rate(rate)

    def step(self) -> None:
        """Clip the gradients and update the weights."""
        self._adam.step()

    def reset(self) -> None:
        """Start a new training, without moments."""
        self._adam.reset()

    def weights_changed(self) -> None:
        """Nothing to do: there is no other copy of the weights."""
