"""Synthetic masks of many models and folds on small slides with a known truth (LN-16).

A slide is a square of cells of 8 microns with tissue, lesions of a known stage, and hard spots that look like tumour.
What a model calls is the truth with an edge that wanders, and some of the spots; its folds share a part of their errors.
Models that are not steady draw the edge too tightly on external slides and call more spots there. With no drop all models
are equally good, so that no choice of members can be worth anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
CELL_UM = 8.0
_STAGES = ("macro", "micro", "itc", "negative", "negative")
_RADII_CELLS = {"macro": (130.0, 145.0), "micro": (16.0, 90.0), "itc": (3.0, 9.0)}
_EDGE_CELLS, _BIAS_CELLS, _COARSE = 2.0, 0.7, 20
_TIGHTER_CELLS, _MORE_SPOTS = 2.0, 1.3
_SPOT_BASE, _SPOT_SPREAD, _SPOT_OWN = -2.3, 1.2, 1.0


@dataclass(frozen=True, kw_only=True)
class ModelWorld:
    """What synthetic masks of many models are drawn from.

    Args:
        internal: Internal slides.
        external: External slides.
        models: Models.
        folds: Folds of each model.
        steady: Models that stay as good on external slides; the first of them by number.
        drop: How much the others lose there: 1 for an edge that lies 2 cells inside and 3.7 times the odds of a spot.
        side: Cells along a slide; at least 300 for a macro-metastasis.
        spots: Hard spots of a slide.

    Raises:
        UserError: A number is too small.

    Example:
        >>> ModelWorld(models=7).steady
        5
    """

    internal: int = 24
    external: int = 16
    models: int = 21
    folds: int = 5
    steady: int = 5
    drop: float = 1.0
    side: int = 320
    spots: int = 12

    def __post_init__(self) -> None:
        if min(self.internal, self.external, self.models, self.folds) < 1 or self.side < 64 or self.drop < 0:
            raise UserError(
                "synthetic models need at least one slide per domain, one model, one fold and 64 cells along a slide",
                fix="Give larger numbers.",
            )
        if not 0 <= self.steady <= self.models:
            raise UserError(
                f"{self.steady} of {self.models} models cannot be steady",
                fix="Give 0 to the number of models.",
            )


@dataclass(frozen=True, kw_only=True)
class DrawnSlide:
    """A synthetic slide, and what every model calls.

    Attributes:
        number: Its number.
        external: Whether it is external.
        stage: Its stage by design; the truth mask decides.
        truth: Where tumour is.
        tissue: Where tissue is.
        scores: Above 0 where a model calls tumour, in cells from its edge: (models, folds, rows, columns).
    """

    number: int
    external: bool
    stage: str
    truth: Mask
    tissue: Mask
    scores: npt.NDArray[np.float32]


def steady_models(world: ModelWorld) -> list[int]:
    """Return the numbers of the models that stay as good, spread over all of them.

    Args:
        world: What is drawn.

    Returns:
        The numbers, rising.

    Example:
        >>> steady_models(ModelWorld(models=21, steady=3))
        [0, 7, 14]
    """
    return sorted({i * world.models // max(world.steady, 1) for i in range(world.steady)})


def draw_slide_models(world: ModelWorld, seed: int) -> Iterator[DrawnSlide]:
    """Draw slides one after the other; each has a generator of its own.

    Args:
        world: What they are drawn from.
        seed: The seed.

    Yields:
        The slides, internal ones first.

    Example:
        >>> world = ModelWorld(internal=1, external=1, models=2, folds=2, steady=1, side=64)
        >>> [slide.scores.shape for slide in draw_slide_models(world, 1)]
        [(2, 2, 64, 64), (2, 2, 64, 64)]
    """
    shared = np.random.default_rng([seed, 1 << 30])
    bias = _BIAS_CELLS * shared.normal(size=world.folds)
    for number in range(world.internal + world.external):
        rng = np.random.default_rng([seed, number])
        external = number >= world.internal
        yield _slide(world, number, external, bias, rng)


def _slide(
    world: ModelWorld, number: int, external: bool, bias: FloatArray, rng: np.random.Generator
) -> DrawnSlide:
    side = world.side
    y, x = np.mgrid[:side, :side].astype(np.float64)
    tissue = np.hypot((x - side / 2) / 0.48, (y - side / 2) / 0.46) < side
    stage = _STAGES[int(rng.integers(len(_STAGES)))]
    if stage == "macro" and side < 300:
        stage = "micro"
    distance = np.full((side, side), -99.0)
    for radius in _radii(stage, side, rng):
        distance = np.maximum(distance, _inside(x, y, side, radius, rng))
    rough = _interpolation(side) @ rng.normal(size=(_COARSE, _COARSE)) @ _interpolation(side).T
    distance = distance + np.where(distance > -20, rough, 0.0)
    truth = distance > 0
    lost = np.ones(world.models)
    lost[steady_models(world)] = 0.0
    lost *= world.drop if external else 0.0
    scores = _edges(world, distance, bias, lost, rng)
    called = _called_spots(world, lost, rng)
    for k in range(world.spots):
        radius = float(np.clip(rng.lognormal(1.5, 0.7), 1.5, 26.0))
        spot = _inside(x, y, side, radius, rng)
        near = np.argwhere(spot > -6)
        (top, left), (bottom, right) = near.min(axis=0), near.max(axis=0) + 1
        part = scores[:, :, top:bottom, left:right]
        shape = np.where(truth[top:bottom, left:right], -99.0, spot[top:bottom, left:right])
        np.maximum(part, np.where(called[:, :, k, None, None], shape, -99.0), out=part)
    return DrawnSlide(
        number=number, external=external, stage=stage, truth=truth, tissue=tissue | truth, scores=scores
    )


def _radii(stage: str, side: int, rng: np.random.Generator) -> list[float]:
    if stage == "negative":
        return []
    low, high = _RADII_CELLS[stage]
    first = float(rng.uniform(low, min(high, 0.3 * side if stage == "micro" else high)))
    small = _RADII_CELLS["itc"]
    return [first, *(float(rng.uniform(*small)) for _ in range(int(rng.integers(0, 3))))]


def _inside(x: FloatArray, y: FloatArray, side: int, radius: float, rng: np.random.Generator) -> FloatArray:
    """About the distance from the edge of an ellipse, positive inside."""
    free = max(0.45 * side - radius, 0.02 * side)
    cx, cy = side / 2 + rng.uniform(-free, free, size=2) * 0.7
    angle, flat = rng.uniform(0, np.pi), rng.uniform(0.45, 0.9)
    u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
    v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
    return np.asarray((1.0 - np.hypot(u / radius, v / (radius * flat))) * radius * flat)


def _interpolation(side: int) -> FloatArray:
    """Linear interpolation from a coarse line of values to `side` cells."""
    at = np.linspace(0, _COARSE - 1, side)
    out = np.zeros((side, _COARSE))
    first = np.minimum(at.astype(np.int64), _COARSE - 2)
    out[np.arange(side), first] = 1.0 - (at - first)
    out[np.arange(side), first + 1] = at - first
    return out


def _edges(
    world: ModelWorld, distance: FloatArray, bias: FloatArray, lost: FloatArray, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """The truth with an edge that wanders: half by model, half by fold."""
    fine = _interpolation(world.side).astype(np.float32)
    coarse = (_COARSE, _COARSE)
    common = rng.normal(size=(world.models, 1, *coarse))
    own = rng.normal(size=(world.models, world.folds, *coarse))
    noise = (_EDGE_CELLS * np.sqrt(0.5) * (common + own)).astype(np.float32)
    wander = fine @ noise @ fine.T
    shift = bias[None, :] - _TIGHTER_CELLS * lost[:, None]
    out = distance.astype(np.float32) + wander + shift[:, :, None, None].astype(np.float32)
    out[:, :, distance < -15] = -99.0
    return np.asarray(out, dtype=np.float32)


def _called_spots(world: ModelWorld, lost: FloatArray, rng: np.random.Generator) -> Mask:
    """Which models call which hard spot, (models, folds, spots)."""
    hard = _SPOT_SPREAD * rng.normal(size=world.spots)
    common = rng.normal(size=(world.models, 1, world.spots))
    own = rng.normal(size=(world.models, world.folds, world.spots))
    odds = _SPOT_BASE + hard + _SPOT_OWN * (common + own) + _MORE_SPOTS * lost[:, None, None]
    return np.asarray(odds > 0)
