"""What preparation and scanning do to a slide: folds, ink, bubbles under the cover glass, places out of focus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.phantom.slides.anatomy import Anatomy
from elsewhere.phantom.slides.noise import Floats
from elsewhere.phantom.slides.patients import SIZES, SlideSpec


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """One artefact.

    Args:
        kind: 'fold', 'ink', 'bubble' or 'defocus'.
        x: Column of its centre in microns.
        y: Row of its centre in microns.
        reach: Half its length or its radius in microns.
        width: Half its width in microns, of folds and ink.
        angle: Its direction.
    """

    kind: str
    x: float
    y: float
    reach: float
    width: float
    angle: float


class Artefacts:
    """The artefacts of one slide.

    Args:
        spec: The slide.
        anatomy: Its tissue.
    """

    def __init__(self, spec: SlideSpec, anatomy: Anatomy) -> None:
        rng = spec.generator("artefacts")
        size = SIZES[spec.size]
        largest = max(anatomy.pieces, key=lambda piece: piece.long)
        scale = 1.0 if spec.size != "real" else 4.0
        made = []
        for kind, chance, reach, width in (
            ("fold", 0.45, (150, 420), (7, 16)),
            ("ink", 0.12, (100, 250), (8, 16)),
            ("bubble", 0.25, (30, 110), (1, 2)),
            ("defocus", 0.35, (120, 300), (1, 2)),
        ):
            for _ in range(int(rng.binomial(2, chance))):
                u, v = rng.uniform(-0.8, 0.8, 2)
                edge = kind == "ink"
                made.append(
                    Artefact(
                        kind=kind,
                        x=largest.x + float(u) * largest.long,
                        y=(
                            size.height_um * float(rng.choice([0.05, 0.95]))
                            if edge
                            else largest.y + float(v) * largest.short
                        ),
                        reach=float(rng.uniform(*reach)) * scale,
                        width=float(rng.uniform(*width)) * (1.0 if kind == "fold" else scale),
                        angle=float(rng.uniform(-0.15, 0.15) if edge else rng.uniform(0, np.pi)),
                    )
                )
        self.artefacts = tuple(made)
        self._noise = anatomy.noise

    def meets(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Say whether an artefact may lie in a box, in microns.

        Args:
            left: Left border.
            top: Upper border.
            right: Right border.
            bottom: Lower border.

        Returns:
            Whether one may.
        """
        return any(_meets(one, left, top, right, bottom) for one in self.artefacts)

    def at(self, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what the artefacts do at places.

        Args:
            x: Columns in microns.
            y: Rows in microns.

        Returns:
            Thickness of the section (1 is usual), ink from 0 to 1, and loss of focus from 0 to 1.
        """
        gain = np.ones(x.shape, dtype=np.float32)
        ink, defocus = np.zeros_like(gain), np.zeros_like(gain)
        box = float(x.min()), float(y.min()), float(x.max()), float(y.max())
        for one in self.artefacts:
            if not _meets(one, *box):
                continue
            dx, dy = x - np.float32(one.x), y - np.float32(one.y)
            cosine, sine = np.float32(np.cos(one.angle)), np.float32(np.sin(one.angle))
            u, v = dx * cosine + dy * sine, dy * cosine - dx * sine
            wave = self._noise(x, y, 10, 90.0) - np.float32(0.5)
            far = np.sqrt(dx * dx + dy * dy) + wave * 20
            if one.kind == "fold":
                across = np.abs(v + wave * 60) / np.float32(one.width)
                along = np.clip((np.float32(one.reach) - np.abs(u)) / 40, 0, 1)
                gain = gain + np.clip((1 - across) * 4, 0, 1) * along * np.float32(0.75)
                defocus = np.maximum(defocus, np.clip(1.4 - across, 0, 1) * along * np.float32(0.5))
            elif one.kind == "ink":
                across = np.abs(v + wave * 26) / np.float32(one.width)
                along = np.clip((np.float32(one.reach) - np.abs(u)) / 12, 0, 1)
                ink = np.maximum(ink, np.clip((1 - across) * 6, 0, 1) * along)
            elif one.kind == "bubble":
                inside = np.clip((np.float32(one.reach) - far) / 6, 0, 1)
                ring = np.clip(1 - np.abs(far - np.float32(one.reach) - 5) / 5, 0, 1)
                gain = gain * (1 - np.float32(0.5) * inside) + ring * np.float32(0.5)
                defocus = np.maximum(defocus, np.float32(0.8) * inside)
            else:
                defocus = np.maximum(defocus, np.clip((np.float32(one.reach) - far) / 90, 0, 1))
        return gain, ink, defocus


def _meets(one: Artefact, left: float, top: float, right: float, bottom: float) -> bool:
    reach = one.reach + one.width + 90
    return one.x - reach < right and one.x + reach > left and one.y - reach < bottom and one.y + reach > top
