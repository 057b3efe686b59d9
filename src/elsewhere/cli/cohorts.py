"""Commands about cohorts, and lists of what can be named; the demo; simulated coverage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app, cohort_app
from elsewhere.cli.options import (
    CohortArg,
    DecimalOpt,
    DelimiterOpt,
    EncodingOpt,
    JsonOpt,
    MapOpt,
    OutOpt,
    ReplaceOpt,
    SeedOpt,
    ThreadsOpt,
    pairs,
    show,
    table_options,
)


@cohort_app.command("read", epilog="Example: elsewhere cohort read bcs-dbt FOLDER --out cohort")
def cohort_read(
    reader: Annotated[
        str, typer.Argument(help="csv, busi, bcs-dbt, camelyon16, slides, ... (`elsewhere readers`).")
    ],
    source: Annotated[Path, typer.Argument(help="The published folder or table.")],
    out: OutOpt,
    replace: ReplaceOpt = False,
    column_map: MapOpt = None,
    constants: Annotated[
        list[str] | None, typer.Option("--set", help="A constant column: dataset=NAME (may be repeated).")
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            help="Ultrasound sets: patient (the set's own ids, the default), or image: each picture counts "
            "as a patient, grade C.",
        ),
    ] = None,
    volumes: Annotated[
        bool,
        typer.Option(
            "--volumes",
            help="BCS-DBT: also search the folder for the DICOM files, by the published file paths.",
        ),
    ] = False,
    slides: Annotated[
        bool,
        typer.Option(
            "--slides",
            help="Whole slides: also open slides and annotations, note size and microns per pixel, find "
            "near-duplicates and what contradicts the table.",
        ),
    ] = False,
    slide_folder: Annotated[
        Path | None, typer.Option("--slide-folder", help="Reader 'slides': the folder of slides.")
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option("--annotations", help="Reader 'slides': the folder of annotations.")
    ] = None,
    trained_on: Annotated[
        str | None,
        typer.Option(
            "--trained-on",
            help="Lymph nodes: centres whose slides trained the model, such as RUMC,UMCU; gives the domain.",
        ),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option("--stage", help="Reader 'slides': a word of the table for a stage: WORD=macro."),
    ] = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Read a public set, or any csv, into a cohort folder with its hash, grade and audit."""
    from elsewhere.commands.cohort import SlideOptions, read
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = read(
            reader,
            source,
            out=out,
            replace=replace,
            column_map=pairs(column_map),
            constants=pairs(constants, option="--set"),
            ids=ids,
            volumes=volumes,
            slides=SlideOptions(
                look=slides,
                folder=slide_folder,
                annotations=annotations,
                trained_on=trained_on,
                stage_words=pairs(stage, option="--stage"),
            ),
            table=table_options(encoding, delimiter, decimal),
            progress=progress,
        )
    return show(result, as_json=as_json)


@cohort_app.command("check", epilog="Example: elsewhere cohort check cohort")
def cohort_check(
    cohort: CohortArg,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Audit that the patient ids are patients, and that the rows are cases."""
    from elsewhere.commands.cohort import check as run

    return show(run(cohort, table=table_options(encoding, delimiter, decimal)), as_json=as_json)


@cohort_app.command("describe", epilog="Example: elsewhere cohort describe cohort --json")
def cohort_describe(
    cohort: CohortArg,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Counts, classes, sites and attributes of a cohort."""
    from elsewhere.commands.cohort import describe as run

    return show(run(cohort, table=table_options(encoding, delimiter, decimal)), as_json=as_json)


@cohort_app.command("duplicates", epilog="Example: elsewhere cohort duplicates busi bus-bra --out duplicates")
def cohort_duplicates(
    cohorts: Annotated[
        list[Path],
        typer.Argument(help="Cohort folders or tables with a column 'image' or 'slide'; one or more."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for pairs.csv, groups.csv, summary.json and contact sheets (pixels)."
        ),
    ] = None,
    replace: ReplaceOpt = False,
    keep_together: Annotated[
        bool,
        typer.Option(
            "--keep-duplicates-together/--no-keep-duplicates-together",
            help="Merge patients that share a picture into one group, which no split divides.",
        ),
    ] = True,
    threads: ThreadsOpt = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Find pictures that occur twice, within and across datasets, patients and labels."""
    from elsewhere.commands.duplicates import duplicates as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            cohorts,
            out=out,
            replace=replace,
            keep_together=keep_together,
            threads=threads,
            table=table_options(encoding, delimiter, decimal),
            progress=progress,
        )
    return show(result, as_json=as_json)


@app.command("tasks", epilog="Example: elsewhere tasks --json")
def list_tasks(as_json: JsonOpt = False) -> int:
    """The tasks that can be scored, built in and from other packages."""
    from elsewhere.commands.listing import list_tasks as run

    return show(run(), as_json=as_json)


@app.command("protocols", epilog="Example: elsewhere protocols --json")
def list_protocols(as_json: JsonOpt = False) -> int:
    """The scoring rules that can be named."""
    from elsewhere.commands.listing import list_protocols as run

    return show(run(), as_json=as_json)


@app.command("recipes", epilog="Example: elsewhere recipes --json")
def list_recipes(as_json: JsonOpt = False) -> int:
    """The published methods a study can name, built in and from other packages."""
    from elsewhere.commands.listing import list_recipes as run

    return show(run(), as_json=as_json)


@app.command("metrics", epilog="Example: elsewhere metrics --json")
def list_metrics(as_json: JsonOpt = False) -> int:
    """The metrics of every task, with what they declare."""
    from elsewhere.commands.listing import list_metrics as run

    return show(run(), as_json=as_json)


@app.command(epilog="Example: elsewhere demo --out demo-out")
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder to write; what an earlier demo wrote in it is replaced.")
    ] = Path("demo-out"),
    seed: SeedOpt = 7,
    study: Annotated[
        bool, typer.Option("--study/--no-study", help="Also train the study 'demo' on synthetic pictures.")
    ] = True,
    as_json: JsonOpt = False,
) -> int:
    """Three synthetic hospitals for every task, four planted faults, and a report that finds them; a study."""
    from elsewhere.commands.demo import demo as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(out, seed=seed, study="demo" if study else None, progress=progress)
    return show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere coverage --quick --out docs/reference --replace")
def coverage(
    out: Annotated[Path, typer.Option("--out", help="Folder for coverage.md and levels.md.")] = Path(
        "docs/reference"
    ),
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace pages of these names that are there already.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid with few replicates.")] = False,
    replicates: Annotated[
        int | None, typer.Option(min=10, help="Simulated cohorts a cell; default 1,000.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Parts to simulate, separated by commas: binary, means, boxes, uneven, perfect, paired, "
            "claims, fairness, planted, chance."
        ),
    ] = None,
    as_json: JsonOpt = False,
) -> int:
    """Simulate what the intervals and tests promise, and write the tables."""
    from elsewhere.commands.coverage import coverage as run
    from elsewhere.commands.coverage import progress_in_lines
    from elsewhere.commands.output import progress_bar

    parts = None if only is None else [part.strip() for part in only.split(",") if part.strip()]
    with progress_bar(enabled=not as_json) as bar:
        progress = bar if as_json or sys.stderr.isatty() else progress_in_lines()
        pages = run(out, replace=replace, quick=quick, replicates=replicates, only=parts, progress=progress)
    return show(pages, as_json=as_json)
