"""Merging of boxes in the volume (the dataset's baseline, Buda 2021; DBT-11 and DBT-17).

Two boxes whose intersection over union in the volume is above 0.5 become the box that contains both, with the higher
score, unless one score is more than ten times the other: a faint box does not enlarge a sure one. This is repeated until
no two boxes can be merged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes, FloatArray


@dataclass(frozen=True, kw_only=True)
class MergingOptions:
    """The published numbers.

    Args:
        overlap: Boxes are merged whose intersection over union in the volume is above this.
        most_ratio: The largest ratio of their scores.
    """

    overlap: float = 0.5
    most_ratio: float = 10.0


def merge_boxes(boxes: Boxes, options: MergingOptions | None = None) -> Boxes:
    """Merge boxes until no two can be merged.

    Boxes are taken by falling score, and each is merged with the next one that it can be merged with. A merged box keeps
    the place of the one with the higher score.

    Args:
        boxes: Boxes in the volume, with scores of 0 or more.
        options: See `MergingOptions`.

    Returns:
        The merged boxes, the highest score first.

    Example:
        >>> boxes = Boxes.in_volume([[0, 0, 0, 9, 9, 8], [0, 0, 1, 9, 9, 9], [0, 0, 0, 9, 9, 9]], [0.9, 0.5, 0.01])
        >>> merge_boxes(boxes).corners().tolist()
        [[0.0, 0.0, 0.0, 9.0, 9.0, 9.0], [0.0, 0.0, 0.0, 9.0, 9.0, 9.0]]
    """
    chosen = options or MergingOptions()
    held = boxes.best()
    corners, score = held.corners(), held.score
    alive = np.ones(len(held), dtype=bool)
    able = np.zeros((len(held), len(held)), dtype=bool)
    for i in range(len(held)):
        able[i, i + 1 :] = _can_merge(corners, score, i, chosen)[i + 1 :]
    waiting = able.any(axis=1)
    while waiting.any():
        i = int(np.argmax(waiting))
        j = int(np.argmax(able[i]))
        corners[i, :3] = np.minimum(corners[i, :3], corners[j, :3])
        corners[i, 3:] = np.maximum(corners[i, 3:], corners[j, 3:])
        alive[j] = False
        able[j], able[:, j] = False, False
        now = _can_merge(corners, score, i, chosen) & alive
        able[i, i + 1 :], able[:i, i] = now[i + 1 :], now[:i]
        waiting = able.any(axis=1)
    return Boxes.in_volume(corners[alive], score[alive], held.label[alive])


def _can_merge(
    corners: FloatArray, score: FloatArray, at: int, options: MergingOptions
) -> npt.NDArray[np.bool_]:
    """Which boxes can be merged with one of them."""
    one = corners[at]
    sides = np.minimum(corners[:, 3:], one[3:]) - np.maximum(corners[:, :3], one[:3])
    shared = sides.clip(min=0).prod(axis=1)
    size = (corners[:, 3:] - corners[:, :3]).prod(axis=1)
    union = size + size[at] - shared
    near = shared > options.overlap * union
    high, low = np.maximum(score, score[at]), np.minimum(score, score[at])
    able: npt.NDArray[np.bool_] = near & (high <= options.most_ratio * low)
    return able
