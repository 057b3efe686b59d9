"""Scores of several models on one scale, so that their boxes can be fused: the four ways of DBT-09.

A scale is fitted to one set of predictions and may be applied to another: what was fitted to the validation set is
applied to the test set as it is, so that no truth and no other volume of the test set is needed. Scaled scores are 0 or
more, as weighted boxes fusion needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name

FloatArray = npt.NDArray[np.float64]
NORMALISATIONS = ("max", "min-max", "percentile", "thresholded-percentile")
BUDGET = 5.0
"""False positives per volume at the threshold of 'thresholded-percentile'."""


@dataclass(frozen=True, kw_only=True)
class ScoreScale:
    """How the scores of one model are brought to a common scale.

    Args:
        name: One of `NORMALISATIONS`.
        low: The score that becomes 0, for 'max' and 'min-max'.
        high: The score that becomes 1, for 'max' and 'min-max'.
        reference: The scores, sorted, among which percentiles are taken.
        note: What is unusual about the scores, as a clause after the model's name; empty: nothing.
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    reference: FloatArray = field(default_factory=lambda: np.zeros(0))
    note: str = ""

    def apply(self, scores: npt.ArrayLike) -> FloatArray:
        """Bring scores to the scale.

        Args:
            scores: Scores of the model, (n,), of the same predictions or of others.

        Returns:
            Scaled scores, (n,), 0 or more; above 1 only where a score is above all that the scale was fitted to.

        Example:
            >>> fit_scale("min-max", [2.0, 4.0]).apply([1.0, 3.0, 4.0, 5.0]).tolist()
            [0.0, 0.5, 1.0, 1.5]
        """
        values = np.asarray(scores, dtype=np.float64)
        if self.name in ("max", "min-max"):
            if self.high <= self.low:
                return np.where(values >= self.high, 1.0, 0.0)
            scaled = (values - self.low) / (self.high - self.low)
            return np.maximum(scaled, 0.0)
        below = np.searchsorted(self.reference, values, side="right").astype(np.float64)
        shares: FloatArray = below / max(1, self.reference.size)
        return shares


def fit_scale(name: str, scores: npt.ArrayLike, *, threshold: float | None = None) -> ScoreScale:
    """Fit a scale to the scores of one model (DBT-09).

    'max' divides by the largest score; where a score is negative, the lowest score becomes 0 first. 'min-max' makes the
    lowest score 0 and the largest 1. 'percentile' is the share of the scores at or below; 'thresholded-percentile' the
    same among the scores above a threshold, below which a box has 0. Scores that are all equal become 1.

    Args:
        name: One of `NORMALISATIONS`.
        scores: The scores, (n,), finite.
        threshold: For 'thresholded-percentile': the score at which the model has spent 5 false positives per volume,
            which only the truth tells; `-inf` where it never spends them.

    Returns:
        The scale.

    Raises:
        UserError: The name is unknown, a score is not finite, or a threshold is needed and not given.

    Example:
        >>> fit_scale("max", [0.2, 0.5]).apply([0.25]).tolist()
        [0.5]
        >>> fit_scale("thresholded-percentile", [1, 2, 3, 4], threshold=2.0).apply([1, 3, 4]).tolist()
        [0.0, 0.5, 1.0]
    """
    if name not in NORMALISATIONS:
        raise unknown_name("normalisation", name, list(NORMALISATIONS))
    values = np.sort(np.asarray(scores, dtype=np.float64))
    if not np.isfinite(values).all():
        raise UserError("a score is missing or infinite", fix="Correct the scores before they are scaled.")
    note = ""
    if not values.size:
        note = "has no boxes, so that its scores have no scale"
    elif values[0] == values[-1]:
        note = f"gives every box the score {values[0]:g}"
    if name == "percentile":
        return ScoreScale(name=name, reference=values, note=note)
    if name == "thresholded-percentile":
        if threshold is None:
            raise UserError(
                f"the normalisation '{name}' needs lesions: its threshold lies at {BUDGET:g} false positives per volume",
                fix="Give a cohort with lesions, or choose another normalisation: "
                f"{', '.join(other for other in NORMALISATIONS if other != name)}.",
            )
        return ScoreScale(name=name, reference=values[values > threshold], note=note)
    if not values.size:
        return ScoreScale(name=name, note=note)
    low, high = float(values[0]), float(values[-1])
    if name == "max" and low >= 0.0:
        return ScoreScale(name=name, low=0.0 if high > 0.0 else low, high=high, note=note)
    if name == "max" and not note:
        note = "has negative scores: before they are divided by the maximum, the lowest becomes 0"
    return ScoreScale(name=name, low=low, high=high, note=note)
