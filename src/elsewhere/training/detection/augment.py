"""Augmentation of tiles and their lesions (DBT-14): named functions from pictures and targets to pictures and targets.

None draws anything: what they do comes in as arguments, drawn for a whole epoch before it. Pictures are (n, 3, height,
width) from 0 to 1; arguments have one value per picture. Nothing is changed in place and nothing leaves the device.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from elsewhere.networks.detectors.base import ABSENT, Targets

LEAST_VISIBLE = 0.3
"""A lesion of which less is left, by area, is no lesion any more. One that is larger than the picture is judged by how much
of the picture it fills."""
Batch = tuple[torch.Tensor, Targets]


def move_boxes(targets: Targets, matrix: torch.Tensor, size: tuple[int, int]) -> Targets:
    """Move lesions with the pixels, and clip them to the picture.

    A turned box becomes the box around its four corners.

    Args:
        targets: The lesions of n pictures.
        matrix: (n, 2, 3) from old coordinates (x, y, 1) to new ones.
        size: Height and width of the new pictures.

    Returns:
        The lesions; those of which too little is left are absent.

    Example:
        >>> one = Targets(box=torch.tensor([[[2.0, 2, 6, 4]]]), label=torch.tensor([[1]]))
        >>> half = torch.tensor([[[0.5, 0, 1], [0, 0.5, 0]]])
        >>> move_boxes(one, half, (10, 10)).box.tolist()
        [[[2.0, 1.0, 4.0, 2.0]]]
    """
    box = targets.box
    x, y = box[..., [0, 2, 0, 2]], box[..., [1, 1, 3, 3]]
    corner = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    moved = torch.einsum("nmck,nak->nmca", corner, matrix.to(box.dtype))
    around = torch.cat([moved.amin(dim=2), moved.amax(dim=2)], dim=-1)
    low = torch.zeros(4, device=box.device)
    high = torch.tensor([size[1], size[0], size[1], size[0]], device=box.device)
    return clip_targets(Targets(box=around, label=targets.label), low, high)


def clip_targets(targets: Targets, low: torch.Tensor, high: torch.Tensor) -> Targets:
    """Clip lesions to a region.

    Args:
        targets: The lesions of n pictures.
        low: Four values, or (n, 1, 4): x, y, x, y of the region's first corner.
        high: Likewise, of its last corner.

    Returns:
        The lesions; those of which too little is left are absent.
    """
    cut = torch.minimum(torch.maximum(targets.box, low), high)
    whole, after = (_area(box) for box in (targets.box, cut))
    before = torch.minimum(whole, (high - low)[..., 2] * (high - low)[..., 3])
    there = targets.there & (after >= LEAST_VISIBLE * before) & (after > 0)
    return Targets(
        box=torch.where(there[..., None], cut, torch.zeros_like(cut)),
        label=torch.where(there, targets.label, torch.full_like(targets.label, ABSENT)),
    )


def _area(box: torch.Tensor) -> torch.Tensor:
    return (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])


def affine(pictures: torch.Tensor, targets: Targets, matrix: torch.Tensor) -> Batch:
    """Turn, zoom, shear and shift pictures.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        matrix: (n, 2, 3) from new pixel coordinates (x, y, 1) to old ones.

    Returns:
        Pictures and lesions.
    """
    height, width = pictures.shape[2:]
    scale = torch.tensor([2.0 / width, 2.0 / height], device=pictures.device)
    y = torch.arange(height, device=pictures.device) + 0.5
    x = torch.arange(width, device=pictures.device) + 0.5
    grid = torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=-1)
    old = torch.einsum("hwk,nak->nhwa", grid, matrix[:, :, :2]) + matrix[:, None, None, :, 2]
    seen = functional.grid_sample(pictures, old * scale - 1, padding_mode="zeros", align_corners=False)
    return seen, move_boxes(targets, inverse(matrix), (height, width))


def inverse(matrix: torch.Tensor) -> torch.Tensor:
    """Return the matrices that undo others.

    Args:
        matrix: (n, 2, 3).

    Returns:
        (n, 2, 3).

    Example:
        >>> inverse(torch.tensor([[[2.0, 0, 6], [0, 4, 8]]])).tolist()
        [[[0.5, 0.0, -3.0], [0.0, 0.25, -2.0]]]
    """
    a, b, c, d = matrix[:, 0, 0], matrix[:, 0, 1], matrix[:, 1, 0], matrix[:, 1, 1]
    turned = torch.stack([torch.stack([d, -b], dim=-1), torch.stack([-c, a], dim=-1)], dim=1)
    turned = turned / (a * d - b * c)[:, None, None]
    shift = -(turned @ matrix[:, :, 2:])
    return torch.cat([turned, shift], dim=2) + 0.0


def flip_horizontal(pictures: torch.Tensor, targets: Targets, on: torch.Tensor) -> Batch:
    """Mirror pictures left to right.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        on: (n,) whether each is mirrored.

    Returns:
        Pictures and lesions.
    """
    width = pictures.shape[3]
    box = torch.stack(
        [width - targets.box[..., 2], targets.box[..., 1], width - targets.box[..., 0], targets.box[..., 3]],
        dim=-1,
    )
    return _where(on, (pictures.flip(3), _absent_at_zero(box, targets)), (pictures, targets))


def flip_vertical(pictures: torch.Tensor, targets: Targets, on: torch.Tensor) -> Batch:
    """Mirror pictures top to bottom.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        on: (n,) whether each is mirrored.

    Returns:
        Pictures and lesions.
    """
    height = pictures.shape[2]
    box = torch.stack(
        [
            targets.box[..., 0],
            height - targets.box[..., 3],
            targets.box[..., 2],
            height - targets.box[..., 1],
        ],
        dim=-1,
    )
    return _where(on, (pictures.flip(2), _absent_at_zero(box, targets)), (pictures, targets))


def _absent_at_zero(box: torch.Tensor, targets: Targets) -> Targets:
    return Targets(box=torch.where(targets.there[..., None], box, torch.zeros_like(box)), label=targets.label)


def _where(on: torch.Tensor, changed: Batch, plain: Batch) -> Batch:
    chosen = on.bool()
    return (
        torch.where(chosen[:, None, None, None], changed[0], plain[0]),
        Targets(
            box=torch.where(chosen[:, None, None], changed[1].box, plain[1].box),
            label=torch.where(chosen[:, None], changed[1].label, plain[1].label),
        ),
    )


def brightness(pictures: torch.Tensor, targets: Targets, factor: torch.Tensor) -> Batch:
    """Multiply all values: also the 'value' of the hue-saturation-value changes, as pictures have no colour.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        factor: (n,) above 0.

    Returns:
        Pictures and lesions.
    """
    return (pictures * factor[:, None, None, None]).clamp(0, 1), targets


def gamma(pictures: torch.Tensor, targets: Targets, exponent: torch.Tensor) -> Batch:
    """Raise all values to a power: below 1 is brighter.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        exponent: (n,) above 0.

    Returns:
        Pictures and lesions.
    """
    return pictures.clamp(min=0) ** exponent[:, None, None, None], targets


def copy_paste(
    pictures: torch.Tensor, targets: Targets, donor: torch.Tensor, place: torch.Tensor, on: torch.Tensor
) -> Batch:
    """Paste a lesion of another picture (NYU B-Team, who had outlines: here it is cut out as a soft ellipse).

    Nothing is pasted onto black background, from a donor without a lesion, or over a border of the picture.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        donor: (n,) the picture whose first lesion is pasted.
        place: (n, 2) x and y of the pasted lesion's centre.
        on: (n,) whether something is pasted.

    Returns:
        Pictures, and lesions with one more row each.
    """
    height, width = pictures.shape[2:]
    box, label = targets.box[donor, 0], targets.label[donor, 0]
    centre, half = (box[:, :2] + box[:, 2:]) / 2, (box[:, 2:] - box[:, :2]) / 2
    shift = (place - centre).round()
    pasted = torch.cat([centre + shift - half, centre + shift + half], dim=-1)
    limit = torch.tensor([width, height], device=box.device)
    inside = (pasted[:, :2] >= 0).all(-1) & (pasted[:, 2:] <= limit).all(-1)
    middle = torch.minimum((centre + shift).long().clamp(min=0), limit - 1)
    here = torch.arange(len(pictures), device=box.device)
    tissue = pictures[here, 1, middle[:, 1], middle[:, 0]] > 0
    valid = on.bool() & (label != ABSENT) & inside & tissue
    y = torch.arange(height, device=box.device)
    x = torch.arange(width, device=box.device)
    old_y = (y[None] - shift[:, 1:].long()).clamp(0, height - 1)
    old_x = (x[None] - shift[:, :1].long()).clamp(0, width - 1)
    moved = pictures[donor[:, None, None], :, old_y[:, :, None], old_x[:, None, :]].permute(0, 3, 1, 2)
    new = centre + shift
    away_x = (x[None] + 0.5 - new[:, :1]) / half[:, :1].clamp(min=1)
    away_y = (y[None] + 0.5 - new[:, 1:]) / half[:, 1:].clamp(min=1)
    away = (away_x[:, None] ** 2 + away_y[:, :, None] ** 2).sqrt()
    mask = ((1.2 - away) / 0.2).clamp(0, 1) * valid[:, None, None]
    seen = pictures * (1 - mask[:, None]) + moved * mask[:, None]
    row = torch.where(valid[:, None], pasted, torch.zeros_like(pasted))
    kind = torch.where(valid, label, torch.full_like(label, ABSENT))
    return seen, Targets(
        box=torch.cat([targets.box, row[:, None]], dim=1),
        label=torch.cat([targets.label, kind[:, None]], dim=1),
    )


def mosaic(
    pictures: torch.Tensor, targets: Targets, others: torch.Tensor, centre: torch.Tensor, on: torch.Tensor
) -> Batch:
    """Put four pictures together: each fills one corner, with what it shows there.

    Args:
        pictures: The pictures.
        targets: Their lesions.
        others: (n, 3) the pictures of the upper right, lower left and lower right corner.
        centre: (n, 2) x and y where the four meet.
        on: (n,) whether pictures are put together.

    Returns:
        Pictures, and lesions with four times as many rows.
    """
    height, width = pictures.shape[2:]
    chosen = on.bool()
    here = torch.arange(len(pictures), device=pictures.device)
    source = torch.where(chosen[:, None], torch.cat([here[:, None], others], dim=1), here[:, None])
    meet = torch.where(chosen[:, None], centre.round(), torch.tensor([width, height], device=centre.device))
    x = torch.arange(width, device=pictures.device)[None] >= meet[:, :1]
    y = torch.arange(height, device=pictures.device)[None] >= meet[:, 1:]
    corner = x[:, None].long() + 2 * y[:, :, None].long()
    seen = torch.zeros_like(pictures)
    boxes, labels = [], []
    zero = torch.zeros_like(meet[:, 0])
    far = (torch.full_like(zero, width), torch.full_like(zero, height))
    for number in range(4):
        right, lower = number % 2, number // 2
        seen = torch.where((corner == number)[:, None], pictures[source[:, number]], seen)
        low = torch.stack([meet[:, 0] if right else zero, meet[:, 1] if lower else zero], dim=-1)
        high = torch.stack([far[0] if right else meet[:, 0], far[1] if lower else meet[:, 1]], dim=-1)
        part = Targets(box=targets.box[source[:, number]], label=targets.label[source[:, number]])
        cut = clip_targets(part, low.repeat(1, 2)[:, None], high.repeat(1, 2)[:, None])
        boxes.append(cut.box)
        labels.append(cut.label)
    return seen, Targets(box=torch.cat(boxes, dim=1), label=torch.cat(labels, dim=1))
