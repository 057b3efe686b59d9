"""What a cohort states of its slides, and the points that hit their lesions, one slide at a time (LN-17)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.predictions.slide_masks import MaskReading, SlideGeometry, check_grid, open_slide_mask
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.mean_map import mean_map
from elsewhere.scoring.slides.regions import EvaluationMask, evaluation_mask

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

DEFAULT_DOWNSAMPLE = 32.0


def point_events(
    case: str, points: pd.DataFrame | None, truth: EvaluationMask | None, downsample: float
) -> pd.DataFrame:
    """Make the events of a slide: one per false positive, and one per countable lesion.

    A lesion has its best score, or NaN where it was missed.

    Args:
        case: The id of the slide.
        points: The predicted points with `x` and `y` in pixels of level 0 and `score`; None for none.
        truth: The lesions of the slide; None for a slide without a truth mask, where every point is false.
        downsample: How many pixels of level 0 one pixel of the truth mask covers.

    Returns:
        The columns case_id, lesion_id, score and kind: fp, itc, tp or fn.

    Example:
        >>> points = pd.DataFrame({"x": [5.0], "y": [5.0], "score": [0.9]})
        >>> point_events("slide-1", points, None, 32.0)["kind"].tolist()
        ['fp']
    """
    rows: list[tuple[str, str | None, float, str]] = []
    best: dict[int, float] = {}
    if points is not None:
        for x, y, score in points[["x", "y", "score"]].itertuples(index=False):
            label = 0
            if truth is not None:
                r, c = int(y / downsample), int(x / downsample)
                inside = 0 <= r < truth.labels.shape[0] and 0 <= c < truth.labels.shape[1]
                label = int(truth.labels[r, c]) if inside else 0
            if label == 0:
                rows.append((case, None, float(score), "fp"))
            elif truth is not None and truth.is_itc[label - 1]:
                rows.append((case, str(label), float(score), "itc"))
            else:
                best[label] = max(best.get(label, -np.inf), float(score))
    if truth is not None:
        for k in np.flatnonzero(~truth.is_itc):
            hit = best.get(int(k) + 1)
            rows.append(
                (case, str(int(k) + 1), np.nan if hit is None else hit, "fn" if hit is None else "tp")
            )
    return pd.DataFrame(rows, columns=["case_id", "lesion_id", "score", "kind"])


def truth_file(cohort: Cohort, path: str) -> Path:
    """Locate a truth mask.

    Args:
        cohort: The cohort.
        path: The path that the cohort states, absolute or relative to the cohort.

    Returns:
        The path of the file.
    """
    file = Path(path)
    return file if file.is_absolute() or cohort.root is None else cohort.root / file


def slide_geometries(cohort: Cohort) -> list[SlideGeometry]:
    """Read what the cohort states of each slide: needed wherever masks or points are scored.

    Args:
        cohort: The cohort, with `microns_per_pixel` of level 0, and `mask_downsample`, `width_px` and `height_px` where
            they are known.

    Returns:
        One per slide.

    Raises:
        UserError: The column `microns_per_pixel` is absent, or a value is empty or not positive.
    """
    cases = cohort.cases
    if "microns_per_pixel" not in cases.columns:
        raise UserError(
            "the cohort has no column microns_per_pixel",
            fix="Add the level-0 resolution of each slide in um; `mask_downsample` is how many of its "
            "pixels a pixel of the mask covers along one side (default 32).",
        )
    mpp = _positive(cases, "microns_per_pixel", needed=True)
    downsample = _positive(cases, "mask_downsample")
    width, height = _positive(cases, "width_px"), _positive(cases, "height_px")
    return [
        SlideGeometry(
            mpp=float(mpp[i]),
            size_px=(int(width[i]), int(height[i])) if width[i] > 0 and height[i] > 0 else None,
            downsample=float(downsample[i]) if downsample[i] > 0 else DEFAULT_DOWNSAMPLE,
            stated=bool(downsample[i] > 0),
        )
        for i in range(len(cases))
    ]


def _positive(cases: pd.DataFrame, column: str, *, needed: bool = False) -> npt.NDArray[np.float64]:
    """A column of positive numbers; NaN where it is empty or absent."""
    if column not in cases.columns:
        return np.full(len(cases), np.nan)
    values = pd.to_numeric(cases[column], errors="coerce").to_numpy(dtype=float)
    empty = cases[column].isna().to_numpy(dtype=bool)
    bad = ~(np.isfinite(values) & (values > 0)) & (~empty | needed)
    if bad.any():
        raise UserError(
            f"{column} is {'empty or ' if needed else ''}not positive",
            where=f"cohort, rows {name_rows((np.flatnonzero(bad) + 1).tolist())}",
        )
    return values


def truth_reading(cohort: Cohort, number: int) -> MaskReading:
    """Return what the cohort states of the values of a slide's truth mask.

    Args:
        cohort: The cohort, with `mask_tumour` where the value of tumour has to be stated.
        number: The row of the slide.

    Returns:
        How the mask is to be read.

    Raises:
        UserError: The value is not a whole number.
    """
    if "mask_tumour" not in cohort.cases.columns or pd.isna(cohort.cases["mask_tumour"].iloc[number]):
        return MaskReading()
    value = pd.to_numeric(cohort.cases["mask_tumour"].iloc[number], errors="coerce")
    if not value == value // 1:
        raise UserError("mask_tumour is not a whole number", where=f"cohort, row {number + 1}")
    return MaskReading(tumour=(int(value),))


def froc_truth(
    path: Path, geometry: SlideGeometry, rules: SlideRules, reading: MaskReading
) -> tuple[EvaluationMask, float]:
    """Read a truth mask as CAMELYON16's FROC does: at its level of 32 slide pixels, grown and labelled (LN-17).

    A file that has such a level gives it; of another one the mean over such pixels is taken, and outlines are drawn at
    this scale. A coarser mask is taken as it is.

    Args:
        path: The truth: TIFF of any levels, PNG, XML or GeoJSON.
        geometry: What is known of the slide.
        rules: The protocol's rules of slides.
        reading: What is stated of the values of the file.

    Returns:
        The lesions, and the pixels of level 0 per pixel of their labels.

    Raises:
        UserError: The mask cannot be read, or does not fit the slide.
    """
    with open_slide_mask(path, geometry, reading=reading, wanted_step=geometry.downsample) as mask:
        check_grid(mask, geometry)
        step = max(geometry.downsample, mask.step_px)
        annotation = mean_map(mask, cell=step)
    return evaluation_mask(annotation, pixel_um=step * geometry.mpp, rules=rules), step
