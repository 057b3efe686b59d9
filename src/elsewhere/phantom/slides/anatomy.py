"""The anatomy of one slide: which tissue lies at a place, in microns from the slide's upper left corner.

A slide holds one to three cuts of a node. Each has a capsule of collagen, a sinus below it, a cortex of lymphocytes
with follicles, a medulla of cords and sinuses, trabeculae, vessels, fat in and around it. The answer at a place
depends on the place alone, so that any region can be drawn without the rest of the slide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.phantom.slides.centres import TissueMix
from elsewhere.phantom.slides.noise import Fields, Floats, hashed, shares
from elsewhere.phantom.slides.patients import SIZES, SlideSpec

GLASS, LYMPH, FOLLICLE, SINUS, STROMA, FAT, BLOOD = range(7)
"""Tissue classes."""
FOLLICLE_PITCH = 700.0
VESSEL_PITCH = 260.0
FAT_CELL = 62.0


@dataclass(frozen=True)
class Piece:
    """One cut of a node, an ellipse with an uneven outline.

    Args:
        x: Column of its centre in microns.
        y: Row of its centre in microns.
        long: Its longer half axis in microns.
        short: Its shorter half axis in microns.
        cosine: Cosine of its direction.
        sine: Sine of its direction.
    """

    x: float
    y: float
    long: float
    short: float
    cosine: float
    sine: float


@dataclass(frozen=True)
class Ground:
    """What is known of places.

    Args:
        tissue: The class of each place.
        solid: Microns to the nearest white space; negative inside it.
        depth: Depth below the capsule in microns; negative outside the node.
        phase: Height of a smooth surface in microns whose contours the fibres follow.
        spread: Position inside a follicle, 1 in its centre and 0 from its border on.
    """

    tissue: np.ndarray
    solid: Floats
    depth: Floats
    phase: Floats
    spread: Floats


class Anatomy:
    """The normal tissue of one slide.

    Args:
        spec: The slide.
    """

    def __init__(self, spec: SlideSpec) -> None:
        self.spec = spec
        self.mix: TissueMix = spec.centre.tissue
        self.noise = Fields(spec.generator("noise"))
        self.salt = int(spec.generator("salt").integers(1 << 31))
        self.pieces = _pieces(spec)
        rng = spec.generator("personal")
        self.unevenness = float(rng.uniform(0.6, 1.3))
        self.rim_um = float(rng.uniform(60, 200))

    def depth(self, x: Floats, y: Floats) -> Floats:
        """Return the depth below the capsule.

        Args:
            x: Columns in microns.
            y: Rows in microns.

        Returns:
            Depth in microns, negative outside.
        """
        best = np.full(x.shape, np.float32(-1e9))
        for piece in self.pieces:
            dx, dy = x - np.float32(piece.x), y - np.float32(piece.y)
            u = (dx * np.float32(piece.cosine) + dy * np.float32(piece.sine)) * np.float32(1 / piece.long)
            v = (dy * np.float32(piece.cosine) - dx * np.float32(piece.sine)) * np.float32(1 / piece.short)
            best = np.maximum(best, (1 - np.sqrt(u * u + v * v)) * np.float32(piece.short))
        small = min(piece.short for piece in self.pieces)
        wave = self.noise(x, y, 0, small * 0.9) - np.float32(0.5)
        fine = self.noise(x, y, 1, 130.0) - np.float32(0.5)
        made: Floats = best + wave * np.float32(0.35 * small * self.unevenness) + fine * np.float32(36.0)
        return made

    def ground(self, x: Floats, y: Floats) -> Ground:
        """Return the tissue at places.

        Args:
            x: Columns in microns, float32.
            y: Rows in microns, float32.

        Returns:
            The classes and the fields of the places.
        """
        mix, noise = self.mix, self.noise
        depth = self.depth(x, y)
        capsule = (14 + 34 * noise(x, y, 2, 300.0)) * np.float32(mix.stroma)
        sinus_width = (10 + 38 * noise(x, y, 3, 240.0)) * np.float32(mix.sinus)
        tissue = np.full(x.shape, LYMPH, dtype=np.int8)
        inner = depth - capsule - sinus_width

        # the medulla: cords of lymphocytes between winding sinuses
        deep = noise(x, y, 4, 900.0) + np.clip(inner * np.float32(1 / 1500), 0, 0.25)
        winding = np.abs(noise(x, y, 5, 120.0) - np.float32(0.5))
        cords = np.clip((deep - np.float32(0.60)) * 3, 0, 1) * np.float32(0.09 * mix.sinus)
        tissue[(winding < cords) & (inner > 60)] = SINUS

        # follicles with germinal centres
        follicle, _ = self._discs(x, y, FOLLICLE_PITCH, 17, mix.follicles, (90.0, 230.0))
        spread = np.where((inner > 30) & (tissue == LYMPH), np.maximum(follicle, 0), np.float32(0))
        tissue[spread > 0] = FOLLICLE

        # trabeculae run inwards from the capsule
        band = np.abs(noise(x, y, 6, 620.0) - np.float32(0.5))
        width = np.float32(0.020 * mix.stroma) * (noise(x, y, 7, 350.0) * 2 + np.float32(0.2))
        tissue[(band < width * 2) & (tissue != FOLLICLE) & (depth > 0)] = SINUS
        tissue[(band < width) & (depth > 0)] = STROMA
        tissue[(depth > capsule) & (inner <= 0)] = SINUS

        # fat that replaces the node from inside, and the fat around it
        fatty = noise(x, y, 8, 800.0) > np.float32(1 - 0.75 * mix.fat - 0.12)
        edge_width = np.float32(self.rim_um) * (noise(x, y, 9, 420.0) * np.float32(2.6) - np.float32(0.5))
        tissue[fatty & (inner > 40)] = FAT
        tissue[depth <= capsule] = STROMA
        tissue[depth <= 0] = FAT
        tissue[depth <= -edge_width] = GLASS

        # vessels: a wall of stroma around blood or nothing
        vessel, radius = self._discs(x, y, VESSEL_PITCH, 31, mix.vessels, (7.0, 30.0))
        inside = vessel * radius
        wall = np.float32(2.5) + np.float32(0.12) * radius
        held = (tissue != GLASS) & (tissue != FAT)
        tissue[held & (inside > -wall) & (inside <= 0)] = STROMA
        lumen = held & (inside > 0)
        tissue[lumen] = BLOOD
        empty = noise(x, y, 2, 310.0) > np.float32(0.55)

        solid = np.full(x.shape, np.float32(8.0))
        solid = np.where((tissue == BLOOD) & empty, -inside, solid)
        rims = self._fat_rims(x, y)
        solid = np.where(tissue == FAT, np.float32(2.1) - rims, solid)
        glass = np.where(tissue == GLASS, np.float32(-8.0), np.float32(8.0))
        # the outline of the tissue runs between places; its distance is known, that of inner borders is not needed
        outline = np.where(depth < 20, depth + edge_width, np.float32(8.0))
        outline = np.where(edge_width > 3, np.minimum(outline, 8), np.minimum(np.maximum(depth, -8), 8))
        glass = np.where((depth < 20), np.clip(outline, -8, 8), glass)
        solid = np.minimum(np.clip(solid, -8, 8), np.where(tissue == FAT, np.float32(8.0), glass))
        phase = depth + 90 * noise(x, y, 10, 140.0)
        return Ground(tissue, solid.astype(np.float32), depth, phase, spread.astype(np.float32))

    def _discs(
        self, x: Floats, y: Floats, pitch: float, salt: int, share: float, radii: tuple[float, float]
    ) -> tuple[Floats, Floats]:
        """Return how far inside the nearest disc of a loose lattice each place lies, in radii, and that radius."""
        wobble = self.noise(x, y, 11, pitch / 7) - np.float32(0.5)
        u, v = x * np.float32(1 / pitch), y * np.float32(1 / pitch)
        iu, iv = np.floor(u).astype(np.int32), np.floor(v).astype(np.int32)
        best = np.full(x.shape, np.float32(-9.0))
        size = np.ones(x.shape, dtype=np.float32)
        for dj in (-1, 0, 1):
            for di in (-1, 0, 1):
                i, j = iu + di, iv + dj
                bits, more = hashed(i, j, self.salt + salt), hashed(i, j, self.salt + salt + 1)
                there = shares(bits) < np.float32(share)
                dx = u - i.astype(np.float32) - (np.float32(0.2) + np.float32(0.6) * shares(bits, 16))
                dy = v - j.astype(np.float32) - (np.float32(0.2) + np.float32(0.6) * shares(more))
                radius = np.float32(radii[0]) + np.float32(radii[1] - radii[0]) * shares(more, 16) ** 2
                stretch = np.float32(0.7) + np.float32(0.6) * shares(bits, 8)
                far = np.sqrt(dx * dx * stretch + dy * dy / stretch) * np.float32(pitch)
                inside = np.where(there, 1 - far / radius + wobble * np.float32(0.6), np.float32(-9.0))
                nearer = inside > best
                best = np.where(nearer, inside, best)
                size = np.where(nearer, radius, size)
        return best, size

    def _fat_rims(self, x: Floats, y: Floats) -> Floats:
        """Return the distance to the nearest wall between fat cells, in microns."""
        warp = 26 * self.noise(x, y, 10, 55.0)
        u, v = (x + warp) * np.float32(1 / FAT_CELL), (y - warp) * np.float32(1 / FAT_CELL)
        iu, iv = np.floor(u).astype(np.int32), np.floor(v).astype(np.int32)
        first = np.full(x.shape, np.float32(9.0))
        second = first.copy()
        for dj in (-1, 0, 1):
            for di in (-1, 0, 1):
                bits = hashed(iu + di, iv + dj, self.salt + 53)
                dx = u - (iu + di).astype(np.float32) - (np.float32(0.15) + np.float32(0.7) * shares(bits))
                dy = (
                    v - (iv + dj).astype(np.float32) - (np.float32(0.15) + np.float32(0.7) * shares(bits, 16))
                )
                far = np.sqrt(dx * dx + dy * dy)
                second = np.minimum(second, np.maximum(first, far))
                first = np.minimum(first, far)
        made: Floats = (second - first) * np.float32(FAT_CELL / 2)
        return made


def _pieces(spec: SlideSpec) -> tuple[Piece, ...]:
    """Place one cut on a small slide, and up to three on a large one."""
    size = SIZES[spec.size]
    rng = spec.generator("pieces")
    wide, high = size.width_um, size.height_um
    if spec.size != "real":
        angle = float(rng.uniform(-0.06, 0.06))
        return (
            Piece(
                wide * float(rng.uniform(0.485, 0.515)),
                high * float(rng.uniform(0.48, 0.52)),
                wide * float(rng.uniform(0.455, 0.475)),
                high * float(rng.uniform(0.36, 0.42)),
                float(np.cos(angle)),
                float(np.sin(angle)),
            ),
        )
    made = []
    count = int(rng.integers(1, 4))
    for at in range(count):
        angle = float(rng.uniform(-0.5, 0.5))
        long = wide * float(rng.uniform(0.17, 0.27))
        made.append(
            Piece(
                wide * (0.5 if count == 1 else 0.36 + 0.28 * (at % 2))
                + float(rng.uniform(-0.03, 0.03)) * wide,
                high * (at + 0.5) / count + float(rng.uniform(-0.02, 0.02)) * high,
                long,
                min(long * float(rng.uniform(0.5, 0.85)), high * 0.40 / count),
                float(np.cos(angle)),
                float(np.sin(angle)),
            )
        )
    return tuple(made)
