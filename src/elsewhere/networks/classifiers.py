"""The networks of the study as classifiers: a body that gives features, and a linear head."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from elsewhere.errors import unknown_name
from elsewhere.networks.efficientnet_lite import EfficientNetLite

Hook = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class NetworkEntry:
    """What is known of a network before it is built.

    Attributes:
        body: From the input size in pixels to the body: pixels in, pooled features out.
        features: How many features the body returns.
        size_px: The side of the input that the published weights were made for, in pixels.
        last_conv: The module whose output Grad-CAM weighs (US-23); None for a transformer.
        style_points: Modules after which MixStyle mixes (US-31): the early ones, which hold the style.
        is_vision_transformer: Whether its body holds torchvision's as `vit`: a GPU then trains it with
            `training.fused_vit`.
        training_gflop: GFLOP of one image, forward and backward, for estimates.
    """

    body: Callable[[int], nn.Module]
    features: int
    size_px: int
    last_conv: str | None
    style_points: tuple[str, ...] = ()
    is_vision_transformer: bool = False
    training_gflop: float = 0.0


class Classifier(nn.Module):
    """A body that returns features, and a linear head that returns two logits: benign, malignant.

    Dropout before the head takes its mask from outside, because a draw inside a CUDA graph would make a
    training depend on what runs at the same time.

    Args:
        body: The network that turns pictures into features.
        entry: What is known of the network.
        name: One of `NETWORKS`.
        classes: The number of logits.
        dropout: The probability that a feature is dropped in training.
    """

    def __init__(
        self, body: nn.Module, entry: NetworkEntry, *, name: str, classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.name = name
        self.body = body
        self.head = nn.Linear(entry.features, classes)
        self.dropout = dropout
        self.features = entry.features
        self.last_conv = f"body.{entry.last_conv}" if entry.last_conv else None
        self.style_points = tuple(f"body.{point}" for point in entry.style_points)
        self.style: Hook | None = None
        for point in self.style_points:
            self.get_submodule(point).register_forward_hook(self._mix)

    def _mix(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return self.style(output) if self.style is not None and self.training else output

    def features_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the pooled features.

        Args:
            x: [n, 3, size, size].

        Returns:
            [n, features].
        """
        return self.body(x)

    def forward(self, x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits of pictures.

        Args:
            x: Pictures, [n, 3, size, size].
            keep: The dropout mask, [n, features]: 1 where a feature stays, drawn with probability 1 -
                dropout; None: no dropout.

        Returns:
            [n, classes].
        """
        features = self.body(x)
        if keep is not None and self.dropout:
            features = features * keep.to(features.dtype) / (1.0 - self.dropout)
        return self.head(features)


class _TorchvisionEfficientNet(nn.Module):
    def __init__(self, size_px: int) -> None:
        super().__init__()
        from torchvision.models import efficientnet_b0

        whole = efficientnet_b0(weights=None, stochastic_depth_prob=0.0)
        self.features = whole.features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x).mean(dim=(2, 3))


class _TorchvisionViT(nn.Module):
    def __init__(self, size_px: int) -> None:
        super().__init__()
        from torchvision.models import vit_b_16

        whole = vit_b_16(weights=None, image_size=size_px)
        whole.heads = nn.Identity()
        self.vit = whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.vit(x)


class _TinyCnn(nn.Module):
    """Small enough for tests and phantoms: four strided convolutions."""

    def __init__(self, size_px: int) -> None:
        super().__init__()
        widths = (3, 16, 32, 48, 64)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)
            )
            for a, b in itertools.pairwise(widths)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.mean(dim=(2, 3))


def _lite(name: str) -> Callable[[int], nn.Module]:
    return lambda size_px: EfficientNetLite(name)


NETWORKS: Mapping[str, NetworkEntry] = {
    "efficientnet-b0": NetworkEntry(
        body=_TorchvisionEfficientNet,
        features=1280,
        size_px=224,
        last_conv="features",
        style_points=("features.1", "features.2", "features.3"),
        training_gflop=2.3,
    ),
    "vit-b-16": NetworkEntry(
        body=_TorchvisionViT,
        features=768,
        size_px=384,
        last_conv=None,
        is_vision_transformer=True,
        training_gflop=332.0,
    ),
    "efficientnet-lite0": NetworkEntry(
        body=_lite("efficientnet-lite0"),
        features=1280,
        size_px=224,
        last_conv="_bn1",
        style_points=("_blocks.0", "_blocks.2", "_blocks.4"),
        training_gflop=2.3,
    ),
    "efficientnet-lite1": NetworkEntry(
        body=_lite("efficientnet-lite1"),
        features=1280,
        size_px=240,
        last_conv="_bn1",
        style_points=("_blocks.0", "_blocks.3", "_blocks.6"),
        training_gflop=3.6,
    ),
    "efficientnet-lite2": NetworkEntry(
        body=_lite("efficientnet-lite2"),
        features=1280,
        size_px=260,
        last_conv="_bn1",
        style_points=("_blocks.0", "_blocks.3", "_blocks.6"),
        training_gflop=5.2,
    ),
    "tiny-cnn": NetworkEntry(
        body=_TinyCnn,
        features=64,
        size_px=64,
        last_conv="layers.3",
        style_points=("layers.0",),
        training_gflop=0.02,
    ),
}


def build_network(
    name: str, *, size_px: int | None = None, classes: int = 2, dropout: float = 0.0, seed: int | None = None
) -> Classifier:
    """Build a network with fresh weights; the global random state is not changed.

    Args:
        name: One of `NETWORKS`.
        size_px: The side of its input in pixels; None: the network's own.
        classes: The number of logits.
        dropout: The probability that a feature is dropped before the head.
        seed: Seed of the weights; None: they are drawn from torch's generator.

    Returns:
        The network on the CPU.

    Raises:
        UserError: The network is unknown.

    Example:
        >>> build_network("tiny-cnn", seed=0)(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 2])
    """
    if name not in NETWORKS:
        raise unknown_name("network", name, sorted(NETWORKS))
    entry = NETWORKS[name]
    with torch.random.fork_rng(devices=_cuda_devices()):
        if seed is not None:
            torch.manual_seed(seed)
        body = entry.body(size_px or entry.size_px)
        return Classifier(body, entry, name=name, classes=classes, dropout=dropout)


def _cuda_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def mix_style(x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Mix channel means and deviations of pictures (MixStyle): each picture keeps its content (US-31).

    Args:
        x: Maps, [n, channels, height, width].
        other: The row that each is mixed with.
        weight: How much of its own style each picture keeps, 0 to 1.

    Returns:
        As `x`.
    """
    y = x.float()
    mean = y.mean(dim=(2, 3), keepdim=True)
    deviation = (y.var(dim=(2, 3), keepdim=True) + 1e-6).sqrt()
    mean, deviation = mean.detach(), deviation.detach()
    own = weight.view(-1, 1, 1, 1)
    new_mean = own * mean + (1 - own) * mean.index_select(0, other)
    new_deviation = own * deviation + (1 - own) * deviation.index_select(0, other)
    return ((y - mean) / deviation * new_deviation + new_mean).to(x.dtype)


def cross_entropy(logits: torch.Tensor, label: torch.Tensor, *, smoothing: float = 0.0) -> torch.Tensor:
    """Return the cross-entropy of every case, in single precision.

    Args:
        logits: [n, classes].
        label: [n].
        smoothing: The share of the label that goes to all classes.

    Returns:
        [n].

    Example:
        >>> cross_entropy(torch.zeros(1, 2), torch.tensor([1])).round(decimals=4)
        tensor([0.6931])
    """
    return functional.cross_entropy(logits.float(), label, reduction="none", label_smoothing=smoothing)
