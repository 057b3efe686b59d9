"""The patients of a synthetic MRI hospital: who they are, the kinetics of their tumours, how they respond.

Age, menopausal status and density go together as they do in women; the subtype sets how fast contrast comes
and goes; pCR depends on the subtype and on the tumour's own kinetics with the hospital's `signal`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elsewhere.phantom.mri_sites import DENSITIES, SUBTYPES, CaseSpec, Gap, HospitalSpec, age_group

WASH_IN = dict(zip(SUBTYPES, (1.55, 1.10, 1.15, 1.60, 1.35, 1.70), strict=True))
"""Enhancement of the solid tumour at its peak, relative to its signal before contrast."""
WASH_OUT = dict(zip(SUBTYPES, (-0.24, 0.10, 0.04, -0.18, -0.06, -0.22), strict=True))
"""Change over five minutes after the peak: below zero contrast leaves, above zero it still comes in."""
RIM = dict(zip(SUBTYPES, (0.9, 0.25, 0.3, 0.5, 0.4, 0.6), strict=True))
RESPONSE = dict(zip(SUBTYPES, (0.55, -0.75, -1.1, 0.85, 0.35, 1.0), strict=True))
"""Effect of the subtype on the logit of pCR, at signal 1."""
KINETICS = 0.8
"""Effect of one standard deviation of the tumour's own kinetics, on the same scale."""
Z_WASH_IN, Z_WASH_OUT = 0.16, -0.13
_HORMONES = {
    "triple_negative": (0, 0),
    "luminal_a": (1, 0),
    "luminal": (1, 0),
    "her2_enriched": (1, 1),
    "luminal_b": (1, 1),
    "her2_pure": (0, 1),
}
"""hr and her2 of the published subtypes."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What is true of one patient; `known` says what the hospital wrote down.

    Args:
        age: Age in years.
        menopausal_status: 'pre' or 'post'.
        breast_density: 'A' to 'D'.
        subtype: One of `SUBTYPES`.
        z: Her tumour's own kinetics in standard deviations: above 0 contrast comes and goes faster than her
            subtype's.
        pcr: 1 for a pathological complete response, else 0.
        wash_in: Relative enhancement of the solid tumour at its peak.
        wash_out: Change over five minutes after the peak; below 0 contrast leaves.
        rim: How strongly the edge enhances and the core does not, 0 to 1.3.
        background: Relative enhancement of fibroglandular tissue at the end.
        lesion: 'mass' or 'non-mass'.
        side: 'left' or 'right'.
        foci: Number of foci, at least 1.
        clip: Whether a biopsy clip lies in the tumour.
        implant: Whether she has implants.
        phases: Number of phases, 3 to 6 unless the specification fixes it.
        dense_part: Part of the breast that is fibroglandular.
        blur: How much the gap hides her tumour; 0 where it does not.
        known: Whether the hospital knows a value, by name; a name that is left out is known.
    """

    age: int
    menopausal_status: str
    breast_density: str
    subtype: str
    z: float
    pcr: int
    wash_in: float
    wash_out: float
    rim: float
    background: float
    lesion: str
    side: str
    foci: int
    clip: bool
    implant: bool
    phases: int
    dense_part: float
    blur: float
    known: dict[str, bool] = field(default_factory=dict)

    def group(self, variable: str) -> str:
        """Find her group of a variable.

        Args:
            variable: One of the names in `GROUPS`.

        Returns:
            The group, such as '41-50' or 'post'.
        """
        return age_group(self.age) if variable == "age" else str(getattr(self, variable))

    def in_group(self, gap: Gap | None) -> float:
        """Return how strongly a gap concerns her.

        Args:
            gap: The planted gap, or None.

        Returns:
            The gap's strength if she belongs to its group, else 0.
        """
        return gap.strength if gap is not None and self.group(gap.variable) == gap.group else 0.0


def draw_patient(spec: CaseSpec, rng: np.random.Generator) -> Patient:
    """Draw a patient from the first draws of her generator; tables need no volumes.

    Args:
        spec: Her specification; values in `spec.fixed` are not drawn.
        rng: Her generator (`case_rng`).

    Returns:
        The patient.
    """
    hospital, fixed = spec.hospital, dict(spec.fixed)
    draws = rng.standard_normal(12)
    chances = rng.random(24)
    age = int(fixed.get("age", np.clip(round(hospital.mean_age + 10.4 * draws[0]), 23, 79)))
    post = chances[0] < 1 / (1 + np.exp(-(age - 50.5) / 2.2))
    menopause = str(fixed.get("menopausal_status", "post" if post else "pre"))
    latent = 0.035 * (49 - age) + (0.25 if menopause == "pre" else -0.25) + 0.85 * draws[1]
    density = str(fixed.get("breast_density", DENSITIES[int(np.searchsorted([-1.15, 0.0, 1.1], latent))]))
    shares = np.cumsum(hospital.subtype_shares())
    subtype = str(fixed.get("subtype", SUBTYPES[min(int(np.searchsorted(shares, chances[1])), 5)]))
    z = float(fixed.get("z", draws[2]))
    middle = {"A": 0.05, "B": 0.14, "C": 0.28, "D": 0.47}[density]
    background = (0.30 if menopause == "pre" else 0.11) * float(np.exp(0.4 * draws[3]))
    non_mass = hospital.non_mass * {"her2_pure": 1.4, "her2_enriched": 1.3, "triple_negative": 0.5}.get(
        subtype, 1.0
    )
    implant = bool(fixed.get("implant", chances[7] < hospital.implants))
    lesion = str(fixed.get("lesion", "non-mass" if chances[2] < non_mass else "mass"))
    if implant:  # An implant leaves no room for a segment.
        lesion = "mass"
    foci = 1 + (int(chances[4] * 3) + 1 if chances[3] < hospital.multifocal and lesion == "mass" else 0)
    phases = int(np.clip(round(spec.scanner.phases + 0.7 * draws[4]), 3, 6))
    wash_in = WASH_IN[subtype] * float(np.exp(Z_WASH_IN * z + 0.08 * draws[5]))
    wash_out = WASH_OUT[subtype] + Z_WASH_OUT * z + 0.03 * float(draws[6])
    base = Patient(
        age=age, menopausal_status=menopause, breast_density=density, subtype=subtype, z=z, pcr=0,
        wash_in=wash_in, wash_out=wash_out,
        rim=float(np.clip(RIM[subtype] + 0.25 * draws[7], 0, 1.3)), background=background, lesion=lesion,
        side=str(fixed.get("side", "left" if chances[5] < 0.5 else "right")), foci=int(fixed.get("foci", foci)),
        clip=bool(fixed.get("clip", chances[6] < hospital.clips)),
        implant=implant,
        phases=int(fixed.get("phases", phases)),
        dense_part=float(np.clip(middle * np.exp(0.12 * draws[8]), 0.02, 0.75)), blur=0.0,
    )  # fmt: skip
    hidden = base.in_group(hospital.gap)
    chance = response_chance(base, hospital)
    names = ("age", "menopausal_status", "breast_density", "subtype", "pcr")
    rates = (0.2, 1.0, 1.0, 0.4, 0.2)
    known = {
        name: bool(chances[10 + at] >= hospital.missing * rate)
        for at, (name, rate) in enumerate(zip(names, rates, strict=True))
    }
    changes: dict[str, Any] = {
        "pcr": int(fixed.get("pcr", chances[8] < chance)),
        "known": known,
        "blur": hidden,
        "wash_in": wash_in * float(np.exp(-0.75 * hidden)),
        "background": background * (1 + 1.2 * hidden),
    }
    return Patient(**{**base.__dict__, **changes})


def response_chance(patient: Patient, hospital: HospitalSpec) -> float:
    """Compute the chance of pCR, which is the same on average at every `signal`.

    Args:
        patient: The patient; her subtype and her tumour's kinetics count.
        hospital: Her hospital: `signal`, `pcr`, `blind` and how common the subtypes are.

    Returns:
        The chance, 0 to 1.
    """
    informed = max(0.0, 1.0 - patient.in_group(hospital.blind))
    weight = hospital.signal * KINETICS * informed
    shift = _intercept(hospital, weight)
    logit = shift + hospital.signal * RESPONSE[patient.subtype] + weight * patient.z
    return float(1 / (1 + np.exp(-logit)))


def _intercept(hospital: HospitalSpec, weight: float) -> float:
    """Find the intercept with which the hospital's mean chance is its `pcr`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()
    effects = hospital.signal * np.array([RESPONSE[name] for name in SUBTYPES])
    shares = hospital.subtype_shares()
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        chances = 1 / (1 + np.exp(-(middle + effects[:, None] + weight * nodes[None, :])))
        low, high = (middle, high) if shares @ chances @ weights < hospital.pcr else (low, middle)
    return (low + high) / 2


def phase_times(spec: CaseSpec, phases: int) -> tuple[float, ...]:
    """Compute the seconds from the injection to the middle of each phase; phase 0 lies before it.

    Args:
        spec: The case, whose scanner sets the times.
        phases: Number of phases.

    Returns:
        One time per phase; 0 for phase 0.

    Example:
        >>> phase_times(CaseSpec(hospital=HospitalSpec(shift=0)), 3)
        (0.0, 110.0, 205.0)
    """
    scanner = spec.scanner
    return (0.0, *(scanner.first_s + at * scanner.between_s for at in range(phases - 1)))


def uptake(times: tuple[float, ...], tau_s: float, change: float, peak_s: float = 120.0) -> np.ndarray:
    """Compute the enhancement over the phases relative to its peak.

    Contrast comes in over `tau_s` and then changes by `change` in five minutes. There is none before the
    injection, and never less than a fifth of the peak after it has come in.

    Args:
        times: Seconds from the injection to each phase; 0 or less is before it.
        tau_s: Time constant of the wash-in in seconds.
        change: Relative change in 300 s after the peak; below 0 contrast leaves.
        peak_s: When the change begins, in seconds.

    Returns:
        One value per phase, float32.

    Example:
        >>> uptake((0.0, 120.0, 420.0), 1.0, -0.5).tolist()
        [0.0, 1.0, 0.5]
    """
    t = np.asarray(times, dtype=np.float64)
    curve = (1 - np.exp(-t / tau_s)) * np.maximum(0.2, 1 + change * np.maximum(0, t - peak_s) / 300)
    return np.where(t > 0, curve, 0.0).astype(np.float32)


COLUMNS = (
    "patient_id", "dataset", "bilateral_breast_cancer", "multifocal_cancer", "nac_agent", "endocrine_therapy",
    "anti_her2_neu_therapy", "pcr", "mastectomy_post_nac", "days_to_follow_up", "days_to_recurrence",
    "days_to_metastasis", "days_to_death", "hr", "er", "pr", "her2", "mammaprint", "oncotype_score",
    "nottingham_grade", "tumor_subtype", "age", "menopause", "ethnicity", "has_implant", "weight",
    "patient_size", "bmi_group", "breast_density", "view", "bilateral_mri", "num_phases", "fat_suppressed",
    "field_strength", "image_rows", "image_columns", "num_slices", "pixel_spacing", "slice_thickness", "site",
    "manufacturer", "scanner_model", "high_bit", "window_center", "window_width", "echo_time",
    "repetition_time", "acquisition_times", "acquisition_date", "tcia_series_uid",
)  # fmt: skip
"""Columns of the published clinical table, later version."""


def clinical_row(
    spec: CaseSpec,
    patient: Patient,
    shape: tuple[int, int, int],
    spacing_mm: tuple[float, float, float],
) -> dict[str, Any]:
    """Write her row of the clinical table; what the hospital does not know is empty.

    Args:
        spec: Her specification: hospital, number and scanner.
        patient: The patient.
        shape: Voxels of her volumes along each axis.
        spacing_mm: Size of a voxel along each axis in mm.

    Returns:
        One value per column of `COLUMNS`; None where it is empty.
    """
    scanner = spec.scanner
    hr, her2 = _HORMONES[patient.subtype]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "patient_id": spec.patient_id,
        "dataset": spec.hospital.name,
        "bilateral_breast_cancer": 0,
        "multifocal_cancer": int(patient.foci > 1),
        "pcr": patient.pcr,
        "hr": hr,
        "er": hr,
        "pr": hr,
        "her2": her2,
        "tumor_subtype": patient.subtype,
        "age": patient.age,
        "menopause": patient.menopausal_status,
        "has_implant": int(patient.implant),
        "breast_density": patient.breast_density.lower(),
        "view": scanner.plane,
        "bilateral_mri": int(scanner.plane == "axial"),
        "num_phases": patient.phases,
        "fat_suppressed": int(scanner.fat_suppressed),
        "field_strength": scanner.field_strength,
        "image_rows": shape[1],
        "image_columns": shape[0],
        "num_slices": shape[2],
        "pixel_spacing": f"[{spacing_mm[0]:.5g}, {spacing_mm[1]:.5g}]",
        "slice_thickness": round(spacing_mm[2], 4),
        "site": f"{spec.hospital.name}-{spec.centre + 1}",
        "manufacturer": scanner.vendor,
        "scanner_model": scanner.model,
        "high_bit": scanner.high_bit,
        "window_center": round(0.9 * scanner.scale),
        "window_width": round(1.8 * scanner.scale),
        "acquisition_times": str([round(t) for t in phase_times(spec, patient.phases)]),
    }
    published = {
        "age": ("age",),
        "menopausal_status": ("menopause",),
        "breast_density": ("breast_density",),
        "subtype": ("tumor_subtype", "hr", "er", "pr", "her2"),
        "pcr": ("pcr",),
    }
    for name, columns in published.items():
        if not patient.known.get(name, True):
            row |= dict.fromkeys(columns)
    return row


def attributes(row: dict[str, Any]) -> dict[str, Any]:
    """Bring a clinical row to the names that the mama-mia reader gives, where no file is read.

    Args:
        row: A row as `clinical_row` writes it.

    Returns:
        Attributes by the cohort's names; the breast density is in capitals.
    """
    density = row["breast_density"]
    return {
        "patient_id": row["patient_id"],
        "dataset": row["dataset"],
        "site": row["site"],
        "pcr": row["pcr"],
        "age": row["age"],
        "menopausal_status": row["menopause"],
        "breast_density": density.upper() if density else None,
        "subtype": row["tumor_subtype"],
        "vendor": row["manufacturer"],
        "field_strength": row["field_strength"],
    }
