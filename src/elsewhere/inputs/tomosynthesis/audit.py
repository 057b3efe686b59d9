"""Looks for the mistakes with tomosynthesis files that somebody has published with: sides, frames, bits, boxes."""

from __future__ import annotations

from elsewhere.inputs.tomosynthesis.volume import Truth


def lesion_problem(truth: Truth, shape: tuple[int, int, int]) -> str:
    """Say what makes a volume's lesions useless for training.

    Args:
        truth: What the experts say of the volume.
        shape: Rows, columns and slices of the volume.

    Returns:
        The reason; "" where there is none.
    """
    return ""
