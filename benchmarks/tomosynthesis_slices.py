"""The 467 real slices of BCS-DBT as a study: five folds by patient, ImageNet weights against random ones.

    python -m benchmarks.tomosynthesis_slices ../shared/data/tomosynthesis/BCS-DBT slices
    elsewhere plan slices/slices.toml --out slices/out --export work
    (there) python -m elsewhere.engine work --store store --zip done.zip
    elsewhere run slices/slices.toml --out slices/out --import done.zip

Each slice is a volume of one slice; boxes stay in pixels of the original slices. Slices of patients without a biopsied
finding have no box. What the result can and cannot say: `docs/results/tomosynthesis.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from elsewhere.cohort import Cohort

STUDY = """[study]
name = "tomosynthesis-slices"
description = "Lesions on 467 single slices of BCS-DBT, five folds by patient: a detector that starts from ImageNet weights, and one from random weights."

[[cohort]]
source = "cohort"

[scenarios]
kinds = ["folds"]
folds = 5
seeds = [1]
keep_duplicates_together = true

[tasks.detection]
protocol = "dbtex-code"

# One slice is one picture here: a detector of slices without the step from slices to volumes.
[recipes.from-imagenet]
recipe = "faster-rcnn"
baseline = true

[recipes.from-imagenet.settings]
network = "faster-rcnn-lite0"
weights = "imagenet"
pixel = 2.4
tile = [768, 448]
tile_overlap = 0
epochs = 30
batch = 8
learning_rate = 5e-4
least_score = 0.01

[recipes.from-random]
like = "from-imagenet"
recipe = "faster-rcnn"

[recipes.from-random.settings]
weights = "none"

[analyses]
resamples = 5000
"""


def slices_cohort(folder: Path) -> Cohort:
    """Read the table of the slices as a cohort with lesions."""
    table = pd.read_csv(folder / "slices_1024" / "index.csv")
    findings = ("cancer", "benign", "actionable", "normal")
    finding = pd.Series("", index=table.index)
    for name in reversed(findings):
        finding = finding.mask(table[f"patient_{name}"] == 1, name)
    boxed = table["has_box"] == 1
    cases = pd.DataFrame(
        {
            "case_id": table["image"].str.removesuffix(".webp"),
            "patient_id": table["patient"],
            "dataset": "BCS-DBT-slices",
            "modality": "tomosynthesis",
            "view": table["view"].where(boxed),
            "image": table["image"],
            "orig_height": table["orig_height"],
            "orig_width": table["orig_width"],
            "finding": table["lesion"].where(boxed, finding.where(finding != "", None)),
        }
    )
    some = table[boxed]
    lesions = pd.DataFrame(
        {
            "case_id": some["image"].str.removesuffix(".webp"),
            "x": some["x"],
            "y": some["y"],
            "width": some["w"],
            "height": some["h"],
            "slice": 0,
            "volume_slices": 1,
            "class": some["lesion"],
            "ad": some["ad"],
        }
    )
    return Cohort.from_frame(cases, lesions=lesions, root=folder / "slices_1024")


def main(source: str, out: str) -> None:
    """Write the cohort and the study file.

    Args:
        source: The folder BCS-DBT.
        out: The folder to write.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    slices_cohort(Path(source).resolve()).save(folder / "cohort")
    (folder / "slices.toml").write_text(STUDY, encoding="utf-8")
    print(f"study: {folder / 'slices.toml'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
