"""A classifier of slices: how likely a slice shows a malignant lesion (ZeDuS in phase 2, DBT-13, DBT-16).

The team took an NFNet, which timm has; where timm is not installed, EfficientNet-Lite0 with its ImageNet weights does the
same work. The same classifier looks at small pictures around detections where false positives are reduced (VICOROB).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from elsewhere.errors import UserError
from elsewhere.networks.classifiers import NETWORKS, build_network
from elsewhere.networks.weights import find_weights, load_state

FROM_TIMM = {"nfnet-f0": ("dm_nfnet_f0", 3072)}
"""Networks of timm: its name and the number of features."""


class SliceClassifier(nn.Module):
    """A network with one logit per slice.

    Args:
        body: (n, 3, height, width), normalised, to (n, features).
        features: How many features.
        name: The network's name.
    """

    static_losses = True

    def __init__(self, body: nn.Module, features: int, name: str) -> None:
        super().__init__()
        self.body, self.head, self.name = body, nn.Linear(features, 1), name

    def forward(self, slices: torch.Tensor) -> torch.Tensor:
        """Return the logit of each slice.

        Args:
            slices: (n, 3, height, width) from 0 to 1.

        Returns:
            (n,).
        """
        return self.head(self.body(slices * 2.0 - 1.0))[:, 0].float()

    def losses(self, slices: torch.Tensor, positive: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss; it is minimised.

        Args:
            slices: (n, 3, height, width).
            positive: (n,) 1 where the slice shows what is looked for.

        Returns:
            "score": the mean cross-entropy.
        """
        return {"score": nn.functional.binary_cross_entropy_with_logits(self(slices), positive.float())}

    @torch.no_grad()
    def score(self, slices: torch.Tensor) -> torch.Tensor:
        """Return the probability of each slice.

        Args:
            slices: (n, 3, height, width).

        Returns:
            (n,) from 0 to 1.
        """
        return torch.sigmoid(self(slices))


def build_slice_classifier(
    network: str = "efficientnet-lite0",
    *,
    weights: str = "none",
    known: Mapping[str, Path] | None = None,
    seed: int = 0,
) -> SliceClassifier:
    """Build a slice classifier; the global random state is not changed.

    Args:
        network: A convolutional network of `networks.NETWORKS`, or "nfnet-f0" where timm is installed.
        weights: "none", "imagenet", or a file.
        known: Files by "network/weights", for machines that cannot fetch.
        seed: Seed of fresh weights.

    Returns:
        The classifier on the CPU.

    Raises:
        UserError: The network is unknown or its library is not installed, or its weights are missing or do not fit.

    Example:
        >>> build_slice_classifier("tiny-cnn")(torch.zeros(2, 3, 64, 48)).shape
        torch.Size([2])
    """
    if network in FROM_TIMM:
        return _from_timm(network, weights, seed)
    if network in NETWORKS and NETWORKS[network].is_vision_transformer:
        raise UserError(
            f"{network} takes squares of one size, and slices are none", fix="Use efficientnet-lite0."
        )
    classifier = build_network(network, classes=1, seed=seed)
    path = find_weights(network, weights, known)
    if path is not None:
        load_state(classifier, path)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return SliceClassifier(classifier.body, classifier.features, network)


def _from_timm(network: str, weights: str, seed: int) -> SliceClassifier:
    try:
        import timm
    except ImportError as error:
        raise UserError(
            f"{network} needs timm, which is not installed",
            fix="pip install timm; or use efficientnet-lite0, which needs nothing more.",
        ) from error
    name, features = FROM_TIMM[network]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        body = timm.create_model(name, pretrained=weights == "imagenet", num_classes=0)
        return SliceClassifier(body, features, network)
