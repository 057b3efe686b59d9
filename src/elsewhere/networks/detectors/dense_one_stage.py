"""The dataset's baseline (Buda 2021): a DenseNet with one prediction per cell (DBT-16, DBT-17).

One grey picture of half size is divided into cells of 96 pixels. Each cell says whether a lesion's centre lies in it, where
in the cell, and how large the lesion is as a multiple of one anchor of 256 pixels: the predicted square root of the ratio
lies between 0 and 1, so that no box is larger than the anchor. Written from the description and the published numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from elsewhere.networks.detectors.anchors import focal_loss
from elsewhere.networks.detectors.base import Targets
from elsewhere.networks.detectors.one_stage import Dense, DenseDetector


@dataclass(frozen=True, kw_only=True)
class DenseOneStageSettings:
    """The published numbers.

    Args:
        growth: Channels that each layer of a dense block adds.
        blocks: Layers per dense block; the map is halved between two blocks.
        first: Channels after the first convolution.
        cell: The side of a cell in pixels: 32 or 96.
        anchor: The side of the largest box in pixels.
        alpha: Weight of cells with a lesion in the focal loss.
        gamma: How much easy cells are weighed down.
    """

    growth: int = 16
    blocks: tuple[int, ...] = (2, 6, 4, 12, 8)
    first: int = 8
    cell: int = 96
    anchor: float = 256.0
    alpha: float = 0.75
    gamma: float = 2.0


class DenseBlock(nn.Module):
    """Layers of which each sees the outputs of all before it (Huang et al. 2017).

    Args:
        inside: Channels of the input.
        layers: How many.
        growth: Channels that each adds.
    """

    def __init__(self, inside: int, layers: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inside + at * growth),
                nn.ReLU(),
                nn.Conv2d(inside + at * growth, 4 * growth, 1, bias=False),
                nn.BatchNorm2d(4 * growth),
                nn.ReLU(),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            for at in range(layers)
        )
        self.outside = inside + layers * growth

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the maps.

        Args:
            x: (n, inside, height, width).

        Returns:
            (n, inside + layers * growth, height, width).
        """
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        return x


class DenseOneStage(DenseDetector):
    """The detector. Of three channels, it looks at the middle one.

    Args:
        settings: See `DenseOneStageSettings`.
    """

    def __init__(self, settings: DenseOneStageSettings) -> None:
        super().__init__()
        self.settings, self.multiple = settings, settings.cell
        layers: list[nn.Module] = [
            nn.Conv2d(1, settings.first, 5, padding=2, bias=False),
            nn.BatchNorm2d(settings.first),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = settings.first
        for at, count in enumerate(settings.blocks):
            block = DenseBlock(channels, count, settings.growth)
            layers.append(block)
            channels = block.outside
            if at + 1 < len(settings.blocks):
                layers += [
                    nn.BatchNorm2d(channels),
                    nn.ReLU(),
                    nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                channels //= 2
        step = settings.cell // 2 ** len(settings.blocks)
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.output = nn.Conv2d(channels, 5, step, stride=step)
        nn.init.normal_(self.output.weight, std=0.01)
        if self.output.bias is not None:
            bias = torch.zeros(5)
            bias[0] = -math.log(76.0)
            self.output.bias.data.copy_(bias)

    def _cells(self, pictures: torch.Tensor) -> torch.Tensor:
        """(n, rows, columns, 5) logits of a lesion, of its place in the cell, and of its size."""
        return self.output(self.layers(pictures[:, 1:2])).permute(0, 2, 3, 1).float()

    def losses(self, pictures: torch.Tensor, targets: Targets) -> dict[str, torch.Tensor]:
        """Return the parts of the loss; their sum is minimised.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.
            targets: Their lesions.

        Returns:
            One number by name.
        """
        cells = self._cells(pictures)
        _, rows, columns, _ = cells.shape
        truth, wanted = self._wanted(targets, rows, columns)
        count = truth.sum().clamp(min=1.0)
        options = self.settings
        score = focal_loss(cells[..., 0], truth, alpha=options.alpha, gamma=options.gamma).sum() / count
        said = torch.cat([torch.tanh(cells[..., 1:3]), torch.sigmoid(cells[..., 3:])], dim=-1)
        away = functional.mse_loss(said, wanted, reduction="none").sum(-1)
        return {"score": score, "box": (away * truth).sum() / count}

    def _wanted(self, targets: Targets, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which cells hold a lesion's centre, and what they should say; of two lesions the last one."""
        n, m = targets.label.shape
        cell = self.settings.cell
        centre = (targets.box[..., :2] + targets.box[..., 2:]) / 2
        place = (centre / cell).long()
        at = torch.stack([place[..., 0].clamp(0, columns - 1), place[..., 1].clamp(0, rows - 1)], dim=-1)
        place = (centre - (at + 0.5) * cell) / (cell / 2)
        side = ((targets.box[..., 2:] - targets.box[..., :2]) / self.settings.anchor).clamp(0, 1).sqrt()
        spare = rows * columns
        index = torch.where(
            targets.there, at[..., 1] * columns + at[..., 0], torch.full_like(at[..., 0], spare)
        )
        truth = torch.zeros(n, spare + 1, device=centre.device)
        wanted = torch.zeros(n, spare + 1, 4, device=centre.device)
        truth.scatter_(1, index, 1.0)
        values = torch.cat([place.clamp(-1, 1), side], dim=-1)
        for row in range(m):
            wanted.scatter_(1, index[:, row, None, None].expand(-1, 1, 4), values[:, row : row + 1])
        return truth[:, :-1].view(n, rows, columns), wanted[:, :-1].view(n, rows, columns, 4)

    def dense(self, pictures: torch.Tensor) -> Dense:
        """Return what is predicted everywhere.

        Args:
            pictures: (n, 3, height, width) from 0 to 1.

        Returns:
            Boxes and scores of all anchors or cells.
        """
        cells = self._cells(pictures)
        n, rows, columns, _ = cells.shape
        cell = self.settings.cell
        y, x = torch.meshgrid(
            torch.arange(rows, device=cells.device), torch.arange(columns, device=cells.device), indexing="ij"
        )
        middle = (torch.stack([x, y], dim=-1) + 0.5) * cell
        centre = middle + torch.tanh(cells[..., 1:3]) * (cell / 2)
        half = self.settings.anchor * torch.sigmoid(cells[..., 3:]) ** 2 / 2
        box = torch.cat([centre - half, centre + half], dim=-1)
        return Dense(box=box.view(n, -1, 4), score=torch.sigmoid(cells[..., 0]).view(n, -1))
