"""Masked-autoencoder pretraining, then fine-tuning (MRI-15, MIC: first in the challenge's segmentation).

**Follows** MIC: a residual-encoder nnU-Net on p0, p1 and p2 at 1 mm, pretrained by masked autoencoding, then
fine-tuned for 10,000 steps of three patches, five folds, and what lies outside the breast's box is dropped.

**Differs**: MIC pretrained on 4,799 public DCE volumes; here it is the volumes of the training part alone,
their masks unread, so that a study's external site stays unseen. Blocks are hidden by a learnt value in a
dense network, not by sparse convolutions. The fine-tuning loss is Dice + cross-entropy as in the baseline,
where MIC's is soft Dice: the effect of pretraining can then be compared with the baseline. The box at the end
is around both breasts, which are found (`test_box`): the expert's box of a predicted case is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elsewhere.errors import TrainingError, UserError
from elsewhere.recipes.base import Job, Trained, recipes
from elsewhere.recipes.mri.folded_training import fold_seed, known_values, told_of, train_folds
from elsewhere.recipes.mri.residual_unet import (
    SegmentationSettings,
    Segmenter,
    emit_masks,
    fit_settings,
    planned,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.training.joint.masked import MaskedAutoencoder
    from elsewhere.training.volumes import Plan, Prepared

PRETRAINING = 1_000
"""The number that stands for a fold in the seed of pretraining; no fold has it."""


@dataclass(frozen=True, kw_only=True)
class MaskedAutoencoderSettings(SegmentationSettings):
    """Settings of the recipe 'masked-autoencoder'.

    They are `SegmentationSettings` with other defaults, and those of the pretraining.

    Args:
        spacing_mm: Voxel size in mm that every volume is resampled to.
        batch: Patches per step.
        epochs: Epochs of the fine-tuning, of 250 steps: MIC's 10,000 steps.
        keep: What is kept of a predicted mask: 'all', 'largest', 'box' or 'largest-in-box'.
        pretrain_epochs: Epochs of the pretraining; 0: none.
        pretrain_learning_rate: Learning rate of the pretraining (AdamW).
        hidden: The share of blocks that is hidden, between 0 and 1.
        block: Voxels along a block's edge.

    Raises:
        UserError: A value is out of its range.
    """

    spacing_mm: tuple[float, ...] = (1.0, 1.0, 1.0)
    batch: int = 3
    epochs: int = 40
    """Epochs of 250 steps: MIC's 10,000 steps."""
    keep: str = "box"
    pretrain_epochs: int = 100
    pretrain_learning_rate: float = 1e-3
    hidden: float = 0.75
    """The share of blocks that is hidden."""
    block: int = 16
    """Voxels of a block's edge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.hidden < 1:
            raise UserError(f"hidden must lie between 0 and 1, not {self.hidden}")
        if self.block < 1 or self.pretrain_epochs < 0:
            raise UserError("block must be at least 1 and pretrain_epochs at least 0")


@recipes.register("masked-autoencoder")
class MaskedAutoencoderRecipe(Segmenter):
    """Pretrain the segmentation network by masked autoencoding, then fine-tune it."""

    title = "Masked-autoencoder pretraining (MIC)"
    version = 3
    follows = (
        "MIC (MAMA-MIA, first in segmentation): a residual-encoder nnU-Net pretrained by masked autoencoding, then "
        "fine-tuned, five folds, breast box. Ours pretrains on the volumes of the training part, not on 4,799 "
        "external ones; dense convolutions; Dice + cross-entropy."
    )
    Settings = MaskedAutoencoderSettings

    def run(self, job: Job) -> Trained:
        from elsewhere.training.joint.masked import copy_pretrained
        from elsewhere.training.volumes import build_network

        settings: MaskedAutoencoderSettings = job.settings
        plan, found, everything = planned(job, settings, need_mask=False)
        pretrained, told = pretrain(job, settings, plan, everything)
        data = everything.subset(
            [c for c, has in zip(everything.cases, everything.has_mask, strict=True) if has]
        )
        if not data.cases:
            raise TrainingError(
                f"none of the {len(job.train)} training cases has a mask",
                fix="Fine-tuning learns from masks: see the reader's column 'mask'.",
            )

        def build(seed: int) -> torch.nn.Module:
            network = build_network(plan, seed=seed, device=job.device)
            copy_pretrained(pretrained, network)
            return network

        done = train_folds(job, settings, plan, data, how=fit_settings(settings), build=build)
        notes = [*everything.notes, *done.notes]
        cost, more = emit_masks(job, settings, done.networks, plan)
        without = len(everything.cases) - len(data.cases)
        if without:
            notes.append(f"{without} cases without a mask were used in pretraining alone")
        return told_of(job, done, plan, found, notes=notes + more, pretraining=told, cost=cost)


def pretrain(
    job: Job, settings: MaskedAutoencoderSettings, plan: Plan, everything: Prepared
) -> tuple[MaskedAutoencoder, dict[str, Any]]:
    """Pretrain a network on the training part alone: the validation part stays unseen.

    Args:
        job: The job.
        settings: Lengths, rates and what is hidden.
        plan: Patch, spacing and shape of the network.
        everything: Training and validation cases in the plan's form, masks or not.

    Returns:
        The network, and what is reported of its pretraining as plain JSON.
    """
    from elsewhere.training.joint.masked import MaskedAutoencoder, masked_objective
    from elsewhere.training.volumes import FitSettings, fit

    seed = fold_seed(job.seed, PRETRAINING)
    network = MaskedAutoencoder(plan, seed=seed, hidden=settings.hidden, block=settings.block).to(job.device)
    told: dict[str, Any] = {"cases": 0, "hidden": settings.hidden, "block_voxels": list(network.block)}
    if not settings.pretrain_epochs:
        return network, told
    part = everything.subset([case.case for case in job.train])
    how = FitSettings(
        epochs=settings.pretrain_epochs,
        steps_per_epoch=settings.steps_per_epoch,
        optimiser="adamw",
        learning_rate=settings.pretrain_learning_rate,
        weight_decay=0.05,
        foreground=0.0,
        augment=settings.augment,
        checkpoint_every=settings.checkpoint_every,
        compiled=settings.compiled,
    )

    def tell(what: str, done: int, total: int) -> None:
        job.progress("pretraining", done, total)

    done = fit(
        network,
        part,
        plan,
        how,
        seed=seed,
        objective=masked_objective,
        checkpoint=job.scratch / "pretraining.pt",
        progress=tell,
    )
    return network, told | {
        "cases": len(part.cases),
        "patches": done.patches,
        "history": [known_values(entry) for entry in done.history],
    }
