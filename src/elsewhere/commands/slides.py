"""`slides show`: what a whole slide is, before anything is computed from it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Slide
from elsewhere.inputs.slides.tissue import TISSUE_MPP, SlideTissue, find_tissue

STAIN_PATCHES = 64
STAIN_PATCH_PX = 256
STAIN_MPP = 0.5
LEAST_TISSUE = 0.1
NOT_READ = ("label", "macro", "thumbnail")


@dataclass(frozen=True, kw_only=True)
class ShowSettings:
    """How slides are shown.

    Attributes:
        mpp: Microns per pixel that the user states for every slide; None for those of the files.
        backend: The reader: auto, direct, openslide or picture.
        tissue: Whether the tissue and the stains are measured.
        threads: Threads that decode tiles.
    """

    mpp: float | None = None
    backend: str = "auto"
    tissue: bool = True
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class ShownSlide:
    """What is shown of one slide: no person, date or original file name.

    Attributes:
        path: The file as the user named it.
        content: What `--json` prints of it.
    """

    path: Path
    content: dict[str, Any]

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        found = self.content
        width, height = found["size_px"]
        mm = [side * found["mpp"] / 1000 for side in (width, height)]
        yield f"{self.path}: {width:,} x {height:,} px ({mm[0]:.2f} x {mm[1]:.2f} mm)"
        yield f"  scale: {found['mpp']:.4g} microns per pixel ({found['mpp_source']})"
        objective = found["objective"]
        stated = "not stated" if objective is None else f"{objective:g}x (not used)"
        yield f"  objective: {stated}"
        why = f", because {found['reader_reason']}" if found["reader_reason"] else ""
        yield f"  format: {found['vendor']}, {found['compression']}; read by {_READERS[found['reader']]}{why}"
        count = len(found["levels"])
        yield f"  {count} level{'' if count == 1 else 's'}:"
        for number, level in enumerate(found["levels"]):
            tiles = f", tiles of {level['tile_px'][0]} x {level['tile_px'][1]} px" if level["tile_px"] else ""
            size = f"{level['size_px'][0]:,} x {level['size_px'][1]:,} px"
            yield f"    {number}: {size}, {level['mpp']:.4g} microns per pixel{tiles}"
        if found["tissue"] is not None:
            tissue = found["tissue"]
            yield (
                f"  tissue: {100 * tissue['share']:.1f} % of the slide, {tissue['area_mm2']:.2f} mm2 (saturation above "
                f"{tissue['threshold']} of 255, Otsu at {tissue['mpp']:g} microns per pixel)"
            )
        if found["stain"] is not None:
            yield from self._stain_lines(found["stain"])
        for name in found["pictures_not_read"]:
            yield f"  has a {name} picture: not read"
        for warning in found["warnings"]:
            yield f"  warning: {warning}"

    @staticmethod
    def _stain_lines(stain: dict[str, Any]) -> Iterator[str]:
        if stain["haematoxylin"] is None:
            yield f"  stain: {stain['status']}: no two stains were found"
            return
        for name in ("haematoxylin", "eosin"):
            yield f"  {name} vector: " + ", ".join(f"{value:.3f}" for value in stain[name])


@dataclass(frozen=True, kw_only=True)
class SlidesReport:
    """What is shown of several slides, and which could not be read.

    Attributes:
        slides: The slides that were read.
        refused: The path and the error of each of the others.
    """

    slides: tuple[ShownSlide, ...]
    refused: tuple[tuple[Path, UserError], ...] = ()

    @property
    def exit_code(self) -> int:
        """0, or 5 where some slides could not be read."""
        return EXIT_INCOMPLETE if self.refused else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `slides` and `refused`.
        """
        return {
            "slides": [slide.content for slide in self.slides],
            "refused": [{"path": str(path), **error.to_dict()} for path, error in self.refused],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for slide in self.slides:
            yield from slide.lines()
        for path, error in self.refused:
            where = error.where or str(path)
            yield f"{where}: not read: {error.what}" + (f"\n  {error.fix}" if error.fix else "")
        if self.refused:
            yield f"{len(self.refused)} of {len(self.refused) + len(self.slides)} slides could not be read"


_READERS = {"direct": "the direct reader", "openslide": "OpenSlide", "picture": "the picture reader"}


def show(
    paths: Sequence[Path], *, settings: ShowSettings | None = None, progress: Report | None = None
) -> SlidesReport:
    """Show what whole slides are; one that cannot be read does not end the others.

    Args:
        paths: The files.
        settings: How they are shown; None for the defaults.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What is shown.

    Raises:
        UserError: No slide was named, or the only one cannot be read.
    """
    settings = settings or ShowSettings()
    if not paths:
        raise UserError("no slide was named", fix="Write: elsewhere slides show FILE")
    shown, refused = [], []
    for number, path in enumerate(paths):
        try:
            shown.append(_show_one(path, settings))
        except UserError as error:
            if len(paths) == 1:
                raise
            refused.append((path, error))
        if progress is not None:
            progress("slides", number + 1, len(paths))
    return SlidesReport(slides=tuple(shown), refused=tuple(refused))


def _show_one(path: Path, settings: ShowSettings) -> ShownSlide:
    with open_slide(path, mpp=settings.mpp, backend=settings.backend) as slide:
        facts = slide.facts
        content: dict[str, Any] = {
            "path": str(path),
            "size_px": list(slide.size_px),
            "mpp": facts.mpp,
            "mpp_source": facts.mpp_source,
            "objective": facts.objective,
            "vendor": facts.vendor,
            "compression": facts.compression,
            "reader": slide.backend,
            "reader_reason": facts.reader_reason,
            "levels": [
                {
                    "size_px": [level.width, level.height],
                    "downsample": level.downsample,
                    "mpp": level.mpp,
                    "tile_px": [level.tile_width, level.tile_height] if level.tile_width else None,
                }
                for level in facts.levels
            ],
            "bounds_px": list(facts.bounds_px),
            "pictures_not_read": [name if name in NOT_READ else "further" for name in facts.pictures],
            "tissue": None,
            "stain": None,
            "warnings": list(facts.warnings),
        }
        if settings.tissue:
            found = find_tissue(slide, mpp=max(TISSUE_MPP, facts.mpp), threads=settings.threads)
            content["tissue"] = {
                "share": found.otsu.share,
                "area_mm2": float(found.mask.sum()) * (found.mpp / 1000) ** 2,
                "threshold": found.otsu.threshold,
                "separation": found.otsu.separation,
                "mpp": found.mpp,
                "rule": "Otsu on the S channel of HSV, one threshold per slide",
            }
            content["stain"] = _stain(slide, found)
            content["warnings"] += found.otsu.warnings
    return ShownSlide(path=path, content=content)


def _stain(slide: Slide, tissue: SlideTissue) -> dict[str, Any] | None:
    """The stain vectors of tissue patches; None where the stain part is not installed or there is no tissue."""
    try:
        macenko = importlib.import_module("elsewhere.inputs.stain.macenko")
    except ImportError:
        return None
    patches = tissue_pixels(slide, tissue)
    if not len(patches):
        return None
    fit = macenko.fit(patches)
    vectors = {
        name: [float(value) for value in np.asarray(found)]
        if fit.status == "fitted" and (found := getattr(fit, name, None)) is not None
        else None
        for name in ("haematoxylin", "eosin")
    }
    return {"method": "macenko", "status": str(fit.status), "patches": len(patches), **vectors}


def tissue_pixels(slide: Slide, tissue: SlideTissue) -> np.ndarray:
    """Read patches that lie evenly over the tissue of a slide.

    Args:
        slide: The slide.
        tissue: Where its tissue lies.

    Returns:
        [patches, 256, 256, 3] of 8 bits: at most 64 patches with at least 10 % tissue, at 0.5 microns per pixel, or
        at the slide's own where it is coarser.
    """
    mpp = max(STAIN_MPP, slide.mpp)
    span = max(1, round(STAIN_PATCH_PX * mpp / tissue.mpp))
    down, across = (-(-side // span) for side in tissue.mask.shape)
    whole = np.zeros((down * span, across * span), bool)
    whole[: tissue.mask.shape[0], : tissue.mask.shape[1]] = tissue.mask
    shares = whole.reshape(down, span, across, span).mean(axis=(1, 3))
    rows, columns = np.nonzero(shares >= LEAST_TISSUE)
    if not len(rows):
        return np.empty((0, STAIN_PATCH_PX, STAIN_PATCH_PX, 3), np.uint8)
    step = span * tissue.mpp / mpp
    chosen = np.linspace(0, len(rows) - 1, min(STAIN_PATCHES, len(rows))).astype(int)
    return np.stack(
        [
            slide.read_mpp(
                int(columns[n] * step), int(rows[n] * step), STAIN_PATCH_PX, STAIN_PATCH_PX, mpp=mpp
            )
            for n in chosen
        ]
    )
