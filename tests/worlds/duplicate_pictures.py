"""Synthetic ultrasound pictures with dark backgrounds, and what people do to copies of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageOps
from scipy import ndimage

from elsewhere.cohort import Cohort

Alteration = Callable[[Image.Image], Image.Image]


def speckle(
    rng: np.random.Generator, *, width: int = 200, height: int = 160, sector: bool = False
) -> Image.Image:
    """Layers, a lesion and speckle that fades with depth: all alike in their light, none in their texture.

    With `sector` they lie in the same fan on black, as a convex probe shows them.
    """
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    bend = ndimage.gaussian_filter1d(rng.normal(size=width), 25, mode="wrap") * 120
    layers = np.zeros((height, width))
    for depth in rng.uniform(5, height * 0.8, 9):
        layers += rng.uniform(0.3, 1.0) * np.exp(-(((y - depth - bend[None, :]) / rng.uniform(2, 6)) ** 2))
    tissue = 0.5 + layers + 0.6 * ndimage.gaussian_filter(rng.normal(size=(height, width)), 4) * 8
    inside = ((x - width * rng.uniform(0.3, 0.7)) / rng.uniform(15, 35)) ** 2 + (
        (y - height * rng.uniform(0.25, 0.5)) / rng.uniform(10, 25)
    ) ** 2 < 1
    tissue = np.where(inside, 0.15, np.clip(tissue, 0.05, None))
    grain = ndimage.gaussian_filter(rng.rayleigh(size=(height, width)), (0.7, 1.2))
    light = 170 * tissue * grain * np.exp(-(y / (0.45 * height)))
    if sector:
        radius, angle = np.hypot(x - width / 2, y + height / 4), np.arctan2(x - width / 2, y + height / 4)
        fan = (radius > height * 0.4) & (radius < height * 0.85) & (np.abs(angle) < 0.5)
        light = np.where(fan, 130 * (0.6 + 0.2 * tissue) * grain, 0)
    return Image.fromarray(np.clip(light, 0, 255).astype(np.uint8))


def re_encoded(image: Image.Image, quality: int = 40) -> Image.Image:
    held = io.BytesIO()
    image.save(held, "JPEG", quality=quality)
    return Image.open(io.BytesIO(held.getvalue())).convert("L")


def cropped(image: Image.Image, left: float, top: float, right: float, bottom: float) -> Image.Image:
    w, h = image.size
    return image.crop((round(left * w), round(top * h), round((1 - right) * w), round((1 - bottom) * h)))


def resized(image: Image.Image, x: float, y: float | None = None) -> Image.Image:
    return image.resize((round(image.width * x), round(image.height * (x if y is None else y))))


def gamma(image: Image.Image, power: float) -> Image.Image:
    return image.point([round(255 * (v / 255) ** power) for v in range(256)])


def marked(image: Image.Image) -> Image.Image:
    """Callipers, a dotted line and a word, as a sonographer leaves them."""
    image = image.copy()
    pen = ImageDraw.Draw(image)
    w, h = image.size
    for x, y in ((0.3, 0.3), (0.6, 0.35), (0.45, 0.2), (0.45, 0.5)):
        pen.line((x * w - 5, y * h, x * w + 5, y * h), fill=255, width=2)
        pen.line((x * w, y * h - 5, x * w, y * h + 5), fill=255, width=2)
    for step in range(10):
        pen.point((w * (0.3 + 0.03 * step), h * (0.3 + 0.005 * step)), fill=255)
    pen.text((0.06 * w, 0.8 * h), "LT 2 UOQ", fill=255)
    return image


ALTERATIONS: dict[str, Alteration] = {
    "re-encoded": lambda image: re_encoded(image, 40),
    "half the size": lambda image: resized(image, 0.5),
    "twice the size": lambda image: resized(image, 2.0),
    "another shape": lambda image: resized(image, 1.3, 0.8),
    "brighter": lambda image: image.point([min(255, v + 35) for v in range(256)]),
    "more contrast": lambda image: image.point([min(255, round(1.5 * v)) for v in range(256)]),
    "gamma 0.6": lambda image: gamma(image, 0.6),
    "gamma 1.5": lambda image: gamma(image, 1.5),
    "cropped": lambda image: cropped(image, 0.06, 0.03, 0.04, 0.08),
    "marked": marked,
    "marked, cropped, re-encoded": lambda image: re_encoded(cropped(marked(image), 0.02, 0.03, 0.04, 0.02), 60),
    "mirrored": ImageOps.mirror,
    "mirrored, darker, half": lambda image: resized(gamma(ImageOps.mirror(image), 1.2), 0.5),
}  # fmt: skip
EXACT: dict[str, tuple[str, Alteration]] = {
    "the same file": (".png", lambda image: image),
    "the same pixels in another format": (".bmp", lambda image: image),
    "the same pixels with a border": (".png", lambda image: ImageOps.expand(image, border=(30, 10), fill=0)),
}


def make_cohort(folder: Path, pictures: dict[str, Image.Image], **columns: list[str] | str) -> Cohort:
    """PNG files, and the cohort that names them; a name with an ending keeps it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: name if "." in name else f"{name}.png" for name in pictures}
    for name, picture in pictures.items():
        picture.save(folder / files[name])
    table = pd.DataFrame(
        {"case_id": [Path(n).stem for n in pictures], "image": list(files.values())} | columns
    )
    return Cohort.from_frame(table, root=folder)
