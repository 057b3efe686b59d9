"""How a step's gradients are made and used: by autograd and torch's Adam, or written out for a transformer (US-14)."""

from __future__ import annotations

from typing import Any

import torch

from elsewhere.networks.classifiers import Classifier
from elsewhere.training.pictures.settings import ClassifierSettings
from elsewhere.training.transformer import FlatAdam, TransformerBody


class PlainAdam:
    """Autograd, clipping by the global norm, Adam."""

    def __init__(self, model: Classifier, recipe: ClassifierSettings) -> None:
        self.model, self.most = model, recipe.gradient_norm
        self.rate = torch.zeros((), device=model.head.weight.device)
        self.on_gpu = self.rate.device.type == "cuda"
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.Adam(
            self.parameters,
            lr=self.rate if self.on_gpu else 0.0,
            weight_decay=recipe.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
            foreach=None if self.on_gpu else True,
        )

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """For a step."""
        return self.model.features_of(x)

    look = features
    """Without gradients."""

    def forget_gradients(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)

    def set_rate(self, rate: float) -> None:
        """A graph reads it from the device."""
        self.rate.fill_(rate)
        if not self.on_gpu:
            for entry in self.optimiser.param_groups:
                entry["lr"] = rate

    def step(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, self.most, foreach=True)
        self.optimiser.step()

    def start(self) -> None:
        """New weights were written: no moments. What a graph captured stays where it is."""
        if not self.on_gpu:
            self.optimiser.state.clear()
        for entry in self.optimiser.state.values():
            for tensor in entry.values():
                tensor.zero_()

    def follow(self) -> None:
        """Weights were written in the middle of a training."""


class WrittenOut:
    """The same for a vision transformer on a GPU: forward and backward pass written out, in two thirds of the time."""

    def __init__(self, model: Classifier, recipe: ClassifierSettings) -> None:
        body: Any = model.body
        self.rate = torch.zeros((), device=model.head.weight.device)
        self.body = TransformerBody(body.vit)
        self.adam = FlatAdam(
            self.body.flat,
            list(model.head.parameters()),
            rate=self.rate,
            max_norm=recipe.gradient_norm,
            weight_decay=recipe.weight_decay,
        )

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)

    def look(self, x: torch.Tensor) -> torch.Tensor:
        return self.body.features(x)

    def forget_gradients(self) -> None:
        self.adam.zero_grad()

    def set_rate(self, rate: float) -> None:
        self.rate.fill_(rate)

    def step(self) -> None:
        self.adam.step()

    def start(self) -> None:
        self.adam.reset()
        self.body.refresh()

    def follow(self) -> None:
        self.body.refresh()
