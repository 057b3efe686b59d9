"""What all segmentation recipes share: their folds, trained one after another, and what is told of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.errors import TrainingError
from elsewhere.recipes.base import Job, RecipeCase, Trained
from elsewhere.recipes.mri.kept_networks import keep_networks
from elsewhere.recipes.splits import grouped_folds

if TYPE_CHECKING:
    import torch

    from elsewhere.recipes.mri.residual_unet import SegmentationSettings
    from elsewhere.training.volumes import FitSettings, Plan, Prepared


def folds_of(
    job: Job, settings: SegmentationSettings
) -> list[tuple[int, tuple[RecipeCase, ...], tuple[RecipeCase, ...]]]:
    """(fold, learn, hold out). Groups stay together."""
    if settings.folds == 1:
        return [(0, job.train, job.validation)]
    parts = grouped_folds([*job.train, *job.validation], settings.folds, seed=job.seed)
    if not parts:
        return [(0, job.train, job.validation)]
    if settings.fold >= len(parts):
        raise TrainingError(
            f"fold {settings.fold} is empty: the training part has too few groups for {settings.folds} folds"
        )
    chosen = range(len(parts)) if settings.fold < 0 else [settings.fold]
    return [(fold, *parts[fold]) for fold in chosen]


def fold_seed(seed: int, fold: int) -> int:
    return int(np.random.SeedSequence([abs(seed), fold]).generate_state(1)[0])


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
    """A network a fold, each with a checkpoint of its own in the job's scratch. `build`: a network from a seed.
    `more`: of a fold and its two parts, what `fit` is given beside the rest."""
    from elsewhere.training.volumes import fit
    from elsewhere.training.volumes.fitting import forget_compiled

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
        forget_compiled(job.device)
        if not watched.cases:
            out.notes.append(f"fold {fold + 1}: no validation case with a mask, the last weights are kept")
        out.networks.append(network)
        out.folds.append(fold)
        out.history += [known_values(entry) | {"fold": fold} for entry in done.history]
        out.patches += done.patches
        out.best_epoch = done.best_epoch
    return out


def told_of(
    job: Job, done: Folds, plan: Plan, found: dict[str, Any], *, notes: Iterable[str], **details: Any
) -> Trained:
    """What a recipe hands over at its end: `found` is the training set's fingerprint, `details` what is its own."""
    from elsewhere.training.volumes.ways import gpu_ways

    shared = {
        "fingerprint": found,
        "plan": plan.as_json(),
        "folds": done.folds,
        "parameters": sum(p.numel() for p in done.networks[0].parameters()),
    }
    if job.device.startswith("cuda"):
        shared["gpu_ways"] = asdict(gpu_ways())
    return Trained(
        weights=keep_networks(job, plan, done.networks),
        history=tuple(done.history),
        best_epoch=done.best_epoch,
        images=done.patches,
        notes=tuple(notes),
        details=shared | details,
    )


def known_values(entry: dict[str, float]) -> dict[str, float]:
    """An epoch without what was not measured."""
    return {name: value for name, value in entry.items() if math.isfinite(value)}
