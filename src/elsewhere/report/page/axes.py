"""Steps that several figures share: numbers as arrays, a true minus sign, names short enough for an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.numbers import MINUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def to_array(values: Any) -> np.ndarray:
    """Read the numbers of a summary, where null stands for what is undefined.

    Args:
        values: A list of numbers and None; None for no numbers.

    Returns:
        An array of floats with NaN for None.
    """
    return np.array([np.nan if v is None else float(v) for v in (values if values is not None else ())])


def use_minus_sign(axes: Axes, which: str = "x") -> None:
    """Print negative tick labels with a minus sign, not with a hyphen.

    Args:
        axes: The axes to change.
        which: The axis, x or y.
    """
    from matplotlib.ticker import FuncFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{v:g}".replace("-", MINUS) if abs(v) > 1e-12 else "0")
    )


def shorten(name: str, most: int = 22) -> str:
    """Cut a long name so that it fits beside an axis.

    Args:
        name: The name of a model, a site or a group.
        most: The largest number of characters.

    Returns:
        The name, with an ellipsis where it was cut.
    """
    return name if len(name) <= most else name[: most - 1] + "…"
