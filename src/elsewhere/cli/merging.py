"""Commands about the boxes of many detectors: phantom detections, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.options import JsonOpt, SeedOpt, show, split_list
from elsewhere.cli.phantoms import phantom_app
from elsewhere.errors import UserError


@phantom_app.command(
    "detections",
    epilog="Example: elsewhere phantom detections finders --patients 100 --finders 8; with a drop at vendor B: "
    "elsewhere phantom detections finders --drop 0.4",
)
def phantom_detections(
    out: Annotated[
        Path, typer.Argument(help="Folder to write; made at once when all is done, or not at all.")
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an earlier phantom in the folder; other files in it stay."),
    ] = False,
    patients: Annotated[
        int, typer.Option(help="Patients in validation, and as many in test, divided among the vendors.")
    ] = 100,
    finders: Annotated[int, typer.Option(help="Finders, each with one file per split.")] = 8,
    vendors: Annotated[str, typer.Option(help="Names of the vendors, comma-separated.")] = "A,B",
    drop: Annotated[
        float,
        typer.Option(
            help="Share of the lesions in dense breasts at vendor B that each finder loses: 0 to 1."
        ),
    ] = 0.0,
    mix: Annotated[
        str, typer.Option(help="Shares of normal, actionable, benign and cancer patients.")
    ] = "0.25,0.15,0.28,0.32",
    false_positives: Annotated[
        float, typer.Option(help="Factor on the false positives of all finders.")
    ] = 1.0,
    boxless: Annotated[int, typer.Option(help="Finders whose files hold a header alone.")] = 0,
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """Lesion tables and prediction files of many synthetic detectors, without pixels."""
    from elsewhere.commands.phantom_detections import detections

    try:
        shares = tuple(float(part) for part in split_list(mix))
    except ValueError:
        raise UserError(
            f"'{mix}' is no list of numbers", where="--mix", fix="Write e.g. 0.25,0.15,0.28,0.32."
        ) from None
    made = detections(
        out,
        replace=replace,
        patients=patients,
        finders=finders,
        vendors=split_list(vendors),
        drop=drop,
        mix=shares,
        false_positives=false_positives,
        boxless=boxless,
        seed=seed,
    )
    return show(made, as_json=as_json)
