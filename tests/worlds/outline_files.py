"""Outlines with a known region, and annotation files in the published layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from elsewhere.inputs.slides.annotations import Annotations, Outline


def square(x: float, y: float, side: float) -> np.ndarray:
    return np.array([[x, y], [x + side, y], [x + side, y + side], [x, y + side]], dtype=float)


def star(
    rng: np.random.Generator, centre=(200.0, 200.0), radius=150.0, points=9, *, crossing=False
) -> np.ndarray:
    """A ring around a centre; a crossing one visits its points in a random order."""
    angle = np.sort(rng.uniform(0, 2 * np.pi, points))
    if crossing:
        angle = rng.permutation(angle)
    length = rng.uniform(0.3, 1.0, points) * radius
    return np.asarray(centre) + np.stack([np.cos(angle), np.sin(angle)], axis=1) * length[:, None]


def tangled(rng: np.random.Generator) -> Annotations:
    """Outlines that cross themselves and each other, with holes partly outside, and exclusions."""
    outlines = tuple(
        Outline(
            star(rng, rng.uniform(120, 280, 2), crossing=bool(rng.random() < 0.6)),
            tuple(
                star(rng, rng.uniform(120, 280, 2), 60, 6, crossing=bool(rng.random() < 0.4))
                for _ in range(int(rng.integers(0, 3)))
            ),
        )
        for _ in range(int(rng.integers(1, 5)))
    )
    exclusions = tuple(
        Outline(star(rng, rng.uniform(120, 280, 2), 70, 6)) for _ in range(int(rng.integers(0, 3)))
    )
    return Annotations(outlines, exclusions)


def asap_xml(shapes: list[tuple[np.ndarray, str]], *, kind: str = "Polygon") -> str:
    """Rings with their groups, as ASAP writes them."""
    lines = ['<?xml version="1.0"?>', "<ASAP_Annotations>", "<Annotations>"]
    for number, (ring, group) in enumerate(shapes):
        lines.append(
            f'<Annotation Name="Annotation {number}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58">'
        )
        lines.append("<Coordinates>")
        lines += [f'<Coordinate Order="{k}" X="{x}" Y="{y}" />' for k, (x, y) in enumerate(ring.tolist())]
        lines += ["</Coordinates>", "</Annotation>"]
    lines += [
        "</Annotations>",
        "<AnnotationGroups>",
        '<Group Name="Tumor" PartOfGroup="None" Color="#F4FA58" />',
    ]
    return "\n".join([*lines, "</AnnotationGroups>", "</ASAP_Annotations>"])


def write(path: Path, content: str | dict | list) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path
