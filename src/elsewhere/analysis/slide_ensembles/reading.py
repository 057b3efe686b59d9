"""The votes of one slide and fold, read from the members' masks in one pass; a part of the run that can be kept (LN-16).

Each mask is read once, in strips, and reduced to cells of about 8 microns as slides are scored (LN-14). What stays is the
list of cells that some model or the truth calls tumour. A run writes it to a part per slide and fold, so that a run that
was stopped resumes, and every ensemble, chosen or random, is counted from the parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere._version import __version__
from elsewhere.cohort import Cohort
from elsewhere.ensembles.cell_votes import CellVotes, sparse_votes
from elsewhere.errors import UserError
from elsewhere.files import replacing
from elsewhere.predictions.slide_masks import (
    MaskReading,
    SlideGeometry,
    SlideMask,
    check_grid,
    open_slide_mask,
)
from elsewhere.predictions.slides import MASK_COLUMNS, mask_reading
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.cases import truth_file, truth_reading
from elsewhere.scoring.slides.masks import cell_of, cells_shape, nearest_map, stage_of_objects
from elsewhere.scoring.slides.mean_map import MeanMap, mean_map
from elsewhere.scoring.slides.objects import measure_objects

FORMAT = 1
PATCH_UM = 128.0
_ARRAYS = ("rows", "columns", "words", "present", "sum_dice", "sum_fpr")
_WHOLE = 255
Mask = npt.NDArray[np.bool_]


class InvalidMemberError(Exception):
    """A member's mask that cannot be used.

    Args:
        model: The model.
        error: Why.
    """

    def __init__(self, model: str, error: UserError) -> None:
        super().__init__(str(error))
        self.model, self.error = model, error


@dataclass(frozen=True, kw_only=True)
class SlideTruth:
    """What is known of a slide.

    Attributes:
        case: Its id.
        stage: Its stage in the cohort; None where the cohort has none.
        geometry: Its scale and size.
        mask: The file of the truth; None where there is none.
        reading: What the cohort states of that file.
        tissue: The file of the tissue; None where there is none.
    """

    case: str
    stage: str | None
    geometry: SlideGeometry
    mask: Path | None
    reading: MaskReading
    tissue: Path | None

    @property
    def against(self) -> bool:
        """Whether a model without a mask counts as calling everything tumour: the worst answer for such a slide."""
        return self.stage in ("negative", "itc")


def slide_truths(
    cohort: Cohort, stages: Sequence[str | None], geometries: Sequence[SlideGeometry]
) -> list[SlideTruth]:
    """List what the cohort knows of each slide.

    Args:
        cohort: The cohort, with `mask` and `tissue_mask` where there are any.
        stages: The stage of each slide.
        geometries: The geometry of each slide.

    Returns:
        One per slide.
    """

    def file(column: str, i: int) -> Path | None:
        if column not in cohort.cases.columns:
            return None
        value = cohort.cases[column].iloc[i]
        return truth_file(cohort, value) if isinstance(value, str) and value else None

    return [
        SlideTruth(
            case=str(case),
            stage=stages[i],
            geometry=geometries[i],
            mask=file("mask", i),
            reading=truth_reading(cohort, i),
            tissue=file("tissue_mask", i),
        )
        for i, case in enumerate(cohort.cases["case_id"])
    ]


@dataclass(frozen=True, kw_only=True)
class SlideVotes:
    """The votes of the models of one fold on one slide.

    Attributes:
        votes: The votes on the cells.
        known: Whether the truth is known on the cells.
        truth_stage: The stage that the truth mask gives; None where there is none.
        n_tumour: Patches with tumour.
        n_normal: Patches without.
        sum_dice: The sum of Dice over the former, by model.
        sum_fpr: The sum of false-positive rates over the latter, by model.
        invalid: Why the mask of a model could not be used, by model.
        graded: Whether a mask held other values than tumour and none, as probabilities do.
    """

    votes: CellVotes
    known: bool
    truth_stage: str | None
    n_tumour: int
    n_normal: int
    sum_dice: npt.NDArray[np.float64]
    sum_fpr: npt.NDArray[np.float64]
    invalid: Mapping[str, str]
    graded: bool


def read_votes(
    slide: SlideTruth,
    models: Sequence[str],
    rows: Mapping[str, pd.Series],
    *,
    levels: bool,
    worst: bool,
) -> SlideVotes:
    """Read the masks of one fold of one slide, each once and in strips.

    Args:
        slide: The slide.
        models: All models.
        rows: The row of each model that has a mask.
        levels: Whether the means of probabilities are kept, which a vote of mean probabilities needs.
        worst: Whether a mask that cannot be used counts as a missing one, in place of ending the run.

    Returns:
        The votes.

    Raises:
        UserError: The truth cannot be read.
        InvalidMemberError: A mask cannot be used, and is not to count as missing.
    """
    invalid: dict[str, str] = {}

    def lost(model: str, error: UserError) -> None:
        if not worst:
            raise InvalidMemberError(model, error) from error
        invalid[model] = error.what

    with ExitStack() as stack:
        truth = _opened(slide.mask, slide, stack, reading=slide.reading)
        tissue = _opened(slide.tissue, slide, stack)
        opened: dict[str, SlideMask] = {}
        for model, row in rows.items():
            try:
                mask = stack.enter_context(
                    open_slide_mask(str(row["path"]), slide.geometry, reading=mask_reading(row), like=truth)
                )
                check_grid(mask, slide.geometry, truth)
                opened[model] = mask
            except UserError as error:
                lost(model, error)
        cell = cell_of(slide.geometry, truth, *opened.values())
        shape = cells_shape(cell, slide.geometry, truth, *opened.values())
        known = truth is not None or slide.stage == "negative"
        truth_map = None if truth is None else mean_map(truth, cell=cell, shape=shape)
        stage = None
        if truth_map is not None:
            found = measure_objects(truth_map)
            stage = stage_of_objects(found, cell * slide.geometry.mpp, SlideRules()).stage
            slide = slide if slide.stage is not None else replace(slide, stage=stage)
        on_tissue = None if tissue is None else nearest_map(tissue, cell, shape)
        words = np.zeros(shape, dtype=np.uint64)
        means: list[npt.NDArray[np.uint16] | None] = [None] * len(models)
        graded, limits = False, set()
        for m, model in enumerate(models):
            if model not in opened:
                continue
            try:
                made, grey = _reduced(opened[model], cell, shape)
            except UserError as error:
                del opened[model]
                lost(model, error)
                continue
            words |= made.finish().astype(np.uint64) << np.uint64(m)
            graded |= grey
            limits.add(opened[model].tumour_above)
            if levels:
                means[m] = made.means()
        if levels and len(limits) > 1:
            raise UserError(
                f"the masks of slide {slide.case} have several thresholds, and a mean probability needs one",
                fix="Give the same `threshold` for all members, or --rule strict.",
            )
    pixel_um = cell * slide.geometry.mpp
    votes = sparse_votes(
        words,
        truth=truth_map,
        tissue=on_tissue,
        cell_um=pixel_um,
        present=np.array([model in opened for model in models]),
        against=slide.against,
        means=means if levels else None,
        limit=256.0 * max(limits, default=127.5),
    )
    patch = max(1, round(PATCH_UM / pixel_um))
    sums = votes.patch_sums(patch=patch, tissue_of_patch=_by_patch(on_tissue, patch))
    return SlideVotes(
        votes=votes,
        known=known,
        truth_stage=stage,
        n_tumour=sums.n_tumour if known else 0,
        n_normal=sums.n_normal if known else 0,
        sum_dice=sums.sum_dice,
        sum_fpr=sums.sum_fpr,
        invalid=invalid,
        graded=graded,
    )


def _opened(
    path: Path | None, slide: SlideTruth, stack: ExitStack, *, reading: MaskReading | None = None
) -> SlideMask | None:
    if path is None:
        return None
    mask = stack.enter_context(open_slide_mask(path, slide.geometry, reading=reading))
    check_grid(mask, slide.geometry)
    return mask


def _reduced(mask: SlideMask, cell: float, shape: tuple[int, int]) -> tuple[MeanMap, bool]:
    """The mask on cells, and whether it holds other values than 0 and 255."""
    made, grey = MeanMap(mask, cell=cell, shape=shape), False
    for strip in mask.strips():
        made.add(strip)
        if not grey:
            grey = bool(((strip > 0) & (strip < _WHOLE)).any())
    return made, grey


def _by_patch(tissue: Mask | None, patch: int) -> npt.NDArray[np.int64] | None:
    """Cells of tissue of each patch, row by row."""
    if tissue is None:
        return None
    down, across = (np.arange(0, side, patch) for side in tissue.shape)
    rows = np.add.reduceat(tissue.astype(np.int64), down, axis=0)
    return np.asarray(np.add.reduceat(rows, across, axis=1).ravel())


def part_key(
    slide: SlideTruth, fold: str, models: Sequence[str], rows: Mapping[str, pd.Series], *, levels: bool
) -> str:
    """Name the part of a slide and fold by all that its votes follow from.

    Files are told apart by path, size and time of change, so that a run that resumes does not read them.

    Args:
        slide: The slide.
        fold: The fold.
        models: All models.
        rows: The row of each model that has a mask.
        levels: Whether the means of probabilities are kept.

    Returns:
        A digest.
    """
    stated = {
        model: [
            _state(Path(row["path"])),
            [
                float(row[name]) if name in row.index and pd.notna(row[name]) else None
                for name in MASK_COLUMNS
            ],
        ]
        for model, row in rows.items()
    }
    content = [
        FORMAT, __version__, slide.case, slide.stage, asdict(slide.geometry), asdict(slide.reading), _state(slide.mask),
        _state(slide.tissue), fold, list(models), stated, levels,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _state(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return [str(path)]
    return [str(path.absolute()), found.st_size, found.st_mtime_ns]


def write_part(made: SlideVotes, path: Path) -> None:
    """Write the votes of a slide and fold: whole or not at all.

    Args:
        made: The votes.
        path: The file, a .npz.
    """
    votes = made.votes
    about = {
        "shape": list(votes.shape), "cell_um": votes.cell_um, "n_tissue": votes.n_tissue, "against": votes.against,
        "limit": votes.limit, "known": made.known, "truth_stage": made.truth_stage, "n_tumour": made.n_tumour,
        "n_normal": made.n_normal, "invalid": dict(made.invalid), "graded": made.graded,
    }  # fmt: skip
    arrays: dict[str, Any] = {name: getattr(votes, name) for name in _ARRAYS[:4]}
    arrays |= {"sum_dice": made.sum_dice, "sum_fpr": made.sum_fpr}
    if votes.levels is not None:
        arrays["levels"] = votes.levels
    with replacing(path) as temporary, Path(temporary).open("wb") as file:
        np.savez_compressed(file, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)


def read_part(path: Path) -> SlideVotes | None:
    """Read the votes that an earlier run kept.

    Args:
        path: The file.

    Returns:
        The votes; None where there is no such file, or it is damaged.
    """
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]))
            arrays = {name: file[name] for name in _ARRAYS}
            levels = file["levels"] if "levels" in file.files else None
        rows, columns, words = arrays["rows"], arrays["columns"], arrays["words"]
        shape = (int(about["shape"][0]), int(about["shape"][1]))
        flat = rows.astype(np.int64) * shape[1] + columns
        sound = rows.size == columns.size == words.size and (
            not flat.size
            or (flat[0] >= 0 and flat[-1] < shape[0] * shape[1] and bool((np.diff(flat) > 0).all()))
        )
        if not sound or words.dtype != np.uint64 or (levels is not None and levels.shape[1] != words.size):
            return None
        votes = CellVotes(
            shape=shape,
            cell_um=float(about["cell_um"]),
            rows=rows.astype(np.int32, copy=False),
            columns=columns.astype(np.int32, copy=False),
            words=words,
            present=arrays["present"].astype(bool),
            n_tissue=int(about["n_tissue"]),
            against=bool(about["against"]),
            levels=levels,
            limit=float(about["limit"]),
        )
        return SlideVotes(
            votes=votes,
            known=bool(about["known"]),
            truth_stage=about["truth_stage"],
            n_tumour=int(about["n_tumour"]),
            n_normal=int(about["n_normal"]),
            sum_dice=arrays["sum_dice"],
            sum_fpr=arrays["sum_fpr"],
            invalid=about["invalid"],
            graded=bool(about["graded"]),
        )
    except Exception:  # noqa: BLE001 - a part that was damaged in any way is made again
        return None
