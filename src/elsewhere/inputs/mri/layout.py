"""Finds a patient's phases in published layouts of breast MRI, and converts their boxes of the breast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import Box

_PHASE = re.compile(r"(?P<name>.+)_(?P<at>\d{4})\.nii(\.gz)?", re.IGNORECASE)
BOX_ENDS = ("x_min", "x_max", "y_min", "y_max", "z_min", "z_max")


def phase_files(folder: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the NIfTI phases of a patient's folder in their order.

    Args:
        folder: NAME, with files NAME_0000.nii.gz and so on.

    Returns:
        The files, and the names of those that are missing in between.

    Raises:
        UserError: Two files are the same phase.
    """
    found: dict[int, Path] = {}
    name = folder.name
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            match = _PHASE.fullmatch(path.name)
            if match and match["name"].casefold() == folder.name.casefold():
                at = int(match["at"])
                if at in found:
                    raise UserError(
                        f"two files are phase {at:04d}: {found[at].name} and {path.name}",
                        where=str(folder),
                        fix="Keep one of them.",
                    )
                found[at], name = path, match["name"]
    last = max(found, default=0)
    gone = tuple(f"phase {at:04d} ({name}_{at:04d}.nii.gz)" for at in range(last + 1) if at not in found)
    return tuple(found[at] for at in sorted(found)), gone


def published_box(ends: Mapping[str, int]) -> Box:
    """Return a box as MAMA-MIA publishes it (x_min to z_max), in the file's axes, half-open.

    The publisher counts in an array whose first axis is the slice: x is the file's third axis, z its first.
    The challenge's own sample cuts `array[x_min:x_max, y_min:y_max, z_min:z_max]` out of such an array.

    Args:
        ends: x_min, x_max, y_min, y_max, z_min, z_max.

    Returns:
        x0, y0, z0, x1, y1, z1.

    Example:
        >>> box = published_box({"x_min": 1, "x_max": 2, "y_min": 3, "y_max": 4, "z_min": 5, "z_max": 6})
        >>> box, box_to_published(box)["z_min"]
        ((5, 3, 1, 6, 4, 2), 5)
    """
    return (ends["z_min"], ends["y_min"], ends["x_min"], ends["z_max"], ends["y_max"], ends["x_max"])


def box_to_published(box: Box) -> dict[str, int]:
    """Return a box as MAMA-MIA publishes it: the inverse of `published_box`.

    Args:
        box: x0, y0, z0, x1, y1, z1 in the file's axes.

    Returns:
        x_min, x_max, y_min, y_max, z_min, z_max.

    Example:
        >>> box_to_published((5, 3, 1, 6, 4, 2))
        {'x_min': 1, 'x_max': 2, 'y_min': 3, 'y_max': 4, 'z_min': 5, 'z_max': 6}
    """
    x0, y0, z0, x1, y1, z1 = box
    return {"x_min": z0, "x_max": z1, "y_min": y0, "y_max": y1, "z_min": x0, "z_max": x1}
