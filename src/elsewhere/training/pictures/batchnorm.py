"""Batch-norm statistics of a padded batch, and the exact mean of several batches' statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch


def batchnorm_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the batch-norm layers of a network.

    Args:
        model: The network.

    Returns:
        Its layers with running statistics, in the order of its modules.
    """
    return [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]


@contextmanager
def statistics_of_first(layers: Sequence[torch.nn.Module], count: int) -> Iterator[None]:
    """Take batch-norm statistics from the first `count` pictures of every batch inside; pass on the others unchanged.

    Args:
        layers: What `batchnorm_layers` returned.
        count: Pictures that are no padding.

    Yields:
        Nothing.
    """

    def of_first(layer: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: torch.cat([type(layer).forward(layer, x[:count]), x[count:]])

    for layer in layers:
        layer.forward = of_first(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def momentum(layers: Sequence[torch.nn.Module], value: float) -> Iterator[None]:
    """Give batch-norm layers another momentum inside: 1 / n for batch n makes the running statistics a plain mean.

    Args:
        layers: What `batchnorm_layers` returned.
        value: The momentum.

    Yields:
        Nothing.
    """
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = value  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.momentum = own
