"""Networks that find the lesion (US-33): an encoder, and a decoder that adds its finer levels back.

Shapes are fixed by the input, upsampling repeats pixels and every sum has one order, so that a step can be
captured as a CUDA graph and gives the same numbers again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from elsewhere.errors import UserError, unknown_name
from elsewhere.networks.classifiers import build_network
from elsewhere.networks.efficientnet_lite import LiteEncoder
from elsewhere.networks.weights import find_weights, load_state

SIZE_STEP = 32
"""The input's side is a multiple of this: the encoder halves five times."""


@dataclass(frozen=True, kw_only=True)
class FinderEntry:
    """What is known of a finder before it is built.

    Attributes:
        encoder: The classifier whose published weights the encoder starts from; None: none are published.
        widths: Channels that the encoder returns at 1/2, 1/4, 1/8, 1/16 and 1/32.
        decoder: Channels of the decoder at 1/16, 1/8, 1/4 and 1/2.
    """

    encoder: str | None
    widths: tuple[int, ...]
    decoder: tuple[int, ...]


FINDERS: Mapping[str, FinderEntry] = {
    "finder-lite0": FinderEntry(
        encoder="efficientnet-lite0", widths=(16, 24, 40, 112, 320), decoder=(96, 64, 48, 32)
    ),
    "finder-small": FinderEntry(encoder=None, widths=(16, 32, 64, 128, 192), decoder=(96, 64, 32, 16)),
    "finder-tiny": FinderEntry(encoder=None, widths=(8, 12, 16, 24, 32), decoder=(24, 16, 12, 8)),
}
"""lite0: ImageNet weights, for small sources; small: trained from scratch; tiny: for tests."""


class Finder(nn.Module):
    """A network that finds the lesion: pictures to logits of 'lesion' at half the size.

    Args:
        name: One of `FINDERS`.
        encoder: Returns maps at 1/2, 1/4, 1/8, 1/16 and 1/32 of the input's side.
        entry: What is known of the finder.
    """

    def __init__(self, name: str, encoder: nn.Module, entry: FinderEntry) -> None:
        super().__init__()
        self.name = name
        self.encoder = encoder
        steps, deep = [], entry.widths[-1]
        for skip, out in zip(reversed(entry.widths[:-1]), entry.decoder, strict=True):
            steps.append(_Up(deep, skip, out))
            deep = out
        self.decoder = nn.ModuleList(steps)
        self.head = nn.Conv2d(deep, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of 'lesion' for pictures.

        Args:
            x: Pictures in [0, 1], [n, 3, size, size].

        Returns:
            [n, 1, size / 2, size / 2].
        """
        *skips, y = self.encoder(x * 2.0 - 1.0)
        for step, skip in zip(self.decoder, reversed(skips), strict=True):
            y = step(y, skip)
        return self.head(y)


class _Up(nn.Module):
    def __init__(self, deep: int, skip: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(deep + skip, out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out)

    def forward(self, deep: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        wide = functional.interpolate(deep, scale_factor=2.0, mode="nearest")
        return functional.relu(self.norm(self.conv(torch.cat([wide, skip], dim=1))))


class _PlainEncoder(nn.Module):
    """Two convolutions per level, the first of which halves the size."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        before = (3, *widths[:-1])
        self.levels = nn.ModuleList(
            nn.Sequential(*_conv(a, b, stride=2), *_conv(b, b, stride=1))
            for a, b in zip(before, widths, strict=True)
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for level in self.levels:
            x = level(x)
            found.append(x)
        return found


def _conv(inside: int, outside: int, *, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


def build_finder(
    name: str,
    *,
    weights: str = "none",
    known: Mapping[str, Path] | None = None,
    seed: int = 0,
) -> Finder:
    """Build a finder; fresh weights are drawn from `seed`, and the global random state is not changed.

    Args:
        name: One of `FINDERS`.
        weights: "none", "imagenet", or a file with a whole finder or with the classifier that is the encoder.
        known: Files by "network/weights", for machines that cannot fetch.
        seed: Seed of the fresh weights.

    Returns:
        The network on the CPU.

    Raises:
        UserError: The finder is unknown, or its weights are missing or do not fit.

    Example:
        >>> build_finder("finder-tiny")(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1, 32, 32])
    """
    if name not in FINDERS:
        raise unknown_name("finder", name, sorted(FINDERS))
    entry = FINDERS[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if entry.encoder is None:
            model = Finder(name, _PlainEncoder(entry.widths), entry)
        else:
            body = build_network(entry.encoder).body
            model = Finder(name, LiteEncoder(body), entry)  # type: ignore[arg-type]
    path = find_finder_weights(name, weights, known)
    if path is not None:
        _load(model, entry, path)
    return model


def find_finder_weights(name: str, weights: str, known: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file that a finder starts from: its own where one is given, otherwise its encoder's.

    Args:
        name: One of `FINDERS`.
        weights: "none", "imagenet", or a file.
        known: Files by "network/weights", for machines that cannot fetch.

    Returns:
        The file; None for "none".

    Raises:
        UserError: There is no such file.
    """
    if weights == "none":
        return None
    encoder = FINDERS[name].encoder
    own = (known or {}).get(f"{name}/{weights}")
    if own is not None:
        return Path(own)
    if encoder is None and weights == "imagenet":
        raise UserError(
            f"there are no ImageNet weights of {name}", fix="Set weights = 'none', or finder-lite0."
        )
    return find_weights(encoder or name, weights, known)


def _load(model: Finder, entry: FinderEntry, path: Path) -> None:
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"these weights cannot be loaded ({error})", where=str(path)) from error
    if set(state) == set(model.state_dict()):
        model.load_state_dict(state)
        return
    if entry.encoder is None:
        raise UserError(f"these are not the weights of a {model.name}", where=str(path))
    classifier = build_network(entry.encoder)
    load_state(classifier, path)
    model.encoder = LiteEncoder(classifier.body)  # type: ignore[arg-type]


def check_size(size_px: int) -> None:
    """Refuse a size that five halvings do not divide.

    Args:
        size_px: The side of the input.

    Raises:
        UserError: It is no multiple of 32.

    Example:
        >>> check_size(256)
    """
    if size_px < SIZE_STEP or size_px % SIZE_STEP:
        raise UserError(
            f"a finder's input of {size_px} px is not a multiple of {SIZE_STEP}", fix="Use 256, or 320."
        )
