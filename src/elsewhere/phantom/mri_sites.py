"""The scanners and the specification of a synthetic MRI hospital.

A hospital is data: the same specification gives the same volumes. `shift` says how far its scanner and its
case mix are from what all hospitals share: at 0 all are alike, at 1 they differ about as much as the public
collections do.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from elsewhere.errors import UserError, near_matches, unknown_name
from elsewhere.untrusted import is_plain_name

SUBTYPES = ("triple_negative", "luminal_a", "luminal", "her2_enriched", "luminal_b", "her2_pure")
DENSITIES = ("A", "B", "C", "D")
AGE_GROUPS = ("<=40", "41-50", "51-60", "61-70", ">=71")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "age": AGE_GROUPS,
    "menopausal_status": ("pre", "post"),
    "breast_density": DENSITIES,
    "subtype": SUBTYPES,
}
REAL_SIZE = 512
REAL_SLICES = 110
LEAST_SLICES = 32


@dataclass(frozen=True, kw_only=True)
class Scanner:
    """What a machine and its protocol do to the picture. Defaults are what all hospitals share.

    Args:
        vendor: Manufacturer, as the clinical table names it.
        model: Name of the model.
        field_strength: In tesla.
        plane: 'axial' (both breasts) or 'sagittal' (one).
        fat_suppressed: Whether fat is dark.
        matrix: In-plane voxels relative to the requested size.
        fov_mm: Field of view in the plane.
        slices: Number of slices relative to 110 at the real size.
        thickness_mm: Slice thickness at the real size; the depth that is covered does not change with the
            size.
        phases: The middle of the range of 3 to 6 phases that its patients have.
        first_s: Seconds from the injection to the middle of the first phase after it.
        between_s: Seconds between phases.
        noise: Standard deviation relative to the signal of fibroglandular tissue.
        bias: Strength of the uneven coil sensitivity, on the log scale.
        falloff_mm: Scale of the loss of signal behind the breasts.
        leak: How uneven fat suppression is, on the log scale.
        contrast: Strength of all enhancement: the protocol's T1 weighting and dose.
        scale: Fibroglandular tissue in the file's numbers.
        high_bit: The highest bit of the file's numbers, as the clinical table states it.
    """

    vendor: str = "GE"
    model: str = "Phantom One"
    field_strength: float = 1.5
    plane: str = "axial"
    fat_suppressed: bool = True
    matrix: float = 1.0
    fov_mm: float = 340.0
    slices: float = 1.0
    thickness_mm: float = 1.6
    phases: float = 4.5
    first_s: float = 110.0
    between_s: float = 95.0
    noise: float = 0.06
    bias: float = 0.15
    falloff_mm: float = 150.0
    leak: float = 0.15
    contrast: float = 1.0
    scale: float = 300.0
    high_bit: int = 15


SCANNERS = (
    Scanner(
        vendor="GE", model="Phantom G3", field_strength=3.0, fov_mm=350, thickness_mm=1.5, phases=4.0,
        first_s=125, between_s=120, noise=0.075, bias=0.28, falloff_mm=115, leak=0.25, contrast=1.1,
        scale=520, high_bit=15,
    ),
    Scanner(
        vendor="SIEMENS", model="Phantom S1", field_strength=1.5, matrix=0.875, fov_mm=330, slices=1.3,
        thickness_mm=1.2, phases=5.2, first_s=95, between_s=80, noise=0.095, bias=0.10, falloff_mm=190,
        leak=0.08, contrast=0.85, scale=95, high_bit=11,
    ),
    Scanner(
        vendor="Philips", model="Phantom P2", field_strength=1.5, plane="sagittal", matrix=0.625, fov_mm=205,
        slices=0.58, thickness_mm=2.3, phases=3.2, first_s=140, between_s=280, noise=0.05, bias=0.35,
        falloff_mm=70, leak=0.45, contrast=1.0, scale=780, high_bit=11,
    ),
    Scanner(
        vendor="SIEMENS", model="Phantom S3", field_strength=3.0, fat_suppressed=False, matrix=0.75, fov_mm=320,
        slices=0.9, thickness_mm=1.9, phases=5.8, first_s=75, between_s=62, noise=0.045, bias=0.2,
        falloff_mm=160, leak=0.1, contrast=1.25, scale=210, high_bit=15,
    ),
)  # fmt: skip
"""The sites' own scanners, as they are at shift 1. The fourth does not suppress fat."""
SITES = ("NORTH", "SOUTH", "WEST", "EAST", "HILL", "LAKE", "COAST", "FOREST")
_OWN_FROM = 0.5
"""From this shift on, the plane, the vendor and fat suppression are the site's own."""
_AGE_SHIFT = (2.0, -1.5, 3.0, -3.0)
_SUBTYPE_SHIFT = (
    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.4, 0.4, -1.0, -0.2, 0.5, -1.0),
    (-0.3, -1.0, 0.9, 0.4, -1.0, 0.8),
    (0.5, -0.4, 0.2, -0.5, 0.3, 0.2),
)
"""Shift of how common `SUBTYPES` are, on the log scale: the collections name and recruit them differently."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A planted difference: one group of a variable is worse off.

    Args:
        variable: One of the names in `GROUPS`: 'age', 'menopausal_status', 'breast_density' or 'subtype'.
        group: A group of that variable.
        strength: How strong the difference is, 0 (none) to 3.

    Raises:
        UserError: The variable or the group is unknown, or the strength is out of range.
    """

    variable: str
    group: str
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.variable not in GROUPS:
            raise unknown_name("variable", self.variable, tuple(GROUPS))
        if self.group not in GROUPS[self.variable]:
            known = GROUPS[self.variable]
            near = near_matches(self.group, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise UserError(f"{self.variable} has no group '{self.group}'", fix=hint)
        if not 0 <= self.strength <= 3:
            raise UserError(
                f"the strength of a gap is {self.strength:g}; it goes from 0 to 3", where=self.variable
            )

    @classmethod
    def parse(cls, text: str, *, where: str = "gap") -> Gap:
        """Read a gap from text: 'breast_density=D' or 'menopausal_status=post:0.5'.

        Args:
            text: VARIABLE=GROUP, or VARIABLE=GROUP:STRENGTH; the strength is 1 if it is left out.
            where: The place of the text, for messages.

        Returns:
            The gap.

        Raises:
            UserError: The text has another form, or names an unknown variable or group.

        Example:
            >>> Gap.parse("menopausal_status=post:0.5")
            Gap(variable='menopausal_status', group='post', strength=0.5)
        """
        variable, sign, rest = text.partition("=")
        group, colon, strength = rest.partition(":")
        try:
            if not sign or not group.strip():
                raise ValueError
            value = float(strength) if colon else 1.0
        except ValueError:
            raise UserError(
                f"'{text}' is not VARIABLE=GROUP:STRENGTH",
                where=where,
                fix="Write e.g. breast_density=D:1.0.",
            ) from None
        return cls(variable=variable.strip(), group=group.strip(), strength=value)


def age_group(age: float) -> str:
    """Find the age group of a patient (MRI-06): 40 belongs to the youngest group and 71 to the oldest.

    Args:
        age: Age in years.

    Returns:
        One of `AGE_GROUPS`.

    Example:
        >>> age_group(40), age_group(71)
        ('<=40', '>=71')
    """
    return AGE_GROUPS[int(np.searchsorted([40, 50, 60, 70], age, side="left"))]


@dataclass(frozen=True, kw_only=True)
class HospitalSpec:
    """The specification of a synthetic MRI hospital; everything else follows from it and a seed.

    Args:
        name: Letters, digits and hyphens; the collection's name and the start of every patient id.
        layout: 'mama-mia', the only layout.
        patients: Number of patients.
        size: In-plane voxels of the common scanner, 32 to 640: 64 is quick, 512 real.
        shift: How far scanner and case mix are from what all hospitals share, 0 (alike) to 2.
        scanner: Index into `SCANNERS`; None chooses by the name.
        signal: How much pCR depends on the subtype and the tumour's kinetics; 0 is not at all.
        pcr: Part of the patients with a complete response.
        gap: The group whose tumours are hard to see; None plants no gap. Text and mappings are read as `Gap`.
        blind: The group in which kinetics say less about pCR (nothing at strength 1); None for no group.
        missing: Part of each clinical value that is not known.
        clips: Part of the patients with a biopsy clip in the tumour.
        implants: Part of the patients with implants.
        multifocal: Part of the masses with more than one focus.
        non_mass: Part of the lesions that are non-mass enhancement, before the subtype's own tendency.
        centres: Number of centres, each with its own settings of the scanner; patients are dealt to them in
            turn.
        seed: Seed of the volumes on disk (`mri_layout.write_world`).

    Raises:
        UserError: A value is out of range, or the name cannot be a file's name.
    """

    name: str = "NORTH"
    layout: str = "mama-mia"
    patients: int = 8
    size: int = 64
    shift: float = 1.0
    scanner: int | None = None
    signal: float = 1.0
    pcr: float = 0.3
    gap: Gap | None = None
    blind: Gap | None = None
    missing: float = 0.05
    clips: float = 0.15
    implants: float = 0.02
    multifocal: float = 0.3
    non_mass: float = 0.25
    centres: int = 2
    seed: int = 7

    def __post_init__(self) -> None:
        for key in ("gap", "blind"):
            value = getattr(self, key)
            if isinstance(value, str):
                object.__setattr__(self, key, Gap.parse(value, where=key))
            elif isinstance(value, Mapping):
                object.__setattr__(self, key, Gap(**value))
        if not is_plain_name(self.name) or not all(c.isalnum() or c == "-" for c in self.name):
            raise UserError(f"'{self.name}' cannot be a hospital's name", fix="Use letters, digits and -.")
        if self.layout != "mama-mia":
            raise UserError(f"there is no MRI layout '{self.layout}'", where=self.name, fix='Use "mama-mia".')
        limits = {
            "patients": (1, 100_000), "size": (32, 640), "shift": (0, 2), "scanner": (0, len(SCANNERS) - 1),
            "signal": (0, 10), "pcr": (0.01, 0.99), "missing": (0, 0.9), "clips": (0, 1), "implants": (0, 1),
            "multifocal": (0, 1), "non_mass": (0, 1), "centres": (1, 20), "seed": (0, 2**63 - 1),
        }  # fmt: skip
        for key, (low, high) in limits.items():
            value = getattr(self, key)
            if value is not None and not (isinstance(value, int | float) and low <= value <= high):
                raise UserError(f"{key} is {value}; it goes from {low} to {high}", where=self.name)

    @property
    def number(self) -> int:
        """Index of the hospital's scanner in `SCANNERS`: as given, or by the name."""
        if self.scanner is not None:
            return self.scanner
        if self.name in SITES:
            return SITES.index(self.name) % len(SCANNERS)
        return zlib.crc32(self.name.encode()) % len(SCANNERS)

    def machine(self, centre: int = 0) -> Scanner:
        """Compute the scanner of a centre: the common one moved by `shift` towards the site's own.

        Centres are also moved a little aside, so that no two are alike. Hospitals beyond the fourth have the
        same models with other settings.

        Args:
            centre: Number of the centre; centre 0 of the first four sites is not moved aside.

        Returns:
            The scanner, within plausible limits.
        """
        own, common = SCANNERS[self.number], Scanner()
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), centre])
        aside = 0.05 if self.name in SITES[: len(SCANNERS)] else 0.15
        if self.name in SITES[: len(SCANNERS)] and centre == 0:
            aside = 0.0
        moved: dict[str, Any] = {}
        for f in fields(Scanner):
            here, there = getattr(common, f.name), getattr(own, f.name)
            if isinstance(here, float):
                value = here + self.shift * (there - here)
                if f.name not in ("field_strength", "matrix", "slices", "thickness_mm", "fov_mm", "phases"):
                    value *= float(np.exp(aside * self.shift * rng.standard_normal()))
                moved[f.name] = value
            else:
                moved[f.name] = there if self.shift >= _OWN_FROM else here
        moved["field_strength"] = (own if self.shift >= _OWN_FROM else common).field_strength
        if self.shift >= _OWN_FROM and own.plane != common.plane:
            for key in ("fov_mm", "matrix", "slices", "thickness_mm"):
                moved[key] = getattr(own, key)
        for key, low, high in (
            ("matrix", 0.3, 1.25), ("slices", 0.3, 1.8), ("fov_mm", 190, 400), ("thickness_mm", 0.8, 4),
            ("phases", 3, 6), ("noise", 0.005, 0.3), ("bias", 0, 0.8), ("falloff_mm", 40, 400),
            ("leak", 0, 0.8), ("contrast", 0.4, 2), ("scale", 20, 2000), ("first_s", 50, 240),
            ("between_s", 40, 400),
        ):  # fmt: skip
            moved[key] = float(np.clip(moved[key], low, high))
        return Scanner(**moved)

    def subtype_shares(self) -> np.ndarray:
        """Compute how common each of `SUBTYPES` is at this hospital.

        Returns:
            Shares in the order of `SUBTYPES`; their sum is 1.
        """
        usual = np.array([0.337, 0.257, 0.143, 0.114, 0.105, 0.044])
        tilted = usual * np.exp(self.shift * np.array(_SUBTYPE_SHIFT[self.number]))
        return tilted / tilted.sum()

    @property
    def mean_age(self) -> float:
        """Mean age of the patients in years, with the site's own shift."""
        return 48.5 + self.shift * _AGE_SHIFT[self.number]


@dataclass(frozen=True, kw_only=True)
class CaseSpec:
    """One patient of a hospital, before she is drawn.

    Args:
        hospital: Her hospital.
        number: Her number at the hospital, from 0.
        fixed: Values that are not drawn: age, menopausal_status, breast_density, subtype, lesion ('mass',
            'non-mass'), implant, clip, side ('left', 'right'), phases, foci, pcr, z (the tumour's own
            kinetics, in deviations).

    Example:
        >>> CaseSpec(hospital=HospitalSpec(name="SOUTH"), number=2).patient_id
        'SOUTH_003'
    """

    hospital: HospitalSpec
    number: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def patient_id(self) -> str:
        """The patient's id: hospital and number from 1."""
        return f"{self.hospital.name}_{self.number + 1:03d}"

    @property
    def centre(self) -> int:
        """Number of her centre."""
        return self.number % self.hospital.centres

    @property
    def scanner(self) -> Scanner:
        """The scanner of her centre."""
        return self.hospital.machine(self.centre)


def hospital_from(spec: Mapping[str, Any], *, where: str = "phantom") -> HospitalSpec:
    """Read one hospital from the keys of a study file.

    Args:
        spec: Fields of `HospitalSpec` by name.
        where: The place of the specification, for messages.

    Returns:
        The hospital.

    Raises:
        UserError: A key is unknown (the message lists similar ones), or a value is not allowed.
    """
    known = [f.name for f in fields(HospitalSpec)]
    for key in spec:
        if key not in known:
            near = near_matches(key, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise UserError(f"an MRI phantom has no '{key}'", where=where, fix=hint)
    try:
        return HospitalSpec(**dict(spec))
    except TypeError as error:
        raise UserError(f"a phantom cannot be made from this specification ({error})", where=where) from error


def hospitals(sites: int | Sequence[str] = 3, *, patients: int = 24, **shared: Any) -> list[HospitalSpec]:
    """Specify a world: several hospitals with the patients dealt out among them.

    Args:
        sites: Number of hospitals, at most `len(SITES)`; or their names.
        patients: Number of patients of the whole world; the first hospitals get the remainder.
        **shared: Other fields of `HospitalSpec`, the same for every hospital.

    Returns:
        The hospitals.

    Raises:
        UserError: There are too many sites, two have the same name, or there are fewer patients than sites.

    Example:
        >>> [(h.name, h.patients) for h in hospitals(3, patients=10)]
        [('NORTH', 4), ('SOUTH', 3), ('WEST', 3)]
    """
    if isinstance(sites, int):
        if not 1 <= sites <= len(SITES):
            raise UserError(f"the number of sites is {sites}; it goes from 1 to {len(SITES)}", where="sites")
        names: Sequence[str] = SITES[:sites]
    else:
        names = tuple(sites)
    if not names or len({name.casefold() for name in names}) != len(names):
        raise UserError("every site needs a name of its own", where="sites", fix="E.g. NORTH,SOUTH.")
    if patients < len(names):
        raise UserError(f"{patients} patients are too few for {len(names)} sites", where="patients")
    made = []
    for at, name in enumerate(names):
        share = patients // len(names) + (at < patients % len(names))
        made.append(HospitalSpec(name=name, patients=share, **shared))
    return made


def case_specs(world: HospitalSpec | Sequence[HospitalSpec]) -> list[CaseSpec]:
    """List every patient of these hospitals, in order.

    Args:
        world: One hospital or several.

    Returns:
        One specification per patient.

    Example:
        >>> [c.patient_id for c in case_specs(HospitalSpec(name="NORTH", patients=2))]
        ['NORTH_001', 'NORTH_002']
    """
    many = [world] if isinstance(world, HospitalSpec) else list(world)
    return [
        CaseSpec(hospital=hospital, number=number) for hospital in many for number in range(hospital.patients)
    ]
