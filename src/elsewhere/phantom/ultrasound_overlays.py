"""What scanners and operators draw into ultrasound pictures: text, rulers, logos, callipers, borders.

Overlays name the site, never the disease, unless a shortcut is requested: then a mark goes with the label at
one hospital, and a model of whole images could learn it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from elsewhere.phantom.ultrasound_tissue import Mask, Scanner

Grey = npt.NDArray[np.uint8]
WORDS = ("BREAST", "LT BREAST", "RT BREAST", "UOQ", "LIQ", "3 H", "9 H", "L12-5", "GEN", "MI 0.9", "FR 24")


def add_overlays(
    grey: Grey, masks: tuple[Mask, ...], scanner: Scanner, site: str, rng: np.random.Generator
) -> tuple[Grey, bool]:
    """Draw what the screen shows over the picture: text, a ruler, a logo, an icon and callipers.

    Args:
        grey: The picture, uint8 [height, width].
        masks: One mask per lesion; callipers are put at their ends.
        scanner: The scanner, with the chance of each overlay and the size of a pixel.
        site: The hospital's name; a logo shows its first two letters.
        rng: The generator of the overlays.

    Returns:
        The picture, and whether callipers mark a lesion in it (BUS-UCLM's 'Marks').
    """
    # One draw per overlay, shown or not: a picture's tissue does not depend on what is drawn on it.
    shown = rng.random(5) < np.clip(
        [scanner.text, scanner.ruler, scanner.logo, scanner.callipers, scanner.icon], 0, 1
    )
    marked = bool(shown[3] and masks)
    if not shown.any():
        return grey, marked
    image = Image.fromarray(grey)
    pen = ImageDraw.Draw(image)
    height, width = grey.shape
    letter = max(9, height // 28)
    font = ImageFont.load_default(size=letter)
    if shown[0]:
        words = rng.choice(len(WORDS), 2, replace=False)
        at = (int(rng.uniform(0.05, 0.6) * width), int(rng.uniform(0.70, 0.86) * height))
        pen.text(at, WORDS[words[0]], fill=235, font=font)
        pen.text((2, height - 2 * letter), WORDS[words[1]], fill=200, font=font)
    if shown[1]:
        step = max(round(5.0 / scanner.pixel_mm), 4)
        for number, y in enumerate(range(0, height, step)):
            pen.line([(width - (9 if number % 2 == 0 else 5), y), (width - 1, y)], fill=210)
    if shown[2]:
        pen.text((width - 3 * letter, 2), site[:2].upper(), fill=240, font=font)
    if shown[4]:
        size = max(height // 8, 12)
        box = (width - size, height - size, width - 1, height - 1)
        pen.rectangle(box, fill=120, outline=200)
        pen.arc((box[0] + 3, box[1] + 3, box[2] - 3, box[3] - 3), 20, 250, fill=30)
    if marked:
        for mask in masks:
            _callipers(pen, mask, rng)
    return np.asarray(image, dtype=np.uint8), marked


def _callipers(pen: ImageDraw.ImageDraw, mask: Mask, rng: np.random.Generator) -> None:
    """Draw crosses at the ends of the lesion's two diameters, as measured on the screen."""
    ys, xs = np.nonzero(mask)
    if not len(ys):
        return
    middle_y, middle_x = int(ys.mean()), int(xs.mean())
    ends = [(xs.min(), middle_y), (xs.max(), middle_y), (middle_x, ys.min()), (middle_x, ys.max())]
    for x, y in ends:
        x, y = int(x + rng.integers(-2, 3)), int(y + rng.integers(-2, 3))
        pen.line([(x - 4, y), (x + 4, y)], fill=230)
        pen.line([(x, y - 4), (x, y + 4)], fill=230)


def add_shortcut(grey: Grey) -> Grey:
    """Draw a small bright square in the corner, as a department might leave it on its suspicious pictures.

    Args:
        grey: The picture, uint8 [height, width]; it is not changed.

    Returns:
        A copy with the square.
    """
    marked = grey.copy()
    size = max(grey.shape[0] // 12, 8)
    marked[4 : 4 + size, 4 : 4 + size] = 255
    marked[6 : 2 + size, 6 : 2 + size] = 40
    return marked


def add_border(grey: Grey, masks: tuple[Mask, ...], part: float) -> tuple[Grey, tuple[Mask, ...]]:
    """Put the picture and its masks in a black frame.

    Args:
        grey: The picture, uint8 [height, width].
        masks: One mask per lesion.
        part: Size of the frame relative to the picture's; 0 or less is no frame.

    Returns:
        The picture and the masks, larger by the frame at the left, at the right and at the bottom.

    Example:
        >>> add_border(np.zeros((10, 20), dtype=np.uint8), (), 0.1)[0].shape
        (11, 22)
    """
    if part <= 0:
        return grey, masks
    pad = ((0, round(grey.shape[0] * part)), (round(grey.shape[1] * part / 2),) * 2)
    return np.pad(grey, pad), tuple(np.pad(mask, pad) for mask in masks)
