"""What every patch of a store has in common: its size, its scale, its stain, and whether masks lie beside it (LN-02, LN-03)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.stain.fits import StainFit, fit_from_dict
from elsewhere.inputs.stain.normalise import FITS, METHODS, Fit, make_target
from elsewhere.inputs.stain.reinhard import ColourStatistics

SCALES = ("mpp", "study")
NO_STAIN = "none"
MOST_SIZE = 4096


@dataclass(frozen=True, kw_only=True)
class StainSpec:
    """How patches are normalised before they are stored.

    Attributes:
        target: The fit that they are normalised to.
        target_name: What the target is called: "study", or "file" for a picture or slide of the user.
        method: "macenko", "vahadane" or "reinhard".
        fit: "slide": one fit per slide; "patch": each patch its own.
    """

    target: Fit
    target_name: str = "study"
    method: str = "macenko"
    fit: str = "slide"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("stain method", self.method, sorted(METHODS))
        if self.fit not in FITS:
            raise unknown_name("way to fit stains", self.fit, FITS)
        make_target(self.target, method=self.method)

    def words(self) -> str:
        """Describe the normalisation in a few words.

        Returns:
            Such as "macenko to 'study', one fit per slide".

        Example:
            >>> StainSpec(target=make_target("study")).words()
            "macenko to 'study', one fit per slide"
        """
        return f"{self.method} to '{self.target_name}', one fit per {self.fit}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute.
        """
        return {
            "method": self.method,
            "fit": self.fit,
            "target_name": self.target_name,
            "target": fit_to_dict(self.target),
        }


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """What the patches of a store have in common.

    Attributes:
        size: Pixels along a patch.
        scale: "mpp": every patch has `mpp` microns per pixel, by the exact mean over area; "study": the level of
            downsample 2 for slides of under 0.3 um, level 0 otherwise, as it is stored (LN-02).
        mpp: Microns per pixel with the scale "mpp"; None with "study".
        stain: The stain normalisation; None for the slide's own colours.
        masks: Whether a mask of tumour is stored beside every patch.
    """

    size: int = 256
    scale: str = "mpp"
    mpp: float | None = 0.5
    stain: StainSpec | None = None
    masks: bool = True

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise unknown_name("scale of patches", self.scale, SCALES)
        if not (8 <= self.size <= MOST_SIZE) or self.size % 8:
            raise UserError(
                f"patches of {self.size} pixels cannot be stored",
                fix=f"Choose a multiple of 8 up to {MOST_SIZE:,}, such as 256.",
            )
        if self.scale == "mpp" and not (self.mpp is not None and math.isfinite(self.mpp) and self.mpp > 0):
            raise UserError(
                "the scale 'mpp' needs a number of microns per pixel", fix="State it, such as 0.5."
            )
        if self.scale == "study" and self.mpp is not None:
            raise UserError("the scale 'study' takes the microns per pixel of each slide, and one was stated")

    @property
    def patch_bytes(self) -> int:
        """Bytes of the pixels of a patch."""
        return self.size * self.size * 3

    @property
    def mask_bytes(self) -> int:
        """Bytes of the mask of a patch: one bit per pixel; 0 without masks."""
        return self.size * self.size // 8 if self.masks else 0

    def grid_words(self) -> str:
        """Describe the grid in a few words.

        Returns:
            Such as "256 px at 0.5 microns per pixel".

        Example:
            >>> StoreSpec().grid_words()
            '256 px at 0.5 microns per pixel'
        """
        at = f"{self.mpp:g} microns per pixel" if self.scale == "mpp" else "the study's scale"
        return f"{self.size} px at {at}"

    def stain_words(self) -> str:
        """Describe the stain in a few words.

        Returns:
            "none" for the slide's own colours.

        Example:
            >>> StoreSpec().stain_words()
            'none'
        """
        return NO_STAIN if self.stain is None else self.stain.words()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute; no stain is null.
        """
        return {
            "size": self.size,
            "scale": self.scale,
            "mpp": self.mpp,
            "stain": None if self.stain is None else self.stain.to_dict(),
            "masks": self.masks,
        }

    def digest(self) -> str:
        """Compute what names these settings.

        Returns:
            sha256 in hexadecimal; equal settings have equal digests.

        Example:
            >>> StoreSpec().digest() == StoreSpec(mpp=0.25).digest()
            False
        """
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def check_same(self, other: StoreSpec, *, where: str) -> None:
        """Refuse to mix patches of two kinds in one store.

        Args:
            other: What is asked for.
            where: The store, for the message.

        Raises:
            UserError: The grid, the stain or the masks differ; the message names both.

        Example:
            >>> StoreSpec().check_same(StoreSpec(mpp=0.25), where="store")
            Traceback (most recent call last):
            elsewhere.errors.UserError: store: the store holds another grid (256 px at 0.5 microns per pixel) than is asked for (256 px at 0.25 microns per pixel)
            Write to another folder, or ask for what the store holds.
        """
        pairs = [("grid", self.grid_words(), other.grid_words())]
        mine, asked = ({**one.to_dict(), "stain": None, "masks": None} for one in (self, other))
        if mine == asked:
            pairs = [("stain", self.stain_words(), other.stain_words())]
            if self.to_dict()["stain"] == other.to_dict()["stain"]:
                has, wants = ("tumour" if one.masks else "none" for one in (self, other))
                pairs = [("kind of masks", has, wants)]
        if self.digest() != other.digest():
            name, has, wants = pairs[0]
            if has == wants:
                wants += " with other numbers"
            raise UserError(
                f"the store holds another {name} ({has}) than is asked for ({wants})",
                where=where,
                fix="Write to another folder, or ask for what the store holds.",
            )


def fit_to_dict(fit: Fit) -> dict[str, Any]:
    """Return a stain fit of any method as plain values for JSON.

    Args:
        fit: The fit.

    Returns:
        One entry per attribute; numbers that are not defined are null.

    Example:
        >>> fit_to_dict(make_target("study"))["status"]
        'fitted'
    """
    if isinstance(fit, StainFit):
        return fit.to_dict()
    plain = dataclasses.asdict(fit)
    return {
        name: (list(v) if fit.is_fitted else None) if isinstance(v, tuple) else v for name, v in plain.items()
    }


def read_fit(plain: Any, *, method: str, where: str) -> Fit:
    """Read a fit that `fit_to_dict` wrote.

    Args:
        plain: The values.
        method: The method of the fit.
        where: The file, for messages.

    Returns:
        The fit.

    Raises:
        UserError: A value is missing or is not what it may be.

    Example:
        >>> study = make_target("study")
        >>> read_fit(fit_to_dict(study), method="macenko", where="x") == study
        True
    """
    if not isinstance(plain, Mapping):
        raise _damaged("its stain fit is no object", where)
    if method != "reinhard":
        return fit_from_dict(plain, where=where)
    status = plain.get("status")
    numbers = {}
    for name in ("mean", "sd"):
        values = plain.get(name)
        if status != "fitted":
            numbers[name] = (math.nan, math.nan, math.nan)
            continue
        if not isinstance(values, list) or len(values) != 3 or not all(_is_number(one) for one in values):
            raise _damaged(f"'{name}' of its stain fit is not three numbers", where)
        numbers[name] = (float(values[0]), float(values[1]), float(values[2]))
    counts = {name: plain.get(name, 0) for name in ("tissue_pixels", "pixels")}
    if status not in ("fitted", "glass") or not all(_is_whole(one) for one in counts.values()):
        raise _damaged("its stain fit cannot be understood", where)
    return ColourStatistics(mean=numbers["mean"], sd=numbers["sd"], status=str(status), **counts)


def read_spec(plain: Any, *, where: str) -> StoreSpec:
    """Read what `StoreSpec.to_dict` wrote.

    Args:
        plain: The values.
        where: The file, for messages.

    Returns:
        The settings.

    Raises:
        UserError: A value is missing or is not what it may be.

    Example:
        >>> read_spec(StoreSpec().to_dict(), where="store.json") == StoreSpec()
        True
    """
    if not isinstance(plain, Mapping) or set(plain) != {"size", "scale", "mpp", "stain", "masks"}:
        raise _damaged("the settings are not those of a store of patches", where)
    size, mpp, masks, stain = plain["size"], plain["mpp"], plain["masks"], plain["stain"]
    if not _is_whole(size) or not (mpp is None or _is_number(mpp)) or not isinstance(masks, bool):
        raise _damaged("a setting is not what it may be", where)
    made = None
    if stain is not None:
        if not isinstance(stain, Mapping) or set(stain) != {"method", "fit", "target_name", "target"}:
            raise _damaged("the stain of the store cannot be understood", where)
        method = str(stain["method"])
        made = StainSpec(
            target=read_fit(stain["target"], method=method, where=where),
            target_name=str(stain["target_name"])[:100],
            method=method,
            fit=str(stain["fit"]),
        )
    return StoreSpec(
        size=size, scale=str(plain["scale"]), mpp=None if mpp is None else float(mpp), stain=made, masks=masks
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _damaged(what: str, where: str) -> UserError:
    return UserError(what, where=where, fix="Pack the slides again into another folder.")
