"""Votes of synthetic models that are never written: parts of a run in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from elsewhere.analysis.slide_ensembles.reading import SlideVotes
from elsewhere.ensembles.cell_votes import cells_of
from elsewhere.phantom.patch_scores import model_names
from elsewhere.phantom.slide_models import ModelWorld, draw_slide_models
from elsewhere.predictions.stages import STAGES
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.masks import stage_of_objects
from elsewhere.scoring.slides.objects import measure_objects


@dataclass
class PartsInMemory:
    """What `VoteParts` holds in files."""

    found: dict[tuple[int, int], SlideVotes] = field(default_factory=dict)
    invalid: tuple = ()
    resumed: int = 0

    @property
    def paths(self) -> dict[tuple[int, int], None]:
        return dict.fromkeys(self.found)

    def read(self, slide: int, fold: int) -> SlideVotes:
        return self.found[slide, fold]


@dataclass(frozen=True)
class VotesWorld:
    parts: PartsInMemory
    cases: pd.DataFrame
    truth: np.ndarray
    models: tuple[str, ...]
    folds: tuple[str, ...]


def votes_world(world: ModelWorld, seed: int, *, patch: int = 16) -> VotesWorld:
    parts, rows, truth = PartsInMemory(), [], []
    for slide in draw_slide_models(world, seed):
        stage = stage_of_objects(measure_objects(slide.truth), 8.0, SlideRules()).stage
        truth.append(STAGES.index(stage))
        domain = "OOD" if slide.external else "ID"
        rows.append({"case_id": f"s{slide.number}", "patient_id": f"p{slide.number}", "domain": domain})
        tissue = np.add.reduceat(np.add.reduceat(slide.tissue.astype(int), range(0, world.side, patch), axis=0),
                                 range(0, world.side, patch), axis=1).ravel()  # fmt: skip
        for fold in range(world.folds):
            votes = cells_of(list(slide.scores[:, fold] > 0), truth=slide.truth, tissue=slide.tissue)
            sums = votes.patch_sums(patch=patch, tissue_of_patch=tissue)
            parts.found[slide.number, fold] = SlideVotes(
                votes=votes, known=True, truth_stage=stage, n_tumour=sums.n_tumour, n_normal=sums.n_normal,
                sum_dice=sums.sum_dice, sum_fpr=sums.sum_fpr, invalid={}, graded=False,
            )  # fmt: skip
    folds = tuple(str(f + 1) for f in range(world.folds))
    return VotesWorld(
        parts, pd.DataFrame(rows), np.array(truth, dtype=np.int8), tuple(model_names(world.models)), folds
    )
