"""`elsewhere slides ensemble` and `elsewhere phantom slide-models`: many models' masks voted to ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import CohortArg, InvalidOpt, JsonOpt, ReplaceOpt, SeedOpt, show, split_list
from elsewhere.cli.phantoms import phantom_app
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "ensemble", epilog="Example: elsewhere slides ensemble slides.csv masks --margin study --out ensembles"
)
def slides_ensemble(
    cohort: CohortArg,
    masks: Annotated[
        Path,
        typer.Argument(
            help="Folder MODEL/FOLD/<case_id>.tif (or .png, .geojson), or a csv with case_id, model, fold and path."
        ),
    ],
    rule: Annotated[
        str,
        typer.Option(help="Tie rule: strict (more than half; two members are an AND) or mean-probability."),
    ] = "strict",
    margin: Annotated[
        list[str] | None,
        typer.Option(
            "--margin",
            help="Margin by which models are chosen: study (made from the data), a number, or dice=0.05. May be repeated.",
        ),
    ] = None,
    internal: Annotated[
        str | None,
        typer.Option("--id", help="Internal slides: COLUMN=VALUE. Default: column domain, value ID."),
    ] = None,
    external: Annotated[
        str | None,
        typer.Option("--ood", help="External slides: COLUMN=VALUE. Default: column domain, value OOD."),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            help="A csv with the columns ensemble and model, or study for the members that the lymph-node study prints. "
            "Default: chosen by results."
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            help="Table of patch scores on which models are chosen. Default: patches of 128 microns of the masks.",
        ),
    ] = None,
    random: Annotated[
        int, typer.Option(min=0, help="Random ensembles of each size; 0 for no comparison with chance.")
    ] = 1000,
    alpha: Annotated[float, typer.Option(help="Level of each one-sided test that chooses models.")] = 0.05,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of patients; 0 leaves intervals out.")
    ] = 1000,
    on_invalid: InvalidOpt = "error",
    masks_out: Annotated[
        Path | None,
        typer.Option("--masks-out", help="Folder for the ensembles' masks: ENSEMBLE/FOLD/<case_id>.tif."),
    ] = None,
    masks_of: Annotated[
        list[str] | None,
        typer.Option(
            "--masks-of", help="With --masks-out: an ensemble whose masks are written (may be repeated)."
        ),
    ] = None,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json, tables and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    as_json: JsonOpt = False,
) -> int:
    """Vote the masks of many slide models within each fold, score every ensemble, and compare it with random ones."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_ensembles import EnsembleSettings, ensemble

    settings = EnsembleSettings(
        rule=rule,
        margins=tuple(part for item in margin or ["study"] for part in split_list(item)),
        internal=internal,
        external=external,
        members=members,
        scores=scores,
        random=random,
        alpha=alpha,
        resamples=resamples,
        on_invalid=on_invalid,
        masks_out=masks_out,
        masks_of=tuple(masks_of or ()),
        seed=seed,
    )
    with progress_bar(enabled=not as_json) as progress:
        result = ensemble(cohort, masks, settings=settings, out=out, replace=replace, progress=progress)
    return show(result, as_json=as_json)


@phantom_app.command(
    "slide-models",
    epilog="Example: elsewhere phantom slide-models world --internal 24 --external 12 --seed 1",
)
def phantom_slide_models(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    replace: ReplaceOpt = False,
    internal: Annotated[int, typer.Option(min=1, help="Internal slides.")] = 24,
    external: Annotated[int, typer.Option(min=1, help="External slides.")] = 16,
    models: Annotated[int, typer.Option(min=1, max=62, help="Models.")] = 21,
    folds: Annotated[int, typer.Option(min=1, help="Folds of each model.")] = 5,
    steady: Annotated[
        int, typer.Option(min=0, help="Models that stay as good on external slides; the others lose.")
    ] = 5,
    drop: Annotated[
        float, typer.Option(min=0.0, help="How much the other models lose there; 0 for nothing.")
    ] = 1.0,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write probabilities as tiled TIFF in place of masks.")
    ] = False,
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """Masks of many models and folds on small slides with a known truth: which models stay as good elsewhere."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.phantom_slide_models import slide_models

    with progress_bar(enabled=not as_json) as progress:
        made = slide_models(
            out,
            replace=replace,
            seed=seed,
            progress=progress,
            internal=internal,
            external=external,
            models=models,
            folds=folds,
            steady=steady,
            drop=drop,
            probabilities=probabilities,
        )
    return show(made, as_json=as_json)
