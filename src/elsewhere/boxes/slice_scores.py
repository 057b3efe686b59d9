"""Multiplication by the score of the slice (ZeDuS, DBT-13).

A second network says of each slice how likely it shows a malignant lesion. The score of a box is multiplied by the score
of the slice on which it was found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elsewhere.boxes.boxes import Boxes
from elsewhere.errors import UserError


def multiply_by_slice(boxes: Boxes, slice_score: npt.ArrayLike) -> Boxes:
    """Multiply the score of each box by that of its slice.

    Args:
        boxes: The boxes; one that spans several slices takes its middle slice, of two the lower one.
        slice_score: (slices,) the score of each slice.

    Returns:
        The boxes with new scores, in their order.

    Raises:
        UserError: A box lies on a slice without a score, or the scores are no list of numbers.

    Example:
        >>> multiply_by_slice(Boxes.on_slice([[0, 0, 4, 4]], [0.8], 1), [0.1, 0.5]).score.tolist()
        [0.4]
    """
    factor = np.asarray(slice_score, dtype=np.float64)
    z = np.floor(boxes.centre_slice).astype(np.int64)
    if factor.ndim != 1 or (len(z) and (z.min() < 0 or z.max() >= len(factor))):
        raise UserError(
            f"there are slice scores of shape {factor.shape} and a box on slice {z.max() if len(z) else 0}",
            fix="Give one score per slice of the volume.",
        )
    return boxes.scored(boxes.score * factor[z])
