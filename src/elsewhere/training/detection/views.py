"""What a detector's training is shown of volumes: slices of the breast's box, the window, and the lesions it may see."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class LesionBox(Protocol):
    """One lesion of a volume, in pixels of the whole volume."""

    @property
    def x(self) -> float:
        """Left edge."""
        ...

    @property
    def y(self) -> float:
        """Upper edge."""
        ...

    @property
    def width(self) -> float:
        """Columns."""
        ...

    @property
    def height(self) -> float:
        """Rows."""
        ...

    @property
    def slice(self) -> int:
        """The slice it was drawn on."""
        ...

    @property
    def kind(self) -> str:
        """ "benign" or "cancer"."""
        ...


class VolumeView(Protocol):
    """Volumes by case. Coordinates are pixels of the whole volume: x columns, y rows, z slices from 0."""

    def shape(self, case: str) -> tuple[int, int, int]:
        """Return rows, columns and slices.

        Args:
            case: The case.

        Returns:
            The shape of the whole volume.
        """
        ...

    def breast(self, case: str) -> tuple[int, int, int, int]:
        """Return the box of the breast.

        Args:
            case: The case.

        Returns:
            x0, y0, x1, y1.
        """
        ...

    def slice(self, case: str, z: int) -> npt.NDArray[Any]:
        """Return one slice.

        Args:
            case: The case.
            z: The slice.

        Returns:
            (rows, columns) of the breast's box, smaller where stored pixels cover several.
        """
        ...

    def window(self, case: str) -> tuple[float, float]:
        """Return the values that are shown black and white.

        Args:
            case: The case.

        Returns:
            The low and the high value.
        """
        ...

    def side(self, case: str) -> str:
        """Return the side of the breast.

        Args:
            case: The case.

        Returns:
            "left", "right" or "".
        """
        ...

    def scale(self, case: str) -> float:
        """Return how many pixels of the volume a stored pixel covers along each axis.

        Args:
            case: The case.

        Returns:
            1 where slices are stored as they are.
        """
        ...

    def lesions(self, case: str) -> tuple[Any, ...] | None:
        """Return the lesions.

        Args:
            case: The case.

        Returns:
            `LesionBox` objects; None where they are withheld.
        """
        ...

    def finding(self, case: str) -> str | None:
        """Return what is known of the volume.

        Args:
            case: The case.

        Returns:
            "normal", "actionable", "benign" or "cancer"; None where it is withheld.
        """
        ...


def lesion_corners(lesions: tuple[Any, ...]) -> npt.NDArray[np.float64]:
    """Return lesions as corners.

    Args:
        lesions: `LesionBox` objects.

    Returns:
        (n, 4) x0, y0, x1, y1.
    """
    rows = [(one.x, one.y, one.x + one.width, one.y + one.height) for one in lesions]
    return np.array(rows, dtype=np.float64).reshape(-1, 4)
