"""Make a summary safe to print: plain Python values, no NaN, curves thinned to what a screen can show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

MOST_CURVE_POINTS = 500
_PARALLEL = ("x", "y", "lo", "hi", "threshold", "thresholds", "n", "count", "counts")


def sanitise(value: Any) -> Any:
    """Convert a value to what JSON can hold.

    NaN and infinities become None, numpy values become Python values, keys become text.

    Args:
        value: A value of a summary: a scalar, a mapping or a sequence, of any depth.

    Returns:
        The converted value.

    Example:
        >>> sanitise({1: float("nan"), "b": (2, 3)})
        {'1': None, 'b': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(key): sanitise(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return sanitise(value.tolist())
    if isinstance(value, np.generic):
        return sanitise(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Sequence | set | frozenset):
        return [sanitise(item) for item in value]
    return str(value)


def _column(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.array([np.nan if item is None else item for item in values], dtype=float)


def thin_curve(curve: Mapping[str, Any], most: int = MOST_CURVE_POINTS) -> tuple[dict[str, Any], int]:
    """Thin a curve to a number of points that a screen can show.

    Points are chosen evenly along the curve's own length, so that the steep start of a ROC or FROC curve
    stays as it is; the first and the last point stay. Nothing is smoothed: every point is one of the curve.

    Args:
        curve: Columns of the curve, `x` and `y` among them.
        most: The largest number of points.

    Returns:
        The curve with at most `most` points, and how many it had.

    Example:
        >>> thinned, had = thin_curve({"x": list(range(900)), "y": list(range(900))}, most=100)
        >>> had, len(thinned["x"])
        (900, 100)
    """
    x = _column(curve.get("x", ()))
    y = _column(curve.get("y", ()))
    n = min(x.size, y.size)
    if n <= most:
        return dict(curve), n
    steps = np.hypot(_relative_steps(x[:n]), _relative_steps(y[:n]))
    along = np.concatenate(([0.0], np.cumsum(steps)))
    if along[-1] > 0:
        even = np.linspace(0.0, along[-1], most)
        keep = np.unique(np.clip(np.searchsorted(along, even), 0, n - 1))
    else:
        keep = np.unique(np.linspace(0, n - 1, most).astype(int))
    keep[0], keep[-1] = 0, n - 1
    thinned = dict(curve)
    for name in _PARALLEL:
        values = curve.get(name)
        if values is not None and not isinstance(values, str | float | int) and len(values) == n:
            thinned[name] = _column(values)[keep]
    return thinned, n


def _relative_steps(values: np.ndarray) -> np.ndarray:
    steps = np.abs(np.diff(np.nan_to_num(values)))
    total = steps.sum()
    return steps / total if total > 0 else steps
