"""SimCLR's loss, and how its weight gives way to the supervised one over the epochs (MRI-15, pimed-lab)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The weight of NT-Xent is 1 until `hold` of the epochs are done, then falls in a line to 0 at `gone`;
    the supervised loss has the rest of the weight."""

    temperature: float = 0.1
    hold: float = 0.2
    gone: float = 0.6

    def weight(self, epoch: int, epochs: int) -> float:
        """Of epoch 1..epochs."""
        done = (epoch - 1) / max(1, epochs)
        if done < self.hold:
            return 1.0
        if done >= self.gone:
            return 0.0
        return (self.gone - done) / (self.gone - self.hold)


def nt_xent(first: torch.Tensor, second: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """The normalised temperature-scaled cross entropy: row i of `first` and of `second` are two views of one
    case, all other rows are its negatives. The mean over both views of all cases."""
    n = len(first)
    z = functional.normalize(torch.cat([first, second]).float(), dim=1)
    likeness = z @ z.T / temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    likeness = likeness.masked_fill(itself, float("-inf"))
    other = torch.arange(2 * n, device=z.device).roll(n)
    return functional.cross_entropy(likeness, other)
