"""Sections on who was tested, and on the smallest effects that so many patients can show (ST-07)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elsewhere.report.page.blocks import Cell, Section, Table, cnt, num, text
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import as_float, count
from elsewhere.report.study import plots
from elsewhere.report.study.cells import Rows, metric_label, positive_labels, rows_of, task_label
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

_COLUMNS = {
    "cases": "Cases",
    "patients": "Patients",
    "sites": "Sites",
    "benign": "Benign",
    "malignant": "Malignant",
    "normal": "Normal",
    "both_labels": "Both labels",
    "with_lesions": "With a lesion",
    "without_lesions": "Without",
    "masks": "Mask",
    "outcome_known": "Outcome",
    "pcr": "pCR",
    "no_pcr": "No pCR",
    "age_known": "Age",
    "menopausal_status_known": "Menop. status",
    "breast_density_known": "Density",
    "subtype_known": "Subtype",
}
_PUBLISHED = {
    "published_lesion_images": "Published: lesions",
    "published_normal": "normals",
    "published_patients": "ids",
}


@figure("composition", tables=("datasets",), whole_study=True)
def composition(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the images by label and the number of patient ids of each dataset.

    Args:
        page: The page of the whole study.

    Yields:
        One figure, where the datasets have labelled images.
    """
    rows = [r for r in rows_of(page.of("datasets")) if "benign" in r and r["benign"] == r["benign"]]
    if not rows:
        return
    words = "; ".join(
        f"{r['dataset']}: {count(r['benign'])} benign, {count(r['malignant'])} malignant and "
        f"{count(r['normal'])} normal images, {count(r['patients'])} patient ids"
        for r in rows
    )
    yield FigureSpec(
        name="cohorts",
        title="Images and patient ids of each dataset",
        alt=words,
        build=lambda pal: plots.composition(rows, pal),
    )


@section("who was tested", place="cohort", tables=("datasets",), whole_study=True)
def who(page: StudyPage) -> Section | None:
    """Describe each dataset, and what its patients could show before any result is known (ST-07).

    Args:
        page: The page of the whole study.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("datasets")
    shown = {
        name: head
        for name, head in (_COLUMNS | _PUBLISHED).items()
        if any(_is_there(r.get(name)) for r in rows)
    }
    cells = [
        [text(r["dataset"]), *(_count(r.get(name)) for name in shown), text(r["id_grade"])] for r in rows
    ]
    note = "A split never parts a patient. Counts of one to four patients are withheld, except of public datasets."
    if "both_labels" in shown:
        note += " Both labels: patient ids with benign and malignant images; each stays in one part."
    if "published_patients" in shown:
        note += " The published study counts one id per image in BUS-BRA and BUSI, and masks instead of images in BrEaST."
    table = Table(
        name="datasets",
        caption="The datasets, and for how many cases each attribute is known",
        columns=["Dataset", *shown.values(), "Id grade"],
        rows=cells,
        note=note,
    )
    return page.section(
        "who",
        "Who was tested",
        [*page.pair("cohorts"), table, *_detectable(page)],
        lead="The datasets, and before any result the smallest effect that so many patients can show.",
    )


def _is_there(value: Any) -> bool:
    return isinstance(value, str) or as_float(value) is not None


def _count(value: Any) -> Cell:
    known = as_float(value)
    return cnt(value if known is None else round(known)) if _is_there(value) else text("")


def _detectable(page: StudyPage) -> list[Any]:
    """Make one table per task: the smallest effect above chance, or the smallest drop of the main metric."""
    found = []
    for task in page.summary.headline["tasks"]:
        rows = rows_of(page.of("minimum_detectable_effects", task=task))
        if any(as_float(r.get("smallest_auroc")) is not None for r in rows):
            found.append(_above_chance(task, rows))
        else:
            metric = str(page.summary.headline["tasks"][task]["metric"])
            part = [
                r
                for r in rows
                if r["dataset"] != "all" and as_float(r.get(f"smallest_{metric}_drop")) is not None
            ]
            if part:
                found.append(_drop(task, part, metric))
    return found


def _above_chance(task: str, rows: Rows) -> Table:
    return Table(
        name=f"{task}-detectable",
        caption=f"{task_label(task)}: the smallest effect above chance that would be detected with 80 % power",
        columns=[
            "Dataset",
            "Patients",
            f"{_capital(positive_labels(task)[0])} cases",
            "AUROC from",
            "Balanced accuracy from",
        ],
        rows=[
            [
                text("All together" if r["dataset"] == "all" else r["dataset"]),
                cnt(r["patients"]),
                cnt(r["positives"]),
                num(r["smallest_auroc"], 2),
                num(r["smallest_balanced_accuracy"], 2),
            ]
            for r in rows
        ],
        note="One-sided test at 5 % against 0.5, from the numbers of patients alone.",
    )


def _drop(task: str, rows: Rows, metric: str) -> Table:
    name = metric_label(metric)
    return Table(
        name=f"{task}-detectable",
        caption=f"{task_label(task)}: the smallest drop of {name} against the other datasets that would be detected with "
        "80 % power",
        columns=["Dataset", "Patients", f"Standard deviation of {name}", "Drop from"],
        rows=[
            [
                text(r["dataset"]),
                cnt(r["patients"]),
                num(r.get(f"sd_{metric}")),
                num(r[f"smallest_{metric}_drop"]),
            ]
            for r in rows
        ],
    )


def _capital(name: str) -> str:
    """Begin with a capital, unless the name has one of its own ('pCR')."""
    return name.capitalize() if name.islower() else name
