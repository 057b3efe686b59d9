"""A note in a folder of which files may be shared, and which stay with the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SHARING_FILE = "SHARING.txt"
KEY_FILE = "case_key.csv"
REPORT = "report.html"
_CONTENT = {
    REPORT: "the report",
    "summary.json": "every number of the report",
    "anova.csv": "the analysis of variance of a reader study",
    "covariances.csv": "the covariance of its errors",
    "tests.csv": "its test of all treatments in each analysis",
    "means.csv": "the mean of each treatment in each analysis",
    "differences.csv": "the differences of treatments in each analysis",
    "readers.csv": "the figure of merit of each reader",
    "reader_differences.csv": "the differences of treatments for each reader",
    "panel.csv": "a model compared with the readers",
    "grid.csv": "every setting of a merge with its value",
    KEY_FILE: "the id behind each hash (h-...) and each mark ([id 1]) of the report",
    "scores.parquet": "one row per case, with its ids",
    "events.parquet": "one row per box or point, with the ids of its case",
    "merged.csv": "the merged boxes, with the ids of their patients",
    "merged_validation.csv": "the merged boxes of the volumes that chose the setting, with the ids of their patients",
    "hit_rules.csv": "the value and the rank of each model under each hit rule",
    "slide_stages.csv": "one row per slide, fold and model or ensemble, with its id",
    "patch_scores.csv": "sums of patches per slide, model and fold, with the ids",
    "lesions.csv": "one row per lesion, with its ids and the models that find it",
}
_LOCAL = frozenset(
    {
        KEY_FILE,
        "scores.parquet",
        "events.parquet",
        "lesions.csv",
        "merged.csv",
        "merged_validation.csv",
        "slide_stages.csv",
        "patch_scores.csv",
    }
)


def write_sharing_note(
    folder: Path, *, more: Mapping[str, str] | None = None, pictures: bool = False
) -> Path:
    """Write `SHARING.txt`: the files that this folder has, by whether they name anybody.

    Args:
        folder: The folder of a result.
        more: Further files that may be shared, with a description of each; None for none.
        pictures: Whether the report holds parts of patients' images.

    Returns:
        The path that was written.
    """
    there = [name for name in _CONTENT if (folder / name).is_file()]
    withheld = {*_LOCAL, REPORT} if pictures else _LOCAL
    lines = [
        "May be shared: no id of a case or patient, no name of a file of a case, and no folder is in these files.",
        *(f"  {name}: {_CONTENT[name]}" for name in there if name not in withheld),
        *(f"  {name}: {what}" for name, what in (more or {}).items()),
    ]
    if pictures:
        lines += [
            "",
            "Share only where you may share the images: this page names no case, and holds parts of patients' images.",
            f"  {REPORT}: {_CONTENT[REPORT]}",
        ]
    local = [name for name in there if name in _LOCAL]
    if local:
        lines += [
            "",
            "Stay with the data: these files name cases and patients.",
            *(f"  {name}: {_CONTENT[name]}" for name in local),
        ]
    lines += [
        "",
        "Names of models, sites and groups are shown as they were given: look at them before you share.",
        "What a command prints on the terminal may name cases and files; it is meant for you alone.",
        "",
    ]
    path = folder / SHARING_FILE
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    return path
