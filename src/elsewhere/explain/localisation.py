"""How much of a map lies in the lesion: a number beside the picture, so that a nice example proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Inside:
    """Of one picture. `share` against `area` says how much more relevance the lesion has than its size gives it."""

    share: float
    """Part of the map's relevance that lies inside; NaN where the map is flat zero."""
    area: float
    """Part of the picture that lies inside: what a map that knows nothing would have."""
    enrichment: float
    """share / area; 1 is chance."""
    hit: bool
    """Pointing game (Zhang et al. 2018): the largest value lies inside; of several equal ones, most do."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def box_in_input(
    box: npt.ArrayLike, window: Sequence[float], size_px: int
) -> tuple[float, float, float, float]:
    """A box of the picture, in the pixels of the network's input: `window` of the picture, resized (US-13)."""
    x0, y0, x1, y1 = (float(v) for v in np.asarray(box).tolist())
    left, top, right, bottom = (float(v) for v in window)
    if not (right > left and bottom > top):
        raise ValueError(f"the window {tuple(window)} is empty")
    across, down = size_px / (right - left), size_px / (bottom - top)
    corners = ((x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down)
    a, b, c, d = (min(max(v, 0.0), float(size_px)) for v in corners)
    return a, b, c, d


def box_region(box: Sequence[float], shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The pixels whose centre lies in the box (x0, y0, x1, y1)."""
    x0, y0, x1, y1 = box
    rows, columns = np.arange(shape[0]) + 0.5, np.arange(shape[1]) + 0.5
    return np.asarray(((rows >= y0) & (rows < y1))[:, None] & ((columns >= x0) & (columns < x1))[None, :])


def relevance_inside(maps: npt.ArrayLike, regions: npt.ArrayLike) -> list[Inside]:
    """One entry a map; `regions` is (n, height, width), true inside the lesion (`box_region`, or a mask).

    Only relevance for the class counts: values below zero are taken as none.
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
