"""The common part of one-stage detectors: maps, two towers of convolutions, and a box per anchor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from elsewhere.networks.detectors.anchors import (
    AnchorSettings,
    MatchSettings,
    decode_boxes,
    dense_losses,
    make_anchors,
)
from elsewhere.networks.detectors.base import DetectOptions, Detector, Found, Targets


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """What a one-stage detector says at each of its anchors, before anything is suppressed.

    Args:
        box: (n, a, 4) x0, y0, x1, y1 in pixels.
        score: (n, a) from 0 to 1.
        cancer: (n, a) the probability that a lesion there is cancer; None: not predicted.
    """

    box: torch.Tensor
    score: torch.Tensor
    cancer: torch.Tensor | None = None


class DenseDetector(Detector):
    """A detector with a prediction for every anchor or cell."""

    static_losses = True

    def dense(self, pictures: torch.Tensor) -> Dense:
        """Return what is predicted everywhere.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.

        Returns:
            Boxes and scores at all anchors, which lie at the same places in every picture.

        Raises:
            NotImplementedError: A detector of this kind has to say what it predicts.
        """
        raise NotImplementedError(type(self).__name__)

    def detect(self, pictures: torch.Tensor, options: DetectOptions) -> Found:
        """Find lesions, in evaluation mode.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.
            options: Which boxes are returned.

        Returns:
            The boxes.
        """
        return suppress_dense(self.dense(pictures), options, pictures.shape[-2:])


def suppress_dense(dense: Dense, options: DetectOptions, size: tuple[int, int] | torch.Size) -> Found:
    """Reduce the predictions of all anchors to the boxes of each picture.

    The pictures of a batch are laid side by side and suppressed at once: the host waits for the device once per batch.

    Args:
        dense: What the anchors say.
        options: Which boxes are returned.
        size: Height and width of the pictures, to which boxes are clipped.

    Returns:
        The boxes.
    """
    from torchvision.ops import nms

    count = min(20 * options.most, dense.score.shape[1])
    score, order = dense.score.topk(count, dim=1)
    box = dense.box.gather(1, order[..., None].expand(-1, -1, 4)).float()
    box[..., 0::2].clamp_(0, size[1])
    box[..., 1::2].clamp_(0, size[0])
    score = score.float()
    n = len(score)
    apart = torch.arange(n, device=box.device)[:, None, None] * (size[1] + 1.0)
    away = torch.cat([apart, torch.zeros_like(apart)], dim=-1).repeat(1, 1, 2)
    rows = nms((box + away).reshape(-1, 4), score.reshape(-1), options.overlap)
    stays = torch.zeros(n * count, dtype=torch.bool, device=box.device)
    stays[rows] = True
    stays = stays.view(n, count) & (score >= options.least_score)
    rank = stays.cumsum(dim=1) - 1
    rank = torch.where(stays & (rank < options.most), rank, torch.full_like(rank, options.most))
    best = torch.zeros(n, options.most + 1, device=box.device).scatter_(1, rank, score)
    corners = torch.zeros(n, options.most + 1, 4, device=box.device)
    corners.scatter_(1, rank[..., None].expand(-1, -1, 4), box)
    return Found(box=corners[:, :-1], score=best[:, :-1])


class Tower(nn.Module):
    """Convolutions that are shared by all levels, and one output map.

    Args:
        channels: Channels of the maps.
        outputs: Channels of the output.
        depth: How many convolutions before it.
        separable: Depthwise and pointwise convolutions in place of whole ones.
        bias: The output's initial bias.
    """

    def __init__(
        self, channels: int, outputs: int, *, depth: int, separable: bool = False, bias: float = 0.0
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(depth):
            if separable:
                layers += [
                    nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
                    nn.Conv2d(channels, channels, 1, bias=False),
                ]
            else:
                layers.append(nn.Conv2d(channels, channels, 3, padding=1, bias=False))
            layers += [nn.GroupNorm(norm_groups(channels), channels), nn.SiLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.output = nn.Conv2d(channels, outputs, 3, padding=1)
        nn.init.normal_(self.output.weight, std=0.01)
        if self.output.bias is not None:
            nn.init.constant_(self.output.bias, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the output of one level.

        Args:
            x: (n, channels, height, width).

        Returns:
            (n, outputs, height, width).
        """
        return self.output(self.layers(x))


def norm_groups(channels: int) -> int:
    """Return how many groups of channels a group norm has: at most 32, of at least four channels.

    Args:
        channels: The channels.

    Returns:
        The number.

    Example:
        >>> norm_groups(256), norm_groups(24), norm_groups(16)
        (32, 6, 4)
    """
    return next(groups for groups in range(min(32, max(1, channels // 4)), 0, -1) if channels % groups == 0)


class AnchorDetector(DenseDetector):
    """A one-stage detector with anchors: maps from `features`, a tower for scores and one for boxes.

    Args:
        features: Pictures to a list of maps with `channels` channels, each half the size of the one before.
        channels: Channels of the maps.
        depth: Convolutions per tower.
        anchors: The anchors.
        match: When an anchor stands for a lesion, and the weights of the losses.
        separable: Towers of depthwise and pointwise convolutions.
        cancer_head: Whether a further tower says if a box holds cancer.
        multiple: What the height and width of pictures must be multiples of.
    """

    def __init__(
        self,
        features: nn.Module,
        *,
        channels: int,
        depth: int,
        anchors: AnchorSettings,
        match: MatchSettings,
        separable: bool = False,
        cancer_head: bool = False,
        multiple: int = 128,
    ) -> None:
        super().__init__()
        self.features = features
        self.anchors, self.match, self.multiple = anchors, match, multiple
        prior = -math.log((1 - 0.01) / 0.01)
        self.score = Tower(channels, anchors.per_cell, depth=depth, separable=separable, bias=prior)
        self.box = Tower(channels, 4 * anchors.per_cell, depth=depth, separable=separable)
        self.cancer = (
            Tower(channels, anchors.per_cell, depth=depth, separable=separable) if cancer_head else None
        )
        self._grids: dict[tuple[object, ...], torch.Tensor] = {}

    def _predict(
        self, pictures: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        maps = list(self.features(pictures))
        logit = torch.cat([_flat(self.score(one), 1)[..., 0] for one in maps], dim=1)
        step = torch.cat([_flat(self.box(one), 4) for one in maps], dim=1)
        cancer = None
        if self.cancer is not None:
            cancer = torch.cat([_flat(self.cancer(one), 1)[..., 0] for one in maps], dim=1)
        sizes = [(one.shape[2], one.shape[3]) for one in maps]
        return logit.float(), step.float(), cancer, self._grid(sizes, pictures)

    def _grid(self, sizes: list[tuple[int, int]], pictures: torch.Tensor) -> torch.Tensor:
        size = (pictures.shape[2], pictures.shape[3])
        key = (*sizes, size, pictures.device)
        if key not in self._grids:
            self._grids[key] = make_anchors(sizes, size, self.anchors, pictures.device)
        return self._grids[key]

    def losses(self, pictures: torch.Tensor, targets: Targets) -> dict[str, torch.Tensor]:
        """Return the parts of the loss; their sum is minimised.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.
            targets: Their lesions.

        Returns:
            One number by name.
        """
        logit, step, cancer, grid = self._predict(pictures)
        return dense_losses(logit, step, cancer, grid, targets, self.match)

    def dense(self, pictures: torch.Tensor) -> Dense:
        """Return what is predicted everywhere.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.

        Returns:
            Boxes and scores of all anchors or cells.
        """
        logit, step, cancer, grid = self._predict(pictures)
        return Dense(
            box=decode_boxes(step, grid),
            score=torch.sigmoid(logit),
            cancer=None if cancer is None else torch.sigmoid(cancer.float()),
        )


def _flat(output: torch.Tensor, values: int) -> torch.Tensor:
    """(n, anchors * values, h, w) to (n, h * w * anchors, values): the order of the anchors."""
    n, _, height, width = output.shape
    return output.view(n, -1, values, height, width).permute(0, 3, 4, 1, 2).reshape(n, -1, values)
