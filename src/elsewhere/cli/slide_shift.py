"""`elsewhere slides rerender` and `elsewhere slides shift`: why a slide model is worse at another laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, ReplaceOpt, SeedOpt, show, split_list
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "rerender", epilog="Example: elsewhere slides rerender store patches.parquet --out rendered"
)
def slides_rerender(
    source: Annotated[
        Path,
        typer.Argument(
            help="A patch store, or a folder with pixels.npy, truth.npy and patches.csv (case_id, patient_id, domain)."
        ),
    ],
    table: Annotated[
        Path | None, typer.Argument(help="The patch table of the store, which names domains and patients.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the rendered patches.")] = ...,  # type: ignore[assignment]
    internal: Annotated[
        str | None, typer.Option("--id", help="Internal patches, as COLUMN=VALUE; without it, `domain`.")
    ] = None,
    external: Annotated[
        str | None, typer.Option("--ood", help="External patches, as COLUMN=VALUE; without it, `domain`.")
    ] = None,
    interventions: Annotated[
        str, typer.Option(help="What is looked at: any of scale,stain,sharpness,compression.")
    ] = "scale,stain,sharpness,compression",
    internal_mpp: Annotated[
        float | None,
        typer.Option(
            "--internal-mpp", help="True microns per pixel of internal patches, where the table is wrong."
        ),
    ] = None,
    external_mpp: Annotated[
        float | None, typer.Option("--external-mpp", help="The same of external patches.")
    ] = None,
    internal_quality: Annotated[
        int | None,
        typer.Option(
            "--internal-quality", help="JPEG quality of internal slides, where pixels do not tell it."
        ),
    ] = None,
    external_quality: Annotated[
        int | None, typer.Option("--external-quality", help="The same of external slides.")
    ] = None,
    per_slide: Annotated[
        int,
        typer.Option(
            "--per-slide",
            min=0,
            help="At most so many tumour patches and so many normal ones per slide; 0: all.",
        ),
    ] = 100,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure the differences, and write nothing.")
    ] = False,
    seed: SeedOpt = 42,
    as_json: JsonOpt = False,
) -> int:
    """Render external patches with internal stain, sharpness, compression and scale; what is lost, the other way."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_rerender import RerenderSettings, rerender

    settings = RerenderSettings(
        internal=internal,
        external=external,
        internal_mpp=internal_mpp,
        external_mpp=external_mpp,
        internal_quality=internal_quality,
        external_quality=external_quality,
        names=tuple(split_list(interventions)),
        per_slide=per_slide,
        seed=seed,
    )
    with progress_bar(enabled=not as_json) as progress:
        result = rerender(source, table, out=out, settings=settings, dry_run=dry_run, progress=progress)
    return show(result, as_json=as_json)


@slides_app.command("shift", epilog="Example: elsewhere slides shift rendered predictions --out why")
def slides_shift(
    folder: Annotated[Path, typer.Argument(help="The folder that `elsewhere slides rerender` wrote.")],
    predictions: Annotated[
        Path,
        typer.Argument(
            help="Predictions: one folder per model (and per fold in it), one .npy file per version."
        ),
    ],
    thresholds: Annotated[
        str,
        typer.Option(
            help="What is called tumour: above 0.5, or the best of 0.3,0.5,0.7 on internal patches."
        ),
    ] = "0.5",
    standardise: Annotated[
        str, typer.Option("--standardise", help="Columns of patches whose mix is made equal: stage.")
    ] = "",
    alpha: Annotated[
        float, typer.Option(help="Level of each one-sided limit; intervals are 1 - 2 alpha.")
    ] = 0.05,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of patients; 0 leaves the bootstrap out.")
    ] = 1000,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json, tables and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    as_json: JsonOpt = False,
) -> int:
    """Why a model is worse at another laboratory: how much of the drop each intervention gives back, by patient."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_shift import ShiftSettings, shift

    settings = ShiftSettings(
        thresholds=tuple(split_list(thresholds)),
        standardise=tuple(split_list(standardise)),
        alpha=alpha,
        resamples=resamples,
        seed=seed,
    )
    with progress_bar(enabled=not as_json) as progress:
        result = shift(folder, predictions, settings=settings, out=out, replace=replace, progress=progress)
    return show(result, as_json=as_json)
