"""EfficientDet with a second head that says whether a box holds cancer (NYU B-Team, DBT-16).

Written from Tan et al. 2020: pyramid layers (BiFPN) in which every map is a weighted mean of those above, below and
beside it, and towers of separable convolutions. Ours differs: group norms in place of batch norms, and
EfficientNet-Lite as the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from elsewhere.networks.detectors.anchors import AnchorSettings, MatchSettings
from elsewhere.networks.detectors.backbones import Normalise, body_entry, freeze_stages
from elsewhere.networks.detectors.one_stage import AnchorDetector, norm_groups


@dataclass(frozen=True, kw_only=True)
class EfficientDetSettings:
    """The size of an EfficientDet; the defaults are those of D0.

    Args:
        body: One of `backbones.BODIES`.
        channels: Channels of the pyramid and of the towers.
        repeats: How many pyramid layers.
        depth: Convolutions per tower.
        cancer_head: Whether there is a head for cancer.
        trained_stages: How many of the body's last stages are trained.
        anchors: The anchors.
        match: When an anchor stands for a lesion, and the focal loss.
    """

    body: str = "efficientnet-lite0"
    channels: int = 64
    repeats: int = 3
    depth: int = 3
    cancer_head: bool = True
    trained_stages: int = 5
    anchors: AnchorSettings = field(default_factory=AnchorSettings)
    match: MatchSettings = field(default_factory=MatchSettings)


class WeightedSum(nn.Module):
    """A weighted mean of maps of one size, then a separable convolution. Weights are learned and not negative.

    Args:
        inputs: How many maps.
        channels: Their channels.
    """

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inputs))
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(norm_groups(channels), channels)

    def forward(self, maps: Sequence[torch.Tensor]) -> torch.Tensor:
        """Combine maps.

        Args:
            maps: (n, channels, height, width) each.

        Returns:
            (n, channels, height, width).
        """
        weight = functional.relu(self.weight)
        weight = weight / (weight.sum() + 1e-4)
        mixed = functional.silu(torch.stack([w * one for w, one in zip(weight, maps, strict=True)]).sum(0))
        return self.norm(self.pointwise(self.depthwise(mixed)))


class BiFpnLayer(nn.Module):
    """One pyramid layer: from the smallest map to the largest, and back.

    Args:
        levels: How many maps.
        channels: Their channels.
    """

    def __init__(self, levels: int, channels: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(WeightedSum(2, channels) for _ in range(levels - 1))
        self.up = nn.ModuleList(
            WeightedSum(2 if at == levels - 1 else 3, channels) for at in range(1, levels)
        )

    def forward(self, maps: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Combine maps.

        Args:
            maps: The largest first.

        Returns:
            As many maps of the same sizes.
        """
        middle = [maps[-1]]
        for at in range(len(maps) - 2, -1, -1):
            wide = functional.interpolate(middle[0], size=maps[at].shape[2:], mode="nearest")
            middle.insert(0, self.down[at]([maps[at], wide]))
        out = [middle[0]]
        for at in range(1, len(maps)):
            small = functional.adaptive_max_pool2d(out[-1], maps[at].shape[2:])
            given = [maps[at], small] if at == len(maps) - 1 else [maps[at], middle[at], small]
            out.append(self.up[at - 1](given))
        return out


class BiFpn(nn.Module):
    """A body, and pyramid layers on its maps at 1/8 to 1/128.

    Args:
        settings: See `EfficientDetSettings`.

    Raises:
        UserError: The body is unknown.
    """

    def __init__(self, settings: EfficientDetSettings) -> None:
        super().__init__()
        entry = body_entry(settings.body)
        channels = settings.channels
        self.normalise, self.body = Normalise(entry), entry.build()
        freeze_stages(self.body, settings.trained_stages)
        widths = [*entry.widths[1:], entry.widths[-1]]
        self.inputs = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, channels, 1, bias=False), nn.GroupNorm(norm_groups(channels), channels)
            )
            for width in widths
        )
        self.layers = nn.ModuleList(BiFpnLayer(5, channels) for _ in range(settings.repeats))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width) from 0 to 1.

        Returns:
            Five maps, the largest first.
        """
        maps = self.body(self.normalise(x))[1:]
        levels = [inside(one) for inside, one in zip(self.inputs, [*maps, maps[-1]], strict=True)]
        levels[3] = functional.max_pool2d(levels[3], 3, 2, 1)
        levels.append(functional.max_pool2d(levels[3], 3, 2, 1))
        for layer in self.layers:
            levels = layer(levels)
        return levels


class EfficientDet(AnchorDetector):
    """An EfficientDet.

    Args:
        settings: See `EfficientDetSettings`.

    Raises:
        UserError: The body is unknown.
    """

    def __init__(self, settings: EfficientDetSettings) -> None:
        super().__init__(
            BiFpn(settings),
            channels=settings.channels,
            depth=settings.depth,
            anchors=settings.anchors,
            match=settings.match,
            separable=True,
            cancer_head=settings.cancer_head,
        )
        self.body_name = settings.body

    @property
    def body(self) -> nn.Module:
        """The part that starts from ImageNet weights."""
        body: nn.Module = self.features.body  # type: ignore[assignment]
        return body
