"""`elsewhere slides pack` and `elsewhere slides verify`: a store of patches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, show
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "pack", epilog="Example: elsewhere slides pack patches.parquet --slides slides --out store --stain study"
)
def slides_pack(
    table: Annotated[Path, typer.Argument(help="The patch table that `elsewhere slides patches` wrote.")],
    slides: Annotated[
        list[Path],
        typer.Option("--slides", help="A slide, a folder of slides, or a cohort (may be repeated)."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder of the store; one that exists is added to.")],
    annotations: Annotated[
        Path | None,
        typer.Option(help="Folder of annotations with the names of the slides, or one file."),
    ] = None,
    stain: Annotated[
        str,
        typer.Option(
            help="none; study: the target of the published study; or a picture or slide to normalise to."
        ),
    ] = "none",
    stain_method: Annotated[
        str, typer.Option("--stain-method", help="macenko, vahadane or reinhard.")
    ] = "macenko",
    stain_fit: Annotated[
        str, typer.Option("--stain-fit", help="slide: one fit per slide. patch: each patch its own.")
    ] = "slide",
    masks: Annotated[
        bool, typer.Option("--masks/--no-masks", help="Store masks of tumour beside the patches.")
    ] = True,
    training: Annotated[
        bool, typer.Option("--training", help="Only the patches that the table draws for training.")
    ] = False,
    mpp: Annotated[
        float | None,
        typer.Option(
            "--mpp", help="Microns per pixel of level 0, where the files state none or a wrong one."
        ),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="mpp or study, where the table does not say by which it was cut.")
    ] = "",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Slides that are read at once.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the size, open every slide, and write nothing.")
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """Pack the patches of a table, cut and normalised once, into a store; a run that was stopped resumes."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_store import StoreSettings, estimate, pack_patches

    settings = StoreSettings(
        stain=stain,
        stain_method=stain_method,
        stain_fit=stain_fit,
        masks=masks,
        mpp=mpp,
        training=training,
        scale=scale,
    )
    with progress_bar(enabled=not as_json) as progress:
        if dry_run:
            planned = estimate(
                table, slides=slides, out=out, annotations=annotations, settings=settings, progress=progress
            )
            return show(planned, as_json=as_json)
        result = pack_patches(
            table,
            slides=slides,
            out=out,
            annotations=annotations,
            settings=settings,
            workers=workers,
            progress=progress,
        )
    return show(result, as_json=as_json)


@slides_app.command("verify", epilog="Example: elsewhere slides verify store")
def slides_verify(
    store: Annotated[Path, typer.Argument(help="The store that `elsewhere slides pack` wrote.")],
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Move damaged shards away, so that packing again replaces them."),
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """Read every byte of a store of patches and compare it with what was written."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_store import verify

    with progress_bar(enabled=not as_json) as progress:
        result = verify(store, move=set_aside, progress=progress)
    return show(result, as_json=as_json)
