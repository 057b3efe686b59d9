"""The boxes of one volume (DBT-11): corners in pixels, slices, a score and a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def _no_labels() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Boxes:
    """The boxes of one volume, half-open: x0 <= x < x1, y0 <= y < y1, z0 <= z < z1.

    x counts columns, y rows and z slices, each from 0. A box on one slice has z1 = z0 + 1. The arrays cannot be
    written.

    Args:
        x0: (n,) left edges in pixels.
        y0: (n,) upper edges in pixels.
        x1: (n,) right edges in pixels, no smaller than `x0`.
        y1: (n,) lower edges in pixels, no smaller than `y0`.
        z0: (n,) first slices.
        z1: (n,) one past the last slices, larger than `z0`.
        score: (n,) how sure the detector is; higher is surer.
        label: (n,) the class of each box; left out: all 0.

    Raises:
        UserError: The arrays differ in length, a value is missing or infinite, or a box ends before it begins.

    Example:
        >>> found = Boxes.on_slice([[2, 3, 9, 8], [0, 0, 4, 4]], [0.9, 0.4], 7)
        >>> len(found), found.z0.tolist(), found.area.tolist()
        (2, [7, 7], [35.0, 16.0])
    """

    x0: FloatArray
    y0: FloatArray
    x1: FloatArray
    y1: FloatArray
    z0: IntArray
    z1: IntArray
    score: FloatArray
    label: IntArray = field(default_factory=_no_labels)

    def __post_init__(self) -> None:
        n = np.size(self.score)
        if np.size(self.label) == 0:
            object.__setattr__(self, "label", np.zeros(n, dtype=np.int64))
        for name, dtype in _DTYPES.items():
            given = np.asarray(getattr(self, name))
            if given.shape != (n,):
                raise UserError(
                    f"'{name}' of boxes has shape {given.shape}, and there are {n} scores",
                    fix="Give one value per box.",
                )
            if n and not np.isfinite(given).all():
                raise UserError(f"'{name}' of a box is missing or infinite", fix="Leave such boxes out.")
            values: npt.NDArray[Any] = given.astype(dtype)
            if dtype is np.int64 and (values != given).any():
                raise UserError(
                    f"'{name}' of a box is no whole number", fix="Count slices and classes from 0."
                )
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        if (self.x1 < self.x0).any() or (self.y1 < self.y0).any() or (self.z1 <= self.z0).any():
            raise UserError("a box ends before it begins", fix="Give x0 <= x1, y0 <= y1 and z0 < z1.")

    def __len__(self) -> int:
        return len(self.score)

    @classmethod
    def on_slice(
        cls, box: npt.ArrayLike, score: npt.ArrayLike, z: npt.ArrayLike, label: npt.ArrayLike | None = None
    ) -> Boxes:
        """Make boxes that lie on one slice each.

        Args:
            box: (n, 4) x0, y0, x1, y1.
            score: (n,) scores.
            z: The slice of all boxes, or (n,) slices.
            label: (n,) classes; None: all 0.

        Returns:
            The boxes.

        Raises:
            UserError: See `Boxes`.

        Example:
            >>> Boxes.on_slice([[0, 0, 2, 2]], [0.5], 3).corners().tolist()
            [[0.0, 0.0, 3.0, 2.0, 2.0, 4.0]]
        """
        corners = np.asarray(box, dtype=np.float64).reshape(-1, 4)
        first = np.broadcast_to(np.asarray(z), (len(corners),))
        return cls._of(corners, first, first + 1, score, label)

    @classmethod
    def in_volume(cls, box: npt.ArrayLike, score: npt.ArrayLike, label: npt.ArrayLike | None = None) -> Boxes:
        """Make boxes from their six corners, as the answer kind `boxes` stores them.

        Args:
            box: (n, 6) x0, y0, z0, x1, y1, z1.
            score: (n,) scores.
            label: (n,) classes; None: all 0.

        Returns:
            The boxes.

        Raises:
            UserError: See `Boxes`.

        Example:
            >>> Boxes.in_volume([[0, 0, 3, 2, 2, 9]], [0.5]).depth.tolist()
            [6]
        """
        corners = np.asarray(box, dtype=np.float64).reshape(-1, 6)
        return cls._of(corners[:, [0, 1, 3, 4]], corners[:, 2], corners[:, 5], score, label)

    @classmethod
    def _of(cls, plane: FloatArray, z0: Any, z1: Any, score: Any, label: Any) -> Boxes:
        held = _no_labels() if label is None else label
        x0, y0, x1, y1 = plane.T
        return cls(x0=x0, y0=y0, x1=x1, y1=y1, z0=z0, z1=z1, score=np.asarray(score), label=held)

    @classmethod
    def none(cls) -> Boxes:
        """Return no boxes at all.

        Returns:
            Boxes of length 0.

        Example:
            >>> len(Boxes.none())
            0
        """
        return cls.on_slice(np.zeros((0, 4)), np.zeros(0), 0)

    @classmethod
    def join(cls, parts: Sequence[Boxes]) -> Boxes:
        """Put the boxes of several slices, tiles or detectors together, in their order.

        Args:
            parts: Boxes of one volume.

        Returns:
            All of them.

        Example:
            >>> one = Boxes.on_slice([[0, 0, 2, 2]], [0.5], 3)
            >>> len(Boxes.join([one, one, Boxes.none()]))
            2
        """
        if not parts:
            return cls.none()
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _DTYPES})

    @property
    def plane(self) -> FloatArray:
        """(n, 4) x0, y0, x1, y1."""
        return np.stack([self.x0, self.y0, self.x1, self.y1], axis=1)

    @property
    def area(self) -> FloatArray:
        """(n,) areas in the plane of a slice."""
        area: FloatArray = (self.x1 - self.x0) * (self.y1 - self.y0)
        return area

    @property
    def depth(self) -> IntArray:
        """(n,) numbers of slices."""
        depth: IntArray = self.z1 - self.z0
        return depth

    @property
    def centre(self) -> FloatArray:
        """(n, 2) x and y of the centres."""
        return np.stack([(self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2], axis=1)

    @property
    def centre_slice(self) -> FloatArray:
        """(n,) middle slices; half-way between two where the depth is even."""
        middle: FloatArray = (self.z0 + self.z1 - 1) / 2
        return middle

    def corners(self) -> FloatArray:
        """Return the six corners, as the answer kind `boxes` stores them.

        Returns:
            (n, 6) x0, y0, z0, x1, y1, z1.
        """
        return np.stack([self.x0, self.y0, self.z0, self.x1, self.y1, self.z1], axis=1).astype(np.float64)

    def take(self, rows: npt.ArrayLike) -> Boxes:
        """Select boxes.

        Args:
            rows: Positions, in the order wanted, or a mask with one value per box.

        Returns:
            The selected boxes.
        """
        chosen = np.asarray(rows)
        if chosen.size == 0 and chosen.dtype != bool:
            chosen = chosen.astype(np.int64)
        return Boxes(**{name: getattr(self, name)[chosen] for name in _DTYPES})

    def order(self) -> IntArray:
        """Return the positions of the boxes by falling score; among equals the earlier box comes first.

        Returns:
            (n,) positions.
        """
        order: IntArray = np.argsort(-self.score, kind="stable").astype(np.int64)
        return order

    def best(self, count: int | None = None) -> Boxes:
        """Return the boxes by falling score.

        Args:
            count: How many at most; None: all.

        Returns:
            The boxes with the highest scores.

        Example:
            >>> Boxes.on_slice([[0, 0, 2, 2], [1, 1, 2, 2]], [0.5, 0.7], 3).best(1).score.tolist()
            [0.7]
        """
        return self.take(self.order()[:count])

    def scored(self, score: npt.ArrayLike) -> Boxes:
        """Return the same boxes with other scores.

        Args:
            score: (n,) new scores.

        Returns:
            The boxes.

        Raises:
            UserError: See `Boxes`.
        """
        return replace(self, score=np.asarray(score))

    def moved(self, x: float = 0.0, y: float = 0.0, *, scale: float = 1.0) -> Boxes:
        """Return the boxes multiplied by a scale and then shifted: from a tile's pixels to the volume's.

        Args:
            x: Added to the columns after scaling.
            y: Added to the rows after scaling.
            scale: Pixels of the result per pixel of these boxes.

        Returns:
            The boxes.

        Example:
            >>> Boxes.on_slice([[1, 2, 3, 4]], [0.5], 0).moved(10, scale=2).plane.tolist()
            [[12.0, 4.0, 16.0, 8.0]]
        """
        return replace(
            self,
            x0=self.x0 * scale + x,
            x1=self.x1 * scale + x,
            y0=self.y0 * scale + y,
            y1=self.y1 * scale + y,
        )


_DTYPES: dict[str, type] = {
    "x0": np.float64,
    "y0": np.float64,
    "x1": np.float64,
    "y1": np.float64,
    "z0": np.int64,
    "z1": np.int64,
    "score": np.float64,
    "label": np.int64,
}
