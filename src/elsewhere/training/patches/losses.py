"""The focal Tversky loss in the two readings of its letters (LN-09).

With soft counts over all pixels of a batch (TP: probability on tumour, FN: what is missing to 1 on tumour, FP: probability
elsewhere), the Tversky index is (TP + s) / (TP + a FN + b FP + s), and the loss (1 - index) ** e.

- `abraham` (Abraham and Khan 2019): a = alpha, b = beta, e = 1 / gamma.
- `smp` (as segmentation-models-pytorch names its arguments): a = beta, b = alpha, e = gamma.

The sums run over the batch: the index of one patch without tumour says nothing, it is s / (s + b FP).
"""

from __future__ import annotations

import torch

from elsewhere.training.patches.settings import PatchSettings

LEAST = 1e-7
"""One minus the index counts as at least this much: a root has no finite slope at 0."""


def soft_counts(logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Add up the soft true positives, false positives and false negatives of a batch.

    Args:
        logits: (n, 1, height, width).
        truth: As `logits`; 1 for tumour.

    Returns:
        (3,) true positives, false positives, false negatives.
    """
    probability = logits.sigmoid()
    positive = truth.sum()
    hit = (probability * truth).sum()
    return torch.stack([hit, probability.sum() - hit, positive - hit])


def focal_tversky(counts: torch.Tensor, settings: PatchSettings) -> torch.Tensor:
    """Compute the focal Tversky loss (LN-09).

    Args:
        counts: (3,) what `soft_counts` returned, or a sum of several.
        settings: Its reading and its numbers.

    Returns:
        The loss, 0 to 1.

    Example:
        >>> counts = torch.tensor([6.0, 2.0, 4.0])
        >>> abraham = PatchSettings(loss="abraham", smooth=0.0)
        >>> round(float(focal_tversky(counts, abraham)), 6), round((2.6 / 8.6) ** 2, 6)
        (0.091401, 0.091401)
    """
    hit, alarm, miss = counts.unbind()
    lost = settings.miss_weight * miss + settings.alarm_weight * alarm
    return (lost / (hit + lost + settings.smooth).clamp_min(LEAST)).clamp_min(LEAST) ** settings.exponent


def hard_counts(logits: torch.Tensor, truth: torch.Tensor, threshold: float) -> torch.Tensor:
    """Count the pixels of each patch.

    Args:
        logits: (n, 1, height, width).
        truth: As `logits`; 1 for tumour.
        threshold: A pixel is called tumour above this probability.

    Returns:
        (n, 4) true positives, false positives, false negatives, true negatives.

    Example:
        >>> logits = torch.tensor([[[[9.0, 9.0, -9.0, -9.0]]]])
        >>> hard_counts(logits, torch.tensor([[[[1.0, 0.0, 1.0, 0.0]]]]), 0.5).tolist()
        [[1, 1, 1, 1]]
    """
    called = logits.sigmoid() > threshold
    tumour = truth > 0.5
    parts = (called & tumour, called & ~tumour, ~called & tumour, ~called & ~tumour)
    return torch.stack([part.flatten(1).sum(dim=1) for part in parts], dim=1)
