"""`elsewhere phantom slides`: synthetic whole slides on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, SeedOpt, pairs, show, split_list
from elsewhere.cli.phantoms import phantom_app
from elsewhere.errors import UserError


@phantom_app.command(
    "slides",
    epilog="Example: elsewhere phantom slides world --patients 2 --nodes 2 --seed 1; only the stain differs between "
    "the centres: elsewhere phantom slides stained --shift stain=1; with faults: elsewhere phantom slides faulty "
    "--plant wrong-mpp=1,copy=1",
)
def phantom_slides(
    out: Annotated[
        Path, typer.Argument(help="Folder to write; made at once when all is done, or not at all.")
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an earlier phantom in the folder; other files in it stay."),
    ] = False,
    patients: Annotated[int, typer.Option(min=1, help="Patients per centre.")] = 2,
    nodes: Annotated[int, typer.Option(min=1, max=5, help="Slides per patient; CAMELYON17 has 5.")] = 2,
    centres: Annotated[
        str,
        typer.Option(
            help="Centres out of 0 (CWZ), 1 (RST), 2 (UMCU), 3 (RUMC) and 4 (LPON), comma-separated."
        ),
    ] = "0,1,2,3,4",
    size: Annotated[
        str,
        typer.Option(
            help="tiny (about 1,500 x 1,000 px at 0.5 um, no macrometastases), small (5,600 x 2,600 px at 0.5 um), half "
            "(12,000 x 8,000 px at 0.25 um) or real (100,000 x 100,000 px at 0.25 um)."
        ),
    ] = "small",
    shift: Annotated[
        list[str] | None,
        typer.Option(
            "--shift",
            help="What differs between the centres, and how much: stain=1,scanner=1,tissue=1,stages=1. What is not "
            "named does not differ; without this option all four differ as between the real centres.",
        ),
    ] = None,
    plant: Annotated[
        list[str] | None,
        typer.Option(
            "--plant",
            help="Slides with faults: wrong-mpp=1,copy=1,wrong-stage=1,missing-tiles=1,missing-annotation=1.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the files are the same.")] = 1,
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """H&E slides of lymph nodes of five centres as pyramidal TIFF, with annotations, in the layout of CAMELYON17."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.phantom_slides import slides

    numbers = []
    for name in split_list(centres):
        if not name.isdecimal():
            raise UserError(f"'{name}' is no centre", where="--centres", fix="Write e.g. 0,2,4.")
        numbers.append(int(name))
    moved = {}
    for axis, text in pairs(shift, option="--shift").items():
        try:
            moved[axis] = float(text)
        except ValueError:
            raise UserError(
                f"'{text}' is no number", where=f"--shift {axis}", fix="Write e.g. stain=1."
            ) from None
    faults = {}
    for name, text in pairs(plant, option="--plant").items():
        if not text.isdecimal():
            raise UserError(f"'{text}' is no count", where=f"--plant {name}", fix="Write e.g. copy=1.")
        faults[name] = int(text)
    with progress_bar(enabled=not as_json) as progress:
        made = slides(
            out,
            replace=replace,
            shift=moved,
            plant=faults,
            workers=workers,
            progress=progress,
            patients=patients,
            nodes=nodes,
            centres=tuple(numbers),
            size=size,
            seed=seed,
        )
    return show(made, as_json=as_json)
