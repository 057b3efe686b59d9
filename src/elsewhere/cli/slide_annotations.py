"""The command that reads and writes annotations of slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, pairs, show, width_and_height


@app.command("annotations", epilog="Example: elsewhere annotations tumor_001.xml --out tumor_001.geojson")
def slide_annotations(
    path: Annotated[Path, typer.Argument(help="XML of ASAP or CAMELYON, GeoJSON (QuPath), or json of NCRF.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write them as .geojson, or as a .tif mask (tiled, pyramidal)."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file of --out.")] = False,
    size: Annotated[
        str, typer.Option("--size", help="Width and height of the slide at level 0: 97792x221184.")
    ] = "",
    mpp: Annotated[
        float | None, typer.Option("--mpp", help="Microns per pixel of the slide at level 0.")
    ] = None,
    downsample: Annotated[
        float, typer.Option("--downsample", help="Slide pixels per mask pixel, along a side.")
    ] = 1.0,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="Meaning of a group: NAME=tumour, hole or ignore (may be repeated)."),
    ] = None,
    as_json: JsonOpt = False,
) -> int:
    """What the annotations of a slide hold, what is wrong with them, and the same in another format."""
    from elsewhere.commands.annotations import convert_annotations as run

    result = run(
        path,
        out=out,
        size_px=width_and_height(size),
        mpp=mpp,
        downsample=downsample,
        groups=pairs(group, option="--group"),
        replace=replace,
    )
    return show(result, as_json=as_json)
