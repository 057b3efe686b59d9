"""`elsewhere phantom ...`: synthetic hospitals, for trying everything before the data are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import WholeSentences, app
from elsewhere.cli.options import JsonOpt, OutOpt, ReplaceOpt, SeedOpt, pairs, show, split_list
from elsewhere.errors import UserError

phantom_app = typer.Typer(
    cls=WholeSentences,
    no_args_is_help=True,
    help="Synthetic hospitals with a known truth, on disk.",
    rich_markup_mode=None,
)
app.add_typer(phantom_app, name="phantom")


@phantom_app.callback()
def phantom() -> None:
    """Synthetic hospitals with a known truth, on disk."""


@phantom_app.command(
    "ultrasound", epilog="Example: elsewhere phantom ultrasound --out phantoms --patients 60 --shift 1"
)
def phantom_ultrasound(
    out: OutOpt,
    replace: ReplaceOpt = False,
    hospitals: Annotated[str, typer.Option(help="Names, comma-separated.")] = "Alder,Birch",
    layout: Annotated[
        str,
        typer.Option(
            help="busi, bus-bra, breast or bus-uclm: one for all, or one each, comma-separated; default: in turn."
        ),
    ] = "",
    patients: Annotated[int, typer.Option(min=4, help="Patients per hospital.")] = 60,
    shift: Annotated[
        float, typer.Option(min=0, help="How far the sites differ: 0 not at all, 1 as public sets do.")
    ] = 1.0,
    difficulty: Annotated[
        float,
        typer.Option(min=0, max=1, help="How similar the classes look: 0 clearly different, 1 the same."),
    ] = 0.3,
    shortcut: Annotated[
        str | None, typer.Option(help="The hospital that marks its malignant pictures in the corner.")
    ] = None,
    plant: Annotated[
        list[str] | None,
        typer.Option(
            "--plant", help="Faults in the last hospital: duplicate=2,missing-mask=1,truncated=1..."
        ),
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Size of the pictures: 0.5 is half the width and height.")
    ] = 1.0,
    seed: SeedOpt = 7,
    as_json: JsonOpt = False,
) -> int:
    """Ultrasound hospitals as pictures, masks and tables in the layouts of the public sets."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.phantom import ultrasound

    faults = {}
    for name, text in pairs(plant, option="--plant").items():
        if not text.isdecimal():
            raise UserError(f"'{text}' is no count", where=f"--plant {name}", fix="Write e.g. duplicate=2.")
        faults[name] = int(text)
    with progress_bar(enabled=not as_json) as progress:
        made = ultrasound(
            out,
            replace=replace,
            hospitals=split_list(hospitals),
            layouts=split_list(layout),
            patients=patients,
            shift=shift,
            difficulty=difficulty,
            shortcut=shortcut,
            plant=faults,
            scale=scale,
            seed=seed,
            progress=progress,
        )
    return show(made, as_json=as_json)


@phantom_app.command(
    "mri",
    epilog="Example: elsewhere phantom mri phantoms/mri --patients 24 --size 64 --sites 3 --seed 1; with a "
    "planted gap: elsewhere phantom mri phantoms/gap --patients 60 --gap breast_density=D:1.0",
)
def phantom_mri(
    out: Annotated[
        Path, typer.Argument(help="Folder to write; made at once when all is done, or not at all.")
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an earlier phantom in the folder; other files in it stay."),
    ] = False,
    patients: Annotated[int, typer.Option(min=1, help="Patients in all, divided among the sites.")] = 24,
    size: Annotated[
        int, typer.Option(help="In-plane voxels, 32 to 640: 64 is quick, 512 real (512 x 512 x 110).")
    ] = 64,
    sites: Annotated[str, typer.Option(help="How many sites, or their names, comma-separated.")] = "3",
    shift: Annotated[
        float, typer.Option(help="How far the sites differ: 0 not at all, 1 as public collections do.")
    ] = 1.0,
    signal: Annotated[
        float, typer.Option(help="How much pCR depends on subtype and kinetics: 0 not at all.")
    ] = 1.0,
    gap: Annotated[
        str | None, typer.Option(help="The group whose tumours are hard to see: VARIABLE=GROUP:STRENGTH.")
    ] = None,
    blind: Annotated[
        str | None, typer.Option(help="The group in which kinetics say nothing of pCR: VARIABLE=GROUP.")
    ] = None,
    missing: Annotated[float, typer.Option(help="Part of the clinical values that is not known.")] = 0.05,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the files are the same.")] = 1,
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """DCE breast MRI of several sites as volumes, masks, boxes and a table in the layout of MAMA-MIA."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.phantom import mri

    with progress_bar(enabled=not as_json) as progress:
        made = mri(
            out,
            replace=replace,
            patients=patients,
            size=size,
            sites=int(sites) if sites.strip().isdecimal() else split_list(sites),
            shift=shift,
            signal=signal,
            gap=gap,
            blind=blind,
            missing=missing,
            workers=workers,
            seed=seed,
            progress=progress,
        )
    return show(made, as_json=as_json)


@phantom_app.command(
    "tomosynthesis",
    epilog="Example: elsewhere phantom tomosynthesis world --vendors A,B --patients 12 --size small; without "
    "faults, and with less contrast in dense breasts at vendor B: elsewhere phantom tomosynthesis world "
    "--no-faults --drop 0.5",
)
def phantom_tomosynthesis(
    out: Annotated[
        Path, typer.Argument(help="Folder to write; made at once when all is done, or not at all.")
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an earlier phantom in the folder; other files in it stay."),
    ] = False,
    vendors: Annotated[
        str, typer.Option(help="A (arc of 15 degrees), B (50 degrees), or both, comma-separated.")
    ] = "A,B",
    patients: Annotated[int, typer.Option(min=1, help="Patients per vendor.")] = 12,
    size: Annotated[
        str,
        typer.Option(
            help="small (192 rows, about 16 slices), half (1,228 rows) or real (2,457 rows, 24 to 114 slices)."
        ),
    ] = "small",
    views: Annotated[
        int, typer.Option(help="Volumes per patient: 2 (CC and MLO of one breast) or 4 (both breasts).")
    ] = 2,
    mix: Annotated[
        str, typer.Option(help="Shares of normal, actionable, benign and cancer patients.")
    ] = "0.25,0.15,0.28,0.32",
    splits: Annotated[
        str, typer.Option(help="Shares of the patients in train, validation and test.")
    ] = "0.6,0.2,0.2",
    drop: Annotated[
        float,
        typer.Option(
            help="Share of the lesions' contrast that is lost in dense breasts at vendor B: 0 to 1."
        ),
    ] = 0.0,
    faults: Annotated[
        bool | None,
        typer.Option(
            help="Plant faults of published sets: wrong laterality tags, turned volumes, a box on background, a wrong "
            "number of slices; by default in files.",
            show_default=False,
        ),
    ] = None,
    on_demand: Annotated[
        bool,
        typer.Option(
            "--on-demand",
            help="Write a description of each volume in place of its file; the volume is drawn when it is first read.",
        ),
    ] = False,
    syntax: Annotated[
        str,
        typer.Option(
            help="Encoding: jpeg-ls, jpeg-2000, jpeg-lossless, htj2k, rle, raw, raw-implicit or deflated."
        ),
    ] = "jpeg-ls",
    workers: Annotated[int, typer.Option(min=1, help="Processes; the files are the same.")] = 1,
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """Breast tomosynthesis of two vendors as DICOM volumes and the nine tables of BCS-DBT."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.phantom import tomosynthesis

    with progress_bar(enabled=not as_json) as progress:
        made = tomosynthesis(
            out,
            replace=replace,
            vendors=tuple(split_list(vendors)),
            patients=patients,
            size=size,
            views=views,
            mix=_shares(mix, "--mix"),
            splits=_shares(splits, "--splits"),
            drop=drop,
            faults=not on_demand if faults is None else faults,
            syntax=None if on_demand else syntax,
            workers=workers,
            seed=seed,
            progress=progress,
        )
    return show(made, as_json=as_json)


def _shares(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in split_list(text))
    except ValueError:
        raise UserError(
            f"'{text}' is no list of numbers", where=option, fix="Write e.g. 0.6,0.2,0.2."
        ) from None
