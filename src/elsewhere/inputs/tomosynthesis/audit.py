"""Looks at one volume for the mistakes with tomosynthesis files that somebody has published with (DBT-01a).

The side by the tag, by the pixels and by the name; the frames against the table; the bits that are stored against the
values; the window against the values; the lesions against the volume and against the tissue. Nothing is corrected
here, and a volume that cannot be read is reported with the reason.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.breast import BLOCK, tissue_threshold
from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
from elsewhere.inputs.tomosynthesis.orientation import repair
from elsewhere.inputs.tomosynthesis.volume import Facts, Lesion, Pixels, Stack, Truth, examine

LEAST_SLICES = 9
"""Several published detectors leave out the first and the last four slices: of fewer than these, nothing remains."""
LEAST_TISSUE = 0.1
"""A lesion's box of which less than this share is tissue lies on the background."""
LEAST_IN_WINDOW = 0.5
"""A window that shows less than this share of the breast's range as grey is implausible."""
KINDS = {
    "volume-unreadable": "cannot be read",
    "side-tag-against-pixels": "show another side than their laterality tag states",
    "side-tag-against-name": "have a laterality tag of another side than the view's name",
    "side-name-against-pixels": "show another side than the view's name: they are turned by 180 degrees when they are read",
    "side-unknown": "have a breast at neither edge or at both: their orientation stays as it is",
    "implant": "show a breast with an implant",
    "frames-unlike-table": "have another number of slices than the table of boxes states",
    "frames-reordered": "store their slices in another order than their header states",
    "few-slices": f"have fewer than {LEAST_SLICES} slices",
    "bits-beyond-stored": "have values of more bits than their header states",
    "window-missing": "have no usable window: percentiles of the breast are taken",
    "window-implausible": "have a window that does not fit their values",
    "several-windows": "state several windows: the first usable one is taken",
    "inverted": "are stored with low values bright: they are inverted when they are read",
    "lossy": "may have lost information when they were compressed",
    "box-beyond-volume": "have a lesion's box outside of the image, on a slice that is not there, or without a size",
    "box-on-background": "have a lesion's box on the background",
}
"""What can be wrong with volumes, as the end of a sentence that begins with their number."""


@dataclass(frozen=True, kw_only=True)
class VolumeAudit:
    """What was found in one volume.

    Attributes:
        faults: What is wrong, a key of `KINDS`, with the details in words.
        facts: What is known of the volume; None where it cannot be read.
        side_by_tag: "left" or "right"; "" where the header does not say.
        side_by_name: The same by the name of the view.
        encoding: What the encoding of its pixels is called.
        bits_stored: As the header states it.
        bits_used: How many bits the largest value takes that was seen in the middle slices.
        manufacturer: Maker and model.
    """

    faults: dict[str, str] = field(default_factory=dict)
    facts: Facts | None = None
    side_by_tag: str = ""
    side_by_name: str = ""
    encoding: str = ""
    bits_stored: int = 0
    bits_used: int = 0
    manufacturer: str = ""


class _RecentSlices:
    """Reads slices of a volume, and keeps the two that were read last: several checks look at the middle slice."""

    def __init__(self, volume: DicomVolume) -> None:
        self._volume = volume
        self._recent: deque[tuple[int, Stack]] = deque(maxlen=2)

    def __call__(self, z: int) -> Stack:
        for number, pixels in self._recent:
            if number == z:
                return pixels
        pixels = self._volume.read(z)
        self._recent.append((z, pixels))
        return pixels


def audit_volume(
    path: Path, *, side_by_name: str = "", truth: Truth | None = None, table_slices: int | None = None
) -> VolumeAudit:
    """Compare what a volume's header, its pixels, its name and the tables say of it.

    Args:
        path: The DICOM file.
        side_by_name: "left" or "right" by the name of the view; "" where it is not known.
        truth: Its lesions; None: none are compared.
        table_slices: The number of slices that the table of boxes states; None where it states none.

    Returns:
        What was found; a file that cannot be read is a fault too.
    """
    try:
        volume = DicomVolume(path)
        examination = _Examination(volume, side_by_name)
        faults = examination.faults(truth or Truth(), table_slices)
        facts = examination.facts
    except UserError as error:
        return VolumeAudit(
            faults={"volume-unreadable": error.what},
            side_by_name=side_by_name,
        )
    return VolumeAudit(
        faults=faults,
        facts=facts,
        side_by_tag=volume.header.laterality,
        side_by_name=side_by_name,
        encoding=volume.codec.name,
        bits_stored=volume.header.bits_stored,
        bits_used=examination.bits_used,
        manufacturer=volume.header.manufacturer,
    )


class _Examination:
    def __init__(self, volume: DicomVolume, side_by_name: str) -> None:
        self.volume, self.name = volume, side_by_name
        self.read = _RecentSlices(volume)

    @cached_property
    def facts(self) -> Facts:
        volume = self.volume
        pixels = Pixels(shape=volume.shape, read=self.read, window=volume.window, notes=volume.notes)
        return examine(pixels, side_by_name=self.name)

    @cached_property
    def bits_used(self) -> int:
        middle = self.read(self.volume.shape[2] // 2)
        return int(middle.max()).bit_length()

    def faults(self, truth: Truth, table_slices: int | None) -> dict[str, str]:
        header, facts, slices = self.volume.header, self.facts, self.volume.shape[2]
        pixels, tag = facts.side_by_pixels, header.laterality
        faults: dict[str, str] = {}

        def note(kind: str, when: bool, details: Callable[[], str] | str) -> None:
            if when:
                faults[kind] = details if isinstance(details, str) else details()

        note("side-tag-against-pixels", bool(tag and pixels and tag != pixels), f"tag {tag}, pixels {pixels}")
        note(
            "side-tag-against-name",
            bool(tag and self.name and tag != self.name),
            f"tag {tag}, name {self.name}",
        )
        note("side-name-against-pixels", facts.turned, f"name {self.name}, pixels {pixels}")
        note("side-unknown", not pixels, "neither edge is clearly brighter")
        note("implant", header.implant, "the header states an implant")
        unlike = table_slices is not None and table_slices != slices
        note("frames-unlike-table", unlike, f"{slices} slices, the table states {table_slices}")
        note("frames-reordered", bool(header.order), "the header states their positions")
        note("few-slices", slices < LEAST_SLICES, f"{slices} slices")
        beyond = self.bits_used > header.bits_stored
        note("bits-beyond-stored", beyond, f"{header.bits_stored} bits stated, {self.bits_used} used")
        note("several-windows", header.windows > 1, f"{header.windows} windows")
        note("inverted", header.inverted, "MONOCHROME1 or INVERSE")
        note("lossy", header.lossy or self.volume.codec.lossy, self.volume.codec.name)
        if facts.window_from == "percentiles":
            note("window-missing", True, f"{header.windows} windows stated, none usable")
        else:
            note(
                "window-implausible",
                not self._window_fits(),
                f"window {facts.window[0]:g} to {facts.window[1]:g}",
            )
        beyond_volume = [text for one in truth.lesions or () if (text := box_problem(one, facts.shape))]
        note("box-beyond-volume", bool(beyond_volume), "; ".join(beyond_volume))
        inside = [one for one in truth.lesions or () if not box_problem(one, facts.shape)]
        dark = [one for one in inside if self._tissue_share(one) < LEAST_TISSUE]
        note("box-on-background", bool(dark), lambda: "; ".join(_shown(one) for one in dark))
        return faults

    def _window_fits(self) -> bool:
        """Whether most of the breast's range lies inside the window."""
        low, high = self.facts.window
        middle = self.read(self.volume.shape[2] // 2)
        sample = middle[::BLOCK, ::BLOCK]
        tissue = sample[sample > tissue_threshold(middle)]
        if not tissue.size:
            return True
        return float(np.mean((tissue > low) & (tissue < high))) >= LEAST_IN_WINDOW

    def _tissue_share(self, lesion: Lesion) -> float:
        """The share of a lesion's box that is tissue on its slice, in the repaired volume."""
        pixels = self.read(lesion.slice)
        x0, y0, x1, y1 = lesion.box
        turned = repair(pixels) if self.facts.turned else pixels
        part = turned[max(0, int(y0)) : math.ceil(y1), max(0, int(x0)) : math.ceil(x1)]
        return float((part > tissue_threshold(pixels)).mean()) if part.size else 0.0


def box_problem(lesion: Lesion, shape: tuple[int, int, int]) -> str:
    """Say why a lesion's box does not lie in its volume.

    Args:
        lesion: The lesion.
        shape: Rows, columns and slices of the volume.

    Returns:
        The reason; "" where the box lies in the volume. A box that touches the image and sticks out of it lies in it.

    Example:
        >>> box_problem(Lesion(x=1, y=2, width=0, height=4, slice=0), (50, 40, 3))
        'a box of 0 x 4 pixels'
    """
    rows, columns, slices = shape
    x0, y0, x1, y1 = lesion.box
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        return "a box without a place or size"
    if lesion.width <= 0 or lesion.height <= 0:
        return f"a box of {lesion.width:g} x {lesion.height:g} pixels"
    if not 0 <= lesion.slice < slices:
        return f"a box on slice {lesion.slice} of a volume of {slices} slices (counted from 0)"
    if x0 >= columns or y0 >= rows or x1 <= 0 or y1 <= 0:
        return f"{_shown(lesion)} outside of an image of {rows} x {columns} pixels"
    return ""


def lesion_problem(truth: Truth, shape: tuple[int, int, int]) -> str:
    """Say what makes a volume's lesions useless for training.

    Args:
        truth: What the experts say of the volume.
        shape: Rows, columns and slices of the volume.

    Returns:
        The reason; "" where there is none.
    """
    wrong = [text for lesion in truth.lesions or () if (text := box_problem(lesion, shape))]
    return f"its table of lesions has {'; '.join(wrong)}" if wrong else ""


def _shown(lesion: Lesion) -> str:
    return f"a box at x {lesion.x:g}, y {lesion.y:g} on slice {lesion.slice}"
