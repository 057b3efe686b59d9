"""Synthetic ultrasound hospitals: pictures with a known truth, a known shift and, on request, planted faults.

A hospital is data: the same specification gives the same pictures, each from its own seed. `shift` says how
far its scanner, its overlays and its case mix are from what all hospitals share: at 0 all are alike, at 1
they differ about as much as the public sets do. `difficulty` says how much the two classes look alike.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.phantom.ultrasound_overlays import Grey, add_border, add_overlays, add_shortcut
from elsewhere.phantom.ultrasound_tissue import (
    Breast,
    Lesion,
    Mask,
    Scanner,
    draw_breast,
    draw_lesion,
    picture,
    seen_again,
)
from elsewhere.untrusted import is_plain_name

LAYOUTS = ("busi", "bus-bra", "breast", "bus-uclm")
NORMAL = {"busi": 0.17, "bus-bra": 0.0, "breast": 0.02, "bus-uclm": 0.5}
"""Part of the patients (BUS-UCLM: of the pictures) without a lesion, where the specification sets none."""
PLANTS = {
    "duplicate": "the same picture again, under another patient",
    "duplicate-recoded": "the same picture again, re-encoded and a little smaller",
    "duplicate-marked": "the same picture again, with callipers",
    "missing-mask": "a lesion without its mask file",
    "truncated": "a picture file that ends in the middle",
    "mask-size": "a mask of another size than its picture",
    "label": "a label outside benign, malignant, normal",
    "patient-id": "an empty patient id",
}
NOT_IN_LAYOUT = {"label": ("busi",), "patient-id": ("busi", "bus-uclm")}
DEFECTS = ("missing-mask", "truncated", "mask-size", "label", "patient-id")

SCANNERS = (
    Scanner(
        width_mm=44, depth_mm=36, pixel_mm=0.100, gain_db=2, dynamic_range_db=60, looks=4, axial_mm=0.11,
        lateral_mm=0.18, slope_db_cm=6, callipers=0.08, logo=0.2,
    ),
    Scanner(
        width_mm=31, depth_mm=38, pixel_mm=0.110, gain_db=6, dynamic_range_db=40, looks=1, axial_mm=0.15,
        lateral_mm=0.27, slope_db_cm=9, text=0.75, logo=0.8, callipers=0.35,
    ),
    Scanner(
        width_mm=40, depth_mm=40, pixel_mm=0.105, gain_db=-4, dynamic_range_db=54, looks=3, axial_mm=0.09,
        lateral_mm=0.17, slope_db_cm=7, gamma=1.2, border=0.12, ruler=0.3,
    ),
    Scanner(
        width_mm=50, depth_mm=35, pixel_mm=0.108, gain_db=-2, dynamic_range_db=64, looks=2, axial_mm=0.10,
        lateral_mm=0.23, slope_db_cm=4, gamma=0.85, callipers=0.6, icon=0.95, ruler=0.9,
    ),
)  # fmt: skip
"""The layouts' own scanners, as they are at shift 1; at shift 0 all hospitals have the common one."""
CASE_MIX = (0.0, -0.35, 0.5, -0.6)
"""Shift of malignancy at each scanner's hospital at shift 1, on the logit scale."""


@dataclass(frozen=True, kw_only=True)
class Hospital:
    """The specification of a synthetic hospital; everything else follows from it.

    Args:
        name: A plain name; it is part of the seed of every picture.
        layout: The public set whose folders and tables are used, one of `LAYOUTS`.
        patients: Number of patients, at least 4.
        malignant: Part of the patients with a lesion whose lesion is malignant, before the site's case mix.
        normal: Part of the patients (BUS-UCLM: of the pictures) without a lesion; None takes the published
            set's. BUS-BRA has none.
        shift: How far scanner, overlays and case mix are from what all hospitals share, 0 (alike) to 3.
        difficulty: How much the two classes look alike, 0 to 1 (no difference).
        shortcut: How closely a mark in the corner follows the label: 0 for no mark at all, 1 for a mark on
            every malignant picture and no other.
        scanner: Index into `SCANNERS`; None is the layout's.
        scale: Pixels per millimetre relative to the scanner's own: 0.5 is a picture of half the width and
            height.
        plant: How many of each planted fault, by its name in `PLANTS`.
        seed: Seed of all pictures.

    Raises:
        UserError: A value is out of range, a name is unknown, or the layout has no place for a planted fault.

    Example:
        >>> Hospital(malignant=0.4, shift=0).malignant_here
        0.4
    """

    name: str = "Alder"
    layout: str = "bus-bra"
    patients: int = 60
    malignant: float = 0.4
    normal: float | None = None
    shift: float = 1.0
    difficulty: float = 0.3
    shortcut: float = 0.0
    scanner: int | None = None
    scale: float = 1.0
    plant: Mapping[str, int] = field(default_factory=dict)
    seed: int = 7

    def __post_init__(self) -> None:
        if not is_plain_name(self.name):
            raise UserError(
                f"'{self.name}' cannot be a hospital's name",
                fix="Use letters, digits, - _ and dots inside; at most 100 characters.",
            )
        if self.layout not in LAYOUTS:
            near = near_matches(self.layout, LAYOUTS) or list(LAYOUTS)
            raise UserError(
                f"there is no layout '{self.layout}'", where=self.name, fix=f"Use {' or '.join(near)}."
            )
        limits = {
            "patients": (4, 100_000), "malignant": (0, 1), "normal": (0, 0.9), "shift": (0, 3),
            "difficulty": (0, 1), "shortcut": (0, 1), "scale": (0.2, 4), "seed": (0, 2**32 - 1),
            "scanner": (0, len(SCANNERS) - 1),
        }  # fmt: skip
        for key, (low, high) in limits.items():
            value = getattr(self, key)
            if value is not None and not low <= value <= high:
                raise UserError(f"{key} is {value}; it goes from {low} to {high}", where=self.name)
        if self.layout == "bus-bra" and self.normal:
            raise UserError(
                "BUS-BRA's layout has no normal pictures", where=self.name, fix="Leave normal out."
            )
        for key, count in self.plant.items():
            if key not in PLANTS:
                near = near_matches(key, PLANTS) or list(PLANTS)
                raise UserError(
                    f"'{key}' cannot be planted", where=self.name, fix=f"Known: {', '.join(near)}."
                )
            if self.layout in NOT_IN_LAYOUT.get(key, ()):
                raise UserError(f"the layout {self.layout} has no place for '{key}'", where=self.name)
            if count < 0:
                raise UserError(f"the number of '{key}' is {count}; it cannot be negative", where=self.name)

    @property
    def optics(self) -> Scanner:
        """The site's scanner: the common one moved by `shift` towards the site's own."""
        number = LAYOUTS.index(self.layout) if self.scanner is None else self.scanner
        own, common = SCANNERS[number], Scanner()
        moved = {
            f.name: getattr(common, f.name) + self.shift * (getattr(own, f.name) - getattr(common, f.name))
            for f in fields(Scanner)
        }
        moved["pixel_mm"] /= self.scale
        for key, low, high in (
            ("width_mm", 22, 60), ("depth_mm", 24, 60), ("dynamic_range_db", 25, 90), ("axial_mm", 0.05, 0.5),
            ("lateral_mm", 0.08, 0.8), ("looks", 1, 6), ("gamma", 0.5, 2), ("border", 0, 0.4),
            ("slope_db_cm", 0, 12), ("gain_db", -15, 15),
        ):  # fmt: skip
            moved[key] = float(np.clip(moved[key], low, high))
        return Scanner(**moved)

    @property
    def malignant_here(self) -> float:
        """Malignancy among patients with a lesion, with the site's case mix."""
        number = LAYOUTS.index(self.layout) if self.scanner is None else self.scanner
        if not 0 < self.malignant < 1:
            return self.malignant
        logit = np.log(self.malignant / (1 - self.malignant)) + self.shift * CASE_MIX[number]
        return float(1 / (1 + np.exp(-logit)))

    def rng(self, *key: int) -> np.random.Generator:
        """Make a generator of this hospital.

        Args:
            *key: Numbers that name the generator, such as the step and the picture.

        Returns:
            A new generator, which depends on the seed, the hospital's name and the key.
        """
        return np.random.default_rng(
            np.random.SeedSequence([self.seed, zlib.crc32(self.name.encode()), *key])
        )


def hospital_from(spec: Mapping[str, Any], *, where: str = "phantom") -> Hospital:
    """Read a hospital from the keys of a study file or of the command line.

    Args:
        spec: Fields of `Hospital` by name.
        where: The place of the specification, for messages.

    Returns:
        The hospital.

    Raises:
        UserError: A key is unknown (the message lists similar ones), or a value is not allowed.

    Example:
        >>> hospital_from({"name": "Birch", "layout": "busi"}).layout
        'busi'
    """
    known = [f.name for f in fields(Hospital)]
    for key in spec:
        if key not in known:
            near = near_matches(key, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise UserError(f"a phantom has no '{key}'", where=where, fix=hint)
    try:
        return Hospital(**dict(spec))
    except TypeError as error:
        raise UserError(f"a phantom cannot be made from this specification ({error})", where=where) from error


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One picture before it is drawn: whose it is, what it shows, and what is wrong with it.

    Args:
        number: Number of the picture at its hospital.
        patient: Number of the patient.
        view: Number of the view of this patient.
        label: 'benign', 'malignant' or 'normal'.
        lesions: The lesions in the picture; empty for 'normal'.
        breast: The patient's layers of tissue.
        copy_of: Number of the picture that this one repeats; None if it is no planted duplicate.
        how: How a planted duplicate was made, a key of `PLANTS`; empty for others.
        defect: The planted defect, one of `DEFECTS`; empty for none.
    """

    number: int
    patient: int
    view: int
    label: str
    lesions: tuple[Lesion, ...]
    breast: Breast
    copy_of: int | None = None
    how: str = ""
    defect: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn picture with its truth.

    Args:
        plan: What was to be drawn.
        grey: The picture, uint8 [height, width].
        masks: One true mask per lesion, of the same shape.
        marks: Whether callipers mark a lesion.
        shortcut: Whether the corner carries the mark that goes with the label.
    """

    plan: Plan
    grey: Grey
    masks: tuple[Mask, ...]
    marks: bool
    shortcut: bool

    @property
    def box(self) -> tuple[int, int, int, int] | None:
        """x0, y0, x1, y1 of all lesions, half-open; None without a lesion."""
        if not self.masks:
            return None
        union = np.logical_or.reduce(self.masks)
        xs, ys = np.flatnonzero(union.any(axis=0)), np.flatnonzero(union.any(axis=1))
        return int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1


def plan(hospital: Hospital) -> list[Plan]:
    """Plan every picture of a hospital, in order: patients, their views, then planted duplicates.

    Args:
        hospital: The hospital.

    Returns:
        One plan per picture; its place in the list is its number.

    Raises:
        UserError: There are too few pictures with a lesion for the faults to plant.

    Example:
        >>> labels = [p.label for p in plan(Hospital(layout="breast", patients=4, normal=0.25, shift=0))]
        >>> sorted(labels)
        ['benign', 'benign', 'malignant', 'normal']
    """
    rng = hospital.rng(0)
    plans: list[Plan] = []
    for patient, kind in enumerate(_kinds(hospital, rng)):
        own = hospital.rng(1, patient)
        breast = draw_breast(own)
        held: dict[str, tuple[Lesion, ...]] = {}
        for view, label in enumerate(_views(hospital.layout, kind, own)):
            lesions: tuple[Lesion, ...] = ()
            if label != "normal":
                if label in held:
                    lesions = tuple(seen_again(lesion, own) for lesion in held[label])
                else:
                    lesions = held[label] = _lesions(hospital, label, own)
            plans.append(
                Plan(
                    number=len(plans), patient=patient, view=view, label=label, lesions=lesions, breast=breast
                )
            )
    return _planted(hospital, plans, rng)


def _kinds(hospital: Hospital, rng: np.random.Generator) -> list[str]:
    """Choose what each patient has. Counts are fixed, so that a small hospital has both classes."""
    n = hospital.patients
    part = NORMAL[hospital.layout] if hospital.normal is None else hospital.normal
    normal = round(n * (part * 0.3 if hospital.layout == "bus-uclm" else part))
    lesions = n - normal
    malignant = round(lesions * hospital.malignant_here)
    if 0 < hospital.malignant < 1:
        malignant = int(np.clip(malignant, 1, lesions - 1))
    both = round(0.08 * lesions) if hospital.layout == "bus-uclm" else 0
    kinds = ["normal"] * normal + ["malignant"] * malignant + ["benign"] * (lesions - malignant)
    for at in range(normal, normal + min(both, malignant - 1)):
        kinds[at] = "both"
    return [kinds[at] for at in rng.permutation(n)]


def _views(layout: str, kind: str, rng: np.random.Generator) -> list[str]:
    if layout == "bus-bra":
        return [kind] * (2 if rng.random() < 0.75 else 1)
    if layout == "busi":
        return [kind] * (2 if rng.random() < 0.15 else 1)
    if layout == "breast":
        return [kind]
    pictures = int(rng.integers(2, 6))
    if kind == "normal":
        return ["normal"] * pictures
    labels = ["benign", "malignant"] if kind == "both" else [kind]
    shown = [labels[at % len(labels)] for at in range(max(pictures // 2, len(labels)))]
    return shown + ["normal"] * int(rng.integers(0, pictures))


def _lesions(hospital: Hospital, label: str, rng: np.random.Generator) -> tuple[Lesion, ...]:
    lesions = [draw_lesion(rng, label, hospital.difficulty)]
    chance = {"busi": 0.07, "breast": 0.03, "bus-uclm": 0.04}.get(hospital.layout, 0.0)
    while len(lesions) < 3 and rng.random() < chance:
        x = lesions[0].place[0]
        other = draw_lesion(rng, label, hospital.difficulty)
        beside = x + (0.34 if x < 0.5 else -0.34) * len(lesions)
        lesions.append(
            replace(
                other,
                place=(float(np.clip(beside, 0.12, 0.88)), other.place[1]),
                outline=(other.outline * np.float32(0.5)),
            )
        )
    return tuple(lesions)


def _planted(hospital: Hospital, plans: list[Plan], rng: np.random.Generator) -> list[Plan]:
    made = list(plans)
    with_lesion = [p.number for p in plans if p.lesions]
    free = [int(n) for n in rng.permutation(with_lesion)]
    patients = hospital.patients
    for key, count in sorted(hospital.plant.items()):
        if count > len(free):
            raise UserError(
                f"{hospital.name} has too few pictures for {count} of '{key}'", fix="Ask for more patients."
            )
        for _ in range(count):
            number = free.pop()
            if key in DEFECTS:
                made[number] = replace(made[number], defect=key)
                continue
            made.append(
                replace(plans[number], number=len(made), patient=patients, view=0, copy_of=number, how=key)
            )
            patients += 1
    return made


def render(hospital: Hospital, planned: Plan) -> Picture:
    """Draw one picture. Its seed is its own: order and neighbours do not matter.

    Args:
        hospital: The hospital, whose scanner and shortcut count.
        planned: The picture to draw.

    Returns:
        The picture with overlays, and its truth.
    """
    optics = hospital.optics
    number = planned.number if planned.copy_of is None else planned.copy_of
    grey, masks = picture(hospital.rng(2, number), planned.breast, planned.lesions, optics)
    ink = hospital.rng(3, number)
    marked = hospital.shortcut > 0 and bool(
        ink.random() < 0.5 + (0.5 if planned.label == "malignant" else -0.5) * hospital.shortcut
    )
    if planned.how == "duplicate-marked":
        optics = replace(optics, callipers=1.0)
    grey, marks = add_overlays(grey, masks, optics, hospital.name, ink)
    if marked:
        grey = add_shortcut(grey)
    grey, masks = add_border(grey, masks, optics.border)
    if planned.how == "duplicate-recoded":
        grey, masks = _recoded(grey, masks)
    return Picture(plan=planned, grey=grey, masks=masks, marks=marks, shortcut=marked)


def _recoded(grey: Grey, masks: tuple[Mask, ...]) -> tuple[Grey, tuple[Mask, ...]]:
    """Save a picture as a JPEG at 94 % of its size and read it again, as a screenshot in a talk would do."""
    from PIL import Image

    size = (round(grey.shape[1] * 0.94), round(grey.shape[0] * 0.94))
    held = io.BytesIO()
    Image.fromarray(grey).resize(size, Image.Resampling.BILINEAR).save(held, "JPEG", quality=70)
    with Image.open(held) as image:
        small = np.asarray(image, dtype=np.uint8)
    shrunk = tuple(
        np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST), dtype=np.bool_)
        for mask in masks
    )
    return small, shrunk


def pictures(hospital: Hospital) -> Iterator[Picture]:
    """Draw all pictures of a hospital, one after the other.

    Args:
        hospital: The hospital.

    Yields:
        The pictures, in the order of `plan`.
    """
    for planned in plan(hospital):
        yield render(hospital, planned)


def compactness(mask: npt.NDArray[np.bool_]) -> float:
    """Compute 4 pi area / perimeter^2 on the pixel grid: a plain shape feature for the tests.

    It is about 0.62 for a disc, because a perimeter of pixel edges is longer than the circle.

    Args:
        mask: The region, [height, width].

    Returns:
        The compactness; 0 for an empty mask.

    Example:
        >>> round(compactness(np.ones((10, 10), dtype=bool)), 3)
        0.785
    """
    padded = np.pad(mask, 1)
    perimeter = int((padded[1:] != padded[:-1]).sum() + (padded[:, 1:] != padded[:, :-1]).sum())
    return float(4 * np.pi * mask.sum() / max(perimeter, 1) ** 2)
