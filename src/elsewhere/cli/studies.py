"""Commands about studies: what a study file would do, and doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, show, split_list
from elsewhere.errors import UserError

StudyArg = Annotated[
    Path, typer.Argument(help="A study file, or a shipped study's name: ultrasound, ultrasound-lite, ...")
]
DataOpt = Annotated[
    Path | None, typer.Option("--data", help="Folder that stands for {data} in the study; or ELSEWHERE_DATA.")
]
StoreOpt = Annotated[
    Path | None, typer.Option("--store", help="Folder of finished trainings; default: store under --out.")
]
StudyOutOpt = Annotated[
    Path | None, typer.Option("--out", help="Folder of the study; default: the study's name.")
]
SetOpt = Annotated[
    list[str] | None, typer.Option("--set", help="Change a key: models.cnn.epochs=2 (may be repeated).")
]
SeedsOpt = Annotated[str, typer.Option("--seeds", help="Only these seeds: 1,2.")]
StudyIdsOpt = Annotated[
    str | None, typer.Option("--ids", help="patient, or image: every picture counts as a patient.")
]
OnlyOpt = Annotated[
    list[str] | None, typer.Option("--only", help="Only these scenarios: 'BUSI>BUS-BRA' (may be repeated).")
]
ModelsOpt = Annotated[
    str, typer.Option("--only-model", "--only-recipe", help="Only these models or recipes of the study: cnn.")
]
ProfileOpt = Annotated[
    str | None,
    typer.Option("--profile", help="The [profiles.NAME] of the study file that changes it: small."),
]
InputsOpt = Annotated[str, typer.Option("--only-input", help="Only these inputs of the study: whole,roi.")]
DeviceOpt = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, or several with commas.")]


@app.command("plan", epilog="Example: elsewhere plan ultrasound --data FOLDER")
def plan(
    study: StudyArg,
    data: DataOpt = None,
    out: StudyOutOpt = None,
    store: StoreOpt = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="Write every split as csv into this folder.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write what is still to train as a folder for another machine."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace what Elsewhere wrote in --splits and --export before."),
    ] = False,
    changes: SetOpt = None,
    seeds: SeedsOpt = "",
    ids: StudyIdsOpt = None,
    only: OnlyOpt = None,
    only_model: ModelsOpt = "",
    only_input: InputsOpt = "",
    profile: ProfileOpt = None,
    device: DeviceOpt = "auto",
    as_json: JsonOpt = False,
) -> int:
    """What a study will run, what is done already, and about how long the rest takes."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.plan import plan_study

    with progress_bar(enabled=not as_json) as progress:
        planned = plan_study(
            study,
            data=data,
            out=out,
            store=store,
            splits=splits,
            export=export,
            replace=replace,
            changes=changes or (),
            seeds=_numbers(seeds),
            ids=ids,
            only=only or (),
            only_models=split_list(only_model),
            only_inputs=split_list(only_input),
            profile=profile,
            device=device,
            progress=progress,
        )
    return show(planned, as_json=as_json)


@app.command(
    "run",
    epilog="Example: elsewhere run ultrasound-lite --data FOLDER --out ultrasound-lite; "
    "elsewhere run mri --data FOLDER --profile small --pictures",
)
def run(
    study: StudyArg,
    out: StudyOutOpt = None,
    data: DataOpt = None,
    store: StoreOpt = None,
    engine: Annotated[str, typer.Option(help="Where it runs: local, or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; default: one on this machine.")
    ] = None,
    device: DeviceOpt = "auto",
    lanes: Annotated[
        int,
        typer.Option(min=0, help="Trainings that run concurrently on a device; 0: chosen for the network."),
    ] = 0,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", help="Finished trainings from another machine, a zip (may be repeated)."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no training that would end after so many minutes.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            help="Also write a release bundle: a folder with what another team needs to check the numbers.",
        ),
    ] = None,
    bundle_masks: Annotated[
        bool,
        typer.Option(
            "--bundle-masks",
            help="Put the predicted masks, which are large, into the bundle; otherwise only their digests.",
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an earlier bundle in --bundle; --out is always resumed."),
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Train only; the report comes later.")
    ] = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Show relevance maps of saved networks and contours of the hardest cases in the report, which then contains pixels of patients.",
        ),
    ] = False,
    trainer: Annotated[str | None, typer.Option(help="Another trainer: package.module:function.")] = None,
    changes: SetOpt = None,
    seeds: SeedsOpt = "",
    ids: StudyIdsOpt = None,
    only: OnlyOpt = None,
    only_model: ModelsOpt = "",
    only_input: InputsOpt = "",
    profile: ProfileOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Run a study to its report. After a stop or a kill, the same command resumes it."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.run import run_study

    with progress_bar(enabled=not as_json) as progress:
        done = run_study(
            study,
            out=out,
            data=data,
            store=store,
            engine=engine,
            address=address,
            device=device,
            lanes=lanes,
            trainer=trainer,
            imports=imports or (),
            changes=changes or (),
            seeds=_numbers(seeds),
            ids=ids,
            only=only or (),
            only_models=split_list(only_model),
            only_inputs=split_list(only_input),
            profile=profile,
            minutes=minutes,
            report=not no_report,
            bundle=bundle,
            bundle_masks=bundle_masks,
            replace=replace,
            pictures=pictures,
            progress=progress,
        )
    return show(done, as_json=as_json)


@app.command("check-bundle", epilog="Example: elsewhere check-bundle bundle")
def check_bundle(
    bundle: Annotated[Path, typer.Argument(help="A folder that `run --bundle` wrote.")],
    as_json: JsonOpt = False,
) -> int:
    """Check a release bundle: compare its digests, and compute its scores and tables again."""
    from elsewhere.commands.check_bundle import check_bundle as check
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        found = check(bundle, progress=progress)
    return show(found, as_json=as_json)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in split_list(text)]
    except ValueError as error:
        raise UserError(
            f"'{text}' is no list of seeds", where="--seeds", fix="Write e.g. --seeds 1,2."
        ) from error
