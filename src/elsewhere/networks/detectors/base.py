"""What every detector of lesions takes and gives: pictures of one size, lesion boxes, found boxes (DBT-16)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

ABSENT, BENIGN, CANCER = -1, 0, 1
"""What a row of `Targets.label` says. All lesions are one class for the detection."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """The lesions of n pictures, up to m each, in tensors of one size so that nothing has to leave the device.

    Args:
        box: (n, m, 4) x0, y0, x1, y1 in pixels.
        label: (n, m) -1 where there is no lesion, 0 benign, 1 cancer.
    """

    box: torch.Tensor
    label: torch.Tensor

    @property
    def there(self) -> torch.Tensor:
        """(n, m) whether a row is a lesion."""
        return self.label != ABSENT

    def to(self, device: torch.device) -> Targets:
        """Return the same lesions on a device.

        Args:
            device: The device.

        Returns:
            The lesions.
        """
        return Targets(box=self.box.to(device), label=self.label.to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The boxes found in n pictures, k each, the best first; rows with score 0 are none.

    Args:
        box: (n, k, 4) x0, y0, x1, y1 in pixels.
        score: (n, k) from 0 to 1.
    """

    box: torch.Tensor
    score: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """Which boxes of a picture a detector returns.

    Args:
        most: How many at most.
        least_score: Boxes with a lower score are left out.
        overlap: Boxes above this IoU with a better one are suppressed.
    """

    most: int = 50
    least_score: float = 0.001
    overlap: float = 0.5


class Detector(nn.Module):
    """A network that finds lesions in pictures.

    Pictures are (n, 3, height, width) from 0 to 1, height and width multiples of `multiple`.

    Attributes:
        multiple: What the height and width must be multiples of.
        static_losses: Whether `losses` computes in tensors of one size and never waits for the device, so that a training
            step can be recorded.
    """

    multiple: int = 32
    static_losses: bool = False

    @abstractmethod
    def losses(self, pictures: torch.Tensor, targets: Targets) -> dict[str, torch.Tensor]:
        """Return the parts of the loss; their sum is minimised.

        Args:
            pictures: (n, 3, height, width).
            targets: Their lesions.

        Returns:
            One number by name.
        """

    @abstractmethod
    def detect(self, pictures: torch.Tensor, options: DetectOptions) -> Found:
        """Find lesions, in evaluation mode.

        Args:
            pictures: (n, 3, height, width).
            options: Which boxes are returned.

        Returns:
            The boxes.
        """

    def forward(self, pictures: torch.Tensor) -> Found:
        """Find lesions with the default options.

        Args:
            pictures: (n, 3, height, width).

        Returns:
            The boxes.
        """
        return self.detect(pictures, DetectOptions())


def pad_found(box: list[torch.Tensor], score: list[torch.Tensor], most: int) -> Found:
    """Bring the boxes of several pictures into tensors of one size.

    Args:
        box: (k, 4) per picture, the best first.
        score: (k,) per picture.
        most: How many rows each picture gets.

    Returns:
        The boxes.

    Example:
        >>> pad_found([torch.ones(1, 4)], [torch.ones(1)], 2).score.tolist()
        [[1.0, 0.0]]
    """
    boxes = [nn.functional.pad(one[:most].float(), (0, 0, 0, most - min(most, len(one)))) for one in box]
    scores = [nn.functional.pad(one[:most].float(), (0, most - min(most, len(one)))) for one in score]
    return Found(box=torch.stack(boxes), score=torch.stack(scores))
