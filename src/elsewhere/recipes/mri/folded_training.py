"""What all segmentation recipes share: folds that are trained one after another, and their report."""

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
    """Split a job's training and validation cases into the folds that are trained; groups stay together.

    Args:
        job: The job.
        settings: `folds` and `fold` of the recipe.

    Returns:
        (fold, cases to learn from, cases held out) for every fold that is trained. With one fold, or too few
        groups for several, this is the job's own split.

    Raises:
        TrainingError: The fold that the settings ask for is empty.
    """
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
    """Return the seed of a fold's training.

    Args:
        seed: The job's seed.
        fold: The number of the fold.

    Returns:
        A seed that differs from fold to fold.

    Example:
        >>> fold_seed(1, 0) != fold_seed(1, 1)
        True
    """
    return int(np.random.SeedSequence([abs(seed), fold]).generate_state(1)[0])


@dataclass(kw_only=True)
class Folds:
    """The networks of all folds, and what is reported of their training.

    Args:
        networks: One trained network per fold.
        history: One entry per fold and epoch.
        folds: The number of each fold.
        patches: Training patches of all folds, repeats counted.
        best_epoch: The epoch whose weights the last fold's network has.
        notes: What a reader of the report must know.
    """

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
    """Train one network per fold, one after another.

    Each fold has its own checkpoint in the job's scratch folder.

    Args:
        job: The job.
        settings: `folds` and `fold` of the recipe.
        plan: Patch, spacing and shape of the network.
        data: The training and validation cases in the plan's form.
        how: Epochs, rates and the optimiser.
        build: Makes a network from a seed.
        more: Returns further arguments of `fit` from a fold's number, its training part and its validation
            part.

    Returns:
        The networks and their histories.

    Raises:
        TrainingError: A fold has no training case with a mask.
    """
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
            out.notes.append(f"fold {fold + 1}: no validation case has a mask, so the last weights are used")
        out.networks.append(network)
        out.folds.append(fold)
        out.history += [known_values(entry) | {"fold": fold} for entry in done.history]
        out.patches += done.patches
        out.best_epoch = done.best_epoch
    return out


def told_of(
    job: Job, done: Folds, plan: Plan, found: dict[str, Any], *, notes: Iterable[str], **details: Any
) -> Trained:
    """Make what a segmentation recipe reports at its end.

    Args:
        job: The job.
        done: The trained folds.
        plan: Patch, spacing and shape of the networks.
        found: The fingerprint of the training set, as plain JSON.
        notes: What a reader of the report must know.
        **details: Further entries of the details, as plain JSON.

    Returns:
        The report, with the networks' weights where the study saves them.
    """
    from elsewhere.training.cuda_options import cuda_options

    shared = {
        "fingerprint": found,
        "plan": plan.as_json(),
        "folds": done.folds,
        "parameters": sum(p.numel() for p in done.networks[0].parameters()),
    }
    if job.device.startswith("cuda"):
        shared["gpu_ways"] = asdict(cuda_options())
    return Trained(
        weights=keep_networks(job, plan, done.networks),
        history=tuple(done.history),
        best_epoch=done.best_epoch,
        images=done.patches,
        notes=tuple(notes),
        details=shared | details,
    )


def known_values(entry: dict[str, float]) -> dict[str, float]:
    """Return an epoch's entry without the values that were not measured.

    Args:
        entry: Values by name; NaN and infinities are not measured.

    Returns:
        The finite values.

    Example:
        >>> known_values({"train_loss": 0.5, "validation_loss": float("nan")})
        {'train_loss': 0.5}
    """
    return {name: value for name, value in entry.items() if math.isfinite(value)}
