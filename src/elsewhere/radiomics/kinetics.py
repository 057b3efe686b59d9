"""How a region takes up contrast agent and lets it go: curves of phases, and functional tumour volume.

A recipe does not know the times of the phases, so a slope is per phase, not per minute: cohorts whose late
phases lie at other minutes have other curves. Definitions:

- enhancement of a voxel at a phase: (S - S0) / S0, S0 the phase before the agent, held above a floor so that
  air and noise do not divide by nothing;
- signal enhancement ratio: (S_early - S0) / (S_late - S0), cut to [0, 3];
- functional tumour volume: early enhancement of at least 70 %, and a ratio above 0 (the I-SPY rule);
- curve type: late against early, below -10 % wash-out, above +10 % persistent, else plateau.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

FTV_ENHANCEMENT = 0.7
CURVE_MARGIN = 0.1
RATIO_CAP = 3.0
FLOOR_SHARE = 0.02
"""Floor of S0, as a share of the brightest early signal in the region."""


def kinetic_features(
    phases: Sequence[npt.NDArray[np.floating]], mask: npt.NDArray[np.bool_], *, voxel_mm3: float
) -> dict[str, float]:
    """Return how a region takes up contrast agent.

    Args:
        phases: The phase before the contrast agent, then the others in their order; at least one after it.
        mask: The region, with the shape of a phase; at least one voxel is set.
        voxel_mm3: Volume of a voxel in mm3.

    Returns:
        Features by name.

    Example:
        >>> phases = [np.full((1, 1, 2), v) for v in (10.0, 20.0, 15.0)]
        >>> kinetic_features(phases, np.ones((1, 1, 2), dtype=bool), voxel_mm3=1.0)["wash_in"]
        1.0
    """
    curves = np.stack([np.asarray(p)[mask].astype(np.float64) for p in phases])
    floor = max(FLOOR_SHARE * float(np.percentile(curves[1], 99)), 1e-6)
    before = np.maximum(curves[0], floor)
    gains = (curves[1:] - before) / before
    early, late = gains[0], gains[-1]
    mean_curve = gains.mean(axis=1)
    ratio = signal_enhancement_ratio(early, late)
    change = (curves[-1] - curves[1]) / np.maximum(curves[1], floor)
    functional = (early >= FTV_ENHANCEMENT) & (ratio > 0)
    features = {
        "peak_enhancement": float(mean_curve.max()),
        "peak_phase": float(mean_curve.argmax() + 1) / len(mean_curve),
        "wash_in": float(early.mean()),
        "wash_in_p10": float(np.percentile(early, 10)),
        "wash_in_p90": float(np.percentile(early, 90)),
        "wash_out": float(change.mean()),
        "wash_out_p10": float(np.percentile(change, 10)),
        "ratio_mean": float(ratio.mean()),
        "ratio_p90": float(np.percentile(ratio, 90)),
        "functional_volume": float(functional.sum()) * voxel_mm3,
        "functional_share": float(functional.mean()),
    }
    return features | curve_types(change)


def signal_enhancement_ratio(early: FloatArray, late: FloatArray) -> FloatArray:
    """Return early over late enhancement, cut to [0, RATIO_CAP].

    Args:
        early: Enhancement of every voxel at the early phase.
        late: Enhancement of every voxel at the late phase, of the same shape.

    Returns:
        One ratio per voxel; 0 where the late enhancement is 0 or less, or the early one.

    Example:
        >>> signal_enhancement_ratio(np.array([1.0, 2.0, 1.0]), np.array([2.0, 0.1, 0.0])).tolist()
        [0.5, 3.0, 0.0]
    """
    ratio = np.divide(early, late, out=np.zeros_like(early), where=late > 1e-6)
    return np.clip(ratio, 0.0, RATIO_CAP)


def curve_types(change: FloatArray) -> dict[str, float]:
    """Return the shares of voxels that wash out, stay on a plateau, or go on enhancing.

    Args:
        change: Change of the signal of every voxel from the early to the late phase, relative to the early
            one.

    Returns:
        Three shares by name.

    Example:
        >>> curve_types(np.array([-0.5, 0.0, 0.5, 0.5]))["share_persistent"]
        0.5
    """
    out, on = float((change < -CURVE_MARGIN).mean()), float((change > CURVE_MARGIN).mean())
    return {"share_wash_out": out, "share_plateau": 1.0 - out - on, "share_persistent": on}
