"""Drawing without global state: Figure objects, a palette, and SVG that follows the page's colours.

Inline pictures are drawn in placeholder colours that are then replaced by CSS variables, so that one
SVG serves light, dark and paper. Files are drawn in the light palette. Text stays text: small,
selectable, and set in the reader's own font.
"""

from __future__ import annotations

import io
import re
import threading
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.8
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Palette:
    """Colours by their role.

    Args:
        ink: Text and the lines that carry the data.
        muted: Axes, tick labels and secondary marks.
        line: Grid lines.
        accent: The first series; internal results.
        second: The second series; external results.
        good: A favourable verdict.
        bad: An unfavourable verdict.
        warn: An inconclusive verdict, and warnings.
        above: A verdict above the margin.
        paper: What lies behind the picture.
    """

    ink: str
    muted: str
    line: str
    accent: str
    second: str
    good: str
    bad: str
    warn: str
    above: str
    paper: str

    def verdict(self, word: str) -> str:
        """Look up the colour of a verdict.

        Args:
            word: The verdict, such as 'EQUIVALENT' or 'BELOW'.

        Returns:
            The colour; muted for a word that is no verdict.
        """
        return {
            "EQUIVALENT": self.good,
            "BELOW": self.bad,
            "ABOVE": self.above,
            "INCONCLUSIVE": self.warn,
        }.get(word, self.muted)


ROLES = ("ink", "muted", "line", "accent", "second", "good", "bad", "warn", "above", "paper")
LIGHT = Palette(
    ink="#1a2130",
    muted="#586070",
    line="#d8d4c8",
    accent="#1f5580",
    second="#a4501f",
    good="#1b6848",
    bad="#a5301e",
    warn="#80560a",
    above="#24519a",
    paper="#ffffff",
)
_STAND_IN = {role: f"#0c0a{index + 16:02x}" for index, role in enumerate(ROLES)}
STAND_IN = Palette(**_STAND_IN)

_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "elsewhere",
    "pdf.fonttype": 42,
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "axes.unicode_minus": True,
    "text.parse_math": False,  # names come from files: "$x" is a name, no formula
    "path.simplify": True,
    "figure.dpi": 72,
    "savefig.dpi": 160,
}


def drawing() -> Any:
    """Set how every figure is made and written; held under a lock, since the settings are global.

    Returns:
        A context manager under which figures are drawn.
    """
    import contextlib

    @contextlib.contextmanager
    def settings() -> Any:
        import matplotlib as mpl

        with _LOCK, mpl.rc_context(_RC):
            yield

    return settings()


def new_figure(height: float, pal: Palette, *, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes and hairlines: no box, no ticks that carry nothing.

    Args:
        height: The height in inches.
        pal: The colours.
        width: The width in inches.

    Returns:
        The figure and its axes.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    style(axes, pal)
    return figure, axes


def style(axes: Axes, pal: Palette, *, grid: str = "both") -> None:
    """Give axes the look of the page.

    Args:
        axes: The axes.
        pal: The colours.
        grid: The grid lines: `x`, `y`, `both` or `none`.
    """
    axes.patch.set_alpha(0)
    axes.grid(visible=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(pal.muted)
    axes.spines["bottom"].set_linewidth(0.8)
    axes.tick_params(colors=pal.muted, labelcolor=pal.muted, length=3, width=0.7, labelsize=10.5)
    axes.tick_params(axis="y", length=0)
    if grid in ("both", "y"):
        axes.grid(axis="y", color=pal.line, linewidth=0.7)
    if grid in ("both", "x"):
        axes.grid(axis="x", color=pal.line, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_color(pal.ink)
    axes.yaxis.label.set_color(pal.ink)
    axes.xaxis.label.set_fontsize(11)
    axes.yaxis.label.set_fontsize(11)


def to_svg(figure: Figure) -> str:
    """Draw a figure as SVG.

    Args:
        figure: The figure.

    Returns:
        The SVG, without a date.
    """
    buffer = io.StringIO()
    layout = figure.get_layout_engine()
    if layout is not None:  # or `savefig` draws the whole figure twice, the first time for its layout alone
        layout.execute(figure)
        figure.set_layout_engine("none")
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return buffer.getvalue()


_FONT = re.compile(r"font: (?:(italic|oblique) )?(?:(bold|\d{3}) )?([\d.]+)px [^;\"]*")
_GEOMETRY = re.compile(r'\s(?:d|x|y|transform|points|width|height)="[^"]*"')
_LONG_NUMBER = re.compile(r"(\d+\.\d\d)\d+")
_FONT_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")


def inline(figure: Figure, name: str, alt: str) -> str:
    """Draw a figure as an element of the page.

    Args:
        figure: The figure.
        name: The figure's name, the prefix of its ids.
        alt: What the figure shows, in words.

    Returns:
        An SVG element without prolog, style sheet or address of its own, and with unique ids.
    """
    svg = to_svg(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="(?!p\w+"|m\w+"|C\w+")[^"]*"', "", svg)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = _FONT.sub(lambda m: f"font-size: {m[3]}px" + (f"; font-weight: {m[2]}" if m[2] else ""), svg)
    svg = _FONT_FAMILY.sub("", svg)
    for role, colour in _STAND_IN.items():
        svg = svg.replace(colour, f"var(--{role})")
    svg = _GEOMETRY.sub(lambda m: _LONG_NUMBER.sub(r"\1", m[0]), svg)
    svg = re.sub(r">\s+<", "><", svg).replace("\n", " ")
    box = re.search(r'viewBox="([^"]+)"', svg)
    view = box.group(1) if box else "0 0 350 260"
    body = svg[svg.index(">") + 1 :]
    return (
        f'<svg class="fig" role="img" aria-label="{escape(alt, quote=True)}" viewBox="{view}" '
        f'preserveAspectRatio="xMidYMid meet">{body}'
    )
