"""Anchors of one-stage detectors: their places, which lesion each stands for, and the losses (DBT-14).

Everything has a fixed size and stays on the device: no step waits for the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from elsewhere.errors import UserError
from elsewhere.networks.detectors.base import CANCER, Targets


@dataclass(frozen=True, kw_only=True)
class AnchorSettings:
    """The anchors of a detector: at every cell of every level, one per size and shape.

    Args:
        smallest: The side of the anchors of the first level in pixels; it doubles from level to level.
        scales: Sizes per level, as multiples of the level's side.
        shapes: Height over width.
    """

    smallest: float = 32.0
    scales: tuple[float, ...] = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
    shapes: tuple[float, ...] = (0.5, 1.0, 2.0)

    @property
    def per_cell(self) -> int:
        """How many anchors a cell has."""
        return len(self.scales) * len(self.shapes)


@dataclass(frozen=True, kw_only=True)
class MatchSettings:
    """When an anchor stands for a lesion, and the focal loss. The defaults are NYU's in phase 1.

    Args:
        negative_below: Anchors with a lower IoU with every lesion are background.
        positive_from: Anchors with this IoU or more stand for the lesion; those in between are left out.
        alpha: The weight of positive anchors; background has 1 - alpha.
        gamma: How much easy anchors are weighed down.
        box_weight: The weight of the loss of the box's place.
        generalised: The place is judged by the generalised IoU instead of the four differences.

    Raises:
        UserError: The thresholds are out of range.
    """

    negative_below: float = 0.4
    positive_from: float = 0.5
    alpha: float = 0.25
    gamma: float = 2.0
    box_weight: float = 1.0
    generalised: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.negative_below <= self.positive_from <= 1:
            raise UserError(
                f"anchors below {self.negative_below:g} are background and from {self.positive_from:g} on lesions",
                fix="Give 0 <= negative_below <= positive_from <= 1.",
            )


PHASE_1 = MatchSettings()
"""NYU B-Team in phase 1."""
PHASE_2 = MatchSettings(negative_below=0.2, positive_from=0.6, alpha=0.8)
"""NYU B-Team in phase 2: alpha 0.75 to 0.85, positive from 0.6 to 0.7."""
MATCHES = {"phase-1": PHASE_1, "phase-2": PHASE_2}
_LARGEST_STEP = math.log(1000 / 16)


def make_anchors(
    sizes: list[tuple[int, int]], picture: tuple[int, int], settings: AnchorSettings, device: torch.device
) -> torch.Tensor:
    """Return the anchors of all levels, cell by cell.

    Args:
        sizes: Height and width of each level's map.
        picture: Height and width of the picture in pixels.
        settings: See `AnchorSettings`.
        device: Where they are made.

    Returns:
        (a, 4) x0, y0, x1, y1.

    Example:
        >>> one = AnchorSettings(smallest=8, scales=(1.0,), shapes=(1.0,))
        >>> make_anchors([(1, 2)], (8, 16), one, torch.device("cpu")).tolist()
        [[0.0, 0.0, 8.0, 8.0], [8.0, 0.0, 16.0, 8.0]]
    """
    levels = []
    for level, (rows, columns) in enumerate(sizes):
        y = (torch.arange(rows, device=device) + 0.5) * (picture[0] / rows)
        x = (torch.arange(columns, device=device) + 0.5) * (picture[1] / columns)
        side = settings.smallest * 2**level
        half = [
            [side * scale / math.sqrt(shape) / 2, side * scale * math.sqrt(shape) / 2]
            for scale in settings.scales
            for shape in settings.shapes
        ]
        reach = torch.tensor(half, dtype=torch.float32, device=device)
        centre = torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).flip(-1).reshape(-1, 1, 2)
        levels.append(torch.cat([centre - reach, centre + reach], dim=-1).reshape(-1, 4))
    return torch.cat(levels)


def pair_iou(anchors: torch.Tensor, targets: Targets) -> torch.Tensor:
    """Return the IoU of every anchor with every lesion.

    Args:
        anchors: (a, 4), or (n, a, 4) where they differ per picture.
        targets: The lesions of n pictures, m rows each.

    Returns:
        (n, m, a); -1 for rows without a lesion.
    """
    one = anchors if anchors.ndim == 3 else anchors[None]
    a, b = one[:, None], targets.box[:, :, None]
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    size = [(box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1]) for box in (a, b)]
    iou = shared / (size[0] + size[1] - shared).clamp(min=1e-6)
    return torch.where(targets.there[:, :, None], iou, torch.full_like(iou, -1.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Matched:
    """What each anchor stands for.

    Args:
        state: (n, a) 1 a lesion, 0 background, -1 left out.
        lesion: (n, a) the row of its lesion; meaningless for others.
    """

    state: torch.Tensor
    lesion: torch.Tensor


def match_anchors(anchors: torch.Tensor, targets: Targets, settings: MatchSettings) -> Matched:
    """Decide which lesion each anchor stands for (DBT-14).

    The anchors that overlap a lesion most stand for it even where no IoU reaches `positive_from`, so that no lesion is
    without an anchor.

    Args:
        anchors: (a, 4).
        targets: The lesions of n pictures.
        settings: The thresholds.

    Returns:
        What each anchor stands for.

    Example:
        >>> anchors = torch.tensor([[0.0, 0, 8, 8], [0, 0, 4, 8], [20, 20, 28, 28]])
        >>> lesion = Targets(box=torch.tensor([[[0.0, 0, 8, 8]]]), label=torch.tensor([[1]]))
        >>> match_anchors(anchors, lesion, MatchSettings(positive_from=0.6)).state.tolist()
        [[1, -1, 0]]
    """
    iou = pair_iou(anchors, targets)
    best, lesion = iou.max(dim=1)
    state = torch.full_like(lesion, -1)
    state = torch.where(best < settings.negative_below, torch.zeros_like(state), state)
    state = torch.where(best >= settings.positive_from, torch.ones_like(state), state)
    closest = (iou >= iou.amax(dim=2, keepdim=True)) & (iou > 0)
    chosen = closest.any(dim=1)
    lesion = torch.where(chosen, closest.int().argmax(dim=1), lesion)
    return Matched(state=torch.where(chosen, torch.ones_like(state), state), lesion=lesion)


def focal_loss(logit: torch.Tensor, truth: torch.Tensor, *, alpha: float, gamma: float) -> torch.Tensor:
    """Return the focal loss of each prediction (Lin et al. 2017).

    Args:
        logit: Any shape.
        truth: 0 or 1, of the same shape.
        alpha: The weight where the truth is 1; 1 - alpha where it is 0.
        gamma: 0 is the weighted cross-entropy.

    Returns:
        As `logit`.

    Example:
        >>> focal_loss(torch.zeros(2), torch.tensor([1.0, 0.0]), alpha=0.25, gamma=2.0)
        tensor([0.0433, 0.1300])
    """
    entropy = functional.binary_cross_entropy_with_logits(logit, truth, reduction="none")
    wrong = torch.sigmoid(logit) * (1 - 2 * truth) + truth
    weight = alpha * truth + (1 - alpha) * (1 - truth)
    return weight * wrong**gamma * entropy


def encode_boxes(box: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return what a network has to predict so that anchors become these boxes.

    Args:
        box: (..., 4).
        anchors: (..., 4).

    Returns:
        (..., 4) shift in x and y by the anchor's size, logarithm of the size's ratio.
    """
    centre, side = (box[..., :2] + box[..., 2:]) / 2, (box[..., 2:] - box[..., :2]).clamp(min=1e-3)
    middle, width = (anchors[..., :2] + anchors[..., 2:]) / 2, anchors[..., 2:] - anchors[..., :2]
    return torch.cat([(centre - middle) / width, torch.log(side / width)], dim=-1)


def decode_boxes(step: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return the boxes that a network predicts.

    Args:
        step: (..., 4) as `encode_boxes` returns it.
        anchors: (..., 4).

    Returns:
        (..., 4) x0, y0, x1, y1.

    Example:
        >>> anchor = torch.tensor([[0.0, 0.0, 8.0, 8.0]])
        >>> box = torch.tensor([[1.0, 2.0, 5.0, 8.0]])
        >>> torch.allclose(decode_boxes(encode_boxes(box, anchor), anchor), box)
        True
    """
    middle, width = (anchors[..., :2] + anchors[..., 2:]) / 2, anchors[..., 2:] - anchors[..., :2]
    centre = middle + step[..., :2] * width
    half = width * torch.exp(step[..., 2:].clamp(max=_LARGEST_STEP)) / 2
    return torch.cat([centre - half, centre + half], dim=-1)


def dense_losses(
    logit: torch.Tensor,
    step: torch.Tensor,
    cancer: torch.Tensor | None,
    anchors: torch.Tensor,
    targets: Targets,
    settings: MatchSettings,
) -> dict[str, torch.Tensor]:
    """Return the losses of a one-stage detector.

    Args:
        logit: (n, a) that the anchor stands for a lesion.
        step: (n, a, 4) as `encode_boxes` returns it.
        cancer: (n, a) that the lesion is cancer, learned from anchors that stand for a lesion; None: not predicted.
        anchors: (a, 4).
        targets: The lesions.
        settings: Thresholds and weights.

    Returns:
        "score", "box" and, where it is predicted, "cancer".
    """
    matched = match_anchors(anchors, targets, settings)
    positive = (matched.state == 1).float()
    count = positive.sum().clamp(min=1.0)
    focal = focal_loss(logit.float(), positive, alpha=settings.alpha, gamma=settings.gamma)
    parts = {"score": (focal * (matched.state >= 0)).sum() / count}
    truth = targets.box.gather(1, matched.lesion[..., None].expand(-1, -1, 4))
    if settings.generalised:
        place = 1 - _generalised_iou(decode_boxes(step.float(), anchors), truth)
    else:
        wanted = encode_boxes(truth, anchors)
        place = functional.smooth_l1_loss(step.float(), wanted, beta=1 / 9, reduction="none").sum(-1)
    place = torch.where(positive > 0, place, torch.zeros_like(place))
    parts["box"] = settings.box_weight * place.sum() / count
    if cancer is not None:
        label = (targets.label.gather(1, matched.lesion) == CANCER).float()
        entropy = functional.binary_cross_entropy_with_logits(cancer.float(), label, reduction="none")
        parts["cancer"] = (entropy * positive).sum() / count
    return parts


def _generalised_iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    around = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    shared, hull = _product(sides), _product(around).clamp(min=1e-6)
    size = [_product(box[..., 2:] - box[..., :2]) for box in (a, b)]
    union = (size[0] + size[1] - shared).clamp(min=1e-6)
    return shared / union - (hull - union) / hull


def _product(sides: torch.Tensor) -> torch.Tensor:
    """Width times height. The gradient of `prod` waits for the device, which a recorded step must not."""
    return sides[..., 0] * sides[..., 1]
