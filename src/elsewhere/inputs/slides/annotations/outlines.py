"""Outlines of tumour in a slide, and the rule that turns rings into a region.

The rule: a point is inside of a ring where the ring winds around it (nonzero), so that a ring that crosses itself has
no gaps; an outline is its outer ring less its own holes; the region is the union of the outlines less the exclusions,
whatever their order. Everything is in pixels of level 0, x to the right and y down.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.untrusted import printable

Ring = npt.NDArray[np.float64]
FARTHEST_PX = 1 << 21
"""Coordinates beyond this many pixels lie in no slide."""
MOST_POINTS = 20_000_000
COUNTED = {
    "outlines": "outlines of tumour",
    "holes": "holes, of one outline or of all",
    "rings of under three points": "rings of under three different points, left out",
    "rings without area": "rings that enclose no area, left out",
    "rings that cross themselves": "rings that cross or touch themselves: every part that they wind around is inside",
    "rings that overlap": "outlines that cross another outline: the region is their union",
    "duplicate rings": "rings that occur twice, read once",
    "holes partly outside": "holes that cross the line of an outline: only what lies inside is taken away",
    "shapes without area": "points, lines and other shapes that enclose nothing, left out",
    "unknown groups": "annotations of groups of unknown meaning, left out",
    "without a group": "annotations without a group, read as tumour",
    "decimal commas": "coordinates written with a decimal comma",
    "points outside the slide": "points outside of the slide",
    "points that are not numbers": "rings with a coordinate that is not a finite number, left out",
}
"""What is counted while annotations are read, in words."""


@dataclass(frozen=True, eq=False)
class Outline:
    """One outline.

    Attributes:
        ring: The points of the outer ring, [points, 2], without the first point again at the end.
        holes: Rings that are taken away from this outline alone.
        name: What the file calls it.
        group: The group or class that the file puts it in.
    """

    ring: Ring
    holes: tuple[Ring, ...] = ()
    name: str = ""
    group: str = ""


@dataclass(frozen=True, eq=False)
class Annotations:
    """The annotations of one slide.

    Attributes:
        outlines: What is tumour.
        exclusions: Rings that are taken away from all outlines.
        counts: How often each thing of `COUNTED` was met.
        where: The file.
    """

    outlines: tuple[Outline, ...] = ()
    exclusions: tuple[Outline, ...] = ()
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    where: str = ""

    @property
    def rings(self) -> list[Ring]:
        """All rings: outer rings, their holes, and exclusions."""
        return [
            *(ring for outline in self.outlines for ring in (outline.ring, *outline.holes)),
            *(outline.ring for outline in self.exclusions),
        ]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The smallest box around the outlines (x, y, right, bottom); zeros without any."""
        if not self.outlines:
            return (0.0, 0.0, 0.0, 0.0)
        low = np.min([o.ring.min(axis=0) for o in self.outlines], axis=0)
        high = np.max([o.ring.max(axis=0) for o in self.outlines], axis=0)
        return (float(low[0]), float(low[1]), float(high[0]), float(high[1]))

    def sentences(self) -> list[str]:
        """Say what was counted, without the zeros.

        Returns:
            One line per kind.
        """
        return [f"{n:,} {COUNTED.get(name, name)}" for name, n in self.counts.items() if n]


class Counter:
    """Counts what happens while a file is read.

    Example:
        >>> counter = Counter()
        >>> counter.add("holes")
        >>> counter.counts["holes"]
        1
    """

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)

    def add(self, name: str, number: int = 1) -> None:
        """Count something.

        Args:
            name: One of `COUNTED`.
            number: How often.
        """
        self.counts[name] += number


def clean_ring(points: npt.ArrayLike, counter: Counter) -> Ring | None:
    """Return a ring without repeated points, or count why it is left out.

    Args:
        points: [points, 2]; the last may repeat the first.
        counter: Receives what was wrong.

    Returns:
        The ring; None where it is left out.

    Raises:
        UserError: A coordinate lies beyond 2,097,152 pixels.

    Example:
        >>> clean_ring([[0, 0], [4, 0], [4, 3], [0, 0]], Counter()).tolist()
        [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]]
    """
    ring = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(ring).all():
        counter.add("points that are not numbers")
        return None
    if len(ring) and np.abs(ring).max() > FARTHEST_PX:
        far = ring[np.abs(ring).max(axis=1).argmax()]
        raise UserError(
            f"a point at x = {far[0]:g}, y = {far[1]:g} lies in no slide: coordinates are pixels of level 0 and at most "
            f"{FARTHEST_PX:,}",
            fix="Export the annotation in pixels of level 0.",
        )
    if len(ring):
        ring = ring[np.r_[True, (ring[1:] != ring[:-1]).any(axis=1)]]
        if len(ring) > 1 and (ring[0] == ring[-1]).all():
            ring = ring[:-1]
    if len(np.unique(ring, axis=0)) < 3:
        counter.add("rings of under three points")
        return None
    turned = ring - ring[0]
    if not np.any(turned[1:-1, 0] * turned[2:, 1] - turned[1:-1, 1] * turned[2:, 0]):
        counter.add("rings without area")
        return None
    return ring


def collect(
    outlines: Iterable[Outline], exclusions: Iterable[Outline], counter: Counter, *, where: str
) -> Annotations:
    """Put outlines together; rings that occur twice are read once.

    Args:
        outlines: What is tumour.
        exclusions: What is taken away from all of them.
        counter: What was counted while reading; duplicates are added.
        where: The file.

    Returns:
        The annotations.

    Example:
        >>> square = Outline(np.array([[0.0, 0], [4, 0], [4, 4], [0, 4]]))
        >>> collect([square, square], [], Counter(), where="a.xml").counts["duplicate rings"]
        1
    """

    def once(given: Iterable[Outline]) -> tuple[Outline, ...]:
        seen: set[tuple[bytes, ...]] = set()
        kept = []
        for outline in given:
            key = tuple(ring.tobytes() for ring in (outline.ring, *outline.holes))
            if key in seen:
                counter.add("duplicate rings")
            else:
                seen.add(key)
                kept.append(outline)
        return tuple(kept)

    tumour, excluded = once(outlines), once(exclusions)
    counter.counts["outlines"] = len(tumour)
    counter.counts["holes"] = len(excluded) + sum(len(o.holes) for o in tumour)
    return Annotations(tumour, excluded, MappingProxyType(dict(counter.counts)), where)


def moved(
    annotations: Annotations, *, scale: float = 1.0, offset_px: Sequence[float] = (0.0, 0.0)
) -> Annotations:
    """Return annotations in other coordinates: each point times the scale, plus the offset.

    Args:
        annotations: The annotations.
        scale: Pixels of level 0 per unit of the file: 4 where it was drawn on a level of downsample 4.
        offset_px: What is added to x and y after scaling, such as the bounds of a MIRAX slide.

    Returns:
        New annotations.

    Raises:
        UserError: The scale is not positive and finite, or the offset is not finite.

    Example:
        >>> square = Outline(np.array([[0.0, 0], [4, 0], [4, 4], [0, 4]]))
        >>> moved(Annotations((square,)), scale=2, offset_px=(1, 0)).box
        (1.0, 0.0, 9.0, 8.0)
    """
    if not (math.isfinite(scale) and scale > 0) or not np.isfinite(np.asarray(offset_px)).all():
        raise UserError(f"the scale is {scale} and the offset {tuple(offset_px)}", fix="Give finite numbers.")
    shift = np.asarray(offset_px, dtype=np.float64)

    def one(outline: Outline) -> Outline:
        return dataclasses.replace(
            outline,
            ring=outline.ring * scale + shift,
            holes=tuple(hole * scale + shift for hole in outline.holes),
        )

    return dataclasses.replace(
        annotations,
        outlines=tuple(map(one, annotations.outlines)),
        exclusions=tuple(map(one, annotations.exclusions)),
    )


def check_inside(annotations: Annotations, size_px: tuple[int, int]) -> Annotations:
    """Check that annotations belong to a slide of this size.

    Args:
        annotations: The annotations.
        size_px: Width and height of the slide at level 0.

    Returns:
        The annotations, with the points outside of the slide counted.

    Raises:
        UserError: Half of the points or more lie outside: these are annotations of another slide or level, or x
            and y are exchanged.

    Example:
        >>> square = Outline(np.array([[0.0, 0], [4, 0], [4, 4], [0, 4]]))
        >>> check_inside(Annotations((square,)), (8, 8)).counts["points outside the slide"]
        0
    """
    rings = annotations.rings
    counts = dict(annotations.counts)
    counts["points outside the slide"] = 0
    if rings:
        points = np.concatenate(rings)
        limit = np.asarray(size_px, dtype=np.float64)

        def outside(xy: Ring) -> int:
            return int(((xy < 0) | (xy > limit)).any(axis=1).sum())

        counts["points outside the slide"] = n = outside(points)
        if 2 * n >= len(points):
            exchanged = outside(points[:, ::-1]) == 0
            raise UserError(
                f"{n:,} of {len(points):,} points lie outside of the slide of {size_px[0]:,} x {size_px[1]:,} pixels",
                where=printable(annotations.where),
                fix="All points lie inside when x and y are exchanged: check the export."
                if exchanged
                else "Check that these are the annotations of this slide, in pixels of level 0.",
            )
    return dataclasses.replace(annotations, counts=MappingProxyType(counts))
