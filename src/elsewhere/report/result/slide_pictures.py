"""The section that shows slides with the contours of the annotation and of the prediction (LN-18)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from elsewhere.analysis.result.pictured_slides import PicturedSlide, PicturedSlides, SlideView
from elsewhere.report.page.blocks import Note, Section


@dataclass(frozen=True, kw_only=True)
class ShownView:
    """One view of a slide as the template sets it.

    Attributes:
        alt: What it shows, in words.
        caption: The line below it.
        width: The width in the units of the contours.
        height: The height.
        truth: The contour of the annotation.
        said: The contour of the prediction.
        frame: The part that the other view shows; None for none.
        source: The JPEG as base64; empty for none.
    """

    alt: str
    caption: str
    width: int
    height: int
    truth: str
    said: str
    frame: tuple[float, float, float, float] | None
    source: str


@dataclass(frozen=True, kw_only=True)
class ShownSlide:
    """One slide as the template sets it.

    Attributes:
        name: Its anchor.
        title: Its number.
        facts: What is known of it.
        problem: Why it has no picture; empty where it has.
        views: Its views.
    """

    name: str
    title: str
    facts: str
    problem: str
    views: Sequence[ShownView]


@dataclass(frozen=True, kw_only=True)
class SlideCards:
    """Slides in groups.

    Attributes:
        groups: Headings with their slides.
        type: The kind of block, by which the template finds how it is set.
    """

    groups: Sequence[tuple[str, Sequence[ShownSlide]]]
    type: str = "slides"


def slides_section(pictured: PicturedSlides) -> Section | None:
    """Make the section of pictured slides.

    Args:
        pictured: The slides as they may be shown: `PicturedSlides.shared`.

    Returns:
        The section, or None without any slide and any note.
    """
    if not pictured.slides and not pictured.notes:
        return None
    blocks: list[object] = []
    if pictured.bytes:
        size = pictured.bytes
        words = f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.0f} kB"
        blocks.append(
            Note(
                text=f"This page holds parts of patients' images ({words}). Share it only where you may share the images.",
                tone="warn",
            )
        )
    blocks += [Note(text=note) for note in pictured.notes]
    framed = any(view.frame for one in pictured.slides for view in one.views)
    frame = "The frame is the detail next to it. " if framed else ""
    groups = {
        name: [_slide(one) for one in pictured.slides if one.group == name]
        for name in dict.fromkeys(one.group for one in pictured.slides)
    }
    if groups:
        blocks.append(SlideCards(groups=list(groups.items())))
    return Section(
        id="pictures",
        title="Slides with the masks of truth and prediction",
        short="Pictures",
        lead="Full line: the annotation. Dashed line: the prediction. Contours follow cells of about 8 microns; in a large slide they "
        f"are widened to whole pixels of the picture, so that small lesions are seen. {frame}case_key.csv, which stays with the data, says which case a number is.",
        blocks=blocks,
    )


def _slide(one: PicturedSlide) -> ShownSlide:
    return ShownSlide(
        name=one.title.lower().replace(" ", "-"),
        title=one.title,
        facts=", ".join(one.facts),
        problem=f"No picture: {one.problem}" if one.problem else "",
        views=[_view(one, view) for view in one.views],
    )


def _view(one: PicturedSlide, view: SlideView) -> ShownView:
    drawn = [words for words, path in (("annotation", view.truth), ("prediction", view.said)) if path]
    contours = f"contours of {' and '.join(drawn)}" if drawn else "neither annotation nor prediction here"
    return ShownView(
        alt=f"{one.title}, {view.name.lower()}: {contours}",
        caption=f"{view.name}, {view.width_mm:.1f} mm wide",
        width=view.size[0],
        height=view.size[1],
        truth=view.truth,
        said=view.said,
        frame=view.frame,
        source=base64.b64encode(view.picture).decode("ascii"),
    )
