"""Video networks on lesion crops with folds, chosen by the combined score (MRI-15, FME).

**Follows** FME of the MAMA-MIA challenge: torchvision's r3d_18, mc3_18, r2plus1d_18 and swin3d_t with
Kinetics weights on lesion-centred crops of p0, p1 and p2 (phases are the colours, slices the frames),
z-scored; AdamW, binary cross entropy, 25 epochs, batch 16; five models by five folds, test-time augmentation,
and models chosen by a score that weighs performance and fairness.

**Differs**: their search with Ray Tune is left out; candidates are every network with every given learning
rate, and those whose fold-ensemble has the best combined score on the validation part are used (five, as
theirs). Where the validation part gives no score (one class, a constant decision), a candidate is judged on
the cases its folds held out, and ranks after those that have a score. One spacing for all networks (theirs
varies): 16 slices of 112 x 112, the networks' own size, at 0.7 x 0.7 x 2 mm. The crop is found by enhancement
in both breasts, which are found, in training too, since the expert's mask and box of a predicted case are
hidden. Stochastic depth is off. Both classes weigh the same in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.source import BREAST_BOX
from elsewhere.recipes.base import (
    RESPONSE,
    Job,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    of_label,
    recipes,
)
from elsewhere.recipes.splits import grouped_folds

if TYPE_CHECKING:
    from elsewhere.recipes.mri.response_members import Member, ResponseWork


VALIDATION = "validation part"


@dataclass(frozen=True, kw_only=True)
class VideoSettings(RecipeSettings):
    """Settings of the recipe 'video'.

    Args:
        networks: Networks to choose from.
        weights: 'kinetics', 'none', or a folder with NETWORK.pth files (a file where there is one network).
        learning_rates: Learning rates to choose from.
        models: How many candidates (network and learning rate) are used.
        folds: Folds of the training part; each candidate has one network per fold.
        fairness_weight: The weight of fairness in the combined score that chooses candidates, 0 to 1.
        epochs: Epochs.
        batch: Crops per step.
        weight_decay: Weight decay of AdamW.
        size: Voxels of a crop along x, y and z.
        spacing_mm: Voxel size of a crop.
        time: What takes the place of the frames: 'depth', with phases as colours; or 'phases', with the three
            middle slices as colours.
        lesion: How crops are found: 'enhancing', 'expert', 'breast-box' (asks for the expert's box in the
            test too), 'centre', or 'masks' with `masks`.
        masks: A folder of predicted masks (CASE.nii.gz) that the crops are found by; empty: none.
        flips: Whether predictions are averaged over mirrored copies.
        checkpoint_seconds: Seconds between two checkpoints.
    """

    networks: tuple[str, ...] = ("r3d_18", "mc3_18", "r2plus1d_18", "swin3d_t")
    weights: str = "kinetics"
    """'kinetics', 'none', or a folder with NETWORK.pth files (a file where there is one network)."""
    learning_rates: tuple[float, ...] = (1e-4, 3e-4)
    models: int = 5
    """How many candidates (network and learning rate) are used."""
    folds: int = 5
    fairness_weight: float = 0.5
    epochs: int = 25
    batch: int = 16
    weight_decay: float = 0.01
    size: tuple[int, int, int] = (112, 112, 16)
    spacing_mm: tuple[float, float, float] = (0.7, 0.7, 2.0)
    time: str = "depth"
    """What takes the place of the frames: 'depth', with phases as colours; or 'phases', with the three middle
    slices as colours."""
    lesion: str = "enhancing"
    """'enhancing', 'expert', 'breast-box' (asks for the expert's box in the test too), 'centre', or 'masks'
    with `masks`."""
    masks: str = ""
    """A folder of predicted masks (CASE.nii.gz) that the crops are found by."""
    flips: bool = True
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    network: str
    learning_rate: float
    members: list[Member]
    held_out: list[tuple[RecipeCase, ...]]
    score: float
    judged_on: str


def best_first(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Sort candidates by their combined score, the best first.

    Scores of the validation part and of held-out folds are of other cases and cannot be compared: a candidate
    that could not be judged on the validation part, for a constant decision there, comes after all that
    could.

    Args:
        candidates: The trained candidates with their scores.

    Returns:
        The same candidates, sorted.
    """
    return sorted(
        candidates,
        key=lambda c: (
            not math.isfinite(c.score),
            c.judged_on != VALIDATION,
            -c.score if math.isfinite(c.score) else 0.0,
        ),
    )


@recipes.register("video")
class Video(Recipe):
    """Predict the response with video networks on lesion crops, chosen by the combined score."""

    title = "Video networks chosen by the combined score (FME)"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 3
    follows = (
        "FME (MAMA-MIA), pCR: torchvision's video networks with Kinetics weights on lesion crops, five models by "
        "five folds, test-time augmentation, chosen by the combined score. Ours: a small grid of learning rates "
        "in place of their Ray Tune search, one spacing for all, crops found by enhancement, not drawn."
    )
    keeps: ClassVar[bool] = True
    holds_out_validation: ClassVar[bool] = True
    Settings: ClassVar[type[RecipeSettings]] = VideoSettings

    @classmethod
    def shown(cls, settings: VideoSettings, needs: Collection[str] = ()) -> frozenset[str]:
        asks = settings.lesion == "breast-box" and not settings.masks
        return cls.sees | {BREAST_BOX} if asks else cls.sees

    @classmethod
    def files(cls, settings: VideoSettings) -> dict[str, Path]:
        named = {} if settings.weights in ("kinetics", "none") else {"weights": Path(settings.weights)}
        return named | ({"masks": Path(settings.masks)} if settings.masks else {})

    def run(self, job: Job) -> Trained:
        from elsewhere.recipes.mri.response_members import ResponseWork
        from elsewhere.training.response.networks import RESPONSE_NETWORKS, find_video_weights

        s: VideoSettings = job.settings
        for network in s.networks:
            if network in RESPONSE_NETWORKS:
                find_video_weights(network, s.weights, job.weights)
        if s.time not in ("depth", "phases"):
            raise UserError(f"time = '{s.time}' is not known", fix="It is 'depth' or 'phases'.")
        work = ResponseWork.of(
            job,
            size=s.size,
            spacing_mm=s.spacing_mm,
            phases=("p0", "p1", "p2"),
            each=False,
            lesion=s.lesion,
            masks=s.masks,
        )
        dealt = grouped_folds(of_label(job.train), s.folds, seed=job.seed)
        folds = [(learn, out) for learn, out in dealt if len({case.label for case in learn}) == 2]
        notes = []
        if len(folds) < len(dealt):
            notes.append(
                f"{len(dealt) - len(folds)} of {len(dealt)} folds have only one class to learn from and are left out."
            )
        if not folds:
            folds = [(of_label(job.train), of_label(job.validation))]
        candidates = [
            self._candidate(job, work, folds, network=network, rate=rate, number=number)
            for number, (network, rate) in enumerate((n, r) for n in s.networks for r in s.learning_rates)
        ]
        chosen = best_first(candidates)[: max(1, s.models)]
        members = [member for candidate in chosen for member in candidate.members]
        cost = work.predict(members, flip=s.flips)
        told = [
            {
                "network": c.network,
                "learning_rate": c.learning_rate,
                "combined": c.score if math.isfinite(c.score) else None,
                "judged_on": c.judged_on,
                "kept": c in chosen,
            }
            for c in candidates
        ]
        return work.trained(members, details={"candidates": told, "cost": cost}, notes=notes)

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.recipes.mri.response_members import apply_members

        s: VideoSettings = job.settings
        return apply_members(job, weights, lesion=s.lesion, masks=s.masks, flip=s.flips)

    def _candidate(
        self,
        job: Job,
        work: ResponseWork,
        folds: Sequence[tuple[tuple[RecipeCase, ...], tuple[RecipeCase, ...]]],
        *,
        network: str,
        rate: float,
        number: int,
    ) -> _Candidate:
        from elsewhere.recipes.mri.response_members import MemberPlan
        from elsewhere.training.response.augment import GENTLE

        s: VideoSettings = job.settings
        members = [
            work.fit_member(
                MemberPlan(
                    name=f"{network}-{rate:g}-fold{at}",
                    network=network,
                    train=work.rows(learn),
                    watch=work.rows(out),
                    seed=(job.seed, number, at),
                    epochs=s.epochs,
                    batch=s.batch,
                    learning_rate=rate,
                    weight_decay=s.weight_decay,
                    augmentation=GENTLE,
                    weights=s.weights,
                    time="phases" if s.time == "phases" else "depth",
                    keep="best" if out else "last",
                    checkpoint_seconds=s.checkpoint_seconds,
                )
            )
            for at, (learn, out) in enumerate(folds)
        ]
        held_out = [out for _, out in folds]
        score, judged_on = self._judge(job, work, members, held_out)
        return _Candidate(
            network=network,
            learning_rate=rate,
            members=members,
            held_out=held_out,
            score=score,
            judged_on=judged_on,
        )

    def _judge(
        self, job: Job, work: ResponseWork, members: list[Member], held_out: list[tuple[RecipeCase, ...]]
    ) -> tuple[float, str]:
        from elsewhere.training.response.choice import combined_score, fairness_groups

        s: VideoSettings = job.settings

        def score(cases: Sequence[RecipeCase], probability: np.ndarray) -> float:
            return combined_score(
                [case.label for case in cases],
                probability,
                fairness_groups([case.clinical for case in cases]),
                fairness_weight=s.fairness_weight,
            )

        watched = of_label(job.validation)
        if watched:
            told = score(watched, work.member_probabilities(members, work.rows(watched), flip=s.flips))
            if math.isfinite(told):
                return told, VALIDATION
        cases = [case for out in held_out for case in out]
        if not cases:
            return math.nan, "nothing"
        parts = [
            work.member_probabilities([member], work.rows(out), flip=s.flips)
            for member, out in zip(members, held_out, strict=True)
            if out
        ]
        return score(cases, np.concatenate(parts)), "held-out folds"
