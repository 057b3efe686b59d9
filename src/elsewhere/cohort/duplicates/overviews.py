"""Whole slides as the duplicate search compares them: the tissue of an overview, in grey, without the glass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.overview import overview, tissue_grey


@dataclass(frozen=True, kw_only=True)
class SlideOverviews:
    """Opens slides and makes pictures of them; label and overview pictures in the files are not read.

    Attributes:
        mpp: Microns per pixel that the user states, by file.
    """

    mpp: Mapping[Path, float] = field(default_factory=dict)

    def __call__(self, path: Path, *, reduced: bool = False) -> Image.Image:
        """Make the grey picture of a slide's tissue.

        Args:
            path: The slide.
            reduced: Not used: an overview is small.

        Returns:
            The picture.

        Raises:
            UserError: The slide cannot be read.
        """
        with open_slide(path, mpp=self.mpp.get(path)) as slide:
            return Image.fromarray(tissue_grey(overview(slide)))

    def colours(self, path: Path) -> Image.Image:
        """Make the overview of a slide in colour, for a person to look at.

        Args:
            path: The slide.

        Returns:
            The picture.

        Raises:
            UserError: The slide cannot be read.
        """
        with open_slide(path, mpp=self.mpp.get(path)) as slide:
            return Image.fromarray(overview(slide))
