"""Reads a plain picture (PNG, JPEG, BMP, WebP) as a slide of one level; the user states its microns per pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elsewhere.errors import UserError
from elsewhere.files.refusals import explained_refusals
from elsewhere.inputs.slides.openslide_slide import on_white
from elsewhere.inputs.slides.scale import check_mpp
from elsewhere.inputs.slides.slide import Level, Pixels, Slide, SlideFacts
from elsewhere.untrusted import check_plain_file, printable

MOST_PIXELS = 100_000_000
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")


class PictureSlide(Slide):
    """A picture as a slide. It is decoded once and stays in memory.

    Args:
        path: The file.
        stated_mpp: Microns per pixel: a picture's own statement is a printer's, and is not used.

    Raises:
        UserError: It is no picture, too large, damaged, or its microns per pixel are not stated.
    """

    backend = "picture"

    def __init__(self, path: Path, stated_mpp: float | None = None) -> None:
        from PIL import Image

        super().__init__(path, stated_mpp)
        check_plain_file(path, what="slide")
        try:
            with explained_refusals(path, "the picture cannot be read"):
                image = Image.open(path, formats=FORMATS)
        except (Image.UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
            raise UserError(
                "this is neither a slide nor a picture",
                where=str(path),
                fix="Name a slide: a .tif, .svs or .mrxs file.",
            ) from error
        with image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise UserError(
                    f"the picture has {width:,} x {height:,} pixels; plain pictures of up to {MOST_PIXELS:,} are read",
                    where=str(path),
                    fix="Save it as a TIFF file with tiles and lower levels.",
                )
            if stated_mpp is None:
                raise UserError(
                    "a plain picture does not say how large its pixels are",
                    where=str(path),
                    fix="State the microns per pixel: mpp=0.25 in open_slide, or --mpp 0.25.",
                )
            mpp = check_mpp(stated_mpp, where=str(path))
            if image.mode in ("I", "F") or image.mode.startswith("I;"):
                raise UserError(
                    f"its values are not whole numbers of 8 bits (mode {image.mode})",
                    where=str(path),
                    fix="Save it with 8 bits per colour.",
                )
            name = image.format or "picture"
            try:
                self._pixels: Pixels | None = np.ascontiguousarray(
                    on_white(np.asarray(image.convert("RGBA")))
                )
            except (OSError, SyntaxError, ValueError) as error:
                raise UserError(
                    f"the picture cannot be decoded ({printable(error)[:160]})",
                    where=str(path),
                    fix="Fetch or export the file again.",
                ) from error
        level = Level(width=width, height=height, downsample=1.0, mpp=mpp)
        self.facts = SlideFacts(
            mpp=mpp,
            mpp_source="stated by the user",
            levels=(level,),
            objective=None,
            vendor="picture",
            compression=name,
            bounds_px=(0, 0, width, height),
            reader_reason="it is a plain picture",
        )

    def close(self) -> None:
        """Forget the pixels. A closed slide cannot be read; closing it twice does nothing."""
        self._pixels = None

    def _fill(self, level: int, x: int, y: int, out: Pixels) -> None:
        if self._pixels is None:
            raise UserError(
                "the slide was closed before this read", where=str(self.path), fix="Open it again."
            )
        out[:] = self._pixels[y : y + out.shape[0], x : x + out.shape[1]]
