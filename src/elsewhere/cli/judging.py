"""Commands that judge results: compare, rank, accept, diff, equivalence, plan-sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import (
    DecimalOpt,
    DelimiterOpt,
    EncodingOpt,
    FailedOpt,
    IdsOpt,
    InvalidOpt,
    JsonOpt,
    MapOpt,
    PictureCountOpt,
    PicturesOpt,
    ProtocolOpt,
    ReplaceOpt,
    ResamplesOpt,
    ScaleOpt,
    SeedOpt,
    ThreadsOpt,
    WhereOpt,
    pairs,
    picture_count_of,
    show,
    split_list,
    table_options,
)
from elsewhere.errors import UserError


@app.command(epilog="Example: elsewhere compare result_a result_b --out comparison")
def compare(
    result_a: Annotated[Path, typer.Argument(help="Result folder of model A.")],
    result_b: Annotated[Path, typer.Argument(help="Result folder of model B, same cases.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    metrics: Annotated[
        str, typer.Option("--metrics", help="Metrics to compare, comma-separated; default all.")
    ] = "",
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    as_json: JsonOpt = False,
) -> int:
    """Two models on the same cases: bootstrap, permutation, Wilcoxon, t, and DeLong for AUROC."""
    from elsewhere.commands.compare import compare as run

    result = run(
        result_a,
        result_b,
        metrics=split_list(metrics),
        resamples=resamples,
        seed=seed,
        out=out,
        replace=replace,
    )
    return show(result, as_json=as_json)


@app.command(
    epilog="Example: elsewhere rank submissions/ --cohort cohort --task segmentation --protocol mamamia-paper --out ranking"
)
def rank(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Result folders, one folder of prediction files, or the zip of DBTex's published predictions."
        ),
    ],
    cohort: Annotated[Path | None, typer.Option(help="The cohort, for prediction files.")] = None,
    task: Annotated[str | None, typer.Option(help="The task, for prediction files.")] = None,
    protocol: ProtocolOpt = None,
    where: WhereOpt = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric to rank by; default the task's, `combined` for challenges.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Name of the baseline; the others are tested against it (Holm).")
    ] = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    failed_status: FailedOpt = None,
    hit_rules: Annotated[
        bool, typer.Option("--hit-rules", help="Detections: rank under 60 other rules of a hit too.")
    ] = False,
    phase: Annotated[
        int | None,
        typer.Option(min=1, help="DBTex: the phase of the challenge, for a zip and its printed table."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="DBTex: validation or test, for a zip and the cohort's column `split`.")
    ] = None,
    pictures: PicturesOpt = False,
    picture_count: PictureCountOpt = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Rank models with ties, rank intervals and tiers, all on the same resamples."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.rank import rank as run

    shown = picture_count_of(pictures, picture_count, out)
    with progress_bar(enabled=not as_json) as progress:
        result = run(
            results,
            cohort=cohort,
            task=task,
            protocol=protocol,
            where=pairs(where, option="--where"),
            metric=metric,
            baseline=baseline,
            resamples=resamples,
            seed=seed,
            out=out,
            replace=replace,
            column_map=pairs(column_map),
            scale=scale,
            normalise_ids=split_list(normalise_ids),
            on_invalid=on_invalid,
            failed_status=tuple(failed_status or ()),
            table=table_options(encoding, delimiter, decimal),
            threads=threads,
            progress=progress,
            hit_rules=hit_rules,
            phase=phase,
            split=split,
            pictures=shown,
        )
    return show(result, as_json=as_json)


@app.command(
    epilog="Example: elsewhere accept --init; then: elsewhere accept cohort.csv vendor.csv --claim claim.toml --out verdict"
)
def accept(
    cohort: Annotated[Path | None, typer.Argument(help="The hospital's own cases and outcomes.")] = None,
    predictions: Annotated[Path | None, typer.Argument(help="The vendor's predictions.")] = None,
    claim: Annotated[
        Path, typer.Option(help="The claim: the vendor's numbers, threshold, margin, subgroups.")
    ] = Path("claim.toml"),
    init: Annotated[
        bool, typer.Option("--init", help="Write a commented claim to fill in, and stop.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the result and the report.")] = None,
    replace: ReplaceOpt = False,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    column_map: MapOpt = None,
    scale: Annotated[str | None, typer.Option(help="Overrides the claim's scale.")] = None,
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    failed_status: FailedOpt = None,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Does the vendor's claim hold here? A verdict in five words, and an exit code."""
    from elsewhere.commands.accept import accept as run
    from elsewhere.commands.accept import write_claim_template

    if init:
        return show(write_claim_template(claim), as_json=as_json)
    if cohort is None or predictions is None:
        raise UserError(
            "accept needs COHORT and PREDICTIONS",
            fix="elsewhere accept COHORT PREDICTIONS --claim claim.toml (or --init).",
        )
    result = run(
        cohort,
        predictions,
        claim=claim,
        out=out,
        replace=replace,
        resamples=resamples,
        seed=seed,
        column_map=pairs(column_map),
        scale=scale,
        normalise_ids=split_list(normalise_ids),
        on_invalid=on_invalid,
        failed_status=tuple(failed_status or ()),
        table=table_options(encoding, delimiter, decimal)
        if encoding or delimiter or decimal != "."
        else None,
    )
    return show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere diff result_2025 result_2026")
def diff(
    a: Annotated[Path, typer.Argument(help="A result folder.")],
    b: Annotated[Path, typer.Argument(help="Another.")],
    as_json: JsonOpt = False,
) -> int:
    """What changed between two results, and why."""
    from elsewhere.commands.diff import diff as run

    return show(run(a, b), as_json=as_json)


@app.command(
    epilog="Examples: elsewhere equivalence --means folds.csv; elsewhere equivalence here there --metric auroc --margin 0.05"
)
def equivalence(
    results: Annotated[
        list[Path] | None, typer.Argument(help="Two result folders: here, and the reference.")
    ] = None,
    means: Annotated[
        Path | None, typer.Option(help="csv: mean_1,sd_1,n_1,mean_2,sd_2,n_2,low,high; Welch TOST a row.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to compare; default the task's primary.")] = None,
    margin: Annotated[
        str | None, typer.Option(help="The margin, declared beforehand; or 'study' with --means.")
    ] = None,
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.5, help="Level of each one-sided test.")] = 0.05,
    split_by: Annotated[
        str | None, typer.Option(help="With one result: the column that divides its cases.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="With --split-by: the value that is the reference (ID).")
    ] = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None, typer.Option("--out", help="csv to write (with --means), or a JSON file.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of --out, if it is there already.")
    ] = False,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Is it the same elsewhere? Equivalence by bootstrap, or by Welch TOST from group summaries."""
    from elsewhere.commands.equivalence import equivalence as run

    result = run(
        results or [],
        means=means,
        metric=metric,
        margin=margin,
        alpha=alpha,
        split_by=split_by,
        reference=reference,
        resamples=resamples,
        seed=seed,
        out=out,
        replace=replace,
        table=table_options(encoding, delimiter, decimal),
    )
    return show(result, as_json=as_json)


@app.command(
    "plan-sample",
    epilog="Example: elsewhere plan-sample --metric auroc --expected 0.90 --margin 0.05 --prevalence 0.2",
)
def plan_sample(
    metric: Annotated[
        str, typer.Option(help="auroc, sensitivity, specificity, balanced_accuracy, or a mean such as dice.")
    ] = "auroc",
    expected: Annotated[float, typer.Option(help="The value expected here.")] = 0.9,
    margin: Annotated[float, typer.Option(help="The margin to prove, or the drop to detect.")] = 0.05,
    aim: Annotated[str, typer.Option(help="equivalence, non-inferiority or detect.")] = "equivalence",
    alpha: Annotated[float, typer.Option()] = 0.05,
    power: Annotated[float, typer.Option()] = 0.8,
    prevalence: Annotated[float, typer.Option(help="Share of positives.")] = 0.5,
    sd: Annotated[float | None, typer.Option(help="Standard deviation over cases, for means.")] = None,
    skewness: Annotated[
        float | None,
        typer.Option(
            help="Skewness of the values over cases, for means (from a pilot; without it, -2 is allowed for)."
        ),
    ] = None,
    cases_per_patient: Annotated[float, typer.Option()] = 1.0,
    icc: Annotated[float, typer.Option(help="Correlation of cases of one patient.")] = 0.0,
    as_json: JsonOpt = False,
) -> int:
    """How many cases and positives are needed, before they are collected."""
    from elsewhere.commands.plan_sample import plan_sample as run

    result = run(
        metric=metric,
        expected=expected,
        margin=margin,
        aim=aim,
        alpha=alpha,
        power=power,
        prevalence=prevalence,
        sd=sd,
        skewness=skewness,
        cases_per_patient=cases_per_patient,
        icc=icc,
    )
    return show(result, as_json=as_json)
