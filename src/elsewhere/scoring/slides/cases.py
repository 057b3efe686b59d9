"""Slide masks and points, one case at a time: read, put on the truth's grid, measured, matched (LN-14, LN-17)."""

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
    """One event a false positive, one a countable lesion (its best score, or NaN where missed)."""
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
    file = Path(path)
    return file if file.is_absolute() or cohort.root is None else cohort.root / file


def mask_downsample(cohort: Cohort) -> npt.NDArray[np.float64]:
    if "mask_downsample" not in cohort.cases.columns:
        return np.full(len(cohort.cases), DEFAULT_DOWNSAMPLE)
    return pd.to_numeric(cohort.cases["mask_downsample"]).fillna(DEFAULT_DOWNSAMPLE).to_numpy(dtype=float)


def mask_pixel_um(cohort: Cohort) -> npt.NDArray[np.float64]:
    """Microns a pixel of each slide's mask file; needed wherever a length is."""
    if "microns_per_pixel" not in cohort.cases.columns:
        raise UserError(
            "the cohort has no column microns_per_pixel",
            fix="Add the level-0 resolution of each slide in um; `mask_downsample` tells the mask's own level (default 32).",
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
    """A PNG or TIFF mask: anything above 0 is tumour; transparency is not."""
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
    """(Dice on a slide with tumour, false-positive rate on one without); a missing mask is worst (ST-14)."""
    if truth is None:
        return np.nan, np.nan
    if truth.any():
        return (
            0.0 if mask is None else 2.0 * float((mask & truth).sum()) / float(mask.sum() + truth.sum())
        ), np.nan
    return np.nan, (1.0 if mask is None else float(mask.mean()))


def stage_of_mask(mask: npt.NDArray[np.bool_], pixel_um: float, rules: SlideRules) -> str:
    regions = find_regions(mask)
    extent = float(regions.major_axis_px.max()) if regions.count else 0.0
    if rules.stage_axis == "feret":
        extent = largest_feret_px(mask)
    return stage_of_extent(extent * pixel_um / 1000, rules, any_object=regions.count > 0)
