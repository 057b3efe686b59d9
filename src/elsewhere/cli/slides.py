"""`elsewhere slides ...`: whole slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import WholeSentences, app
from elsewhere.cli.options import JsonOpt, show

slides_app = typer.Typer(
    cls=WholeSentences,
    no_args_is_help=True,
    help="Whole slides: what a file holds, at which scale, and how much of it is tissue.",
    rich_markup_mode=None,
)
app.add_typer(slides_app, name="slides")


@slides_app.callback()
def slides() -> None:
    """Whole slides: what a file holds, at which scale, and how much of it is tissue."""


@slides_app.command("show", epilog="Example: elsewhere slides show CMU-1-Small-Region.svs")
def slides_show(
    files: Annotated[
        list[Path], typer.Argument(help="Slides: .svs, .tif, .mrxs, .ndpi, .dcm, ...; one or more.")
    ],
    mpp: Annotated[
        float | None,
        typer.Option(
            "--mpp", help="Microns per pixel of level 0, where the file states none or a wrong one."
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="The reader: auto, direct, openslide, or picture for a png or jpg.")
    ] = "auto",
    tissue: Annotated[
        bool, typer.Option("--tissue/--no-tissue", help="Measure tissue and stains, which reads the slide.")
    ] = True,
    threads: Annotated[int, typer.Option(min=1, help="Threads that decode tiles.")] = 1,
    as_json: JsonOpt = False,
) -> int:
    """Show size, microns per pixel, levels, tissue and warnings of whole slides; label pictures are never read."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slides import ShowSettings
    from elsewhere.commands.slides import show as run

    with progress_bar(enabled=not as_json and len(files) > 1) as progress:
        settings = ShowSettings(mpp=mpp, backend=backend, tissue=tissue, threads=threads)
        result = run(files, settings=settings, progress=progress)
    return show(result, as_json=as_json)
