"""Patients, nodes and slides of a world: what is decided before anything is drawn.

A slide depends on the seed, its centre, its patient's number in the centre and its node alone. Each property has a
stream of its own, so that a shift of one axis changes the draws of no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elsewhere.errors import UserError, unknown_name
from elsewhere.phantom.slides.centres import CENTRES, STAGES, Centre, Shift, Stain, centre_at, shift_from

PATIENTS_PER_CENTRE = 20
"""Patients per centre in CAMELYON17, which gives the patients their numbers."""
GROWTHS = ("nests", "sheets", "files")
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of a node is on a slide.

    Args:
        width_um: Width of the slide in microns.
        height_um: Height of the slide in microns.
        reduction: How many times coarser than the scanner's finest level it is stored.
    """

    width_um: float
    height_um: float
    reduction: int


SIZES: Mapping[str, Size] = {
    "tiny": Size(width_um=720.0, height_um=480.0, reduction=2),
    "small": Size(width_um=2700.0, height_um=1250.0, reduction=2),
    "half": Size(width_um=2900.0, height_um=1950.0, reduction=1),
    "real": Size(width_um=25000.0, height_um=25000.0, reduction=1),
}
"""`tiny` and `small` are stored at about 0.5 um, as a scan at 20x; the others at the centre's own resolution. A tiny
slide is too small for a macrometastasis and has a micrometastasis in its place."""


@dataclass(frozen=True, kw_only=True)
class SlideSpec:
    """What a slide is drawn from.

    Args:
        seed: Seed of the world.
        centre: Its centre, shifted as the world says.
        patient: Number of the patient in the layout.
        member: Number of the patient in the centre.
        node: Number of the node.
        stage: The stage that is planned.
        size: Name of the size.
    """

    seed: int
    centre: Centre
    patient: int
    member: int
    node: int
    stage: str
    size: str

    @property
    def slide_id(self) -> str:
        """Its name, as in CAMELYON17."""
        return f"patient_{self.patient:03d}_node_{self.node}"

    @property
    def patient_id(self) -> str:
        """The patient's name, as in CAMELYON17."""
        return f"patient_{self.patient:03d}"

    @property
    def mpp(self) -> float:
        """Microns per pixel of the finest level."""
        return self.centre.scanner.mpp * SIZES[self.size].reduction

    @property
    def size_px(self) -> tuple[int, int]:
        """Width and height of the finest level, so that every level is exactly half of the one before."""
        size = SIZES[self.size]
        step = 256 if size.width_um / self.mpp > 30_000 else 64
        width, height = (-(-round(um / self.mpp) // step) * step for um in (size.width_um, size.height_um))
        return width, height

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the draws of one property of the slide.

        Args:
            purpose: The property.

        Returns:
            A generator that depends on the seed, the slide and the purpose alone.
        """
        key = [self.seed, self.centre.number, self.member, self.node, zlib.crc32(purpose.encode())]
        return np.random.default_rng(key)

    def stain(self) -> Stain:
        """Draw the stains of this slide around those of its centre.

        Returns:
            The stains; their spread within a centre is that of real slides (0.02 in a channel, 0.15 in strength, in
            proportion).
        """
        rng = self.generator("stain")
        own = self.centre.stain
        vectors = []
        for vector in (own.haematoxylin, own.eosin):
            moved = np.maximum(np.array(vector) + rng.normal(0, 0.012, 3), 0.02)
            vectors.append(tuple(float(v) for v in moved / np.linalg.norm(moved)))
        strength = tuple(
            float(s * f) for s, f in zip(own.strength, np.exp(rng.normal(0, 0.12, 2)), strict=True)
        )
        return Stain(haematoxylin=vectors[0], eosin=vectors[1], strength=strength)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class World:
    """Several centres with their patients.

    Args:
        patients: Patients per centre.
        nodes: Slides per patient.
        centres: Numbers of the centres.
        size: 'tiny', 'small', 'half' or 'real'.
        shift: How far the centres lie apart, per axis.
        seed: Seed of every draw.

    Raises:
        UserError: A value is not allowed.

    Example:
        >>> [slide.slide_id for slide in World(patients=1, nodes=1, centres=(0, 4)).slides()]
        ['patient_000_node_0', 'patient_080_node_0']
    """

    patients: int = 2
    nodes: int = 2
    centres: tuple[int, ...] = (0, 1, 2, 3, 4)
    size: str = "small"
    shift: Shift = field(default_factory=Shift)
    seed: int = 1

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise unknown_name("size", self.size, list(SIZES))
        if not 1 <= self.patients <= 180:
            raise UserError(
                f"{self.patients} patients per centre",
                where="patients",
                fix="From 1 to 180, so that names have 3 digits.",
            )
        if not 1 <= self.nodes <= 5:
            raise UserError(
                f"{self.nodes} slides per patient", where="nodes", fix="From 1 to 5, as in CAMELYON17."
            )
        if not self.centres or len(set(self.centres)) != len(self.centres):
            raise UserError(
                "the centres are none, or one is named twice", where="centres", fix="E.g. 0,1,2,3,4."
            )
        for number in self.centres:
            centre_at(number, self.shift)

    def slides(self) -> list[SlideSpec]:
        """List the slides, centre after centre.

        Returns:
            The specification of every slide.
        """
        stride = max(PATIENTS_PER_CENTRE, self.patients)
        made = []
        for number in self.centres:
            centre = centre_at(number, self.shift)
            start = float(np.random.default_rng([self.seed, number, zlib.crc32(b"stages")]).random())
            for member in range(self.patients):
                for node in range(self.nodes):
                    at = (start + (member * 5 + node + 1) * _GOLDEN) % 1
                    planned = _stage_at(at, centre.stages)
                    made.append(
                        SlideSpec(
                            seed=self.seed,
                            centre=centre,
                            patient=number * stride + member,
                            member=member,
                            node=node,
                            stage="micro" if self.size == "tiny" and planned == "macro" else planned,
                            size=self.size,
                        )
                    )
        return made


def _stage_at(share: float, shares: Sequence[float]) -> str:
    edges = np.cumsum(shares)
    return STAGES[min(int(np.searchsorted(edges, share, side="right")), len(STAGES) - 1)]


def world_from(spec: Mapping[str, Any], *, where: str = "phantom") -> World:
    """Read a world from a study file's table.

    Args:
        spec: Fields of `World`; `shift` is a table of axes.
        where: The place of the table, for messages.

    Returns:
        The world.

    Raises:
        UserError: A field is unknown or a value is not allowed.

    Example:
        >>> world_from({"patients": 1, "shift": {"stain": 1}}).shift.scanner
        0.0
    """
    known = ["patients", "nodes", "centres", "size", "shift", "seed"]
    values = dict(spec)
    for name in values:
        if name not in known:
            error = unknown_name("setting", name, known)
            raise UserError(error.what, where=where, fix=error.fix)
    try:
        if "shift" in values:
            values["shift"] = shift_from({str(k): float(v) for k, v in dict(values["shift"]).items()})
        if "centres" in values:
            values["centres"] = tuple(int(c) for c in values["centres"])
        for name in ("patients", "nodes", "seed"):
            if name in values:
                values[name] = int(values[name])
    except (TypeError, ValueError) as error:
        raise UserError(f"a value has the wrong type: {error}", where=where, fix="See `World`.") from None
    return World(**values)


__all__ = ["CENTRES", "GROWTHS", "SIZES", "Size", "SlideSpec", "World", "world_from"]
