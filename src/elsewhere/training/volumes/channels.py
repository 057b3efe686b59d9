"""Which phases a network sees, and the part of a volume that it is shown (MRI-14)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.volumes import Box, Volumes

Channels = str | tuple[int, ...]
"""A name out of `CHANNELS`, or places of phases: (0, 1, -1)."""
CHANNELS: dict[str, tuple[int, ...]] = {
    "three": (0, 1, 2),
    "subtraction": (1,),
    "pre-first-last": (0, 1, -1),
}
"""Phases 0, 1, 2 (MIC, ViCOROB, AIH-MAMA); phase 1 minus phase 0 alone (FME); 0, 1 and the last (Martel)."""
CROPS = ("none", "breast")


def known_channels(channels: Channels) -> tuple[int, ...]:
    """Return which phases a network sees.

    Args:
        channels: A name out of `CHANNELS`, or numbers of phases.

    Returns:
        Numbers of phases; negative ones count from the end.

    Raises:
        UserError: The name is unknown, or no phase is named.

    Example:
        >>> known_channels("pre-first-last")
        (0, 1, -1)
    """
    if isinstance(channels, str):
        if channels not in CHANNELS:
            near = near_matches(channels, list(CHANNELS))
            raise UserError(
                f"unknown channels '{channels}'",
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(CHANNELS)}.",
            )
        return CHANNELS[channels]
    if not channels:
        raise UserError("channels must name at least one phase")
    return tuple(channels)


def channel_count(channels: Channels) -> int:
    """Return how many channels a network has.

    Args:
        channels: A name out of `CHANNELS`, or numbers of phases.

    Returns:
        Their number.

    Example:
        >>> channel_count("three"), channel_count("subtraction")
        (3, 1)
    """
    return len(known_channels(channels))


def read_channels(
    volumes: Volumes, case: str, channels: Channels
) -> tuple[list[npt.NDArray[np.float32]], str]:
    """Read the channels of a case.

    A phase that the case does not have is replaced by its last one: a network has a fixed number of channels.

    Args:
        volumes: Where phases are read.
        case: The name of the case.
        channels: A name out of `CHANNELS`, or numbers of phases.

    Returns:
        The channels, and what a report should say of them ("" for nothing).

    Raises:
        UserError: The case has no phase, its phases differ in size, or the channels are unknown.
    """
    wanted = known_channels(channels)
    there = volumes.phases(case)
    if there < 1:
        raise UserError("the case has no phase", where=case)
    last = there - 1
    missing = [at for at in wanted if at > last]
    places = [min(at, last) if at >= 0 else max(0, there + at) for at in wanted]
    note = f"phase {missing[0]} is missing: its last phase {last} is used instead" if missing else ""
    if channels == "subtraction":
        if there < 2:
            note = "there is only one phase: nothing can be subtracted, and the phase itself is used"
            return [_phase(volumes, case, 0)], note
        return [_phase(volumes, case, 1) - _phase(volumes, case, 0)], note
    read = {at: _phase(volumes, case, at) for at in sorted(set(places))}
    shapes = {volume.shape for volume in read.values()}
    if len(shapes) > 1:
        raise UserError(f"phases of different sizes: {sorted(shapes)}", where=case)
    return [read[at] for at in places], note


def _phase(volumes: Volumes, case: str, at: int) -> npt.NDArray[np.float32]:
    return np.asarray(volumes.phase(case, at), dtype=np.float32)


def box_of(volumes: Volumes, case: str, *, crop: str, margin: int = 0, box: Box | None = None) -> Box | None:
    """Return the part of a case that a network is shown.

    Args:
        volumes: Grids and boxes.
        case: The name of the case.
        crop: "none" or "breast".
        margin: Voxels on every side of the box.
        box: Another box than the one that is known.

    Returns:
        A box inside the volume; None for all of it.

    Raises:
        UserError: The crop is unknown.
    """
    if crop not in CROPS:
        raise UserError(f"unknown crop '{crop}'", fix=f"Known: {', '.join(CROPS)}.")
    if crop == "none":
        return None
    found = box if box is not None else volumes.breast_box(case)
    if found is None:
        return None
    return inside(found, volumes.grid(case).shape, margin=margin)


def inside(box: Sequence[int], shape: Sequence[int], *, margin: int = 0) -> Box | None:
    """Widen a box and cut it at the volume's edge.

    Args:
        box: x0, y0, z0, x1, y1, z1, half-open.
        shape: The size of the volume in voxels.
        margin: Voxels on every side.

    Returns:
        The box; None where nothing is left.

    Example:
        >>> inside((0, 2, 2, 4, 4, 4), (8, 8, 4), margin=1)
        (0, 1, 1, 5, 5, 4)
    """
    low = [max(0, int(box[axis]) - margin) for axis in range(3)]
    high = [min(int(shape[axis]), int(box[axis + 3]) + margin) for axis in range(3)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    return (low[0], low[1], low[2], high[0], high[1], high[2])
