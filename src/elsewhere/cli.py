"""The command line: parses, calls a typed function of the same name, prints.

Nothing heavy is imported before a command runs, so that `elsewhere --help` answers at once. Exit codes:
0 done (or equivalent, above, non-inferior as claimed); 2 below; 3 inconclusive; 4 not assessed; 64 bad
input or wrong usage; 70 a fault of ours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, EXIT_OUR_FAULT, UserError

app = typer.Typer(
    name="elsewhere",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Does this breast-imaging model still work at another hospital? From a table of predictions to a verdict.",
    epilog="Start with `elsewhere demo`, or `elsewhere score classification cohort.csv predictions.csv --out result`.",
)
cohort_app = typer.Typer(no_args_is_help=True, help="Who was tested: read, check and describe cohorts.", rich_markup_mode=None)
app.add_typer(cohort_app, name="cohort")

TaskArg = Annotated[str, typer.Argument(help="classification, detection, segmentation, response or slides.")]
CohortArg = Annotated[Path, typer.Argument(help="Cohort folder, or a csv, parquet or xlsx with one row a case.")]
PredictionsArg = Annotated[Path, typer.Argument(help="Prediction file, or a folder of masks or points.")]
OutOpt = Annotated[Path, typer.Option("--out", help="Folder to write; made at once when all is done, or not at all.")]
ProtocolOpt = Annotated[str | None, typer.Option(help="Scoring rules by name (`elsewhere protocols` lists them).")]
GroupOpt = Annotated[str, typer.Option("--group-by", help="Cohort columns, comma-separated: a,b.")]
ResamplesOpt = Annotated[int | None, typer.Option(min=0, help="Resamples; 0 leaves resampled intervals out. Default: the protocol's (1,000; DBTex 5,000).")]
SeedOpt = Annotated[int, typer.Option(help="Seed of every random draw.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
MapOpt = Annotated[list[str] | None, typer.Option("--map", help="Whose column is what: score=COL (may be repeated).")]
ScaleOpt = Annotated[str, typer.Option(help="Scale of the scores: 0-1, 0-100, MIN-MAX, logit or birads.")]
UnitOpt = Annotated[str, typer.Option(help="What the cohort's cases are, where the file has finer rows: case, exam, breast, patient.")]
CombineOpt = Annotated[str, typer.Option(help="How finer rows become one: max, mean, noisy-or.")]
IdsOpt = Annotated[str, typer.Option("--normalise-ids", help="Compare ids after: zeros,case,blanks (never guessed).")]
InvalidOpt = Annotated[str, typer.Option(help="A bad case among many: error (stop), or worst (score it worst, and count it).")]
ThreadsOpt = Annotated[int | None, typer.Option(help="Threads; default all cores.")]
ThresholdOpt = Annotated[float | None, typer.Option(help="Malignant at or above this probability; default the protocol's.")]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _pairs(items: list[str] | None, *, option: str = "--map") -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items or []:
        for part in item.split(","):
            name, sign, value = part.partition("=")
            if not sign or not name.strip() or not value.strip():
                raise UserError(f"'{part}' is not NAME=COLUMN", where=option, fix=f"Write e.g. {option} score=ai_score.")
            pairs[name.strip()] = value.strip()
    return pairs


def _show(result: Any, *, as_json: bool) -> int:
    """Print a result: its JSON alone, or its text; return its exit code."""
    from elsewhere.commands.output import print_json, print_text

    if as_json:
        print_json(result.to_dict())
    else:
        print_text(result)
    return int(getattr(result, "exit_code", EXIT_OK))


@app.command(epilog="Example: elsewhere score classification cohort.csv ai.csv --map score=ai_score --scale 0-100 --group-by site --out result")
def score(
    task: TaskArg,
    cohort: CohortArg,
    predictions: PredictionsArg,
    out: OutOpt,
    protocol: ProtocolOpt = None,
    group_by: GroupOpt = "",
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    threshold: ThresholdOpt = None,
    calibrate_on: Annotated[Path | None, typer.Option(help="Validation predictions to fit the temperature on.")] = None,
    matching: Annotated[str | None, typer.Option(help="Detection: challenge or nearest.")] = None,
    fairness_weight: Annotated[float | None, typer.Option(min=0, max=1, help="Weight of fairness in `combined`.")] = None,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    unit: UnitOpt = "case",
    combine: CombineOpt = "max",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Score predictions: who was tested, how good it was, with intervals, in which groups."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.score import score as run

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            task, cohort, predictions, out=out, protocol=protocol, group_by=_list(group_by), resamples=resamples, seed=seed,
            threshold=threshold, calibrate_on=calibrate_on, matching=matching, fairness_weight=fairness_weight,
            column_map=_pairs(column_map), scale=scale, unit=unit, combine=combine, normalise_ids=_list(normalise_ids),
            on_invalid=on_invalid, threads=threads, progress=progress,
        )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere summarise segmentation cohort.csv dice.csv --protocol mamamia-code --out result")
def summarise(
    task: TaskArg,
    cohort: CohortArg,
    scores: Annotated[Path, typer.Argument(help="A scores table (csv or parquet), or an existing result folder.")],
    out: OutOpt,
    protocol: ProtocolOpt = None,
    group_by: GroupOpt = "",
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    threshold: ThresholdOpt = None,
    fairness_weight: Annotated[float | None, typer.Option(min=0, max=1, help="Weight of fairness in `combined`.")] = None,
    by: Annotated[str, typer.Option("--by", help="Keys of a large table, read as a stream: model,fold,stage.")] = "",
    column_map: MapOpt = None,
    on_invalid: InvalidOpt = "error",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """The same as score, from a table of scores that exists already."""
    from elsewhere.commands.summarise import summarise as run

    result = run(
        task, cohort, scores, out=out, protocol=protocol, group_by=_list(group_by), resamples=resamples, seed=seed,
        threshold=threshold, fairness_weight=fairness_weight, by=_list(by), column_map=_pairs(column_map),
        on_invalid=on_invalid, threads=threads,
    )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere check predictions.csv --task classification --cohort cohort.csv")
def check(
    predictions: PredictionsArg,
    task: Annotated[str, typer.Option(help="classification, detection, segmentation, response or slides.")],
    cohort: Annotated[Path | None, typer.Option(help="The cohort; it may come without the truth.")] = None,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    unit: UnitOpt = "case",
    combine: CombineOpt = "max",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    as_json: JsonOpt = False,
) -> int:
    """Look before scoring: ids, columns, direction and scale of the scores, rows lost and why."""
    from elsewhere.commands.check import check as run

    result = run(
        predictions, task=task, cohort=cohort, column_map=_pairs(column_map), scale=scale, unit=unit, combine=combine,
        normalise_ids=_list(normalise_ids), on_invalid=on_invalid,
    )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere compare result_a result_b --out comparison")
def compare(
    result_a: Annotated[Path, typer.Argument(help="Result folder of model A.")],
    result_b: Annotated[Path, typer.Argument(help="Result folder of model B, same cases.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for comparison.json and report.html.")] = None,
    metrics: Annotated[str, typer.Option("--metrics", help="Metrics to compare, comma-separated; default all.")] = "",
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    as_json: JsonOpt = False,
) -> int:
    """Two models on the same cases: bootstrap, permutation, Wilcoxon, t, and DeLong for AUROC."""
    from elsewhere.commands.compare import compare as run

    result = run(result_a, result_b, metrics=_list(metrics), resamples=resamples, seed=seed, out=out)
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere rank submissions/ --cohort cohort --task segmentation --protocol mamamia-paper --out ranking")
def rank(
    results: Annotated[list[Path], typer.Argument(help="Result folders, or one folder of prediction files.")],
    cohort: Annotated[Path | None, typer.Option(help="The cohort, for prediction files.")] = None,
    task: Annotated[str | None, typer.Option(help="The task, for prediction files.")] = None,
    protocol: ProtocolOpt = None,
    metric: Annotated[str | None, typer.Option(help="Metric to rank by; default the task's, `combined` for challenges.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Name of the baseline; the others are tested against it (Holm).")] = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for ranking.json and report.html.")] = None,
    column_map: MapOpt = None,
    scale: ScaleOpt = "0-1",
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    threads: ThreadsOpt = None,
    as_json: JsonOpt = False,
) -> int:
    """Rank models with ties, rank intervals and tiers, all on the same resamples."""
    from elsewhere.commands.output import progress_bar
    from elsewhere.commands.rank import rank as run

    with progress_bar(enabled=not as_json) as progress:
        result = run(
            results, cohort=cohort, task=task, protocol=protocol, metric=metric, baseline=baseline, resamples=resamples,
            seed=seed, out=out, column_map=_pairs(column_map), scale=scale, normalise_ids=_list(normalise_ids),
            on_invalid=on_invalid, threads=threads, progress=progress,
        )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere accept --init; then: elsewhere accept cohort.csv vendor.csv --claim claim.toml --out verdict")
def accept(
    cohort: Annotated[Path | None, typer.Argument(help="The hospital's own cases and outcomes.")] = None,
    predictions: Annotated[Path | None, typer.Argument(help="The vendor's predictions.")] = None,
    claim: Annotated[Path, typer.Option(help="The claim: the vendor's numbers, threshold, margin, subgroups.")] = Path("claim.toml"),
    init: Annotated[bool, typer.Option("--init", help="Write a commented claim to fill in, and stop.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the result and the report.")] = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    column_map: MapOpt = None,
    scale: Annotated[str | None, typer.Option(help="Overrides the claim's scale.")] = None,
    normalise_ids: IdsOpt = "",
    on_invalid: InvalidOpt = "error",
    as_json: JsonOpt = False,
) -> int:
    """Does the vendor's claim hold here? A verdict in five words, and an exit code."""
    from elsewhere.commands.accept import accept as run
    from elsewhere.commands.claim import write_claim_template

    if init:
        return _show(write_claim_template(claim), as_json=as_json)
    if cohort is None or predictions is None:
        raise UserError("accept needs COHORT and PREDICTIONS", fix="elsewhere accept COHORT PREDICTIONS --claim claim.toml (or --init).")
    result = run(
        cohort, predictions, claim=claim, out=out, resamples=resamples, seed=seed, column_map=_pairs(column_map), scale=scale,
        normalise_ids=_list(normalise_ids), on_invalid=on_invalid,
    )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere diff result_2025 result_2026")
def diff(
    a: Annotated[Path, typer.Argument(help="A result folder.")],
    b: Annotated[Path, typer.Argument(help="Another.")],
    as_json: JsonOpt = False,
) -> int:
    """What changed between two results, and why."""
    from elsewhere.commands.diff import diff as run

    return _show(run(a, b), as_json=as_json)


@app.command(epilog="Example: elsewhere report result --tables tables --figures figures")
def report(
    result: Annotated[Path, typer.Argument(help="A result folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file; default report.html in the folder.")] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for every table as csv and LaTeX.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for every figure as SVG, PDF and PNG.")] = None,
    as_json: JsonOpt = False,
) -> int:
    """Write the report again, and every table and figure as files."""
    from elsewhere.commands.report import report as run

    return _show(run(result, out=out, tables=tables, figures=figures), as_json=as_json)


@app.command(epilog="Examples: elsewhere equivalence --means folds.csv; elsewhere equivalence here there --metric auroc --margin 0.05")
def equivalence(
    results: Annotated[list[Path] | None, typer.Argument(help="Two result folders: here, and the reference.")] = None,
    means: Annotated[Path | None, typer.Option(help="csv: mean_1,sd_1,n_1,mean_2,sd_2,n_2,low,high; Welch TOST a row.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to compare; default the task's primary.")] = None,
    margin: Annotated[str | None, typer.Option(help="The margin, declared beforehand; or 'study' with --means (LN-12).")] = None,
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.5, help="Level of each one-sided test.")] = 0.05,
    split_by: Annotated[str | None, typer.Option(help="With one result: the column that parts its cases.")] = None,
    reference: Annotated[str | None, typer.Option(help="With --split-by: the value that is the reference (ID).")] = None,
    resamples: ResamplesOpt = None,
    seed: SeedOpt = 42,
    out: Annotated[Path | None, typer.Option("--out", help="csv to write (with --means), or a JSON file.")] = None,
    as_json: JsonOpt = False,
) -> int:
    """Is it the same elsewhere? Equivalence by bootstrap, or by Welch TOST from group summaries."""
    from elsewhere.commands.equivalence import equivalence as run

    result = run(
        results or [], means=means, metric=metric, margin=margin, alpha=alpha, split_by=split_by, reference=reference,
        resamples=resamples, seed=seed, out=out,
    )  # fmt: skip
    return _show(result, as_json=as_json)


@app.command("plan-sample", epilog="Example: elsewhere plan-sample --metric auroc --expected 0.90 --margin 0.05 --prevalence 0.2")
def plan_sample(
    metric: Annotated[str, typer.Option(help="auroc, sensitivity, specificity, balanced_accuracy, or a mean such as dice.")] = "auroc",
    expected: Annotated[float, typer.Option(help="The value expected here.")] = 0.9,
    margin: Annotated[float, typer.Option(help="The margin to prove, or the drop to detect.")] = 0.05,
    aim: Annotated[str, typer.Option(help="equivalence, non-inferiority or detect.")] = "equivalence",
    alpha: Annotated[float, typer.Option()] = 0.05,
    power: Annotated[float, typer.Option()] = 0.8,
    prevalence: Annotated[float, typer.Option(help="Share of positives.")] = 0.5,
    sd: Annotated[float | None, typer.Option(help="Standard deviation a case, for means.")] = None,
    cases_per_patient: Annotated[float, typer.Option()] = 1.0,
    icc: Annotated[float, typer.Option(help="Correlation of cases of one patient.")] = 0.0,
    as_json: JsonOpt = False,
) -> int:
    """How many cases and positives are needed, before they are collected (ST-07)."""
    from elsewhere.commands.plan_sample import plan_sample as run

    result = run(
        metric=metric, expected=expected, margin=margin, aim=aim, alpha=alpha, power=power, prevalence=prevalence, sd=sd,
        cases_per_patient=cases_per_patient, icc=icc,
    )  # fmt: skip
    return _show(result, as_json=as_json)


@cohort_app.command("read", epilog="Example: elsewhere cohort read bcs-dbt FOLDER --out cohort")
def cohort_read(
    reader: Annotated[str, typer.Argument(help="csv, bcs-dbt, mama-mia, camelyon17, ... (`elsewhere readers`).")],
    source: Annotated[Path, typer.Argument(help="The published folder or table.")],
    out: OutOpt,
    column_map: MapOpt = None,
    constants: Annotated[list[str] | None, typer.Option("--set", help="A constant column: dataset=NAME (may be repeated).")] = None,
    as_json: JsonOpt = False,
) -> int:
    """Read a public set, or any csv, into a cohort folder with its hash, grade and audit."""
    from elsewhere.commands.cohort import read

    result = read(reader, source, out=out, column_map=_pairs(column_map), constants=_pairs(constants, option="--set"))
    return _show(result, as_json=as_json)


@cohort_app.command("check", epilog="Example: elsewhere cohort check cohort")
def cohort_check(cohort: CohortArg, as_json: JsonOpt = False) -> int:
    """Audit that the patient ids are patients, and that the rows are cases."""
    from elsewhere.commands.cohort import check as run

    return _show(run(cohort), as_json=as_json)


@cohort_app.command("describe", epilog="Example: elsewhere cohort describe cohort --json")
def cohort_describe(cohort: CohortArg, as_json: JsonOpt = False) -> int:
    """Counts, classes, sites and attributes of a cohort."""
    from elsewhere.commands.cohort import describe as run

    return _show(run(cohort), as_json=as_json)


@app.command("protocols")
def list_protocols(as_json: JsonOpt = False) -> int:
    """The scoring rules that can be named."""
    from elsewhere.commands.listing import list_protocols as run

    return _show(run(), as_json=as_json)


@app.command("readers")
def list_readers(as_json: JsonOpt = False) -> int:
    """The cohort readers, built in and from other packages."""
    from elsewhere.commands.listing import list_readers as run

    return _show(run(), as_json=as_json)


@app.command("metrics")
def list_metrics(as_json: JsonOpt = False) -> int:
    """The metrics of every task, with what they declare."""
    from elsewhere.commands.listing import list_metrics as run

    return _show(run(), as_json=as_json)


@app.command(epilog="Example: elsewhere demo --out demo-out")
def demo(out: OutOpt = Path("demo-out"), seed: SeedOpt = 7, as_json: JsonOpt = False) -> int:
    """Three synthetic hospitals for every task, four planted faults, and a report that finds them."""
    from elsewhere.commands.demo import demo as run
    from elsewhere.commands.output import progress_bar

    with progress_bar(enabled=not as_json) as progress:
        result = run(out, seed=seed, progress=progress)
    return _show(result, as_json=as_json)


@app.command(epilog="Example: elsewhere coverage --quick --out docs/reference")
def coverage(
    out: OutOpt = Path("docs/reference"),
    quick: Annotated[bool, typer.Option(help="Fewer replicates.")] = False,
    seed: SeedOpt = 20261116,
    as_json: JsonOpt = False,
) -> int:
    """Simulate what the intervals and tests promise, and write the tables (ST-04, ST-13)."""
    from elsewhere.commands.coverage import coverage as run

    return _show(run(out, quick=quick, seed=seed), as_json=as_json)


def main(argv: list[str] | None = None) -> None:
    """Run the program; every way out has its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    as_json = "--json" in arguments
    if arguments in (["--version"], ["-V"]):
        from elsewhere import __version__

        print(f"elsewhere {__version__}")
        sys.exit(EXIT_OK)
    try:
        code = app(arguments, standalone_mode=False, prog_name="elsewhere")
    except UserError as mistake:
        _print_mistake(mistake.to_dict(), str(mistake), as_json=as_json)
        sys.exit(EXIT_BAD_INPUT)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as problem:  # noqa: BLE001 - the last net: usage errors of the library, and faults of ours
        message = getattr(problem, "format_message", None)
        if message is not None:
            show = getattr(problem, "show", None)
            if show is not None and not as_json:
                show()
            else:
                _print_mistake({"error": message(), "where": None, "fix": "elsewhere --help"}, message(), as_json=as_json)
            sys.exit(EXIT_BAD_INPUT)
        import traceback

        traceback.print_exc()
        _print_mistake(
            {"error": f"{type(problem).__name__}: {problem}", "where": None, "fix": None},
            "This is a fault of ours, not of your input. Please report it with the lines above.",
            as_json=as_json,
        )
        sys.exit(EXIT_OUR_FAULT)
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _print_mistake(content: dict[str, str | None], text: str, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(content))
    else:
        print(f"elsewhere: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
