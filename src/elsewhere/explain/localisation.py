"""How much of a relevance map lies in the lesion.

A number goes with every picture, since one good picture proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Inside:
    """How much of one map lies inside the lesion; `area` is what chance would give.

    Args:
        share: Part of the map's relevance that lies inside; NaN where the map is all zero.
        area: Part of the picture that lies inside: the share of a map without information.
        enrichment: share / area; 1 is chance.
        hit: Pointing game (Zhang et al. 2018): the largest value lies inside. Of several equal largest
            values, more than half lie inside.
    """

    share: float
    area: float
    enrichment: float
    hit: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary.

        Returns:
            The fields by name.
        """
        return asdict(self)


def box_in_input(
    box: npt.ArrayLike, window: Sequence[float], size_px: int
) -> tuple[float, float, float, float]:
    """Convert a box of the picture to pixels of the network's input, which is a resized window (US-13).

    Args:
        box: (x0, y0, x1, y1) in pixels of the picture.
        window: The part of the picture that the network sees, as (x0, y0, x1, y1).
        size_px: The side of the network's square input, in pixels.

    Returns:
        The box in pixels of the input, cut at its border.

    Raises:
        ValueError: The window is empty.

    Example:
        >>> box_in_input([10, 10, 30, 20], (0, 0, 40, 40), 80)
        (20.0, 20.0, 60.0, 40.0)
    """
    x0, y0, x1, y1 = (float(v) for v in np.asarray(box).tolist())
    left, top, right, bottom = (float(v) for v in window)
    if not (right > left and bottom > top):
        raise ValueError(f"the window {tuple(window)} is empty")
    across, down = size_px / (right - left), size_px / (bottom - top)
    corners = ((x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down)
    a, b, c, d = (min(max(v, 0.0), float(size_px)) for v in corners)
    return a, b, c, d


def box_region(box: Sequence[float], shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Mark the pixels whose centre lies in a box.

    Args:
        box: (x0, y0, x1, y1) in pixels.
        shape: Height and width of the picture, in pixels.

    Returns:
        A mask of that shape.

    Example:
        >>> box_region((0, 0, 2, 1), (2, 3)).tolist()
        [[True, True, False], [False, False, False]]
    """
    x0, y0, x1, y1 = box
    rows, columns = np.arange(shape[0]) + 0.5, np.arange(shape[1]) + 0.5
    return np.asarray(((rows >= y0) & (rows < y1))[:, None] & ((columns >= x0) & (columns < x1))[None, :])


def relevance_inside(maps: npt.ArrayLike, regions: npt.ArrayLike) -> list[Inside]:
    """Measure how much of each map lies inside a region, usually the lesion.

    Only relevance for the class counts: values below zero are taken as 0.

    Args:
        maps: Maps of shape (n, height, width).
        regions: Masks of the same shape, true inside the lesion (`box_region`, or an annotated mask).

    Returns:
        One entry per map.

    Raises:
        ValueError: Maps and regions do not have the same shape, or not three axes.

    Example:
        >>> found = relevance_inside([[[0.0, 3.0], [0.0, 1.0]]], [[[False, True], [False, False]]])
        >>> found[0].share, found[0].area, found[0].enrichment, found[0].hit
        (0.75, 0.25, 3.0, True)
    """
    values = np.clip(np.asarray(maps, dtype=np.float64), 0, None)
    inside = np.asarray(regions, dtype=bool)
    if values.shape != inside.shape or values.ndim != 3:
        raise ValueError(f"maps and regions differ: {values.shape} and {inside.shape}")
    found = []
    for one, region in zip(values, inside, strict=True):
        total, area = one.sum(), float(region.mean())
        share = float(one[region].sum() / total) if total > 0 else float("nan")
        hit = bool(total > 0 and region[one == one.max()].mean() > 0.5)
        enrichment = share / area if area > 0 else float("nan")
        found.append(Inside(share=share, area=area, enrichment=enrichment, hit=hit))
    return found
