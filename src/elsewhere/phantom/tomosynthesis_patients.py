"""Vendors, sizes and patients of synthetic breast tomosynthesis: what is drawn before any voxel.

A patient depends on the seed, the vendor and her number alone, so that a world of 200 patients begins with the
world of 20, whatever the number of processes. Lengths are in mm; a "real pixel" is a pixel of the published
volumes, which have 2,457 rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from elsewhere.errors import UserError, near_matches, unknown_name

REAL_ROWS = 2457
REAL_SLICES = 73
FLOOR_PX = 100.0
"""Smallest radius or diagonal of the DBTex protocols, in pixels of real volumes."""
FINDINGS = ("normal", "actionable", "benign", "cancer")
SPLITS = ("train", "validation", "test")
DENSITIES = ("A", "B", "C", "D")
DROP_VENDOR = "B"
"""The vendor at which `World.drop` takes effect."""


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """What a machine and its reconstruction do to the picture.

    Args:
        name: Short name, such as 'A'.
        manufacturer: Manufacturer as the DICOM header states it.
        model: Model as the DICOM header states it.
        arc_degrees: Angle that the tube covers.
        spread: How far a structure spreads out of its plane, in its diameters (full width at half maximum).
        pixel_mm: Size of a pixel of a real-size volume in mm.
        columns: Widths of real-size volumes, in turn.
        bits: Bits stored, of 16 allocated.
        window: Centre and width of the window in the header.
        noise: Standard deviation of the noise, in grey values of the windowed 8-bit picture.
        grain: Correlation length of the noise in real pixels.
        left_tags: Whether every series is tagged as left, as in the published set.
    """

    name: str
    manufacturer: str
    model: str
    arc_degrees: float
    spread: float
    pixel_mm: float
    columns: tuple[int, ...]
    bits: int
    window: tuple[float, float]
    noise: float
    grain: float
    left_tags: bool


VENDORS: Mapping[str, Vendor] = {
    "A": Vendor(
        name="A",
        manufacturer="Synthetic vendor A",
        model="narrow arc",
        arc_degrees=15.0,
        spread=1.4,
        pixel_mm=0.097,
        columns=(1996, 1890),
        bits=10,
        window=(540.0, 600.0),
        noise=3.0,
        grain=2.2,
        left_tags=True,
    ),
    "B": Vendor(
        name="B",
        manufacturer="Synthetic vendor B",
        model="wide arc",
        arc_degrees=50.0,
        spread=0.5,
        pixel_mm=0.104,
        columns=(1890,),
        bits=12,
        window=(2100.0, 2300.0),
        noise=5.0,
        grain=0.9,
        left_tags=False,
    ),
}
"""The vendors by name: a narrow arc with much blur out of the plane, and a wide arc with more noise."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the volumes of a world are.

    Args:
        name: Name of the size.
        rows: Rows of a slice; widths follow from the vendor's.
        slices: Slices of a breast whose real volume has 73.
        coarse: Pixels per voxel of the grid on which the tissue is drawn.
        protocol: The protocol with the challenge's floor in pixels of these volumes.
    """

    name: str
    rows: int
    slices: int
    coarse: int
    protocol: str

    @property
    def unit(self) -> float:
        """Pixels per pixel of a real volume."""
        return self.rows / REAL_ROWS

    @property
    def floor_px(self) -> float:
        """The DBTex protocols' 100 px in pixels of these volumes."""
        return FLOOR_PX * self.unit


SIZES: Mapping[str, Size] = {
    "small": Size(name="small", rows=192, slices=16, coarse=1, protocol="phantom-small"),
    "half": Size(name="half", rows=1228, slices=REAL_SLICES, coarse=2, protocol="phantom-half"),
    "real": Size(name="real", rows=REAL_ROWS, slices=REAL_SLICES, coarse=4, protocol="dbtex-code"),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """The specification of a world: the same specification gives the same volumes.

    Args:
        vendors: Names of vendors, out of `VENDORS`.
        patients: Patients per vendor.
        size: A name out of `SIZES`.
        views: 2 for CC and MLO of one breast, 4 for both breasts.
        mix: Shares of normal, actionable, benign and cancer patients.
        splits: Shares of the patients in train, validation and test.
        drop: Share of the lesion contrast that is lost at vendor B in dense breasts (density C and D).
        seed: The seed of every draw.

    Raises:
        UserError: A name is unknown or a value is not allowed.

    Example:
        >>> World(patients=3).cases()[0].case_name
        'A/DBT-P10001/lcc'
    """

    vendors: tuple[str, ...] = ("A", "B")
    patients: int = 12
    size: str = "small"
    views: int = 2
    mix: tuple[float, float, float, float] = (0.25, 0.15, 0.28, 0.32)
    splits: tuple[float, float, float] = (0.6, 0.2, 0.2)
    drop: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.vendors or len(set(self.vendors)) != len(self.vendors):
            raise UserError("every vendor needs a name of its own", where="vendors", fix="E.g. A,B.")
        for name in self.vendors:
            if name not in VENDORS:
                raise unknown_name("vendor", name, list(VENDORS))
        if self.size not in SIZES:
            raise unknown_name("size", self.size, list(SIZES))
        for name, value, low, high in (
            ("patients", self.patients, 1, 9999),
            ("drop", self.drop, 0.0, 1.0),
            ("seed", self.seed, 0, 2**32 - 1),
        ):
            if not low <= value <= high:
                raise UserError(f"{name} is {value}; it goes from {low:g} to {high:g}", where=name)
        if self.views not in (2, 4):
            raise UserError(
                f"the number of views is {self.views}",
                where="views",
                fix="2 for CC and MLO of one breast, or 4 for both.",
            )
        for name, shares, n in (("mix", self.mix, len(FINDINGS)), ("splits", self.splits, len(SPLITS))):
            if len(shares) != n or min(shares) < 0 or not 0.999 < sum(shares) < 1.001:
                raise UserError(
                    f"{name} needs {n} shares that add up to 1", where=name, fix=f"It is {tuple(shares)}."
                )
        if self.drop and DROP_VENDOR not in self.vendors:
            raise UserError(
                f"the planted drop takes effect at vendor {DROP_VENDOR}, which is not in this world",
                where="drop",
                fix=f"Add {DROP_VENDOR} to the vendors, or leave the drop out.",
            )

    def people(self) -> list[Patient]:
        """Draw every patient of the world.

        Returns:
            The patients, vendor by vendor.
        """
        made: list[Patient] = []
        for name in self.vendors:
            findings = _dealt(self.mix, FINDINGS, self.patients)
            seen: dict[str, int] = dict.fromkeys(FINDINGS, 0)
            of_split = _dealt(self.splits, SPLITS, self.patients + len(FINDINGS))
            for number, finding in enumerate(findings):
                # each finding begins elsewhere in the sequence, so that small worlds have every split
                split = of_split[seen[finding] + len(FINDINGS) - 1 - FINDINGS.index(finding)]
                seen[finding] += 1
                made.append(draw_patient(self, name, number, finding, split))
        return made

    def cases(self) -> list[Case]:
        """List every volume of the world.

        Returns:
            The volumes, patient by patient.
        """
        return [case for patient in self.people() for case in patient.cases()]


def world_from(spec: Mapping[str, Any], *, where: str = "phantom") -> World:
    """Read the world that a study file specifies.

    Args:
        spec: The keys of `World`; `layout`, `faults`, `syntax` and `on_demand` are left to the caller.
        where: The place of the specification, for messages.

    Returns:
        The world.

    Raises:
        UserError: A key is unknown or a value is not allowed.

    Example:
        >>> world_from({"layout": "bcs-dbt", "vendors": ["B"], "patients": 4}).vendors
        ('B',)
    """
    known = [field.name for field in fields(World)]
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key in ("layout", "faults", "syntax", "on_demand"):
            continue
        if key not in known:
            near = near_matches(key, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise UserError(f"a tomosynthesis phantom has no '{key}'", where=where, fix=hint)
        values[key] = tuple(value) if isinstance(value, list) else value
    try:
        return World(**values)
    except (TypeError, AttributeError) as error:
        raise UserError(f"a phantom cannot be made from this specification ({error})", where=where) from error


def _dealt(shares: Sequence[float], names: Sequence[str], n: int) -> list[str]:
    """Give each of n places a name so that every beginning of the list has about these shares."""
    credit = np.zeros(len(shares))
    made = []
    for _ in range(n):
        credit += shares
        best = len(credit) - 1 - int(np.argmax(np.round(credit, 9)[::-1]))
        credit[best] -= 1
        made.append(names[best])
    return made


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One lesion of a patient, before it is drawn; CC and MLO show the same one.

    Args:
        subject: Its number within the patient, the `Subject` of the published table.
        distortion: Whether it is an architectural distortion.
        biopsied: Whether it was biopsied and has a box; False for a finding that was recalled only.
        diagonal_mm: Diagonal of its box.
        aspect: Width of its box divided by the height.
        contrast: Mean of its box minus that of its surroundings, in their standard deviations.
        kept: The share of the contrast that is left; 1 without a planted drop.
        spiculation: 0 for a smooth margin, 1 for a spiculated one.
        depth: Distance from the nipple as a share of the breast's depth.
        lateral: Position across the breast, standard normal.
        vertical: Position from below upward, standard normal.
        shape: Seed of its outline.
    """

    subject: int
    distortion: bool
    biopsied: bool
    diagonal_mm: float
    aspect: float
    contrast: float
    kept: float
    spiculation: float
    depth: float
    lateral: float
    vertical: float
    shape: int


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What is true of a patient.

    Args:
        world: The world that she belongs to.
        vendor: Name of the vendor.
        number: Her number at this vendor, from 0.
        finding: 'normal', 'actionable', 'benign' or 'cancer'.
        split: 'train', 'validation' or 'test'.
        side: The breast with the finding, or the one that is imaged: 'left' or 'right'.
        density: Breast density, A to D.
        size: Size of the breasts, 1 on average.
        thickness_mm: Compressed thickness in CC.
        fibre_degrees: Direction of the fibrous tissue.
        columns: Width of her volumes in real pixels.
        findings: Her lesions and recalled findings.
    """

    world: World
    vendor: str
    number: int
    finding: str
    split: str
    side: str
    density: str
    size: float
    thickness_mm: float
    fibre_degrees: float
    columns: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def patient_id(self) -> str:
        """Id in the published form, such as 'DBT-P10001'."""
        return f"DBT-P{10000 * (1 + sorted(VENDORS).index(self.vendor)) + self.number + 1:05d}"

    @property
    def study_id(self) -> str:
        """Id of her study in the published form, such as 'DBT-S10001'."""
        return "DBT-S" + self.patient_id[5:]

    def cases(self) -> list[Case]:
        """List her volumes.

        Returns:
            CC and MLO of the side with the finding, then of the other side where both are imaged.
        """
        letters = {"left": "l", "right": "r"}
        sides = [self.side] if self.world.views == 2 else ["left", "right"]
        return [
            Case(patient=self, view=letters[side] + name, affected=side == self.side)
            for side in sides
            for name in ("cc", "mlo")
        ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One volume of a patient.

    Args:
        patient: The patient.
        view: 'lcc', 'lmlo', 'rcc' or 'rmlo'.
        affected: Whether the patient's findings lie in this breast.
    """

    patient: Patient
    view: str
    affected: bool = True

    @property
    def case_name(self) -> str:
        """Name of the volume: 'VENDOR/PATIENT/VIEW'."""
        return f"{self.patient.vendor}/{self.patient.patient_id}/{self.view}"

    @property
    def finding(self) -> str:
        """The label of this volume: that of the patient, or normal for the other breast."""
        return self.patient.finding if self.affected else "normal"

    @property
    def vendor(self) -> Vendor:
        """The vendor of the machine."""
        return VENDORS[self.patient.vendor]

    @property
    def size(self) -> Size:
        """The size of the volume."""
        return SIZES[self.patient.world.size]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Slices, rows and columns of the volume."""
        size, rng = self.size, self.generator("slices")
        thick = self.patient.thickness_mm + (rng.normal(3.0, 4.0) if self.view.endswith("mlo") else 0.0)
        thick = float(np.clip(thick, 24, 114))
        slices = max(6, round(thick * size.slices / REAL_SLICES))
        return slices, size.rows, round(self.patient.columns * size.unit)

    def generator(self, purpose: str) -> np.random.Generator:
        """Make the generator of one purpose, which depends on nothing but the case and the seed.

        Args:
            purpose: What is drawn, such as 'tissue'.

        Returns:
            A new generator.
        """
        key = (self.patient.number, zlib.crc32(f"{self.patient.vendor}/{self.view}/{purpose}".encode()))
        return np.random.default_rng(np.random.SeedSequence(self.patient.world.seed, spawn_key=key))


def draw_patient(world: World, vendor: str, number: int, finding: str, split: str) -> Patient:
    """Draw one patient from the seed, the vendor and her number.

    Args:
        world: The world that she belongs to.
        vendor: Name of the vendor.
        number: Her number at this vendor, from 0.
        finding: 'normal', 'actionable', 'benign' or 'cancer'.
        split: 'train', 'validation' or 'test'.

    Returns:
        The patient.

    Example:
        >>> draw_patient(World(), "A", 0, "cancer", "train").findings[0].biopsied
        True
    """
    key = (number, zlib.crc32(f"{vendor}/patient".encode()))
    rng = np.random.default_rng(np.random.SeedSequence(world.seed, spawn_key=key))
    density = str(rng.choice(DENSITIES, p=(0.1, 0.4, 0.4, 0.1)))
    side = "left" if rng.random() < 0.5 else "right"
    size = float(np.clip(rng.normal(1.0, 0.14), 0.66, 1.32))
    thickness = float(np.clip(rng.normal(71.0, 11.0), 24, 110))
    fibre = float(rng.normal(0.0, 35.0))
    columns = VENDORS[vendor].columns[number % len(VENDORS[vendor].columns)]
    dense = density in ("C", "D")
    kept = 1.0 - world.drop if dense and vendor == DROP_VENDOR else 1.0
    findings: list[Finding] = []
    if finding != "normal":
        extra = rng.random()
        n = 1 + (extra < 0.11) + (extra < 0.012) if finding in ("benign", "cancer") else 1
        findings = [draw_finding(rng, at, finding, kept) for at in range(n)]
    return Patient(
        world=world,
        vendor=vendor,
        number=number,
        finding=finding,
        split=split,
        side=side,
        density=density,
        size=size,
        thickness_mm=thickness,
        fibre_degrees=fibre,
        columns=columns,
        findings=tuple(findings),
    )


def draw_finding(rng: np.random.Generator, subject: int, kind: str, kept: float) -> Finding:
    """Draw one lesion or recalled finding with the sizes and contrasts of the published set.

    Args:
        rng: The patient's generator.
        subject: Its number within the patient.
        kind: 'actionable', 'benign' or 'cancer'.
        kept: The share of its contrast that is kept; 1 without a planted drop.

    Returns:
        The finding.
    """
    biopsied = kind in ("benign", "cancer")
    distortion = biopsied and rng.random() < (0.33 if kind == "cancer" else 0.41)
    if distortion:
        diagonal = float(np.clip(np.exp(rng.normal(np.log(38.0), 0.44)), 13, 93))
        contrast = float(np.clip(rng.normal(0.45, 0.25), 0.05, 1.2))
    else:
        diagonal = float(np.clip(np.exp(rng.normal(np.log(28.5), 0.6)), 8.3, 90))
        contrast = float(np.clip(rng.normal(1.05, 0.65), 0.35, 2.6))
    if not biopsied:
        contrast = float(np.clip(rng.normal(0.5, 0.15), 0.2, 0.9))
    spiculated = rng.random() < (0.75 if kind == "cancer" else 0.2)
    return Finding(
        subject=subject,
        distortion=distortion,
        biopsied=biopsied,
        diagonal_mm=diagonal,
        aspect=float(np.exp(rng.normal(0.07, 0.24))),
        contrast=contrast * kept,
        kept=kept,
        spiculation=float(rng.uniform(0.5, 1.0) if spiculated else rng.uniform(0.0, 0.25)),
        depth=float(np.clip(rng.beta(2.2, 1.8), 0.12, 0.96)),
        lateral=float(np.clip(rng.normal(), -2.2, 2.2)),
        vertical=float(np.clip(rng.normal(), -2.2, 2.2)),
        shape=int(rng.integers(2**31)),
    )
