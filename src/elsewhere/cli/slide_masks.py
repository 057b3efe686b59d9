"""`elsewhere slides recompose` and `elsewhere slides stage`: masks of slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, show, width_and_height
from elsewhere.cli.slides import slides_app


@slides_app.command("stage", epilog="Example: elsewhere slides stage tumor_001.tif --mpp 0.243")
def slides_stage(
    files: Annotated[
        list[Path], typer.Argument(help="Masks: TIFF of any levels, png, xml or geojson; one or more.")
    ],
    mpp: Annotated[
        float | None,
        typer.Option("--mpp", help="Microns per pixel of the slide at level 0. Default: the mask's own."),
    ] = None,
    downsample: Annotated[
        float | None,
        typer.Option(
            "--downsample",
            help="Slide pixels per mask pixel, along a side, of a mask that does not state its scale.",
        ),
    ] = None,
    size: Annotated[
        str, typer.Option("--size", help="Width and height of the slide at level 0: 97792x221184.")
    ] = "",
    tumour: Annotated[
        int | None, typer.Option("--tumour", help="The value that means tumour, where it is not 255 or 1.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="The probability above which a pixel is tumour, of probabilities."),
    ] = None,
    as_json: JsonOpt = False,
) -> int:
    """Stage masks of slides by their longest object, on cells of 8 microns and on their own pixels, read in strips."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_masks import stage_masks

    with progress_bar(enabled=not as_json) as progress:
        result = stage_masks(
            files,
            mpp=mpp,
            downsample=downsample,
            size_px=width_and_height(size),
            tumour=tumour,
            threshold=threshold,
            progress=progress,
        )
    return show(result, as_json=as_json)


@slides_app.command(
    "recompose",
    epilog="Example: elsewhere slides recompose patches --size 97792x221184 --mpp 0.243 --out tumor_001.tif",
)
def slides_recompose(
    folder: Annotated[
        Path, typer.Argument(help="Folder with patches.csv (columns i and j) and probabilities.npy.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The mask to write: a tiled .tif.")],
    size: Annotated[
        str, typer.Option("--size", help="Width and height of the slide at level 0: 97792x221184.")
    ] = "",
    mpp: Annotated[
        float | None, typer.Option("--mpp", help="Microns per pixel of the slide at level 0.")
    ] = None,
    pixel_um: Annotated[float, typer.Option("--pixel-um", help="Microns per pixel of the patches.")] = 0.5,
    patch: Annotated[int, typer.Option("--patch", help="Pixels along a patch.")] = 256,
    stride: Annotated[
        int | None,
        typer.Option("--stride", help="Pixels from a patch to the next one. Default: the patch, no overlap."),
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", help="Where patches overlap: none for the plain mean, or hann.")
    ] = "none",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file of --out.")] = False,
    as_json: JsonOpt = False,
) -> int:
    """Put the predicted patches of a slide together to a tiled TIFF, and stage it; the slide is never in memory."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_masks import recompose_patches

    with progress_bar(enabled=not as_json) as progress:
        result = recompose_patches(
            folder,
            out=out,
            size_px=width_and_height(size),
            mpp=mpp,
            pixel_um=pixel_um,
            patch=patch,
            stride=stride,
            weights=weights,
            replace=replace,
            progress=progress,
        )
    return show(result, as_json=as_json)
