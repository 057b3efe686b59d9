"""Masks of the patches of one slide: from outlines or from a mask picture, patch by patch (LN-02).

A pixel of a mask is tumour where its centre lies inside the outlines, or where at least half of it is tumour in the mask
picture. Outlines are drawn for one row of patches at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import (
    Annotations,
    Grid,
    MaskTiff,
    check_inside,
    moved,
    open_mask,
    read_annotations,
)
from elsewhere.inputs.slides.annotations.scanning import mask_rows, ring_table
from elsewhere.inputs.slides.grid.geometry import PatchGrid
from elsewhere.inputs.slides.scale import area_average, borders
from elsewhere.inputs.slides.slide import Slide

OUTLINES = (".xml", ".json", ".geojson")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class MaskRules:
    """How annotations are read; the rules by which the patch table was made.

    Attributes:
        groups: Meanings of groups of outlines: pairs of a name and "tumour", "hole" or "ignore".
        tumour: The values of mask pictures that mean tumour; empty to recognise 0 and 255, or 0 and 1.
        from_scanned: Whether outlines count from the corner of the scanned part, not of level 0.
    """

    groups: tuple[tuple[str, str], ...] = ()
    tumour: tuple[int, ...] = ()
    from_scanned: bool = False


class SlideMasks:
    """The masks of a slide's patches.

    Args:
        annotation: Outlines or a mask picture; None for a slide without tumour.
        slide: The slide.
        grid: Its patches.
        rules: How the annotation is read; None for the defaults.

    Raises:
        UserError: The annotation cannot be read, or belongs to another slide.
    """

    def __init__(
        self, annotation: Path | None, slide: Slide, grid: PatchGrid, rules: MaskRules | None = None
    ) -> None:
        rules = rules or MaskRules()
        self._grid = grid
        self._size_px = slide.size_px
        self._picture: MaskTiff | None = None
        self._annotations: Annotations | None = None
        self._table: Any = None
        self._row, self._strip, self._first = -1, np.zeros((0, 0), np.uint8), 0
        if annotation is None:
            return
        if annotation.suffix.lower() in OUTLINES:
            found = read_annotations(annotation, groups=dict(rules.groups))
            if rules.from_scanned:
                left, top, _, _ = slide.facts.bounds_px
                found = moved(found, offset_px=(left, top))
            found = check_inside(found, slide.size_px)
            self._annotations, self._table = found, ring_table(found)
        else:
            self._picture = open_mask(annotation, tumour=rules.tumour or None)
            self._factor = self._picture.downsample(slide.size_px)

    def close(self) -> None:
        """Close the mask picture."""
        if self._picture is not None:
            self._picture.close()

    def mask(self, i: int, j: int) -> Mask:
        """Return the mask of a patch.

        Args:
            i: Its column.
            j: Its row; patches are asked for row by row.

        Returns:
            [size, size]: whether each pixel is tumour.

        Raises:
            UserError: The mask picture is damaged.
        """
        size = self._grid.size_px
        if self._picture is not None:
            return self._from_picture(i, j)
        if self._annotations is None:
            return np.zeros((size, size), bool)
        if j != self._row:
            self._draw(j)
        left = (i - self._first) * size
        if not self._strip.size or left < 0 or left + size > self._strip.shape[1]:
            return np.zeros((size, size), bool)
        return self._strip[:, left : left + size].astype(bool)

    def _draw(self, j: int) -> None:
        """Draw one row of patches, as far as the outlines reach."""
        grid, size = self._grid, self._grid.size_px
        annotations = self._annotations
        self._row, self._strip = j, np.zeros((0, 0), np.uint8)
        if annotations is None:
            return
        x0, y0, x1, y1 = annotations.box
        if y1 <= j * grid.patch_px or y0 >= (j + 1) * grid.patch_px:
            return
        first = max(0, int(x0 / grid.patch_px))
        last = min(grid.columns, int(x1 / grid.patch_px) + 1)
        if last <= first:
            return
        step = grid.patch_px / size
        samples = Grid(
            x=first * grid.patch_px,
            y=j * grid.patch_px,
            step_px=step,
            columns=(last - first) * size,
            rows=size,
        )
        self._first, self._strip = first, mask_rows(self._table, samples, 0, size)

    def _from_picture(self, i: int, j: int) -> Mask:
        picture, size = self._picture, self._grid.size_px
        if picture is None:
            raise UserError("the mask was closed")
        side = self._grid.patch_px / self._factor
        left, top = int(i * side), int(j * side)
        right, bottom = int(np.ceil((i + 1) * side - 1e-6)), int(np.ceil((j + 1) * side - 1e-6))
        stored = picture.read(left, top, max(1, right - left), max(1, bottom - top))
        if not stored.any():
            return np.zeros((size, size), bool)
        if stored.all():
            return np.ones((size, size), bool)
        ratio = side / size
        grey = np.where(stored, 255, 0).astype(np.uint8)[..., None]
        mean = area_average(grey, borders(j * size, size, ratio, top), borders(i * size, size, ratio, left))
        return np.asarray(mean[..., 0] >= 128)
