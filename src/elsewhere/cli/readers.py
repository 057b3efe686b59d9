"""`elsewhere readers`: a reader study; without arguments, the installed readers of cohorts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsewhere.cli.apps import app
from elsewhere.cli.options import JsonOpt, ReplaceOpt, SeedOpt, show, split_list
from elsewhere.cli.phantoms import phantom_app
from elsewhere.errors import UserError


@app.command(
    epilog="Example: elsewhere readers study.xlsx --fom wafroc --out analysis; trainings as readers: elsewhere readers "
    "--treatment cnn=results/cnn --treatment vit=results/vit --fom auroc. Without arguments: the cohort readers."
)
def readers(
    workbook: Annotated[
        Path | None,
        typer.Argument(help="Workbook of a JAFROC study: sheets Truth, TP (or LL) and FP (or NL)."),
    ] = None,
    treatment: Annotated[
        list[str] | None,
        typer.Option(
            "--treatment",
            help="In place of a workbook: NAME=FOLDER of a result, or of results, one per reader or training (may be repeated).",
        ),
    ] = None,
    fom: Annotated[
        str | None,
        typer.Option(
            help="Figure of merit: wafroc, wafroc1, afroc, afroc1, hr-auc, max-llf, max-nlf, auc, sensitivity, specificity; of results any metric. "
            "Default: wafroc for marks, auc for one rating per case."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Rating from which a case counts as positive, for --fom sensitivity or specificity."
        ),
    ] = None,
    random: Annotated[
        str, typer.Option(help="What is a sample: readers,cases or cases or readers.")
    ] = "readers,cases",
    reference: Annotated[
        str | None, typer.Option(help="Treatment that the others are compared with; default the first.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Reader (or treatment) that is a model: it is compared with the mean of the readers."
        ),
    ] = None,
    use_readers: Annotated[
        str, typer.Option(help="Readers of the workbook to take, comma-separated; default all.")
    ] = "",
    use_treatments: Annotated[
        str, typer.Option(help="Treatments of the workbook to take, comma-separated; default all.")
    ] = "",
    paradigm: Annotated[
        str | None, typer.Option(help="ROC or FROC; default what the workbook states or looks like.")
    ] = None,
    design: Annotated[
        str,
        typer.Option(
            help="Of results: crossed (the same readers with every treatment), nested (each treatment has its own) or auto."
        ),
    ] = "auto",
    leave_out: Annotated[
        str, typer.Option(help="What the jackknife leaves out: patient (where PatientID is there) or case.")
    ] = "patient",
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    margin: Annotated[
        float | None,
        typer.Option(
            "--non-inferiority-margin",
            help="The largest loss that would not matter: gives a verdict and its exit code.",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Level of the verdict's one-sided test; its interval is 1 - 2 alpha.")
    ] = 0.05,
    on_invalid: Annotated[
        str,
        typer.Option(help="A mark that cannot be used: error (stop), or skip (leave it out, and count it)."),
    ] = "error",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for summary.json, tables and report.html.")
    ] = None,
    replace: ReplaceOpt = False,
    as_json: JsonOpt = False,
) -> int:
    """A reader study: do treatments differ over readers and cases (Obuchowski-Rockette), and is a model as good as readers?"""
    if workbook is None and not treatment:
        from elsewhere.commands.listing import list_readers

        return show(list_readers(), as_json=as_json)
    from elsewhere.commands.readers import reader_study as run

    result = run(
        workbook,
        treatments=_folders(treatment),
        figure=fom,
        threshold=threshold,
        random=random,
        reference=reference,
        model=model,
        use_readers=split_list(use_readers),
        use_treatments=split_list(use_treatments),
        paradigm=paradigm.upper() if paradigm else None,
        design=design,
        leave_out=leave_out,
        level=level,
        margin=margin,
        alpha=alpha,
        on_invalid=on_invalid,
        out=out,
        replace=replace,
    )
    return show(result, as_json=as_json)


def _folders(items: list[str] | None) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for item in items or []:
        name, sign, folder = item.partition("=")
        if not sign or not name.strip() or not folder.strip():
            raise UserError(
                f"'{item}' is not NAME=FOLDER",
                where="--treatment",
                fix="Write e.g. --treatment cnn=results/cnn.",
            )
        folders.setdefault(name.strip(), []).append(folder.strip())
    return folders


@phantom_app.command(
    "reader-study",
    epilog="Example: elsewhere phantom reader-study study.xlsx --readers 5 --effect 0.4",
)
def phantom_reader_study(
    out: Annotated[Path, typer.Argument(help="Workbook to write (.xlsx).")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
    paradigm: Annotated[str, typer.Option(help="FROC (marks) or ROC (one rating per case).")] = "FROC",
    readers: Annotated[int, typer.Option(min=1, help="Readers.")] = 5,
    normal: Annotated[int, typer.Option(min=2, help="Cases without a lesion.")] = 60,
    diseased: Annotated[int, typer.Option(min=2, help="Cases with a lesion.")] = 40,
    treatments: Annotated[str, typer.Option(help="Names, comma-separated.")] = "unaided,aided",
    effect: Annotated[
        float, typer.Option(help="What the last treatment adds to the separation of lesions.")
    ] = 0.4,
    model: Annotated[bool, typer.Option("--model", help="Add a model as a reader called AI.")] = False,
    cases_per_patient: Annotated[int, typer.Option(min=1, help="Cases per patient.")] = 1,
    form: Annotated[str, typer.Option(help="Form of the workbook: newer or older.")] = "newer",
    seed: SeedOpt = 1,
    as_json: JsonOpt = False,
) -> int:
    """A reader study with a known truth, as the workbook of a JAFROC study."""
    from elsewhere.commands.phantom import reader_study

    made = reader_study(
        out,
        replace=replace,
        form=form,
        seed=seed,
        paradigm=paradigm.upper(),
        readers=readers,
        normal=normal,
        diseased=diseased,
        treatments=split_list(treatments),
        effect=effect,
        model=model,
        cases_per_patient=cases_per_patient,
        patient_share=0.5 if cases_per_patient > 1 else 0.0,
    )
    return show(made, as_json=as_json)
