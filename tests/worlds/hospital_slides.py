"""A hospital's folder of slides: pieces of synthetic tissue on glass, scanned once or twice, with outlines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from worlds.slide_files import halved, write_tiff

WIDTH, HEIGHT = 1000, 760


def piece_of_tissue(seed: int, *, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """One to three pieces of stained tissue on glass; another seed is another node."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    inside = np.zeros((height, width), bool)
    for _ in range(rng.integers(1, 4)):
        cx, cy = rng.uniform(0.3, 0.7) * width, rng.uniform(0.3, 0.7) * height
        a, b, turn = rng.uniform(80, 200), rng.uniform(60, 150), rng.uniform(0, np.pi)
        u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
        v = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
        inside |= (u / a) ** 2 + (v / b) ** 2 < 1 + 0.2 * np.sin(5 * np.arctan2(v, u) + turn)
    coarse = gaussian_filter(rng.normal(size=(height, width)), 10)
    ink = np.clip(0.6 + 0.2 * coarse / coarse.std(), 0.15, 1) * inside
    glass, stain = np.array([243, 242, 244.0]), np.array([140, 60, 150.0])
    picture = glass * (1 - ink[..., None]) + stain * ink[..., None] + rng.normal(0, 3, (height, width, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


def compressed_again(picture: np.ndarray, quality: int = 40) -> np.ndarray:
    """The same scan, saved as a poor JPEG in between."""
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "JPEG", quality=quality)
    return np.asarray(Image.open(content))


def scanned_again(picture: np.ndarray, seed: int = 9, *, shift: tuple[int, int] = (31, -17)) -> np.ndarray:
    """The same glass on another day: shifted, slightly turned, a little darker, with other noise."""
    rng = np.random.default_rng(seed)
    turned = Image.fromarray(picture).rotate(
        1.5, fillcolor=(243, 242, 244), resample=Image.Resampling.BILINEAR
    )
    again = np.roll(np.asarray(turned, float), shift, (0, 1)) * 0.95 + rng.normal(0, 3, picture.shape)
    return np.clip(again, 0, 255).astype(np.uint8)


def write_slide(path: Path, picture: np.ndarray, *, mpp: float | None = 2.0, **more) -> Path:
    """A pyramid of two levels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_tiff(path, [picture, halved(picture)], mpp=mpp, **more)


def asap_xml(rings: Sequence[Sequence[tuple[float, float]]], group: str = "Tumor") -> str:
    """An annotation file of ASAP."""
    shapes = "".join(
        f'<Annotation Name="a{at}" Type="Polygon" PartOfGroup="{group}"><Coordinates>'
        + "".join(f'<Coordinate Order="{n}" X="{x}" Y="{y}" />' for n, (x, y) in enumerate(ring))
        + "</Coordinates></Annotation>"
        for at, ring in enumerate(rings)
    )
    return f'<?xml version="1.0"?><ASAP_Annotations><Annotations>{shapes}</Annotations></ASAP_Annotations>'


def box(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    """A rectangle."""
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
