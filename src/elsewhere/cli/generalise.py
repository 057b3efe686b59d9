"""`elsewhere generalise` and `elsewhere slides patch-scores`: many slide models at another hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import (
    DecimalOpt,
    DelimiterOpt,
    EncodingOpt,
    JsonOpt,
    ReplaceOpt,
    SeedOpt,
    show,
    split_list,
    table_options,
)
from elsewhere.cli.phantoms import phantom_app
from elsewhere.cli.slides import slides_app


@app.command(
    epilog="Example: elsewhere generalise scores.parquet --margin dice=0.05 --margin fpr=0.005 --by stage --out verdicts; "
    "a study's printed table: elsewhere generalise --means equivalence.csv --margin study"
)
def generalise(
    scores: Annotated[
        Path | None,
        typer.Argument(
            help="Table of patch scores: one row per slide, model and fold (`elsewhere slides patch-scores` makes one)."
        ),
    ] = None,
    means: Annotated[
        Path | None,
        typer.Option(
            "--means",
            help="In place of scores: printed differences per model, in columns such as tumor_difference, tumor_lo90, "
            "tumor_hi90, tumor_p and normal_... (internal - external).",
        ),
    ] = None,
    rates: Annotated[
        Path | None,
        typer.Option(
            "--rates",
            help="With --means: printed sensitivity and specificity of slides (name, sensitivity, specificity, positive, "
            "negative, itc), averaged over both classes under both rules for ITC.",
        ),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            "--margin",
            help="Largest difference that would not matter: dice=0.05, fpr=0.005, a number for both, or study (made from the "
            "data). May be repeated.",
        ),
    ] = None,
    ratio_margin: Annotated[
        float,
        typer.Option("--ratio-margin", help="Largest ratio of false-positive rates that would not matter."),
    ] = 1.5,
    internal: Annotated[
        str | None,
        typer.Option(
            "--id", help="Internal slides: COLUMN=VALUE or COLUMN=A,B. Default: column domain, value ID."
        ),
    ] = None,
    external: Annotated[
        str | None,
        typer.Option(
            "--ood", help="External slides: COLUMN=VALUE or COLUMN=A,B. Default: column domain, value OOD."
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="Columns of slides whose values are strata: stage,site.")
    ] = "",
    standardise: Annotated[
        str,
        typer.Option(
            "--standardise",
            help="Columns of slides whose mix is made equal to the internal one: stage,lesion_size.",
        ),
    ] = "",
    weight: Annotated[
        str, typer.Option(help="What counts once in a mean: patches (as the study) or slides.")
    ] = "patches",
    folds: Annotated[
        str,
        typer.Option(
            help="all: every fold scored every slide; own: each fold has slides of its own (cross-validation)."
        ),
    ] = "all",
    reference: Annotated[
        str | None,
        typer.Option(help="Model that the others are compared with on external slides, patient by patient."),
    ] = None,
    ensembles: Annotated[
        bool,
        typer.Option(
            "--ensembles/--no-ensembles",
            help="Choose ensembles by the study's rules, also on other patients, and compare them with random ones.",
        ),
    ] = False,
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            help="Table with one row per model: model, share (of partial-tumour patches), clustering. Default: from names "
            "such as imagenet-20.",
        ),
    ] = None,
    share: Annotated[
        str | None, typer.Option("--share", help="Column of --models with the share, if not share.")
    ] = None,
    clustering: Annotated[
        str | None,
        typer.Option("--clustering", help="Column of --models with the clustering, if not clustering."),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Level of each one-sided test; intervals are 1 - 2 alpha.")
    ] = 0.05,
    resamples: Annotated[
        int, typer.Option(min=0, help="Resamples of patients; 0 leaves the bootstrap out.")
    ] = 1000,
    seed: SeedOpt = 42,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json, tables and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Which of many slide models still work at another hospital: by patient, by fold as the lymph-node study, by stage."""
    from elsewhere.commands.generalise import GeneraliseSettings
    from elsewhere.commands.generalise import generalise as run

    result = run(
        scores,
        means=means,
        margins=tuple(part for item in margin or () for part in split_list(item)),
        settings=GeneraliseSettings(
            internal=internal,
            external=external,
            by=split_list(by),
            standardise=split_list(standardise),
            ratio_margin=ratio_margin,
            weight=weight,
            folds=folds,
            reference=reference,
            ensembles=ensembles,
            models=models,
            share=share,
            clustering=clustering,
            rates=rates,
            alpha=alpha,
            resamples=resamples,
            seed=seed,
        ),
        out=out,
        replace=replace,
        table=table_options(encoding, delimiter, decimal),
    )
    return show(result, as_json=as_json)


@slides_app.command(
    "patch-scores",
    epilog="Example: elsewhere slides patch-scores patches.parquet scores.parquet --slides slides.csv",
)
def slides_patch_scores(
    rows: Annotated[
        Path,
        typer.Argument(
            help="Rows of patches: case_id, model, fold, dice on tumour patches and fpr on normal ones (or tp, fp, fn, tn)."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Table of patch scores to write: .parquet or .csv.")],
    slides: Annotated[
        Path | None,
        typer.Option("--slides", help="One row per slide: case_id, patient_id, stage, site, domain, ..."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
    encoding: EncodingOpt = None,
    delimiter: DelimiterOpt = None,
    decimal: DecimalOpt = ".",
    as_json: JsonOpt = False,
) -> int:
    """Add rows of patches up per slide, model and fold: what `generalise` reads."""
    from elsewhere.commands.generalise import patch_scores as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            rows,
            out,
            slides=slides,
            replace=replace,
            table=table_options(encoding, delimiter, decimal),
            progress=progress,
        )
    return show(result, as_json=as_json)


@phantom_app.command(
    "patch-scores", epilog="Example: elsewhere phantom patch-scores scores.csv --models 3 --drop 0.5 --seed 1"
)
def phantom_patch_scores(
    out: Annotated[Path, typer.Argument(help="Table of patch scores to write: .csv or .parquet.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
    internal: Annotated[int, typer.Option(min=1, help="Internal slides.")] = 169,
    external: Annotated[int, typer.Option(min=1, help="External slides.")] = 68,
    models: Annotated[int, typer.Option(min=1, help="Models.")] = 21,
    folds: Annotated[int, typer.Option(min=1, help="Folds of each model.")] = 5,
    drop: Annotated[
        float, typer.Option(help="What the external slides lose of Dice, on the logit scale.")
    ] = 0.0,
    fpr_ratio: Annotated[float, typer.Option(help="External over internal false-positive rate.")] = 1.0,
    external_area: Annotated[
        float,
        typer.Option(help="What the external areas of tumour are multiplied by: another mix of stages."),
    ] = 1.0,
    thresholds: Annotated[
        str, typer.Option(help="Pixel thresholds with rows of their own: 0.3,0.5,0.7.")
    ] = "",
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """A table of patch scores with a known truth: many models, folds and slides of two domains."""
    from elsewhere.commands.phantom_patch_scores import patch_scores

    made = patch_scores(
        out,
        replace=replace,
        seed=seed,
        internal=internal,
        external=external,
        models=models,
        folds=folds,
        drop=drop,
        fpr_ratio=fpr_ratio,
        external_area=external_area,
        thresholds=split_list(thresholds),
    )
    return show(made, as_json=as_json)
