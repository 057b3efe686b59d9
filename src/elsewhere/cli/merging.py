"""Commands about the boxes of many detectors: phantom detections, merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import (
    DecimalOpt,
    DelimiterOpt,
    EncodingOpt,
    IdsOpt,
    JsonOpt,
    MapOpt,
    ProtocolOpt,
    ReplaceOpt,
    ResamplesOpt,
    SeedOpt,
    ThreadsOpt,
    pairs,
    show,
    split_list,
    table_options,
)
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


@app.command(
    epilog="Examples: elsewhere merge phase1 --cohort cohort --where split=validation --report-on split=test --out merged; "
    "by the published setting, without any truth: elsewhere merge a.csv b.csv c.csv --setting published --out merged"
)
def merge(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            help="Prediction files, one per detector, or a folder of them, or a folder with validation/ and test/ of "
            "the same names."
        ),
    ],
    cohort: Annotated[
        Path | None, typer.Option(help="The cohort that the setting is chosen on, with lesions.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="Only these cases of --cohort choose the setting: split=validation (may be repeated).",
        ),
    ] = None,
    report_on: Annotated[
        str | None,
        typer.Option(help="The test cohort; or COLUMN=VALUE for the cases of --cohort with this value."),
    ] = None,
    test_predictions: Annotated[
        list[Path] | None,
        typer.Option(
            help="Prediction file of the test cohort, named like its detector's other file, or a folder of them (may be "
            "repeated). Default: the same files."
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            help="Merge by this setting instead of searching: published, or e.g. normalisation=max,iou=0.5,votes=2."
        ),
    ] = None,
    vote: Annotated[
        str | None,
        typer.Option(
            help="An ensemble by vote in place of weighted boxes fusion: affirmative, consensus or unanimous."
        ),
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="The weight of a detector: alpha=2 (may be repeated); others 1.")
    ] = None,
    floor: Annotated[
        float, typer.Option(help="Leave out boxes with a lower score, on the common scale from 0 to 1.")
    ] = 0.0,
    protocol: ProtocolOpt = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for merged.csv, grid.csv, summary.json and report.html."),
    ] = None,
    replace: ReplaceOpt = False,
    column_map: MapOpt = None,
    normalise_ids: IdsOpt = "",
    on_invalid: Annotated[
        str,
        typer.Option(
            help="An invalid box: error (its detector is left out), or worst (the box is left out of the merge)."
        ),
    ] = "error",
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Merge the boxes of many detectors: chosen on one cohort, judged on another."""
    from elsewhere.commands.merge import merge as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            predictions,
            cohort=cohort,
            report_on=report_on,
            test_predictions=tuple(test_predictions or ()),
            where=pairs(where, option="--where"),
            setting=setting,
            vote=vote,
            weights=_weights(weight),
            floor=floor,
            protocol=protocol,
            resamples=resamples,
            seed=seed,
            out=out,
            replace=replace,
            column_map=pairs(column_map),
            normalise_ids=split_list(normalise_ids),
            on_invalid=on_invalid,
            table=table_options(encoding, delimiter, decimal),
            threads=threads,
            progress=progress,
        )
    return show(result, as_json=as_json)


def _weights(items: list[str] | None) -> dict[str, float]:
    """The weights of detectors, from NAME=NUMBER."""
    weights = {}
    for name, text in pairs(items, option="--weight").items():
        try:
            weights[name] = float(text)
        except ValueError:
            raise UserError(
                f"'{text}' is no weight", where=f"--weight {name}", fix=f"Write e.g. --weight {name}=2."
            ) from None
    return weights
