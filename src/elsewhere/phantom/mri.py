"""Synthetic DCE breast MRI with a known truth: the phases of one patient as arrays, and worlds of many.

It needs only numpy and scipy, so that phantoms can be made where they are used, on a machine that reads no
files. A volume is made slab by slab; a case has its own generator, so that the other cases do not matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.volumes import Box, MemoryVolumes
from elsewhere.phantom import mri_anatomy as anatomy
from elsewhere.phantom.mri_fields import A, Field, Frame, Lattice, S, Span, U, Up, soft
from elsewhere.phantom.mri_patient import (
    Patient,
    attributes,
    clinical_row,
    draw_patient,
    phase_times,
    uptake,
)
from elsewhere.phantom.mri_sites import (
    LEAST_SLICES,
    REAL_SIZE,
    REAL_SLICES,
    CaseSpec,
    HospitalSpec,
    Scanner,
    case_specs,
)
from elsewhere.phantom.mri_tumour import Drawn, draw_tumour

AIR, FAT, GLAND, SKIN, MUSCLE, CHEST, IMPLANT = range(7)
"""Codes of `PhantomCase.tissue`."""
_SIGNAL = {
    True: {"fat": 0.20, "gland": 0.62, "skin": 0.46, "muscle": 0.40, "tumour": 0.56, "implant": 0.16},
    False: {"fat": 1.55, "gland": 0.66, "skin": 0.70, "muscle": 0.52, "tumour": 0.58, "implant": 0.24},
}
"""Signal before contrast, with and without fat suppression; a file holds the scanner's scale times this."""


@dataclass(frozen=True, kw_only=True)
class PhantomCase:
    """One patient: the arrays that the files hold, and what is true.

    Args:
        spec: The specification that the patient was drawn from.
        patient: What is true of her, known to the hospital or not.
        phases: The volumes, int16: before contrast, then after it in the order of time.
        mask: The expert's tumour mask, 0 or 1, with the shape of a phase.
        breast_box: The affected breast with the whole tumour, in voxels.
        spacing_mm: Size of a voxel along each axis in mm.
        affine: Voxel to millimetres as in NIfTI, [4, 4].
        clinical: Her row of the published clinical table.
        notes: What was planted and measured while she was drawn.
        tissue: The tissue of every voxel (AIR, FAT, GLAND, SKIN, MUSCLE, CHEST or IMPLANT); None if it was
            not asked for.
    """

    spec: CaseSpec
    patient: Patient
    phases: tuple[npt.NDArray[np.int16], ...]
    mask: npt.NDArray[np.uint8]
    breast_box: Box
    spacing_mm: tuple[float, float, float]
    affine: npt.NDArray[np.float64]
    clinical: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)
    tissue: npt.NDArray[np.uint8] | None = None

    @property
    def patient_id(self) -> str:
        """The patient's id, such as 'NORTH_001'."""
        return self.spec.patient_id

    @property
    def name(self) -> str:
        """The name of the case as studies write it: 'DATASET/case_id'."""
        return f"{self.spec.hospital.name}/{self.patient_id}"

    @property
    def attributes(self) -> dict[str, Any]:
        """Her clinical values under the cohort's names; None where they are not known."""
        return attributes(self.clinical)


def case_rng(spec: CaseSpec, seed: int) -> np.random.Generator:
    """Make the generator of one case, which depends on its hospital's name, its number and the seed alone.

    Args:
        spec: The case.
        seed: The seed of the world.

    Returns:
        A new generator.
    """
    key = (zlib.crc32(spec.hospital.name.encode()), spec.number)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def make_world(
    specs: Sequence[CaseSpec] | Sequence[HospitalSpec], seed: int, *, threads: int = 1
) -> list[PhantomCase]:
    """Draw every case; the result does not depend on the other cases or on the number of threads.

    Drawing is numpy's work, which other threads need not wait for.

    Args:
        specs: The cases, or hospitals of which every patient is drawn.
        seed: The seed of the world; `HospitalSpec.seed` is not used here.
        threads: How many cases are drawn at the same time.

    Returns:
        The cases, in the order of `specs`.

    Example:
        >>> (case,) = make_world([HospitalSpec(patients=1, size=32)], seed=7)
        >>> case.name, case.mask.shape, bool(case.mask.any())
        ('NORTH/NORTH_001', (32, 32, 32), True)
    """
    many: list[CaseSpec] = []
    for spec in specs:
        many += case_specs(spec) if isinstance(spec, HospitalSpec) else [spec]
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(pool.map(lambda spec: make_case(spec, case_rng(spec, seed)), many))


def memory_volumes(cases: Sequence[PhantomCase]) -> MemoryVolumes:
    """Put cases into memory as recipes read them, without a file.

    Args:
        cases: The drawn cases; their names must differ.

    Returns:
        Phases as float32, masks, breast boxes and spacings by the name of the case.
    """
    return MemoryVolumes(
        images={c.name: tuple(p.astype(np.float32) for p in c.phases) for c in cases},
        masks={c.name: c.mask.astype(np.bool_) for c in cases},
        boxes={c.name: c.breast_box for c in cases},
        spacing_mm={c.name: c.spacing_mm for c in cases},
    )


def frame_of(scanner: Scanner, size: int, body: anatomy.Body, side: str) -> Frame:
    """Compute the voxel grid of a scanner for one body.

    The field of view lies in front of the chest and shows both breasts, or one in a sagittal volume.

    Args:
        scanner: The scanner, whose field of view, matrix and slices count.
        size: In-plane voxels of the common scanner; `REAL_SIZE` gives the number of slices of real volumes.
        body: The patient's body.
        side: 'left' or 'right': the breast that a sagittal volume shows.

    Returns:
        The grid; in-plane voxels are a multiple of 4, at least 24.
    """
    across = max(24, 4 * round(size * scanner.matrix / 4))
    slices = max(min(LEAST_SLICES, size), round(REAL_SLICES * scanner.slices * (size / REAL_SIZE) ** 0.87))
    depth = REAL_SLICES * scanner.slices * scanner.thickness_mm
    if size == REAL_SIZE:
        slices = round(REAL_SLICES * scanner.slices)
    inplane = scanner.fov_mm / across
    shape, spacing = (across, across, slices), (inplane, inplane, depth / slices)
    front = max(b.nipple[1] for b in body.breasts) + 14
    breast = body.breast(side)
    if scanner.plane == "sagittal":
        centre = (breast.centre[0], front - scanner.fov_mm / 2, breast.centre[2])
    else:
        centre = (0.0, front - scanner.fov_mm / 2, 0.0)
    return Frame(plane=scanner.plane, shape=shape, spacing_mm=spacing, centre_mm=centre)


def make_case(spec: CaseSpec, rng: np.random.Generator, *, tissue: bool = False) -> PhantomCase:
    """Draw one patient from her generator; the clinical draws come first, so that a table needs no volume.

    Args:
        spec: The patient's specification.
        rng: Her generator (`case_rng`), which is used up in a fixed order.
        tissue: Whether to return the tissue of every voxel as well.

    Returns:
        Phases, mask, clinical row and notes of the patient.
    """
    patient = draw_patient(spec, rng)
    scanner = spec.scanner
    body = anatomy.draw_body(rng, implant=patient.implant)
    frame = frame_of(scanner, spec.hospital.size, body, patient.side)
    scene = _scene(body, frame, patient, scanner, rng)
    times = phase_times(spec, patient.phases)
    strength = scanner.contrast
    curves = {
        "slow": strength * uptake(times, 220.0, 0.25),
        "blood": strength * 1.6 * uptake(times, 22.0, -0.35, 60.0),
        "solid": strength
        * patient.wash_in
        * uptake(times, 62.0 * np.exp(-0.12 * patient.z), patient.wash_out),
        "core": strength * patient.wash_in * uptake(times, 320.0, 0.3),
    }
    phases = tuple(np.empty(frame.shape, dtype=np.int16) for _ in times)
    labels = np.zeros(frame.shape, dtype=np.uint8) if tissue else None
    shifts = np.concatenate([[0.0], np.abs(rng.normal(0, 0.18, len(times) - 1))])
    seen = np.zeros(2)
    for start, stop in frame.slabs():
        base, enhanced, counts = _slab(scene, start, stop, labels)
        seen += counts
        sensitivity = scene.coil.block(start, stop)
        for at, phase in enumerate(phases):
            image = base if at == len(phases) - 1 else base.copy()
            for name, amount, where in enhanced:
                level = np.float32(curves[name][at])
                if level:
                    image[where] += level * amount
            if shifts[at]:
                moved = np.float32(min(0.6, shifts[at] / frame.spacing_mm[1]))
                image[:, 1:] += moved * (image[:, :-1] - image[:, 1:])
            image *= sensitivity
            phase[start:stop] = _recorded(image, scanner, rng)
    mask = np.zeros(frame.shape, dtype=np.uint8)
    mask[_slices(scene.tumour.box)] = scene.tumour.mask
    return PhantomCase(
        spec=spec,
        patient=patient,
        phases=phases,
        mask=mask,
        breast_box=_breast_box(body, frame, patient.side, scene.tumour),
        spacing_mm=frame.spacing_mm,
        affine=frame.affine,
        clinical=clinical_row(spec, patient, frame.shape, frame.spacing_mm),
        notes={
            "lesion": patient.lesion,
            "foci": patient.foci,
            "clip": patient.clip,
            "implant": patient.implant,
            "volume_mm3": scene.tumour.volume_mm3,
            "gland_fraction": float(seen[0] / max(seen[1], 1e-9)),
            "times_s": times,
            "curve": [float(v) for v in curves["solid"]],
            "gap": patient.blur,
        },
        tissue=labels,
    )


@dataclass(frozen=True, kw_only=True)
class _Scene:
    body: anatomy.Body
    frame: Frame
    patient: Patient
    signal: Mapping[str, float]
    skin: Up
    cage: Up
    chest: tuple[Up, Up, Up]
    coil: Up
    leak: Up
    breasts: tuple[tuple[Lattice, Up, Up, Up], ...]
    vessels: npt.NDArray[np.uint8]
    tumour: Drawn
    width: float


def _scene(
    body: anatomy.Body, frame: Frame, patient: Patient, scanner: Scanner, rng: np.random.Generator
) -> _Scene:
    coarse = Lattice(frame, frame.whole, anatomy.COARSE_MM)
    cage = np.broadcast_to(body.cage(coarse.u, coarse.a, coarse.s), coarse.shape)
    skin = body.surface(coarse.u, coarse.a, coarse.s, cage)
    chest = anatomy.thorax(body, coarse, cage, rng)
    wide = Lattice(frame, frame.whole, 14.0)
    front = -body.breasts[0].centre[1] / 2
    behind = np.maximum(0, np.float32(front) - wide.a) / np.float32(scanner.falloff_mm)
    coil = np.exp(scanner.bias * wide.noise(60.0, rng) - np.square(behind) * 0.6 - 0.4 * behind)
    leak = np.exp(scanner.leak * 1.2 * wide.noise(32.0, rng))
    breasts, dense = [], {}
    for breast in body.breasts:
        low, high = breast.bounds()
        if not _seen(frame, low, high):
            continue
        lattice = Lattice(frame, frame.box(low, high), anatomy.TISSUE_MM)
        level, web, patches = anatomy.tissue(body, breast, lattice, patient.dense_part, rng)
        dense[breast.side] = (lattice, level)
        breasts.append((lattice, lattice.up(level), lattice.up(web), lattice.up(patches)))
    vessels = anatomy.vessels(body, frame, rng)
    tumour = draw_tumour(patient, body, frame, dense[patient.side], rng)
    return _Scene(
        body=body,
        frame=frame,
        patient=patient,
        signal=_SIGNAL[scanner.fat_suppressed],
        skin=coarse.up(skin),
        cage=coarse.up(cage),
        chest=(coarse.up(chest[0]), coarse.up(chest[1]), coarse.up(chest[2])),
        coil=wide.up(coil.astype(np.float32)),
        leak=wide.up(leak.astype(np.float32)),
        breasts=tuple(breasts),
        vessels=vessels,
        tumour=tumour,
        width=max(0.8, 0.9 * float(np.mean(frame.spacing_mm[:2]))),
    )


def _seen(frame: Frame, low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    for body, axis in enumerate(frame.body_axes()):
        line = frame.axis_mm(axis)
        if low[body] > line.max() or high[body] < line.min():
            return False
    return True


Where = tuple[slice, slice, slice]


def _slab(
    scene: _Scene, start: int, stop: int, labels: npt.NDArray[np.uint8] | None
) -> tuple[Field, list[tuple[str, Field, Where]], npt.NDArray[np.float64]]:
    """Compute the signal before contrast, what enhances by which curve and where, and two counts.

    The counts are the voxels of glandular tissue and those of the breast, both as sums of parts.
    """
    frame, body, signal, width = scene.frame, scene.body, scene.signal, scene.width
    everywhere = (slice(None), slice(None), slice(None))
    distance, cage = scene.skin.block(start, stop), scene.cage.block(start, stop)
    u, _, _ = frame.coordinates(((start, stop), (0, frame.shape[1]), (0, frame.shape[2])))
    inside = soft(distance, width)
    under = soft(distance - np.float32(body.skin_mm), width)
    behind = soft(cage, width)
    muscle = soft(cage + body.pectoral(u), width)
    chest = [part.block(start, stop) for part in scene.chest]
    loose = under * (1 - muscle)
    skin = inside - under
    fat = loose * scene.leak.block(start, stop)
    fat *= np.float32(signal["fat"])
    base = fat
    base += skin * np.float32(signal["skin"])
    meat = under * (muscle - behind)
    base += meat * np.float32(signal["muscle"])
    deep = under * behind
    base += deep * chest[0]
    slow = skin
    slow *= np.float32(0.3 * signal["skin"])
    slow += meat * np.float32(0.12)
    slow += deep * chest[2]
    blood = deep * chest[1]
    counts = np.zeros(2)
    if labels is not None:
        out = labels[start:stop]
        out[inside > 0.5] = FAT
        out[(inside > 0.5) & (under <= 0.5)] = SKIN
        out[(under > 0.5) & (muscle > 0.5)] = MUSCLE
        out[(under > 0.5) & (behind > 0.5)] = CHEST
    for lattice, level, web, patches in scene.breasts:
        cut = _overlap(lattice.box, start, stop)
        if cut is None:
            continue
        (first, last), where = cut
        room = loose[where]
        gland = soft(level.block(first, last), 0.7)
        counts += (float((gland * room).sum()), float(room.sum()))
        if labels is not None:
            labels[start:stop][where][(gland * room) > 0.5] = GLAND
        mottled = patches.block(first, last)
        mixed = np.maximum(gland, np.float32(0.42) * web.block(first, last)) * room
        base[where] *= 1 - mixed / np.maximum(room, np.float32(1e-3))
        base[where] += mixed * np.float32(signal["gland"]) * (0.72 + np.float32(0.28) * mottled)
        slow[where] += gland * room * mottled * np.float32(signal["gland"] * scene.patient.background)
    tube = scene.vessels[start:stop].astype(np.float32)
    tube *= np.float32(1 / 255)
    tube *= inside
    base += tube * (np.float32(0.5) - base)
    slow *= 1 - tube
    blood += tube * np.float32(0.8)
    _implants(scene, start, stop, base, slow, labels)
    enhanced: list[tuple[str, Field, Where]] = [("slow", slow, everywhere), ("blood", blood, everywhere)]
    cut = _overlap(scene.tumour.box, start, stop)
    if cut is not None:
        (first, last), where = cut
        drawn = scene.tumour
        part = drawn.part[first:last]
        tone = np.float32(signal["tumour"])
        base[where] += part * (tone - base[where])
        slow[where] *= 1 - part
        blood[where] *= 1 - part
        solid, core = drawn.solid[first:last] * tone, drawn.core[first:last] * tone
        if drawn.void is not None:
            kept = 1 - drawn.void[first:last]
            for values in (base, slow, blood):
                values[where] *= kept
            solid, core = solid * kept, core * kept
        enhanced += [("solid", solid, where), ("core", core, where)]
    return base, enhanced, counts


def _implants(
    scene: _Scene, start: int, stop: int, base: Field, slow: Field, labels: npt.NDArray[np.uint8] | None
) -> None:
    for centre, radii in scene.body.implants:
        low = tuple(c - r - 4 for c, r in zip(centre, radii, strict=True))
        high = tuple(c + r + 4 for c, r in zip(centre, radii, strict=True))
        if not _seen(scene.frame, low, high):
            continue
        box = scene.frame.box(low, high)
        cut = _overlap(box, start, stop)
        if cut is None:
            continue
        (first, last), where = cut
        x0 = box[0][0]
        u, a, s = scene.frame.coordinates(((x0 + first, x0 + last), box[1], box[2]))
        distance = anatomy.ellipsoid(u, a, s, centre, radii)
        part = soft(distance, scene.width)
        shell = np.exp(-np.square((distance + 0.8) / 0.8)) * np.float32(0.35)
        base[where] += part * (np.float32(scene.signal["implant"]) - base[where])
        base[where] *= 1 - shell
        slow[where] *= 1 - part
        if labels is not None:
            labels[start:stop][where][part > 0.5] = IMPLANT


def _overlap(
    box: tuple[Span, Span, Span], start: int, stop: int
) -> tuple[Span, tuple[slice, slice, slice]] | None:
    """Cut a box with a slab: the span inside the box, and where it lies in the slab; None without overlap."""
    low, high = max(start, box[0][0]), min(stop, box[0][1])
    if low >= high:
        return None
    first, last = low - box[0][0], high - box[0][0]
    return (first, last), (slice(low - start, high - start), slice(*box[1]), slice(*box[2]))


def _slices(box: tuple[Span, Span, Span]) -> tuple[slice, slice, slice]:
    return slice(*box[0]), slice(*box[1]), slice(*box[2])


def _recorded(image: Field, scanner: Scanner, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Compute the magnitude of the noisy complex signal, in the vendor's numbers."""
    noise = np.float32(scanner.noise * 0.62)
    other = rng.standard_normal(image.shape, dtype=np.float32)
    other *= noise
    image += other
    image *= image
    other = rng.standard_normal(image.shape, dtype=np.float32, out=other)
    other *= noise
    other *= other
    image += other
    np.sqrt(image, out=image)
    image *= np.float32(scanner.scale / 0.62)
    np.rint(image, out=image)
    np.minimum(image, np.float32(32767), out=image)
    return image.astype(np.int16)


def _breast_box(body: anatomy.Body, frame: Frame, side: str, tumour: Drawn) -> Box:
    """Box the affected breast, from the chest wall to the nipple, with all of the tumour."""
    breast = body.breast(side)
    (u, a, s), (ru, ra, rs) = breast.centre, breast.radii
    spans = list(frame.box((u - ru - 6, a - 6, s - rs - 6), (u + ru + 6, a + ra + 9, s + rs + 6)))
    inside = np.argwhere(tumour.mask)
    for axis in range(3):
        low, high = spans[axis]
        first = int(inside[:, axis].min()) + tumour.box[axis][0]
        last = int(inside[:, axis].max()) + tumour.box[axis][0] + 1
        spans[axis] = (min(low, first), max(high, last))
    (x0, x1), (y0, y1), (z0, z1) = spans
    return x0, y0, z0, x1, y1, z1


__all__ = [
    "AIR", "CHEST", "FAT", "GLAND", "IMPLANT", "MUSCLE", "SKIN", "A", "CaseSpec", "HospitalSpec", "PhantomCase",
    "S", "U", "case_rng", "case_specs", "frame_of", "make_case", "make_world", "memory_volumes",
]  # fmt: skip
