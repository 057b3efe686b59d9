"""Video networks that look at lesion crops (MRI-15): torchvision's, and a narrow one for phantoms and tests.

As the paper states, phases are channels, so the slices take the place of the frames. Kinetics weights are
torchvision's; a machine without network access is given the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.weights import fetch_weights

Time = Literal["depth", "phases"]
PROJECTION = 128


@dataclass(frozen=True, kw_only=True)
class _Entry:
    features: int
    stem: str
    head: str
    weights: str


RESPONSE_NETWORKS: Mapping[str, _Entry] = {
    "r3d_18": _Entry(features=512, stem="stem.0", head="fc", weights="R3D_18_Weights"),
    "mc3_18": _Entry(features=512, stem="stem.0", head="fc", weights="MC3_18_Weights"),
    "r2plus1d_18": _Entry(features=512, stem="stem.0", head="fc", weights="R2Plus1D_18_Weights"),
    "swin3d_t": _Entry(features=768, stem="patch_embed.proj", head="head", weights="Swin3D_T_Weights"),
    "tiny-3d": _Entry(features=32, stem="0.0", head="", weights=""),
}


class ResponseNetwork(nn.Module):
    """Crops [n, phases, x, y, z] to one logit; `project` returns what the contrastive loss compares.

    Args:
        body: Video to features.
        name: One of `RESPONSE_NETWORKS`.
        features: How many the body returns.
        time: What the video's frames are; see `arrange`.
        projection: Whether the projection of the contrastive loss is built.
    """

    def __init__(self, body: nn.Module, *, name: str, features: int, time: Time, projection: bool) -> None:
        super().__init__()
        self.name, self.time = name, time
        self.body = body
        self.head = nn.Linear(features, 1)
        self.projection = (
            nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, PROJECTION))
            if projection
            else None
        )

    def features(self, crops: torch.Tensor) -> torch.Tensor:
        """Return the features of crops.

        Args:
            crops: [n, phases, x, y, z].

        Returns:
            [n, features].
        """
        x = arrange(crops, self.time)
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last_3d)
        return self.body(x).flatten(1)

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        """Return the logits of response.

        Args:
            crops: [n, phases, x, y, z].

        Returns:
            [n].
        """
        return self.head(self.features(crops)).squeeze(1)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Return what the contrastive loss compares.

        Args:
            features: [n, features].

        Returns:
            [n, PROJECTION].

        Raises:
            ValueError: The network was built without a projection.
        """
        if self.projection is None:
            raise ValueError("this network was built without a projection")
        return self.projection(features)


def arrange(crops: torch.Tensor, time: Time) -> torch.Tensor:
    """Turn crops into a video [n, channels, time, height, width].

    Args:
        crops: [n, phases, x, y, z].
        time: "depth": phases are channels and slices are frames. "phases": phases are frames, and the three
            middle slices are channels.

    Returns:
        The video.
    """
    if time == "depth":
        return crops.permute(0, 1, 4, 2, 3)
    middle = crops.shape[4] // 2
    places = [min(max(middle + step, 0), crops.shape[4] - 1) for step in (-1, 0, 1)]
    return crops[..., places].permute(0, 4, 1, 2, 3)


def build_response_network(
    name: str,
    *,
    phases: int,
    weights: str = "none",
    known: Mapping[str, Path] | None = None,
    seed: int = 0,
    time: Time = "depth",
    projection: bool = False,
) -> ResponseNetwork:
    """Build a network; fresh weights are drawn from `seed`, and the global random state is not changed.

    Stochastic depth is off: its draws would come from the global generator.

    Args:
        name: One of `RESPONSE_NETWORKS`.
        phases: Phases of a crop.
        weights: "none", "kinetics", a file, or a folder.
        known: Files by "network/weights", for machines that cannot fetch.
        seed: Seed of the fresh weights.
        time: What the video's frames are; see `arrange`.
        projection: Whether the projection of the contrastive loss is built.

    Returns:
        The network on the CPU.

    Raises:
        UserError: The network is unknown, or its weights are missing or do not fit.

    Example:
        >>> build_response_network("tiny-3d", phases=1)(torch.zeros(2, 1, 16, 16, 16)).shape
        torch.Size([2])
    """
    if name not in RESPONSE_NETWORKS:
        raise unknown_name("network", name, sorted(RESPONSE_NETWORKS))
    entry = RESPONSE_NETWORKS[name]
    path = find_video_weights(name, weights, known)
    channels = phases if time == "depth" else 3
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        body = _tiny(channels) if name == "tiny-3d" else _torchvision(name, entry)
        if path is not None:
            _load(body, entry, path, name)
        if name != "tiny-3d":
            _fit_stem(body, entry.stem, channels, pretrained=path is not None)
            body.set_submodule(entry.head, nn.Identity())
        return ResponseNetwork(body, name=name, features=entry.features, time=time, projection=projection)


def find_video_weights(name: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file of a network's weights.

    Args:
        name: One of `RESPONSE_NETWORKS`.
        weights: "none", "kinetics", a file, or a folder that holds NETWORK.pth.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, or it cannot be fetched.
    """
    if weights == "none":
        return None
    given = (known or {}).get(f"{name}/{weights}")
    if given is not None:
        return Path(given)
    if weights == "kinetics":
        return _kinetics(name)
    path = Path(weights)
    if path.is_dir():
        path = path / f"{name}.pth"
    if not path.is_file():
        raise UserError(
            f"there are no weights of {name} here",
            where=str(path),
            fix="weights is 'kinetics', 'none', a file with a state dict, or a folder with NETWORK.pth files.",
        )
    return path


def _kinetics(name: str) -> Path:
    entry = RESPONSE_NETWORKS[name]
    if not entry.weights:
        raise UserError(
            f"no Kinetics weights are published for network '{name}'", fix="Set weights = 'none'."
        )
    from torchvision.models import video

    url = getattr(video, entry.weights).KINETICS400_V1.url
    return fetch_weights(
        url,
        what=f"the Kinetics weights of {name}",
        otherwise=f"weights = 'FOLDER' with {name}.pth in it; or weights = 'none', which trains from scratch and "
        "is another method.",
    )


def _torchvision(name: str, entry: _Entry) -> nn.Module:
    from torchvision.models import video
    from torchvision.ops import StochasticDepth

    body: nn.Module = getattr(video, name)(weights=None)
    for module in body.modules():
        if isinstance(module, StochasticDepth):
            module.p = 0.0
    return body


def _load(body: nn.Module, entry: _Entry, path: Path, name: str) -> None:
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"these weights cannot be loaded ({error})", where=str(path)) from error
    own = body.state_dict()
    need = {
        key: value for key, value in own.items() if not entry.head or not key.startswith(f"{entry.head}.")
    }
    wrong = [key for key, value in need.items() if key not in state or state[key].shape != value.shape]
    if wrong:
        raise UserError(
            f"these weights do not fit {name}: {len(wrong)} parameters are missing or of another shape, first "
            f"{wrong[0]}",
            where=str(path),
        )
    body.load_state_dict({key: state[key] for key in need}, strict=False)


def _fit_stem(body: nn.Module, at: str, channels: int, *, pretrained: bool) -> None:
    """Change the number of input channels.

    Published filters are averaged over colour, so that the sum of a grey picture stays; without published
    weights the convolution is drawn again."""
    old = body.get_submodule(at)
    if not isinstance(old, nn.Conv3d) or old.in_channels == channels:
        return
    new = nn.Conv3d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    if pretrained:
        with torch.no_grad():
            grey = old.weight.mean(dim=1, keepdim=True) * old.in_channels / channels
            new.weight.copy_(grey.expand_as(new.weight))
            if old.bias is not None and new.bias is not None:
                new.bias.copy_(old.bias)
    body.set_submodule(at, new)


def _tiny(channels: int) -> nn.Module:
    widths = (channels, 8, 16, 32)
    layers: list[nn.Module] = [
        nn.Sequential(
            nn.Conv3d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm3d(b), nn.ReLU(inplace=True)
        )
        for a, b in itertools.pairwise(widths)
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten())
