"""`elsewhere slides patches`: a table of patches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, SeedOpt, pairs, show
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "patches",
    epilog="Example: elsewhere slides patches slides --annotations xml --out patches.parquet --workers 4",
)
def slides_patches(
    slides: Annotated[
        list[Path],
        typer.Argument(
            help="Slides, folders of slides, or one cohort; with --outlines-only annotation files."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The parquet file to write.")],
    annotations: Annotated[
        Path | None,
        typer.Option(
            help="Folder of annotations with the names of the slides (xml, geojson, json, or mask tif), or one file."
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="mpp: the same microns per pixel for all, by means over area. study: the level of downsample 2 under "
            "0.3 microns per pixel, level 0 otherwise, as stored."
        ),
    ] = "mpp",
    patch_mpp: Annotated[
        float, typer.Option("--patch-mpp", help="Microns per pixel of the patches, by --scale mpp.")
    ] = 0.5,
    size: Annotated[int, typer.Option("--size", help="Pixels along a patch.")] = 256,
    tissue: Annotated[
        str, typer.Option(help="Otsu's threshold of the whole slide, or of each patch: slide or patch.")
    ] = "slide",
    least_tissue: Annotated[
        float, typer.Option("--least-tissue", help="Tissue share that a patch without tumour needs.")
    ] = 0.1,
    least_tumour: Annotated[
        float, typer.Option("--least-tumour", help="Tumour share that a tumour patch needs for training.")
    ] = 0.1,
    normals: Annotated[
        int, typer.Option("--normals", min=0, help="Patches drawn for training per slide without tumour.")
    ] = 500,
    seed: SeedOpt = 42,
    outline_fill: Annotated[
        str,
        typer.Option(
            "--outline-fill",
            help="exact: pixels whose centre is inside. boundary: also pixels of 1/16 patch that a line touches, as "
            "published for CAMELYON16.",
        ),
    ] = "exact",
    outlines_only: Annotated[
        bool, typer.Option("--outlines-only", help="Tumour patches from annotations alone; needs --mpp.")
    ] = False,
    mpp: Annotated[
        float | None,
        typer.Option(
            "--mpp", help="Microns per pixel of level 0, where the files state none or a wrong one."
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="Meaning of a group: NAME=tumour, hole or ignore (may be repeated)."),
    ] = None,
    mask_tumour: Annotated[
        list[int] | None,
        typer.Option("--mask-tumour", help="A value of mask files that means tumour (may be repeated)."),
    ] = None,
    origin: Annotated[
        str,
        typer.Option(
            help="What annotations count from: level0, or scanned (the corner of the scanned part: MIRAX, some DICOM)."
        ),
    ] = "level0",
    without_annotation: Annotated[
        str,
        typer.Option(
            "--without-annotation", help="What a slide without annotation and stage is: unknown or normal."
        ),
    ] = "unknown",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Slides that are cut at once.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads per slide that decode tiles.")] = 1,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file of --out.")] = False,
    as_json: JsonOpt = False,
) -> int:
    """Cut slides into one table of patches with tissue, tumour, group and type; a run that was stopped resumes."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_patches import CutSettings, cut_patches

    settings = CutSettings(
        scale=scale,
        patch_mpp=patch_mpp,
        size_px=size,
        tissue=tissue,
        least_tissue=least_tissue,
        least_tumour=least_tumour,
        normals_per_slide=normals,
        seed=seed,
        outline_fill=outline_fill,
        outlines_only=outlines_only,
        mpp=mpp,
        groups=pairs(group, option="--group"),
        mask_tumour=tuple(mask_tumour or ()),
        origin=origin,
        without_annotation=without_annotation,
        threads=threads,
    )
    with progress_bar(enabled=not as_json) as progress:
        result = cut_patches(
            slides,
            out=out,
            settings=settings,
            annotations=annotations,
            workers=workers,
            replace=replace,
            progress=progress,
        )
    return show(result, as_json=as_json)
