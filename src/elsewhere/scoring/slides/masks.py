"""One slide's predicted mask against its truth: stage, Dice, false positives and lesions (LN-14, LN-26).

Masks are read in strips. Everything is computed on cells of about 8 microns, or on the masks' own pixels where the
protocol says so and they are finer: then both masks stream side by side, and no whole mask is held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.predictions.slide_masks import SlideGeometry, SlideMask, check_grid
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.boundary import BoundaryDice, boundary_dice
from elsewhere.scoring.slides.mean_map import MeanMap, cell_px, mean_map
from elsewhere.scoring.slides.objects import ObjectStream, SlideObjects, measure_objects
from elsewhere.scoring.slides.regions import stage_of_extent

_ROWS = 512
_MOST_FINE = 64
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class MaskStage:
    """The stage that a mask gives.

    Args:
        stage: negative, itc, micro or macro.
        axis_mm: The longest major axis of any object.
        feret_mm: The largest Feret diameter of any object.
        n_objects: How many objects there are.
    """

    stage: str
    axis_mm: float
    feret_mm: float
    n_objects: int


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Pixels of the prediction and the truth, where they agree and where not.

    Args:
        n_pixels: All pixels of the slide.
        n_tissue: Those of tissue; 0 where tissue is not known.
        true_positive: Tumour in both.
        false_positive: Tumour in the prediction alone.
        false_negative: Tumour in the truth alone.
        false_positive_tissue: False positives on tissue.
    """

    n_pixels: int = 0
    n_tissue: int = 0
    true_positive: int = 0
    false_positive: int = 0
    false_negative: int = 0
    false_positive_tissue: int = 0

    @property
    def has_truth(self) -> bool:
        """Whether the truth has a pixel of tumour."""
        return self.true_positive + self.false_negative > 0

    @property
    def dice(self) -> float:
        """Dice of a slide with tumour; NaN for one without."""
        both = 2 * self.true_positive
        return both / (both + self.false_positive + self.false_negative) if self.has_truth else math.nan

    @property
    def false_positive_rate(self) -> float:
        """The share of all pixels of a slide without tumour that are false positives; NaN for one with tumour."""
        return math.nan if self.has_truth or not self.n_pixels else self.false_positive / self.n_pixels

    @property
    def false_positive_rate_tissue(self) -> float:
        """The same share of the pixels of tissue; NaN where tissue is not known."""
        return math.nan if self.has_truth or not self.n_tissue else self.false_positive_tissue / self.n_tissue


@dataclass(frozen=True, kw_only=True)
class SlideResult:
    """What one predicted mask is worth.

    Args:
        said: The stage of the prediction; None where it is missing.
        truth: The stage of the truth mask; None where there is none.
        overlap: Pixels; None where the truth is not known.
        boundary: Dice near the annotated line and away from it; None without tumour in the truth.
        lesion_mm: The diameter of each object of the truth, by the protocol's axis.
        lesion_share: The share of each that the prediction marks.
        shifted: Overlap counts of the prediction moved by one patch, by direction; empty without tumour.
    """

    said: MaskStage | None
    truth: MaskStage | None
    overlap: Overlap | None
    boundary: BoundaryDice | None
    lesion_mm: npt.NDArray[np.float64]
    lesion_share: npt.NDArray[np.float64]
    shifted: dict[str, tuple[int, int]]


def stage_of_objects(objects: SlideObjects, pixel_um: float, rules: SlideRules) -> MaskStage:
    """Derive the stage from the objects of a mask (LN-14).

    Args:
        objects: The objects.
        pixel_um: Microns per pixel.
        rules: The protocol's rules of slides.

    Returns:
        The stage and the lengths that it follows from.

    Example:
        >>> stage_of_objects(measure_objects(np.ones((1, 100), dtype=bool)), 10.0, SlideRules()).stage
        'micro'
    """
    axis, feret = (px * pixel_um / 1000 for px in (objects.largest_axis_px(), objects.largest_feret_px()))
    extent = feret if rules.stage_axis == "feret" else axis
    return MaskStage(
        stage=stage_of_extent(extent, rules, any_object=objects.count > 0),
        axis_mm=axis,
        feret_mm=feret,
        n_objects=objects.count,
    )


class StageStream:
    """Stages a mask that arrives in strips, on its own pixels and on cells of about 8 microns.

    Args:
        mask: The mask: its size, scale and threshold; its strips are given to `add`.
        geometry: What is known of the slide.
        rules: The protocol's rules of slides.

    Example:
        >>> from pathlib import Path
        >>> mask = SlideMask(path=Path("a"), columns=64, rows=640, step_px=1.0, reader=lambda: iter(()))
        >>> stream = StageStream(mask, SlideGeometry(mpp=0.5), SlideRules())
        >>> stream.add(np.full((640, 64), 255, dtype=np.uint8))
        >>> own, cells = stream.finish()
        >>> own.stage, round(own.axis_mm, 3), cells.stage, round(cells.axis_mm, 3)
        ('micro', 0.37, 'micro', 0.369)
    """

    def __init__(self, mask: SlideMask, geometry: SlideGeometry, rules: SlideRules) -> None:
        self._mask, self._geometry, self._rules = mask, geometry, rules
        self._cell = cell_of(geometry, mask)
        self._objects = ObjectStream(mask.columns, where=str(mask.path))
        self._map = MeanMap(mask, cell=self._cell)

    def add(self, strip: npt.NDArray[np.uint8]) -> None:
        """Take the next rows.

        Args:
            strip: Full rows of values, 0 to 255.
        """
        self._objects.add(self._mask.marked(strip))
        self._map.add(strip)

    def finish(self) -> tuple[MaskStage, MaskStage]:
        """Close the mask.

        Returns:
            The stage on the mask's own pixels, and that on cells.
        """
        mpp, rules = self._geometry.mpp, self._rules
        return (
            stage_of_objects(self._objects.finish(), self._mask.step_px * mpp, rules),
            stage_of_objects(measure_objects(self._map.finish()), self._cell * mpp, rules),
        )


def stream_objects(mask: SlideMask) -> SlideObjects:
    """Measure the objects of a mask at its own pixels, strip by strip.

    Args:
        mask: The mask.

    Returns:
        The objects.
    """
    stream = ObjectStream(mask.columns, where=str(mask.path))
    for strip in mask.strips():
        stream.add(mask.marked(strip))
    return stream.finish()


def measure_slide(
    said: SlideMask | None,
    truth: SlideMask | None,
    geometry: SlideGeometry,
    rules: SlideRules,
    *,
    tissue: SlideMask | None = None,
    is_negative: bool = False,
) -> SlideResult:
    """Compare the predicted mask of a slide with its truth.

    Args:
        said: The prediction; None where it is missing.
        truth: The truth; None where there is no file.
        geometry: What is known of the slide.
        rules: The protocol's rules of slides.
        tissue: Where tissue is; None where it is not known.
        is_negative: Whether the slide is known to hold no tumour, which needs no truth mask.

    Returns:
        What the prediction is worth.

    Raises:
        UserError: A mask is damaged, or does not fit the slide or the other mask.
    """
    for mask in (said, truth, tissue):
        if mask is not None:
            check_grid(mask, geometry, truth if mask is not truth else None)
    cell = cell_of(geometry, said, truth)
    shape = cells_shape(cell, geometry, said, truth)
    cells_um = cell * geometry.mpp
    maps = [None if mask is None else mean_map(mask, cell=cell, shape=shape) for mask in (said, truth)]
    on_tissue = None if tissue is None else nearest_map(tissue, cell, shape)
    said_map, truth_map = maps
    if truth_map is None and is_negative:
        truth_map = np.zeros(shape, dtype=bool)
    own = rules.stage_pixels == "own" and any(
        mask is not None and mask.step_px < cell for mask in (said, truth)
    )
    if own:
        found = _stream_both(said, truth, on_tissue, cell, is_negative)
        fine_um = found.fine_px * geometry.mpp
        said_stage = None
        if said is not None and found.said is not None:
            said_stage = stage_of_objects(found.said, said.step_px * geometry.mpp, rules)
        overlap, lesions = found.overlap, found.truth
    else:
        fine_um = cells_um
        said_stage = (
            None if said_map is None else stage_of_objects(measure_objects(said_map), cells_um, rules)
        )
        overlap = None if truth_map is None else _overlap(said_map, truth_map, on_tissue)
        lesions = None if truth_map is None else measure_objects(truth_map, said_map)
    boundary, shifted = None, {}
    if truth_map is not None and truth_map.any():
        boundary = boundary_dice(said_map, truth_map, tolerance_px=rules.boundary_um / cells_um)
        if said_map is not None:
            shifted = _shifted(said_map, truth_map, cells_um)
    diameters, shares = np.zeros(0), np.zeros(0)
    if lesions is not None:
        lengths = lesions.feret_px if rules.stage_axis == "feret" else lesions.major_axis_px
        diameters, shares = lengths * fine_um / 1000, lesions.marked_px / np.maximum(lesions.area_px, 1)
    return SlideResult(
        said=said_stage,
        truth=None if truth is None or lesions is None else stage_of_objects(lesions, fine_um, rules),
        overlap=overlap,
        boundary=boundary,
        lesion_mm=diameters,
        lesion_share=shares,
        shifted=shifted,
    )


@dataclass(frozen=True, kw_only=True)
class SlideMaps:
    """Both masks of a slide on cells.

    Attributes:
        cell_px: Pixels of level 0 along a cell.
        said: The prediction; None where there is none.
        truth: The truth; None where there is none.
        shape: Rows and columns of cells.
    """

    cell_px: float
    said: Mask | None
    truth: Mask | None
    shape: tuple[int, int]


def slide_maps(said: SlideMask | None, truth: SlideMask | None, geometry: SlideGeometry) -> SlideMaps:
    """Reduce both masks of a slide to cells of about 8 microns.

    Args:
        said: The prediction; None for none.
        truth: The truth; None for none.
        geometry: What is known of the slide.

    Returns:
        The maps.

    Raises:
        UserError: A mask is damaged.

    Example:
        >>> slide_maps(None, None, SlideGeometry(mpp=0.5, size_px=(160, 80))).shape
        (5, 10)
    """
    cell = cell_of(geometry, said, truth)
    shape = cells_shape(cell, geometry, said, truth)
    made = [None if mask is None else mean_map(mask, cell=cell, shape=shape) for mask in (said, truth)]
    return SlideMaps(cell_px=cell, said=made[0], truth=made[1], shape=shape)


_PATCHES_UM = (64.0, 128.0, 256.0)
_WAYS = {
    "to the left": (0, -1), "to the right": (0, 1), "up": (-1, 0), "down": (1, 0),
    "up and to the left": (-1, -1), "up and to the right": (-1, 1),
    "down and to the left": (1, -1), "down and to the right": (1, 1),
}  # fmt: skip


def _shifted(said: Mask, truth: Mask, pixel_um: float) -> dict[str, tuple[int, int]]:
    """True positives, and the pixels of both masks, of the prediction as it is and moved by one patch of usual sizes."""
    both = int(said.sum()) + int(truth.sum())
    made = {"": (int((said & truth).sum()), both)}
    rows, columns = np.nonzero(said)
    for patch_um in _PATCHES_UM:
        patch = max(1, round(patch_um / pixel_um))
        for way, (down, across) in _WAYS.items():
            r, c = rows + down * patch, columns + across * patch
            inside = (r >= 0) & (r < truth.shape[0]) & (c >= 0) & (c < truth.shape[1])
            hits = int(truth[r[inside], c[inside]].sum())
            made[f"{patch_um:g} microns {way}"] = (hits, both)
    return made


def cell_of(geometry: SlideGeometry, *masks: SlideMask | None) -> float:
    """Return the pixels of level 0 along a cell: about 8 microns, or the pixels of the coarsest mask.

    Args:
        geometry: What is known of the slide.
        *masks: The masks that are compared; None for one that is not there.

    Returns:
        The pixels.

    Example:
        >>> cell_of(SlideGeometry(mpp=0.25))
        32.0
    """
    return max(cell_px(geometry.mpp), *(mask.step_px for mask in masks if mask is not None), 1.0)


def cells_shape(cell: float, geometry: SlideGeometry, *masks: SlideMask | None) -> tuple[int, int]:
    """Count the cells over a slide.

    Args:
        cell: Pixels of level 0 along a cell.
        geometry: What is known of the slide.
        *masks: The masks that are compared, whose extent is the slide's where its size is not known.

    Returns:
        Rows and columns of cells.

    Example:
        >>> cells_shape(32.0, SlideGeometry(mpp=0.25, size_px=(640, 330)))
        (11, 20)
    """
    if geometry.size_px is not None:
        width, height = (float(side) for side in geometry.size_px)
    else:
        extents = [mask.extent_px for mask in masks if mask is not None] or [(cell, cell)]
        width, height = (max(sides) for sides in zip(*extents, strict=True))
    return max(1, math.ceil(height / cell - 1e-3)), max(1, math.ceil(width / cell - 1e-3))


def nearest_map(tissue: SlideMask, cell: float, shape: tuple[int, int]) -> Mask:
    """Lay a tissue mask on the cells: the mean where it is finer, the nearest pixel where it is coarser.

    Args:
        tissue: The mask.
        cell: Pixels of level 0 along a cell.
        shape: Rows and columns of cells.

    Returns:
        Where tissue is.
    """
    if tissue.step_px <= cell:
        return mean_map(tissue, cell=cell, shape=shape)
    own = np.concatenate([tissue.marked(strip) for strip in tissue.strips()])
    out = np.zeros(shape, dtype=bool)
    at = [
        np.floor(((np.arange(count) + 0.5) * cell - offset) / tissue.step_px).astype(np.int64)
        for count, offset in zip(shape, tissue.offset_px[::-1], strict=True)
    ]
    good = [(index >= 0) & (index < size) for index, size in zip(at, own.shape, strict=True)]
    out[np.ix_(good[0], good[1])] = own[np.ix_(at[0][good[0]], at[1][good[1]])]
    return out


def _overlap(said: Mask | None, truth: Mask, tissue: Mask | None) -> Overlap:
    predicted = np.zeros_like(truth) if said is None else said
    both = int((predicted & truth).sum())
    false = predicted & ~truth
    return Overlap(
        n_pixels=truth.size,
        n_tissue=0 if tissue is None else int(tissue.sum()),
        true_positive=both,
        false_positive=int(false.sum()),
        false_negative=int(truth.sum()) - both,
        false_positive_tissue=0 if tissue is None else int((false & tissue).sum()),
    )


@dataclass(frozen=True, kw_only=True)
class _Streamed:
    said: SlideObjects | None
    truth: SlideObjects | None
    overlap: Overlap | None
    fine_px: float


def _stream_both(
    said: SlideMask | None, truth: SlideMask | None, tissue: Mask | None, cell: float, is_negative: bool
) -> _Streamed:
    """Walk down both masks side by side on the finer of their grids."""
    there = [mask for mask in (said, truth) if mask is not None]
    fine = min(mask.step_px for mask in there)
    width, height = (max(round(mask.extent_px[axis] / fine) for mask in there) for axis in (0, 1))
    know = truth is not None or is_negative
    lesions = ObjectStream(width, where=str(truth.path)) if truth is not None else None
    objects = ObjectStream(said.columns, where=str(said.path)) if said is not None else None
    streams = [None if mask is None else _on_grid(mask, fine, (height, width)) for mask in (said, truth)]
    counts = np.zeros(5, dtype=np.int64)
    for top in range(0, height, _ROWS):
        rows = min(_ROWS, height - top)
        parts = [np.zeros((rows, width), dtype=bool) if one is None else next(one) for one in streams]
        predicted, true = parts
        if objects is not None and said is not None and said.step_px == fine:
            at = round(said.offset_px[1] / fine)
            left = round(said.offset_px[0] / fine)
            first, last = max(top, at) - top, min(top + rows, at + said.rows) - top
            if last > first:
                objects.add(predicted[first:last, left : left + said.columns])
        if lesions is not None:
            lesions.add(true, predicted)
        if not know:
            continue
        counts[0] += predicted.size
        if predicted.any():
            false = predicted & ~true
            counts[2] += int(np.count_nonzero(false))
            counts[1] += int(np.count_nonzero(predicted)) - int(np.count_nonzero(false))
            if tissue is not None:
                counts[4] += int(
                    np.count_nonzero(false & _tissue_rows(tissue, top, rows, width, fine / cell))
                )
        counts[3] += int(np.count_nonzero(true)) if truth is not None else 0
    overlap = None
    if know:
        n_tissue = 0
        if tissue is not None:
            n_tissue = round(float(tissue.sum()) * (cell / fine) ** 2)
        overlap = Overlap(
            n_pixels=int(counts[0]),
            n_tissue=n_tissue,
            true_positive=int(counts[1]),
            false_positive=int(counts[2]),
            false_negative=int(counts[3] - counts[1]),
            false_positive_tissue=int(counts[4]),
        )
    found = None
    if said is not None and objects is not None:
        found = objects.finish() if said.step_px == fine else stream_objects(said)
    return _Streamed(
        said=found, truth=None if lesions is None else lesions.finish(), overlap=overlap, fine_px=fine
    )


def _tissue_rows(tissue: Mask, top: int, rows: int, width: int, ratio: float) -> Mask:
    """The rows of the finer grid of a tissue map of cells."""
    r = np.minimum((np.arange(top, top + rows) + 0.5) * ratio, tissue.shape[0] - 1).astype(np.int64)
    c = np.minimum((np.arange(width) + 0.5) * ratio, tissue.shape[1] - 1).astype(np.int64)
    return np.asarray(tissue[np.ix_(r, c)])


def _on_grid(mask: SlideMask, fine: float, shape: tuple[int, int]) -> Iterator[Mask]:
    """A mask on a finer grid of the slide, in blocks of 512 rows: each pixel becomes a square of pixels."""
    times = round(mask.step_px / fine)
    left, top = (value / fine for value in mask.offset_px)
    if abs(mask.step_px / fine - times) > 1e-6 or max(abs(left - round(left)), abs(top - round(top))) > 1e-3:
        raise UserError(
            f"pixels of {mask.step_px:g} slide pixels cannot be laid on those of {fine:g}, which the other mask has",
            where=str(mask.path),
            fix="Write both masks at scales of which one is a multiple of the other, or score on cells of 8 microns: "
            "--protocol lymph-nodes.",
        )
    if times > _MOST_FINE:
        raise UserError(
            f"the mask is {times} times coarser than the other one",
            where=str(mask.path),
            fix="Write it finer.",
        )
    height, width = shape
    x = round(left)

    def rows() -> Iterator[Mask]:
        blank = np.zeros((min(_ROWS, height), width), dtype=bool)
        before = round(top)
        while before > 0:
            yield blank[: min(before, _ROWS)]
            before -= min(before, _ROWS)
        for strip in mask.strips():
            marked = mask.marked(strip)
            step = max(1, _ROWS // times)
            for first in range(0, len(marked), step):
                part = marked[first : first + step]
                if times > 1:
                    part = np.repeat(np.repeat(part, times, axis=0), times, axis=1)
                if x == 0 and part.shape[1] == width:
                    yield part
                    continue
                wide = np.zeros((len(part), width), dtype=bool)
                wide[:, x : x + part.shape[1]] = part[:, : width - x]
                yield wide
        while True:
            yield blank

    source = rows()
    rest = next(source)
    for first in range(0, height, _ROWS):
        wanted = min(_ROWS, height - first)
        if len(rest) >= wanted:
            yield rest[:wanted]
            rest = rest[wanted:]
        else:
            block = np.zeros((wanted, width), dtype=bool)
            filled = 0
            while filled < wanted:
                if not len(rest):
                    rest = next(source)
                count = min(len(rest), wanted - filled)
                block[filled : filled + count] = rest[:count]
                filled, rest = filled + count, rest[count:]
            yield block
        if not len(rest) and first + _ROWS < height:
            rest = next(source)
