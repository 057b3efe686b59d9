"""`elsewhere slides train` and `elsewhere slides segment`: segmenters on patches, and their masks of whole slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, show
from elsewhere.cli.slides import slides_app


@slides_app.command(
    "train", epilog="Example: elsewhere slides train store sets/*.parquet --test test.parquet --out models"
)
def slides_train(
    store: Annotated[Path, typer.Argument(help="The store that `elsewhere slides pack` wrote, with masks.")],
    sets: Annotated[
        list[Path],
        typer.Argument(
            help="Patch tables to train on, one model per table and fold; their rows for training."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The folder of the models; a run that was stopped resumes in it.")
    ],
    test: Annotated[
        Path | None, typer.Option("--test", help="The patch table that every model is tested on.")
    ] = None,
    network: Annotated[
        str,
        typer.Option(
            help="deeplab-mobilenet-v3 (the study's), deeplab-mobilenet-v2, deeplab-lite0, unet; deeplab-tiny and unet-tiny "
            "for a CPU."
        ),
    ] = "deeplab-mobilenet-v3",
    weights: Annotated[
        str, typer.Option(help="Weights to start from: imagenet, coco, none, or a file with a state dict.")
    ] = "imagenet",
    loss: Annotated[
        str,
        typer.Option(help="Reading of the focal Tversky loss: abraham (alpha on false negatives) or smp."),
    ] = "abraham",
    folds: Annotated[int, typer.Option(min=2, help="Folds by patient, each with slides of tumour.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs at most.")] = 50,
    patience: Annotated[
        int, typer.Option(min=1, help="Epochs without a lower validation loss after which training stops.")
    ] = 10,
    batch: Annotated[int, typer.Option(min=2, help="Patches per step.")] = 8,
    rate: Annotated[float, typer.Option("--rate", help="Learning rate of Adam in the first epoch.")] = 1e-4,
    decay: Annotated[
        float, typer.Option(help="The learning rate of an epoch as a share of the one before.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of folds and trainings.")] = 42,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    lanes: Annotated[
        int, typer.Option(min=0, help="Trainings at the same time on a GPU; 0: as suits the network.")
    ] = 0,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, print what would be trained, and write nothing."),
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """Train segmenters on sets of patches in folds by patient, and test each on the same patches."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_training.plan import train_settings
    from elsewhere.commands.slide_training.run import RunOptions, train_models

    values = {
        "network": network,
        "weights": weights,
        "loss": loss,
        "epochs": epochs,
        "patience": patience,
        "batch": batch,
        "learning_rate": rate,
        "decay": decay,
    }
    settings = train_settings(values, folds=folds, seed=seed)
    with progress_bar(enabled=not as_json) as progress:
        result = train_models(
            store,
            sets,
            out=out,
            test=test,
            settings=settings,
            options=RunOptions(device=device, lanes=lanes),
            dry_run=dry_run,
            progress=progress,
        )
    return show(result, as_json=as_json)


@slides_app.command(
    "segment",
    epilog="Example: elsewhere slides segment models slides --model single-natural-fold1 --out masks",
)
def slides_segment(
    models: Annotated[Path, typer.Argument(help="The folder that `elsewhere slides train` wrote.")],
    slides: Annotated[list[Path], typer.Argument(help="Slides, folders of slides, or one cohort.")],
    model: Annotated[
        str, typer.Option("--model", help="The set and the fold, such as single-natural-fold1.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The folder of the masks; a run that was stopped resumes in it.")
    ],
    mpp: Annotated[
        float | None,
        typer.Option(
            "--mpp", help="Microns per pixel of level 0, where the files state none or a wrong one."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    as_json: JsonOpt = False,
) -> int:
    """Draw masks of whole slides by a saved model, strip by strip, cut and normalised as what it learnt from."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.slide_training.whole_slides import segment_slides

    with progress_bar(enabled=not as_json) as progress:
        result = segment_slides(
            models, slides, model=model, out=out, mpp=mpp, device=device, progress=progress
        )
    return show(result, as_json=as_json)
