"""One case at a time: read the truth and the prediction, measure them, and apply the protocol's rules.

Measuring and judging are separate. The case table has what was measured (voxel counts, distances),
so that a saved table can be judged again under another protocol without opening a mask. A NIfTI mask is
packed to bits while it is unpacked, so that there are never more than two masks of bits per thread in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows
from elsewhere.protocols import SegmentationRules
from elsewhere.scoring.segmentation.hausdorff import PairMeasures, measure_packed, measure_pair
from elsewhere.scoring.segmentation.surface import PackedMask, pack_pieces
from elsewhere.statistics.bootstrap_weights import thread_count

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions.mask_file import Grid, Mask
    from elsewhere.scoring.task import Progress

MM_COLUMNS = ("hausdorff_mm", "hausdorff95_mm", "average_surface_distance_mm")
COUNT_COLUMNS = ("n_truth_voxels", "n_prediction_voxels", "n_both_voxels")
COMPONENT_COLUMNS = ("n_truth_components", "n_found_components", "n_prediction_components")
FALSE_COMPONENTS = "false_components_per_case"
CONTOUR = "contour95_voxels"
MEASURED = (
    *COUNT_COLUMNS,
    "dice",
    *MM_COLUMNS,
    "surface_dice_1mm",
    CONTOUR,
    "volume_truth_ml",
    "volume_prediction_ml",
    *COMPONENT_COLUMNS,
    FALSE_COMPONENTS,
)
BOTH_EMPTY = "both masks are empty"
WORST = ("missing", "invalid", "not_analysable")
_SPACING_COLUMNS = ("spacing_slice_mm", "spacing_row_mm", "spacing_column_mm")


def truth_paths(cohort: Cohort) -> list[Path]:
    """List the path of the truth mask of every case.

    Args:
        cohort: The cohort, whose column `mask` has paths relative to the cohort.

    Returns:
        One path per case, in the order of the cohort.

    Raises:
        UserError: There is no such column, or a case has no mask.
    """
    if "mask" not in cohort.cases.columns:
        raise UserError(
            "the cohort has no column 'mask'",
            where=str(cohort.root) if cohort.root else "the cohort",
            fix="Add a column `mask` with the path of each case's truth mask, relative to the cohort.",
        )
    values = cohort.cases["mask"].astype("string").fillna("").str.strip()
    empty = (values == "").to_numpy(dtype=bool)
    if empty.any():
        raise UserError(
            f"{int(empty.sum())} of {len(values)} cases have no truth mask",
            where=f"the cohort, rows {name_rows((np.flatnonzero(empty) + 1).tolist())}",
            fix="Name the mask of each case (an empty mask where there is no tumour), or leave the case out.",
        )
    root = cohort.root or Path()
    return [root / str(value) for value in values]


def cohort_spacing(cohort: Cohort) -> npt.NDArray[np.float64]:
    """Read the voxel spacing that the cohort states, for pictures, which have none themselves.

    Args:
        cohort: The cohort, with `spacing_slice_mm`, `spacing_row_mm` and `spacing_column_mm` where known.

    Returns:
        (cases, 3) in mm, in the order slice, row, column; NaN where not given.

    Raises:
        UserError: A cell is no number.
    """
    from elsewhere.tables import to_number

    out = np.full((len(cohort.cases), 3), np.nan)
    for axis, name in enumerate(_SPACING_COLUMNS):
        if name in cohort.cases.columns:
            numbers = to_number(cohort.cases[name], column=name, where="the cohort")
            out[:, axis] = numbers.to_numpy(dtype=np.float64)
    out[~(out > 0)] = np.nan
    return out


def _spacing(truth: Mask | Grid, given: npt.NDArray[np.float64]) -> tuple[float, ...] | None:
    if truth.spacing_mm is not None:
        return truth.spacing_mm
    wanted = given[-len(truth.shape) :]
    return tuple(float(v) for v in wanted) if np.isfinite(wanted).all() else None


def _row(measured: PairMeasures, *, answered: bool) -> dict[str, float]:
    """Return the measured columns of a case; without a usable mask, those that need only the truth."""
    undefined = float("nan")
    components = measured.components
    return {
        "n_truth_voxels": measured.n_truth,
        "n_prediction_voxels": measured.n_prediction if answered else undefined,
        "n_both_voxels": measured.n_both if answered else undefined,
        "dice": measured.dice if answered else undefined,
        "hausdorff_mm": measured.hausdorff_mm,
        "hausdorff95_mm": measured.hausdorff95_mm,
        "average_surface_distance_mm": measured.average_surface_distance_mm,
        "surface_dice_1mm": measured.surface_dice_1mm,
        CONTOUR: measured.contour95_voxels,
        "volume_truth_ml": measured.volume_truth_ml,
        "volume_prediction_ml": measured.volume_prediction_ml if answered else undefined,
        "n_truth_components": components.truth,
        "n_found_components": components.found,
        "n_prediction_components": components.prediction if answered else undefined,
        FALSE_COMPONENTS: components.false_components if answered else undefined,
    }


@dataclass(frozen=True)
class OpenPair:
    """A truth mask and its prediction, read and on one grid.

    Args:
        truth: The grid of the truth.
        voxels: The voxels of the truth, packed or as an array.
        answer: The voxels of the prediction; None where there is no usable one.
        status: 'scored', 'missing' or 'invalid'.
        reason: Why the prediction is invalid; else empty.
        packed: Whether the voxels are `PackedMask`s.
    """

    truth: Mask | Grid
    voxels: Any
    answer: Any
    status: str
    reason: str
    packed: bool


def open_pair(truth_path: Path, prediction_path: Path | None, *, on_invalid: str) -> OpenPair:
    """Read both masks of a case. A bad truth is always an error.

    Args:
        truth_path: The truth mask.
        prediction_path: The predicted mask; None where it is missing.
        on_invalid: What a bad prediction does: 'error' stops, 'worst' makes it invalid.

    Returns:
        Both masks.

    Raises:
        UserError: The truth cannot be read, or the prediction cannot be read or has another grid and
            `on_invalid` is not 'worst'.
    """
    from elsewhere.predictions.mask_file import check_same_grid, is_nifti, read_mask, stream_mask

    packed = is_nifti(truth_path) and (prediction_path is None or is_nifti(prediction_path))

    def read(path: Path) -> tuple[Mask | Grid, Any]:
        if packed:
            return stream_mask(path, pack_pieces)
        mask = read_mask(path)
        return mask, mask.array

    try:
        truth, voxels = read(truth_path)
    except UserError as error:
        raise UserError(f"truth mask: {error.what}", where=error.where, fix=error.fix) from error
    status, reason, answer = "missing", "", None
    if prediction_path is not None:
        try:
            prediction, answer = read(prediction_path)
            check_same_grid(prediction, truth)
            status = "scored"
        except UserError as error:
            if on_invalid != "worst":
                raise
            status, reason, answer = "invalid", error.what, None
    return OpenPair(truth, voxels, answer, status, reason, packed)


def _measure_case(
    truth_path: Path, prediction_path: Path | None, given_spacing: npt.NDArray[np.float64], *, on_invalid: str
) -> tuple[dict[str, float], str, str]:
    """Return the measured columns, the status and the reason of a case."""
    pair = open_pair(truth_path, prediction_path, on_invalid=on_invalid)
    spacing = _spacing(pair.truth, given_spacing)
    if pair.packed:
        measured = _measure_packed(pair.voxels, pair.answer, spacing, volume=len(pair.truth.shape) == 3)
    else:
        measured = _measure_arrays(pair.voxels, pair.answer, spacing)
    return _row(measured, answered=pair.answer is not None), pair.status, pair.reason


def _measure_packed(
    truth: PackedMask, answer: PackedMask | None, spacing: tuple[float, ...] | None, *, volume: bool
) -> PairMeasures:
    other = answer if answer is not None else truth.emptied()
    turned: tuple[float, float, float] | None = None
    if spacing is not None:
        x, y, z = (*spacing, *(1.0,) * (3 - len(spacing)))
        turned = (z, y, x)
    return measure_packed(truth, other, turned, volume=volume, contour=answer is not None)


def _measure_arrays(
    truth: npt.NDArray[np.uint8], answer: npt.NDArray[np.uint8] | None, spacing: tuple[float, ...] | None
) -> PairMeasures:
    if answer is None:
        return measure_pair(truth, np.zeros_like(truth), spacing)
    if truth.flags.f_contiguous != answer.flags.f_contiguous:
        answer = np.asarray(answer, order="F" if truth.flags.f_contiguous else "C")
    return measure_pair(truth, answer, spacing, contour=True)


def measure_cases(
    truths: Sequence[Path],
    predictions: Sequence[Path | None],
    spacing: npt.NDArray[np.float64],
    *,
    on_invalid: str = "error",
    threads: int | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Measure every case, in a pool of threads (unpacking and measuring both release the interpreter).

    Args:
        truths: The truth mask of each case.
        predictions: The predicted mask of each case; None where it is missing.
        spacing: Spacing of each case in mm, (cases, 3); only used for masks without a spacing of their own.
        on_invalid: What a bad prediction does: 'error' stops, 'worst' makes it invalid.
        threads: How many threads; None for all processors.
        progress: Called with the number of cases that are done, and of all.

    Returns:
        One row per case with the columns `MEASURED`, the status and the reason.

    Raises:
        UserError: A mask cannot be used, unless it is a prediction and `on_invalid` is 'worst'.
    """
    n = len(truths)
    rows: list[tuple[dict[str, float], str, str] | None] = [None] * n
    stop = threading.Event()

    def work(i: int) -> int:
        if not stop.is_set():
            rows[i] = _measure_case(truths[i], predictions[i], spacing[i], on_invalid=on_invalid)
        return i

    pool = ThreadPoolExecutor(min(thread_count(threads), max(1, n)))
    try:
        futures = [pool.submit(work, i) for i in range(n)]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if progress:
                progress(done, n)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
    kept = [row for row in rows if row is not None]
    table = pd.DataFrame([row for row, _, _ in kept], columns=list(MEASURED), dtype="float64")
    table["status"] = pd.array([status for _, status, _ in kept], dtype="string")
    table["reason"] = pd.array([reason for _, _, reason in kept], dtype="string")
    return table


def check_cases(
    tasks: Sequence[Callable[[], str | None]], *, threads: int | None = None, progress: Progress | None = None
) -> tuple[list[UserError], list[str]]:
    """Open files in a pool of threads.

    Args:
        tasks: Functions that open the files of one case each; they return the reason of a mask that is scored
            worst, or None, and raise `UserError` where scoring would stop.
        threads: How many threads; None for all processors.
        progress: Called with the number of cases that are done, and of all.

    Returns:
        Every error, in the order of the cases, and every reason.
    """

    def work(task: Callable[[], str | None]) -> UserError | str | None:
        try:
            return task()
        except UserError as error:
            return error

    errors: list[UserError] = []
    reasons: list[str] = []
    with ThreadPoolExecutor(min(thread_count(threads), max(1, len(tasks)))) as pool:
        for done, found in enumerate(pool.map(work, tasks), start=1):
            if isinstance(found, UserError):
                errors.append(found)
            elif found:
                reasons.append(found)
            if progress:
                progress(done, len(tasks))
    return errors, reasons


def judge(table: pd.DataFrame, rules: SegmentationRules) -> pd.DataFrame:
    """Apply the protocol's rules for empty, missing and far masks to measured columns (MRI-03, protocols.md).

    A table that was judged before gives the same result again.

    Args:
        table: One row per case, with `status`, `n_truth_voxels`, `n_prediction_voxels` and measured columns.
        rules: The protocol's rules of segmentation.

    Returns:
        The table with judged columns, and with `norm_hd`, `status` and `reason`.
    """
    out = table.copy()
    status = out["status"].to_numpy(dtype=object).copy()
    worst = np.isin(status, WORST)
    no_truth = out["n_truth_voxels"].to_numpy(dtype=np.float64) == 0
    no_prediction = out["n_prediction_voxels"].to_numpy(dtype=np.float64) == 0
    one_empty = ~worst & (no_truth != no_prediction)
    both_empty = ~worst & no_truth & no_prediction
    column: dict[str, npt.NDArray[np.float64]] = {
        name: out[name].to_numpy(dtype=np.float64).copy()
        for name in ("dice", *MM_COLUMNS, "surface_dice_1mm")
        if name in out.columns
    }
    column["norm_hd"] = norm_hd(out, rules)
    bad = worst | one_empty
    for name in MM_COLUMNS:
        if name in column:
            column[name][bad] = rules.empty_distance_mm
    if "surface_dice_1mm" in column:
        column["surface_dice_1mm"][bad] = 0.0
    column["dice"][worst], column["norm_hd"][worst] = 0.0, 1.0
    column["dice"][one_empty], column["norm_hd"][one_empty] = rules.one_empty
    if rules.both_empty == "undefined":
        for values in column.values():
            values[both_empty] = np.nan
        status[both_empty] = "undefined"
    else:
        column["dice"][both_empty], column["norm_hd"][both_empty] = rules.both_empty
        for name in MM_COLUMNS:
            if name in column:
                column[name][both_empty] = rules.both_empty[1] * rules.empty_distance_mm
        if "surface_dice_1mm" in column:
            column["surface_dice_1mm"][both_empty] = np.nan
        status[both_empty] = "scored"
    for name, values in column.items():
        out[name] = values
    out["status"] = pd.array(status, dtype="string")
    reason: Any = (
        out["reason"].astype("string").fillna("")
        if "reason" in out.columns
        else pd.Series("", index=out.index)
    )
    reason = reason.to_numpy(dtype=object).copy()
    reason[both_empty] = BOTH_EMPTY
    out["reason"] = pd.array(reason, dtype="string")
    return out


def norm_hd(table: pd.DataFrame, rules: SegmentationRules) -> npt.NDArray[np.float64]:
    """Compute the normalised distance of the protocol, before its rules for empty masks.

    `mamamia-code`: a mask without a contour (it fills the volume) has NormHD 1 against one that has.

    Args:
        table: One row per case, with the distance that the rules name.
        rules: The protocol's rules of segmentation.

    Returns:
        One value per case; NaN where the distance was not measured.

    Example:
        >>> norm_hd(pd.DataFrame({"hausdorff_mm": [15.0, 300.0]}), SegmentationRules()).tolist()
        [0.1, 1.0]
    """
    if rules.distance == "hausdorff_mm":
        values = table["hausdorff_mm"].to_numpy(dtype=np.float64) / rules.normaliser
    else:
        values = table[CONTOUR].to_numpy(dtype=np.float64) / rules.normaliser
        values = np.where(np.isnan(values), 1.0, values)
    return np.minimum(values, 1.0) if rules.cut_to_one else values


def image_files(cohort: Cohort) -> dict[str, Path]:
    """Find the image of each case whose grid can be read.

    Args:
        cohort: The cohort, whose column image has a file of a known ending, or a folder of NIfTI phases.

    Returns:
        The file by the case's id; of a folder, its first phase.
    """
    from elsewhere.predictions.mask_file import is_nifti, mask_ending

    found: dict[str, Path] = {}
    if "image" not in cohort.cases.columns:
        return found
    for case, name in cohort.cases[["case_id", "image"]].astype("string").itertuples(index=False):
        if pd.isna(name) or not str(name).strip():
            continue
        file = cohort.file(str(name))
        if file.is_dir():
            phases = sorted(child for child in file.iterdir() if is_nifti(child))
            file = phases[0] if phases else file
        if mask_ending(file) is not None and file.is_file():
            found[str(case)] = file
    return found
