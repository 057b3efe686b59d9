"""Deep features of a segmentation network into boosted trees, after AI Strollers (MRI-15).

**Follows** AI Strollers: a network learns the tumour's mask from p0, p1 and p2 at 0.7 x 0.7 x 2 mm; its
features are then the input of an XGBoost classifier, so that where the tumour is and whether it will respond
are learnt separately.

**Differs**: their network is a SegResNet, ours the baseline's residual encoder, and it is trained here, on
the masks of the training part, whereas theirs was used as published. They do not report which layers they
read: here it is the two deepest of the encoder, on one patch around the largest tumour that the network
finds, as means over the patch and inside that tumour, with the tumour's size. Training and test cases are
processed in the same way; still the network fits the tumours that it was trained on better, and the trees
cannot know that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from elsewhere.errors import UserError
from elsewhere.recipes.base import RESPONSE, Job, Prediction, Trained, recipes
from elsewhere.recipes.cost import CostMeter
from elsewhere.recipes.mri.folded_training import told_of
from elsewhere.recipes.mri.kept_networks import kept_networks
from elsewhere.recipes.mri.residual_unet import (
    SegmentationSettings,
    Segmenter,
    box_notes,
    learn_masks,
    patch_around,
    seen_by,
)
from elsewhere.recipes.mri.response_models import Applied, FloatArray, choose, training_cases
from elsewhere.recipes.mri.segmentation_xgboost import Boosted, boosted, need_xgboost

if TYPE_CHECKING:
    import torch

    from elsewhere.training.volumes import Plan


@dataclass(frozen=True, kw_only=True)
class NetworkXgboostSettings(SegmentationSettings):
    """Settings of the recipe 'network-xgboost'.

    They are `SegmentationSettings` with other defaults, and those of the trees.

    Args:
        spacing_mm: Voxel size in mm that every volume is resampled to.
        folds: Must be 1: a feature of one network has the same meaning for every case, in a second network it
            would have another.
        mirror: Whether masks are predicted on mirrored copies too.
        stages: How many stages of the encoder are read, deepest first.
        trees: Boosted trees.
        depths: Depths of the trees to choose from, by folds inside the training part.
        boost_rate: Learning rate of the boosting.

    Raises:
        UserError: A value is out of its range.
    """

    spacing_mm: tuple[float, ...] = (0.7, 0.7, 2.0)
    folds: int = 1
    """Must be 1: features of one network have the same meaning for every case, those of a second one would
    not."""
    mirror: bool = False
    stages: int = 2
    """How many stages of the encoder are read, deepest first."""
    trees: int = 150
    depths: tuple[int, ...] = (1, 2, 3)
    """Chosen by folds inside the training part."""
    boost_rate: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds != 1:
            raise UserError(
                f"folds must be 1, not {self.folds}", fix="Features of several networks cannot be compared."
            )
        if self.stages < 1:
            raise UserError(f"stages must be at least 1, not {self.stages}")


@recipes.register("network-xgboost")
class NetworkXgboost(Segmenter):
    """Learn the tumour's mask, read the features of the network, and boost trees on them."""

    title = "Features of a segmentation network into XGBoost (AI Strollers)"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 2
    follows = (
        "AI Strollers: features of a segmentation network at 0.7 x 0.7 x 2 mm into an XGBoost classifier, the two "
        "learnt separately. Theirs is a SegResNet used as published; ours the baseline's residual encoder, trained "
        "on the masks of the training part. Layers (the two deepest) and pooling (means over a patch around the "
        "largest tumour found, and inside it) are ours; depth of the trees by folds inside training, classes weigh the same."
    )
    keeps: ClassVar[bool] = True
    Settings = NetworkXgboostSettings

    def run(self, job: Job) -> Trained:
        settings: NetworkXgboostSettings = job.settings
        need_xgboost()
        cases = training_cases(job)
        plan, found, done, notes = learn_masks(job, settings)
        rows = []
        for at, case in enumerate(cases):
            rows.append(network_features(job, settings, done.networks, plan, case.case)[0])
            job.progress("features", at + 1, len(cases))
        x, y = np.stack(rows), np.array([case.label for case in cases], dtype=np.int64)
        candidates = [
            boosted(depth, trees=settings.trees, rate=settings.boost_rate, threads=job.threads)
            for depth in settings.depths
        ]
        fitted = choose(candidates, x, y, [case.group for case in cases], seed=job.seed)
        told = self._emit(job, settings, done.networks, plan, fitted.probability)
        trained = told_of(
            job,
            done,
            plan,
            found,
            notes=(*notes, *told),
            cases=len(cases),
            responders=int(y.sum()),
            features=x.shape[1],
            found_nothing=int((x[:, 0] == 0).sum()),
            chosen=fitted.name,
            inner_auc=fitted.inner_auc,
            attempts=fitted.attempts,
            shift=fitted.shift,
        )
        return (
            trained
            if trained.weights is None
            else replace(trained, weights={**trained.weights, **fitted.kept()})
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        from elsewhere.training.volumes import build_network

        need_xgboost()
        plan, networks = kept_networks(weights, lambda plan: build_network(plan, seed=0, device=job.device))
        fitted = Applied.of(weights, {"boosted": Boosted})
        return Trained(notes=tuple(self._emit(job, job.settings, networks, plan, fitted.probability)))

    def _emit(
        self,
        job: Job,
        settings: NetworkXgboostSettings,
        networks: Sequence[torch.nn.Module],
        plan: Plan,
        probability: Callable[[FloatArray], FloatArray],
    ) -> list[str]:
        notes = box_notes(job, settings)
        meter = CostMeter(job.device)
        empty = 0
        for at, case in enumerate(job.predict):
            if at == 0 and job.device.startswith("cuda"):
                network_features(job, settings, networks, plan, case.case)
            with meter:
                values, note = network_features(job, settings, networks, plan, case.case)
                p = float(probability(values[None, :])[0])
            empty += int(values[0] == 0)
            if note:
                notes.append(f"{case.case}: {note}")
            job.emit(Prediction(case=case.case, probability=p, **meter.fields()))
            job.progress("predict", at + 1, len(job.predict))
        if empty:
            notes.append(
                f"no tumour was found in {empty} of {len(job.predict)} predicted cases: the patch is around the "
                "voxel where a tumour is likeliest"
            )
        return notes


def network_features(
    job: Job,
    settings: NetworkXgboostSettings,
    networks: Sequence[torch.nn.Module],
    plan: Plan,
    case: str,
) -> tuple[FloatArray, str]:
    """Return the features of a case for the trees.

    These are sizes in ml and the highest probability of tumour, then of each stage the means over the patch
    and inside the tumour (NaN where none was found). The patch is read as it is, without mirrored copies.

    Args:
        job: The job.
        settings: Threshold, and how many stages are read.
        networks: The segmentation networks; the first one's features are read.
        plan: Patch and spacing.
        case: The name of the case.

    Returns:
        The features, (n,), and a note for the report; empty where there is none.
    """
    import torch
    from torch.nn import functional

    from elsewhere.training.volumes import keep_parts

    one, probability = seen_by(job, settings, networks, plan, case)
    mask = (probability > settings.threshold).cpu().numpy()
    largest = keep_parts(mask, keep="largest")
    places = np.argwhere(largest)
    if not len(places):
        places = np.array([np.unravel_index(int(probability.argmax()), probability.shape)])
    patch = patch_around(one.image, places, plan)[None]
    inside = patch_around(torch.from_numpy(largest)[None].to(patch), places, plan)[None]
    millilitres = float(np.prod(plan.spacing_mm)) / 1000.0
    values: list[float] = [mask.sum() * millilitres, largest.sum() * millilitres, float(probability.max())]
    network = networks[0]
    network.eval()
    on_gpu = patch.device.type == "cuda"
    with torch.inference_mode(), torch.autocast(patch.device.type, dtype=torch.bfloat16, enabled=on_gpu):
        features = network.encoder(patch)  # type: ignore[operator]
    for stage in features[::-1][: settings.stages]:
        stage = stage[0].float()
        share = functional.adaptive_avg_pool3d(inside, stage.shape[1:])[0, 0]
        values += stage.mean(dim=(1, 2, 3)).tolist()
        total = float(share.sum())
        within = (
            (stage * share).sum(dim=(1, 2, 3)) / total if total > 0 else torch.full((len(stage),), torch.nan)
        )
        values += within.tolist()
    return np.array(values, dtype=np.float64), one.note
