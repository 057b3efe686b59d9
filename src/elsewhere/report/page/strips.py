"""Strips of slices that a reader scrolls by arrow keys, with boxes that can be switched off.

The slices are pictures inside the page, which makes no request. Without JavaScript each strip shows its middle slice with
the boxes that lie on it, and the page says so.
"""

from __future__ import annotations

import base64
import colorsys
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

WIDTH = 320
"""The longer side of a strip in the units that boxes are drawn in; a page sets it as wide as it can."""
TRUTH_COLOUR = "#ffffff"
LOW = "low"
"""The layer of all boxes below their model's threshold."""
_COLOURS = ("#4fb3ff", "#e8a33d", "#7bdcb5", "#ff6f91", "#b98cff", "#f2e05c", "#5be0e6", "#ff9d73")
_GOLDEN = 0.618034


@dataclass(frozen=True, kw_only=True)
class StripBox:
    """A box on a strip.

    Args:
        layer: What switches it on and off: the number of a model in the legend, or 'truth'.
        x: The left end, as a share of the frame.
        y: The upper end.
        width: The width.
        height: The height.
        first: The first slice that it lies on.
        last: The last one.
        colour: The colour of its line.
        label: What stands next to it; empty for nothing.
        full: Whether its line is full; otherwise it is dashed, and the layer `LOW` switches it too.
        hidden: Whether it is hidden at first.
        centre: The only slice on which the line is full; None for all.
        subject: Whether its line is thick.
    """

    layer: str
    x: float
    y: float
    width: float
    height: float
    first: int
    last: int
    colour: str
    label: str = ""
    full: bool = True
    hidden: bool = False
    centre: int | None = None
    subject: bool = False


@dataclass(frozen=True, kw_only=True)
class StripView:
    """One strip.

    Args:
        name: The id of the strip on the page, unique there.
        title: A heading.
        facts: A line below it; empty for none.
        slices: The JPEG of each slice; empty where there are none.
        first: The number of the first slice.
        start: The number of the slice that is shown first.
        depth: How many slices the volume has.
        size: Width and height of what is shown, in any unit.
        boxes: The boxes on it.
        lines: What is said of each model: its number and colour in the legend, its name, and the sentence.
        problem: Why there are no slices; empty where there are.
    """

    name: str
    title: str
    facts: str = ""
    slices: Sequence[bytes] = ()
    first: int = 0
    start: int = 0
    depth: int = 1
    size: tuple[int, int] = (1, 1)
    boxes: Sequence[StripBox] = ()
    lines: Sequence[tuple[str, str, str, str]] = ()
    problem: str = ""

    @property
    def view(self) -> tuple[float, float]:
        """Width and height in the units that boxes are drawn in."""
        wide, tall = self.size
        unit = WIDTH / max(wide, tall)
        return round(wide * unit, 2), round(tall * unit, 2)

    @property
    def last(self) -> int:
        """The number of the last slice."""
        return self.first + len(self.slices) - 1

    @property
    def opening(self) -> str:
        """The slice that is shown first, in base64."""
        return base64.b64encode(self.slices[self.start - self.first]).decode("ascii")

    @property
    def data(self) -> str:
        """The slices in base64 as JSON that may stand inside a script element, without the one that is shown first."""
        others = [
            "" if self.first + k == self.start else base64.b64encode(one).decode("ascii")
            for k, one in enumerate(self.slices)
        ]
        return json.dumps({"first": self.first, "slices": others}, separators=(",", ":"))

    @property
    def drawn(self) -> list[tuple[StripBox, str, float, float, float, float, float, float]]:
        """The boxes in the units of `view`: box, class names at the first slice, rectangle, and where the label stands."""
        wide, tall = self.view
        out = []
        for box in self.boxes:
            x, y = box.x * wide, box.y * tall
            width, height = max(box.width * wide, 1.0), max(box.height * tall, 1.0)
            text_x = min(max(x, 2.0), wide - 44.0)
            above = y - 4.0 if y > 14.0 else y + height + 11.0
            text_y = min(max(above, 11.0), tall - 4.0)
            here = box.first <= self.start <= box.last and not box.hidden
            dashed = not box.full or (box.centre is not None and box.centre != self.start)
            names = (
                "sbox"
                + (" subject" if box.subject else "")
                + (" dashed" if dashed else "")
                + ("" if here else " away")
            )
            numbers = (round(n, 1) for n in (x, y, width, height, text_x, text_y))
            x, y, width, height, text_x, text_y = numbers
            out.append((box, names, x, y, width, height, text_x, text_y))
        return out


@dataclass(frozen=True, kw_only=True)
class StripViewer:
    """Strips in groups, with one legend that switches the boxes of a model in all of them.

    Args:
        name: The id of the viewer on the page, unique there.
        layers: The legend: what switches a layer, its number, its name, and its colour.
        groups: The strips under a heading each.
        off: The layers that are switched off at first.
        type: The kind of block, by which the template finds how it is set.
    """

    name: str
    layers: Sequence[tuple[str, str, str, str]]
    groups: Sequence[tuple[str, Sequence[StripView]]]
    off: Sequence[str] = ()
    type: str = "strips"


def colour_of(number: int) -> str:
    """Choose the colour of a model, bright enough for a dark picture.

    Args:
        number: The number of the model, from 0.

    Returns:
        A colour that CSS understands; the first eight are easy to tell apart.

    Example:
        >>> colour_of(0), colour_of(9)
        ('#4fb3ff', '#80cfff')
    """
    if number < len(_COLOURS):
        return _COLOURS[number]
    parts = colorsys.hls_to_rgb((number * _GOLDEN) % 1.0, 0.75, 1.0)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def script() -> str:
    """Read the script that scrolls the strips; a page without strips does not hold it.

    Returns:
        The JavaScript.
    """
    return resources.files("elsewhere.report").joinpath("templates", "strips.js").read_text(encoding="utf-8")


def style() -> str:
    """Read the style sheet of the strips; a page without strips does not hold it.

    Returns:
        The CSS.
    """
    return resources.files("elsewhere.report").joinpath("templates", "strips.css").read_text(encoding="utf-8")
