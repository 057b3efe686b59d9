"""The settings, the parts and the outcome of training a segmenter on patches: plain data, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

ABRAHAM, SMP = "abraham", "smp"
"""Readings of the focal Tversky loss; see `losses`."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PatchSettings:
    """How a segmenter is trained (LN-03, LN-09). What the study does not state is ours and marked so.

    Args:
        network: One of `networks.segmenters.SEGMENTERS`.
        weights: 'imagenet', 'coco', 'none', or a file.
        weights_digest: SHA-256 of the weights' file; empty for 'none'.
        learning_rate: Learning rate of Adam in the first epoch.
        decay: The rate of an epoch as a share of the one before; ours.
        batch: Patches per step.
        epochs: The largest number of epochs.
        patience: Epochs without a lower validation loss after which training stops; ours.
        loss: 'abraham': alpha weighs false negatives, beta false positives, the exponent is 1/gamma; 'smp': the other way
            round, the exponent is gamma.
        alpha: A weight of the Tversky index.
        beta: The other weight.
        gamma: See `loss`.
        smooth: Added to both sides of the Tversky index; ours.
        mirror: The probability that a patch is mirrored, for each direction.
        jitter: The probability that the contrast of a patch is changed, and that its saturation is.
        contrast: By up to this share, both ways; ours.
        saturation: By up to this share, both ways; ours.
        threshold: A pixel is called tumour above this probability.

    Raises:
        UserError: A value is out of range.

    Example:
        >>> PatchSettings().loss
        'abraham'
    """

    network: str = "deeplab-mobilenet-v3"
    weights: str = "imagenet"
    weights_digest: str = ""
    learning_rate: float = 1e-4
    decay: float = 0.95
    batch: int = 8
    epochs: int = 50
    patience: int = 10
    loss: str = ABRAHAM
    alpha: float = 0.3
    beta: float = 0.7
    gamma: float = 0.5
    smooth: float = 1.0
    mirror: float = 0.5
    jitter: float = 0.1
    contrast: float = 0.2
    saturation: float = 0.2
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.loss not in (ABRAHAM, SMP):
            raise UserError(f"loss is {self.loss!r}", fix=f"It is {ABRAHAM} or {SMP}.")
        for name in ("batch", "epochs", "patience"):
            least = 2 if name == "batch" else 1
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}", fix=f"Give {least} or more.")
        for name in ("learning_rate", "decay", "gamma"):
            _in_range(name, getattr(self, name), most=1.0 if name == "decay" else math.inf, above=True)
        for name in ("alpha", "beta", "smooth"):
            _in_range(name, getattr(self, name), most=math.inf)
        for name in ("mirror", "jitter", "contrast", "saturation"):
            _in_range(name, getattr(self, name), most=1.0)
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold is {self.threshold}", fix="Give a probability between 0 and 1.")

    @property
    def exponent(self) -> float:
        """What one minus the Tversky index is raised to."""
        return 1.0 / self.gamma if self.loss == ABRAHAM else self.gamma

    @property
    def miss_weight(self) -> float:
        """The weight of false negatives."""
        return self.alpha if self.loss == ABRAHAM else self.beta

    @property
    def alarm_weight(self) -> float:
        """The weight of false positives."""
        return self.beta if self.loss == ABRAHAM else self.alpha


def _in_range(name: str, value: float, *, most: float, above: bool = False) -> None:
    if not (math.isfinite(value) and (value > 0 if above else value >= 0) and value <= most):
        span = f"from 0 to {most:g}" if math.isfinite(most) else "of 0 or more"
        raise UserError(f"{name} is {value}", fix=f"Give a number {span}{', but not 0' if above else ''}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchTraining:
    """One training of a segmenter. Its parts name patches of the pool by their rows.

    Args:
        key: What distinguishes it from the others that train at the same time.
        name: The name that lists and messages show.
        train: The patches that it learns from.
        validation: The patches that the best epoch is chosen by.
        predict: The patches that it predicts.
        settings: How it is trained.
        seed: All randomness comes from it.
        keep_weights: Whether its weights are wanted.
        checkpoint: Where it is stored while it trains; None: nowhere.
    """

    key: str
    name: str = ""
    train: Rows
    validation: Rows
    predict: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    settings: PatchSettings = field(default_factory=PatchSettings)
    seed: int = 0
    keep_weights: bool = True
    checkpoint: Path | None = None

    @property
    def method(self) -> str:
        """The name of the network."""
        return self.settings.network


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchPool:
    """The patches of several trainings, in the memory of the host.

    Args:
        pixels: (n, size, size, 3), 8 bit; may be a mapped file.
        masks: (n, size * size / 8), one bit per pixel in the order of `numpy.packbits`.

    Raises:
        UserError: The shapes do not fit, or a side is no multiple of 16.
    """

    pixels: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        shape = self.pixels.shape
        if len(shape) != 4 or shape[3] != 3 or shape[1] != shape[2]:
            raise UserError(f"patches have the shape {shape}", fix="Give (patches, size, size, 3).")
        if shape[1] % 16:
            raise UserError(
                f"patches of {shape[1]} pixels cannot be segmented", fix="Their side is a multiple of 16."
            )
        if self.masks.shape != (shape[0], shape[1] * shape[1] // 8):
            raise UserError(
                f"masks have the shape {self.masks.shape} for patches of the shape {shape}",
                fix="Give one bit per pixel.",
            )

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> int:
        """Pixels along a patch."""
        return int(self.pixels.shape[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchOutcome:
    """What a training of a segmenter gives.

    Args:
        counts: (patches, 4) pixels of each predicted patch: true positive, false positive, false negative, true negative.
        history: One entry per epoch: epoch, train_loss, validation_loss, validation_dice, validation_fpr, seconds.
        best_epoch: The epoch whose weights predicted.
        patches: Training patches seen, repeats counted.
        seconds: How long it took in this process.
        weights: The state dict, on the CPU; None: the weights are not wanted.
    """

    counts: npt.NDArray[np.int64]
    history: tuple[Mapping[str, float], ...] = ()
    best_epoch: int = 0
    patches: int = 0
    seconds: float = 0.0
    weights: Mapping[str, Any] | None = None


Finished = Callable[[PatchTraining, PatchOutcome], None]
Failed = Callable[[PatchTraining, str], None]
