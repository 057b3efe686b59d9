"""Commands that make a result: score, summarise, check, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import (
    CohortArg,
    CombineOpt,
    DecimalOpt,
    DelimiterOpt,
    EncodingOpt,
    FailedOpt,
    GroupOpt,
    IdsOpt,
    InvalidOpt,
    JsonOpt,
    MapOpt,
    OutOpt,
    PictureCountOpt,
    PicturesOpt,
    PredictionsArg,
    ProtocolOpt,
    ReplaceOpt,
    ResamplesOpt,
    ScaleOpt,
    SeedOpt,
    TaskArg,
    ThreadsOpt,
    ThresholdOpt,
    UnitOpt,
    WhereOpt,
    pairs,
    picture_count_of,
    show,
    split_list,
    table_options,
)


@app.command(
    epilog="Example: elsewhere score classification cohort.csv ai.csv --map score=ai_score --scale 0-100 --group-by site --out result"
)
def score(
    task: TaskArg,
    cohort: CohortArg,
    predictions: PredictionsArg,
    out: OutOpt,
    replace: ReplaceOpt = False,
    protocol: ProtocolOpt = None,
    group_by: GroupOpt = "",
    where: WhereOpt = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    threshold: ThresholdOpt = None,
    calibrate_on: Annotated[
        Path | None, typer.Option(help="Validation predictions to fit the temperature on.")
    ] = None,
    matching: Annotated[str | None, typer.Option(help="Detection: challenge or nearest.")] = None,
    resample: Annotated[
        str, typer.Option(help="Detection may say volumes; everything else resamples patients.")
    ] = "patients",
    fairness_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="Weight of fairness in `combined`.")
    ] = None,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    unit: UnitOpt = "case",
    combine: CombineOpt = "max",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    failed_status: FailedOpt = None,
    pictures: PicturesOpt = False,
    picture_count: PictureCountOpt = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    reference_site: Annotated[
        str | None,
        typer.Option(
            help="The site where the model was developed; every other site gets a verdict in comparison with it."
        ),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="With --reference-site: the difference that would not matter.")
    ] = None,
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Score predictions: who was tested, how good it was, with intervals, in which groups."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.score import score as run

    shown = picture_count_of(pictures, picture_count, out)
    with progress_bar(enabled=not as_json) as progress:
        result = run(
            task,
            cohort,
            predictions,
            out=out,
            replace=replace,
            protocol=protocol,
            group_by=split_list(group_by),
            where=pairs(where, option="--where"),
            resamples=resamples,
            seed=seed,
            threshold=threshold,
            calibrate_on=calibrate_on,
            matching=matching,
            resample=resample,
            fairness_weight=fairness_weight,
            column_map=pairs(column_map),
            scale=scale,
            unit=unit,
            combine=combine,
            normalise_ids=split_list(normalise_ids),
            on_invalid=on_invalid,
            failed_status=tuple(failed_status or ()),
            table=table_options(encoding, delimiter, decimal),
            reference_site=reference_site,
            margin=margin,
            threads=threads,
            progress=progress,
            pictures=shown,
        )
    return show(result, as_json=as_json)


@app.command(
    epilog="Example: elsewhere summarise segmentation cohort.csv dice.csv --protocol mamamia-code --out result"
)
def summarise(
    task: TaskArg,
    cohort: CohortArg,
    scores: Annotated[
        Path, typer.Argument(help="A scores table (csv or parquet), or an existing result folder.")
    ],
    out: OutOpt,
    replace: ReplaceOpt = False,
    protocol: ProtocolOpt = None,
    group_by: GroupOpt = "",
    where: WhereOpt = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    threshold: ThresholdOpt = None,
    fairness_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="Weight of fairness in `combined`.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="Keys of a large table, read as a stream: model,fold,stage.")
    ] = "",
    column_map: MapOpt = None,
    on_invalid: InvalidOpt = "error",
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    reference_site: Annotated[
        str | None,
        typer.Option(
            help="The site where the model was developed; every other site gets a verdict in comparison with it."
        ),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="With --reference-site: the difference that would not matter.")
    ] = None,
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """The same as score, from a table of scores that exists already."""
    from elsewhere.commands.summarise import summarise as run

    result = run(
        task,
        cohort,
        scores,
        out=out,
        replace=replace,
        protocol=protocol,
        group_by=split_list(group_by),
        where=pairs(where, option="--where"),
        resamples=resamples,
        seed=seed,
        threshold=threshold,
        fairness_weight=fairness_weight,
        by=split_list(by),
        column_map=pairs(column_map),
        on_invalid=on_invalid,
        table=table_options(encoding, delimiter, decimal),
        reference_site=reference_site,
        margin=margin,
        threads=threads,
    )
    return show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere check predictions.csv --task classification --cohort cohort.csv")
def check(
    predictions: PredictionsArg,
    task: Annotated[str, typer.Option(help="A task, such as classification (`elsewhere tasks` lists them).")],
    cohort: Annotated[Path | None, typer.Option(help="The cohort; it may come without the truth.")] = None,
    protocol: ProtocolOpt = None,
    where: WhereOpt = None,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    unit: UnitOpt = "case",
    combine: CombineOpt = "max",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    failed_status: FailedOpt = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Look before scoring: ids, columns, direction and scale of the scores, files that cannot be read, rows lost."""
    from elsewhere.commands.check import check as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            predictions,
            task=task,
            cohort=cohort,
            protocol=protocol,
            where=pairs(where, option="--where"),
            column_map=pairs(column_map),
            scale=scale,
            unit=unit,
            combine=combine,
            normalise_ids=split_list(normalise_ids),
            on_invalid=on_invalid,
            failed_status=tuple(failed_status or ()),
            table=table_options(encoding, delimiter, decimal),
            threads=threads,
            progress=progress,
        )
    return show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere report result --tables tables --figures figures")
def report(
    result: Annotated[Path, typer.Argument(help="A result folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; default report.html in the folder.")
    ] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for every table as csv and LaTeX.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for every figure as SVG, PDF and PNG.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace files of the same names that are there already.")
    ] = False,
    as_json: JsonOpt = False,
) -> int:
    """Write the report again, and every table and figure as files."""
    from elsewhere.commands.report import report as run

    written = run(result, out=out, tables=tables, figures=figures, replace=replace)
    return show(written, as_json=as_json)
