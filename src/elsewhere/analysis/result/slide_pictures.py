"""Choose the worst, median and best slides, and draw truth and prediction on them (LN-18).

The contours are those of the cells of about 8 microns on which slides are scored. A whole slide is shown in at most 640
pixels: there a cell of the picture is inside where any of its cells is, so that small lesions stay visible.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.result.detection_pictures import MOST_PLACES, PictureOptions
from elsewhere.analysis.result.inputs import Progress
from elsewhere.analysis.result.pictured_slides import PicturedSlide, PicturedSlides, SlideView
from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions, join_by_id
from elsewhere.scoring.slides.cases import slide_geometries
from elsewhere.scoring.slides.from_masks import CohortSlide, InvalidMaskError
from elsewhere.scoring.slides.masks import SlideMaps, slide_maps
from elsewhere.scoring.task import Scores

LONG_SIDE = 640
MOST_PATH = 60_000
"""Letters of a contour; a longer one is drawn on a coarser grid."""
_GROUPS = ("Lowest Dice", "Median Dice", "Highest Dice", "Most false positives")
_QUALITIES = (82, 70, 55, 40)
_DETAIL = 0.5
_SMALLEST_DETAIL = 64
Mask = npt.NDArray[np.bool_]


def check_slide_pictures(predictions: Predictions, options: PictureOptions) -> None:
    """Refuse before anything is scored what cannot be pictured.

    Args:
        predictions: The predictions.
        options: Which pictures are wanted.

    Raises:
        UserError: The predictions are no masks, or the number of pictures is not possible.
    """
    if "path" not in predictions.table.columns:
        raise UserError(
            "pictures of slides show masks, and the predictions are stages or points",
            where="--pictures",
            fix="Leave --pictures out, or give a folder of masks.",
        )
    if not 1 <= options.count <= MOST_PLACES:
        raise UserError(
            f"{options.count} pictures were asked for",
            where="--picture-count",
            fix=f"Give a number from 1 to {MOST_PLACES}.",
        )


def chosen_slides(cases: pd.DataFrame, count: int) -> list[tuple[str, int]]:
    """Choose the slides that are shown: none twice, and none without a prediction.

    Args:
        cases: The case table.
        count: How many of each group.

    Returns:
        The group and the row of each slide.

    Example:
        >>> cases = pd.DataFrame({"slide_dice": [0.9, 0.1, 0.5], "slide_false_positive_rate": [None, None, None]})
        >>> chosen_slides(cases.assign(status="scored"), 1)
        [('Lowest Dice', 1), ('Median Dice', 2), ('Highest Dice', 0)]
    """
    scored = (cases["status"] == "scored").to_numpy(dtype=bool)
    dice, rate = (
        pd.to_numeric(cases[name], errors="coerce").to_numpy(dtype=float)
        if name in cases.columns
        else np.full(len(cases), np.nan)
        for name in ("slide_dice", "slide_false_positive_rate")
    )
    with_tumour = np.flatnonzero(np.isfinite(dice) & scored)
    order = with_tumour[np.argsort(dice[with_tumour], kind="stable")].tolist()
    middle = sorted(order, key=lambda row: abs(order.index(row) - (len(order) - 1) / 2))
    wrong = np.flatnonzero(scored & ~np.isfinite(dice) & (rate > 0))
    groups = (order, middle, order[::-1], wrong[np.argsort(-rate[wrong], kind="stable")].tolist())
    # With few slides every group gets its share before any has all that it wants.
    picks: dict[str, list[int]] = {name: [] for name in _GROUPS}
    taken: set[int] = set()
    for _ in range(count):
        for name, rows in zip(_GROUPS, groups, strict=True):
            row = next((row for row in rows if row not in taken), None)
            if row is not None and len(picks[name]) < count:
                picks[name].append(int(row))
                taken.add(row)
    return [(name, row) for name in _GROUPS for row in picks[name]]


def picture_slides(
    scores: Scores,
    cohort: Cohort,
    predictions: Predictions,
    options: PictureOptions,
    *,
    normalise_ids: Sequence[str] = (),
    progress: Progress | None = None,
) -> PicturedSlides:
    """Picture the worst, median and best slides, and negative ones with the most false positives.

    Args:
        scores: The scores of the masks.
        cohort: The cohort; its column `slide` names the files.
        predictions: The masks.
        options: How many of each, and the most bytes of the page.
        normalise_ids: Steps that make ids comparable.
        progress: Called to report how many slides are read; None for no report.

    Returns:
        The slides. One that cannot be read has its reason, and its contours without a picture.

    Example:
        Picture two slides of each kind::

            picture_slides(scores, cohort, predictions, PictureOptions(count=2))
    """
    cases = scores.cases
    join = join_by_id(
        cohort.cases["case_id"],
        predictions.table["case_id"],
        normalise=normalise_ids,
        source=predictions.source,
    )
    geometries = slide_geometries(cohort)
    row_of_id = {str(case): row for row, case in enumerate(cohort.cases["case_id"])}
    chosen = chosen_slides(cases, options.count)
    made: list[tuple[PicturedSlide, list[_Drawn]]] = []
    key: dict[str, str] = {}
    for number, (group, row) in enumerate(chosen, start=1):
        case = str(cases["case_id"].iloc[row])
        at = row_of_id[case]
        key[f"slide {number}"] = case
        said = join.row_of_case[at]
        one = CohortSlide(cohort, at, geometries[at])
        prediction = predictions.table.iloc[said] if said >= 0 else None
        shown = PicturedSlide(group=group, title=f"Slide {number}", facts=_facts(cases.iloc[row]))
        try:
            made.append(_picture(shown, one, prediction))
        except (UserError, InvalidMaskError) as error:
            made.append((replace(shown, problem=str(error)), []))
        if progress:
            progress("pictures", number, len(chosen))
    notes = []
    if "slide" not in cohort.cases.columns:
        notes.append("The cohort has no column slide with the slides' files: contours are drawn on white.")
    if not chosen:
        notes.append("No slide has a mask that can be shown.")
    return PicturedSlides(slides=_within(made, options.most_bytes), notes=tuple(notes), key=key)


def _facts(case: pd.Series) -> tuple[str, ...]:
    facts = []
    if pd.notna(case.get("slide_dice")):
        facts.append(f"Dice {case['slide_dice']:.3f}")
    if pd.notna(case.get("slide_false_positive_rate")):
        facts.append(f"false-positive rate {case['slide_false_positive_rate']:.4f}")
    if isinstance(case.get("stage_true"), str):
        facts.append(f"stage {case['stage_true']}")
    if isinstance(case.get("stage_predicted"), str):
        facts.append(f"predicted {case['stage_predicted']}")
    if pd.notna(case.get("n_mask_lesions")) and case["n_mask_lesions"]:
        facts.append(f"{int(case['n_mask_lesions_found'])} of {int(case['n_mask_lesions'])} lesions touched")
    return tuple(facts)


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A view before its picture is encoded."""

    view: SlideView
    pixels: npt.NDArray[np.uint8] | None


def _picture(
    shown: PicturedSlide, one: CohortSlide, prediction: pd.Series | None
) -> tuple[PicturedSlide, list[_Drawn]]:
    with ExitStack() as stack:
        maps = slide_maps(*one.masks(prediction, stack), one.geometry)
    cell_um = maps.cell_px * one.geometry.mpp
    detail = _detail(maps)
    frames = [(0, 0, maps.shape[1], maps.shape[0]), *([detail] if detail else [])]
    views = []
    for name, (x, y, width, height) in zip(("Whole slide", "Detail"), frames, strict=False):
        factor = max(1, math.ceil(max(width, height) / LONG_SIDE))
        parts = [
            "" if mask is None else _contour(mask[y : y + height, x : x + width], factor)
            for mask in (maps.truth, maps.said)
        ]
        views.append(
            SlideView(
                name=name,
                size=(width, height),
                truth=parts[0],
                said=parts[1],
                frame=tuple(float(side) for side in detail) if detail and name == "Whole slide" else None,  # type: ignore[arg-type]
                width_mm=width * cell_um / 1000,
            )
        )
    path = one.file("slide")
    if path is None:
        return shown, [_Drawn(view=view, pixels=None) for view in views]
    try:
        from elsewhere.inputs.slides.opening import open_slide

        with open_slide(path, mpp=one.geometry.mpp) as slide:
            pixels = []
            for view, (x, y, width, height) in zip(views, frames, strict=True):
                del view
                step = max(cell_um * max(width, height) / LONG_SIDE, slide.mpp)
                ends = [round(side * cell_um / step) for side in (x, y, width, height)]
                pixels.append(
                    slide.read_mpp(
                        ends[0], ends[1], max(1, ends[2]), max(1, ends[3]), mpp=step, rule="nearest"
                    )
                )
    except UserError as error:
        return replace(shown, problem=str(error)), [_Drawn(view=view, pixels=None) for view in views]
    return shown, [_Drawn(view=view, pixels=one_) for view, one_ in zip(views, pixels, strict=True)]


def _detail(maps: SlideMaps) -> tuple[int, int, int, int] | None:
    """x, y, width and height around the annotation, or else the prediction; None where that is most of the slide."""
    for mask in (maps.truth, maps.said):
        if mask is not None and mask.any():
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            middle = ((columns[0] + columns[-1]) / 2, (rows[0] + rows[-1]) / 2)
            side = max(1.5 * max(np.ptp(rows) + 1, np.ptp(columns) + 1), _SMALLEST_DETAIL)
            height, width = maps.shape
            if side > _DETAIL * max(width, height):
                return None
            ends = [
                (max(0, math.floor(centre - side / 2)), min(most, math.ceil(centre + side / 2)))
                for centre, most in zip(middle, (width, height), strict=True)
            ]
            return ends[0][0], ends[1][0], ends[0][1] - ends[0][0], ends[1][1] - ends[1][0]
    return None


def _contour(mask: Mask, factor: int) -> str:
    """The borders of a mask as an SVG path, in its own cells; on a coarser grid where it would be too long."""
    from elsewhere.inputs.slides.annotations import trace_region

    while True:
        rows, columns = (-(-side // factor) for side in mask.shape)
        padded = np.zeros((rows * factor, columns * factor), dtype=bool)
        padded[: mask.shape[0], : mask.shape[1]] = mask
        blocks = np.asarray(padded.reshape(rows, factor, columns, factor).any(axis=(1, 3)), dtype=bool)
        region = trace_region(blocks, step_px=factor)
        path = "".join(
            "M" + "L".join(f"{x:g} {y:g}" for x, y in ring) + "Z"
            for polygon in region.polygons
            for ring in (polygon.ring, *polygon.holes)
        )
        if len(path) <= MOST_PATH or min(rows, columns) <= 8:
            return path
        factor *= 2


def _within(made: Sequence[tuple[PicturedSlide, Sequence[_Drawn]]], most: int) -> tuple[PicturedSlide, ...]:
    """Encode the pictures; where they take too many bytes, coarser until they fit."""
    for quality in _QUALITIES:
        slides = tuple(
            replace(
                one,
                views=tuple(
                    drawn.view
                    if drawn.pixels is None
                    else replace(drawn.view, picture=_jpeg(drawn.pixels, quality))
                    for drawn in views
                ),
            )
            for one, views in made
        )
        if PicturedSlides(slides=slides).bytes <= most:
            break
    return slides


def _jpeg(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
