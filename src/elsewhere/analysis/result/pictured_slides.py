"""Pictured slides: what a report needs to show slides with the contours of truth and prediction, as plain data.

The pictures are parts of patients' images. They are shown by number ('slide 3'); `key` says which case a number is, and
belongs into the key file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elsewhere.privacy import Redactor


@dataclass(frozen=True, kw_only=True)
class SlideView:
    """One view of a slide: all of it, or a part.

    Attributes:
        name: What it shows: 'Whole slide' or 'Detail'.
        size: Width and height in the units of the contours.
        truth: The contour of the annotation as an SVG path; empty for none.
        said: The contour of the prediction; empty for none.
        frame: x, y, width and height of the part that the other view shows; None for none.
        picture: The JPEG; empty where the slide cannot be read or is not named.
        width_mm: How wide it is.
    """

    name: str
    size: tuple[int, int]
    truth: str
    said: str
    frame: tuple[float, float, float, float] | None = None
    picture: bytes = b""
    width_mm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PicturedSlide:
    """A slide with its views.

    Attributes:
        group: Why it is shown: 'Lowest Dice', 'Median Dice', 'Highest Dice' or 'Most false positives'.
        title: Its number: 'Slide 3'.
        facts: What is known of it, as short phrases.
        views: The views.
        problem: Why there is no picture; empty where there is.
    """

    group: str
    title: str
    facts: tuple[str, ...]
    views: tuple[SlideView, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class PicturedSlides:
    """Slides with the contours of truth and prediction.

    Attributes:
        slides: The slides, group by group.
        notes: What is not shown, and why, as sentences.
        key: The id behind each number on the page; it must not be shared.
    """

    slides: tuple[PicturedSlide, ...]
    notes: tuple[str, ...] = ()
    key: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        """How many bytes the pictures take on a page, where three bytes become four letters."""
        return sum(-(-len(view.picture) // 3) * 4 for one in self.slides for view in one.views)

    def warnings(self) -> tuple[str, ...]:
        """Say what could not be read.

        Returns:
            One sentence, or none.
        """
        lost = sum(bool(one.problem) for one in self.slides)
        if not lost:
            return ()
        return (
            f"Pictures: {lost} of {len(self.slides)} slides could not be read; the report lists them with the reason.",
        )

    def sentence(self) -> str:
        """Say what is pictured, for a terminal.

        Returns:
            One sentence.
        """
        noun = "slide" if len(self.slides) == 1 else "slides"
        held = (
            f"{self.bytes / 1e6:.1f} MB: the report holds parts of patients' images"
            if self.bytes
            else "contours alone, without images"
        )
        return f"pictures of {len(self.slides)} {noun}, {held}"

    def shared(self, redactor: Redactor) -> PicturedSlides:
        """Take ids and folders out of the reasons.

        Args:
            redactor: Knows them.

        Returns:
            The same pictures as they may be shown, without the key.
        """
        return replace(
            self,
            slides=tuple(replace(one, problem=redactor.text(one.problem)) for one in self.slides),
            notes=tuple(redactor.text(note) for note in self.notes),
            key={},
        )
