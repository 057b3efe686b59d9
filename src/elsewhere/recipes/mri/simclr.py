"""SimCLR that gives way to supervised training on lesion crops, for pCR (MRI-15, pimed-lab).

**Follows** pimed-lab of the MAMA-MIA challenge: lesion-centred crops at 1 mm, z-scored; a 3D SimCLR objective
early that changes to supervised training; post-contrast phases p1..px in training and p1 at prediction; a 3D
ResNet-18 and an mc3_18 from scratch, AdamW, batch 48, 200 epochs; their two probabilities averaged.

**Differs**: the paper does not report how fast one loss replaces the other: ours is NT-Xent alone for the
first fifth, then a linear decrease to 0 at three fifths. Two views of a case may be two phases of it. The 3D
ResNet-18 is torchvision's r3d_18. The crop is found (the expert's mask and box of a predicted case are
hidden): the best enhancing component in both breasts, which are found, in training too; the paper does not
report where their box comes from at test time. Weights are those of the least validation loss after the
contrastive loss has reached 0. Both classes weigh the same in the loss.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from elsewhere.inputs.source import BREAST_BOX
from elsewhere.recipes.base import RESPONSE, Job, Recipe, RecipeSettings, Trained, recipes


@dataclass(frozen=True, kw_only=True)
class SimclrSettings(RecipeSettings):
    """Settings of the recipe 'simclr'.

    Args:
        networks: Networks whose probabilities are averaged.
        epochs: Epochs.
        batch: Crops per step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        size: Voxels of a crop along x, y and z.
        spacing_mm: Voxel size of a crop.
        temperature: Temperature of the contrastive loss NT-Xent.
        hold: The share of the epochs during which the contrastive loss has all the weight.
        gone: The share of the epochs from which it has none; its weight falls linearly in between.
        phases: 'one': one phase after contrast at a time, as the team; 'three': p0, p1 and p2 as channels.
        lesion: How crops are found: 'enhancing', 'expert', 'breast-box' (asks for the expert's box in the
            test too), 'centre', or 'masks' with `masks`.
        masks: A folder of predicted masks (CASE.nii.gz) that the crops are found by; empty: none.
        flips: Whether predictions are averaged over mirrored copies; the team names no such step.
        checkpoint_seconds: Seconds between two checkpoints.
    """

    networks: tuple[str, ...] = ("r3d_18", "mc3_18")
    epochs: int = 200
    batch: int = 48
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    size: tuple[int, int, int] = (64, 64, 64)
    spacing_mm: tuple[float, float, float] = (1.0, 1.0, 1.0)
    temperature: float = 0.1
    hold: float = 0.2
    gone: float = 0.6
    phases: str = "one"
    """'one': one phase after contrast at a time, as the team; 'three': p0, p1 and p2 as channels."""
    lesion: str = "enhancing"
    """'enhancing', 'expert', 'breast-box' (asks for the expert's box in the test too), 'centre', or 'masks'
    with `masks`."""
    masks: str = ""
    """A folder of predicted masks (CASE.nii.gz) that the crops are found by."""
    flips: bool = False
    """Whether predictions are averaged over mirrored copies; the team names no such step."""
    checkpoint_seconds: float = 120.0


@recipes.register("simclr")
class Simclr(Recipe):
    """Train on lesion crops by SimCLR that gives way to supervised training."""

    title = "SimCLR giving way to supervision (pimed-lab)"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 2
    follows = (
        "pimed-lab (MAMA-MIA): SimCLR on lesion crops that gives way to supervised training, r3d_18 and mc3_18 "
        "averaged, one post-contrast phase at a time. Ours: the weight of the contrastive loss falls linearly "
        "between a fifth and three fifths of the epochs; crops are found by enhancement, not drawn."
    )
    keeps: ClassVar[bool] = True
    holds_out_validation: ClassVar[bool] = True
    Settings: ClassVar[type[RecipeSettings]] = SimclrSettings

    @classmethod
    def shown(cls, settings: SimclrSettings, needs: Collection[str] = ()) -> frozenset[str]:
        asks = settings.lesion == "breast-box" and not settings.masks
        return cls.sees | {BREAST_BOX} if asks else cls.sees

    @classmethod
    def files(cls, settings: SimclrSettings) -> dict[str, Path]:
        return {"masks": Path(settings.masks)} if settings.masks else {}

    def run(self, job: Job) -> Trained:
        from elsewhere.recipes.mri.response_members import MemberPlan, ResponseWork
        from elsewhere.training.response.augment import STRONG
        from elsewhere.training.response.contrast import Contrast

        s: SimclrSettings = job.settings
        one = s.phases == "one"
        work = ResponseWork.of(
            job,
            size=s.size,
            spacing_mm=s.spacing_mm,
            phases=("p1..px",) if one else ("p0", "p1", "p2"),
            each=one,
            lesion=s.lesion,
            masks=s.masks,
        )
        train, validation = work.rows(job.train), work.rows(job.validation)
        members = [
            work.fit_member(
                MemberPlan(
                    name=network,
                    network=network,
                    train=train,
                    watch=validation,
                    seed=(job.seed, at),
                    epochs=s.epochs,
                    batch=s.batch,
                    learning_rate=s.learning_rate,
                    weight_decay=s.weight_decay,
                    augmentation=STRONG,
                    contrast=Contrast(temperature=s.temperature, hold=s.hold, gone=s.gone),
                    one_phase=one,
                    keep="best" if len(validation) else "last",
                    checkpoint_seconds=s.checkpoint_seconds,
                )
            )
            for at, network in enumerate(s.networks)
        ]
        cost = work.predict(members, flip=s.flips)
        return work.trained(members, details={"cost": cost})

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.recipes.mri.response_members import apply_members

        s: SimclrSettings = job.settings
        return apply_members(job, weights, lesion=s.lesion, masks=s.masks, flip=s.flips)
