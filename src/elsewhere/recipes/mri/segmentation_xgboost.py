"""Features of a found region into boosted trees, after AI Strollers (MRI-15).

**Follows** AI Strollers in separating the location from the response: a region first, then an XGBoost
classifier on what was measured there.

**Differs** in the first half: they trained a SegResNet (p0, p1 and p2 at 0.7 x 0.7 x 2 mm, 1,000 epochs, Dice
+ cross-entropy and a third loss) and took its features. Here no network is trained, whether the training part
has masks or not: the region is the automatic one and its features are radiomics. So this recipe tests boosted
trees on a region, and not the features of a segmentation network: that is the recipe 'network-xgboost'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elsewhere.errors import UserError
from elsewhere.recipes.base import RESPONSE, Job, Recipe, Trained, recipes
from elsewhere.recipes.mri.radiomics import (
    REGION_NOTE,
    FeatureTable,
    RadiomicsSettings,
    apply_features,
    feature_settings,
    predict_all,
)
from elsewhere.recipes.mri.response_models import Candidate, FloatArray, IntArray, choose, training_cases

LEAF_WEIGHT, CASES_A_WEIGHT = 2.0, 16
"""The least weight of a leaf, which is smaller for fewer than 32 cases. A case weighs a quarter at first and
0.7 of the cases are drawn for a tree: with a weight of 2 per leaf, fewer than 23 cases cannot be split, and
every case gets the same answer."""


@dataclass(frozen=True, kw_only=True)
class BoostSettings(RadiomicsSettings):
    """Settings of the recipe 'segmentation-xgboost': `RadiomicsSettings`, and those of the trees.

    Args:
        trees: Boosted trees.
        depths: Depths of the trees to choose from, by folds inside the training part.
        learning_rate: Learning rate of the boosting.
    """

    trees: int = 150
    depths: tuple[int, ...] = (1, 2, 3)
    """Chosen by folds inside the training part."""
    learning_rate: float = 0.05


@recipes.register("segmentation-xgboost")
class SegmentationXgboost(Recipe):
    """Segment, measure, boost: the segmentation and the response are learnt separately."""

    title = "Features of the found region into XGBoost"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 1
    follows = (
        "AI Strollers in part: features of a trained segmentation network (SegResNet) into an XGBoost classifier, the "
        "two learnt separately. Here no network is trained, even where there are masks: the region is the automatic "
        "one and its features are radiomics (shape, first order, texture, kinetics). Depth by folds inside training; "
        "classes weigh the same."
    )
    keeps: ClassVar[bool] = True
    Settings = BoostSettings

    def run(self, job: Job) -> Trained:
        settings: BoostSettings = job.settings
        need_xgboost()
        cases = training_cases(job)
        table = FeatureTable(feature_settings(settings), None)
        x = table.rows(job, cases)
        y = np.array([case.label for case in cases], dtype=np.int64)
        candidates = [
            boosted(depth, trees=settings.trees, rate=settings.learning_rate, threads=job.threads)
            for depth in settings.depths
        ]
        fitted = choose(candidates, x, y, [case.group for case in cases], seed=job.seed)
        predict_all(job, table, fitted.probability)
        return Trained(
            weights=table.kept() | fitted.kept() if job.keep else None,
            images=len(cases),
            notes=(REGION_NOTE,),
            details={
                "cases": len(cases),
                "responders": int(y.sum()),
                "features": len(table.names),
                "chosen": fitted.name,
                "inner_auc": fitted.inner_auc,
                "attempts": fitted.attempts,
                "shift": fitted.shift,
            },
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        need_xgboost()
        return apply_features(job, weights, {"boosted": Boosted})


def boosted(depth: int, *, trees: int, rate: float, threads: int) -> Candidate:
    """Make a candidate of trees of one depth, to choose among others.

    Args:
        depth: Largest depth of a tree.
        trees: Boosted trees.
        rate: Learning rate of the boosting.
        threads: CPU threads.

    Returns:
        The candidate.

    Example:
        >>> boosted(2, trees=10, rate=0.05, threads=1).name
        'depth 2'
    """
    return Candidate(
        name=f"depth {depth}",
        make=lambda seed: Boosted(seed=seed, depth=depth, trees=trees, rate=rate, threads=threads),
    )


def need_xgboost() -> Any:
    """Import XGBoost.

    Returns:
        The module.

    Raises:
        UserError: It is not installed; the message says what to install.
    """
    try:
        import xgboost
    except ImportError as error:
        raise UserError(
            "boosted trees need xgboost, which is not installed",
            fix="pip install 'elsewhere[train]'",
        ) from error
    return xgboost


class Boosted:
    """Boosted trees for a probability of response.

    In each split, missing values are sent to the side that fits the training cases better.

    Args:
        seed: Seed of the sampling of rows and columns.
        depth: Largest depth of a tree.
        trees: Boosted trees.
        rate: Learning rate of the boosting.
        threads: CPU threads.
    """

    def __init__(self, *, seed: int, depth: int, trees: int, rate: float, threads: int) -> None:
        self.library = need_xgboost()
        self.trees = trees
        self.parameters = {
            "objective": "binary:logistic",
            "max_depth": depth,
            "eta": rate,
            "subsample": 0.7,
            "colsample_bytree": 0.5,
            "lambda": 2.0,
            "base_score": 0.5,
            "seed": seed % 2**31,
            "nthread": threads,
            "verbosity": 0,
        }
        self.booster: Any = None

    def fit(self, x: FloatArray, y: IntArray) -> Boosted:
        """Fit the trees; both classes have the same total weight.

        Args:
            x: (cases, columns), NaN where a value is missing.
            y: 0 or 1 per case.

        Returns:
            The same model.
        """
        positives = max(1, int((y == 1).sum()))
        negatives = max(1, len(y) - positives)
        weight = np.where(y == 1, len(y) / (2 * positives), len(y) / (2 * negatives))
        data = self.library.DMatrix(x, label=y, weight=weight)
        parameters = self.parameters | {"min_child_weight": min(LEAF_WEIGHT, len(y) / CASES_A_WEIGHT)}
        self.booster = self.library.train(parameters, data, num_boost_round=self.trees)
        return self

    def logit(self, x: FloatArray) -> FloatArray:
        """Predict logits.

        Args:
            x: (cases, columns), NaN where a value is missing.

        Returns:
            (cases,).
        """
        return np.asarray(self.booster.predict(self.library.DMatrix(x), output_margin=True), dtype=np.float64)

    def kept(self) -> dict[str, Any]:
        """Return the model for saved weights.

        Returns:
            Its kind, its number of trees and XGBoost's own JSON.
        """
        return {"kind": "boosted", "trees": self.trees, "json": bytes(self.booster.save_raw("json"))}

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any]) -> Boosted:
        """Make the model from saved weights.

        Args:
            kept: What `kept` returned.

        Returns:
            The model, ready to predict.
        """
        made = cls(seed=0, depth=0, trees=int(kept["trees"]), rate=0.0, threads=1)
        made.booster = made.library.Booster({"nthread": 1})
        made.booster.load_model(bytearray(kept["json"]))
        return made
