"""What the segmentation recipes with an own start, objective or weights share: the folds, one after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elsewhere.errors import TrainingError
from elsewhere.recipes.base import Job
from elsewhere.recipes.residual_unet import SegmentationSettings, fold_seed, folds_of

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import FitSettings, Plan, Prepared


@dataclass(kw_only=True)
class Folds:
    """Every fold's network, and what is said of them all."""

    networks: list[torch.nn.Module] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)
    folds: list[int] = field(default_factory=list)
    patches: int = 0
    best_epoch: int = 0
    notes: list[str] = field(default_factory=list)


def train_folds(
    job: Job,
    settings: SegmentationSettings,
    plan: Plan,
    data: Prepared,
    *,
    how: FitSettings,
    build: Callable[[int], torch.nn.Module],
    more: Callable[[int, Prepared, Prepared], dict[str, Any]] = lambda fold, training, watched: {},
) -> Folds:
    """`build`: a network from a seed. `more`: of a fold and its two parts, what `fit` is given beside the rest."""
    from elsewhere.training.volumes import fit

    out = Folds()
    parts = folds_of(job, settings)
    for place, (fold, learn, held) in enumerate(parts):
        training = data.subset([case.case for case in learn])
        watched = data.subset([case.case for case in held])
        if not training.cases:
            raise TrainingError(f"fold {fold + 1} has no training case with a mask")

        def tell(what: str, done: int, total: int, place: int = place) -> None:
            job.progress(what, place * total + done, len(parts) * total)

        seed = fold_seed(job.seed, fold)
        network = build(seed)
        done = fit(
            network,
            training,
            plan,
            how,
            seed=seed,
            validation=watched if watched.cases else None,
            checkpoint=job.scratch / f"fold-{fold}.pt",
            progress=tell,
            **more(fold, training, watched),
        )
        if not watched.cases:
            out.notes.append(f"fold {fold + 1}: no validation case with a mask, the last weights are kept")
        out.networks.append(network)
        out.folds.append(fold)
        out.history += [known_values(entry) | {"fold": fold} for entry in done.history]
        out.patches += done.patches
        out.best_epoch = done.best_epoch
    return out


def known_values(entry: dict[str, float]) -> dict[str, float]:
    """An epoch without what was not measured."""
    return {name: value for name, value in entry.items() if math.isfinite(value)}
