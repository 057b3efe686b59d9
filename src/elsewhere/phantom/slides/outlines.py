"""The annotator's polygons of a slide, and the XML file of ASAP that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elsewhere.phantom.slides.tumour import PITCH, Disease

Ring = npt.NDArray[np.float64]
THINNED_UM = 3.0
"""How far a polygon may pass from the border it was drawn from."""


@dataclass(frozen=True)
class Polygon:
    """One annotated region.

    Args:
        outer: Its outline, column and row of each corner in microns, not closed.
        holes: Outlines of what is left out of it.
    """

    outer: Ring
    holes: tuple[Ring, ...]


def polygons_of(disease: Disease) -> list[Polygon]:
    """Draw the polygons of a slide: the contours of the annotated regions, thinned to the corners of a human hand.

    Args:
        disease: The metastases of the slide.

    Returns:
        The polygons, lesion after lesion; those of lesions that touch overlap.
    """
    from contourpy import contour_generator

    made = []
    for lesion in disease.lesions:
        field = np.asarray(lesion.outline, dtype=np.float64)
        rows, columns = field.shape
        generator = contour_generator(
            x=(np.arange(columns) + lesion.column) * PITCH,
            y=(np.arange(rows) + lesion.row) * PITCH,
            z=field,
            fill_type="OuterOffset",
        )
        points, offsets = generator.filled(0.0, 1e9)[:2]
        for corners, starts in zip(points, offsets, strict=True):
            if corners is None or starts is None:
                continue
            rings = [corners[a : b - 1] for a, b in pairwise(starts.tolist())]
            thin = [ring for ring in map(thinned, rings) if len(ring) >= 3]
            if thin:
                made.append(Polygon(thin[0], tuple(thin[1:])))
    return made


def thinned(ring: Ring, tolerance: float = THINNED_UM) -> Ring:
    """Leave corners out of a ring as long as its border moves by no more than a tolerance (Douglas and Peucker).

    Args:
        ring: The corners, not closed.
        tolerance: The largest distance.

    Returns:
        The corners that remain.

    Example:
        >>> square = np.array([[0.0, 0], [5, 0.1], [10, 0], [10, 10], [0, 10]])
        >>> len(thinned(square, 1.0))
        4
    """
    if len(ring) < 4:
        return ring
    far = int(((ring - ring[0]) ** 2).sum(1).argmax())
    closed = np.concatenate([ring, ring[:1]])
    keep = np.zeros(len(closed), dtype=bool)
    keep[[0, far, len(ring)]] = True
    stack = [(0, far), (far, len(ring))]
    while stack:
        a, b = stack.pop()
        if b - a < 2:
            continue
        start, chord = closed[a], closed[b] - closed[a]
        away = closed[a + 1 : b] - start
        length = float(np.hypot(*chord))
        distance = (
            np.abs(chord[0] * away[:, 1] - chord[1] * away[:, 0]) / length if length else np.hypot(*away.T)
        )
        worst = int(distance.argmax())
        if distance[worst] > tolerance:
            middle = a + 1 + worst
            keep[middle] = True
            stack += [(a, middle), (middle, b)]
    return ring[keep[:-1]]


def write_xml(polygons: list[Polygon], path: Path, mpp: float) -> None:
    """Write polygons as ASAP does for CAMELYON17: group 'metastases', holes in group 'normal'.

    Args:
        polygons: The polygons in microns.
        path: The file to write.
        mpp: Microns per pixel of the slide's finest level.
    """
    lines = ['<?xml version="1.0"?>', "<ASAP_Annotations>", "\t<Annotations>"]
    rings = [("metastases", one.outer) for one in polygons]
    rings += [("normal", hole) for one in polygons for hole in one.holes]
    for number, (group, ring) in enumerate(rings):
        lines.append(
            f'\t\t<Annotation Name="Annotation {number}" Type="Polygon" PartOfGroup="{group}" Color="#F4FA58">'
        )
        lines.append("\t\t\t<Coordinates>")
        lines += [
            f'\t\t\t\t<Coordinate Order="{at}" X="{x / mpp:.4f}" Y="{y / mpp:.4f}" />'
            for at, (x, y) in enumerate(ring)
        ]
        lines += ["\t\t\t</Coordinates>", "\t\t</Annotation>"]
    lines += ["\t</Annotations>", "\t<AnnotationGroups>"]
    for group, colour in (("metastases", "#ff0000"), ("normal", "#00ff00")):
        lines += [
            f'\t\t<Group Name="{group}" PartOfGroup="None" Color="{colour}">',
            "\t\t\t<Attributes />",
            "\t\t</Group>",
        ]
    lines += ["\t</AnnotationGroups>", "</ASAP_Annotations>", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
