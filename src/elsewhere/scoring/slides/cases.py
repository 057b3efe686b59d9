"""Slide masks and points, one case at a time: reading, measuring and matching (LN-14, LN-17)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.regions import EvaluationMask, find_regions, largest_feret_px, stage_of_extent

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort

DEFAULT_DOWNSAMPLE = 32.0
_WITH_ALPHA = ("LA", "RGBA")


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


def mask_downsample(cohort: Cohort) -> npt.NDArray[np.float64]:
    """Read how many pixels of level 0 one pixel of each slide's mask covers.

    Args:
        cohort: The cohort, with `mask_downsample` where known.

    Returns:
        One number per slide; 32 where it is not stated.
    """
    if "mask_downsample" not in cohort.cases.columns:
        return np.full(len(cohort.cases), DEFAULT_DOWNSAMPLE)
    return pd.to_numeric(cohort.cases["mask_downsample"]).fillna(DEFAULT_DOWNSAMPLE).to_numpy(dtype=float)


def mask_pixel_um(cohort: Cohort) -> npt.NDArray[np.float64]:
    """Compute the width of a pixel of each slide's mask file, in microns; needed wherever a length is.

    Args:
        cohort: The cohort, with `microns_per_pixel` of level 0.

    Returns:
        Microns per pixel of each slide.

    Raises:
        UserError: The column is absent, or a value is empty or not positive.
    """
    if "microns_per_pixel" not in cohort.cases.columns:
        raise UserError(
            "the cohort has no column microns_per_pixel",
            fix="Add the level-0 resolution of each slide in um; `mask_downsample` is how many of its "
            "pixels a pixel of the mask covers along one side (default 32).",
        )
    level0 = pd.to_numeric(cohort.cases["microns_per_pixel"], errors="coerce").to_numpy(dtype=float)
    bad = ~(level0 > 0)
    if bad.any():
        raise UserError(
            "microns_per_pixel is empty or not positive",
            where=f"cohort, rows {name_rows((np.flatnonzero(bad) + 1).tolist())}",
        )
    return level0 * mask_downsample(cohort)


def read_slide_mask(path: Path) -> npt.NDArray[np.bool_]:
    """Read a PNG or TIFF mask: any value above 0 is tumour; transparency is not.

    Args:
        path: The file.

    Returns:
        True where there is tumour, (rows, columns).

    Raises:
        UserError: There is no such file, or it cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    if not path.is_file():
        raise UserError(
            "this is not a plain file (a folder, a pipe or a device)"
            if path.exists()
            else "the mask file does not exist",
            where=str(path),
            fix="Check the path in the cohort, or the folder of predictions.",
        )
    try:
        with Image.open(path) as picture:
            array = np.asarray(picture.convert(picture.mode[:-1]) if picture.mode in _WITH_ALPHA else picture)
    except (
        UnidentifiedImageError,
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
    ) as problem:
        raise UserError(
            f"the mask cannot be read ({problem})", where=str(path), fix="Write it again as PNG or TIFF."
        ) from problem
    if array.ndim == 3:
        array = array.max(axis=2)
    return array > 0


def read_on_grid(path: Path, truth: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    """Read a predicted mask, which must have the size of the truth.

    Args:
        path: The file.
        truth: The truth; None where there is none.

    Returns:
        True where there is tumour, (rows, columns).

    Raises:
        UserError: The file cannot be read, or has another size.
    """
    mask = read_slide_mask(path)
    if truth is not None and truth.shape != mask.shape:
        raise UserError(
            f"the mask is {mask.shape[1]} x {mask.shape[0]} px, the truth {truth.shape[1]} x {truth.shape[0]}",
            where=str(path),
            fix="Write the mask on the truth mask's grid.",
        )
    return mask


def mask_scores(
    mask: npt.NDArray[np.bool_] | None, truth: npt.NDArray[np.bool_] | None
) -> tuple[float, float]:
    """Compute Dice on a slide with tumour, or the false-positive rate on one without.

    Args:
        mask: The prediction; None where it is missing, which is worst (ST-14).
        truth: The truth; None where it is unknown.

    Returns:
        (Dice, false-positive rate); NaN for the one that does not apply.

    Example:
        >>> mask_scores(np.array([[True, True]]), np.array([[True, False]]))
        (0.6666666666666666, nan)
    """
    if truth is None:
        return np.nan, np.nan
    if truth.any():
        return (
            0.0 if mask is None else 2.0 * float((mask & truth).sum()) / float(mask.sum() + truth.sum())
        ), np.nan
    return np.nan, (1.0 if mask is None else float(mask.mean()))


def stage_of_mask(mask: npt.NDArray[np.bool_], pixel_um: float, rules: SlideRules) -> str:
    """Derive the stage of a slide from a mask.

    Args:
        mask: True where there is tumour.
        pixel_um: Microns per pixel of the mask.
        rules: The protocol's rules of slides.

    Returns:
        'negative', 'itc', 'micro' or 'macro'.

    Example:
        >>> stage_of_mask(np.ones((1, 100), dtype=bool), 10.0, SlideRules())
        'micro'
    """
    regions = find_regions(mask)
    extent = float(regions.major_axis_px.max()) if regions.count else 0.0
    if rules.stage_axis == "feret":
        extent = largest_feret_px(mask)
    return stage_of_extent(extent * pixel_um / 1000, rules, any_object=regions.count > 0)
