"""One slide, drawn region by region: pixels and the true mask of any rectangle, without a slide in memory.

A region is drawn in three steps. The places of the nuclei and the fields of the tissue on a grid of about 4 microns
are found with numpy on the processor. The painter turns them into the amounts of both stains per pixel, and the
amounts into colours; it does so with numpy or, for many patches at once, with torch on a GPU.

Everything depends on the slide and the place alone: a patch drawn by itself equals the same pixels of the slide.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.phantom.slides.anatomy import BLOOD, FAT, GLASS, LYMPH, SINUS, Anatomy, Ground
from elsewhere.phantom.slides.artefacts import Artefacts
from elsewhere.phantom.slides.noise import Floats, Whole, texture
from elsewhere.phantom.slides.nuclei import REACH_UM, Bank, Places, bank_of, lattice
from elsewhere.phantom.slides.patients import SlideSpec
from elsewhere.phantom.slides.tumour import Disease, draw_disease

Pixels = npt.NDArray[np.uint8]
PITCH_UM = 4.0
"""Microns between the places at which the fields are known, the same for every scanner."""
TEXTURE = 1024
MARGIN = 8
"""Pixels drawn around a region, as the blur of the scanner needs them."""
FIELDS = ("solid", "eosin", "haze", "fibre", "cleft", "phase", "gain", "ink", "defocus", "red")
"""What is known at each place: distance to white space, amount of eosin, of haematoxylin between nuclei, how fibrous,
how much of the white clefts, where along the fibres, thickness of the section, ink, loss of focus, blood."""


@dataclass(frozen=True)
class Plan:
    """What a region holds, before it is painted.

    Args:
        fields: The fields by name, row and column of their grid.
        marks: For each bank of nuclei its name, and the variant, column and row of each nucleus in pixels of the region.
        first: Column and row of the first place of the fields, in steps of `PITCH_UM`.
        corner: Column and row of the region's first pixel, margin included, in pixels of the level.
        shape: Rows and columns with the margin.
    """

    fields: Floats
    marks: tuple[tuple[str, Whole], ...]
    first: tuple[int, int]
    corner: tuple[int, int]
    shape: tuple[int, int]


@dataclass(frozen=True)
class _Known:
    """What is known at the places of the fields."""

    ground: Ground
    cells: Floats
    lesion: Floats
    loners: Floats
    sick: bool
    first: tuple[int, int]

    def at(self, values: Floats, places: Places) -> Floats:
        """Return a field at the nearest of its places; the same in every region."""
        column = np.rint(places.x * np.float32(1 / PITCH_UM)).astype(np.int32) - self.first[0]
        row = np.rint(places.y * np.float32(1 / PITCH_UM)).astype(np.int32) - self.first[1]
        made: Floats = values[row, column]
        return made


class Drawing:
    """A slide that can be drawn anywhere.

    Args:
        spec: The slide.

    Example:
        >>> from elsewhere.phantom.slides.patients import World
        >>> drawing = Drawing(World(patients=1, nodes=1).slides()[0])
        >>> drawing.region(1000, 800, 64, 32).shape, drawing.truth(1000, 800, 64, 32).shape
        ((32, 64, 3), (32, 64))
    """

    def __init__(self, spec: SlideSpec) -> None:
        self.spec = spec
        self.anatomy = Anatomy(spec)
        self.disease: Disease = draw_disease(spec, self.anatomy)
        self.artefacts = Artefacts(spec, self.anatomy)
        self.stain = spec.stain()
        self._salt = int(spec.generator("nuclei").integers(1 << 30))

    @property
    def size_px(self) -> tuple[int, int]:
        """Width and height of the finest level."""
        return self.spec.size_px

    def region(self, x: int, y: int, width: int, height: int, *, reduction: int = 1) -> Pixels:
        """Draw a region, without the losses of JPEG.

        Args:
            x: First column, in pixels of the drawn level.
            y: First row.
            width: Width in pixels.
            height: Height in pixels.
            reduction: 1 for the finest level, 2 for one of half its resolution, up to 16. A coarser level is drawn
                anew, not averaged: nuclei lie on its whole pixels.

        Returns:
            uint8 RGB by row and column; places outside the slide are drawn as well.

        Raises:
            UserError: The region is empty or the reduction is not a power of two up to 16.
        """
        plan = self.plan(x, y, width, height, reduction=reduction)
        if plan is None:
            return self.glass(x, y, width, height, reduction=reduction)
        return paint(self, [plan], reduction, np)[0]

    def patches(
        self, corners: Sequence[tuple[int, int]], size: int, *, reduction: int = 1, device: str | None = None
    ) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Draw patches of one size at once, each as `region` draws it by itself.

        Args:
            corners: First column and row of each patch, in pixels of the level.
            size: Width and height in pixels.
            reduction: As in `region`.
            device: A device of torch, such as 'cuda', to paint there; None to paint with numpy.

        Returns:
            uint8 RGB by patch, row and column (an array, or a tensor on the device), and the truth of every patch.

        Raises:
            UserError: As `region`.

        Example:
            >>> from elsewhere.phantom.slides.patients import World
            >>> drawing = Drawing(World(patients=1, nodes=1, size="tiny").slides()[0])
            >>> pixels, truth = drawing.patches([(400, 300), (600, 300)], 64)
            >>> pixels.shape, truth.shape
            ((2, 64, 64, 3), (2, 64, 64))
        """
        shape = (len(corners), size, size, 3)
        found = [self.plan(x, y, size, size, reduction=reduction) for x, y in corners]
        tissue = [(at, plan) for at, plan in enumerate(found) if plan is not None]
        glass = [at for at, plan in enumerate(found) if plan is None]
        truth = np.array(
            [self.truth(x, y, size, size, reduction=reduction) for x, y in corners], dtype=bool
        ).reshape(shape[:3])
        if device is None:
            made = np.empty(shape, dtype=np.uint8)
            for at, plan in tissue:
                made[at] = paint(self, [plan], reduction, np)[0]
            for at in glass:
                made[at] = self.glass(*corners[at], size, size, reduction=reduction)
            return made, truth
        import torch

        pixels = torch.empty(shape, dtype=torch.uint8, device=device)
        if tissue:
            places = torch.tensor([at for at, _ in tissue], device=device)
            pixels[places] = paint(self, [plan for _, plan in tissue], reduction, torch, device)
        for at in glass:
            white = self.glass(*corners[at], size, size, reduction=reduction)
            pixels[at] = torch.as_tensor(white, device=device)
        return pixels, truth

    def glass(self, x: int, y: int, width: int, height: int, *, reduction: int = 1) -> Pixels:
        """Draw a region of bare glass.

        Args:
            x: First column in pixels.
            y: First row.
            width: Width in pixels.
            height: Height in pixels.
            reduction: As in `region`.

        Returns:
            The white of the scanner with its noise.
        """
        noise = textures_of(self.spec.mpp, reduction)["noise"]
        side = TEXTURE // reduction
        rows, columns = np.arange(y, y + height) % side, np.arange(x, x + width) % side
        grain = noise[rows[:, None], columns[None]] * np.float32(self.spec.centre.scanner.noise)
        white = np.array(self.spec.centre.scanner.white, np.float32)
        return np.clip(white + grain[..., None] + np.float32(0.5), 0, 255).astype(np.uint8)

    def truth(self, x: int, y: int, width: int, height: int, *, reduction: int = 1) -> npt.NDArray[np.bool_]:
        """Return the annotated region of a rectangle: where the annotator says tumour.

        Args:
            x: First column, in pixels of the level.
            y: First row.
            width: Width in pixels.
            height: Height in pixels.
            reduction: As in `region`.

        Returns:
            The mask by row and column.
        """
        step = self.spec.mpp * reduction
        left, top = x * step, y * step
        if not any(
            one.meets(left, top, left + width * step, top + height * step) for one in self.disease.lesions
        ):
            return np.zeros((height, width), dtype=bool)
        columns = (np.arange(x, x + width, dtype=np.float64) + 0.5) * step
        rows = (np.arange(y, y + height, dtype=np.float64) + 0.5) * step
        u, v = np.meshgrid(columns.astype(np.float32), rows.astype(np.float32))
        return np.asarray(self.disease.height(u, v, outline=True) > 0)

    def is_blank(self, x: int, y: int, width: int, height: int, *, reduction: int = 1) -> bool:
        """Say whether a region is certainly bare glass.

        Args:
            x: First column, in pixels of the level.
            y: First row.
            width: Width in pixels.
            height: Height in pixels.
            reduction: As in `region`.

        Returns:
            Whether nothing lies there.
        """
        step = self.spec.mpp * reduction
        near = 40.0 + 12.0
        left, top = x * step - near, y * step - near
        right, bottom = (x + width) * step + near, (y + height) * step + near
        if self.artefacts.meets(left, top, right, bottom):
            return False
        u, v = np.meshgrid(
            np.linspace(left, right, max(2, int((right - left) / 24) + 1), dtype=np.float32),
            np.linspace(top, bottom, max(2, int((bottom - top) / 24) + 1), dtype=np.float32),
        )
        return bool(self.anatomy.depth(u, v).max() < -(self.anatomy.rim_um * 2.1 + 30))

    def plan(self, x: int, y: int, width: int, height: int, *, reduction: int = 1) -> Plan | None:
        """Find what a region holds.

        Args:
            x: First column, in pixels of the drawn level.
            y: First row.
            width: Width in pixels.
            height: Height in pixels.
            reduction: As in `region`.

        Returns:
            What the painter needs; None for bare glass.

        Raises:
            UserError: The region is empty or the reduction is not a power of two up to 16.
        """
        if width < 1 or height < 1 or reduction not in (1, 2, 4, 8, 16):
            raise UserError(
                f"a region of {width} x {height} px at reduction {reduction}",
                where=self.spec.slide_id,
                fix="At least one pixel, and a reduction of 1, 2, 4, 8 or 16.",
            )
        if self.is_blank(x, y, width, height, reduction=reduction):
            return None
        mpp = self.spec.mpp * reduction
        x0, y0 = x - MARGIN, y - MARGIN
        rows, columns = height + 2 * MARGIN, width + 2 * MARGIN
        box = (x0 * mpp, y0 * mpp, (x0 + columns) * mpp, (y0 + rows) * mpp)
        first = int((box[0] - REACH_UM) // PITCH_UM) - 1, int((box[1] - REACH_UM) // PITCH_UM) - 1
        # as many places for every region of one size
        last = (
            first[0] + int((columns * mpp + 2 * REACH_UM) / PITCH_UM) + 5,
            first[1] + int((rows * mpp + 2 * REACH_UM) / PITCH_UM) + 5,
        )
        u, v = np.meshgrid(
            np.arange(first[0], last[0]).astype(np.float32) * np.float32(PITCH_UM),
            np.arange(first[1], last[1]).astype(np.float32) * np.float32(PITCH_UM),
        )
        known = self._known(u, v, first)
        if (known.ground.tissue == GLASS).all() and not self.artefacts.meets(*box):
            return None
        marks = tuple(
            (name, _in_region(bank_of(name, round(mpp, 6)), places, mpp, (x0, y0), (rows, columns), variants))
            for name, places, variants in self._nuclei(box, known)
        )
        return Plan(self._fields(u, v, known), marks, first, (x0, y0), (rows, columns))

    def _known(self, u: Floats, v: Floats, first: tuple[int, int]) -> _Known:
        ground = self.anatomy.ground(u, v)
        sick = self.disease.near(u, v)
        cells = lesion = np.full(u.shape, np.float32(-40))
        if sick:
            cells, lesion = self.disease.cells(u, v), self.disease.height(u, v)
        loners = np.full(u.shape, np.float32(-40))
        for one in sick:
            if one.growth == "cells":
                loners = np.maximum(loners, one.at(u, v))
        return _Known(ground, cells, lesion, loners, bool(sick), first)

    def _fields(self, u: Floats, v: Floats, known: _Known) -> Floats:
        ground, cells, lesion = known.ground, known.cells, known.lesion
        tissue, noise, mix = ground.tissue, self.anatomy.noise, self.anatomy.mix
        eosin: Any = np.take(_EOSIN, tissue)
        haze: Any = np.take(_HAZE, tissue)
        fibre: Any = np.take(_FIBRE, tissue)
        cleft: Any = np.take(_CLEFT, tissue) * np.float32(0.35 + 1.1 * mix.gaps)
        red: Any = (tissue == BLOOD).astype(np.float32)
        thin = noise(u, v, 11, 60.0)
        eosin = eosin * (np.float32(0.7) + np.float32(0.6) * thin)
        solid = ground.solid
        if known.sick:
            inside = np.clip(lesion / 8 + np.float32(0.5), 0, 1)
            growing = np.clip(cells / 5 + np.float32(0.5), 0, 1)
            between = inside * (1 - growing)
            # between the nests of a lesion lies new stroma
            eosin = eosin * (1 - between) + between * np.float32(0.50)
            fibre = fibre * (1 - between) + between * np.float32(0.8)
            cleft = cleft * (1 - inside)
            haze = haze * (1 - inside) + inside * np.float32(0.04)
            red = red * (1 - inside)
            eosin = eosin * (1 - growing) + growing * (np.float32(0.26) + np.float32(0.20) * thin)
            haze = haze * (1 - growing) + growing * np.float32(0.12)
            fibre = fibre * (1 - growing)
            solid = np.where(inside > 0.5, np.float32(8), solid)
        gain, ink, defocus = self.artefacts.at(u, v)
        return np.stack([solid, eosin, haze, fibre, cleft, ground.phase, gain, ink, defocus, red]).astype(
            np.float32
        )

    def _nuclei(
        self, box: tuple[float, float, float, float], known: _Known
    ) -> list[tuple[str, Places, Whole | None]]:
        """List the nuclei in a box, kind by kind, with the variants of those that follow fibres."""
        mix, salt = self.anatomy.mix, self._salt
        made: list[tuple[str, Places, Whole | None]] = []
        tissue, spread, solid = known.ground.tissue, known.ground.spread, known.ground.solid
        growing, inside = known.cells > -3, known.lesion > 0

        def add(name: str, pitch: float, share: Floats, loose: float = 0.30) -> Places:
            places = lattice(box, pitch, salt + len(made), loose=loose)
            chosen = places.at(places.chance < known.at(share, places))
            made.append((name, chosen, None))
            return chosen

        share = np.take(_LYMPHOCYTES, tissue)
        share = np.where(spread > 0, np.clip(1.0 - 3.2 * spread, 0.22, 1), share)
        share = np.where(inside, np.float32(0.16), share)
        share = np.where(growing, np.float32(0.03), share)
        add("lymphocyte", mix.spacing_um, np.where(solid > 1, share, 0), loose=0.27)

        share = np.where(spread > 0.22, np.float32(0.72), np.take(_CENTROBLASTS, tissue))
        add("centroblast", 8.6, np.where(growing | (solid <= 1), 0, share))

        share = np.where(tissue == SINUS, np.float32(0.25 + 0.7 * mix.histiocytes), np.float32(0))
        share = np.where(tissue == LYMPH, np.float32(0.04 + 0.05 * mix.histiocytes), share)
        share = np.where(inside & ~growing, np.float32(0.10), share)
        add("histiocyte", 10.5, np.where(growing | (solid <= 0), 0, share))

        share = np.take(_FIBROBLASTS, tissue)
        share = np.where((tissue == FAT) & (solid > 0), np.float32(0.35), share)
        share = np.where(inside & ~growing, np.float32(0.40), share)
        share = np.where(growing, np.float32(0.02), share)
        chosen = add("fibroblast", 11.5, np.where(solid > -1, share, 0))
        made[-1] = ("fibroblast", chosen, self._directions(chosen))

        share = np.where(
            growing, np.float32(0.10), np.where(spread > 0.2, np.float32(0.08), np.float32(0.012))
        )
        add("pyknotic", 23.0, np.where((solid > 1) & (tissue != GLASS), share, 0))

        if known.sick:
            grade = self.disease.grade
            share = np.where(known.cells > 1.5, np.float32(0.95), np.float32(0))
            share = np.where(known.loners > 0, np.float32(0.75), share)
            add(f"tumour-{grade}", (9.8, 12.2, 14.2)[grade], share, loose=0.26)
        return made

    def _directions(self, places: Places) -> Whole:
        """Choose variants whose long axis runs along the fibres."""
        x, y = places.x, places.y
        noise, reach = self.anatomy.noise, np.float32(4.0)

        def phase(u: Floats, v: Floats) -> Floats:
            return self.anatomy.depth(u, v) + 90 * noise(u, v, 10, 140.0)

        du, dv = phase(x + reach, y) - phase(x - reach, y), phase(x, y + reach) - phase(x, y - reach)
        angle = np.arctan2(du, -dv)  # along the contour, across the gradient
        step = np.floor(angle / np.pi * 16 + 0.5).astype(np.int64) % 16
        made: Whole = step + 16 * (places.bits % np.uint32(3)).astype(np.int64)
        return made


#                    glass lymph follicle sinus stroma fat  blood
_EOSIN = np.array([0.00, 0.25, 0.27, 0.22, 0.58, 0.40, 0.95], np.float32)
_HAZE = np.array([0.00, 0.16, 0.14, 0.05, 0.01, 0.01, 0.00], np.float32)
_FIBRE = np.array([0.00, 0.30, 0.15, 0.40, 1.00, 0.30, 0.00], np.float32)
_CLEFT = np.array([0.00, 1.00, 0.55, 1.70, 0.35, 0.00, 0.00], np.float32)
_LYMPHOCYTES = np.array([0.00, 0.93, 0.90, 0.24, 0.05, 0.00, 0.00], np.float32)
_CENTROBLASTS = np.array([0.00, 0.06, 0.10, 0.02, 0.00, 0.00, 0.00], np.float32)
_FIBROBLASTS = np.array([0.00, 0.03, 0.01, 0.12, 0.50, 0.05, 0.00], np.float32)


def _in_region(
    bank: Bank,
    places: Places,
    mpp: float,
    corner: tuple[int, int],
    shape: tuple[int, int],
    variants: Whole | None,
) -> Whole:
    """Turn places into variant, column and row of the pictures that touch the region."""
    variant = (places.bits % np.uint32(len(bank.halves))).astype(np.int64) if variants is None else variants
    column = np.floor(places.x / np.float32(mpp)).astype(np.int64) - corner[0]
    row = np.floor(places.y / np.float32(mpp)).astype(np.int64) - corner[1]
    half = bank.halves[variant]
    touching = (column + half >= 0) & (row + half >= 0) & (column - half < shape[1]) & (row - half < shape[0])
    return np.stack([variant, column, row])[:, touching]


@functools.lru_cache(maxsize=16)
def textures_of(mpp: float, reduction: int = 1) -> dict[str, Floats]:
    """Make the textures of a level, each with a copy of itself to the right and below, so that windows need no seam.

    Args:
        mpp: Microns per pixel of the finest level.
        reduction: The level; its textures are averages of those of the finest.

    Returns:
        The textures by name; they repeat after `TEXTURE` / reduction pixels.
    """
    rng = np.random.default_rng(4127)
    fine = {
        "grain": texture(rng, TEXTURE, 0.35 / mpp),
        "cloud": texture(rng, TEXTURE, 1.4 / mpp),
        "cleft": texture(rng, TEXTURE, 1.5 / mpp),
        "strand": texture(rng, TEXTURE, 2.6 / mpp),
        "noise": texture(rng, TEXTURE, 0.6),
    }
    side = TEXTURE // reduction
    made = {}
    for name, one in fine.items():
        if reduction > 1 and name != "noise":
            one = one.reshape(side, reduction, side, reduction).mean((1, 3))
        one = one[:side, :side].astype(np.float32)
        made[name] = np.tile(one, (2, 2))
    return made


def paint(drawing: Drawing, plans: list[Plan], reduction: int, xp: Any, device: Any = None) -> Any:
    """Paint regions of one size, with numpy or torch.

    Args:
        drawing: The slide.
        plans: What the regions hold; all of one shape.
        reduction: As in `Drawing.region`.
        xp: `numpy` or `torch`.
        device: Where torch paints; ignored by numpy.

    Returns:
        uint8 RGB by region, row and column: an array, or a tensor on the device.
    """
    from elsewhere.phantom.slides.painting import Painter

    return Painter(drawing, reduction, xp, device).paint(plans)
