"""Weighted boxes fusion of several models in many volumes at once (DBT-09).

The boxes of each volume are compared in the plane, and only where their centre slices differ by at most a given
distance. A fused box lies at the score-weighted mean of its boxes, in the plane and in slices. Its depth is that of the
range of slices that its boxes cover, around that centre; where it would begin before the first slice it is cut on both
sides alike, so that the centre, which decides what the box hits, stays.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.ensembles.kernels import fuse_volumes
from elsewhere.errors import UserError
from elsewhere.statistics.bootstrap_weights import thread_count

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class VolumeBoxes:
    """The boxes of several models in many volumes, model after model.

    Args:
        volume: The number of the volume of each box, (n,).
        model: The number of the model of each box, (n,).
        x: Left edge in pixels, (n,).
        y: Upper edge in pixels, (n,).
        width: Width in pixels, (n,).
        height: Height in pixels, (n,).
        z: First slice, (n,); all 0 for pictures without slices.
        depth: Number of slices, (n,); -1 and 0 are as in published files.
        volumes: How many volumes there are.
        models: How many models there are, those without boxes included.

    Raises:
        UserError: A number is not finite, or a volume or model is out of range.
    """

    volume: IndexArray
    model: IndexArray
    x: FloatArray
    y: FloatArray
    width: FloatArray
    height: FloatArray
    z: FloatArray
    depth: FloatArray
    volumes: int
    models: int

    def __post_init__(self) -> None:
        for name in ("x", "y", "width", "height", "z", "depth"):
            if not np.isfinite(getattr(self, name)).all():
                raise UserError(
                    f"{name} of a box is missing or infinite", fix="Correct or leave out the box."
                )
        for name, most in (("volume", self.volumes), ("model", self.models)):
            values = getattr(self, name)
            if values.size and (values.min() < 0 or values.max() >= most):
                raise UserError(f"a box has a {name} out of range", fix=f"Numbers from 0 to {most - 1}.")

    def __len__(self) -> int:
        return int(self.volume.size)


@dataclass(frozen=True, kw_only=True)
class FusionOptions:
    """How boxes are fused.

    Args:
        iou_above: A box joins a fused box whose IoU with it is above this, 0 <= `iou_above` < 1.
        within_slices: The largest distance in slices between a box and the fused box that it joins.
        overflow: Whether a fused box of more boxes than models is scored by T/N instead of min(T, N)/N.
        least_votes: Fused boxes of fewer boxes than this are left out.

    Raises:
        UserError: A value is out of range.

    Example:
        >>> FusionOptions().iou_above
        0.4
    """

    iou_above: float = 0.4
    within_slices: float = 5.0
    overflow: bool = False
    least_votes: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.iou_above < 1.0:
            raise UserError(f"an IoU above {self.iou_above:g}", fix="A number from 0 to below 1.")
        if not self.within_slices >= 0.0:
            raise UserError(f"a slice distance of {self.within_slices:g}", fix="A number of 0 or more.")
        if self.least_votes < 1:
            raise UserError(f"at least {self.least_votes} votes", fix="1 or more.")


@dataclass(frozen=True, kw_only=True)
class OrderedBoxes:
    """Boxes in the order in which fusion takes them: volume after volume, by falling score.

    Args:
        starts: The first box of each volume, and the number of boxes.
        corners: Left, top, centre slice, right, bottom and 0 of each box, (n, 6).
        extents: First and last slice of each box, (n, 2).
        scores: Weighted scores, (n,).
        row: Where each box stands in the `VolumeBoxes` that it comes from, (n,).
        weight: The sum of the models' weights.
        models: How many models there are.
        dropped: How many boxes were left out because they have no area.
        below_floor: How many boxes were left out because of the score floor.
    """

    starts: IndexArray
    corners: FloatArray
    extents: FloatArray
    scores: FloatArray
    row: IndexArray
    weight: float
    models: int
    dropped: int
    below_floor: int


@dataclass(frozen=True, kw_only=True)
class FusedVolumes:
    """Fused boxes of many volumes, volume after volume.

    Args:
        volume: The number of the volume of each box, (m,).
        x: Left edge, (m,).
        y: Upper edge, (m,).
        width: Width, (m,).
        height: Height, (m,).
        z: First slice, (m,).
        depth: Depth in slices, (m,).
        mean_score: The mean of the weighted scores of its boxes, (m,).
        votes: How many boxes it is made of, (m,).
        weight: The sum of the models' weights.
        models: How many models there are.
    """

    volume: IndexArray
    x: FloatArray
    y: FloatArray
    width: FloatArray
    height: FloatArray
    z: FloatArray
    depth: FloatArray
    mean_score: FloatArray
    votes: IndexArray
    weight: float
    models: int

    def __len__(self) -> int:
        return int(self.volume.size)

    def scores(self, *, overflow: bool) -> FloatArray:
        """Compute the scores by one of the two rules of DBT-09.

        Args:
            overflow: Whether T/N is the factor; else min(T, N)/N.

        Returns:
            One score per fused box.
        """
        counted = self.votes if overflow else np.minimum(self.votes, self.models)
        made: FloatArray = self.mean_score * counted / self.weight
        return made


def order_boxes(
    boxes: VolumeBoxes,
    scores: npt.ArrayLike,
    *,
    floor: float = 0.0,
    weights: npt.ArrayLike | None = None,
    later_first: bool = True,
) -> OrderedBoxes:
    """Put boxes into the order in which fusion takes them, by falling score.

    Args:
        boxes: The boxes.
        scores: Their scores on a common scale, (n,), 0 or more.
        floor: Boxes with a lower score are left out.
        weights: One weight above 0 for each model, by which its scores are multiplied; None: all 1.
        later_first: Whether among equal scores the later box comes first, as in weighted boxes fusion.

    Returns:
        The boxes, ready for `fuse_ordered`. All fusions of the same scores share them.

    Raises:
        UserError: A score is missing, infinite or negative, or the weights do not fit.

    Example:
        >>> one = np.zeros(2)
        >>> boxes = VolumeBoxes(volume=np.array([0, 0]), model=np.array([0, 1]), x=one, y=one, width=one + 9,
        ...     height=one + 9, z=one, depth=one + 1, volumes=1, models=2)
        >>> order_boxes(boxes, [0.2, 0.7]).row.tolist()
        [1, 0]
    """
    score = np.asarray(scores, dtype=np.float64)
    if score.shape != boxes.x.shape:
        raise UserError(f"{score.size} scores of {len(boxes)} boxes", fix="Give one score per box.")
    if not np.isfinite(score).all() or (score < 0).any():
        raise UserError(
            "a score is missing, infinite or negative", fix="Bring the scores to 0 and above first."
        )
    given = np.ones(boxes.models) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (boxes.models,) or not np.isfinite(given).all() or (given <= 0).any():
        raise UserError("the weights do not fit", fix=f"Give {boxes.models} weights above 0, one per model.")
    solid = (boxes.width > 0) & (boxes.height > 0)
    high = score >= floor
    kept = np.flatnonzero(solid & high)
    weighted = score * given[boxes.model]
    ties = -kept if later_first else kept
    order = kept[np.lexsort((ties, -weighted[kept], boxes.volume[kept]))]
    starts = np.searchsorted(boxes.volume[order], np.arange(boxes.volumes + 1)).astype(np.int64)
    x, y, z, depth = boxes.x[order], boxes.y[order], boxes.z[order], boxes.depth[order]
    corners = np.zeros((order.size, 6))
    corners[:, 0], corners[:, 1], corners[:, 2] = x, y, z + depth / 2.0
    corners[:, 3], corners[:, 4] = x + boxes.width[order], y + boxes.height[order]
    extents = np.column_stack([z, z + np.maximum(depth, 0.0)])
    return OrderedBoxes(
        starts=starts,
        corners=corners,
        extents=extents,
        scores=weighted[order],
        row=order,
        weight=float(given.sum()),
        models=boxes.models,
        dropped=int((~solid).sum()),
        below_floor=int((solid & ~high).sum()),
    )


def fuse_ordered(
    boxes: OrderedBoxes, *, iou_above: float, within_slices: float, threads: int | None = None
) -> FusedVolumes:
    """Fuse the boxes of every volume; scores and votes are computed from the result.

    Args:
        boxes: The boxes in their order.
        iou_above: A box joins a fused box whose IoU with it is above this.
        within_slices: The largest distance in slices between them.
        threads: How many threads; None for all processors. The result does not depend on it.

    Returns:
        All fused boxes, with any number of votes.

    Raises:
        UserError: `iou_above` or `within_slices` is out of range.
    """
    chosen = FusionOptions(iou_above=iou_above, within_slices=within_slices)
    n, volumes = boxes.scores.size, boxes.starts.size - 1
    fused, covered = np.empty((n, 6)), np.empty((n, 2))
    weight, votes = np.empty(n), np.empty(n, dtype=np.int64)
    counts = np.zeros(volumes, dtype=np.int64)

    def work(part: IndexArray) -> None:
        first, last = int(part[0]), int(part[-1]) + 1
        rows = slice(int(boxes.starts[first]), int(boxes.starts[last]))
        fuse_volumes(
            boxes.starts[first : last + 1] - boxes.starts[first],
            boxes.corners[rows],
            boxes.scores[rows],
            boxes.extents[rows],
            False,
            chosen.iou_above,
            float(chosen.within_slices),
            fused[rows],
            weight[rows],
            covered[rows],
            votes[rows],
            counts[first:last],
        )

    workers = min(thread_count(threads), volumes)
    if workers <= 1 or n < 5000:
        if volumes:
            work(np.arange(volumes))
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, np.array_split(np.arange(volumes), min(volumes, 8 * workers))))
    volume = np.repeat(np.arange(volumes), counts)
    before = np.cumsum(counts) - counts
    rows = np.repeat(boxes.starts[:-1] - before, counts) + np.arange(volume.size)
    return _fused(boxes, volume, fused[rows], covered[rows], weight[rows], votes[rows])


def _fused(
    boxes: OrderedBoxes,
    volume: IndexArray,
    corners: FloatArray,
    covered: FloatArray,
    weight: FloatArray,
    votes: IndexArray,
) -> FusedVolumes:
    centre = corners[:, 2]
    depth = covered[:, 1] - covered[:, 0]
    z = np.maximum(centre - depth / 2.0, 0.0)
    return FusedVolumes(
        volume=volume,
        x=corners[:, 0],
        y=corners[:, 1],
        width=corners[:, 3] - corners[:, 0],
        height=corners[:, 4] - corners[:, 1],
        z=z,
        depth=2.0 * (centre - z),
        mean_score=weight / votes,
        votes=votes,
        weight=boxes.weight,
        models=boxes.models,
    )


def fuse(
    boxes: VolumeBoxes,
    scores: npt.ArrayLike,
    options: FusionOptions | None = None,
    *,
    floor: float = 0.0,
    weights: npt.ArrayLike | None = None,
    threads: int | None = None,
) -> tuple[FusedVolumes, FloatArray]:
    """Fuse the boxes of several models in many volumes, from normalised scores to fused scores.

    Args:
        boxes: The boxes.
        scores: Their scores on a common scale, (n,), 0 or more.
        options: How they are fused; None: the published choice.
        floor: Boxes with a lower score are left out.
        weights: One weight above 0 for each model; None: all 1.
        threads: How many threads; None for all processors.

    Returns:
        The fused boxes with enough votes, in each volume the highest score first, and their scores.

    Raises:
        UserError: A value is out of range.

    Example:
        >>> both, one = np.zeros(2), np.ones(2)
        >>> boxes = VolumeBoxes(volume=np.array([0, 0]), model=np.array([0, 1]), x=both, y=both, width=9 * one,
        ...     height=9 * one, z=np.array([4.0, 6.0]), depth=2 * one, volumes=1, models=2)
        >>> fused, score = fuse(boxes, [0.9, 0.3])
        >>> fused.z.tolist(), fused.depth.tolist(), score.round(3).tolist()
        ([3.5], [4.0], [0.6])
    """
    chosen = options or FusionOptions()
    ordered = order_boxes(boxes, scores, floor=floor, weights=weights)
    made = fuse_ordered(
        ordered, iou_above=chosen.iou_above, within_slices=chosen.within_slices, threads=threads
    )
    value = made.scores(overflow=chosen.overflow)
    kept = np.flatnonzero(made.votes >= chosen.least_votes)
    kept = kept[np.lexsort((-value[kept], made.volume[kept]))]
    return take(made, kept), value[kept]


def take(fused: FusedVolumes, rows: IndexArray) -> FusedVolumes:
    """Choose some of the fused boxes.

    Args:
        fused: The fused boxes.
        rows: The rows of those to keep.

    Returns:
        These boxes, in the order of `rows`.
    """
    columns = ("volume", "x", "y", "width", "height", "z", "depth", "mean_score", "votes")
    return FusedVolumes(
        **{name: getattr(fused, name)[rows] for name in columns}, weight=fused.weight, models=fused.models
    )
