"""`elsewhere curate`: training sets from the patches of slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, OutOpt, ReplaceOpt, SeedOpt, show


@app.command(
    "curate",
    epilog="Example: elsewhere curate patches.parquet --store store --features imagenet=resnet18:imagenet --out curated",
)
def curate(
    table: Annotated[Path, typer.Argument(help="The patch table that `elsewhere slides patches` wrote.")],
    out: OutOpt,
    store: Annotated[
        Path | None, typer.Option("--store", help="The store that `elsewhere slides pack` wrote.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            help="What is clustered: NAME=ENCODER:WEIGHTS with imagenet, none or a file as weights, or NAME=TABLE of "
            "features (may be repeated). 'single', without clusters, is always there.",
        ),
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Patches per set, at most.")] = 35_000,
    shares: Annotated[
        str, typer.Option(help="Shares of partly tumour patches in per cent, comma-separated; or natural.")
    ] = "0,10,20,30,40,50,natural",
    of: Annotated[str, typer.Option(help="What the shares are of: set or tumour.")] = "set",
    same_size: Annotated[
        bool,
        typer.Option(
            "--same-size/--each-largest", help="All sets of one size, or each as large as it can be."
        ),
    ] = True,
    clusters: Annotated[
        str, typer.Option(help="Numbers of clusters: FROM-TO, or stated by group: NN=6,NT=7,TT=5.")
    ] = "2-10",
    dimensions: Annotated[
        int, typer.Option(min=1, help="Principal components that are clustered, at most.")
    ] = 50,
    remove_site_mean: Annotated[
        bool,
        typer.Option(
            "--remove-site-mean", help="Subtract from every feature the mean of its hospital first."
        ),
    ] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds whose clusters are compared; 1: no test of stability.")
    ] = 5,
    test: Annotated[
        list[Path] | None,
        typer.Option(
            "--test", help="Patch table of the test, which must share no patient or slide (may be repeated)."
        ),
    ] = None,
    slides: Annotated[
        list[Path] | None,
        typer.Option(
            "--slides",
            help="Slides of both tables, in which the same tissue under two names is searched: folders, or one cohort.",
        ),
    ] = None,
    on_leak: Annotated[
        str, typer.Option("--on-leak", help="Training slides that the test shares: refuse, or leave-out.")
    ] = "refuse",
    sample_patches: Annotated[
        int,
        typer.Option("--sample-patches", min=0, help="Patches of each cluster on the page; 0: no pixels."),
    ] = 0,
    device: Annotated[
        str, typer.Option(help="Where features are computed: auto, cpu, cuda or cuda:N.")
    ] = "auto",
    seed: SeedOpt = 42,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be computed and drawn, and write nothing.")
    ] = False,
    replace: ReplaceOpt = False,
    as_json: JsonOpt = False,
) -> int:
    """Cluster patches, say what the clusters are, and draw training sets that are even over them."""
    from elsewhere.commands import curate as command
    from elsewhere.commands.output import progress_bar

    fewest, most, fixed = command.read_cluster_numbers(clusters)
    settings = command.CurateSettings(
        clusters=command.ClusterSettings(
            fewest=fewest, most=most, fixed=fixed, dimensions=dimensions, seed=seed
        ),
        sets=command.SetSettings(
            size=size,
            shares=tuple(part.strip() for part in shares.split(",") if part.strip()),
            of=of,
            same_size=same_size,
            seed=seed,
        ),
        remove_site_mean=remove_site_mean,
        seeds=seeds,
        device=device,
        on_leak=on_leak,
        sample_patches=sample_patches,
    )
    inputs = command.CurateInputs(
        table=table,
        store=store,
        features=tuple(features or ()),
        tests=tuple(test or ()),
        slides=tuple(slides or ()),
    )
    with progress_bar(enabled=not as_json) as progress:
        if dry_run:
            planned = command.estimate(
                inputs, out=out, settings=settings, replace_earlier=replace, progress=progress
            )
            return show(planned, as_json=as_json)
        result = command.curate(
            inputs, out=out, settings=settings, replace_earlier=replace, progress=progress
        )
    return show(result, as_json=as_json)
