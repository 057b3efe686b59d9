"""The settings, the input and the outcome of training a network on pictures: plain data, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elsewhere.inputs import Cases

BoxRow = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """What the network sees (US-12, US-13).

    Args:
        kind: The 'whole' picture, or 'roi', the lesion crop.
        size_px: Pixels per side.
        margin: The crop grows on each side by this part of the box's larger side; not used for 'whole'.
        outline: Whether the third channel is the lesion's mask instead of the picture (not in the study).

    Example:
        >>> InputSpec(kind="roi", size_px=128).margin
        0.12
    """

    kind: str = "whole"
    size_px: int = 224
    margin: float = 0.12
    outline: bool = False


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How a network is trained (US-14). The defaults are the study's CNN.

    Args:
        network: The name of the network.
        weights: 'imagenet', 'none', or a file.
        weights_digest: SHA-256 of the weights' file; empty for 'none'.
        learning_rate: Learning rate of Adam.
        batch: Pictures per step.
        epochs: The largest number of epochs.
        weight_decay: L2, as a part of the gradient (Adam, not AdamW).
        gradient_norm: Threshold on the global L2 norm of the gradients.
        patience: Epochs without a better validation loss after which training stops.
        mirror: Whether pictures are mirrored at random.
        rotate_degrees: Rotate by up to this, both ways.
        shift_px: Shift by up to this in x and y.
        scale: The smallest and the largest scale.
        oversample: Whether the rarer class is drawn as often as the other, in the training part.
        schedule: 'constant', or 'cosine' over the epochs.
        batch_statistics: 'population': before each check, batch-norm means and variances are computed again over
            the training part (as the study's software does); 'running': the moving averages, which lag on
            small sources.
        keep: The weights of the 'best' validation loss, or the 'last'.
        dropout: The probability that a feature is dropped before the last layer.
        brightness: Jitter of contrast, gain and gamma; 0: none (not in the study).
        noise: Jitter by speckle; 0: none (not in the study).
        erase: The probability that a rectangle is erased.
        label_smoothing: The share of the label that goes to all classes; 0: none.
        test_mirror: Whether the logits of the picture and its mirror image are averaged at prediction.
        balance_datasets: Several sources: whether each dataset is drawn equally often.
        method: 'plain', 'group-dro', 'coral' or 'mixstyle' (US-31).
        strength: CORAL's weight, group-DRO's step or MixStyle's probability; 0: the method's default.
    """

    network: str = "efficientnet-b0"
    weights: str = "imagenet"
    weights_digest: str = ""
    learning_rate: float = 1e-4
    batch: int = 16
    epochs: int = 10
    weight_decay: float = 1e-4
    gradient_norm: float = 5.0
    patience: int = 5
    mirror: bool = True
    rotate_degrees: float = 10.0
    shift_px: float = 10.0
    scale: tuple[float, float] = (0.9, 1.1)
    oversample: bool = True
    schedule: str = "constant"
    batch_statistics: str = "population"
    keep: str = "best"
    dropout: float = 0.2
    brightness: float = 0.0
    noise: float = 0.0
    erase: float = 0.0
    label_smoothing: float = 0.0
    test_mirror: bool = False
    balance_datasets: bool = False
    method: str = "plain"
    strength: float = 0.0


def finder_settings(network: str = "finder-lite0", **changes: Any) -> ClassifierSettings:
    """Return the settings of a finder, which differ from those of a classifier.

    It needs more varied pictures, more epochs, and a learning rate that falls.

    Args:
        network: 'finder-lite0' starts from ImageNet weights, others from random ones.
        **changes: Fields of `ClassifierSettings` with other values.

    Returns:
        The settings.

    Raises:
        TypeError: A change names no field of `ClassifierSettings`.

    Example:
        >>> settings = finder_settings(epochs=3)
        >>> settings.epochs, settings.schedule, settings.weights
        (3, 'cosine', 'imagenet')
    """
    weights = "imagenet" if network == "finder-lite0" else "none"
    values: dict[str, Any] = {
        "network": network,
        "weights": weights,
        "learning_rate": 1e-3,
        "batch": 16,
        "epochs": 40,
        "patience": 40,
        "weight_decay": 1e-5,
        "rotate_degrees": 15.0,
        "shift_px": 24.0,
        "scale": (0.8, 1.25),
        "oversample": False,
        "schedule": "cosine",
        "dropout": 0.0,
        "brightness": 0.25,
        "noise": 0.1,
        "test_mirror": True,
    }
    return ClassifierSettings(**values | changes)


def finder_input(size_px: int = 256) -> InputSpec:
    """Return what a finder sees: the whole picture, from which it learns the lesion's outline.

    Args:
        size_px: Pixels per side.

    Returns:
        The input.

    Example:
        >>> finder_input(128).kind
        'whole'
    """
    return InputSpec(kind="whole", size_px=size_px)


class PictureReader(Protocol):
    """The pictures that a training may see."""

    def __contains__(self, case: str) -> bool: ...

    def grey(self, case: str) -> npt.NDArray[np.uint8]:
        """Read a picture.

        Args:
            case: "DATASET/case_id".

        Returns:
            [height, width], 8 bit.
        """

    def has_mask(self, case: str) -> bool:
        """Say whether a case has a mask of the lesion that may be seen.

        Args:
            case: "DATASET/case_id".

        Returns:
            True or False.
        """

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Read the lesion's mask.

        Args:
            case: "DATASET/case_id".
            shape: Height and width of the case's picture.

        Returns:
            [height, width]; nothing is set where there is no mask that may be seen.
        """


@dataclass(frozen=True, kw_only=True)
class PictureTraining:
    """One training of a network on pictures. Its parts name cases of the work.

    Args:
        key: What distinguishes it from the others that train at the same time.
        name: The name that lists and messages show.
        train: The cases that it learns from.
        validation: The cases that it is watched on.
        predict: The cases that it predicts.
        input: What the network sees.
        recipe: How it is trained.
        seed: All randomness comes from it.
        keep_weights: Whether its weights are wanted.
        boxes: Case -> the box around which it is cut at prediction; None: the annotated one.
    """

    key: str = ""
    name: str = ""
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    predict: tuple[str, ...] = ()
    input: InputSpec = field(default_factory=InputSpec)
    recipe: ClassifierSettings = field(default_factory=ClassifierSettings)
    seed: int = 0
    keep_weights: bool = False
    boxes: Mapping[str, BoxRow] | None = None

    @property
    def method(self) -> str:
        """The name of the network."""
        return self.recipe.network


@dataclass(frozen=True, kw_only=True)
class PictureWork:
    """What trainings on pictures refer to.

    Args:
        cases: Labels, boxes and datasets of all their cases.
        pictures: Where the pixels are read.
        weights: Files of published weights by 'network/imagenet'.
    """

    cases: Cases
    pictures: PictureReader
    weights: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PictureOutcome:
    """What a training on pictures gives.

    Args:
        case: The predicted cases.
        logits: (n, 2) benign, malignant; (n, 0) of a finder.
        distance: (n,) Mahalanobis distance of the features to the nearer class of the training part (US-32).
        box: (n, 4) the boxes that a finder found, zeros where none.
        history: An entry per epoch: epoch, train_loss, validation_loss, seconds.
        best_epoch: The epoch whose weights predicted.
        images: Training pictures seen, repeats counted.
        seconds: How long it took.
        weights: The state dict, on the CPU; None: the weights are not wanted.
    """

    case: tuple[str, ...]
    logits: npt.NDArray[np.float32]
    distance: npt.NDArray[np.float32]
    box: npt.NDArray[np.int32] | None = None
    history: tuple[Mapping[str, float], ...] = ()
    best_epoch: int = 0
    images: int = 0
    seconds: float = 0.0
    weights: Mapping[str, Any] | None = None


Finished = Callable[[PictureTraining, PictureOutcome], None]
Failed = Callable[[PictureTraining, str], None]
