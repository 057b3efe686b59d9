"""Single slices as pictures, each a volume of one slice: the slices of BCS-DBT that are published as such.

A picture may be smaller than the slice it was made of. Boxes stay in pixels of the original slice, and `scale` says
how many of them one pixel of the picture is.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from elsewhere.errors import UserError
from elsewhere.files.refusals import explained_refusals
from elsewhere.inputs.tomosynthesis.header import MOST_PIXELS
from elsewhere.inputs.tomosynthesis.volume import Facts, Pixels, Stack, examine, stored_slices
from elsewhere.untrusted import check_plain_file, printable

SUFFIXES = (".webp", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")


class PictureVolume:
    """A picture of one slice.

    Args:
        path: The picture; colours become their luminance.
        side_by_name: "left" or "right" by the name of the view; "" where it is not known.
        original: Rows and columns of the slice that it was made of; None: the picture is the slice.
    """

    def __init__(
        self, path: Path, *, side_by_name: str = "", original: tuple[int, int] | None = None
    ) -> None:
        self.path, self.side_by_name, self.original = path, side_by_name, original

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels.

        Returns:
            The facts, in pixels of the original slice.

        Raises:
            UserError: The picture cannot be read, or is of another shape than the original.
        """
        return self._facts

    @cached_property
    def _facts(self) -> Facts:
        facts = examine(self._pixels(), side_by_name=self.side_by_name)
        notes = tuple(note for note in facts.notes if "no usable window" not in note)
        rows, columns = self.original or facts.shape[:2]
        down, across = rows / facts.shape[0], columns / facts.shape[1]
        if min(down, across) <= 0 or abs(across / down - 1) > 0.02:
            raise UserError(
                f"the picture has {facts.shape[0]} x {facts.shape[1]} pixels, the original {rows} x {columns}: "
                "another shape",
                where=str(self.path),
                fix="Correct orig_height and orig_width in the table, or fetch the picture again.",
            )
        x0, y0, x1, y1 = facts.breast
        box = (round(x0 * across), round(y0 * down), round(x1 * across), round(y1 * down))
        return replace(facts, shape=(rows, columns, 1), breast=box, scale=down, notes=notes)

    def _pixels(self) -> Pixels:
        slice_ = self._decoded()
        return Pixels(shape=(slice_.shape[0], slice_.shape[1], 1), read=lambda _: slice_)

    def _decoded(self) -> Stack:
        from PIL import Image, UnidentifiedImageError

        with explained_refusals(self.path, "the picture cannot be read"):
            check_plain_file(self.path, what="picture")
        try:
            with Image.open(self.path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise UserError(
                        f"a picture of {image.width} x {image.height} pixels is larger than any that is read",
                        where=str(self.path),
                    )
                kind = "I;16" if image.mode.startswith("I") else "L"
                return np.asarray(image.convert(kind)).astype(np.uint16)
        except (
            Image.DecompressionBombError,
            UnidentifiedImageError,
            OSError,
            ValueError,
            SyntaxError,
            EOFError,
        ) as error:
            raise UserError(
                f"the picture cannot be decoded ({printable(error)[:120]})",
                where=str(self.path),
                fix="Fetch it again.",
            ) from error

    def stack(self) -> Stack:
        """Decode the picture.

        Returns:
            [1, rows, columns] of the breast's box, read-only.

        Raises:
            UserError: It cannot be decoded.
        """
        pixels = self._pixels()
        stack = np.stack(list(stored_slices(pixels, examine(pixels, side_by_name=self.side_by_name))))
        stack.flags.writeable = False
        return stack

    def digest(self) -> str:
        """Return what names what a recipe is given of it.

        Returns:
            Hexadecimal sha256.

        Raises:
            UserError: The picture cannot be read.
        """
        with explained_refusals(self.path, "the picture cannot be read"):
            check_plain_file(self.path, what="picture")
            with self.path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        text = f"elsewhere-slice-picture 1 {content} {self.side_by_name} {self.original}"
        return hashlib.sha256(text.encode()).hexdigest()
