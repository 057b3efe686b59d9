"""`elsewhere slides stain`: pictures and slides with the stains of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, show
from elsewhere.cli.slides import slides_app


@slides_app.command("stain", epilog="Example: elsewhere slides stain tile.png --out tile_normalised.png")
def slides_stain(
    source: Annotated[Path, typer.Argument(help="A picture, a folder of pictures, or a slide.")],
    out: Annotated[
        Path, typer.Option("--out", help="What to write: a .png, a folder, or a .tif for a slide.")
    ],
    target: Annotated[
        str,
        typer.Option(help="study: the target of the published study; or a picture or slide to look like."),
    ] = "study",
    method: Annotated[str, typer.Option(help="macenko, vahadane or reinhard.")] = "macenko",
    fit: Annotated[
        str,
        typer.Option(
            help="slide: one fit for all pictures of a folder together. patch: each its own. Default: patch; a slide has one."
        ),
    ] = "",
    background: Annotated[
        str, typer.Option(help="keep: glass keeps its bytes. transform: every pixel changes.")
    ] = "keep",
    mpp: Annotated[
        float | None,
        typer.Option(
            "--mpp", help="Microns per pixel of level 0, where the file states none or a wrong one."
        ),
    ] = None,
    out_mpp: Annotated[
        float | None,
        typer.Option("--out-mpp", help="Microns per pixel of the slide that is written; default: as read."),
    ] = None,
    compression: Annotated[
        str, typer.Option(help="Of a slide: jpeg (quality 95, lossy) or deflate (every byte, large).")
    ] = "jpeg",
    page: Annotated[
        Path | None, typer.Option("--page", help="Also write a page with parts before and after.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what --out and --page name.")] = False,
    as_json: JsonOpt = False,
) -> int:
    """Give a picture, a folder of pictures, or a slide the stains of a target; what cannot be normalised is counted."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_stain import StainSettings
    from elsewhere.commands.slide_stain import stain as run

    settings = StainSettings(
        target=target,
        method=method,
        fit=fit,
        background=background,
        mpp=mpp,
        out_mpp=out_mpp,
        compression=compression,
    )
    with progress_bar(enabled=not as_json) as progress:
        result = run(source, out=out, settings=settings, page=page, replace=replace, progress=progress)
    return show(result, as_json=as_json)
