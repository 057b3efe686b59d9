"""Commands about saved models: list them, and apply one at another hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import CohortArg, JsonOpt, OutOpt, ReplaceOpt, WhereOpt, pairs, show

SourceArg = Annotated[
    Path, typer.Argument(help="A study's results, its store, or a model file that `models --export` wrote.")
]
ModelOpt = Annotated[
    str, typer.Option("--model", help="How the model's name or key begins: 'rest>DUKE|radiomics'.")
]


@app.command(
    "models",
    epilog="Example: elsewhere models mri; elsewhere models mri --model 'rest>DUKE|radiomics' --export radiomics.zip",
)
def models(
    source: SourceArg,
    model: ModelOpt = "",
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", help="Write these models as a file for another hospital; it names no patient."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of --export, if it is there already.")
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """The models that a study saved, and the patients that they were trained on."""
    from elsewhere.commands.predict import list_models

    return show(list_models(source, model=model, export=export, replace=replace), as_json=as_json)


@app.command(
    "predict",
    epilog="Example: elsewhere predict radiomics.zip cohort --out predictions; "
    "elsewhere predict mri cohort --model 'rest>DUKE|residual-unet' --where dataset=DUKE --out predictions",
)
def predict(
    source: SourceArg,
    cohort: CohortArg,
    out: OutOpt,
    replace: ReplaceOpt = False,
    model: ModelOpt = "",
    where: WhereOpt = None,
    masks: Annotated[
        Path | None,
        typer.Option(
            "--masks", help="For a recipe trained with predicted masks: the folder of this cohort's."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: JsonOpt = False,
) -> int:
    """Apply a saved model to another hospital's cohort; `score` reads the predictions."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.predict import predict as apply_model

    with progress_bar(enabled=not as_json) as progress:
        found = apply_model(
            source,
            cohort,
            out=out,
            replace=replace,
            model=model,
            where=pairs(where, option="--where"),
            masks=masks,
            device=device,
            progress=progress,
        )
    return show(found, as_json=as_json)
