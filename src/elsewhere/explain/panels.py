"""A panel: the picture, and the picture with its map, with what is known and what the network says (US-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image

_STOPS = ((0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164))
_BOX = (64, 224, 208)
_PAD, _BAR, _STRIP = 8, 10, 44


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What stands above a panel."""

    title: str
    label: str
    probability: float
    method: str
    note: str = ""

    def lines(self) -> tuple[str, str]:
        second = f"{self.label}; malignant with {self.probability:.3f}; {self.method}"
        return self.title, second + (f"; {self.note}" if self.note else "")


def warm(relevance: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Colours (..., 3) in 0 to 255 for values in [0, 1]: dark is none, yellow is most."""
    value = np.clip(np.asarray(relevance, dtype=np.float64), 0, 1) * (len(_STOPS) - 1)
    stops = np.arange(len(_STOPS))
    return np.stack([np.interp(value, stops, [stop[c] for stop in _STOPS]) for c in range(3)], axis=-1)


def overlay(picture: npt.ArrayLike, relevance: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """The grey picture (height, width, 8 bit) coloured where the map is large."""
    grey = np.asarray(picture, dtype=np.float64)[..., None]
    values = np.clip(np.asarray(relevance, dtype=np.float64), 0, 1)[..., None]
    opaque = 0.65 * np.sqrt(values)
    mixed = grey * (1 - opaque) + warm(values[..., 0]) * opaque
    return np.asarray(np.rint(mixed).clip(0, 255).astype(np.uint8))


def panel(
    picture: npt.ArrayLike,
    relevance: npt.ArrayLike,
    caption: Caption,
    *,
    box: Sequence[float] | None = None,
    size_px: int = 320,
) -> Image:
    """Picture and overlay side by side; `box` (the lesion, in the picture's pixels) is outlined in both."""
    from PIL import Image, ImageDraw, ImageFont

    grey = np.asarray(picture, dtype=np.uint8)
    if grey.shape != np.shape(relevance) or grey.ndim != 2:
        raise ValueError(f"picture and map differ: {grey.shape} and {np.shape(relevance)}")
    scale = size_px / max(grey.shape)
    width, height = (max(1, round(side * scale)) for side in (grey.shape[1], grey.shape[0]))
    page = Image.new("RGB", (2 * width + 3 * _PAD + _BAR + _PAD, height + _STRIP + _PAD), "white")
    pen = ImageDraw.Draw(page)
    font = ImageFont.load_default(13)
    for at, line in enumerate(caption.lines()):
        pen.text((_PAD, 6 + 18 * at), _shortened(line, page.width - 2 * _PAD, pen, font), "black", font)
    sides = (Image.fromarray(grey).convert("RGB"), Image.fromarray(overlay(grey, relevance)))
    for at, side in enumerate(sides):
        left = _PAD + at * (width + _PAD)
        page.paste(side.resize((width, height), Image.Resampling.BICUBIC), (left, _STRIP))
        if box is not None and box[2] > box[0] and box[3] > box[1]:
            corners = [left + box[0] * scale, _STRIP + box[1] * scale]
            corners += [left + box[2] * scale - 1, _STRIP + box[3] * scale - 1]
            pen.rectangle(corners, outline=_BOX)
    bar = warm(np.linspace(1, 0, height))[:, None, :].repeat(_BAR, axis=1)
    page.paste(Image.fromarray(np.rint(bar).astype(np.uint8)), (3 * _PAD + 2 * width, _STRIP))
    return page


def _shortened(text: str, room: float, pen: object, font: object) -> str:
    """The text, cut with dots where the panel is too narrow for it."""
    if pen.textlength(text, font) <= room:  # type: ignore[attr-defined]
        return text
    while text and pen.textlength(text + "...", font) > room:  # type: ignore[attr-defined]
        text = text[:-1]
    return text + "..."
