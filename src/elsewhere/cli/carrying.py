"""Command about a detector at another site: carry-threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, SeedOpt, show


@app.command(
    "carry-threshold",
    epilog="Examples: elsewhere carry-threshold result --split-by vendor --reference A; elsewhere carry-threshold here home",
)
def carry_threshold(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="One result folder of the task detection with --split-by; or two: here, and the reference."
        ),
    ],
    split_by: Annotated[
        str | None, typer.Option(help="With one result: the column that divides its volumes.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="With --split-by: the value whose volumes set the threshold.")
    ] = None,
    rate: Annotated[
        float, typer.Option(help="False positives per volume that the threshold may give at the reference.")
    ] = 1.0,
    resamples: Annotated[int, typer.Option(help="Resamples of patients; 0 for no intervals.")] = 1000,
    seed: SeedOpt = 42,
    out: Annotated[Path | None, typer.Option("--out", help="JSON file to write.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of --out, if it is there already.")
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """A detector's threshold fixed at one hospital: false positives and sensitivity at another."""
    from elsewhere.commands.carry_threshold import carry_threshold as run

    made = run(
        results,
        split_by=split_by,
        reference=reference,
        rate=rate,
        resamples=resamples,
        seed=seed,
        out=out,
        replace=replace,
    )
    return show(made, as_json=as_json)
