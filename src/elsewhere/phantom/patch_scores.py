"""Synthetic tables of patch scores with a known truth: many models, folds and slides of two domains.

The areas of tumour per slide have the quantiles of the public CAMELYON16 outlines (0.008 to 138 mm2, median 1.6), so
that among the tumour slides of a real test set five hold about 40 % of the tumour patches. Dice rises with the area;
the false-positive rate of a slide is lognormal, so that a few slides carry its mean. A model has a quality of its own,
each of its folds a little more or less of it, and the external slides a planted drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
_LEVELS = np.array([0.0, 0.25, 0.5, 0.75, 0.9, 1.0])
_AREAS_MM2 = np.array([0.008, 0.14, 1.6, 6.3, 29.0, 138.0])
_PATCHES_PER_MM2 = 61.0
"""Patches of 256 pixels at 0.5 um are 0.128 mm wide."""
_MACRO_MM2, _MICRO_MM2 = np.pi, np.pi / 100
"""Areas of discs of 2 and 0.2 mm."""
_SLOPE, _SPREAD = 0.25, 0.8
_NORMAL_LOG, _NORMAL_SPREAD = 8.2, 0.6
_HERMITE = 40


@dataclass(frozen=True, kw_only=True)
class PatchWorld:
    """What a synthetic table of patch scores is drawn from.

    Args:
        internal: Internal slides.
        external: External slides.
        tumour_share: The share of slides with tumour.
        slides_per_patient: Slides of each patient; they share half of the patient's variance of Dice.
        models: Models, named CLUSTERING-SHARE as in the lymph-node study.
        folds: Folds of each model, which all score every slide.
        quality: The mean Dice of a slide with 1 mm2 of tumour, on the logit scale.
        model_spread: The standard deviation of the models' qualities.
        fold_spread: The standard deviation of the folds' qualities around the model's.
        model_noise: The standard deviation of what a slide's quality differs between models.
        drop: How much the quality falls on external slides, on the logit scale.
        fpr: The mean false-positive rate on internal slides.
        fpr_ratio: External over internal false-positive rate.
        fpr_spread: The standard deviation of the logarithm of a slide's false-positive rate.
        external_area: What the external areas of tumour are multiplied by: another mix of stages.
        thresholds: Pixel thresholds, each with rows of its own; empty for one operating point without a column.

    Raises:
        UserError: A number is too small.
    """

    internal: int = 169
    external: int = 68
    tumour_share: float = 0.45
    slides_per_patient: int = 1
    models: int = 21
    folds: int = 5
    quality: float = 1.0
    model_spread: float = 0.15
    fold_spread: float = 0.2
    model_noise: float = 0.25
    drop: float = 0.0
    fpr: float = 0.004
    fpr_ratio: float = 1.0
    fpr_spread: float = 1.2
    external_area: float = 1.0
    thresholds: Sequence[float] = ()

    def __post_init__(self) -> None:
        least = min(self.internal, self.external, self.models, self.folds, self.slides_per_patient)
        if least < 1 or not 0 < self.tumour_share <= 1 or not 0 < self.fpr < 1 or self.external_area <= 0:
            raise UserError(
                "a synthetic table of patch scores needs at least one slide per domain, one model and one fold, and shares "
                "and rates between 0 and 1",
                fix="Give larger numbers.",
            )

    def true_dice(self, *, external: bool) -> float:
        """Integrate the mean Dice over all tumour patches of a domain, for a model of the mean quality.

        Args:
            external: Whether the domain is the external one.

        Returns:
            The expectation of the sum of Dice over the expected number of patches.
        """
        levels = (np.arange(4000) + 0.5) / 4000
        area = _areas(levels) * (self.external_area if external else 1.0)
        patches = np.maximum(1.0, np.round(area * _PATCHES_PER_MM2))
        node, weight = np.polynomial.hermite_e.hermegauss(_HERMITE)
        centre = self.quality - (self.drop if external else 0.0) + _SLOPE * np.log(area)
        spread = np.sqrt(_SPREAD**2 + self.fold_spread**2 + self.model_noise**2)
        mean = special.expit(centre[:, None] + spread * node) @ weight / weight.sum()
        return float(patches @ mean / patches.sum())

    def true_fpr(self, *, external: bool) -> float:
        """Return the mean false-positive rate over all normal patches of a domain.

        Args:
            external: Whether the domain is the external one.

        Returns:
            The rate.
        """
        return self.fpr * (self.fpr_ratio if external else 1.0)


def _areas(levels: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.interp(levels, _LEVELS, np.log(_AREAS_MM2))))


def model_names(models: int) -> list[str]:
    """Name models as the lymph-node study does: three clusterings x seven shares, then numbers.

    Args:
        models: How many.

    Returns:
        The names.

    Example:
        >>> model_names(2)
        ['histopathology-natural', 'histopathology-0']
    """
    shares = ("natural", "0", "10", "20", "30", "40", "50")
    names = [f"{cluster}-{share}" for cluster in ("histopathology", "imagenet", "single") for share in shares]
    return [*names, *(f"model-{i}" for i in range(22, models + 1))][:models]


def draw_patch_scores(world: PatchWorld, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a table of patch scores.

    Args:
        world: What it is drawn from.
        rng: The generator of all draws.

    Returns:
        One row per slide, model and fold (and threshold).

    Example:
        >>> table = draw_patch_scores(PatchWorld(internal=6, external=4, models=2), np.random.default_rng(0))
        >>> len(table), sorted(table["domain"].unique())
        (100, ['ID', 'OOD'])
    """
    n = world.internal + world.external
    external = np.arange(n) >= world.internal
    tumour = np.zeros(n, dtype=bool)
    for first, size in ((0, world.internal), (world.internal, world.external)):
        tumour[first : first + max(1, round(world.tumour_share * size))] = True
    area = _areas(rng.random(n)) * np.where(external, world.external_area, 1.0)
    area = np.where(tumour, area, 0.0)
    n_tumour = np.where(tumour, np.maximum(1.0, np.round(area * _PATCHES_PER_MM2)), 0.0)
    n_normal = np.round(np.exp(rng.normal(_NORMAL_LOG, _NORMAL_SPREAD, n))) + 1.0
    stage = np.select(
        [~tumour, area > _MACRO_MM2, area > _MICRO_MM2], ["negative", "macro", "micro"], default="itc"
    )
    patient = np.concatenate(
        [
            [f"{name}-{i // world.slides_per_patient:03d}" for i in range(size)]
            for name, size in (("in", world.internal), ("out", world.external))
        ]
    )
    people, of = np.unique(patient, return_inverse=True)
    shared = 0.5 if world.slides_per_patient > 1 else 0.0

    def noise() -> FloatArray:
        own, common = rng.normal(size=n), rng.normal(size=people.size)[of]
        return np.asarray(np.sqrt(1.0 - shared) * own + np.sqrt(shared) * common)

    slide_dice, slide_fpr = _SPREAD * noise(), world.fpr_spread * noise()
    quality = world.quality + world.model_spread * rng.normal(size=world.models)
    fold = world.fold_spread * rng.normal(size=(world.models, world.folds, 1))
    points = tuple(world.thresholds) or (0.5,)
    own = world.model_noise * rng.normal(size=(2, world.models, 1, n))
    centre = quality[:, None, None] + fold + slide_dice + own[0] - world.drop * external
    with np.errstate(divide="ignore"):
        centre = centre + np.where(tumour, _SLOPE * np.log(np.where(tumour, area, 1.0)), 0.0)
    tables = []
    names = np.array(model_names(world.models), dtype=object)
    for point in points:
        # Half at 0.5; a higher threshold loses some Dice and many false positives, a lower one the reverse.
        away = np.log(point / (1.0 - point))
        dice = special.expit(centre - 0.2 * away**2)
        rate = world.fpr * np.where(external, world.fpr_ratio, 1.0) * np.exp(-0.8 * away)
        variance = world.fpr_spread**2 + world.fold_spread**2 + world.model_noise**2
        fpr = np.minimum(rate * np.exp(slide_fpr + fold + own[1] - variance / 2), 1.0)
        sum_dice, sum_fpr = dice * n_tumour, fpr * n_normal
        m, f, s = (index.ravel() for index in np.indices(dice.shape))
        made = pd.DataFrame(
            {
                "case_id": np.array([f"slide-{i:03d}" for i in range(n)], dtype=object)[s],
                "patient_id": patient[s],
                "domain": np.where(external, "OOD", "ID")[s],
                "stage": stage[s],
                "model": names[m],
                "fold": np.array([str(i + 1) for i in range(world.folds)], dtype=object)[f],
                "n_tumour": n_tumour[s],
                "sum_dice": sum_dice.ravel(),
                "sum_dice2": (0.5 * (dice + dice**2) * n_tumour).ravel(),
                "n_normal": n_normal[s],
                "sum_fpr": sum_fpr.ravel(),
                "sum_fpr2": (0.5 * (fpr + fpr**2) * n_normal).ravel(),
            }
        )
        if world.thresholds:
            made.insert(6, "threshold", float(point))
        tables.append(made)
    return pd.concat(tables, ignore_index=True)
