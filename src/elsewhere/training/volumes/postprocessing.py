"""The post-processing of predicted masks (MRI-14)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.volumes import Box

KEEP = ("all", "largest", "box", "largest-in-box")


def known_keep(keep: str) -> str:
    """Refuse an unknown post-processing.

    Args:
        keep: One of `KEEP`.

    Returns:
        The same.

    Raises:
        UserError: It is unknown.
    """
    if keep not in KEEP:
        near = near_matches(keep, list(KEEP))
        raise UserError(
            f"unknown post-processing '{keep}'",
            fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(KEEP)}.",
        )
    return keep


def keep_parts(
    mask: npt.NDArray[np.bool_], *, keep: str = "all", box: Box | None = None
) -> npt.NDArray[np.bool_]:
    """Keep a part of a predicted mask.

    Args:
        mask: [x, y, z].
        keep: "all"; "largest": the largest component (voxels that share a face, an edge or a corner); "box":
            what lies in the breast's box, where it is known; "largest-in-box": the one after the other.
        box: The breast's box, half-open; None: not known.

    Returns:
        The mask; empty stays empty.

    Example:
        >>> keep_parts(np.ones((2, 2, 2), dtype=bool), keep="box", box=(0, 0, 0, 1, 2, 2)).sum()
        np.int64(4)
    """
    known_keep(keep)
    out = mask
    if box is not None and keep in ("box", "largest-in-box"):
        x0, y0, z0, x1, y1, z1 = box
        out = np.zeros_like(mask)
        out[x0:x1, y0:y1, z0:z1] = mask[x0:x1, y0:y1, z0:z1]
    if keep in ("largest", "largest-in-box") and out.any():
        out = largest_component(out)
    return out


def largest_component(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the largest component of a mask; only the mask's bounding box is searched, as tumours are small.

    Args:
        mask: [x, y, z], not empty.

    Returns:
        A mask alike.
    """
    from scipy import ndimage

    part = tuple(
        slice(int(found[0]), int(found[-1]) + 1)
        for axis in range(3)
        for found in [np.flatnonzero(mask.any(axis=tuple(a for a in range(3) if a != axis)))]
    )
    labels, n = ndimage.label(mask[part], structure=np.ones((3, 3, 3), dtype=bool))
    if n <= 1:
        return mask
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    out = np.zeros_like(mask)
    out[part] = labels == int(sizes.argmax())
    return out
