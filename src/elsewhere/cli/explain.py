"""The command that shows where trained networks looked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, OutOpt, ReplaceOpt, SeedOpt, show, split_list
from elsewhere.cli.studies import DataOpt, SetOpt, StudyArg


@app.command(
    epilog="Example: elsewhere explain ultrasound --run 'BUSI>BUS-BRA|cnn-roi' --choose 4 --pictures --out maps"
)
def explain(
    study: StudyArg,
    out: OutOpt,
    run: Annotated[
        str,
        typer.Option(
            "--run",
            help="The beginning of the runs' names: 'BUSI>BUS-BRA|cnn-roi|classification|1' (see runs.csv).",
        ),
    ],
    replace: ReplaceOpt = False,
    cases: Annotated[
        str, typer.Option("--cases", help="These test cases, comma-separated: BUSI/a,BUSI/b.")
    ] = "",
    choose: Annotated[
        int,
        typer.Option(
            min=0,
            help="Without --cases: this many, chosen by rule: in turn the most certain right and wrong answers, malignant and benign.",
        ),
    ] = 4,
    measure: Annotated[
        int, typer.Option(min=0, help="Further cases, drawn at random, on which the numbers also rest.")
    ] = 16,
    method: Annotated[
        str, typer.Option(help="grad-cam or occlusion; default: grad-cam for a CNN, occlusion for a ViT.")
    ] = "",
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Write one PNG per chosen case; without it only numbers.")
    ] = False,
    no_sanity: Annotated[
        bool, typer.Option("--no-sanity", help="Leave out the check against random weights.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the study's run; default: the study's name.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Folder of finished trainings; default: store under --results."),
    ] = None,
    data: DataOpt = None,
    changes: SetOpt = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seed: SeedOpt = 42,
    as_json: JsonOpt = False,
) -> int:
    """Where a study's networks looked: relevance maps, and whether they can be trusted."""
    from elsewhere.commands.explain import explain as explain_runs
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        found = explain_runs(
            study,
            out=out,
            replace=replace,
            run=run,
            cases=split_list(cases),
            choose=choose,
            measure=measure,
            method=method,
            pictures=pictures,
            sanity=not no_sanity,
            results=results,
            store=store,
            data=data,
            changes=changes or (),
            device=device,
            seed=seed,
            progress=progress,
        )
    return show(found, as_json=as_json)
