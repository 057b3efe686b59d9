"""The five centres of CAMELYON17 as the phantom imitates them: stain, scanner, tissue mix and stage mix.

The stain vectors and 99th percentiles were measured by Macenko's method on one public tile of each centre, the
resolutions are those of the study's Table 2. Scanner, tissue mix and stage mix are assumptions.

Each of the four can differ alone: a `Shift` says how far every centre lies from the centre `BASE`, per axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from elsewhere.errors import UserError, unknown_name

AXES = ("stain", "scanner", "tissue", "stages")
"""What can differ between centres."""
BASE = 3
"""The centre that all are equal to without a shift: RUMC, whose scanner served three of the five."""
STAGES = ("negative", "itc", "micro", "macro")
LARGEST_SHIFT = 3.0
Vector = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Stain:
    """The two stains of a centre, in optical density (natural logarithm).

    Args:
        haematoxylin: Unit vector of haematoxylin in red, green and blue.
        eosin: Unit vector of eosin.
        strength: 99th percentile of the concentration of either stain.
    """

    haematoxylin: Vector
    eosin: Vector
    strength: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Scanner:
    """What a scanner does to the picture.

    Args:
        mpp: Microns per pixel of the finest level.
        blur_um: Standard deviation of the blur in microns.
        sharpening: Strength of the sharpening that follows.
        noise: Standard deviation of the noise in grey levels.
        quality: JPEG quality.
        white: Red, green and blue of glass.
        subsampled: Whether the colour channels are stored at half the resolution (4:2:0).
    """

    mpp: float
    blur_um: float
    sharpening: float
    noise: float
    quality: float
    white: Vector
    subsampled: float


@dataclass(frozen=True, kw_only=True)
class TissueMix:
    """What the normal part of a node consists of.

    Args:
        spacing_um: Distance of neighbouring lymphocytes.
        gaps: Share of the white clefts between lymphocytes.
        follicles: Share of the places of follicles that hold a germinal centre.
        sinus: Width of the sinuses, 1 for usual.
        histiocytes: How full of histiocytes the sinuses are.
        stroma: Width of capsule and trabeculae, 1 for usual.
        fat: Share of the node that is replaced by fat.
        vessels: Share of the places of vessels that hold one.
    """

    spacing_um: float
    gaps: float
    follicles: float
    sinus: float
    histiocytes: float
    stroma: float
    fat: float
    vessels: float


@dataclass(frozen=True, kw_only=True)
class Centre:
    """One centre.

    Args:
        number: Its number in CAMELYON17.
        name: Its short name.
        stain: Its stains.
        scanner: Its scanner.
        tissue: The tissue mix of its slides.
        stages: Shares of negative, isolated-cell, micro- and macro-metastasis slides.
    """

    number: int
    name: str
    stain: Stain
    scanner: Scanner
    tissue: TissueMix
    stages: tuple[float, float, float, float]


CENTRES: tuple[Centre, ...] = (
    Centre(
        number=0,
        name="CWZ",
        stain=Stain(haematoxylin=(0.53, 0.74, 0.42), eosin=(0.24, 0.83, 0.50), strength=(2.13, 0.87)),
        scanner=Scanner(
            mpp=0.243,
            blur_um=0.24,
            sharpening=0.55,
            noise=1.2,
            quality=80,
            white=(246, 243, 244),
            subsampled=1,
        ),
        tissue=TissueMix(
            spacing_um=6.7,
            gaps=0.35,
            follicles=0.45,
            sinus=1.0,
            histiocytes=0.6,
            stroma=1.2,
            fat=0.10,
            vessels=0.45,
        ),
        stages=(0.35, 0.15, 0.20, 0.30),
    ),
    Centre(
        number=1,
        name="RST",
        stain=Stain(haematoxylin=(0.60, 0.67, 0.43), eosin=(0.46, 0.81, 0.37), strength=(1.89, 2.92)),
        scanner=Scanner(
            mpp=0.243,
            blur_um=0.28,
            sharpening=0.60,
            noise=1.4,
            quality=80,
            white=(246, 243, 244),
            subsampled=1,
        ),
        tissue=TissueMix(
            spacing_um=6.1,
            gaps=0.75,
            follicles=0.55,
            sinus=0.8,
            histiocytes=0.4,
            stroma=0.9,
            fat=0.06,
            vessels=0.30,
        ),
        stages=(0.35, 0.15, 0.25, 0.25),
    ),
    Centre(
        number=2,
        name="UMCU",
        stain=Stain(haematoxylin=(0.60, 0.75, 0.27), eosin=(0.26, 0.90, 0.34), strength=(2.31, 1.14)),
        scanner=Scanner(
            mpp=0.226,
            blur_um=0.24,
            sharpening=0.35,
            noise=0.8,
            quality=70,
            white=(232, 231, 238),
            subsampled=1,
        ),
        tissue=TissueMix(
            spacing_um=6.3,
            gaps=0.20,
            follicles=0.60,
            sinus=1.2,
            histiocytes=0.7,
            stroma=1.0,
            fat=0.05,
            vessels=0.35,
        ),
        stages=(0.30, 0.10, 0.20, 0.40),
    ),
    Centre(
        number=3,
        name="RUMC",
        stain=Stain(haematoxylin=(0.56, 0.74, 0.36), eosin=(0.30, 0.89, 0.36), strength=(3.42, 1.99)),
        scanner=Scanner(
            mpp=0.243,
            blur_um=0.28,
            sharpening=0.55,
            noise=1.2,
            quality=80,
            white=(246, 243, 244),
            subsampled=1,
        ),
        tissue=TissueMix(
            spacing_um=6.2,
            gaps=0.55,
            follicles=0.40,
            sinus=1.0,
            histiocytes=0.5,
            stroma=1.0,
            fat=0.08,
            vessels=0.40,
        ),
        stages=(0.40, 0.10, 0.20, 0.30),
    ),
    Centre(
        number=4,
        name="LPON",
        stain=Stain(haematoxylin=(0.65, 0.69, 0.33), eosin=(0.20, 0.93, 0.29), strength=(1.70, 0.98)),
        scanner=Scanner(
            mpp=0.25,
            blur_um=0.22,
            sharpening=0.35,
            noise=1.0,
            quality=85,
            white=(238, 235, 240),
            subsampled=0,
        ),
        tissue=TissueMix(
            spacing_um=7.0,
            gaps=0.45,
            follicles=0.35,
            sinus=1.5,
            histiocytes=0.9,
            stroma=0.8,
            fat=0.12,
            vessels=0.60,
        ),
        stages=(0.35, 0.20, 0.25, 0.20),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """How far the centres lie from the base centre: 0 not at all, 1 as the real ones, 2 twice as far.

    Args:
        stain: Stain vectors and strengths.
        scanner: Resolution, blur, sharpening, noise, white point and compression.
        tissue: The tissue mix.
        stages: The stage mix.

    Raises:
        UserError: A value lies outside 0 to 3.
    """

    stain: float = 1.0
    scanner: float = 1.0
    tissue: float = 1.0
    stages: float = 1.0

    def __post_init__(self) -> None:
        for axis in AXES:
            value = getattr(self, axis)
            if not 0 <= value <= LARGEST_SHIFT:
                raise UserError(
                    f"a shift of {axis} by {value:g}",
                    where="shift",
                    fix=f"0 (all centres alike) to {LARGEST_SHIFT:g}; 1 is the difference between the real centres.",
                )


def shift_from(values: Mapping[str, float]) -> Shift:
    """Read a shift from the axes that are named; an axis that is not named is not shifted.

    Args:
        values: The size of the shift per axis; empty for the real difference in all of them.

    Returns:
        The shift.

    Raises:
        UserError: An axis is unknown or a value is out of range.

    Example:
        >>> shift_from({"stain": 1.0})
        Shift(stain=1.0, scanner=0.0, tissue=0.0, stages=0.0)
    """
    if not values:
        return Shift()
    for axis in values:
        if axis not in AXES:
            raise unknown_name("axis", axis, list(AXES))
    return Shift(**{axis: float(values.get(axis, 0.0)) for axis in AXES})


def centre_at(number: int, shift: Shift) -> Centre:
    """Return a centre with each axis as far from the base centre as the shift says.

    Args:
        number: The centre, 0 to 4.
        shift: The distances.

    Returns:
        The centre.

    Raises:
        UserError: There is no such centre.

    Example:
        >>> alike = shift_from({"stain": 1.0})
        >>> centre_at(4, alike).stain.strength, centre_at(4, alike).scanner == CENTRES[3].scanner
        ((1.7, 0.98), True)
    """
    if not 0 <= number < len(CENTRES):
        raise UserError(f"there is no centre {number}", where="centres", fix="Centres are 0 to 4.")
    own, base = CENTRES[number], CENTRES[BASE]
    return replace(
        own,
        stain=Stain(
            haematoxylin=_unit(between(base.stain.haematoxylin, own.stain.haematoxylin, shift.stain)),
            eosin=_unit(between(base.stain.eosin, own.stain.eosin, shift.stain)),
            strength=tuple(  # type: ignore[arg-type]
                max(0.3, value) for value in between(base.stain.strength, own.stain.strength, shift.stain)
            ),
        ),
        scanner=_scanner(base.scanner, own.scanner, shift.scanner),
        tissue=_tissue(base.tissue, own.tissue, shift.tissue),
        stages=_shares(between(base.stages, own.stages, shift.stages)),
    )


def between(base: Sequence[float], own: Sequence[float], share: float) -> tuple[float, ...]:
    """Return the values at a share of the way from one list to the other; exactly `own` at 1.

    Args:
        base: The values at 0.
        own: The values at 1.
        share: The share, which may exceed 1.

    Returns:
        The values.
    """
    if share == 1:
        return tuple(own)
    return tuple(b + share * (o - b) for b, o in zip(base, own, strict=True))


def _unit(vector: Sequence[float]) -> Vector:
    floored = [max(0.02, value) for value in vector]
    length = sum(value * value for value in floored) ** 0.5
    r, g, b = (value / length for value in floored)
    return (r, g, b)


def _shares(values: Sequence[float]) -> tuple[float, float, float, float]:
    floored = [max(0.0, value) for value in values]
    a, b, c, d = (value / sum(floored) for value in floored)
    return (a, b, c, d)


def _scanner(base: Scanner, own: Scanner, share: float) -> Scanner:
    names = ("mpp", "blur_um", "sharpening", "noise", "quality")
    made = dict(
        zip(
            names,
            between([getattr(base, n) for n in names], [getattr(own, n) for n in names], share),
            strict=True,
        )
    )
    white = between(base.white, own.white, share)
    return Scanner(
        mpp=round(max(0.1, made["mpp"]), 6),
        blur_um=max(0.05, made["blur_um"]),
        sharpening=max(0.0, made["sharpening"]),
        noise=max(0.0, made["noise"]),
        quality=float(round(min(95.0, max(30.0, made["quality"])))),
        white=tuple(min(255.0, max(200.0, value)) for value in white),  # type: ignore[arg-type]
        subsampled=own.subsampled if share >= 0.5 else base.subsampled,
    )


_RANGES = {
    "spacing_um": (5.4, 9.0),
    "gaps": (0.0, 1.0),
    "follicles": (0.0, 1.0),
    "sinus": (0.2, 3.0),
    "histiocytes": (0.0, 1.0),
    "stroma": (0.3, 3.0),
    "fat": (0.0, 0.5),
    "vessels": (0.0, 1.0),
}


def _tissue(base: TissueMix, own: TissueMix, share: float) -> TissueMix:
    names = [field.name for field in fields(TissueMix)]
    values = between([getattr(base, n) for n in names], [getattr(own, n) for n in names], share)
    return TissueMix(
        **{n: min(max(v, _RANGES[n][0]), _RANGES[n][1]) for n, v in zip(names, values, strict=True)}
    )
