"""Normalise the patches of a slide: fitted per slide or per patch, with what happened counted (LN-03)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.stain import macenko, reinhard, vahadane
from elsewhere.inputs.stain.fits import StainFit, check_fit, target_by_name
from elsewhere.inputs.stain.optical_density import Bytes, ColourCounts, check_pixels, is_background
from elsewhere.inputs.stain.reinhard import ColourStatistics

METHODS: Mapping[str, Any] = MappingProxyType(
    {"macenko": macenko.fit, "vahadane": vahadane.fit, "reinhard": reinhard.fit}
)
FITS = ("slide", "patch")
Fit = StainFit | ColourStatistics
Target = StainFit | ColourStatistics | str | npt.NDArray[np.uint8]
COUNTED = {
    "normalised": "patches given the target's stains",
    "glass": "patches left as they are: no tissue",
    "uniform": "patches left as they are: all tissue has one colour",
    "one stain": "patches left as they are: the stains cannot be told apart",
    "weak stain": "normalised patches of which a stain's concentration is below 0.1 and counts as 0.1",
    "background pixels": "pixels of glass in normalised patches: their bytes are unchanged",
}
"""What is counted, in words."""


@dataclass(frozen=True, kw_only=True)
class Normalised:
    """Patches after stain normalisation.

    Attributes:
        patches: uint8, one array per patch, in the order given.
        fits: The fit that each patch was normalised from.
        counts: How often each thing of `COUNTED` happened.
    """

    patches: list[Bytes]
    fits: list[Fit]
    counts: Mapping[str, int] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Say what was counted, without the zeros.

        Returns:
            One line per kind.
        """
        return [f"{number:,} {COUNTED[name]}" for name, number in self.counts.items() if number]


def fit_slide(patches: Iterable[npt.ArrayLike], *, method: str = "macenko") -> Fit:
    """Fit the stains of a slide to all pixels of its patches, in constant memory.

    Args:
        patches: uint8 [..., 3] each; about 1,000 tissue patches are enough.
        method: "macenko", "vahadane" or "reinhard".

    Returns:
        The fit of all patches together.

    Raises:
        UserError: The method is unknown, or a patch is not 8-bit RGB.

    Example:
        >>> fit_slide([np.full((8, 8, 3), 250, dtype=np.uint8)]).status
        'glass'
    """
    function = _method(method)
    counts = ColourCounts()
    for patch in patches:
        counts.add(patch)
    found: Fit = function(counts)
    return found


def _method(name: str) -> Any:
    if name not in METHODS:
        raise unknown_name("stain method", name, sorted(METHODS))
    return METHODS[name]


def make_target(target: Target, *, method: str = "macenko") -> Fit:
    """Return the fit to normalise to.

    Args:
        target: A name such as "study", a fit (of a slide, for example), or a picture, uint8 [height, width, 3].
        method: The method that a picture is fitted by.

    Returns:
        The target's fit.

    Raises:
        UserError: The name is unknown, the picture has not two stains, or the fit is of another method.

    Example:
        >>> make_target("study").status
        'fitted'
    """
    function = _method(method)
    if isinstance(target, str):
        if method == "reinhard":
            raise UserError(
                f"the target '{target}' holds stain vectors, and 'reinhard' needs colours",
                fix="Give a picture as the target, or use macenko or vahadane.",
            )
        return target_by_name(target)
    found: Fit = target if isinstance(target, StainFit | ColourStatistics) else function(target)
    if isinstance(found, ColourStatistics) != (method == "reinhard"):
        raise UserError(
            f"the target is a fit of another method than {method}",
            where="target",
            fix="Fit the target by the same method as the patches.",
        )
    if isinstance(found, StainFit):
        check_fit(found, where="target")
    elif not found.is_fitted:
        raise UserError("the target picture holds no tissue", where="target", fix="Choose another picture.")
    return found


def normalise(
    patches: Sequence[npt.ArrayLike],
    target: Target = "study",
    *,
    fit: str | Fit = "slide",
    method: str = "macenko",
    background: str = "keep",
) -> Normalised:
    """Normalise the patches of one slide.

    Args:
        patches: uint8 [..., 3] each.
        target: What they shall look like: a name such as "study", a fit, or a picture.
        fit: "slide": one fit for all patches (default); "patch": each its own, as the published study; or a fit
            made before, by `fit_slide` for example.
        method: "macenko", "vahadane" or "reinhard".
        background: "keep" or "transform"; see `macenko.transform`. Reinhard always keeps it.

    Returns:
        The patches, their fits and the counts. A patch that cannot be normalised is returned as it is.

    Raises:
        UserError: A word is unknown, a patch is not 8-bit RGB, or the target cannot be used.

    Example:
        >>> done = normalise([np.full((8, 8, 3), 250, dtype=np.uint8)], fit="patch")
        >>> done.sentences()
        ['1 patches left as they are: no tissue']
    """
    arrays = [check_pixels(patch, what="patch") for patch in patches]
    function = _method(method)
    wanted = make_target(target, method=method)
    if isinstance(fit, str) and fit not in FITS:
        raise UserError(f"fit is {fit!r}", fix=f"Give one of these words, or a fit: {', '.join(FITS)}.")
    if not isinstance(fit, str) and isinstance(fit, ColourStatistics) != isinstance(wanted, ColourStatistics):
        raise UserError(f"the fit given is of another method than {method}", fix="Fit it by the same method.")
    shared: Fit | None = fit_slide(arrays, method=method) if fit == "slide" else None
    shared = fit if not isinstance(fit, str) else shared
    counts = dict.fromkeys(COUNTED, 0)
    made: list[Bytes] = []
    fits: list[Fit] = []
    for array in arrays:
        own: Fit = shared if shared is not None else function(array)
        fits.append(own)
        counts["normalised" if own.is_fitted else own.status] += 1
        if isinstance(own, StainFit) and isinstance(wanted, StainFit):
            made.append(macenko.transform(array, own, wanted, background=background))
            counts["weak stain"] += own.is_floored
        elif isinstance(own, ColourStatistics) and isinstance(wanted, ColourStatistics):
            made.append(reinhard.transform(array, own, wanted))
        if own.is_fitted and background == "keep":
            counts["background pixels"] += int(is_background(array).sum())
    return Normalised(patches=made, fits=fits, counts=counts)
