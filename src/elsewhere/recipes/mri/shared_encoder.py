"""One encoder for the tumour's mask and for pCR, with attention over the phases (MRI-15, Martel Lab).

**Follows** the Martel Lab: segmentation and response are learnt together on a shared encoder, temporal
attention joins the phases (p0, p1 and the last), percentiles 0.05 and 99.95, the breast's box, 1 mm, AdamW,
Dice + cross-entropy, 30,000 steps, two folds.

**Differs**: their encoder is a 3D vision transformer pretrained on a large collection, whose weights are not
available here; ours is the baseline's residual encoder, trained from scratch and applied to each phase.
Instead of min-max scaling there is a z-score, and the patches of a step follow from the memory (theirs: 8).
The response is read from the features inside the tumour that the network itself draws; a predicted case is
represented by one patch around the largest tumour that was found, or at the middle of the breast's box where
none was found. A predicted case's box is found, not given (`test_box`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elsewhere.errors import TrainingError, UserError
from elsewhere.recipes.base import RESPONSE, SEGMENTATION, Job, Prediction, Trained, recipes
from elsewhere.recipes.cost import CostMeter
from elsewhere.recipes.mri.folded_training import told_of, train_folds
from elsewhere.recipes.mri.kept_networks import kept_networks
from elsewhere.recipes.mri.residual_unet import (
    SegmentationSettings,
    Segmenter,
    box_notes,
    fit_settings,
    kept_box,
    patch_around,
    planned,
    seen_by,
)

if TYPE_CHECKING:
    import torch

    from elsewhere.training.joint.shared import SharedEncoder
    from elsewhere.training.volumes import Plan, Prepared
    from elsewhere.training.volumes.preparing import Standard


@dataclass(frozen=True, kw_only=True)
class SharedEncoderSettings(SegmentationSettings):
    """Settings of the recipe 'shared-encoder': `SegmentationSettings` with other defaults.

    Args:
        channels: 'pre-first-last' (p0, p1 and the last phase), 'three' (p0, p1, p2) or 'subtraction' (p1 -
            p0).
        spacing_mm: Voxel size in mm that every volume is resampled to.
        clip: Two percentiles at which intensities are cut.
        crop: 'breast': to the breast's box before anything else; 'none': no crop.
        margin: Voxels around the box.
        epochs: Epochs per fold, of 250 steps: the team's 30,000 steps.
        learning_rate: Learning rate of AdamW in the first epoch.
        weight_decay: Weight decay of AdamW.
        foreground: The share of patches that are centred on a lesion; more than the baseline's, because the
            response is learnt from patches that hold tumour.
        folds: Folds of training and validation cases together, by group; 1: the job's own two parts.
        memory_gb: GPU memory in GB that patch and batch are planned for; a third of the baseline's, because
            every phase goes through the encoder by itself.
        response_weight: The weight of the response's loss relative to the mask's, 0 or more.

    Raises:
        UserError: A value is unknown or out of its range.
    """

    channels: str = "pre-first-last"
    spacing_mm: tuple[float, ...] = (1.0, 1.0, 1.0)
    clip: tuple[float, ...] = (0.05, 99.95)
    crop: str = "breast"
    margin: int = 4
    epochs: int = 120
    """Epochs of 250 steps: the team's 30,000 steps."""
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    foreground: float = 0.67
    """More than the baseline's: the response is learnt from patches that hold tumour."""
    folds: int = 2
    memory_gb: float = 8.0
    """A third of the baseline's: every phase goes through the encoder by itself."""
    response_weight: float = 0.5
    """The weight of the response's loss relative to the mask's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.response_weight < 0:
            raise UserError(f"response_weight must be at least 0, not {self.response_weight}")


@recipes.register("shared-encoder")
class SharedEncoderRecipe(Segmenter):
    """Learn the tumour's mask and the response on one encoder."""

    title = "Shared encoder with attention over phases (Martel Lab)"
    answers: ClassVar[Mapping[str, str]] = {SEGMENTATION: "masks", RESPONSE: "probability"}
    version = 2
    follows = (
        "Martel Lab (MAMA-MIA): one encoder for mask and pCR, attention over p0, p1 and the last phase. Ours has the "
        "baseline's residual encoder from scratch in place of a pretrained vision transformer, "
        "z-scores in place of min-max, and patches per step by memory (theirs: 8)."
    )
    Settings = SharedEncoderSettings

    def run(self, job: Job) -> Trained:
        from elsewhere.training.joint.shared import build_shared, outcome_codes, shared_objective

        settings: SharedEncoderSettings = job.settings
        labels = {case.case: case.label for case in (*job.train, *job.validation)}
        learnt = [case.label for case in job.train if case.label >= 0]
        positive = sum(learnt)
        both = 0 < positive < len(learnt)
        if RESPONSE in job.tasks and not both:
            raise TrainingError(
                f"the training part has only one outcome ({len(learnt)} known outcomes)",
                fix="Train on a part with both outcomes, or ask for the segmentation alone.",
            )
        plan, found, data = planned(job, settings)
        heavier = (len(learnt) - positive) / positive if both else 1.0
        objective = shared_objective(
            settings.response_weight if both else 0.0, heavier, batch_dice=plan.batch_dice
        )

        def more(fold: int, training: Prepared, watched: Prepared) -> dict[str, Any]:
            return {
                "objective": objective,
                "sample_weights": outcome_codes({name: labels[name] for name in training.cases}),
            }

        done = train_folds(
            job,
            settings,
            plan,
            data,
            how=replace(fit_settings(settings), optimiser="adamw", keep="last"),
            build=lambda seed: build_shared(plan, seed=seed, device=job.device),
            more=more,
        )
        networks: list[SharedEncoder] = done.networks  # type: ignore[assignment]
        notes = emit_both(job, settings, networks, plan)
        unknown = sum(label < 0 for label in labels.values())
        if unknown:
            notes.append(f"{unknown} cases without a known outcome were used for the mask alone")
        return told_of(
            job, done, plan, found, notes=(*data.notes, *done.notes, *notes), weight_of_pcr=heavier
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.training.joint.shared import build_shared

        plan, found = kept_networks(weights, lambda plan: build_shared(plan, seed=0, device=job.device))
        networks: list[SharedEncoder] = found  # type: ignore[assignment]
        return Trained(notes=tuple(emit_both(job, job.settings, networks, plan)))


def emit_both(
    job: Job, settings: SharedEncoderSettings, networks: Sequence[SharedEncoder], plan: Plan
) -> list[str]:
    """Predict and emit the mask and the response of every case.

    The response is read from a patch around the tumour that was found. Its cost includes that of the mask,
    without which it cannot be read.

    Args:
        job: The job.
        settings: The recipe's settings.
        networks: The trained networks, as an ensemble.
        plan: Patch, spacing and shape of the networks.

    Returns:
        Notes for the report.
    """
    from elsewhere.training.volumes import keep_parts
    from elsewhere.training.volumes.windows import to_case_grid

    notes = box_notes(job, settings)

    def look(name: str) -> tuple[Standard, torch.Tensor, np.ndarray]:
        one, found = seen_by(job, settings, networks, plan, name)
        own = (to_case_grid(found, one, job.volumes.grid(name).shape) > settings.threshold).cpu().numpy()
        return one, found, keep_parts(own, keep=settings.keep, box=kept_box(job, settings, name))

    meter = CostMeter(job.device)
    for at, case in enumerate(job.predict):
        name = case.case
        if at == 0 and job.device.startswith("cuda"):
            look(name)
        with meter:
            one, found, mask = look(name)
        if SEGMENTATION in job.tasks:
            job.emit(Prediction(case=name, mask=mask, **meter.fields()))
        if RESPONSE in job.tasks:
            first = meter.fields()
            with meter:
                value = response(networks, one.image, found > settings.threshold, plan, settings)
            job.emit(Prediction(case=name, probability=value, **_both(first, meter.fields())))
        if one.note:
            notes.append(f"{name}: {one.note}")
        job.progress("predict", at + 1, len(job.predict))
    return notes


def response(
    networks: Sequence[SharedEncoder],
    image: torch.Tensor,
    found: torch.Tensor,
    plan: Plan,
    settings: SharedEncoderSettings,
) -> float:
    """Predict the response from the patch around the largest tumour found.

    Args:
        networks: The trained networks, whose mean is taken.
        image: The case on the plan's grid, [phase, x, y, z].
        found: The tumour on the same grid, [x, y, z], bool.
        plan: The size of the patch.
        settings: `mirror` of the recipe.

    Returns:
        The mean probability over networks and mirrored copies.
    """
    import torch

    from elsewhere.training.volumes import keep_parts
    from elsewhere.training.volumes.windows import mirrors

    mask = keep_parts(found.cpu().numpy(), keep="largest")
    patch = patch_around(image, np.argwhere(mask), plan)[None]
    total, count = 0.0, 0
    on_gpu = image.device.type == "cuda"
    with torch.inference_mode(), torch.autocast(image.device.type, dtype=torch.bfloat16, enabled=on_gpu):
        for turn in mirrors(plan.patch, mirror=settings.mirror):
            turned = patch.flip(turn) if turn else patch
            for network in networks:
                network.eval()
                total += float(torch.sigmoid(network.respond(turned).float())[0])
                count += 1
    return total / count


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        "seconds": first["seconds"] + second["seconds"],
        "peak_bytes": max(first["peak_bytes"], second["peak_bytes"]),
        "energy_joule": first["energy_joule"] + second["energy_joule"],
    }
