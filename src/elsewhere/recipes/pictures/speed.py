"""Rough times of trainings on pictures, for machines of which nothing is known yet."""

from __future__ import annotations

from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

ROUGH_SECONDS = {
    "cpu": {
        "efficientnet-b0": 0.20,
        "efficientnet-lite0": 0.20,
        "efficientnet-lite1": 0.30,
        "efficientnet-lite2": 0.45,
        "vit-b-16": 4.5,
        "tiny-cnn": 0.003,
        "": 0.30,
    },
    "cuda": {
        "efficientnet-b0": 5e-4,
        "efficientnet-lite0": 3.6e-4,
        "efficientnet-lite1": 5e-4,
        "efficientnet-lite2": 6e-4,
        "vit-b-16": 1.25e-3,
        "tiny-cnn": 5e-5,
        "": 5e-4,
    },
}
"""Seconds per training image at the network's own size, checks and predictions included: of one core, and of
a GPU with its lanes filled. Measured: Lite0 and ViT-B/16 on an H200 (2,600 and 750 images per second over a
whole study), Lite0 (0.11 to 0.16 s per step), B0 and ViT-B/16 (3.9 s) on one core of a server; the others
follow from their GFLOP. A guess for any other machine."""
OWN_SIZE = {"vit-b-16": 384, "efficientnet-lite1": 240, "efficientnet-lite2": 260, "tiny-cnn": 64}
MOST_CORES = 16
"""More cores than this do not make one training faster."""
LANES = {"vit-b-16": 2, "": 6}
"""Trainings at the same time on a GPU, where the store holds no measurement of the gain."""


def rough_seconds(training: ClassifierSettings, seen: InputSpec, device: str, cores: int) -> float:
    """Guess the seconds per training image on a machine of which nothing is known.

    Args:
        training: How the network is trained.
        seen: What it sees.
        device: 'cpu' or 'cuda'.
        cores: Cores of the CPU.

    Returns:
        Seconds.

    Example:
        >>> rough_seconds(ClassifierSettings(network="tiny-cnn"), InputSpec(size_px=64), "cpu", 1)
        0.003
    """
    table = ROUGH_SECONDS[device]
    own = OWN_SIZE.get(training.network, 224)
    a_core = table.get(training.network, table[""]) * (seen.size_px / own) ** 2
    return a_core / (min(cores, MOST_CORES) if device == "cpu" else 1)


def lanes_of(training: ClassifierSettings) -> int:
    """Return how many trainings of a network share a GPU.

    Args:
        training: How the network is trained.

    Returns:
        The number of trainings at the same time.

    Example:
        >>> lanes_of(ClassifierSettings(network="vit-b-16"))
        2
    """
    return LANES.get(training.network, LANES[""])
