"""`slides outline`: the mask of a slide as outlines that QuPath reads at the right place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.errors import EXIT_OK, UserError
from elsewhere.files import check_out_file
from elsewhere.predictions.slide_masks import MaskReading, SlideGeometry, check_grid, open_slide_mask

_ENDINGS = (".geojson", ".json")
_SAME = 0.02


@dataclass(frozen=True, kw_only=True)
class OutlineOptions:
    """How a mask is traced.

    Args:
        cell_um: Microns along a cell of the traced grid; None for 2, or the mask's own pixels where they are larger.
        size_px: Width and height of the slide at level 0, which the mask has to fit; None where not known.
        downsample: Slide pixels per mask pixel, of a mask that states no scale; None where it states one.
        tumour: The value that means tumour; None where it is recognised.
        threshold: The probability above which a pixel is tumour; None for a mask of classes.
        name: The class that QuPath shows.
    """

    cell_um: float | None = None
    size_px: tuple[int, int] | None = None
    downsample: float | None = None
    tumour: int | None = None
    threshold: float | None = None
    name: str = "Tumor"


@dataclass(frozen=True, kw_only=True)
class OutlinedMask:
    """A mask that was written as outlines.

    Args:
        path: The file that was written.
        regions: How many regions it has.
        holes: How many holes these have.
        area_mm2: Their area.
        cell_um: Microns along a cell of the traced grid.
        exit_code: 0.
    """

    path: Path
    regions: int
    holes: int
    area_mm2: float
    cell_um: float
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The fields by name.
        """
        return {
            "path": str(self.path),
            "regions": self.regions,
            "holes": self.holes,
            "area_mm2": self.area_mm2,
            "cell_um": self.cell_um,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield (
            f"{self.regions:,} region{'' if self.regions == 1 else 's'} with {self.holes:,} hole{'' if self.holes == 1 else 's'}, "
            f"{self.area_mm2:.3f} mm2, traced on cells of {self.cell_um:.4g} microns"
        )
        yield f"written: {self.path}"


def outline_mask(
    path: str | Path,
    *,
    out: str | Path,
    mpp: float,
    options: OutlineOptions | None = None,
    replace: bool = False,
) -> OutlinedMask:
    """Write the mask of a slide as GeoJSON, in pixels of the slide's level 0.

    Args:
        path: The mask: a TIFF of any levels or a PNG.
        out: The file to write: .geojson.
        mpp: Microns per pixel of the slide at level 0.
        options: How the mask is traced; None for the usual way.
        replace: Whether a file of this name may be replaced.

    Returns:
        What was written.

    Raises:
        UserError: The mask cannot be read or does not fit the slide, or the file may not be written.

    Example:
        Outline the mask of a slide at 0.25 microns per pixel::

            outline_mask("tumor_001.tif", out="tumor_001.geojson", mpp=0.25)
    """
    from elsewhere.files import replacing
    from elsewhere.inputs.slides.annotations import geojson, trace_region
    from elsewhere.scoring.slides.mean_map import mean_map

    out, chosen = Path(out), options or OutlineOptions()
    cell_um = chosen.cell_um
    if out.suffix.lower() not in _ENDINGS:
        raise UserError("outlines are written as GeoJSON", where=str(out), fix="Name it FILE.geojson.")
    if not (math.isfinite(mpp) and mpp > 0):
        raise UserError(f"--mpp is {mpp}", fix="Give the slide's microns per pixel, such as 0.25.")
    if cell_um is not None and not (math.isfinite(cell_um) and cell_um > 0):
        raise UserError(f"--cell-um is {cell_um}", fix="Give microns, such as 2 or 8.")
    check_out_file(out, replace=replace)
    geometry = SlideGeometry(mpp=mpp, size_px=chosen.size_px)
    reading = MaskReading(
        pixel_um=None if chosen.downsample is None else chosen.downsample * mpp,
        tumour=None if chosen.tumour is None else (chosen.tumour,),
        threshold=chosen.threshold,
    )
    with open_slide_mask(path, geometry, reading=reading) as mask:
        check_grid(mask, geometry)
        wanted = (2.0 if cell_um is None else cell_um) / mpp
        cell = mask.step_px if wanted <= mask.step_px * (1 + _SAME) else wanted
        region = trace_region(mean_map(mask, cell=cell), step_px=cell)
    content = json.dumps(geojson(region, name=chosen.name), separators=(",", ":"))
    with replacing(out) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return OutlinedMask(
        path=out,
        regions=len(region.polygons),
        holes=sum(len(one.holes) for one in region.polygons),
        area_mm2=region.area_px * (mpp / 1000) ** 2,
        cell_um=cell * mpp,
    )
