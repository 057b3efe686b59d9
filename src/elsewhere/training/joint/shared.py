"""One encoder for the mask and the response, with attention over the phases (MRI-15, Martel Lab).

Every phase goes through the same encoder; at every stage an attention joins the phases voxel by voxel. The
decoder draws the mask from what was joined, and the response is read from the same features, averaged where
the mask is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.volumes.losses import supervised
from elsewhere.training.volumes.networks import Decoder, Encoder
from elsewhere.training.volumes.planning import Plan

UNKNOWN, NEGATIVE, POSITIVE = 1.0, 2.0, 3.0
"""The outcome of a case, encoded as its weight: the loop hands weights of cases to the objective, and this
objective has no other use for them."""


class PhaseAttention(nn.Module):
    """Attention over phases at every voxel: [n, phases, c, x, y, z] to [n, c, x, y, z].

    Every phase has values of its own, so that a difference of phases can be formed.

    Args:
        width: Channels.
        phases: How many.
    """

    def __init__(self, width: int, phases: int) -> None:
        super().__init__()
        self.width, self.phases = width, phases
        inner = max(4, width // 4)
        self.query = nn.Conv3d(width, inner, 1)
        self.key = nn.Conv3d(width, inner, 1)
        self.place = nn.Parameter(torch.zeros(phases, inner))
        self.value = nn.ModuleList(nn.Conv3d(width, width, 1) for _ in range(phases))
        self.scale = inner**-0.5

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Join the phases.

        Args:
            features: [n, phases, channels, x, y, z].

        Returns:
            [n, channels, x, y, z].
        """
        parts = features.unbind(1)
        query = self.query(features.mean(dim=1))
        keys = torch.stack(
            [self.key(part) + self.place[at].view(1, -1, 1, 1, 1) for at, part in enumerate(parts)]
        )
        share = torch.softmax((query * keys).sum(dim=2).float() * self.scale, dim=0)
        values = torch.stack([value(part) for value, part in zip(self.value, parts, strict=True)])
        return (share.unsqueeze(2).to(values.dtype) * values).sum(dim=0)


class SharedEncoder(nn.Module):
    """One encoder for the tumour's mask and the response.

    In training it returns (logits per scale, the response's logit), otherwise the finest logits; `respond`
    returns the response.

    Args:
        plan: The plan of the segmentation; its channels are the phases.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.encoder = Encoder(replace(plan, channels=1))
        self.attention = nn.ModuleList(PhaseAttention(width, plan.channels) for width in plan.widths)
        self.decoder = Decoder(plan)
        self.response = nn.Sequential(
            nn.LayerNorm(sum(plan.widths)),
            nn.Linear(sum(plan.widths), 64),
            nn.LeakyReLU(0.01),
            nn.Linear(64, 1),
        )

    def joined(self, image: torch.Tensor) -> list[torch.Tensor]:
        """Return the features of every stage, joined over the phases.

        Args:
            image: [n, phases, x, y, z].

        Returns:
            One [n, width, x, y, z] per stage, finest first.
        """
        n, phases = image.shape[:2]
        features = self.encoder(image.reshape(n * phases, 1, *image.shape[2:]))
        return [
            attend(part.reshape(n, phases, *part.shape[1:]))
            for attend, part in zip(self.attention, features, strict=True)
        ]

    def _respond(self, joined: Sequence[torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
        """Return the response's logit from the features averaged over the tumour that the network sees."""
        tumour = torch.sigmoid(logits.detach().float())
        pooled = []
        for part in joined:
            where = functional.interpolate(tumour, size=part.shape[2:], mode="area") + 1e-6
            pooled.append((part.float() * where).sum(dim=(2, 3, 4)) / where.sum(dim=(2, 3, 4)))
        return self.response(torch.cat(pooled, dim=1)).squeeze(1)

    def forward(self, image: torch.Tensor) -> Any:
        """Return the mask's logits of patches, and in training the response's logit too.

        Args:
            image: [n, phases, x, y, z].

        Returns:
            In training (logits of every stage, the finest first; [n]); otherwise the finest logits, [n, 1, x,
            y, z].
        """
        joined = self.joined(image)
        logits = self.decoder(joined)
        if not self.training:
            return logits
        return logits, self._respond(joined, logits[0] if isinstance(logits, list) else logits)

    def respond(self, image: torch.Tensor) -> torch.Tensor:
        """Return the response's logit of patches, at prediction.

        Args:
            image: [n, phases, x, y, z].

        Returns:
            [n].
        """
        joined = self.joined(image)
        logits = self.decoder(joined)
        return self._respond(joined, logits[0] if isinstance(logits, list) else logits)


def build_shared(plan: Plan, *, seed: int, device: str) -> SharedEncoder:
    """Build the network with weights drawn from a seed alone.

    Args:
        plan: The plan of the segmentation; its channels are the phases.
        seed: Seed of the weights.
        device: "cpu", "cuda" or "cuda:N".

    Returns:
        The network on the device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SharedEncoder(plan)
        for module in network.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(module.weight, a=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    layout = torch.channels_last_3d if cuda_options().channels_last else torch.contiguous_format
    return network.to(device=device, memory_format=layout)  # type: ignore[call-overload]


def outcome_codes(labels: Mapping[str, int]) -> dict[str, float]:
    """Encode outcomes as weights of cases, which the training loop hands to the objective.

    Args:
        labels: Case to 1 (pCR), 0, or less than 0 where it is not known.

    Returns:
        Case to UNKNOWN, NEGATIVE or POSITIVE.

    Example:
        >>> outcome_codes({"a": 1, "b": -1})
        {'a': 3.0, 'b': 1.0}
    """
    return {case: UNKNOWN if label < 0 else POSITIVE if label else NEGATIVE for case, label in labels.items()}


def shared_objective(
    response_weight: float, heavier: float, *, batch_dice: bool = False
) -> Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Make the loss of mask and response together.

    It is Dice + cross-entropy of the mask, and cross-entropy of the response over those patches that hold
    tumour and whose outcome is known.

    Args:
        response_weight: The weight of the response's loss relative to the mask's.
        heavier: The weight of a pCR relative to that of a non-pCR.
        batch_dice: Whether one Dice is computed over all patches of a step.

    Returns:
        (network, image, target, weight) to one number.
    """

    def objective(
        network: Any, image: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        out = network(image)
        if isinstance(out, torch.Tensor):
            return supervised(out, target, batch_dice=batch_dice).mean()
        maps, response = out
        tells = (weight > 1.5) & (target.flatten(1).sum(dim=1) > 0)
        positive = (weight > 2.5).float()
        share = tells.float() * (1.0 + (heavier - 1.0) * positive)
        each = functional.binary_cross_entropy_with_logits(response.float(), positive, reduction="none")
        told = (each * share).sum() / share.sum().clamp_min(1e-6)
        return supervised(maps, target, batch_dice=batch_dice).mean() + response_weight * told

    return objective
