"""`elsewhere slides outline`: masks of slides as outlines for QuPath."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, show, width_and_height
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "outline", epilog="Example: elsewhere slides outline tumor_001.tif --mpp 0.25 --out tumor_001.geojson"
)
def slides_outline(
    mask: Annotated[Path, typer.Argument(help="Mask of a slide: TIFF of any levels, or png.")],
    mpp: Annotated[float, typer.Option("--mpp", help="Microns per pixel of the slide at level 0.")],
    out: Annotated[Path, typer.Option("--out", help="GeoJSON to write, for QuPath.")],
    cell_um: Annotated[
        float | None,
        typer.Option(
            "--cell-um", help="Microns along a cell that is traced. Default: 2, or the mask's own pixels."
        ),
    ] = None,
    size: Annotated[
        str, typer.Option("--size", help="Width and height of the slide at level 0: 97792x221184.")
    ] = "",
    downsample: Annotated[
        float | None,
        typer.Option("--downsample", help="Slide pixels per mask pixel, of a mask that states no scale."),
    ] = None,
    tumour: Annotated[
        int | None, typer.Option("--tumour", help="The value that means tumour, where it is not 255 or 1.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="The probability above which a pixel is tumour, of probabilities."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The class that QuPath shows.")] = "Tumor",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file of --out.")] = False,
    as_json: JsonOpt = False,
) -> int:
    """Trace the mask of a slide: outlines in pixels of the slide, as GeoJSON that QuPath opens by drag and drop."""
    from elsewhere.commands.slide_outlines import OutlineOptions, outline_mask

    options = OutlineOptions(
        cell_um=cell_um,
        size_px=width_and_height(size),
        downsample=downsample,
        tumour=tumour,
        threshold=threshold,
        name=name,
    )
    return show(outline_mask(mask, out=out, mpp=mpp, options=options, replace=replace), as_json=as_json)
