"""What a stain fit is, and the targets that pictures are normalised to (LN-03)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name

FITTED = "fitted"
GLASS = "glass"
UNIFORM = "uniform"
ONE_STAIN = "one stain"
STATUSES = {
    FITTED: "two stains were found",
    GLASS: "no tissue, or fewer tissue pixels than a fit needs",
    UNIFORM: "all tissue pixels have the same colour",
    ONE_STAIN: "the two stain vectors are nearly parallel, so that the stains cannot be told apart",
}
"""What a fit can end with. Only pictures of the first kind are normalised; the others keep their bytes and are counted."""
LEAST_CONCENTRATION = 0.1
"""The least 99th percentile of a concentration that is divided by. Real tissue has 0.9 to 3.4."""
Vector = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class StainFit:
    """The two stains of a picture or slide.

    Attributes:
        haematoxylin: The optical density of haematoxylin in red, green and blue, of length 1.
        eosin: The same of eosin.
        concentrations: The 99th percentile of the concentration of each, over all pixels.
        status: "fitted", "glass", "uniform" or "one stain"; the vectors are NaN unless it is "fitted".
        tissue_pixels: How many pixels the vectors rest on.
        pixels: How many pixels there were.
        stretch: The contrast stretch that defined the tissue.

    Example:
        >>> TARGETS["study"].haematoxylin
        (0.58813, 0.75785, 0.28244)
    """

    haematoxylin: Vector
    eosin: Vector
    concentrations: tuple[float, float]
    status: str = FITTED
    tissue_pixels: int = 0
    pixels: int = 0
    stretch: tuple[float, float] = (0.0, 255.0)

    @property
    def is_fitted(self) -> bool:
        """Whether two stains were found."""
        return self.status == FITTED

    @property
    def matrix(self) -> npt.NDArray[np.float64]:
        """The stains as an array, [2, 3]."""
        return np.array([self.haematoxylin, self.eosin])

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """The concentrations that a transform divides by: never less than `LEAST_CONCENTRATION`."""
        return np.maximum(np.array(self.concentrations), LEAST_CONCENTRATION)

    @property
    def is_floored(self) -> bool:
        """Whether a concentration is below `LEAST_CONCENTRATION`."""
        return self.is_fitted and bool(min(self.concentrations) < LEAST_CONCENTRATION)

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain values for JSON; vectors that are not defined are null.

        Returns:
            One entry per attribute.
        """
        plain: dict[str, Any] = {"status": self.status}
        for name in ("haematoxylin", "eosin", "concentrations"):
            values = getattr(self, name)
            plain[name] = [float(v) for v in values] if self.is_fitted else None
        return plain | {
            "tissue_pixels": self.tissue_pixels,
            "pixels": self.pixels,
            "stretch": list(self.stretch),
        }


def not_fitted(status: str, *, pixels: int, tissue_pixels: int, stretch: tuple[float, float]) -> StainFit:
    """Return the fit of a picture whose stains cannot be found.

    Args:
        status: The reason: "glass", "uniform" or "one stain".
        pixels: How many pixels the picture has.
        tissue_pixels: How many of them are tissue.
        stretch: The contrast stretch.

    Returns:
        A fit with vectors of NaN.

    Example:
        >>> not_fitted("glass", pixels=9, tissue_pixels=0, stretch=(0.0, 255.0)).is_fitted
        False
    """
    nan = math.nan
    return StainFit(
        haematoxylin=(nan, nan, nan),
        eosin=(nan, nan, nan),
        concentrations=(nan, nan),
        status=status,
        tissue_pixels=tissue_pixels,
        pixels=pixels,
        stretch=stretch,
    )


def fit_from_dict(plain: Mapping[str, Any], *, where: str = "stain fit") -> StainFit:
    """Read a fit that `StainFit.to_dict` wrote.

    Args:
        plain: The values.
        where: The file, for messages.

    Returns:
        The fit.

    Raises:
        UserError: A value is missing or is not what it may be.

    Example:
        >>> fit_from_dict(TARGETS["study"].to_dict()) == TARGETS["study"]
        True
    """

    def numbers(name: str, count: int) -> tuple[float, ...]:
        values = plain.get(name)
        good = isinstance(values, list | tuple) and len(values) == count
        if good and all(isinstance(v, int | float) and math.isfinite(v) for v in values):  # type: ignore[union-attr]
            return tuple(float(v) for v in values)  # type: ignore[union-attr]
        raise UserError(
            f"'{name}' must hold {count} finite numbers", where=where, fix="Write the fit with `to_dict`."
        )

    def whole(name: str) -> int:
        value = plain.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"'{name}' must be a whole number of 0 or more", where=where)
        return value

    status = plain.get("status", FITTED)
    if status not in STATUSES:
        raise UserError(f"the status must be one of {', '.join(STATUSES)}", where=where)
    stretch = numbers("stretch", 2) if "stretch" in plain else (0.0, 255.0)
    limits = (stretch[0], stretch[1])
    if status != FITTED:
        return not_fitted(
            status, pixels=whole("pixels"), tissue_pixels=whole("tissue_pixels"), stretch=limits
        )
    h, e, c = numbers("haematoxylin", 3), numbers("eosin", 3), numbers("concentrations", 2)
    return check_fit(
        StainFit(
            haematoxylin=(h[0], h[1], h[2]),
            eosin=(e[0], e[1], e[2]),
            concentrations=(c[0], c[1]),
            tissue_pixels=whole("tissue_pixels"),
            pixels=whole("pixels"),
            stretch=limits,
        ),
        where=where,
    )


def check_fit(fit: StainFit, *, where: str = "stain fit") -> StainFit:
    """Check that a fit can be normalised from or to.

    Args:
        fit: A fit with the status "fitted".
        where: What the fit belongs to, for messages.

    Returns:
        The same fit.

    Raises:
        UserError: It has no stains, vectors that are not of length 1, parallel vectors, or a number that is not
            finite.

    Example:
        >>> check_fit(TARGETS["study"]).status
        'fitted'
    """
    if not fit.is_fitted:
        raise UserError(
            f"no stains were found ({STATUSES[fit.status]})",
            where=where,
            fix="Choose a target with both stains, such as 'study'.",
        )
    matrix = fit.matrix
    lengths = np.linalg.norm(matrix, axis=1)
    if not (np.isfinite(matrix).all() and np.isfinite(fit.concentrations).all()):
        raise UserError("a number of the stain fit is not finite", where=where)
    if (abs(lengths - 1) > 0.01).any() or angle_degrees(matrix) < LEAST_ANGLE:
        raise UserError(
            f"the stain vectors {matrix.round(3).tolist()} must be of length 1 and at least {LEAST_ANGLE:g} degrees apart",
            where=where,
        )
    return fit


LEAST_ANGLE = 3.0
"""Degrees between the two stain vectors below which a picture has one stain."""


def angle_degrees(matrix: npt.NDArray[np.float64]) -> float:
    """Return the angle between two vectors.

    Args:
        matrix: The vectors, [2, 3].

    Returns:
        Degrees, 0 to 180.

    Example:
        >>> angle_degrees(np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
        90.0
    """
    cosine = matrix[0] @ matrix[1] / (np.linalg.norm(matrix[0]) * np.linalg.norm(matrix[1]))
    return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))


TARGETS: Mapping[str, StainFit] = MappingProxyType(
    {
        "study": StainFit(
            haematoxylin=(0.58813, 0.75785, 0.28244),
            eosin=(0.20573, 0.91428, 0.34894),
            concentrations=(2.55832, 1.20771),
        )
    }
)
"""Targets by name. 'study' is the target picture of the published lymph-node study."""


def target_by_name(name: str) -> StainFit:
    """Return a target by its name.

    Args:
        name: One of `TARGETS`.

    Returns:
        The target's stains.

    Raises:
        UserError: There is no such target.

    Example:
        >>> target_by_name("study").concentrations
        (2.55832, 1.20771)
    """
    if name not in TARGETS:
        raise unknown_name("stain target", name, sorted(TARGETS))
    return TARGETS[name]
