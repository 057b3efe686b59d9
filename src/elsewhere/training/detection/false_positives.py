"""True and false detections, and a classifier that tells them apart (VICOROB in phase 2, DBT-13, DBT-17).

A detector is trained in folds, and each fold's detector finds boxes in the part that it has not seen. Tiles around these
boxes train a classifier; a box that it finds unlikely is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from elsewhere.boxes import Boxes
from elsewhere.networks.detectors.slice_classifier import SliceClassifier
from elsewhere.training.cuda import mixed_precision
from elsewhere.training.detection.device_slices import DeviceSlices
from elsewhere.training.detection.sampling import LESION, NEGATIVE, SliceTable
from elsewhere.training.detection.views import VolumeView, lesion_corners
from elsewhere.training.detection.volume_inference import needs_full_batches, split_rows


@dataclass(frozen=True, kw_only=True)
class FalsePositiveSettings:
    """Which detections are learned, and which are dropped.

    Args:
        per_volume: The best detections of each volume that are learned.
        floor_px: The least diagonal of a lesion, of which half is the radius of a true detection, in pixels.
        within: How far a true detection may be from the lesion's slice, as a share of the volume's slices.
        size: Height and width of the tile around a detection, in the detector's pixels.
        least: Detections with a lower probability are dropped (VICOROB: 0.05).
    """

    per_volume: int = 15
    floor_px: float = 100.0
    within: float = 0.25
    size: tuple[int, int] = (256, 256)
    least: float = 0.05


def list_detections(
    view: VolumeView, found: Mapping[str, Boxes], settings: FalsePositiveSettings | None = None
) -> SliceTable:
    """List detections as slices to train a classifier on: true ones as lesions, false ones as slices without.

    Args:
        view: The volumes; those whose truth is withheld are left out.
        found: Detections by case, made by a detector that was not trained on the case.
        settings: See `FalsePositiveSettings`.

    Returns:
        One row per detection, with its centre as focus.
    """
    chosen = settings or FalsePositiveSettings()
    case, z, kind, box, label, focus = [], [], [], [], [], []
    for name, boxes in found.items():
        lesions = view.lesions(name)
        if lesions is None:
            continue
        best = boxes.best(chosen.per_volume)
        true = hits(best, lesions, view.shape(name)[2], chosen)
        for at in range(len(best)):
            case.append(name)
            z.append(int(np.floor(best.centre_slice[at])))
            kind.append(LESION if true[at] else NEGATIVE)
            box.append(best.plane[at])
            label.append(1 if true[at] else -1)
            focus.append(best.centre[at])
    return SliceTable(
        case=tuple(case),
        z=np.array(z, dtype=np.int64),
        kind=np.array(kind, dtype=np.int64),
        box=np.array(box, dtype=np.float64).reshape(-1, 1, 4),
        label=np.array(label, dtype=np.int64).reshape(-1, 1),
        focus=np.array(focus, dtype=np.float64).reshape(-1, 2),
    )


def hits(
    boxes: Boxes, lesions: tuple[object, ...], slices: int, settings: FalsePositiveSettings
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which boxes lie on a lesion.

    Args:
        boxes: The boxes of a volume.
        lesions: Its lesions.
        slices: How many slices it has.
        settings: How near is near.

    Returns:
        (n,) one value per box.
    """
    corners = lesion_corners(lesions)
    middle = np.array([one.slice for one in lesions], dtype=np.float64)  # type: ignore[attr-defined]
    centre = (corners[:, :2] + corners[:, 2:]) / 2
    reach = np.maximum(np.hypot(*(corners[:, 2:] - corners[:, :2]).T), settings.floor_px) / 2
    away = np.hypot(*np.moveaxis(boxes.centre[:, None] - centre, -1, 0))
    near = np.abs(boxes.centre_slice[:, None] - middle) <= settings.within * slices
    hit: np.ndarray[tuple[int], np.dtype[np.bool_]] = ((away < reach) & near).any(axis=1)
    return hit


@torch.no_grad()
def score_detections(
    model: SliceClassifier,
    stored: DeviceSlices,
    case: str,
    boxes: Boxes,
    *,
    size: tuple[int, int],
    batch: int = 32,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return how likely each detection is a lesion.

    Args:
        model: The classifier.
        stored: The volume's slices, with the middle slice of every box.
        case: The case.
        boxes: The detections, in pixels of the volume.
        size: Height and width of the tile around a detection, in the detector's pixels.
        batch: Tiles at once.

    Returns:
        (n,) from 0 to 1.
    """
    model.eval()
    if not len(boxes):
        return np.zeros(0)
    plane = stored.frame[case].to_stored(boxes.plane)
    zoom = stored.zoom(case)
    corner = (plane[:, :2] + plane[:, 2:]) / 2 - np.array([size[1], size[0]]) * zoom / 2
    matrix = torch.zeros(len(boxes), 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = zoom
    matrix[:, :, 2] = torch.from_numpy(corner).float()
    z = np.floor(boxes.centre_slice).astype(np.int64)
    rows = torch.from_numpy(stored.rows([(case, int(one)) for one in z]))
    scores = []
    full = needs_full_batches(stored.device)
    parts = zip(split_rows(rows, batch, full=full), split_rows(matrix, batch, full=full), strict=True)
    for (part, count), (place, _) in parts:
        pictures = stored.tiles(part, place, *size)
        with mixed_precision(pictures.device):
            scores.append(model.score(pictures)[:count])
    score: np.ndarray[tuple[int], np.dtype[np.float64]] = torch.cat(scores).double().cpu().numpy()
    return score


def drop_unlikely(boxes: Boxes, probability: np.ndarray, least: float = 0.05) -> Boxes:
    """Drop detections that the classifier finds unlikely; the scores of the others stay.

    Args:
        boxes: The detections.
        probability: (n,) as `score_detections` returns it.
        least: Those with a lower probability are dropped.

    Returns:
        The detections that stay, in their order.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 4, 4]] * 2, [0.9, 0.8], 3)
        >>> drop_unlikely(boxes, np.array([0.01, 0.6])).score.tolist()
        [0.8]
    """
    return boxes.take(np.asarray(probability) >= least)
