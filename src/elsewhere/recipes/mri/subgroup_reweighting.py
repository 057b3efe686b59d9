"""Training weights that follow the subgroups a network fails on (MRI-15, AIH-MAMA).

**Follows** AIH-MAMA's FairMedSeg: subgroups of clinical values and centre are searched by DivExplorer's
divergence (the mean Dice of a subgroup minus that of all), and training cases of subgroups that do worse get
more weight. No subgroup is known or asked for at test time. p0, p1 and p2 at 1 mm, AdamW, 200 epochs, the
breast's box at the end.

**Differs**: subgroups are found on the validation part during training, on whole volumes, every few epochs.
The paper does not report how their objective turns divergence into weights; ours is 1 + strength x divergence
of the worst subgroup a case is in, where Welch's t says that it is worse. Network, patches and loss are the
baseline's (theirs: a 3D U-Net of 4.8 million weights on one volume per step, cropped or padded to 320 x 320 x
128 and z-scored over its non-zero voxels; focal loss), so that the effect of the weights can be compared with
the baseline. The box at the end is around both breasts, which are found (`test_box`): the expert's box of a
predicted case is hidden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.errors import UserError
from elsewhere.recipes.base import Job, RecipeCase, Trained, recipes
from elsewhere.recipes.mri.folded_training import told_of, train_folds
from elsewhere.recipes.mri.residual_unet import (
    SegmentationSettings,
    Segmenter,
    emit_masks,
    fit_settings,
    planned,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import Plan, Prepared

SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class SubgroupReweightingSettings(SegmentationSettings):
    """Settings of the recipe 'subgroup-reweighting'.

    They are `SegmentationSettings` with other defaults, and those of the search for subgroups.

    Args:
        spacing_mm: Voxel size in mm that every volume is resampled to.
        epochs: Epochs per fold.
        learning_rate: Learning rate of AdamW in the first epoch.
        weight_decay: Weight decay of AdamW.
        folds: 1: the job's own training and validation parts; more: cross-validation over both, and an
            ensemble.
        keep: What is kept of a predicted mask: 'all', 'largest', 'box' or 'largest-in-box'.
        columns: Clinical columns whose values make subgroups; 'dataset' is the centre's collection.
        support: The least share of the validation part that a subgroup holds; it also holds at least three
            cases.
        longest: The largest number of values that define a subgroup.
        warm: The share of the epochs before the first search.
        every: Epochs between two searches.
        strength: A divergence of -0.1 in Dice makes a case weigh 1 + 0.1 x this.
        least_t: A subgroup counts where Welch's t says that it is worse by at least this many standard
            errors.
        most: The largest weight of a case before weights are scaled to a mean of 1.

    Raises:
        UserError: A value is unknown or out of its range.
    """

    spacing_mm: tuple[float, ...] = (1.0, 1.0, 1.0)
    epochs: int = 200
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    folds: int = 1
    keep: str = "box"
    columns: tuple[str, ...] = (
        "age",
        "menopausal_status",
        "breast_density",
        "subtype",
        "site",
        "vendor",
        "dataset",
    )
    """Clinical columns whose values make subgroups; 'dataset' is the centre's collection."""
    support: float = 0.1
    """A subgroup holds at least this share of the validation part, and three cases."""
    longest: int = 2
    """The largest number of values that define a subgroup."""
    warm: float = 0.2
    """The share of the epochs before the first search."""
    every: int = 10
    """Epochs between two searches."""
    strength: float = 5.0
    """A divergence of -0.1 in Dice makes a case weigh 1 + 0.1 x this."""
    least_t: float = 1.0
    most: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1 or self.longest < 1 or self.strength < 0:
            raise UserError("every and longest must be at least 1, and strength at least 0")


@recipes.register("subgroup-reweighting")
class SubgroupReweighting(Segmenter):
    """Segment the tumour with more training weight on the subgroups that the network fails on."""

    title = "Subgroup-divergence reweighting (AIH-MAMA)"
    version = 3
    follows = (
        "AIH-MAMA (MAMA-MIA), FairMedSeg: subgroups that diverge (DivExplorer) get more weight in training. Ours "
        "finds them on the validation part during training; network, patches and loss are the baseline's (theirs: "
        "a small 3D U-Net on whole volumes, focal loss)."
    )
    Settings = SubgroupReweightingSettings

    def run(self, job: Job) -> Trained:
        from elsewhere.training.volumes import build_network

        settings: SubgroupReweightingSettings = job.settings
        plan, found, data = planned(job, settings)
        cases = {case.case: case for case in (*job.train, *job.validation)}
        searches: dict[int, Search] = {}

        def more(fold: int, training: Prepared, watched: Prepared) -> dict[str, Any]:
            search = Search(job, settings, plan, training=training, watched=watched, cases=cases, fold=fold)
            searches[fold] = search
            return {"on_epoch": search.after}

        done = train_folds(
            job,
            settings,
            plan,
            data,
            how=replace(fit_settings(settings), optimiser="adamw"),
            build=lambda seed: build_network(plan, seed=seed, device=job.device),
            more=more,
        )
        cost, notes = emit_masks(job, settings, done.networks, plan)
        told = [
            f"fold {fold + 1}: no subgroup was searched for: {search.why_not}"
            for fold, search in searches.items()
            if search.why_not
        ]
        return told_of(
            job,
            done,
            plan,
            found,
            notes=(*data.notes, *done.notes, *told, *notes),
            reweighting={str(fold): search.told for fold, search in searches.items()},
            cost=cost,
        )


class Search:
    """A search for subgroups after some epochs, which returns new weights of the training cases.

    Args:
        job: The job, whose scratch folder keeps what was found.
        settings: How often and what is searched.
        plan: Patch and spacing.
        training: The training part of the fold.
        watched: The validation part of the fold, on which subgroups are searched.
        cases: Training and validation cases by name, with their clinical columns.
        fold: The number of the fold.
    """

    def __init__(
        self,
        job: Job,
        settings: SubgroupReweightingSettings,
        plan: Plan,
        *,
        training: Prepared,
        watched: Prepared,
        cases: Mapping[str, RecipeCase],
        fold: int,
    ) -> None:
        from elsewhere.training.joint.subgroups import attributes_of

        self.settings, self.plan, self.watched = settings, plan, watched
        self.attributes = {
            name: attributes_of(cases[name].clinical, cases[name].dataset, settings.columns)
            for name in (*training.cases, *watched.cases)
        }
        self.training = training.cases
        self.file = job.scratch / f"subgroups-{fold}.json"
        self.told: list[dict[str, Any]] = json.loads(self.file.read_text()) if self.file.is_file() else []
        self.why_not = "no validation case has a mask" if not watched.cases else ""
        if not self.why_not and not any(self.attributes[name] for name in watched.cases):
            self.why_not = f"no validation case has a value of any of {', '.join(settings.columns)}"

    def after(self, entry: Mapping[str, float], network: torch.nn.Module) -> dict[str, float] | None:
        """Search after an epoch, and return new weights.

        Args:
            entry: The epoch's entry of the history.
            network: The network in training.

        Returns:
            Case to weight; None to leave the weights as they are.
        """
        from elsewhere.training.joint.subgroups import divergent_subgroups, weights_of

        settings, epoch = self.settings, int(entry["epoch"])
        if self.why_not or epoch <= settings.warm * settings.epochs or epoch % settings.every:
            return None
        dice = volume_dice(network, self.watched, self.plan)
        found = divergent_subgroups(
            dice,
            [self.attributes[name] for name in self.watched.cases],
            support=settings.support,
            longest=settings.longest,
        )
        weights = weights_of(
            found,
            {name: self.attributes[name] for name in self.training},
            strength=settings.strength,
            least_t=settings.least_t,
            most=settings.most,
        )
        self.told = [entry for entry in self.told if entry["epoch"] < epoch]
        self.told.append(
            {
                "epoch": epoch,
                "mean_dice": float(np.mean(dice)),
                "subgroups": [group.to_dict() for group in found[:SHOWN]],
                "weights": {
                    "least": min(weights.values()),
                    "most": max(weights.values()),
                    "by_case": weights,
                },
            }
        )
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.told))
        part.replace(self.file)
        return weights


def volume_dice(network: torch.nn.Module, data: Prepared, plan: Plan) -> list[float]:
    """Compute the Dice of every case on the plan's grid, by a sliding window without mirrored copies.

    Args:
        network: The network; its mode is restored.
        data: The cases, with masks.
        plan: The size of the window.

    Returns:
        One Dice per case; 1 where neither mask nor prediction has a voxel.
    """
    from elsewhere.training.volumes.windows import sliding_logits

    was = network.training
    scores = []
    for case in data.cases:
        image, mask = data.volume(case)
        image = image.to(data.device).float()
        logits, _, _ = sliding_logits([network], image, plan.patch, mirror=False, overlap=0.25)
        found, truth = logits > 0, mask.to(data.device) > 0
        both, sizes = float((found & truth).sum()), float(found.sum() + truth.sum())
        scores.append(2 * both / sizes if sizes else 1.0)
    network.train(was)
    return scores
