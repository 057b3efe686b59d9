"""SimCLR's loss, and how its weight gives way to the supervised one over the epochs (MRI-15, pimed-lab)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """SimCLR's loss and its weight over the epochs; the supervised loss has the rest of the weight.

    Attributes:
        temperature: Temperature of NT-Xent.
        hold: The weight is 1 until this share of the epochs is done.
        gone: From `hold` on it falls linearly to 0 at this share.
    """

    temperature: float = 0.1
    hold: float = 0.2
    gone: float = 0.6

    def weight(self, epoch: int, epochs: int) -> float:
        """Return the weight of an epoch.

        Args:
            epoch: The number of the epoch, from 1.
            epochs: How many there are.

        Returns:
            A number in [0, 1].

        Example:
            >>> Contrast(hold=0.2, gone=0.6).weight(1, 10)
            1.0
        """
        done = (epoch - 1) / max(1, epochs)
        if done < self.hold:
            return 1.0
        if done >= self.gone:
            return 0.0
        return (self.gone - done) / (self.gone - self.hold)


def nt_xent(first: torch.Tensor, second: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return the normalised temperature-scaled cross-entropy, the mean over both views of all cases.

    Row i of `first` and of `second` are two views of one case; all other rows are its negatives.

    Args:
        first: [cases, features].
        second: The other view of each case, [cases, features].
        temperature: Divides the cosines.

    Returns:
        One number.
    """
    n = len(first)
    z = functional.normalize(torch.cat([first, second]).float(), dim=1)
    likeness = z @ z.T / temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    likeness = likeness.masked_fill(itself, float("-inf"))
    other = torch.arange(2 * n, device=z.device).roll(n)
    return functional.cross_entropy(likeness, other)
