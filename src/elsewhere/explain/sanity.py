"""Does a map depend on what the network learnt? (Adebayo et al. 2018, 'Sanity checks for saliency maps')

The weights are replaced by random ones, from the output down. A method whose map stays the same shows
the picture and not the network, and must not be read as an explanation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elsewhere.explain.gradcam import Method

if TYPE_CHECKING:
    import torch
    from torch import nn

THRESHOLD = 0.5
"""From this rank correlation on, maps of the trained and of random networks are too similar."""


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """How similar the maps of the trained network and of randomised networks are; low is good.

    Args:
        rank_correlation: Mean over pictures and repeats, all weights random; NaN where all maps of the
            trained network are flat.
        ssim: Structural similarity, the same mean.
        passed: Whether `rank_correlation` is below `threshold`.
        threshold: From this rank correlation on, the check fails.
        reason: What the verdict means, in words.
        cascade: (the last layer randomised, rank correlation), from the output down to the input.
        pictures: How many pictures were compared: those whose map of the trained network is not flat.
        flat: How many pictures have a flat map of the trained network: nothing speaks for the class, and
            there is nothing to compare.
        repeats: How many networks with all weights random the verdict rests on.
    """

    rank_correlation: float
    ssim: float
    passed: bool
    threshold: float
    reason: str
    cascade: tuple[tuple[str, float], ...] = ()
    pictures: int = 0
    flat: int = 0
    repeats: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary.

        Returns:
            The fields by name.
        """
        return asdict(self)


def map_similarity(
    a: npt.ArrayLike, b: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Compare maps by rank correlation and structural similarity (SSIM), picture by picture.

    Args:
        a: Maps of shape (n, height, width).
        b: Maps of the same shape.

    Returns:
        The rank correlations and the similarities, one per picture. With one flat map the rank
        correlation is 0, with two it is NaN.

    Raises:
        ValueError: The shapes differ, or do not have three axes.

    Example:
        >>> ranks, likeness = map_similarity([[[0.0, 1.0]]], [[[0.0, 0.0]]])
        >>> ranks.tolist()
        [0.0]
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 3:
        raise ValueError(f"maps of (n, height, width) are compared, not {first.shape} and {second.shape}")
    ranks = np.array([_rank_correlation(x, y) for x, y in zip(first, second, strict=True)])
    likeness = np.array([_ssim(x, y) for x, y in zip(first, second, strict=True)])
    return ranks, likeness


def sanity_check(
    model: nn.Module,
    images: torch.Tensor,
    method: Method,
    generator: torch.Generator,
    *,
    threshold: float = THRESHOLD,
    stages: int = 4,
    repeats: int = 3,
) -> SanityCheck:
    """Compare the method's maps with those of networks whose weights are random.

    The given network is not changed.

    Args:
        model: The trained network.
        images: Pictures of shape (n, channels, height, width), on the network's device.
        method: A function from a network and pictures to maps (`method_for`).
        generator: The source of the random weights.
        threshold: From this mean rank correlation on, the check fails.
        stages: How many steps of the cascade, from the output down, are drawn, once each; 0 for none.
        repeats: How many networks with all weights random the verdict rests on.

    Returns:
        The similarities and the verdict; failed where every map of the trained network is flat.

    Example:
        >>> import torch
        >>> from elsewhere.explain.gradcam import method_for
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
        >>> method = method_for(network, "occlusion")[1]
        >>> seeded = torch.Generator().manual_seed(0)
        >>> sanity_check(network, torch.zeros(2, 1, 8, 8), method, seeded).flat
        2
    """
    real = method(model, images)
    telling = np.ptp(real, axis=(1, 2)) > 0
    count = int(telling.sum())
    flat = len(real) - count
    if count == 0:
        return SanityCheck(
            rank_correlation=float("nan"),
            ssim=float("nan"),
            passed=False,
            threshold=threshold,
            reason="all maps of the learnt network are flat: they say nothing",
            flat=flat,
        )

    def alike(other: nn.Module) -> tuple[float, float]:
        ranks, likeness = map_similarity(real[telling], method(other, images)[telling])
        return float(ranks.mean()), float(likeness.mean())

    layers = _layers(model)
    cascade = []
    for end in _cuts(len(layers), stages):
        other = randomised(model, generator, layers=layers[-end:], images=images)
        cascade.append((layers[-end], alike(other)[0]))
    found = [alike(randomised(model, generator, images=images)) for _ in range(repeats)]
    mean_rank, mean_ssim = (float(value) for value in np.mean(found, axis=0))
    passed = mean_rank < threshold
    return SanityCheck(
        rank_correlation=mean_rank,
        ssim=mean_ssim,
        passed=passed,
        threshold=threshold,
        reason="random weights give another map"
        if passed
        else "random weights give much the same map: it does not show what was learnt",
        cascade=tuple(cascade),
        pictures=count,
        flat=flat,
        repeats=repeats,
    )


def randomised(
    model: nn.Module,
    generator: torch.Generator,
    *,
    layers: Sequence[str] | None = None,
    images: torch.Tensor | None = None,
) -> nn.Module:
    """Copy a network and give its layers random weights of the same mean and standard deviation.

    The statistics of batch normalisation are computed anew on `images`: the stored ones are those of
    other weights, and the signal would vanish or overflow.

    Args:
        model: The network; it is not changed.
        generator: The source of the random weights.
        layers: The names of the layers to randomise; None for all.
        images: Pictures for the statistics of batch normalisation; None to keep the stored statistics.

    Returns:
        The copy.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(2, 2)
        >>> other = randomised(network, torch.Generator().manual_seed(0))
        >>> bool((other.weight == network.weight).any())
        False
    """
    import torch

    other = copy.deepcopy(model)
    with torch.no_grad():
        for name in _layers(other) if layers is None else layers:
            for parameter in other.get_submodule(name).parameters(recurse=False):
                noise = torch.randn(parameter.shape, generator=generator, device=generator.device)
                spread = parameter.std(correction=0) if parameter.numel() > 1 else parameter.abs().mean()
                parameter.copy_(noise.to(parameter) * spread + parameter.mean())
    if images is not None:
        _settle(other, images)
    return other


def _settle(model: nn.Module, images: torch.Tensor) -> None:
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [
        module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats
    ]
    if not norms:
        return
    model.eval()
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _layers(model: nn.Module) -> list[str]:
    """List the modules with weights of their own in the order of registration, from input to output."""
    return [
        name
        for name, module in model.named_modules()
        if any(parameter is not None for parameter in module.parameters(recurse=False))
    ]


def _cuts(layers: int, stages: int) -> list[int]:
    """Count how many layers, from the output, each stage of the cascade randomises."""
    if layers == 0 or stages <= 0:
        return []
    return sorted({max(1, round(layers * stage / stages)) for stage in range(1, stages + 1)})


def _rank_correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    flat = int(np.ptp(a) == 0) + int(np.ptp(b) == 0)
    if flat:
        return float("nan") if flat == 2 else 0.0
    return float(np.corrcoef(rankdata(a.ravel()), rankdata(b.ravel()))[0, 1])


def _ssim(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Compute structural similarity (Wang et al. 2004): Gaussian window of 1.5 px, values in [0, 1]."""
    from scipy.ndimage import gaussian_filter

    def blur(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(gaussian_filter(x, 1.5, truncate=3.5))

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    both = blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))))
