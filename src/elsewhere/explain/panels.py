"""Panels: a picture, and the same picture under its map, with the label and the network's answer (US-23)."""

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
    """The text above a panel.

    Args:
        title: The first line, such as the case and the run.
        label: The case's label, such as 'malignant'.
        probability: The predicted probability of malignancy, in [0, 1].
        method: How the map was made: 'grad-cam' or 'occlusion'.
        note: A further remark at the end of the second line; empty for none.

    Example:
        >>> Caption(title="case 7", label="benign", probability=0.9, method="occlusion").lines()
        ('case 7', 'benign; malignant with 0.900; occlusion')
    """

    title: str
    label: str
    probability: float
    method: str
    note: str = ""

    def lines(self) -> tuple[str, str]:
        """Return the two lines of the caption.

        Returns:
            The title; and the label, the probability, the method and the note.
        """
        second = f"{self.label}; malignant with {self.probability:.3f}; {self.method}"
        return self.title, second + (f"; {self.note}" if self.note else "")


def warm(relevance: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Convert values to colours: dark for 0, yellow for 1.

    Args:
        relevance: Values in [0, 1], of any shape; values outside are cut.

    Returns:
        Red, green and blue from 0 to 255 along a last, additional axis.

    Example:
        >>> warm([0.0, 1.0]).tolist()
        [[0.0, 0.0, 4.0], [252.0, 255.0, 164.0]]
    """
    value = np.clip(np.asarray(relevance, dtype=np.float64), 0, 1) * (len(_STOPS) - 1)
    stops = np.arange(len(_STOPS))
    return np.stack([np.interp(value, stops, [stop[c] for stop in _STOPS]) for c in range(3)], axis=-1)


def overlay(picture: npt.ArrayLike, relevance: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Colour a grey picture where its map is large.

    Args:
        picture: The grey picture, of shape (height, width), 0 to 255.
        relevance: Its map of the same shape, in [0, 1].

    Returns:
        The coloured picture, of shape (height, width, 3), 8 bit.

    Example:
        >>> overlay([[100]], [[0.0]]).tolist()
        [[[100, 100, 100]]]
    """
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
    """Draw a picture and its overlay side by side, with a caption and a colour bar.

    Args:
        picture: The grey picture, of shape (height, width), 0 to 255.
        relevance: Its map of the same shape, in [0, 1].
        caption: The text above.
        box: The lesion as (x0, y0, x1, y1) in pixels of the picture, outlined in both; None for no outline.
        size_px: The longer side of the drawn picture, in pixels.

    Returns:
        The panel as an image.

    Raises:
        ValueError: Picture and map do not have the same shape, or not two axes.

    Example:
        >>> caption = Caption(title="a", label="benign", probability=0.1, method="occlusion")
        >>> panel(np.zeros((8, 8)), np.zeros((8, 8)), caption, size_px=100).size
        (242, 152)
    """
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
    """Cut the text with dots where the panel is too narrow for it."""
    if pen.textlength(text, font) <= room:  # type: ignore[attr-defined]
        return text
    while text and pen.textlength(text + "...", font) > room:  # type: ignore[attr-defined]
        text = text[:-1]
    return text + "..."
