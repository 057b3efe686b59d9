"""Detection on all slices of a volume, in batches of tiles that cover the breast (DBT-12).

Boxes come back in pixels of the whole volume, mirrored back where the breast was mirrored. A one-stage detector can also be
asked for what all of its anchors say: reduced on the device to the best slice of each anchor (NYU B-Team), or to the
averages over the halves of the volume (Buda 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from elsewhere.boxes import Boxes, OverlapRule, suppress
from elsewhere.boxes.best_slice import BestSliceOptions
from elsewhere.boxes.halves import boxes_of_parts, part_bounds
from elsewhere.boxes.tiles import TileOptions, cover_with_tiles, join_tiles
from elsewhere.boxes.volume_suppression import searched_slices
from elsewhere.errors import TrainingError
from elsewhere.networks.detectors.base import DetectOptions, Detector, Found
from elsewhere.networks.detectors.one_stage import Dense, DenseDetector
from elsewhere.networks.detectors.slice_classifier import SliceClassifier
from elsewhere.training.cuda import mixed_precision
from elsewhere.training.detection.device_slices import DeviceSlices, StorageSettings, as_the_device_reads
from elsewhere.training.detection.views import VolumeView

_COARSE, _COARSE_FROM = 128, 256
"""Whole breasts are padded to multiples of the first where they are larger than the second, in the detector's pixels."""


@dataclass(frozen=True, kw_only=True)
class InferenceOptions:
    """How a detector goes over a volume.

    Args:
        tiles: The tiles that cover the breast, in the detector's pixels; None: the whole breast at once.
        batch: Tiles at once.
        skipped: How many slices at each end are not looked at (VICOROB: 4).
        detect: Which boxes a tile returns.
        neighbours: The channels are the slice before, the slice and the one after.
        storage: How large the detector's pixels are, and whether right breasts are mirrored.
    """

    tiles: TileOptions | None = field(default_factory=TileOptions)
    batch: int = 8
    skipped: int = 0
    detect: DetectOptions = field(default_factory=DetectOptions)
    neighbours: bool = True
    storage: StorageSettings = field(default_factory=StorageSettings)


def predict_volume(model: Detector, view: VolumeView, case: str, options: InferenceOptions) -> Boxes:
    """Find boxes on all slices of a volume.

    Args:
        model: The detector, on its device.
        view: The volumes.
        case: The case.
        options: See `InferenceOptions`.

    Returns:
        Boxes on slices, in pixels of the volume. The ways of `elsewhere.boxes` make boxes of the volume of them.

    Raises:
        TrainingError: The device has too little memory for a batch.
    """
    stored, slices = store_volume(model, view, case, options)
    return detect_slices(model, stored, [(case, z) for z in slices], options)[0]


def store_volume(
    model: torch.nn.Module, view: VolumeView, case: str, options: InferenceOptions
) -> tuple[DeviceSlices, range]:
    """Put a volume on the device of a network.

    Args:
        model: The network.
        view: The volumes.
        case: The case.
        options: See `InferenceOptions`.

    Returns:
        The stored slices, and which of them are looked at.
    """
    device = next(model.parameters()).device
    slices = searched_slices(view.shape(case)[2], options.skipped)
    wanted = [(case, z) for z in slices]
    return DeviceSlices(view, wanted, options.storage, device, neighbours=options.neighbours), slices


def detect_slices(
    model: Detector, stored: DeviceSlices, slices: Sequence[tuple[str, int]], options: InferenceOptions
) -> list[Boxes]:
    """Find boxes on some slices.

    Args:
        model: The detector.
        stored: The slices' pixels.
        slices: Case and position of each slice.
        options: See `InferenceOptions`.

    Returns:
        The boxes of each case, in pixels of its volume, in the order in which the cases first come.

    Raises:
        TrainingError: The device has too little memory for a batch.
    """
    by_case: dict[str, list[int]] = {}
    for case, z in slices:
        by_case.setdefault(case, []).append(int(z))
    model.eval()
    found = []
    for case, positions in by_case.items():
        tiles = _tiles(stored, case, model.multiple, options)
        boxes = []
        for tile in tiles:
            parts = list(_run(model, stored, case, positions, tile, options))
            box = torch.cat([part.box for part in parts]).cpu().numpy()
            score = torch.cat([part.score for part in parts]).cpu().numpy()
            boxes.append(_on_slices(box, score, positions).moved(*tile[:2].tolist()))
        joined = join_tiles(boxes, tiles, options.tiles) if len(tiles) > 1 else boxes[0]
        found.append(_to_volume(joined, stored, case))
    return found


def _tiles(stored: DeviceSlices, case: str, multiple: int, options: InferenceOptions) -> np.ndarray:
    """(n, 4) tiles in the detector's pixels."""
    rows, columns = (math.ceil(size / stored.zoom(case)) for size in stored.size(case))
    if options.tiles is None:
        height, width = (_padded(size, multiple) for size in (rows, columns))
        return np.array([[0, 0, width, height]])
    return cover_with_tiles((0, 0, columns, rows), options.tiles)


def _padded(size: int, multiple: int) -> int:
    """A size that few volumes have to themselves: a GPU plans its convolutions anew for every new size, which takes
    longer than a volume's own passes."""
    step = multiple if size <= _COARSE_FROM else math.lcm(multiple, _COARSE)
    return math.ceil(size / step) * step


@torch.no_grad()
def _run(
    model: Detector,
    stored: DeviceSlices,
    case: str,
    positions: Sequence[int],
    tile: np.ndarray,
    options: InferenceOptions,
) -> Iterator[Found]:
    for pictures, count in _batches(stored, case, positions, tile, options.batch):
        with _memory(options.batch), mixed_precision(pictures.device):
            found = model.detect(pictures, options.detect)
        yield Found(box=found.box[:count], score=found.score[:count])


class _memory:  # noqa: N801
    """Turns 'out of memory' into an error that says what to do."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            raise TrainingError(
                f"the device has too little memory for {self.batch} tiles at once",
                fix=f"Set batch = {max(1, self.batch // 2)}.",
            ) from error


def _batches(
    stored: DeviceSlices, case: str, positions: Sequence[int], tile: np.ndarray, batch: int
) -> Iterator[tuple[torch.Tensor, int]]:
    """The pictures of one tile on all slices, and how many of each batch count."""
    zoom = stored.zoom(case)
    x, y = tile[:2] * zoom
    matrix = torch.tensor([[[zoom, 0.0, x], [0.0, zoom, y]]], dtype=torch.float32)
    rows = torch.from_numpy(stored.rows([(case, z) for z in positions]))
    height, width = int(tile[3] - tile[1]), int(tile[2] - tile[0])
    for part, count in split_rows(rows, batch, full=needs_full_batches(stored.device)):
        tiles = stored.tiles(part, matrix.expand(len(part), 2, 3), height, width)
        yield as_the_device_reads(tiles), count


def needs_full_batches(device: torch.device) -> bool:
    """Tell whether a device is slow with batches of many different sizes.

    Args:
        device: The device.

    Returns:
        Whether it is a GPU.
    """
    return device.type == "cuda"


def split_rows(rows: torch.Tensor, batch: int, *, full: bool) -> Iterator[tuple[torch.Tensor, int]]:
    """Split rows into batches.

    A GPU plans the convolutions of a network anew for every number of pictures, which takes it some two seconds: as long
    as several volumes.

    Args:
        rows: What is split, along its first axis.
        batch: Rows at once.
        full: The last batch is filled up with copies of its last row.

    Returns:
        Each batch, and how many of its rows are no copies.

    Example:
        >>> [(part.tolist(), count) for part, count in split_rows(torch.arange(3), 2, full=True)]
        [([0, 1], 2), ([2, 2], 1)]
    """
    for part in rows.split(batch):
        count = len(part)
        if full and 0 < count < batch:
            part = torch.cat([part, part[-1:].expand(batch - count, *part.shape[1:])])
        yield part, count


def _on_slices(box: np.ndarray, score: np.ndarray, positions: Sequence[int]) -> Boxes:
    at, row = np.nonzero(score > 0)
    return Boxes.on_slice(box[at, row], score[at, row], np.asarray(positions, dtype=np.int64)[at])


def _to_volume(boxes: Boxes, stored: DeviceSlices, case: str) -> Boxes:
    """From the detector's pixels to those of the volume, clipped to the stored part of it."""
    rows, columns = stored.size(case)
    inside = np.clip(boxes.plane * stored.zoom(case), 0, [columns, rows, columns, rows])
    solid = (inside[:, 2:] > inside[:, :2]).all(axis=1)
    boxes, plane = boxes.take(solid), stored.frame[case].to_volume(inside[solid])
    corners = np.column_stack([plane[:, :2], boxes.z0, plane[:, 2:], boxes.z1])
    return Boxes.in_volume(corners, boxes.score, boxes.label)


@torch.no_grad()
def best_slices(
    model: DenseDetector,
    stored: DeviceSlices,
    case: str,
    positions: Sequence[int],
    options: InferenceOptions,
    best: BestSliceOptions | None = None,
) -> Boxes:
    """Choose for each anchor the slice of highest score (DBT-11); the maximum runs on the device.

    Args:
        model: A one-stage detector.
        stored: The volume.
        case: The case.
        positions: The slices that are looked at.
        options: See `InferenceOptions`.
        best: What is left out; None: the defaults.

    Returns:
        Boxes on one slice each, in pixels of the volume, the highest score first.

    Raises:
        TrainingError: The device has too little memory for a batch.
    """
    chosen = best or BestSliceOptions()
    model.eval()
    tiles = _tiles(stored, case, model.multiple, options)
    boxes = []
    for tile in tiles:
        held: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        first = 0
        for dense in _run_dense(model, stored, case, positions, tile, options):
            score, row = dense.score.max(dim=0)
            box = dense.box.gather(0, row[None, :, None].expand(1, -1, 4))[0]
            if held is None:
                held = score, box, row
            else:
                better = score > held[0]
                held = (
                    torch.where(better, score, held[0]),
                    torch.where(better[:, None], box, held[1]),
                    torch.where(better, row + first, held[2]),
                )
            first += len(dense.score)
        if held is None:
            continue
        count = min(20 * options.detect.most, len(held[0]))
        score, order = held[0].topk(count)
        z = np.asarray(positions, dtype=np.int64)[held[2][order].cpu().numpy()]
        corners, values = held[1][order].float().cpu().numpy(), score.float().cpu().numpy()
        inside = Boxes.on_slice(corners, values, z).take(values >= chosen.least_score)
        rule = OverlapRule(above=chosen.overlap, within_slices=None)
        boxes.append(suppress(inside, rule).moved(*tile[:2].tolist()))
    joined = join_tiles(boxes, tiles, options.tiles) if len(tiles) > 1 else boxes[0]
    found = suppress(joined, OverlapRule(above=chosen.overlap, within_slices=None)).best(chosen.most)
    return _to_volume(found, stored, case)


@torch.no_grad()
def averaged_halves(
    model: DenseDetector,
    stored: DeviceSlices,
    case: str,
    positions: Sequence[int],
    options: InferenceOptions,
    *,
    parts: int = 2,
    least_score: float = 0.0001,
) -> Boxes:
    """Average what each cell says over the slices of each half of the volume (DBT-11); the sums run on the device.

    Args:
        model: A one-stage detector.
        stored: The volume.
        case: The case.
        positions: All slices of the volume, in order.
        options: See `InferenceOptions`.
        parts: How many parts.
        least_score: Boxes with a lower score are dropped.

    Returns:
        Boxes that span their part, in pixels of the volume, the highest score first.

    Raises:
        TrainingError: The device has too little memory for a batch.
    """
    model.eval()
    bounds = part_bounds(len(positions), parts)
    found = []
    for tile in _tiles(stored, case, model.multiple, options):
        sums: torch.Tensor | None = None
        first = 0
        for dense in _run_dense(model, stored, case, positions, tile, options):
            said = torch.cat([dense.box.float(), dense.score.float()[..., None]], dim=-1)
            part = np.searchsorted(bounds, np.arange(first, first + len(said)), side="right") - 1
            if sums is None:
                sums = torch.zeros(len(bounds) - 1, *said.shape[1:], device=said.device)
            sums.index_add_(0, torch.from_numpy(part).to(said.device), said)
            first += len(said)
        if sums is not None:
            count = torch.from_numpy(np.diff(bounds)).to(sums.device)[:, None, None]
            mean = (sums / count).cpu().numpy()
            boxes = boxes_of_parts(mean[..., :4], mean[..., 4], len(positions), least_score=least_score)
            found.append(boxes.moved(*tile[:2].tolist()))
    return _to_volume(Boxes.join(found).best(), stored, case)


def _run_dense(
    model: DenseDetector,
    stored: DeviceSlices,
    case: str,
    positions: Sequence[int],
    tile: np.ndarray,
    options: InferenceOptions,
) -> Iterator[Dense]:
    for pictures, count in _batches(stored, case, positions, tile, options.batch):
        with _memory(options.batch), mixed_precision(pictures.device):
            dense = model.dense(pictures)
        cancer = None if dense.cancer is None else dense.cancer[:count]
        yield Dense(box=dense.box[:count], score=dense.score[:count], cancer=cancer)


@torch.no_grad()
def score_slices(
    model: SliceClassifier,
    stored: DeviceSlices,
    case: str,
    positions: Sequence[int],
    *,
    size: tuple[int, int],
    batch: int = 8,
) -> np.ndarray:
    """Score whole slices by a slice classifier (DBT-13).

    Args:
        model: The classifier.
        stored: The volume.
        case: The case.
        positions: The slices.
        size: Height and width that the whole breast is brought to.
        batch: Slices at once.

    Returns:
        (n,) from 0 to 1.
    """
    model.eval()
    rows, columns = stored.size(case)
    matrix = torch.tensor([[[columns / size[1], 0.0, 0.0], [0.0, rows / size[0], 0.0]]])
    index = torch.from_numpy(stored.rows([(case, z) for z in positions]))
    scores = []
    for part, count in split_rows(index, batch, full=needs_full_batches(stored.device)):
        pictures = stored.tiles(part, matrix.expand(len(part), 2, 3), *size)
        with mixed_precision(pictures.device):
            scores.append(model.score(pictures)[:count].float())
    return torch.cat(scores).cpu().numpy()
