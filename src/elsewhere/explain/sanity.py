"""Does a map depend on what the network learnt? (Adebayo et al. 2018, 'Sanity checks for saliency maps')

The weights are exchanged for random ones, from the output down. A method whose map stays the same shows the
picture, not the network, and must not be read as an explanation.
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
"""Maps of the learnt and of the random network that agree more than this do not depend on the learning."""


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """How alike the maps of the learnt and of randomised networks are; small is good."""

    rank_correlation: float
    """Mean over pictures and repeats, all weights random; NaN where all learnt maps are flat."""
    ssim: float
    passed: bool
    threshold: float
    reason: str
    cascade: tuple[tuple[str, float], ...] = ()
    """(the last layer randomised, rank correlation), from the output down to the input."""
    pictures: int = 0
    """Those that were compared: the map of the learnt network is not flat."""
    flat: int = 0
    """Pictures whose learnt map is flat: nothing speaks for the class, and there is nothing to compare."""
    repeats: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def map_similarity(
    a: npt.ArrayLike, b: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Rank correlation and SSIM, one a picture. Against a flat map the rank correlation is 0; of two, NaN."""
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

    `stages` cuts of the cascade from the output down are drawn once; the verdict rests on `repeats` networks
    with all weights random. The given network is not touched.
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
    """A copy whose named layers (default all) have random weights of the same mean and spread.

    Batch normalisation is settled on `images`, since its kept statistics are those of other weights and
    the signal would vanish or overflow.
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
    """The modules with weights of their own, in the order in which they were registered: input to output."""
    return [
        name
        for name, module in model.named_modules()
        if any(parameter is not None for parameter in module.parameters(recurse=False))
    ]


def _cuts(layers: int, stages: int) -> list[int]:
    """How many layers, counted from the output, each stage of the cascade randomises."""
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
    """Structural similarity (Wang et al. 2004): Gaussian window of 1.5 px, values in [0, 1]."""
    from scipy.ndimage import gaussian_filter

    def blur(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(gaussian_filter(x, 1.5, truncate=3.5))

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    both = blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))))
