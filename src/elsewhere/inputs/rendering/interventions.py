"""What differs between two laboratories' patches, measured, and how patches are rendered without that difference (LN-22).

Four interventions, applied in this order: scale, stain, sharpness, compression. Each makes the external patches like the
internal ones. Sharpness that was lost and detail that JPEG removed cannot be brought back: then the internal patches are
degraded to be like the external ones, and the direction says so.

A difference that is no larger than what slides of one laboratory differ by is not applied: the rendering would only add
noise. The stain is that of the laboratory (the mean of its slides' fits), so that slides keep what they differ in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.rendering.compression import JpegQuality, compress, measure_quality
from elsewhere.inputs.rendering.scale import MOST_FACTOR, middle, rescale, rescale_mask
from elsewhere.inputs.rendering.sharpness import (
    LEAST_GAIN,
    RINGS,
    apply_gain,
    blur_index,
    matching_gain,
    radial_spectrum,
)
from elsewhere.inputs.stain import macenko
from elsewhere.inputs.stain.fits import StainFit, check_fit, fit_from_dict
from elsewhere.inputs.stain.optical_density import Bytes

SCALE, STAIN, SHARPNESS, COMPRESSION = "scale", "stain", "sharpness", "compression"
INTERVENTIONS = (SCALE, STAIN, SHARPNESS, COMPRESSION)
"""In the order in which they are applied."""
INTERNAL, EXTERNAL = "internal", "external"
SIDES = (INTERNAL, EXTERNAL)
FORWARD, BACKWARD, NOT_APPLIED = "external to internal", "internal to external", "not applied"
"""External patches are rendered as internal ones, internal ones as external ones, or neither."""
LEAST_SCALE, LEAST_BLUR_PX, LEAST_QUALITY = 0.01, 0.5, 3
"""Differences that are too small to apply: of microns per pixel (as a share), of blur, of JPEG quality."""
LEAST_VECTOR, LEAST_STRENGTH = 0.02, 0.08
"""The same of a component of a stain vector, and of a strength (as a share)."""
LEVEL = 0.01
"""The level of the test by patient that a measured difference has to pass."""
_ROUNDS = 2
_REFINED = 2
_FEWEST = 2
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class SlideSample:
    """Patches of a slide that differences are measured on.

    Attributes:
        patient: The patient.
        patches: uint8 [patches, size, size, 3].
    """

    patient: str
    patches: Bytes


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """One difference between the laboratories and what is done about it.

    Attributes:
        name: "scale", "stain", "sharpness" or "compression".
        direction: "external to internal", "internal to external" or "not applied".
        what: What was measured and what is done, as a sentence.
        factor: Scale: how many times as large the tissue of that side gets.
        stains: Stain: the mean fits of the external and the internal laboratory; None otherwise.
        gain: Sharpness: the gain of the filter per ring of the spectrum, in the coarser pixels of both sides; empty otherwise.
        jpeg: Compression: the quality that is applied; None otherwise.
    """

    name: str
    direction: str
    what: str
    factor: float = 1.0
    stains: tuple[StainFit, StainFit] | None = None
    gain: tuple[float, ...] = ()
    jpeg: JpegQuality | None = None

    @property
    def side(self) -> str:
        """The side whose patches change; empty for none."""
        return {FORWARD: EXTERNAL, BACKWARD: INTERNAL}.get(self.direction, "")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute.
        """
        return {
            "name": self.name,
            "direction": self.direction,
            "what": self.what,
            "factor": self.factor,
            "stains": None if self.stains is None else [fit.to_dict() for fit in self.stains],
            "gain": list(self.gain),
            "jpeg": None
            if self.jpeg is None
            else {"quality": self.jpeg.quality, "subsampled": self.jpeg.subsampled},
        }


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """How patches of two laboratories are rendered.

    Attributes:
        interventions: The four, in the order in which they are applied.
        internal_mpp: Microns per pixel of internal patches.
        external_mpp: Microns per pixel of external patches.
    """

    interventions: tuple[Intervention, ...]
    internal_mpp: float
    external_mpp: float

    @property
    def applied(self) -> tuple[str, ...]:
        """The names of those that change patches."""
        return tuple(one.name for one in self.interventions if one.side)

    def on_side(self, side: str) -> tuple[str, ...]:
        """Name the interventions that change the patches of a side.

        Args:
            side: "internal" or "external".

        Returns:
            The names, in the order in which they are applied.
        """
        return tuple(one.name for one in self.interventions if one.side == side)

    def field_share(self, side: str, names: Iterable[str] = ()) -> float:
        """Say how much of a patch's side the field that is scored has: the same microns in every version.

        Args:
            side: "internal" or "external".
            names: The interventions that were applied to the patch.

        Returns:
            A share, above 0 and up to 1.

        Example:
            >>> finer = Rendering(interventions=(), internal_mpp=0.5, external_mpp=0.4)
            >>> round(finer.field_share("internal"), 3), finer.field_share("external")
            (0.8, 1.0)
        """
        return min(self.internal_mpp, self.external_mpp) / self._mpp(side, set(names))

    def _mpp(self, side: str, names: set[str]) -> float:
        """Microns per pixel of a patch of a side after interventions."""
        scaled = SCALE in names and SCALE in self.on_side(side)
        return self.internal_mpp if (side == INTERNAL) != scaled else self.external_mpp

    def render(self, patch: npt.ArrayLike, side: str, names: Iterable[str]) -> Bytes:
        """Render one patch.

        Args:
            patch: uint8 [size, size, 3].
            side: Whose patch it is: "internal" or "external".
            names: The interventions to apply; those of the other side change nothing.

        Returns:
            A patch of the same size.

        Raises:
            UserError: A name or the side is unknown, or this is no patch.
        """
        chosen = _known(names)
        if side not in SIDES:
            raise unknown_name("side", side, SIDES)
        pixels = np.asarray(patch)
        for one in self.interventions:
            if one.name not in chosen or one.side != side:
                continue
            if one.name == SCALE:
                pixels = rescale(pixels, one.factor)
            elif one.stains is not None:
                pixels = macenko.transform(pixels, *one.stains)
            elif one.name == SHARPNESS:
                ratio = max(self.internal_mpp, self.external_mpp) / self._mpp(side, chosen)
                pixels = apply_gain(pixels, one.gain, pixel_ratio=ratio)
            elif one.jpeg is not None:
                pixels = compress(pixels, one.jpeg)
        return np.asarray(pixels)

    def render_mask(
        self, mask: npt.NDArray[np.bool_], side: str, names: Iterable[str]
    ) -> npt.NDArray[np.bool_]:
        """Render the truth of a patch: scale alone changes it.

        Args:
            mask: [size, size] of truth values.
            side: Whose patch it is.
            names: The interventions to apply.

        Returns:
            A mask of the same size.
        """
        chosen = _known(names)
        for one in self.interventions:
            if one.name == SCALE and one.name in chosen and one.side == side:
                return rescale_mask(mask, one.factor)
        return mask

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON.

        Returns:
            One entry per attribute.
        """
        return {
            "interventions": [one.to_dict() for one in self.interventions],
            "internal_mpp": self.internal_mpp,
            "external_mpp": self.external_mpp,
        }


def rendering_from(plain: Any, *, where: str) -> Rendering:
    """Read what `Rendering.to_dict` wrote.

    Args:
        plain: The values.
        where: The file, for messages.

    Returns:
        The rendering.

    Raises:
        UserError: A value is missing or is not what it may be.

    Example:
        >>> one = Rendering(interventions=(), internal_mpp=0.5, external_mpp=0.5)
        >>> rendering_from(one.to_dict(), where="x") == one
        True
    """
    broken = UserError(
        "the interventions cannot be understood",
        where=where,
        fix="Render the patches again: elsewhere slides rerender.",
    )
    try:
        found = []
        for one in plain["interventions"]:
            jpeg, stains = one["jpeg"], one["stains"]
            made = Intervention(
                name=str(one["name"]),
                direction=str(one["direction"]),
                what=str(one["what"])[:1000],
                factor=float(one["factor"]),
                stains=None
                if stains is None
                else (fit_from_dict(stains[0], where=where), fit_from_dict(stains[1], where=where)),
                gain=tuple(float(value) for value in one["gain"]),
                jpeg=None
                if jpeg is None
                else JpegQuality(quality=int(jpeg["quality"]), subsampled=bool(jpeg["subsampled"])),
            )
            if made.name not in INTERVENTIONS or made.direction not in (FORWARD, BACKWARD, NOT_APPLIED):
                raise broken
            if not 1 / MOST_FACTOR <= made.factor <= MOST_FACTOR or len(made.gain) not in (0, RINGS):
                raise broken
            if not all(0 <= value <= 1 for value in made.gain) or (
                made.name == SHARPNESS and made.side and not made.gain
            ):
                raise broken
            found.append(made)
        internal, external = float(plain["internal_mpp"]), float(plain["external_mpp"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise broken from error
    if not all(math.isfinite(mpp) and mpp > 0 for mpp in (internal, external)):
        raise broken
    return Rendering(interventions=tuple(found), internal_mpp=internal, external_mpp=external)


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """What is known of both laboratories before anything is measured.

    Attributes:
        internal_mpp: True microns per pixel of internal patches.
        external_mpp: The same of external patches.
        internal_jpeg: How internal slides were stored; None to measure it.
        external_jpeg: The same of external slides.
        names: The interventions that are looked at.
    """

    internal_mpp: float = 0.5
    external_mpp: float = 0.5
    internal_jpeg: JpegQuality | None = None
    external_jpeg: JpegQuality | None = None
    names: tuple[str, ...] = INTERVENTIONS

    def __post_init__(self) -> None:
        _known(self.names)
        for mpp in (self.internal_mpp, self.external_mpp):
            if not (math.isfinite(mpp) and mpp > 0):
                raise UserError(f"{mpp} microns per pixel", fix="Give a number above 0, such as 0.5.")
        if not 1 / MOST_FACTOR <= self.external_mpp / self.internal_mpp <= MOST_FACTOR:
            raise UserError(
                f"internal patches have {self.internal_mpp:g} microns per pixel, external ones {self.external_mpp:g}",
                fix="They may differ 4 times at most: check both.",
            )


def measure_rendering(
    internal: Sequence[SlideSample],
    external: Sequence[SlideSample],
    settings: MeasureSettings | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Rendering:
    """Measure what differs between two laboratories, and decide what is applied to which side.

    Args:
        internal: Patches of internal slides.
        external: Patches of external slides, of the same size.
        settings: Microns per pixel, JPEG qualities, and which interventions are looked at; None for the usual ones.
        progress: Called with a step, how many rounds are done, and how many there are.

    Returns:
        The four interventions with their directions.

    Raises:
        UserError: A side has no slide, or the settings do not fit.
    """
    known = settings or MeasureSettings()
    for side, slides in ((INTERNAL, internal), (EXTERNAL, external)):
        if not any(len(slide.patches) for slide in slides):
            raise UserError(f"no {side} patch was given to measure on")
    asked = set(known.names)
    measured = Rendering(
        interventions=(
            _scale(known),
            _not_applied(STAIN, "not measured"),
            _not_applied(SHARPNESS, "not measured"),
            _compression(internal, external, known),
        ),
        internal_mpp=known.internal_mpp,
        external_mpp=known.external_mpp,
    )
    for number in range(_ROUNDS):
        # Blur lowers the strongest concentrations, and strong stain changes the spectrum a little: in turns.
        if SHARPNESS in asked:
            measured = _with(measured, _sharpness(internal, external, measured))
        if STAIN in asked:
            measured = _with(measured, _stain(internal, external, measured))
        if progress is not None:
            progress("measuring differences", number + 1, _ROUNDS)
    for name in INTERVENTIONS:
        if name not in asked:
            measured = _with(measured, _not_applied(name, "not asked for"))
    return measured


def _known(names: Iterable[str]) -> set[str]:
    found = set(names)
    for name in found:
        if name not in INTERVENTIONS:
            raise unknown_name("intervention", name, INTERVENTIONS)
    return found


def _with(rendering: Rendering, made: Intervention) -> Rendering:
    return replace(
        rendering,
        interventions=tuple(made if one.name == made.name else one for one in rendering.interventions),
    )


def _not_applied(name: str, what: str) -> Intervention:
    return Intervention(name=name, direction=NOT_APPLIED, what=f"{what}: not applied")


def _scale(known: MeasureSettings) -> Intervention:
    factor = known.external_mpp / known.internal_mpp
    stated = f"{known.external_mpp:.4g} microns per pixel externally, {known.internal_mpp:.4g} internally"
    if abs(factor - 1) < LEAST_SCALE:
        return _not_applied(SCALE, stated)
    if factor < 1:
        return Intervention(
            name=SCALE,
            direction=FORWARD,
            factor=factor,
            what=f"{stated}: external tissue is made {factor:.3g} times as large",
        )
    return Intervention(
        name=SCALE,
        direction=BACKWARD,
        factor=1 / factor,
        what=f"{stated}: detail that was not scanned cannot be brought back, so internal tissue is made {1 / factor:.3g} times as large",
    )


def _compression(
    internal: Sequence[SlideSample], external: Sequence[SlideSample], known: MeasureSettings
) -> Intervention:
    if COMPRESSION not in known.names:
        return _not_applied(COMPRESSION, "not asked for")
    found: list[JpegQuality] = []
    for side, slides, stated in (
        (INTERNAL, internal, known.internal_jpeg),
        (EXTERNAL, external, known.external_jpeg),
    ):
        jpeg = stated or measure_quality(
            [slide.patches[len(slide.patches) // 2] for slide in slides if len(slide.patches)]
        )
        if jpeg is None:
            return _not_applied(
                COMPRESSION,
                f"the JPEG quality of {side} patches cannot be told from their pixels (resampled, or never compressed)",
            )
        found.append(jpeg)
    inside, outside = found
    stated_text = f"{outside.words()} externally, {inside.words()} internally"
    gap = inside.quality - outside.quality
    if abs(gap) < LEAST_QUALITY and inside.subsampled == outside.subsampled:
        return _not_applied(COMPRESSION, stated_text)
    worse_outside = gap > 0 if gap else outside.subsampled
    if worse_outside:
        return Intervention(
            name=COMPRESSION,
            direction=BACKWARD,
            jpeg=outside,
            what=f"{stated_text}: what was lost cannot be brought back, so internal patches are compressed as external ones",
        )
    return Intervention(
        name=COMPRESSION,
        direction=FORWARD,
        jpeg=inside,
        what=f"{stated_text}: external patches are compressed as internal ones",
    )


def _rendered(
    slides: Sequence[SlideSample], side: str, rendering: Rendering, names: Sequence[str]
) -> Iterable[tuple[str, list[Bytes]]]:
    share = rendering.field_share(side, names)
    size = slides[0].patches.shape[1]
    window = middle(size, share).window
    for slide in slides:
        yield slide.patient, [rendering.render(patch, side, names)[window] for patch in slide.patches]


def _by_patient(rows: Iterable[tuple[str, Floats]]) -> Floats:
    """The mean of each patient, [patients, values]; what is not defined is left out."""
    held: dict[str, list[Floats]] = {}
    for patient, values in rows:
        if np.isfinite(values).all():
            held.setdefault(patient, []).append(values)
    return np.array([np.mean(held[name], axis=0) for name in sorted(held)])


def _differs(internal: Floats, external: Floats, level: float) -> npt.NDArray[np.bool_]:
    """Whether the means of patients differ by more than patients of one laboratory do (Welch), for each value."""
    from scipy import stats

    with np.errstate(invalid="ignore", divide="ignore"):
        p = stats.ttest_ind(external, internal, axis=0, equal_var=False).pvalue
    return np.asarray(np.nan_to_num(p, nan=1.0) < level)


def _sharpness(
    internal: Sequence[SlideSample], external: Sequence[SlideSample], measured: Rendering
) -> Intervention:
    """Measure the spectra with the other differences taken out, and the filter for the sharper side."""
    sides = []
    for side, slides in ((INTERNAL, internal), (EXTERNAL, external)):
        names = [name for name in (SCALE, STAIN, COMPRESSION) if name in measured.on_side(side)]
        sides.append(
            _by_patient(
                (patient, radial_spectrum(patches))
                for patient, patches in _rendered(slides, side, measured, names)
            )
        )
    if min(len(side) for side in sides) < _FEWEST:
        return _not_applied(SHARPNESS, "a laboratory has fewer than two patients with structure")
    index = [np.array([[blur_index(row)] for row in side]) for side in sides]
    left = float(index[1].mean() - index[0].mean())
    sigma = math.sqrt(abs(left))
    stated = (
        f"external patches are {'blurrier' if left > 0 else 'sharper'} by a blur of about {sigma:.2f} pixels"
    )
    if not _differs(index[0], index[1], LEVEL)[0]:
        return _not_applied(SHARPNESS, f"{stated}, no more than patients differ by")
    if sigma < LEAST_BLUR_PX:
        return _not_applied(SHARPNESS, f"{stated}, below {LEAST_BLUR_PX:g}")
    if left > 0:
        text = f"{stated}: lost sharpness cannot be brought back, so internal patches are blurred"
        side, slides, source, target = INTERNAL, internal, sides[0], sides[1].mean(axis=0)
    else:
        text = f"{stated}: external patches are blurred"
        side, slides, source, target = EXTERNAL, external, sides[1], sides[0].mean(axis=0)
    gain = np.ones(RINGS)
    made = Intervention(name=SHARPNESS, direction=BACKWARD if left > 0 else FORWARD, what=text)
    names = [name for name in measured.on_side(side) if name != SHARPNESS]
    for _ in range(_REFINED):
        # noise, rounding and JPEG follow the blur: the filter is corrected by what it leaves
        gain = np.clip(gain * matching_gain(source.mean(axis=0), target), LEAST_GAIN, 1.0)
        made = replace(made, gain=tuple(gain.tolist()))
        tried = _with(measured, made)
        source = _by_patient(
            (patient, radial_spectrum(patches))
            for patient, patches in _rendered(slides, side, tried, [*names, SHARPNESS])
        )
    return made


def _stain(
    internal: Sequence[SlideSample], external: Sequence[SlideSample], measured: Rendering
) -> Intervention:
    """Fit every slide with the other differences taken out, and compare the laboratories' means."""
    sides = []
    for side, slides in ((INTERNAL, internal), (EXTERNAL, external)):
        names = [name for name in (SCALE, SHARPNESS, COMPRESSION) if name in measured.on_side(side)]
        rows = (
            (patient, _fit_values(patches)) for patient, patches in _rendered(slides, side, measured, names)
        )
        sides.append(_by_patient(rows))
    if min(len(side) for side in sides) < _FEWEST:
        return _not_applied(STAIN, "a laboratory has fewer than two patients with two stains")
    means = [side.mean(axis=0) for side in sides]
    moved = means[1] - means[0]
    least = np.r_[np.full(6, LEAST_VECTOR), np.full(2, math.log1p(LEAST_STRENGTH))]
    differs = _differs(sides[0], sides[1], LEVEL / len(moved)) & (np.abs(moved) >= least)
    h, e = np.exp(moved[6:])
    inside, outside = (_mean_fit(mean) for mean in means)
    turn = [_degrees(getattr(outside, name), getattr(inside, name)) for name in ("haematoxylin", "eosin")]
    stated = (
        f"external haematoxylin is turned by {turn[0]:.1f} degrees and {h:.2f} times as strong, eosin by {turn[1]:.1f} degrees "
        f"and {e:.2f} times"
    )
    if not differs.any():
        return _not_applied(STAIN, f"{stated}, no more than patients differ by")
    check_fit(inside, where="internal stain")
    check_fit(outside, where="external stain")
    return Intervention(
        name=STAIN,
        direction=FORWARD,
        stains=(outside, inside),
        what=f"{stated}: external patches are given the internal stains (Macenko, one fit per laboratory)",
    )


def _fit_values(patches: Sequence[Bytes]) -> Floats:
    fit = macenko.fit(np.stack(patches))
    if not fit.is_fitted or min(fit.concentrations) <= 0:
        return np.full(8, np.nan)
    return np.array([*fit.haematoxylin, *fit.eosin, *np.log(fit.concentrations)])


def _mean_fit(values: Floats) -> StainFit:
    """The fit whose vectors and log strengths are the means."""
    h, e = (part / np.linalg.norm(part) for part in (values[:3], values[3:6]))
    strength = np.exp(values[6:])
    return StainFit(
        haematoxylin=(float(h[0]), float(h[1]), float(h[2])),
        eosin=(float(e[0]), float(e[1]), float(e[2])),
        concentrations=(float(strength[0]), float(strength[1])),
    )


def _degrees(a: Sequence[float], b: Sequence[float]) -> float:
    return math.degrees(math.acos(min(1.0, max(-1.0, float(np.dot(a, b))))))


def describe(rendering: Rendering) -> list[str]:
    """Say what is done, one sentence per intervention.

    Args:
        rendering: The rendering.

    Returns:
        The sentences.
    """
    return [f"{one.name}: {one.what}" for one in rendering.interventions]
