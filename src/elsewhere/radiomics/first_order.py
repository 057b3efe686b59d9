"""First-order statistics of the intensities inside a region (IBSI 1, intensity-based statistics)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def first_order_features(values: npt.ArrayLike) -> dict[str, float]:
    """Return population moments and percentiles of intensities; kurtosis is the excess.

    Args:
        values: The intensities inside the region, of any shape; at least one.

    Returns:
        Features by name; NaN where a ratio is undefined.

    Example:
        >>> first_order_features([1.0, 2.0, 3.0])["mean"]
        2.0
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    mean, median = float(x.mean()), float(np.median(x))
    low, p10, p25, p75, p90, high = np.percentile(x, (0, 10, 25, 75, 90, 100)).tolist()
    centred = x - mean
    variance = float((centred**2).mean())
    spread = variance > 1e-12 * max(mean * mean, 1e-12)
    middle = x[(x >= p10) & (x <= p90)]
    return {
        "mean": mean,
        "variance": variance,
        "skewness": float((centred**3).mean()) / variance**1.5 if spread else 0.0,
        "kurtosis": float((centred**4).mean()) / variance**2 - 3.0 if spread else 0.0,
        "median": median,
        "minimum": low,
        "p10": p10,
        "p90": p90,
        "maximum": high,
        "interquartile_range": p75 - p25,
        "range": high - low,
        "mean_absolute_deviation": float(np.abs(centred).mean()),
        "robust_mean_absolute_deviation": float(np.abs(middle - middle.mean()).mean()),
        "median_absolute_deviation": float(np.abs(x - median).mean()),
        "coefficient_of_variation": math.sqrt(variance) / mean if mean else math.nan,
        "quartile_coefficient": (p75 - p25) / (p75 + p25) if p75 + p25 else math.nan,
        "energy": float((x**2).sum()),
        "root_mean_square": math.sqrt(float((x**2).mean())),
    }


def histogram_features(levels: npt.NDArray[np.integer], *, bins: int) -> dict[str, float]:
    """Return entropy (bits) and uniformity of discretised intensities.

    Args:
        levels: Grey levels inside the region, from 1 to `bins`.
        bins: Number of grey levels.

    Returns:
        Features by name.

    Example:
        >>> histogram_features(np.array([1, 2]), bins=2)
        {'entropy': 1.0, 'uniformity': 0.5}
    """
    share = np.bincount(levels.ravel(), minlength=bins + 1)[1:] / levels.size
    held = share[share > 0]
    return {"entropy": float(-(held * np.log2(held)).sum()), "uniformity": float((share**2).sum())}
