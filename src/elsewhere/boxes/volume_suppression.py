"""Suppression over the slices of a volume (VICOROB, DBT-11 and DBT-17).

The detector runs on every slice but the first and last four, which are close to the skin. Boxes below a minimum score
are dropped; of the rest, a box removes those that overlap it on neighbouring slices, up to a quarter of the volume away.
"""

from __future__ import annotations

from dataclasses import dataclass

from elsewhere.boxes.boxes import Boxes
from elsewhere.boxes.overlap import OverlapRule
from elsewhere.boxes.suppression import suppress
from elsewhere.errors import UserError


@dataclass(frozen=True, kw_only=True)
class VolumeSuppressionOptions:
    """The numbers of the team's published code.

    Args:
        least_score: Boxes with a lower score are dropped.
        overlap: A box removes those whose IoU with it is above this.
        reach: How far the removed boxes may lie, as a share of the volume's slices.
        most: How many boxes a volume keeps at most.
        skipped: How many slices at each end are not looked at.
    """

    least_score: float = 0.001
    overlap: float = 0.5
    reach: float = 0.25
    most: int = 15
    skipped: int = 4


def searched_slices(slices: int, skipped: int = 4) -> range:
    """Return the slices that are looked at: all but the first and the last few.

    A volume with too few slices loses fewer at each end, so that its middle slice always stays. The text does not
    say what happens to volumes of fewer than nine slices.

    Args:
        slices: The number of slices of the volume.
        skipped: How many are skipped at each end.

    Returns:
        The slices.

    Raises:
        UserError: The volume has no slice, or a negative number is skipped.

    Example:
        >>> searched_slices(70), searched_slices(8), searched_slices(1)
        (range(4, 66), range(3, 5), range(0, 1))
    """
    if slices < 1 or skipped < 0:
        raise UserError(
            f"{slices} slices of which {skipped} are skipped at each end",
            fix="Give a volume of one slice or more, and 0 or more skipped slices.",
        )
    ends = min(skipped, (slices - 1) // 2)
    return range(ends, slices - ends)


def suppress_volume(boxes: Boxes, slices: int, options: VolumeSuppressionOptions | None = None) -> Boxes:
    """Reduce the boxes of all slices to those of the volume.

    Args:
        boxes: Boxes on slices.
        slices: The number of slices of the volume.
        options: See `VolumeSuppressionOptions`.

    Returns:
        The boxes that stay, the highest score first.

    Raises:
        UserError: The volume has no slice.

    Example:
        >>> boxes = Boxes.on_slice([[0, 0, 9, 9]] * 4, [0.9, 0.8, 0.7, 0.6], [20, 25, 60, 2])
        >>> suppress_volume(boxes, 70).z0.tolist()
        [20, 60]
    """
    chosen = options or VolumeSuppressionOptions()
    searched = searched_slices(slices, chosen.skipped)
    middle = boxes.centre_slice
    inside = (middle >= searched.start) & (middle <= searched.stop - 1)
    held = boxes.take(inside & (boxes.score >= chosen.least_score))
    rule = OverlapRule(above=chosen.overlap, within_slices=chosen.reach * slices)
    return suppress(held, rule).best(chosen.most)
