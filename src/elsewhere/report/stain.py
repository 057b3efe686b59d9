"""A page that shows parts of pictures before and after stain normalisation, side by side; it holds pixels, so it is written on request."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere._version import __version__
from elsewhere.files import write_bytes
from elsewhere.report.page import blocks
from elsewhere.report.page.shell import environment, read_template
from elsewhere.report.result.first_page import FirstPage

_QUALITY = 88
_NAMES = {
    "haematoxylin": "Haematoxylin (red, green, blue)",
    "eosin": "Eosin (red, green, blue)",
    "concentrations": "Strength of both",
    "mean": "Mean of L*, a*, b*",
    "sd": "SD of L*, a*, b*",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class StainedPart:
    """A part of a picture before and after.

    Attributes:
        before: [rows, columns, 3] of 8 bits.
        after: The same after.
        fit: Its stain fit before, as plain values.
        fit_after: Its stain fit after.
    """

    before: npt.NDArray[np.uint8]
    after: npt.NDArray[np.uint8]
    fit: Mapping[str, Any]
    fit_after: Mapping[str, Any]


def write_page(
    parts: Sequence[StainedPart],
    path: Path,
    *,
    title: str,
    counts: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Write the page, whole or not at all.

    Args:
        parts: What is shown; no file name stands on the page.
        path: The file; one that exists is replaced.
        title: What was done, in a few words.
        counts: What was counted, in words.
        warnings: What could not be normalised as it should, in words.

    Raises:
        FileSystemError: The system refuses.
    """
    write_bytes(render_page(parts, title=title, counts=counts, warnings=warnings).encode(), path)


def render_page(
    parts: Sequence[StainedPart], *, title: str, counts: Sequence[str] = (), warnings: Sequence[str] = ()
) -> str:
    """Render the page as text.

    Args:
        parts: What is shown.
        title: What was done, in a few words.
        counts: What was counted, in words.
        warnings: What could not be normalised as it should, in words.

    Returns:
        The HTML.

    Example:
        >>> render_page([], title="macenko to 'study'").startswith("<!doctype html>")
        True
    """
    shown: list[Any] = [
        blocks.Pair(
            pictures=[
                blocks.Picture(
                    name=f"part-{number}-{when}",
                    caption=f"Part {number}, {when}",
                    alt=f"Part {number} {when} stain normalisation",
                    svg=_element(f"Part {number} {when} stain normalisation", pixels),
                )
                for when, pixels in (("before", part.before), ("after", part.after))
            ]
        )
        for number, part in enumerate(parts, start=1)
    ]
    if not shown:
        shown = [blocks.Text(paragraphs=["No part with tissue was found to show."])]
    if counts:
        shown.insert(0, blocks.Text(paragraphs=[f"{line}." for line in counts]))
    sections = [
        blocks.Section(
            id="parts",
            title="Parts before and after",
            short="Parts",
            lead="Squares of up to 256 pixels, saved as JPEG for this page; the files that were written are not changed by that.",
            blocks=shown,
        )
    ]
    if parts:
        sections.append(
            blocks.Section(
                id="stains",
                title="Stains before and after",
                short="Stains",
                lead="Before: the fit that was used. After: a new fit of the part shown.",
                blocks=[_table(parts)],
            )
        )
    first = FirstPage(
        title="Stain normalisation",
        question="What did stain normalisation change?",
        masthead=["Stain normalisation", title],
        word="",
        tone="none",
        plain="",
        sentence="",
        badges=[],
        facts=[],
        claims=None,
        figures=[],
        hero=None,
        grades=[],
        alarms=[],
        warnings=[f"{line}." for line in warnings],
    )
    page = (
        environment()
        .get_template("page.html.j2")
        .render(
            first=first,
            verdict_figure="",
            verdict_alt="",
            sections=sections,
            css=read_template("style.css"),
            script="",
            version=__version__,
            created="",
            cohort="",
        )
    )
    return "\n".join(line.rstrip() for line in page.splitlines() if line.strip()) + "\n"


def _table(parts: Sequence[StainedPart]) -> blocks.Table:
    names = [name for name in _NAMES if any(isinstance(part.fit.get(name), list) for part in parts)]
    rows = [
        [
            blocks.text(f"Part {number}, {when}"),
            blocks.text(str(fit.get("status", ""))),
            *(blocks.text(_numbers(fit.get(name))) for name in names),
        ]
        for number, part in enumerate(parts, start=1)
        for when, fit in (("before", part.fit), ("after", part.fit_after))
    ]
    return blocks.Table(
        name="stain-fits",
        caption="Stain fits",
        columns=["Part", "Status", *(_NAMES[name] for name in names)],
        rows=rows,
    )


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.2f}" for value in values) if isinstance(values, list) else "not found"


def _element(caption: str, pixels: npt.NDArray[np.uint8]) -> str:
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(pixels).save(held, format="JPEG", quality=_QUALITY)
    data = base64.b64encode(held.getvalue()).decode()
    return f'<img alt="{escape(caption, quote=True)}" src="data:image/jpeg;base64,{data}">'
