"""The segmentation baseline: a residual-encoder U-Net in nnU-Net's manner on MONAI's blocks (MRI-13).

The challenge's own baseline is a plain 3D nnU-Net; the residual encoder is the top teams'. Spacing, patch,
pooling and batch follow from the training set (`training.volumes.planning`), and so does everything else that
nnU-Net fixes: z-score, Dice + cross-entropy with deep supervision, a third of every step on foreground, SGD
on a poly schedule, Gaussian sliding window, mirrored copies, five folds. It differs from nnU-Net in that
cubic resampling runs on the device, the low-resolution augmentation is left out, there is one logit instead
of two, and windows of air are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.mri.breasts import find_breasts
from elsewhere.inputs.source import BREAST_BOX
from elsewhere.inputs.volumes import Box, Volumes
from elsewhere.recipes.base import (
    SEGMENTATION,
    Job,
    Prediction,
    Recipe,
    RecipeSettings,
    Trained,
    recipes,
)
from elsewhere.recipes.cost import CostMeter, measure_cost
from elsewhere.recipes.mri.folded_training import Folds, told_of, train_folds
from elsewhere.recipes.mri.kept_networks import kept_networks

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import FitSettings, Plan, Prepared
    from elsewhere.training.volumes.preparing import Standard

FOUND, GIVEN = "found", "given"
CHANNELS = ("three", "subtraction", "pre-first-last")
KEEP = ("all", "largest", "box", "largest-in-box")
"""The names that `training.volumes` knows; repeated here so that a study file is checked without torch."""


@dataclass(frozen=True, kw_only=True)
class SegmentationSettings(RecipeSettings):
    """Settings of the segmentation recipes.

    Defaults are for the real set on one large GPU; `patch`, `widths`, `blocks`, `epochs` and
    `steps_per_epoch` make it small enough for a CPU.

    Args:
        channels: 'three' (p0, p1, p2), 'subtraction' (p1 - p0) or 'pre-first-last'.
        spacing_mm: Voxel size in mm that every volume is resampled to; empty: planned from the training set.
        patch: Voxels along each axis of a patch; empty: planned.
        widths: Channels of each stage of the network; empty: planned.
        blocks: Residual blocks of each stage of the encoder; empty: planned.
        batch: Patches per step; 0: planned.
        memory_gb: GPU memory in GB that patch and batch are planned for.
        clip: Two percentiles at which intensities are cut; empty: no cut.
        crop: 'breast': to the breast's box before anything else; 'none': no crop.
        margin: Voxels around the box.
        test_box: The box that `crop` and `keep` use of a predicted case: 'found' by a simple localiser (both
            breasts), or 'given' by the dataset where it is known (which shows the affected side).
        epochs: Epochs per fold.
        steps_per_epoch: Training steps per epoch.
        learning_rate: Learning rate of the first epoch; it falls by the poly schedule.
        momentum: Nesterov momentum of SGD.
        weight_decay: Weight decay of the optimiser.
        foreground: The share of patches that are centred on a lesion.
        augment: Whether patches are augmented.
        keep_weights: 'last', or 'best' by the Dice of validation patches.
        validation_steps: Batches of validation patches per epoch.
        checkpoint_every: Epochs between two checkpoints.
        folds: Folds of training and validation cases together, by group; 1: the job's own two parts.
        fold: The only fold that is trained (0 to folds - 1); -1: all, as an ensemble.
        mirror: Whether predictions are averaged over mirrored copies.
        overlap: The overlap of neighbouring windows at prediction, 0 up to but not including 1.
        window_batch: Windows per forward pass at prediction.
        threshold: The probability above which a voxel belongs to the tumour, between 0 and 1.
        keep: What is kept of a predicted mask: 'all', 'largest' (component), 'box' (inside the box of
            `test_box`) or 'largest-in-box'.
        skip_air: Whether windows that hold only air are skipped.
        compiled: Whether torch.compile is used on a GPU.
        cost_repeats: Predictions of one case under control at the end (MRI-12); 0: none.

    Raises:
        UserError: A value is unknown or out of its range.
    """

    channels: str = "three"
    """'three' (p0, p1, p2), 'subtraction' (p1 - p0), 'pre-first-last'."""
    spacing_mm: tuple[float, ...] = ()
    """Empty: from the training set."""
    patch: tuple[int, ...] = ()
    widths: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    batch: int = 0
    memory_gb: float = 24.0
    """What patch and batch are planned for."""
    clip: tuple[float, ...] = ()
    """Two percentiles, or empty."""
    crop: str = "none"
    """'breast': to the breast's box before anything else."""
    margin: int = 0
    """Voxels around the box."""
    test_box: str = FOUND
    """For `crop` and `keep`, of a predicted case: 'found' by a simple localiser (both breasts), or 'given' by
    the dataset where it is known (which shows the affected side)."""
    epochs: int = 1000
    steps_per_epoch: int = 250
    learning_rate: float = 0.01
    momentum: float = 0.99
    weight_decay: float = 3e-5
    foreground: float = 1 / 3
    augment: bool = True
    keep_weights: str = "last"
    """'last', or 'best' by the Dice of validation patches."""
    validation_steps: int = 50
    checkpoint_every: int = 25
    folds: int = 5
    """Of training and validation cases together, by group; 1: the job's own two parts."""
    fold: int = -1
    """Train this fold alone (0 to folds - 1); -1: all, as an ensemble."""
    mirror: bool = True
    overlap: float = 0.5
    window_batch: int = 4
    threshold: float = 0.5
    keep: str = "all"
    """Of a predicted mask: 'all', 'largest', 'box' (inside the box of `test_box`), 'largest-in-box'."""
    skip_air: bool = True
    compiled: bool = True
    cost_repeats: int = 3
    """Predictions of one case under control at the end (MRI-12); 0: none."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("channels", self.channels, CHANNELS),
            ("keep", self.keep, KEEP),
            ("keep_weights", self.keep_weights, ("last", "best")),
            ("crop", self.crop, ("none", "breast")),
            ("test_box", self.test_box, (FOUND, GIVEN)),
        ):
            if value not in known:
                near = near_matches(value, known)
                raise UserError(
                    f"unknown {name} '{value}'",
                    fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}.",
                )
        if self.folds < 1:
            raise UserError(f"folds must be at least 1, not {self.folds}")
        if not -1 <= self.fold < max(1, self.folds):
            raise UserError(f"fold must be -1 or 0 to {self.folds - 1}, not {self.fold}")
        if self.clip and (len(self.clip) != 2 or not 0 <= self.clip[0] < self.clip[1] <= 100):
            raise UserError(f"clip must be two rising percentiles, not {self.clip}")
        if not 0 <= self.overlap < 1:
            raise UserError(f"overlap must be at least 0 and below 1, not {self.overlap}")
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold must lie between 0 and 1, not {self.threshold}")
        if self.window_batch < 1:
            raise UserError(f"window_batch must be at least 1, not {self.window_batch}")


class Segmenter(Recipe):
    """What the segmentation recipes share; each recipe is this class with other defaults."""

    answers: ClassVar[Mapping[str, str]] = {SEGMENTATION: "masks"}
    keeps: ClassVar[bool] = True
    Settings = SegmentationSettings

    @classmethod
    def shown(cls, settings: SegmentationSettings, needs: Collection[str] = ()) -> frozenset[str]:
        asks = settings.test_box == GIVEN and (settings.crop != "none" or settings.keep.endswith("box"))
        return cls.sees | {BREAST_BOX} if asks else cls.sees

    def run(self, job: Job) -> Trained:
        settings: SegmentationSettings = job.settings
        plan, found, done, notes = learn_masks(job, settings)
        cost, told = emit_masks(job, settings, done.networks, plan)
        return told_of(job, done, plan, found, notes=(*notes, *told), cost=cost)

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.training.volumes import build_network

        plan, networks = kept_networks(weights, lambda plan: build_network(plan, seed=0, device=job.device))
        _, notes = emit_masks(job, replace(job.settings, cost_repeats=0), networks, plan)
        return Trained(notes=tuple(notes))


def plan_for(
    volumes: Volumes, cases: Sequence[str], settings: SegmentationSettings
) -> tuple[Plan, dict[str, Any]]:
    """Plan the network for training cases.

    Args:
        volumes: Where headers and intensities are read.
        cases: The names of the training cases.
        settings: Channels, memory, and what is not left to the plan.

    Returns:
        The plan, and the fingerprint of the training set that it rests on, as plain JSON.
    """
    from elsewhere.training.volumes import fingerprint, make_plan

    known = fingerprint(volumes, list(cases), settings.channels, crop=settings.crop)
    plan = make_plan(
        known,
        settings.channels,
        memory_gb=settings.memory_gb,
        spacing_mm=settings.spacing_mm,
        patch=settings.patch,
        batch=settings.batch,
        widths=settings.widths,
        blocks=settings.blocks,
        clip=(settings.clip[0], settings.clip[1]) if settings.clip else None,
        crop=settings.crop,
    )
    return plan, known.as_json()


def planned(
    job: Job, settings: SegmentationSettings, *, need_mask: bool = True
) -> tuple[Plan, dict[str, Any], Prepared]:
    """Plan from the training part alone, and bring training and validation cases to the plan's form.

    Args:
        job: The job.
        settings: The recipe's settings.
        need_mask: Whether cases without a mask are left out.

    Returns:
        The plan, the fingerprint that it rests on as plain JSON, and the cases.

    Raises:
        TrainingError: Masks are needed, and no case has one.
    """
    from elsewhere.training.volumes import prepare

    learn = [case.case for case in job.train]
    plan, known = plan_for(job.volumes, learn, settings)
    data = prepare(
        job.volumes,
        list(dict.fromkeys([*learn, *(case.case for case in job.validation)])),
        plan,
        settings.channels,
        device=job.device,
        margin=settings.margin,
        need_mask=need_mask,
        progress=job.progress,
    )
    if settings.crop == "breast":
        data.notes += [
            f"{case}: no breast box, the whole volume is used"
            for case in data.cases
            if job.volumes.breast_box(case) is None
        ]
    return plan, known, data


def learn_masks(
    job: Job, settings: SegmentationSettings
) -> tuple[Plan, dict[str, Any], Folds, tuple[str, ...]]:
    """Train the baseline on a job.

    The volumes have left the device when it returns, before prediction needs its memory.

    Args:
        job: The job.
        settings: The recipe's settings.

    Returns:
        The plan, the fingerprint that it rests on as plain JSON, the trained folds, and notes for the report.
    """
    from elsewhere.training.volumes import build_network

    plan, found, data = planned(job, settings)
    done = train_folds(
        job,
        settings,
        plan,
        data,
        how=fit_settings(settings),
        build=lambda seed: build_network(plan, seed=seed, device=job.device),
    )
    return plan, found, done, (*data.notes, *done.notes)


def fit_settings(settings: SegmentationSettings) -> FitSettings:
    """Return the part of a recipe's settings that the training loop takes.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of `training.volumes`.
    """
    from elsewhere.training.volumes import FitSettings

    same = {entry.name for entry in fields(FitSettings)} - {"batch", "keep", "optimiser", "gradient_norm"}
    return FitSettings(
        **{entry.name: getattr(settings, entry.name) for entry in fields(settings) if entry.name in same},
        keep=settings.keep_weights,
    )


def emit_masks(
    job: Job, settings: SegmentationSettings, networks: Sequence[torch.nn.Module], plan: Plan
) -> tuple[dict[str, Any] | None, list[str]]:
    """Predict and emit every case of the job with its cost, and measure one case's cost again under control.

    Args:
        job: The job.
        settings: The recipe's settings.
        networks: The trained networks, as an ensemble.
        plan: Patch, spacing and shape of the networks.

    Returns:
        The controlled cost of one case as plain JSON (None where it is not asked for), and notes for the
        report.
    """
    from elsewhere.training.volumes import keep_parts, predict

    notes = box_notes(job, settings)

    def one(case: str) -> tuple[np.ndarray, str]:
        found = predict(
            networks,
            job.volumes,
            case,
            plan,
            settings.channels,
            device=job.device,
            mirror=settings.mirror,
            overlap=settings.overlap,
            batch=settings.window_batch,
            margin=settings.margin,
            box=box_at_test(job, settings, case),
            skip_air=settings.skip_air,
            compiled=settings.compiled,
        )
        mask = found.mask(settings.threshold)
        return keep_parts(mask, keep=settings.keep, box=kept_box(job, settings, case)), found.note

    meter = CostMeter(job.device)
    for at, case in enumerate(job.predict):
        if at == 0 and job.device.startswith("cuda"):
            one(case.case)
        with meter:
            mask, note = one(case.case)
        if note:
            notes.append(f"{case.case}: {note}")
        job.emit(Prediction(case=case.case, mask=mask, **meter.fields()))
        job.progress("predict", at + 1, len(job.predict))
    if not settings.cost_repeats or not job.predict:
        return None, notes
    first = job.predict[0].case
    began = time.perf_counter()
    cost = measure_cost(
        lambda: one(first), device=job.device, repeats=settings.cost_repeats, warmup=0
    ).to_dict()
    return cost | {"measured_for_seconds": time.perf_counter() - began}, notes


def seen_by(
    job: Job, settings: SegmentationSettings, networks: Sequence[torch.nn.Module], plan: Plan, case: str
) -> tuple[Standard, torch.Tensor]:
    """Return a case on the plan's grid as at test time, and the tumour's probability there.

    Args:
        job: The job.
        settings: The recipe's settings.
        networks: The trained networks, as an ensemble.
        plan: Patch and spacing.
        case: The name of the case.

    Returns:
        The case in the plan's form, and the probability of each of its voxels, [x, y, z].
    """
    from elsewhere.training.volumes import standardise
    from elsewhere.training.volumes.windows import probabilities

    one = standardise(
        job.volumes,
        case,
        plan,
        settings.channels,
        device=job.device,
        margin=settings.margin,
        box=box_at_test(job, settings, case),
        with_mask=False,
    )
    found, _, _ = probabilities(
        networks,
        one,
        plan,
        mirror=settings.mirror,
        overlap=settings.overlap,
        batch=settings.window_batch,
        skip_air=settings.skip_air,
        compiled=settings.compiled,
    )
    return one, found


def patch_around(image: torch.Tensor, places: np.ndarray, plan: Plan) -> torch.Tensor:
    """Cut a patch around the middle of voxels, or of the volume where there are none.

    Outside the volume the patch is 0; a volume that is smaller than the patch lies in its middle.

    Args:
        image: [channel, x, y, z].
        places: Indices of voxels, (n, 3).
        plan: The size of the patch.

    Returns:
        [channel, x, y, z] of the plan's patch.
    """
    shape = image.shape[1:]
    middle = places.mean(axis=0) if len(places) else (np.array(shape) - 1) / 2
    out = image.new_zeros((len(image), *plan.patch))
    here: list[slice] = []
    there: list[slice] = []
    for axis in range(3):
        edge, size = plan.patch[axis], int(shape[axis])
        start = round(float(middle[axis]) - (edge - 1) / 2)
        start = min(max(start, 0), size - edge) if size >= edge else -((edge - size) // 2)
        low, high = max(0, start), min(size, start + edge)
        here.append(slice(low, high))
        there.append(slice(low - start, high - start))
    out[(slice(None), *there)] = image[(slice(None), *here)]
    return out


def box_at_test(job: Job, settings: SegmentationSettings, case: str) -> Box | None:
    """Return the part of a predicted case that the network is shown.

    Args:
        job: The job.
        settings: `crop` and `test_box`.
        case: The name of the case.

    Returns:
        The box; None where the crop needs no box.
    """
    return None if settings.crop == "none" else _breasts(job, settings, case)


def kept_box(job: Job, settings: SegmentationSettings, case: str) -> Box | None:
    """Return where a predicted mask may lie.

    Args:
        job: The job.
        settings: `keep` and `test_box`.
        case: The name of the case.

    Returns:
        The box; None for everywhere, as in a slice, which shows no breast to find.
    """
    if not settings.keep.endswith("box") or job.volumes.grid(case).shape[2] == 1:
        return None
    return _breasts(job, settings, case)


def _breasts(job: Job, settings: SegmentationSettings, case: str) -> Box:
    told = job.volumes.breast_box(case) if settings.test_box == GIVEN else None
    return told if told is not None else find_breasts(job.volumes.phase(case, 0), job.volumes.grid(case))


def box_notes(job: Job, settings: SegmentationSettings) -> list[str]:
    """List what a reader must know of the boxes of predicted cases.

    Args:
        job: The job.
        settings: `crop`, `keep` and `test_box`.

    Returns:
        Notes for the report.
    """
    if settings.test_box == GIVEN:
        if BREAST_BOX not in Segmenter.shown(settings):
            return []
        return [
            f"{case.case}: the dataset gives no breast box, so both breasts were found by the localiser"
            for case in job.predict
            if job.volumes.breast_box(case.case) is None
        ]
    if settings.keep.endswith("box"):
        return [
            "predicted masks were cut to both breasts, which were found by the localiser and not given by the "
            "dataset"
        ]
    return []


@recipes.register("residual-unet")
class ResidualUnet(Segmenter):
    """Segment the tumour with the baseline, a residual-encoder U-Net."""

    title = "Residual-encoder U-Net"
    version = 2
    follows = (
        "nnU-Net (Isensee et al. 2021) with the residual encoder of its ResEnc-L preset, as MIC, FME and ViCOROB "
        "used it; phases 0, 1 and 2 as channels. Its rules for spacing, patch, pooling and batch, its losses, "
        "schedule, folds and sliding window are followed on MONAI's blocks; it differs in one logit in place of "
        "two, no low-resolution augmentation, and windows of air that are skipped."
    )
